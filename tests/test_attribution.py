"""Why a token: contributions add up to the logit, heads to W_O, and gradients are autograd's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from regard.batch import collate
from regard.errors import UsageError
from regard.interpret import Trace
from regard.interpret.predictions import choice_logits
from regard.models.families import Model
from regard.resources import WEB
from traced_models import KINDS, TEXT, opened_task, small_folder, traced

pytestmark = pytest.mark.usefixtures("same_threads")
SHORT = {"decode": {"max_length": 4, "beam": 2}}
WITH_STREAM = [kind for kind in KINDS if not kind.startswith(("rnn", "bahdanau"))]


def run(kind: str, **options: object) -> Trace:
    defaults = SHORT if KINDS[kind][1] in ("translate", "generate") or kind == "t5 gated" else {}
    trace = traced(kind, **{**defaults, **options})
    assert isinstance(trace, Trace)
    return trace


def randomised(model: Model) -> None:
    """Norms and biases as training leaves them: not 1 and 0."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("kind", WITH_STREAM)
def test_contributions_add_up_to_the_logit(kind: str) -> None:
    folder, (make, *_, options) = small_folder(kind), KINDS[kind]
    randomised(folder.model)
    defaults = SHORT if "output" in run(kind).tokens else {}
    given = {"text": TEXT, **defaults, **options}
    trace = make(folder).trace(given.pop("text"), **given)
    logits = choice_logits(trace)
    for step in {0, len(logits) // 2, len(logits) - 1}:
        for number in (0, logits.shape[1] - 1):
            found = trace.contributions(step, number)
            assert found.total == pytest.approx(float(logits[step, number]))
            assert abs(found.rest) < 1e-4
        both = trace.contributions(step, 0, 1)
        assert both.total == pytest.approx(float(logits[step, 0] - logits[step, 1]), abs=1e-6)
        assert abs(both.rest) < 1e-4
        assert sum(both.by_layer().values()) == pytest.approx(both.total - both.rest, abs=1e-6)


def test_heads_add_up_to_the_output_of_the_attention() -> None:
    """concat(mixed) W_O is the sum of the heads' proposals: their shares are the share of the whole."""
    trace = run("gpt")
    model = opened_task("gpt").folder.model
    step, token = 2, 7
    parts = trace.contributions(step, token).parts
    heads = [each for each in parts if each.name == "decoder.1.self" and each.head is not None]
    bias = next(each for each in parts if each.name == "decoder.1.self.bias")
    assert [each.head for each in heads] == [0, 1, 2, 3]
    x, output = trace["decoder.1.out"][step].double(), trace["decoder.1.self.output"][step].double()
    norm = model.decoder.final_norm
    centred = (
        (output - output.mean()) * norm.weight.detach().double() / (x.var(correction=0) + norm.eps).sqrt()
    )
    expected = float(centred @ model.output.weight[token].detach().double())
    assert sum(each.value for each in [*heads, bias]) == pytest.approx(expected, abs=1e-5)


def test_without_a_head_its_share_is_gone() -> None:
    """In the last layer of a pre-norm model nothing follows a head but the norm."""
    change = {"type": "zero_head", "where": "decoder.1.self", "head": 1}
    parts = run("gpt", target=" cat").contributions(3).parts
    without = run("gpt", target=" cat", interventions=[change]).contributions(3).parts
    at = next(i for i, each in enumerate(parts) if (each.name, each.head) == ("decoder.1.self", 1))
    assert parts[at].value != 0
    assert without[at].value == 0


def test_an_edit_in_the_stream_is_the_rest() -> None:
    edit = {
        "type": "edit",
        "name": "decoder.1.out",
        "position": 1,
        "column": 0,
        "value": 5,
        "operation": "add",
    }
    before = run("gpt", target=" cat").contributions(1)
    after = run("gpt", target=" cat", interventions=[edit]).contributions(1, before.text)
    assert abs(before.rest) < 1e-5
    assert abs(after.rest) > 1e-3


def test_a_choice_by_its_text() -> None:
    trace = run("transformer")
    ids = trace.tokens["output"].ids
    assert trace.contributions(0).text == trace.contributions(0, ids[0]).text == trace.word(ids[0]).strip()
    labels = run("classify")
    found = labels.contributions(0, "bad", "odd")
    assert (found.text, found.against) == ("bad", "odd")
    assert {text for each in found.parts for text, _ in each.proposals} == {"good", "bad", "odd"}
    for kind, step, token in (("classify", 0, "nothing"), ("classify", 0, 3), ("classify", 1, 0)):
        with pytest.raises(UsageError):
            run(kind).contributions(step, token)


def test_what_a_head_proposes() -> None:
    """The head's own logits, without what it adds to all tokens alike."""
    trace, model = run("post-norm"), opened_task("post-norm").folder.model
    found = trace.contributions(1)
    last = found.parts[-1] if found.parts[-1].name != "output.bias" else found.parts[-2]
    assert last.name == "decoder.1.feed_forward.norm.bias"
    shift = model.decoder.blocks[1].feed_forward_residual.norm.bias.detach()
    logits = model.output.weight.detach() @ shift
    if float(logits.abs().max()):
        assert last.proposals[0][1] == pytest.approx(float(logits.max() - logits.mean()), abs=1e-5)
    heads = [each for each in found.parts if each.head is not None]
    assert all(len(each.proposals) == 5 and each.proposals[0][1] > 0 for each in heads)


@pytest.mark.parametrize(
    "kind", ["post-norm", "transformer", "t5", "gpt", "llama", "fill", "bahdanau", "rnn"]
)
def test_gradient_x_input_by_autograd(kind: str) -> None:
    """x . d log p / dx = d log p / ds at s = 1, where each embedding is multiplied by its own s."""
    trace, model = run(kind), opened_task(kind).folder.model
    assert trace.run is not None
    step = 1
    number = (
        trace.tokens["output"].ids[step] if "output" in trace.tokens else int(trace["logits"][step].argmax())
    )
    found = trace.gradient_x_input(step, number)
    tables = {
        side: getattr(getattr(model, side), "tokens", getattr(model, side))
        for side in ("source", "target")
        if side in found
    }
    for side, table in tables.items():
        shared = len({id(each) for each in tables.values()}) < len(tables)
        factors = torch.ones(1, len(trace.tokens[side]), 1, requires_grad=True)
        pending = (
            [factors, 1.0] if side == "source" or not shared else [1.0, factors]
        )  # the source is read first
        handle = table.register_forward_hook(lambda *of, rest=iter(pending): of[2] * next(rest))
        log_p = model(collate([trace.run.sample]))[0, step].log_softmax(dim=0)[number]
        handle.remove()
        (expected,) = torch.autograd.grad(log_p, factors)
        torch.testing.assert_close(found[side], expected[0, :, 0], rtol=1e-3, atol=1e-5)
    if "target" in found:
        assert not found["target"][step + 1 :].any()  # later tokens are not seen


def test_the_page_explains_words_as_the_glossary_does() -> None:
    glossary = (Path(__file__).parent.parent / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(
        r'^  ["a-zA-Z].*?: "(.+)",$', (WEB / "js/views/terms.js").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(terms) > 5
    assert not [text for text in terms if f"| {text} |" not in glossary]


def test_what_has_no_contributions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no residual stream"):
        run("rnn").contributions(0)
    trace = run("gpt")
    trace.save(tmp_path / "run.safetensors")
    loaded = Trace.load(tmp_path / "run.safetensors")
    with pytest.raises(UsageError, match="needs the model"):
        loaded.contributions(0)
    with pytest.raises(UsageError, match="step = 99"):
        trace.gradient_x_input(99)
