"""Vectors of texts: those of transformers with the formulas of pooling, whatever stands around."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoTokenizer, BertModel

import regard as package
from conftest import Command, Refused
from hf_models import LONGEST, WIDTH, add_sentence_transformers, tiny_bert
from regard.errors import UsageError
from regard.storage.folder import open_encoder
from regard.tasks import Embedder, load_as
from regard.tasks.embedder import similarity
from small_models import small_config, small_model, written

transformers.utils.logging.disable_progress_bar()
TEXTS = ["The cat sat on a mat.", "dogs", "", "an unhappy dog, the old cats sat", "sitting"]
REAL = Path(os.environ.get("REGARD_MINILM", "no such folder"))

# how a settings file asks for a pooling, and the same by its formula, over the states [S,D] of one text
FORMULAS = {
    "pooling_mode_cls_token": lambda x: x[0],
    "pooling_mode_max_tokens": lambda x: x.max(dim=0).values,
    "pooling_mode_mean_tokens": lambda x: x.sum(dim=0) / len(x),
    "pooling_mode_mean_sqrt_len_tokens": lambda x: x.sum(dim=0) / len(x) ** 0.5,
    "pooling_mode_weightedmean_tokens": lambda x: (
        sum((s + 1) * row for s, row in enumerate(x)) / (len(x) * (len(x) + 1) / 2)
    ),
    "pooling_mode_lasttoken": lambda x: x[-1],
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def own(bare: Path, tmp_path: Path) -> Path:
    """A copy of it, to write files into."""
    for file in bare.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def states(path: Path, texts: list[str], longest: int = LONGEST) -> list[torch.Tensor]:
    """What transformers computes, text by text: [S,D] of each."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = BertModel.from_pretrained(path, add_pooling_layer=False).eval()
    with torch.no_grad():
        rows = [tokenizer(text, return_tensors="pt", truncation=True, max_length=longest) for text in texts]
        return [model(**row).last_hidden_state[0] for row in rows]


def opened(path: Path) -> Embedder:
    return Embedder(open_encoder(path))


@pytest.mark.parametrize("flags", [*([flag] for flag in FORMULAS), list(FORMULAS)[::-1]], ids="+".join)
@pytest.mark.parametrize("normalised", [False, True])
def test_pooling_is_that_of_the_formula(own: Path, flags: list[str], normalised: bool) -> None:
    settings = {flag: flag in flags for flag in FORMULAS}
    add_sentence_transformers(
        own, {"word_embedding_dimension": WIDTH, **settings}, *(["Normalize"] if normalised else [])
    )
    found = opened(own)
    assert found.pooling.configured and found.width == WIDTH * len(flags)
    expected = [
        torch.cat([form(x) for flag, form in FORMULAS.items() if flag in flags]) for x in states(own, TEXTS)
    ]
    if normalised:
        expected = [vector / vector.norm() for vector in expected]
    torch.testing.assert_close(
        torch.from_numpy(found.vectors(TEXTS)), torch.stack(expected), atol=1e-5, rtol=0
    )


