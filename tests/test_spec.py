"""One description of each task: its method, command, HTTP route and reference page have the same options."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

import regard as package
import understanding
from conftest import Command, Refused
from regard.cli import translate_workers
from regard.cli.main import make_app
from regard.compat import OPTIONS, OldNameWarning
from regard.errors import UsageError
from regard.server.app import app_of
from regard.server.service import Service
from regard.tasks import Translation
from regard.tasks.results import Results, as_dict
from regard.tasks.spec import TASKS, TaskSpec

pytestmark = pytest.mark.usefixtures("same_threads")
COMMON = ("--model", "-m", "--output", "-o", "--json", "--device", "--precision", "--threads", "--input")
SPECS = [pytest.param(spec, id=name) for name, spec in TASKS.items()]


def command(name: str) -> Any:
    return typer.main.get_command(make_app([name])).commands[name]  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", SPECS)
def test_a_command_has_the_options_of_its_task(spec: TaskSpec) -> None:
    params = {param.name: param for param in command(spec.name).params}
    flags = {flag for param in params.values() for flag in param.opts}
    assert set(COMMON) <= flags
    for name, option in spec.options.items():
        param = params[name]
        flag = "--set" if name == "decode" else f"--{name.replace('_', '-')}"
        assert flag in param.opts
        assert param.default == (None if option.default == () else option.default), name
        if name != "decode":
            assert param.help.startswith(option.description.rstrip(".")), name


@pytest.mark.parametrize("spec", SPECS)
def test_a_class_has_the_method_that_is_described(spec: TaskSpec) -> None:
    for kind, described in zip(spec.classes, spec.methods.values(), strict=True):
        method = getattr(kind, spec.method)
        assert inspect.signature(method) == inspect.signature(described)
        assert inspect.signature(method).return_annotation == f"list[{spec.result.__name__}]"


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    content: dict[str, Any] = app_of(Service({})).openapi()
    return content


def resolved(api: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = api["components"]["schemas"][name] if name else schema
    return found


@pytest.mark.parametrize("spec", SPECS)
def test_a_route_has_the_options_of_its_task(spec: TaskSpec, api: dict[str, Any]) -> None:
    route = api["paths"][f"/api/v1/{spec.name}"]["post"]
    body = resolved(api, route["requestBody"]["content"]["application/json"]["schema"])
    assert set(body["properties"]) == {"model", *spec.inputs, *spec.options}
    assert set(body.get("required", ())) == {name for name, needed in spec.inputs.items() if needed}
    for name, option in spec.options.items():
        default = list(option.default) if option.default == () else option.default
        assert body["properties"][name].get("default") == default, name
        assert body["properties"][name]["description"] == option.description
    answer = resolved(api, route["responses"]["200"]["content"]["application/json"]["schema"])
    row = resolved(api, answer["properties"]["results"]["items"])
    assert {each.name for each in fields(spec.result)} <= set(row["properties"])


@pytest.mark.parametrize("spec", SPECS)
def test_every_result_names_its_precision(spec: TaskSpec) -> None:
    assert {"precision", "skipped"} <= {each.name for each in fields(spec.result)}


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() & TASKS.keys()))
def test_old_names_are_accepted_in_requests(name: str) -> None:
    spec = TASKS[name]
    values = {"num_results": 2, "on_too_long": "cut", "min_score": 1.0}
    inputs = {name: "a" for name, needed in spec.inputs.items() if needed}
    for old, new in OPTIONS[name].items():
        if new in spec.options:
            with pytest.warns(OldNameWarning, match=f"{old} is an old name of {new}"):
                request = spec.request_model()(**inputs, **{old: values[new]})
            assert getattr(request, new) == ("truncate" if values[new] == "cut" else values[new])
            with pytest.raises(UsageError) as caught:
                spec.request_model()(**inputs, **{old: values[new], new: values[new]})
            assert caught.value.code == "E_OLD_NAME"


def test_old_names_are_accepted_in_commands_and_methods(regard: Command, tiny_model: Path) -> None:
    new = regard("translate", "-m", tiny_model, "ba", "-n", 2, "--on-too-long", "truncate")
    old = regard("translate", "-m", tiny_model, "ba", "--nbest", 2, "--too-long=cut")
    assert old.out == new.out != ""
    assert old.err.splitlines() == [
        "--nbest is an old name of --num-results",
        "--too-long is an old name of --on-too-long",
    ]
    model = package.load(tiny_model)
    with pytest.warns(OldNameWarning, match="nbest is an old name of num_results"):
        (result,) = model.translate_lines(["ba"], nbest=2, on_too_long="cut")
    assert len(result.candidates) == 2
    with pytest.warns(OldNameWarning, match=r"Translation\.broken is an old name of split"):
        assert result.broken is False


# precision


def test_scores_and_traces_are_exact_by_every_way_in(regard: Command, refused: Refused) -> None:
    """A calibrated model translates in int8, and scores in float32 unless int8 is named."""
    name, pair = "tatoeba-en-de", ("I see the house.", "Ich sehe das Haus.")
    model, exact = package.load(name), package.load(name, precision="float32")
    if model.precision != "int8":
        pytest.skip("this machine has no int8 kernels")
    score, expected = model.score(*pair), exact.score(*pair)
    assert score == expected
    assert score.precision == "float32"
    shown = regard("score", "-m", name, "-", "--json", stdin="\t".join(pair))
    assert json.loads(shown.out) == {"line": 1, **as_dict(expected)}
    trace, plain = model.trace(pair[0]), exact.trace(pair[0])
    assert (trace.meta["precision"], trace.output) == ("float32", plain.output)
    assert all(trace[key].equal(plain[key]) for key in ("logits", "decoder.0.cross.weights"))
    named = package.load(name, precision="int8").score(*pair)
    assert named.precision == "int8"
    assert named.log_probability != score.log_probability
    assert model.translate_lines(pair[0]).precision == "int8"


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_encoders_in_other_precisions(regard: Command, precision: str) -> None:
    model = understanding.model("classify")
    texts = ["ba lala", "buhu de", "fi grr ba de fi ga"]
    rows = [json.loads(line) for line in regard(
        "classify", "-m", model, "--precision", precision, "--json", *texts).lines]  # fmt: skip
    assert [row["label"] for row in rows] == ["happy", "sad", "angry"]
    assert {row["precision"] for row in rows} == {precision}
    task = package.load(model, precision=precision)
    assert [as_dict(task.classify(text)) for text in texts] == [
        {key: value for key, value in row.items() if key != "line"} for row in rows
    ], "a result does not depend on the batch"


# Python


class Column:
    """A column of a table: a sequence that is not a list."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


