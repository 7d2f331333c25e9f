"""Marian's folders (opus-mt): pieces, numbers, words and settings as in transformers; pickles aside."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForSeq2SeqLM,
    GPT2Config,
    GPT2LMHeadModel,
    MarianMTModel,
)

from hf_models import CLOSE, byte_pairs, put_tokenizer, shaken
from marian_folders import (
    LANGUAGES,
    SHAPES,
    put_pieces,
    saved,
    sides,
    their_tokenizer,
    vocabulary_of,
)
from regard.batch import Batch, tokens
from regard.config import resolve
from regard.errors import UsageError
from regard.generation import decode
from regard.generation.engine import make_engine
from regard.inputs.text import load_tokenizer
from regard.sample import Sample
from regard.storage import (
    Folder,
    importing,
    open_folder,
    unique_weights,
    unpickle,
    write_identity,
    write_weights,
)
from regard.storage.average import average_into
from regard.storage.importing import import_folder
from regard.tasks import decode_options, load
from sampled import sampled
from texts import CORPUS, NASTY

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

STRESS = [
    *NASTY,
    *CORPUS[:8],
    "A man, é 漢 👩‍👩‍👧 " * 5_000,  # more than 100 kB
    "x" * 100_000,
    "ﬁne Ａ ½ № a\u0308 \u200f\u202b\x07\x1b[0m tab\there",
    ">>fra<< A man is standing.",
    ">>deu<<A man",
    " >>fra<< behind a space",
    ">>xyz<< unknown language",
    ">>fra<<",
    ">> no end",
    ">>fra<< >>deu<< twice << >>",
    "</s><pad> <unk>",
]


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[bytes, bytes]]:
    return {kind: sides(kind) for kind in ("unigram", "bpe", "bytes")}


# --- pieces


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", ["unigram", "bpe", "bytes"])
def test_ids_and_texts_are_those_of_transformers(models, kind, separate, tmp_path):
    put_pieces(tmp_path, models[kind], separate)
    theirs = their_tokenizer(tmp_path)
    sides = {"text": load_tokenizer(tmp_path), "text_target": load_tokenizer(tmp_path / "target.spm")}
    assert sides["text"].shares_vocabulary(sides["text_target"]) is not separate
    for side, ours in sides.items():
        own = {ours.end, ours.pad}
        special = own | set(theirs.all_special_ids)  # to theirs the source's on both sides
        for text in STRESS:
            told = theirs(**{side: text}, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            ids = ours.encode(text)
            if own.isdisjoint(told):  # theirs lets a text spell what SentencePiece does not know
                assert ids == told
            assert own.isdisjoint(ids) and ours.encode_batch(["a", text])[1] == ids == ours.spans(text)[0]
            if side == "text_target" or not separate:  # theirs reads ids by the target's vocabulary
                ids = [number for number in ids if number not in special]
                told = theirs.decode(ids, skip_special_tokens=True, use_source_tokenizer=side == "text")
                assert ours.decode(ids) == told
    target = sides["text_target"]
    everything = [number for number in range(len(target)) if number not in special]
    assert target.decode(everything) == theirs.decode(
        everything, skip_special_tokens=True, use_source_tokenizer=False
    )


def test_roles_languages_and_pieces(models, tmp_path):
    put_pieces(tmp_path, models["unigram"])
    ours, vocabulary = load_tokenizer(tmp_path), vocabulary_of(*models["unigram"])
    assert (ours.end, ours.pad, ours.start) == (0, len(vocabulary) - 1, len(vocabulary) - 1)
    assert ours.languages == ("fra", "deu", "zho_Hant") and ours.mask is None and ours.sentinels == ()
    assert ours.suppressed == (ours.pad,)  # <unk> may be said there, too
    text = "  A man,  in weiße 今 blue "
    ids, spans = ours.spans(text)
    assert len(ids) == len(spans) == len(ours.tokens(ids)) == len(ours.words(ids))
    assert all(not text[start:end][:1].isspace() for start, end in spans)
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    assert ours.spans(">>fra<< A man")[1][0] == (0, 7)
    known = ours.encode("A man in a blue shirt")
    assert b"".join(ours.token_bytes[number] for number in known).decode() == " A man in a blue shirt"
    assert ours.words(known)[-1] == 5
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 500, "decoder_start_token_id": 3}))
    larger = load_tokenizer(tmp_path)
    assert (len(larger), larger.start) == (500, 3) and {3, 499} <= set(larger.suppressed)
    assert larger.fingerprint != ours.fingerprint


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.text("a >fr<</s>é漢<unk>▁\n"))
def test_any_text_is_only_text(models, tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp() / "any_text"
    if not folder.is_dir():
        put_pieces(folder, models["unigram"])
    ours = load_tokenizer(folder)
    ids, spans = ours.spans(text)
    assert ids == ours.encode(text) and not {ours.end, ours.pad} & set(ids)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    copy = pickle.loads(pickle.dumps(ours))  # noqa: S301 - our own bytes
    assert copy.encode(text) == ids and copy.fingerprint == ours.fingerprint


def test_broken_files_are_told(models, tmp_path):
    def refused(match: str) -> None:
        with pytest.raises(UsageError, match=match) as caught:
            load_tokenizer(tmp_path)
        assert "\n" not in str(caught.value)

    put_pieces(tmp_path, models["bpe"])
    vocabulary = json.loads((tmp_path / "vocab.json").read_text())
    for content, match in (
        ([1], "JSON|vocabulary"),
        ({}, "vocabulary"),
        ({"a": 0.5}, "vocabulary"),
        ({"a": 10**9, "b": 1}, "out of range"),
        ({**vocabulary, "twice": 0}, "share an id"),
        ({name: number for name, number in vocabulary.items() if name != "<pad>"}, "<pad>. is missing"),
    ):
        (tmp_path / "vocab.json").write_text(json.dumps(content))
        refused(match)
    put_pieces(tmp_path, models["bpe"], sp_model_kwargs={"enable_sampling": True})
    refused("sp_model_kwargs")
    put_pieces(tmp_path, models["bpe"])
    (tmp_path / "source.spm").write_bytes(models["bpe"][0][:1000])
    refused(r"source\.spm: not a SentencePiece model")
    (tmp_path / "target.spm").unlink()
    refused(r"no target\.spm")


# --- numbers


RULES = {
    "usual": {"num_beams": 4, "max_length": 30, "renormalize_logits": True, "suppress_tokens": [6, 8]},
    "relu": {"num_beams": 4, "max_length": 9, "length_penalty": 0.6, "early_stopping": True},
    "gelu": {"num_beams": 4, "max_new_tokens": 12, "min_length": 6, "no_repeat_ngram_size": 2},
    "gelu_new": {"num_beams": 4, "max_length": 25, "forced_bos_token_id": 7, "length_penalty": 2.0},
    "untied": {"num_beams": 4, "max_length": 14, "repetition_penalty": 1.4},
    "apart": {"num_beams": 4, "max_length": 20, "forced_eos_token_id": None, "min_new_tokens": 3},
    "apart untied": {"num_beams": 4, "max_length": 20, "early_stopping": "never", "suppress_tokens": [5]},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_transformers_there_and_back(models, shape, tmp_path):
    theirs = saved(tmp_path, models["bpe"], shape)
    folder = open_folder(tmp_path)
    source, target = tokens([[5, 6, 7, 8, 9, 10, 11, 0], [4, 11, 0]]), tokens([[3, 6, 7, 8], [4, 5]])

    @torch.no_grad()
    def compare(model: torch.nn.Module, other: torch.nn.Module) -> None:
        mask = (source.positions >= 0).long()
        told = other(source.ids, attention_mask=mask, decoder_input_ids=target.ids).logits
        found = model(Batch(source=source, target=target))
        for number, length in enumerate((4, 2)):
            own = told[number, :length]
            size = max(1.0, float(own.abs().max()))  # one shape has large weights, and so large logits
            torch.testing.assert_close(found[number, :length] / size, own / size, **CLOSE)

    compare(folder.model, theirs)
    tree = {"data": {"train": "x.tsv"}, "model": folder.config.model_dump(exclude={"preset"})}
    again = tmp_path / "again"
    write_identity(again, resolve(tree), folder.source, folder.target, 61)
    write_weights(again, folder.config, unique_weights(folder.model))
    reopened, told = AutoModelForSeq2SeqLM.from_pretrained(again, output_loading_info=True)
    assert type(reopened) is MarianMTModel
    assert not any(told[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    compare(folder.model, reopened.eval())
    ours = open_folder(again)
    compare(ours.model, theirs)
    for name in ("source.spm", "target.spm"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()
    for one, other in ((ours.source, folder.source), (ours.target, folder.target)):
        assert one.fingerprint == other.fingerprint
    assert their_tokenizer(again)(CORPUS[0])["input_ids"] == [*folder.source.encode(CORPUS[0]), 0]


def test_what_files_leave_out_or_hold_besides(models, tmp_path):
    theirs = saved(tmp_path, models["bpe"])
    file = tmp_path / "model.safetensors"
    whole, waves = load_file(file), theirs.model.encoder.embed_positions.weight.data
    bare = {name.removeprefix("model."): each for name, each in whole.items() if name != "final_logits_bias"}
    save_file({**bare, "encoder.embed_positions.weight": waves.half()}, file)
    model = open_folder(tmp_path).model
    assert not model.output.bias.any()
    name = "model.decoder.embed_positions.weight"
    for wrong in (waves + 0.1, waves[:, :-2].contiguous(), torch.tensor(1.0)):
        save_file({**whole, name: wrong}, file)
        with pytest.raises(UsageError, match=f'"{name}" is not what this architecture computes'):
            open_folder(tmp_path)


REFUSED = (
    {"normalize_before": True},
    {"normalize_embedding": True},
    {"add_final_layer_norm": True},
    {"static_position_embeddings": False},
    {"activation_function": "tanh"},
    {"encoder_ffn_dim": 18},
    {"decoder_attention_heads": 2},
    {"decoder_vocab_size": 50},
)


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: next(iter(change)))
def test_what_we_cannot_compute_is_refused_by_name(models, change, tmp_path):
    saved(tmp_path, models["bpe"])
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(UsageError, match=next(iter(change))) as caught:
        open_folder(tmp_path)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


# --- words


def inputs(folder: Folder, count: int = 50) -> list[list[int]]:
    dice = random.Random(3)
    usual = [number for number in range(2, len(folder.source)) if number != folder.source.pad]
    return [[*dice.choices(usual, k=dice.randint(1, 20)), folder.source.end] for _ in range(count)]


def our_words(engine: object, folder: Folder, rows: list[list[int]], **options: object) -> list[tuple]:
    chosen = folder.decode.model_copy(update=options)
    samples = [Sample(source=row) for row in rows]
    found = decode(engine, samples, chosen, folder.special, torch.device("cpu"))
    return [each[0].tokens for each in found]


def their_words(model: torch.nn.Module, rows: list[list[int]], pad: int, **options: object) -> list[tuple]:
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    found = model.generate(ids, attention_mask=mask, **options)[:, 1:].tolist()
    end = model.generation_config.eos_token_id
    cut = [row[: row.index(end)] if end in row else row for row in found]
    stop = model.generation_config.pad_token_id
    return [tuple(piece for piece in row if piece != stop) for row in cut]


@pytest.mark.parametrize("shape", SHAPES)
def test_words_are_those_of_transformers(models, shape, tmp_path):
    """50 texts of mixed length side by side: greedy, and with the four beams that the folder asks for."""
    theirs = saved(tmp_path, models["bpe"], shape, **RULES[shape])
    folder = open_folder(tmp_path)
    assert folder.decode.beam == 4
    rows, pad = inputs(folder), theirs.config.pad_token_id
    expected = {beam: their_words(theirs, rows, pad, num_beams=beam) for beam in (1, 4)}
    engine = make_engine(folder.model)
    assert our_words(engine, folder, rows) == expected[4]
    assert our_words(engine, folder, rows, beam=1) == expected[1]
    assert len(set(expected[4])) > 5 < len(set(expected[1]))
    assert len(set(map(len, expected[1]))) > 1


def test_settings_of_older_folders_and_of_newer_ones(models, tmp_path):
    """config.json says it where there is no generation_config.json, which else counts alone."""
    saved(tmp_path, models["bpe"], num_beams=3, max_length=40)
    file = tmp_path / "config.json"
    older = {"num_beams": 6, "max_length": 17, "bad_words_ids": [[8]], "num_beam_groups": 1, "typical_p": 1.0}
    file.write_text(json.dumps({**json.loads(file.read_text()), **older}))
    assert open_folder(tmp_path).decode.beam == 3
    newer = (tmp_path / "generation_config.json").read_text()
    (tmp_path / "generation_config.json").unlink()
    folder = open_folder(tmp_path)
    assert (folder.decode.beam, folder.decode.max_length) == (6, 16)
    assert folder.special.suppressed == (8, folder.target.pad) and folder.special.forced_eos == 0
    for change, match in (
        ({"num_beam_groups": 2}, "num_beam_groups"),
        ({"num_beams": 0}, "beam"),
        ({"max_length": "long"}, "max_length"),
        ({"bad_words_ids": [[10**9]]}, "bad_words_ids"),
        ({"bad_words_ids": {"a": 1}}, "bad_words_ids"),
        ({"suppress_tokens": [-1]}, "suppress_tokens"),
        ({"forced_bos_token_id": "x"}, "forced_bos_token_id"),
        ({"do_sample": True, "temperature": -0.1}, "temperature"),
        ({"stop_strings": ["."]}, "stop_strings"),
        ({"forced_eos_token_id": [0, 1]}, "forced_eos_token_id"),
    ):
        (tmp_path / "generation_config.json").write_text(json.dumps({**json.loads(newer), **change}))
        with pytest.raises(UsageError, match=match) as caught:
            open_folder(tmp_path)
        assert "generation_config.json" in str(caught.value) and "\n" not in str(caught.value)
    drawn = {"do_sample": True, "temperature": 0.7, "top_p": 0.9}
    (tmp_path / "generation_config.json").write_text(json.dumps({**json.loads(newer), **drawn}))
    chosen = open_folder(tmp_path).decode
    assert (chosen.sample, chosen.temperature, chosen.top_p, chosen.top_k) == (True, 0.7, 0.9, 50)


def test_drawn_words_obey_the_folder(models, tmp_path):
    rules = {"do_sample": True, "forced_bos_token_id": 7, "max_length": 8, "suppress_tokens": [20, 21]}
    saved(tmp_path, models["bpe"], **rules, begin_suppress_tokens=[22])
    folder = open_folder(tmp_path)
    rows = inputs(folder)
    found = our_words(make_engine(folder.model), folder, rows)
    assert {row[0] for row in found} == {7} and max(map(len, found)) == 6  # the seventh is the end
    assert not {20, 21, folder.target.pad} & {piece for row in found for piece in row}
    assert not {22} & {row[1] for row in found if len(row) > 1}
    assert not any(pair == (9, 10) for row in found for pair in pairwise(row))


@pytest.mark.parametrize(
    "rules",
    [
        {"max_length": 20, "min_length": 15, "suppress_tokens": [4, 5]},
        {"max_new_tokens": 9, "repetition_penalty": 1.5, "bad_words_ids": [[7], [9, 10]]},
        {"max_length": 22, "no_repeat_ngram_size": 2, "forced_eos_token_id": 0, "num_beams": 4},
    ],
)
def test_language_models_obey_their_folder(rules, tmp_path):
    """Their lengths count the prompt, and what may not be repeated begins there."""
    shape = {"n_positions": 40, "n_embd": 12, "n_layer": 2, "n_head": 3, "initializer_range": 0.7}
    torch.manual_seed(1)
    theirs = shaken(GPT2LMHeadModel(GPT2Config(vocab_size=320, **shape, bos_token_id=0, eos_token_id=0)))
    theirs.generation_config.update(**rules, pad_token_id=0)
    theirs.save_pretrained(tmp_path)
    put_tokenizer(tmp_path, "gpt2", byte_pairs())
    folder, dice = open_folder(tmp_path), random.Random(1)
    rows = [[0, *dice.choices(range(1, 300), k=dice.randint(2, 12))] for _ in range(10)]
    for beam in (1, 4):
        found = our_words(folder.model, folder, rows, beam=beam)
        for row, own in zip(rows, found, strict=True):
            told = theirs.generate(
                torch.tensor([row]), attention_mask=torch.ones(1, len(row)), num_beams=beam, do_sample=False
            )[0, len(row) :].tolist()
            assert list(own) == (told[: told.index(0)] if 0 in told else told)
    assert len(set(found)) > 4


# --- the command


@pytest.fixture(scope="module")
def opus(models, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("opus")
    saved(folder, models["unigram"], num_beams=2, max_length=20)
    return folder


def test_the_text_is_that_of_transformers(opus, regard, same_threads):
    """Text in, text out: as the pipeline gave it that transformers no longer has."""
    theirs, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(opus), their_tokenizer(opus)
    lines = [*CORPUS[:4], ">>deu<< Two men.", "漢 é"]
    read = tokenizer(lines, return_tensors="pt", padding=True)
    told = tokenizer.batch_decode(theirs.generate(**read), skip_special_tokens=True)
    assert regard("translate", "-m", str(opus), "--no-check", *lines).lines == told
    read = tokenizer([f">>fra<< {line}" for line in lines[:4]], return_tensors="pt", padding=True)
    told = tokenizer.batch_decode(theirs.generate(**read), skip_special_tokens=True)
    assert regard("translate", "-m", str(opus), "--no-check", "--language", "fra", *lines[:4]).lines == told


def test_a_language_stands_before_every_sentence(opus):
    translator = load(opus, device="cpu", threads=1).into("deu")
    both = translator.translate_lines(["A man. Two men. ", "", " "], split="always", check=False)
    each = [translator.translate(text, check=False) for text in ("A man.", "Two men.")]
    assert [line.text for line in both] == [" ".join(filter(None, each)), "", ""] or each == ["", ""]
    code = translator.folder.source.encode(">>deu<<")
    assert translator.folder.source.encode(f"{translator.source_prefix}A man.")[:1] == code
    with pytest.raises(UsageError, match=r"'klingon'.*zho_Hant, fra, deu"):
        translator.into("klingon")


def test_words_are_aligned_as_they_stand_in_the_text(opus):
    """A language's sign was the first word of every source, and a word of unknown signs was none."""
    translator = load(opus, device="cpu", threads=1).into("deu")
    text = "A \U0001f600 man sees 漢 it."
    (line,) = translator.translate_lines([text], num_results=2, alignment=True)
    words = {source for found in line.candidates for source, _ in found.alignment}
    assert words and words <= set(range(len(text.split())))
    source = translator.folder.source
    owners = source.words(source.encode(text), was_read=True)
    assert max(owners) + 1 == len(text.split())


