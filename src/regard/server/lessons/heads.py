"""“Thinking Machines”, steps 1 to 6, then eight heads and W_O. Random weights of a stated seed."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.models.attention import MultiHeadAttention, masked_softmax, scores
from regard.server.lessons.content import fmt, formula, matrix, table
from regard.server.lessons.given import Given, Ledger, all_visible, compare_times, race, seeded
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

WORDS = ("Thinking", "Machines")
WIDTH, HEADS, CHANNELS = 512, 8, 64
SEED = 8
SPEED_WORDS = 256
CLAIM = "eight heads “to speed up”"


def machine(heads: int = HEADS, channels: int = CHANNELS) -> MultiHeadAttention:
    """The paper's attention with weights of variance 1/512, so that queries and keys are of unit size."""
    with torch.random.fork_rng(devices=[]):  # others' dice stay as they lie
        torch.manual_seed(SEED)
        attention = MultiHeadAttention(WIDTH, heads, channels, bias=False)
        for weight in attention.parameters():
            torch.nn.init.normal_(weight, std=WIDTH**-0.5)
    return attention.eval()


def embeddings(words: int = 2) -> Tensor:
    """Random vectors of unit variance: [1,T,D]."""
    return torch.randn(1, words, WIDTH, generator=seeded(SEED))


@torch.no_grad()
def walk() -> dict[str, Tensor]:
    """All numbers of the walk for both words: q, k, v [H,T,C], products, shares, mixed, output."""
    attention, x = machine(), embeddings()
    q, k, v = attention.queries_keys_values(x)
    products = scores(q, k, scale=1.0)
    divided = scores(q, k)
    mask = all_visible(2, 2)
    shares = masked_softmax(divided, mask)
    tensors = {"q": q, "k": k, "v": v, "products": products, "divided": divided, "shares": shares}
    tensors |= {"mixed": shares @ v, "output": attention(q, k, v, mask[None, None]), "x": x}
    return {name: tensor[0] for name, tensor in tensors.items()}


def first_numbers(caption: str, rows: dict[str, Tensor], count: int = 4) -> dict[str, object]:
    columns = ["", *(f"number {place + 1}" for place in range(count)), ""]
    return table(caption, columns, [[name, *row[:count].tolist(), "…"] for name, row in rows.items()], 3)


def embed(_: Given, ledger: Ledger) -> LessonStep:
    tensors, attention = ledger(walk), ledger(machine)
    ledger.note(attention.queries_keys_values)
    size = attention.query.weight.numel() // HEADS
    return LessonStep(
        "1. Embed, 2. make q, k and v",
        [
            f"Two words, “Thinking” and “Machines”, as in the paper's base model: vectors of {WIDTH} "
            f"numbers, {HEADS} heads of {CHANNELS} numbers each. The weights are random (seed {SEED}), so "
            "the numbers mean nothing; the steps are the real ones.",
            f"Each head has three matrices. W_Q makes a query of {CHANNELS} numbers out of a vector of "
            f"{WIDTH}.",
        ],
        NumberQuestion("How many numbers has the matrix W_Q of one head?", size, 0.5, 0),
        "512 · 64 = 32,768: one row for each number of the word, one column for each number of the query.",
        before=formula("q = x W_Q      k = x W_K      v = x W_V"),
        after=[
            first_numbers("Embeddings x, 512 numbers each", dict(zip(WORDS, tensors["x"]))),
            first_numbers(
                "Head 0, 64 numbers each",
                {
                    f"{name} of {word}": tensors[name][0, place]
                    for place, word in enumerate(WORDS)
                    for name in "qkv"
                },
            ),
        ],
    )


def divide(_: Given, ledger: Ledger) -> LessonStep:
    tensors = ledger(walk)
    ledger.note(scores)
    one, two = tensors["products"][0, 0].tolist()
    return LessonStep(
        "3. Score, 4. divide by 8",
        [
            "“Thinking” asks both words: its query times the key of each. In head 0 the products are "
            f"q₁ · k₁ = {fmt(one)} and q₁ · k₂ = {fmt(two)}.",
            "They are divided by the square root of the size of a key.",
        ],
        NumberQuestion("What is the first score after the division?", one / 8, 0.051),
        f"√64 = 8, and {fmt(one)} / 8 = {fmt(one / 8)}.",
        after=table(
            "Scores of “Thinking” in head 0",
            ["for", "q · k", "divided by 8"],
            [
                [word, *pair]
                for word, *pair in zip(
                    WORDS, tensors["products"][0, 0].tolist(), tensors["divided"][0, 0].tolist()
                )
            ],
        ),
    )


