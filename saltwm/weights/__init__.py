"""Weights in other people's layouts: the field's public checkpoints in and out, ONNX out."""