def test_a_language_stands_before_every_sentence_that_is_read_with_others(opus, monkeypatch):
    """With its context a sentence was read without the sign, and a trace never had it."""
    translator = load(opus, device="cpu", threads=1).into("deu")
    (code,) = translator.folder.source.encode(">>deu<<")
    read, source_ids = [], translator.source_ids
    monkeypatch.setattr(translator, "source_ids", lambda ids: read.append(list(ids)) or source_ids(ids))
    options = decode_options(translator.folder.decode, {"context": 1, "beam": 1, "max_length": 4})
    translator.translate_lines(["A man. Two men."], options, split="always")
    assert len(read) >= 2 and all(ids[0] == code for ids in read)
    assert code in translator.trace("A man.", decode={"beam": 1, "max_length": 4}).tokens["source"].ids


# --- training goes on


def test_a_run_begins_from_such_a_folder(opus, tmp_path):
    from regard.training import train as go_on

    pairs = "".join(f"{left}\t{right}\n" for left, right in zip(CORPUS[:4], CORPUS[2:6]))
    (tmp_path / "pairs.tsv").write_text(pairs * 4, encoding="utf-8")
    tree = {
        "data": {"train": str(tmp_path / "pairs.tsv"), "leaks": "keep"},
        "train": {"steps": 2, "warmup": 1, "checkpoint_every": 2, "tokens_per_batch": 256, "device": "cpu"},
        "init": {"from": str(opus), "keep": "all"},
    }
    go_on(resolve(tree), tmp_path / "run")
    before, after = open_folder(opus), open_folder(tmp_path / "run")
    assert after.source.fingerprint == before.source.fingerprint
    assert after.target.fingerprint == before.target.fingerprint and after.source.shares_vocabulary(
        after.target
    )
    bias = before.model.output.bias
    assert after.config.output_bias and 0 < (after.model.output.bias - bias).abs().max() < 0.1
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    torch.testing.assert_close(theirs.final_logits_bias[0], after.model.output.bias.detach())
    assert their_tokenizer(tmp_path / "run").supported_language_codes == list(LANGUAGES)
    averages_with_its_tokenizer(tmp_path / "run", tmp_path / "average")


