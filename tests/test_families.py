"""Each family against `transformers`: the same random weights give the same logits."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.models.t5.modeling_t5 import T5Attention

from regard.config import Model
from regard.data.batch import Batch, Tokens, tokens
from regard.model import build
from regard.model.positions import RelativeBias

CLOSE = {"atol": 2e-5, "rtol": 1e-4}

GPT2 = [
    (r"transformer\.wte\.weight", "target.tokens.weight"),
    (r"transformer\.wpe\.weight", "target.positions.table"),
    (r"transformer\.h\.(\d+)\.ln_1\.", r"decoder.blocks.\1.attention_residual.norm."),
    (r"transformer\.h\.(\d+)\.ln_2\.", r"decoder.blocks.\1.feed_forward_residual.norm."),
    (r"transformer\.h\.(\d+)\.attn\.c_proj\.", r"decoder.blocks.\1.attention.output."),
    (r"transformer\.h\.(\d+)\.mlp\.c_fc\.", r"decoder.blocks.\1.feed_forward.widen."),
    (r"transformer\.h\.(\d+)\.mlp\.c_proj\.", r"decoder.blocks.\1.feed_forward.narrow."),
    (r"transformer\.ln_f\.", "decoder.last."),
]
LLAMA = [
    (r"model\.embed_tokens\.weight", "target.tokens.weight"),
    (r"model\.layers\.(\d+)\.input_layernorm\.", r"decoder.blocks.\1.attention_residual.norm."),
    (r"model\.layers\.(\d+)\.post_attention_layernorm\.", r"decoder.blocks.\1.feed_forward_residual.norm."),
    (r"model\.layers\.(\d+)\.self_attn\.q_proj\.", r"decoder.blocks.\1.attention.query."),
    (r"model\.layers\.(\d+)\.self_attn\.k_proj\.", r"decoder.blocks.\1.attention.key."),
    (r"model\.layers\.(\d+)\.self_attn\.v_proj\.", r"decoder.blocks.\1.attention.value."),
    (r"model\.layers\.(\d+)\.self_attn\.o_proj\.", r"decoder.blocks.\1.attention.output."),
    (r"model\.layers\.(\d+)\.mlp\.gate_proj\.", r"decoder.blocks.\1.feed_forward.gate."),
    (r"model\.layers\.(\d+)\.mlp\.up_proj\.", r"decoder.blocks.\1.feed_forward.widen."),
    (r"model\.layers\.(\d+)\.mlp\.down_proj\.", r"decoder.blocks.\1.feed_forward.narrow."),
    (r"model\.norm\.", "decoder.last."),
    (r"lm_head\.weight", "output.weight"),
]
ATTENTION = [("q", "query"), ("k", "key"), ("v", "value"), ("o", "output")]
T5 = [
    (r"shared\.weight", "source.tokens.weight"),
    (r"lm_head\.weight", "output.weight"),
    (
        r"(encoder|decoder)\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.",
        r"\1.positions.table.",
    ),
    *(
        (rf"(\w+)\.block\.(\d+)\.layer\.0\.SelfAttention\.{a}\.", rf"\1.blocks.\2.attention.{b}.")
        for a, b in ATTENTION
    ),
    *(
        (rf"(\w+)\.block\.(\d+)\.layer\.1\.EncDecAttention\.{a}\.", rf"\1.blocks.\2.cross.{b}.")
        for a, b in ATTENTION
    ),
    (r"(\w+)\.block\.(\d+)\.layer\.0\.layer_norm\.", r"\1.blocks.\2.attention_residual.norm."),
    (r"encoder\.block\.(\d+)\.layer\.1\.layer_norm\.", r"encoder.blocks.\1.feed_forward_residual.norm."),
    (r"decoder\.block\.(\d+)\.layer\.1\.layer_norm\.", r"decoder.blocks.\1.cross_residual.norm."),
    (r"decoder\.block\.(\d+)\.layer\.2\.layer_norm\.", r"decoder.blocks.\1.feed_forward_residual.norm."),
    (r"(\w+)\.block\.(\d+)\.layer\.\d\.DenseReluDense\.(?:wi|wi_1)\.", r"\1.blocks.\2.feed_forward.widen."),
    (r"(\w+)\.block\.(\d+)\.layer\.\d\.DenseReluDense\.wi_0\.", r"\1.blocks.\2.feed_forward.gate."),
    (r"(\w+)\.block\.(\d+)\.layer\.\d\.DenseReluDense\.wo\.", r"\1.blocks.\2.feed_forward.narrow."),
    (r"encoder\.final_layer_norm\.", "encoder.last."),
    (r"decoder\.final_layer_norm\.", "decoder.last."),
]


def renamed(theirs: torch.nn.Module, table: list[tuple[str, str]]) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in theirs.named_parameters():
        fitting = [(pattern, ours) for pattern, ours in table if re.match(pattern, name)]
        assert len(fitting) == 1, (name, fitting)
        found[re.sub(*fitting[0], name)] = tensor.detach()
    return found


def load(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> torch.nn.Module:
    own = dict(model.named_parameters())
    assert own.keys() == weights.keys(), own.keys() ^ weights.keys()
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])
    return model.eval()


def shaken(model: torch.nn.Module) -> torch.nn.Module:
    """Fresh norms and biases are all ones and zeros, which would hide one that is used wrongly."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


