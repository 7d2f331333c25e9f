"""Tokenizers and models as transformers makes and saves them, tiny and random."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
)

from regard.config import TransformerConfig
from regard.storage import unique_weights, write_weights
from regard.storage.huggingface import MARIAN
from samples import END, START, small
from texts import CORPUS

transformers.utils.logging.disable_progress_bar()
CLOSE = {"atol": 1e-5, "rtol": 1e-6}
AROUND = {"bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), "t5": ("<pad>", "</s>", "<unk>")}
SENTINELS = tuple(f"<extra_id_{number}>" for number in range(5))


# --- tokenizers as other programs have them, made with the library's own trainers


def wordpiece() -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pipeline.normalizer = normalizers.BertNormalizer()
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=list(AROUND["bert"]), show_progress=False, min_frequency=1
    )
    pipeline.train_from_iterator(CORPUS, trainer)
    pipeline.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return pipeline


def byte_pairs() -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pipeline.train_from_iterator(CORPUS, trainer)
    return pipeline


def unigram() -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(models.Unigram())
    pipeline.normalizer = normalizers.NFKC()
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
    pipeline.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=list(AROUND["t5"]), unk_token="<unk>", show_progress=False
    )
    pipeline.train_from_iterator(CORPUS, trainer)
    pipeline.add_special_tokens(list(SENTINELS))
    pipeline.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return pipeline


def pieces_with_bytes() -> tokenizers.Tokenizer:
    """Llama's: joined pairs over the whole text with a sign for spaces, bytes for what is unknown."""
    specials = ["<unk>", "<s>", "</s>"]
    learner = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=[*specials, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    learner.train_from_iterator(CORPUS, trainer)
    content = json.loads(learner.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in specials]
    content["model"] |= {"byte_fallback": True, "fuse_unk": True}
    pipeline = tokenizers.Tokenizer.from_str(json.dumps(content))
    pipeline.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pipeline.pre_tokenizer = None
    pipeline.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    pipeline.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return pipeline


NAMES = {
    "bert": {
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    },
    "gpt2": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"},
    "t5": {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
    "llama": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
}
MAKERS = {"bert": wordpiece, "gpt2": byte_pairs, "t5": unigram, "llama": pieces_with_bytes}


@pytest.fixture(scope="session", name="pipelines")
def make_pipelines() -> dict[str, tokenizers.Tokenizer]:
    return {name: make() for name, make in MAKERS.items()}


def put_tokenizer(path: Path, name: str, pipeline: tokenizers.Tokenizer, **settings: object) -> None:
    path.mkdir(exist_ok=True)
    pipeline.save(str(path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **NAMES[name], **settings}
    (path / "tokenizer_config.json").write_text(json.dumps(config))


# --- models


def shaken(model: torch.nn.Module) -> torch.nn.Module:
    """Fresh norms and biases are all ones and zeros, which would hide one that is used wrongly."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in filter(lambda each: each.requires_grad, model.parameters()):  # not Marian's waves
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


BERT_SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
}
LABELS = {0: "good", 1: "bad", 2: "neither"}


def bert(kind: str, **more: object) -> torch.nn.Module:
    labels = (
        {} if kind in ("BertForMaskedLM", "BertForQuestionAnswering", "BertModel") else {"id2label": LABELS}
    )
    config = BertConfig(vocab_size=310, **BERT_SHAPE, **labels, **more)
    return getattr(transformers, kind)(config)


def gpt2(**more: object) -> torch.nn.Module:
    shape = {"n_positions": 20, "n_embd": 16, "n_layer": 3, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=320, **shape, **more))


def neox(**more: object) -> torch.nn.Module:
    """Half of its eight channels a head rotate."""
    shape = {"num_attention_heads": 2, "num_key_value_heads": None, "bos_token_id": 0, "eos_token_id": 0}
    rope = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
    return causal("GPTNeoX", **{"rope_parameters": rope, **shape, **more}, vocab_size=320)


def llama(**more: object) -> torch.nn.Module:
    return causal("Llama", **{"pad_token_id": None, **more})


def causal(kind: str, **more: object) -> torch.nn.Module:
    """A relative of Llama, by the name of its classes."""
    shape = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }
    config = getattr(transformers, f"{kind}Config")(**{"vocab_size": 500, **shape})
    return getattr(transformers, f"{kind}ForCausalLM")(config)


def encoder(kind: str, task: str, **more: object) -> torch.nn.Module:
    """A relative of BERT, by the name of its classes and of what it is for."""
    labels = {"id2label": LABELS} if "Classification" in task else {}
    config = getattr(transformers, f"{kind}Config")(vocab_size=310, **more, **labels)
    return getattr(transformers, f"{kind}For{task}")(config)


def roberta(task: str, kind: str = "Roberta", **more: object) -> torch.nn.Module:
    return encoder(kind, task, **{**BERT_SHAPE, "type_vocab_size": 1, "pad_token_id": 1, **more})


def mpnet(task: str, **more: object) -> torch.nn.Module:
    return encoder("MPNet", task, **{**BERT_SHAPE, "hidden_size": 20, "pad_token_id": 1, **more})


def distilbert(task: str, **more: object) -> torch.nn.Module:
    shape = {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24, "max_position_embeddings": 20}
    return encoder("DistilBert", task, **shape, **more)


def t5(gated: bool = False, own_output: bool = False, **more: object) -> torch.nn.Module:
    config = T5Config(
        vocab_size=256,
        d_model=16,
        d_kv=5,
        d_ff=24,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=not gated,
        decoder_start_token_id=0,
        **more,
    )
    model = T5ForConditionalGeneration(config)
    if own_output:
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    return model


def marian() -> torch.nn.Module:
    shape = {f"{side}_{part}": n for side in ("encoder", "decoder") for part, n in MARIAN_SHAPE.items()}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1}
    config = MarianConfig(
        vocab_size=256,
        d_model=16,
        max_position_embeddings=40,
        scale_embedding=True,
        activation_function="swish",
        **shape,
        **ids,
    )
    return MarianMTModel(config)


def seq2seq(kind: str, **more: object) -> torch.nn.Module:
    """A relative of Marian, by the name of its classes; no size is a power of two."""
    shape = {"attention_heads": 5, "ffn_dim": 27}
    sizes = {f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in shape.items()}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 1}
    config = getattr(transformers, f"{kind}Config")(
        **{
            "vocab_size": 259,
            "d_model": 30,
            "encoder_layers": 3,
            "decoder_layers": 2,
            "max_position_embeddings": 30,
            "forced_eos_token_id": 1,
            **sizes,
            **ids,
            **more,
        }
    )
    return getattr(transformers, f"{kind}ForConditionalGeneration")(config)


MARIAN_SHAPE = {"layers": 2, "attention_heads": 4, "ffn_dim": 24}

MODELS = {
    "fill": ("bert", lambda: bert("BertForMaskedLM")),
    "classify": ("bert", lambda: bert("BertForSequenceClassification", layer_norm_eps=1e-3)),
    "many": (
        "bert",
        lambda: bert("BertForSequenceClassification", problem_type="multi_label_classification"),
    ),
    "tag": ("bert", lambda: bert("BertForTokenClassification", hidden_act="relu")),
    "answer": ("bert", lambda: bert("BertForQuestionAnswering", hidden_act="gelu_new")),
    "gpt2": ("gpt2", gpt2),
    "gpt2 untied": (
        "gpt2",
        lambda: gpt2(
            tie_word_embeddings=False, n_inner=20, activation_function="relu", layer_norm_epsilon=1e-3
        ),
    ),
    "neox": ("gpt2", neox),
    "neox whole": (
        "gpt2",
        lambda: neox(
            use_parallel_residual=False,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0},
        ),
    ),
    "llama": ("llama", llama),
    "llama tied": (
        "llama",
        lambda: llama(
            tie_word_embeddings=True,
            head_dim=6,
            rms_norm_eps=1e-2,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        ),
    ),
    "llama 3": (
        "llama",
        lambda: llama(
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 100.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        ),
    ),
    "llama linear": (
        "llama",
        lambda: llama(rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}),
    ),
    "mistral": ("llama", lambda: causal("Mistral", sliding_window=3)),
    "qwen2": ("llama", lambda: causal("Qwen2", tie_word_embeddings=True)),
    "qwen3": ("llama", lambda: causal("Qwen3", head_dim=6)),
    "gemma": ("llama", lambda: causal("Gemma", head_dim=6)),
    "fill roberta": ("bert", lambda: roberta("MaskedLM")),
    "classify roberta": ("bert", lambda: roberta("SequenceClassification")),
    "tag roberta": ("bert", lambda: roberta("TokenClassification", "XLMRoberta", type_vocab_size=2)),
    "answer roberta": ("bert", lambda: roberta("QuestionAnswering")),
    "fill mpnet": ("bert", lambda: mpnet("MaskedLM")),
    "classify mpnet": ("bert", lambda: mpnet("SequenceClassification", hidden_act="relu")),
    "tag mpnet": ("bert", lambda: mpnet("TokenClassification")),
    "answer mpnet": ("bert", lambda: mpnet("QuestionAnswering")),
    "fill distilbert": ("bert", lambda: distilbert("MaskedLM", activation="relu")),
    "classify distilbert": ("bert", lambda: distilbert("SequenceClassification")),
    "tag distilbert": ("bert", lambda: distilbert("TokenClassification")),
    "answer distilbert": ("bert", lambda: distilbert("QuestionAnswering")),
    "t5": ("t5", t5),
    "t5 1.1": ("t5", lambda: t5(gated=True, own_output=True, num_decoder_layers=3)),
    "t5 buckets": (
        "t5",
        lambda: t5(gated=True, relative_attention_num_buckets=8, relative_attention_max_distance=6),
    ),
    "marian": ("t5", marian),
    "bart": ("t5", lambda: seq2seq("Bart")),
    "bart scaled": ("t5", lambda: seq2seq("Bart", scale_embedding=True, activation_function="relu")),
    "mbart": ("t5", lambda: seq2seq("MBart", scale_embedding=True)),
    "m2m_100": ("t5", lambda: seq2seq("M2M100")),
}
TASKS = {name: name for name in ("fill", "tag", "answer", "classify")} | {"many": "classify"}


def saved(
    path: Path, name: str, pipelines: dict[str, tokenizers.Tokenizer], **how: object
) -> torch.nn.Module:
    """A random model of transformers, saved by it, with a tokenizer that fits."""
    kind, make = MODELS[name]
    torch.manual_seed(1)
    model = shaken(make())
    model.save_pretrained(path, **how)
    put_tokenizer(path, kind, pipelines[kind])
    return model


# --- a BERT for sentence vectors

WORDS = [
    "the",
    "old",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "##s",
    "##ting",
    "dog",
    "run",
    ",",
    ".",
    "un",
    "##happy",
]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
WIDTH, LONGEST = 16, 20


def tiny_bert(path: Path, kind: str = "BertModel", shard: str = "1GB") -> Path:
    """A random BERT as transformers saves it, with a vocabulary of a few words."""
    torch.manual_seed(3)
    shape = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    config = BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=LONGEST, **shape)
    model = getattr(transformers, kind)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(path, max_shard_size=shard)
    (path / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    return path


def add_sentence_transformers(path: Path, pooling: object, *after: str, **files: object) -> Path:
    """The files of sentence-transformers beside a model."""
    steps = ["Transformer", "Pooling", *after]
    places = ["", *(f"{number}_{kind}" for number, kind in enumerate(steps) if number)]
    listed = [
        {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, place) in enumerate(zip(steps, places))
    ]
    (path / "modules.json").write_text(json.dumps(listed))
    (path / "1_Pooling").mkdir(exist_ok=True)
    (path / "1_Pooling/config.json").write_text(json.dumps(pooling))
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


# --- a Marian with our weights


def as_marian(path: Path, seed: int):
    """A small random model, and the same opened by transformers."""
    model = small(seed)
    own = TransformerConfig(width=16, layers=2, heads=4, feed_forward=24, dropout=0.0)
    content = json.loads(json.dumps(_marian_json(own, model.output.weight.shape[0])))
    (path / "config.json").write_text(json.dumps(content))
    write_weights(path, own, unique_weights(model))
    return model, MarianMTModel.from_pretrained(path).eval()


def _marian_json(own: TransformerConfig, vocabulary: int) -> dict[str, object]:
    ids = {"pad_token_id": 0, "eos_token_id": END, "bos_token_id": START, "decoder_start_token_id": START}
    return {
        "model_type": "marian",
        "vocab_size": vocabulary,
        "is_encoder_decoder": True,
        **ids,
        **MARIAN.write(own),
    }