def averages_with_its_tokenizer(run, out):
    """The average of such a run once lacked its .spm files and vocab.json, and could not be opened."""
    average_into([run], out, last=1)
    assert {"source.spm", "target.spm", "vocab.json"} <= {path.name for path in out.iterdir()}
    assert open_folder(out).source.fingerprint == open_folder(run).source.fingerprint
    damaged = bytearray((out / "source.spm").read_bytes())
    damaged[-1] ^= 1
    (out / "source.spm").write_bytes(damaged)
    with pytest.raises(UsageError, match=r"source\.spm"):  # the checksums cover it
        open_folder(out)


# --- pickles


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"a": torch.ones(2), "step": 3}, "'step', which is not a plain tensor"),
        ({"a": torch.ones(2).to_sparse()}, "'a', which is not a plain tensor"),
        ({"a": torch.ones(1).expand(10**12)}, "'a', which is larger than its data"),
        ({1: torch.ones(2)}, "not a short string"),
        ([torch.ones(2)], "no named tensors, but a list"),
        ({}, "no named tensors"),
        (b"", "not a file of plain tensors"),
        (b"PK\x03\x04 torn", "not a file of plain tensors"),
        (pickle.dumps({"a": 1}), "no|plain"),
    ],
)
def test_what_is_no_file_of_tensors_is_refused(content, match, tmp_path):
    """What the other process says; here in this one, which is as fast as it should be."""
    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(content) if isinstance(content, bytes) else torch.save(content, file)
    with pytest.raises(unpickle.RefusedPickle, match=match) as caught:
        unpickle.read(file)
    assert "\n" not in str(caught.value)


