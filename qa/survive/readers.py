"""Fuzzing of every reader: files changed at random give our own errors, in little time and memory.

Seeds are written here; a change knows the form of its file: lines, columns, JSON, tags of XML, bytes.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sentencepiece import SentencePieceTrainer

from qa.hostile.folders import bytes_mutated, json_mutated, weights_mutated
from qa.result import Result
from regard.config import Task, load_config
from regard.data.corpora import CorpusSpec, read_rows
from regard.data.formats import open_document, read_pairs
from regard.data.report import DataReport
from regard.errors import RegardError
from regard.inputs.text import load_tokenizer, train_tokenizer
from regard.interpret import Trace
from regard.storage.importing import import_folder

LONGEST = 1.0  # seconds of the processor that a case may take
MEMORY = 96 << 20  # bytes that all cases together may add to the process
TASK = Task(name="translate", source="en", target="de")
PO = """\
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"

#, fuzzy
msgid "a house"
msgstr "ein Haus"

msgctxt "door"
msgid "one %d"
msgid_plural "many %d"
msgstr[0] "ein %d"
msgstr[1] "viele %d"
"""
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header srclang="en" datatype="plaintext"/><body>
<tu><tuv xml:lang="en-US"><seg>a <bpt i="1">x</bpt>house</seg></tuv>
<tuv xml:lang="de"><seg>ein Haus</seg></tuv></tu>
</body></tmx>
"""
XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en"
 target-language="de" datatype="plaintext"><body><trans-unit id="1"><source>a <g id="1">house</g></source>
