"""Folders of Hugging Face models: what transformers saved opens here, and ours there, number for number."""

from __future__ import annotations

import json
import pickle
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertModel,
)

from hf_models import (  # noqa: F401 - make_pipelines is a fixture
    BERT_SHAPE,
    CLOSE,
    LABELS,
    MAKERS,
    MODELS,
    NAMES,
    SENTINELS,
    TASKS,
    bert,
    gpt2,
    llama,
    make_pipelines,
    marian,
    put_tokenizer,
    saved,
    shaken,
    t5,
)
from regard.batch import Batch, tokens
from regard.config import Config, GPTConfig, TransformerConfig, resolve
from regard.config import T5Config as OurT5Config
from regard.errors import UsageError
from regard.inputs.text import Tokenizer, load_tokenizer, train_tokenizer
from regard.models.families import build
from regard.storage import open_folder, read_model, unique_weights, write_identity, write_weights
from regard.storage.generation import special_of
from regard.storage.huggingface import architecture_of, config_json, opens_in_transformers
from regard.storage.huggingface import to_hf as written_as
from regard.storage.weights import WEIGHTS
from texts import CORPUS, NASTY

ROWS = [[5, 6, 7, 8, 9, 3], [4, 11, 12]]


@pytest.fixture(scope="module")
def foreign(pipelines, tmp_path_factory) -> dict[str, Tokenizer]:
    folders = {name: tmp_path_factory.mktemp("foreign") for name in MAKERS}
    for name, folder in folders.items():
        put_tokenizer(folder, name, pipelines[name])
    return {name: load_tokenizer(folder) for name, folder in folders.items()}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("add_bos_token", [None, True, False])
def test_a_start_token_is_added_where_transformers_adds_one(
    pipelines, name: str, add_bos_token: bool | None, tmp_path: Path
) -> None:
    """A GPT-2 prompt gets none, a Llama prompt <s>; add_bos_token does not change tokenizer.json."""
    settings = {} if add_bos_token is None else {"add_bos_token": add_bos_token}
    put_tokenizer(tmp_path, name, pipelines[name], **settings)
    ours, theirs = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    ids = theirs("A man")["input_ids"]
    expected = [ours.start, *ours.encode("A man")] if ours.adds_start else ours.encode("A man")
    assert ids[: len(expected)] == expected
    assert ours.adds_start == (ids[0] in (theirs.bos_token_id, theirs.cls_token_id))
    ours.save(tmp_path / "copy.json")
    for copy in (pickle.loads(pickle.dumps(ours)), load_tokenizer(tmp_path / "copy.json")):  # noqa: S301
        assert copy.adds_start == ours.adds_start


STRESS = [
    *NASTY,
    *CORPUS[:8],
    "A man, é 漢 " * 4_000,
    "x" * 20_000,
    "[CLS] [MASK] <extra_id_0> <|endoftext|> <0x41>",
    "Ａｆｕｌｌ ﬁne ½ №",
]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("clean", [False, True])
def test_ids_and_texts_are_those_of_transformers(pipelines, name, clean, tmp_path):
    put_tokenizer(tmp_path, name, pipelines[name], clean_up_tokenization_spaces=clean)
    ours, theirs = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    special = {*theirs.all_special_ids, *ours.sentinels} - ({theirs.unk_token_id} - {ours.end})
    for text in STRESS:
        expected = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        ids = ours.encode(text)
        if special.isdisjoint(expected):  # theirs lets a text spell what SentencePiece knows as a piece
            assert ids == expected
        assert special.isdisjoint(ids)
        assert ours.encode_batch([text, "a"])[0] == ids == ours.spans(text)[0]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    everything = list(range(len(ours)))
    assert ours.decode(everything) == theirs.decode(everything, skip_special_tokens=True)


CLASSES = {"bert": "BertTokenizer", "gpt2": "GPT2Tokenizer", "t5": "T5Tokenizer", "llama": "LlamaTokenizer"}


