"""Pages of the documentation site that are made, not written: the README, the verbs' help and the public names.

MkDocs calls `on_files` (mkdocs.yml). The site holds copies of what lies at the root of the repository, so that a link
that works there works here.
"""

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mkdocs.structure.files import File, Files

from saltwm.cli import VERBS

ROOT = Path(__file__).resolve().parents[1]
AT_THE_ROOT = ("LAB.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
COLUMNS = 80
BESIDE = re.compile(r"(\]\()\.\./([^)]+\.(?:gif|png|svg)\))")
"""Pictures that a document shows from beside docs/: they lie among the records."""
LINK = re.compile(r"(\]\()([^)#]+)([^)]*\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the made pages, and the pictures that they show."""
    pages = {"index.md": ROOT / "README.md", **{name: ROOT / name for name in AT_THE_ROOT}}
    for page, source in pages.items():
        text, pictures = from_the_root(source.read_text())
        files.append(File.generated(config, page, content=text))
        for picture in pictures - {file.src_uri for file in files}:
            files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
    documents = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    for picture in sorted({unquote(found[2].removesuffix(")")) for found in BESIDE.finditer(documents)}):
        files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
    files.append(File.generated(config, "verbs.md", content=verbs()))
    files.append(File.generated(config, "api.md", content=public_names()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The site has the pictures from beside docs/ too, in folders of the same names."""
    return BESIDE.sub(r"\1\2", markdown)


def from_the_root(text: str) -> tuple[str, set[str]]:
    """A root document with its links as seen from docs/, and the pictures among them; links to code become plain."""
    pictures = set()

    def turned(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        target = "index.md" if target == "README.md" else target.removeprefix("docs/")
        if target.endswith((".gif", ".png", ".svg")):
            pictures.add(target)
        elif not target.endswith(".md"):
            return f"]({{{target}}}"  # a file of the repository that is not on the site; removed below
        return before + target + after

    text = LINK.sub(turned, text)
    return re.sub(r"\[([^\]]*)\]\(\{[^}]*\}", r"\1", text), pictures


def help_of(*words: str) -> str:
    """What `saltwm WORDS --help` prints, in lines that a page beside its menus has room for."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "saltwm", *words, "--help"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment).stdout
    return "".join(f"{textwrap.fill(line, COLUMNS)}\n" for line in printed.splitlines())


def verbs() -> str:
    """A section for each verb, with its help; verbs of verbs have sections too."""
    sections = [f"# Verbs\n\n``` {{.text .help}}\n{help_of()}```\n"]
    for verb in VERBS:
        text = help_of(verb)
        sections.append(f"## saltwm {verb}\n\n``` {{.text .help}}\n{text}```\n")
        sections += [
            f"### saltwm {verb} {one}\n\n``` {{.text .help}}\n{help_of(verb, one)}```\n" for one in listed(text)
        ]
    return "\n".join(sections)


def listed(help_text: str) -> list[str]:
    """The verbs that a help page lists in its box of subcommands."""
    _, box, rest = help_text.partition("─ subcommands ")
    names = re.findall(r"^│ +• ([a-z][a-z-]*) ", rest, re.M) if box else []
    return list(dict.fromkeys(names))


def public_names() -> str:
    """A section for each public name of `saltwm`, from the one place that lists them."""
    stub = ast.parse((ROOT / "saltwm" / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    names = {alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    lines = ["# Python", "", "Every name below is an attribute of `saltwm`, imported when it is first used.", ""]
    for name in sorted(names, key=str.lower):
        lines += [f"::: {names[name]}", "    options: {heading_level: 2, show_root_full_path: false}", ""]
    return "\n".join(lines)
