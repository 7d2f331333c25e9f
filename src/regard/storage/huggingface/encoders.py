"""Encoders: BERT, RoBERTa, XLM-R, DistilBERT and MPNet, without a head or with one of four."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.storage.files import Json
from regard.storage.huggingface.architecture import (
    SIZES,
    Architecture,
    Fields,
    Shapes,
    Table,
    attention,
    modules,
    read_first_position,
    write_first_position,
)

BERT_BLOCK = {
    **attention("attention", "attention", "self.query", "self.key", "self.value", "output.dense"),
    "attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}
MPNET_BLOCK = {
    **attention("attention", "attention.attn", "q", "k", "v", "o"),
    "attention_residual.norm": "attention.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}
DISTILBERT_BLOCK = {
    **attention("attention", "attention", "q_lin", "k_lin", "v_lin", "out_lin"),
    "attention_residual.norm": "sa_layer_norm",
    "feed_forward.up": "ffn.lin1",
    "feed_forward.down": "ffn.lin2",
    "feed_forward_residual.norm": "output_layer_norm",
}
Heads = Mapping[str, Mapping[str, str]]  # by what is classified: names of its layers
BERT_HEADS: Heads = {
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
ROBERTA_HEADS: Heads = {
    "words": {
        "head.dense": "lm_head.dense",
        "head.norm": "lm_head.layer_norm",
        "output": "lm_head.decoder",
        "output.bias": "lm_head.bias",
    },
    "sentence": {"head.dense": "classifier.dense", "output": "classifier.out_proj"},
    "tokens": {"output": "classifier"},
    "span": {"output": "qa_outputs"},
}
DISTILBERT_HEADS: Heads = {
    "words": {"head.dense": "vocab_transform", "head.norm": "vocab_layer_norm", "output": "vocab_projector"},
    "sentence": {"head.dense": "pre_classifier", "output": "classifier"},
    "tokens": {"output": "classifier"},
    "span": {"output": "qa_outputs"},
}
# A file may hold what only other classes use: the pooler, or next-sentence prediction.
UNUSED = (
    r"embeddings\.(position|token_type)_ids",
    r"pooler\.dense\.(weight|bias)",
    r"cls\.seq_relationship\.(weight|bias)",
)
TASKS = {  # of the classes of a type
    "MaskedLM": "fill",
    "PreTraining": "fill",
    "SequenceClassification": "classify",
    "TokenClassification": "tag",
    "QuestionAnswering": "answer",
}


def encoder(
    name: str,
    kind: str,  # how its classes begin
    body: str,  # the module of the base model, and of its blocks
    blocks: str,
    block: Mapping[str, str],
    heads: Heads,
    fields: Fields,
    **more: Any,
) -> Architecture:
    """A type of encoder: names of its modules and of its heads."""
    embeddings = f"{body}.embeddings"
    names = {
        "source.tokens": f"{embeddings}.word_embeddings",
        "source.positions.table": f"{embeddings}.position_embeddings.weight",
        "source.segments": f"{embeddings}.token_type_embeddings",
        "source.norm": f"{embeddings}.LayerNorm",
        "encoder.positions.table": f"{body}.encoder.relative_attention_bias",
        **modules("encoder.blocks.*", blocks, block),
    }
    output = heads["words"]["output"]
    bias = heads["words"].get("output.bias", f"{output}.bias")
    layers = sorted({each.split(".")[0] for head in heads.values() for each in head.values()} - {body})

    def table(shapes: Shapes, head: str | None) -> Table:
        """For the body alone (None), or with the pooler ("pooler"), the tensors of any head are ignored."""
        layers_of_head = heads.get(head or "")
        others = () if layers_of_head else (rf"({'|'.join(layers)})\..*",)
        pooler = {"head.dense": f"{body}.pooler.dense"} if head == "pooler" else {}
        return Table(
            {**names, **(layers_of_head or heads["sentence"]), **pooler},
            prefix=f"{body}.",
            tied={f"{output}.bias": bias, f"{output}.weight": names["source.tokens"] + ".weight"},
            fallback={bias: f"{output}.bias"},
            unused=(*UNUSED, *others),
        )

    classes: dict[str, str | None] = {f"{kind}For{each}": task for each, task in TASKS.items()}
    return Architecture(
        name,
        "bert",
        {**classes, f"{kind}Model": None},
        {**fields, "tie_word_embeddings": ("tie_embeddings", True)},
        table,
        **more,
    )


BERT_FIELDS: Fields = {
    **SIZES,
    "hidden_act": ("activation", "gelu"),
    "hidden_dropout_prob": ("dropout", 0.1),
    "layer_norm_eps": ("epsilon", 1e-12),
}
BERT_VALUES: Json = {
    "constants": {"attention_probs_dropout_prob": 0.0},
    "supported": {"is_decoder": False, "add_cross_attention": False},
}
BERT = encoder(
    "bert",
    "Bert",
    "bert",
    "bert.encoder.layer.*",
    BERT_BLOCK,
    BERT_HEADS,
    BERT_FIELDS,
    fixed={"type_vocab_size": 2, "position_embedding_type": "absolute"},
    **BERT_VALUES,
)


def read_roberta(config: Json) -> Json:
    first, rows = read_first_position(config), config["max_position_embeddings"]
    return {"first_position": first, "max_length": rows - first, "segments": config["type_vocab_size"]}


def like_roberta(name: str, kind: str) -> Architecture:
    return encoder(
        name,
        kind,
        "roberta",
        "roberta.encoder.layer.*",
        BERT_BLOCK,
        ROBERTA_HEADS,
        {theirs: ours for theirs, ours in BERT_FIELDS.items() if ours != "max_length"},
        write_more=lambda model: {
            **write_first_position(model),
            "max_position_embeddings": model.first_position + model.max_length,
            "type_vocab_size": model.segments,
        },
        read_more=read_roberta,
        **BERT_VALUES,
    )


ROBERTA = like_roberta("roberta", "Roberta")
XLM_ROBERTA = like_roberta("xlm-roberta", "XLMRoberta")
MPNET = encoder(
    "mpnet",
    "MPNet",
    "mpnet",
    "mpnet.encoder.layer.*",
    MPNET_BLOCK,
    ROBERTA_HEADS,
    {theirs: ours for theirs, ours in BERT_FIELDS.items() if ours != "max_length"},
    constants={"attention_probs_dropout_prob": 0.0},
    fixed={"relative_attention_num_buckets": 32},  # its buckets are counted for 32, whatever the field is
    write_more=lambda model: {
        **write_first_position(model),
        "max_position_embeddings": model.first_position + model.max_length,
    },
    read_more=lambda config: {
        "first_position": 2,
        "max_length": config["max_position_embeddings"] - 2,
        "relative_bias": True,
        "segments": 0,
    },
)
DISTILBERT = encoder(
    "distilbert",
    "DistilBert",
    "distilbert",
    "distilbert.transformer.layer.*",
    DISTILBERT_BLOCK,
    DISTILBERT_HEADS,
    {
        "dim": "width",
        "n_layers": "layers",
        "n_heads": "heads",
        "hidden_dim": "feed_forward",
        "max_position_embeddings": "max_length",
        "activation": ("activation", "gelu"),
        "dropout": ("dropout", 0.1),
    },
    constants={"attention_dropout": 0.0, "qa_dropout": 0.0},
    fixed={"sinusoidal_pos_embds": False},
    write_more=lambda model: {"seq_classif_dropout": model.dropout},
    read_more=lambda config: {"segments": 0, "head_activation": "relu"},
)
