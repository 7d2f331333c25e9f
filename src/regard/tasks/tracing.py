"""From a text to a trace: what each task reads and says, and one recorded run over both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard import __version__
from regard.batch import collate
from regard.config import Decode
from regard.errors import UsageError
from regard.generation import Hypothesis, Request, decode
from regard.generation.search import BeamSearch
from regard.inputs.text import Tokenizer
from regard.inputs.text.tokenizer import replace_surrogates
from regard.interpret import BeamTree, Change, Changed, Intervening, Node, Pieces, TokenChange, Trace
from regard.interpret import parse as parse_changes
from regard.interpret.readings import occlusion as occlude
from regard.interpret.record import record
from regard.models import EncoderOnly, LanguageModel, Model
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.filler import Filler
from regard.tasks.generator import Generator, detokenize_stream
from regard.tasks.task_inputs import TaskInput, task_input
from regard.tasks.translator import Translator, decode_options

FILLER_BEAM = 5  # as many as `fill` asks for
BEST_WORDS = 10  # of each place, whose texts a trace knows
Ids = list[int]


@dataclass(frozen=True)
class Said:
    """What a model that writes said, or was made to say."""

    read: Ids  # what the decoder reads
    output: Ids  # what it says at each place
    text: str
    nodes: tuple[Node, ...] = ()
    facts: Mapping[str, Any] | None = None


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
    asked = task_input(task, text, context)
    model = asked.folder.model
    parsed = parse_changes(interventions, model)
    changes = [each for each in parsed if isinstance(each, Change)]
    words = [each for each in parsed if isinstance(each, TokenChange)]
    asked = replace(asked, sample=with_other_source(asked, words))
    meta = about(asked, target, context, interventions)
    if asked.read_output is not None:
        refuse_target("" if prefix else target, [each for each in words if each.side == "target"])
        tensors, logits = record(model, asked.sample, only, changes)
        tokens = {"source": Pieces.of(asked.folder.source, list(asked.sample.source))}
        own = vocabulary(asked.folder.source, tokens, tensors) if meta["head"] in (None, "words") else {}
        output, chosen = asked.read_output(logits)
        meta["chosen"] = [list(each) for each in chosen]  # at which place what was said
        return Trace(tensors, tokens, output, meta, (), own)
    begun = prefix_of(asked.folder, target, prefix)
    said = say(task, asked, target, options, changes, [w for w in words if w.side == "target"], begun)
    tensors, _ = record(model, whole(asked, said), only, changes)
    tokens = sides(asked, said)
    own = vocabulary(asked.folder.target, {side: tokens[side] for side in ("target", "output")}, tensors)
    return Trace(tensors, tokens, said.text, meta | dict(said.facts or {}), said.nodes, own)


def occlusion(task: Any, text: str, target: str | None, context: str | None) -> list[tuple[str, float]]:
    asked = task_input(task, text, context)
    tokenizer = asked.folder.source
    ids = list(asked.sample.source)
    pieces = Pieces.of(tokenizer, ids)
    words = [places for places in pieces.groups if pieces.words[places[0]] >= 0]
    hidden = stand_in(tokenizer)
    if asked.read_output is not None:
        refuse_target(target, ())
        if hidden is None:
            raise UsageError("this model's tokenizer has no piece that stands for a hidden word")
        log_p = answered(asked)
        words = [places for places in words if tokenizer.mask not in [ids[place] for place in places]]
    else:
        log_p = spoken(asked, say(task, asked, target, {}, (), ()))
    found = occlude(log_p, ids, words, [] if hidden is None else [hidden])
    names = dict(zip(pieces.groups, pieces.group_texts))
    return [(names[places], change) for places, change in zip(words, found)]


# What a model says


def refuse_target(target: str | None, changes: Sequence[TokenChange]) -> None:
    if target is not None or changes:
        raise UsageError("this model writes nothing, so there is no target")


def say(
    task: Any,
    asked: TaskInput,
    target: str | None,
    options: Mapping[str, object],
    changes: Sequence[Change],
    words: Sequence[TokenChange],
    begun: Sequence[int] = (),
) -> Said:
    """The output: as given, or what the model decodes; as what the decoder reads, and says at each place."""
    folder, source = asked.folder, list(asked.sample.source)
    tokenizer = folder.target
    prompt = source if isinstance(folder.model, LanguageModel) else [tokenizer.start]
    nodes: tuple[Node, ...] = ()
    facts: dict[str, Any] = {}
    if target is not None:
        target = replace_surrogates(target)
        cut = tokenizer.encode_inside if prompt is source else tokenizer.encode
        own, ends = cut(target), True
    else:
        chosen = chosen_options(task, folder, options, len(source))
        found, nodes = search(task, asked, chosen, changes, begun)
        own, ends = list(found.tokens), found.finished
        facts |= {"decode": chosen.model_dump(mode="json"), "finished": ends, "score": found.score}
    row = other_pieces(tokenizer, [*prompt, *own], words, "target")
    inside = [word for word in words if word.position < len(prompt)]  # it may have become longer
    begins = len(other_pieces(tokenizer, prompt, inside, "target"))
    facts["prompt"] = begins if prompt is source else 0
    said = [*row[1:], tokenizer.end] if ends else row[1:]
    read = row if ends else row[:-1]
    limit = folder.model.longest_target if not isinstance(folder.model, EncoderOnly) else None
    if limit is not None and len(read) > limit:
        raise UsageError(
            f"a target of {len(read)} pieces, its start included, is too long: there are {limit}"
        )
    return Said(read, said, text_of(task, asked, row[begins:]), nodes, facts)


def prefix_of(folder: Folder, target: str | None, prefix: Sequence[int]) -> list[int]:
    """The pieces that the output is made to begin with."""
    size, ending = len(folder.target), folder.target.end
    if prefix and target is not None:
        raise UsageError("give a target, which is the whole output, or a prefix, not both")
    wrong = [piece for piece in prefix if not 0 <= piece < size or piece == ending]
    if wrong:
        raise UsageError(f"prefix: {wrong[0]} is no piece to go on from; there are 0 to {size - 1}")
    return list(prefix)


def chosen_options(task: Any, folder: Folder, options: Mapping[str, object], length: int) -> Decode:
    """As the task decodes; a language model goes no further than it reads at once."""
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
    task: Any, asked: TaskInput, options: Decode, changes: Sequence[Change], begun: Sequence[int] = ()
) -> tuple[Hypothesis, tuple[Node, ...]]:
    """The best hypothesis, and the tree of the search if there was one (drawing has none)."""
    folder: Folder = asked.folder
    model: Any = task.engines[0] if isinstance(task, Translator) else folder.model
    if changes:
        model = Changed(folder.model, Intervening(changes))
    special, device = folder.special, next(folder.model.parameters()).device
    if options.sample:
        return decode(model, [asked.sample], options, special, device, [begun] if begun else None)[0][0], ()
    request = Request(asked.sample.source, options, begun)
    running: BeamSearch[Any] = BeamSearch(model, special, device, request.key)
    running.observer = tree = BeamTree(lambda token: folder.target.tokens([token])[0])
    best = running.run([request])[0][0]
    return best, tree.told([*best.tokens, *([special.end] if best.finished else [])])


def text_of(task: Any, asked: TaskInput, ids: Ids) -> str:
    if isinstance(task, Generator):
        return "".join(detokenize_stream(task.tokenizer, list(asked.sample.source), ids))
    if isinstance(task, Filler):
        made = Hypothesis(tuple(ids), 0.0, 0.0, tuple(0.0 for _ in ids), True)
        return task.fillings(task.split_gaps(asked.text, ""), [made], 1).text
    return asked.folder.target.decode(ids)


def whole(asked: TaskInput, said: Said) -> Sample:
    """What runs once: source and target side by side, or of a language model the one text."""
    source = () if isinstance(asked.folder.model, LanguageModel) else asked.sample.source
    return replace(asked.sample, source=source, target=said.read)


def sides(asked: TaskInput, said: Said) -> dict[str, Pieces]:
    folder = asked.folder
    source = {"source": Pieces.of(folder.source, list(asked.sample.source))}
    return (source if not isinstance(folder.model, LanguageModel) else {}) | {
        "target": Pieces.of(folder.target, said.read),
        "output": Pieces.of(folder.target, said.output),
    }


# Other words


def with_other_source(asked: TaskInput, changes: Sequence[TokenChange]) -> Sample:
    ids = other_pieces(asked.folder.source, list(asked.sample.source), changes, "source")
    places = (
        asked.read_output is not None and asked.folder.config.head != "sentence"
    )  # answers are places of the text
    if places and len(ids) != len(asked.sample.source):
        raise UsageError("replace_token: this model answers by places, so one piece stands for one piece")
    return replace(asked.sample, source=ids)


def other_pieces(tokenizer: Tokenizer, ids: Ids, changes: Sequence[TokenChange], side: str) -> Ids:
    """From the last change to the first, because several pieces may stand for one."""
    named = named_specials(tokenizer)
    for change in sorted((each for each in changes if each.side == side), key=lambda each: -each.position):
        if change.position >= len(ids):
            raise UsageError(f"position = {change.position}: the {side} has {len(ids)} pieces, from 0 on")
        own = [named[change.text]] if change.text in named else tokenizer.encode(change.text)
        ids = [*ids[: change.position], *own, *ids[change.position + 1 :]]
    return ids


def named_specials(tokenizer: Tokenizer) -> dict[str, int]:
    """Pieces that no text holds, by their names: `<mask>`, `<unk>`, `</s>`."""
    known = [*tokenizer.suppressed, tokenizer.end, *tokenizer.sentinels]
    return dict(zip(tokenizer.tokens(known), known))


def stand_in(tokenizer: Tokenizer) -> int | None:
    """The piece that hides a word: the mask, else the unknown one."""
    if tokenizer.mask is not None:
        return tokenizer.mask
    named = named_specials(tokenizer)
    return named.get("<unk>", named.get("[UNK]"))


# log p of the output, for occlusion


def spoken(asked: TaskInput, said: Said) -> Callable[[Sequence[int]], float]:
    model: Model = asked.folder.model
    prompt = len(asked.sample.source) if isinstance(model, LanguageModel) else 1
    rest, output = said.read[prompt:], said.output[prompt - 1 :]

    def log_p(ids: Sequence[int]) -> float:
        if isinstance(model, LanguageModel):
            sample = Sample(target=[*ids, *rest])
        else:
            sample = Sample(source=ids, target=said.read)
        logits = run(model, sample)[-len(output) :]
        return float(logits.log_softmax(dim=1).gather(1, torch.tensor(output)[:, None]).sum())

    return log_p


def answered(asked: TaskInput) -> Callable[[Sequence[int]], float]:
    model = asked.folder.model
    assert asked.read_output is not None
    chosen = asked.read_output(run(model, asked.sample))[1]
    ends, many = asked.folder.config.head == "span", asked.folder.task.multi_label

    def log_p(ids: Sequence[int]) -> float:
        logits = run(model, replace(asked.sample, source=ids))
        own = logits.sigmoid().log() if many else logits.log_softmax(dim=0 if ends else 1)
        return float(sum(own[place, choice] for place, choice in chosen))

    return log_p


@torch.no_grad()
def run(model: Model, sample: Sample) -> Tensor:
    logits: Tensor = model(collate([sample]).to(next(model.parameters()).device))
    return logits[0].float().cpu()


def vocabulary(
    tokenizer: Tokenizer, tokens: Mapping[str, Pieces], tensors: Mapping[str, Tensor]
) -> dict[int, str]:
    """The words that a reader of the trace may meet: what was read, and the best at each place."""
    ids = {piece for own in tokens.values() for piece in own.ids}
    if "lens.ids" in tensors:
        ids |= set(tensors["lens.ids"].flatten().tolist())
    if "logits" in tensors:
        best = tensors["logits"].topk(min(BEST_WORDS, tensors["logits"].shape[-1]), dim=-1).indices
        ids |= set(best.flatten().tolist())
    return dict(zip(sorted(ids), tokenizer.tokens(sorted(ids))))


def about(
    asked: TaskInput, target: str | None, context: str | None, interventions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    folder = asked.folder
    return {
        "model": str(folder.path),
        "task": folder.task.name,
        "family": folder.config.family,
        "head": folder.config.head,
        "many": folder.task.multi_label,
        "labels": list(folder.labels),
        "config": folder.config.model_dump(mode="json"),
        "versions": {"regard": __version__, "torch": torch.__version__},
        "text": asked.text,
        "target": None if target is None else replace_surrogates(target),
        "context": None if context is None else replace_surrogates(context),
        "interventions": [dict(each) for each in interventions],
    }
