"""The models before the Transformer: equal to torch's cells and to the papers' equations, step by step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from conftest import toy_sentences, toy_translation, write_toy_corpus
from regard.batch import collate
from regard.config import BahdanauConfig, resolve
from regard.errors import UsageError
from regard.interpret import Recorder, cross_weights
from regard.models.families import build
from regard.models.recurrent import GRU, LSTM, Memory, run_cell
from regard.sample import Sample
from samples import END, START, random_samples, small
from traced_models import opened_task


@pytest.mark.parametrize(("own", "theirs"), [(LSTM, nn.LSTM), (GRU, nn.GRU)])
def test_a_cell_is_that_of_torch(own, theirs):
    """torch orders the gates as we do; an LSTM has two biases there, whose sum is our one."""
    torch.manual_seed(0)
    cell, reference = own(5, 7).double(), theirs(5, 7, batch_first=True).double()
    with torch.no_grad():
        cell.read.weight.copy_(reference.weight_ih_l0)
        cell.recur.weight.copy_(reference.weight_hh_l0)
        if own is GRU:
            cell.read.bias.copy_(reference.bias_ih_l0)
            cell.recur.bias.copy_(reference.bias_hh_l0)
        else:
            cell.read.bias.copy_(reference.bias_ih_l0 + reference.bias_hh_l0)
    x = torch.randn(3, 6, 5, dtype=torch.float64)
    hidden, last = run_cell(cell, x, torch.ones(3, 6, dtype=torch.bool))
    expected, state = reference(x)
    torch.testing.assert_close(hidden, expected)
    parts = [state[0], state[1]] if own is LSTM else [state]
    torch.testing.assert_close(last, torch.cat([part[0] for part in parts], dim=-1))


@pytest.mark.parametrize("backwards", [False, True])
def test_padding_anywhere_changes_nothing(backwards):
    torch.manual_seed(1)
    cell, x = GRU(4, 6), torch.randn(1, 5, 4)
    expected, last = run_cell(cell, x, torch.ones(1, 5, dtype=torch.bool), backwards)
    gaps = [0, 2, 3, 6, 8]
    spread = torch.randn(1, 9, 4)
    spread[:, gaps] = x
    valid = torch.zeros(1, 9, dtype=torch.bool)
    valid[:, gaps] = True
    hidden, after = run_cell(cell, spread, valid, backwards)
    torch.testing.assert_close(hidden[:, gaps], expected)
    torch.testing.assert_close(after, last)


def test_the_equations_of_bahdanau_by_hand():
    """e_ij = v . tanh(W s + U h_j), a_ij = softmax_j(e_ij), c_i = sum_j a_ij h_j, one number at a time."""
    model = small(3, family="bahdanau", layers=1, cell="gru")
    writer, score = model.decoder, model.decoder.score
    encoded, state = torch.randn(1, 4, 16), torch.randn(1, 1, 16)
    memory = Memory(score.keys(encoded), encoded, torch.tensor([[[True, True, True, False]]]))
    context, _, weights = writer.attend(state, memory)
    e = torch.stack(
        [
            score.value.weight[0]
            @ torch.tanh(score.query.weight @ state[0, 0] + score.key.weight @ h + score.key.bias)
            for h in encoded[0, :3]
        ]
    )
    a = e.exp() / e.exp().sum()
    torch.testing.assert_close(weights[0, 0], torch.cat([a, torch.zeros(1)]))
    torch.testing.assert_close(context[0], sum(a[j] * encoded[0, j] for j in range(3)))


def test_forward_and_backward_states_are_joined():
    """128 + 128 = 256: at the first word, what reads backwards knows the last one already."""
    model = build(BahdanauConfig(width=256, layers=1, dropout=0.0), 30).eval()
    x = torch.randn(1, 5, 256)
    other = x.clone()
    other[:, -1] += 1
    valid = torch.ones(1, 5, dtype=torch.bool)
    with torch.no_grad():
        one, two = model.encoder(x, valid)[0], model.encoder(other, valid)[0]
    assert one.shape == (1, 5, 256)
    assert torch.equal(one[0, 0, :128], two[0, 0, :128])
    assert not torch.equal(one[0, 0, 128:], two[0, 0, 128:])


def test_a_reversed_source_is_read_from_its_end():
    forwards, backwards = (small(2, family="rnn", reverse_source=reverse) for reverse in (False, True))
    sample = Sample([5, 6, 7, END], [START, 8], [8, END])
    turned = Sample([END, 7, 6, 5], [START, 8], [8, END])
    with torch.no_grad():
        torch.testing.assert_close(backwards(collate([sample])), forwards(collate([turned])))


def test_where_a_step_looked_is_recorded():
    model, samples = small(5, family="bahdanau"), random_samples(3)
    tables = cross_weights(model, samples)
    for table, sample in zip(tables, samples):
        assert table.shape == (len(sample.target), len(sample.source))
        torch.testing.assert_close(table.sum(dim=1), torch.ones(len(sample.target)))
    recorder = Recorder()
    model(collate(samples), recorder)
    assert {
        "encoder.embedding",
        "encoder.0.hidden",
        "decoder.first",
        "decoder.cross.scores",
        "logits",
    } <= set(recorder.tensors)


def test_a_model_that_never_looks_back_has_no_alignment():
    """It had one: every word came from the first, since the best of many zeros is the first."""
    with pytest.raises(UsageError, match="no cross-attention"):
        opened_task("rnn").translate_lines(["the cat"], alignment=True)


def test_half_precision_keeps_the_memory():
    """In bfloat16 a cell adds to a memory of 24 bits, not of 8: small steps are not lost."""
    cell, x = LSTM(4, 4), torch.zeros(1, 300, 4)
    with torch.no_grad():
        cell.recur.weight.zero_()
        cell.read.weight.zero_()
        cell.read.bias.copy_(torch.tensor([-4.0] * 4 + [20.0] * 4 + [1.0] * 4 + [0.0] * 4))
        with torch.autocast("cpu", torch.bfloat16):
            _, last = run_cell(cell, x, torch.ones(1, 300, dtype=torch.bool))
    step = torch.sigmoid(torch.tensor(-4.0)) * torch.tanh(torch.tensor(1.0))
    torch.testing.assert_close(last[0, 4:], (300 * step).expand(4), rtol=1e-2, atol=0)


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ({"family": "bahdanau", "width": 15}, "must be even"),
        ({"family": "rnn", "encoder_layers": 3}, "the family rnn does not have it"),
        ({"family": "lstm"}, "is not one of"),
        ({"family": "gpt"}, "cannot translate"),
    ],
)
def test_impossible_shapes_are_refused(model, word):
    from regard.errors import UsageError

    with pytest.raises(UsageError, match=word):
        resolve({"data": {"train": "phrasebook"}, "model": model})


@pytest.mark.parametrize("family", ["rnn", pytest.param("bahdanau", marks=pytest.mark.slow), "t5"])
def test_every_command_works_on_the_family(family, tmp_path, regard):
    """Train, interrupt and resume, translate with alignment, score: nothing knows which family it is."""
    write_toy_corpus(tmp_path / "train.tsv", 1500, 1)
    write_toy_corpus(tmp_path / "test.tsv", 40, 2)
    steps = 260 if family == "bahdanau" else 30
    (tmp_path / "run.toml").write_text(f"""
