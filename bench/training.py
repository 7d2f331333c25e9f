"""Training speed against transformers' MarianMTModel: same shape, same batches, interleaved in one process.

    REGARD_DATA=... python bench/training.py [--shapes tiny base] [--rounds 7]

Marian runs in float32 and under bfloat16 autocast; the better counts. All use fused Adam and clipping.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from race import marian, pairs, race, report, shape
from regard.data import IGNORED, Batch, tokenize
from regard.data.objectives import Pairs
from regard.machine import choose_machine
from regard.text import learn
from regard.train.loss import count
from regard.train.prepare import Materials
from regard.train.run import make_trainer, pinned
from regard.train.stream import Stream


class Marian:
    """The training loop that its documentation shows, with the fast options."""

    def __init__(self, name: str, vocabulary: int, half: bool) -> None:
        self.model = marian(name, vocabulary).train()
        self.half = half
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)

    def update(self, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            loss = self.model(
                input_ids=batch.source.ids,
                attention_mask=(batch.source.positions >= 0).long(),
                decoder_input_ids=batch.target.ids,
                labels=batch.labels,
            ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["tiny", "base"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2048)
    options = parser.parse_args()
    examples, corpus = pairs(20_000)
    tokenizer = learn([text for e in examples for text in (e.source, e.target)], "bpe", 10_000)
    dataset = tokenize([(e.source, e.target) for e in examples], tokenizer, tokenizer)
    for name in options.shapes:
        config = shape(name, tokens_per_batch=options.tokens)
        machine = choose_machine(width=config.model.width)
        machine.use()
        ask = Pairs(tokenizer, tokenizer, 512)
        stream = Stream(dataset, ask, options.tokens, seed=1)
        batches = [stream.next() for _ in range(options.batches)]
        tokens = sum(count(batch.labels) for batch in batches)
        padding = sum(float((batch.labels == IGNORED).float().mean()) for batch in batches) / len(batches)
        materials = Materials(tokenizer, None, (), ask, dataset, None, None, "race", 0, False, {})
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(pinned(config, machine), Path(folder), materials, machine)

            def own(trainer=trainer, batches=batches, tokens=tokens) -> int:
                for batch in batches:
                    trainer.stream.next = lambda batch=batch: batch  # the same batches for all
                    trainer.update()
                return tokens

            runners = {f"regard {machine.precision}": own}
            for half in (False, True):
                other = Marian(name, len(tokenizer), half)

                def run(other=other, batches=batches, tokens=tokens) -> int:
                    for batch in batches:
                        other.update(batch)
                    return tokens

                runners[f"marian {'bfloat16' if half else 'float32'}"] = run
            speeds = race(runners, options.rounds)
        print(f"{corpus}, {options.tokens} tokens a batch, padding {padding:.1%}, {len(tokenizer)} pieces")
        report(
            f"training {name}", speeds, f"regard {machine.precision}", [n for n in speeds if "marian" in n]
        )


if __name__ == "__main__":
    main()
