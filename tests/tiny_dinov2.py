"""A DINOv2 of a few thousand random weights, saved as transformers saves one."""

import torch


def save_tiny_dinov2(folder, seed=0, **changes):
    """Write it to a folder and return the model; every weight is drawn, so that none is lost in a product with 0."""
    from transformers import Dinov2Config, Dinov2Model

    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "mlp_ratio": 2}
    config = Dinov2Config(**{**sizes, "patch_size": 4, "image_size": 20, **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Dinov2Model(config).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return model
