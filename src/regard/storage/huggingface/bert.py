"""BERT, without a head or with one of four."""

from __future__ import annotations

from regard.config.model import BertConfig
from regard.storage.huggingface.architecture import Architecture, Fields, Row, Shape, Table, same

CLASSES = {  # our head -> their class
    "words": "BertForMaskedLM",
    "sentence": "BertForSequenceClassification",
    "tokens": "BertForTokenClassification",
    "span": "BertForQuestionAnswering",
}
TASKS = {
    "BertForMaskedLM": "fill",
    "BertForPreTraining": "fill",
    "BertForSequenceClassification": "classify",
    "BertForTokenClassification": "tag",
    "BertForQuestionAnswering": "answer",
    "BertModel": None,
}


FIELDS: Fields = {
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward",
    "hidden_act": ("activation", "gelu"),
    "hidden_dropout_prob": ("dropout", 0.1),
    "max_position_embeddings": "max_length",
    "layer_norm_eps": ("epsilon", 1e-12),
    "tie_word_embeddings": ("tie_embeddings", True),
}
FIXED = {"type_vocab_size": 2, "position_embedding_type": "absolute"}


def table(model: BertConfig, shape: Shape) -> Table:
    """Without a head (`shape.head` None) the tensors of any head are ignored."""
    embeddings = "bert.embeddings"
    rows = [
        *same("source.tokens", f"{embeddings}.word_embeddings", ("weight",)),
        Row(f"{embeddings}.position_embeddings.weight", ("source.positions.table",)),
        *same("source.segments", f"{embeddings}.token_type_embeddings", ("weight",)),
        *same("source.norm", f"{embeddings}.LayerNorm"),
    ]
    for layer in range(model.layers):
        ours, theirs = f"encoder.blocks.{layer}", f"bert.encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            rows += same(f"{ours}.attention.{part}", f"{theirs}.attention.self.{part}")
        rows += same(f"{ours}.attention.output", f"{theirs}.attention.output.dense")
        rows += same(f"{ours}.attention_residual.norm", f"{theirs}.attention.output.LayerNorm")
        rows += same(f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense")
        rows += same(f"{ours}.feed_forward.down", f"{theirs}.output.dense")
        rows += same(f"{ours}.feed_forward_residual.norm", f"{theirs}.output.LayerNorm")
    tied: dict[str, str] = {}
    if shape.head == "words":
        tied = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
        if model.tie_embeddings:
            tied["cls.predictions.decoder.weight"] = f"{embeddings}.word_embeddings.weight"
    unused = [r"embeddings\.(position|token_type)_ids", *UNUSED[shape.head]]
    return Table(rows + _head(model, shape.head), "bert.", tied, unused=tuple(unused))


# A file may hold what only other classes use: the pooler, or next-sentence prediction.
_POOLER, _PAIR = r"pooler\.dense\.(weight|bias)", r"cls\.seq_relationship\.(weight|bias)"
UNUSED: dict[str | None, tuple[str, ...]] = {
    "words": (_POOLER, _PAIR),
    "sentence": (),
    "pooler": (_PAIR, r"(cls\.predictions|classifier|qa_outputs)\..*"),
    "tokens": (_POOLER,),
    "span": (_POOLER,),
    None: (_POOLER, _PAIR, r"(cls\.predictions|classifier|qa_outputs)\..*"),
}


def _head(model: BertConfig, head: str | None) -> list[Row]:
    if head == "words":
        prediction = "cls.predictions"
        output = [] if model.tie_embeddings else same("output", f"{prediction}.decoder", ("weight",))
        return [
            *same("head.dense", f"{prediction}.transform.dense"),
            *same("head.norm", f"{prediction}.transform.LayerNorm"),
            *output,
            Row(f"{prediction}.bias", ("output.bias",), fallback=f"{prediction}.decoder.bias"),
        ]
    pooler = same("head.dense", "bert.pooler.dense")
    return {
        "sentence": [*pooler, *same("output", "classifier")],
        "pooler": pooler,
        "tokens": same("output", "classifier"),
        "span": same("output", "qa_outputs"),
        None: [],
    }[head]


BERT = Architecture(
    "bert",
    "bert",
    TASKS,
    FIELDS,
    table,
    constants={"attention_probs_dropout_prob": 0.0, **FIXED},
    supported={"is_decoder": False, "add_cross_attention": False, **FIXED},
)
