"""Records on disk -> tables and one page. Knows neither torch nor environments."""

from pathlib import Path


def build_report(results: Path, out: Path) -> Path:
    """Write OUT/index.html, one self-contained page, from the records under RESULTS; returns its path."""
    from saltwm.report.page import write_page  # matplotlib is loaded only when something is drawn

    return write_page(results, out)