def test_columns_in_and_tables_out() -> None:
    model = package.load(understanding.model("classify"))
    results = model.classify(Column(["ba lala", "", "buhu de"]))
    assert isinstance(results, Results)
    assert [each.label for each in results] == ["happy", "", "sad"]
    assert [row["label"] for row in results.to_dicts()] == ["happy", "", "sad"]
    with pytest.raises(UsageError) as caught:
        model.classify(Column(["ba", float("nan")]))
    assert caught.value.code == "E_TEXT_TYPE"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_of_other_libraries(library: str) -> None:
    module = pytest.importorskip(library)
    results = package.load(understanding.model("classify")).classify(module.Series(["ba lala", "buhu de"]))
    table = results.to_pandas() if library == "pandas" else results.to_polars()
    assert list(table["label"]) == ["happy", "sad"]


def test_a_model_describes_itself(tiny_model: Path) -> None:
    shown = repr(package.Translator.load(tiny_model))
    assert shown.startswith("<Translator translate, transformer, ")
    assert shown.endswith("M parameters; float32 on cpu>")
    with pytest.raises(UsageError) as caught:
        package.Classifier.load(tiny_model)
    assert caught.value.code == "E_MODEL_TASK"
    assert "happy" in repr(package.load(understanding.model("classify")))


# files


def test_an_interrupted_translation_continues(
    regard: Command, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, output = tmp_path / "text", tmp_path / "out"
    text.write_text("ba\n\nde fi\nga\nka le\n", encoding="utf-8")
    expected = regard("translate", "-m", tiny_model, text).out
    parts = translate_workers.translate_in_parts
    small = lambda *arguments: parts(*arguments, at_once=2)  # noqa: E731
    monkeypatch.setattr(translate_workers, "translate_in_parts", small)
    translate, calls = translate_workers.translate_portion, list[int]()

    def interrupted(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        translate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(translate_workers, "translate_portion", interrupted)
        cut = regard("translate", "-m", tiny_model, text, "-o", output)
    assert (cut.code, output.exists()) == (130, False)
    assert "the same command continues" in cut.err
    again = regard("translate", "-m", tiny_model, text, "-o", output)
    assert "1 of 3 portions were there from before" in again.err
    assert output.read_text(encoding="utf-8") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text"]


def test_a_line_without_end_takes_no_memory(tiny_model: Path) -> None:
    model = package.load(tiny_model)
    endless = "ba " * 400_000
    with pytest.raises(UsageError) as caught:
        model.translate_lines(["ba", endless])
    assert caught.value.code == "E_LINE_LENGTH"
    results: list[Translation] = model.translate_lines(["ba", endless], on_too_long="skip")
    assert [each.skipped for each in results] == [False, True]


def test_a_labelled_table_is_scored(regard: Command, tmp_path: Path) -> None:
    table = tmp_path / "reviews.tsv"
    table.write_text("ba lala\thappy\nbuhu de\tangry\n", encoding="utf-8")
    result = regard("classify", "-m", understanding.model("classify"), table)
    assert result.lines == ["happy", "sad"]
    assert "1 of 2 labels are right: accuracy 50.00 %" in result.err


@pytest.mark.parametrize("name", ["a.docx", "a.vtt", "a.html", "a.json", "a.csv", "a.md", "a.png"])
def test_a_file_that_is_no_text_is_refused_by_its_type(
    refused: Refused, tiny_model: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("ba de\n", encoding="utf-8")
    message = refused("translate", "-m", tiny_model, tmp_path / name)
    assert str(tmp_path / name) in message


def test_text_or_file(regard: Command, refused: Refused, tiny_model: Path, tmp_path: Path) -> None:
    assert regard("translate", "-m", tiny_model, "ba/de").code == 0
    assert "no such file" in refused("translate", "-m", tiny_model, f"{tmp_path}/missing")
    (tmp_path / "yes").write_text("ba\n", encoding="utf-8")
    assert regard("translate", "-m", tiny_model, "-i", tmp_path / "yes", "de").lines == ["Ab", "Ed"]


def test_explain_reads_files_and_gives_json(
    regard: Command, refused: Refused, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("ba de\n", encoding="utf-8")
    row = json.loads(regard("explain", "-m", tiny_model, tmp_path / "text", "--json").out)
    assert (row["text"], row["output"], row["precision"]) == ("ba de", "Ed Ab", "float32")
    assert [each["choices"][0]["text"].strip() for each in row["steps"]][:2] == ["Ed", "Ab"]
    assert "give its file with -o" in refused("explain", "-m", tiny_model, "ba", "--view", "lens")
    assert "leave it or -o out" in refused("explain", "-m", tiny_model, "ba", "--step", 1, "-o", "a.svg")


def test_nothing_is_warned_of_without_old_names(tiny_model: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert package.load(tiny_model).translate("ba", num_results=1, beam=2) == "Ab"
