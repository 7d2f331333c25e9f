"""`regard chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import (
    Device,
    OneModel,
    Precision,
    Settings,
    Threads,
    parse_options,
    print_line,
    put,
    read_stdin,
    say,
    thread_count,
)

if TYPE_CHECKING:
    from regard.tasks.chat import Conversation

PROMPT = "> "
NEW = "/new"  # starts again
ADVICE = f"type a message; {NEW} begins a new conversation, Ctrl-C stops an answer, Ctrl-D ends"


def chat(
    model: OneModel,
    system: Annotated[
        str, typer.Option("--system", help="What the model is told before the first message.")
    ] = "",
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens of an answer; default: what the window has room for.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Sampling temperature; 0 is greedy.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Sample from the k most probable tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=1e-6, max=1, help="Sample from the smallest set with this probability."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Seed of sampling.")] = None,
    beam: Annotated[int | None, typer.Option(min=1, max=1, help="1 is greedy: no sampling.")] = None,
    settings: Settings = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = 0,
) -> None:
    """Chat with a language model that has a chat template.

    Answers are printed as they are generated. The model reads the whole conversation each time; when it no
    longer fits, the oldest messages are left out. Without a terminal each line of stdin is a message.

    [bold]Examples[/]

      regard chat -m models/smollm2
      regard chat -m models/smollm2 --system "Answer in one sentence." --temperature 0.2
      regard chat -m models/smollm2 --beam 1 < questions.txt
    """
    from regard.tasks import Generator
    from regard.tasks.chat import Conversation

    task = Generator.load(model, device=device, threads=thread_count(threads), precision=precision)
    fields = {
        "max_length": max_length,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    options = parse_options(settings, beam) | given
    conversation = Conversation(task, system)
    answer_all(conversation, options)


def answer_all(conversation: Conversation, given: dict[str, object]) -> None:
    model = conversation.model
    _ = model.template  # a model without one is refused before anybody types
    options = model.options(given)
    for text in typed_messages():
        if text.strip() == NEW:
            conversation.clear()
            continue
        try:
            with closing(conversation.ask(text, options, "max_length" in given)) as parts:
                for part in parts:
                    put(part, flush=True)
        except KeyboardInterrupt:
            say(" (stopped)")
        print_line("", flush=True)


def typed_messages() -> Iterator[str]:
    """What a person types, or the lines of stdin; blank ones are left out."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield from (line for line in read_stdin() if line.strip())
        return
    with suppress(ImportError):  # Windows
        import readline  # noqa: F401 - `input` then has a history and can be edited
    say(ADVICE)
    while True:
        try:
            text = input(PROMPT)
        except EOFError:
            print_line("", flush=True)
            return
        except KeyboardInterrupt:
            print_line("", flush=True)
            say(ADVICE)
            continue
        if text.strip():
            yield text
