"""One model for several target languages: a token before the source, corpora sampled by temperature."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import resolve
from regard.data.corpora import tempered
from regard.errors import UsageError
from regard.tasks import Translator
from regard.training.prepare import prepare_data
from regard.training.run import train

WORDS = ["ka", "lo", "mi", "nu", "pe"]
INTO = {"fr": "{}e", "de": "{}en"}  # what becomes of each word


def corpora(path: Path, counts: dict[str, int]) -> list[dict[str, Any]]:
    parts = []
    for language, count in counts.items():
        file = path / f"{language}.tsv"
        lines = []
        for number in range(count):
            words = [WORDS[number // 5**place % 5] for place in range(2)]
            lines.append(f"{' '.join(words)}\t{' '.join(INTO[language].format(each) for each in words)}\n")
        file.write_text("".join(lines))
        parts.append({"corpus": str(file), "target": language})
    return parts


def config(path: Path, counts: dict[str, int], **data: Any) -> Any:
    return resolve(
        {
            "task": {"source": "xx", "target": "fr"},
            "data": {"train": corpora(path, counts), **data},
            "text": {"vocabulary": 300},
            "model": {"width": 32, "layers": 1, "heads": 2, "feed_forward": 64, "dropout": 0.0},
            "train": {
                "steps": 120,
                "lr": 0.01,
                "warmup": 20,
                "tokens_per_batch": 512,
                "checkpoint_every": 120,
            },
        }
    )


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.integers(1, 10**6)), min_size=1, max_size=6), st.floats(1, 50)
)
def test_temperature(parts: list[tuple[float, int]], temperature: float) -> None:
    weights, counts = [weight for weight, _ in parts], [count for _, count in parts]
    rows = [weight * count for weight, count in zip(tempered(weights, counts, temperature), counts)]
    sizes = [weight * count for weight, count in parts]
    assert math.isclose(sum(rows), sum(sizes), rel_tol=1e-9)  # an epoch is as long
    for row, size in zip(rows, sizes):
        assert math.isclose(row / rows[0], (size / sizes[0]) ** (1 / temperature), rel_tol=1e-9)


def test_small_corpora_are_seen_more_often(tmp_path: Path) -> None:
    data = prepare_data(
        config(tmp_path, {"fr": 400, "de": 25}, temperature=2.0), tmp_path / "run", lambda _: None
    )
    weights = [each["weight"] for each in data.record["corpora"]]
    assert math.isclose(25 * weights[1] / (400 * weights[0]), (25 / 400) ** 0.5)


def test_one_model_translates_into_both(tmp_path: Path) -> None:
    train(config(tmp_path, {"fr": 25, "de": 25}), tmp_path / "run")
    model = Translator.load(tmp_path / "run", threads=1)
    assert set(model.folder.source.languages) == {"fr", "de"}
    for language, form in INTO.items():
        expected = " ".join(form.format(each) for each in ("mi", "ka"))
        assert model.translate("mi ka", language=language, check=False) == expected
    with pytest.raises(UsageError):
        model.translate("mi", language="it")


def test_a_language_is_a_code(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        resolve({"data": {"train": [{"corpus": "a.tsv", "target": "f r"}]}})
