"""Tokenizers: any text survives, transformers agrees, training repeats itself, errors say what to do."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models

from regard.errors import RegardError, UsageError
from regard.inputs.language import WORDS, by_words
from regard.inputs.text import (
    KINDS,
    LEAST_VOCABULARY,
    SPECIALS,
    Tokenizer,
    huggingface_config,
    load_tokenizer,
    train_tokenizer,
)
from regard.inputs.text.byte_level import BYTE_ALPHABET
from texts import CORPUS, NASTY

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(CORPUS, kind, 600) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
@example(text="".join(NASTY))
def test_any_text_survives(trained: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = trained[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not {tokenizer.pad, tokenizer.end, tokenizer.start, 3} & set(ids)
    assert tokenizer.encode_batch([text, text]) == [ids, ids]


# words, spaces of all kinds, and what Python alone takes for a space
PATCHWORK = st.lists(
    st.sampled_from(
        [*"ab1.'’é日\x1c\x1d\x1e\x1f\x85\xa0\u180e\u200b\u2028\u3000\t\n\r\x0b\x0c", " ", "'s", "<s>", "</s>"]
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=400, deadline=None)
@given(text=PATCHWORK | TEXTS)
@example(text="".join(NASTY))
@example(text="")
def test_words_looked_up_are_what_the_library_says(
    trained: dict[str, Tokenizer], kind: str, text: str
) -> None:
    tokenizer = trained[kind]
    assert tokenizer.encode(text) == tokenizer._pipeline.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*NASTY, *CORPUS[:8]])
def test_nasty_text_survives(trained: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = trained[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode([tokenizer.start, *ids, tokenizer.end, tokenizer.pad]) == text


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(numbers=st.lists(st.integers(-5, 700)))
def test_any_ids_decode(trained: dict[str, Tokenizer], kind: str, numbers: list[int]) -> None:
    tokenizer = trained[kind]
    text = tokenizer.decode(numbers)
    text.encode()
    pieces, words = tokenizer.tokens(numbers), tokenizer.words(numbers)
    assert len(pieces) == len(words) == len(numbers)
    count = len(text.split())
    found = [word for word in words if word >= 0]
    assert found == sorted(found) and all(word < count for word in found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("long", ["a" * 100_000, "ab, é\n" * 17_000, " " * 100_000, "漢字" * 17_000])
def test_long_lines_survive(trained: dict[str, Tokenizer], kind: str, long: str) -> None:
    assert trained[kind].decode(trained[kind].encode(long)) == long


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_agrees(trained: dict[str, Tokenizer], kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    ours = trained[kind]
    ours.save(tmp_path / "tokenizer.json")
    config = huggingface_config(ours, max_length=1_000_000)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.pad_token_id, theirs.eos_token_id, theirs.bos_token_id) == (ours.pad, ours.end, ours.start)
    assert len(theirs) == len(ours)
    for text in [*NASTY, *CORPUS[:8], "A man, é 漢 " * 8_000]:
        ids = theirs(text)["input_ids"]
        assert ids == [*ours.encode(text), ours.end]
        assert theirs.decode(ids, skip_special_tokens=True) == text == ours.decode(ids)
    padded = theirs(["a", "a man in a shirt"], padding=True)
    assert padded["input_ids"][0][-1] == ours.pad
    assert padded["attention_mask"][0][-1] == 0
    broken = list(range(len(ours)))
    assert theirs.decode(broken, skip_special_tokens=True) == ours.decode(broken)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(text=PATCHWORK | TEXTS)
@example(text="".join(NASTY))
@example(text=" \ud800 a\udfff")
def test_spans_are_where_the_pieces_stand(trained: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = trained[kind]
    ids, spans = tokenizer.spans(text)
    assert ids == tokenizer.encode(text) and len(spans) == len(ids)
    plain = text.encode(errors="surrogatepass").decode(errors="replace") if not text.isascii() else text
    for piece, (start, end) in zip(tokenizer.tokens(ids), spans):
        assert 0 <= start <= end <= len(text) and not text[start:end][:1].isspace()
        if "<0x" not in piece and len(plain) == len(text):
            assert piece.lstrip() == plain[start:end]
    assert spans == sorted(spans)
    covered = {place for start, end in spans for place in range(start, end)}
    assert covered >= {place for place, sign in enumerate(text) if not sign.isspace()}


EXTRA = ("<mask>", "<extra_id_0>", "<extra_id_1>", "<extra_id_2>")


@pytest.mark.parametrize("kind", KINDS)
def test_extra_specials_stand_at_the_end(trained: dict[str, Tokenizer], kind: str, tmp_path: Path) -> None:
    plain = trained[kind]
    assert (plain.mask, plain.sentinels) == (None, ())
    more = train_tokenizer(CORPUS, kind, 600, extra=EXTRA)
    size = len(more)
    assert size <= 600
    assert (more.mask, more.sentinels) == (size - 4, (size - 3, size - 2, size - 1))
    assert more.mask in more.suppressed and not set(more.sentinels) & set(more.suppressed)
    assert more.tokens(range(size - 4, size)) == list(EXTRA)
    text = "a <mask> of <extra_id_0>, </s>"
    assert more.decode([*more.encode(text), more.mask]) == text
    assert max(more.encode(text)) < size - 4
    assert more.fingerprint != train_tokenizer(CORPUS, kind, 600, extra=EXTRA[:2]).fingerprint
    more.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path)
    assert (again.mask, again.sentinels, again.fingerprint) == (more.mask, more.sentinels, more.fingerprint)
    assert again.encode(text) == more.encode(text)
    with pytest.raises(UsageError, match=f"at least {LEAST_VOCABULARY + 4}"):
        train_tokenizer(CORPUS, kind, LEAST_VOCABULARY + 3, extra=EXTRA)


TRAIN = """
import hashlib, json, pathlib, sys
from regard.inputs.text import KINDS, train_tokenizer
texts = json.loads(sys.stdin.read())
for kind in KINDS:
    path = pathlib.Path(sys.argv[1]) / (kind + ".json")
    train_tokenizer(iter(texts), kind, 500).save(path)
    print(kind, hashlib.sha256(path.read_bytes()).hexdigest())
