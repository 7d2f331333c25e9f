"""Fine-tuning a BERT here and in transformers with equal settings: the score, and the time.

python -m bench.finetune RECIPE -m FOLDER [--seeds 3] [--set train.steps=300]

RECIPE is recipes/ner.toml or recipes/squad.toml. Both begin with the same weights, head included, and take
the same batches in the same order, with the same optimiser, schedule, dropout and precision (`--float32`:
transformers in its usual one). Batches of like lengths and bfloat16 make transformers faster than its own
examples are. They train interleaved in one process, so noise hits both alike; time is that of the updates.
The score is that of the held-out data, which transformers reads with its own tokenizer: seqeval's F1 of
data.test, or SQuAD's F1 of data.valid.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoTokenizer,
    BertForQuestionAnswering,
    BertForTokenClassification,
    get_linear_schedule_with_warmup,
)

from bench.rounds import arguments, show
from regard.batch import Batch
from regard.config import Config, load_config
from regard.data import read_examples
from regard.device import choose_machine
from regard.generation import ranked_ends
from regard.metrics.answers import squad_scores
from regard.metrics.labels import tagging_scores
from regard.sample import Example
from regard.storage import read_model
from regard.training.evaluation.labels import AnswerEvaluation
from regard.training.initial import load_initial, with_shape
from regard.training.prepare import prepare_data
from regard.training.run import make_trainer
from regard.training.trainer import Trainer

TURN = 20  # updates
Rows = list[dict[str, Any]]


class Tagging:
    """Tokens of words, as in transformers' examples: the label at a word's first piece."""

    def __init__(self, config: Config, folder: Path, labels: Sequence[str]) -> None:
        self.config, self.labels = config, labels
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.test = read_examples(config.data.test, config.task, "test")

    def model(self, folder: Path) -> torch.nn.Module:
        names = dict(enumerate(self.labels))
        return BertForTokenClassification.from_pretrained(folder, num_labels=len(names), id2label=names)

    def encode(self, examples: Sequence[Example]) -> Rows:
        words = [example.source.split(" ") for example in examples]
        coded = self.tokenizer(
            words, is_split_into_words=True, truncation=True, max_length=self.config.model.max_length
        )
        rows = []
        for place in range(len(examples)):
            owners = coded.word_ids(place)
            first = [own is not None and own != owners[at - 1] for at, own in enumerate(owners)]
            rows.append({"ids": coded["input_ids"][place], "first": first, "words": owners})
        return rows

    def asked(self, labels: Tensor) -> dict[str, Tensor]:
        return {"labels": labels}

    @torch.no_grad()
    def score(self, model: torch.nn.Module) -> float:
        outputs = []
        for example, row in zip(self.test, self.encode(self.test)):
            best = model(input_ids=torch.tensor([row["ids"]])).logits[0].argmax(dim=1).tolist()
            tags = ["O"] * len(example.source.split(" "))
            for place, (own, is_first) in enumerate(zip(row["words"], row["first"])):
                if is_first:
                    tags[own] = self.labels[best[place]]
            outputs.append(tags)
        return float(tagging_scores([example.target.split(" ") for example in self.test], outputs)["f1"])


class Answering:
    """Windows of contexts, as in transformers' examples."""

    def __init__(self, config: Config, folder: Path, labels: Sequence[str]) -> None:
        self.config = config
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.test = read_examples(config.data.valid, config.task, "valid")

    def model(self, folder: Path) -> torch.nn.Module:
        return BertForQuestionAnswering.from_pretrained(folder)

    def encode(self, examples: Sequence[Example]) -> Rows:
        parts = [example.source.partition("\n") for example in examples]
        coded = self.tokenizer(
            [part[0] for part in parts],
            [part[2] for part in parts],
            truncation="only_second",
            max_length=self.config.model.max_length,
            stride=self.config.task.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        rows = []
        for place, owner in enumerate(coded["overflow_to_sample_mapping"]):
            sides, spans = coded.sequence_ids(place), coded["offset_mapping"][place]
            ids, types = coded["input_ids"][place], coded["token_type_ids"][place]
            rows.append(
                {"ids": ids, "types": types, "owner": owner, "spans": spans, "begins": sides.index(1)}
            )
        return rows

    def asked(self, labels: Tensor) -> dict[str, Tensor]:
        return {"start_positions": labels[:, 0], "end_positions": labels[:, 1]}

    @torch.no_grad()
    def score(self, model: torch.nn.Module) -> float:
        best: dict[int, tuple[float, str]] = {}
        for row in self.encode(self.test):
            found = model(input_ids=torch.tensor([row["ids"]]), token_type_ids=torch.tensor([row["types"]]))
            logits = torch.stack([found.start_logits[0], found.end_logits[0]], dim=1)
            first, last, value = next(ranked_ends(logits, row["begins"], self.config.task.longest_answer))
            context = self.test[row["owner"]].source.partition("\n")[2]
            text = context[row["spans"][first][0] : row["spans"][last][1]]
            best[row["owner"]] = max(best.get(row["owner"], (float("-inf"), "")), (value, text))
        references = [[text for text, _ in json.loads(example.target)] for example in self.test]
        return float(squad_scores(references, [best[number][1] for number in range(len(self.test))])[0]["f1"])


class Theirs:
    def __init__(self, task: Tagging | Answering, folder: Path, ours: Trainer, precision: str) -> None:
        self.task, self.model, train = task, task.model(folder).train(), ours.config.train
        self.stream = replace(ours.stream)
        self.is_half = precision == "bfloat16"
        head = self.model.classifier if isinstance(task, Tagging) else self.model.qa_outputs
        head.load_state_dict(ours.model.output.state_dict())
        decays = [p for p in self.model.parameters() if p.dim() >= 2]
        others = [p for p in self.model.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decays, "weight_decay": train.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=train.lr, betas=train.betas, eps=train.epsilon,
        )  # fmt: skip
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, train.warmup, train.steps)
        self.clip = train.clip

    def loss(self, batch: Batch) -> Tensor:
        source = batch.source
        read = {"input_ids": source.ids, "attention_mask": (source.positions >= 0).long()}
        if source.segments is not None:
            read["token_type_ids"] = source.segments
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_half):
            return self.model(**read, **self.task.asked(batch.labels)).loss

    def update(self) -> None:
        self.loss(self.stream.next()).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)


