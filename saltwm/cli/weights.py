"""Verbs about weights in other layouts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from saltwm.cli.printing import RESULTS, Maybe, command_line, show
from saltwm.ground.errors import UsageError


@dataclass(frozen=True)
class ImportWeights:
    """Make a run of a public LeWM or SALT checkpoint (weights.pt and config.json)."""

    source: tyro.conf.Positional[Path]
    """Directory with weights.pt and config.json."""
    env: str
    """Environment that it was trained for: two-room, push-t, reacher, cube, or its public name (tworoom, pusht)."""
    data: Path
    """Dataset of that environment at the weights' image size; it supplies the action scaling that the file lacks."""
    out: Path
    """Run directory."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Import and print."""
        from saltwm.disk.dataset import Dataset
        from saltwm.interop.weights.public import import_weights

        imported = import_weights(self.source, self.env, Dataset.open(self.data, verify="sizes"), self.out)
        show(
            self.json,
            {"run": str(self.out), "model": imported.model, "tensors": f"{imported.tensors} of {imported.tensors}"},
            command_line("saltwm", "evaluate", self.out, "--data", self.data, "--protocol", "paper", "--out", RESULTS),
        )


@dataclass(frozen=True)
class Export:
    """Write a run in the field's checkpoint layout, or as ONNX."""

    run_: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory."""
    out: Path
    """Directory to write; it must not exist yet."""
    format: Literal["swm", "onnx"] = "swm"
    """swm: weights.pt and config.json; onnx: encoder, action encoder and transition."""
    names: Maybe[Literal["transformers-4", "transformers-5"]] = None
    """swm: generation of the ViT's tensor names; transformers-4 by default, as the public files have them."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Export and print."""
        show(self.json, {"written": str(self.out), **(self._swm() if self.format == "swm" else self._onnx())})

    def _swm(self) -> dict[str, Any]:
        from saltwm.interop.weights.public import export_weights

        return {"tensors": export_weights(self.run_, self.out, self.names or "transformers-4")}

    def _onnx(self) -> dict[str, Any]:
        from saltwm.interop.weights.onnx_export import export_onnx

        if self.names is not None:
            raise UsageError(f"--names {self.names} is about --format swm; leave it out for onnx")
        differences = export_onnx(self.run_, self.out)
        return {"largest_difference_from_torch": differences or "not measured: onnxruntime is not installed"}
