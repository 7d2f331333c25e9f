"""What a run is. Every number a user may set stands here once, with its default, its limits and its meaning.

The classes are frozen: a resolved `Config` is a value that is written into the run and never changes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class Section(BaseModel):
    # strict: `heads = true` is not 1 and `joint = "no"` is not a switch; a whole number may stand for a float
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, strict=True, allow_inf_nan=False
    )


class Weighted(Section):
    """`{corpus = "forum.tsv", weight = 0.5}`: half of its pairs in each epoch, drawn anew for the next.

    For a model of several tasks (T5): `prefix` stands before every source and says what is wanted, and `say`
    gives words for a target: `{corpus = "reviews.tsv", prefix = "sentiment: ", say = {1 = "good"}}`.
    """

    corpus: str | list[str]
    weight: float = Field(1.0, gt=0, le=1000, description="how often its pairs come in an epoch")
    prefix: str = Field("", description="stands before every source")
    say: dict[str, str] = Field(default_factory=dict, description="words instead of these targets")
    format: str | None = Field(None, description="format, if the name does not tell it: conll, tsv ...")


# A corpus is a name or path, or a [source, target] pair of paths; a setting takes one or a list of them.
Corpus = str | tuple[str, str]
Corpora = str | list[str | list[str] | Weighted]


TaskName = Literal["translate", "generate", "fill", "classify", "tag", "answer"]


class Task(Section):
    name: TaskName = Field("translate", description="the verb of the command that uses the model")
    source: str = Field("source", min_length=1, description="source language, or the only one, e.g. en")
    target: str = Field("target", min_length=1, description="translate: target language, e.g. de")
    many: bool = Field(False, description="classify: a text has any number of labels, not one")
    masked: float = Field(0.15, gt=0, lt=1, description="fill: share of the pieces that is hidden")
    whole_words: bool = Field(False, description="fill: hide all pieces of a word or none")
    mean_span: float = Field(3.0, ge=1, description="fill with t5: pieces of a hidden span on average")
    stride: int = Field(128, ge=1, description="answer: pieces that two windows of a long context share")
    longest_answer: int = Field(30, ge=1, description="answer: pieces of an answer at most")


CORPORA = (
    '"phrasebook", a path (pairs or labels: .tsv, .jsonl, .parquet; pairs: .po, .tmx, .xliff; text: .txt; '
    "tags: .conll; questions: SQuAD's .json), a [source, target] pair, "
    "or a list of these or of {corpus = ..., weight = ...}"
)


class Data(Section):
    train: Corpora = Field(description=CORPORA)
    valid: Corpora | None = Field(None, description="watched during training; chooses the checkpoint")
    test: Corpora | None = Field(None, description="scored once, at the end")
    leaks: Literal["drop", "keep"] = Field("drop", description="training pairs that are held-out pairs")
    duplicates: Literal["keep", "drop"] = Field("keep", description="training pairs that came before")
    documents: Literal["file", "paragraph", "line"] = Field(
        "file", description="generate, fill: what a document is in a plain text file"
    )

    @field_validator("train", "valid", "test")
    @classmethod
    def _possible(cls, corpora: Corpora | None, info: ValidationInfo) -> Corpora | None:
        """A pair has two sides, and a list something in it; whether the files are there is seen later."""
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
    kind: Literal["bpe", "unigram", "word", "character"] = Field("bpe", description="how text is cut")
    vocabulary: int = Field(8000, ge=300, le=1_000_000, description="pieces at most, bytes included")
    joint: bool = Field(True, description="one vocabulary for both languages")


POSITIONS = {  # what each family can be built with
    "transformer": ("sinusoidal", "sinusoidal_halves", "learned"),
    "gpt": ("learned", "rotary"),
    "llama": ("rotary",),
    "t5": ("relative",),
    "bert": ("learned",),
}


class Model(Section):
    """Names as in the paper's Table 3: width = d_model, feed_forward = d_ff, head_width = d_k = d_v."""

    preset: str | None = Field(None, description="a named set of the numbers below")
    family: Literal["transformer", "rnn", "bahdanau", "gpt", "llama", "t5", "bert"] = Field(
        "transformer", description="which builder makes the model"
    )
    width: int = Field(512, ge=2, le=65536, description="d_model")
    layers: int = Field(6, ge=1, le=1000, description="N, in the encoder and in the decoder")
    encoder_layers: int | None = Field(None, ge=1, le=1000, description="if not `layers`")
    decoder_layers: int | None = Field(None, ge=1, le=1000, description="if not `layers`")
    heads: int = Field(8, ge=1, le=1024, description="h")
    head_width: int | None = Field(None, ge=1, le=8192, description="d_k = d_v; else width / heads")
    feed_forward: int = Field(2048, ge=1, le=1_000_000, description="d_ff")
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = Field(
        "relu", description="inside the feed-forward"
    )
    gated: bool = Field(False, description="t5: a gate in the feed-forward, as in version 1.1")
    head: Literal["words", "sentence", "tokens", "span"] | None = Field(
        None, description="bert: what it answers about; else as the task asks"
    )
    pool: Literal["first", "mean"] = Field(
        "first", description="bert, of a whole text: by its first position, or by the mean of all"
    )
    groups: int | None = Field(None, ge=1, description="llama: heads of keys and values; else `heads`")
    norm: Literal["post", "pre"] = Field(
        "post", description="transformer: layer norm after the sum (paper) or before; others have their own"
    )
    positions: Literal["sinusoidal", "sinusoidal_halves", "learned", "rotary", "relative"] = Field(
        "sinusoidal",
        description="how order enters; halves: all sines, then all cosines, as in Marian; rotary: gpt and "
        "llama, relative: t5",
    )
    theta: float = Field(10000.0, gt=0, description="rotary: base of the angles")
    buckets: int = Field(32, ge=4, le=65536, description="relative: kinds of distance that are told apart")
    farthest: int = Field(128, ge=4, le=1_000_000, description="relative: distances from here on are one")
    epsilon: float | None = Field(None, gt=0, description="of the norms; else 1e-5, bert 1e-12, t5 1e-6")
    dropout: Share = Field(0.1, description="on embeddings and every sub-layer's output")
    cell: Literal["lstm", "gru"] = Field("lstm", description="of the families rnn and bahdanau")
    score: Literal["additive", "dot", "general"] = Field("additive", description="of bahdanau's attention")
    reverse_source: bool = Field(False, description="rnn: read the last word first (Sutskever 2014)")
    tie_embeddings: bool = Field(True, description="output layer = target embedding (= source if joint)")
    scale_embeddings: bool = Field(True, description="transformer: embeddings times sqrt(width), as in 3.4")
    output_bias: bool = Field(False, description="transformer: a number for each piece beside its product")
    max_length: int = Field(512, ge=2, le=1_000_000, description="longest sequence in pieces")

    @model_validator(mode="before")
    @classmethod
    def _usual_positions(cls, fields: object) -> object:
        """Without a word about it, order enters as the family's paper has it."""
        if isinstance(fields, dict) and (usual := POSITIONS.get(str(fields.get("family", "transformer")))):
            return {"positions": usual[0], **fields}
        return fields

    @property
    def depth(self) -> tuple[int, int]:
        return self.encoder_layers or self.layers, self.decoder_layers or self.layers

    @property
    def channels(self) -> int:
        """C, the width of one head."""
        return self.head_width or self.width // self.heads

    @model_validator(mode="after")
    def _possible(self) -> Model:
        if self.family in ("rnn", "bahdanau"):
            return self._possible_recurrent()
        if self.groups is not None and self.heads % self.groups:
            raise ValueError(f"model.heads = {self.heads} is not a multiple of model.groups = {self.groups}")
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"model.width = {self.width} is not a multiple of model.heads = {self.heads}: "
                "change one of them or give model.head_width"
            )
        if self.positions not in POSITIONS[self.family]:
            known = ", ".join(POSITIONS[self.family])
            raise ValueError(f'model.positions = "{self.positions}": {self.family} has {known}')
        if self.groups is not None and self.family != "llama":
            raise ValueError(f"model.groups = {self.groups}: heads share keys and values in llama alone")
        if self.pool == "mean" and self.family != "bert":
            raise ValueError(f'model.pool = "mean": {self.family} does not answer about a text as a whole')
        if self.family == "bert" and self.norm == "pre":
            raise ValueError('model.norm = "pre": bert has its norms after the sums')
        if self.positions == "rotary" and self.channels % 2:
            raise ValueError(
                f"a head of {self.channels} channels: rotary positions turn pairs of them, so that "
                "model.head_width (else width / heads) must be even"
            )
        if self.positions == "relative" and self.farthest <= self.buckets // 2:
            raise ValueError(
                f"model.farthest = {self.farthest} must be more than half of model.buckets = {self.buckets}: "
                "that half is for the near distances, one each"
            )
        if self.positions.startswith("sinusoidal") and self.width % 2:
            raise ValueError(
                f"model.width = {self.width} must be even for sinusoidal positions (sine and cosine in pairs)"
            )
        return self

    def _possible_recurrent(self) -> Model:
        if self.family == "bahdanau" and self.width % 2:
            raise ValueError(
                f"model.width = {self.width} must be even: half of it reads forwards and half backwards"
            )
        if len({self.layers, *self.depth}) > 1:
            raise ValueError(
                "model.encoder_layers, model.decoder_layers: an RNN hands each layer's state over, "
                "so that both have model.layers"
            )
        return self


