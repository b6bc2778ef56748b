"""Records on disk -> tables and one page. Knows neither torch nor environments."""

from pathlib import Path


def build_report(results: Path, out: Path) -> Path:
    """Write OUT/index.html and its pictures from the records under RESULTS; returns the page's path."""
    from saltwm.report.page import write_page  # matplotlib is loaded only when something is drawn

    return write_page(results, out)
