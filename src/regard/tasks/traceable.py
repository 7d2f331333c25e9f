"""The methods `trace` and `occlusion` of every task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regard.compat import OldAttributes

if TYPE_CHECKING:
    from regard.interpret import Trace


class Traceable(OldAttributes):
    """A task whose model can be traced."""

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
        """Record one run, every tensor by name.

        Without a target the model decodes first, with the options of `[decode]` in `decode`; then one run
        over source and output is recorded. `prefix` are token ids that the output starts with. `context` is
        the text for a question. `only` keeps the tensors of some names: ("decoder.*.cross.weights",).
        `interventions` change the run: see docs/trace.md.
        """
        from regard.tasks.tracing import trace  # not at the top: it imports the tasks that inherit from this

        return trace(self, text, target, context, decode or {}, interventions, only, prefix)

    def occlusion(
        self, text: str, target: str | None = None, *, context: str | None = None
    ) -> list[tuple[str, float]]:
        """Each word of the text with the drop in log p of the output when the word is hidden or left out."""
        from regard.tasks.tracing import occlusion

        return occlusion(self, text, target, context)
