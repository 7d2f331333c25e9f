"""`regard tokenizer train | encode | decode`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import print_line, read_inputs, say
from regard.errors import TokenizerError

if TYPE_CHECKING:
    from regard.inputs.text import Tokenizer

app = typer.Typer(help="Train a tokenizer, encode and decode text.", no_args_is_help=True)
Model = Annotated[Path, typer.Option("--model", "-m", help="A model (folder or name), or a tokenizer.json.")]
Inputs = Annotated[list[str] | None, typer.Argument(help="Texts or files; nothing or - reads stdin.")]


@app.command("train")
def train(
    files: Annotated[list[Path], typer.Argument(help="Text files, one sentence a line.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The tokenizer.json to write.")],
    kind: Annotated[str, typer.Option(help="bpe, unigram, word or character.")] = "bpe",
    vocabulary: Annotated[int, typer.Option(help="Maximum number of tokens, bytes included.")] = 8000,
) -> None:
    """Train a tokenizer on text files.

    [bold]Example[/]

      regard tokenizer train train.en train.de -o tokenizer.json --vocabulary 8000
    """
    from regard.data.files import lines
    from regard.inputs.text import train_tokenizer
    from regard.storage import write_text

    tokenizer = train_tokenizer([line for path in files for line in lines(path)], kind, vocabulary)
    write_text(output, tokenizer.to_json())
    say(f"wrote {len(tokenizer):,} tokens to {output}")


@app.command("encode")
def encode(
    model: Model,
    text: Inputs = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print token ids instead of tokens.")] = False,
) -> None:
    """Show the tokens of each line.

    [bold]Examples[/]

      regard tokenizer encode -m runs/demo "I see the small house."
      regard tokenizer encode -m tokenizer.json train.en --ids
    """
    tokenizer = load(model)
    for line in read_inputs(text or []):
        encoded = tokenizer.encode(line)
        tokens = [token.replace(" ", "▁") for token in tokenizer.tokens(encoded)]
        print_line(" ".join(map(str, encoded) if ids else tokens))


@app.command("decode")
def decode(model: Model, numbers: Inputs = None) -> None:
    """Turn lines of token ids into text.

    [bold]Example[/]

      regard tokenizer encode -m runs/demo --ids "A house." | regard tokenizer decode -m runs/demo
    """
    tokenizer = load(model)
    for line in read_inputs(numbers or []):
        try:
            ids = [int(number) for number in line.split()]
        except ValueError:
            raise TokenizerError(f'"{line}": give token ids, separated by spaces') from None
        print_line(tokenizer.decode(ids))


def load(path: Path) -> Tokenizer:
    """The tokenizer of a file, or of a model folder or name."""
    from regard.inputs.text import load_tokenizer
    from regard.storage.models import find_model

    return load_tokenizer(path if path.is_file() or path.suffix == ".json" else find_model(path))
