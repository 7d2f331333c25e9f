"""Score a model on a test set, with the metrics of its task: `regard.evaluate`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

from regard.config import Config, Corpora, Train, load_config, resolve
from regard.config.input import Modifier
from regard.config.load import read_toml
from regard.config.schema import Tokenization
from regard.data import Objective, read_examples
from regard.data.objectives import split_labels
from regard.data.readers.media import media_content
from regard.data.report import StrictReport
from regard.errors import UsageError, near_miss
from regard.generation.packing import choose_precision
from regard.inputs.frames import FrameReader
from regard.inputs.text.modifiers import parse_modifiers
from regard.metrics.bleu import bleu_tokenization, looks_tokenized, make_bleu, text_scores
from regard.metrics.words import error_rates
from regard.sample import Example
from regard.storage import Folder, write_text
from regard.storage.folder import run_of
from regard.tasks import Transcriber, Translator, decode_options, load
from regard.tasks.task_model import NamedFile
from regard.training.evaluation import drop_left_out, make_evaluation, make_objective, write_rows

Log = Callable[[str], None]
Data = str | Path | Sequence[str | Path] | Sequence[tuple[str, str]]  # corpus, two files, or pairs in memory
Score = Callable[[Data | None, Log], "EvaluationResult"]
PHRASEBOOK = "phrasebook"
MAX_NAMES = 5  # labels named in a message
FILES_AT_ONCE = 64


@dataclass(frozen=True)
class EvaluationResult:
    """The scores of a model on a test set; `result["bleu"]` is one of them."""

    task: str
    sentences: int  # texts, pairs or questions that were scored
    scores: Mapping[str, Any]  # rates between 0 and 1, BLEU and chrF between 0 and 100
    precision: str
    seconds: float
    outputs: Sequence[Any]  # translations; of other tasks each text with its reference and the output
    modified: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # scores by modifier, and clean

    def __getitem__(self, name: str) -> Any:
        return self.scores[name]

    def to_dict(self) -> dict[str, Any]:
        """What `regard evaluate --json` prints."""
        return {
            "task": self.task,
            "sentences": self.sentences,
            **self.scores,
            "inference_precision": self.precision,  # "precision" is a score of taggers
            "seconds": self.seconds,
            **({"modified": self.modified} if self.modified else {}),
        }


def evaluate(
    model: Any,
    data: Data | None = None,
    *,
    modify: str | Sequence[str] = (),
    tokenize: str | None = None,
    output: str | Path | None = None,
    device: str = "auto",
    threads: int = 0,
    precision: str = "auto",
    log: Log = lambda text: None,
    **options: object,
) -> EvaluationResult:
    """Score a model folder, or a model that `load` opened, on a test set.

    `data` is a corpus in a format that training reads, a source file and a target file, or pairs of text and
    reference; by default the test set of the model's run. `modify` names modifiers ("upper", "typos=0.2",
    "all"): the test set is scored once more with each of them. `tokenize` is sacreBLEU's (of translations; by
    default that of the run), `options` are fields of `[decode]`: beam=5. Outputs are written to `output`.
    """
    if tokenize is not None:
        check_tokenization(tokenize)
    is_opened = not isinstance(model, str | Path | Sequence)  # of an ensemble, several folders
    task = model if is_opened else load(model, device, threads, precision)
    folder: Folder = task.folder
    modifiers = choose_modifiers(folder, [modify] if isinstance(modify, str) else modify)
    used = getattr(task, "precision", None) or choose_precision(precision, folder.model, folder.calibration)
    if isinstance(task, Translator):
        words = choose_tokenization(folder.path, tokenize)

        def score(data: Data | None, log: Log) -> EvaluationResult:
            return score_translations(task, data, options, words, used, log)

    elif isinstance(task, Transcriber) and tokenize is None:

        def score(data: Data | None, log: Log) -> EvaluationResult:
            return score_transcriptions(task, data, options, used)

    elif options or tokenize is not None:
        raise UsageError(
            "decoding options and a tokenisation are for models that translate; "
            f"this is a {folder.task.name} model",
            code="E_EVALUATE_OPTION",
        )
    else:

        def score(data: Data | None, log: Log) -> EvaluationResult:
            return score_texts(folder, data, used, log)

    result = score(data, log)
    if modifiers:
        result = replace(result, modified=score_modified(folder, data, modifiers, result, score))
    if output is not None and isinstance(task, Translator):
        write_text(Path(output), "".join(text.replace("\n", " ") + "\n" for text in result.outputs))
    elif output is not None:
        write_rows(Path(output), result.outputs)
    return result


# --- modified texts


def choose_modifiers(folder: Folder, names: Sequence[str]) -> list[Modifier]:
    if not names:
        return []
    run = run_config(folder.path)
    if folder.task.input != "text" or (run is not None and run.data.is_mix):
        raise UsageError(
            "modifiers are for texts, not for pictures, sounds or a mix of tasks with prefixes",
            code="E_MODIFIER",
        )
    return parse_modifiers(names, folder.task.name)


def score_modified(
    folder: Folder, data: Data | None, modifiers: Sequence[Modifier], clean: EvaluationResult, score: Score
) -> dict[str, dict[str, Any]]:
    """The scores of the test set with each modifier; every set has the texts of the clean one."""
    from regard.training.evaluation.robustness import long_texts, modified_scores

    task = folder.task.name
    is_long: Callable[[Sequence[Example]], set[int]] = lambda texts: set()  # noqa: E731
    if task == "translate":
        examples = read_test_set(folder, data)
    else:
        config, objective = objective_of(folder)
        examples = read_test_set(folder, data, StrictReport(), config)
        examples = drop_left_out(examples, objective, config, "test", lambda text: None)
        is_long = partial(long_texts, objective, config)

    def score_examples(texts: Sequence[Example]) -> tuple[Mapping[str, Any], Sequence[str]]:
        result = score([(each.source, each.target) for each in texts], lambda text: None)
        return result.scores, result.outputs if task == "translate" else []

    return modified_scores(task, examples, modifiers, clean.scores, score_examples, is_long)


# --- test sets


def choose_corpora(folder: Path, data: str | Path | Sequence[str | Path] | None) -> Corpora:
    """The files that were given, else the test set of the run."""
    if data is None:
        run = run_config(folder)
        if run is None or run.data.test is None:
            raise UsageError(f"{folder} names no test set; give one", code="E_EVALUATE_DATA")
        return run.data.test
    names = [str(data)] if isinstance(data, str | Path) else [str(each) for each in data]
    if not 1 <= len(names) <= 2:
        raise UsageError(
            "a test set is one corpus, or a source file and a target file", code="E_EVALUATE_DATA"
        )
    return names[0] if len(names) == 1 else [*names]


def read_test_set(
    folder: Folder, data: Data | None, report: StrictReport | None = None, run: Config | None = None
) -> list[Example]:
    if is_pairs(data):
        return [Example(*pair) for pair in cast(Sequence[tuple[str, str]], data)]
    corpora = choose_corpora(folder.path, cast(Any, data))
    return read_examples(corpora, folder.task, "test", report, run.data if run else None)


def is_pairs(data: Data | None) -> bool:
    """Whether the test set is in memory."""
    return isinstance(data, Sequence) and any(not isinstance(each, str | Path) for each in data)


def run_config(folder: Path) -> Config | None:
    """The config of the run that a model folder or checkpoint belongs to; None where run.toml says only what
    inference needs, as in built-in models."""
    path = (run_of(folder) or folder) / "run.toml"
    return load_config(path) if path.is_file() and "data" in read_toml(path) else None


def check_tokenization(tokenize: str) -> None:
    names = get_args(Tokenization)
    if tokenize not in names:
        near = near_miss(tokenize, names)
        raise UsageError(
            f'tokenize = "{tokenize}" is not one of {", ".join(names)}{near}', code="E_BLEU_TOKENIZE"
        )


def choose_tokenization(folder: Path, tokenize: str | None) -> str:
    """sacreBLEU's tokenisation, by default that of the run; refused if it is not installed."""
    if tokenize is not None:
        check_tokenization(tokenize)
    run = run_config(folder)
    choice = tokenize or (run.train if run else Train()).bleu_tokenize
    name = bleu_tokenization(choice, run.task.target if run else "")
    make_bleu(name)
    return name


