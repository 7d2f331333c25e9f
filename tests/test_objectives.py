"""What models are asked: every objective as a law, from rows of text to samples."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batches import generator
from regard.data.dataset import RowPool, TokenColumn, offsets
from regard.data.objectives import (
    CausalLM,
    Classify,
    Encodings,
    ExtractiveQA,
    MaskedLM,
    SpanCorruption,
    Tag,
)
from regard.data.objectives.language import random_partition
from regard.data.readers import CONTINUED, LABEL_SEPARATOR, MORE
from regard.data.readers.text import document_rows
from regard.inputs.text import train_tokenizer
from regard.sample import IGNORED, Example

TEXTS = ["the small cat sleeps", "a cat and a dog", "the dogs see the cats", "small houses, large dogs"] * 4
SENTINELS = tuple(f"<extra_id_{n}>" for n in range(20))
TOKENIZER = train_tokenizer(TEXTS, "bpe", 300, ("<mask>", *SENTINELS))
WORDS = st.text("abcdefg", min_size=1, max_size=6)
SENTENCES = st.lists(WORDS, min_size=1, max_size=20).map(" ".join)
RNGS = st.integers(0, 1000).map(lambda seed: generator(seed, 0, 0))


def pool_of(columns: Encodings) -> RowPool:
    return RowPool(*(TokenColumn(ids, offsets(lengths)) for ids, lengths in (columns.source, columns.target)))


# --- what comes next


def documents(draw_texts: list[str]) -> list[tuple[int, str, str]]:
    return [(number, text, "") for number, text in enumerate(draw_texts, start=1)]


@settings(max_examples=60, deadline=None)
@given(st.lists(SENTENCES, min_size=1, max_size=8), st.integers(2, 40), RNGS)
def test_packed_windows_hold_every_piece_once_and_no_padding(texts, window, rng):
    objective = CausalLM(TOKENIZER, window)
    layout = objective.layout(pool_of(objective.encode(documents(texts))), rng)
    samples = [layout.sample(number, rng) for number in range(len(layout.lengths))]
    asked = Counter(label for sample in samples for label in sample.labels)
    wanted = Counter(piece for text in texts for piece in [*TOKENIZER.encode(text), TOKENIZER.end])
    assert asked == wanted
    sizes = [len(sample.target) for sample in samples]
    assert all(size == window for size in sizes[1:-1]) and max(sizes) <= window


@settings(max_examples=60, deadline=None)
@given(st.lists(SENTENCES, min_size=1, max_size=8), st.integers(2, 40), RNGS)
def test_a_packed_window_keeps_its_documents_apart(texts, window, rng):
    objective = CausalLM(TOKENIZER, window)
    whole = {(TOKENIZER.start, *TOKENIZER.encode(text), TOKENIZER.end) for text in texts}
    layout = objective.layout(pool_of(objective.encode(documents(texts))), rng)
    for number in range(len(layout.lengths)):
        sample = layout.sample(number, rng)
        for document in set(sample.documents):
            places = [place for place, own in enumerate(sample.documents) if own == document]
            assert [sample.positions[place] for place in places] == list(range(len(places)))
            said = [sample.target[places[0]], *(sample.labels[place] for place in places)]
            assert any(is_inside(said, text) for text in whole)


def is_inside(part: list[int], whole: tuple[int, ...]) -> bool:
    return any(list(whole[first : first + len(part)]) == part for first in range(len(whole)))


def test_epochs_cut_the_same_text_at_other_places():
    objective = CausalLM(TOKENIZER, 8)
    pool = pool_of(objective.encode(documents(TEXTS)))
    first, again, other = (objective.layout(pool, generator(seed, 0, 0)) for seed in (1, 1, 2))
    rng = generator(0, 0, 0)
    assert first.sample(2, rng) == again.sample(2, rng) != other.sample(2, rng)


@pytest.mark.parametrize("kind", ["bpe", "character", "word", "unigram"])
@pytest.mark.parametrize("place", [13, 20])
def test_a_document_of_several_rows_is_one_document(kind, place):
    """A part that began with a space lost it, and the first token of a part was never predicted."""
    text = "the small cat sleeps\n and the dogs see it"
    tokenizer = train_tokenizer(TEXTS, kind, 300)
    rows = [(1, text[:place], MORE + text[place:]), (2, text[place:], CONTINUED)]
    ids = [tokenizer.start, *tokenizer.encode(text), tokenizer.end]
    first, second = CausalLM(tokenizer, 99).chunks(rows)
    assert first[:-1] + second == ids
    assert first[-1] == second[0]
    assert tokenizer.decode(first[:-1] + second) == text
    samples = CausalLM(tokenizer, 99).eval_samples(rows)
    assert [token for sample in samples for token in sample.labels] == ids[1:], "each token is predicted once"
    old = list(CausalLM(tokenizer, 99, across_rows=False).chunks(rows))
    assert old == [first[:-1], second], "a run of version 2 keeps its samples"


@given(st.text("ab +-\n\u00e9", min_size=1, max_size=60), st.sampled_from([3, 8]))
def test_each_token_of_a_long_document_is_predicted_once(text, longest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.data.readers.text.LONGEST_PART", longest)
        rows = list(document_rows([(1, text)]))
    objective = CausalLM(TOKENIZER, 99)
    ids = [token for _, part, target in rows for token in objective.token_ids(part, target)]
    labels = [token for sample in objective.eval_samples(rows) for token in sample.labels]
    assert labels == ids[1:]


@pytest.mark.parametrize("dropped", [0, 1, 2, 3])
def test_a_dropped_row_changes_no_other_document(dropped):
    """Without the last part of a document (a duplicate or a leak), the next one had no <s>."""
    rows = [
        (1, "the small", MORE + " cat"),
        (2, " cat", CONTINUED + MORE + " sleeps"),
        (3, " sleeps", CONTINUED),
        (4, "a dog", ""),
    ]
    objective = CausalLM(TOKENIZER, 99)
    every = [objective.encode([row]).source[0].tolist() for row in rows]
    source, _ = objective.encode(rows[:dropped] + rows[dropped + 1 :]).source
    assert source.tolist() == [token for ids in every[:dropped] + every[dropped + 1 :] for token in ids]
    assert [TOKENIZER.start in ids for ids in every] == [True, False, False, True]
    assert [TOKENIZER.end in ids for ids in every] == [False, False, True, True]


def test_held_out_text_is_asked_in_windows_one_after_another():
    samples = CausalLM(TOKENIZER, 5).eval_samples(documents(["the small cat sleeps and sleeps"]))
    ids = [TOKENIZER.start, *TOKENIZER.encode("the small cat sleeps and sleeps"), TOKENIZER.end]
    assert [piece for sample in samples for piece in sample.target] == ids[:-1]
    assert [piece for sample in samples for piece in sample.labels] == ids[1:]


# --- what was hidden


@settings(max_examples=60, deadline=None)
@given(SENTENCES, st.booleans(), RNGS)
def test_masked_words_are_asked_and_only_they(text, whole_words, rng):
    objective = MaskedLM(TOKENIZER, 200, 0.15, whole_words=whole_words)
    ids = TOKENIZER.encode(text)
    words = [word + 1 for word in TOKENIZER.words(ids)]
    sample = objective.sample(ids, words, rng)
    asked = [place for place, label in enumerate(sample.labels) if label != IGNORED]
    assert asked and len(sample.labels) == len(sample.source) == len(ids) + 2
    for place, piece in enumerate(ids, start=1):
        assert sample.labels[place] in (IGNORED, piece)
        if sample.labels[place] == IGNORED:
            assert sample.source[place] == piece
    if whole_words:
        hidden = {words[place - 1] for place in asked}
        assert asked == [place for place, word in enumerate(words, start=1) if word in hidden]


def test_of_hidden_pieces_eight_in_ten_read_as_the_mask_and_one_as_another():
    objective, ids = MaskedLM(TOKENIZER, 512, 0.15), list(range(300))
    fates: Counter[str] = Counter()
    for seed in range(200):
        sample = objective.sample(ids, ids, generator(seed, 0, 0))
        for place, label in enumerate(sample.labels):
            if label != IGNORED:
                read = sample.source[place]
                fates["mask" if read == TOKENIZER.mask else "same" if read == label else "other"] += 1
    total = sum(fates.values())
    assert total == 200 * round(0.15 * 300)
    assert fates["mask"] / total == pytest.approx(0.8, abs=0.02)
    assert fates["same"] / total == pytest.approx(0.1, abs=0.02)


@settings(max_examples=80, deadline=None)
@given(SENTENCES, st.floats(0.05, 0.6), st.floats(1, 5), RNGS)
def test_a_text_with_its_spans_put_back_is_the_text(text, share, mean, rng):
    objective, ids = SpanCorruption(TOKENIZER, 400, share, mean_span=mean), TOKENIZER.encode(text)
    sample = objective.sample(ids, [0] * len(ids), rng)
    assert list(sample.target) == [TOKENIZER.start, *sample.labels[:-1]]
    assert sample.source[-1] == sample.labels[-1] == TOKENIZER.end
    spans: dict[int, list[int]] = {}
    for piece in sample.labels[:-1]:
        if piece in TOKENIZER.sentinels:
            spans[piece] = []
        else:
            spans[list(spans)[-1]].append(piece)
    whole = [piece for read in sample.source[:-1] for piece in spans.get(read, [read])]
    assert whole == ids
    assert list(spans) == list(TOKENIZER.sentinels[: len(spans)])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), RNGS)
def test_drawn_parts_add_up(total, count, rng):
    parts = random_partition(max(total, count), count, rng)
    assert sum(parts) == max(total, count) and len(parts) == count and min(parts) >= 1


def test_hidden_spans_stand_everywhere_in_a_short_text():
    """A text of one span was always hidden at its end, so that nothing else was ever learned."""
    objective = SpanCorruption(TOKENIZER, 100, 0.15)
    ids = list(range(50, 60))
    read = [objective.sample(ids, ids, generator(seed, 0, 0)).source for seed in range(200)]
    assert {list(source).index(TOKENIZER.sentinels[0]) for source in read} == set(range(9))


@pytest.mark.parametrize("objective", [MaskedLM(TOKENIZER, 12, 0.2), SpanCorruption(TOKENIZER, 12, 0.2)])
def test_long_lines_are_cut_and_nothing_is_lost(objective):
    text = " ".join(TEXTS)
    source, lengths = objective.encode([(1, text, "")]).source
    assert source.tolist() == TOKENIZER.encode(text) and max(lengths) == 10


# --- what a text is, and its words


def test_labels_of_a_text():
    rows = [(1, "the cat", "animal"), (2, "a house", "thing"), (3, " ".join(TEXTS), "thing")]
    one = Classify(TOKENIZER, 20, ["animal", "thing"])
    columns = one.encode(rows)
    assert [number for number, _ in columns.too_long] == list(one.left_out(rows)) == [2]
    sample = one.sample(TOKENIZER.encode("the cat"), [0])
    assert sample.source == [TOKENIZER.start, *TOKENIZER.encode("the cat"), TOKENIZER.end]
    assert sample.labels == [0]

    def labels_of(objective, target):
        return [each.labels for each in objective.eval_samples([Example("the cat", target)])]

    assert labels_of(one, "never seen") == [[IGNORED]]
    many = Classify(TOKENIZER, 20, ["a", "b", "c"], many=True)
    assert labels_of(many, LABEL_SEPARATOR.join("ca")) == [[1, 0, 1]]
    assert labels_of(many, "") == [[0, 0, 0]]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text("abcé字🙂-.", min_size=1, max_size=5), min_size=1, max_size=12))
def test_each_word_is_asked_at_its_first_piece(words):
    objective = Tag(TOKENIZER, 400, ["O", "B-X"])
    tags = ["B-X" if number % 3 else "O" for number in range(len(words))]
    columns = objective.encode([(1, " ".join(words), " ".join(tags))])
    labels = objective.sample(columns.source[0].tolist(), columns.target[0].tolist()).labels
    asked = [place for place, label in enumerate(labels) if label != IGNORED]
    assert [labels[place] for place in asked] == [int(tag == "B-X") for tag in tags]
    _, spans = TOKENIZER.spans(" ".join(words))
    begins = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
    for place, begin in zip(asked, begins):
        assert spans[place - 1][0] <= begin < spans[place - 1][1]


# --- where the answer stands


@settings(max_examples=80, deadline=None)
@given(SENTENCES, st.lists(WORDS, min_size=1, max_size=40), st.data())
def test_windows_cover_the_context_and_point_at_the_answer(question, words, data):
    context = " ".join(words)
    objective = ExtractiveQA(TOKENIZER, 24 + len(TOKENIZER.encode(question)), stride=6)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, min(first + 2, len(words) - 1)))
    start = len(" ".join(words[:first])) + bool(first)
    answer = " ".join(words[first : last + 1])
    windows = objective.windows(question, context)
    _, spans = TOKENIZER.spans(context)
    assert {span for window in windows for span in window.spans} == set(spans)
    assert all(len(window.ids) <= objective.max_length for window in windows)
    places = [objective.first_answer(window, json.dumps([[answer, start]])) for window in windows]
    for window, (one, two) in zip(windows, places):
        if (one, two) != (0, 0):
            own = window.spans[one - window.begins][0], window.spans[two - window.begins][1]
            assert context[own[0] : own[1]] == answer
    if len(windows) == 1:
        assert places != [(0, 0)]


def test_a_question_without_room_for_its_context_is_left_out_and_named():
    objective = ExtractiveQA(TOKENIZER, 16, stride=4)
    rows = [(7, " ".join(TEXTS) + "\nthe cat", "[]"), (8, "cat\nthe cat sleeps", "[]")]
    assert [number for number, _ in objective.encode(rows).too_long] == list(objective.left_out(rows)) == [0]


def test_no_answer_is_the_start():
    objective = ExtractiveQA(TOKENIZER, 40, stride=4)
    columns = objective.encode([(1, "who sleeps\nthe cat sleeps", "[]")])
    sample = objective.sample(columns.source[0].tolist(), columns.target[0].tolist())
    assert sample.labels == [0, 0]
    begins = sample.segments.index(1)
    assert sample.source[begins - 1] == TOKENIZER.end
    assert sample.source[begins:-1] == TOKENIZER.encode("the cat sleeps")