@pytest.mark.parametrize("name", MAKERS)
def test_files_of_the_known_classes(pipelines, name, tmp_path):
    """transformers builds the steps of these classes itself: with the same steps in the file we agree."""
    pipeline = tokenizers.Tokenizer.from_str(pipelines[name].to_str())
    spaces = pre_tokenizers.Metaspace(prepend_scheme="always")
    if name == "t5":
        pipeline.normalizer = None
        pipeline.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
    if name == "llama":
        pipeline.normalizer = None
        pipeline.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    put_tokenizer(tmp_path, name, pipeline, tokenizer_class=CLASSES[name])
    ours, theirs = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == CLASSES[name]
    for text in STRESS:
        expected = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        if ours.end not in expected:
            assert ours.encode(text) == expected
        assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=True)


@pytest.mark.parametrize("name", MAKERS)
def test_spans_and_words_of_foreign_pieces(pipelines, name, tmp_path):
    put_tokenizer(tmp_path, name, pipelines[name])
    ours = load_tokenizer(tmp_path)
    text = "  Two men,  in Freien 今天 weiße man "
    ids, spans = ours.spans(text)
    assert len(ids) == len(spans) == len(ours.tokens(ids)) == len(ours.words(ids))
    covered = {place for start, end in spans for place in range(start, end)}
    assert covered == {place for place, sign in enumerate(text) if not sign.isspace()}
    assert all(start <= end and not text[start:end][:1].isspace() for start, end in spans)
    words = [word for word in ours.words(ids) if word >= 0]
    assert words == sorted(words) and set(words) == set(range(max(words) + 1))
    if name != "bert":
        assert max(words) + 1 == len(ours.decode(ids).split()) == len(text.split())
        content = b"".join(ours.token_bytes[number] or b"" for number in ids)
        assert content.decode().split() == text.split()
    else:
        with pytest.raises(UsageError, match="WordPiece"):
            _ = ours.token_bytes


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.text("a </s>[MASK]é漢<unk>▁\n"))
def test_any_text_is_only_text(foreign, name, text):
    """No text gives a special, alone or beside others, in one process or another."""
    ours = foreign[name]
    ids, spans = ours.spans(text)
    assert ids == ours.encode(text) == ours.encode_batch(["a", text])[1]
    assert not {ours.start, ours.end, ours.pad, ours.mask, *ours.sentinels} & set(ids)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert len(ours.words(ids)) == len(ours.tokens(ids)) == len(ids)
    if name == "gpt2":
        assert ours.decode(ids) == text == b"".join(ours.token_bytes[number] for number in ids).decode()
    copy = pickle.loads(pickle.dumps(ours))  # noqa: S301 - our own bytes
    assert copy.encode(text) == ids and copy.fingerprint == ours.fingerprint


def test_a_text_spells_no_special_where_its_signs_are_unknown(tmp_path):
    """`</s>` in a text became the end where the vocabulary has no `<`: an unknown sign cost more than it."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁a", -3.0), ("a", -4.0)]
    pipeline = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=2))
    pipeline.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_0>"])
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    put_tokenizer(tmp_path, "t5", pipeline)
    ours = load_tokenizer(tmp_path)
    for text in ("a </s> a", "<pad>", "a<extra_id_0>"):
        assert not {ours.end, ours.pad, *ours.sentinels} & set(ours.encode(text))
        assert ours.unknown in ours.encode(text)
    assert ours.words(ours.encode("a < a"), was_read=True)[-1] == 2


def test_a_vocabulary_with_the_word_none(tmp_path):
    """GPT-2's has it: it became the special token of every role that no file names."""
    pipeline = MAKERS["gpt2"]()
    pipeline.add_tokens(["None"])
    put_tokenizer(tmp_path, "gpt2", pipeline)
    ours = load_tokenizer(tmp_path)
    assert {ours.start, ours.end, ours.pad} == {0} and ours.mask is None
    assert ours.encode("None") == [320] and ours.decode([320]) == "None"


@pytest.mark.parametrize("name", MAKERS)
def test_roles_follow_from_the_folder(pipelines, name, tmp_path):
    pipeline = pipelines[name]
    put_tokenizer(tmp_path, name, pipeline)
    ours = load_tokenizer(tmp_path)
    number = pipeline.token_to_id
    start, end, pad, mask = {
        "bert": ("[CLS]", "[SEP]", "[PAD]", "[MASK]"),
        "gpt2": ("<|endoftext|>", "<|endoftext|>", "<|endoftext|>", None),
        "t5": ("<pad>", "</s>", "<pad>", None),
        "llama": ("<s>", "</s>", "</s>", None),
    }[name]
    assert (ours.start, ours.end, ours.pad) == (number(start), number(end), number(pad))
    assert ours.mask == (number(mask) if mask else None)
    assert ours.sentinels == (tuple(map(number, SENTINELS)) if name == "t5" else ())
    assert ours.end not in ours.suppressed and not set(ours.sentinels) & set(ours.suppressed)
    (tmp_path / "tokenizer_config.json").unlink()
    guessed = load_tokenizer(tmp_path / "tokenizer.json")
    assert (guessed.start, guessed.end, guessed.pad, guessed.mask) == (
        ours.start,
        ours.end,
        ours.pad,
        ours.mask,
    )


