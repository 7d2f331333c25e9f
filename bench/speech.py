"""Speech to text: Regard against faster-whisper (CTranslate2) and transformers, same weights and files.

    python -m bench.race transcribe -m FOLDER --ctranslate2 FOLDER --files a.wav b.wav [--words]
    python -m bench.speech -m FOLDER --ctranslate2 FOLDER --files a.wav b.wav

The second compares results: token ids of the first window of each file with those of transformers (greedy,
without timestamps, float32), and the times of words with faster-whisper's. FOLDER is what `regard import`
makes of the folder of CTranslate2.
"""

from __future__ import annotations

import argparse
import difflib
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.rounds import Process, arguments, race, report, show
from regard.inputs.audio import read_sound
from regard.metrics.words import error_rates
from regard.tasks import Transcriber
from regard.tasks.transcriber import SoundWindow

Words = list[tuple[str, float, float]]
Transcribe = Callable[[str, bool], tuple[str, Words]]  # file, with times of words -> text, words
PROGRAMS = {"faster-whisper": "faster_whisper", "transformers": "transformers"}
PRECISIONS = {"faster-whisper": ["int8", "float32"], "transformers": ["float32"]}
RATE = 16000


def installed() -> list[str]:
    return [name for name, module in PROGRAMS.items() if find_spec(module) is not None]


def open_transcriber(
    program: str, precision: str, path: Path, other: Path | None, language: str, threads: int
) -> Transcribe:
    """Greedy, with timestamps, each window by itself."""
    torch.set_num_threads(threads)
    if program == "regard":
        return regard(path, precision, language)
    if program == "faster-whisper":
        return faster_whisper(other or path, precision, language, threads)
    return transformers(path, language)


def regard(path: Path, precision: str, language: str) -> Transcribe:
    model = Transcriber.load(path, precision=precision)

    def transcribe(file: str, words: bool) -> tuple[str, Words]:
        result = model.transcribe(file, language=language, word_times=words, beam=1)
        return result.text, [(each.text, each.start, each.end) for each in result.words]

    return transcribe


def faster_whisper(path: Path, precision: str, language: str, threads: int) -> Transcribe:
    from faster_whisper import WhisperModel

    model = WhisperModel(str(path), device="cpu", compute_type=precision, cpu_threads=threads)
    greedy = {"beam_size": 1, "temperature": 0.0, "condition_on_previous_text": False}

    def transcribe(file: str, words: bool) -> tuple[str, Words]:
        segments, _ = model.transcribe(file, language=language, word_timestamps=words, **greedy)
        every = list(segments)
        spoken = [word for each in every for word in each.words or []]
        times = [(word.word.strip(), word.start, word.end) for word in spoken]
        return "".join(each.text for each in every).strip(), times

    return transcribe


def transformers(path: Path, language: str) -> Transcribe:
    generate = transformers_ids(path, language, return_timestamps=True)

    def transcribe(file: str, words: bool) -> tuple[str, Words]:
        return generate(file)[1], []

    return transcribe


def transformers_ids(path: Path, language: str, **options: Any) -> Callable[[str], tuple[list[int], str]]:
    from transformers import AutoTokenizer, WhisperFeatureExtractor, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration.from_pretrained(path, dtype=torch.float32).eval()
    extract = WhisperFeatureExtractor.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    multilingual = (
        {"language": language, "task": "transcribe"} if model.generation_config.is_multilingual else {}
    )

    def generate(file: str) -> tuple[list[int], str]:
        sound = read_sound(file, RATE).astype(np.float32) / 32768
        long = {"truncation": False, "padding": "longest"} if options and len(sound) > 30 * RATE else {}
        inputs = extract(sound, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True, **long)
        ids = model.generate(**inputs, **multilingual, num_beams=1, **options)[0].tolist()
        return ids, tokenizer.decode(ids, skip_special_tokens=True).strip()

    return generate


