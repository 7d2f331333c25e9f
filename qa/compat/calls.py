"""Calls that must give the same with every version: `calls.py V1_FOLDERS RESULTS`, in an empty folder.

It runs with the old code and with the new one, so it uses public names alone, as users of version 1 did.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

V1, RESULTS = Path(sys.argv[1]), Path(sys.argv[2])
HERE = Path.cwd()
TEXTS = ["I see the small house.", "Where is my mother?", "He did not come today. She did."]
GERMAN = ["Ich sehe das kleine Haus.", "Wo ist meine Mutter?"]
WORDS = ["red cat sees the dog", "small house", "", "blue tree here . there"]
TRANSLATORS = ["transformer", "transformer-pre", "rnn", "bahdanau", "t5"]
# Version 1 did not check translations; its folders here are hardly trained and would fail every check.
HAS_CHECKS = find_spec("regard.tasks.guards") is not None
NO_CHECK = ["--no-check"] if HAS_CHECKS else []
CHECK = {"check": False} if HAS_CHECKS else {}
results: dict[str, Any] = {}


def plain(value: Any) -> Any:
    """As JSON; numbers to 5 digits, since a sum may be made in another order."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return value if isinstance(value, str | int | type(None)) else repr(value)


def cleaned(text: str) -> str:
    """Without this machine's paths and without times."""
    text = text.replace(str(HERE), "HERE").replace(str(V1), "V1")
    text = re.sub(r'("\w*seconds\w*": )[\d.]+', r"\1N", text)
    text = re.sub(r"\d+(\.\d+)? ?(s|ms|seconds|minutes|MiB|GFLOP/s)\b", "N", text)
    return re.sub(r"\d\.\d{3,}(e-\d+)?", lambda found: f"{float(found[0]):.4g}", text)


def command(name: str, *arguments: object, stdin: str = "", files: tuple[str, ...] = ()) -> None:
    """A command in this process: exit code, standard output, and the files it wrote."""
    from regard.cli import main

    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    code: object = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main([str(each) for each in arguments])
    except SystemExit as error:
        code = error.code
    text = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    record: dict[str, Any] = {"code": code, "out": cleaned(text)}
    for file in files:
        path = HERE / file
        record[file] = cleaned(path.read_text(encoding="utf-8")) if path.is_file() else None
    results[f"cli {name}"] = record


def call(name: str, work: Callable[[], Any]) -> None:
    """A call of the Python interface: its result, or the class of its error."""
    try:
        results[f"python {name}"] = plain(work())
    except Exception as error:
        results[f"python {name}"] = f"error: {type(error).__name__}"


def folders() -> None:
    """The kept folders, copied, with the paths of their corpora."""
    for folder in V1.iterdir():
        if (folder / "run.toml").is_file():
            shutil.copytree(folder, HERE / folder.name)
            run = HERE / folder.name / "run.toml"
            run.write_text(run.read_text().replace("/v1/corpora", str(V1 / "corpora")))


