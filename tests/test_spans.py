"""Parts of a text that are no language: found, masked, put back; tokens of a tokenizer that knows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.objectives import Seq2Seq
from regard.inputs.text import load_tokenizer, train_tokenizer
from regard.inputs.text.spans import (
    KINDS,
    SCRIPT,
    TOKEN,
    find_spans,
    is_complete,
    mask,
    mask_pair,
    placeholder_tokens,
    unmask,
)
from regard.sample import Example

ITEMS = {
    "url": ["http://example.org/a?b=1", "https://x.org/", "www.example.org/a"],
    "email": ["bob.s@ex-am.org"],
    "tag": ["<b>", "</b>", "<br/>", '<a href="x y">'],
    "placeholder": ["{name}", "%s", "%(x)d", "${x}", "{{ x }}", "$HOME", "&amp;"],
    "token": ["⟦3⟧"],
    "path": ["report.pdf", "/etc/fstab", "~/a.txt", "C:\\Windows\\x.ini", "src/main.py"],
    "code": ["snake_case", "camelCase()", "call()", "--option", "GPT-2", "`a b`"],
    "emoji": ["😊", "👩‍👩‍👧‍👦", "🇩🇪", "❤️", "1️⃣", "👍🏽"],
    "number": [
        *("1,234.50 EUR", "19 %", "$5", "€3.20", "3 km", "1000", "2024-05-01", "12:30", "3/4/2020"),
        *("+27", "#7", "95.8t", "866kcal"),
    ],
    "word": ["x" * 60],
}
CASES = [(kind, item) for kind, items in ITEMS.items() for item in items]
texts = st.text() | st.lists(
    st.sampled_from([item for _, item in CASES] + ["word ", " ", ", ", "⟦", "⟧", "9", "."]), max_size=30
).map("".join)


@pytest.mark.parametrize(("kind", "item"), CASES)
def test_found_as_a_whole(kind: str, item: str) -> None:
    text = f"We saw {item} there."
    assert [(text[span.start : span.end], span.kind) for span in find_spans(text)] == [(item, kind)]
    assert TOKEN.sub("X", mask(text).text) == "We saw X there."


@pytest.mark.parametrize(
    "text",
    [
        "Tom is 5 and Mary is 12 years old.",
        "He/she said: and/or, R&D (no), at 5:30 p.m. or 11:30 am.",
        "GOOD MORNING, HOW ARE YOU? It's 1st, 20th.",
        "Das ist z. B. ein Donaudampfschifffahrtsgesellschaftskapitän - oder?",
        "我的朋友住在很远很远的地方" * 10,
    ],
)
def test_language_is_not_a_span(text: str) -> None:
    assert find_spans(text) == []


def test_words_in_another_script_are_spans_where_they_are_asked_for() -> None:
    text = "He said שלום עולם in 東京, www.x.org 2 μm हिन्दी."
    found = {text[span.start : span.end] for span in find_spans(text, KINDS | SCRIPT)}
    assert found == {"שלום עולם", "東京", "www.x.org", "हिन्दी"}
    assert [span.kind for span in find_spans(text)] == ["url"]


@given(texts)
def test_spans_in_order_and_apart(text: str) -> None:
    spans = find_spans(text)
    edges = [place for span in spans for place in (span.start, span.end)]
    assert edges == sorted(edges) and all(span.start < span.end for span in spans)
    assert {span.kind for span in spans} <= KINDS


@given(texts, st.integers(1, 12))
def test_unmask_inverts_mask(text: str, count: int) -> None:
    masked = mask(text, count)
    assert unmask(masked.text, masked.items) == text
    assert len(TOKEN.findall(masked.text)) == len(masked.items) == len(find_spans(text))


@given(texts, texts)
def test_pairs_share_their_tokens(source: str, target: str) -> None:
    left, right = mask_pair(source, target)
    assert is_complete(left, right) or TOKEN.search(source + target)
    assert mask_pair(source, target, every=True)[0] == mask(source).text


def test_pair_of_numbers_and_what_only_one_side_has() -> None:
    left, right = mask_pair(
        "It costs 1,234.50 EUR at http://x.org in 1999.", "Auf http://x.org: 1.234,50 EUR."
    )
    names = TOKEN.findall(left)
    assert left == f"It costs {names[0]} at {names[1]} in 1999." and right == f"Auf {names[1]}: {names[0]}."


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character"])
def test_tokens_of_a_tokenizer(tmp_path, kind: str) -> None:
    corpus = ["See the page now.", "It costs much, he said."] * 20
    plain = train_tokenizer(corpus, kind, 400)
    made = train_tokenizer(corpus, kind, 400, placeholder_tokens(3))
    made.save(tmp_path / "tokenizer.json")
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert len(tokenizer.placeholders) == 3 and plain.placeholders == ()
    assert tokenizer.fingerprint == made.fingerprint != plain.fingerprint
    text = "See ⟦1⟧, (⟦0⟧)⟦2⟧ now ⟦7⟧."
    ids = tokenizer.encode(text)
    assert [n for n in ids if n in tokenizer.placeholders] == [tokenizer.placeholders[n] for n in (1, 0, 2)]
    assert tokenizer.decode(ids) == text
    assert tokenizer.words(ids)[-1] == len(text.split()) - 1


def test_training_pairs_and_evaluation_agree() -> None:
    corpus = ["See the page now.", "It costs much, he said."] * 20
    tokenizer = train_tokenizer(corpus, "bpe", 400, placeholder_tokens(10))
    objective = Seq2Seq(tokenizer, tokenizer)
    source, target = "See http://x.org now for $500.", "Siehe http://x.org jetzt."
    (sample,) = objective.eval_samples([Example(source, target)])
    assert objective.unmasked(tokenizer.decode(sample.target), source) == target
    assert tokenizer.decode(sample.source_ids) == mask(source).text
    assert objective.masked(source, target)[0].endswith("for $500.")  # training: only one side has it
