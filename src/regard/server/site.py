"""A static site of the explorer: files that any web server shows. Its models run in the browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save

from regard import __version__
from regard.errors import UsageError
from regard.interpret.activations import CAVEATS
from regard.interpret.page import SETTINGS, Page, bundle, make_model_page
from regard.resources import WEB
from regard.server.browser_model import INTERVENTIONS, LARGEST_IN_FILE, BrowserModel, browser_model
from regard.server.explorer import about
from regard.server.lessons import Given, Lesson, LessonQuery, about_lesson, lesson_json
from regard.server.requests import LIMITS
from regard.storage.files import friendly_os_errors, new_folder, remove, remove_whole

DATA = "data"  # what the page asks for: models, recorded lessons
MARK = f"{DATA}/models.json"  # is in every site
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
WAITING = (  # what stands on the page until its script runs
    "This page is starting. If it stays like this, the browser is older than 2023, or the file was opened "
    "from a disk: it needs a web server, for example “python -m http.server” in its folder."
)
RECORDED = (
    "These numbers are recorded, with the model {model} and its example. "
    "“regard explore” on your own machine computes a lesson for your sentence."
)


@dataclass(frozen=True)
class SiteSize:
    """Bytes of a site: in all, and what a browser fetches before the first picture."""

    files: int
    whole: int
    first: int


def write_site(
    folder: Path,
    tasks: Mapping[str, Any],
    lessons: Mapping[str, Lesson],
    say: Callable[[str], None],
    skip: bool = False,
) -> SiteSize:
    """Write the site; `skip` leaves out models that cannot run in a browser, else one is an error."""
    folder = folder.resolve()
    check_folder(folder)
    models = dict(runnable(tasks, say, skip))
    if not models:
        raise UsageError("none of the models can run in a browser", code="E_SITE_MODEL")
    chosen = {name: tasks[name] for name in models}
    new = folder.with_name(f".{folder.name}.new")  # beside an earlier site, which is shown until then
    remove(new)
    with new_folder(new) as partial:
        (partial / DATA / "models").mkdir(parents=True)
        (partial / DATA / "lessons").mkdir()
        write_page(partial)
        for name, model in models.items():
            file = partial / DATA / "models" / file_name(name)
            dump(Path(f"{file}.json"), model.about)
            Path(f"{file}.safetensors").write_bytes(save(dict(model.weights)))
        dump(partial / DATA / "models.json", models_json(chosen))
        dump(
            partial / DATA / "lessons.json",
            {"lessons": [untold(about_lesson(each)) for each in lessons.values()]},
        )
        for lesson in lessons.values():
            say(f"recording the lesson {lesson.name}")
            dump(partial / DATA / "lessons" / f"{lesson.name}.json", recorded(lesson, chosen))
    with friendly_os_errors(folder):
        if folder.is_dir():
            remove_whole(folder)
        new.rename(folder)
    return size_of(folder, next(iter(models)))


def model_page(name: str, task: Any, text: str, context: str | None) -> Page:
    """The page with the model inside, as one file; an error if a browser cannot run it."""
    model = browser_model(name, task, about_in_browser(name, task)["interventions"], LARGEST_IN_FILE)
    kept = {"kept": {"text": text, "context": context or ""}}
    return make_model_page(models_json({name: task}) | kept, model.about, model.weights)


def check_folder(folder: Path) -> None:
    """A new or empty folder, or an earlier site, which is replaced."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; give a folder for the site", code="E_OUTPUT_EXISTS")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise UsageError(
            f"{folder} has files that are no earlier site; choose another folder", code="E_OUTPUT_EXISTS"
        )


def runnable(
    tasks: Mapping[str, Any], say: Callable[[str], None], skip: bool
) -> Iterator[tuple[str, BrowserModel]]:
    for name, task in tasks.items():
        try:
            yield name, browser_model(name, task, about_in_browser(name, task)["interventions"])
        except UsageError as error:
            if not skip:
                raise
            say(f"left out: {error}")


def about_in_browser(name: str, task: Any) -> dict[str, Any]:
    """As /api/v1/models, with the interventions that the page's own engine runs."""
    described = about(name, task)
    offered = described["interventions"]
    types = [kind for kind in offered["types"] if kind in INTERVENTIONS]
    return described | {"interventions": offered | {"types": types}}


def file_name(model: str) -> str:
    """Without slashes and what else means something in an address."""
    return re.sub(r"[^A-Za-z0-9_.-]", lambda match: f"~{ord(match[0]):x}", model)


def dump(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def write_page(folder: Path) -> None:
    """Document, style, one script, icon; all addresses are relative, so that a site may lie in any folder."""
    page = (WEB / "index.html").read_text(encoding="utf-8")
    page = re.sub(r'"/web/(?:js/main\.js)?', '"', page).replace('src=""', 'src="page.js"')
    meta = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    page = page.replace('<meta charset="utf-8">', meta, 1)
    page = page.replace('<p id="trouble" role="alert">', f'<p id="trouble" role="alert">{WAITING}', 1)
    (folder / "index.html").write_text(page, encoding="utf-8")
    (folder / "page.js").write_text(bundle(WEB / "js", "engine/page.js"), encoding="utf-8")
    for name in ("style.css", "icon.svg"):
        shutil.copyfile(WEB / name, folder / name)


def models_json(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """As /api/v1/models, and the texts that a server adds to readings."""
    limits = {"longest_text": LIMITS.text_characters, "settings": SETTINGS, "caveats": dict(CAVEATS)}
    models = [about_in_browser(name, task) | {"file": file_name(name)} for name, task in tasks.items()]
    return {"models": models, "version": __version__, **limits}


def recorded(lesson: Lesson, tasks: Mapping[str, Any]) -> dict[str, Any]:
    """A lesson with its example text, on the first model that has what it shows."""
    defaults = LessonQuery()
    for name in tasks:
        given = Given(tasks, name, "", defaults.n, defaults.d)
        content = lesson_json(lesson, given)
        if not content["missing"]:
            break
    content = untold(content)
    if content["steps"] and "text" in lesson.uses:
        first, *rest = content["steps"]
        figures = [{**each, "place": each["place"] + 1} for each in first["before"]]
        text = [RECORDED.format(model=content["model"]), *first["text"]]
        first = {**first, "text": text, "before": figures}
        content |= {"steps": [first, *rest]}
    return content


def untold(lesson: dict[str, Any]) -> dict[str, Any]:
    """A recorded lesson uses nothing of the learner: neither text nor sizes."""
    return {**lesson, "uses": []}


def size_of(folder: Path, model: str) -> SiteSize:
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    start = ["index.html", "page.js", "style.css", "icon.svg", MARK]
    start += [f"{DATA}/models/{file_name(model)}{ending}" for ending in (".json", ".safetensors")]
    return SiteSize(len(sizes), sum(sizes.values()), sum(sizes[name] for name in start))
