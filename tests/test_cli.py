"""The program as a person meets it: results on stdout, one sentence on stderr, the right exit code."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from conftest import Command, Refused, Result, Toy, toy_config, toy_sentences, toy_translation
from regard.cli import main
from regard.config import to_toml
from regard.tasks import Candidate, Translation

pytestmark = pytest.mark.usefixtures("same_threads")


def program(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    """The real program in a process of its own."""
    command = [sys.executable, "-m", "regard", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=120, **options)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def copy(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the model folder to break."""
    return shutil.copytree(tiny_model, tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints"))


# translate: what goes in and what comes out


def test_the_model_translates_the_toy_language(regard: Command, tiny_model: Path) -> None:
    sentences = toy_sentences(80, seed=9)
    found = regard("translate", "-m", tiny_model, stdin="\n".join(sentences)).lines
    right = [text == toy_translation(sentence) for text, sentence in zip(found, sentences, strict=True)]
    assert sum(right) >= 0.9 * len(right)


def test_one_translation_by_every_way_in(regard: Command, tiny_model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("ba\nde fi\n", encoding="utf-8")
    expected = ["Ab", "If Ed"]
    assert regard("translate", "-m", tiny_model, stdin="ba\nde fi\n") == Result(0, "Ab\nIf Ed\n", "")
    assert regard("translate", "-m", tiny_model, "-", stdin="ba\nde fi").lines == expected
    assert regard("translate", "-m", tiny_model, text).lines == expected
    assert regard("translate", "-m", tiny_model, "ba", "de fi").lines == expected
    assert regard("translate", "-m", tiny_model, "ba\nde fi").lines == expected
    assert regard("translate", "-m", tiny_model, text, "ba", "-", stdin="ba").lines == [*expected, "Ab", "Ab"]
    assert regard("translate", "-m", tiny_model, text, "-o", "-").lines == expected
    out = tmp_path / "new folder" / "out"
    written = regard("translate", "-m", tiny_model, text, "-o", out)
    assert (written.code, written.out) == (0, "")
    assert f"wrote 2 translations to {out}" in written.err
    assert out.read_bytes() == b"Ab\nIf Ed\n"


def test_files_of_windows_and_pipes(regard: Command, tiny_model: Path, tmp_path: Path) -> None:
    raw = b"\xef\xbb\xbfba\r\nde fi\r\n"
    (tmp_path / "text").write_bytes(raw)
    assert regard("translate", "-m", tiny_model, tmp_path / "text").lines == ["Ab", "If Ed"]
    assert regard("translate", "-m", tiny_model, stdin=raw).lines == ["Ab", "If Ed"]
    reader, writer = os.pipe()  # as `<(zcat text.gz)` gives it
    os.write(writer, b"ba\n")
    os.close(writer)
    assert regard("translate", "-m", tiny_model, f"/dev/fd/{reader}").lines == ["Ab"]
    os.close(reader)


def test_order_blank_lines_and_spacing_are_kept(regard: Command, tiny_model: Path) -> None:
    lines = ["ba be bi", "", "  ba", "ba\t", "   ", "de fi  ", "", ""]
    found = regard("translate", "-m", tiny_model, stdin="".join(f"{line}\n" for line in lines)).lines
    assert found == [
        re.sub(r"\S.*\S|\S", lambda match: toy_translation(match[0]), line) if line.strip() else line
        for line in lines
    ]


def test_a_long_text_given_directly(regard: Command, tiny_model: Path) -> None:
    """A sentence longer than a file name may be was looked for on disk, which ended in a traceback."""
    result = regard("translate", "-m", tiny_model, " ".join(["ba"] * 200))
    assert (result.code, len(result.lines)) == (0, 1)


def test_text_of_any_kind_gives_one_line_each(regard: Command, tiny_model: Path) -> None:
    odd = [
        "\x00",
        "\x07 \x1b[31m",
        "😀 👩‍👩‍👧",
        "a\u2028b",
        "\x0c",
        "\u0085",
        "</s> <pad>",
        "x" * 500,
        "\u202e",
        "ba",
    ]
    result = regard("translate", "-m", tiny_model, "--set", "max_length=20", stdin="\n".join(odd))
    assert result.code == 0
    assert len(result.lines) == len(odd)
    assert result.lines[-1] == "Ab"


def test_a_very_long_line_is_cut_and_joined(regard: Command, tiny_model: Path) -> None:
    line = " ".join(["ba"] * 3000)
    options = ("--beam", 1, "--alignment", "--json", "--no-check")
    result = regard("translate", "-m", tiny_model, *options, stdin=line)
    row = json.loads(result.out)
    assert row["text"].count("Ab") >= 3000 / 64  # the model reads 64 pieces at once: something from each part
    words = len(row["text"].split())
    links = row["candidates"][0]["alignment"]
    assert {target for _, target in links} == set(range(words))
    assert max(source for source, _ in links) > 2900
    assert all(0 <= source < 3000 for source, _ in links)


def test_links_of_an_over_long_word_stay_in_range(regard: Command, tiny_model: Path) -> None:
    """A word cut in two was counted twice, so links pointed behind the last word."""
    result = regard(
        "translate", "-m", tiny_model, "--alignment", "--json", "--beam", 1, stdin="x" * 300 + " ba"
    )
    row = json.loads(result.out)
    words = len(row["text"].split())
    for source, target in row["candidates"][0]["alignment"]:
        assert 0 <= source < 2
        assert 0 <= target < words


def test_an_answer_with_a_newline_stays_one_line(regard: Command, tiny_model: Path) -> None:
    """Drawn hot, a model of bytes says newlines; each used to shift all lines behind it."""
    hot = ("--set", "sample=true", "--set", "temperature=50.0", "--set", "max_length=60", "--beam", 1)
    lines = "\n".join(sorted(set(toy_sentences(60, seed=4))))
    rows = regard("translate", "-m", tiny_model, *hot, "--json", stdin=lines).lines
    found = [json.loads(row)["text"] for row in rows]
    assert any("\n" in text for text in found)
    plain = regard("translate", "-m", tiny_model, *hot, stdin=lines).lines
    assert plain == [text.replace("\n", " ") for text in found]


def test_typed_lines_are_answered_one_by_one(
    tiny_model: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer must come before the next line is read."""
    answers: list[bytes] = []

    def typed() -> Iterator[bytes]:
        for line in (b"ba\n", b"de fi\n"):
            yield line
            answers.append(capsysbinary.readouterr().out)

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=typed(), isatty=lambda: True))
    with pytest.raises(SystemExit):
        main(["translate", "-m", str(tiny_model), "--threads", "1"])
    assert answers == [b"Ab\n", b"If Ed\n"]


def test_stdin_that_is_closed(
    tiny_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `regard translate <&-`, or below a service without stdin."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as caught:
        main(["translate", "-m", str(tiny_model), "--threads", "1"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: stdin is closed; give a text or a file\n"


def test_empty_input(regard: Command, tiny_model: Path, tmp_path: Path) -> None:
    assert regard("translate", "-m", tiny_model, stdin="") == Result(0, "", "")
    assert regard("translate", "-m", tiny_model, "--json", stdin="\n").code == 0
    out = tmp_path / "out"
    assert regard("translate", "-m", tiny_model, "-o", out, stdin="").code == 0
    assert out.read_bytes() == b""


# translate: options


def test_json_schema(regard: Command, tiny_model: Path) -> None:
    result = regard("translate", "-m", tiny_model, "--json", "--num-results", 2, stdin="ba de\n\n")
    first, blank = [json.loads(line) for line in result.lines]
    assert list(first) == ["line", *(each.name for each in fields(Translation))]
    assert (first["line"], first["source"], first["text"]) == (1, "ba de", "Ed Ab")
    known = [each.name for each in fields(Candidate)]
    assert [list(each) for each in first["candidates"]] == [known] * 2
    assert first["candidates"][0]["tokens"] == [" Ed", " Ab", "</s>"]
    for each in first["candidates"]:
        assert len(each["tokens"]) == len(each["token_log_probabilities"])
        assert sum(each["token_log_probabilities"]) == pytest.approx(each["log_probability"], abs=1e-5)
    assert first["candidates"][0]["text"] == first["text"]
    assert 0 >= first["candidates"][0]["score"] >= first["candidates"][1]["score"]
    nothing = {"text": "", "score": 0.0, "log_probability": 0.0, "finished": True}
    nothing |= {"tokens": [], "token_ids": [], "token_log_probabilities": [], "alignment": None}
    assert (blank["line"], blank["source"], blank["text"]) == (2, "", "")
    assert blank["candidates"] == [nothing]
    aligned = regard("translate", "-m", tiny_model, "--json", "--alignment", stdin="\n").lines[0]
    assert json.loads(aligned)["candidates"] == [{**nothing, "alignment": []}]


def test_nbest_in_moses_format(regard: Command, tiny_model: Path) -> None:
    rows = [
        line.split(" ||| ")
        for line in regard("translate", "-m", tiny_model, "--num-results", 3, "ba", "de").lines
    ]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "2", "2"]
    assert (rows[0][1], rows[3][1]) == ("Ab", "Ed")
    scores = [float(row[2]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)


def test_scores_alignment_and_beam(regard: Command, tiny_model: Path) -> None:
    score, text = regard("translate", "-m", tiny_model, "--scores", "ba de").lines[0].split("\t")
    assert text == "Ed Ab"
    assert -1 < float(score) <= 0
    text, links = regard("translate", "-m", tiny_model, "--alignment", "ba de").lines[0].split("\t")
    assert [int(link.split("-")[1]) for link in links.split()] == [0, 1]
    assert all(int(link.split("-")[0]) in (0, 1) for link in links.split())
    beams = [regard("translate", "-m", tiny_model, "--beam", beam, "ba de").lines for beam in (1, 3)]
    assert beams == [["Ed Ab"], ["Ed Ab"]]


def test_a_prefix_begins_every_line_once(regard: Command, tiny_model: Path) -> None:
    """On a line too long for the model, each of its parts used to begin with the prefix."""
    long = " ".join(["ba"] * 150)
    found = regard(
        "translate", "-m", tiny_model, "--prefix", "If", "--beam", 1, stdin=f"de fi\n\n{long}\n"
    ).lines
    assert found[0] == "If Ed"
    assert found[1] == ""
    assert found[2].startswith("If")
    assert found[2].count("If") == 1


def test_sampling_is_reproducible_by_its_seed(regard: Command, tiny_model: Path) -> None:
    def draw(seed: int) -> list[str]:
        options = ("--set", "sample=true", "--set", "temperature=3.0", "--set", f"seed={seed}")
        return regard("translate", "-m", tiny_model, *options, "ba be bi da", "ma me").lines

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "bem=3"], ['"decode.bem"', 'did you mean "beam"?']),
        (["--set", "beam=0"], ["decode.beam = 0"]),
        (["--set", "beam"], ["--set beam", "field=value"]),
        (["--set", "temperature=nan"], ["decode.temperature", "finite"]),
        (["--num-results", "5", "--beam", "3"], ["5 results need a beam of at least 5"]),
        (["--device", "cuda:7"], ['device "cuda:7" is not available']),
        (["--device", "gpu"], ['device "gpu" is unknown']),
        (["--beam", "0"], ["--beam"]),
        (["--threads", "20000"], ["--threads", "1024"]),  # the system ran out of memory and said nothing
        (["--beam", "x"], ["--beam", "regard translate --help"]),
        (["--split", "sometimes"], ["--split", "auto"]),
        (["--bem", "3"], ["--bem", "--beam"]),
        (["missing.txt"], ["missing.txt: no such file"]),
        (["/tmp/where"], ["/tmp/where: no such file"]),
        (["/"], ["/ is a folder"]),
        (["-o", "/"], ["/ is a folder"]),
    ],
)
def test_translate_refuses(
    refused: Refused, tiny_model: Path, arguments: list[str], words: list[str]
) -> None:
    message = refused("translate", "-m", tiny_model, *arguments, stdin="ba")
    assert all(word in message for word in words), message


def test_bad_bytes_on_stdin_name_the_line(refused: Refused, tiny_model: Path) -> None:
    message = refused("translate", "-m", tiny_model, stdin=b"good\nbad \xff\n")
    assert message == "stdin, line 2: byte 5 is not UTF-8"


# folders that are no models


def spoil(name: str, content: bytes | None) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / name
        path.unlink() if content is None else path.write_bytes(content)

    return act


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def swap_tokenizer(folder: Path) -> None:
    from regard.inputs.text import train_tokenizer

    train_tokenizer(["other words of another model"], "word", 300).save(folder / "tokenizer.json")


def widen(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"d_model": 32', '"d_model": 64'))


@pytest.mark.parametrize(
    ("break_it", "file", "word"),
    [
        (spoil("config.json", None), "", "is not a model folder"),
        (spoil("config.json", b"{"), "config.json", "JSON"),
        (spoil("config.json", b"[]"), "config.json", "not a JSON object"),
        (spoil("config.json", b'{"model_type": "prophetnet"}'), "config.json", '"prophetnet"'),
        (spoil("config.json", b'{"model_type": "bert"}'), "config.json", "vocab_size"),
        (widen, "", "one of the two is wrong"),
        (spoil("model.safetensors", None), "", "--resume"),
        (spoil("model.safetensors", b""), "model.safetensors", "not a readable safetensors file"),
        (spoil("model.safetensors", b"\xff" * 64), "model.safetensors", "not a readable safetensors file"),
        (cut_weights, "model.safetensors", "not a readable safetensors file"),
        (swap_tokenizer, "tokenizer.json", "tokenizer of another model"),
        (spoil("tokenizer.json", b"{}"), "tokenizer.json", "not a tokenizer"),
        (spoil("tokenizer.json", None), "", "no tokenizer"),
        (spoil("run.toml", b"[decode]\nbeam = 0"), "run.toml", "decode.beam"),
    ],
)
def test_a_broken_folder_is_named_with_its_file(
    refused: Refused, copy: Path, break_it: Callable[[Path], None], file: str, word: str
) -> None:
    break_it(copy)
    if file == "run.toml":
        with (copy / "run.toml").open("a") as more:
            more.write('\n[data]\ntrain = "phrasebook"\n')
    message = refused("translate", "-m", copy, "ba")
    assert message.startswith(str(copy / file) if file else str(copy))
    assert word in message


def test_what_is_no_folder(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refused("translate", "-m", tmp_path / "none", "ba").endswith("no such folder")
    assert refused("translate", "-m", tmp_path / "file", "ba").endswith("is not a folder")
    assert "no config.json" in refused("translate", "-m", tmp_path, "ba")
    assert "--model" in refused("evaluate")


# score and evaluate


def test_score_by_every_way_in(regard: Command, tiny_model: Path, tmp_path: Path) -> None:
    en, de, table = tmp_path / "en", tmp_path / "de", tmp_path / "pairs.tsv"
    en.write_text("ba de\nba de\n")
    de.write_text("Ed Ab\nAb Ed\n")
    table.write_text("ba de\tEd Ab\tthird column\nba de\tAb Ed\n")
    jsonl = tmp_path / "pairs.jsonl"
    jsonl.write_text('{"toy": "ba de", "TOY": "Ed Ab"}\n{"toy": "ba de", "TOY": "Ab Ed"}\n')
    result = regard("score", "-m", tiny_model, en, de)
    right, wrong = map(float, result.lines)
    assert 0 >= right > wrong + 1
    assert "6 tokens" in result.err
    for other in ((table,), (jsonl,)):
        assert regard("score", "-m", tiny_model, *other) == result
    assert regard("score", "-m", tiny_model, "-", stdin=table.read_bytes()) == result
    rows = [json.loads(line) for line in regard("score", "-m", tiny_model, "--json", en, de).lines]
    assert [len(row["tokens"]) for row in rows] == [3, 3]
    assert math.isclose(sum(rows[0]["token_log_probabilities"]), rows[0]["log_probability"], abs_tol=1e-6)


def test_score_refuses(refused: Refused, tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "en").write_text("a\nb\n")
    (tmp_path / "de").write_text("a\n")
    message = refused("score", "-m", tiny_model, tmp_path / "en", tmp_path / "de")
    assert f"{tmp_path / 'de'} has 1 lines but {tmp_path / 'en'} has 2" in message
    assert "stdin, line 2: no tab" in refused("score", "-m", tiny_model, "-", stdin="a\tb\nc\n")
    assert "give no file" in refused("score", "-m", tiny_model, "-", tmp_path / "de", stdin="a\tb\n")
    message = refused("score", "-m", tiny_model, tmp_path / "en")
    assert message.startswith(f"{tmp_path / 'en'}: ") and ".tsv" in message
    assert "no such file" in refused("score", "-m", tiny_model, tmp_path / "none.tsv")


def test_evaluate(regard: Command, toy: Toy, tmp_path: Path) -> None:
    row = json.loads(regard("evaluate", "-m", toy.model, "--json").out)
    assert row["sentences"] == 60
    assert row["exact"] >= 0.9
    assert 0 <= row["bleu"] <= 100.001
    assert "tok:13a" in row["bleu_signature"]
    assert row["seconds"] > 0
    out = tmp_path / "out"
    data = tmp_path / "test.tsv"
    data.write_text("ba\tAb\nde\tWRONG\n")
    shown = regard("evaluate", "-m", toy.model, "--data", data, "-o", out)
    assert "50.0 %" in shown.out
    assert re.search(r"^sentences +2 *$", shown.out, flags=re.MULTILINE) and "float32" in shown.out
    assert re.search(r"^BLEU .*tok:13a.*version:\S+ *$", shown.out, flags=re.MULTILINE)  # not wrapped
    assert out.read_text() == "Ab\nEd\n"


def test_evaluate_refuses(refused: Refused, copy: Path, toy: Toy) -> None:
    message = refused("evaluate", "-m", copy, "--data", "a", "--data", "b", "--data", "c")
    assert "one corpus, or a source file and a target file" in message
    assert "no such file" in refused("evaluate", "-m", copy, "--data", "none.tsv")
    assert "English and German" in refused("evaluate", "-m", copy, "--data", "phrasebook")
    (copy / "run.toml").unlink()
    assert refused("evaluate", "-m", copy) == f"{copy} names no test set; give one"


# average, tokenizer, config, doctor


def test_average(regard: Command, refused: Refused, toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "average"
    result = regard("average", toy.model, "--last", 2, "--output", out)
    assert result.code == 0
    assert "step-200, step-400" in result.err
    assert regard("translate", "-m", out, "ba").code == 0
    assert "already exists" in refused("average", toy.model, "--last", 2, "--output", out)
    assert "has 2 checkpoints, not 3; lower --last" in refused(
        "average", toy.model, "--output", tmp_path / "new"
    )
    assert "is not a checkpoint" in refused("average", toy.corpora, "--output", tmp_path / "new")
    assert "is not a checkpoint" in refused("average", tmp_path / "none", "--output", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_average_of_one_checkpoint_is_that_checkpoint(regard: Command, toy: Toy, tmp_path: Path) -> None:
    checkpoint = toy.model / "checkpoints" / "step-400"
    assert regard("average", checkpoint, "--output", tmp_path / "one").code == 0
    sentences = "\n".join(toy_sentences(20, 5))
    twice = [
        regard("average", checkpoint, checkpoint, "--output", tmp_path / "two").code,
        regard("translate", "-m", tmp_path / "two", stdin=sentences).out,
    ]
    assert twice == [0, regard("translate", "-m", tmp_path / "one", stdin=sentences).out]


def test_tokenizer_train_encode_decode(regard: Command, refused: Refused, tmp_path: Path) -> None:
    text, out = tmp_path / "text", tmp_path / "[b]tok :smile:.json"
    text.write_text("the small house\nthe house is small\n" * 20)
    result = regard("tokenizer", "train", text, "-o", out, "--kind", "word", "--vocabulary", 400)
    assert result.code == 0
    assert str(out) in result.err  # a path is not markup
    assert regard("tokenizer", "encode", "-m", out, "the house").lines == ["▁the ▁house"]
    ids = regard("tokenizer", "encode", "-m", out, "--ids", stdin="the house\n\n")
    assert len(ids.lines) == 2
    assert regard("tokenizer", "decode", "-m", out, stdin=ids.out).lines == ["the house", ""]
    assert "give token ids" in refused("tokenizer", "decode", "-m", out, stdin="one two\n")
    assert 'did you mean "word"?' in refused("tokenizer", "train", text, "-o", out, "--kind", "wrd")
    assert "no such file" in refused("tokenizer", "train", tmp_path / "none", "-o", out)
    assert "too small" in refused("tokenizer", "train", text, "-o", out, "--vocabulary", 7)
    assert "tokenizer" in refused("tokenizer", "encode", "-m", tmp_path, "a")
    assert "no such file" in refused("tokenizer", "encode", "-m", tmp_path / "none.json", "a")
    assert "no such folder" in refused("tokenizer", "encode", "-m", "nobody", "a")
    assert regard("tokenizer", "encode", "-m", "phrasebook-transformer", "the house").code == 0


def test_config_init_show_check(regard: Command, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "new" / "my run.toml"
    result = regard("config", "init", path)
    assert result.code == 0
    assert f"regard train '{path}'" in result.err
    assert "already exists" in refused("config", "init", path)
    assert regard("config", "check", path).code == 0
    shown = regard("config", "show", path, "--set", "model.layers=3")
    (tmp_path / "shown.toml").write_text(shown.out)
    assert "layers = 3" in shown.out
    assert regard("config", "show", tmp_path / "shown.toml").out == shown.out
    assert 'did you mean "layers"?' in refused("config", "show", path, "--set", "model.layer=3")
    missing = refused("config", "check", path, "--set", "data.test=none.tsv")
    assert missing == f"{Path('none.tsv').resolve()}: no such file"  # where the user stands
    assert "config init" in refused("config", "show", tmp_path / "none.toml")


def test_doctor(regard: Command) -> None:
    result = regard("doctor")
    assert result.code == 0
    for word in ("regard", "torch", "cores", "disk here", "would use"):
        assert re.search(rf"^{word} +\S", result.out, flags=re.MULTILINE)


# the program as a whole


def test_help_and_version_come_without_torch() -> None:
    watch = "import sys; from regard.cli import main\n"
    watch += "try: main(['--help'])\nfinally: print({'torch', 'numpy', 'asyncio'} & {*sys.modules})"
    result = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stdout.endswith("set()\n"), "each takes longer than all the rest"
    for command in ("train", "translate", "score", "evaluate", "average", "tokenizer", "config", "doctor"):
        assert command in result.stdout


def test_config_knows_every_task() -> None:
    from regard.cli import config
    from regard.config import schema

    assert get_args(config.TaskName) == get_args(schema.TaskName)


def test_help_of_every_command(regard: Command) -> None:
    for command in ("train", "translate", "score", "evaluate", "average", "doctor", "config", "tokenizer"):
        result = regard(command, "--help")
        assert (result.code, result.err) == (0, "")
        assert f"Usage: regard {command}" in result.out
    assert regard("--version").out.startswith("regard ")


def test_no_arguments_show_the_help(regard: Command) -> None:
    result = regard()
    assert result.code == 2
    assert "Commands" in result.out
    assert result.err == ""


def test_an_unknown_command_is_answered_with_the_near_one(refused: Refused) -> None:
    message = refused("trnslate")
    assert "translate" in message
    assert "--help" in message


def test_debug_gives_the_traceback(tmp_path: Path) -> None:
    result = program("config", "show", tmp_path / "none.toml", "--debug")
    assert result.returncode == 1
    assert b"Traceback" in result.stderr
    assert b"UsageError" in result.stderr


def test_an_error_of_our_own_is_still_one_sentence(
    refused: Refused, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("regard.tasks.load_as", fail)
    message = refused("translate", "-m", tiny_model, "ba", code=1)
    assert message.startswith("RuntimeError: boom")
    assert "--debug" in message


def test_interrupted_and_out_of_memory(
    regard: Command, refused: Refused, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[BaseException] = [KeyboardInterrupt(), MemoryError()]

    def fail(*_: object, **__: object) -> None:
        raise raised.pop(0)

    monkeypatch.setattr("regard.tasks.load_as", fail)
    assert refused("translate", "-m", tiny_model, "ba", code=130) == "interrupted"
    assert "memory" in refused("translate", "-m", tiny_model, "ba", code=1)


def test_an_interrupt_that_a_library_made_an_error_of_is_one(
    regard: Command, refused: Refused, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a training drew its curves was told as an invalid matrix, by an exit code of 1."""

    def swallow(*_: object, **__: object) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ValueError("Invalid affine transformation matrix")

    monkeypatch.setattr("regard.tasks.load_as", swallow)
    assert refused("translate", "-m", tiny_model, "ba", code=130) == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("command", [["translate"], ["explain", "-"]])
def test_a_reader_that_leaves_is_no_error(tiny_model: Path, command: list[str]) -> None:
    """As `regard translate | head -1`: quiet, and no traceback."""
    command = [sys.executable, "-m", "regard", *command, "-m", str(tiny_model), "--threads", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as running:  # type: ignore[call-overload]
        running.stdout.close()
        running.stdin.write(b"ba\n" * (1 if "explain" in command else 50))
        running.stdin.close()
        assert running.stderr.read() == b""
        assert running.wait(60) == 0


def test_a_full_disk_behind_stdout() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "regard", "--version"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 1
    assert result.stderr == b"error: cannot write: No space left on device\n"


def test_paths_in_messages_are_not_markup(refused: Refused, tmp_path: Path) -> None:
    odd = tmp_path / "[bold]x[/] :smile:"
    assert refused("translate", "-m", odd, "ba") == f"{odd}: no such folder"


def test_config_survives_a_round_trip_through_the_shell(regard: Command, toy: Toy, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(to_toml(toy_config(tmp_path)), encoding="utf-8")
    assert regard("config", "show", path).out.strip() == path.read_text().strip()
