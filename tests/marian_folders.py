"""Folders of Marian models as the hub has them (opus-mt): .spm files, vocabularies, random weights."""

from __future__ import annotations

import io
import json
import random
import warnings
from pathlib import Path

import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from hf_models import shaken
from texts import CORPUS

LANGUAGES = (">>fra<<", ">>deu<<", ">>zho_Hant<<")


def train(texts: list[str], kind: str, size: int, **more: object) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=out,
        vocab_size=size,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
        character_coverage=0.99,
        **more,
    )
    return out.getvalue()


def sides(kind: str = "bpe") -> tuple[bytes, bytes]:
    """A source's and a target's .spm; of the kind "bytes" with bytes for what it does not know."""
    left, right = CORPUS[:3] * 4, CORPUS[2:] * 4
    if kind == "unigram":
        return train(left, "unigram", 90), train(right, "unigram", 110)
    if kind == "bpe":
        return train(left, "bpe", 150), train(right, "bpe", 170)
    return (
        train(left, "bpe", 330, byte_fallback=True),
        train(right, "unigram", 340, byte_fallback=True, remove_extra_whitespaces=False),
    )


def pieces_of(*sides: bytes) -> list[str]:
    found: dict[str, None] = {}
    for side in sides:
        own = sentencepiece.SentencePieceProcessor.from_proto(side)
        found |= dict.fromkeys(own.id_to_piece(number) for number in range(3, len(own)))
    return list(found)


def vocabulary_of(*sides: bytes, languages: tuple[str, ...] = LANGUAGES) -> dict[str, int]:
    """In an order of its own, without some pieces that SentencePiece knows."""
    pieces = pieces_of(*sides)
    random.Random(1).shuffle(pieces)
    names = ["</s>", "<unk>", *pieces[: -len(pieces) // 15], *languages, "<pad>"]
    return {name: number for number, name in enumerate(names)}


def put_pieces(path: Path, sides: tuple[bytes, bytes], separate: bool = False, **config: object) -> None:
    path.mkdir(exist_ok=True)
    (path / "source.spm").write_bytes(sides[0])
    (path / "target.spm").write_bytes(sides[1])
    own = sides[:1] if separate else sides
    (path / "vocab.json").write_text(json.dumps(vocabulary_of(*own)))
    if separate:
        (path / "target_vocab.json").write_text(json.dumps(vocabulary_of(sides[1], languages=())))
    told = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate, **config}
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer", **told}))


def their_tokenizer(path: Path) -> MarianTokenizer:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return MarianTokenizer.from_pretrained(path)


def marian(vocabulary: int, ends: float = 6.0, **more: object) -> MarianMTModel:
    shape = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 12}
    for side in ("encoder", "decoder"):
        shape |= {f"{side}_attention_heads": 3, f"{side}_ffn_dim": 17}
    pad = dict.fromkeys(("pad_token_id", "decoder_start_token_id"), vocabulary - 1)
    usual = {"init_std": 0.7}  # or all texts would be translated alike
    pad |= {"eos_token_id": 0, "forced_eos_token_id": 0, "max_position_embeddings": 61}
    usual |= {"vocab_size": vocabulary, "scale_embedding": True, "activation_function": "swish"}
    torch.manual_seed(1)
    model = MarianMTModel(MarianConfig(**{**usual, **shape, **pad, **more}))
    model.final_logits_bias.normal_(std=0.3)[0, 0] += ends  # some texts end before the limit
    return shaken(model)


SHAPES = {
    "usual": {},
    "relu": {"activation_function": "relu", "scale_embedding": False, "init_std": 2.0, "ends": 25.0},
    "gelu": {
        "activation_function": "gelu",
        "d_model": 14,
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 7),
    },
    "gelu_new": {"activation_function": "gelu_new", "encoder_layers": 1, "decoder_layers": 3, "ends": 8.0},
    "untied": {"tie_word_embeddings": False},
    "apart": {"share_encoder_decoder_embeddings": False, "ends": 3.0},
    "apart untied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
}


def saved(
    path: Path, sides: tuple[bytes, bytes], shape: str = "usual", longest: int = 61, **rules: object
) -> MarianMTModel:
    """A folder as the hub has it, of a random model."""
    more = {**SHAPES[shape], "max_position_embeddings": longest}
    apart = "apart" in shape
    put_pieces(path, sides, separate=apart)
    size = len(json.loads((path / "vocab.json").read_text()))
    if apart:
        other = len(json.loads((path / "target_vocab.json").read_text()))
        more |= {"decoder_vocab_size": other, "decoder_start_token_id": other - 1}
    model = marian(size, **more)
    pad = model.config.decoder_start_token_id
    bad = [[pad], [9, 10], [11, 12, 13]]
    model.generation_config.update(**{"bad_words_ids": bad, **rules})
    model.save_pretrained(path)
    return model
