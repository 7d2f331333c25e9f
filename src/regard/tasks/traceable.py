"""The door to `trace` that every task has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.interpret import Trace


class Traceable:
    """A task that can show what its model does inside."""

    def trace(
        self,
        text: str,
        target: str | None = None,
        *,
        prefix: Sequence[int] = (),
        context: str | None = None,
        decode: Mapping[str, object] | None = None,
        interventions: Sequence[Mapping[str, Any]] = (),
        only: Sequence[str] | None = None,
    ) -> Trace:
        """One run with every tensor by its name.

        Without a target the model decodes first, by the options of `[decode]` in `decode`; then one run over
        source and output is recorded. `prefix` are ids of pieces that the output begins with. `context` is
        what a question is asked about. `only` keeps the tensors of some names: ("decoder.*.cross.weights",).
        `interventions` change the run: see docs/trace.md.
        """
        from regard.tasks.tracing import trace  # here, because it knows all the tasks that inherit from this

        return trace(self, text, target, context, decode or {}, interventions, only, prefix)

    def occlusion(
        self, text: str, target: str | None = None, *, context: str | None = None
    ) -> list[tuple[str, float]]:
        """Each word of the text, and how much log p of the output falls when it is hidden (or left out)."""
        from regard.tasks.tracing import occlusion

        return occlusion(self, text, target, context)
