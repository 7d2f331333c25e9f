"""Attention and layers against torch.nn, the plain path against the fused one, and the laws of masks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.config import TransformerConfig
from regard.models.attention import (
    MultiHeadAttention,
    attend,
    attention_columns,
    masked_softmax,
    self_attention_columns,
    self_attention_rows,
    visible,
    weights,
)
from regard.models.families import build, parameters, transformer
from regard.models.layers import Dropout, Linear
from regard.models.positions import Alibi, Sinusoidal, sinusoid
from regard.models.transformer import Block


def test_parameter_free_attention_is_the_written_sum():
    x = torch.randn(3, 5, dtype=torch.float64)
    z = torch.zeros_like(x)
    for i in range(3):
        products = [float((x[i] * x[j]).sum()) for j in range(3)]
        shares = [torch.tensor(e).exp() / sum(torch.tensor(o).exp() for o in products) for e in products]
        for j in range(3):
            z[i] += shares[j] * x[j]
    torch.testing.assert_close(self_attention_rows(x), z, check_dtype=False, atol=1e-6, rtol=1e-6)


def test_columns_are_rows_transposed():
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(
        self_attention_columns(x.transpose(1, 2)), self_attention_rows(x).transpose(1, 2)
    )
    q, k, v = torch.randn(3, 2, 4, 6, dtype=torch.float64)
    expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    columns = attention_columns(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    torch.testing.assert_close(columns, expected)


def test_no_parameter_free_attention_gives_the_example_weights():
    """Symmetric scores force a12 a23 a31 = a21 a32 a13; these rows break it, so q and k must differ."""
    given_rows = torch.tensor([[0.4, 0.4, 0.2], [0.3, 0.6, 0.1], [0.1, 0.1, 0.8]], dtype=torch.float64)

    def cycle(a: torch.Tensor) -> float:
        return float(a[0, 1] * a[1, 2] * a[2, 0] - a[1, 0] * a[2, 1] * a[0, 2])

    x = torch.randn(3, 8, dtype=torch.float64)
    assert abs(cycle((x @ x.T).softmax(-1))) < 1e-12
    assert abs(cycle(given_rows)) > 1e-3
    # learned q and k can: take k = identity and q = log of the rows
    torch.testing.assert_close((given_rows.log() @ torch.eye(3, dtype=torch.float64)).softmax(-1), given_rows)


@st.composite
def positions(draw: st.DrawFn, rows: int, longest: int = 9) -> torch.Tensor:
    length = draw(st.integers(1, longest))
    cells = st.lists(st.integers(-1, 8), min_size=length, max_size=length)
    return torch.tensor(draw(st.lists(cells, min_size=rows, max_size=rows)))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.booleans(), st.sampled_from([None, 1, 2, 5]))
def test_visible_cell_by_cell(data, causal, window):
    query, key = data.draw(positions(2)), data.draw(positions(2))
    mask = visible(query, key, causal, window)
    assert mask.shape == (2, 1, query.shape[1], key.shape[1])
    for b in range(2):
        for t in range(query.shape[1]):
            for s in range(key.shape[1]):
                q, k = int(query[b, t]), int(key[b, s])
                expected = q >= 0 and k >= 0 and (not causal or k <= q)
                expected = expected and (window is None or abs(q - k) < window)
                assert bool(mask[b, 0, t, s]) == expected


def test_documents_do_not_see_each_other():
    position, document = torch.arange(6)[None], torch.tensor([[0, 0, 0, 1, 1, 1]])
    mask = visible(position, position, True, query_doc=document, key_doc=document)[0, 0]
    assert mask.tolist() == [[k <= q and k // 3 == q // 3 for k in range(6)] for q in range(6)]


@settings(max_examples=40, deadline=None)
@given(st.data(), st.booleans(), st.booleans(), st.sampled_from([torch.float32, torch.float64]))
def test_fused_equals_plain_in_values_and_gradients(data, causal, with_bias, dtype):
    query_pos, key_pos = data.draw(positions(2)), data.draw(positions(2))
    mask = visible(query_pos, key_pos, causal)
    torch.manual_seed(query_pos.numel() * 31 + key_pos.numel())
    shape = (2, 3, query_pos.shape[1], 4), (2, 3, key_pos.shape[1], 4)
    q = torch.randn(shape[0], dtype=dtype, requires_grad=True)
    k, v = (torch.randn(shape[1], dtype=dtype, requires_grad=True) for _ in range(2))
    bias = torch.randn(1, 3, query_pos.shape[1], key_pos.shape[1], dtype=dtype) if with_bias else None
    seen = torch.randn(shape[0], dtype=dtype)
    fused = attend(q, k, v, mask, bias)
    fused_gradients = torch.autograd.grad((fused * seen).sum(), (q, k, v))
    plain = weights(q, k, mask, bias) @ v
    plain_gradients = torch.autograd.grad((plain * seen).sum(), (q, k, v))
    tolerance = {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(fused, plain, **tolerance)
    for one, other in zip(fused_gradients, plain_gradients):
        torch.testing.assert_close(one, other, **tolerance)


def test_a_query_that_sees_nothing_gets_zeros():
    mask = torch.zeros(1, 1, 3, 4, dtype=torch.bool)
    mask[0, 0, 0] = True
    q, k, v = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8)
    for out in (attend(q, k, v, mask), weights(q, k, mask) @ v, attend(q[:, :, 1:2], k, v, mask[:, :, 1:2])):
        assert out.isfinite().all() and not out[:, :, -1].any()
    assert attend(q, k, v, mask)[:, :, 0].abs().sum() > 0


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)


def randomised(module: nn.Module) -> nn.Module:
    """Biases and norms begin as 0 and 1, which would hide a swap; in float64 only formulas can differ."""
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module.eval()


def test_multi_head_equals_torch():
    torch.manual_seed(0)
    ours = randomised(MultiHeadAttention(24, 4, 6))
    theirs = nn.MultiheadAttention(24, 4, batch_first=True).double().eval()
    copy_attention(ours, theirs)
    x, memory = torch.randn(3, 5, 24).double(), torch.randn(3, 7, 24).double()
    key_pos = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, -1, -1, -1], [-1, -1, 0, 1, 2, 3, 4]])
    mask = visible(torch.arange(5).expand(3, -1), key_pos, causal=False)
    expected, shares = theirs(x, memory, memory, key_padding_mask=key_pos < 0, average_attn_weights=False)
    q = ours.queries(x)
    torch.testing.assert_close(ours(q, *ours.keys_values(memory), mask), expected, atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(weights(q, ours.keys_values(memory)[0], mask), shares, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("cross", [False, True])
def test_blocks_equal_torch_layers(norm, cross):
    torch.manual_seed(1)
    config = TransformerConfig(width=24, heads=4, feed_forward=40, dropout=0.0, norm=norm)
    model = transformer(config.model_copy(update={"layers": 1}), 10)
    block: Block = randomised(next(iter(model.decoder if cross else model.encoder)))
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm == "pre"}
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    theirs = kind(24, 4, 40, **options).double().eval()
    copy_attention(block.attention, theirs.self_attn)
    pairs = [(block.feed_forward.up, theirs.linear1), (block.feed_forward.down, theirs.linear2)]
    norms = [block.attention_residual.norm, block.feed_forward_residual.norm]
    if cross:
        copy_attention(block.cross, theirs.multihead_attn)
        norms.insert(1, block.cross_residual.norm)
    pairs += [(own, getattr(theirs, f"norm{number}")) for number, own in enumerate(norms, start=1)]
    for ours, other in pairs:
        other.load_state_dict(ours.state_dict())
    x, encoded = torch.randn(2, 5, 24).double(), torch.randn(2, 6, 24).double()
    own = torch.arange(5).expand(2, -1)
    source = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, -1, -1, -1]])
    if cross:
        result = block(
            x,
            visible(own, own, True),
            memory=block.source_keys_values(encoded),
            memory_mask=visible(own, source, False),
        )
        causal = nn.Transformer.generate_square_subsequent_mask(5).isinf()
        expected = theirs(x, encoded, tgt_mask=causal, memory_key_padding_mask=source < 0)
    else:
        result, expected = block(x, visible(own, own, False)), theirs(x)
    torch.testing.assert_close(result, expected, atol=1e-12, rtol=1e-10)


def test_sinusoid_is_the_formula_interleaved():
    table = sinusoid(torch.arange(50), 12, torch.float64)
    for pos in (0, 1, 7, 49):
        for i in range(6):
            angle = torch.tensor(pos / 10000 ** (2 * i / 12), dtype=torch.float64)
            assert table[pos, 2 * i] == pytest.approx(float(angle.sin()), abs=1e-12)
            assert table[pos, 2 * i + 1] == pytest.approx(float(angle.cos()), abs=1e-12)


def test_sinusoid_reaches_beyond_its_table():
    module = Sinusoidal(8, length=4)
    torch.testing.assert_close(module(torch.tensor([[900]])), sinusoid(torch.tensor([[900]]), 8))


@pytest.mark.parametrize("vocabulary", [37_000, 32_000])
def test_base_has_the_papers_parameters(vocabulary):
    """4 D^2 + 4 D an attention, 2 D F + D + F a feed-forward, 2 D a norm, V D the embedding."""
    for width, feed_forward, heads in ((512, 2048, 8), (1024, 4096, 16)):
        attention = 4 * width**2 + 4 * width
        feed = 2 * width * feed_forward + width + feed_forward
        encoder = attention + feed + 2 * 2 * width
        decoder = 2 * attention + feed + 3 * 2 * width
        expected = 6 * (encoder + decoder) + vocabulary * width
        with torch.device("meta"):
            model = build(TransformerConfig(width=width, feed_forward=feed_forward, heads=heads), vocabulary)
        assert parameters(model) == expected
    if vocabulary == 37_000:
        assert expected == pytest.approx(213e6, rel=0.02)  # the paper's big, as printed


def test_head_width_is_free():
    model = build(TransformerConfig(width=12, heads=3, head_width=5, feed_forward=8, layers=1), 30)
    assert model.encoder.blocks[0].attention.query.weight.shape == (15, 12)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from([(32, 48), (128, 256), (64, 1000)]))
def test_a_row_does_not_depend_on_how_many_there_are(few, many, shape):
    """Matrix kernels for very few rows sum in another order: the text of a lone sentence could differ."""
    torch.manual_seed(few * 100 + many)
    layer = Linear(*shape)
    x = torch.randn(max(few, many), shape[0])
    with torch.no_grad():
        assert torch.equal(layer(x[:few])[: min(few, many)], layer(x[:many])[: min(few, many)])


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.75])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dropout_leaves_out_its_share_and_keeps_the_mean(p, dtype):
    torch.manual_seed(1)
    drop, x = Dropout(p), torch.ones(401, 503, dtype=dtype)  # an odd number of numbers
    y = drop(x).double()
    share = (y == 0).double().mean().item()
    assert share == pytest.approx(p, abs=5 * (p * (1 - p) / x.numel()) ** 0.5)
    assert set(y.unique().tolist()) <= {0.0, torch.tensor(1 / (1 - p), dtype=dtype).item()}
    neighbours = ((y[:, 1:] == 0) & (y[:, :-1] == 0)).double().mean().item()
    assert neighbours == pytest.approx(p * p, abs=0.005), "numbers of one draw know nothing of each other"
    torch.manual_seed(1)
    assert torch.equal(drop(x).double(), y), "the same draw gives the same noise"
    assert drop.eval()(x) is x


def test_dropout_added_is_the_sum_and_its_gradients():
    x = torch.randn(7, 9, dtype=torch.float64, requires_grad=True)
    y = torch.randn(7, 9, dtype=torch.float64, requires_grad=True)
    drop = Dropout(0.5)
    torch.manual_seed(4)
    together = drop.add(x, y)
    torch.manual_seed(4)
    apart = x + drop(y)
    torch.testing.assert_close(together, apart)
    draw = torch.randn(7, 9, dtype=torch.float64)
    for own, other in zip(
        torch.autograd.grad(together, (x, y), draw), torch.autograd.grad(apart, (x, y), draw)
    ):
        torch.testing.assert_close(own, other)


class Adapter(nn.Module):
    """y = W x + b + B A x (Hu et al. 2021), around a linear map that is frozen."""

    def __init__(self, inner: Linear, rank: int = 2) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down, self.up = nn.Linear(inner.in_features, rank), nn.Linear(rank, inner.out_features)

    @property
    def weight(self) -> torch.Tensor:
        return self.inner.weight

    @property
    def bias(self) -> torch.Tensor:
        return self.inner.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.up(self.down(x))


@pytest.mark.parametrize("names", [("query",), ("key", "value"), ("query", "key", "value")])
def test_an_adapter_inside_attention_learns(names: tuple[str, ...]) -> None:
    """The fused product once read `.weight`: an adapter got no gradient, and no error was raised."""
    own = MultiHeadAttention(8, 2, 4)
    for name in names:
        setattr(own, name, Adapter(getattr(own, name)))
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = [each(x) for each in (own.query, own.key, own.value)]
    q, k, v = own.queries_keys_values(x)
    for found, each in zip((q, k, v), expected):
        torch.testing.assert_close(found.transpose(1, 2).flatten(2), each)
    (q.sum() + k.sum() + v.sum()).backward()
    for name in names:
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in getattr(own, name).up.parameters())


def test_a_hook_inside_attention_is_called_in_training() -> None:
    own, x = MultiHeadAttention(8, 2, 4), torch.randn(2, 5, 8)
    own.key.register_forward_hook(lambda module, inputs, output: output * 0)
    assert not own.queries_keys_values(x)[1].any() and not own.keys_values(x)[0].any()


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 20])
def test_alibi_is_that_of_bloom(heads: int) -> None:
    """Theirs is m j, which differs from -m |i - j| by a constant for each query: softmax ignores it."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    positions = torch.arange(9)[None]
    expected = build_alibi_tensor(torch.ones(1, 9), heads, torch.float32).view(1, heads, 1, 9)
    bias = Alibi(heads)(positions, positions).bias
    causal = visible(positions, positions, causal=True)
    products = torch.randn(1, heads, 9, 9)
    torch.testing.assert_close(
        masked_softmax(products + bias, causal), masked_softmax(products + expected, causal)
    )
