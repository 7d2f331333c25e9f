"""Models of pictures and sounds from Python and the shell: every way in, and what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pictures
import regard
import understanding
from conftest import Command, Refused
from pictures import picture, png, wav
from regard.batch import collate
from regard.config import resolve
from regard.errors import UsageError
from regard.inputs.pixels import picture_text, text_picture
from regard.sample import Sample
from regard.tasks import Captioner, Classifier, Embedder, captioner
from regard.tasks.results import as_dict

pytestmark = pytest.mark.usefixtures("same_threads")


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return Classifier.load(pictures.classifier())


@pytest.fixture
def bar(tmp_path: Path) -> Path:
    path = tmp_path / "bar.png"
    path.write_bytes(png(picture("bar", 2, 700)))
    return path


# classify in Python


def test_every_form_of_a_picture_gives_the_same_result(classifier: Classifier, bar: Path) -> None:
    content = bar.read_bytes()
    url = "data:image/png;base64," + base64.b64encode(content).decode()
    pixels = picture("bar", 2, 700)
    forms = [bar, str(bar), content, url, pixels, pixels[:, :, None]]
    results = classifier.classify(forms)
    assert {each.label for each in results} == {"bar"}
    assert len({tuple(each.probabilities.values()) for each in results}) == 1
    assert [each.text for each in results] == [str(bar), str(bar), "file 3", "file 4", "file 5", "file 6"]
    for form in forms:  # alone: one result, not a list
        assert classifier.classify(form).probabilities == results[0].probabilities


def test_the_model_has_learnt_and_does_not_depend_on_the_batch(classifier: Classifier) -> None:
    files = [picture(shape, place, 500) for shape in pictures.SHAPES for place in range(pictures.SIDE)]
    results = classifier.classify(files, num_results=2)
    assert [each.label for each in results] == ["bar"] * 8 + ["beam"] * 8
    assert all(len(each.labels) == 2 for each in results)
    alone = [classifier.classify(each) for each in files]
    assert [each.probabilities for each in alone] == [each.probabilities for each in results]


def test_a_picture_of_another_size_and_colour_is_read(classifier: Classifier) -> None:
    large = np.kron(picture("beam", 5, 1), np.ones((4, 4), dtype=np.uint8))
    coloured = np.stack([large] * 3, axis=2)
    assert classifier.classify(coloured).label == "beam"


def test_sounds_are_cut_skipped_or_refused() -> None:
    model = regard.load(pictures.sound_classifier())
    low, long = model.classify([wav(350), wav(2600, seconds=2.0)])
    assert (low.label, low.truncated, long.label, long.truncated) == ("low", False, "high", True)
    _, skipped = model.classify([wav(350), wav(2600, seconds=2.0)], on_too_long="skip")
    assert (skipped.skipped, skipped.label) == (True, "")
    with pytest.raises(UsageError, match=r"file 1: 2\.0 seconds") as caught:
        model.classify(wav(2600, seconds=2.0), on_too_long="error")
    assert caught.value.code == "E_TOO_LONG"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("no/such.png", "E_MEDIA_MISSING"),
        ("A film to remember.", "E_MEDIA_MISSING"),
        (b"no picture", "E_IMAGE_FORMAT"),
        (png(picture("bar", 1))[:-40], "E_IMAGE_DAMAGED"),
        (wav(300), "E_IMAGE_FORMAT"),
        ("data:image/png,abc", "E_MEDIA_URL"),
        ("data:image/png;base64,%%%", "E_MEDIA_URL"),
        (np.zeros((4, 4)), "E_IMAGE_ARRAY"),
        ([3], "E_TEXT_TYPE"),
        ([None], "E_TEXT_TYPE"),
    ],
)
def test_what_no_picture_is(classifier: Classifier, source: object, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        classifier.classify(source)  # type: ignore[call-overload]
    assert caught.value.code == code


def test_files_of_another_kind_are_named(classifier: Classifier, tmp_path: Path) -> None:
    sound = tmp_path / "sound.wav"
    sound.write_bytes(wav(300))
    with pytest.raises(UsageError, match=r"sound\.wav is a sound, and this model reads pictures") as caught:
        classifier.classify(sound)
    assert caught.value.code == "E_MODEL_INPUT"


@pytest.mark.parametrize("source", [Path("photo.png"), b"abc", np.zeros((8, 8), dtype=np.uint8)])
def test_a_model_of_texts_refuses_files(source: object) -> None:
    model = regard.load(understanding.model("classify"))
    for given in (source, [source]):
        with pytest.raises(UsageError, match="not a string") as caught:
            model.classify(given)
        assert caught.value.code == "E_TEXT_TYPE"


def test_a_column_of_a_table_is_several_texts() -> None:
    model = regard.load(understanding.model("classify"))
    assert len(model.classify(np.array(["ba lala", "buhu de"]))) == 2
    assert len(model.classify(np.array(["ba lala", "buhu de"], dtype=object))) == 2


def test_a_server_can_warm_up(classifier: Classifier) -> None:
    before = classifier.classify(picture("bar", 3))
    classifier.warm_up()
    assert classifier.classify(picture("bar", 3)) == before


# classify in the shell


def test_classify_files_and_folders(regard: Command, bar: Path, tmp_path: Path) -> None:
    model = pictures.classifier()
    assert regard("classify", "-m", model, bar).lines == ["bar"]
    more = pictures.write_pictures(tmp_path / "more", range(600, 601))
    (more / "notes.txt").write_text("no picture")
    lines = regard("classify", "-m", model, bar, more).lines
    assert lines[0] == f"{bar}\tbar"
    expected = sorted(f"{path}\t{path.parent.name}" for path in more.rglob("*.png"))
    assert lines[1:] == expected
    assert regard("classify", "-m", model, stdin=f"{bar}\n{bar}\n").lines == [f"{bar}\tbar"] * 2
    row = json.loads(regard("classify", "-m", model, bar, "--json").out)
    assert (row["text"], row["label"]) == (str(bar), "bar")
    probability, label = regard("classify", "-m", model, bar, "--scores").lines[0].split("\t")
    assert label == "bar"
    assert 0.5 < float(probability) <= 1


def test_a_bad_file_among_others_is_named_and_left_out(
    regard: Command, refused: Refused, bar: Path, tmp_path: Path
) -> None:
    model, more = pictures.classifier(), pictures.write_pictures(tmp_path / "more", range(600, 601))
    torn = more / "bar" / "3-torn.png"
    torn.write_bytes(b"no picture")
    found = regard("classify", "-m", model, more)
    assert found.code == 1
    expected = sorted(f"{path}\t{path.parent.name}" for path in more.rglob("*.png") if path != torn)
    assert found.lines == expected
    said = " ".join(found.err.split())
    assert "3-torn.png" in said and "1 of 17 files could not be read" in said
    rows = [json.loads(line) for line in regard("classify", "-m", model, bar, torn, bar, "--json").lines]
    assert [row["line"] for row in rows] == [1, 3]
    assert "3-torn.png" in " ".join(refused("embed", "-m", model, bar, torn).split()), "vectors are counted"


def test_a_table_with_labels_is_scored(regard: Command, bar: Path) -> None:
    table = bar.parent / "table.tsv"
    table.write_text(f"file\tlabel\n{bar.name}\tbar\n{bar.name}\tbeam\n", encoding="utf-8")
    found = regard("classify", "-m", pictures.classifier(), table)
    assert found.lines == ["bar", "bar"]
    assert "1 of 2 labels are right: accuracy 50.00 %" in found.err
    table.write_text(f"file\n{bar.name}\n", encoding="utf-8")
    assert regard("classify", "-m", pictures.classifier(), table).lines == ["bar"]


def test_the_shell_says_which_kind_a_model_reads(refused: Refused, bar: Path, tmp_path: Path) -> None:
    model = pictures.classifier()
    sound = tmp_path / "sound.wav"
    sound.write_bytes(wav(300))
    assert "is a sound, and this model reads pictures" in refused("classify", "-m", model, sound)
    assert "this model reads pictures" in refused("classify", "-m", model, "A film to remember.")
    (tmp_path / "text.png").write_text("a text")
    assert "no picture in a known format" in refused("classify", "-m", model, tmp_path / "text.png")
    (tmp_path / "empty").mkdir()
    assert "no file of this model's kind" in refused("classify", "-m", model, tmp_path / "empty")
    text_model = understanding.model("classify")
    assert "is a picture, and the model" in refused("classify", "-m", text_model, bar)


def test_a_huge_picture_is_refused_before_it_is_decoded(refused: Refused, tmp_path: Path) -> None:
    Image.new("1", (30_000, 30_000)).save(tmp_path / "huge.png")
    assert "pixels" in refused("classify", "-m", pictures.classifier(), tmp_path / "huge.png")


# caption


@pytest.fixture(scope="module")
def describer() -> Captioner:
    return Captioner.load(pictures.captioner())


def test_captions_and_answers(describer: Captioner) -> None:
    files = [picture(shape, place, 500) for shape in pictures.SHAPES for place in range(pictures.SIDE)]
    sides = [pictures.side_of(shape, place) for shape in pictures.SHAPES for place in range(pictures.SIDE)]
    texts = [each.text for each in describer.caption(files)]
    assert texts == [f"a {shape} {side}" for shape, side in zip(["bar"] * 8 + ["beam"] * 8, sides)]
    answers = describer.caption(files, "where ?")
    assert [each.text for each in answers] == sides
    assert {each.question for each in answers} == {"where ?"}
    mixed = describer.caption(files[:2], questions=["where ?", ""])
    assert [each.text for each in mixed] == ["left", "a bar left"]


def test_candidates_are_without_the_question(describer: Captioner) -> None:
    best, second = describer.caption(picture("bar", 1, 3), "where ?", num_results=2).candidates
    assert (best.text, best.tokens, best.finished) == ("left", (" left",), True)
    assert len(best.token_log_probabilities) == len(best.token_ids) + 1  # the end token
    assert sum(best.token_log_probabilities) == pytest.approx(best.log_probability, abs=1e-5)
    assert best.score > second.score


def test_captions_do_not_depend_on_the_batch(describer: Captioner, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [picture("beam", place, 9) for place in range(5)]
    together = describer.caption(files, "where ?")
    monkeypatch.setattr(captioner, "FILES_AT_ONCE", 2)
    assert [each.candidates for each in describer.caption(files, "where ?")] == [
        each.candidates for each in together
    ]


def test_captions_that_cannot_be_are_refused(describer: Captioner) -> None:
    for options, code in (
        ({"question": "where " * 20}, "E_TOO_LONG"),
        ({"num_results": 3, "beam": 2}, "E_BEAM"),
        ({"questions": []}, "E_ANSWER_PAIRS"),
        ({"decode": {"bean": 3}}, "E_CONFIG_FIELD"),
    ):
        with pytest.raises(UsageError) as caught:
            describer.caption(picture("bar", 1), **options)  # type: ignore[arg-type]
        assert caught.value.code == code
    with pytest.raises(UsageError, match="this is a classify model") as caught:
        Captioner.load(pictures.classifier())
    assert caught.value.code == "E_MODEL_TASK"


def test_caption_in_the_shell(regard: Command, refused: Refused, bar: Path) -> None:
    model = pictures.captioner()
    assert regard("caption", "-m", model, bar).lines == ["a bar left"]
    assert regard("caption", "-m", model, bar, bar).lines == [f"{bar}\ta bar left"] * 2
    assert regard("caption", "-m", model, bar, "--question", "where ?").lines == ["left"]
    row = json.loads(regard("caption", "-m", model, bar, "--json", "-n", 2).out)
    assert (row["file"], row["text"], len(row["candidates"])) == (str(bar), "a bar left", 2)
    table = bar.parent / "asked.tsv"
    table.write_text(f"file\tquestion\n{bar.name}\twhere ?\n{bar.name}\t\n", encoding="utf-8")
    assert regard("caption", "-m", model, table).lines == ["left", "a bar left"]
    assert "this model reads pictures" in refused("caption", "-m", model, "A text.")


# embed


def test_the_vector_of_a_picture_is_what_its_classifier_reads(classifier: Classifier, bar: Path) -> None:
    model = Embedder.load(pictures.classifier())
    files = [bar, picture("beam", 3, 1)]
    vectors = model.vectors(files)
    assert vectors.shape == (2, model.width) == (2, 16)
    reader = classifier.reader
    samples = [Sample(reader.frames(reader.read(each))) for each in files]
    hidden = classifier.model.hidden(collate(samples)).detach().numpy()[:, 0]
    np.testing.assert_allclose(vectors, hidden, atol=1e-6)
    assert [each.text for each in model.embed(files)] == [str(bar), "file 2"]


def test_vectors_are_those_of_transformers(tmp_path: Path) -> None:
    import torch
    from transformers import ViTConfig, ViTImageProcessor, ViTModel

    torch.manual_seed(1)
    config = ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, image_size=12,
        patch_size=4,
    )  # fmt: skip
    theirs = ViTModel(config, add_pooling_layer=False).eval()
    theirs.save_pretrained(tmp_path)
    processor = ViTImageProcessor(size={"height": 12, "width": 12})
    processor.save_pretrained(tmp_path)
    pixels = np.random.default_rng(1).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    model = regard.load(tmp_path)
    assert isinstance(model, Embedder)
    with torch.no_grad():
        expected = theirs(**processor(Image.fromarray(pixels), return_tensors="pt")).last_hidden_state[0, 0]
    np.testing.assert_allclose(model.embed(pixels).vector, expected.numpy(), atol=1e-5)


def test_sounds_have_vectors() -> None:
    model = Embedder.load(pictures.sound_classifier())
    low, again, high = model.vectors([wav(320), wav(330), wav(2600)])
    assert np.linalg.norm(low - again) < np.linalg.norm(low - high)


def test_embed_in_the_shell(regard: Command, refused: Refused, bar: Path, tmp_path: Path) -> None:
    model = pictures.classifier()
    (line,) = regard("embed", "-m", model, bar).lines
    assert len(json.loads(line)) == 16
    more = pictures.write_pictures(tmp_path / "more", range(600, 601))
    done = regard("embed", "-m", model, more, "--npy", tmp_path / "vectors.npy")
    assert "wrote 16 vectors of 16 numbers" in done.err
    found = regard(
        "embed", "-m", model, "--similarity", bar, more / "bar" / "2-600.png", more / "beam" / "2-600.png"
    )
    near, far = (float(each.split("\t")[0]) for each in found.lines)
    assert near > far
    assert "this model reads pictures" in refused("embed", "-m", model, "A text.")


@pytest.mark.parametrize("front", ["patches", "convolution"])
def test_patches_that_fill_no_block_of_a_batch(tmp_path: Path, front: str) -> None:
    """9 patches are padded to 16 in a batch of the engine: the convolution sees the picture alone."""
    for shape in pictures.SHAPES:
        (tmp_path / "train" / shape).mkdir(parents=True)
        for place in range(6):
            path = tmp_path / "train" / shape / f"{place}.png"
            path.write_bytes(png(picture(shape, place)[:6, :6]))
    folder = pictures.trained(
        tmp_path,
        task={"name": "classify"},
        data={"train": str(tmp_path / "train")},
        input={"kind": "image", "height": 6, "width": 6, "channels": 1, "patch": 2},
        model={**pictures.MODEL, "front": front},
        train={**pictures.TRAIN, "steps": 2},
    )
    model = Classifier.load(folder)
    pixels = picture("bar", 2)[:6, :6].copy()
    frames = model.reader.frames(model.reader.read(pixels))
    plain = Classifier.load(folder, engine="plain").model(collate([Sample(frames)])).softmax(dim=-1)[0, 0]
    assert list(model.classify(pixels).probabilities.values()) == pytest.approx(plain.tolist(), abs=1e-5)


# pictures that a language model writes


@pytest.mark.parametrize("levels", [2, 16, 256])
def test_a_picture_as_text_and_back(levels: int) -> None:
    pixels = np.random.default_rng(levels).integers(0, 256, (5, 7), dtype=np.uint8)
    text = picture_text(pixels, levels)
    back = text_picture(f"a label\n{text}")
    assert back is not None
    assert back.shape == pixels.shape
    assert len(np.unique(back)) <= levels
    assert np.abs(back.astype(int) - pixels).max() <= 255 / (levels - 1) / 2 + 1
    again = text_picture(picture_text(back, levels))
    assert again is not None
    np.testing.assert_array_equal(again, back)


@pytest.mark.parametrize("text", ["", "7", "a text", "7\n⠀⠀\n⠀"])
def test_texts_without_a_picture(text: str) -> None:
    assert text_picture(text) is None


def test_a_language_model_writes_pictures(regard: Command, refused: Refused, tmp_path: Path) -> None:
    from regard.tasks import Generator

    model = Generator.load(pictures.painter())
    result = model.generate_texts("beam\n", seed=1, temperature=0.1)
    assert result.picture is not None
    assert result.picture.shape == (4, 4)
    assert set(np.unique(result.picture)) <= {0, 255}
    assert (result.picture == 255).all(axis=1).sum() == 1  # one white row
    assert "picture" not in as_dict(result)  # it is in the text
    done = regard("generate", "-m", pictures.painter(), "beam", "--seed", 1, "-o", tmp_path / "beam.png")
    assert "wrote a picture of 4 x 4 pixels" in done.err
    assert np.asarray(Image.open(tmp_path / "beam.png")).shape == (4, 4)
    regard("generate", "-m", pictures.painter(), "bar", "--seed", 1, "-n", 2, "-o", tmp_path / "bars.png")
    assert (tmp_path / "bars-2.png").is_file()
    message = refused(
        "generate", "-m", pictures.painter(), "bar", "--max-length", 6, "-o", tmp_path / "short.png"
    )
    assert "wrote no picture" in message
    assert not (tmp_path / "short.png").exists()


def test_pixels_are_for_language_models() -> None:
    with pytest.raises(UsageError, match=r"data\.pixels is for task\.name"):
        resolve(
            {
                "task": {"name": "classify"},
                "data": {"train": "x", "pixels": {"height": 4, "width": 4}},
                "input": {"kind": "image", "height": 4, "width": 4, "patch": 2},
            }
        )