ROWS = [[5, 6, 7, 8, 9, 3], [4, 11, 12]]


def text(rows: list[list[int]] = ROWS) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    own = tokens(rows)
    return Batch(target=own), own.ids, (own.positions >= 0).long()


def compare(ours: torch.Tensor, theirs: torch.Tensor, rows: list[list[int]] = ROWS) -> None:
    for number, row in enumerate(rows):
        torch.testing.assert_close(ours[number, : len(row)], theirs[number, : len(row)], **CLOSE)


def test_gpt2() -> None:
    theirs = shaken(
        GPT2LMHeadModel(GPT2Config(vocab_size=23, n_positions=20, n_embd=16, n_layer=3, n_head=4))
    )
    fields = {"family": "gpt", "width": 16, "layers": 3, "heads": 4, "feed_forward": 64, "max_length": 20}
    weights = {}
    for name, tensor in theirs.named_parameters():
        if ".attn.c_attn." in name:
            layer = re.search(r"h\.(\d+)", name)[1]
            for part, piece in zip(("query", "key", "value"), tensor.detach().chunk(3, dim=-1)):
                own = piece.T if piece.dim() == 2 else piece
                weights[f"decoder.blocks.{layer}.attention.{part}.{name.rsplit('.', 1)[1]}"] = own
    table = {name: tensor for name, tensor in theirs.named_parameters() if ".attn.c_attn." not in name}
    for name, tensor in table.items():
        fitting = [(pattern, ours) for pattern, ours in GPT2 if re.match(pattern, name)]
        assert len(fitting) == 1, name
        turned = tensor.T if ".c_" in name and tensor.dim() == 2 else tensor
        weights[re.sub(*fitting[0], name)] = turned.detach()
    ours = load(build(Model(**fields, activation="gelu_tanh", dropout=0.0), 23), weights)
    batch, ids, mask = text()
    with torch.no_grad():
        compare(ours(batch), theirs(ids, attention_mask=mask).logits)


@pytest.mark.parametrize("groups", [4, 2, 1])
def test_llama(groups: int) -> None:
    config = LlamaConfig(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=groups,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )
    theirs = shaken(LlamaForCausalLM(config))
    fields = {"family": "llama", "width": 16, "layers": 2, "heads": 4, "feed_forward": 24, "groups": groups}
    own = build(Model(**fields, activation="swish", dropout=0.0, tie_embeddings=False), 23)
    ours = load(own, renamed(theirs, LLAMA))
    batch, ids, mask = text()
    with torch.no_grad():
        compare(ours(batch), theirs(ids, attention_mask=mask).logits)


