"""Each family against `transformers`: the same random weights give the same logits."""

from __future__ import annotations

import subprocess
import sys
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

from regard.batch import Batch, Tokens, tokens
from regard.config import GPTConfig, ModelConfig, parse_model
from regard.models.families import build, build_meta
from regard.models.positions import RelativeBias
from regard.storage.huggingface import BERT, GPT2, LLAMA, T5, Architecture, tensors_from_hf

CLOSE = {"atol": 1e-5, "rtol": 1e-6}


def renamed(theirs: torch.nn.Module, architecture: Architecture, own: ModelConfig) -> dict[str, torch.Tensor]:
    """Their weights under our names, by the table with which folders are read."""
    tensors = {name: tensor.detach() for name, tensor in theirs.named_parameters()}
    model = build_meta(own, 23, 3 if own.head else None)
    shapes = {name: each.shape for name, each in model.named_parameters()}
    return tensors_from_hf(tensors, architecture.table_of(shapes, own.head), shapes)


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
    own = parse_model(fields | {"activation": "gelu_tanh", "dropout": 0.0})
    ours = load(build(own, 23), renamed(theirs, GPT2, own))
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
    fields = {"family": "llama", "width": 16, "layers": 2, "heads": 4, "feed_forward": 24, "kv_heads": groups}
    own = parse_model(fields | {"activation": "swish", "dropout": 0.0, "tie_embeddings": False})
    ours = load(build(own, 23), renamed(theirs, LLAMA, own))
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
    fields |= {"gated": gated, "dropout": 0.0, "tie_embeddings": not gated}
    own = parse_model(fields | {"activation": "gelu_tanh" if gated else "relu"})
    ours = load(build(own, 23), renamed(theirs, T5, own))
    source, target = tokens([[5, 6, 7, 8, 9, 10, 11, 3], [4, 11, 12]]), tokens(ROWS)
    with torch.no_grad():
        found = ours(Batch(source=source, target=target))
        mask = (source.positions >= 0).long()
        expected = theirs(source.ids, attention_mask=mask, decoder_input_ids=target.ids).logits
    compare(found, expected)


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
    own = parse_model(fields | {"activation": "gelu", "head": head, "dropout": 0.0})
    ours = load(build(own, 23, 3), renamed(theirs, BERT, own))
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


def test_t5_begins_with_scores_of_unit_size() -> None:
    """They are not divided by sqrt(C), and began sqrt(C) times too large: a T5 with heads of 32 channels
    never learned to look across. What transformers begins with is the measure."""
    torch.manual_seed(0)
    theirs = T5ForConditionalGeneration(T5Config(vocab_size=400, d_model=128, d_kv=32, num_heads=4, d_ff=256))
    shape = {"family": "t5", "width": 128, "layers": 2, "heads": 4, "feed_forward": 256, "dropout": 0.0}
    ours = build(parse_model(shape), 400)
    look, look_across = ours.encoder.blocks[0].attention, ours.decoder.blocks[0].cross
    block = theirs.decoder.block[0].layer
    pairs = [
        (ours.source.tokens.weight, theirs.shared.weight),
        (look.query.weight, theirs.encoder.block[0].layer[0].SelfAttention.q.weight),
        (look.key.weight, theirs.encoder.block[0].layer[0].SelfAttention.k.weight),
        (look_across.query.weight, block[1].EncDecAttention.q.weight),
    ]
    for own, other in pairs:
        assert own.std().item() == pytest.approx(other.std().item(), rel=0.1)
    x = torch.randn(40, 128)
    scores = look.query(x).view(40, 4, 32).transpose(0, 1) @ look.key(x).view(40, 4, 32).permute(1, 2, 0)
    assert 0.5 < scores.std() < 2.0


@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_of_distances_are_those_of_t5(both_ways: bool) -> None:
    distance = torch.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(distance, both_ways, 32, 128)
    assert torch.equal(RelativeBias(2, both_ways).bucket(distance), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_a_prompt_and_steps_are_the_whole_text(family: str, dtype: torch.dtype) -> None:
    """Read in one go or word by word, alone or beside a longer prompt, beams or none: the same logits."""
    torch.manual_seed(0)
    fields = {"family": family, "width": 16, "layers": 2, "heads": 4, "feed_forward": 24, "dropout": 0.0}
    model = shaken(build(parse_model(fields | ({"kv_heads": 2} if family == "llama" else {})), 23)).to(dtype)
    rows = [[5, 6, 7, 8, 9, 3], [4, 11, 12, 13, 9, 8]]
    with torch.no_grad():
        whole = model(text(rows)[0])
    prompts = tokens([rows[0][:4], rows[1][:2]])
    state = model.start(Batch(source=prompts), beams=2)
    assert state.first.tolist() == [8, 8, 11, 11]
    logits, state = model.step(state, state.first[:, None])
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
    model = shaken(build(GPTConfig(width=16, layers=2, heads=4, feed_forward=24, dropout=0.0), 23))
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


def test_an_outline_needs_no_compiler() -> None:
    """Numbers drawn for mere shapes bring in the compiler of torch, which takes a second of each start."""
    program = """
import sys
from regard.batch import FrameSize
from regard.config.model import CLASSES, parse_model
from regard.config.schema import FRAME_FAMILIES
from regard.models.families import build_meta
shapes = [{"family": family} for family in CLASSES]
shapes.append({"family": "vit", "front": "convolution", "positions": "sinusoidal"})
for shape in shapes:
    reads = FrameSize(6, 16, (2, 3)) if shape["family"] in FRAME_FAMILIES else 300
    outputs = None if shape["family"] in ("bert", "gpt", "llama") else 300
    model = build_meta(parse_model(shape), reads, outputs)
    assert all(parameter.is_meta for parameter in model.parameters()), shape
print({"torch._dynamo", "sympy"} & {*sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr
