"""`regard models find | pull | list | show | rm | verify | push`: models of the hub; `regard import`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.terminal import AsJson, json_line, messages, print_line, print_table, say
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.storage.models import ModelInfo

app = typer.Typer(help="Find, download, list, verify, delete and upload models.", no_args_is_help=True)
FindTask = Literal[
    "translate", "classify", "tag", "answer", "fill", "embed", "generate", "transcribe", "caption"
]
Name = Annotated[str, typer.Argument(help="owner/name, or owner/name@revision.", metavar="NAME[@REVISION]")]


def complete_language(context: typer.Context, incomplete: str) -> list[str]:
    """For the shell: the languages that the table lists for the task."""
    from regard.resources import read_data

    rows = [row for row in read_data("hub_models")["model"] if row["task"] == context.params.get("task")]
    lists = [text for row in rows for text in (row.get("languages", ""), *row.get("pairs", {}).values())]
    codes = {code for text in lists for code in text.split()}.union(*(row.get("pairs", {}) for row in rows))
    return sorted(code for code in codes if code.startswith(incomplete))


@app.command("find")
def find(
    task: Annotated[FindTask, typer.Argument(help="What the model does.")],
    languages: Annotated[
        list[str] | None,
        typer.Argument(
            help="A language, en or English; for translate source and target.",
            metavar="[LANGUAGE]...",
            autocompletion=complete_language,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find a model for a task: built-in models, then models of the hub that Regard opens.

    The models of the hub are a table of the package with a date: nothing connects. Read the card of a model
    before you use it.

    [bold]Examples[/]

      regard models find translate en fr
      regard models find tag German
      regard models find transcribe --json
    """
    from regard.storage.find import find_models, table_date

    rows = find_models(task, languages or [])
    if as_json:
        for each in rows:
            print_line(json_line({**asdict(each), "command": each.command}))
        return
    cells = [(each.name, f"{each.megabytes:,g}", each.licence, each.about, each.command) for each in rows]
    print_table(cells, ("model", "MB", "licence", "about", "command"), right=[1], fold=True)
    say(f"models of the hub: as of {table_date()}")


@app.command("pull")
def pull(
    name: Name,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not connect, as with HF_HUB_OFFLINE=1.")
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="Get the current commit of the branch.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep a model that Regard cannot open.")] = False,
    pickle: Annotated[
        bool, typer.Option("--pickle", help="Convert weights that are a pickle, if there are no others.")
    ] = False,
) -> None:
    """Download a model; from then on every command takes its name.

    Downloads only files that Regard reads, and records the commit and a checksum of every file. An
    interrupted download is resumed. A model on this machine needs no connection.

    [bold]Examples[/]

      regard models pull Helsinki-NLP/opus-mt-en-fr --pickle
      regard translate -m Helsinki-NLP/opus-mt-en-fr "A small house."
      regard models pull sentence-transformers/all-MiniLM-L6-v2@main --update
    """
    from regard.storage.pull import pull as pull_model

    with messages().status(f"pulling {name}"):
        model, new = pull_model(name, say, offline, update, keep, pickle)
    say(f"{model.name} at {model.commit[:12]}: {'downloaded to' if new else 'up to date in'} {model.path}")


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List pulled models and built-in models.

    [bold]Examples[/]

      regard models list
      regard models list --json
    """
    from regard.storage.models import all_models

    models = all_models()
    if as_json:
        for each in models:
            print_line(json_line(as_object(each)))
        return
    if not models:
        say('no models; "regard models pull owner/name" downloads one from the hub')
        return
    rows = []
    for each in models:
        task, size = "cannot be opened" if each.error else each.task, f"{each.size / 2**20:,.1f}"
        licence, path = each.licence or "not stated", str(each.path)
        rows.append((each.name, task, each.family, size, each.revision[:12], licence, path))
    print_table(rows, ("name", "task", "family", "MiB", "revision", "licence", "path"), right=[3], fold=True)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A pulled model, a built-in model, a folder, or a GGUF file.")],
    as_json: AsJson = False,
) -> None:
    """Show task, size, context, memory, licence and files of a model, a GGUF file or an adapter.

    [bold]Examples[/]

      regard models show Helsinki-NLP/opus-mt-en-de
      regard models show runs/demo --json
    """
    from regard.storage.described import describe_path
    from regard.storage.models import describe_model, model_info

    if (facts := describe_path(name)) is not None:
        if as_json:
            print_line(json_line(facts))
        else:
            print_table(facts.items())
        return
    model = model_info(name)
    rows = describe_model(model)
    if as_json:
        old = {"asked for as": rows["branches"]} if "branches" in rows else {}  # key of version 0.1
        print_line(json_line({**rows, **old, **as_object(model)}))
        return
    print_table(rows.items())


@app.command("rm")
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a pulled model; without a revision, all of its commits.

    [bold]Example[/]

      regard models rm Helsinki-NLP/opus-mt-en-de --yes
    """
    from regard.storage import models as pulled

    hub_name = pulled.parse_hub_name(name)
    root = pulled.require_pulled(name).path.parent
    models = [each for each in pulled.commits_in(root) if each.matches(hub_name.revision)]
    size = sum(pulled.folder_size(each.path) for each in models) / 2**20
    commits = ", ".join(each.commit[:12] for each in models)
    if not yes:
        messages().print(f"delete {hub_name.name} ({commits}; {size:,.1f} MiB)? [y/N] ", end="")
        if (sys.stdin.readline() if sys.stdin else "").strip().lower() not in ("y", "yes"):
            say("not deleted")
            return
    for each in models:
        pulled.remove_pulled(each)
    say(f"deleted {hub_name.name} ({commits})")