def test_the_files_beside_it_decide_which_special_is_which(pipelines, tmp_path):
    put_tokenizer(tmp_path, "bert", pipelines["bert"])
    changed = {**NAMES["bert"], "sep_token": {"content": "[MASK]"}, "mask_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(changed))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 1000, "decoder_start_token_id": 0}))
    ours = load_tokenizer(tmp_path)
    assert (ours.end, ours.start, len(ours)) == (4, 0, 1000)
    assert set(range(300, 1000)) <= set(ours.suppressed)
    ours.save(tmp_path / "elsewhere_tokenizer.json")  # a name of its own, beside which its roles stand
    again = load_tokenizer(tmp_path / "elsewhere_tokenizer.json")
    assert (again.end, again.start, len(again)) == (4, 0, 1000)
    assert again.fingerprint == ours.fingerprint


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}, {"strip_accents": False}])
@pytest.mark.parametrize("chinese", [True, False])
def test_a_folder_with_a_vocabulary_alone(pipelines, settings, chinese, tmp_path):
    vocabulary = pipelines["bert"].get_vocab()
    lines = [*sorted(vocabulary, key=vocabulary.get), "É", "é", "##É", "天天"]
    (tmp_path / "vocab.txt").write_text("".join(f"{name}\n" for name in lines), encoding="utf-8")
    config = {"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": chinese, **settings}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours, theirs = load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert len(ours) == len(lines)
    for text in [*STRESS, "ÉÉ é É 天天"]:
        expected = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert ours.encode(text) == expected
        assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=True)


def test_a_folder_with_byte_pairs_alone(pipelines, tmp_path):
    pipelines["gpt2"].model.save(str(tmp_path))
    whole = tmp_path / "whole"
    put_tokenizer(whole, "gpt2", pipelines["gpt2"])
    parts, ours = load_tokenizer(tmp_path), load_tokenizer(whole)
    assert (parts.start, parts.end) == (ours.start, ours.end)
    for text in STRESS:
        assert parts.encode(text) == ours.encode(text)


def test_tokenizers_that_are_none_are_refused(pipelines, tmp_path):
    with pytest.raises(UsageError, match=r"no tokenizer that Regard reads"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(UsageError, match=r"vocab\.txt.*\[UNK\]"):
        load_tokenizer(tmp_path)
    nameless = json.loads(pipelines["t5"].to_str())
    nameless["added_tokens"] = []
    nameless["post_processor"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(nameless))
    with pytest.raises(UsageError, match="ends a text"):
        load_tokenizer(tmp_path)


# --- models


def sample(family: str) -> Batch:
    segments = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 0, 0]])
    rows = tokens(ROWS)
    if family == "bert":
        return Batch(source=replace(rows, segments=segments))
    source = tokens([[5, 6, 7, 8, 9, 10, 11, 3], [4, 11, 12]])
    return Batch(target=rows) if family in ("gpt", "llama") else Batch(source=source, target=rows)


@torch.no_grad()
def told_by(theirs: torch.nn.Module, batch: Batch) -> torch.Tensor:
    source, target = batch.source, batch.target
    if source is not None and target is not None:
        mask = (source.positions >= 0).long()
        return theirs(source.ids, attention_mask=mask, decoder_input_ids=target.ids).logits
    words = source or target
    has_two = source is not None and getattr(theirs.config, "type_vocab_size", 0) == 2
    more = {"token_type_ids": source.segments} if has_two else {}
    found = theirs(words.ids, attention_mask=(words.positions >= 0).long(), **more)
    if "start_logits" in found:
        return torch.stack([found.start_logits, found.end_logits], dim=-1)
    return found.logits if found.logits.dim() == 3 else found.logits[:, None]


