"""The model card: README.md of a folder, with language and task in the front matter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import Config
from regard.resources import CARD, texts_of
from regard.storage.files import write_text
from regard.storage.huggingface import opens_in_transformers

KINDS = {
    "transformer": "A Transformer encoder-decoder",
    "t5": "A T5 encoder-decoder",
    "rnn": "A recurrent encoder-decoder",
    "bahdanau": "A recurrent encoder-decoder with attention",
    "gpt": "A GPT decoder",
    "llama": "A Llama decoder",
    "bert": "A BERT encoder",
    "vit": "A ViT encoder",
    "ast": "An AST encoder",
    "whisper": "A Whisper encoder-decoder",
    "vit_gpt": "A ViT encoder with a GPT-2 decoder",
}


def write_card(
    folder: Path,
    config: Config,
    parameters: int,
    facts: Mapping[str, object],
    scores: Mapping[str, str],
    data: Mapping[str, Any],
    robustness: tuple[list[str], list[list[str]]] = ([], []),
) -> None:
    """`facts` are data, steps, chosen and the command that computes the scores; `scores` maps names with
    signatures to values; `data` is the content of data.json, of which no text is written; `robustness` is the
    head and the rows of a table of scores on modified texts."""
    from jinja2 import Template  # here: whoever opens a model imports this package

    model, task = config.model, config.task
    texts, (encoder, decoder) = texts_of(task.name, task.input), model.depth
    # of a language model the only language, if it is given: "source" is the default
    languages = [task.source] if task.source != "source" else []
    template = Template(
        CARD.read_text(encoding="utf-8"), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    text = template.render(
        languages=[task.source, task.target] if task.name == "translate" else languages,
        use=texts,
        title=texts["title"].format(source=task.source, target=task.target),
        kind=KINDS[model.family],
        layers=f"{encoder}+{decoder}" if encoder and decoder else encoder or decoder,
        model=model,
        parameters=parameters,
        is_hf=opens_in_transformers(model, reader=config.input)
        and (config.text.joint or task.name != "translate"),
        facts=facts,
        scores=scores,
        robustness=robustness,
        data=data,
        folder=folder.resolve().name,
    )
    write_text(folder / "README.md", text)
