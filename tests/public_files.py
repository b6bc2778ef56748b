"""The field's public models, written again with transformers' ViT and plain torch, and saved as their files are.

Independent of saltwm: attention is a masked softmax, A(c) an explicit matrix, the action encoder a convolution.
"""

import json
import re
from dataclasses import dataclass

import torch
from torch import nn

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Sizes:
    image: int = 28
    patch: int = 7
    width: int = 24
    depth: int = 2
    heads: int = 3
    mlp: int = 40
    latent: int = 16
    projection: int = 36
    smoothed: int = 6
    block: int = 10
    modes: int = 3
    spectral: bool = True
    frames: int = 3
    predictor_depth: int = 2
    predictor_heads: int = 2
    predictor_head_dim: int = 8
    predictor_mlp: int = 20


SMALL = Sizes()
PUBLISHED = Sizes(224, 14, 192, 12, 3, 768, 192, 2048, 10, 10, 16, True, 3, 6, 16, 64, 2048)


class Head(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, outputs)
        )

    def forward(self, x):
        return self.net(x.flatten(0, -2)).view(*x.shape[:-1], -1)


class Embedder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.patch_embed = nn.Conv1d(s.block, s.smoothed, 1)
        self.embed = nn.Sequential(nn.Linear(s.smoothed, 4 * s.latent), nn.SiLU(), nn.Linear(4 * s.latent, s.latent))

    def forward(self, blocks):
        return self.embed(self.patch_embed(blocks.transpose(1, 2)).transpose(1, 2))


class Affine(nn.Module):
    window = 1

    def __init__(self, s):
        super().__init__()
        d = s.latent
        self.spectral, self.modes = s.spectral, s.modes
        if s.spectral:
            self.W_u, self.W_v = nn.Parameter(torch.zeros(d, d)), nn.Parameter(torch.zeros(d, d))
            self.s = nn.Parameter(torch.ones(d))
        else:
            self.A_free = nn.Parameter(torch.eye(d))
        if s.modes:
            self.W_g = nn.Linear(d, s.modes, bias=False)
            self.N = nn.Parameter(torch.zeros(s.modes, d, d))
        self.B = nn.Linear(d, d)

    def forward(self, z, c):
        a = self.A_free if not self.spectral else self._base()
        matrix = a.expand(*c.shape[:-1], *a.shape)
        if self.modes:
            matrix = matrix + torch.einsum("btr,rij->btij", self.W_g(c), self.N)
        return (matrix @ z.unsqueeze(-1)).squeeze(-1) + self.B(c)

    def _base(self):
        u, v = (torch.matrix_exp(w - w.T) for w in (self.W_u, self.W_v))
        return u @ torch.diag(torch.tanh(self.s)) @ v.T