@torch.no_grad()
def compare(ours: torch.nn.Module, theirs: torch.nn.Module, batch: Batch) -> None:
    found, expected = ours.eval()(batch), told_by(theirs.eval(), batch)
    for number, row in enumerate(ROWS):
        length = min(len(row), found.shape[1])
        torch.testing.assert_close(found[number, :length], expected[number, :length], **CLOSE)


@pytest.mark.parametrize("name", MODELS)
def test_what_transformers_saved_opens(pipelines, name, tmp_path):
    theirs = saved(tmp_path, name, pipelines)
    folder = open_folder(tmp_path)
    compare(folder.model, theirs, sample(folder.config.family))
    assert folder.task.name == TASKS.get(
        name.split()[0], "generate" if 0 in folder.config.depth else "translate"
    )
    assert folder.task.multi_label == (name == "many")
    has_labels = name.split()[0] in ("classify", "many", "tag")
    assert folder.labels == (tuple(LABELS.values()) if has_labels else ())
    assert folder.model.training is False
    content = json.loads((tmp_path / "config.json").read_text())
    name = content["model_type"].removeprefix("xlm-")  # RoBERTa under another name
    assert architecture_of(folder.config, joint=True).name == name
    ours, stored = written_as(folder.config, unique_weights(folder.model)), load_file(tmp_path / WEIGHTS)
    for key in ours.keys() & stored.keys():  # Gemma's norms: minus one, plus one
        torch.testing.assert_close(ours[key], stored[key], atol=1e-7, rtol=0)
    tied = {"lm_head.weight"}  # where it equals the embedding, transformers stores one of them
    assert {key for key in ours if ours[key].any()} - tied <= stored.keys()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "t5 1.1", "fill"])
def test_halves_and_parts(pipelines, name, dtype, tmp_path):
    """Half precision on disk is float32 here; several files with an index are one model."""
    kind, make = MODELS[name]
    theirs = shaken(make()).to(dtype)
    theirs.save_pretrained(tmp_path, max_shard_size="6KB")
    put_tokenizer(tmp_path, kind, pipelines[kind])
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    folder = open_folder(tmp_path)
    assert {parameter.dtype for parameter in folder.model.parameters()} == {torch.float32}
    compare(folder.model, theirs.float(), sample(folder.config.family))
    next(tmp_path.glob("model-00002-*.safetensors")).unlink()
    with pytest.raises(UsageError, match=r"model-00002.*not in the folder") as caught:
        open_folder(tmp_path)
    assert caught.value.code == "E_MODEL_WEIGHTS"
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(UsageError, match=r"lists \"\.\./model"):
        open_folder(tmp_path)
    index.write_text(json.dumps({"weight_map": []}))
    with pytest.raises(UsageError, match="weight_map"):
        open_folder(tmp_path)


OWN = {
    "fill": {"family": "bert", "activation": "gelu"},
    "classify": {"family": "bert", "activation": "gelu_tanh", "epsilon": 1e-3},
    "tag": {"family": "bert", "activation": "relu"},
    "answer": {"family": "bert", "activation": "gelu"},
    "generate": {"family": "gpt", "activation": "gelu_tanh"},
    "generate untied": {"family": "gpt", "activation": "gelu", "tie_embeddings": False, "epsilon": 1e-3},
    "generate llama": {"family": "llama", "activation": "swish", "kv_heads": 2, "rope_theta": 300.0},
    "generate llama untied": {
        "family": "llama",
        "activation": "swish",
        "head_width": 6,
        "tie_embeddings": False,
    },
    "generate mistral": {"family": "llama", "window": 3},
    "generate qwen2": {"family": "llama", "qkv_bias": True},
    "generate qwen3": {"family": "llama", "qk_norm": True, "head_width": 6},
    "generate gemma": {"family": "llama", "embedding_scale": True, "activation": "gelu_tanh"},
    "generate llama 3": {
        "family": "llama",
        "rope_scaling": {"factor": 8.0, "low_factor": 1.5, "high_factor": 3.0, "original_length": 16},
    },
    "fill distilbert": {"family": "bert", "segments": 0, "activation": "gelu"},
    "classify distilbert": {"family": "bert", "segments": 0, "head_activation": "relu"},
    "translate": {"activation": "swish"},
    "translate t5": {
        "family": "t5",
        "activation": "relu",
        "head_width": 5,
        "relative_buckets": 8,
        "relative_max_distance": 6,
    },
    "translate t5 gated": {
        "family": "t5",
        "activation": "gelu_tanh",
        "gated": True,
        "tie_embeddings": False,
        "encoder_layers": 1,
    },
    "translate bart": {
        "positions": "learned",
        "first_position": 2,
        "embedding_norm": True,
        "output_bias": True,
    },
    "translate mbart": {"positions": "learned", "first_position": 2, "embedding_norm": True, "norm": "pre"},
    "translate m2m": {"positions": "sinusoidal_tensor2tensor", "first_position": 1, "norm": "pre"},
    "translate t5 swish": {"family": "t5", "activation": "swish", "gated": True},
}
AUTO = {
    "fill": AutoModelForMaskedLM,
    "classify": AutoModelForSequenceClassification,
    "tag": AutoModelForTokenClassification,
    "answer": AutoModelForQuestionAnswering,
    "generate": AutoModelForCausalLM,
    "translate": AutoModelForSeq2SeqLM,
}
LEARNED = train_tokenizer(CORPUS, "bpe", 330, extra=("<mask>", *SENTINELS))


