"""Score the built-in models of text beside simple baselines; each section is a command of its own.

REGARD_DATA=folder python recipes/box_scores.py SECTION [--runs runs/box] [--judge SMOLLM2.gguf]

prose      bits per byte that another language model gives samples and real stories; copies of training text
fill       the missing word of 1,000 held-out sentences among five, beside the five most frequent words
embed      pairs of sentences of one source sentence (Tatoeba) found among 1,000, beside TF-IDF
sentiment  accuracy in five folds of sentiment-uci and on sentiment-polarity, beside TF-IDF
labels     the same classifier with and without pre-training, with 100, 500 and 2,400 labels
names      F1 on English web text, beside a list of the names in the training data
answers    F1 and exact match on SQuAD's validation questions, beside the sentence that shares most words
loops      translations of 5,000 lines of articles, plays, code and tables that repeat themselves or run on

`regard evaluate -m tatoeba-en-de --data FILE --modify all` scores the translators on modified sentences.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Any

import numpy as np
import torch
from box_text import HERE, make_names, make_sentiment, with_data
from english_sentiment import train_classifier
from matplotlib.figure import Figure
from opinions import FILE, add_teacher, make_opinions, rows_of, teacher_of, write_rows
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from regard import evaluate, load
from regard.config import load_config
from regard.data import iter_examples
from regard.data.files import find, lines, read_bytes
from regard.inputs.text.sentences import split_sentences
from regard.metrics.answers import squad_scores
from regard.metrics.labels import tagging_scores
from regard.models.families import build
from regard.storage import open_folder, unique_weights, write_text, write_weights
from regard.tasks import Embedder
from regard.training import train

SEED = 1
Row = tuple[str, str]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("section", choices=list(SECTIONS))
    options.add_argument("--runs", type=Path, default=HERE.parent / "runs" / "box")
    options.add_argument("--judge", type=Path, help="prose: SmolLM2-135M as .gguf")
    options.add_argument("--model", help="instead of the built-in model")
    options.add_argument("--encoder", default="english", help="sentiment, labels: what they begin with")
    options.add_argument("--set", dest="changes", action="append", default=[], help="sentiment")
    add_teacher(options)  # sentiment
    SECTIONS[(given := options.parse_args()).section](given)


def show(**values: Any) -> None:
    print(json.dumps(values, default=float), flush=True)


# --- prose

SAMPLES, PROMPT_WORDS, LENGTH = 200, 6, 500  # texts, words of a prompt, characters of a text
COPY, BLOCK = 60, 30


def prose(given: Any) -> None:
    """Samples continue the beginnings of paragraphs of held-out books; the real text follows there."""
    text = "\n".join(lines(find("data:text/stories.valid.txt.gz"))).split("\n\n")
    chapters = [chapter for chapter in text if len(chapter) > 3 * LENGTH]
    dice = random.Random(SEED)
    prompts, real = [], []
    while len(prompts) < SAMPLES:
        chapter = dice.choice(chapters)
        starts = [match.end() for match in re.finditer("\n", chapter[: -2 * LENGTH])]
        start = dice.choice(starts or [0])
        prompt = " ".join(chapter[start : start + 100].split()[:PROMPT_WORDS])
        if chapter[start:].startswith(prompt):
            prompts.append(prompt)
            real.append(chapter[start + len(prompt) : start + len(prompt) + LENGTH])
    model = load(given.model or "stories")
    written = [text[:LENGTH] for text in model.generate(prompts, max_length=180, seed=SEED)]
    write_text(given.runs / "prose.txt", "\n---\n".join(a + b for a, b in zip(prompts, written)))
    known = "\n".join(lines(find("data:text/stories.txt.gz")))
    copies = {name: longest_copies(known, texts) for name, texts in (("written", written), ("real", real))}
    show(longest_copy=max(copies["written"]), copies=sum(each >= COPY for each in copies["written"]),
         longest_copy_real=max(copies["real"]))  # fmt: skip
    if given.judge:
        bits = {
            name: bits_per_byte(given.judge, prompts, texts)
            for name, texts in (("written", written), ("real", real))
        }
        show(bits_per_byte=bits, ratio=round(bits["written"] / bits["real"], 3), samples=len(written))


def longest_copies(known: str, texts: Sequence[str]) -> list[int]:
    """The longest piece of each text that is in `known`, if it has 59 letters and so a whole block."""
    blocks = defaultdict(list)
    for start in range(0, len(known) - BLOCK, BLOCK):
        blocks[known[start : start + BLOCK]].append(start)
    longest = []
    for text in texts:
        best = 0
        for at in range(len(text) - BLOCK + 1):
            for place in blocks.get(text[at : at + BLOCK], ()):
                before = commonprefix([text[:at][::-1], known[max(0, place - LENGTH) : place][::-1]])  # noqa: RUF071
                after = commonprefix([text[at:], known[place : place + LENGTH]])  # noqa: RUF071
                best = max(best, len(before) + len(after))
        longest.append(best)
    return longest


def bits_per_byte(judge: Path, prompts: Sequence[str], texts: Sequence[str]) -> float:
    """-log2 p(text | prompt) / bytes of all texts, by a model that transformers reads."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(judge.parent, gguf_file=judge.name)
    model = AutoModelForCausalLM.from_pretrained(
        judge.parent, gguf_file=judge.name, dtype=torch.float32
    ).eval()
    total = size = 0.0
    for prompt, text in zip(prompts, texts):
        before = tokenizer(prompt, return_tensors="pt").input_ids
        whole = torch.cat(
            [before, tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids], dim=1
        )
        with torch.inference_mode():
            log_p = model(whole).logits[0, :-1].log_softmax(-1)
        gold = log_p.gather(1, whole[0, 1:, None])[before.shape[1] - 1 :]
        total -= float(gold.sum()) / np.log(2)
        size += len(text.encode())
    return round(total / size, 4)


