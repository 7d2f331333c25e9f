"""The model card: README.md of a folder, with language and task in the front matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Config, Model, Task
from regard.config.model import AttentionConfig
from regard.storage.files import write_text
from regard.storage.huggingface import opens_in_transformers

CARD = """\
---
{languages}pipeline_tag: {tag}
library_name: {library}
tags:
- regard
---

# {title}

{kind} trained with Regard: {layers} layers, width {width}, {inside}{parameters:,} parameters.

| | |
|---|---|
| training data | {data} |
| updates | {steps} |
| chosen model | {chosen} |
{scores}{evaluate}
## Data

{findings}
## Use

```
{command}
```

```python
import regard
regard.load("{folder}").{call}
```
{transformers}"""

EVALUATE = """
`report.html` shows the details; this command computes the scores again:

```
{command}
```
"""


@dataclass(frozen=True)
class Use:
    """The text of a card for a task: its tag on the hub, a title, and how to use the model."""

    tag: str
    title: str
    command: str
    call: str
    transformers: str = ""  # Python, with "{folder}"


def pipeline(tag: str, text: str) -> str:
    return f"""
```python
from transformers import pipeline
pipeline("{tag}", model="{{folder}}")("{text}")
```
"""


USES = {
    "translate": Use(
        "translation",
        "Translation from {source} to {target}",
        'echo "a sentence" | regard translate -m {folder}',
        'translate("a sentence")',
        """
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForSeq2SeqLM.from_pretrained("{folder}")
tokenizer.decode(model.generate(**tokenizer("a sentence", return_tensors="pt"))[0], skip_special_tokens=True)
```
""",
    ),
    "generate": Use(
        "text-generation",
        "A language model",
        'regard generate -m {folder} "A beginning"',
        'generate("A beginning")',
        pipeline("text-generation", "A beginning"),
    ),
    "fill": Use(
        "fill-mask",
        "A masked language model",
        'regard fill -m {folder} "A <mask> in a text."',
        'fill("A <mask> in a text.")',
    ),
    "classify": Use(
        "text-classification",
        "A text classifier",
        'echo "a text" | regard classify -m {folder}',
        'classify("a text")',
        pipeline("text-classification", "a text"),
    ),
    "tag": Use(
        "token-classification",
        "A token classifier",
        'echo "a text" | regard tag -m {folder}',
        'tag("a text")',
        pipeline("token-classification", "a text"),
    ),
    "answer": Use(
        "question-answering",
        "An extractive question answering model",
        'regard answer -m {folder} --context article.txt "A question?"',
        'answer("A question?", context)',
    ),
}
KINDS = {
    "transformer": "A Transformer encoder-decoder",
    "t5": "A T5 encoder-decoder",
    "rnn": "A recurrent encoder-decoder",
    "bahdanau": "A recurrent encoder-decoder with attention",
    "gpt": "A GPT decoder",
    "llama": "A Llama decoder",
    "bert": "A BERT encoder",
}


def write_card(
    folder: Path,
    config: Config,
    parameters: int,
    facts: Mapping[str, object],
    scores: Mapping[str, str],
    data: Mapping[str, Any],
) -> None:
    """`facts` are data, steps, chosen and the command that computes the scores; `scores` maps names with
    signatures to values; `data` is the content of data.json."""
    model, task = config.model, config.task
    use = USES[task.name]
    is_hf = opens_in_transformers(model) and (config.text.joint or task.name != "translate")
    # a signature contains bars, which separate the columns of a table
    rows = "".join(f"| {name.replace('|', chr(92) + '|')} | {value} |\n" for name, value in scores.items())
    text = CARD.format(
        languages=languages(task),
        tag=use.tag,
        title=use.title.format(source=task.source, target=task.target),
        kind=KINDS[model.family],
        layers=layers(model),
        library="transformers" if is_hf else "regard",
        width=model.width,
        inside=f"{model.heads} heads, feed-forward {model.feed_forward}, "
        if isinstance(model, AttentionConfig)
        else "",
        parameters=parameters,
        scores=rows,
        evaluate=EVALUATE.format(**facts) if facts["command"] and scores else "",
        findings=describe_data(data),
        folder=folder.resolve().name,
        command=use.command.format(folder=folder.resolve().name),
        call=use.call,
        transformers=use.transformers.format(folder=folder.resolve().name) if is_hf else "",
        **{name: value for name, value in facts.items() if name != "command"},
    )
    write_text(folder / "README.md", text)


def languages(task: Task) -> str:
    """For the front matter: both languages of a translation, else that of the texts if it is given."""
    codes = [task.source] if task.source != "source" else []  # "source" is the default
    codes = [task.source, task.target] if task.name == "translate" else codes
    return "".join(["language:\n", *(f"- {code}\n" for code in codes)]) if codes else ""


def layers(model: Model) -> str:
    encoder, decoder = model.depth
    one_stack = {"bert": encoder, "gpt": decoder, "llama": decoder}
    return str(one_stack.get(model.family, f"{encoder}+{decoder}"))


def describe_data(data: Mapping[str, Any]) -> str:
    """Number of pairs of each corpus, and the problems that the data check found; no text of the corpora."""
    corpora, findings = data.get("corpora") or [], data.get("findings") or []
    lines = [
        f"- {corpus.get('split')}: {corpus.get('used', 0):,} of {corpus.get('pairs', 0):,} pairs used"
        for corpus in corpora
    ]
    lines += [
        f"- {finding.get('count', 0):,} times {finding.get('meaning', finding.get('kind'))}: "
        + ("left out" if finding.get("left_out") else "used")
        for finding in findings
    ]
    return "".join(f"{line}\n" for line in lines) or "Not recorded.\n"