def transcribe(given: argparse.Namespace) -> None:
    """The race: seconds of sound a second."""
    entrants = [
        (program, precision)
        for program in ("regard", *given.against)
        for precision in (given.precision if program == "regard" else PRECISIONS[program])
    ]
    opened = {
        " ".join(each): Process(
            open_transcriber, *each, given.model, given.ctranslate2, given.language, given.threads
        )
        for each in entrants
    }
    for file in given.files:
        seconds = len(read_sound(file, RATE)) / RATE
        texts: dict[str, str] = {}

        def work(name: str, file: str = file, seconds: float = seconds, texts: dict[str, str] = texts) -> int:
            texts[name], _ = opened[name](file, given.words)
            return max(1, round(seconds))

        speeds = race({name: partial(work, name) for name in opened}, given.rounds)
        first = texts[next(iter(opened))]
        more = {
            name: {"word error rate": error_rates([first], [text])["word_error_rate"]}
            for name, text in texts.items()
        }
        report(Path(file).name, speeds, given.json, "seconds/s", more)


def add_command(commands: Any) -> None:
    one = commands.add_parser("transcribe", parents=[arguments(None, 5)], add_help=False)
    add_files(one)
    one.add_argument("--words", action="store_true", help="with the times of words")
    one.add_argument("--against", nargs="*", choices=PROGRAMS, default=installed())
    one.add_argument("--precision", nargs="+", default=["auto", "float32"], help="Regard's")
    one.add_argument("--threads", type=int, default=2)
    one.set_defaults(run=transcribe)


def add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ctranslate2", type=Path, help="the folder of CTranslate2, for faster-whisper")
    parser.add_argument("--files", nargs="+", required=True)
    parser.add_argument("--language", default="en")


# --- the same results -------------------------------------------------------------------------------------


def window_ids(model: Transcriber, file: str, language: str) -> list[int]:
    """The tokens of the first window, without timestamps."""
    options = {"task": "transcribe", "timestamps": False, "word_times": False, "decode": None, "beam": 1}
    run = model.run([file], language=language, **options)
    track = run.tracks[0]
    window = SoundWindow(track, track.recording.window(), 0.0)
    (window.encoded,) = model.encoded.encode([model.folder.reader.frames(window.samples)], model.device)
    window.prompt = model.prompt(language, "transcribe", timestamps=False)
    return list(model.decode([window], run.plan)[0].tokens[len(window.prompt) :])


def differences(ours: Words, theirs: Words) -> list[float]:
    """Of the beginnings and ends of the words that both have, in order."""
    plain = [[word.strip(".,!?").lower() for word, _, _ in each] for each in (ours, theirs)]
    blocks = difflib.SequenceMatcher(None, *plain, autojunk=False).get_matching_blocks()
    pairs = [(ours[a + k], theirs[b + k]) for a, b, size in blocks for k in range(size)]
    return [abs(one[at] - two[at]) for one, two in pairs for at in (1, 2)]


def compare(given: argparse.Namespace) -> None:
    generate = transformers_ids(given.model, given.language)
    model = Transcriber.load(given.model, precision=given.precision)
    timed = regard(given.model, given.precision, given.language)
    theirs = faster_whisper(given.ctranslate2, "float32", given.language, 2) if given.ctranslate2 else None
    for file in given.files:
        row: dict[str, Any] = {"file": Path(file).name}
        expected = generate(file)[0]
        ids = window_ids(model, file, given.language)
        count = len(expected) - expected.count(model.special.end)
        row |= {
            "tokens": count,
            "equal": sum(map(int.__eq__, ids, expected)),
            "same length": len(ids) == count,
        }
        if theirs is not None:
            off = differences(timed(file, True)[1], theirs(file, True)[1])
            row |= {
                "words": len(off) // 2,
                "within 0.1 s": sum(each <= 0.1 + 1e-6 for each in off) / len(off),
            }
            row |= {"median difference": statistics.median(off), "largest": max(off)}
        show(row, given.json)


def main(words: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    add_files(parser)
    parser.add_argument("--precision", default="float32")
    compare(parser.parse_args(words))


if __name__ == "__main__":
    main()
