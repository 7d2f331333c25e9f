"""Sixty dirty corpora, a line of a gibibyte, random bytes: the documented result each time, no shifted pair.

Every line carries its number on both sides, so a shifted pair shows.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qa.result import Result
from regard.config import Task
from regard.data.corpora import check_data, read_rows
from regard.data.files import LONGEST_LINE, checked_lines
from regard.data.report import DataReport
from regard.errors import UsageError

TASK = Task(source="en", target="de")
LINES = 12
Change = Callable[[list[bytes], list[bytes]], None]


@dataclass(frozen=True)
class Case:
    name: str
    findings: dict[str, int]  # what must be counted
    lost: frozenset[int]  # numbers of the pairs that may not be used
    change: Change  # of the lines with their ends, both sides


def side(word: bytes) -> list[bytes]:
    return [b"%d %s and some more words\n" % (number, word) for number in range(LINES)]


def at(number: int, new: Callable[[bytes], bytes], target: bool = False) -> Change:
    def change(source: list[bytes], other: list[bytes]) -> None:
        lines = other if target else source
        lines[number] = new(lines[number])

    return change


def inside(raw: bytes) -> Callable[[bytes], bytes]:
    return lambda line: line[:-1] + b" " + raw + b" word\n"


def everywhere(new: Callable[[bytes], bytes]) -> Change:
    def change(source: list[bytes], other: list[bytes]) -> None:
        source[:], other[:] = [new(line) for line in source], [new(line) for line in other]

    return change


def bad_bytes() -> list[Case]:
    """Bytes that are not UTF-8: the pair is left out and counted."""
    wrong = {
        "lone continuation": b"\x80",
        "lead alone": b"\xc3",
        "latin-1": "für".encode("latin-1"),
        "cp1252 quotes": b"\x93word\x94",
        "overlong slash": b"\xc0\xaf",
        "overlong NUL": b"\xc0\x80",
        "high surrogate": b"\xed\xa0\x80",
        "low surrogate": b"\xed\xb0\x80",
        "surrogate pair (CESU-8)": b"\xed\xa0\xbd\xed\xb8\x80",
        "beyond U+10FFFF": b"\xf4\x90\x80\x80",
        "five byte form": b"\xf8\x88\x80\x80\x80",
        "0xff": b"\xff",
        "cut character": "日".encode()[:2],
        "shift-jis": "日本".encode("shift-jis"),
        "gb18030": "中文".encode("gb18030"),
        "koi8-r": "привет".encode("koi8-r"),
    }
    return [
        Case(name, {"bad-utf8": 1}, frozenset({4}), at(4, inside(raw), target=bool(n % 2)))
        for n, (name, raw) in enumerate(wrong.items())
    ]


def separators() -> list[Case]:
    """What other programs take for a line end: the line stays whole."""
    odd = {
        "U+2028": "\u2028", "U+2029": "\u2029", "U+0085": "\x85", "vertical tab": "\x0b", "form feed": "\x0c",
        "file separator": "\x1c", "group separator": "\x1d", "record separator": "\x1e", "lone CR": "\r",
    }  # fmt: skip
    return [
        Case(name, {"odd-separator": 1}, frozenset(), at(3, inside(sign.encode()), target=bool(n % 2)))
        for n, (name, sign) in enumerate(odd.items())
    ]


def marks_and_ends() -> list[Case]:
    mark = b"\xef\xbb\xbf"
    nothing: Change = lambda source, other: None  # noqa: E731

    def no_end(source: list[bytes], other: list[bytes]) -> None:
        source[-1] = source[-1].removesuffix(b"\n")

    def no_end_crlf(source: list[bytes], other: list[bytes]) -> None:
        other[:] = [line.replace(b"\n", b"\r\n") for line in other]
        other[-1] = other[-1].removesuffix(b"\n")

    crlf = everywhere(lambda line: line.replace(b"\n", b"\r\n"))
    return [
        Case("clean", {}, frozenset(), nothing),
        Case("BOM at the start", {"bom": 1}, frozenset(), at(0, lambda line: mark + line)),
        Case("BOM inside", {"bom": 1}, frozenset(), at(5, inside(mark))),
        Case("BOM at a line's start", {"bom": 1}, frozenset(), at(7, lambda line: mark + line, target=True)),
        Case("BOM alone", {"bom": 1, "empty": 1}, frozenset({6}), at(6, lambda line: mark + b"\n")),
        Case("CRLF", {"carriage-return": 2 * LINES}, frozenset(), crlf),
        Case("one CRLF", {"carriage-return": 1}, frozenset(), at(2, lambda line: line[:-1] + b"\r\n")),
        Case("CR CR LF", {"carriage-return": 1, "odd-separator": 1}, frozenset(), at(2, two_returns)),
        Case("no last newline", {"no-newline": 1}, frozenset(), no_end),
        Case("CRLF, no last newline", {"carriage-return": LINES, "no-newline": 1}, frozenset(), no_end_crlf),
        Case("NUL", {"nul": 1}, frozenset({5}), at(5, inside(b"\x00"))),
        Case("only NULs", {"nul": 1}, frozenset({5}), at(5, lambda line: b"\x00" * 50 + b"\n", target=True)),
        Case("NUL at a line's end", {"nul": 1}, frozenset({8}), at(8, lambda line: line[:-1] + b"\x00\n")),
    ]  # fmt: skip


def two_returns(line: bytes) -> bytes:
    return line[:-1] + b"\r\r\n"


def lengths() -> list[Case]:
    blank = ["  ", "\t", "\u00a0", "\u3000", ""]
    empty = [
        Case(
            f"empty side {n}",
            {"empty": 1},
            frozenset({n}),
            at(n, lambda x, t=t: t.encode() + b"\n", bool(n % 2)),
        )  # type: ignore[misc]
        for n, t in enumerate(blank)
    ]
    long = b"word " * 200 + b"\n"
    endless = b"x" * (LONGEST_LINE + 1) + b"\n"
    just = b"9 " + b"x" * (LONGEST_LINE - 3) + b"\n"
    return [
        *empty,
        Case("ratio", {"ratio": 1}, frozenset({9}), at(9, lambda line: long)),
        Case("ratio, other side", {"ratio": 1}, frozenset({2}), at(2, lambda line: long, target=True)),
        Case("over a mebibyte", {"endless": 1}, frozenset({1}), at(1, lambda line: endless)),
        Case(
            "a mebibyte at the end", {"endless": 1}, frozenset({11}), at(11, lambda x: endless, target=True)
        ),
        Case("just a mebibyte", {"ratio": 1}, frozenset({9}), at(9, lambda line: just)),
        Case("two in one pair", {"bad-utf8": 1, "nul": 1}, frozenset({4}), both_bad),
    ]


def both_bad(source: list[bytes], other: list[bytes]) -> None:
    source[4], other[4] = b"4 \xff\n", b"4 \x00\n"


def pairs(folder: Path, case: Case, packed: bool) -> tuple[str, str]:
    source, other = side(b"source"), side(b"ziel")
    case.change(source, other)
    names = []
    for name, lines in (("en", source), ("de", other)):
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(b"".join(lines)) if packed else b"".join(lines))
        names.append(str(path))
    return names[0], names[1]


def shifted(rows: list[tuple[int, str, str]]) -> int:
    """Pairs whose sides, or whose line number, do not belong together."""
    return sum(
        {source.split(" ")[0], target.split(" ")[0]} != {str(number - 1)} for number, source, target in rows
    )


def run_case(folder: Path, case: Case, packed: bool) -> str | None:
    """None, or what went wrong."""
    findings = DataReport()
    rows = list(read_rows(pairs(folder, case, packed), TASK, "train", findings))
    if dict(findings.counts) != case.findings:
        return f"{case.name}: found {dict(findings.counts)}, not {case.findings}"
    if [number - 1 for number, _, _ in rows] != [n for n in range(LINES) if n not in case.lost]:
        return f"{case.name}: used {[number for number, _, _ in rows]}"
    return f"{case.name}: {shifted(rows)} shifted" if shifted(rows) else None


def refusals(folder: Path) -> list[tuple[str, str | tuple[str, str], str]]:
    """(name, corpus, words of the error): what cannot be used at all."""
    good = folder / "good"
    good.write_bytes(b"".join(side(b"good")))
    short, empty, text = folder / "short", folder / "empty", folder / "wide.tsv"
    short.write_bytes(b"".join(side(b"short")[:-3]))
    empty.write_bytes(b"")
    text.write_bytes("0 a\t0 b\n".encode("utf-16"))
    cut, false, half = folder / "cut.tsv.gz", folder / "false.tsv.gz", folder / "half.gz"
    packed = gzip.compress(b"".join(b"%d source %d\t%d ziel\n" % (n, n * n, n) for n in range(5000)))
    cut.write_bytes(packed[: len(packed) // 2])
    false.write_bytes(b"not packed at all\t\n")
    half.write_bytes(gzip.compress(b"".join(side(b"half")))[:-12])
    pipe = folder / "pipe.tsv"
    if not pipe.exists():
        os.mkfifo(pipe)
    table = folder / "no-tabs.tsv"
    table.write_bytes(b"one\ntwo\n")
    return [
        ("unequal counts", (str(good), str(short)), f"{short} has 9 lines but {good} has 12"),
        ("unequal counts, other side", (str(short), str(good)), "line 10 has no counterpart"),
        ("empty side", (str(good), str(empty)), "has 0 lines"),
        ("both empty", (str(empty), str(empty)), "has no pair"),
        ("missing side", (str(good), str(folder / "none")), "no such file"),
        ("folder", (str(good), str(folder)), "is a folder"),
        ("pipe", str(pipe), "is a pipe"),
        ("device", ("/dev/zero", str(good)), "is a pipe or a device"),
        ("gzip cut off", str(cut), "cut short after line"),
        ("gzip cut off, pair", (str(half), str(good)), "cut short"),
        ("no gzip", str(false), "damaged or cut short"),
        ("UTF-16", str(text), "UTF-16"),
        ("no tab anywhere", str(table), "has no pair"),
    ]


def run_refusal(name: str, corpus: str | tuple[str, str], words: str) -> str | None:
    from regard.config import Data

    data = Data(train=corpus if isinstance(corpus, str) else [list(corpus)])
    try:
        check_data(data, TASK)
        list(read_rows(corpus, TASK, "train", DataReport()))
    except UsageError as error:
        return None if words in str(error) else f"{name}: said {error}"
    return f"{name}: accepted"


def changing(folder: Path) -> str | None:
    """A file that grows while it is read."""
    path = folder / "growing.tsv"
    path.write_bytes(b"0 a\t0 b\n" * 1000)
    rows = read_rows(str(path), TASK, "train", DataReport())
    next(rows)
    with path.open("ab") as file:
        file.write(b"1 a\t1 b\n")
    try:
        list(rows)
    except UsageError as error:
        return None if "changed while it was read" in str(error) else f"growing: said {error}"
    return "growing: accepted"


def random_files(folder: Path, count: int, seed: int) -> int:
    """Pairs of files of random bytes with equal numbers of lines: of how many the reader sees others."""
    dice = random.Random(seed)
    signs = [
        b"\n",
        b"\r",
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"a",
        b" ",
        b"\t",
        "\u2028".encode(),
        b"\xc3",
        b"\x85",
    ]
    wrong = 0
    for _ in range(count):
        lines = dice.randrange(1, 8)
        found = []
        for name in ("en", "de"):
            rows = [b"".join(dice.choices(signs[1:], k=dice.randrange(6))) for _ in range(lines)]
            (folder / name).write_bytes(b"." + b"\n".join(rows) + b"\n")
            found.append(len(list(checked_lines(folder / name, DataReport()))))
        wrong += found != [lines, lines]
    return wrong


MOST_MIB = 512  # of the whole process that reads a line of a gibibyte
HUGE = """
import resource, sys
from regard.cli import main
try:
    main(["data", "check", sys.argv[1], "--json"])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)
