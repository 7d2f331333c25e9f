"""What a caller wants of translations: phrases to say and not to say, checked before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.config import Decode
from regard.errors import UsageError
from regard.generation import Constraint, Lexicon, longest_output, pieces_needed
from regard.tasks.lines import Job


@dataclass(frozen=True)
class Wish:
    """Phrases that a translation must hold, in any order, and phrases that it may not hold; whole words."""

    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()

    def __add__(self, other: Wish) -> Wish:
        return Wish(self.require + other.require, self.forbid + other.forbid)


def compile_wishes(lexicon: Lexicon, wishes: Sequence[Wish], first: int) -> list[Constraint]:
    """The wishes of lines, of which the first has the number `first`; like ones are made once."""
    known: dict[Wish, Constraint] = {}
    for number, wish in enumerate(wishes, first):
        if wish not in known:
            try:
                known[wish] = lexicon.constraint(wish.require, wish.forbid)
            except UsageError as error:
                raise UsageError(f"line {number}: {error}") from None
    return [known[wish] for wish in wishes]


def constraints_of(work: Sequence[Job], of_lines: Sequence[Constraint]) -> list[Constraint]:
    """For each part: nothing forbidden anywhere, what is required in the first part of a line."""
    found, seen = [], set()
    for job in work:
        own = of_lines[job.line]
        found.append(Constraint(own.lexicon, () if job.line in seen else own.require, own.forbid))
        seen.add(job.line)
    return found


def check_room(
    work: Sequence[Job],
    constraints: Sequence[Constraint],
    options: Decode,
    readable: int | None,
    first: int,
) -> None:
    """Say which line cannot be as wished, before the work."""
    for job, own in zip(work, constraints):
        line = first + job.line
        begun = own.lexicon.text_of(job.prefix)
        if wrong := next((phrase.text for phrase in own.forbid if phrase.is_in(begun)), None):
            raise UsageError(f'line {line}: the prefix holds "{wrong}", which is forbidden')
        room = longest_output(options, len(job.source) + 1 + own.size, len(job.prefix), readable)
        missing = pieces_needed(own, job.prefix)
        if missing > room - len(job.prefix):
            raise UsageError(
                f"line {line}: the required phrases take {missing} pieces, but a translation may have "
                f"{room - len(job.prefix)}; raise decode.max_length (the model's own limit is "
                f"{readable or 'none'}) or require less"
            )


def disobeyed(own: Constraint, text: str) -> tuple[str, ...]:
    """The phrases of which a text is not as wished."""
    lacking = [phrase.text for phrase in own.require if not phrase.is_in(text)]
    return (*lacking, *(phrase.text for phrase in own.forbid if phrase.is_in(text)))