# --- translations


def score_translations(
    translator: Translator,
    data: Data | None,
    options: Mapping[str, object],
    tokenize: str,
    precision: str,
    log: Log,
) -> EvaluationResult:
    """BLEU, chrF and exact lines."""
    examples = read_test_set(translator.folder, data)
    decode = decode_options(translator.folder.decode, options)
    start = time.perf_counter()
    results = translator.translate_lines([example.source for example in examples], decode)
    seconds = time.perf_counter() - start
    texts, references = [each.text for each in results], [example.target for example in examples]
    exact = [text == reference for text, reference in zip(texts, references)]
    measured = text_scores(texts, references, tokenize)
    if tokenize not in ("none", "char") and looks_tokenized(references):
        log("the references look tokenised already; scores published for such text are without tokenisation")
    scores: dict[str, Any] = {**asdict(measured), "exact": sum(exact) / len(exact)}
    corpora = None if is_pairs(data) else choose_corpora(translator.folder.path, cast(Any, data))
    if isinstance(corpora, str) and corpora.split(":")[0] == PHRASEBOOK:
        scores["phenomena"] = exact_by_phenomenon(exact)
    return EvaluationResult("translate", len(texts), scores, precision, seconds, texts)


def exact_by_phenomenon(exact: list[bool]) -> dict[str, dict[str, float]]:
    """The share of exact lines among the phrasebook sentences with each grammatical phenomenon."""
    from regard.data.phrasebook import PHENOMENA, phenomena

    sentences = list(phenomena(len(exact)))
    table = {}
    for phenomenon in PHENOMENA:
        lines = [right for right, sentence in zip(exact, sentences) if phenomenon in sentence]
        table[phenomenon] = {"sentences": len(lines), "exact": sum(lines) / max(1, len(lines))}
    return table


