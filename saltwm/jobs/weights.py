"""Jobs on weights in other layouts: public checkpoints in and out, ONNX out."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from saltwm.ground.errors import UsageError
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Positional, RunFolder

if TYPE_CHECKING:
    from saltwm.interop.weights.public import Imported


@dataclass(frozen=True)
class ImportWeights(Job):
    """Make a run of a public LeWM or SALT checkpoint (weights.pt and config.json)."""

    VERB = "import-weights"

    source: Positional[Path]
    """Directory with weights.pt and config.json."""
    env: str
    """Environment that it was trained for: two-room, push-t, reacher, cube, or its public name (tworoom, pusht)."""
    data: Path
    """Dataset of that environment at the weights' image size; it supplies the action scaling that the file lacks."""
    out: Aside[Path]
    """Run directory."""
    json: AsJson = False

    def do(self) -> "Imported":
        """Import them."""
        from saltwm.disk.dataset import Dataset
        from saltwm.interop.weights.public import import_weights

        return import_weights(self.source, self.env, Dataset.open(self.data, verify="sizes"), self.out)


@dataclass(frozen=True)
class Export(Job):
    """Write a run in the field's checkpoint layout, or as ONNX."""

    run: Positional[RunFolder]
    out: Aside[Path]
    """Directory to write; it must not exist yet."""
    format: Literal["swm", "onnx"] = "swm"
    """swm: weights.pt and config.json; onnx: encoder, action encoder and transition."""
    names: Maybe[Literal["transformers-4", "transformers-5"]] = None
    """swm: generation of the ViT's tensor names; transformers-4 by default, as the public files have them."""
    json: AsJson = False

    def do(self) -> dict[str, Any]:
        """Write it, and say what it holds."""
        if self.format == "swm":
            from saltwm.interop.weights.public import export_weights

            return {"tensors": export_weights(self.run, self.out, self.names or "transformers-4")}
        from saltwm.interop.weights.onnx_export import export_onnx

        if self.names is not None:
            raise UsageError(f"--names {self.names} is about --format swm; leave it out for onnx")
        differences = export_onnx(self.run, self.out)
        return {"largest_difference_from_torch": differences or "not measured: onnxruntime is not installed"}
