"""Choices and JSON schemas: what is written is one of them, and fits them."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chats import chat_folder
from conftest import Command
from regard.batch import collate
from regard.errors import UsageError
from regard.generation.grammar import SchemaGrammar
from regard.sample import Sample
from regard.tasks import Generator
from served import served

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["a man", 'a "woman"', None]},
        "parts": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_folder(tmp_path_factory.mktemp("structured"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Generator:
    return Generator.load(folder, threads=1, precision="float32")


# --- choices


def log_probability(model: Generator, prompt: str, choice: str, choices: list[str]) -> float:
    """Of the tokens of a choice; of its end, too, where another choice goes on there."""
    before, after = model.tokenizer.encode(prompt), model.tokenizer.encode_inside(choice)
    others = [model.tokenizer.encode_inside(each) for each in choices]
    goes_on = any(each[: len(after)] == after and len(each) > len(after) for each in others)
    ids = [*before, *after, *([model.special.end] if goes_on else [])]
    with torch.no_grad():
        logits = model.folder.model(collate([Sample(target=ids[:-1])], 1))[0]
    log_p = logits.log_softmax(dim=1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return float(log_p[len(before) - 1 :].sum())


@pytest.mark.parametrize(
    "choices", [["yes", "no"], [" good", " bad", " very good", " good man"], ["x"], [*"abcdefghijklmnop"]]
)
def test_choices_are_compared_exactly(folder: Path, choices: list[str]) -> None:
    model = Generator.load(folder, threads=1, precision="float32", engine="plain")
    prompt = "Two men are"
    (result,) = model.generate_texts([prompt], num_results=len(choices), choices=choices)
    assert sorted(each.text for each in result.candidates) == sorted(choices)
    expected = {each: log_probability(model, prompt, each, choices) for each in choices}
    for each in result.candidates:
        assert each.finished and math.isclose(each.log_probability, expected[each.text], abs_tol=1e-4)
    total = math.log(sum(map(math.exp, expected.values())))
    for each in result.candidates:
        assert each.probability is not None
        assert math.isclose(each.probability, math.exp(expected[each.text] - total), rel_tol=1e-3)
    assert math.isclose(sum(each.probability or 0 for each in result.candidates), 1)
    assert result.text == max(expected, key=expected.__getitem__)


def test_choices_do_not_depend_on_the_batch(model: Generator) -> None:
    prompts = ["A man", "Two men are", "", "A man in a blue hat sees a dog and"]
    together = model.generate(prompts, choices=["yes", "no", " maybe"])
    assert together == [model.generate(each, choices=["yes", "no", " maybe"]) for each in prompts]
    long = "A man sees a dog. " * 60  # more than it was trained with
    (result,) = model.generate_texts([long], choices=["yes", "no"])
    assert result.text in ("yes", "no")


@pytest.mark.parametrize("choices", [["a", "a"], ["", "b"], [f"a{n}" for n in range(101)]])
def test_wrong_choices_are_refused(model: Generator, choices: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        model.generate("A", choices=choices)
    assert caught.value.code == "E_CHOICES"


def test_choices_and_a_schema_exclude_one_another(model: Generator) -> None:
    with pytest.raises(UsageError) as caught:
        model.generate("A", choices=["a", "b"], json_schema=PERSON)
    assert caught.value.code == "E_CHOICES"


def test_a_chat_chooses(model: Generator) -> None:
    assert model.chat("A man?", choices=["yes", "no"]) in ("yes", "no")
    jsonschema.validate(json.loads(model.chat("A man?", json_schema=PERSON, seed=1)), PERSON)


# --- schemas


@pytest.mark.parametrize(
    "options", [{"beam": 1}, {"beam": 3}, *({"seed": n, "temperature": 3.0} for n in range(6))]
)
def test_what_a_random_model_writes_fits_the_schema(model: Generator, options: dict[str, Any]) -> None:
    texts = model.generate(
        ["A man", "Two"], json_schema=PERSON, max_length=150, on_too_long="truncate", **options
    )
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)


SIMPLE = st.sampled_from(
    [
        {"type": "integer", "minimum": -3, "maximum": 3},
        {"type": "string", "maxLength": 3},
        {"type": "string", "pattern": "^[a-c]{2,4}$"},
        {"enum": ["x", 1, None, True]},
        {"type": "boolean"},
        {"const": {"a": [1]}},
    ]
)


def within(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.builds(lambda items: {"type": "array", "items": items, "maxItems": 2}, inner)
    either = st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner)
    objects = st.builds(
        lambda one, other: {
            "type": "object",
            "properties": {"a": one, "bc": other},
            "required": ["bc"],
            "additionalProperties": False,
        },
        inner,
        inner,
    )
    return lists | either | objects


@settings(max_examples=25, deadline=None)
@given(schema=st.recursive(SIMPLE, within, max_leaves=4), seed=st.integers(0, 9))
def test_outputs_fit_any_schema(model: Generator, schema: dict[str, Any], seed: int) -> None:
    text = model.generate("A", json_schema=schema, seed=seed, temperature=2.0, max_length=240)
    jsonschema.validate(json.loads(text), schema)


HOSTILE: dict[str, Any] = {
    "nested": json.loads('{"items":' * 40 + "{}" + "}" * 40),
    "lists": json.loads('{"enum":' + "[" * 60 + "]" * 60 + "}"),
    "large": {"enum": [str(number) for number in range(20_000)]},
    "remote": {"$ref": "https://example.org/schema.json"},
    "file": {"$ref": "file:///etc/passwd"},
    "keyword": {"if": {"type": "string"}, "then": {"maxLength": 1}},
    "type": {"type": "nothing"},
    "empty": {"enum": []},
    "expression": {"type": "string", "pattern": "(" * 500 + "a" + "{1,999})" * 500},
    "unclosed": {"type": "string", "pattern": "(("},
    "digits": {"type": "number", "multipleOf": 1e-300},
    "no object": [1, 2],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_are_refused(model: Generator, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        model.generate("A", json_schema=HOSTILE[name])
    assert caught.value.code == "E_JSON_SCHEMA"


COSTLY: dict[str, Any] = {
    "itself": {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    "powers": {"type": "string", "pattern": "(a{1,9999}){1,9999}"},
    "middle": {"type": "string", "pattern": "^(.*a){30}.{200}(x|y)*z{400}$"},
    "either": {"anyOf": [{"type": "string", "pattern": f"^.*{n}.{{{n}}}$"} for n in range(60)]},
    "long": {"type": "string", "minLength": 10**8},
}


@pytest.mark.parametrize("name", COSTLY)
def test_costly_schemas_end(model: Generator, name: str) -> None:
    """Either the output stays within its limits, or it is given up with a code."""
    try:
        grammar = SchemaGrammar.of(model.tokenizer, COSTLY[name], model.special.end)
        tokens: list[int] = []
        for step in range(40):
            allowed = grammar.next_tokens(tokens)
            if allowed == [grammar.end]:
                break
            tokens.append(allowed[step * 7919 % len(allowed)])
        assert len(grammar.states) <= 40
    except UsageError as error:
        assert error.code == "E_JSON_SCHEMA"


# --- command and server


def test_commands(folder: Path, tmp_path: Path, regard: Command) -> None:
    schema = tmp_path / "person.json"
    schema.write_text(json.dumps(PERSON))
    run = ["generate", "-m", str(folder), "A man", "--only-new"]
    shown = regard(*run, "--json-schema", str(schema), "--seed", "3")
    jsonschema.validate(json.loads(shown.out), PERSON)
    shown = regard(*run, "--choices", "yes", "--choices", "no", "-n", "2", "--json")
    candidates = json.loads(shown.out)["candidates"]
    assert {each["text"] for each in candidates} == {"yes", "no"}
    assert math.isclose(sum(each["probability"] for each in candidates), 1)


def test_requests(model: Generator) -> None:
    messages = [{"role": "user", "content": "A man"}]
    with served(models={"small": model}) as at:
        client = openai.OpenAI(base_url=f"{at.address}/v1", api_key="any", max_retries=0)

        def ask(**options: Any) -> Any:
            return client.chat.completions.create(model="small", messages=messages, **options)

        named = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
        for seed, stream in product(range(2), (False, True)):
            answer = ask(response_format=named, seed=seed, stream=stream, max_tokens=120)
            parts = [each.choices[0].delta.content or "" for each in answer if each.choices] if stream else []
            text = "".join(parts) if stream else answer.choices[0].message.content
            jsonschema.validate(json.loads(text), PERSON)
        answer = ask(response_format={"type": "json_object"}, max_tokens=5, n=2)
        assert all(each.message.content.startswith("{") for each in answer.choices)
        assert ask(response_format={"type": "text"}, max_tokens=2).choices
        for wrong in (HOSTILE["remote"], HOSTILE["nested"]):
            with pytest.raises(openai.BadRequestError) as caught:
                ask(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": wrong}})
            assert caught.value.code == "E_JSON_SCHEMA"
        with pytest.raises(openai.BadRequestError):
            ask(response_format={"type": "grammar"})
        body = {"model": "small", "prompt": ["A", "B"], "choices": ["yes", "no"]}
        results = client.post("/../api/v1/generate", body=body, cast_to=object)["results"]
        assert [each["text"] for each in results] == model.generate(["A", "B"], choices=["yes", "no"])
        with pytest.raises(openai.BadRequestError):
            client.post("/../api/v1/generate", body={**body, "choices": ["a"] * 101}, cast_to=object)
