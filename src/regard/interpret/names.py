"""The names of a trace: one table for the reader, for the tests and for files that others wrote.

`#` is the number of a layer, from 0. Shapes: S source pieces, T target pieces, D width, H heads, G heads of
keys and values (H unless they are shared), C channels per head, R turned pairs of them, F feed-forward,
N layers and the embedding, K best words, E width of one reading direction, P*D a cell's whole state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from regard.errors import UsageError


@dataclass(frozen=True)
class Name:
    pattern: str
    shape: str  # letters with spaces between
    meaning: str

    @property
    def rank(self) -> int:
        return len(self.shape.split())


ATTENTION = (  # Q queries, L keys
    ("norm", "Q D", "pre-norm only: the normalised words that the attention reads"),
    ("query", "H Q C", "q = W_Q x of each head; turned, where positions turn them (Llama)"),
    ("key", "G L C", "k = W_K x"),
    ("value", "G L C", "v = W_V x"),
    ("mask", "Q L", "true where a query may see a key"),
    ("scores", "H Q L", "q . k / sqrt(C), with T5's bias; not yet masked"),
    ("weights", "H Q L", "softmax of the scores over the visible keys: rows sum to 1, hidden keys have 0"),
    ("mixed", "H Q C", "sum of the values by the weights"),
    ("output", "Q D", "all heads together: concat(mixed) W_O"),
    ("value_norms", "H L", "length of v_j W_O for each head: how much a key has to give"),
    ("sum", "Q D", "post-norm only: the words and the output, before the layer norm"),
)
FEED_FORWARD = (
    ("norm", "Q D", "pre-norm only: the normalised words that it reads"),
    ("hidden", "Q F", "after the activation (and the gate)"),
    ("output", "Q D", "what is added to the stream"),
    ("sum", "Q D", "post-norm only: the words and the output, before the layer norm"),
)
EMBEDDING = (
    ("tokens", "Q D", "the vector of each piece, times sqrt(D) in the paper's model"),
    ("positions", "Q D", "what is added for its place (not T5, not turned positions)"),
    ("sum", "Q D", "all of them together"),
    ("out", "Q D", "what the first layer reads; BERT normalises the sum"),
)
GATES = (
    ("input", "LSTM: how much of the candidate enters"),
    ("forget", "LSTM: how much of the memory stays"),
    ("output", "LSTM: how much of the memory is shown"),
    ("reset", "GRU: how much of the old state the candidate sees"),
    ("update", "GRU: how much of the old state stays"),
    ("candidate", "what is new at this step"),
    ("hidden", "the hidden state after this step"),
    ("memory", "LSTM: the memory after this step"),
)


def _stack(side: str, own: str) -> Iterator[Name]:
    for name, shape, meaning in EMBEDDING:
        yield Name(f"{side}.embedding.{name}", shape.replace("Q", own), meaning)
    yield Name(f"{side}.positions.bias", f"H {own} {own}", "T5: what is added to the scores for a distance")
    looks = [("self", own, own)]
    if side == "encoder":
        yield Name("encoder.embedding.segments", "S D", "BERT: what is added for the first or second text")
    else:
        looks.append(("cross", "T", "S"))
        yield Name("decoder.positions.cosine", "T R", "turned positions (Llama): cosine of each pair's angle")
        yield Name("decoder.positions.sine", "T R", "turned positions (Llama): sine of each pair's angle")
    for kind, queries, keys in looks:
        for name, shape, meaning in ATTENTION:
            letters = shape.replace("Q", queries).replace("L", keys)
            yield Name(f"{side}.#.{kind}.{name}", letters, meaning)
        yield Name(f"{side}.#.after_{kind}", f"{own} D", f"the residual stream behind {kind}-attention")
    for name, shape, meaning in FEED_FORWARD:
        yield Name(f"{side}.#.feed_forward.{name}", shape.replace("Q", own), meaning)
    yield Name(f"{side}.#.out", f"{own} D", "the residual stream behind the layer")
    yield Name(f"{side}.out", f"{own} D", "behind the last layer and, with pre-norm, the last norm")


def _recurrent() -> Iterator[Name]:
    yield Name("encoder.embedding", "S D", "RNN: the vector of each piece")
    for way in ("forward", "backward"):
        for gate, meaning in GATES:
            yield Name(f"encoder.#.{way}.{gate}", "S E", f"{meaning}; reading {way}s")
    yield Name("encoder.#.hidden", "S D", "RNN: the hidden states of a layer, both directions joined")
    yield Name("decoder.first", "L P", "RNN: the writer's first state, layer by layer")
    yield Name("decoder.embedding", "T D", "RNN: the vector of each piece")
    for gate, meaning in GATES:
        yield Name(f"decoder.#.{gate}", "T D", meaning)
    for name, shape, meaning in (
        ("query", "T D", "the writer's state before the step"),
        ("key", "S D", "what the states of the source are compared by"),
        ("value", "S D", "the reader's states, which are mixed"),
        ("scores", "1 T S", "how well each source state fits, v . tanh(W s + U h)"),
        ("weights", "1 T S", "softmax of the scores: rows sum to 1"),
        ("context", "T D", "sum of the reader's states by the weights"),
    ):
        yield Name(f"decoder.cross.{name}", shape, f"Bahdanau: {meaning}")


def _ends() -> Iterator[Name]:
    yield Name("head", "O D", "BERT: what the task's head makes of the words, or of the first one")
    yield Name("logits", "O A", "one number for each word of the vocabulary, label, or end of an answer")
    yield Name("lens.ids", "N Q K", "logit lens: the best words read off the stream at each depth")
    yield Name("lens.probabilities", "N Q K", "and their probabilities")


TABLE: tuple[Name, ...] = (*_stack("encoder", "S"), *_stack("decoder", "T"), *_recurrent(), *_ends())
PATTERNS: Mapping[str, Name] = {name.pattern: name for name in TABLE}
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


@cache
def described(name: str) -> Name | None:
    """What the table says of a tensor."""
    return PATTERNS.get(_NUMBER.sub("#", name))


def check_shapes(shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, int]) -> None:
    """Each name is one of the table, and a letter means one number in the whole trace.

    `known` are the letters that the pieces settle: S and T.
    """
    letters = dict(known)
    for name, shape in shapes.items():
        told = described(name)
        if told is None:
            raise UsageError(f'"{name}" is no name of a trace')
        if len(shape) != told.rank:
            raise UsageError(f"{name} has {len(shape)} dimensions, not {told.rank} ({told.shape})")
        for letter, size in zip(told.shape.split(), shape):
            wanted = 1 if letter == "1" else letters.setdefault(letter, size)
            if size != wanted:
                raise UsageError(f"{name}: {letter} is {size}, but {wanted} elsewhere in the trace")
