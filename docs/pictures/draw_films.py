"""Draw docs/pictures/films.gif from the films of the records: python docs/pictures/draw_films.py

The first tasks of each environment, one after the other: what the agent sees, what its plan imagines, and its goal.
Nothing is simulated, and no task is chosen.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib
from PIL import Image, ImageDraw, ImageFont

HERE = Path(__file__).resolve().parent
EVALUATIONS = HERE.parents[1] / "results" / "evaluations"
CELLS = {
    "Two-Room": "two-room-salt-map-look1-clean-seed1",
    "Reacher": "reacher-salt-map-look1-clean-seed1",
    "PushT": "push-t-salt-map-look1-clean-seed1",
    "OGBench-Cube": "cube-salt-map-look1-clean-seed1",
}
TASKS = 3
SIDE, GAP, MARGIN, HEADER, FOOTER, BETWEEN = 160, 10, 14, 38, 26, 16
PANELS = {"now": (0, "#1d5fb7"), "imagined by the plan": (164, "#b04f0b"), "goal": (340, "#1b7a3d")}
"""Name -> left edge in a recorded film, colour of its name; the colours are the explorer's."""
PAGE, CARD, EDGE, INK, QUIET, GOOD, BAD = "#f6f7f2", "#ffffff", "#d8dadd", "#1d2127", "#5c6670", "#1b7a3d", "#b03a48"
MOMENT, REST, END = 90, 1100, 2200  # milliseconds: a step, after each task, after the last one
COLOURS = 160


class Film(NamedTuple):
    """One recorded episode."""

    moments: list[Image.Image]
    outcome: str

    def at(self, step: int) -> Image.Image:
        return self.moments[min(step, len(self.moments) - 1)]

    def status(self, step: int) -> tuple[str, str]:
        if step < len(self.moments) - 1:
            return f"step {step}", QUIET
        steps = len(self.moments) - 1
        return (f"reached in {steps} steps", GOOD) if self.outcome == "reached" else (f"not reached in {steps}", BAD)


def films(cell: str) -> list[Film]:
    """The films of a cell's first tasks."""
    paths = [next((EVALUATIONS / cell / "pictures").glob(f"task-{task:03d}-*.gif")) for task in range(TASKS)]
    return [Film(list(_moments(path)), path.stem.split("-")[-1]) for path in paths]


def _moments(path: Path) -> Iterator[Image.Image]:
    with Image.open(path) as film:
        for index in range(film.n_frames):
            film.seek(index)
            yield film.convert("RGB")


def _font(size: int, weight: str = "") -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"DejaVuSans{weight}.ttf", size)


def card(name: str, film: Film, step: int) -> Image.Image:
    """One environment at one step."""
    width, height = 2 * MARGIN + 3 * SIDE + 2 * GAP, HEADER + SIDE + FOOTER + 10
    picture = Image.new("RGB", (width, height), PAGE)
    draw = ImageDraw.Draw(picture)
    draw.rounded_rectangle((0, 0, width - 1, height - 1), 12, fill=CARD, outline=EDGE)
    draw.text((MARGIN, HEADER / 2), name, INK, _font(18, "-Bold"), anchor="lm")
    status, colour = film.status(step)
    draw.text((width - MARGIN, HEADER / 2), status, colour, _font(15, "-Bold" if colour == GOOD else ""), anchor="rm")
    for place, (panel, (left, ink)) in enumerate(PANELS.items()):
        x = MARGIN + place * (SIDE + GAP)
        picture.paste(film.at(step).crop((left, 0, left + SIDE, SIDE)), (x, HEADER))
        draw.rectangle((x, HEADER, x + SIDE - 1, HEADER + SIDE - 1), outline=EDGE)
        draw.text((x + SIDE / 2, HEADER + SIDE + FOOTER / 2 + 2), panel, ink, _font(14), anchor="mm")
    return picture


def pages() -> tuple[list[Image.Image], list[int]]:
    """Every page, and how long each is shown: all environments do a task at once, and wait for the slowest."""
    shown = {name: films(cell) for name, cell in CELLS.items()}
    made, times = [], []
    for task in range(TASKS):
        length = max(len(of[task].moments) for of in shown.values())
        for step in range(length):
            cards = [card(name, of[task], step) for name, of in shown.items()]
            (width, height) = cards[0].size
            page = Image.new("RGB", (2 * width + BETWEEN, 2 * height + BETWEEN), PAGE)
            for index, one in enumerate(cards):
                page.paste(one, ((index % 2) * (width + BETWEEN), (index // 2) * (height + BETWEEN)))
            made.append(page)
            times.append(MOMENT if step < length - 1 else REST if task < TASKS - 1 else END)
    return made, times


def main() -> None:
    made, times = pages()
    seen = Image.new("RGB", (made[0].width, 3 * made[0].height))
    for index, page in enumerate((made[0], made[len(made) // 2], made[-1])):
        seen.paste(page, (0, index * page.height))
    palette = seen.quantize(COLOURS, method=Image.Quantize.FASTOCTREE)
    drawn = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in made]
    path = HERE / "films.gif"
    drawn[0].save(path, save_all=True, append_images=drawn[1:], duration=times, loop=0, optimize=True)
    print(path, path.stat().st_size, "bytes,", len(drawn), "moments")


if __name__ == "__main__":
    main()