@app.command("verify")
def verify(
    name: Annotated[
        str | None, typer.Argument(help="A pulled model; default: all.", show_default=False)
    ] = None,
) -> None:
    """Verify the checksums of pulled models.

    [bold]Examples[/]

      regard models verify
      regard models verify Helsinki-NLP/opus-mt-en-de
    """
    from regard.storage.models import pulled_models, require_pulled

    models = [require_pulled(name)] if name else pulled_models()
    wrong = 0
    for each in models:
        damage = list(each.damage())
        wrong += bool(damage)
        for file, problem in damage:
            print_line(f"{each.path / file}: {problem}")
        if not damage:
            say(f"{each.name} at {each.commit[:12]}: {len(each.files):,} files verified")
    if wrong:
        raise RegardError(
            f'{wrong} of {len(models)} models are damaged; "regard models pull NAME@REVISION" downloads the '
            "damaged files again",
            code="E_MODEL_CHECKSUM",
        )
    if not models:
        say("no pulled models")


@app.command("push")
def push(
    folder: Annotated[Path, typer.Argument(help="A model folder, or a pulled model's name.")],
    name: Annotated[str, typer.Argument(help="The repository: owner/name.", metavar="OWNER/NAME")],
    public: Annotated[
        bool, typer.Option("--public", help="Everybody may read it; needs a card with a licence.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the model of a repository that has other content.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a model folder to the hub, as a private repository.

    Uploads the files of the model, its card and licence; no checkpoints, metrics, outputs or reports of its
    run. Needs "hf auth login" or HF_TOKEN with a token that may write. run.toml names the files of your data.

    [bold]Examples[/]

      regard models push runs/demo anna/demo-en-de
      regard models push runs/demo anna/demo-en-de --public
    """
    from regard.storage.push import push as push_model

    with messages().status(f"pushing {folder}"):
        model = push_model(folder, name, say, public, force)
    if as_json:
        print_line(json_line(asdict(model)))
        return
    state = "private" if model.private else "public"
    done = "uploaded to" if model.is_new else "up to date in"
    say(f"{model.name} at {model.commit[:12]} ({state}): {done} {model.address}")


def as_object(model: ModelInfo) -> dict[str, Any]:
    row = {
        "name": model.name,
        "task": model.task,
        "family": model.family,
        "bytes": model.size,
        "revision": model.revision or None,
        "licence": model.licence or None,
        "path": str(model.path),
    }
    # the second key is that of version 0.1
    return row | ({"error": model.error, "cannot be opened": model.error} if model.error else {})


Imported = Annotated[
    Path,
    typer.Argument(
        help="A .gguf or .argosmodel file, or a folder with weights in pytorch_model.bin or model.bin."
    ),
]


def import_(
    source: Imported, out: Annotated[Path, typer.Argument(help="Folder to write; it must not exist.")]
) -> None:
    """Convert a model of another program to a folder that Regard opens, as regard models import.

    [bold]Examples[/]

      regard import opus-mt-en-de models/en-de
      regard import SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2
    """
    import_model(source, out)


@app.command("import")
def import_model(
    source: Imported,
    out: Annotated[Path, typer.Option("--output", "-o", help="Folder to write; it must not exist.")],
) -> None:
    """Convert a model of another program to a folder that Regard opens.

    A GGUF file of llama.cpp (architectures llama, qwen2, qwen3, gemma) is dequantized: weights, vocabulary
    and chat template. A pickle (pytorch_model.bin) can run code while it is read: a separate process reads
    it, as plain tensors only and with limits of memory and time; a file with anything else is refused.
    Models of CTranslate2 (model.bin): Whisper, and translators with SentencePiece, also as packages of Argos
    Translate and LibreTranslate (.argosmodel). They become folders of transformers' form.

    [bold]Examples[/]

      regard models import SmolLM2-135M-Instruct.Q4_1.gguf -o models/smollm2
      regard models import opus-mt-en-de -o models/en-de
      regard models import translate-zh_en-1_9.argosmodel -o models/zh-en
      regard models import faster-whisper-base -o models/whisper-base
    """
    from regard.storage.importing import import_folder

    files = import_folder(source, out, say)
    say(f"wrote {out} ({', '.join(files)})")
