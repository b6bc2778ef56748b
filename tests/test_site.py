"""The documentation site: every document is on it once, and reading it needs no network."""

import html
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAV = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]


def test_every_document_stands_in_the_navigation_once():
    listed = re.findall(r": (\S+\.md)$", NAV, re.M)
    assert len(listed) == len(set(listed))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(listed)


def test_a_picture_among_the_records_has_its_place_on_the_site():
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    site = runpy.run_path(str(ROOT / "docs" / "site.py"))
    shown = "![A](../results/diagnostics/a/decoded.png) [B](../results/b.json) ![C](figures/c.svg)"
    turned = site["on_page_markdown"](shown, page=None, config=None, files=None)
    assert turned == shown.replace("../results/diagnostics", "results/diagnostics")


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_site_is_built_strictly_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {"index.html", "api.html", "verbs.html", "search.html"} <= {page.name for page in pages}
    fetched = r"<(?:script|img)[^>]+src=.https?:|<link[^>]+rel=.?stylesheet[^>]+https?:"
    assert [page.name for page in pages if re.search(fetched, page.read_text())] == []
    assert "Agent(" in re.sub(r"<[^>]+>", "", (tmp_path / "api.html").read_text())  # how one is made, too
    helps = re.findall(r'<div class="[^"]*help[^"]*">(.*?)</pre>', (tmp_path / "verbs.html").read_text(), re.S)
    lines = [html.unescape(re.sub(r"<[^>]+>", "", line)) for text in helps for line in text.splitlines()]
    assert max(map(len, lines)) <= 80  # wider ones are cut beside the menus
