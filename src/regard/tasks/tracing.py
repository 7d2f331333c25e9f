"""Trace a text with the model of a task: decode, then record one run over source and output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard import __version__
from regard.batch import collate
from regard.config import Decode
from regard.errors import UsageError
from regard.generation import Hypothesis, Request, decode
from regard.generation.search import BeamSearch
from regard.inputs.text import Tokenizer
from regard.inputs.text.detokenizer import detokenize_stream
from regard.inputs.text.tokenizer import replace_surrogates
from regard.interpret import BeamTree, Node, Trace, TracedTokens
from regard.interpret import parse as parse_interventions
from regard.interpret.choices import TracedRun
from regard.interpret.interventions import (
    IntervenedModel,
    InterventionTap,
    TensorEdit,
    TensorPatch,
    TokenReplacement,
)
from regard.interpret.readings import occlusion as occlude
from regard.interpret.record import record
from regard.interpret.uncached import UncachedModel
from regard.models.encoder import EncoderOnly
from regard.models.families import Model
from regard.models.transformer import LanguageModel
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.filler import Filler
from regard.tasks.frame_tracing import frame_meta, frame_positions
from regard.tasks.generator import Generator
from regard.tasks.loading import unpacked
from regard.tasks.task_inputs import TaskInput, task_input
from regard.tasks.translation import decode_options
from regard.tasks.translator import Translator

FILLER_BEAM = 5  # as `fill` searches
BEST_TOKENS = 10  # of each position, whose texts a trace has
Ids = list[int]


@dataclass(frozen=True)
class DecodedOutput:
    """The output of a generative model, decoded or given."""

    target: Ids  # what the decoder reads
    output: Ids  # what it predicts at each position
    text: str
    nodes: tuple[Node, ...] = ()
    meta: Mapping[str, Any] | None = None


def trace(
    task: Any,
    text: str,
    target: str | None,
    context: str | None,
    options: Mapping[str, object],
    interventions: Sequence[Mapping[str, Any]],
    only: Sequence[str] | None,
    prefix: Sequence[int] = (),
) -> Trace:
    inputs = task_input(task, text, context)
    folder, model = inputs.folder, inputs.folder.model
    parsed = parse_interventions(interventions, model)
    edits = [each for each in parsed if isinstance(each, TensorEdit)]
    patches = [each for each in parsed if isinstance(each, TensorPatch)]
    edits += [edit for each in patches for edit in patch_edits(task, each, target, context, options)]
    interventions = [jsonable(each) for each in interventions]
    replacements = [each for each in parsed if isinstance(each, TokenReplacement)]
    target_replacements = [each for each in replacements if each.side == "target"]
    inputs = replace(inputs, sample=replace_source(inputs, replacements))
    meta = describe(inputs, target, context, interventions) | {"precision": task.precision}
    source = {"source": source_tokens(inputs, meta)}
    if inputs.read_output is not None:
        refuse_target("" if prefix else target, target_replacements)
        tensors, logits = record(model, inputs.sample, only, edits)
        texts = vocabulary(folder.source, source, tensors) if meta["head"] in (None, "words") else {}
        output, chosen = inputs.read_output(logits)
        meta["chosen"] = [list(each) for each in chosen]  # (position, choice) of the output
        words = folder.source if meta["head"] == "words" else None
        run = TracedRun(partial(unpacked, task), inputs.sample, edits, words)
        return Trace(tensors, source, output, meta, (), texts, run)
    start = check_prefix(folder, target, prefix)
    result = decode_output(task, inputs, target, options, edits, target_replacements, start)
    if isinstance(model, LanguageModel):  # it has one text, the target
        source, inputs = {}, replace(inputs, sample=replace(inputs.sample, source=()))
    sample = replace(inputs.sample, target=result.target)
    run = TracedRun(partial(unpacked, task), sample, edits, folder.target)
    tensors, _ = record(model, run.sample, only, edits)
    sides = {"target": result.target, "output": result.output}
    tokens = {side: TracedTokens.of(folder.target, ids) for side, ids in sides.items()}
    texts = vocabulary(folder.target, tokens, tensors)
    meta |= dict(result.meta or {})
    return Trace(tensors, source | tokens, result.text, meta, result.nodes, texts, run)


def patch_edits(
    task: Any, patch: TensorPatch, target: str | None, context: str | None, options: Mapping[str, object]
) -> list[TensorEdit]:
    """The edits that take a tensor from a trace, or from the run of a text."""
    other = patch.text
    if not isinstance(other, Trace):
        other = trace(task, other, target, context, options, (), (patch.name,))
    return patch.edits(other[patch.name])


def jsonable(intervention: Mapping[str, Any]) -> dict[str, Any]:
    """An intervention for the metadata: a trace by its text."""
    return {
        name: value.meta.get("text") if isinstance(value, Trace) else value
        for name, value in intervention.items()
    }


def source_tokens(inputs: TaskInput, meta: dict[str, Any]) -> TracedTokens:
    """The tokens of the source; of a picture or sound its positions, and the picture in the metadata."""
    folder, sample = inputs.folder, inputs.sample
    if inputs.raw is None:
        return TracedTokens.of(folder.source, list(sample.source_ids))
    tokens = frame_positions(folder.reader, inputs.raw, folder.model)
    meta["input"] = frame_meta(folder.reader, inputs.raw, np.asarray(sample.source), tokens)
    return tokens


def occlusion(task: Any, text: str, target: str | None, context: str | None) -> list[tuple[str, float]]:
    inputs = task_input(task, text, context)
    tokenizer = inputs.folder.source
    ids = list(inputs.sample.source_ids)
    tokens = TracedTokens.of(tokenizer, ids)
    words = tokens.word_groups
    hidden = hidden_token(tokenizer)
    if inputs.read_output is not None:
        refuse_target(target, ())
        if hidden is None:
            raise UsageError("the tokenizer of this model has neither a mask token nor an unknown token")
        log_p = encoder_log_p(inputs)
        words = [places for places in words if tokenizer.mask not in [ids[place] for place in places]]
    else:
        log_p = decoder_log_p(inputs, decode_output(task, inputs, target, {}, (), ()))
    changes = occlude(log_p, ids, words, [] if hidden is None else [hidden])
    texts = dict(zip(tokens.groups, tokens.group_texts))
    return [(texts[places], change) for places, change in zip(words, changes)]


# The output of a generative model


def refuse_target(target: str | None, replacements: Sequence[TokenReplacement]) -> None:
    if target is not None or replacements:
        raise UsageError("this model generates no text, so it has no target")


def decode_output(
    task: Any,
    inputs: TaskInput,
    target: str | None,
    options: Mapping[str, object],
    edits: Sequence[TensorEdit],
    replacements: Sequence[TokenReplacement],
    prefix: Sequence[int] = (),
) -> DecodedOutput:
    """The given target, or what the model decodes."""
    folder, source = inputs.folder, list(inputs.sample.source)
    tokenizer = folder.target
    prompt = source if isinstance(folder.model, LanguageModel) else [tokenizer.start]
    nodes: tuple[Node, ...] = ()
    meta: dict[str, Any] = {}
    if target is not None:
        target = replace_surrogates(target)
        encode = tokenizer.encode_inside if prompt is source else tokenizer.encode
        ids, finished = encode(target), True
    else:
        chosen = trace_options(task, folder, options, len(source))
        if not prefix and (first := first_position(edits)) >= len(prompt):  # what was written before it stays
            prefix = search(task, inputs, chosen, ())[0].tokens[: first - len(prompt) + 1]
        best, nodes = search(task, inputs, chosen, edits, prefix)
        ids, finished = list(best.tokens), best.finished
        meta |= {"decode": chosen.model_dump(mode="json"), "finished": finished, "score": best.score}
    row = replace_tokens(tokenizer, [*prompt, *ids], replacements, "target")
    in_prompt = [each for each in replacements if each.position < len(prompt)]  # may change its length
    start = len(replace_tokens(tokenizer, prompt, in_prompt, "target"))
    meta["prompt"] = start if prompt is source else 0
    output = [*row[1:], tokenizer.end] if finished else row[1:]
    read = row if finished else row[:-1]
    limit = folder.model.longest_target if not isinstance(folder.model, EncoderOnly) else None
    if limit is not None and len(read) > limit:
        raise UsageError(f"a target of {len(read)} tokens with its start token is too long: {limit} at most")
    return DecodedOutput(read, output, output_text(task, inputs, row[start:]), nodes, meta)


def first_position(edits: Sequence[TensorEdit]) -> int:
    """The first position of the decoder that is edited, 0 if it is the first or none."""
    decoder = [edit for edit in edits if edit.names[0].startswith(("decoder.", "logits"))]
    return min((edit.position or 0 for edit in decoder), default=0)


def check_prefix(folder: Folder, target: str | None, prefix: Sequence[int]) -> list[int]:
    """The token ids that the output is forced to start with."""
    size, end = len(folder.target), folder.target.end
    if prefix and target is not None:
        raise UsageError("give a target, which is the whole output, or a prefix, not both")
    wrong = [token for token in prefix if not 0 <= token < size or token == end]
    if wrong:
        raise UsageError(f"prefix: {wrong[0]} is no token to continue from; there are 0 to {size - 1}")
    return list(prefix)


def trace_options(task: Any, folder: Folder, options: Mapping[str, object], length: int) -> Decode:
    """The options of the task; a language model stops at the length of its context."""
    if isinstance(task, Filler):
        return decode_options(folder.decode, {"beam": FILLER_BEAM, "sample": False, **options})
    if not isinstance(task, Generator):
        return decode_options(folder.decode, options)
    chosen = task.options(options)
    limit = task.model.longest_target
    if limit is None:
        return chosen
    room = max(1, limit - length + 1)
    return chosen.model_copy(update={"max_length": min(chosen.max_length or room, room)})


def search(
    task: Any, inputs: TaskInput, options: Decode, edits: Sequence[TensorEdit], prefix: Sequence[int] = ()
) -> tuple[Hypothesis, tuple[Node, ...]]:
    """The best hypothesis, and the tree of the beam search; sampling has none."""
    folder: Folder = inputs.folder
    model: Any = task.engines[0] if isinstance(task, Translator) else folder.model
    if edits:
        has_positions = any(edit.position is not None for edit in edits)
        kind = UncachedModel if has_positions else IntervenedModel
        model = kind(folder.model, InterventionTap(edits))
    special, device = folder.special, next(folder.model.parameters()).device
    if options.sample:
        prefixes = [prefix] if prefix else None
        return decode(model, [inputs.sample], options, special, device, prefixes)[0][0], ()
    request = Request(inputs.sample.source, options, prefix)
    running: BeamSearch[Any] = BeamSearch(model, special, device, request.key)
    running.observer = tree = BeamTree(lambda token: folder.target.tokens([token])[0])
    best = running.run([request])[0][0]
    return best, tree.with_path([*best.tokens, *([special.end] if best.finished else [])])


def output_text(task: Any, inputs: TaskInput, ids: Ids) -> str:
    if isinstance(task, Generator):
        return "".join(detokenize_stream(task.tokenizer, list(inputs.sample.source), ids))
    if isinstance(task, Filler):
        hypothesis = Hypothesis(tuple(ids), 0.0, 0.0, tuple(0.0 for _ in ids), True)
        return task.fillings(task.split_gaps(inputs.text), [hypothesis], 1).text
    return inputs.folder.target.decode(ids)


# Token replacements


def replace_source(inputs: TaskInput, replacements: Sequence[TokenReplacement]) -> Sample:
    if inputs.raw is not None:
        if any(each.side == "source" for each in replacements):
            raise UsageError("replace_token: a picture or sound has no tokens", code="E_MODEL_INPUT")
        return inputs.sample
    ids = replace_tokens(inputs.folder.source, list(inputs.sample.source_ids), replacements, "source")
    by_position = inputs.read_output is not None and inputs.folder.config.head != "sentence"
    if by_position and len(ids) != len(inputs.sample.source):
        raise UsageError("replace_token: this model predicts by position, so one token replaces one token")
    return replace(inputs.sample, source=ids)


def replace_tokens(
    tokenizer: Tokenizer, ids: Ids, replacements: Sequence[TokenReplacement], side: str
) -> Ids:
    """From the last position to the first, because several tokens may replace one."""
    specials = special_tokens(tokenizer)
    for each in sorted((r for r in replacements if r.side == side), key=lambda r: -r.position):
        if each.position >= len(ids):
            raise UsageError(f"position = {each.position}: the {side} has {len(ids)} tokens, from 0 on")
        new = [specials[each.text]] if each.text in specials else tokenizer.encode(each.text)
        ids = [*ids[: each.position], *new, *ids[each.position + 1 :]]
    return ids


def special_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Ids by name: `<mask>`, `<unk>`, `</s>`."""
    ids = [*tokenizer.suppressed, tokenizer.end, *tokenizer.sentinels]
    return dict(zip(tokenizer.tokens(ids), ids))


