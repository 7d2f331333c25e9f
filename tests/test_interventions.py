"""Interventions: the effect of each, computed by hand, and the errors of those that do not fit the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.errors import UsageError
from regard.interpret import Trace, compare
from regard.interpret.interventions import KINDS as INTERVENTIONS
from regard.interpret.interventions import describe, parse
from regard.interpret.page import SETTINGS
from regard.interpret.readings import divergence
from regard.tasks import load
from traced_models import KINDS, opened_task, traced

pytestmark = pytest.mark.usefixtures("same_threads")
SHORT = {"decode": {"max_length": 5, "beam": 2}}
CHANGES: dict[str, dict[str, Any]] = {
    "zero_head": {"type": "zero_head", "where": "decoder.1.cross", "head": 2},
    "zero_self": {"type": "zero_head", "where": "encoder.0.self", "head": 0},
    "uniform": {"type": "uniform"},
    "uniform_head": {"type": "uniform", "where": "decoder.0.self", "head": 3},
    "drop_scale": {"type": "drop_scale"},
    "drop_positions": {"type": "drop_positions"},
    "unmask_future": {"type": "unmask_future"},
    "replace_token": {"type": "replace_token", "position": 1, "text": "cat"},
    "edit": {"type": "edit", "name": "encoder.0.out", "position": 1, "column": 2, "value": 9},
    "patch": {"type": "patch", "name": "encoder.out", "text": "a dog sleeps"},
}


def run(kind: str, *changes: dict[str, Any], **options: Any) -> Trace:
    defaults = SHORT if KINDS[kind][1] in ("translate", "generate") else {}
    trace = traced(kind, **{**defaults, **options}, interventions=list(changes))
    assert isinstance(trace, Trace)
    return trace


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_changes_the_output_and_not_the_model(name: str) -> None:
    target = {"target": "the cat sleeps"}
    before = run("transformer", **target)
    weights = [p.clone() for p in opened_task("transformer").folder.model.parameters()]
    after = run("transformer", CHANGES[name], **target)
    assert not torch.allclose(before["logits"], after["logits"], atol=1e-4)
    assert after.meta["interventions"] == [CHANGES[name]]
    again = run("transformer", **target)
    assert torch.equal(before["logits"], again["logits"])
    assert all(map(torch.equal, weights, opened_task("transformer").folder.model.parameters()))


def test_zero_head() -> None:
    after = run("post-norm", CHANGES["zero_head"], target="the cat")
    assert not after["decoder.1.cross.mixed"][2].any()
    assert after["decoder.1.cross.mixed"][[0, 1, 3]].abs().sum(dim=(1, 2)).all()
    before = run("post-norm", target="the cat")
    for name in before.names():
        if name.startswith("encoder") or ".0." in name:
            assert torch.equal(before[name], after[name]), "what comes before it stays"


def test_uniform_attention_over_visible_keys() -> None:
    after = run("transformer", CHANGES["uniform"], target="the cat")
    for place in after.attentions:
        mask = after[f"{place}.mask"].float()
        expected = (mask / mask.sum(dim=1, keepdim=True)).expand_as(after[f"{place}.weights"])
        torch.testing.assert_close(after[f"{place}.weights"], expected)


def test_scores_without_scale_by_numpy() -> None:
    after = run("gpt", CHANGES["drop_scale"], target=" cat")
    q, k = (after[f"decoder.0.self.{name}"].double().numpy() for name in ("query", "key"))
    scores = after["decoder.0.self.scores"].numpy()
    np.testing.assert_allclose(scores, q @ k.transpose(0, 2, 1), atol=1e-5)


@pytest.mark.parametrize("kind", ["fill", "post-norm", "t5", "llama"])
def test_without_positions_order_is_lost(kind: str) -> None:
    """Equal tokens get equal states at all positions; with positions they do not."""
    text = {"text": "cat cat <mask> cat" if kind == "fill" else "cat cat cat cat"}
    target = {} if kind == "fill" else {"target": "cat cat"}
    side = "decoder" if kind == "llama" else "encoder"
    change = {"type": "drop_positions"} | ({} if kind != "post-norm" else {"side": "encoder"})
    plain, after = run(kind, **text, **target), run(kind, change, **text, **target)
    tokens = after.tokens["source" if side == "encoder" else "target"]
    same = [position for position, each in enumerate(tokens.shown) if each == "cat"]
    if kind == "llama":  # causal attention differs by position, but the scores do not
        same = same[:2]
        scores = after["decoder.0.self.scores"]
        torch.testing.assert_close(scores[:, same[0]], scores[:, same[1]])
        assert not torch.allclose(
            plain["decoder.0.self.scores"][:, same[0]], plain["decoder.0.self.scores"][:, same[1]]
        )
        return
    stream = after[f"{side}.out"]
    torch.testing.assert_close(stream[same[0]], stream[same[1]])
    assert not torch.allclose(plain[f"{side}.out"][same[0]], plain[f"{side}.out"][same[1]], atol=1e-4)


def test_the_future_unmasked() -> None:
    after = run("gpt", CHANGES["unmask_future"], target=" cat sleeps")
    assert bool(after["decoder.0.self.mask"].all())
    assert bool((after["decoder.0.self.weights"] > 0).all())


def test_replace_token() -> None:
    changed = run("classify", {"type": "replace_token", "position": 1, "text": "<mask>"})
    plain = run("classify")
    assert changed.tokens["source"].texts[1] == "<mask>"
    assert changed.tokens["source"].ids[2:] == plain.tokens["source"].ids[2:]
    target = {"type": "replace_token", "side": "target", "position": 1, "text": " cat"}
    forced = run("transformer", target, target="the house")
    assert "cat" in forced.output


@pytest.mark.parametrize("kind", ["post-norm", "gpt", "bahdanau"])
def test_a_number_is_set_and_the_rest_follows_from_it(kind: str) -> None:
    name = {"bahdanau": "decoder.0.hidden"}.get(kind, "decoder.0.self.mixed")
    head = {} if kind == "bahdanau" else {"head": 1}
    edit = {"type": "edit", "name": name, **head, "position": 1, "column": 3, "value": 2.5}
    before, after = (run(kind, *changes, target=" the cat") for changes in ((), (edit,)))
    place = (1, 3) if kind == "bahdanau" else (1, 1, 3)
    expected = before[name].clone()
    expected[place] = 2.5
    if kind != "bahdanau":  # its next states follow from the edited one
        torch.testing.assert_close(after[name], expected)
    assert after[name][place] == 2.5
    changed = (before["logits"] - after["logits"]).abs().amax(dim=1) > 1e-5
    assert changed.tolist() == [False] + [True] * (len(changed) - 1)  # causal
    added = run(kind, {**edit, "value": 1.0, "operation": "add"}, target=" the cat")
    assert float(added[name][place]) == pytest.approx(float(before[name][place]) + 1)


def test_all_of_the_encoder_patched_is_the_other_run() -> None:
    """What follows the patched tensor alone determines the output."""
    text, target = "a dog sleeps in the house", "the cat"
    other = run("transformer", text=text, target=target)
    own = len(run("transformer", target=target).tokens["source"])
    same = {"text": text + " a" * (own - len(other.tokens["source"]))}
    other = run("transformer", **same, target=target)
    assert len(other.tokens["source"]) == own
    for source in (same["text"], other):
        patched = run("transformer", {"type": "patch", "name": "encoder.out", "text": source}, target=target)
        torch.testing.assert_close(patched["logits"], other["logits"])
        assert patched.meta["interventions"][0]["text"] == same["text"]
    one = {"type": "patch", "name": "encoder.0.self.mixed", "head": 2, "position": 3, "text": same["text"]}
    patched, before = run("transformer", one, target=target), run("transformer", target=target)
    expected = before["encoder.0.self.mixed"].clone()
    expected[2, 3] = other["encoder.0.self.mixed"][2, 3]
    torch.testing.assert_close(patched["encoder.0.self.mixed"], expected)


@pytest.mark.parametrize("kind", ["transformer", "t5", "gpt", "llama", "bahdanau"])
def test_decoding_with_an_edit_is_decoding_with_a_cache(kind: str) -> None:
    """An edit that changes nothing: the search without a cache finds what the search with one finds."""
    name = "decoder.0.hidden" if kind == "bahdanau" else "decoder.0.out"
    same = {"type": "edit", "name": name, "position": 0, "column": 0, "value": 0.0, "operation": "add"}
    one, two = run(kind), run(kind, same)
    assert one.tokens["output"].ids == two.tokens["output"].ids
    assert [node.token for node in one.beam] == [node.token for node in two.beam]


def test_attention_of_recurrent_models() -> None:
    before = run("bahdanau", target="the cat")
    blind = run("bahdanau", {"type": "zero_head", "where": "decoder.cross", "head": 0}, target="the cat")
    assert not blind["decoder.cross.context"].any()
    assert not torch.allclose(before["logits"], blind["logits"])
    alike = run("bahdanau", {"type": "uniform"}, target="the cat")
    shares = alike["decoder.cross.weights"]
    torch.testing.assert_close(shares, torch.full_like(shares, 1 / shares.shape[-1]))


def test_the_one_head_of_bahdanau_is_the_same_for_all_hypotheses() -> None:
    """`head = 0` changed the first hypothesis of the beam alone: its scores have no dimension of heads."""
    whole, head = (
        run("bahdanau", {"type": "uniform", **fields}, decode={"beam": 4, "max_length": 6})
        for fields in ({}, {"where": "decoder.cross", "head": 0})
    )
    assert head.tokens["output"].ids == whole.tokens["output"].ids
    interventions = [{"type": "uniform", "where": "decoder.cross", "head": 0}]
    (change,) = parse(interventions, opened_task("bahdanau").folder.model)
    assert not change.edit(torch.ones(2, 4, 3)).any()


def test_a_prompt_that_became_longer_is_no_output() -> None:
    """The output began with the end of the prompt, where one of its pieces became several."""
    plain = run("gpt", target=" cat")
    changed = run(
        "gpt", {"type": "replace_token", "side": "target", "position": 1, "text": "unbelievable things"},
        target=" cat",
    )  # fmt: skip
    assert changed.output == plain.output
    assert changed.meta["prompt"] > plain.meta["prompt"]


@pytest.mark.parametrize("kind", ["transformer", "t5", "bahdanau", "gpt", "llama"])
def test_decoding_uses_the_intervention(kind: str) -> None:
    """Greedy search with a change picks the best of each step of the recorded run with that change."""
    where = {"bahdanau": "decoder.cross"}.get(kind, "decoder.1.self")
    change = {"type": "uniform", "where": where}
    after = run(kind, change, decode={"beam": 1, "max_length": 4})
    first = max(0, after.meta["prompt"] - 1)
    never = list(opened_task(kind).folder.target.suppressed)
    logits = after["logits"][first:].clone()
    logits[:, never] = -torch.inf
    assert logits.argmax(dim=1).tolist() == list(after.tokens["output"].ids[first:])


# Comparing


def test_a_trained_model_without_its_attention(tiny_model: Path) -> None:
    task = load(tiny_model, "cpu", 1)
    before = task.trace("ba de fi")
    changes = [{"type": "zero_head", "where": "decoder.0.cross", "head": head} for head in (0, 1)]
    after = task.trace("ba de fi", interventions=changes)
    comparison = compare(before, after)
    assert comparison.changed
    assert before.output == "If Ed Ab"
    first = comparison.choices[0]
    assert first.before > 0.9
    assert first.after < 0.5
    assert f'"{first.text}"' in comparison.sentence
    assert '"If Ed Ab" -> "' in comparison.sentence
    step = comparison.step
    p, q = (trace["logits"][step].double().softmax(dim=0).numpy() for trace in (before, after))
    assert comparison.divergence == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-4)
    same = compare(before, task.trace("ba de fi"))
    assert same.divergence == 0
    assert not same.changed
    assert "did not change" in same.sentence
    assert comparison.as_json()["sentence"] == comparison.sentence


@pytest.mark.parametrize("kind", ["classify", "tag", "answer", "fill", "gpt", "rnn"])
def test_runs_of_every_task_compare(kind: str) -> None:
    change = {"type": "replace_token", "position": 2, "text": "<unk>"}
    before, after = run(kind), run(kind, change)
    comparison = compare(before, after)
    assert "\n" not in comparison.sentence
    assert sum(each.before for each in comparison.choices) <= 1 + 1e-5
    assert comparison.divergence == max(comparison.divergences)
    if kind == "classify":
        assert {each.text for each in comparison.choices} == {"good", "bad", "odd"}


def test_divergence_by_numpy() -> None:
    one, two = torch.randn(3, 7), torch.randn(3, 7)
    p, q = (x.double().softmax(-1).numpy() for x in (one, two))
    np.testing.assert_allclose(divergence(one, two).numpy(), (p * np.log(p / q)).sum(-1), atol=1e-9)
    assert not divergence(one, one).any()


def test_what_cannot_be_compared() -> None:
    whole, part = run("transformer"), run("transformer", only=("encoder.out",))
    with pytest.raises(UsageError, match="needs the logits"):
        compare(whole, part)
    with pytest.raises(UsageError, match="different vocabularies"):
        compare(run("classify"), run("tag"))
    with pytest.raises(UsageError, match="step = 99"):
        compare(whole, whole, step=99)


# Invalid interventions


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (
            "transformer",
            {"type": "zero_head", "where": "decoder.7.cross", "head": 0},
            "the decoder has 2 layers",
        ),
        ("transformer", {"type": "zero_head", "where": "decoder.1.cross", "head": 4}, "4 heads, 0 to 3"),
        ("transformer", {"type": "zero_head", "where": "decoder.1.cross", "head": -1}, "4 heads"),
        ("transformer", {"type": "zero_head", "where": "decoder.1.cross", "head": True}, "4 heads"),
        ("transformer", {"type": "zero_head", "where": "decoder.1.cross"}, "head = None"),
        ("transformer", {"type": "zero_head", "where": ["x"], "head": 1}, "there is no attention"),
        ("transformer", {"type": "zero_heads"}, 'did you mean "zero_head"'),
        ("transformer", {"type": ["a"]}, "is not a type"),
        ("transformer", {"type": "drop_scale", "factor": 2}, 'takes where, not "factor"'),
        ("transformer", {}, "is not a type"),
        ("transformer", "drop_scale", "write an object"),
        ("transformer", {"type": "replace_token", "position": 999, "text": "x"}, "tokens, from 0 on"),
        ("transformer", {"type": "replace_token", "position": "1", "text": "x"}, "write the position"),
        ("transformer", {"type": "replace_token", "position": 1}, "write the replacement"),
        (
            "transformer",
            {"type": "replace_token", "side": "left", "position": 1, "text": "x"},
            "source or target",
        ),
        ("transformer", {"type": "drop_positions", "side": "left"}, "encoder and decoder"),
        ("gpt", {"type": "zero_head", "where": "decoder.0.cross", "head": 0}, "the decoder has 2 layers"),
        ("classify", {"type": "unmask_future"}, "no causal mask"),
        (
            "classify",
            {"type": "replace_token", "side": "target", "position": 0, "text": "x"},
            "generates no text",
        ),
        ("t5", {"type": "drop_scale"}, "not scaled"),
        ("transformer", {**CHANGES["edit"], "name": "encoder.0.outs"}, "did you mean"),
        ("transformer", {**CHANGES["edit"], "name": "lens.ids"}, "not the name of a tensor"),
        (
            "transformer",
            {**CHANGES["edit"], "name": "encoder.0.self.value_norms"},
            "computed from the values",
        ),
        ("transformer", {**CHANGES["edit"], "name": "encoder.7.out"}, "no position 1 in encoder.7.out"),
        ("transformer", {**CHANGES["edit"], "position": 99}, "no position 99"),
        ("transformer", {**CHANGES["edit"], "column": 32}, "32 numbers"),
        ("transformer", {**CHANGES["edit"], "head": 0}, "has no heads"),
        ("transformer", {**CHANGES["edit"], "value": "1"}, "write a number"),
        ("transformer", {**CHANGES["edit"], "operation": "times"}, "write set or add"),
        ("transformer", {**CHANGES["patch"], "text": ""}, "write the text"),
        ("transformer", {**CHANGES["patch"], "position": 99}, "of the other run has"),
        ("rnn", {"type": "uniform"}, "no attention"),
        ("rnn", {"type": "drop_positions"}, "no positions"),
        ("rnn", {"type": "unmask_future"}, "no causal mask"),
        ("bahdanau", {"type": "drop_scale"}, "not scaled"),
        (
            "bahdanau",
            {"type": "zero_head", "where": "decoder.0.cross", "head": 0},
            "the only one is decoder.cross",
        ),
    ],
)
def test_invalid_interventions(kind: str, change: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(kind, change)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_changes_come_as_a_list() -> None:
    with pytest.raises(UsageError, match="write a list"):
        opened_task("gpt").trace("cat", interventions={"type": "drop_scale"})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (CHANGES["zero_head"], "without head 2 of decoder.1.cross"),
        (CHANGES["zero_self"], "without head 0 of encoder.0.self"),  # 0 is given
        (CHANGES["uniform"], "with equal scores"),
        (CHANGES["uniform_head"], "with equal scores in head 3 of decoder.0.self"),
        (CHANGES["drop_scale"], "without the scale"),
        ({"type": "drop_positions", "side": "encoder"}, "without positions in the encoder"),
        (CHANGES["replace_token"], 'with "cat" as token 1'),
        (CHANGES["edit"], "with number 2 at position 1 of encoder.0.out: 9"),
        ({**CHANGES["patch"], "head": 0}, 'with encoder.out, head 0 of "a dog sleeps"'),
        ({**CHANGES["replace_token"], "text": "[{head}]"}, 'with "[{head}]" as token 1'),
    ],
)
def test_interventions_in_words(fields: dict[str, Any], words: str) -> None:
    assert describe([fields]) == words
    assert describe([fields, CHANGES["unmask_future"]]) == f"{words}, with the future unmasked"


@pytest.mark.parametrize("name", INTERVENTIONS)
def test_the_page_gets_the_fields_that_are_accepted(name: str) -> None:
    described = SETTINGS["interventions"][name]
    values = {"where": "decoder.1.cross", "head": 2, "side": "source", "position": 1, "text": "cat"}
    values |= {"name": "encoder.0.self.query", "column": 3, "value": 0.5, "operation": "add"}
    if described["sides"] == "stacks":
        values["side"] = "encoder"
    model = opened_task("transformer").folder.model
    everything = {field: values[field] for field in described["fields"]}
    assert parse([{"type": name, **everything}], model)
    assert parse([{"type": name, **{field: values[field] for field in described["required"]}}], model)
    for field in described["required"]:
        with pytest.raises(UsageError):
            parse([{"type": name, **{each: everything[each] for each in everything if each != field}}], model)
    for field in values.keys() - everything.keys():
        with pytest.raises(UsageError, match="takes"):
            parse([{"type": name, **everything, field: values[field]}], model)
