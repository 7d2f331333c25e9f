"""Tokens: how a text is cut, where the parts come from, their vectors, and texts of different lengths."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.interpret import TracedTokens
from regard.server.lessons.given import Given, Values, cell

TEXT = "new newer newest low lowest wide wider widest slower"
UNSEEN = "lower"
MERGES = 8
SHOWN, NEAR = 12, 6  # numbers of an embedding, and tokens beside it
TEXTS = ("The dog sleeps.", "The old dog sleeps in the garden.", "Yes.")


@cell
def cut(given: Given) -> Values:
    """The tokens of the learner's text."""
    text, tokenizer = given.sentence, given.task.folder.source
    given.check(text)
    ids = given(tokenizer.encode, text)
    shown = TracedTokens.of(tokenizer, ids).shown
    sizes = {"words": len(text.split()), "count": len(ids), "vocabulary": len(tokenizer)}
    return {"tokens": shown, "ids": ids, **sizes}


def count_pairs(words: list[list[str]]) -> Counter[tuple[str, str]]:
    """How often two tokens stand side by side in a word."""
    return Counter(pair for word in words for pair in pairwise(word))


def merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    """A word with each such pair as one token."""
    tokens: list[str] = []
    for token in word:
        if tokens and (tokens[-1], token) == pair:
            tokens[-1] += token
        else:
            tokens.append(token)
    return tokens


@cell
def pairs(given: Given) -> Values:
    """Byte pair encoding of a small text. Of pairs that are equally frequent, the first counts."""
    words, rows, unseen = [list(word) for word in TEXT.split()], [], list(UNSEEN)
    first = given(count_pairs, words).most_common(5)
    for merge in range(1, MERGES + 1):
        pair, times = count_pairs(words).most_common(1)[0]
        words, unseen = [given(merged, word, pair) for word in words], merged(unseen, pair)
        shown = ", ".join("·".join(word) for word in (words[2], words[4], words[7]))
        rows.append([merge, "".join(pair), times, shown])
    names = ["".join(pair) for pair, _ in first]
    options = sorted(names)
    question = {"options": options, "answer": options.index(names[0]), "best": names[0]}
    counts = {"first_pairs": names, "first_counts": [times for _, times in first]}
    return {"text": TEXT, "merges": MERGES, **counts, **question, "rows": rows, "lower": "·".join(unseen)}


def embedding_table(model: nn.Module) -> Tensor:
    """The embeddings of the source's tokens: [vocabulary, D]."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    return max(tables, key=lambda table: table.numel()).detach().float().cpu()


@cell
def embedding(given: Given) -> Values:
    """The table of embeddings, its rows for the learner's text, and the tokens nearest to one of them."""
    folder = given.task.folder
    table, ids = given(embedding_table, folder.model), folder.source.encode(given.sentence)
    count, width = table.shape
    labels = TracedTokens.of(folder.source, ids).shown
    rows = {"rows": labels[:SHOWN], "columns": list(map(str, range(SHOWN)))}
    place = max(range(len(ids)), key=lambda each: len(labels[each]))
    cosines = F.cosine_similarity(table, table[ids[place]][None], dim=-1)
    best = cosines.topk(min(NEAR + 1, count))
    names = TracedTokens.of(folder.source, best.indices.tolist()).shown
    near = [[name, value] for name, value in zip(names, best.values.tolist())][1:]
    sizes = {"vocabulary": count, "width": width, "size": count * width, "parameters": folder.parameters}
    values = table[torch.tensor(ids[:SHOWN])][:, :SHOWN]
    return {
        **sizes,
        "share": count * width / folder.parameters,
        "values": values,
        **rows,
        "word": labels[place],
        "near": near,
    }


@cell
def batch(given: Given) -> Values:
    """Three texts in one block: lengths, padding, and where there is a token."""
    folder = given.task.folder
    lengths = [len(given(folder.source.encode, text)) for text in TEXTS]
    longest = max(lengths)
    mask = [[float(place < length) for place in range(longest)] for length in lengths]
    places = len(TEXTS) * longest
    sizes = {"longest": longest, "places": places, "padding": places - sum(lengths)}
    limits = {"most": folder.config.max_length, "columns": list(map(str, range(longest)))}
    return {"texts": TEXTS, "lengths": lengths, **sizes, **limits, "mask": mask}
