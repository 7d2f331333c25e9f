"""Chat with a language model: messages in, answer out; and a conversation with its history."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from regard.errors import UsageError
from regard.generation import Request
from regard.inputs.text.detokenizer import detokenize_stream

if TYPE_CHECKING:
    from regard.config import Decode
    from regard.generation.grammar import Grammar
    from regard.inputs.text import Tokenizer
    from regard.inputs.text.chat import ChatTemplate, Message
    from regard.inputs.text.hf import HFTokenizer
    from regard.storage import Folder

ROOM = 0.25  # of the window, for an answer: so far the oldest messages of a conversation are left out


class ChatMethods:
    """The methods of a `Generator` whose folder has a chat template."""

    folder: Folder
    tokenizer: Tokenizer
    window: int
    options: Any
    scheduler: Any
    structure: Any

    @cached_property
    def template(self) -> ChatTemplate:
        """The chat template of the folder; an error where it has none."""
        from regard.inputs.text.chat import chat_template  # Jinja, which other tasks do not need

        return chat_template(self.tokenizer, self.folder.path)

    def chat_ids(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation, up to where the answer begins."""
        from regard.inputs.text.chat import prompt_ids

        return prompt_ids(self.template, cast("HFTokenizer", self.tokenizer), messages)

    def chat(self, messages: str | Sequence[Message], **options: Any) -> str:
        """The answer to a text, or to messages {"role": "user", "content": "Hello"}.

        Options are those of `[decode]`: temperature=0.8, seed=1, beam=1 (greedy) ... The answer may fill
        what is left of the window, unless `max_length` says otherwise. `choices` and `json_schema` are those
        of `generate`.
        """
        return "".join(self.stream_chat(messages, **options))

    def stream_chat(
        self,
        messages: str | Sequence[Message],
        choices: Sequence[str] = (),
        json_schema: Mapping[str, Any] | None = None,
        **options: object,
    ) -> Iterator[str]:
        """The text of `chat` in parts, as it is generated."""
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        chosen, grammar = self.structure(self.options(options), choices, json_schema)
        is_bounded = "max_length" in options or bool(choices)
        return self.stream_answer(self.chat_ids(given), chosen, is_bounded, grammar)

    def stream_answer(
        self, ids: list[int], options: Decode, is_bounded: bool, grammar: Grammar | None = None
    ) -> Iterator[str]:
        """What follows these tokens; unless it `is_bounded`, as long as the window has room."""
        room = self.window - len(ids)
        if room < 1:
            raise UsageError(
                f"the conversation has {len(ids)} tokens, but the model reads {self.window}; leave its "
                "oldest messages out",
                code="E_TOO_LONG",
            )
        if not is_bounded:
            options = options.model_copy(update={"max_length": room})
        tokens = self.scheduler(options.tokens_per_batch).stream(Request(ids, options, grammar=grammar))
        return detokenize_stream(self.tokenizer, ids, tokens)


class Conversation:
    """A history that grows by questions and answers; its oldest ones are left out where it is too long."""

    def __init__(self, model: ChatMethods, system: str = "") -> None:
        self.model = model
        self.first: list[Message] = [{"role": "system", "content": system}] if system else []
        self.messages: list[Message] = []

    def clear(self) -> None:
        self.messages = []

    def ask(self, text: str, options: Decode, is_bounded: bool) -> Generator[str]:
        """The answer in parts. An answer that is interrupted stays in the history as far as it got."""
        messages: list[Message] = [*self.messages, {"role": "user", "content": text}]
        ids = self.model.chat_ids([*self.first, *messages])
        while len(messages) > 1 and len(ids) > (1 - ROOM) * self.model.window:
            messages = messages[2:]
            ids = self.model.chat_ids([*self.first, *messages])
        parts = self.model.stream_answer(ids, options, is_bounded)  # refuses what is too long
        self.messages = messages
        answer = ""
        try:
            for part in parts:
                answer += part
                yield part
        finally:
            self.messages.append({"role": "assistant", "content": answer})