def hidden_token(tokenizer: Tokenizer) -> int | None:
    """The token that hides a word: mask, or unknown."""
    if tokenizer.mask is not None:
        return tokenizer.mask
    specials = special_tokens(tokenizer)
    return specials.get("<unk>", specials.get("[UNK]"))


# log p of the output, for occlusion


def decoder_log_p(inputs: TaskInput, result: DecodedOutput) -> Callable[[Sequence[int]], float]:
    model: Model = inputs.folder.model
    prompt = len(inputs.sample.source) if isinstance(model, LanguageModel) else 1
    rest, output = result.target[prompt:], result.output[prompt - 1 :]

    def log_p(ids: Sequence[int]) -> float:
        if isinstance(model, LanguageModel):
            sample = Sample(target=[*ids, *rest])
        else:
            sample = Sample(source=ids, target=result.target)
        logits = run_logits(model, sample)[-len(output) :]
        return float(logits.log_softmax(dim=1).gather(1, torch.tensor(output)[:, None]).sum())

    return log_p


def encoder_log_p(inputs: TaskInput) -> Callable[[Sequence[int]], float]:
    model = inputs.folder.model
    assert inputs.read_output is not None
    chosen = inputs.read_output(run_logits(model, inputs.sample))[1]
    dim = 0 if inputs.folder.config.head == "span" else 1
    multi_label = inputs.folder.task.multi_label

    def log_p(ids: Sequence[int]) -> float:
        logits = run_logits(model, replace(inputs.sample, source=ids))
        log_probabilities = logits.sigmoid().log() if multi_label else logits.log_softmax(dim=dim)
        return float(sum(log_probabilities[place, choice] for place, choice in chosen))

    return log_p


