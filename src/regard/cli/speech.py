"""`regard transcribe`: files of speech, stdin, or a file that is still being recorded."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.media import FileCommand, files_in
from regard.cli.terminal import OneModelOrBuiltin, json_line, one_line, open_stdin, print_line, put_lines, say
from regard.errors import UsageError
from regard.tasks.subtitles import FORMS, cue, rendered, shown_segments

if TYPE_CHECKING:
    from regard.tasks import SpokenSegment, Transcription
    from regard.tasks.subtitles import TextForm

AT_ONCE = 8  # files that are transcribed together
POLL = 0.5  # seconds between two looks at a file that grows


@dataclass
class TranscribeCommand(FileCommand):
    name = "transcribe"
    model_type = OneModelOrBuiltin  # of spoken digits
    model_default = None
    progress = ("transcribing", "transcriptions")
    notes_on = """
        Prints the text of each file; with [bold]--format srt[/] or [bold]vtt[/] subtitles, with
        [bold]--words[/] one for each word. The suffix of [bold]-o[/] names the format, too. `-` reads the
        bytes of one file from stdin. With [bold]--follow[/] a WAV file may still be growing: each segment is
        printed as soon as its window is complete.
    """
    examples = """
        regard transcribe -m models/whisper-base talk.mp3
        regard transcribe -m models/whisper-base talk.mp3 -o talk.srt --language de
        regard transcribe -m models/whisper-base recording.wav --words --format json
        ffmpeg -i film.mkv -f wav - | regard transcribe -m models/whisper-base - --format vtt
    """
    argument_type = Annotated[
        list[str] | None,
        typer.Argument(help="Files of speech (WAV, FLAC, OGG, MP3), or folders of them; - is stdin."),
    ]

    form: Annotated[
        Literal["text", "srt", "vtt", "json"] | None,
        typer.Option("--format", help="Default: by the suffix of -o, else text."),
    ] = None
    words: Annotated[bool, typer.Option("--words", help="Times of words instead of segments.")] = False
    follow: Annotated[bool, typer.Option("--follow", help="Read a WAV file while it grows.")] = False
    patience: Annotated[
        float, typer.Option(min=0, help="With --follow: end after so many seconds without growth.")
    ] = 10.0
    written: int = field(init=False, default=0)

    def run(self) -> None:
        suffix = "" if self.output is None else self.output.suffix.lower().lstrip(".")
        by_suffix: TextForm = next((each for each in FORMS if each == suffix), "text")
        self.form = "json" if self.as_json else self.form or by_suffix
        self.as_json = False  # one JSON for both names of the option
        if self.words:
            self.options["word_times"] = True
        if self.follow:
            self.follow_file()
        else:
            super().run()

    def read(self) -> Iterable[Any]:
        from regard.tasks.task_model import NamedFile

        if not self.names:
            raise UsageError("give a file of speech, or - for stdin", code="E_INPUT_MISSING")
        for name in self.names:
            if name == "-":
                yield NamedFile("stdin", read_stdin_bytes())
            elif Path(name).is_dir():
                yield from files_in(Path(name), "audio")
            else:
                yield name

    @property
    def at_once(self) -> int:
        return AT_ONCE

    def lines(self, number: int, result: Transcription) -> list[str]:
        assert self.form is not None
        if self.form == "json":
            return [json_line(self.row(number, result))]
        shown = rendered(result, self.form, self.words).split("\n")
        if self.form == "text":
            return self.text_lines(result)
        shown = [*([""] if self.written else []), *shown]
        self.written += 1
        return shown

    def text_lines(self, result: Transcription) -> list[str]:
        if not self.words:
            line = one_line(result.text)
            return [line if self.names == ["-"] else self.named(line, result.file)]
        return [timed_line(each) for each in shown_segments(result, words=True)]

    # --- a file that grows --------------------------------------------------------------------------------

    def follow_file(self) -> None:
        from regard.inputs.growing import growing_blocks
        from regard.tasks.task_model import NamedFile

        if len(self.names) != 1 or self.names[0] == "-" or self.form == "json":
            raise UsageError("--follow reads one file, and prints text, srt or vtt", code="E_FOLLOW")
        self.open()
        path = Path(self.names[0])
        blocks = growing_blocks(path, self.task.audio.sample_rate, Patience(path, self.patience))
        run = self.task.run([NamedFile(str(path), blocks)], warn=say, **self.options)
        if self.form == "vtt":
            print_line("WEBVTT\n")
        track = run.tracks[0]
        try:
            while not run.done:
                run.advance()
                self.print_new(run.result(track))
        except KeyboardInterrupt:
            say("stopped")
        if self.output is not None:
            put_lines(rendered(run.result(track), self.form or "text", self.words).split("\n"), self.output)

    def print_new(self, result: Transcription) -> None:
        """The segments or words that are not printed yet."""
        every = shown_segments(result, self.words)
        for number, segment in enumerate(every[self.written :], self.written + 1):
            if self.form == "text":
                print_line(timed_line(segment) if self.words else one_line(segment.text), flush=True)
            else:
                print_line("\n".join(cue(segment, number, self.form)), flush=True)  # type: ignore[arg-type]
        self.written = len(every)


def timed_line(segment: SpokenSegment) -> str:
    return f"{segment.start:.2f}\t{segment.end:.2f}\t{one_line(segment.text)}"


def read_stdin_bytes() -> bytes:
    from regard.inputs.media import LIMITS

    content = open_stdin().read(LIMITS.bytes + 1)
    if len(content) > LIMITS.bytes:
        raise UsageError(f"stdin: more than {LIMITS.bytes:,} bytes; write it to a file", code="E_FILE_SIZE")
    return content


class Patience:
    """Waits for a file to grow; False after so many seconds without any of it."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self.size, self.since = -1, time.monotonic()

    def __call__(self) -> bool:
        time.sleep(POLL)
        size = self.path.stat().st_size
        if size != self.size:
            self.size, self.since = size, time.monotonic()
        return time.monotonic() - self.since < self.seconds