@pytest.mark.parametrize("gated", [False, True])
def test_t5(gated: bool) -> None:
    config = T5Config(
        vocab_size=23,
        d_model=16,
        d_kv=5,
        d_ff=24,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    theirs = T5ForConditionalGeneration(config)
    if gated:  # a checkpoint of version 1.1 has an output layer of its own
        theirs.lm_head.weight = torch.nn.Parameter(theirs.lm_head.weight.detach().clone())
    shaken(theirs)
    fields = {"family": "t5", "width": 16, "layers": 2, "heads": 4, "head_width": 5, "feed_forward": 24}
    own = build(
        Model(
            **fields,
            gated=gated,
            activation="gelu_tanh" if gated else "relu",
            dropout=0.0,
            tie_embeddings=not gated,
        ),
        23,
    )
    weights = renamed(theirs, T5)
    if gated:
        weights["target.tokens.weight"] = weights["source.tokens.weight"]
    else:
        weights = {
            name.replace("decoder.last.", "decoder.last.0."): tensor for name, tensor in weights.items()
        }
    ours = load(own, weights)
    source, target = tokens([[5, 6, 7, 8, 9, 10, 11, 3], [4, 11, 12]]), tokens(ROWS)
    with torch.no_grad():
        found = ours(Batch(source=source, target=target))
        mask = (source.positions >= 0).long()
        expected = theirs(source.ids, attention_mask=mask, decoder_input_ids=target.ids).logits
    compare(found, expected)


BERT = [
    (r"bert\.embeddings\.word_embeddings\.", "source.tokens."),
    (r"bert\.embeddings\.position_embeddings\.weight", "source.positions.table"),
    (r"bert\.embeddings\.token_type_embeddings\.", "source.segments."),
    (r"bert\.embeddings\.LayerNorm\.", "source.norm."),
    *(
        (rf"bert\.encoder\.layer\.(\d+)\.attention\.self\.{part}\.", rf"encoder.blocks.\1.attention.{part}.")
        for part in ("query", "key", "value")
    ),
    (r"bert\.encoder\.layer\.(\d+)\.attention\.output\.dense\.", r"encoder.blocks.\1.attention.output."),
    (
        r"bert\.encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.",
        r"encoder.blocks.\1.attention_residual.norm.",
    ),
    (r"bert\.encoder\.layer\.(\d+)\.intermediate\.dense\.", r"encoder.blocks.\1.feed_forward.widen."),
    (r"bert\.encoder\.layer\.(\d+)\.output\.dense\.", r"encoder.blocks.\1.feed_forward.narrow."),
    (r"bert\.encoder\.layer\.(\d+)\.output\.LayerNorm\.", r"encoder.blocks.\1.feed_forward_residual.norm."),
    (r"bert\.pooler\.dense\.", "head.dense."),
    (r"cls\.predictions\.transform\.dense\.", "head.dense."),
    (r"cls\.predictions\.transform\.LayerNorm\.", "head.norm."),
    (r"cls\.predictions\.bias", "output.bias"),
    (r"classifier\.", "output."),
    (r"qa_outputs\.", "output."),
]


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("words", BertForMaskedLM),
        ("sentence", BertForSequenceClassification),
        ("tokens", BertForTokenClassification),
        ("span", BertForQuestionAnswering),
    ],
)
def test_bert(head: str, kind: type[torch.nn.Module]) -> None:
    config = BertConfig(
        vocab_size=23,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=20,
        num_labels=2 if head == "span" else 3,
    )
    theirs = shaken(kind(config))
    fields = {"family": "bert", "width": 16, "layers": 2, "heads": 4, "feed_forward": 24, "max_length": 20}
    own = build(Model(**fields, activation="gelu", head=head, dropout=0.0), 23, 3)
    ours = load(own, renamed(theirs, BERT))
    segments = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 0, 0]])
    words = replace(tokens(ROWS), segments=segments)
    mask = (words.positions >= 0).long()
    with torch.no_grad():
        found = ours(Batch(source=words))
        told = theirs(words.ids, attention_mask=mask, token_type_ids=segments)
    if head == "sentence":
        torch.testing.assert_close(found[:, 0], told.logits, **CLOSE)
    elif head == "span":
        compare(found, torch.stack([told.start_logits, told.end_logits], dim=-1))
    else:
        compare(found, told.logits)


@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_of_distances_are_those_of_t5(both_ways: bool) -> None:
    distance = torch.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(distance, both_ways, 32, 128)
    assert torch.equal(RelativeBias(2, both_ways).bucket(distance), expected)


@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_a_prompt_and_steps_are_the_whole_text(family: str) -> None:
    """Read in one go or word by word, alone or beside a longer prompt, beams or none: the same logits."""
    torch.manual_seed(0)
    fields = {"family": family, "width": 16, "layers": 2, "heads": 4, "feed_forward": 24, "dropout": 0.0}
    model = shaken(build(Model(**fields, groups=2 if family == "llama" else None), 23))
    rows = [[5, 6, 7, 8, 9, 3], [4, 11, 12, 13, 9, 8]]
    with torch.no_grad():
        whole = model(text(rows)[0])
    prompts = tokens([rows[0][:4], rows[1][:2]])
    state = model.start(Batch(source=prompts), beams=2)
    assert state.rows["first"].tolist() == [8, 8, 11, 11]
    logits, state = model.step(state, state.rows["first"][:, None])
    places = [3, 1]
    for _ in range(2):
        for number, place in enumerate(places):
            for beam in range(2):
                torch.testing.assert_close(logits[2 * number + beam, -1], whole[number, place], **CLOSE)
        places = [place + 1 for place in places]
        following = torch.tensor([[rows[number // 2][places[number // 2]]] for number in range(4)])
        logits, state = model.step(state, following)


def test_packed_documents_do_not_see_each_other() -> None:
    torch.manual_seed(1)
    model = shaken(build(Model(family="gpt", width=16, layers=2, heads=4, feed_forward=24, dropout=0.0), 23))
    one, two = [5, 6, 7], [8, 9, 10, 11]
    packed = Tokens(
        torch.tensor([one + two]),
        torch.tensor([[0, 1, 2, 0, 1, 2, 3]]),
        documents=torch.tensor([[0, 0, 0, 1, 1, 1, 1]]),
    )
    with torch.no_grad():
        together = model(Batch(target=packed))[0]
        torch.testing.assert_close(together[:3], model(Batch(target=tokens([one])))[0], **CLOSE)
        torch.testing.assert_close(together[3:], model(Batch(target=tokens([two])))[0], **CLOSE)
