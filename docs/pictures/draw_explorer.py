"""Draw docs/pictures/explore-*.png and explore.gif: python docs/pictures/draw_explorer.py

Needs chromium and its driver. Each view of the explorer on Two-Room in light and dark, and a film of a goal that is
reached.
"""

import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

HERE = Path(__file__).parent
SIZE = (1280, 860)
FILM_WIDTH, FILM_SECONDS = 800, 240
ACT = "act?model=two-room-salt&planner=map&look=1&start=60_130&goal=150_70"
VIEWS = {
    "imagine": "imagine?model=two-room-salt",
    "browse": "browse?cell=two-room-salt-clean-seed1&task=1&beside=two-room-lewm-clean-seed1",
    "map": "map?model=two-room-salt",
    "data": "data",
}


class Browser:
    """Chromium at one explorer."""

    def __init__(self, address: str) -> None:
        options = webdriver.ChromeOptions()
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(word)
        options.binary_location = str(shutil.which("chromium"))
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.address = address
        size = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, theme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, view: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}#/{view}")
        self.wait(lambda: self.all("main .view") and self.all("#status")[0].text == "ready")

    def wait(self, is_true: Callable[[], Any], seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while not is_true():
            if time.monotonic() > deadline:
                raise TimeoutError(self.driver.current_url)
            time.sleep(0.1)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def button(self, name: str) -> Any:
        return next(button for button in self.all("button") if button.text == name)

    def shot(self) -> Image.Image:
        return Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")


def save(picture: Image.Image, name: str) -> None:
    """As a palette of 256 colours: small, and the few red points stay red."""
    path = HERE / name
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path, path.stat().st_size, "bytes")


def act(browser: Browser) -> list[Image.Image]:
    """Press play and look until the goal is reached; the last moment before that is saved too."""
    browser.open(ACT)
    frames = [browser.shot()]
    browser.button("Play").click()
    end = time.monotonic() + FILM_SECONDS
    while not browser.all(".badge") and time.monotonic() < end:
        frames.append(browser.shot())
    return [*frames, browser.shot()]


def palette_of(picture: Image.Image) -> Image.Image:
    """The commonest colours as they are, or the page's grey turns pink; and such as keep the few red points red."""
    counted = picture.getcolors(picture.width * picture.height) or []
    common = [colour for _, colour in sorted(counted, reverse=True)[:24]]
    spread = picture.quantize(72, method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for colour in common for part in colour] + spread[: 3 * 72])
    return palette


def film(frames: list[Image.Image]) -> None:
    """At most 40 moments that differ, in one palette."""
    moments = [frame for before, frame in zip([None, *frames], frames, strict=False) if frame != before]
    moments = [moments[i] for i in sorted({round(k * (len(moments) - 1) / 39) for k in range(40)})]
    height = round(FILM_WIDTH * SIZE[1] / SIZE[0])
    small = [frame.resize((FILM_WIDTH, height), Image.Resampling.LANCZOS) for frame in moments]
    pages = [frame.quantize(palette=palette_of(small[-1]), dither=Image.Dither.NONE) for frame in small]
    path = HERE / "explore.gif"
    times = [250] * (len(pages) - 1) + [2500]
    pages[0].save(path, save_all=True, append_images=pages[1:], duration=times, loop=0, optimize=True)
    print(path, path.stat().st_size, "bytes,", len(pages), "moments")


def main() -> None:
    command = [sys.executable, "-m", "saltwm", "explore", "two-room", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = next(found[0] for line in server.stdout if (found := re.search(r"http://127\S+", line)))
        browser = Browser(address)
        try:
            for theme, ending in (("light", ""), ("dark", "-dark")):
                browser.prefer(theme)
                frames = act(browser)
                if theme == "light":
                    film(frames)
                save(frames[-1], f"explore-act{ending}.png")
                for name, view in VIEWS.items():
                    browser.open(view)
                    time.sleep(4)  # charts and pictures come after the view
                    save(browser.shot(), f"explore-{name}{ending}.png")
        finally:
            browser.driver.quit()
            server.terminate()


if __name__ == "__main__":
    main()