def timed(update: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        update()
    return time.perf_counter() - began


def our_trainer(config: Config, folder: Path, model: Path) -> Trainer:
    initial = read_model(model, config.model.head)
    config = with_shape(config, initial.config)
    machine = choose_machine(precision=config.train.precision, width=config.model.width)
    machine.use()
    trainer = make_trainer(
        config, folder, prepare_data(config, folder, lambda text: None, pretrained=initial), machine
    )
    print(load_initial(trainer.model, initial.weights, config.init), machine.precision, file=sys.stderr)
    return trainer


def our_score(trainer: Trainer, config: Config, folder: Path) -> float:
    data = trainer.data
    judge = data.valid if isinstance(data.valid, AnswerEvaluation) else data.test
    return float(judge.final(trainer.model.eval(), folder / "rows.jsonl")["f1"])


def main() -> None:
    options = arguments(__doc__)
    options.add_argument("recipe", type=Path)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--float32", action="store_true", help="transformers in float32")
    options.add_argument("--set", action="append", default=[], help="fields of the run")
    given = options.parse_args()
    found: dict[str, list[float]] = {"ours": [], "theirs": [], "our_seconds": [], "their_seconds": []}
    for seed in range(given.first, given.first + given.seeds):
        changes = [f"train.seed={seed}", f"init.from={given.model}", *given.set]
        config = load_config(given.recipe, changes)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            ours = our_trainer(config, folder, given.model)
            config = ours.config
            kind = Tagging if config.task.name == "tag" else Answering
            task = kind(config, given.model, ours.data.labels)
            torch.manual_seed(seed)  # their dropout
            precision = "float32" if given.float32 else ours.machine.precision
            theirs = Theirs(task, given.model, ours, precision)
            count = sum(len(batch) for batch in ours.stream.batches) / len(ours.stream.batches)
            print(f"seed {seed}: {count:.1f} rows a batch, theirs in {precision}", file=sys.stderr)
            seconds = {"ours": 0.0, "theirs": 0.0}
            for start in range(0, config.train.steps, TURN):
                turn = min(TURN, config.train.steps - start)
                seconds["ours"] += timed(ours.update, turn)
                seconds["theirs"] += timed(theirs.update, turn)
            found["ours"].append(our_score(ours, config, folder))
            found["theirs"].append(task.score(theirs.model.eval()))
            found["our_seconds"].append(seconds["ours"])
            found["their_seconds"].append(seconds["theirs"])
            show({"seed": seed, **{name: values[-1] for name, values in found.items()}}, given.json)
    means = {name: statistics.fmean(values) for name, values in found.items()}
    show({**means, "ratio": means["our_seconds"] / means["their_seconds"], "each": found}, given.json)


if __name__ == "__main__":
    main()
