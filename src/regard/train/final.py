"""The chosen model on held-out text: its scores, and every sentence with what the model made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sacrebleu.metrics.chrf import CHRF

from regard.decode import Hypothesis
from regard.store import write_text
from regard.trace import Links, align
from regard.train.evaluate import (
    Held,
    best_hypotheses,
    bleu_tokenization,
    held_out_loss,
    intervals,
    text_scores,
)
from regard.train.progress import Record

if TYPE_CHECKING:
    from regard.train.loop import Trainer

FILES = {"final-valid": "valid.jsonl", "test": "test.jsonl"}  # of the sentences, by the record's kind


def final_scores(trainer: Trainer, kind: str, held: Held) -> Record:
    """Loss, BLEU and chrF of the chosen model, decoded as `[decode]` says; writes the sentences."""
    model, device, output = trainer.model.eval(), trainer.machine.device, trainer.materials.output
    best = best_hypotheses(model, held.samples, trainer.config.decode, output, device)
    texts = [output.decode(hypothesis.tokens) for hypothesis in best]
    references = [example.target for example in held.examples]
    source = trainer.materials.source
    sources = source.encode_batch([example.source for example in held.examples])
    pairs = [(ids, hypothesis.tokens) for ids, hypothesis in zip(sources, best)]
    aligned = align([model], pairs, source, output)
    write_sentences(trainer.folder / FILES[kind], held, best, texts, aligned)
    words = bleu_tokenization(trainer.config.train.bleu_tokenize, trainer.config.task.target)
    scores, around = text_scores(texts, references, words), intervals(texts, references, words)
    return {
        "kind": kind,
        "step": trainer.progress.step,
        "loss": held_out_loss(model, held, device),
        "bleu": scores.bleu,
        "chrf": scores.chrf,
        "exact": sum(text == reference for text, reference in zip(texts, references)) / len(texts),
        "sentences": len(texts),
        "bleu_signature": scores.bleu_signature,
        "chrf_signature": scores.chrf_signature,
        "bleu_interval": around["bleu"],
        "chrf_interval": around["chrf"],
    }


def write_sentences(
    path: Path, held: Held, best: Sequence[Hypothesis], texts: Sequence[str], aligned: Sequence[Links]
) -> None:
    """One JSON object a line, in the order of the corpus: all that the report shows of single sentences."""
    chrf = CHRF()
    rows = [
        {
            "source": example.source,
            "reference": example.target,
            "output": text,
            "chrf": round(chrf.sentence_score(text, [example.target]).score, 4),
            "log_probability": hypothesis.log_probability,
            "score": hypothesis.score,
            "alignment": own,
        }
        for example, hypothesis, text, own in zip(held.examples, best, texts, aligned)
    ]
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
