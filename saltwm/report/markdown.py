"""The records as a document: docs/results.md and the README's table, with the command that repeats each figure.

Nothing here depends on a clock or a machine, so the same records give the same text and they can be compared.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from saltwm.disk import durable
from saltwm.evaluation.contests import contest_of, method_of
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.evaluation.statistics import ALPHA
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.report import decoded, paper_figures, sections, studies, tables
from saltwm.report.claims import PAPERS_LEWM, Claim, claims, papers_lewm
from saltwm.report.elements import LIST_OF_STUDIES
from saltwm.report.figures import on_white
from saltwm.report.findings import HOW_TO_COMPARE, Findings, read_findings
from saltwm.report.frames import changed_by_frames
from saltwm.report.imitation import imitation, in_short
from saltwm.report.paper_drawings import PaperFigure, paper_drawings
from saltwm.report.studies import StudyReport
from saltwm.report.table import NONE, escaped, markdown, markdown_table, one_per_line, plain
from saltwm.report.tables import PooledRow

BEGIN, END = "<!-- results: made from the records, do not edit -->", "<!-- end of results -->"
SEARCH = "<!-- search: made from the records, do not edit -->", "<!-- end of search -->"
"""Around the README's second table, of a folder without the paper's comparison."""
DOCUMENT = Path("docs/results.md")
"""Where the document goes by default."""


@dataclass(frozen=True)
class Made:
    """The files that records give, and how they are made."""

    results: Path
    out: Path
    """The document."""
    readme: Path | None
    """The file whose table is replaced too."""
    command: str
    """What writes them."""
    again: Callable[[Sequence[Path]], str]
    """Spells the command that repeats the jobs of these folders."""

    def write(self) -> list[Path]:
        """Write the document, and the table into the README if one is named; returns what was written."""
        texts = self._texts()
        for path, text in texts.items():
            durable.make_folder(path.parent)
            durable.write_text(path, text)
        return list(texts)

    def check(self) -> list[Path]:
        """MismatchError if a file is not what the records give; returns what was looked at."""
        texts = self._texts()
        for path, text in texts.items():
            if not path.exists() or durable.read_text(path) != text:
                raise MismatchError(
                    f"{path}: not what the records in {self.results} give; write it again with: {self.command}"
                )
        return list(texts)

    def _texts(self) -> dict[Path, str]:
        findings = read_findings(self.results, self.again)
        written = document(findings, self.command, self.out.parent)
        texts = {self.out: written.text} | {self.out.parent / file: svg for file, svg in written.figures.items()}
        if self.readme is not None:
            has_papers = _has_papers(findings)
            table, markers = (readme_table(findings), (BEGIN, END)) if has_papers else (_search_table(findings), SEARCH)
            texts[self.readme] = with_table(durable.read_text(self.readme), table, self.readme, markers)
        return texts


def require_own_document(results: Path) -> None:
    """UsageError if the usual document tells of other records than those that are there."""
    origin = f"Made from the records in `{results}` by"
    if DOCUMENT.exists() and results.exists() and origin not in durable.read_text(DOCUMENT):
        raise UsageError(f"{DOCUMENT}: not made from the records in {results}; name another document with `out`")


def with_table(text: str, table: str, path: Path, markers: tuple[str, str] = (BEGIN, END)) -> str:
    """The text with what stands between the two markers replaced."""
    begin, end = markers
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise UsageError(f"{path}: expected one line {begin} and after it one line {end}, to put the table between")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{table}\n{end}{after}"


# --- the document --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Document:
    """What docs/results.md says, and the figures that it shows."""

    text: str
    figures: dict[str, str]
    """File beside the document -> SVG."""


def document(findings: Findings, command: str, folder: Path = DOCUMENT.parent) -> Document:
    """All of docs/results.md; `command` is what makes it, `folder` is where it goes."""
    of_searches, success = _success(findings)
    judged = claims(findings)
    # A folder of other planners only has nothing to say about the paper.
    has_papers = _has_papers(findings)
    reports, drawings = (studies.study_reports(findings), paper_drawings(findings)) if has_papers else ([], [])
    parts = [
        "# Results of other searches" if of_searches else "# Results",
        one_per_line(
            f"Made from the records in `{findings.results}` by `{command}`, not by hand. "
            f"Columns marked † are {paper_figures.WHAT_IT_IS}. Intervals are 95 %. {_how_judged(has_papers)} "
            "Intervals and tests are over tasks, so they speak of the trained models at hand; where a row names "
            "several training seeds, a difference must show over these as well. H is the number of action blocks that "
            f"are planned, and carried out before the next look. {HOW_TO_COMPARE} Those of runs whose weights are not "
            f"shipped need their training first; `{LIST_OF_STUDIES} NAME` repeats a study's."
        ),
        *(f"> Unfinished: {escaped(note)}" for note in findings.unfinished),
        *_claims(judged),
        *markdown(changed_by_frames(findings, judged), "###"),
        *markdown(sections.main_table(findings)),
        *success,
        *markdown(sections.variants(findings)),
        *markdown(sections.propagation(findings)),
        *markdown(sections.residuals(findings), "###"),
        *markdown(sections.one_frame(findings), "###"),
        *markdown(sections.probes(findings)),
        *markdown(sections.anatomy(findings)),
        *markdown(sections.kinds(findings)),
        *([*_studies(findings, reports), *_elements(findings, drawings, folder)] if has_papers else []),
        *markdown(sections.training(findings)),
        *markdown(sections.evaluating(findings)),
        *markdown(sections.stages(findings)),
    ]
    shown = {one.file: one.drawing for one in reports} | {one.file: one.drawing for one in drawings}
    return Document("\n\n".join(parts) + "\n", {file: on_white(drawing.light) for file, drawing in shown.items()})


def _how_judged(has_papers: bool) -> str:
    """By which p something is claimed; a folder of other searches has no claims and no paired comparisons."""
    if not has_papers:
        return "Beside the p of a test stands Holm's, for all tests of its table."
    return (
        f"Each claim and study prints its rule; where that is a paired test, Holm's p < {ALPHA:g} over all its tests "
        f"decides. `better` and `worse` in Paired comparisons need p < {ALPHA:g} of their own test, and their "
        "interval; Holm's p, for all tests of that table, stands beside it."
    )


def _success(findings: Findings) -> tuple[bool, list[str]]:
    """Whether the folder is one of other searches, and its tables of success, which those then lead."""
    protocols = sorted({cell.evaluation.protocol for cell in findings.cells}, key=tables.protocol_order)
    success = [part for protocol in protocols for part in markdown(sections.success(findings, protocol))]
    success += markdown(sections.paired(findings))
    searches = [*markdown(sections.search(findings)), *markdown(imitation(findings))]
    if not searches or _has_papers(findings):
        return False, [*success, *searches]
    return True, ["## In short", _search_table(findings), *in_short(findings), *searches, *success]


def _claims(judged: Sequence[Claim]) -> list[str]:
    parts = markdown(sections.claims_overview(judged))
    if not parts:
        return []
    for claim in judged:
        parts += [_in_words(claim), *markdown(sections.claim_table(claim))]
    return parts


def _in_words(claim: Claim) -> str:
    return one_per_line(f"**{claim.sentence}.** The paper, {claim.place}. Rule: {claim.rule}.")


def _has_papers(findings: Findings) -> bool:
    """Whether the paper's comparison is among the records."""
    return any(map(sections.is_papers, findings.cells))