"""


def test_training_repeats_itself(tmp_path: Path) -> None:
    words = [hashlib.sha256(bytes([number])).hexdigest()[:7] for number in range(200)]
    corpus = [
        " ".join(words[index % (7 + step)] for index in range(step, 200)) for step in range(60)
    ] + CORPUS
    outputs = []
    for seed, threads in (("1", "1"), ("2", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        command = [sys.executable, "-c", TRAIN, str(tmp_path)]
        result = subprocess.run(
            command, input=json.dumps(corpus), text=True, capture_output=True, env=environment, check=True
        )
        outputs.append(result.stdout)
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    assert tokenizer.tokens([0, 1, 2, 3]) == list(SPECIALS)
    assert (tokenizer.pad, tokenizer.end, tokenizer.start) == (0, 1, 2)
    assert LEAST_VOCABULARY - 1 <= len(tokenizer) <= 600
    small = train_tokenizer(CORPUS, kind, LEAST_VOCABULARY)
    assert len(small) <= LEAST_VOCABULARY
    assert small.decode(small.encode("Ünïcode 漢")) == "Ünïcode 漢"
    tiny = train_tokenizer(["a"], kind, 100_000)
    assert tiny.decode(tiny.encode("Other text.")) == "Other text."


def test_words_and_characters_are_single_pieces(trained: dict[str, Tokenizer]) -> None:
    for kind in ("bpe", "unigram", "word"):
        ids = trained[kind].encode("man in a man")
        assert trained[kind].tokens(ids) == [" man", " in", " a", " man"]
        assert ids[0] == ids[3]
    character = trained["character"]
    assert character.tokens(character.encode("é天 Д")) == ["é", "天", " ", "Д"]
    assert character.tokens(character.encode("€")) == ["<0xE2>", "<0x82>", "<0xAC>"]


def test_words_follow_whitespace(trained: dict[str, Tokenizer]) -> None:
    for tokenizer in trained.values():
        text = " Zwei  Männer, €-scheine!\nend "
        ids = tokenizer.encode(text)
        words = tokenizer.words([*ids, tokenizer.end])
        assert words.pop() == -1
        groups: dict[int, list[int]] = {}
        for number, word in zip(ids, words):
            groups.setdefault(word, []).append(number)
        spelt = [tokenizer.decode(groups[word]).strip() for word in sorted(groups)]
        assert spelt == text.split()
    assert trained["bpe"].words([]) == []
    assert set(trained["bpe"].words(trained["bpe"].encode("   "))) == {-1}


def test_lone_surrogates_are_replaced(trained: dict[str, Tokenizer]) -> None:
    for tokenizer in trained.values():
        assert tokenizer.decode(tokenizer.encode("a\ud800b\udfff")) == "a\ufffdb\ufffd"
    assert train_tokenizer(["a \ud800"], "character", 300).encode("a")


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_pickled_are_the_same(trained: dict[str, Tokenizer], kind: str, tmp_path: Path) -> None:
    tokenizer = trained[kind]
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "tokenizer.json").read_bytes() == (tmp_path / "again.json").read_bytes()
    for copy in (loaded, pickle.loads(pickle.dumps(tokenizer))):  # noqa: S301 - our own bytes
        assert copy.fingerprint == tokenizer.fingerprint
        for text in NASTY:
            assert copy.encode(text) == tokenizer.encode(text)
            assert copy.decode(copy.encode(text)) == text


def test_fingerprints_differ(trained: dict[str, Tokenizer]) -> None:
    others = [train_tokenizer(CORPUS[:3], kind, 400).fingerprint for kind in KINDS]
    assert len({tokenizer.fingerprint for tokenizer in trained.values()} | set(others)) == 2 * len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(alphabet="ab é漢<s>/\n"), min_size=1), size=st.integers(LEAST_VOCABULARY, 300))
def test_any_corpus_can_be_learnt(kind: str, texts: list[str], size: int) -> None:
    tokenizer = train_tokenizer(["x", *texts], kind, size)
    assert len(tokenizer) <= size
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_batch(texts)] == texts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(30)  # quadratic time would take hours
def test_training_on_one_endless_word_ends(kind: str) -> None:
    tokenizer = train_tokenizer(["ab" * 50_000, "c" * 100_000, " " * 100_000 + "d"], kind, 400)
    assert tokenizer.decode(tokenizer.encode("ab" * 10)) == "ab" * 10


def test_learn_refuses_wrong_input() -> None:
    with pytest.raises(UsageError, match='did you mean "unigram"'):
        train_tokenizer(["a"], "unigramm")
    with pytest.raises(UsageError, match=r"bpe.*unigram.*word.*character"):
        train_tokenizer(["a"], "zzz")
    with pytest.raises(UsageError, match=f"at least {LEAST_VOCABULARY}"):
        train_tokenizer(["a"], vocabulary=100)
    for empty in ([], ["", " \n"]):
        with pytest.raises(UsageError, match="no text"):
            train_tokenizer(empty)


def foreign_files() -> dict[str, str]:
    whole = json.loads(tokenizers.Tokenizer(models.BPE()).to_str())
    foreign = tokenizers.Tokenizer(models.WordLevel({name: at for at, name in enumerate(SPECIALS)}, "<unk>"))
    foreign.add_special_tokens(list(SPECIALS))
    return {
        "broken": "{",
        "list": "[]",
        "number": "1",
        "deep": "[" * 100_000,
        "strange": json.dumps({**whole, "model": {"type": "Mystery"}}),
        "no specials": json.dumps(whole),
        "no bytes": foreign.to_str(),
    }


@pytest.mark.parametrize("name", list(foreign_files()))
def test_load_refuses_foreign_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(foreign_files()[name])
    with pytest.raises(UsageError) as caught:
        load_tokenizer(path)
    assert str(path) in str(caught.value)
    assert "give the tokenizer.json" in str(caught.value) or "train it again" in str(caught.value)


def test_load_and_save_name_the_path(tmp_path: Path, trained: dict[str, Tokenizer]) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError, match="tokenizer") as caught:
            load_tokenizer(path)
        assert str(path) in str(caught.value)
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"binary\.json"):
        load_tokenizer(binary)
    with pytest.raises(RegardError, match=r"nowhere"):
        trained["bpe"].save(tmp_path / "nowhere" / "tokenizer.json")


def test_byte_alphabet_is_that_of_the_library() -> None:
    assert set(BYTE_ALPHABET) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("I would like to read this book.", "en"),
        ("Ich möchte dieses Buch lesen, aber ich habe keine Zeit.", "de"),
        ("DON'T do THAT!", "en"),
        ("Hello!", None),
        ("Put the apple in the bin.", None),  # the last is a common word of German
        ("I said: das ist gut.", None),
        ("", None),
        ("123 456", None),
    ],
)
def test_common_words_tell_the_language_where_it_is_plain(text: str, language: str | None) -> None:
    assert by_words(text, ["en", "de"]) == language
    assert by_words(text, ["de", "en"]) == language
    assert by_words(text, ["en", "fr"]) is None, "nothing is known of French"
    assert not WORDS["en"] & WORDS["de"]


def test_the_cache_of_words_is_bounded(trained: dict[str, Tokenizer]) -> None:
    """R16: a server that is fed random words once kept 2^20 of them, some 300 MB."""
    tokenizer = pickle.loads(pickle.dumps(trained["bpe"]))  # noqa: S301 - our own bytes
    rng = random.Random(1)
    words = ["".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(60)) for _ in range(13_000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for word in words:
            tokenizer.encode(word)
        assert tracemalloc.get_traced_memory()[0] - before < 21 << 20
    finally:
        tracemalloc.stop()
    again = trained["bpe"]
    assert [tokenizer.encode(word) for word in words[:100]] == [again.encode(word) for word in words[:100]]
