"""Score: how good a model is on recordings alone, for those who have no simulator; `scoring` measures it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from saltwm.ground.errors import UsageError
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Positional

if TYPE_CHECKING:
    from saltwm.jobs.scoring import OfflineScore, Ordered


@dataclass(frozen=True)
class Score(Job):
    """Score a model on recordings alone: rank of the recorded actions, error against stillness, the prior's honesty."""

    run: Positional[Path]
    """Run or checkpoint directory; all, with --against: the eight shipped models of the recipes, without
    salt-memory and salt-two-stage, each on its shipped data."""
    data: Maybe[Path] = None
    """Dataset; its held-out episodes are used."""
    against: Maybe[Path] = None
    """With all: results directory; the scores stand beside the success that these records give the models."""
    horizon: int = 5
    """Action blocks from a picture to the goal picture."""
    pairs: int = 256
    """Stretches to look at."""
    history: int = 1
    """Frames that LeWM's predictor may look back at; as in an evaluation."""
    seed: int = 0
    """Seed of the choice of stretches."""
    out: Maybe[Aside[Path]] = None
    """File for the score as JSON."""
    json: AsJson = False

    def do(self) -> "OfflineScore | Ordered":
        """Measure, and write the file if one is asked for."""
        from saltwm.disk import durable
        from saltwm.ground.strict_json import to_plain
        from saltwm.jobs.scoring import score

        if (str(self.run) == "all") != (self.against is not None):
            raise UsageError("score all and --against RESULTS go together: every shipped model beside its success")
        if self.against is not None and self.data is not None:
            raise UsageError("score all takes each model's shipped data: leave --data out")
        found = score(self) if self.against is None else self._of_all(self.against)
        if self.out is not None:
            durable.write_json(self.out, to_plain(found))
        return found

    def _of_all(self, results: Path) -> "Ordered":
        """Scores of all shipped models, and whether they order them as planning does."""
        from saltwm.disk.records import read_cells
        from saltwm.jobs.scoring import ordered, require_success, score
        from saltwm.jobs.shelf import HERE, of_recipes

        rates = require_success(of_recipes(HERE), read_cells(results), results)
        return ordered(
            {
                item.checkpoint.name: (score(replace(self, run=item.checkpoint, data=item.data, against=None)), rate)
                for item, rate in rates
            }
        )
