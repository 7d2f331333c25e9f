"""Models with tokens for languages (M2M100, NLLB, mBART) translate as transformers does."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import processors
from transformers import AutoTokenizer, MBart50Tokenizer, MBartTokenizer, NllbTokenizer

import regard
from hf_models import NAMES, seq2seq, shaken, unigram
from regard.config import resolve
from regard.errors import UsageError
from regard.inputs.text import load_tokenizer
from regard.inputs.text.languages import both_between
from regard.server.service import pairs_of
from texts import CORPUS

CODES = ("eng_Latn", "deu_Latn", "fra_Latn")


def with_languages(codes: tuple[str, ...] = CODES) -> tokenizers.Tokenizer:
    pipeline = unigram()
    pipeline.add_special_tokens(list(codes))
    code, end = codes[0], "</s>"
    pipeline.post_processor = processors.TemplateProcessing(
        single=[code, "$A", end],
        pair=[code, "$A", "$B", end],
        special_tokens=[(each, pipeline.token_to_id(each)) for each in (code, end)],
    )
    return pipeline


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nllb")
    pipeline = with_languages()
    pipeline.save(str(path / "tokenizer.json"))
    names = {**NAMES["t5"], "tokenizer_class": "PreTrainedTokenizerFast"}
    (path / "tokenizer_config.json").write_text(json.dumps(names))
    torch.manual_seed(5)
    model = shaken(seq2seq("M2M100", vocab_size=pipeline.get_vocab_size() + 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(path)
    return path


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("target", ["deu_Latn", "fra_Latn"])
def test_ids_are_those_of_transformers(nllb: Path, target: str, beams: int) -> None:
    from transformers import AutoModelForSeq2SeqLM

    ours, theirs = regard.load(nllb, threads=1), AutoModelForSeq2SeqLM.from_pretrained(nllb).eval()
    tokenizer = AutoTokenizer.from_pretrained(nllb)
    texts = ["a", *(" ".join(text.split()[:4]) for text in CORPUS[:4])]
    options = {"beam": beams, "check": False, "split": "never", "decode": {"max_length": 12}}
    results = ours.translate_lines(texts, language=target, source_language="eng_Latn", **options)
    number = tokenizer.convert_tokens_to_ids(target)
    for text, result in zip(texts, results):
        expected = theirs.generate(
            **tokenizer(text, return_tensors="pt"),
            forced_bos_token_id=number,
            num_beams=beams,
            max_new_tokens=12,
            do_sample=False,
            suppress_tokens=sorted(ours.folder.target.suppressed),
        )[0].tolist()
        assert list(result.candidates[0].token_ids) == [each for each in expected[1:] if each != 0]
        assert result.candidates[0].token_ids[0] == number
        assert result.text == tokenizer.decode(expected, skip_special_tokens=True)


def test_the_source_is_named_and_the_target_forced(nllb: Path) -> None:
    ours = regard.load(nllb, threads=1)
    ids, tokens = ours.folder.source.encode("A man"), ours.folder.source.language_tokens
    assert set(tokens) == set(CODES)
    assert set(pairs_of({"nllb": ours})) == {("eng_Latn", code) for code in CODES}
    one = ours.into("fra_Latn", "deu_Latn")
    end = one.folder.source.end
    assert one.source_ids(ids) == [tokens["deu_Latn"], *ids, end]
    assert ours.source_ids(ids) == [tokens["eng_Latn"], *ids, end]
    sample = one.objective.sample(ids, ids[:2])
    assert sample.target == [one.folder.target.start, tokens["fra_Latn"], *ids[:2]]
    assert one.objective.longest == one.folder.config.max_length - 2
    assert pickle.loads(pickle.dumps(one.folder.source)).framed(ids) == one.source_ids(ids)  # noqa: S301
    score = one.score(["A man"], ["A"])[0]
    assert len(score.tokens) == len(score.token_log_probabilities)
    aligned = one.translate_lines(["A man here"], alignment=True, check=False)[0].candidates[0]
    assert all(0 <= left < 3 for left, _ in aligned.alignment)
    assert one.alternatives("A man", num_results=2)


@pytest.mark.parametrize(
    ("language", "source"), [(None, None), ("de", None), ("deu_Latn", "xx"), ("__de__", None)]
)
def test_an_unknown_language_is_refused(nllb: Path, language: str | None, source: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        regard.load(nllb, threads=1).translate("A man", language=language, source_language=source)
    assert caught.value.code == "E_LANGUAGE"
    if language == "de":
        assert "deu_Latn" in str(caught.value)


def test_command(nllb: Path, regard: Callable[..., Any]) -> None:
    result = regard(
        "translate", "-m", nllb, "--language", "fra_Latn", "--source-language", "deu_Latn", "A man"
    )
    assert result.code == 0
    assert regard("translate", "-m", nllb, "A man").code != 0


VOCABULARY = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁a", "m", "n", "a", "▁man"]


def made_by_transformers(kind: str, legacy: bool) -> Any:
    if kind == "nllb":
        words = {name: number for number, name in enumerate(VOCABULARY[:-1])}
        return NllbTokenizer(vocab=words, merges=[], legacy_behaviour=legacy, src_lang="deu_Latn")
    words = [(name, -float(number)) for number, name in enumerate(VOCABULARY)]
    if kind == "mbart50":
        return MBart50Tokenizer(vocab=[words[3], words[0], words[2], *words[4:]], src_lang="de_DE")
    return MBartTokenizer(vocab=words, src_lang="de_DE")


@pytest.mark.parametrize(
    ("kind", "source", "target", "legacy"),
    [
        ("nllb", "fra_Latn", "eng_Latn", False),
        ("nllb", "fra_Latn", "eng_Latn", True),
        ("mbart50", "fr_XX", "en_XX", False),
        ("mbart", "fr_XX", "en_XX", False),
    ],
)
def test_sources_are_framed_as_their_classes_do(
    kind: str, source: str, target: str, legacy: bool, tmp_path: Path
) -> None:
    made_by_transformers(kind, legacy).save_pretrained(tmp_path)
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)
    for language in (None, source):
        if language is not None:
            theirs.src_lang = language
        chosen, _ = both_between((ours, ours), language, target)
        assert chosen.framed(ours.encode("a man")) == theirs("a man")["input_ids"]
        assert chosen.first == theirs.convert_tokens_to_ids(target)
    assert set(CODES if kind == "nllb" else {"de_DE", "fr_XX"}) <= set(ours.language_tokens)


def test_a_run_begins_from_it_with_one_pair_of_languages(nllb: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM

    rows = [f"{' '.join(text.split()[:4])}\t{' '.join(text.split()[1:4])}" for text in CORPUS[:8]]
    (tmp_path / "pairs.tsv").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    tree: dict[str, Any] = {
        "task": {"name": "translate", "source": "deu_Latn", "target": "fra_Latn"},
        "data": {"train": str(tmp_path / "pairs.tsv"), "valid": str(tmp_path / "pairs.tsv"), "leaks": "keep"},
        "init": {"from": str(nllb)},
        "train": {"steps": 2, "tokens_per_batch": 128, "checkpoint_every": 2, "validate_sentences": 2},
    }
    regard.train(resolve(tree), tmp_path / "run")
    ours, theirs = regard.load(tmp_path / "run", threads=1), AutoTokenizer.from_pretrained(nllb)
    theirs.src_lang = "deu_Latn"
    ids, tokens = ours.folder.source.encode("a"), ours.folder.source.language_tokens
    assert ours.source_ids(ids) == [tokens["deu_Latn"], *ids, ours.folder.source.end]
    result = ours.translate_lines(["a"], beam=1, check=False, decode={"max_length": 6})[0].candidates[0]
    assert result.token_ids[0] == tokens["fra_Latn"]
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run").eval()
    told = model.generate(torch.tensor([ours.source_ids(ids)]), max_new_tokens=6, num_beams=1)[0, 1:].tolist()
    assert list(result.token_ids) == told
    tree["task"]["target"] = "de"
    with pytest.raises(UsageError) as caught:
        regard.train(resolve(tree), tmp_path / "other")
    assert caught.value.code == "E_LANGUAGE"