# --- speech


def score_transcriptions(
    transcriber: Transcriber, data: Data | None, options: Mapping[str, object], precision: str
) -> EvaluationResult:
    """Word and character error rate, and exact texts; files are read as `transcribe` reads them."""
    folder = transcriber.folder
    examples = read_test_set(folder, data, StrictReport(), run_config(folder.path))
    decode = decode_options(folder.decode, options).model_dump()
    start = time.perf_counter()
    texts = []
    for first in range(0, len(examples), FILES_AT_ONCE):
        places = [example.source for example in examples[first : first + FILES_AT_ONCE]]
        files = [NamedFile(place, media_content(place)) for place in places]
        texts += [result.text for result in transcriber.transcribe(files, decode=decode)]
    seconds = time.perf_counter() - start
    references = [example.target for example in examples]
    exact = sum(map(str.__eq__, texts, references)) / len(texts)
    rows = [
        {"source": example.source, "reference": example.target, "output": text}
        for example, text in zip(examples, texts)
    ]
    scores = {**error_rates(references, texts), "exact": exact}
    return EvaluationResult("transcribe", len(texts), scores, precision, seconds, rows)


# --- other tasks


def score_texts(folder: Folder, data: Data | None, precision: str, log: Log) -> EvaluationResult:
    """The final scores of a run, computed again."""
    config, objective = objective_of(folder)
    findings = StrictReport()
    examples = read_test_set(folder, data, findings, config)
    if empty := findings.counts["empty"]:
        log(f"left out {empty:,} without a text (the first: {findings.places['empty'][0]})")
    report_unknown_labels(folder, examples, log)
    examples = drop_left_out(examples, objective, config, "test", log)
    if not examples:
        raise UsageError(
            f"nothing is left to score: the model reads {folder.config.max_length} tokens",
            code="E_EVALUATE_DATA",
        )
    evaluation = make_evaluation(config, objective, examples, folder.may_refuse)
    start = time.perf_counter()
    scores, rows = evaluation.run(folder.model)
    seconds = time.perf_counter() - start
    return EvaluationResult(folder.task.name, len(evaluation), scores, precision, seconds, rows)


def objective_of(folder: Folder) -> tuple[Config, Objective]:
    """The config of the run, or defaults, and how the model reads texts."""
    config = run_config(folder.path)
    if config is None:
        tree = {"task": folder.task.model_dump(), "data": {"train": "-"}}
        if isinstance(folder.input, FrameReader):
            tree["input"] = folder.input.config.model_dump()
        defaults = resolve(tree)
        config = defaults.model_copy(update={"model": folder.config})
    objective = make_objective(
        folder.task, folder.config, folder.input, folder.output, folder.labels, config.version
    )
    return config, objective


def report_unknown_labels(folder: Folder, examples: list[Example], log: Log) -> None:
    """Labels that are not in the training data cannot be predicted: their texts count as errors."""
    if folder.task.name not in ("classify", "tag"):
        return
    is_tag = folder.task.name == "tag"
    unknown, count = dict[str, None](), 0
    for example in examples:
        labels = example.target.split(" ") if is_tag else split_labels(example.target)
        new = [label for label in labels if label not in folder.labels]
        unknown |= dict.fromkeys(new)
        count += bool(new)
    if count:
        unit, label = ("sentence", "tag") if is_tag else ("text", "label")
        subject = f"1 {unit} has" if count == 1 else f"{count:,} {unit}s have"
        names = ", ".join([*list(unknown)[:MAX_NAMES], *(["..."] if len(unknown) > MAX_NAMES else [])])
        log(f"{subject} a {label} that this model does not know, which counts as an error: {names}")
