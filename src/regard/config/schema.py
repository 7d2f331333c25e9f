"""What a run is: every field that a user may set, with its default, its limits and its meaning.

`[model]` has a class for each family, in config/model.py.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from regard.compat import VERSION
from regard.config.initial import Init as Init
from regard.config.input import AnyInputConfig, AudioInput, InputConfig, Modifier, PixelText, unsuitable
from regard.config.model import AnyModelConfig, ModelConfig, TransformerConfig, ViTConfig
from regard.config.model_base import MOST, Count, Section, Share

Format = Literal["txt", "tsv", "csv", "xlsx", "jsonl", "json", "parquet", "conll", "po", "tmx", "xliff"]
# text, label, source, target, tokens, tags, question, context, answers, file -> a column's name or number
Columns = dict[str, str | Annotated[int, Field(ge=1)]]


class Weighted(Section):
    """`{corpus = "forum.tsv", weight = 0.5}`: half of its pairs in each epoch, another half in the next.

    For a model of several tasks (T5): `prefix` is put before every source and names the task, `say` replaces
    targets by words: `{corpus = "reviews.tsv", prefix = "sentiment: ", say = {1 = "good"}}`.
    """

    corpus: str | list[str]
    weight: float = Field(
        1.0, gt=0, le=1000, description="copies of each pair in an epoch; below 1: a random part"
    )
    prefix: str = Field("", description="text before every source")
    target: str = Field(
        "",
        pattern=r"^[\w-]{0,30}$",
        description="target language of a corpus: >>fr<< before every source",
    )
    say: dict[str, str] = Field(default_factory=dict, description="target -> the words to learn instead")
    format: Format | None = Field(None, description="format, if the name does not tell it: conll, tsv ...")
    columns: Columns = Field(default_factory=dict, description="columns of a table, see data.columns")
    files: str | None = Field(None, description="where the files of a table are, see data.files")

    @property
    def front(self) -> str:
        """What is before every source."""
        return (f">>{self.target}<< " if self.target else "") + self.prefix


# A corpus is a name or path, or a [source, target] pair of paths; a field takes one or a list of them.
Corpus = str | tuple[str, str]
Corpora = str | list[str | list[str] | Weighted]


TaskName = Literal["translate", "generate", "fill", "classify", "tag", "answer", "transcribe", "caption"]
InputKind = Literal["text", "image", "video", "audio"]


class Task(Section):
    name: TaskName = Field("translate", description="task, named like the command that uses the model")
    input: InputKind = Field("text", description="what the model reads; default: the kind of [input]")
    source: str = Field("source", min_length=1, description="source language, or the only language, e.g. en")
    target: str = Field("target", min_length=1, description="translate: target language, e.g. de")
    multi_label: bool = Field(False, description="classify: a text has any number of labels")
    mask_rate: float = Field(0.15, gt=0, lt=1, description="fill: share of the tokens that is masked")
    whole_words: bool = Field(False, description="fill: mask whole words")
    mean_span: float = Field(3.0, ge=1, le=1000, description="fill with t5: mean length of a masked span")
    stride: int = Field(128, ge=1, le=MOST, description="answer: overlap of two windows of a long context")
    longest_answer: int = Field(30, ge=1, le=MOST, description="answer: longest answer, in tokens")


CORPORA = (
    '"phrasebook", a path (tables: .tsv, .csv, .xlsx, .jsonl, .parquet; pairs: .po, .tmx, .xliff; '
    "text: .txt; tags: .conll; questions: SQuAD's .json; pictures and sounds: a folder or .tar with a folder "
    "for each class, or a table with a column of files), each also at an address such as s3://bucket/a.tsv, "
    "a [source, target] pair, "
    "or a list of these or of {corpus = ..., weight = ...}"
)


class Data(Section):
    train: Corpora = Field(description=CORPORA)
    valid: Corpora | None = Field(None, description="validation set; chooses the best checkpoint")
    test: Corpora | None = Field(None, description="test set, scored once, at the end")
    leaks: Literal["drop", "keep"] = Field(
        "drop", description="training pairs that are also in valid or test"
    )
    duplicates: Literal["keep", "drop"] = Field("keep", description="repeated training pairs")
    documents: Literal["file", "paragraph", "line"] = Field(
        "file", description="generate, fill: what one document is in a plain text file"
    )
    format: Format | None = Field(None, description="format of all files, if their names do not tell it")
    columns: Columns = Field(
        default_factory=dict,
        description='columns of tables, as in {text = "Review", label = "Stars"}, or by number where there '
        "is no header; also source, target, tokens, tags, question, context, answers, file",
    )
    files: str | None = Field(
        None,
        description="folder or .tar that the files of a table are in; default: beside the table",
    )
    pixels: PixelText | None = Field(
        None,
        description="generate: the corpora are pictures with labels, and a text is a label, a newline and a "
        "character for each pixel: {height = 8, width = 8, levels = 16}",
    )
    temperature: float = Field(
        1.0, ge=1, le=100, description="T: corpora in proportion to (weight * pairs)^(1/T); 1 = as they are"
    )
    modifiers: list[Modifier] = Field(
        default_factory=list, description="random changes of training samples (augmentation)"
    )

    @property
    def is_mix(self) -> bool:
        """Whether a training corpus is one of several tasks that a text-to-text model learns."""
        listed = [] if isinstance(self.train, str) else self.train
        return any(isinstance(part, Weighted) and bool(part.front or part.say) for part in listed)

    @field_validator("train", "valid", "test")
    @classmethod
    def _possible(cls, corpora: Corpora | None, info: ValidationInfo) -> Corpora | None:
        """A pair has two sides, and no list is empty. Whether the files exist is checked later."""
        if corpora is None:
            return None
        listed = [corpora] if isinstance(corpora, str) else corpora
        parts = [part.corpus if isinstance(part, Weighted) else part for part in listed]
        pairs = [part for part in parts if isinstance(part, list)]
        if not parts or "" in parts or any(len(pair) != 2 or "" in pair for pair in pairs):
            raise ValueError(
                f"data.{info.field_name} = {corpora}: name a corpus, a [source, target] pair, "
                "or a list of such; none of them may be empty"
            )
        return corpora


class Text(Section):
    kind: Literal["bpe", "unigram", "word", "character"] = Field(
        "bpe", description="how text is split into tokens"
    )
    vocabulary: int = Field(
        8000, ge=300, le=1_000_000, description="largest number of tokens, bytes included"
    )
    joint: bool = Field(True, description="one vocabulary for both languages")
    placeholders: int = Field(
        0,
        ge=0,
        le=100,
        description="translate: tokens for URLs, numbers, tags, emoji and the like, which a model with them "
        "(say 10) learns to copy; 0: these parts are text",
    )


# The tokenisers of sacreBLEU; "none" is for text that is tokenised already.
Tokenization = Literal[
    "auto",
    "13a",
    "none",
    "intl",
    "char",
    "zh",
    "ja-mecab",
    "ko-mecab",
    "flores101",
    "flores200",
    "spBLEU-1K",
]


class Train(Section):
    steps: int = Field(
        100_000, ge=1, le=MOST, description="largest number of updates; with `epochs` alone, what they need"
    )
    epochs: float | None = Field(None, gt=0, le=1e9, description="largest number of passes over the data")
    minutes: float | None = Field(None, gt=0, le=1e9, description="largest wall time, over all resumptions")
    tokens_per_batch: int = Field(
        4096, ge=16, le=MOST, description="padded source or target tokens, the larger side"
    )
    accumulate: Count = Field(1, description="batches of one update (gradient accumulation)")
    gradient_checkpointing: bool = Field(
        False,
        description="keep only the inputs of blocks: less memory, a third more time, the same gradients",
    )
    optimizer: Literal["adam", "adamw"] = Field(
        "adam", description="the paper's, or with decoupled weight decay"
    )
    lr: float | None = Field(
        None, gt=0, description='peak learning rate, default 1e-3; none with schedule = "paper"'
    )
    schedule: Literal["paper", "inverse-sqrt", "linear", "cosine", "constant"] = Field(
        "inverse-sqrt",
        description="learning rate after the warm-up; the paper's peak is (width * warmup)^-0.5",
    )
    warmup: int = Field(
        4000, ge=0, le=MOST, description="updates until the peak; default: min(steps / 10, 4000)"
    )
    betas: tuple[Share, Share] = Field(
        (0.9, 0.98), strict=False, description="Adam's beta_1 and beta_2, two numbers"
    )
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.0, ge=0, description="of matrices only")
    label_smoothing: Share = Field(0.1, description="epsilon_ls of the paper")
    clip: float = Field(1.0, ge=0, description="largest norm of the gradient; 0 = no clipping")
    bad_steps_in_a_row: Count = Field(8, description="non-finite updates in a row before on_bad acts")
    on_bad: Literal["stop", "back"] = Field(
        "stop", description="then stop the run, or roll back to the last checkpoint and skip those batches"
    )
    seed: int = Field(1, ge=0, lt=2**31, description="of the data order, dropout and initial weights")
    log_every: Count = Field(10, description="updates between two log records")
    validate_every: Count | None = Field(
        None, description="updates between two validations; default: checkpoint_every"
    )
    validate_sentences: int = Field(500, ge=0, le=MOST, description="decoded at a validation; 0 = loss only")
    metric: (
        Literal["bleu", "chrf", "loss", "accuracy", "f1", "exact", "word_error_rate", "character_error_rate"]
        | None
    ) = Field(None, description="chooses the best checkpoint; default: by task")
    bleu_tokenize: Tokenization = Field(
        "auto", description="tokeniser of sacreBLEU; auto = 13a, or by language"
    )
    patience: Count | None = Field(None, description="validations without improvement before the run stops")
    checkpoint_every: Count = Field(500, description="updates between two checkpoints")
    keep: Count = Field(3, description="newest checkpoints to keep, beside the best")
    average: Count = Field(1, description="average this many newest checkpoints into the final model")
    precision: Literal["auto", "float32", "bfloat16", "float64"] = Field(
        "auto", description="of the computation"
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")
    threads: int = Field(
        0, ge=0, le=1024, description="0 = one for each core; a resumed run keeps its number"
    )
    parallel: Literal["auto", "ddp", "fsdp"] = Field(
        "auto", description="under torchrun: replicas (ddp, auto) or shards (fsdp)"
    )
    gradients: Literal["auto", "bfloat16"] = Field(
        "auto", description="under torchrun: exchanged as they are, or in bfloat16, half the bytes"
    )
    timeout: float = Field(
        600.0, gt=0, le=1e6, description="under torchrun: seconds after which a silent process is an error"
    )
    track: list[Literal["tensorboard", "mlflow", "wandb", "trackio"]] = Field(
        default_factory=list, description="trackers that get what metrics.jsonl gets"
    )

    @model_validator(mode="after")
    def _possible(self) -> Train:
        if self.schedule == "paper" and self.lr is not None:
            raise ValueError(
                'train.lr: the paper\'s schedule computes the rate; leave lr out or use "inverse-sqrt", '
                "the same curve with your own peak"
            )
        if self.schedule == "paper" and self.warmup == 0:
            raise ValueError("train.warmup = 0: the paper's schedule needs at least 1 (step * warmup^-1.5)")
        return self


class Decode(Section):
    beam: int = Field(4, ge=1, le=1000, description="beam width; 1 = greedy")
    length_penalty: float = Field(1.0, description="alpha: score = log p / length^alpha")
    penalty_form: Literal["power", "wu"] = Field("power", description='"wu" = ((5 + length) / 6)^alpha')
    early_stopping: Literal[False, True, "never"] = Field(False, description="as in transformers")
    min_length: int = Field(0, ge=0, le=MOST, description="shortest output, in tokens")
    max_length: Count | None = Field(
        None, description="longest output, in tokens; default: source length + 50"
    )
    no_repeat_ngram: int = Field(0, ge=0, le=MOST, description="no n-gram of this size occurs twice; 0 = off")
    repetition_penalty: float = Field(
        1.0, gt=0, description="above 1: tokens that occurred before score lower"
    )
    ensemble: Literal["probability", "log"] = Field(
        "probability", description="average of several models: of probabilities, or of log-probabilities"
    )
    context: int = Field(
        0, ge=0, le=MOST, description="previous sentences to put before each sentence of a long line"
    )
    sample: bool = Field(False, description="sample instead of beam search; `beam` samples a sentence")
    temperature: float = Field(1.0, ge=0, description="of sampling; below 1 = closer to greedy, which is 0")
    top_k: int = Field(0, ge=0, le=MOST, description="sample from the k most probable tokens; 0 = all")
    top_p: float = Field(
        1.0, gt=0, le=1, description="sample from the smallest set of tokens with this probability"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="of sampling")
    tokens_per_batch: Count = Field(16384, description="padded source tokens times beam in a batch")


# The families of each task and the metrics that choose a checkpoint; the first is the default.
FAMILIES_OF: dict[str, tuple[str, ...]] = {
    "translate": ("transformer", "rnn", "bahdanau", "t5"),
    "generate": ("gpt", "llama"),
    "fill": ("bert", "t5"),
    "classify": ("bert",),
    "tag": ("bert",),
    "answer": ("bert",),
    "transcribe": ("whisper",),
    "caption": ("vit_gpt",),
}
FRAME_FAMILIES = ("vit", "ast", "whisper", "vit_gpt")  # need [input]
METRICS = {
    "translate": ("bleu", "chrf", "exact", "loss"),
    "generate": ("loss",),
    "fill": ("accuracy", "loss"),
    "classify": ("accuracy", "f1", "loss"),
    "tag": ("f1", "accuracy", "loss"),
    "answer": ("f1", "exact", "loss"),
    "transcribe": ("word_error_rate", "character_error_rate", "exact", "loss"),
    "caption": ("bleu", "chrf", "exact", "loss"),
}
LOWER_IS_BETTER = ("loss", "word_error_rate", "character_error_rate")
# Defaults of [decode] by task: continuations of a prompt are sampled, in smaller batches than translations,
# because the cache holds the prompt too.
DECODE_DEFAULTS: dict[str, dict[str, object]] = {
    "generate": {"sample": True, "beam": 1, "temperature": 0.8, "max_length": 200, "tokens_per_batch": 4096}
}
HEADS = {"fill": "words", "classify": "sentence", "tag": "tokens", "answer": "span"}  # of BERT
LABELLING = ("classify", "tag", "answer")  # tasks whose head is new to a pretrained model


class Recipe(Section):
    """Published results of this file; the end of a run shows them beside its own."""

    expected: str = Field("", description="scores reached with this file, and on which data")
    time: str = Field("", description="how long it took, and on what machine")


class Config(Section):
    version: int = Field(VERSION, ge=1, le=VERSION, description="format of the file, see regard.compat")
    task: Task = Field(default_factory=lambda: Task())
    data: Data
    text: Text = Field(default_factory=lambda: Text())
    input: AnyInputConfig | None = Field(None, description="pictures or sounds that the model reads")
    model: AnyModelConfig = Field(default_factory=lambda: TransformerConfig())
    train: Train = Field(default_factory=lambda: Train())
    decode: Decode = Field(default_factory=lambda: Decode())
    init: Init = Field(default_factory=lambda: Init())
    recipe: Recipe = Field(default_factory=lambda: Recipe())

    @model_validator(mode="after")
    def _possible(self) -> Config:
        if self.train.metric not in METRICS[self.task.name]:
            metrics = ", ".join(METRICS[self.task.name])
            raise ValueError(
                f'train.metric = "{self.train.metric}" is not a metric of "{self.task.name}": {metrics}'
            )
        fitting = families_of(self.task)
        if self.model.family not in fitting:
            raise ValueError(
                f'model.family = "{self.model.family}" cannot {self.task.name}; use {", ".join(fitting)}'
            )
        if (kind := self.input.kind if self.input else "text") != self.task.input:
            raise ValueError(
                f'task.input = "{self.task.input}", but [input] is of the kind "{kind}": leave task.input out'
            )
        if self.init.lora is not None and (reason := self.init.unsuitable(self.train.average)):
            raise ValueError(reason)
        if self.data.pixels is not None and self.task.name != "generate":
            raise ValueError(f'data.pixels is for task.name = "generate", not "{self.task.name}"')
        if reason := unreadable(self.model, self.input):
            raise ValueError(reason)
        is_sentence = self.data.pixels is None and not self.data.is_mix
        if reason := unsuitable(self.data.modifiers, kind, self.task.name, is_sentence):
            raise ValueError(f"data.modifiers: {reason}")
        return self


def unreadable(model: ModelConfig, reads: InputConfig | None) -> str:
    """Why a model cannot read an input, "" if it can."""
    family = f'model.family = "{model.family}"'
    if reads is None:
        wrong = f"{family} reads pictures or sounds: describe them in [input]"
        return wrong if model.family in FRAME_FAMILIES else ""
    if model.family not in FRAME_FAMILIES:
        return f"{family} reads text: leave [input] out, or use {', '.join(FRAME_FAMILIES)}"
    patch = reads.patch if isinstance(reads, AudioInput) else None
    if model.family == "ast" and patch is None:
        return f"{family} reads patches of a spectrogram: give input.patch"
    if model.family == "whisper" and (patch is not None or reads.kind != "audio"):
        return f"{family} reads the frames of sounds: leave input.patch out"
    overlaps = isinstance(reads, AudioInput) and reads.stride
    if isinstance(model, ViTConfig) and model.front == "convolution" and (reads.kind == "video" or overlaps):
        return 'model.front = "convolution" reads pictures, and sounds without input.stride'
    return ""


def families_of(task: Task) -> tuple[str, ...]:
    """The families that can do a task with its input; the first is the default."""
    if task.name == "classify" and task.input != "text":
        return ("vit", "ast") if task.input == "audio" else ("vit",)
    return FAMILIES_OF[task.name]
