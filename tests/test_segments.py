"""Lines into parts and back: nothing is lost, every part fits, blank stays blank."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.tasks.translation import Segment, Split, segments, words_before

LETTERS = st.sampled_from(
    [*"ab.!?\"' \t\n\r\u00a0\u2028\x0c\x1c", "Dr.", "A sentence. ", "。", "😀", "\u0301"]
)
LINES = st.lists(LETTERS, max_size=40).map("".join) | st.text(max_size=60)


def joined(parts: list[Segment]) -> str:
    return "".join(part.before + part.text + part.after for part in parts)


@settings(deadline=None)
@given(LINES, st.sampled_from(["auto", "always", "never"]), st.integers(1, 30), st.integers(1, 30))
@example("x" * 50, "never", 5, 7)
@example("  One. Two!  Three?\t", "always", 5, 7)
@example(" a" * 30 + " ", "auto", 3, 4)
def test_parts_join_to_the_line_and_fit(line: str, split: Split, above: int, longest: int) -> None:
    parts = segments(line, len, split, above, longest)
    assert joined(parts) == line
    for part in parts:
        assert len(part.text) <= longest
        assert part.text == part.text.strip()
        assert not part.before.strip()
        assert not part.after.strip()


@given(st.text(st.sampled_from(" \t\n\r\x0b\x0c\x1c\u0085\u00a0\u2028\u3000"), max_size=8))
def test_blank_lines_have_nothing_to_translate(line: str) -> None:
    for split in ("auto", "always", "never"):
        parts = segments(line, len, split, 1, 1)
        assert [part.text for part in parts] == [""]
        assert joined(parts) == line


def test_auto_cuts_only_what_is_long() -> None:
    line = "One is here. Two is there."
    assert [part.text for part in segments(line, len, "auto", len(line), 100)] == [line]
    assert [part.text for part in segments(line, len, "auto", 10, 100)] == ["One is here.", "Two is there."]
    assert [part.text for part in segments(line, len, "never", 10, 100)] == [line]
    assert [part.text for part in segments(line, len, "always", 99, 100)] == ["One is here.", "Two is there."]


def test_a_line_with_one_character_that_does_not_fit_is_still_kept() -> None:
    """A character may be more pieces than the model can read; it stays whole, nothing loops."""
    parts = segments("😀😀", lambda text: len(text.encode()), "never", 2, 2)
    assert [part.text for part in parts] == ["😀", "😀"]


@pytest.mark.parametrize(
    ("text", "following", "number"),
    [("", "a", 0), ("a ", "b", 1), ("a", " b", 1), ("a", "b", 0), ("a bc", "d e", 1), ("a ", "", 1)],
)
def test_a_word_cut_in_two_is_counted_once(text: str, following: str, number: int) -> None:
    assert words_before(text, following) == number
