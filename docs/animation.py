"""Record docs/images/explorer.gif: a sentence goes up the encoder, a word is written, a weight is looked at.

python docs/animation.py [--frames FOLDER]

Starts `regard explore` with the built-in models and drives it with Chromium through playwright, which the
extra `test` installs (`make test` installs Chromium where it can).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
TARGET = Path(__file__).parent / "images" / "explorer.gif"
STEPS = (
    *range(2, 6),
    10,
    11,
    *range(12, 18),
    21,
    22,
    23,
    25,
    26,
    31,
    32,
)  # of the film: two words are written
MOTION = 1500  # milliseconds of a step
GO = """step => {
  const range = document.querySelector(".film-controls input");
  range.value = step;
  range.dispatchEvent(new Event("input"));
}"""
SET_TIME = """time => document.getAnimations().forEach(each => { each.pause(); each.currentTime = time; })"""
SIZE = (1180, 820)  # of the window
WIDTH = 900  # of the picture
COLOURS = 192
LIMIT = 1_500_000  # bytes
ARROW = ((0, 0), (0, 17), (4, 13), (8, 20), (11, 19), (7, 12), (12, 12))  # the mouse pointer


@dataclass
class Recorder:
    """Frames of a page, each with the milliseconds that it is shown."""

    page: Any
    frames: list[tuple[Image.Image, int]] = field(default_factory=list)
    pointer: tuple[float, float] = (600.0, 300.0)

    def shoot(self, milliseconds: int) -> None:
        image = Image.open(BytesIO(self.page.screenshot())).convert("RGB")
        x, y = self.pointer
        shape = [(x + dx, y + dy) for dx, dy in ARROW]
        ImageDraw.Draw(image).polygon(shape, fill="black", outline="white")
        height = round(image.height * WIDTH / image.width)
        frame = image.resize((WIDTH, height), Image.Resampling.LANCZOS)
        ImageDraw.Draw(frame).rectangle((0, 0, WIDTH - 1, height - 1), outline="#b0b0b0")
        self.frames.append((frame, milliseconds))

    def move(self, selector: str, steps: int = 5) -> None:
        """Move the pointer to the middle of an element."""
        box = self.page.locator(selector).first.bounding_box()
        end = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        start = self.pointer
        for step in range(1, steps + 1):
            share = step / steps
            self.pointer = tuple(a + (b - a) * share for a, b in zip(start, end, strict=True))
            self.shoot(60)

    def save(self, path: Path) -> None:
        """One palette for all frames: pixels that do not change cost nothing."""
        poster = max(self.frames, key=lambda frame: frame[1])[0]  # what is shown where nothing moves
        self.frames.insert(0, (poster, 1500))
        still = [image for image, milliseconds in self.frames if milliseconds > 500]
        sheet = Image.new("RGB", (WIDTH, len(still) * still[0].height))
        for number, image in enumerate(still):
            sheet.paste(image, (0, number * image.height))
        palette = sheet.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
        reduced = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image, _ in self.frames]
        times = [milliseconds for _, milliseconds in self.frames]
        reduced[0].save(path, save_all=True, append_images=reduced[1:], duration=times, loop=0, optimize=True)


@contextmanager
def explorer() -> Iterator[str]:
    """The address of a running `regard explore`."""
    command = [sys.executable, "-m", "regard", "explore", "--no-browser", "--port", "8798"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield address[0]
                    return
            raise SystemExit("regard explore did not start")
        finally:
            process.terminate()


def film_step(recorder: Recorder, step: int, frames: int = 6) -> None:
    """Step the film and record its motion; time is set, so that a slow machine records the same."""
    page = recorder.page
    page.evaluate(GO, step)
    page.wait_for_selector(f".film-map[data-step='{step}']")
    for frame in range(1, frames + 1):
        page.evaluate(SET_TIME, MOTION * frame / frames)
        recorder.shoot(70)
    page.evaluate("document.getAnimations().forEach(each => each.finish())")
    recorder.shoot(450)


def record(recorder: Recorder, address: str) -> None:
    page = recorder.page
    page.goto(f"{address}/?frame=1")
    page.wait_for_selector(".film-map[data-step='1']")
    for step in STEPS:
        film_step(recorder, step)
    film_step(recorder, int(page.get_attribute(".film-controls input", "max")))
    recorder.shoot(2500)
    stroke = ".stroke[data-query='3'][data-weight]"
    recorder.move(stroke)
    page.locator(stroke).last.dispatch_event("click")
    page.wait_for_selector("#drawer")
    page.wait_for_timeout(400)
    recorder.shoot(4000)


def main() -> None:
    from playwright.sync_api import sync_playwright

    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--frames", type=Path, help="Also write each frame into this folder.")
    given = options.parse_args()
    with explorer() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        context = browser.new_context(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
        recorder = Recorder(context.new_page())
        record(recorder, address)
        browser.close()
    if given.frames:
        given.frames.mkdir(parents=True, exist_ok=True)
        for number, (image, _) in enumerate(recorder.frames):
            image.save(given.frames / f"{number:03}.png")
    recorder.save(TARGET)
    size = TARGET.stat().st_size
    print(f"{TARGET}: {len(recorder.frames)} frames, {size:,} bytes")
    if size > LIMIT:
        raise SystemExit(f"more than {LIMIT:,} bytes")


if __name__ == "__main__":
    main()
