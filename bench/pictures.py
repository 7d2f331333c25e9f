"""A ViT and a model of captions, here and in transformers, trained equally long: the score, and the time.

REGARD_DATA=folder python -m bench.pictures RECIPE [--seeds 1] [--set train.steps=600] [--captions FILE]

RECIPE is recipes/cifar10-vit.toml (ViTForImageClassification) or recipes/flickr8k.toml
(VisionEncoderDecoderModel, ViT and GPT-2). Both have the same shape, each its own random weights, and take
the same batches in the same order, with the same optimiser, schedule, dropout and label smoothing, in
float32. They train interleaved in one process, so noise hits both alike; time is that of the updates. The
score is the accuracy on data.test, or the BLEU of greedy captions of its pictures against all of their
references.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import sacrebleu
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from bench.finetune import TURN, timed
from bench.rounds import arguments, show
from regard.batch import Batch, frames, tokens
from regard.config import Config, load_config
from regard.data import read_examples
from regard.device import choose_machine
from regard.inputs.frames import FrameReader
from regard.sample import IGNORED, Example
from regard.training.optimizer import learning_rate
from regard.training.prepare import prepare_data
from regard.training.run import make_trainer
from regard.training.trainer import Trainer

PICTURES_AT_ONCE = 100


class Theirs:
    """The model of transformers and its updates."""

    def __init__(self, ours: Trainer, reader: FrameReader) -> None:
        self.config, self.stream, self.step = ours.config, replace(ours.stream), 0
        self.reader, self.train = reader, ours.config.train
        self.model = self.build(ours).train()
        groups = [
            [p for p in self.model.parameters() if (p.dim() >= 2) == is_matrix] for is_matrix in (True, False)
        ]
        decays = (self.train.weight_decay, 0.0)
        self.optimizer = torch.optim.AdamW(
            [{"params": group, "weight_decay": decay} for group, decay in zip(groups, decays)],
            lr=0.0, betas=self.train.betas, eps=self.train.epsilon, fused=True,
        )  # fmt: skip

    def build(self, ours: Trainer) -> torch.nn.Module:
        shape, picture = self.config.model, self.reader.config
        encoder = ViTConfig(
            hidden_size=shape.width, num_attention_heads=shape.heads, intermediate_size=shape.feed_forward,
            num_hidden_layers=shape.depth[0], hidden_dropout_prob=shape.dropout, image_size=picture.height,
            patch_size=picture.patch, num_channels=picture.channels, num_labels=max(2, len(ours.data.labels)),
        )  # fmt: skip
        if self.config.task.name == "classify":
            return ViTForImageClassification(encoder)
        decoder = GPT2Config(
            vocab_size=len(ours.data.target), n_positions=shape.max_length, n_embd=shape.width,
            n_layer=shape.depth[1], n_head=shape.heads, n_inner=shape.feed_forward, resid_pdrop=shape.dropout,
            embd_pdrop=shape.dropout, attn_pdrop=0.0, add_cross_attention=True,
        )  # fmt: skip
        vit = ViTModel(encoder, add_pooling_layer=False)
        return VisionEncoderDecoderModel(encoder=vit, decoder=GPT2LMHeadModel(decoder))

    def logits(self, batch: Batch) -> Tensor:
        pixels = self.picture(batch.source.values)
        if batch.target is None:
            return self.model(pixel_values=pixels).logits[:, None]  # [B,1,labels]
        seen = (batch.target.positions >= 0).long()
        read = {"decoder_input_ids": batch.target.ids, "decoder_attention_mask": seen}
        return self.model(pixel_values=pixels, **read).logits  # [B,T,V]

    def picture(self, patches: Tensor) -> Tensor:
        """[B,S,F] -> [B,C,H,W]."""
        (rows, columns), side, channels = (
            self.reader.grid,
            self.reader.config.patch,
            self.reader.config.channels,
        )
        split = patches.reshape(len(patches), rows, columns, channels, side, side)
        return split.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), channels, rows * side, columns * side)

    def update(self) -> None:
        self.step += 1
        batch = self.stream.next()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.train, self.config.model.width)
        logits, smoothing = self.logits(batch).flatten(0, 1), self.train.label_smoothing
        labels = batch.labels.flatten()
        loss = F.cross_entropy(logits, labels, ignore_index=IGNORED, label_smoothing=smoothing)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.train.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def ours_and_theirs(config: Config, folder: Path) -> tuple[Trainer, Theirs]:
    machine = choose_machine(precision="float32", width=config.model.width, threads=config.train.threads)
    machine.use()
    ours = make_trainer(config, folder, prepare_data(config, folder, lambda text: None), machine)
    torch.manual_seed(config.train.seed)  # their weights and dropout
    return ours, Theirs(ours, ours.data.source)


@torch.inference_mode()
def score(
    run: Any, reader: FrameReader, data: Any, examples: Sequence[Example], task: str
) -> tuple[float, list[str]]:
    """Of a model whose logits are `run(batch)`: the accuracy, or BLEU and the captions."""
    references: dict[str, list[str]] = {}
    for each in examples:
        references.setdefault(each.source, []).append(each.target)
    files, outputs = list(references), []
    for start in range(0, len(files), PICTURES_AT_ONCE):
        part = files[start : start + PICTURES_AT_ONCE]
        source = frames([reader.frames(reader.read(file)) for file in part])
        if task == "classify":
            best = run(Batch(source=source))[:, 0].argmax(dim=1).tolist()
            outputs += [data.labels[number] for number in best]
        else:
            outputs += [data.target.decode(ids) for ids in greedy(run, source, data.target, len(part))]
    if task == "classify":
        return 100 * sum(output in references[file] for file, output in zip(files, outputs)) / len(files), []
    columns = [[references[file][at % len(references[file])] for file in files] for at in range(5)]
    return sacrebleu.corpus_bleu(outputs, columns, lowercase=True).score, outputs


def greedy(run: Any, source: Any, target: Any, count: int, longest: int = 25) -> list[list[int]]:
    ids = [[target.start] for _ in range(count)]
    for _ in range(longest):
        best = run(Batch(source=source, target=tokens(ids)))[:, -1].argmax(dim=1).tolist()
        ids = [[*row, target.end if target.end in row[1:] else token] for row, token in zip(ids, best)]
    return [[*row[1:], target.end][: [*row[1:], target.end].index(target.end)] for row in ids]


def main() -> None:
    options = arguments(__doc__, model=False)
    options.add_argument("recipe", type=Path)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--set", action="append", default=[], help="fields of the run")
    options.add_argument("--captions", type=Path, help="write the captions of both into this file")
    given = options.parse_args()
    found: dict[str, list[float]] = {"ours": [], "theirs": [], "our_seconds": [], "their_seconds": []}
    for seed in range(1, given.seeds + 1):
        config = load_config(given.recipe, [f"train.seed={seed}", *given.set])
        with tempfile.TemporaryDirectory() as place:
            ours, theirs = ours_and_theirs(config, Path(place))
            counts = [sum(p.numel() for p in each.model.parameters()) for each in (ours, theirs)]
            print(f"parameters: ours {counts[0]:,}, theirs {counts[1]:,}", file=sys.stderr)
            seconds = {"ours": 0.0, "theirs": 0.0}
            for start in range(0, config.train.steps, TURN):
                turn = min(TURN, config.train.steps - start)
                seconds["ours"] += timed(ours.update, turn)
                seconds["theirs"] += timed(theirs.update, turn)
            test = read_examples(config.data.test, config.task, "test")
            sides = {"ours": ours.model.eval(), "theirs": theirs.logits}
            theirs.model.eval()
            texts = {}
            for name, run in sides.items():
                value, texts[name] = score(run, theirs.reader, ours.data, test, config.task.name)
                found[name].append(value)
            found["our_seconds"].append(seconds["ours"])
            found["their_seconds"].append(seconds["theirs"])
            show({"seed": seed, **{name: values[-1] for name, values in found.items()}}, given.json)
            if given.captions:
                rows = [f"{a}\t{b}\n" for a, b in zip(*texts.values())]
                given.captions.write_text("".join(rows), encoding="utf-8")
    means = {name: statistics.fmean(values) for name, values in found.items()}
    show({**means, "ratio": means["our_seconds"] / means["their_seconds"], "each": found}, given.json)


if __name__ == "__main__":
    main()
