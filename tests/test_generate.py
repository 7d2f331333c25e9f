"""Language models in use: the text they go on with, its pieces as they come, and how probable texts are."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from conftest import Command, Refused
from regard.batch import Batch, tokens
from regard.config import Config, Decode, resolve
from regard.data.objectives import CausalLM
from regard.errors import UsageError
from regard.generation.engine import Engine
from regard.inputs.text import Tokenizer, train_tokenizer
from regard.inputs.text.detokenizer import added_text, detokenize_stream
from regard.models.families import Model
from regard.sample import Example, Sample
from regard.storage import open_folder
from regard.tasks.generator import Generator, windows
from regard.training.evaluation.language import CausalLMEvaluation
from small_models import opened, small_config, small_model, teach, written

pytestmark = pytest.mark.usefixtures("same_threads")
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
WINDOW = 16


def counting(first: int, count: int) -> str:
    return " ".join(NUMBERS[(first + n) % 10] for n in range(count))


def following(text: str, count: int) -> str:
    """How a counted text goes on."""
    return " " + counting(NUMBERS.index(text.split()[-1]) + 1, count)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([counting(0, 20)], "word", 300)


@pytest.fixture(scope="module")
def counter(tokenizer: Tokenizer) -> tuple[Config, Model]:
    """A GPT that has learned to count in circles, from the start of a text and from its middle."""
    config = small_config("generate", "gpt", WINDOW)
    model = small_model(config, tokenizer)
    rows = [tokenizer.encode(counting(first, WINDOW + 1)) for first in range(10)]
    begun = [[tokenizer.start, *row[:WINDOW]] for row in rows]
    samples = [Sample(target=row[:-1], labels=row[1:]) for row in rows + begun]
    teach(model, lambda step: samples, 120, 1e-2)
    return config, model


@pytest.fixture(scope="module")
def generator(counter: tuple[Config, Model], tokenizer: Tokenizer) -> Generator:
    return Generator(opened(*counter, tokenizer))


@pytest.fixture(scope="module")
def folder(
    counter: tuple[Config, Model], tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return written(tmp_path_factory.mktemp("models") / "counter", *counter, tokenizer)


def random_model(
    family: str, tokenizer: Tokenizer, max_length: int = WINDOW, **fields: object
) -> tuple[Config, Model]:
    """Random weights: every byte is about as likely as any other, so the text is mostly broken UTF-8."""
    config = small_config("generate", family, max_length, layers=2, **fields)
    model = small_model(config, tokenizer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return config, model


def babbler(family: str, tokenizer: Tokenizer, max_length: int = WINDOW) -> Generator:
    return Generator(opened(*random_model(family, tokenizer, max_length), tokenizer))


# what follows a prompt


TYPES: dict[str, dict[str, object]] = {  # model_type -> the fields that make it
    "gpt2": {"family": "gpt"},
    "llama": {},
    "mistral": {"window": 5},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
    "gemma": {"embedding_scale": True, "activation": "gelu_tanh"},
}


@pytest.mark.parametrize("name", TYPES)
def test_greedy_and_beam_search_are_those_of_transformers(
    name: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config, weights = random_model(tokenizer=tokenizer, max_length=64, **{"family": "llama", **TYPES[name]})
    ours = Generator(opened(config, weights, tokenizer))
    model = AutoModelForCausalLM.from_pretrained(written(tmp_path, config, weights, tokenizer)).eval()
    for prompt, beam in [("one two", 1), ("", 1), ("six", 3), ("ten one two three", 4)]:
        ids = torch.tensor([[tokenizer.start, *tokenizer.encode(prompt)]])
        expected = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            num_beams=beam,
            max_new_tokens=20,
            max_length=None,
            suppress_tokens=sorted(tokenizer.suppressed),
        )[0, ids.shape[1] :].tolist()
        found = ours.write([prompt], ours.options({"beam": beam, "max_length": 20}))[0][0]
        assert [*found.token_ids, *([tokenizer.end] if found.finished else [])] == expected
    assert model.config.model_type == name


def test_a_model_goes_on_counting(generator: Generator) -> None:
    assert generator.generate("four five", beam=1, max_length=5) == " six seven eight nine ten"
    assert generator.generate(["one", "nine ten"], beam=1, max_length=2) == [" two three", " one two"]
    begun = generator.generate("", beam=1, max_length=3)
    assert begun == begun.strip()
    assert generator.generate(begun, beam=1, max_length=2) == following(begun, 2)


def test_it_goes_on_beyond_its_window(generator: Generator) -> None:
    assert generator.model.longest_target == WINDOW
    assert generator.generate("three", beam=1, max_length=100) == following("three", 100)
    assert generator.generate("three", beam=3, max_length=40) == following("three", 40)
    full = counting(4, WINDOW - 1)  # with its start as long as the window
    assert generator.generate(full, beam=1, max_length=20) == following(full, 20)


@pytest.mark.parametrize("prompt", ["", "one two three", counting(0, WINDOW - 1)])
def test_a_full_window_is_left_for_its_last_half(prompt: str, tokenizer: Tokenizer) -> None:
    """Word by word, each from one reading of all that the window holds."""
    ours = babbler("gpt", tokenizer)
    never = [*tokenizer.suppressed, tokenizer.end]
    read, said = [tokenizer.start, *tokenizer.encode(prompt)], []
    for _ in range(50):
        if len(read) > WINDOW:
            read = read[-WINDOW // 2 :]
        with torch.no_grad():
            logits = ours.model(Batch(target=tokens([read])))[0, -1]
        logits[never] = -torch.inf
        said.append(int(logits.argmax()))
        read.append(said[-1])
    found = ours.write([prompt], ours.options({"beam": 1, "min_length": 50, "max_length": 50}))[0][0]
    assert list(found.token_ids) == said


def test_turned_positions_have_no_window(tokenizer: Tokenizer) -> None:
    ours = babbler("llama", tokenizer)
    assert ours.model.longest_target is None
    prompt = counting(0, 3 * WINDOW)
    found = ours.write([prompt], ours.options({"min_length": 40, "max_length": 40}))[0][0]
    assert len(found.tokens) == 40


def test_no_run_comes_twice_beyond_the_window_either(generator: Generator) -> None:
    pieces = generator.write(["one"], generator.options({"beam": 1, "no_repeat_ngram": 2, "max_length": 60}))
    said = pieces[0][0].token_ids
    assert len(set(pairwise(said))) == len(said) - 1


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"beam": 3}, {"temperature": 2.0, "top_p": 0.9}])
@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_a_text_does_not_depend_on_its_neighbours(
    family: str, options: dict[str, object], tokenizer: Tokenizer
) -> None:
    ours = babbler(family, tokenizer, 24)
    prompts = [counting(0, 9), "", "two", counting(3, 9), "seven eight nine", counting(5, 20)]
    for length in (4, 26):
        chosen = {**options, "max_length": length}
        assert ours.generate(prompts, **chosen) == [ours.generate(prompt, **chosen) for prompt in prompts]


def test_the_same_seed_the_same_text(tokenizer: Tokenizer) -> None:
    ours = babbler("gpt", tokenizer)
    first = ours.generate("one", seed=3, max_length=9)
    assert ours.generate("one", seed=3, max_length=9) == first
    assert ours.generate("one", seed=4, max_length=9) != first


def test_drawn_unless_a_beam_is_named(
    generator: Generator, counter: tuple[Config, Model], tokenizer: Tokenizer
) -> None:
    usual = generator.options({})
    assert (usual.sample, usual.beam, usual.temperature, usual.max_length) == (True, 1, 0.8, 200)
    assert generator.options({"beam": 4}).sample is False
    assert generator.options({"beam": 4, "sample": True}).sample is True
    foreign = Generator(
        opened(*counter, tokenizer, Decode(repetition_penalty=1.5))
    )  # a folder without run.toml
    assert foreign.decode == usual.model_copy(update={"repetition_penalty": 1.5})
    tree = {"task": {"name": "generate"}, "data": {"train": "x.txt"}, "decode": {"beam": 2}}
    searching = Generator(opened(*counter, tokenizer, resolve(tree).decode))
    assert (searching.decode.sample, searching.decode.beam) == (False, 2)


def test_a_prompt_longer_than_the_window(generator: Generator) -> None:
    prompt = counting(0, 30)
    with pytest.raises(UsageError, match=r"the prompt has 31 tokens.* reads 16 at once"):
        generator.generate(prompt)
    with pytest.raises(UsageError, match="31 tokens"):
        generator.stream(prompt)  # at once, not when the first piece is asked for
    told: list[str] = []
    found = generator.write(
        [prompt], generator.options({"beam": 1, "max_length": 4}), "truncate", told.append
    )
    assert found[0][0].text == following(prompt, 4)
    assert told == ["the prompt has 31 tokens, but the model reads 16 at once: only its end is read"]


def test_another_kind_of_model_is_refused(tokenizer: Tokenizer) -> None:
    config = small_config("fill", "bert")
    with pytest.raises(UsageError, match="a bert model cannot continue a text"):
        Generator(opened(config, small_model(config, tokenizer), tokenizer))


# piece by piece


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"beam": 3}, {"sample": True, "beam": 3}])
@pytest.mark.parametrize("prompt", ["", "one two", counting(0, WINDOW - 1)])
def test_a_stream_is_the_text(prompt: str, options: dict[str, object], tokenizer: Tokenizer) -> None:
    ours = babbler("gpt", tokenizer)
    for seed in range(3):
        chosen = {**options, "seed": seed, "max_length": 40}
        assert "".join(ours.stream(prompt, **chosen)) == ours.generate(prompt, **chosen)


def test_a_stream_comes_piece_by_piece(generator: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    step = Engine.step
    monkeypatch.setattr(Engine, "step", lambda *given: (steps.append(1), step(*given))[1])
    for options in ({"beam": 1}, {"temperature": 0.01}, {"temperature": 0}):
        steps.clear()
        stream = generator.stream("one", **options, max_length=50)
        assert [next(stream), next(stream)] == [" two", " three"]
        assert len(steps) == 2


@given(st.text(max_size=20), st.text(max_size=20), st.sampled_from(["word", "character"]))
def test_a_character_waits_until_it_is_whole(prompt: str, text: str, kind: str) -> None:
    """Each piece of text is text by itself, though most pieces of the tokenizer are single bytes here."""
    tokenizer = BYTES[kind]
    whole = [tokenizer.start, *tokenizer.encode(prompt + text)]
    begun = [tokenizer.start, *tokenizer.encode(prompt)]
    if whole[: len(begun)] != begun:
        return  # a word was begun in the prompt
    parts = list(detokenize_stream(tokenizer, begun, whole[len(begun) :]))
    assert "".join(parts) == text
    assert all(parts)


def test_each_character_comes_as_soon_as_it_is_whole() -> None:
    tokenizer = BYTES["word"]
    pieces = tokenizer.encode("a\u00f1 \u20ac\U0001f600")
    assert len(pieces) == 12  # bytes, and the space in front
    assert list(detokenize_stream(tokenizer, [tokenizer.start], pieces)) == [
        "a",
        "\u00f1",
        " ",
        "\u20ac",
        "\U0001f600",
    ]
    assert list(detokenize_stream(tokenizer, [tokenizer.start], pieces[:-1])) == [
        "a",
        "\u00f1",
        " ",
        "\u20ac",
        "\ufffd",
    ]


@given(st.lists(st.integers(4, 259), max_size=30), st.lists(st.integers(4, 259), max_size=30))
def test_broken_bytes_are_spelt_as_they_are_decoded(prompt: list[int], pieces: list[int]) -> None:
    tokenizer = BYTES["word"]
    prompt = [tokenizer.start, *tokenizer.encode(tokenizer.decode(prompt))]
    assert "".join(detokenize_stream(tokenizer, prompt, pieces)) == added_text(
        tokenizer, [*prompt, *pieces], len(prompt)
    )


BYTES = {kind: train_tokenizer(["a"], kind, 300) for kind in ("word", "character")}


# how probable texts are


def test_windows_ask_for_each_piece_once() -> None:
    ids = list(range(100, 130))
    for window in (1, 2, 7, 16, 29, 50):
        for stride in range(1, window + 1):
            found = windows(ids, window, stride)
            assert [label for sample in found for label in sample.labels if label >= 0] == ids[1:]
            assert max(len(sample.target) for sample in found) == min(window, 29)
            for sample in found[1:]:
                before = [label < 0 for label in sample.labels].index(False)
                assert before >= window - stride
    assert windows([5], 4, 2) == []


def test_log_probabilities_are_those_of_the_windows(tokenizer: Tokenizer) -> None:
    ours = babbler("gpt", tokenizer)
    text = counting(2, 40)
    ids = [tokenizer.start, *tokenizer.encode(text), tokenizer.end]
    for stride in (None, 1, 5, WINDOW):
        step = stride or WINDOW // 2
        expected = []
        for place in range(1, len(ids)):
            late = max(0, -(-(place - WINDOW) // step)) * step  # where the window begins that reads it first
            with torch.no_grad():
                logits = ours.model(Batch(target=tokens([ids[late:place]])))[0, -1]
            expected.append(float(logits.log_softmax(dim=0)[ids[place]]))
        (found,) = ours.score([text], stride)
        assert found.token_log_probabilities == pytest.approx(expected, abs=1e-4)


def test_a_short_text_is_scored_as_a_whole(tokenizer: Tokenizer) -> None:
    ours = babbler("gpt", tokenizer)
    texts = ["", "one two", counting(0, WINDOW - 1)]
    whole = ours.score(texts)
    assert [found.text for found in whole] == texts
    assert whole == ours.score(texts, stride=1)
    assert whole == [ours.score([text])[0] for text in texts]
    without_end = ours.score(["one two"], end=False)[0]
    assert without_end.token_log_probabilities == whole[1].token_log_probabilities[:-1]
    numbers = whole[1].numbers
    assert numbers["log_probability"] == pytest.approx(sum(whole[1].token_log_probabilities))
    assert (numbers["tokens"], numbers["bytes"]) == (3, 7)
    assert numbers["perplexity"] == pytest.approx(math.exp(-sum(whole[1].token_log_probabilities) / 3))
    assert numbers["bits_per_byte"] == pytest.approx(-sum(whole[1].token_log_probabilities) / math.log(2) / 7)
    with pytest.raises(UsageError, match="a stride of 17: it lies between 1 and the window of 16 tokens"):
        ours.score(["one"], stride=17)


def test_scores_are_those_of_a_run(tokenizer: Tokenizer) -> None:
    """What training tells of held-out text: windows that do not overlap."""
    ours = babbler("gpt", tokenizer)
    text = counting(0, 50)
    objective = CausalLM(tokenizer, WINDOW)
    told = CausalLMEvaluation(objective, [Example(text)]).scores(ours.model)
    numbers = ours.score([text], stride=WINDOW)[0].numbers
    assert numbers["perplexity"] == pytest.approx(told["perplexity"])
    assert numbers["bits_per_byte"] == pytest.approx(told["bits_per_byte"])


# the commands


def test_the_prompt_and_what_follows(regard: Command, folder: Path, tmp_path: Path) -> None:
    greedy = ("generate", "-m", folder, "--beam", 1, "--max-length", 3)
    expected = "four five six seven eight\n"
    assert regard(*greedy, "four five").out == expected
    assert regard(*greedy, stdin="four five\n").out == expected
    assert regard(*greedy, "-", stdin="four five").out == expected
    prompt = tmp_path / "prompt"
    prompt.write_text("four five\n", encoding="utf-8")
    assert regard(*greedy, prompt).out == expected
    assert regard(*greedy, "four five", "--only-new").out == " six seven eight\n"
    assert regard(*greedy, "one", "two").out == "one two three four\n---\ntwo three four five\n"
    assert (
        regard(*greedy, "--lines", stdin="one\ntwo\n").out == "one two three four\n---\ntwo three four five\n"
    )
    assert regard(*greedy, stdin="one\ntwo\n").out.startswith("one\ntwo ")  # all of it is one prompt
    assert regard(*greedy, "").code == 0


def test_objects_for_programs(regard: Command, folder: Path, generator: Generator) -> None:
    rows = [json.loads(line) for line in regard("generate", "-m", folder, "one", "--json", "-n", 3).lines]
    found = generator.write(["one"], replace_beam(generator, 3))[0]
    (row,) = rows
    assert (row["line"], row["prompt"], row["text"], row["precision"]) == (1, "one", found[0].text, "float32")
    assert [(each["text"], each["finished"], len(each["tokens"])) for each in row["candidates"]] == [
        (each.text, each.finished, len(each.token_ids)) for each in found
    ]
    assert row["candidates"][0]["log_probability"] == pytest.approx(found[0].log_probability)
    printed = regard("generate", "-m", folder, "one", "--only-new", "-n", 3).out
    assert sorted(printed.removesuffix("\n").split("\n---\n")) == sorted(each.text for each in found)


def replace_beam(generator: Generator, beam: int) -> Decode:
    return generator.options({}).model_copy(update={"beam": beam})


def test_options_of_generate(regard: Command, refused: Refused, folder: Path) -> None:
    base = ("generate", "-m", folder, "one")
    one = regard(*base, "--temperature", 3, "--seed", 1, "--max-length", 20).out
    assert one == regard(*base, "--set", "temperature=3.0", "--set", "seed=1", "--set", "max_length=20").out
    assert one != regard(*base, "--temperature", 3, "--seed", 2, "--max-length", 20).out
    assert regard(*base, "--top-k", 1, "--max-length", 3).out == "one two three four\n"
    assert regard(*base, "--top-p", 0.01, "--max-length", 3).out == "one two three four\n"
    assert len(json.loads(regard(*base, "--beam", 3, "-n", 3, "--json").out)["candidates"]) == 3
    assert regard(*base, "--beam", 2, "-n", 2, "--max-length", 3).lines[:2] == [
        "one two three four",
        "---",
    ]
    assert "need a beam of at least 3, not 2" in refused(*base, "--beam", 2, "-n", 3)
    assert "--temperature" in refused(*base, "--temperature", -1)
    long = counting(0, 30)
    assert "the prompt has 31 tokens" in refused("generate", "-m", folder, long, "--on-too-long", "error")
    cut = regard("generate", "-m", folder, long, "--on-too-long", "truncate", "--beam", 1, "--max-length", 2)
    assert cut.out == f"{long}{following(long, 2)}\n"
    assert "only its end is read" in cut.err
    assert 'use "regard generate"' in refused("translate", "-m", folder, "one")


@pytest.mark.skipif(sys.platform == "win32", reason="signals and closed pipes of POSIX")
@pytest.mark.parametrize("how", ["closed", "interrupted"])
def test_an_endless_text_ends_calmly(how: str, folder: Path) -> None:
    command = [sys.executable, "-m", "regard", "generate", "-m", folder, "one", "--set", "min_length=1000000"]
    process = subprocess.Popen(
        [*map(str, command), "--max-length", "1000000", "--beam", "1", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(13) == b"one two three"  # as it comes: the text never ends
    process.send_signal(signal.SIGINT) if how == "interrupted" else process.stdout.close()
    if how == "interrupted":  # both are read: what does not fit into a pipe is written before it leaves
        errors = process.communicate(timeout=60)[1].decode()
    else:
        errors = process.stderr.read().decode()
        process.stderr.close()
    assert process.wait(60) == (130 if how == "interrupted" else 0)
    assert errors == ("error: interrupted\n" if how == "interrupted" else "")


def test_scores_of_lines_and_files(regard: Command, refused: Refused, folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text(f"{counting(0, 3)}\n{counting(4, 40)}\n", encoding="utf-8")
    generator = Generator(open_folder(folder))
    lines = generator.score([counting(0, 3), counting(4, 40)])
    found = regard("score", "-m", folder, text)
    assert found.lines == [f"{each.numbers['log_probability']:.4f}" for each in lines]
    assert "45 tokens, " in found.err
    rows = [
        json.loads(line)
        for line in regard("score", "-m", folder, "-", "--json", stdin=text.read_bytes()).lines
    ]
    assert [row["perplexity"] for row in rows] == pytest.approx(
        [each.numbers["perplexity"] for each in lines]
    )
    assert rows[1]["token_log_probabilities"] == pytest.approx(lines[1].token_log_probabilities)
    whole = json.loads(
        regard("score", "-m", folder, text, "--document", "--total", "--json", "--stride", 4).out
    )
    assert whole.pop("precision") == "float32"
    content = text.read_text(encoding="utf-8").removesuffix("\n")
    assert whole == pytest.approx(generator.score([content], stride=4)[0].numbers)
    together = regard("score", "-m", folder, text, text, "--total", "--no-end")
    assert together.out.startswith("86 tokens, ")
    assert together.err == ""
    assert "a stride of 99" in refused("score", "-m", folder, text, "--stride", 99)
    assert "no such file" in refused("score", "-m", folder, tmp_path / "nothing")


def test_translations_are_scored_in_pairs(
    regard: Command, refused: Refused, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config = small_config("translate", "transformer")
    model = written(tmp_path / "model", config, small_model(config, tokenizer), tokenizer)
    for name, line in (("source", "one two"), ("target", "three")):
        (tmp_path / name).write_text(f"{line}\n", encoding="utf-8")
    files = tmp_path / "source", tmp_path / "target"
    assert len(regard("score", "-m", model, *files).lines) == 1
    assert "--document is for language models" in refused("score", "-m", model, *files, "--document")
    assert "from two files" in refused("score", "-m", model, *files, files[0])
