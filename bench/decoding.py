"""Decoding speed against transformers.generate: same weights, same sources, exactly as many target tokens.

python bench/decoding.py [--shapes tiny base] [--rounds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from race import ours, race, report, shape
from regard.config import Decode
from regard.device import choose_machine
from regard.generation import Request, SpecialTokens
from regard.generation.engine import make_engine
from regard.generation.search import BeamSearch
from regard.storage import unique_weights, write_weights
from regard.storage.huggingface.marian import write as marian_fields

VOCABULARY, SOURCE, TARGET = 10_000, 25, 32


def opened_by_transformers(name: str, model: torch.nn.Module) -> torch.nn.Module:
    """The same weights in MarianMTModel, through a model folder."""
    from transformers import MarianConfig, MarianMTModel

    config = shape(name).model
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "decoder_start_token_id": 2}
    with tempfile.TemporaryDirectory() as folder:
        write_weights(Path(folder), config, unique_weights(model))
        fields = {**marian_fields(config), **ids, "vocab_size": VOCABULARY, "forced_eos_token_id": None}
        MarianConfig(**fields).save_pretrained(folder)
        return MarianMTModel.from_pretrained(folder).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["tiny", "base"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    choose_machine().use()
    torch.manual_seed(0)
    for name in options.shapes:
        model = ours(name, VOCABULARY).eval()
        theirs = opened_by_transformers(name, model)
        engine = make_engine(model)  # what every command and `regard.load` use
        for rows, beam in ((1, 1), (1, 4), (32, 1), (32, 4)):
            ids = torch.randint(4, VOCABULARY, (rows, SOURCE)).tolist()
            decode = Decode(beam=beam, min_length=TARGET, max_length=TARGET)
            requests = [Request(row, decode) for row in ids]
            special = SpecialTokens(2, 1, (0, 2, 3))

            def own(requests=requests, special=special, rows=rows, engine=engine) -> int:
                search = BeamSearch(engine, special, torch.device("cpu"), requests[0].key)
                found = search.run(requests)
                if any(len(each[0].tokens) != TARGET for each in found):
                    raise RuntimeError("not the number of tokens that was asked for")
                return rows * TARGET

            def other(ids=ids, beam=beam, rows=rows, theirs=theirs) -> int:
                with torch.inference_mode():
                    theirs.generate(
                        input_ids=torch.tensor(ids),
                        num_beams=beam,
                        min_new_tokens=TARGET,
                        max_new_tokens=TARGET,
                        do_sample=False,
                    )
                return rows * TARGET

            speeds = race({"regard": own, "transformers": other}, options.rounds)
            report(f"decoding {name} {rows}x beam {beam}", speeds, "regard", ["transformers"])


if __name__ == "__main__":
    main()