<target>ein <g id="1">Haus</g></target></trans-unit></body></file></xliff>
"""
SRT = "1\n00:00:01,000 --> 00:00:02,500\na house\n\n2\n00:00:03,000 --> 00:00:04,000\n<i>a door</i>\n"
CONLL = "-DOCSTART- -X- O\n\nAnna NNP B-PER\nsleeps VBZ O\n\nBonn NNP B-LOC\n"
SQUAD = {
    "version": "2.0",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "a red house",
                    "qas": [
                        {"id": "1", "question": "what?", "answers": [{"text": "house", "answer_start": 6}]},
                        {"id": "2", "question": "who?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ],
}
TOML = """\
[task]
name = "translate"
[data]
train = [["a.en", "a.de"], {corpus = "b.tsv", weight = 0.5}]
[model]
preset = "transformer-tiny"
dropout = 0.1
[train]
steps = 100
betas = [0.9, 0.98]
[decode]
beam = 4
"""
ODD = (
    b"\xff",
    b"\0",
    b"\xef\xbb\xbf",
    b"\r",
    b"\xe2\x80\xa8",
    b"\t",
    b"\n",
    b"\x1b[2J",
    b"\xed\xa0\x80",
    b'"',
)
PLURALS = (b"nplurals=999999999; plural=0;", b"nplurals=2; plural=5/(n-1);", b"nplurals=2; plural=n%0;")
MARKS = (b"<x>", b"</x>", b"<!DOCTYPE a [<!ENTITY e 'x'>]>", b"&e;", b"<!--", b"<![CDATA[", b"&#0;", b"\\x")


@dataclass(frozen=True)
class Reader:
    """A file that is good, and what reads it."""

    name: str  # of the file
    content: bytes
    read: Callable[[Path], object]
    beside: tuple[tuple[str, bytes], ...] = ()


def rows(task: str, **fields: object) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        own = Task(name=task, source="en", target="de", **fields)  # type: ignore[arg-type]
        return [*read_rows(CorpusSpec(str(path)), own, "train", DataReport())]

    return read


def document(path: Path) -> object:
    list(read_pairs(path, TASK)) if path.suffix != ".srt" else None
    found = open_document(path, TASK)
    for unit in found.units(everything=True):
        if all(unit.fits(number, "x") for number in range(len(unit.sources))):
            unit.fill(["x"] * len(unit.sources), True)
        else:
            unit.leave()
    return found.content()


def tokens(path: Path) -> object:
    tokenizer = load_tokenizer(path)
    return tokenizer.decode(tokenizer.encode("a b, é1\n漢 ab"))


def readers() -> list[Reader]:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["a b ab", "cde, ab ab"] * 20),
        model_writer=model,
        vocab_size=20,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    pieces = ["</s>", "<unk>", *"▁abcde,", "<pad>"]
    spm = (
        ("source.spm", model.getvalue()),
        ("target.spm", model.getvalue()),
        ("vocab.json", json.dumps({piece: number for number, piece in enumerate(pieces)}).encode()),
    )
    pairs = b"a house\tein Haus\nthe door\tdie T\xc3\xbcr\n" * 3
    labels = b'{"text": "a house", "label": "good"}\n{"text": "b", "label": ["bad", "good"]}\n'
    tagged = b'{"tokens": ["Anna", "sleeps"], "tags": ["B-PER", "O"]}\n'
    squad = json.dumps(SQUAD).encode()
    return [
        Reader("a.tsv", pairs, rows("translate")),
        Reader("b.jsonl", b'{"source": "a", "target": "b"}\n{"en": "a", "de": "b"}\n', rows("translate")),
        Reader("c.tsv", b"good\ta house\nbad\ta door\n", rows("classify")),
        Reader("d.jsonl", labels, rows("classify", multi_label=True)),
        Reader("e.conll", CONLL.encode(), rows("tag")),
        Reader("f.jsonl", tagged, rows("tag")),
        Reader("g.json", squad, rows("answer")),
        Reader("h.txt", b"a house\n\na door and\nmore\n", rows("generate")),
        Reader("i.tsv.gz", gzip.compress(pairs), rows("translate")),
        Reader("j.po", PO.encode(), document),
        Reader("k.tmx", TMX.encode(), document),
        Reader("l.xliff", XLIFF.encode(), document),
        Reader("m.srt", SRT.encode(), document),
        Reader("n.po.gz", gzip.compress(PO.encode()), document),
        Reader("o.toml", TOML.encode(), load_config),
        Reader(
            "tokenizer.json", train_tokenizer(["a b ab", "cd e"] * 5, "bpe", 300).to_json().encode(), tokens
        ),
        Reader("source.spm", model.getvalue(), tokens, spm),
        Reader("p.safetensors", a_trace(), Trace.load),
        Reader("q.gguf", a_gguf(), imported),
    ]


def imported(path: Path) -> object:
    with tempfile.TemporaryDirectory() as name:
        return import_folder(path, Path(name) / "out")


def a_gguf() -> bytes:
    """Of the smallest Llama, with a vocabulary of pieces."""
    from gguf import GGUFWriter

    tokens = ["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁a"]
    numbers = {"context_length": 8, "embedding_length": 4, "block_count": 1, "feed_forward_length": 4}
    shapes: dict[str, tuple[int, ...]] = {f"attn_{name}": (4, 4) for name in ("q", "k", "v", "output")}
    shapes |= {f"ffn_{name}": (4, 4) for name in ("gate", "up", "down")}
    shapes |= {"attn_norm": (4,), "ffn_norm": (4,)}
    with tempfile.TemporaryDirectory() as name:
        writer = GGUFWriter(Path(name) / "a.gguf", "llama")
        for field, value in (numbers | {"attention.head_count": 2}).items():
            writer.add_uint32(f"llama.{field}", value)
        writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_types([2, 3, 3, 1, 1, 1, 1, 1])
        writer.add_token_scores([-float(number) for number in range(8)])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_tensor("token_embd.weight", np.zeros((8, 4), np.float32))
        writer.add_tensor("output_norm.weight", np.zeros(4, np.float32))
        for part, shape in shapes.items():
            writer.add_tensor(f"blk.0.{part}.weight", np.zeros(shape, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return (Path(name) / "a.gguf").read_bytes()


def a_trace() -> bytes:
    """A small one, made by hand."""
    from regard.interpret import TracedTokens

    own = TracedTokens((5, 6), ("a", "b"), (0, 1))
    tensors = {"encoder.embedding.sum": torch.zeros(2, 4)}
    return Trace(tensors, {"source": own}, "b", {"family": "gpt", "task": "generate"}, (), {}).to_bytes()


# --- changes


def changed(reader: Reader, chance: random.Random) -> bytes:
    """One to three changes of the seed."""
    content = reader.content
    packed = reader.name.endswith(".gz") and chance.random() < 0.7
    content = gzip.decompress(content) if packed else content
    for _ in range(chance.choice([1, 1, 2, 3])):
        content = one_change(reader.name, content, chance)[: 1 << 20]
    return gzip.compress(content, 1) if packed else content


def one_change(name: str, content: bytes, chance: random.Random) -> bytes:
    kind, ways = Path(name).suffix, list[Callable[[], bytes]]()
    if kind in (".json", ".jsonl"):
        ways.append(lambda: in_json(content, chance))
    if kind in (".tmx", ".xliff"):
        ways += [lambda: in_marks(content, chance)] * 2
    if kind == ".po":
        ways.append(lambda: re.sub(rb"nplurals=.*?;.*?;", chance.choice(PLURALS), content))
    if kind == ".safetensors":
        ways.append(lambda: weights_mutated(content, chance))
    if kind not in (".spm", ".safetensors", ".gguf"):
        ways += [lambda: in_lines(content, chance), lambda: odd_signs(content, chance)]
    ways.append(lambda: bytes_mutated(content, chance))
    try:
        return chance.choice(ways)()
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, OSError):
        return bytes_mutated(content, chance)  # an earlier change left nothing to parse
    except Exception as error:
        if type(error).__name__ == "error":  # of struct
            return bytes_mutated(content, chance)
        raise


def in_json(content: bytes, chance: random.Random) -> bytes:
    lines = content.split(b"\n")
    at = chance.choice([number for number, line in enumerate(lines) if line.strip()])
    lines[at] = json_mutated(json.loads(lines[at]), chance)
    return b"\n".join(lines)


def in_marks(content: bytes, chance: random.Random) -> bytes:
    """A tag or an attribute of XML goes, comes twice, or changes places with another."""
    tags = [found.span() for found in re.finditer(rb"<[^>]*>|\"[^\"]*\"", content)]
    (a, b), (c, d) = sorted(chance.sample(tags, 2))
    return chance.choice(
        [
            content[:a] + content[b:],
            content[:b] + content[a:b] * chance.choice([1, 200]) + content[b:],
            content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:] if b <= c else content[:a],
            content[:a] + chance.choice(MARKS) + content[a:],
            content[:b] + chance.choice(MARKS) * 50 + content[b:],
        ]
    )


def in_lines(content: bytes, chance: random.Random) -> bytes:
    """Lines and columns go, come twice, or change places."""
    lines = content.split(b"\n")
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    columns = re.split(rb"([\t =])", lines[at])
    way = chance.randrange(5)
    if way == 0:
        del lines[at]
    elif way == 1:
        lines[at:at] = [lines[to]] * chance.choice([1, 3, 100])
    elif way == 2:
        lines[at], lines[to] = lines[to], lines[at]
    elif way == 3:
        chance.shuffle(columns)
        lines[at] = b"".join(columns)
    else:
        lines[at] += chance.choice([b"\t", b" ", b"=", b'"', b"x" * 70_000])
    return b"\n".join(lines)


def odd_signs(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.choice(ODD) * chance.choice([1, 1, 2, 500]) + content[at:]


# --- the trial


def cases(count: int, seed: int, first: int = 0) -> Iterator[tuple[str, Reader, bytes]]:
    listed = readers()
    for number in range(first, first + count):
        chance = random.Random(f"reader {seed} {number}")
        reader = listed[number % len(listed)]
        yield f"{number} {reader.name}", reader, changed(reader, chance)


def read(reader: Reader, content: bytes, place: Path) -> tuple[str, float]:
    """What came out, and the seconds of the processor: "read" and "refused" are good."""
    for name, other in reader.beside:
        (place / name).write_bytes(other)
    path = place / reader.name
    path.write_bytes(content)
    began = time.process_time()
    try:
        reader.read(path)
        outcome = "read"
    except RegardError as error:
        said = str(error)
        fine = len(said) < 5000 and all(line.isprintable() for line in said.split("\n"))
        outcome = "refused" if fine else f"said {said[:200]!r}"
    except BaseException as error:
        outcome = f"{type(error).__name__}: {str(error)[:200]}"
    return outcome, time.process_time() - began


def fuzz(count: int, seed: int) -> Result:
    """In this process: a crash of it is a failure that cannot be missed."""
    wrong, slowest, slow_case, opened = list[str](), 0.0, "", 0
    with tempfile.TemporaryDirectory() as name:
        errors = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries print about what they read
        try:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for case, reader, content in cases(count, seed):
                outcome, seconds = read(reader, content, Path(name))
                opened += outcome == "read"
                if seconds > slowest:
                    slowest, slow_case = seconds, case
                if outcome not in ("read", "refused") or seconds > LONGEST:
                    wrong.append(f"case {case}, seed {seed}: {outcome} ({seconds:.2f} s)")
            grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        finally:
            os.dup2(errors, 2)
            os.close(errors)
    if grown > MEMORY:
        wrong.append(f"the process grew by {grown >> 20} MiB")
    figure = f"{count} files for {len(readers())} readers: {len(wrong)} other errors, slowest {slowest:.2f} s"
    more = {"read": opened, "slowest": slow_case, "grown_MiB": grown >> 20}
    return Result("readers", count, len(wrong), figure, seed, more, wrong)


if sys.platform == "win32":
    raise SystemExit("the memory of a process is measured as Unix does")
