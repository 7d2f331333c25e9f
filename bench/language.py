"""A character model of Shakespeare here and in nanoGPT: the loss over all held-out text, and the time.

python -m bench.language --nanogpt FOLDER --text tinyshakespeare.txt [--steps 2000] [--set train.lr=4e-3]

FOLDER is a copy of nanoGPT. Both train in its setting for a CPU (4 layers, 4 heads, width 128, 64 characters,
12 windows a batch), a hundred updates interleaved in one process, so noise hits both alike. Then both are
asked for every character of the last tenth of the text, in windows of 64 one after another.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from bench.rounds import arguments, show
from regard.config import load_config
from regard.device import choose_machine
from regard.models.families import parameters
from regard.training.evaluation import log_probabilities, mean_loss
from regard.training.prepare import prepare_data
from regard.training.run import make_trainer

BLOCK, BATCH, TURN = 64, 12, 100
RECIPE = Path(__file__).parent.parent / "recipes" / "tinyshakespeare.toml"


class Theirs:
    """nanoGPT's model and optimiser with the settings of its README for a CPU."""

    def __init__(self, module: ModuleType, text: str, steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.steps, self.step = steps, 0
        signs = sorted(set(text))
        number = {sign: place for place, sign in enumerate(signs)}
        ids = np.array([number[sign] for sign in text], dtype=np.uint16)
        cut = int(0.9 * len(ids))
        self.train, self.valid = ids[:cut], ids[cut:]
        shape = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": BLOCK, "dropout": 0.0, "bias": False}
        self.model = module.GPT(module.GPTConfig(**shape, vocab_size=len(signs)))
        self.optimizer = self.model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")

    def rate(self) -> float:
        """Its schedule: 100 updates up to 1e-3, then half a cosine down to 1e-4."""
        if self.step < 100:
            return 1e-3 * (self.step + 1) / 101
        share = (self.step - 100) / (self.steps - 100)
        return 1e-4 + 0.5 * (1 + math.cos(math.pi * share)) * 9e-4

    def update(self) -> None:
        places = torch.randint(len(self.train) - BLOCK, (BATCH,)).tolist()
        rows = np.stack([self.train[place : place + BLOCK + 1] for place in places]).astype(np.int64)
        x, y = torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        _, loss = self.model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1

    @torch.no_grad()
    def loss(self) -> float:
        """Over all of the held-out text, in windows one after another."""
        self.model.eval()
        total, count = 0.0, 0
        ids = torch.from_numpy(self.valid.astype(np.int64))
        for start in range(0, len(ids) - 1, BLOCK):
            y = ids[start + 1 : start + 1 + BLOCK][None]
            _, loss = self.model(ids[start : start + y.shape[1]][None], y)
            total, count = total + float(loss) * y.shape[1], count + y.shape[1]
        return total / count


def timed(update: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        update()
    return time.perf_counter() - began


def main() -> None:
    options = arguments(__doc__, model=False)
    options.add_argument("--nanogpt", type=Path, required=True)
    options.add_argument("--text", type=Path, required=True)
    options.add_argument("--steps", type=int, default=2000, help="nanoGPT's updates")
    options.add_argument("--ours", type=int, help="our updates; else as many")
    options.add_argument("--set", action="append", default=[], help="fields of our run")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    source = importlib.util.spec_from_file_location("nanogpt", given.nanogpt / "model.py")
    module = importlib.util.module_from_spec(source)
    sys.modules["nanogpt"] = module
    source.loader.exec_module(module)
    text = given.text.read_text(encoding="utf-8")
    theirs = Theirs(module, text, given.steps, given.seed)
    with tempfile.TemporaryDirectory() as place:
        folder, cut = Path(place), int(0.9 * len(text))
        (folder / "train.txt").write_text(text[:cut], encoding="utf-8")
        (folder / "valid.txt").write_text(text[cut:], encoding="utf-8")
        steps = given.ours or given.steps
        changes = [f"data.{split}={folder / split}.txt" for split in ("train", "valid")]
        changes += [f"train.steps={steps}", f"train.seed={given.seed}", *given.set]
        config = load_config(RECIPE, changes)
        machine = choose_machine(precision=config.train.precision, width=config.model.width)
        machine.use()
        ours = make_trainer(config, folder, prepare_data(config, folder, lambda text: None), machine)
        seconds = {"theirs": 0.0, "ours": 0.0}
        for turn in range(0, max(given.steps, steps), TURN):
            seconds["theirs"] += timed(theirs.update, max(0, min(TURN, given.steps - turn)))
            seconds["ours"] += timed(ours.update, max(0, min(TURN, steps - turn)))
        valid = ours.data.valid
        own = mean_loss(log_probabilities(ours.model.eval(), valid.samples))
        row = {
            "nanogpt": {"steps": given.steps, "seconds": seconds["theirs"], "loss": theirs.loss()},
            "regard": {"steps": steps, "seconds": seconds["ours"], "loss": own},
            "ratio": seconds["ours"] / seconds["theirs"],
        }
        row["regard"] |= {"parameters": parameters(ours.model), "precision": machine.precision}
        show(row, given.json)


if __name__ == "__main__":
    main()
