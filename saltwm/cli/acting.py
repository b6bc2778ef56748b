"""Verbs about planning, evaluating and diagnosing."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from saltwm.cli.printing import next_command, print_results, show


@dataclass(frozen=True)
class Evaluate:
    """Plan with a trained model (or act at random) on a frozen set of tasks and record every episode."""

    run_: Annotated[tyro.conf.Positional[str], tyro.conf.arg(name="run")]
    """Run or checkpoint directory, or the word random."""
    data: Path
    """Dataset that the tasks are chosen from."""
    out: Path = Path("results")
    """Results directory."""
    protocol: Literal["paper", "clean", "long"] = "clean"
    """paper: as the authors; clean: held-out, unsolved, distant goals, bounded actions; long: goals 100 steps on."""
    tasks: int | None = None
    """Number of tasks; 50 for paper and long, 100 for clean."""
    seed: int = 1
    """Seed of the tasks and of the planner."""
    horizon: int | None = None
    """Planned action blocks, all executed before the next plan; the protocol's by default."""
    history: int = 1
    """Frames that a transformer predictor may look back at; the authors' evaluation gives it one."""
    method: str | None = None
    """Name in tables; salt, lewm or random by default."""
    workers: int = 2
    """Processes."""
    pictures: int = 4
    """Episodes to film."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Evaluate and print."""
        from saltwm.data.store import Dataset
        from saltwm.evaluation.evaluate import Request, evaluate_run

        dataset = Dataset.open(self.data, verify="sizes")
        request = Request(
            run=None if self.run_ == "random" else Path(self.run_),
            protocol=self.protocol,
            tasks=self.tasks,
            seed=self.seed,
            horizon_blocks=self.horizon,
            history_frames=self.history,
            method=self.method,
        )
        evaluation = evaluate_run(request, dataset, self.out, workers=self.workers, pictures=self.pictures)
        if self.json:
            print(json.dumps(dataclasses.asdict(evaluation)))
            return
        print_results(self.out)
        if self.run_ == "random":
            next_command(f"saltwm report {self.out} --out report")
        else:
            next_command(f"saltwm diagnose {self.run_} --data {self.data} --out {self.out}")


@dataclass(frozen=True)
class Diagnose:
    """Measure how a model's errors propagate: one-step and rollout error, propagation norms, rho_H (App. C)."""

    run_: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory."""
    data: Path
    """Dataset whose held-out episodes are used."""
    out: Path = Path("results")
    """Results directory."""
    horizon: int = 20
    """Rollout steps."""
    trajectories: int = 16
    """Trajectories per batch."""
    batches: int = 3
    """Batches; the band spans their smallest and largest norm."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Measure and print."""
        from saltwm.data.store import Dataset
        from saltwm.diagnostics.diagnose import diagnose_run

        dataset = Dataset.open(self.data, verify="sizes")
        diagnosis, path = diagnose_run(
            self.run_, dataset, self.out, horizon=self.horizon, trajectories=self.trajectories, batches=self.batches
        )
        if self.json:
            print(json.dumps(dataclasses.asdict(diagnosis)))
            return
        summary = {
            "diagnosis": str(path),
            "one-step error (share of the latents' spread)": round(diagnosis.one_step_error, 4),
            f"rollout error after {len(diagnosis.rollout_error)} steps": round(diagnosis.rollout_error[-1], 4),
            "growth of the propagation norm": round(diagnosis.propagation_norm[-1] / diagnosis.propagation_norm[0], 2),
            "largest rho_H": f"{max(diagnosis.rho):.1e}",
            "effective rank": round(diagnosis.effective_rank, 1),
        }
        show(False, summary, f"saltwm report {self.out} --out report")


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
