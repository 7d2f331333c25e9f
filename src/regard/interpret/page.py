"""The explorer page with one run inside: a single HTML file that needs no server and no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import posixpath
import re
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
from regard.interpret.activations import MEAN, Activations, attention_matrix
from regard.interpret.interventions import KINDS
from regard.interpret.predictions import max_pool, page_json
from regard.resources import WEB
from regard.storage.files import write_atomically

SETTINGS: dict[str, Any] = {  # of the page, which reads them from here
    "largest_page": 64 << 20,  # bytes of tensors in a page
    "thumbnail": 32,  # cells on a side
    "interventions": {name: kind.as_json() for name, kind in KINDS.items()},
}
LARGEST_READINGS = 16 << 20  # larger: the page has the plain weights only


@dataclass(frozen=True)
class Page:
    """One HTML document that loads nothing; its policy allows only its own script."""

    html: str
    title: str

    def save(self, path: str | Path) -> None:
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"{path}: a page is written as .html")
        write_atomically(path, self.html.encode())

    def _repr_html_(self) -> str:
        """For notebooks: a sandboxed frame with an origin of its own."""
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" title="{html.escape(self.title)}" '
            f'srcdoc="{html.escape(self.html, quote=True)}" '
            'style="width:100%;height:760px;border:1px solid #8886"></iframe>'
        )


def make_page(run: Activations, model: Mapping[str, Any] | None = None, web: Path = WEB) -> Page:
    """`model`: a server's description of it, by default what the trace has. `web`: the files of the page."""
    small = replace(run, tensors={name: each for name, each in run.tensors.items() if name != "logits"})
    size = sum(tensor.nbytes for tensor in small.tensors.values())
    if size > SETTINGS["largest_page"]:
        raise UsageError(
            f"a page of this run would hold {size >> 20} MiB of tensors, {SETTINGS['largest_page'] >> 20} at "
            "most; trace a shorter text, fewer tensors (only=), or write .safetensors"
        )
    tensors, about = readings(run)
    for name in small.names("*.weights"):
        tensors[f"pooled/{name}"] = (
            (max_pool(small[name], SETTINGS["thumbnail"]) * 255).round().to(torch.uint8)
        )
    tensors |= {f"whole/{name}": tensor for name, tensor in small.tensors.items()}
    name = PurePath(str(run.meta.get("model") or "model")).name  # without the path on this machine
    trace = page_json("kept", run)
    trace |= {"tensors": small.as_json()["tensors"], "model": name, "meta": {**trace["meta"], "model": name}}
    content = {"models": models_json(run, name, model), "trace": trace, "readings": about}
    data = save({name: tensor.contiguous().clone() for name, tensor in tensors.items()})
    return Page(document(content, data, web), f"Regard: {run.meta.get('text', '')}")


def make_model_page(
    models: Mapping[str, Any], description: Mapping[str, Any], weights: Mapping[str, Tensor], web: Path = WEB
) -> Page:
    """A page with a model inside, which the page's own engine runs: also another text, and What if.

    `models` is as the page asks for it, with the text and context to begin with under `kept`.
    """
    data = save({name: weight.contiguous() for name, weight in weights.items()})
    page = document({"models": models, "model": description}, data, web, "engine/file_page.js")
    return Page(page, f"Regard: {models['kept']['text']}")


