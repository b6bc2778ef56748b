"""Plain words: no phrase that a reader has to turn round, and one sentence per line in every document."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("checkpoints/*/README.md")])
TURNED_ROUND = re.compile(r"\banew\b|\bso (many|long)\b(?! as)|unless (it is )?(told|said) otherwise|asks and is asked")
ABBREVIATION = re.compile(r"\b(App|Sec|eq|Fig|Prop|Alg|al|vs|cf|e\.g|i\.e|etc|[A-Z])\.$")


def test_the_code_has_no_phrase_that_has_to_be_turned_round():
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in sorted(ROOT.glob("saltwm/**/*.py"))
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if TURNED_ROUND.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_document_has_one_sentence_per_line(file):
    crowded = [f"{number}: {line}" for number, line in prose(file.read_text()) if len(sentences(line)) > 1]
    assert not crowded, "\n".join(crowded)


def test_negative_control_two_sentences_on_a_line_are_found():
    assert len(sentences("It plans. Then it acts (eq. 8, App. B.2). `clean` has bounds.")) == 3
    assert len(sentences("See Sec. 4.2 and `a. B` and [one. Two](there.md) (an aside. Another).")) == 1


def prose(text):
    """Numbered lines of a document outside code, tables, headings, comments and what is made from the records."""
    is_code = is_made = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_made = (is_made or "made from the records" in line) and not line.startswith("<!-- end of")
        if not (is_code or is_made or re.match(r"\s*([|#<!>]|\[!|```)", line)):
            yield number, line


def sentences(line):
    """The line's sentences; what stands in code, links and brackets is passed over."""
    line = re.sub(r"^\s*(\d+\.|[-*]) ", "", line)
    bare = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\([^()]*\)", "Xx", line)
    parts = [""]
    for piece in re.split(r"(?<=[.!?]) (?=[A-Z0-9])", bare):
        parts[-1] += piece
        if not ABBREVIATION.search(piece):
            parts.append("")
    return [part for part in parts if part]
