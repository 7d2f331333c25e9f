"""Several models as one: against the mean computed by hand, and through every door of a single model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard as package
from conftest import Command, Refused, Toy, toy_sentences
from regard.batch import collate
from regard.config import Decode
from regard.errors import UsageError
from regard.generation import SpecialTokens, decode, score
from regard.generation.engine import make_engine
from regard.generation.ensemble import Ensemble, EnsembleCache, scorer
from regard.inputs.text import train_tokenizer
from regard.sample import Sample
from regard.storage import open_folder
from regard.tasks import Translator
from samples import END, START, random_samples, small

SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
CPU = torch.device("cpu")


def sources(count: int, seed: int = 0) -> list[Sample]:
    return [Sample(source=sample.source) for sample in random_samples(count, seed)]


def by_hand(models, samples, mean):
    """log p of each label: the mean over models of the probabilities, or of their logs, normalised again."""
    batch = collate(samples)
    each = torch.stack([model(batch).double().log_softmax(-1) for model in models])
    joint = each.exp().mean(0).log() if mean == "probability" else each.mean(0).log_softmax(-1)
    return [
        [float(joint[row, at, label]) for at, label in enumerate(sample.labels)]
        for row, sample in enumerate(samples)
    ]


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_model_with_itself_is_the_model(beam, sample):
    model, samples = small(3), sources(9, 2)
    options = Decode(beam=beam, max_length=15, sample=sample)
    alone = decode(model, samples, options, SPECIAL, CPU)
    for mean in ("probability", "log"):
        twice = decode(Ensemble([model, model], mean), samples, options, SPECIAL, CPU)
        assert [[h.tokens for h in own] for own in twice] == [[h.tokens for h in own] for own in alone]
        for ours, theirs in zip(twice, alone):
            assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-4)


@pytest.mark.parametrize("mean", ["probability", "log"])
@torch.no_grad()
def test_two_models_are_their_mean(mean):
    """Of different shapes; every hypothesis has the probability that the mean gives it; scoring too."""
    models = [small(3), small(4, layers=1, heads=2)]
    voice = Ensemble([make_engine(small(3)), models[1]], mean)
    differs = False
    for each in sources(6, 5):
        found = decode(voice, [each], Decode(beam=4, max_length=12), SPECIAL, CPU)[0]
        pairs = [Sample(each.source, [START, *h.tokens], [*h.tokens, END]) for h in found]
        expected = by_hand(models, pairs, mean)
        for hypothesis, own in zip(found, expected):
            details = hypothesis.token_log_probabilities
            assert details == pytest.approx(own[: len(details)], abs=2e-4)
        scored = score(scorer(models, mean), pairs, 1000, CPU)
        for ours, theirs in zip(scored, expected):
            assert ours == pytest.approx(theirs, abs=2e-4)
        single = decode(models[0], [each], Decode(beam=4, max_length=12), SPECIAL, CPU)[0]
        differs |= found[0].tokens != single[0].tokens
    assert differs


def test_states_select_and_join_as_one_models():
    voice = Ensemble([small(3), small(4)])
    batch = collate(random_samples(3, 5), 16)
    state = voice.start(batch, 2)
    words = torch.randint(4, 23, (6, 5), generator=torch.Generator().manual_seed(3))
    _, state = voice.step(state, words)
    rows = torch.tensor([4, 0, 2])
    more = torch.full((3, 1), 7)
    copies = [EnsembleCache(tuple(part.clone() for part in state.parts)) for _ in range(2)]
    expected, _ = voice.step(state.select(rows), more)
    joined = EnsembleCache.join([copies[0].select(rows[:1]), copies[1].select(rows[1:])])
    assert len(joined) == 3
    found, _ = voice.step(joined, more)
    torch.testing.assert_close(found, expected)
    assert voice.longest_target is None
    assert Ensemble([small(3), small(4, positions="learned", max_length=40)]).longest_target == 40


@pytest.mark.usefixtures("same_threads")
def test_checkpoints_of_a_run_together(regard: Command, refused: Refused, tiny_model: Path) -> None:
    """A checkpoint opens with its run's tokenizers; the last one is the model of the folder."""
    last, middle = (tiny_model / "checkpoints" / f"step-{step}" for step in (400, 200))
    text = "\n".join(toy_sentences(20, seed=8))
    whole = regard("translate", "-m", tiny_model, stdin=text)
    assert regard("translate", "-m", last, stdin=text) == whole
    assert regard("translate", "-m", last, "-m", tiny_model, stdin=text).out == whole.out
    both = regard("translate", "-m", last, "-m", middle, "--json", "--alignment", "ba de fi").lines[0]
    found = json.loads(both)["candidates"][0]
    translator = package.load([last, middle], "cpu", 1)
    score = translator.score(["ba de fi"], [found["text"]])[0]
    assert list(score) == pytest.approx(found["token_log_probabilities"], abs=1e-3)
    assert len(found["alignment"]) == len(found["text"].split())
    broken = tiny_model.parent / "copy" / "checkpoints" / "step-400"
    broken.mkdir(parents=True)
    (broken / "manifest.json").write_text("{}")
    assert "no config.json" in refused("translate", "-m", broken, "ba")


def test_other_tokenizers_are_refused(tiny_model: Path) -> None:
    one = open_folder(tiny_model)
    other = replace(one, path=Path("elsewhere"), output=train_tokenizer(["other words"], "bpe", 300))
    with pytest.raises(UsageError, match=r"toy and elsewhere have different tokenizers"):
        Translator(one, other)


def test_scores_of_a_model_with_itself_are_the_models(toy: Toy, regard: Command) -> None:
    """`evaluate` and `score` take several models as `translate` does."""
    for command in (
        ("evaluate", "--data", toy.corpora / "test.tsv", "--json"),
        ("score", toy.corpora / "test.tsv"),
    ):
        name, *more = command
        one = regard(name, "-m", toy.model, *more)
        two = regard(name, "-m", toy.model, "-m", toy.model, *more)
        assert one.code == two.code == 0
        if name == "evaluate":
            first, second = (json.loads(result.out) for result in (one, two))
            assert {**first, "seconds": 0} == {**second, "seconds": 0}
        else:
            assert one.lines == two.lines


def test_an_ensemble_of_language_models_reads_prompts():
    """The prompt takes part of the window, and n-grams of it count, as with a single model."""
    models = [small(26, family="gpt", max_length=16), small(27, family="gpt", max_length=16)]
    prompt = Sample(source=[START, 5, 6, 7, 5, 6, 7, 8])
    options = Decode(beam=1, min_length=30, max_length=30, no_repeat_ngram=2)
    special = SpecialTokens(START, END, suppressed=(0, START, 3))
    (alone,) = decode(models[0], [prompt], options, special, torch.device("cpu"))
    for mean in ("probability", "log"):
        twice = Ensemble([models[0], models[0]], mean)
        assert decode(twice, [prompt], options, special, torch.device("cpu"))[0][0].tokens == alone[0].tokens
    assert len(alone[0].tokens) == 16 - len(prompt.source) + 1
    assert Ensemble(models).reads_prompts and not Ensemble([small(3)]).reads_prompts
