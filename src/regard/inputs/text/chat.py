"""Chat templates: the messages of a conversation as the prompt that a model was trained with.

A template is a program of Jinja in a model folder, so it may come from anywhere. It runs in Jinja's sandbox,
with the filters, functions and methods listed here and no others, and ends with an error when it takes too
many steps, makes too much text, or takes too long.

A message that spells a special token ("<|im_end|>") stays text: only the template's own text gives such
tokens, so that nobody can end a turn from inside of it.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from regard.config.reading import shown
from regard.errors import UsageError
from regard.inputs.text.hf import HFTokenizer
from regard.inputs.text.tokenizer import Tokenizer

TEMPLATE = "E_CHAT_TEMPLATE"
ROLES = ("system", "user", "assistant")
MAX_TEMPLATE = 1 << 16  # characters of a template
MAX_TEXT = 1 << 20  # characters of one text
MAX_STEPS = 20_000  # turns of loops, calls and filters
MAX_WORK = 1 << 24  # characters of all texts and entries of all lists that are made
MAX_SECONDS = 5.0
MAX_INTEGER = 1 << 63
FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "join"),
    *("last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse"),
    *("round", "safe", "select", "selectattr", "sort", "string", "sum", "title", "trim", "unique", "upper"),
)
METHODS = {  # that a template may call
    *("capitalize", "count", "endswith", "find", "get", "index", "isalpha", "isdigit", "items", "join"),
    *("keys", "lower", "lstrip", "removeprefix", "removesuffix", "replace", "rfind", "rsplit", "rstrip"),
    *("split", "splitlines", "startswith", "strip", "title", "upper", "values"),
}
Message = Mapping[str, str]  # {"role": "user", "content": "Hello"}


class ChatTemplate:
    """A template that was read; the same texts as transformers' `apply_chat_template`."""

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        """`names` has the special tokens that a template can name: bos_token, eos_token ..."""
        if len(source) > MAX_TEMPLATE:
            raise UsageError(
                f"the chat template has {len(source):,} characters, more than {MAX_TEMPLATE:,}", code=TEMPLATE
            )
        self.names = dict(names)
        with template_errors():
            self.template = ChatEnvironment().from_string(source)

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt, up to where the answer begins."""
        parts: list[str] = []
        given = {"messages": [dict(each) for each in messages], "tools": None, "documents": None}
        token = BUDGET.set(budget := Budget())
        try:
            with template_errors():
                for part in self.template.generate(**self.names, **given, add_generation_prompt=True):
                    budget.spend(len(part))
                    parts.append(part)
        finally:
            BUDGET.reset(token)
        return "".join(parts)


@contextmanager
def template_errors() -> Iterator[None]:
    """Whatever a template raises, as one sentence."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        reason = shown(f"{type(error).__name__}: {error}")
        raise UsageError(f"the chat template cannot be used ({reason})", code=TEMPLATE) from None


# --- the sandbox ------------------------------------------------------------------------------------------


class Budget:
    """What one conversation may cost."""

    def __init__(self) -> None:
        self.steps, self.work, self.end = 0, 0, time.monotonic() + MAX_SECONDS

    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS or time.monotonic() > self.end:
            refuse("it takes too many steps")

    def spend(self, size: int) -> None:
        self.work += size
        if size > MAX_TEXT or self.work > MAX_WORK:
            refuse("it makes too much text")


BUDGET: ContextVar[Budget] = ContextVar("budget")


def refuse(reason: str) -> NoReturn:
    raise UsageError(f"the chat template was stopped: {reason}", code=TEMPLATE)