def pickled(opus: Path, path: Path) -> dict[str, torch.Tensor]:
    """A folder as it was before safetensors: tied weights under all their names, the table of waves."""
    shutil.copytree(opus, path)
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors["model.shared.weight"]
    model = AutoModelForSeq2SeqLM.from_pretrained(opus)
    tensors["model.encoder.embed_positions.weight"] = model.model.encoder.embed_positions.weight.data
    return tensors


@pytest.mark.parametrize("form", sampled(["old", "parts"], "old"))
def test_pickles_come_in_aside(opus, form, regard, tmp_path):
    source, out = tmp_path / "source", tmp_path / "deeper" / "out"
    tensors = pickled(opus, source)
    if form == "parts":
        names = sorted(tensors)
        halves = {"pytorch_model-1.bin": names[::2], "pytorch_model-2.bin": names[1::2]}
        for file, held in halves.items():
            torch.save({name: tensors[name] for name in held}, source / file)
        places = {name: file for file, held in halves.items() for name in held}
        (source / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    else:
        torch.save(tensors, source / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    (source / "evil.py").write_text("raise SystemExit")
    (source / "README.md").write_text("words")
    with pytest.raises(UsageError, match=r"pytorch_model\.bin.*regard import"):
        open_folder(source)
    assert regard("import", str(source), str(out)).code == 0
    assert (out / "README.md").read_text() == "words" and not (out / "evil.py").exists()
    assert not any(path.is_symlink() or path.suffix == ".bin" for path in out.iterdir())
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    before, after = unique_weights(open_folder(opus).model), unique_weights(open_folder(out).model)
    assert all(torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(UsageError, match="out already exists"):
        import_folder(source, out)


class Evil:
    """Makes a file when it is unpickled by who believes everything."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_other_pickles_are_refused(opus, tmp_path, monkeypatch):
    source, out, trace = tmp_path / "source", tmp_path / "out", tmp_path / "trace"
    tensors = pickled(opus, source)
    file = source / "pytorch_model.bin"

    def refused(match: str) -> None:
        with pytest.raises(UsageError, match=match) as caught:
            import_folder(source, out)
        assert "\n" not in str(caught.value) and not trace.exists()
        assert {path.name for path in tmp_path.iterdir()} == {"source"}

    torch.save({**tensors, "evil": Evil(trace)}, file)
    refused(r"pytorch_model\.bin is not a file of plain tensors")
    with monkeypatch.context() as patch:  # it reads, but it does not open
        halved = {name: each.clone() for name, each in tensors.items() if "fc1" not in name}
        patch.setattr(importing, "convert", lambda parts, out: save_file(halved, out / "model.safetensors"))
        refused("fc1.*is missing")
    file.unlink()
    (source / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": "../x.bin"}}))
    refused(r"lists .*x\.bin")
    (source / "pytorch_model.bin.index.json").unlink()
    refused(r"has no pytorch_model\.bin")
    save_file(load_file(opus / "model.safetensors"), source / "model.safetensors")
    refused("already has safetensors")
