"""Every reader of files: whatever a file holds, only our own errors come out (a sample of qa/survive)."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from qa.survive import readers
from regard.config import Task, load_config
from regard.data.formats import open_document, read_pairs
from regard.errors import RegardError, UsageError

TASK = Task(name="translate", source="en", target="de")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, about what they read


def test_the_seeds_are_good_files(tmp_path: Path) -> None:
    listed = readers.readers()
    assert {each.name: readers.read(each, each.content, tmp_path)[0] for each in listed} == {
        each.name: "read" for each in listed
    }


def test_changed_files_give_our_errors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST", 60.0)  # the trial measures times
    result = readers.fuzz(1200, seed=9)
    assert result.failures == 0 and 100 < result.more["read"] < 1100, result.wrong


def test_another_error_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> object:
        raise KeyError("x" if path.read_bytes() != first.content else "")

    first = readers.readers()[0]
    monkeypatch.setattr(readers, "readers", lambda: [replace(first, read=broken)])
    assert readers.fuzz(3, seed=1).failures == 3


# --- what it found, and what was seen beside that


def po(path: Path, forms: str = "nplurals=2; plural=(n != 1);", last: str = 'msgstr[0] "x"\n') -> Path:
    head = f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: {forms}\\n"\n\n'
    path.write_text(f'{head}msgid "one"\nmsgid_plural "many"\n{last}')
    return path


def test_an_entry_without_a_translation_to_replace(tmp_path: Path) -> None:
    """The file ended inside its last entry: StopIteration came out."""
    found = open_document(po(tmp_path / "a.po", last=""), TASK)
    (unit,) = found.units(everything=True)
    with pytest.raises(UsageError, match=r"a\.po, line \d+: an entry without msgstr"):
        unit.fill(["x", "y"], False)


@pytest.mark.parametrize(
    "forms", ["nplurals=999999999; plural=0;", "nplurals=2; plural=5/(n-1);", "nplurals=2; plural=7;"]
)
def test_formulas_of_plurals_that_make_no_sense(forms: str, tmp_path: Path) -> None:
    """A billion forms took all memory; a formula that divides by nothing raised ZeroDivisionError."""
    with pytest.raises(UsageError, match="Plural-Forms cannot be read"):
        list(read_pairs(po(tmp_path / "a.po", forms), TASK))


def test_an_encoding_that_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text('<?xml version="1.0" encoding="UHTF-8"?><tmx/>')
    with pytest.raises(UsageError, match=r"a\.tmx: .* unknown charset"):
        list(read_pairs(tmp_path / "a.tmx", TASK))


def test_a_small_gzip_file_that_holds_a_lot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was unpacked into memory as a whole."""
    monkeypatch.setattr("regard.data.files.LONGEST_INPUT", 1 << 16)
    (tmp_path / "a.po.gz").write_bytes(gzip.compress(bytes(1 << 17)))
    with pytest.raises(UsageError, match=r"a\.po\.gz: larger than"):
        list(read_pairs(tmp_path / "a.po.gz", TASK))


def test_an_unknown_field_of_a_corpus_is_refused(tmp_path: Path) -> None:
    """`{corpus = "b.tsv", wieght = 2}` raised KeyError."""
    path = tmp_path / "run.toml"
    path.write_text('[data]\ntrain = [{corpus = "b.tsv", wieght = 2.0}]\n')
    with pytest.raises(UsageError, match=r"data\.train = .*a list of these or of {corpus = \.\.\., weight"):
        load_config(path)


def test_a_message_does_not_steer_the_terminal(tmp_path: Path) -> None:
    """What a file says was quoted as it was, with the signs that clear a screen."""
    with pytest.raises(UsageError) as caught:
        list(read_pairs(po(tmp_path / "a.po", "nplurals=2; plural=(\x1b[2J;"), TASK))
    assert str(caught.value).isprintable()
    assert str(RegardError("a\x1b[2J\u2028b\nc")) == "a\\x1b[2J\\u2028b\nc"
    assert len(str(RegardError("x" * 10_000))) < 5000
