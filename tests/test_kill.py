"""kill -9 at any moment, then --resume: the same bits as an uncut run (a short sample of bench/kills.py)."""

from __future__ import annotations

from kills import trial

SHORT = """
[data]
train = "pairs.tsv"
valid = "pairs.tsv"
leaks = "keep"
[text]
kind = "word"
vocabulary = 300
[model]
width = 32
layers = 1
heads = 4
feed_forward = 64
[train]
steps = 60
tokens_per_batch = 256
checkpoint_every = 3
validate_every = 15
validate_sentences = 8
threads = 1
"""


def test_killed_and_resumed_is_the_same(tmp_path):
    lines = [f"{a} {b} {c}\t{c} {b} {a}" for a in "abcdef" for b in "ghijkl" for c in "mnopqr"]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    result = trial(kills=3, seed=4, work=tmp_path, config_text=SHORT)
    assert result["kills"] == 3 and result["finished"] >= 1 and result["different"] == 0