def own_config(name: str, **task: object) -> Config:
    shape = {"width": 16, "layers": 2, "heads": 4, "feed_forward": 24, "dropout": 0.1, "max_length": 30}
    tree = {
        "task": {"name": name.split()[0], **task},
        "data": {"train": "corpus.tsv"},
        "model": {**shape, **OWN[name]},
    }
    return resolve(tree)


def written(path: Path, name: str, tokenizer: Tokenizer = LEARNED, **task: object) -> torch.nn.Module:
    """A folder with a random model of ours."""
    path.mkdir(exist_ok=True)
    config = own_config(name, **task)
    labels = tuple(LABELS.values()) if name.split()[0] in ("classify", "tag") else ()
    beside = len(labels) or None
    model = shaken(build(config.model, len(tokenizer), beside))
    write_identity(path, config, tokenizer, None, 30, labels)
    write_weights(path, config.model, unique_weights(model))
    return model


@pytest.mark.parametrize("name", OWN)
def test_transformers_opens_what_we_save(name, tmp_path):
    model = written(tmp_path, name)
    theirs, told = AUTO[name.split()[0]].from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [type(theirs).__name__]
    compare(model, theirs, sample(own_config(name).model.family))
    has_labels = name.split()[0] in ("classify", "tag")
    if has_labels:
        assert theirs.config.id2label == LABELS
    folder = open_folder(tmp_path)
    assert folder.labels == (tuple(LABELS.values()) if has_labels else ())
    before = written_as(own_config(name).model, unique_weights(model))
    after = written_as(folder.config, unique_weights(folder.model))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    theirs.save_pretrained(tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    for key, tensor in load_file(tmp_path / "model.safetensors").items():
        assert key in again or not tensor.any(), key  # transformers keeps no bias of zeros
        assert torch.equal(again.get(key, tensor), tensor)


def test_many_labels_are_told(tmp_path):
    written(tmp_path, "classify", multi_label=True)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert theirs.config.problem_type == "multi_label_classification"
    (tmp_path / "run.toml").unlink()
    folder = open_folder(tmp_path)
    assert folder.task.name == "classify" and folder.task.multi_label


@pytest.mark.parametrize("name", ["fill", "generate", "translate t5"])
def test_transformers_frames_texts_as_we_do(name, tmp_path):
    written(tmp_path, name)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    ids, start, end = LEARNED.encode("Two men"), [LEARNED.start], [LEARNED.end]
    frames = {"fill": [*start, *ids, *end], "generate": [*start, *ids], "translate t5": [*ids, *end]}
    assert theirs("Two men")["input_ids"] == frames[name]
    if name == "fill":
        assert theirs.mask_token_id == LEARNED.mask
        gap = [*LEARNED.encode("Two"), LEARNED.mask, *LEARNED.encode("are men")]
        assert theirs("Two <mask> are men")["input_ids"] == [*start, *gap, *end]
        both = theirs("Two men", "Two men")
        assert both["input_ids"] == [*start, *ids, *end, *ids, *end]
        assert both["token_type_ids"] == [0] * (len(ids) + 2) + [1] * (len(ids) + 1)


@pytest.mark.parametrize("name", ["classify", "generate", "translate t5"])
def test_a_foreign_tokenizer_stays_with_what_is_trained(pipelines, name, tmp_path):
    """Begun from a model of another program: its tokenizer goes into our folder, and opens here and there."""
    kind = {"classify": "bert", "generate": "gpt2", "translate t5": "t5"}[name]
    put_tokenizer(tmp_path / "theirs", kind, pipelines[kind])
    tokenizer = load_tokenizer(tmp_path / "theirs")
    model = written(tmp_path / "ours", name, tokenizer)
    folder = open_folder(tmp_path / "ours")
    assert folder.source.fingerprint == tokenizer.fingerprint
    assert (folder.source.start, folder.source.end) == (tokenizer.start, tokenizer.end)
    compare(model, AUTO[name.split()[0]].from_pretrained(tmp_path / "ours"), sample(folder.config.family))
    theirs = AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in CORPUS[:7]:
        assert theirs(text, add_special_tokens=False)["input_ids"] == folder.source.encode(text)


@pytest.mark.parametrize("name", ["t5", "t5 buckets"])
def test_greedy_words_are_those_of_transformers(pipelines, name, tmp_path):
    from regard.tasks import load

    theirs = saved(tmp_path, name, pipelines)
    ours, tokenizer = load(tmp_path, device="cpu", threads=1), AutoTokenizer.from_pretrained(tmp_path)
    for text in CORPUS[:2]:
        read = tokenizer(text, return_tensors="pt")
        limit = read["input_ids"].shape[1] + 50
        forbidden = sorted(ours.folder.target.suppressed)
        said = theirs.generate(
            **{key: read[key] for key in ("input_ids", "attention_mask")},
            max_new_tokens=limit,
            num_beams=1,
            do_sample=False,
            suppress_tokens=forbidden,
        )
        assert ours.translate(text, check=False) == tokenizer.decode(said[0], skip_special_tokens=True)


# --- a body without a head


@pytest.mark.parametrize("pooled", [True, False])
def test_a_body_without_a_head(pipelines, pooled, tmp_path):
    torch.manual_seed(1)
    body = shaken(BertModel(BertConfig(vocab_size=310, **BERT_SHAPE), add_pooling_layer=pooled))
    body.save_pretrained(tmp_path)
    put_tokenizer(tmp_path, "bert", pipelines["bert"])
    with pytest.raises(UsageError, match="without a head"):
        open_folder(tmp_path)
    initial = read_model(tmp_path)
    assert initial.task is None and initial.labels == () and len(initial.source) == 310
    assert not any(name.startswith(("head.", "output.")) for name in initial.weights)
    for_texts = read_model(tmp_path, head="sentence").weights
    assert ("head.dense.weight" in for_texts) == pooled
    model = build(initial.config.model_copy(update={"head": "sentence"}), 310, 2).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in for_texts:
                parameter.copy_(for_texts[name])
    batch = sample("bert")
    words = batch.source
    with torch.no_grad():
        mask = (words.positions >= 0).long()
        told = body(words.ids, attention_mask=mask, token_type_ids=words.segments)
        found = model.encode(batch)
    for number, row in enumerate(ROWS):
        torch.testing.assert_close(
            found[number, : len(row)], told.last_hidden_state[number, : len(row)], **CLOSE
        )
    if pooled:
        torch.testing.assert_close(model.head(found)[:, 0], told.pooler_output, **CLOSE)


def test_a_head_of_another_task_is_left_out(pipelines, tmp_path):
    saved(tmp_path, "fill", pipelines)
    assert "head.dense.weight" in read_model(tmp_path, head="words").weights
    left = read_model(tmp_path, head="sentence").weights
    assert left and not any(name.startswith(("head.", "output.")) for name in left)
    written(tmp_path / "ours", "classify")
    assert not any(
        name.startswith("output.") for name in read_model(tmp_path / "ours", head="tokens").weights
    )
    assert read_model(tmp_path / "ours").labels == tuple(LABELS.values())


def test_what_old_files_hold_besides_is_passed_over(pipelines, tmp_path):
    theirs = saved(tmp_path, "gpt2", pipelines)
    file = tmp_path / "model.safetensors"
    bare = {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
    bare |= {"h.0.attn.bias": torch.ones(1, 1, 20, 20), "h.2.attn.masked_bias": torch.tensor(-1e4)}
    save_file({**bare, "lm_head.weight": bare["wte.weight"].clone()}, file)
    compare(open_folder(tmp_path).model, theirs, sample("gpt"))
    save_file({**bare, "lm_head.weight": bare["wte.weight"] + 1}, file)
    with pytest.raises(UsageError, match=r'"lm_head\.weight" should be tied'):
        open_folder(tmp_path)
    theirs = saved(tmp_path / "bert", "fill", pipelines)
    file = tmp_path / "bert" / "model.safetensors"
    tensors = load_file(file)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in tensors.items()
    }
    old |= {
        "bert.pooler.dense.weight": torch.ones(16, 16),
        "bert.pooler.dense.bias": torch.ones(16),
        "cls.seq_relationship.weight": torch.ones(2, 16),
        "bert.embeddings.position_ids": torch.arange(20)[None],
    }
    save_file(old, file)
    compare(open_folder(tmp_path / "bert").model, theirs, sample("bert"))
    assert "head.dense.weight" in read_model(tmp_path / "bert", head="sentence").weights
    theirs = saved(tmp_path / "llama", "llama", pipelines)
    file = tmp_path / "llama" / "model.safetensors"
    save_file({**load_file(file), "model.layers.1.self_attn.rotary_emb.inv_freq": torch.ones(2)}, file)
    compare(open_folder(tmp_path / "llama").model, theirs, sample("llama"))


# --- faults


REFUSED = {
    "fill": [
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"type_vocab_size": 3},
        {"hidden_act": "gelu_fast"},
        {"architectures": ["BertForNextSentencePrediction"]},
    ],
    "classify": [
        {"problem_type": "regression"},
        {"id2label": {"0": "number"}},
        {"id2label": {"0": "a", "two": "b"}},
    ],
    "tag": [{"id2label": {"1": "a", "2": "b"}}],
    "gpt2": [
        {"scale_attn_by_inverse_layer_idx": True},
        {"scale_attn_weights": False},
        {"add_cross_attention": True},
        {"activation_function": "tanh"},
        {"architectures": ["GPT2ForSequenceClassification"]},
    ],
    "llama": [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"rope_scaling": {"type": "yarn", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 8.0, "rope_theta": 1e4}},
    ],
    "qwen2": [{"use_sliding_window": True}],
    "qwen3": [{"attention_bias": True}],
    "gemma": [{"use_bidirectional_attention": True}],
    "fill roberta": [{"pad_token_id": -1}],
    "fill mpnet": [{"relative_attention_num_buckets": 16}],
    "fill distilbert": [{"sinusoidal_pos_embds": True}],
    "t5": [{"feed_forward_proj": "gated-tanh"}],
    "marian": [{"normalize_before": True}, {"normalize_embedding": True}],
    "bart": [{"normalize_before": True}, {"encoder_ffn_dim": 9}, {"tie_word_embeddings": False}],
    "mbart": [{"normalize_embedding": False}, {"architectures": ["MBartForSequenceClassification"]}],
    "m2m_100": [{"pad_token_id": "<pad>"}, {"is_decoder": True}],
}