"""


def huge_line(folder: Path, size: int) -> dict[str, float]:
    """One line of `size` bytes among good ones, through the command: what is found, and peak memory."""
    path = folder / "huge.tsv"
    with path.open("wb") as file:
        file.write(b"0 a word\t0 ein Wort\n")
        for _ in range(size >> 20):
            file.write(b"x" * (1 << 20))
        file.write(b"\n2 two words\t2 zwei Worte\n")
    done = subprocess.run(
        [sys.executable, "-c", HUGE, str(path)], capture_output=True, text=True, check=False
    )
    path.unlink()
    result = json.loads(done.stdout)
    counts = {each["kind"]: each["count"] for each in result["findings"]}
    right = counts == {"endless": 1} and result["corpora"][0]["pairs"] == 2
    return {"right": right, "peak_mib": round(float(done.stderr.strip().splitlines()[-1]), 1)}


def dirty(count: int, seed: int, folder: Path, huge: int = 1 << 30) -> Result:
    """All listed cases, random files, and a line of `huge` bytes."""
    cases = [*bad_bytes(), *separators(), *marks_and_ends(), *lengths()]
    outcomes = [run_case(folder, case, packed=number % 3 == 0) for number, case in enumerate(cases)]
    outcomes += [run_refusal(*case) for case in refusals(folder)] + [changing(folder)]
    wrong = [outcome for outcome in outcomes if outcome]
    shifted_files = random_files(folder, count, seed)
    line = huge_line(folder, huge)
    wrong += [f"{shifted_files} random files have other lines"] if shifted_files else []
    wrong += [] if line["right"] and line["peak_mib"] < MOST_MIB else [f"a line of {huge} bytes: {line}"]
    n = len(outcomes) + count + 1
    figure = f"{n - len(wrong)} of {n} files are read as documented"
    return Result("dirty", n, len(wrong), figure, seed, {"huge_line": line}, wrong)
