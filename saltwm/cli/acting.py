"""Verbs about planning, evaluating and diagnosing."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from saltwm.cli.printing import Maybe, command_line, next_command, say, show
from saltwm.disk import durable
from saltwm.ground.checks import at_least
from saltwm.ground.strict_json import to_plain


@dataclass(frozen=True)
class Anatomy:
    """Take apart where two methods fail on the same tasks: by kind, paired, and a page for each failed episode."""

    results: tyro.conf.Positional[Path]
    """Results directory."""
    a: tyro.conf.Positional[str]
    """A method (salt, lewm, ...) or the name of one evaluation."""
    b: tyro.conf.Positional[str]
    """The other."""
    out: Path = Path("anatomy")
    """Where index.html and the episodes' pages go."""
    pages: int = 40
    """Failed episodes that get a page with pictures: of each environment those near the median ratio r."""
    json: bool = False
    """Print the counts as JSON."""

    def run(self) -> None:
        """Count, film what failed, and write the pages."""
        from saltwm.disk.records import read_cells
        from saltwm.evaluation.anatomy import examples, pair_up
        from saltwm.jobs.failures import film_failures
        from saltwm.report.anatomy import PICTURES, anatomy_table, write_anatomy

        at_least("pages", self.pages, 0)
        durable.check_folder(self.out)
        pairs = pair_up(self.results, self.a, self.b)
        shown = examples(pairs, {cell.name: cell for cell in read_cells(self.results)}, self.pages)
        film_failures(self.results, [one for chosen in shown for one in chosen], self.out / PICTURES)
        page = write_anatomy(self.results, pairs, self.out, shown)
        if self.json:
            print(json.dumps([dataclasses.asdict(pair) for pair in pairs]))
            return
        say(anatomy_table(pairs))
        next_command(f"open {page} in a browser")


@dataclass(frozen=True)
class Diagnose:
    """Measure how a model's errors propagate (App. C) and what its latents know: probes, costs against distances."""

    run_: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory."""
    data: Path
    """Dataset whose held-out episodes are used."""
    out: Path = Path("results")
    """Results directory."""
    horizon: int = 20
    """Rollout steps."""
    windows: tuple[int, ...] = (20, 25, 30)
    """Lengths of the stretches that are measured, in action blocks; shorter where no episode is long enough."""
    trajectories: Maybe[int] = None
    """Trajectories per batch; 40 for SALT and 16 for LeWM, as the paper."""
    batches: int = 3
    """Batches for each of these lengths; the band spans the smallest and largest norm of all of them."""
    seed: int = 0
    """Seed of the stretches that are drawn."""
    frames: int = 2000
    """Held-out frames that the probes are scored on, and pairs of frames whose costs are ranked."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Measure and print."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.diagnose import diagnose_run
        from saltwm.report.tables import probe_scores

        dataset = Dataset.open(self.data, verify="sizes")
        found = diagnose_run(
            self.run_,
            dataset,
            self.out,
            horizon=self.horizon,
            windows=self.windows,
            trajectories=self.trajectories,
            batches=self.batches,
            frames=self.frames,
            seed=self.seed,
        )
        if self.json:
            records = {"diagnosis": found.diagnosis, "probes": found.probes, "training": found.training}
            print(json.dumps({name: to_plain(record) for name, record in records.items()}))
            return
        diagnosis, probes = found.diagnosis, found.probes
        summary = {
            "records": str(found.folder),
            "one-step error (share of the latents' spread)": round(diagnosis.one_step_error, 4),
            f"rollout error after {len(diagnosis.rollout_error)} steps": round(diagnosis.rollout_error[-1], 4),
            "growth of the propagation norm": round(diagnosis.propagation_norm[-1] / diagnosis.propagation_norm[0], 2),
            "largest rho_H": f"{max(diagnosis.rho):.1e}",
            "Jacobian varies with the state by": f"{probes.jacobian_spread:.1e}",
            "effective rank": round(diagnosis.effective_rank, 1),
            "state read linearly from z (R2)": {probe.field: probe_scores(probe) for probe in probes.fields},
            "rank correlation of cost and true distance": probes.cost_order,
        }
        show(False, summary, command_line("saltwm", "report", self.out, "--out", "report"))


@dataclass(frozen=True)
class Decode:
    """Draw open-loop predictions with a decoder fitted afterwards (App. C.5): for looking, never for planning."""

    run_: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory; its model is left as it is."""
    data: Path
    """Dataset: training episodes fit the decoder, held-out ones are drawn; of a held-out dataset, one half each."""
    out: Path = Path("results")
    """Results directory."""
    decoder: Literal["small", "paper"] = "small"
    """small: transposed convolutions, minutes on a core; paper: cross-attention in 16 px patches, for a GPU."""
    steps: Maybe[int] = None
    """Of the decoder's fit; 1000 for small, 30000 for paper."""
    episodes: int = 3
    """Episodes to draw."""
    frames: int = 10_000
    """Frames to fit the decoder on, held in memory; fewer if there are not as many."""
    seed: int = 0
    """Seed of the decoder and of the choice of episodes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Fit, draw and print."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.decode import decode_run

        dataset = Dataset.open(self.data, verify="sizes")
        found = decode_run(
            self.run_,
            dataset,
            self.out,
            decoder=self.decoder,
            steps=self.steps,
            episodes=self.episodes,
            frames=self.frames,
            seed=self.seed,
        )
        record = found.record
        if self.json:
            print(json.dumps(to_plain(record)))
            return
        first, last = record.times[record.context], record.times[-1]
        summary = {
            "picture": str(found.picture),
            "decoder": f"{record.decoder}, {record.steps} steps on {record.frames} frames",
            f"pixel error on {record.stretches} held-out stretches": "mean squared, pixels in 0 .. 1",
            "  of the mean picture": sum(record.mean_mse) / len(record.mean_mse),
            "  of decoded true frames": sum(record.true_mse) / len(record.true_mse),
            f"  of decoded predictions, t = {first} and {last}": (record.predicted_mse[0], record.predicted_mse[-1]),
            "decoder draws better than the mean picture": record.tells_frames_apart,
        }
        show(False, summary, command_line("saltwm", "report", self.out, "--out", "report"))


@dataclass(frozen=True)
class Report:
    """Write one self-contained page from the records under a results directory."""

    results: tyro.conf.Positional[Path]
    """Results directory."""
    out: Path = Path("report")
    """Where index.html goes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Build the page."""
        from saltwm.report import build_report

        page = build_report(self.results, self.out)
        show(self.json, {"report": str(page)}, f"open {page} in a browser")
