"""Jobs that turn records into something to read: the report, the results document, the anatomy of failures."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from saltwm.disk import durable
from saltwm.ground.checks import at_least
from saltwm.ground.errors import UsageError
from saltwm.jobs.again import spell_again
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, MaybeSome, Positional, ResultsFolder, Some, spell

if TYPE_CHECKING:
    from saltwm.evaluation.anatomy import PairedAnatomy


@dataclass(frozen=True)
class Report(Job):
    """Write the report of a results directory: one page, with its pictures in a folder beside it."""

    results: Positional[ResultsFolder]
    out: Aside[Path] = Path("report")
    """Where index.html goes."""
    json: AsJson = False

    def do(self) -> Path:
        """Build the page."""
        from saltwm.report.page import write_page

        return write_page(self.results, self.out)


@dataclass(frozen=True)
class Results(Job):
    """Write docs/results.md and the README's table from the records under a results directory, or check them."""

    results: Positional[ResultsFolder]
    out: Aside[Maybe[Path]] = None
    """The document; docs/results.md by default, unless that was made from other records."""
    readme: Aside[Maybe[Path]] = None
    """File whose table, between two marker comments, is replaced too."""
    check: bool = False
    """Write nothing; fail if a file is not what the records give."""
    json: AsJson = False

    def do(self) -> list[Path]:
        """The files that were written, or that are up to date."""
        from saltwm.report.markdown import DOCUMENT, Made, require_own_document

        if self.out is None and not self.check:
            require_own_document(self.results)
        out = self.out or DOCUMENT
        made = Made(self.results, out, self.readme, spell(Results(self.results, out, self.readme)), spell_again)
        return made.check() if self.check else made.write()


@dataclass(frozen=True)
class Film(Job):
    """Film recorded episodes again, from their actions: what happened, what the plan in force expected, and the goal.

    Without --out they go to the evaluations' own folders, where the report finds them.
    """

    recorded: Positional[Some[Path]]
    """Folders of evaluations, or results directories."""
    tasks: MaybeSome[int] = None
    """Numbers of tasks; those that are filmed already by default, or the first four."""
    out: Aside[Maybe[Path]] = None
    """Film into OUT/EVALUATION and leave the records as they are."""
    json: AsJson = False

    def do(self) -> list[Path]:
        """Film; the moving pictures that were written."""
        from saltwm.ground.progress import progress
        from saltwm.jobs.filming import FIRST, PICTURES, film_recorded, filmed_tasks, recorded_folders

        if not self.recorded:
            raise UsageError("film: name a results directory, or folders of evaluations in one")
        if self.out is not None:
            durable.check_folder(self.out)
        folders, made = recorded_folders(self.recorded), list[Path]()
        with progress("film", len(folders)) as advance:
            for folder in folders:
                wanted = self.tasks if self.tasks is not None else filmed_tasks(folder / PICTURES) or FIRST
                out = folder if self.out is None else self.out / folder.name
                durable.make_folder(out)
                with durable.only_writer(out, self.VERB):
                    made += film_recorded(folder, wanted, out / PICTURES if self.out is None else out)
                advance()
        return [path for path in made if path.suffix == ".gif"]


class Dissected(NamedTuple):
    """Failures by kind, and the page that shows them."""

    pairs: "list[PairedAnatomy]"
    page: Path


@dataclass(frozen=True)
class Anatomy(Job):
    """Show where two methods fail on the same tasks: how often, in which way, and a page for each failed episode."""

    results: Positional[ResultsFolder]
    a: Positional[str]
    """A method (salt, lewm, ...) or the name of one evaluation."""
    b: Positional[str]
    """The other."""
    out: Aside[Path] = Path("anatomy")
    """Where index.html, the episodes' pages and their films go."""
    pages: int = 40
    """Failed episodes that get a page with pictures: of each environment those near the median ratio r."""
    json: AsJson = False

    def do(self) -> Dissected:
        """Count, film what failed, and write the pages."""
        from saltwm.disk.records import read_cells
        from saltwm.evaluation.anatomy import examples, pair_up
        from saltwm.jobs.filming import film_failures
        from saltwm.report.anatomy import PICTURES, write_anatomy

        at_least("pages", self.pages, 0)
        durable.check_folder(self.out)
        cells = {cell.name: cell for cell in read_cells(self.results)}
        pairs = pair_up(self.results, cells.values(), self.a, self.b)
        shown = examples(pairs, cells, self.pages)
        film_failures(self.results, [one for chosen in shown for one in chosen], self.out / PICTURES)
        return Dissected(pairs, write_anatomy(self.results, cells, pairs, self.out, shown))