def soften(_: Given, ledger: Ledger) -> LessonStep:
    tensors = ledger(walk)
    ledger.note(masked_softmax)
    one, two = tensors["divided"][0, 0].tolist()
    share = float(tensors["shares"][0, 0, 0])
    return LessonStep(
        "5. Softmax",
        f"The divided scores of “Thinking” are {fmt(one)} for itself and {fmt(two)} for “Machines”. Softmax "
        "makes weights of them that add up to 1. With two words only the difference of the scores matters.",
        NumberQuestion("How much weight does “Thinking” give to itself? A guess will do.", share, 0.1),
        f"The scores are {fmt(one - two)} apart: 1 / (1 + e^{fmt(two - one)}) = {share:.2f}.",
        before=formula("a₁ = e^s₁ / (e^s₁ + e^s₂)"),
        after=matrix("Weights of head 0", tensors["shares"][0], WORDS, WORDS),
    )


def weigh(_: Given, ledger: Ledger) -> LessonStep:
    tensors = ledger(walk)
    shares, v, z = tensors["shares"][0, 0], tensors["v"][0], tensors["mixed"][0, 0]
    sums = " + ".join(f"{fmt(float(a))} · ({fmt(float(row[0]))})" for a, row in zip(shares, v))
    return LessonStep(
        "6. Weigh the values and add",
        f"The values are multiplied by the weights, {float(shares[0]):.2f} and {float(shares[1]):.2f}, and "
        "added. That is what head 0 has to say about “Thinking”: again 64 numbers.",
        NumberQuestion("What is the first of them?", float(z[0]), 0.06),
        f"{sums} = {fmt(float(z[0]))}.",
        before=first_numbers("The values of head 0", dict(zip(WORDS, v))),
        after=first_numbers("The sum", {"z of Thinking": z}),
    )


def eight(_: Given, ledger: Ledger) -> LessonStep:
    tensors = ledger(walk)
    attention = machine()
    ledger.note(attention)
    joined = tensors["mixed"].transpose(0, 1).flatten(1)  # [T, H*C]
    with torch.no_grad():
        by_hand = ledger(attention.output, joined)
    apart = float((by_hand - tensors["output"]).abs().max())
    rows = [[f"head {head}", *tensors["shares"][head, 0].tolist()] for head in range(HEADS)]
    return LessonStep(
        "Eight heads, and W_O",
        "All of this happens in eight heads at once, each with its own W_Q, W_K and W_V. So each may look "
        "for something else. What the heads say is laid side by side and multiplied by one more matrix, W_O.",
        NumberQuestion(
            "How many numbers has a word when the eight heads are laid side by side?", joined.shape[1], 0.5, 0
        ),
        f"8 · 64 = 512, as wide as the word was. W_O has 512 · 512 = {attention.output.weight.numel():,} "
        "numbers and keeps that width, so that the next layer can go on in the same way.",
        before=formula("MultiHead = Concat(head₁ … head₈) W_O"),
        after=[
            table("How “Thinking” shares its weight", ["", *WORDS], rows, 2),
            first_numbers("After W_O", dict(zip(WORDS, tensors["output"]))),
            table("By hand against the model's own code", ["largest difference"], [[apart]], 8),
        ],
    )


def multiplications(words: int, heads: int, channels: int) -> int:
    """Of one attention over n words: four projections n D (H C) each, QK^T and AV with n^2 (H C) each."""
    inner = heads * channels
    return 4 * words * WIDTH * inner + 2 * words**2 * inner


def speed(_: Given, ledger: Ledger) -> LessonStep:
    x, mask = embeddings(SPEED_WORDS), all_visible(SPEED_WORDS, SPEED_WORDS)[None, None]
    one, many = machine(1, WIDTH), machine()
    times = race(
        {
            "1 head of 512": lambda: one(*one.queries_keys_values(x), mask),
            "8 heads of 64": lambda: many(*many.queries_keys_values(x), mask),
        },
        0.4,
    )
    for each in (race, many):
        ledger.note(each)
    work = [ledger(multiplications, SPEED_WORDS, *size) for size in ((1, WIDTH), (HEADS, CHANNELS))]
    ratio = times["8 heads of 64"] / times["1 head of 512"]
    answer = compare_times(times["8 heads of 64"], times["1 head of 512"])
    return LessonStep(
        "Do eight heads speed it up?",
        "A common claim says why there are eight heads. We test it: one head of 512 numbers against eight "
        f"heads of 64, on {SPEED_WORDS} words, on this machine, now. The shortest time of each counts.",
        ChoiceQuestion(
            "How much time do eight heads take, compared to one?",
            ["clearly less", "about the same, within a fifth", "clearly more"],
            answer,
        ),
        f"{ratio:.2f} times as much. Both do exactly {work[0]:,} multiplications. What difference there is "
        "comes from how a machine arranges them; there is no less to do.",
        after=table(
            "One head and eight",
            ["", "multiplications", "milliseconds"],
            [[name, count, 1000 * taken] for (name, taken), count in zip(times.items(), work)],
            2,
        ),
        then=(
            "The paper's reason is another: one head can only make one average. Eight heads can look at "
            "eight different things at once, for the price of one."
        ),
        claim=CLAIM,
    )


LESSONS = [
    Lesson(
        "heads",
        "“Thinking Machines” and eight heads",
        "The walk in six steps with width 512: embed, q k v, score, divide by 8, softmax, sum. Then eight "
        "heads.",
        (embed, divide, soften, weigh, eight, speed),
    )
]
