"""Write the files beside this one: each pinned package with the SHA-256 of every file that the registry has of it.

    make pins INDEX=https://HOST/simple        # the address that pip reads packages from

Versions come from constraints.txt, and which packages belong to which file from what is installed in .venv.
torch is left out: its builds for CPU and CUDA bear one version, and a machine chooses between them.
"""

import argparse
import re
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

HERE = Path(__file__).parent
ROOTS = {
    "runtime": ("saltwm[sim,explore]", "setuptools", "wheel"),
    "dev": ("saltwm[dev]", "setuptools", "wheel"),
    "fuzz": ("atheris",),
}
"""File -> what it must be enough to install; dev.txt takes runtime.txt in and has the rest."""
APART = {"saltwm", "torch"}
HEAD = (
    "# Written by `make pins`; do not edit. Installed by `pip install --require-hashes --no-deps -r requirements/{}`."
)


def pinned() -> dict[str, str]:
    """Version of each package in constraints.txt, by its plain name."""
    lines = (HERE.parent / "constraints.txt").read_text().split()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def needed(roots: Iterable[str]) -> set[str]:
    """Plain names of the roots and of all that they need here, optional parts only where one is asked for."""
    waiting = [Requirement(root) for root in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        if wanted.name == "atheris":  # installed by `make fuzz` alone, and needs nothing
            continue
        for line in requires(wanted.name) or ():
            part = Requirement(line)
            asked = [{"extra": extra} for extra in ("", *wanted.extras)]
            if part.marker is None or any(part.marker.evaluate(extra) for extra in asked):
                waiting.append(part)
    return {name for name, _ in seen} - APART


class Links(HTMLParser):
    """Names and hashes of the files on one page of the index."""

    def __init__(self) -> None:
        """No links yet."""
        super().__init__()
        self.files: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a link that carries the hash of its file."""
        found = re.search(r"([^/#]+)#sha256=([0-9a-f]{64})$", dict(attrs).get("href") or "")
        if tag == "a" and found:
            self.files[found[1]] = found[2]


def version_of(file: str) -> Version | None:
    """The version that a wheel's or source archive's name tells; None for other files."""
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except (InvalidVersion, ValueError):
        return None


def hashes(index: str, name: str, version: str) -> list[str]:
    """SHA-256 of every file of this version in the index, in order."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as page:
        links = Links()
        links.feed(page.read().decode())
    found = sorted(digest for file, digest in links.files.items() if version_of(file) == Version(version))
    if not found:
        raise SystemExit(f"{name}=={version}: the index has no file of it")
    return found


def main() -> None:
    """Write every file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", required=True, help="address of the index, as in pip's --index-url")
    index = parser.parse_args().index
    versions, lists = pinned(), {file: needed(roots) for file, roots in ROOTS.items()}
    lists["dev"] -= lists["runtime"]
    names = sorted(set().union(*lists.values()))
    if unpinned := [name for name in names if name not in versions]:
        raise SystemExit(f"constraints.txt has no version of {', '.join(unpinned)}")
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(names, pool.map(lambda name: hashes(index, name, versions[name]), names), strict=True))
    for file, wanted in lists.items():
        entries = ["-r runtime.txt"] if file == "dev" else []
        for name in sorted(wanted):
            entries += [" \\\n    --hash=sha256:".join([f"{name}=={versions[name]}", *found[name]])]
        path = HERE / f"{file}.txt"
        path.write_text("\n".join([HEAD.format(path.name), *entries, ""]))
        print(f"{path.name}: {len(wanted)} packages, {sum(len(found[name]) for name in wanted)} hashes")


if __name__ == "__main__":
    main()
