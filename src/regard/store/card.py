"""The model card: README.md of a folder, with language and task in its front matter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import Config
from regard.store.files import write_text
from regard.store.huggingface import is_marian

CARD = """\
---
language:
- {source}
- {target}
pipeline_tag: translation
library_name: {library}
tags:
- regard
---

# Translation from {source} to {target}

A Transformer encoder-decoder trained with Regard: {encoder}+{decoder} layers, width {width}, {heads} heads,
feed-forward {feed_forward}, {parameters:,} parameters.

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
echo "a sentence" | regard translate -m {folder}
```

```python
import regard
regard.load("{folder}").translate("a sentence")
```
{transformers}"""

EVALUATE = """
`report.html` shows how they come about, and this computes them again:

```
{command}
```
"""

TRANSFORMERS = """
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForSeq2SeqLM.from_pretrained("{folder}")
tokenizer.decode(model.generate(**tokenizer("a sentence", return_tensors="pt"))[0], skip_special_tokens=True)
```
"""


def write_card(
    folder: Path,
    config: Config,
    parameters: int,
    facts: Mapping[str, object],
    scores: Mapping[str, str],
    data: Mapping[str, Any],
) -> None:
    """`facts` are data, steps, chosen and the command that scores the model again; `scores` maps a score's
    name with its signature to its value; `data` is the content of data.json."""
    model = config.model
    hugging = is_marian(model) and config.text.joint
    # a signature holds the bars that part the columns of a table
    rows = "".join(f"| {name.replace('|', chr(92) + '|')} | {value} |\n" for name, value in scores.items())
    text = CARD.format(
        source=config.task.source,
        target=config.task.target,
        library="transformers" if hugging else "regard",
        encoder=model.depth[0],
        decoder=model.depth[1],
        width=model.width,
        heads=model.heads,
        feed_forward=model.feed_forward,
        parameters=parameters,
        scores=rows,
        evaluate=EVALUATE.format(**facts) if facts["command"] and scores else "",
        findings=describe_data(data),
        folder=folder.name,
        transformers=TRANSFORMERS.format(folder=folder.name) if hugging else "",
        **facts,
    )
    write_text(folder / "README.md", text)


def describe_data(data: Mapping[str, Any]) -> str:
    """Pairs of each corpus, and how often the check of every line found what; no text of the corpora."""
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
    return "".join(f"{line}\n" for line in lines) or "What was read was not recorded.\n"
