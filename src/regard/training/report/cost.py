"""The sections about model and settings, and about time and operations."""

from __future__ import annotations

from pathlib import Path

from regard.config import Config, Model, resolve
from regard.config.model import RecurrentConfig
from regard.training.report.blocks import Block, Paragraph, Table
from regard.training.report.facts import Facts
from regard.training.report.words import clock, compact, plain

ONE_STACK = ("gpt", "llama", "bert")


def model(facts: Facts) -> list[Block]:
    config, run = facts.config, facts.last("run")
    rows = [["family", config.model.family], ["shape", shape(config.model)]]
    if config.init.model is not None:
        rows.append(["began with", Path(config.init.model).name])  # not its folder, as everywhere in a report
    if "parameters" in run:
        rows.append(["parameters", f"{run['parameters']:,}"])
    if "vocabulary" in run:
        rows.append(["vocabulary", " and ".join(f"{size:,}" for size in run["vocabulary"]) + " pieces"])
    rows += [["chosen model", str(run["chosen"])]] if "chosen" in run else []
    changed = differences(config)
    blocks: list[Block] = [Table(["", ""], rows, text_columns=2)]
    if changed:
        blocks.append(Table(["setting", "here", "default"], changed, text_columns=3))
    return blocks


def shape(model: Model) -> str:
    layers = f"{model.layers}" if model.family in ONE_STACK else " + ".join(map(str, model.depth))
    if isinstance(model, RecurrentConfig):
        return f"{layers} layers of {model.cell.upper()} cells, width {model.width}"
    return f"{layers} layers, width {model.width}, {model.heads} heads, feed-forward {model.feed_forward}"


def differences(config: Config) -> list[list[str]]:
    """The settings that are not what they would be unsaid; the corpora stand elsewhere."""
    usual = resolve(
        {
            "task": {"name": config.task.name},
            "data": {"train": "phrasebook"},
            "model": {"preset": config.model.preset, "family": config.model.family},
        }
    )
    elsewhere = {
        "train",
        "valid",
        "test",
        "device",
        "precision",
        "threads",
        "name",
        "source",
        "target",
        "from",
    }
    rows = []
    for section in ("task", "data", "text", "model", "train", "decode", "init"):
        own, base = (getattr(each, section).model_dump(mode="json") for each in (config, usual))
        for field, value in own.items():
            if value != base[field] and field not in elsewhere:
                rows.append([f"{section}.{field}", plain(value), plain(base[field])])
    return rows


def cost(facts: Facts) -> list[Block]:
    run, tokens = facts.last("run"), facts.wording.tokens
    if not run:
        at = facts.last("train")
        return [Paragraph(f"The run has not ended; {at.get('tokens', 0):,} {tokens} so far.")]
    updating = max(1e-9, run["updating"])
    achieved = run["flops"] / updating
    rows = [
        ["updates", f"{run['step']:,} in {run['epochs']:,.2f} epochs"],
        [f"{tokens} learned from", f"{run['tokens']:,}"],
        ["speed", f"{run['tokens'] / updating:,.0f} {tokens} a second"],
        ["time in updates", clock(run["updating"])],
        ["of these waiting for data", f"{clock(run['waiting'])}, {100 * run['waiting'] / updating:.1f} %"],
        ["time in validations", clock(run["validating"])],
        ["time in saving", clock(run["saving"])],
        ["machine", f"{run['device']}, {run['precision']}, threads: {run['threads']}"],
        ["operations", f"{compact(run['flops'])}FLOP, forward and backward, padding included"],
        ["rate", f"{compact(achieved)}FLOP/s"],
        ["peak, measured", f"{compact(run['peak'])}FLOP/s, by matrix products at the end of the run"],
        ["share of the peak", f"{100 * achieved / run['peak']:.1f} %"],
    ]
    return [Table(["", ""], rows, text_columns=2)]