def readings(run: Activations) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What a server computes on request: all heads of an attention and their mean, [H+1,T,S]."""
    weights = sum(run[name].nbytes for name in run.names("*.weights"))
    if weights * 4 > LARGEST_READINGS:  # what the page needs to show the plain weights
        plain = {where: attention_matrix(run, "weights", where, 0) for where in run.attentions}
        return {}, {f"look/weights/{where}/pieces": [each.as_json()] for where, each in plain.items()}
    if not run.attentions:
        return {}, {}
    requests = [(kind, where) for where in run.attentions for kind in ("weights", "value_norm")]
    with suppress(UsageError):  # a partial trace has none
        run.rollout_layers()
        requests.append(("rollout", ""))
    tensors: dict[str, Tensor] = {f"heads/{name}": each for name, each in run.head_statistics().items()}
    about = {}
    for kind, where in requests:
        if kind == "value_norm" and f"{where}.value_norms" not in run:
            continue
        heads: list[int | str] = [MEAN] if not where else [*range(len(run.weights(where))), MEAN]
        for words in (False, True):
            matrices = [attention_matrix(run, kind, where, head, words) for head in heads]
            name = f"look/{kind}/{where}/{'words' if words else 'pieces'}"
            tensors[name] = torch.stack([each.values for each in matrices])
            about[name] = [each.as_json() for each in (matrices[0], matrices[-1])]  # of a head, of the mean
    return tensors, about


def models_json(run: Activations, name: str, model: Mapping[str, Any] | None) -> dict[str, Any]:
    meta = run.meta
    from_trace = {
        "task": meta.get("task", ""),
        "family": meta.get("family", ""),
        "config": meta.get("config", {}),
        "labels": meta.get("labels", []),
        "beam": (meta.get("decode") or {}).get("beam", 1),
    }
    inputs = {"text": meta.get("text") or "", "context": meta.get("context") or ""}
    described = {**from_trace, **(model or {}), "name": name}
    return {"models": [described], "longest_text": 0, "settings": SETTINGS, "kept": inputs}


def document(content: Mapping[str, Any], data: bytes, web: Path, entry: str = "main.js") -> str:
    """index.html with style, script and data inside, and a policy that allows only those."""
    page, style, script = web_files(web, entry)
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    meta = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
    text = json.dumps(content, ensure_ascii=True).replace("<", "\\u003c")
    inside = (
        f'<script type="application/json" id="kept">{text}</script>\n'
        f'<script type="text/plain" id="kept-numbers">{base64.b64encode(data).decode()}</script>\n'
        f'<script type="module">{script}</script>\n</body>'
    )
    page = page.replace('<meta charset="utf-8">', meta, 1)
    page = page.replace('<link rel="stylesheet" href="/web/style.css">', f"<style>{style}</style>", 1)
    return page.replace("</body>", inside, 1)


@cache
def web_files(web: Path, entry: str) -> tuple[str, str, str]:
    """Document, style and script."""
    if not web.is_dir():
        raise UsageError(f"{web}: the files of the explorer page are not installed")
    page = (web / "index.html").read_text(encoding="utf-8")
    page = page.replace('<script type="module" src="/web/js/main.js"></script>\n', "")
    page = page.replace('<link rel="icon" href="/web/icon.svg">', '<link rel="icon" href="data:,">')
    return page, (web / "style.css").read_text(encoding="utf-8"), "\n" + bundle(web / "js", entry)


def digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# JavaScript modules as one script, because browsers load no modules from file://. Each module becomes a
# function that is called once and returns its exports. Supported: `import * as a from`, `import {a, b as c}
# from`, and `export` before const, function, async function and class; other forms are an error.

IMPORT = re.compile(r'^import\s+(\*\s+as\s+(\w+)|\{([^}]*)\})\s+from\s+"([^"]+)";', re.MULTILINE)
EXPORT = re.compile(r"^export\s+(?=(?:const|class|function|async\s+function)\s+(\w+))", re.MULTILINE)
OTHER = re.compile(r"^(?:import|export)\b.*$|\bimport\s*\(|\bimport\.meta\b|</script|<!--", re.MULTILINE)


def bundle(folder: Path, entry: str) -> str:
    """The modules that `entry` needs, each after its imports."""
    parts: dict[str, str] = {}
    add_module(folder, entry, parts, ())
    return "".join(parts.values())


def add_module(folder: Path, name: str, parts: dict[str, str], importers: tuple[str, ...]) -> None:
    if name in parts:
        return
    if name in importers:
        raise ValueError(f"{name} imports itself by way of {importers[-1]}")
    source = (folder / name).read_text(encoding="utf-8")
    for match in IMPORT.finditer(source):
        add_module(folder, module_path(name, match[4]), parts, (*importers, name))

    def constant(match: re.Match[str]) -> str:
        names = match[2] or f"{{{match[3].replace(' as ', ': ')}}}"
        return f"const {names} = {variable(module_path(name, match[4]))};"

    exports = ", ".join(EXPORT.findall(source))
    body = IMPORT.sub(constant, EXPORT.sub("", source))
    if unsupported := OTHER.search(body):
        raise ValueError(f"{name}: this form cannot be put into one script: {unsupported[0]}")
    parts[name] = f"const {variable(name)} = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();\n"


def module_path(importer: str, relative: str) -> str:
    """The path of a module that `importer` names by `./` or `../`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), relative))


def variable(name: str) -> str:
    return f"module_{re.sub(r'[^a-z0-9]', '_', name.removesuffix('.js').lower())}"