def translate_commands() -> None:
    pairs = [line.split("\t") for line in (V1 / "corpora" / "pairs.tsv").read_text().splitlines()[:8]]
    for side, file in enumerate(("one.txt", "two.txt")):
        Path(file).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    for name in TRANSLATORS:
        for number, text in enumerate(WORDS[:2]):
            command(f"translate {name} {number}", "translate", "-m", name, text, *NO_CHECK)
        command(f"translate {name} json", "translate", "-m", name, WORDS[0], "--json", "--nbest", 2)
        checkpoint = f"{name}/checkpoints/step-6"
        command(f"translate {name} checkpoint", "translate", "-m", checkpoint, WORDS[0], *NO_CHECK)
        command(f"translate {name} stdin", "translate", "-m", name, "-", *NO_CHECK, stdin="\n".join(WORDS))
        command(f"score {name}", "score", "-m", name, "one.txt", "two.txt")
        command(f"explain {name}", "explain", "-m", name, WORDS[1])
        command(f"evaluate {name}", "evaluate", "-m", name, "--data", V1 / "corpora" / "pairs.tsv")
    Path("lines.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    box = ("-m", "tatoeba-en-de")
    command("translate default", "translate", TEXTS[0])
    command("translate box", "translate", *box, *TEXTS)
    command("translate file", "translate", *box, "lines.txt", "-o", "out.txt", files=("out.txt",))
    command("translate float32", "translate", *box, *TEXTS, "--precision", "float32")
    for beam in (1, 2, 5):
        command(f"translate beam {beam}", "translate", *box, *TEXTS, "--beam", beam, "--scores")
    command("translate nbest", "translate", *box, TEXTS[0], "--nbest", 3, "--beam", 4)
    command("translate require", "translate", *box, TEXTS[0], "--require", "Gebäude")
    command("translate forbid", "translate", *box, TEXTS[0], "--forbid", "Haus")
    command("translate alternatives", "translate", *box, TEXTS[0], "--alternatives", "Ich", "--nbest", 3)
    command(
        "translate set", "translate", *box, *TEXTS, "--set", "length_penalty=0.6", "--set", "min_length=9"
    )
    command("translate ngram", "translate", *box, *TEXTS, "--set", "no_repeat_ngram=2")
    command("translate sample", "translate", *box, *TEXTS, "--set", "sample=true", "--set", "seed=3")
    command("translate alignment", "translate", *box, TEXTS[0], "--alignment")
    command("translate long", "translate", *box, " ".join(TEXTS * 3), "--split", "always")
    command("translate german", "translate", "-m", "tatoeba-de-en", *GERMAN)
    both = ("-m", "transformer", "-m", "transformer/checkpoints/step-6")
    command("translate ensemble", "translate", *both, "x", *NO_CHECK)
    for name in ("phrasebook-rnn", "phrasebook-bahdanau", "phrasebook-transformer"):
        command(f"translate {name}", "translate", "-m", name, TEXTS[0])
    command("translate missing model", "translate", "-m", "nothing", "x")
    command("translate unknown option", "translate", "--nonsense", "x")
    command("translate bad set", "translate", *box, "x", "--set", "beam=zero")
    command("translate wrong task", "translate", "-m", "gpt", "x")


def other_commands() -> None:
    for name in ("gpt", "llama"):
        generate = ("generate", "-m", name, "red cat")
        command(f"generate {name} greedy", *generate, "--beam", 1, "--max-length", 8)
        command(f"generate {name} beam", *generate, "--beam", 3, "--max-length", 8)
        command(f"generate {name} sample", *generate, "--seed", 7, "--count", 2, "--top-p", 0.9)
        command(f"generate {name} json", *generate, "--seed", 1, "--json", "--max-length", 5)
        command(
            f"generate {name} checkpoint", "generate", "-m", f"{name}/checkpoints/step-6", "a", "--beam", 1
        )
        command(f"score {name}", "score", "-m", name, V1 / "corpora" / "text.txt", "--document", "--total")
        command(f"evaluate {name}", "evaluate", "-m", name, "--data", V1 / "corpora" / "text.txt")
        command(f"explain {name}", "explain", "-m", name, "red cat")
    texts = ["red cat sees dog", "blue tree here"]
    command("fill", "fill", "-m", "bert-fill", "red <mask> sees", "the <mask> <mask>")
    command("fill json", "fill", "-m", "bert-fill", "red <mask> sees", "--json", "--nbest", 2)
    command("fill scores", "fill", "-m", "bert-fill", "red <mask> sees", "--scores")
    command("classify", "classify", "-m", "bert-classify", *texts)
    command("classify scores", "classify", "-m", "bert-classify", *texts, "--scores")
    command("classify json", "classify", "-m", "bert-classify", *texts, "--json")
    command("classify all", "classify", "-m", "bert-classify", *texts, "--all")
    command("tag", "tag", "-m", "bert-tag", "red cat sees Oslo", "Rome and Bern")
    command("tag json", "tag", "-m", "bert-tag", "red cat sees Oslo", "--json")
    command("tag rows", "tag", "-m", "bert-tag", "red cat sees Oslo", "--rows")
    Path("context.txt").write_text("red cat in house tree\n")
    command("answer", "answer", "-m", "bert-answer", "--context", "context.txt", "where in ?")
    command("answer json", "answer", "-m", "bert-answer", "--context", "context.txt", "where in ?", "--json")
    command(
        "answer nbest", "answer", "-m", "bert-answer", "--context", "context.txt", "where ?", "--nbest", 3
    )
    command("embed", "embed", "-m", "bert-fill", *texts)
    command("embed json", "embed", "-m", "bert-classify", *texts, "--json")
    command("embed similarity", "embed", "-m", "bert-fill", "--similarity", *texts)
    for task, file in (("fill", "text.txt"), ("classify", "labels.tsv"), ("tag", "tags.conll")):
        command(
            f"evaluate {task}", "evaluate", "-m", f"bert-{task}", "--data", V1 / "corpora" / file, "--json"
        )
    command("evaluate answer", "evaluate", "-m", "bert-answer", "--data", V1 / "corpora" / "questions.jsonl")
    pairs = ("--data", V1 / "corpora" / "pairs.tsv")
    command("compare", "compare", "-m", "rnn", "-m", "bahdanau", *pairs, "-o", "compared.md")
    out = results["cli compare"].pop("out")  # its columns are as wide as the speeds
    results["cli compare"]["rows"] = [line.split()[:2] for line in out.splitlines() if "second" not in line]


def project_commands() -> None:
    for task in ("translate", "generate", "fill", "classify", "tag", "answer"):
        command(f"config init {task}", "config", "init", f"{task}.toml", "--task", task)
        command(f"config check {task}", "config", "check", f"{task}.toml")
    for name in ("transformer", "rnn", "gpt", "llama", "t5", "bert-tag"):
        command(f"config check {name}", "config", "check", f"{name}/run.toml")
    command("config unknown field", "config", "check", "rnn/run.toml", "--set", "model.wdith=3")
    command("config bad value", "config", "check", "rnn/run.toml", "--set", "train.steps=none")
    command("config old names", "config", "check", "llama/run.toml", "--set", "model.groups=2")
    command("tokenizer encode", "tokenizer", "encode", "-m", "tatoeba-en-de", *TEXTS)
    command("tokenizer ids", "tokenizer", "encode", "-m", "gpt", "--ids", "red cat")
    command("tokenizer decode", "tokenizer", "decode", "-m", "tatoeba-en-de", "400", "500")
    for kind in ("bpe", "word", "character"):
        out = f"{kind}.json"
        train = ("tokenizer", "train", V1 / "corpora" / "text.txt", "--out", out, "--vocabulary", 300)
        command(f"tokenizer train {kind}", *train, "--kind", kind)
        command(f"tokenizer use {kind}", "tokenizer", "encode", "-m", out, "red cat here")
    corpora = V1 / "corpora"
    command("data check pairs", "data", "check", corpora / "pairs.tsv")
    command("data check text", "data", "check", corpora / "text.txt", "--task", "generate")
    command("data check labels", "data", "check", corpora / "labels.tsv", "--task", "classify")
    command("data check tags", "data", "check", corpora / "tags.conll", "--task", "tag")
    command("data check questions", "data", "check", corpora / "questions.jsonl", "--task", "answer")
    command("data check missing", "data", "check", "nothing.tsv")
    command("data list", "data", "list", "--json")
    command("models list", "models", "list", "--json")
    command("models show", "models", "show", "tatoeba-en-de", "--json")
    command("average", "average", "transformer", "--last", 1, "--out", "averaged")
    command("average use", "translate", "-m", "averaged", WORDS[0], *NO_CHECK)
    command("calibrate", "calibrate", "-m", "transformer", "--sample", "lines.txt")
    command("calibrated", "translate", "-m", "transformer", WORDS[0], "--json")
    command("report", "report", "gpt")
    command("help", "--version")


def training() -> None:
    """Runs of version 1 go on, and a short run of our own is begun."""
    from safetensors.torch import load_file

    for name in (*TRANSLATORS, "gpt", "llama", "bert-fill", "bert-classify", "bert-tag", "bert-answer"):
        shutil.copytree(HERE / name, HERE / f"{name}-on")
        if name == "transformer":
            (HERE / f"{name}-on" / "calibration.json").unlink(missing_ok=True)
        run = ("train", HERE / f"{name}-on" / "run.toml", "--out", f"{name}-on", "--resume", "--plain")
        command(f"train resume {name}", *run, "--set", "train.steps=10")
        file = HERE / f"{name}-on" / "checkpoints" / "step-10" / "model.safetensors"
        tensors = load_file(file) if file.is_file() else {}
        # equal bits: a hash of the numbers, whatever their names
        sums = sorted(tensor.double().sum().item().hex() for tensor in tensors.values())
        results[f"bits train resume {name}"] = sums
    Path("run.toml").write_text(
        '[task]\nsource = "en"\ntarget = "de"\n[data]\ntrain = "phrasebook:400"\n[text]\nvocabulary = 400\n'
        '[model]\npreset = "transformer-tiny"\n[train]\nsteps = 4\ncheckpoint_every = 2\n'
        "tokens_per_batch = 256\nvalidate_sentences = 4\nthreads = 1\n"
    )
    command("train phrasebook", "train", "run.toml", "--out", "phrasebook", "--plain")
    file = HERE / "phrasebook" / "model.safetensors"
    results["bits train phrasebook"] = sorted(t.double().sum().item().hex() for t in load_file(file).values())
    keys = [sorted(json.loads(line)) for line in Path("phrasebook/metrics.jsonl").read_text().splitlines()]
    results["metrics keys"] = keys
    command("train again", "train", "run.toml", "--out", "phrasebook", "--plain")
    command("train missing", "train", "nothing.toml", "--out", "nowhere")


def python() -> None:
    import regard
    from regard import RegardError, UsageError

    call("errors", lambda: [RegardError.__name__, issubclass(UsageError, RegardError)])
    model = regard.load("tatoeba-en-de")
    call("translate", lambda: model.translate(TEXTS[0]))
    call("translate list", lambda: model.translate(TEXTS))
    call("translate beam", lambda: model.translate(TEXTS[0], beam=2))
    call("translate options", lambda: model.translate(TEXTS[0], beam=2, length_penalty=0.2))
    call("translate lines", lambda: [each.text for each in model.translate_lines(TEXTS)])
    call("translate unknown", lambda: model.translate(TEXTS[0], nonsense=1))
    call("translate float32", lambda: regard.load("tatoeba-en-de", precision="float32").translate(TEXTS))
    call("score", lambda: list(model.score(TEXTS[:1], GERMAN[:1])))
    call("align", lambda: regard.load("transformer").trace("red cat").alignment())
    call("trace names", lambda: sorted(regard.load("transformer").trace("red cat").names()))
    call("trace output", lambda: regard.load("transformer").trace("red cat").output)
    call(
        "trace tensor",
        lambda: regard.load("transformer").trace("red cat")["decoder.0.cross.weights"].tolist(),
    )
    call("trace rollout", lambda: regard.load("transformer").trace("red cat").rollout().tolist())
    for name in ("gpt", "llama"):
        own = regard.load(name)
        call(f"{name} generate", lambda own=own: own.generate("red", beam=1, sample=False, max_length=6))
        call(f"{name} sample", lambda own=own: own.generate("red", seed=2, max_length=6))
        call(f"{name} beam", lambda own=own: own.generate("red", beam=2, sample=False, max_length=6))
        call(f"{name} score", lambda own=own: own.score(["red cat"]))
        call(f"{name} trace", lambda own=own: sorted(own.trace("red").names()))
    call("fill", lambda: regard.load("bert-fill").fill("red <mask> sees"))
    call("classify", lambda: regard.load("bert-classify").classify("red cat"))
    call("classify list", lambda: regard.load("bert-classify").classify(["red cat", "dog"]))
    call("tag", lambda: regard.load("bert-tag").tag("red cat sees Oslo"))
    call("answer", lambda: regard.load("bert-answer").answer("where in ?", "red cat in house"))
    call("missing", lambda: regard.load("nothing"))
    for name in TRANSLATORS:
        own = regard.load(name)
        call(f"{name}", lambda own=own: own.translate(WORDS[:2], beam=3, **CHECK))
        call(f"{name} trace", lambda own=own: sorted(own.trace("red cat").names()))
    call("imports", imports)


def imports() -> list[str]:
    """Names that the documentation of version 1 imports."""
    from regard.decode import Wish
    from regard.model import EncoderDecoder, attend, build, parameters, visible, weights
    from regard.model.attention import MultiHeadAttention, self_attention_rows
    from regard.model.families import FAMILIES, Parts, bert, encoder_decoder
    from regard.model.layers import FeedForward, PreNorm
    from regard.model.positions import Sinusoidal, sinusoid
    from regard.model.transformer import Embedding
    from regard.store import write_text
    from regard.trace import compare
    from regard.train import text_scores, train
    from regard.train.loss import count, cross_entropy

    from regard.data import Sample, collate

    names = (Sample, collate, Wish, EncoderDecoder, attend, build, parameters, visible, weights, compare)
    more = (MultiHeadAttention, self_attention_rows, FAMILIES, Parts, bert, encoder_decoder, FeedForward)
    rest = (PreNorm, Sinusoidal, sinusoid, Embedding, write_text, text_scores, train, count, cross_entropy)
    return [str(all(each is not None for each in (*names, *more, *rest)))]


def http() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = [
        "tatoeba-en-de",
        "tatoeba-de-en",
        "gpt",
        "bert-fill",
        "bert-classify",
        "bert-tag",
        "bert-answer",
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "regard", "serve", *served, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"

    def ask(name: str, path: str, body: Any = None) -> None:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, content, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            value = json.loads(text)
        except ValueError:
            value = text[:100]
        if status >= 400:  # words may change, keys may not
            value = sorted(value) if isinstance(value, dict) else ""
        elif isinstance(value, dict):
            for key in ("id", "created", "seconds"):
                value.pop(key, None)
        results[f"http {name}"] = {"status": status, "value": plain(value)}

    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/health/live", timeout=1)
                break
            except OSError:
                time.sleep(0.1)
        for path in ("/languages", "/health", "/health/ready", "/v1/models", "/api/v1/limits", "/nothing"):
            ask(f"GET {path}", path)
        ask("frontend", "/frontend/settings")
        ask("translate", "/translate", {"q": TEXTS[0], "source": "en", "target": "de"})
        ask("translate list", "/translate", {"q": TEXTS, "source": "en", "target": "de"})
        ask("translate auto", "/translate", {"q": TEXTS[1], "source": "auto", "target": "de"})
        ask(
            "translate html",
            "/translate",
            {"q": "<p>I see it.</p>", "source": "en", "target": "de", "format": "html"},
        )
        alternatives = {"q": TEXTS[0], "source": "en", "target": "de", "alternatives": 2}
        ask("translate alternatives", "/translate", alternatives)
        ask("translate pair", "/translate", {"q": "x", "source": "en", "target": "fr"})
        ask("translate nothing", "/translate", {})
        ask("detect", "/detect", {"q": "Wo ist meine Mutter?"})
        completion = {"model": "gpt", "prompt": "red cat", "max_tokens": 6, "temperature": 0}
        ask("completions", "/v1/completions", completion)
        ask("completions seed", "/v1/completions", {**completion, "temperature": 0.8, "seed": 3, "n": 2})
        ask("completions logprobs", "/v1/completions", {**completion, "logprobs": 2})
        ask("completions echo", "/v1/completions", {**completion, "echo": True})
        ask("completions stop", "/v1/completions", {**completion, "stop": ["."]})
        ask("completions translate", "/v1/completions", {"model": "tatoeba-en-de", "prompt": TEXTS[0]})
        ask("completions model", "/v1/completions", {"model": "none", "prompt": "x"})
        ask("embeddings", "/v1/embeddings", {"model": "bert-fill", "input": ["red cat", "dog"]})
        ask("score", "/api/v1/score", {"model": "tatoeba-en-de", "source": TEXTS[0], "target": GERMAN[0]})
        ask("score gpt", "/api/v1/score", {"model": "gpt", "target": "red cat"})
        ask("fill", "/api/v1/fill", {"text": "red <mask> sees", "top_k": 2})
        ask("classify", "/api/v1/classify", {"text": ["red cat", "dog"], "top_k": 2})
        ask("tag", "/api/v1/tag", {"text": "red cat sees Oslo"})
        ask("answer", "/api/v1/answer", {"question": "where in ?", "context": "red cat in house", "top_k": 2})
        ask("tokenize", "/api/v1/tokenize", {"text": TEXTS[0], "model": "tatoeba-en-de"})
        ask("trace", "/api/v1/trace", {"source": "red cat", "model": "gpt"})
        ask("trace unknown", "/api/v1/trace", {"nonsense": 1})
        ask("models", "/api/v1/models")
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    folders()
    translate_commands()
    other_commands()
    project_commands()
    python()
    training()
    http()
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