@pytest.mark.parametrize(
    ("name", "change"), [(name, each) for name, listed in REFUSED.items() for each in listed]
)
def test_what_we_cannot_compute_is_refused_by_name(pipelines, name, change, tmp_path):
    saved(tmp_path, name, pipelines)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(UsageError) as caught:
        open_folder(tmp_path)
    said = str(caught.value)
    assert said.startswith(str(file)) and "\n" not in said
    assert next(iter(change)) in said or "regression" in said


@pytest.mark.parametrize("name", ["fill", "gpt2", "llama", "t5", "marian"])
def test_faults_of_a_folder_are_told(pipelines, name, tmp_path):
    saved(tmp_path, name, pipelines)
    file = tmp_path / "model.safetensors"
    whole, tensors = file.read_bytes(), load_file(file)
    victim = sorted(key for key in tensors if "1." in key and tensors[key].dim() == 2)[0]

    def refused(match: str) -> None:
        with pytest.raises(UsageError, match=match) as caught:
            open_folder(tmp_path)
        assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)

    save_file({key: tensor for key, tensor in tensors.items() if key != victim}, file)
    refused(f'"{victim}" is missing')
    save_file({**tensors, "mystery.weight": torch.ones(2)}, file)
    refused('"mystery.weight" is unknown')
    save_file({**tensors, victim: torch.ones(7, 13)}, file)
    refused("shape")
    file.write_bytes(whole[: len(whole) // 2])
    refused(r"model\.safetensors: not a readable")
    file.unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    refused("pytorch_model.bin")
    file.write_bytes(whole)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "vocab_size": 20}))
    refused("another model|decoder_vocab_size")


