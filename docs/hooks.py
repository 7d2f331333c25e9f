"""What the site needs beside Markdown: reasons behind a fence taken off, equations as MathML.

A fence may say why the tests do not run it (```sh no-run: reason); a reader of the site need not see that. An
equation stands in a ```math fence, in TeX; browsers draw MathML by themselves, so no script is fetched.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

CODE = re.compile(r"^```python no-run: from (\S+)$", re.MULTILINE)  # of the package: its file is the title
REASON = re.compile(r"^([ \t]*```\w*)[ \t]+no-run:.*$", re.MULTILINE)
EQUATION = re.compile(r"^```math\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    titled = CODE.sub(r'```python title="\1"', markdown)
    return EQUATION.sub(drawn, REASON.sub(r"\1", titled))


def drawn(found: re.Match[str]) -> str:
    lines = [convert(line, display="block") for line in found[1].split("\n") if line.strip()]
    return f'<div class="equation">{"".join(lines)}</div>'