def _studies(findings: Findings, reports: Sequence[StudyReport]) -> list[str]:
    """The paper's ablations and sweeps, as far as they were run."""
    parts = ["## Studies", one_per_line(studies.HOW)]
    for report in reports:
        parts += [*markdown(report.table, "###"), f"![{escaped(report.table.title)}]({report.file})"]
        parts += ["\n".join(map(escaped, report.sentences))] if report.sentences else []
        parts += [_in_words(report.claim), *(markdown(sections.claim_table(report.claim)) or ["Not decided yet."])]
    parts += markdown(studies.efficiency(findings), "###")
    parts += markdown(sections.transition_parameters(findings), "###")
    left = studies.not_begun(findings, reports)
    return [*parts, f"Not run: {', '.join(left)}."] if left else parts


def _elements(findings: Findings, drawings: Sequence[PaperFigure], folder: Path) -> list[str]:
    """The list of the paper's tables and figures, and those figures that no study draws."""
    shown = {
        one.name: [f"![{escaped(one.drawing.alt)}]({one.file})", one_per_line(escaped(one.caption))] for one in drawings
    } | {"Figure 5": _decoded(findings, folder)}
    in_order = sorted((name, parts) for name, parts in shown.items() if parts)
    return [*markdown(sections.elements(findings)), *(part for name, of in in_order for part in (f"### {name}", *of))]


def _decoded(findings: Findings, folder: Path) -> list[str]:
    """Figure 5: a picture for each run that was decoded, where it lies among the records."""
    parts = []
    for run in sorted(findings.runs, key=lambda run: (tables.environment_order(run.environment or ""), run.name)):
        if run.decoded:
            record = run.decoded.record
            who = f"{tables.model_title(record.method, None)} on {tables.environment_name(record.environment)}"
            picture = os.path.relpath(findings.results / "diagnostics" / run.name / run.decoded.picture.name, folder)
            parts += [f"![Decoded open-loop predictions of {escaped(who)}]({quote(Path(picture).as_posix())})"]
            parts += [one_per_line(escaped(f"{who}, run `{run.name}`. {decoded.caption(record)}"))]
    return [one_per_line(decoded.NOTE), *parts] if parts else []


def readme_table(findings: Findings) -> str:
    """Success by environment and protocol, the methods of the paper side by side with the paper's figures."""
    rows = [row for row in findings.pooled if row.protocol in ("paper", "clean") and tables.has_own_horizon(row)]
    methods = ("salt", "lewm", "random")
    names = [tables.METHOD_NAMES[method] for method in methods]
    lines = []
    for contest in dict.fromkeys(contest_of(row) for row in rows):
        here = [row for row in rows if contest_of(row) == contest]
        called = {name: name for name in methods} | {"lewm": papers_lewm(row.method for row in here)}
        by_method = {method: [row for row in here if row.method == name] for method, name in called.items()}
        if not any(by_method.values()):
            continue
        published = [paper_figures.success(contest, method) for method in methods]
        lines.append(
            [
                tables.environment_name(contest.environment),
                contest.protocol,
                *(_rates_with_intervals(by_method[method]) for method in methods),
                " / ".join(f"{rate.mean:.1f}" for rate in published if rate) or NONE,
            ]
        )
    return markdown_table(["environment", "protocol", *names, f"{' / '.join(names)} †"], lines) + (
        "\n\nTasks reached in percent, with counts and 95 % Wilson intervals; several evaluation seeds are pooled.\n"
        "LeWM plans with three frames where a cell says so, as the paper does, and with one where it does not.\n"
        f"† {paper_figures.WHAT_IT_IS}." + "".join(f"\n{sentence}" for sentence in studies.settled_in_words(findings))
    )


SEARCHES = {
    "MAP, looks": "salt-map-look1",
    "MAP, blind": "salt-map",
    "prior alone, looks": "salt-prior-look1",
    "prior alone, blind": "salt-prior",
    "Gauss-Newton, looks": "salt-gauss-newton-look1",
    "Gauss-Newton, blind": "salt-gauss-newton",
}
"""Columns of the README's second table, by the method's name."""


def _search_table(findings: Findings) -> str:
    """Success of SALT under `clean`, by environment and by what finds the plan; evaluation seeds together."""
    own = CLEAN_PROTOCOL.name, CLEAN_PROTOCOL.horizon_blocks
    cells = [cell for cell in findings.cells if (cell.evaluation.protocol, cell.evaluation.horizon_blocks) == own]
    shares: dict[str, dict[str, tuple[int, int]]] = {}
    for cell in sorted(cells, key=lambda cell: tables.environment_order(cell.evaluation.environment)):
        of, rate = shares.setdefault(cell.evaluation.environment, {}), cell.evaluation.success
        if cell.evaluation.method == method_of(cell.evaluation):  # another model has a name of its own
            reached, n = of.get(cell.evaluation.method, (0, 0))
            of[cell.evaluation.method] = reached + rate.successes, n + rate.n
    lines = [
        [tables.environment_name(environment), *(_share(of.get(method)) for method in SEARCHES.values())]
        for environment, of in shares.items()
    ]
    note = (
        "Percent of `clean` tasks that SALT reaches, with counts. `looks`: after each block of 5 actions; "
        "`blind`: after 5 blocks, as the paper."
    )
    return "\n\n".join([markdown_table(["environment", *SEARCHES], [*lines, _means(shares)]), one_per_line(note)])


def _share(counts: tuple[int, int] | None) -> str:
    return NONE if counts is None else f"**{100 * counts[0] / counts[1]:.1f}** ({counts[0]}/{counts[1]})"


def _means(shares: Mapping[str, Mapping[str, tuple[int, int]]]) -> list[str]:
    """The mean over environments of each method that has them all."""
    rates = (
        [100 * reached / n for of in shares.values() if method in of for reached, n in [of[method]]]
        for method in SEARCHES.values()
    )
    return ["mean", *(f"**{sum(of) / len(of):.1f}**" if len(of) == len(shares) else NONE for of in rates)]


def _rates_with_intervals(rows: Sequence[PooledRow]) -> str:
    """The rate of a method; of several recipes of it each, with the name of its run."""
    if len(rows) == 1:
        return _rate_with_interval(rows[0])
    return "; ".join(f"{tables.run_name(row.evaluation)}: {_rate_with_interval(row)}" for row in rows) or NONE


def _rate_with_interval(row: PooledRow) -> str:
    percent, counts, interval = map(plain, sections.rate_columns(row))
    more = "; 3 frames" if row.method == PAPERS_LEWM[0] else ""
    more += f"; {len(row.training_seeds)} training seeds" if len(row.training_seeds) > 1 else ""
    return percent if row.rate is None else f"**{percent}** ({counts}; {interval}{more})"