[task]
source = "toy"
target = "TOY"
[data]
train = "train.tsv"
valid = "test.tsv"
leaks = "keep"
[text]
kind = "word"
vocabulary = 400
[model]
family = "{family}"
width = 64
layers = 1
{"heads = 4" if family == "t5" else ""}
{"feed_forward = 64" if family == "t5" else ""}
dropout = 0.0
[train]
steps = {steps}
lr = 1e-2
warmup = 20
schedule = "inverse-sqrt"
tokens_per_batch = 512
checkpoint_every = 10
label_smoothing = 0.0
[decode]
max_length = 12
""")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert regard("train", tmp_path / "run.toml", "--output", whole).code == 0
    assert regard("train", tmp_path / "run.toml", "--output", cut, "--set", "train.steps=20").code == 0
    assert regard("train", tmp_path / "run.toml", "--output", cut, "--resume").code == 0
    one, two = (folder / f"checkpoints/step-{steps}" for folder in (whole, cut))
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    sentences = toy_sentences(20, 9)
    looking = [] if family == "rnn" else ["--alignment"]
    told = regard("translate", "-m", whole, *looking, "--beam", 3, stdin="\n".join(sentences))
    assert told.code == 0
    right = sum(line.split("\t")[0] == toy_translation(s) for line, s in zip(told.lines, sentences))
    assert right >= 16 or family != "bahdanau"
    assert regard("score", "-m", whole, tmp_path / "test.tsv").code == 0
    assert regard("report", whole).code == 0 and (whole / "report.html").is_file()