def test_weights_on_a_gpu_get_their_names_there() -> None:
    """The end of every training of a translator on CUDA: the order of the waves lay on the CPU."""
    shape = TransformerConfig(width=16, heads=2, layers=1)
    model = build(shape, 30)
    with FakeTensorMode(allow_non_fake_inputs=True):
        weights = {name: torch.empty(each.shape, device="cuda") for name, each in model.named_parameters()}
        found = written_as(shape, weights)
    assert len(found) >= len(weights) and "cuda" in {tensor.device.type for tensor in found.values()}


class WindowedGPT(GPTConfig):
    """A gpt with a field that GPT-2's class does not have."""

    window: int = 4


def test_what_a_class_cannot_express_is_not_written_as_that_class() -> None:
    """A gpt with a new field was written as GPT2LMHeadModel, and reopened without it."""
    fields = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 24}
    assert config_json(GPTConfig(**fields), LEARNED, None)["architectures"] == ["GPT2LMHeadModel"]
    content = config_json(WindowedGPT(**fields), LEARNED, None)
    assert (content["model_type"], content["model"]["window"]) == ("regard", 4)
    for change in ({"epsilon": 1e-3}, {"norm": "pre"}, {"head_width": 5}, {"positions": "learned"}):
        assert not opens_in_transformers(TransformerConfig(**fields, **change))
    assert opens_in_transformers(TransformerConfig(**fields), joint=False)
    assert not opens_in_transformers(OurT5Config(**fields), joint=False)
    assert not opens_in_transformers(OurT5Config(**fields, gated=True, activation="gelu"))


