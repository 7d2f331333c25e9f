"""What a run is: presets, precedence, round trips, and an error for everything a person can get wrong."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import (
    PRESETS,
    Config,
    Decode,
    Task,
    Text,
    Train,
    differing_field,
    load_config,
    resolve,
    template,
    to_toml,
)
from regard.config.load import parse_value
from regard.config.schema import FAMILIES_OF
from regard.errors import UsageError

DATA = {"data": {"train": "pairs.tsv"}}


def write(folder: Path, text: str, name: str = "run.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(tree: dict[str, object]) -> str:
    """The message for a config that must be refused."""
    with pytest.raises(UsageError) as caught:
        resolve({**DATA, **tree}, where="run.toml")
    return str(caught.value)


# presets and precedence


@pytest.mark.parametrize(
    ("name", "layers", "width", "feed_forward", "heads", "channels", "dropout"),
    [  # Vaswani et al. 2017, Table 3, rows "base" and "big"
        ("transformer-base", 6, 512, 2048, 8, 64, 0.1),
        ("transformer-big", 6, 1024, 4096, 16, 64, 0.3),
    ],
)
def test_presets_hold_the_papers_numbers(
    name: str, layers: int, width: int, feed_forward: int, heads: int, channels: int, dropout: float
) -> None:
    model = resolve({**DATA, "model": {"preset": name}}).model
    assert model.depth == (layers, layers)
    assert (model.width, model.feed_forward, model.heads) == (width, feed_forward, heads)
    assert (model.channels, model.dropout) == (channels, dropout)
    assert (model.norm, model.positions, model.activation) == ("post", "sinusoidal", "relu")


PICTURES = {"kind": "image", "height": 32, "width": 48, "patch": 8}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_possible(name: str) -> None:
    family = PRESETS[name].get("family", "transformer")
    task = next((task for task, families in FAMILIES_OF.items() if family in families), "classify")
    inputs = {"whisper": {"kind": "audio"}} | dict.fromkeys(("vit", "vit_gpt"), PICTURES)
    reads = {"input": inputs[family]} if family in inputs else {}
    config = resolve({**DATA, "task": {"name": task}, "model": {"preset": name}, **reads})
    assert (config.model.preset, config.model.family) == (name, family)


def test_the_papers_optimiser_is_the_default() -> None:
    train = resolve(DATA).train
    assert (train.optimizer, train.betas, train.epsilon) == ("adam", (0.9, 0.98), 1e-9)
    assert (train.label_smoothing, train.warmup) == (0.1, 4000)


def test_override_wins_over_file_and_file_over_preset(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[data]\ntrain = "a.tsv"\n[model]\npreset = "transformer-tiny"\nlayers = 2\nheads = 2\n',
    )
    model = load_config(path, ["model.heads=8"]).model
    assert (model.width, model.layers, model.heads) == (128, 2, 8)


def test_the_last_of_two_overrides_counts(tmp_path: Path) -> None:
    path = write(tmp_path, '[data]\ntrain = "a.tsv"\n')
    assert load_config(path, ["train.steps=5", "train.steps=7"]).train.steps == 7


def test_an_override_may_add_a_section(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, ""), ["data.train=phrasebook", "task.source=en"]).task.source == "en"


def test_warmup_follows_the_steps_unless_given() -> None:
    assert resolve({**DATA, "train": {"steps": 50}}).train.warmup == 5
    assert resolve({**DATA, "train": {"steps": 5}}).train.warmup == 1
    assert resolve({**DATA, "train": {"steps": 50, "warmup": 9}}).train.warmup == 9


def test_the_phrasebook_brings_its_own_held_out_data() -> None:
    data = resolve({"data": {"train": "phrasebook:500"}}).data
    assert (data.valid, data.test) == ("phrasebook", "phrasebook")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("3e-4", 3e-4),
        ("true", True),
        ('"a b"', "a b"),
        ("a b", "a b"),
        (" adam ", "adam"),
        ("[0.9, 0.98]", [0.9, 0.98]),
        ('["a.en", "a.de"]', ["a.en", "a.de"]),
        ("", ""),
        ("2026-01-01x", "2026-01-01x"),
        ("1\nother = 2", "1\nother = 2"),  # a second key must not vanish silently
        ("9" * 5000, "9" * 5000),  # more digits than Python converts
    ],
)
def test_values_of_set(text: str, value: object) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize("override", ["lr", "train.lr", "lr=3", "a.b.c=3", "=3", ".lr=1", "train.=1", ""])
def test_a_malformed_set_shows_how_it_is_written(tmp_path: Path, override: str) -> None:
    with pytest.raises(UsageError, match=r"section\.field=value"):
        load_config(write(tmp_path, '[data]\ntrain = "a.tsv"\n'), [override])


# what is refused


def test_near_misses_are_offered() -> None:
    assert 'unknown section "trian"' in refusal({"trian": {}})
    assert refusal({"trian": {}}).endswith('did you mean "train"?')
    message = refusal({"train": {"stepz": 3}})
    assert message.startswith('run.toml: unknown field "train.stepz"; known: steps, epochs')
    assert message.endswith('did you mean "steps"?')
    assert "did you mean" not in refusal({"train": {"xylophone": 3}})


def test_allowed_values_are_named() -> None:
    message = refusal({"text": {"kind": "bpee"}})
    assert "text.kind" in message
    assert all(kind in message for kind in ("bpe", "unigram", "word", "character"))
    assert message.endswith('did you mean "bpe"?')
    message = refusal({"model": {"preset": "transformer-bas"}})
    assert all(name in message for name in PRESETS)
    assert 'did you mean "transformer-base"?' in message


def modified(**fields: object) -> dict[str, object]:
    return {"data": {"train": "a.tsv", "modifiers": [fields]}}


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"model": {"width": 10, "heads": 4}}, ["model.width = 10", "model.heads = 4", "head_width"]),
        ({"model": {"width": 7, "heads": 7}}, ["model.width = 7", "even"]),
        (
            {"model": {"family": "t5", "relative_buckets": 64, "relative_max_distance": 32}},
            ["model.relative_max_distance = 32", "buckets = 64"],
        ),
        (
            {"model": {"family": "llama", "width": 120, "heads": 8}, "task": {"name": "generate"}},
            ["15 channels"],
        ),
        ({"model": {"family": "bert", "norm": "pre"}, "task": {"name": "fill"}}, ["model.norm", "bert"]),
        (
            {"model": {"family": "gpt", "kv_heads": 2}, "task": {"name": "generate"}},
            ["model.kv_heads", "gpt", "llama"],
        ),
        ({"train": {"schedule": "paper", "lr": 1.0}}, ["train.lr", "inverse-sqrt"]),
        ({"train": {"schedule": "paper", "warmup": 0}}, ["train.warmup = 0"]),
        ({"data": {"train": []}}, ["data.train", "empty"]),
        ({"data": {"train": ""}}, ["data.train", "empty"]),
        ({"data": {"train": [["a", "b", "c"]]}}, ["data.train", "[source, target]"]),
        ({"data": {"train": "a.tsv", "valid": [["a"]]}}, ["data.valid", "[source, target]"]),
        ({"data": {"train": 5}}, ["data.train = 5", "phrasebook"]),
        ({"data": {}}, ['"data.train" is missing']),
        ({"data": 5}, ["[data]"]),
        ({"data": {"train": "a.tsv", "leaks": "keeep"}}, ["data.leaks", "'drop'", 'did you mean "keep"?']),
        (modified(name="uper", probability=0.1), ["data.modifiers.name", '"uper"', 'did you mean "upper"?']),
        (
            modified(name="upper", probability=2),
            ["data.modifiers.probability = 2", "less than or equal to 1"],
        ),
        (modified(name="upper", chance=0.1), ['"data.modifiers.chance"', "known: name, probability"]),
        (modified(probability=0.1), ['"data.modifiers.name" is missing']),
        ({"train": 5}, ["[train]"]),
        ({"train": {"betas": [0.9]}}, ["train.betas = [0.9]", "two numbers"]),
        ({"train": {"betas": [0.9, 1.0]}}, ["train.betas", "less than 1"]),
        ({"model": {"preset": ["tiny"]}}, ["model.preset"]),
    ],
)
def test_impossible_combinations(tree: dict[str, object], words: list[str]) -> None:
    message = refusal(tree)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("task", "model", "field"),
    [
        ("translate", {"family": "transformer", "gated": True}, "gated"),
        ("translate", {"family": "transformer", "cell": "gru"}, "cell"),
        ("translate", {"family": "rnn", "heads": 4}, "heads"),
        ("translate", {"family": "t5", "norm": "pre"}, "norm"),
        ("generate", {"family": "gpt", "scale_embeddings": True}, "scale_embeddings"),
        ("classify", {"family": "bert", "kv_heads": 2}, "kv_heads"),
    ],
)
def test_a_field_of_another_family_is_refused_by_name(
    task: str, model: dict[str, object], field: str
) -> None:
    """It was accepted, ignored and recorded in run.toml."""
    with pytest.raises(UsageError) as caught:
        resolve({**DATA, "task": {"name": task}, "model": model})
    assert caught.value.code == "E_CONFIG_FIELD"
    assert f'"model.{field}": the family {model["family"]} does not have it' in str(caught.value)


def test_a_preset_gives_another_family_what_it_has() -> None:
    model = resolve({**DATA, "model": {"preset": "transformer-tiny", "family": "rnn"}}).model
    assert (model.family, model.width, model.layers) == ("rnn", 128, 4)


def test_another_family_on_the_command_line_drops_the_fields_of_the_first(tmp_path: Path) -> None:
    path = write(tmp_path, '[data]\ntrain = "a.tsv"\n[model]\nwidth = 32\nheads = 4\n')
    model = load_config(path, ["model.family=rnn", "model.reverse_source=true"]).model
    assert (model.family, model.width) == ("rnn", 32)


@pytest.mark.parametrize("field", ["train.steps", "train.warmup", "decode.max_length", "task.stride"])
def test_a_count_has_an_upper_bound(field: str) -> None:
    """`steps = 99999999999999999999` passed the check."""
    section, name = field.split(".")
    with pytest.raises(UsageError, match=re.escape(field)) as caught:
        resolve({**DATA, section: {name: 99999999999999999999}})
    assert caught.value.code == "E_CONFIG_VALUE"


@pytest.mark.parametrize(
    ("tree", "code"),
    [
        ({"trian": {}}, "E_CONFIG_SECTION"),
        ({"train": 5}, "E_CONFIG_SECTION"),
        ({"train": {"stepz": 3}}, "E_CONFIG_FIELD"),
        ({"data": {}}, "E_CONFIG_FIELD"),
        ({"train": {"steps": 0}}, "E_CONFIG_VALUE"),
        ({"model": {"family": "gtp"}}, "E_CONFIG_VALUE"),
        ({"model": {"preset": "big"}}, "E_CONFIG_VALUE"),
        ({"model": {"positions": "rotary"}}, "E_CONFIG_VALUE"),
    ],
)
def test_errors_have_codes(tree: dict[str, object], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve({**DATA, **tree})
    assert caught.value.code == code


FLOATS = [
    *(f"train.{name}" for name in ("epochs", "minutes", "lr", "epsilon", "weight_decay", "clip")),
    *("train.label_smoothing", "model.dropout", "decode.length_penalty", "decode.temperature"),
    "decode.top_p",
]


@pytest.mark.parametrize("field", FLOATS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "true", '"0.5"', "[0.5]", "1979-05-27"])
def test_a_number_must_be_a_finite_number(tmp_path: Path, field: str, value: str) -> None:
    """TOML can write nan and inf: a run with lr = nan would train for hours on nothing."""
    with pytest.raises(UsageError, match=re.escape(field)):
        load_config(write(tmp_path, '[data]\ntrain = "a.tsv"\n'), [f"{field}={value}"])


@pytest.mark.parametrize("value", ["-1", "1.5", "true", '"4"', "10000000000000000000000000"])
@pytest.mark.parametrize("field", ["model.heads", "train.seed", "decode.beam", "text.vocabulary"])
def test_a_count_must_be_a_whole_number_in_its_range(tmp_path: Path, field: str, value: str) -> None:
    """`heads = true` used to mean 1, and `heads = "4"` to mean 4."""
    with pytest.raises(UsageError, match=re.escape(field)):
        load_config(write(tmp_path, '[data]\ntrain = "a.tsv"\n'), [f"{field}={value}"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train.lr", 0),
        ("train.lr", -1e-3),
        ("train.minutes", 0),
        ("model.dropout", 1.0),
        ("model.dropout", -0.1),
        ("decode.temperature", -0.1),
        ("decode.top_p", 1.01),
        ("train.steps", 0),
        ("train.clip", -1),
        ("text.vocabulary", 299),
        ("text.joint", "no"),
        ("text.joint", 1),
        ("task.source", ""),
        ("task.source", 5),
    ],
)
def test_out_of_range_or_of_another_type(field: str, value: object) -> None:
    section, name = field.split(".")
    assert field in refusal({section: {name: value}})


def test_all_errors_are_told_at_once() -> None:
    message = refusal({"train": {"steps": 0, "lr": -1}, "model": {"depth": 3}})
    assert [line.split(":")[0] for line in message.split("\n")] == ["run.toml"] * 3


def test_a_long_value_does_not_flood_the_message() -> None:
    assert len(refusal({"train": {"steps": "x" * 100_000}})) < 300


# the file


def test_bad_toml_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, '[data]\ntrain = "a.tsv"\n[train\n')
    with pytest.raises(UsageError, match=r"run\.toml: not valid TOML.*line 3"):
        load_config(path)


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000])
def test_toml_that_chokes_its_reader(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="not valid TOML"):
        load_config(write(tmp_path, text))


def test_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file.*regard config init"):
        load_config(tmp_path / "none.toml")


def test_folder_instead_of_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        load_config(tmp_path)


def test_path_through_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Not a directory"):
        load_config(write(tmp_path, "") / "run.toml")


def test_a_file_that_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b'[data]\ntrain = "caf\xe9.tsv"\n')
    with pytest.raises(UsageError, match=r"line 2: not UTF-8"):
        load_config(path)


def test_windows_files_with_bom_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b'\xef\xbb\xbf[data]\r\ntrain = "a.tsv"\r\n')
    assert load_config(path).data.train == str(tmp_path / "a.tsv")


def test_paths_are_relative_to_the_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    monkeypatch.chdir(tmp_path)
    text = '[data]\ntrain = ["../a.en", "/abs/a.de"]\nvalid = "data:v.tsv"\n'
    text += 'test = [["t.en", "t.de"], "u.tsv"]\n'
    data = load_config(write(Path("recipes"), text)).data
    assert data.train == [str(tmp_path / "a.en"), "/abs/a.de"]
    assert data.valid == "data:v.tsv"
    inside = tmp_path / "recipes"
    assert data.test == [[str(inside / "t.en"), str(inside / "t.de")], str(inside / "u.tsv")]


def test_a_file_whose_name_begins_like_the_phrasebook_is_a_file(tmp_path: Path) -> None:
    """`phrasebook.tsv` was taken for the built-in corpus: not made absolute, and validated on another."""
    data = load_config(write(tmp_path, '[data]\ntrain = "phrasebook.tsv"\n')).data
    assert data.train == str(tmp_path / "phrasebook.tsv")
    assert data.valid is None


@pytest.mark.parametrize("name", ["~nobody-of-this-name/a.tsv", "a\\u0000b.tsv"])
def test_a_path_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a path"):
        load_config(write(tmp_path, f'[data]\ntrain = "{name}"\n'))


# round trips

counts = st.integers(1, 10**6)
shares = st.floats(0, 1, exclude_max=True)
positive = st.floats(1e-12, 1e6)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
paths = words.map(lambda word: f"/corpora/{re.sub(r'[./]', '_', word)}.tsv")


@st.composite
def configs(draw: st.DrawFn) -> Config:
    heads, channels = draw(st.integers(1, 16)), draw(st.integers(1, 32))
    train = {
        "steps": draw(counts),
        "lr": draw(st.none() | positive),
        "minutes": draw(st.none() | positive),
        "betas": [draw(shares), draw(shares)],
        "clip": draw(st.floats(0, 100)),
        "seed": draw(st.integers(0, 2**31 - 1)),
        "metric": draw(st.sampled_from(["bleu", "chrf", "loss"])),
    }
    return resolve(
        {
            "task": {"source": draw(words), "target": draw(words)},
            "data": {
                "train": draw(st.just("phrasebook") | paths | st.lists(paths, min_size=1, max_size=3)),
                "test": draw(st.none() | st.lists(st.lists(paths, min_size=2, max_size=2), min_size=1)),
            },
            "model": {
                "preset": draw(
                    st.none() | st.sampled_from([name for name in PRESETS if "transformer" in name])
                ),
                "heads": heads,
                "width": 2 * heads * channels,
                "head_width": draw(st.none() | counts.filter(lambda n: n <= 8192)),
                "dropout": draw(shares),
            },
            "train": train,
            "decode": {"early_stopping": draw(st.sampled_from([True, False, "never"])), "top_p": 0.5},
        }
    )


@settings(max_examples=60, deadline=None)
@given(configs())
def test_a_written_config_reads_back_equal(config: Config) -> None:
    again = resolve(tomllib.loads(to_toml(config)), base=Path("/somewhere/else"))
    assert again == config
    assert differing_field(again, config) is None


def test_differing_field_names_the_first_and_can_ignore() -> None:
    one, two = resolve(DATA), resolve({**DATA, "train": {"steps": 7, "warmup": 4000, "lr": 1.0}})
    assert differing_field(one, two) == "train.steps"
    assert differing_field(one, two, ignore=["train.steps"]) == "train.lr"
    assert differing_field(one, two, ignore=["train.steps", "train.lr"]) is None


@pytest.mark.parametrize("task", FAMILIES_OF)
def test_the_template_tells_the_truth(task: str) -> None:
    """Uncommenting every line that shows a value changes nothing: what is shown is what holds.

    It showed width = 512 under a preset whose width is 128.
    """
    text = template("run.toml", task)
    given_only = resolve(tomllib.loads(text))
    shown = re.sub(r"^# (valid|test) = .*$", "", text, flags=re.MULTILINE)
    shown = re.sub(r"^# (?=\w+ = (?!\(unset\)))", "", shown, flags=re.MULTILINE)
    assert shown.count("\n# ") < text.count("\n# ") - 20
    assert resolve(tomllib.loads(shown)) == given_only
    for section in (Task, Text, type(given_only.model), Train, Decode):
        for name in set(section.model_fields) - {"family"}:
            assert re.search(rf"^(# )?{name} = ", text, flags=re.MULTILINE), name


@pytest.mark.parametrize("statement", ["import regard", "import regard.config", "import regard.cli"])
def test_the_config_room_does_not_wait_for_torch(statement: str) -> None:
    program = f"import sys; {statement}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("family", [{}, [], 3])
def test_a_family_that_is_no_word_is_refused(family: object) -> None:
    """A mutated folder had a table there, and the look-up of positions broke before the field was checked."""
    tree = {
        "task": {"source": "en", "target": "de"},
        "data": {"train": "phrasebook"},
        "model": {"family": family},
    }
    with pytest.raises(UsageError, match="family"):
        resolve(tree)
