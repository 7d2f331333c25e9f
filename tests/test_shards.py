"""Corpora as ids on disk: nothing lost, every pair as often as its weight says, the order a pure function."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Command
from regard.config import Config, resolve
from regard.data import Dataset, plan
from regard.data.batches import epoch_pools, generator, row_generator, sizes, weighted
from regard.data.cache import prepared
from regard.data.dataset import BLOCK, CorpusShards, Shard, ShardColumn, encode, select
from regard.data.objectives import Seq2Seq
from regard.data.shards import MANIFEST, ShardWriter, open_shards, write_manifest
from regard.errors import RegardError, UsageError
from regard.inputs.text import train_tokenizer
from regard.storage import checkpoint_folder, load_checkpoint
from regard.training import train
from regard.training.prepare import TrainingData, prepare_data
from regard.training.stream import Stream


class SpecialTokens:
    """What `Seq2Seq` needs of a tokenizer if rows are already encoded."""

    start, end, first = 1, 2, None

    def framed(self, ids: Sequence[int]) -> list[int]:
        return [*ids, self.end]


TRANSLATION = Seq2Seq(SpecialTokens(), SpecialTokens(), 512)


def numbered(first: int, count: int) -> Shard:
    """Pair n says n: [n] on the one side and [n, n] on the other."""
    numbers = np.arange(first, first + count, dtype=np.uint32)
    ones, twos = np.ones(count, dtype=np.uint16), np.full(count, 2, dtype=np.uint16)
    return Shard(ShardColumn(numbers, ones), ShardColumn(np.repeat(numbers, 2), twos))


def seen(stream: Stream, epochs: int = 1) -> list[int]:
    """The pairs of the next epochs, in order."""
    found: list[int] = []
    end = stream.epoch + epochs
    while True:
        batch = stream.next()
        if stream.epoch == end:
            return found
        assert batch.source is not None
        assert batch.target is not None
        assert (batch.source.ids[:, 0] == batch.target.ids[:, 1]).all()  # no pair is ever shifted
        found += batch.source.ids[:, 0].tolist()


def test_a_dataset_keeps_every_sentence() -> None:
    pairs = [("a b c", "d"), ("a", "b c d a b"), ("b", "c"), ("c c", "d d")]
    tokenizer = train_tokenizer([text for pair in pairs for text in pair], "word", 300)
    columns = [ShardColumn(*encode(texts, tokenizer)) for texts in zip(*pairs)]
    found = Dataset([CorpusShards([Shard(*columns)])])
    pool = found.load(epoch_pools(found, 1, 0)[0])
    assert len(found) == len(pool) == 4
    assert [tokenizer.decode(pool.source[n].tolist()) for n in range(4)] == [source for source, _ in pairs]
    assert [tokenizer.decode(pool.target[n].tolist()) for n in range(4)] == [target for _, target in pairs]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=20))
def test_select_is_what_a_list_would_do(rows: list[tuple[int, bool]]) -> None:
    lengths = np.array([length for length, _ in rows], dtype=np.int64)
    ids = np.arange(lengths.sum(), dtype=np.uint16)
    chosen, left = select((ids, lengths), np.array([keep for _, keep in rows]))
    kept = [part.tolist() for part, (_, keep) in zip(np.split(ids, np.cumsum(lengths)[:-1]), rows) if keep]
    assert chosen.tolist() == [piece for part in kept for piece in part]
    assert left.tolist() == [len(part) for part in kept]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=9), min_size=1, max_size=4),
    st.integers(1, 4),
    st.data(),
)
def test_any_rows_of_a_shard_are_read_right(
    portions: list[list[int]], block: int, data: st.DataObject
) -> None:
    """Whatever the portions that were written, rows first .. last of a block come back as they went in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.data.dataset.BLOCK", block)
        lengths = np.array([length for portion in portions for length in portion], dtype=np.uint16)
        ids = np.arange(int(lengths.sum()), dtype=np.uint16)
        column = ShardColumn(ids, lengths)
        first = data.draw(st.integers(0, len(lengths) - 1))
        last = data.draw(st.integers(first + 1, min(len(lengths), (first // block + 1) * block)))
        found, own = column.read(first, last)
    begin, end = int(lengths[:first].sum()), int(lengths[:last].sum())
    assert found.tolist() == ids[begin:end].tolist()
    assert own.tolist() == lengths[first:last].tolist()


def test_shards_on_disk_are_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.shards.SHARD", 3)
    writer = ShardWriter(tmp_path, "000", longest=70_000)
    for start in range(0, 10, 2):
        ids = np.arange(start, start + 2, dtype=np.uint16)
        writer.add((ids, np.ones(2, dtype=np.int64)), (np.repeat(ids, 2), np.full(2, 2)))
    entries = writer.close()
    part = open_shards(tmp_path, entries, 1.0)
    assert [len(shard) for shard in part.shards] == [4, 4, 2]
    dataset = Dataset([part])
    assert sorted(seen(Stream(dataset, TRANSLATION, 16, seed=1))) == list(range(10))
    name = entries[1]["arrays"]["source-ids"]["file"]
    for content in (b"", b"\x93NUMPY", (tmp_path / name).read_bytes()[:-1]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RegardError, match="prepared data is damaged"):
            open_shards(tmp_path, entries, 1.0)


# the order


def test_every_pair_comes_once_an_epoch_and_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.batches.POOL", 2)  # several pools
    count = 5 * BLOCK + 17
    stream = Stream(
        Dataset([CorpusShards([numbered(0, 3 * BLOCK), numbered(3 * BLOCK, 2 * BLOCK + 17)])]),
        TRANSLATION,
        999,
        7,
    )
    first, second = seen(stream), seen(stream)
    # `seen` drops the batch that opens the next epoch, so the second list lacks its first batch
    assert sorted(first) == list(range(count))
    assert len(second) > 0.9 * count
    assert first[: len(second)] != second
    assert first != seen(Stream(stream.dataset, TRANSLATION, 999, 8))


@pytest.mark.parametrize("weight", [0.25, 0.5, 1.0, 1.5, 3.0])
def test_a_weight_is_how_often_pairs_come(weight: float) -> None:
    heavy = CorpusShards([numbered(100_000, 2 * BLOCK + 100)], weight)
    dataset = Dataset([CorpusShards([numbered(0, 50)]), heavy])
    for epoch in range(2):
        counts = Counter(seen(Stream(dataset, TRANSLATION, 4096, 3, epoch)))
        assert [counts[number] for number in range(50)] == [1] * 50
        own = [counts[number] for number in range(100_000, 100_000 + len(heavy))]
        assert sum(own) == round(weight * len(heavy))
        assert set(own) <= {int(weight), int(weight) + 1} | ({1} if weight == 1.0 else set())


def test_a_share_is_another_one_in_each_epoch() -> None:
    dataset = Dataset([CorpusShards([numbered(0, 300)], 0.2)])
    shares = [frozenset(seen(Stream(dataset, TRANSLATION, 64, 1, epoch))) for epoch in range(12)]
    assert all(len(share) == 60 for share in shares)
    assert len(frozenset().union(*shares)) > 200  # in time every pair comes


def test_a_stream_goes_on_from_any_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.batches.POOL", 1)
    dataset = Dataset([CorpusShards([numbered(0, 2 * BLOCK)], 1.5), CorpusShards([numbered(5000, 700)])])
    whole = Stream(dataset, TRANSLATION, 512, 1)
    done = 0.0
    for _ in range(60):
        place = Stream(dataset, TRANSLATION, 512, 1, whole.epoch, whole.pool, whole.batch)
        assert place.epochs_done == whole.epochs_done >= done
        done = whole.epochs_done
        one, two = whole.next(), place.next()
        assert one.source is not None
        assert two.source is not None
        assert one.source.ids.equal(two.source.ids)
    assert whole.epoch > 1


lengths_of_pairs = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=80)


@settings(deadline=None)
@given(lengths_of_pairs, st.integers(16, 200), st.integers(0, 2**31 - 1), st.integers(0, 1000))
def test_a_pool_has_every_example_once_within_the_budget(
    rows: list[tuple[int, int]], tokens: int, seed: int, epoch: int
) -> None:
    lengths = np.array(rows, dtype=np.int64)
    batches = plan(lengths, tokens, generator(seed, epoch, 1))
    assert sorted(number for batch in batches for number in batch.tolist()) == list(range(len(rows)))
    for batch in batches:
        padded = len(batch) * int(lengths[batch].max())
        assert padded <= tokens or len(batch) == 1


def test_the_dice_of_seeds_epochs_and_pools_differ() -> None:
    keys = [(seed, epoch, stream) for seed in range(3) for epoch in range(3) for stream in range(3)]
    drawn = [tuple(generator(*key).integers(0, 2**63, 4).tolist()) for key in keys]
    assert len(set(drawn)) == len(keys)
    assert generator(1, 2, 3).integers(0, 2**63) == generator(1, 2, 3).integers(0, 2**63)


def test_a_row_has_random_numbers_of_its_own() -> None:
    """The same in any batch and on any rank: a function of (seed, epoch, pool, row) alone."""
    keys = [
        (seed, epoch, pool, row) for seed in (1, 2) for epoch in (0, 1) for pool in (0, 1) for row in (0, 1)
    ]
    draws = [tuple(row_generator(*key).integers(0, 2**63, 4).tolist()) for key in keys]
    assert len(set(draws)) == len(keys)
    assert draws == [tuple(row_generator(*key).integers(0, 2**63, 4).tolist()) for key in keys]


# preparing


def write_corpus(path: Path, count: int) -> Path:
    path.write_text("".join(f"source {n} {n % 7}\tziel {n} {n % 5}\n" for n in range(count)))
    return path


def config_of(tmp_path: Path, **data: object) -> Config:
    tree = {
        "data": {"train": str(tmp_path / "train.tsv"), **data},
        "text": {"kind": "word", "vocabulary": 400},
        "model": {"width": 16, "heads": 2, "layers": 1, "feed_forward": 16},
    }
    return resolve(tree)


def sources(materials: TrainingData) -> list[str]:
    dataset = materials.training
    pool = dataset.load(np.concatenate([part.blocks(n) for n, part in enumerate(dataset.parts)]))
    return [materials.source.decode(pool.source[number].tolist()) for number in range(len(pool))]


def test_a_run_of_version_1_keeps_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its check dropped more rows than that of today; what it prepared is found by its fingerprint."""
    write_corpus(tmp_path / "train.tsv", 50)
    fields = {"steps": 1, "tokens_per_batch": 64, "threads": 1}
    config = config_of(tmp_path)
    config = config.model_copy(update={"version": 1, "train": config.train.model_copy(update=fields)})
    first = train(config, tmp_path / "run")
    digest = load_checkpoint(checkpoint_folder(first.folder, 1)).state["data"]
    (tmp_path / "train.tsv").write_text("source 1 1\tziel 1 1\n" * 9)
    assert prepare_data(config, first.folder, print).fingerprint == digest
    current = config.model_copy(update={"version": 2})
    assert prepare_data(current, first.folder, print).fingerprint != digest


def test_a_second_start_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "train.tsv", 50)
    config = config_of(tmp_path)
    first = prepare_data(config, tmp_path / "one", print)
    with monkeypatch.context() as patch:
        patch.setattr("regard.training.prepare.check", lambda *args: pytest.fail("read again"))
        second = prepare_data(config, tmp_path / "two", print)
    assert second.fingerprint == first.fingerprint
    assert sources(second) == sources(first) == [f"source {n} {n % 7}" for n in range(50)]
    assert second.source.to_json() == first.source.to_json()
    assert second.record == first.record


def test_changed_data_is_prepared_anew(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "train.tsv", 50)
    before = prepare_data(config_of(tmp_path), tmp_path / "one", print)
    path.write_text(path.read_text().replace("source 3 ", "source 4 "))
    after = prepare_data(config_of(tmp_path), tmp_path / "two", print)
    assert after.fingerprint != before.fingerprint
    assert sources(after)[3] == "source 4 3"


def test_only_the_time_of_a_file_changed(tmp_path: Path) -> None:
    """A copy of the data elsewhere, or of a later time, is still the data that the run began with."""
    path = write_corpus(tmp_path / "train.tsv", 50)
    before = prepare_data(config_of(tmp_path), tmp_path / "one", print)
    os.utime(path, ns=(1, 1))
    assert prepare_data(config_of(tmp_path), tmp_path / "two", print).fingerprint == before.fingerprint


def test_where_the_cache_cannot_be_written_the_run_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> str:
        raise PermissionError(13, "Permission denied")

    def make(folder: Path) -> None:
        write_manifest(folder, {"made": 1})

    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    original = Path.mkdir

    def mkdir(self: Path, *args: object, **kwargs: object) -> None:
        if self.name == "cache":
            refuse()
        original(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", mkdir)
    place = prepared("key", make, tmp_path / "run")
    assert place == tmp_path / "run" / "key"
    assert json.loads((place / MANIFEST).read_text()) == {"made": 1}


def test_what_is_cut_off_while_it_is_made_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepared("key", fail, tmp_path / "run")
    assert list((tmp_path / "cache").iterdir()) == []


def test_pairs_longer_than_the_model_are_left_out_and_named(tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "train.tsv", 20)
    path.write_text(path.read_text() + "w " * 40 + "\tziel " + "x " * 30 + "\n")
    config = config_of(tmp_path)
    config = config.model_copy(update={"model": config.model.model_copy(update={"max_length": 20})})
    materials = prepare_data(config, tmp_path / "run", print)
    assert len(materials.training) == 20
    (finding,) = materials.record["findings"]
    assert (finding["kind"], finding["count"], finding["places"][0]["line"]) == ("too-long", 1, 21)
    tiny = config.model_copy(update={"model": config.model.model_copy(update={"max_length": 2})})
    with pytest.raises(UsageError, match="every row"):
        prepare_data(tiny, tmp_path / "other", print)


def test_several_files_with_weights(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a.tsv", 30)
    write_corpus(tmp_path / "b.tsv", 10)
    config = config_of(
        tmp_path, train=[{"corpus": str(tmp_path / "a.tsv"), "weight": 0.5}, str(tmp_path / "b.tsv")]
    )
    materials = prepare_data(config, tmp_path / "run", print)
    assert [(len(part), part.weight) for part in materials.training.parts] == [(30, 0.5), (10, 1.0)]
    pools = epoch_pools(materials.training, 1, 0)
    assert sum(int(sizes(blocks).sum()) for blocks in pools) == 25
    assert [each["weight"] for each in materials.record["corpora"]] == [0.5, 1.0]
    assert materials.record["findings"][0]["kind"] == "duplicate"


def test_the_cache_can_be_seen_and_cleared(
    tmp_path: Path, regard: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    assert "0 prepared corpora" in regard("data", "cache").out
    write_corpus(tmp_path / "train.tsv", 50)
    before = prepare_data(config_of(tmp_path), tmp_path / "one", print)
    assert "2 prepared corpora" in regard("data", "cache").out  # the vocabulary, and the ids
    assert regard("data", "cache", "--clear").code == 0
    assert list((tmp_path / "cache").iterdir()) == []
    assert prepare_data(config_of(tmp_path), tmp_path / "two", print).fingerprint == before.fingerprint


def test_a_small_share_is_a_pair_at_least() -> None:
    """Of one pair three tenths were none, and a run on it ended in an IndexError."""
    blocks = np.array([[0, 0, 0, 1]])
    assert int(sizes(weighted(blocks, 0.3, np.random.default_rng(1))).sum()) == 1
    assert int(sizes(weighted(blocks, 2.3, np.random.default_rng(1))).sum()) == 2
    many = np.array([[0, 0, 0, 1000]])
    assert int(sizes(weighted(many, 0.0004, np.random.default_rng(1))).sum()) == 1


def test_a_cache_of_several_people_is_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    tmp_path.chmod(0o755)
    entry = prepared("key", lambda place: write_manifest(place, {}), tmp_path / "beside")
    assert entry.stat().st_mode & 0o777 == 0o755