def test_several_end_tokens(tmp_path: Path) -> None:
    """`eos_token_id` was never read: models with a list of ends did not stop at the others."""
    file, end = tmp_path / "generation_config.json", LEARNED.end

    def ends(value: object) -> tuple[int, ...]:
        found = special_of({"eos_token_id": value}, file, LEARNED, True)
        assert not {found.end, *found.ends} & {*found.suppressed}
        return found.end, *found.ends

    assert ends(None) == ends(end) == ends([end]) == (end,)
    assert ends([9, end, 8, 9]) == (end, 9, 8)
    assert ends([7, 8]) == (7, 8)
    assert ends([LEARNED.pad, end]) == (end, LEARNED.pad)
    assert ends(10**6) == (end,)  # beyond the vocabulary
    for wrong in ("</s>", [True], [[1]]):
        with pytest.raises(UsageError) as caught:
            ends(wrong)
        assert caught.value.code == "E_GENERATION_CONFIG"


def test_config_show_has_the_shape_of_the_model_to_start_from(
    tmp_path: Path, regard: Callable[..., Any]
) -> None:
    """It showed width 512 and heads 8 where the run used those of the folder."""
    config = own_config("fill")
    folder = tmp_path / "pretrained"
    folder.mkdir()
    write_identity(folder, config, LEARNED, None, 30)
    write_weights(folder, config.model, unique_weights(build(config.model, len(LEARNED))))
    file = tmp_path / "run.toml"
    text = '[task]\nname = "tag"\n[data]\ntrain = "a.conll"\n[train]\nepochs = 2.0\n[init]\nfrom = "{}"\n'
    file.write_text(text.format("pretrained"))
    shown = tomllib.loads(regard("config", "show", file).out)
    assert (shown["model"]["width"], shown["model"]["heads"], shown["model"]["head"]) == (16, 4, "tokens")
    assert not {"steps", "warmup"} & shown["train"].keys()
    file.write_text(text.format("./nothing"))
    result = regard("config", "show", file)
    assert result.code == 0 and "width" not in tomllib.loads(result.out)["model"]
