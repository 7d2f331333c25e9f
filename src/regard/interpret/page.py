"""The explorer's page with one run inside: a file that opens anywhere and asks nobody."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from regard.errors import UsageError
from regard.interpret.bundle import bundle
from regard.interpret.looks import MEAN, head_numbers, look
from regard.interpret.telling import pooled, told
from regard.interpret.trace import Trace
from regard.storage.files import write_atomically

WEB = Path(__file__).parents[1] / "server" / "web"
LARGEST = 64 << 20  # bytes of numbers in a page
LARGEST_READINGS = 16 << 20  # beyond this, a page has the plain weights alone
LARGEST_CELL = 8 << 20  # of a notebook: what is larger is shown as a figure
THUMBNAIL = 32  # as the page asks for it


@dataclass(frozen=True)
class Page:
    """One HTML document that fetches nothing; scripts in it run only if they are the page's own."""

    html: str
    title: str

    def save(self, path: str | Path) -> None:
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"{path}: a page is written as .html")
        write_atomically(path, self.html.encode())

    def _repr_html_(self) -> str:
        """For notebooks: a frame that is nobody's, and reaches neither the notebook nor the network."""
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" title="{html.escape(self.title)}" '
            f'srcdoc="{html.escape(self.html, quote=True)}" '
            'style="width:100%;height:760px;border:1px solid #8886"></iframe>'
        )


def make_page(trace: Trace, model: Mapping[str, Any] | None = None) -> Page:
    """`model` is what a server tells of a model; without it the page says what the trace knows."""
    kept = replace(trace, tensors={name: each for name, each in trace.tensors.items() if name != "logits"})
    size = sum(tensor.nbytes for tensor in kept.tensors.values())
    if size > LARGEST:
        raise UsageError(
            f"a page of this run would hold {size >> 20} MiB of numbers, {LARGEST >> 20} at most; trace a "
            "shorter text, fewer tensors (only=), or write .safetensors"
        )
    numbers, about = readings(trace)
    for name in kept.names("*.weights"):
        numbers[f"pooled/{name}"] = (pooled(kept[name], THUMBNAIL) * 255).round().to(torch.uint8)
    numbers |= {f"whole/{name}": tensor for name, tensor in kept.tensors.items()}
    content = {
        "models": models(trace, model),
        "trace": {**told("kept", trace), "tensors": kept.as_json()["tensors"], "model": name_of(trace)},
        "readings": about,
    }
    content["trace"]["meta"] = {
        **content["trace"]["meta"],
        "model": name_of(trace),
    }  # no path of this machine
    data = save({name: tensor.contiguous().clone() for name, tensor in numbers.items()})
    return Page(document(content, data), f"Regard: {trace.meta.get('text', '')}")


def readings(trace: Trace) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What a server would compute when asked: all heads of a look and their mean, [H+1,T,S]."""
    weights = sum(trace[name].nbytes for name in trace.names("*.weights"))
    if weights * 4 > LARGEST_READINGS:  # what the page needs to show the plain weights
        plain = {where: look(trace, "weights", where, 0, False) for where in trace.attentions}
        return {}, {f"look/weights/{where}/pieces": [own.about()] for where, own in plain.items()}
    if not trace.attentions:
        return {}, {}
    asked = [(kind, where) for where in trace.attentions for kind in ("weights", "value_norm")]
    with suppress(UsageError):  # of a part of the run there is none
        trace.rolled()
        asked.append(("rollout", ""))
    numbers: dict[str, Tensor] = {f"heads/{name}": each for name, each in head_numbers(trace).items()}
    about = {}
    for kind, where in asked:
        if kind == "value_norm" and f"{where}.value_norms" not in trace:
            continue
        heads: list[int | str] = [MEAN] if not where else [*range(len(trace.weights(where))), MEAN]
        for words in (False, True):
            found = [look(trace, kind, where, head, words) for head in heads]
            name = f"look/{kind}/{where}/{'words' if words else 'pieces'}"
            numbers[name] = torch.stack([each.values for each in found])
            about[name] = [each.about() for each in (found[0], found[-1])]  # of a head, of the mean
    return numbers, about


def models(trace: Trace, model: Mapping[str, Any] | None) -> dict[str, Any]:
    meta = trace.meta
    own = {
        "name": name_of(trace),
        "task": meta.get("task", ""),
        "family": meta.get("family", ""),
        "config": meta.get("config", {}),
        "labels": meta.get("labels", []),
        "beam": (meta.get("decode") or {}).get("beam", 1),
    }
    asked = {"text": meta.get("text") or "", "context": meta.get("context") or ""}
    return {"models": [{**own, **(model or {}), "name": name_of(trace)}], "longest_text": 0, "kept": asked}


def name_of(trace: Trace) -> str:
    return PurePath(str(trace.meta.get("model") or "model")).name


def document(content: Mapping[str, Any], data: bytes) -> str:
    """The page's own document, with its style, script and data inside and a policy that allows only those."""
    page, style, script = parts()
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    told_here = json.dumps(content, ensure_ascii=True).replace("<", "\\u003c")
    meta = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    inside = (
        f'<script type="application/json" id="kept">{told_here}</script>\n'
        f'<script type="text/plain" id="kept-numbers">{base64.b64encode(data).decode()}</script>\n'
        f'<script type="module">{script}</script>\n</body>'
    )
    page = page.replace('<meta charset="utf-8">', meta, 1)
    page = page.replace('<link rel="stylesheet" href="/web/style.css">', f"<style>{style}</style>", 1)
    return page.replace("</body>", inside, 1)


@cache
def parts() -> tuple[str, str, str]:
    """Document, style and script."""
    page = (WEB / "index.html").read_text(encoding="utf-8")
    page = page.replace('<script type="module" src="/web/js/main.js"></script>\n', "")
    page = page.replace('<link rel="icon" href="/web/icon.svg">', '<link rel="icon" href="data:,">')
    style = (WEB / "style.css").read_text(encoding="utf-8")
    return page, style, "\n" + bundle(WEB / "js", "main.js")


def digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
