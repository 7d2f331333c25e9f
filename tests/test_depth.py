"""How deep a call is: frames of this package from `translate` down to a matrix product."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import regard
from regard.storage.models import find_model

HOME = str(Path(regard.__file__).parent)
MAX_FRAMES = 18  # eight to the search, ten in the model: its block is written once, for any mixer of tokens
PRODUCTS = {"linear", "bmm", "baddbmm", "matmul", "scaled_dot_product_attention"}


def own_frames(frame: FrameType | None) -> list[str]:
    """The calls of this package on the stack, the innermost first."""
    found = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(HOME):
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found


@pytest.mark.usefixtures("same_threads")
@pytest.mark.parametrize("name", ["tatoeba-en-de", "phrasebook-transformer"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_frames_from_translate_to_the_matrix_product(precision: str, name: str) -> None:
    model = regard.load(find_model(Path(name)), "cpu", 1, precision)
    deepest: list[str] = []
    seen = 0

    def profile(frame: FrameType, event: str, value: object) -> None:
        nonlocal deepest, seen
        is_op = event == "call" and frame.f_code.co_filename.endswith("torch/_ops.py")  # quantized products
        if is_op or (event == "c_call" and getattr(value, "__name__", "") in PRODUCTS):
            seen += 1
            deepest = max(deepest, own_frames(frame), key=len)

    sys.setprofile(profile)
    try:
        model.translate("I see it.")
    finally:
        sys.setprofile(None)
    assert seen > 10, "the products of encoder and decoder were seen"
    assert deepest[-1] == "TranslateMethods.translate"
    assert len(deepest) <= MAX_FRAMES, "\n".join(reversed(deepest))