# --- fill, embed


def fill(given: Any) -> None:
    """One word of each sentence, in lower case, is missing."""
    dice, model = random.Random(SEED), load(given.model or "english")
    paragraphs = [line for line in lines(find("data:text/stories.valid.txt.gz")) if len(line) > 60]
    sentences = [
        s
        for paragraph in dice.sample(paragraphs, 1000)
        for s, _ in split_sentences(paragraph)
        if 40 < len(s) < 200
    ]
    gapped, gold = [], []
    for sentence in dice.sample(sentences, 1000):
        words = list(re.finditer(r"(?<= )[a-z]+(?=[ .,;])", sentence))
        if words:
            word = dice.choice(words)
            gapped.append(f"{sentence[: word.start()]}<mask>{sentence[word.end() :]}")
            gold.append(word[0])
    common = Counter(re.findall(r"[a-z]+", "\n".join(lines(find("data:text/stories.txt.gz")))))
    frequent = {word for word, _ in common.most_common(5)}
    first = [
        [guess.text.strip() for guess in result.guesses[0]] for result in model.fill(gapped, num_results=5)
    ]
    hits = [(found[:1] == [word], word in found) for found, word in zip(first, gold)]
    top1, top5 = np.mean(hits, axis=0)
    show(sentences=len(gold), top1=top1, top5=top5, frequent5=np.mean([word in frequent for word in gold]))


def embed(given: Any) -> None:
    """English sentences with the same German translation are paraphrases: is one the nearest of the other?"""
    pairs = [line.split("\t")[:2] for line in lines(find("data:tatoeba/valid.en-de.tsv.gz"))]
    pairs += [line.split("\t")[:2] for line in lines(find("data:tatoeba/train.en-de.tsv.gz"))]
    by_german = defaultdict(list)
    for english, german in pairs:
        by_german[german].append(english)
    groups = [list(dict.fromkeys(group)) for german, group in by_german.items() if len(german) > 25]
    chosen = random.Random(SEED).sample([group[:2] for group in groups if len(group) > 1], 1000)
    left, right = [group[0] for group in chosen], [group[1] for group in chosen]

    def share_found(one: Any, other: Any) -> float:
        return round(
            float((np.asarray((one @ other.T).argmax(axis=1)).ravel() == np.arange(len(one_list))).mean()), 3
        )

    one_list = left
    model = Embedder.load(given.model or "english")
    vectors = [unit(model.vectors(texts)) for texts in (left, right)]
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit([*left, *right])
    tfidf = [words.transform(texts).toarray() for texts in (left, right)]
    show(pairs=len(chosen), nearest=share_found(*vectors), tfidf=share_found(*tfidf))


