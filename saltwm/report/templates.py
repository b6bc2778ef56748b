"""The pages' templates: every name escaped, nothing that a page could run, nothing fetched from elsewhere (P15)."""

import base64
import re
from typing import Any

from saltwm.report import tables
from saltwm.report.findings import Picture


def template(name: str) -> Any:
    """A template of this room; a name that it misspells is an error, not a gap in the page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("saltwm", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        data_uri=_data_uri,
        svg_uri=_svg_uri,
        p_value=tables.p_value,
        prose=_prose,
        whole_words=_whole_words,
        unbroken=_unbroken,
    )
    return environment.get_template(name)


def _prose(text: str) -> Any:
    """Escaped text in which `words` between backticks are code."""
    from markupsafe import Markup, escape

    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a backtick without its partner is a backtick
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(parts))


def _whole_words(text: str) -> Any:
    """Escaped text in which a name such as Two-Room is not broken at its hyphen where a line has room for it."""
    from markupsafe import Markup, escape

    whole = Markup('<span class="whole">{}</span>')
    return Markup(" ").join(whole.format(word) if "-" in word else escape(word) for word in text.split(" "))


def _unbroken(text: str) -> str:
    """The text with each number on one line with its % or its p."""
    return re.sub(r"(?<=\d) (?=%)|(?<=\bp) (?=\d)", "\N{NO-BREAK SPACE}", text)


def _data_uri(picture: Picture) -> str:
    return f"data:image/{picture.kind};base64,{base64.b64encode(picture.data).decode()}"


def _svg_uri(svg: str) -> str:
    # Inside an <img> an SVG is a picture: it runs nothing and fetches nothing.
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