class Attention(nn.Module):
    def __init__(self, d, heads, head_dim):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(d)
        self.to_qkv = nn.Linear(d, 3 * heads * head_dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * head_dim, d), nn.Dropout(0.1))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.to_qkv(self.norm(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        return self.to_out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(d), nn.Linear(d, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, d), nn.Dropout(0.1)
        )

    def forward(self, x):
        return self.net(x)


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        d = s.latent
        self.norm1 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.attn = Attention(d, s.predictor_heads, s.predictor_head_dim)
        self.mlp = Mlp(d, s.predictor_mlp)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(c).chunk(6, -1)
        x = x + gate1 * self.attn(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class Layers(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.predictor_depth))
        self.norm = nn.LayerNorm(s.latent)

    def forward(self, x, c):
        for layer in self.layers:
            x = layer(x, c)
        return self.norm(x)


class Predictor(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.window = s.frames
        self.pos_embedding = nn.Parameter(torch.randn(1, s.frames, s.latent))
        self.transformer = Layers(s)

    def forward(self, z, c):
        return self.transformer(z + self.pos_embedding[:, : z.shape[1]], c)


class PublicModel(nn.Module):
    """LeWM or SALT as published; every tensor away from its initial value."""

    def __init__(self, kind, s=SMALL, seed=0):
        import transformers

        super().__init__()
        torch.manual_seed(seed)
        vit = transformers.ViTConfig(
            hidden_size=s.width,
            num_hidden_layers=s.depth,
            num_attention_heads=s.heads,
            intermediate_size=s.mlp,
            image_size=s.image,
            patch_size=s.patch,
        )
        self.kind, self.sizes = kind, s
        self.encoder = transformers.ViTModel(vit, add_pooling_layer=False)
        self.projector = Head(s.width, s.projection, s.latent)
        self.action_encoder = Embedder(s)
        self.predictor = Affine(s) if kind == "salt" else Predictor(s)
        self.pred_proj = None if kind == "salt" else Head(s.latent, s.projection, s.latent)
        with torch.no_grad():
            for name, tensor in self.state_dict().items():
                if name.endswith("running_var"):
                    tensor.copy_(0.5 + torch.rand_like(tensor))
                elif name.endswith("num_batches_tracked"):
                    tensor.fill_(1234)
                else:
                    tensor.add_(0.1 * torch.randn_like(tensor))
        self.eval()

    def encode(self, frames):
        """uint8 [N, H, W, 3] -> [N, D]"""
        mean, std = torch.tensor(IMAGENET_MEAN).view(3, 1, 1), torch.tensor(IMAGENET_STD).view(3, 1, 1)
        pixels = (frames.permute(0, 3, 1, 2) / 255 - mean) / std
        return self.projector(self.encoder(pixel_values=pixels).last_hidden_state[:, 0])

    def predict(self, z, c):
        following = self.predictor(z, c)
        return following if self.pred_proj is None else self.pred_proj(following)

    def rollout(self, z, c):
        """history [B, W, D], conditions [B, W-1+K, D] -> [B, K, D], predictions fed back."""
        known, window = z.shape[1], self.predictor.window
        for end in range(known, c.shape[1] + 1):
            start = max(0, end - window)
            z = torch.cat([z, self.predict(z[:, start:end], c[:, start:end])[:, -1:]], dim=1)
        return z[:, known:]


def transformers_4_names(state):
    """The older generation's names of a transformers-5 state dict."""
    changes = (
        (r"^encoder\.layers\.(\d+)\.attention\.q_proj\.", r"encoder.encoder.layer.\1.attention.attention.query."),
        (r"^encoder\.layers\.(\d+)\.attention\.k_proj\.", r"encoder.encoder.layer.\1.attention.attention.key."),
        (r"^encoder\.layers\.(\d+)\.attention\.v_proj\.", r"encoder.encoder.layer.\1.attention.attention.value."),
        (r"^encoder\.layers\.(\d+)\.attention\.o_proj\.", r"encoder.encoder.layer.\1.attention.output.dense."),
        (r"^encoder\.layers\.(\d+)\.mlp\.fc1\.", r"encoder.encoder.layer.\1.intermediate.dense."),
        (r"^encoder\.layers\.(\d+)\.mlp\.fc2\.", r"encoder.encoder.layer.\1.output.dense."),
        (r"^encoder\.layers\.(\d+)\.layernorm", r"encoder.encoder.layer.\1.layernorm"),
    )
    renamed = {}
    for name, tensor in state.items():
        for old, new in changes:
            name = re.sub(old, new, name)  # noqa: PLW2901
        renamed[name] = tensor
    return renamed


def pre_release_names(state):
    letters = {"W_u": "skew_u", "W_v": "skew_v", "W_g.weight": "G_c.weight", "N": "C"}
    new = {f"predictor.{ours}": f"predictor.{theirs}" for ours, theirs in letters.items()}
    return {new.get(name, name): tensor for name, tensor in state.items()}


def config_json(kind, s=SMALL):
    """config.json as the public files of this kind have it."""
    module = "salt.models" if kind == "salt" else "stable_worldmodel.wm.lewm.module"
    norm = {"_target_": "torch.nn.BatchNorm1d", "_partial_": True}
    encoder = {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "size": "tiny",
        "patch_size": s.patch,
        "image_size": s.image,
        "pretrained": False,
        "use_mask_token": False,
    }
    if s.width != 192:
        encoder |= {
            "hidden_size": s.width,
            "num_hidden_layers": s.depth,
            "num_attention_heads": s.heads,
            "intermediate_size": s.mlp,
        }
    predictor = {
        "_target_": "salt.models.StateAffineTransition",
        "dim": s.latent,
        "cond_dim": s.latent,
        "num_modes": s.modes,
        "spectral": s.spectral,
        "s_init": 3.0,
    }
    if kind == "lewm":
        predictor = {
            "_target_": f"{module}.Predictor",
            "num_frames": s.frames,
            "input_dim": s.latent,
            "hidden_dim": s.latent,
            "output_dim": s.latent,
            "depth": s.predictor_depth,
            "heads": s.predictor_heads,
            "mlp_dim": s.predictor_mlp,
            "dim_head": s.predictor_head_dim,
            "dropout": 0.1,
            "emb_dropout": 0.0,
        }
    actions = {
        "_target_": "salt.models.ActionEncoder" if kind == "salt" else f"{module}.Embedder",
        "input_dim": s.block,
        "emb_dim": s.latent,
    }
    if s.smoothed != 10:
        actions["smoothed_dim"] = s.smoothed
    head = {"_target_": f"{module}.MLP", "output_dim": s.latent, "hidden_dim": s.projection, "norm_fn": norm}
    return {
        "_target_": "salt.models.JEPA" if kind == "salt" else "stable_worldmodel.wm.lewm.LeWM",
        "encoder": encoder,
        "predictor": predictor,
        "action_encoder": actions,
        "projector": {**head, "input_dim": s.width},
        "pred_proj": None if kind == "salt" else {**head, "input_dim": s.latent},
    }


def write_public(folder, state, config):
    """weights.pt and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "weights.pt")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder
