"""P15: a report is inert. Hostile names give 0 scripts, 0 event attributes, 0 external addresses."""

import base64
import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from fake_results import make_results

from saltwm.ground.config import ProtocolConfig
from saltwm.report.page import write_page

ADDRESSES = {
    "src",
    "srcset",
    "href",
    "xlink:href",
    "action",
    "formaction",
    "poster",
    "data",
    "background",
    "ping",
    "cite",
}
ACTIVE = {
    "script",
    "iframe",
    "object",
    "embed",
    "form",
    "link",
    "base",
    "frame",
    "applet",
    "foreignobject",
    "animate",
    "set",
}
BESIDE = re.compile(r"media/[0-9a-f]{16}\.(png|gif|svg)|anatomy/index\.html")
"""What lies beside the page; no part of such a name comes from a record."""
INLINE = re.compile(r"data:image/(png|gif|svg\+xml);base64,[A-Za-z0-9+/=]+")
FETCHING_STYLE = re.compile(r"@import|expression\(|url\((?!#)", re.IGNORECASE)


@dataclass
class Faults:
    scripts: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.scripts or self.events or self.addresses)


class Inspector(HTMLParser):
    """Collects what a page could do: run, react or fetch; looks into inline SVG pictures too."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.faults = Faults()
        self.inside_style = False
        self.pictures = 0

    def handle_starttag(self, tag, attributes):
        self.inside_style = tag == "style"
        if tag in ACTIVE:
            self.faults.scripts.append(tag)
        for name, value in ((name, value or "") for name, value in attributes):
            if name.startswith("on"):
                self.faults.events.append(f"{tag} {name}")
            if name == "http-equiv" and value.lower() == "refresh":
                self.faults.addresses.append("refresh")
            if (name == "style" or tag == "style") and FETCHING_STYLE.search(value):
                self.faults.addresses.append(value)
            if name in ADDRESSES:
                self.inspect_address(value)

    def inspect_address(self, value):
        if INLINE.fullmatch(value):
            self.pictures += 1
            if "svg" in value[:20]:
                inner = inspect(base64.b64decode(value.partition(",")[2]).decode())
                for kind in ("scripts", "events", "addresses"):
                    getattr(self.faults, kind).extend(getattr(inner.faults, kind))
        elif BESIDE.fullmatch(value):
            self.pictures += value.startswith("media/")
        elif not value.startswith("#"):
            self.faults.addresses.append(value)

    def handle_endtag(self, tag):
        self.inside_style = False

    def handle_data(self, data):
        if self.inside_style and FETCHING_STYLE.search(data):
            self.faults.addresses.append(data)


def inspect(page: str) -> Inspector:
    inspector = Inspector()
    inspector.feed(page)
    inspector.close()
    return inspector


HOSTILE = [
    "<script>alert(1)</script>",
    '"><script src=https://evil.example/x.js></script>',
    '" onload="alert(1)" x="',
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "</title><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% include 'page.css' %}",
    "javascript:alert(1)",
    "$\\frac{broken$ _^{ \x00\x1b[2J \u202e ﷽ 漢字",
    "_https://evil.example/beacon.gif",
    "<svg/onload=alert(1)>",
    "]]><!--<script>alert(1)</script>-->",
]
QUICK = HOSTILE[2:9:3]


def hostile_results(root: Path, name: str) -> Path:
    """Results in which environment, method, protocol, runs, folders and pictures carry the name."""
    file_name = name.replace("/", "\N{DIVISION SLASH}").replace("\x00", "")
    results = make_results(
        root,
        environments=(name,),
        methods=(name, "random"),
        protocols=(ProtocolConfig(name=name),),
        n=4,
        pictures=1,
        prefix=file_name,
    )
    for i, path in enumerate(sorted(results.glob("evaluations/*/pictures/*.gif"))):
        path.rename(path.with_name(f"task-{i:03}-{file_name}.gif"))
    (results / "evaluations" / f"{file_name}-unfinished").mkdir()
    return results


def check_inert(name: str, tmp_path: Path) -> None:
    path = write_page(hostile_results(tmp_path / "results", name), tmp_path / "page")
    page = path.read_text()
    inspector = inspect(page)
    assert not inspector.faults
    assert inspector.pictures > 10
    drawings = list(path.parent.glob("media/*.svg"))
    assert len(drawings) > 5
    assert not any(inspect(drawing.read_text()).faults for drawing in drawings)
    assert "49{" not in page  # a name is never a template


@pytest.mark.parametrize("name", QUICK)
def test_hostile_names_leave_the_page_inert(name, tmp_path):
    check_inert(name, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in QUICK])
def test_every_hostile_name_leaves_the_page_inert(name, tmp_path):
    check_inert(name, tmp_path)


def svg_picture(svg: str) -> str:
    return f'<img src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}">'


@pytest.mark.parametrize(
    "page",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<p onclick='x()'>",
        "<img src='https://example.org/x.png'>",
        "<a href='javascript:alert(1)'>x</a>",
        "<link rel=stylesheet href=x.css>",
        "<style>@import 'x.css'</style>",
        "<style>p { background: url(https://example.org) }</style>",
        "<p style='background: url(//example.org)'>",
        "<meta http-equiv=refresh content='0;url=https://example.org'>",
        "<picture><source srcset='https://example.org/x.png'></picture>",
        svg_picture("<svg><script>alert(1)</script></svg>"),
        svg_picture("<svg onload='x()'/>"),
        svg_picture("<svg><image href='https://example.org/x.png'/></svg>"),
    ],
)
def test_negative_control_the_inspector_catches_what_runs_reacts_or_fetches(page):
    assert inspect(page).faults


def test_negative_control_an_unescaped_template_would_be_caught(tmp_path):
    page = write_page(hostile_results(tmp_path / "results", "two <b>rooms"), tmp_path / "page").read_text()
    assert "two &lt;b&gt;rooms" in page
    assert inspect(page.replace("two &lt;b&gt;rooms", HOSTILE[0])).faults