def test_a_pooling_by_its_name(own: Path) -> None:
    add_sentence_transformers(own, {"embedding_dimension": WIDTH, "pooling_mode": "cls"})
    expected = torch.stack([x[0] for x in states(own, TEXTS)])
    torch.testing.assert_close(torch.from_numpy(opened(own).vectors(TEXTS)), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("bias", [True, False])
def test_a_dense_step(own: Path, bias: bool) -> None:
    add_sentence_transformers(own, {"pooling_mode_mean_tokens": True}, "Dense", "Normalize")
    torch.manual_seed(5)
    layer = torch.nn.Linear(WIDTH, 6, bias=bias)
    (own / "2_Dense").mkdir()
    kind = "torch.nn.modules.activation.Tanh"
    settings = {"in_features": WIDTH, "out_features": 6, "bias": bias, "activation_function": kind}
    (own / "2_Dense/config.json").write_text(json.dumps(settings))
    tensors = {f"linear.{name}": tensor.detach() for name, tensor in layer.named_parameters()}
    save_file(tensors, own / "2_Dense/model.safetensors")
    means = torch.stack([x.mean(dim=0) for x in states(own, TEXTS)])
    expected = torch.nn.functional.normalize(torch.tanh(layer(means))).detach()
    found = opened(own)
    assert found.width == 6
    torch.testing.assert_close(torch.from_numpy(found.vectors(TEXTS)), expected, atol=1e-5, rtol=0)
    save_file({**tensors, "other": torch.ones(1)}, own / "2_Dense/model.safetensors")
    with pytest.raises(UsageError, match=r"2_Dense.*must hold linear\.weight of shape"):
        opened(own)
    settings["activation_function"] = "somewhere.Else"
    (own / "2_Dense/config.json").write_text(json.dumps(settings))
    with pytest.raises(UsageError, match="'Else' is not supported"):
        opened(own)


def test_a_dense_step_of_another_width(own: Path) -> None:
    add_sentence_transformers(
        own, {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "Dense"
    )
    (own / "2_Dense").mkdir()
    (own / "2_Dense/config.json").write_text(json.dumps({"in_features": WIDTH, "out_features": 2}))
    with pytest.raises(UsageError, match="the module Dense has no model"):
        opened(own)
    save_file({"linear.weight": torch.ones(2, WIDTH)}, own / "2_Dense/model.safetensors")
    with pytest.raises(UsageError, match="do not fit together or to the model's width 16"):
        opened(own)


@pytest.mark.parametrize(
    "kind", ["BertForMaskedLM", "BertForSequenceClassification", "BertForQuestionAnswering"]
)
def test_a_head_makes_no_difference(tmp_path: Path, kind: str) -> None:
    tiny_bert(tmp_path, kind)
    expected = torch.stack([x.mean(dim=0) for x in states(tmp_path, TEXTS)])
    found = load_as(Embedder, tmp_path, device="cpu", threads=1)
    assert not found.pooling.configured
    torch.testing.assert_close(torch.from_numpy(found.vectors(TEXTS)), expected, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("same_threads")
def test_a_body_opens_as_what_it_is_for(bare: Path) -> None:
    assert isinstance(package.load(bare, device="cpu", threads=1), package.Embedder)
    with pytest.raises(UsageError, match="give a single folder"):
        load_as(Embedder, [bare, bare], device="cpu", threads=1)


@pytest.mark.usefixtures("same_threads")
def test_a_run_of_our_own(tmp_path: Path) -> None:
    from regard.inputs.text import train_tokenizer

    tokenizer = train_tokenizer(["the cat sat on the mat and the dog ran"] * 3, "bpe", 300, extra=("<mask>",))
    config = small_config("fill", "bert")
    model = small_model(config, tokenizer)
    folder = written(tmp_path / "run", config, model, tokenizer)
    found = load_as(Embedder, folder, device="cpu", threads=1)
    theirs = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    ids = torch.tensor([[tokenizer.start, *tokenizer.encode("the dog"), tokenizer.end]])
    with torch.no_grad():
        expected = theirs(ids).last_hidden_state[0].mean(dim=0)
    vector = found.embed("the dog").vector
    assert vector is not None
    torch.testing.assert_close(torch.from_numpy(vector), expected, atol=1e-5, rtol=0)


def test_neighbours_make_no_difference(bare: Path) -> None:
    found = opened(bare)
    texts = [*TEXTS, "the old cat " * 4, *TEXTS[::-1]]
    alone = np.stack([found.embed(text).vector for text in texts])
    np.testing.assert_allclose(found.vectors(texts), alone, atol=2e-6, rtol=0)


def test_long_texts(own: Path) -> None:
    """max_seq_length counts start and end, as it does there."""
    add_sentence_transformers(
        own, {"pooling_mode_mean_tokens": True}, sentence_bert_config={"max_seq_length": 6}
    )
    found = opened(own)
    texts = ["the cat sat on", "the cat sat on a mat"]
    whole, cut = found.embed(texts)
    assert (whole.truncated, cut.truncated) == (False, True)
    expected = torch.stack([x.mean(dim=0) for x in states(own, texts, longest=6)])
    torch.testing.assert_close(torch.from_numpy(found.vectors(texts)), expected, atol=1e-5, rtol=0)
    assert [each.skipped for each in found.embed(texts, on_too_long="skip")] == [False, True]
    assert np.isnan(found.vectors(texts, on_too_long="skip")).any(axis=1).tolist() == [False, True]
    with pytest.raises(UsageError, match="line 8: the text has 6 tokens and the model reads 4"):
        found.embed(texts, on_too_long="error", first_line=7)


def test_what_stands_before_a_text(own: Path) -> None:
    prompts = {"prompts": {"query": "the old "}, "default_prompt_name": "query"}
    add_sentence_transformers(own, {"pooling_mode_mean_tokens": True}, config_sentence_transformers=prompts)
    expected = states(own, ["the old cat"])[0].mean(dim=0)
    vector = opened(own).embed("cat").vector
    assert vector is not None
    torch.testing.assert_close(torch.from_numpy(vector), expected, atol=1e-5, rtol=0)
    add_sentence_transformers(own, {"pooling_mode_mean_tokens": True, "include_prompt": False})
    with pytest.raises(UsageError, match="include_prompt = false"):
        opened(own)


def test_texts_in_lower_case(own: Path) -> None:
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    (own / "tokenizer_config.json").write_text(json.dumps(settings))
    add_sentence_transformers(own, {"pooling_mode_mean_tokens": True})
    assert not np.array_equal(opened(own).vectors(["the CAT"]), opened(own).vectors(["the cat"]))
    add_sentence_transformers(
        own, {"pooling_mode_mean_tokens": True}, sentence_bert_config={"do_lower_case": True}
    )
    assert np.array_equal(opened(own).vectors(["the CAT"]), opened(own).vectors(["the cat"]))


FAULTS: dict[str, tuple[str, object]] = {
    "cannot be read as a list of modules": ("modules.json", {"a": 1}),
    "the module LSTM in 2_LSTM": ("modules.json", ["Transformer", "Pooling", "LSTM"]),
    "has the path '../x'": ("modules.json", [{"type": "a.Pooling", "path": "../x"}]),
    "1_Pooling/config.json: no such file": ("1_Pooling/config.json", None),
    "no pooling is set": ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}),
    "middle is not supported": ("1_Pooling/config.json", {"pooling_mode": "middle"}),
    "pooling_mode_new is not supported": ("1_Pooling/config.json", {"pooling_mode_new": True}),
    "max_seq_length = -1": ("sentence_bert_config.json", {"max_seq_length": -1}),
    "not among its prompts": ("config_sentence_transformers.json", {"default_prompt_name": "x"}),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_settings_that_cannot_be_used(own: Path, reason: str) -> None:
    add_sentence_transformers(
        own, {"pooling_mode_mean_tokens": True}, "LSTM" if "LSTM" in reason else "Normalize"
    )
    name, content = FAULTS[reason]
    if content is None:
        (own / name).unlink()
    elif "LSTM" not in reason:
        (own / name).write_text(json.dumps(content))
    with pytest.raises(UsageError) as caught:
        opened(own)
    assert reason in str(caught.value)


def test_a_model_that_writes_has_no_vectors(refused: Refused, tiny_gpt: Path) -> None:
    message = refused("embed", "-m", tiny_gpt, "a")
    assert message.endswith("need an encoder (bert, vit, ast), and this model is a gpt")


@pytest.fixture
def tiny_gpt(tmp_path: Path) -> Path:
    from regard.inputs.text import train_tokenizer

    tokenizer = train_tokenizer(["a text"], "bpe", 300)
    config = small_config("generate", "gpt")
    return written(tmp_path / "gpt", config, small_model(config, tokenizer), tokenizer)


# --- the command


def test_lines_of_numbers(regard: Command, own: Path) -> None:
    add_sentence_transformers(own, {"pooling_mode_mean_tokens": True}, "Normalize")
    expected = opened(own).vectors(TEXTS)
    result = regard("embed", "-m", own, stdin="".join(f"{text}\n" for text in TEXTS))
    assert result.code == 0
    found = np.array([json.loads(line) for line in result.lines], dtype=np.float32)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert result.err == "line 3: empty: its vector is that of no words\n"
    row = json.loads(regard("embed", "-m", own, "--json", TEXTS[0]).out)
    assert (row["line"], row["text"], len(row["vector"])) == (1, TEXTS[0], WIDTH)


def test_an_array(regard: Command, refused: Refused, bare: Path, tmp_path: Path) -> None:
    text, target = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    text.write_text("".join(f"{line}\n" for line in TEXTS))
    result = regard("embed", "-m", bare, text, "--npy", target)
    assert (result.code, result.out) == (0, "")
    assert "the folder does not set the pooling of its hidden states: using the mean" in result.err
    assert f"wrote 5 vectors of {WIDTH} numbers to {target}" in result.err
    found = np.load(target)
    assert (found.dtype, found.shape) == (np.float32, (5, WIDTH))
    np.testing.assert_allclose(found, opened(bare).vectors(TEXTS), atol=2e-6)
    assert "--npy writes the vectors and nothing else" in refused(
        "embed", "-m", bare, text, "--npy", target, "--similarity"
    )


def test_similarity(regard: Command, refused: Refused, own: Path) -> None:
    add_sentence_transformers(
        own, {"pooling_mode_mean_tokens": True}, sentence_bert_config={"max_seq_length": 8}
    )
    vectors = opened(own).vectors(TEXTS[:2]).astype(float)
    cosine = vectors[0] @ vectors[1] / np.sqrt((vectors**2).sum(axis=1)).prod()
    result = regard("embed", "-m", own, "--similarity", TEXTS[0], TEXTS[1], TEXTS[0], "the " * 9)
    rows = [line.split("\t") for line in result.lines]
    assert [row[1] for row in rows] == [TEXTS[1], TEXTS[0], "the " * 9]
    assert float(rows[0][0]) == pytest.approx(cosine, abs=6e-5)
    assert rows[1][0] == "1.0000"
    assert result.err.count("too long for the model, which read only a part of it") == 1
    ask = ("embed", "-m", own, "--similarity", "--on-too-long", "skip", "--json", "cat", "the " * 9)
    assert json.loads(regard(*ask).out) == {
        "line": 2,
        "text": "the " * 9,
        "similarity": None,
        "skipped": True,
        "truncated": False,
        "precision": "float32",
    }
    alone = regard("embed", "-m", own, "--similarity", "cat")
    assert (alone.code, alone.out) == (2, "")
    assert "give at least two" in alone.err
    assert "the first text is too long" in refused(
        "embed", "-m", own, "--similarity", "--on-too-long", "skip", "the " * 9, "a"
    )


def test_no_length_is_like_nothing() -> None:
    assert similarity(np.zeros(3, dtype=np.float32), np.ones(3, dtype=np.float32)) == 0.0


# --- a real one


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the folder of all-MiniLM-L6-v2 (REGARD_MINILM)")
@pytest.mark.usefixtures("same_threads")
def test_a_real_model() -> None:
    texts = ["A small house stands by the lake.", "It rains.", "", "naïve café 你好", "word " * 300]
    found = load_as(Embedder, REAL, device="cpu", threads=1)
    reference = states(REAL, texts, longest=256)
    expected = torch.nn.functional.normalize(torch.stack([x.mean(dim=0) for x in reference]))
    own = torch.from_numpy(found.vectors(texts))
    assert (own * expected).sum(dim=1).min() > 0.99999
    torch.testing.assert_close(own, expected, atol=1e-5, rtol=0)