class GenerationTag(Extension):
    """{% generation %} ... {% endgeneration %}: marks the answers for training; here only what is inside."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Jinja with what templates of chats use, and a budget."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        extensions = [loopcontrols, GenerationTag]
        # not optimized: nothing is computed before there is a budget
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=extensions)
        self.filters = {name: self.bounded(self.filters[name]) for name in FILTERS}
        self.filters |= {"tojson": self.bounded(to_json), "counted": self.counted, "joined": self.joined}
        self.filters["replace"] = self.bounded(lambda text, old, new: self.replaced(str(text), old, new))
        self.filters["join"] = self.bounded(
            lambda parts, by="", attribute=None: self.by(parts, by, attribute)
        )
        names = ("range", "namespace", "dict")
        self.globals = {name: self.globals[name] for name in names}
        self.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}

    # loops, `~` and blocks that are values become calls of the filters below

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            if loop.recursive:
                refuse("it has a recursive loop")
            loop.iter = nodes.Filter(loop.iter, "counted", [], [], None, None)
        rewrite(tree)
        return tree

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        for each in values:
            BUDGET.get().step()
            yield each

    def joined(self, parts: Sequence[Any]) -> str:
        return self.concat(map(str, parts))

    def concat(self, parts: Iterable[str]) -> str:
        """What compiled templates join the text of a block and of a macro with."""
        texts = list(parts)
        BUDGET.get().spend(sum(map(len, texts)))
        return "".join(texts)

    def replaced(self, text: str, old: str, new: str) -> str:
        count = text.count(old)
        BUDGET.get().spend(len(text) + count * max(0, len(new) - len(old)))
        return text.replace(old, new)

    def by(self, parts: Iterable[Any], by: str = "", attribute: str | None = None) -> str:
        values = [each if attribute is None else self.getitem(each, attribute) for each in parts]
        texts = list(map(str, values))
        BUDGET.get().spend(sum(map(len, texts)) + len(by) * len(texts))
        return by.join(texts)

    def bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter whose input and result are paid for."""
        place = int(hasattr(function, "jinja_pass_arg"))  # behind what Jinja passes first

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            BUDGET.get().step()
            values = list(args)
            if isinstance(values[place], Iterator):
                values[place] = self.counted(values[place])
            result = function(*values, **options)
            BUDGET.get().spend(sum(len(each) for each in (values[place], result) if isinstance(each, Sized)))
            return result

        return call

    def call(self, context: Any, function: Any, /, *args: Any, **options: Any) -> Any:
        BUDGET.get().step()
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if isinstance(owner, str) and name == "replace":
            return self.replaced(owner, *args)
        if isinstance(owner, str) and name == "join":
            return self.by(args[0], owner)
        result = super().call(context, function, *args, **options)
        BUDGET.get().spend(len(result) if isinstance(result, Sized) else 0)
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        texts = isinstance(left, Sized) or isinstance(right, Sized)
        if operator == "**" or (texts and operator != "+"):
            refuse(f"it uses the operator {operator} on {'texts' if texts else 'numbers'}")
        if texts:
            BUDGET.get().spend(sum(len(each) for each in (left, right) if isinstance(each, Sized)))
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, int) and abs(result) > MAX_INTEGER:
            refuse("a number is too large")
        return result

    def wrap_str_format(self, value: Any) -> None:
        """`format` is a method like others, and none of `METHODS`: "{:1000000000}" makes a long text."""

    def is_safe_attribute(self, owner: Any, name: str, value: Any) -> bool:
        is_method = callable(value) and isinstance(owner, str | int | float | Mapping | Sequence)
        return super().is_safe_attribute(owner, name, value) and (not is_method or name in METHODS)


def rewrite(node: nodes.Node) -> None:
    """Each `a ~ b` becomes a filter that pays for its result."""
    for name, value in list(node.iter_fields()):
        if isinstance(value, nodes.Node):
            setattr(node, name, paid(value))
        elif isinstance(value, list):
            setattr(node, name, [paid(each) if isinstance(each, nodes.Node) else each for each in value])


def paid(node: nodes.Node) -> nodes.Node:
    rewrite(node)
    if not isinstance(node, nodes.Concat):
        return node
    parts = nodes.List(node.nodes, lineno=node.lineno, environment=node.environment)
    options = {"lineno": node.lineno, "environment": node.environment}
    return nodes.Filter(parts, "joined", [], [], None, None, **options)


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    """As in transformers: plain, without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=min(indent or 0, 8) or None)


def raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def strftime_now(pattern: str) -> str:
    return datetime.now().strftime(str(pattern)[:100])


# --- prompts ----------------------------------------------------------------------------------------------


def chat_template(tokenizer: Tokenizer, path: object) -> ChatTemplate:
    """The template of a model folder."""
    source = tokenizer.settings.get("chat_template")
    if not isinstance(tokenizer, HFTokenizer) or not isinstance(source, str):
        raise UsageError(
            f"{path}: this model has no chat template, so it was not trained to answer; "
            '"regard generate" continues a text',
            code="E_CHAT_MODEL",
        )
    names = {role: name for role, name in tokenizer.settings.items() if role.endswith("_token")}
    return ChatTemplate(source, names)


def prompt_ids(template: ChatTemplate, tokenizer: HFTokenizer, messages: Sequence[Message]) -> list[int]:
    """The tokens of a conversation up to where the answer begins.

    For the template, a special token that a message spells is a character that no message has. Afterwards it
    is replaced by the tokens of its spelling.
    """
    check(messages)
    texts = [each["content"] for each in messages]
    names = sorted(tokenizer.special_names, key=len, reverse=True)
    spelling = re.compile("|".join(map(re.escape, names)) or "(?!)")
    spelled = {name for text in texts for name in spelling.findall(text)}
    characters = set("".join(texts))
    free = (sign for sign in map(chr, range(0xE000, 0xF900)) if sign not in characters)
    signs = dict(zip(sorted(spelled), free))  # private use: more than anybody needs
    masked = [
        {**each, "content": spelling.sub(lambda match: signs[match[0]], text)}
        for each, text in zip(messages, texts)
    ]
    prompt = template.render(masked)
    if not prompt:
        raise UsageError("the chat template makes no text of these messages", code=TEMPLATE)
    if not signs:
        return tokenizer.encode_template(prompt)
    spelled_as = {sign: name for name, sign in signs.items()}
    parts = re.split(f"([{''.join(spelled_as)}])", prompt)
    return [
        number
        for part in parts
        for number in (
            tokenizer.encode_inside(spelled_as[part])
            if part in spelled_as
            else tokenizer.encode_template(part)
        )
    ]


def check(messages: Sequence[Message]) -> None:
    if not messages:
        raise UsageError("a conversation needs a message", code="E_CHAT_MESSAGES")
    for number, each in enumerate(messages, 1):
        if each.get("role") not in ROLES or not isinstance(each.get("content"), str):
            raise UsageError(
                f"message {number}: the role is one of {', '.join(ROLES)}, and the content a text",
                code="E_CHAT_MESSAGES",
            )