# How sacreBLEU cuts text into the words that BLEU counts; "none" is for text that is tokenised already.
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
        100_000, ge=1, description="updates at most; with `epochs` alone, as many as they have"
    )
    epochs: float | None = Field(None, gt=0, description="passes over the data at most")
    minutes: float | None = Field(None, gt=0, description="wall time at most, over all resumptions")
    tokens_per_batch: int = Field(4096, ge=16, description="padded source or target tokens, the larger side")
    accumulate: Count = Field(1, description="batches summed into one update")
    optimizer: Literal["adam", "adamw"] = Field("adam", description="the paper's, or decoupled decay")
    lr: float | None = Field(None, gt=0, description='peak rate, else 1e-3; none with schedule = "paper"')
    schedule: Literal["paper", "inverse-sqrt", "linear", "cosine", "constant"] = Field(
        "inverse-sqrt",
        description="of the rate after the warm-up; the paper's own peak is (width * warmup)^-0.5",
    )
    warmup: int = Field(4000, ge=0, description="updates until the peak; else steps / 10, 4000 at most")
    betas: tuple[Share, Share] = Field((0.9, 0.98), strict=False, description="Adam's, two numbers")
    epsilon: float = Field(1e-9, gt=0, description="Adam's")
    weight_decay: float = Field(0.0, ge=0, description="only matrices decay")
    label_smoothing: Share = Field(0.1, description="epsilon_ls of the paper")
    clip: float = Field(1.0, ge=0, description="largest norm of the gradient; 0 = never clip")
    bad_steps_in_a_row: Count = Field(8, description="updates without a finite gradient before on_bad acts")
    on_bad: Literal["stop", "back"] = Field(
        "stop", description="then end the run, or go back to the last checkpoint and skip those batches"
    )
    seed: int = Field(1, ge=0, lt=2**31, description="of order, dropout and first weights")
    log_every: Count = Field(10, description="updates between two lines of metrics")
    validate_every: int | None = Field(None, ge=1, description="updates; else as checkpoint_every")
    validate_sentences: int = Field(500, ge=0, description="decoded for the score; 0 = loss only")
    metric: Literal["bleu", "chrf", "loss", "accuracy", "f1", "exact"] | None = Field(
        None, description="chooses the best checkpoint; else the task's usual one"
    )
    bleu_tokenize: Tokenization = Field("auto", description="sacreBLEU's words; auto = 13a, or by language")
    patience: int | None = Field(None, ge=1, description="validations without a better one before stopping")
    checkpoint_every: Count = Field(500, description="updates between two checkpoints")
    keep: Count = Field(3, description="newest checkpoints kept, beside the best")
    average: Count = Field(1, description="newest checkpoints averaged into the final model")
    precision: Literal["auto", "float32", "bfloat16", "float64"] = Field(
        "auto", description="of the arithmetic"
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")
    threads: int = Field(0, ge=0, le=1024, description="0 = one for each core; resuming keeps the number")
    parallel: Literal["auto", "ddp", "fsdp"] = Field(
        "auto", description="under torchrun: whole models (ddp, auto), or shares of one (fsdp)"
    )

    @model_validator(mode="after")
    def _possible(self) -> Train:
        if self.schedule == "paper" and self.lr is not None:
            raise ValueError(
                'train.lr: the paper\'s schedule computes its own rate; leave lr out or take "inverse-sqrt", '
                "the same curve with the peak that you choose"
            )
        if self.schedule == "paper" and self.warmup == 0:
            raise ValueError("train.warmup = 0: the paper's schedule needs at least 1 (step * warmup^-1.5)")
        return self


class Decode(Section):
    beam: int = Field(4, ge=1, le=1000, description="hypotheses kept; 1 = greedy")
    length_penalty: float = Field(1.0, description="alpha: score = log p / length^alpha")
    penalty_form: Literal["power", "wu"] = Field("power", description='"wu" = ((5 + length) / 6)^alpha')
    early_stopping: Literal[False, True, "never"] = Field(False, description="as in transformers")
    min_length: int = Field(0, ge=0, description="pieces before the end may come")
    max_length: int | None = Field(None, ge=1, description="pieces at most; else source length + 50")
    no_repeat_ngram: int = Field(0, ge=0, description="no run of so many pieces comes twice; 0 = may")
    repetition_penalty: float = Field(1.0, gt=0, description="above 1: pieces said before score lower")
    ensemble: Literal["probability", "log"] = Field(
        "probability", description="of several models: the mean of probabilities, or of their logarithms"
    )
    context: int = Field(0, ge=0, description="sentences before, put before each sentence of a long line")
    sample: bool = Field(False, description="draw instead of searching; `beam` draws a sentence")
    temperature: float = Field(1.0, gt=0, description="of sampling; below 1 takes fewer risks")
    top_k: int = Field(0, ge=0, description="sample from the k most probable pieces; 0 = all")
    top_p: float = Field(1.0, gt=0, le=1, description="sample from the smallest set of this probability")
    seed: int = Field(0, ge=0, lt=2**31, description="of sampling")
    tokens_per_batch: int = Field(16384, ge=1, description="padded source tokens times beam at once")


class Init(Section):
    """What a run begins with instead of drawn weights."""

    model: str | None = Field(
        None, alias="from", description="a model folder: its weights, tokenizer and shape"
    )
    keep: Literal["fitting", "all"] = Field(
        "fitting", description="weights with a place here, or all or none"
    )
    freeze: int | Literal["body"] = Field(
        0, description='lowest layers that do not learn, with the embeddings; "body": all but the head'
    )
    layer_decay: float = Field(1.0, gt=0, le=1, description="each layer learns at so much of the one above")

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    @field_validator("freeze")
    @classmethod
    def _count(cls, freeze: int | str) -> int | str:
        if isinstance(freeze, int) and freeze < 0:
            raise ValueError(f'init.freeze = {freeze}: a number of layers, or "body"')
        return freeze


# What can do which task (the first unless told), and by what its checkpoints are judged.
FAMILIES_OF: dict[str, tuple[str, ...]] = {
    "translate": ("transformer", "rnn", "bahdanau", "t5"),
    "generate": ("gpt", "llama"),
    "fill": ("bert", "t5"),
    "classify": ("bert",),
    "tag": ("bert",),
    "answer": ("bert",),
}
METRICS = {
    "translate": ("bleu", "chrf", "exact", "loss"),
    "generate": ("loss",),
    "fill": ("accuracy", "loss"),
    "classify": ("accuracy", "f1", "loss"),
    "tag": ("f1", "accuracy", "loss"),
    "answer": ("f1", "exact", "loss"),
}
HEADS = {"fill": "words", "classify": "sentence", "tag": "tokens", "answer": "span"}  # of BERT


class Recipe(Section):
    """What a file promises; the end of a run shows it beside what was reached."""

    expected: str = Field("", description="scores that were reached with it, and on which data")
    time: str = Field("", description="how long that took, and on what machine")


class Config(Section):
    task: Task = Field(default_factory=lambda: Task())
    data: Data
    text: Text = Field(default_factory=lambda: Text())
    model: Model = Field(default_factory=lambda: Model())
    train: Train = Field(default_factory=lambda: Train())
    decode: Decode = Field(default_factory=lambda: Decode())
    init: Init = Field(default_factory=lambda: Init())
    recipe: Recipe = Field(default_factory=lambda: Recipe())

    @model_validator(mode="after")
    def _possible(self) -> Config:
        if self.train.metric not in METRICS[self.task.name]:
            known = ", ".join(METRICS[self.task.name])
            raise ValueError(
                f'train.metric = "{self.train.metric}" does not judge "{self.task.name}": {known}'
            )
        fitting = FAMILIES_OF[self.task.name]
        if self.model.family not in fitting:
            raise ValueError(
                f'model.family = "{self.model.family}" cannot {self.task.name}; take {", ".join(fitting)}'
            )
        return self
