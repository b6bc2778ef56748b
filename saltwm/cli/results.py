"""The verb that turns records into the documents that quote them."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from saltwm.cli.printing import Maybe, show


@dataclass(frozen=True)
class Results:
    """Write docs/results.md and the README's table from the records under a results directory, or check them."""

    results: tyro.conf.Positional[Path]
    """Results directory."""
    out: Maybe[Path] = None
    """The document; docs/results.md by default, unless that was made from other records."""
    readme: Path | None = None
    """File whose table, between two marker comments, is replaced too."""
    check: bool = False
    """Write nothing; fail if a file is not what the records give."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Write or compare."""
        from saltwm.report.markdown import check_results, write_results

        work = check_results if self.check else write_results
        files = [str(path) for path in work(self.results, self.out, self.readme)]
        show(self.json, {"up to date" if self.check else "written": files})
