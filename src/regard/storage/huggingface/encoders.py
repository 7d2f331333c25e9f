"""Encoders: BERT, without a head or with one of four."""

from __future__ import annotations

from regard.storage.huggingface.architecture import SIZES, Architecture, Shapes, Table, attention, modules

BODY = {
    "source.tokens": "bert.embeddings.word_embeddings",
    "source.positions.table": "bert.embeddings.position_embeddings.weight",
    "source.segments": "bert.embeddings.token_type_embeddings",
    "source.norm": "bert.embeddings.LayerNorm",
    **modules(
        "encoder.blocks.*",
        "bert.encoder.layer.*",
        {
            **attention("attention", "attention", "self.query", "self.key", "self.value", "output.dense"),
            "attention_residual.norm": "attention.output.LayerNorm",
            "feed_forward.up": "intermediate.dense",
            "feed_forward.down": "output.dense",
            "feed_forward_residual.norm": "output.LayerNorm",
        },
    ),
}
HEADS: dict[str | None, dict[str, str]] = {
    "words": {
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
        "output": "cls.predictions.decoder",
        "output.bias": "cls.predictions.bias",
    },
    "sentence": {"head.dense": "bert.pooler.dense", "output": "classifier"},
    "tokens": {"output": "classifier"},
    "span": {"output": "qa_outputs"},
}
# A file may hold what only other classes use: the pooler, or next-sentence prediction.
UNUSED = (
    r"embeddings\.(position|token_type)_ids",
    r"pooler\.dense\.(weight|bias)",
    r"cls\.seq_relationship\.(weight|bias)",
)


def table(shapes: Shapes, head: str | None) -> Table:
    """For the body alone (None), or with the pooler ("pooler"), the tensors of any head are ignored."""
    others = () if head in HEADS else (r"(cls\.predictions|classifier|qa_outputs)\..*",)
    return Table(
        BODY | HEADS[head if head in HEADS else "sentence"],
        prefix="bert.",
        tied={
            "cls.predictions.decoder.bias": "cls.predictions.bias",
            "cls.predictions.decoder.weight": BODY["source.tokens"] + ".weight",
        },
        fallback={"cls.predictions.bias": "cls.predictions.decoder.bias"},
        unused=(*UNUSED, *others),
    )


BERT = Architecture(
    "bert",
    "bert",
    {
        "BertForMaskedLM": "fill",
        "BertForPreTraining": "fill",
        "BertForSequenceClassification": "classify",
        "BertForTokenClassification": "tag",
        "BertForQuestionAnswering": "answer",
        "BertModel": None,
    },
    {
        **SIZES,
        "hidden_act": ("activation", "gelu"),
        "hidden_dropout_prob": ("dropout", 0.1),
        "layer_norm_eps": ("epsilon", 1e-12),
        "tie_word_embeddings": ("tie_embeddings", True),
    },
    table,
    constants={"attention_probs_dropout_prob": 0.0},
    supported={"is_decoder": False, "add_cross_attention": False},
    fixed={"type_vocab_size": 2, "position_embedding_type": "absolute"},
)