@torch.no_grad()
def run_logits(model: Model, sample: Sample) -> Tensor:
    logits: Tensor = model(collate([sample]).to(next(model.parameters()).device))
    return logits[0].float().cpu()


def vocabulary(
    tokenizer: Tokenizer, tokens: Mapping[str, TracedTokens], tensors: Mapping[str, Tensor]
) -> dict[int, str]:
    """Texts of the tokens of the run, and of the best at each position."""
    ids = {token for side in tokens.values() for token in side.ids}
    if "lens.ids" in tensors:
        ids |= set(tensors["lens.ids"].flatten().tolist())
    if "logits" in tensors:
        best = tensors["logits"].topk(min(BEST_TOKENS, tensors["logits"].shape[-1]), dim=-1).indices
        ids |= set(best.flatten().tolist())
    return dict(zip(sorted(ids), tokenizer.tokens(sorted(ids))))


def describe(
    inputs: TaskInput, target: str | None, context: str | None, interventions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The metadata of a trace."""
    folder = inputs.folder
    return {
        "model": str(folder.path),
        "task": folder.task.name,
        "family": folder.config.family,
        "head": folder.config.head,
        "many": folder.task.multi_label,
        "labels": list(folder.labels),
        "config": folder.config.model_dump(mode="json"),
        "versions": {"regard": __version__, "torch": torch.__version__},
        "text": inputs.text,
        "target": None if target is None else replace_surrogates(target),
        "context": None if context is None else replace_surrogates(context),
        "interventions": [dict(each) for each in interventions],
    }
