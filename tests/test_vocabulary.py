"""Vocabularies of pretrained models grow and shrink; what the model says about old tokens stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from hf_models import make_pipelines, put_tokenizer, saved  # noqa: F401 - a fixture
from regard.batch import Batch, collate, tokens
from regard.config import resolve
from regard.errors import UsageError
from regard.inputs.text import Tokenizer, load_tokenizer, train_tokenizer
from regard.inputs.text.sentencepiece import SentencePieceTokenizer
from regard.inputs.text.vocabulary import extended, trimmed_to
from regard.models.families import build
from regard.sample import Sample
from regard.storage import Initial, load_weights_into, open_folder, read_model
from regard.training.run import train
from regard.training.vocabulary import fit_vocabulary
from texts import CORPUS

NEW = ["COVID", "<sep>", "Zurichsee", "x:y"]
KINDS = ["bert", "gpt2", "t5", "llama", "bpe", "unigram", "word"]
SOME = CORPUS[:3]


def make(kind: str, pipelines: Any, path: Path) -> Tokenizer:
    if kind not in pipelines:
        return train_tokenizer(CORPUS, kind, 400)
    put_tokenizer(path, kind, pipelines[kind])
    return load_tokenizer(path)


@pytest.mark.parametrize("kind", KINDS)
def test_new_words_are_tokens(kind: str, pipelines: Any, tmp_path: Path) -> None:
    old = make(kind, pipelines, tmp_path / "old")
    new, rows = extended(old, NEW)
    assert len(new) == len(rows) == max(len(old), len(rows))
    assert [new.encode(text) for text in CORPUS] == [old.encode(text) for text in CORPUS]
    assert new.encode("aCOVIDa") == old.encode("aCOVIDa")  # no word of this text
    for word in NEW:
        (number,) = [each for each in new.encode(word) if rows[each] != [each]]
        assert rows[number] == old.encode(word)
        assert number in new.encode(f"A man {word}, two")
        if kind != "bert":
            # as in transformers, SentencePiece begins anew behind an added token
            again = new.decode(new.encode(f"A man {word}, two")).replace(" ,", ",")
            assert again == f"A man {word}, two"
            assert new.token_bytes[number] == word.encode()
    new.save(tmp_path / "new.json")
    assert load_tokenizer(tmp_path / "new.json").encode("a COVID") == new.encode("a COVID")
    others = () if kind in ("bert", "t5", "llama") else ("Zürich",)
    for wrong in ("", "a b", "COVID", "x" * 101, *others):
        with pytest.raises(UsageError) as caught:
            extended(new, [wrong])
        assert caught.value.code == "E_INIT_VOCABULARY"


@pytest.mark.parametrize("kind", KINDS)
def test_a_trimmed_tokenizer_splits_as_before(kind: str, pipelines: Any, tmp_path: Path) -> None:
    old = make(kind, pipelines, tmp_path / "old")
    old = extended(old, NEW[:1])[0]
    texts = [*SOME, "A COVID"]
    new, rows = trimmed_to(old, {each for text in texts for each in old.encode(text)})
    assert len(new) == len(rows) < len(old)
    for text in texts:
        assert [rows[each][0] for each in new.encode(text)] == old.encode(text)
        assert new.decode(new.encode(text)) == old.decode(old.encode(text))
    for name in ("start", "end", "pad", "mask", "unknown"):
        before, after = getattr(old, name), getattr(new, name)
        assert (after is None and before is None) or rows[after] == [before]
    for text in CORPUS:  # any other text can be read, too
        new.decode(new.encode(text))
    new.save(tmp_path / "new.json")
    assert load_tokenizer(tmp_path / "new.json").encode(SOME[0]) == new.encode(SOME[0])


def test_a_sentencepiece_vocabulary_is_trimmed(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "corpus.txt"), model_prefix=str(tmp_path / "m"), vocab_size=140, minloglevel=2
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    names = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    vocabulary = {name: number for number, name in enumerate([*names[2:], "<unk>", ">>fra<<", "<pad>"])}
    settings = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "regard": {}}
    old = SentencePieceTokenizer((tmp_path / "m.model").read_bytes(), vocabulary, settings, "source.spm")
    new, rows = trimmed_to(old, {each for text in SOME for each in old.encode(text)})
    assert len(new) < len(old) and new.languages == ("fra",)
    for text in SOME:
        assert [rows[each][0] for each in new.encode(text)] == old.encode(text)
    with pytest.raises(UsageError) as caught:
        extended(old, ["COVID"])
    assert caught.value.code == "E_INIT_VOCABULARY"


# --- models


MODELS = {
    "gpt2": ("generate", "gpt"),
    "gpt2 untied": ("generate", "gpt"),
    "llama": ("generate", "llama"),
    "fill": ("fill", "bert"),
    "classify": ("classify", "bert"),
    "t5": ("translate", "t5"),
    "t5 1.1": ("translate", "t5"),
    "marian": ("translate", "transformer"),
}


def config_of(name: str, base: Path, file: Path, **init: Any) -> Any:
    task, family = MODELS[name]
    if task == "translate":
        lines = [f"{each}\t{each[::-1]}\n" for each in SOME]
    elif task == "classify":
        lines = [f"{each}\t{'ab'[number % 2]}\n" for number, each in enumerate(SOME)]
    else:
        lines = [f"{each}\n\n" for each in SOME]
    file = file.with_suffix(".txt" if task in ("generate", "fill") else ".tsv")
    file.write_text("".join(lines))
    return resolve(
        {
            "task": {"name": task},
            "data": {"train": str(file), "valid": str(file), "leaks": "keep"},
            "model": {"family": family, "dropout": 0.0},
            "train": {"steps": 2, "lr": 1e-9, "warmup": 1, "checkpoint_every": 1, "tokens_per_batch": 128},
            "init": {"from": str(base), **init},
        }
    )


def logits(initial: Initial, source: list[int]) -> torch.Tensor:
    target = None if initial.output is initial.input else len(initial.output)
    model = build(initial.config, len(initial.input), len(initial.labels) or target)
    load_weights_into(model, initial.weights, Path())
    with torch.no_grad():
        if hasattr(model, "decoder") and hasattr(model, "encoder"):
            return model.eval()(Batch(tokens([source]), tokens([[0, *source]])))[0]
        sample = Sample(source=source) if hasattr(model, "encoder") else Sample(target=source)
        return model.eval()(collate([sample], 1))[0]


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_old_tokens_stay(name: str, pipelines: Any, tmp_path: Path) -> None:
    base = tmp_path / "base"
    saved(base, name, pipelines)
    old = read_model(base)
    notes: list[str] = []
    grown = fit_vocabulary(old, config_of(name, base, tmp_path / "a", new_tokens=NEW), notes.append)
    assert isinstance(old.input, Tokenizer) and isinstance(grown.input, Tokenizer)
    ids = old.input.encode(SOME[0])[:12]
    before, after = logits(old, ids), logits(grown, ids)
    is_label = name == "classify"
    old_ids = [
        n for n in range(before.shape[1]) if is_label or grown.input.tokens([n]) == old.input.tokens([n])
    ]
    assert len(old_ids) >= before.shape[1] - len(NEW)  # rows without a token may have become one
    assert torch.allclose(before[:, old_ids], after[:, old_ids], atol=1e-6)
    assert "4 added" in notes[0]

    whole = fit_vocabulary(old, config_of(name, base, tmp_path / "a", trim=True), notes.append)
    assert isinstance(whole.input, Tokenizer)
    assert len(whole.input) < len(old.input)
    same = whole.input.encode(SOME[0])[:12]
    table, small = (
        next(each.weights[n] for n in ("source.tokens.weight", "target.tokens.weight") if n in each.weights)
        for each in (old, whole)
    )
    assert torch.equal(small[same], table[ids])
    if is_label:
        assert torch.allclose(logits(whole, same), before, atol=1e-6)
        return
    if "translate" not in MODELS[name]:
        assert torch.allclose(logits(whole, same)[:, same], before[:, ids], atol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "fill", "t5"])
def test_a_run_with_another_vocabulary(name: str, pipelines: Any, tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "run"
    saved(base, name, pipelines)
    config = config_of(name, base, tmp_path / "a", new_tokens=["COVID"], trim=True)
    train(config.model_copy(update={"train": config.train.model_copy(update={"steps": 1})}), folder)
    train(config, folder, resume=True)
    opened = open_folder(folder)
    assert "COVID" in opened.source.tokens(opened.source.encode("A COVID"))
    kinds = {"gpt2": AutoModelForCausalLM, "fill": AutoModelForMaskedLM, "t5": AutoModelForSeq2SeqLM}
    there = kinds[name].from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)("A man COVID", add_special_tokens=False)["input_ids"]
    assert ids == opened.source.encode("A man COVID")
    with torch.no_grad():
        more = {"decoder_input_ids": torch.tensor([[0, *ids]])} if name == "t5" else {}
        expected = there(input_ids=torch.tensor([ids]), **more).logits[0]
        if name == "t5":
            ours = opened.model(Batch(tokens([ids]), tokens([[0, *ids]])))[0]
        else:
            ours = opened.model(collate([Sample(source=ids) if name == "fill" else Sample(target=ids)], 1))[0]
    assert torch.allclose(ours, expected, atol=1e-5)


def test_adapters_need_the_vocabulary_as_it_is() -> None:
    with pytest.raises(UsageError):
        resolve({"data": {"train": "a.tsv"}, "init": {"from": "x", "lora": {}, "trim": True}})
