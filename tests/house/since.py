"""How many lines of today are features that came after a commit, and how many are what could be done then.

    python tests/house/since.py 65d77e2

A file that is about one new feature counts for it whole. In the other files a function or class counts for a new
feature if less than a seventh of its lines is as old as the commit and one of the feature's words is in it. All other
lines count as what existed: those that survive as they were written, and those that were rewritten or added.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
OLD_SHARE = 1 / 7
FILES = {
    "explorer": r"explore|jobs/by_hand",
    "action prior, looks, MAP, own planners": r"planning/(prior|with_prior|map|looks|own|names)|jobs/prior|imitation",
    "studies, variants, training seeds": r"jobs/(study|lanes|variants)|report/(stud|evidence|elements|pooled)|sweep"
    r"|bench/efficiency|evaluation/paired",
    "other objectives, DINO-WM": r"losses/(?!sigreg)|report/objectives|features\.py|dinov2|model/patches",
    "recordings of other formats": r"interop/(recordings|importing|folders|lance|lerobot|minari|pictures|video)"
    r"|data/fields|ground/frames",
    "own environments": r"envs/(adapter|check|users)|jobs/environment|ground/own_code",
    "offline score": r"jobs/scor",
    "films of what a plan expects": r"jobs/(imagined|filming)",
    "growing datasets, prolonged runs": r"disk/lineage",
    "budgets, extras, safe terminal, installed package": r"ground/(budget|extras|terminal)|disk/shipped|bench/cost"
    r"|cli/examples",
}
"""Feature -> the files that are about nothing else."""
WORDS = {
    "growing datasets, prolonged runs": r"lineage|stages?\b|grown|prolong|restarts|origin\b|as_of",
    "action prior, looks, MAP, own planners": r"prior|look_every|looks|proposal|OwnPlanner|Map",
    "studies, variants, training seeds": r"variant_of|ModelVariant|departures|training_seed|Study|by_training",
    "other objectives, DINO-WM": r"dino|regulariser|is_frozen|term_weights",
    "own environments": r"introduce|users\.|named_by|restores|--env",
    "recordings of other formats": r"[Rr]ecorded\b|recordings",
    "full diagnosis": r"lipschitz|residual|augmented|one_frame|network|CONTEXT|wide",
    "memory": r"memory",
    "budgets, extras, safe terminal, installed package": r"budget\.|require\(|out_of_memory|SafeConsole",
    "Ray for every job": r"[Rr]ay",
    "offline score": r"Ordered|OfflineScore",
    "films of what a plan expects": r"[Ii]magin",
    "explorer": r"xplore",
}
"""Feature -> words of its functions elsewhere."""


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def ages(file, commits):
    """For each line whether it was there, moved lines included."""
    lines = git("blame", "-w", "-M", "-C", "-s", "-l", "--", file).splitlines()
    return [line.lstrip("^").split(" ")[0] in commits for line in lines]


def feature(text, patterns):
    return next((name for name, pattern in patterns.items() if re.search(pattern, text)), None)


def new_parts(body, lines, is_old):
    """(feature, first line, last line) of the functions and classes that came since."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        first = min(part.lineno for part in (node, *node.decorator_list))
        place = slice(first - 1, node.end_lineno)
        is_new = sum(is_old[place]) < OLD_SHARE * len(is_old[place])
        if isinstance(node, ast.ClassDef) and (not is_new or len(is_old[place]) > 40):
            yield from new_parts(node.body, lines, is_old)
        elif is_new and (name := feature("\n".join(lines[place]), WORDS)):
            yield name, first, node.end_lineno


def main(commit):
    commits = set(git("rev-list", commit).split())
    counted = Counter()
    for file in git("ls-files", "saltwm/*.py").split():
        lines = (ROOT / file).read_text().splitlines()
        if name := feature(file, FILES):
            counted[name] += len(lines)
            continue
        is_old = ages(file, commits)
        rest = set(range(len(lines)))
        for name, first, last in new_parts(ast.parse("\n".join(lines)).body, lines, is_old):
            counted[name] += last - first + 1
            rest -= set(range(first - 1, last))
        counted["existed: survives as written"] += sum(is_old[i] for i in rest)
        counted["existed: rewritten or added"] += sum(not is_old[i] for i in rest)
    for name, lines in counted.most_common():
        print(f"{lines:7,}  {name}")
    print(f"{counted.total():7,}  product")


if __name__ == "__main__":
    main(sys.argv[1])