def unit(vectors: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


# --- sentiment

FOLD_UPDATES = 1200


def sentiment(given: Any) -> None:
    place = given.runs / "data"
    make_sentiment(place)
    uci = [row for split in ("train", "valid", "test") for row in rows_of(place / f"uci.{split}.tsv")]
    random.Random(SEED).shuffle(uci)
    pros_cons = rows_of(place / "pros-cons.train.tsv")
    known = [*pros_cons, *rows_of(place / "uci.train.tsv") * 5]
    for names in (("uci.valid", "uci.test"), ("polarity.test",)):
        tested = [row for name in names for row in rows_of(place / f"{name}.tsv")]
        accuracy = evaluate(given.model or "english-sentiment", tested)["accuracy"]
        show(of=names, sentences=len(tested), accuracy=accuracy, tfidf=tfidf_accuracy(known, tested))
    ours, tfidf = [], []
    for fold in range(5):
        tested, known = uci[fold::5], [row for number, row in enumerate(uci) if number % 5 != fold]
        ours.append(evaluate(classifier(given, place, fold, known), tested)["accuracy"])
        tfidf.append(tfidf_accuracy([*pros_cons, *known * 5], tested))
        alone = tfidf_accuracy(known, tested)
        show(fold=fold, accuracy=ours[-1], tfidf=tfidf[-1], tfidf_without_pros_cons=alone)
    show(folds=5, accuracy=np.mean(ours), deviation=np.std(ours), tfidf=np.mean(tfidf))


def classifier(given: Any, place: Path, fold: int, known: Sequence[Row]) -> Path:
    """As its recipe, with fewer updates, on other sentences and what a teacher who has read them says."""
    data, folder = place / f"fold-{fold}", given.runs / "folds" / str(fold)
    data.mkdir(exist_ok=True)
    write_rows(data / "uci.train.tsv", known)
    labelled = make_opinions(place, teacher_of(given), known, f"{data.name}/{FILE}")
    config = load_config(HERE / "english-sentiment.toml", [f"train.steps={FOLD_UPDATES}", *given.changes])
    config = with_data(with_data(config, place), data)
    unseen = config.data.model_copy(update={"valid": None, "test": None})
    train_classifier(config.model_copy(update={"data": unseen}), folder, labelled)
    return folder


def fine_tune(given: Any, folder: Path, corpora: list[Any], *changes: str, base: Path | None = None) -> Path:
    """The recipe of the classifier on other data, without a choice of checkpoints."""
    usual = ["train.lr=8e-4", "model.dropout=0.1"]  # all of their labels are certain
    config = load_config(HERE / "english-sentiment.toml", [*usual, *changes])
    data = config.data.model_copy(update={"train": corpora, "valid": None, "test": None})
    init = config.init.model_copy(update={"model": str(base or given.encoder)})
    config = config.model_copy(update={"data": data, "init": init})
    train(config, folder, resume=(folder / "run.toml").is_file())
    return folder


def tfidf_accuracy(known: Sequence[Row], tested: Sequence[Row]) -> float:
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    texts, labels = zip(*known)
    model = LogisticRegression(C=10, max_iter=1000).fit(words.fit_transform(texts), labels)
    texts, labels = zip(*tested)
    return float(model.score(words.transform(texts), labels))


def labels(given: Any) -> None:
    """Few labels of sentiment-uci, tested on its validation and test set (600 sentences); three draws each.

    Without pre-training the model has the same shape and tokenizer and random weights, and all layers learn.
    """
    place = given.runs / "data"
    make_sentiment(place)
    known = rows_of(place / "uci.train.tsv")
    tested = rows_of(place / "uci.valid.tsv") + rows_of(place / "uci.test.tsv")
    means = {}
    random_encoder = with_random_weights(Path(given.encoder), given.runs / "labels" / "random")
    for count in (100, 500, 2400):
        scores: dict[str, list[float]] = {"pretrained": [], "random": [], "tfidf": []}
        for draw in range(3):
            chosen = random.Random(draw).sample(known, count)
            file = write_rows(place / f"labels-{count}-{draw}.tsv", chosen)
            changes = [
                f"train.steps={max(120, count // 8)}",
                "train.tokens_per_batch=1024",
                f"train.seed={draw + 1}",
            ]
            folder = given.runs / "labels" / f"{count}-{draw}"
            pretrained = fine_tune(given, folder / "pretrained", [str(file)], *changes, "init.freeze=0")
            plain = fine_tune(
                given, folder / "random", [str(file)], *changes, "init.freeze=0", base=random_encoder
            )
            scores["pretrained"].append(evaluate(pretrained, tested)["accuracy"])
            scores["random"].append(evaluate(plain, tested)["accuracy"])
            scores["tfidf"].append(tfidf_accuracy(chosen, tested))
        means[count] = {name: (float(np.mean(each)), float(np.std(each))) for name, each in scores.items()}
        show(labels=count, **means[count])
    draw_labels(means, given.runs / "pretraining.svg")


def draw_labels(means: dict[int, dict[str, tuple[float, float]]], file: Path) -> None:
    """Accuracy by the number of labels, with the deviation of the three draws."""
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    titles = {"pretrained": "pre-trained", "random": "random start", "tfidf": "TF-IDF, logistic regression"}
    for name, title in titles.items():
        rows = [[100 * number for number in means[count][name]] for count in means]
        axes.errorbar(list(means), [row[0] for row in rows], [row[1] for row in rows], label=title, capsize=3)
    axes.set(xscale="log", xticks=list(means), xticklabels=list(means), xlabel="labels", ylabel="accuracy, %")
    axes.minorticks_off()
    axes.legend()
    figure.savefig(file, metadata={"Date": None})


def with_random_weights(encoder: Path, place: Path) -> Path:
    """A copy of the encoder as it was before its first update."""
    if not (place / "config.json").is_file():
        shutil.copytree(encoder, place, ignore=shutil.ignore_patterns("checkpoints", "SHA256SUMS", "*.jsonl"))
        folder = open_folder(place)
        torch.manual_seed(SEED)
        fresh = build(folder.config, len(folder.source))
        write_weights(place, folder.config, unique_weights(fresh))
    return place


# --- names, answers


def names(given: Any) -> None:
    """The baseline tags every word as it is tagged most often in the training data."""
    place = given.runs / "data"
    make_names(place)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines(place / "names.train.conll"):
        if line:
            word, tag = line.split("\t")
            seen[word][tag] += 1
    test = list(iter_examples(find("data:ner/uner-ewt.test.conll.gz"), "tag"))
    gold = [each.target.split() for each in test]
    listed = [
        [seen[word].most_common(1)[0][0] if word in seen else "O" for word in each.source.split(" ")]
        for each in test
    ]
    result = evaluate(given.model or "english-names", find("data:ner/uner-ewt.test.conll.gz"))
    show(**result.scores, sentences=len(test), list_of_words=tagging_scores(gold, listed)["f1"])


def answers(given: Any) -> None:
    """The baseline answers with the whole sentence that shares most rare words with the question."""
    articles = json.loads(read_bytes(find("data:squad/valid.json.gz")))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    references, sentences = [], []
    for paragraph in paragraphs:
        parts = [sentence for sentence, _ in split_sentences(paragraph["context"]) if sentence]
        words = TfidfVectorizer().fit(parts)
        for question in paragraph["qas"]:
            near = (words.transform([question["question"]]) @ words.transform(parts).T).toarray()[0]
            sentences.append(parts[int(near.argmax())])
            references.append([each["text"] for each in question["answers"]])
    baseline, _ = squad_scores(references, sentences)
    result = evaluate(given.model or "english-answers", find("data:squad/valid.json.gz"))
    show(f1=result["f1"], exact=result["exact"], questions=result.sentences, sentence_f1=baseline["f1"])


# --- translators

LINES = 1250  # of each kind
LOOP = re.compile(r"(\S.{0,60}?)\1{3,}")  # the same characters four times in a row
LONGER, MORE = 3, 40  # an output may have 3 * source + 40 characters


def loops(given: Any) -> None:
    """Lines that no translator of everyday sentences is made for."""
    place = given.runs / "loops"
    place.mkdir(parents=True, exist_ok=True)
    translator = load(given.model or "tatoeba-en-de")
    code = [line for file in sorted(Path(json.__file__).parent.glob("*.py")) for line in lines(file)]
    tags = "\n".join(lines(find("data:ner/wikigold.conll.gz"))).split("\n\n")
    kinds = {
        "articles": list(lines(find("data:text/wikitext-2.test.raw.gz"))),
        "plays": list(lines(find("data:text/tinyshakespeare.txt.gz"))),
        "code": code,
        "tables": [sentence.replace("\n", "\t").replace(" ", ";")[:300] for sentence in tags],
    }
    for kind, texts in kinds.items():
        known = [text for text in texts if text.strip()]
        sources = random.Random(SEED).sample(known, min(LINES, len(known)))
        results = translator.translate_lines(sources)
        outputs = [result.text for result in results]
        write_text(place / f"{kind}.tsv", "".join(f"{a}\t{b}\n" for a, b in zip(sources, outputs)))
        repeated = [a for a, b in zip(sources, outputs) if LOOP.search(b) and not LOOP.search(a)]
        long = [a for a, b in zip(sources, outputs) if len(b) > LONGER * len(a) + MORE]
        kept = sum(result.kept for result in results)
        show(kind=kind, lines=len(sources), repeated=len(repeated), long=len(long), kept=kept)


SECTIONS: dict[str, Callable[[Any], None]] = {
    each.__name__: each for each in (prose, fill, embed, sentiment, labels, names, answers, loops)
}

if __name__ == "__main__":
    main()
