"""Small grey pictures as text, for a language model that writes pictures.

A picture is a line of text for each row, and a character for each pixel: U+2800 + its grey value, 0 to 255
(the 256 braille patterns, one character each). A document is a label, a newline, and the picture:
"7\\n" continues with the picture of a seven. With `text.kind = "character"` a pixel is a token.
"""

from __future__ import annotations

import numpy as np

from regard.config.input import ImageInput, PixelText
from regard.inputs.frames import Source
from regard.inputs.image import Pixels, read_image

FIRST = 0x2800  # of the character for black
WHITE = 255


def picture_document(source: Source, label: str, config: PixelText) -> str:
    """A picture behind its label, as a document to learn."""
    whole = ImageInput(height=config.height, width=config.width, channels=1, patch=1)
    return f"{label}\n{picture_text(read_image(source, whole)[:, :, 0], config.levels)}"


def picture_text(pixels: Pixels, levels: int) -> str:
    """[H,W] as text; its grey values are rounded to `levels` of them."""
    steps = np.rint(pixels * ((levels - 1) / WHITE))
    greys = np.rint(steps * (WHITE / (levels - 1))).astype(int)
    return "\n".join("".join(chr(FIRST + grey) for grey in row) for row in greys)


def text_picture(text: str) -> Pixels | None:
    """The picture in a text, uint8 [H,W]; None if there is none: the lines of pixels must be equally long."""
    rows = [line for line in text.split("\n") if line and all(0 <= ord(c) - FIRST <= WHITE for c in line)]
    if not rows or len(set(map(len, rows))) > 1:
        return None
    return np.array([[ord(character) - FIRST for character in row] for row in rows], dtype=np.uint8)
