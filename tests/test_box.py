"""A command without a model takes the package's translator that reads the language of the text."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from libretranslatepy import LibreTranslateAPI
from safetensors.torch import load_file

from conftest import Command, Refused, Toy, toy_config
from regard.data.phrasebook import phrases
from regard.errors import UsageError
from regard.server.explorer import about
from regard.storage import models as builtin
from regard.tasks import load
from served import served

ENGLISH, GERMAN = "We have been waiting for the bus.", "Wir warten schon lange auf den Bus."
RECIPES = Path(__file__).parent.parent / "recipes"
pytestmark = pytest.mark.usefixtures("same_threads")


@pytest.fixture
def package(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose two translators are the toy; it has a model for lessons beside them."""
    place = tmp_path / "models"
    for name in ("toy-de-en", "toy-en-de", "lesson-rnn"):
        shutil.copytree(toy.model, place / name, ignore=shutil.ignore_patterns("checkpoints"))
    monkeypatch.setattr("regard.storage.models.PLACE", place)
    return place


@pytest.mark.parametrize(
    ("text", "name"), [(ENGLISH, "toy-en-de"), (GERMAN, "toy-de-en"), ("1", "toy-en-de")]
)
def test_the_text_chooses_the_direction(package: Path, regard: Command, text: str, name: str) -> None:
    given = regard("translate", text)
    piped = regard("translate", stdin=f"{text}\n\n{text}\n")
    chosen = f"Using the built-in model {name} (-m selects another)"
    assert given.err.startswith(chosen) and piped.err.startswith(chosen)
    assert (len(given.lines), len(piped.lines)) == (1, 3), "no line is lost by looking at the first ones"


def test_a_document_chooses_by_its_texts(package: Path, regard: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.po").write_text(
        f'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{GERMAN}"\nmsgstr ""\n',
        encoding="utf-8",
    )
    assert "toy-de-en" in regard("translate", tmp_path / "notes.po").err


def test_a_model_of_the_package_is_not_written_to(package: Path, refused: Refused, tmp_path: Path) -> None:
    before = {file: file.read_bytes() for file in (package / "toy-en-de").iterdir() if file.is_file()}
    (tmp_path / "texts").write_text(f"{ENGLISH}\n", encoding="utf-8")
    for name in ("toy-en-de", package / "toy-en-de"):
        assert "built-in" in refused("calibrate", "-m", name, "--sample", tmp_path / "texts")
    for command in ("verify", "rm"):
        assert "built-in" in refused("models", command, "toy-en-de")
    assert before == {file: file.read_bytes() for file in (package / "toy-en-de").iterdir() if file.is_file()}


def test_a_folder_that_lies_here_is_not_the_packages(
    package: Path, regard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy-en-de").touch()
    monkeypatch.chdir(tmp_path)
    assert regard("translate", ENGLISH).code == 0


def test_what_is_said_is_what_the_named_model_says(package: Path, toy: Toy, regard: Command) -> None:
    assert (
        regard("translate", "ba de", "--language", "de").out
        == regard("translate", "-m", toy.model, "ba de").out
    )
    assert "toy-de-en" in regard("explain", GERMAN).err


def test_a_language_can_be_asked_for(
    package: Path, regard: Command, refused: Refused, tmp_path: Path
) -> None:
    assert "toy-de-en" in regard("translate", ENGLISH, "--language", "en").err
    assert "the built-in models translate into de, en" in refused("translate", ENGLISH, "--language", "fr")
    file = tmp_path / "lines.txt"
    file.write_text(f"{GERMAN}\n" * 3, encoding="utf-8")
    told = regard("translate", file, "-o", tmp_path / "out.txt")
    assert "toy-de-en" in told.err and (tmp_path / "out.txt").read_text(encoding="utf-8").count("\n") == 3


def test_a_package_without_translators_asks_for_a_model(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.storage.models.PLACE", tmp_path / "nothing")
    for command in (["translate", ENGLISH], ["explain", ENGLISH], ["explore", "--no-browser"], ["serve"]):
        assert "give a model with -m" in refused(*command)


def test_the_page_and_the_server_open_all_of_them(package: Path) -> None:
    from regard.cli.builtin import builtin_models

    assert [path.name for path in builtin_models()] == ["toy-en-de", "toy-de-en", "lesson-rnn"]
    assert builtin.translators() == {("en", "de"): "toy-en-de", ("de", "en"): "toy-de-en"}


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RECIPES))
    monkeypatch.delitem(sys.modules, "box", raising=False)
    import box  # type: ignore[import-not-found]

    return box


def test_no_sentence_is_on_both_sides_of_the_cut(
    box: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut by English sentences, "Lauf!" was in training as Run! and in the test as Go!; so were spellings."""
    pairs = [(f"english {n}", f"deutsch {n // 3}") for n in range(300)]  # three of one translation each
    pairs += [(f"English, {n}!", f"auf Deutsch: {n}") for n in range(300)]  # and each in another spelling
    rows = "".join(f"{source}\t{target}\n" for source, target in pairs)
    monkeypatch.setattr(box, "HELD_OUT", 20)
    recipe = toy_config(tmp_path)
    data = {"train": str(tmp_path / "train.tsv"), "valid": str(tmp_path / "valid.tsv")}
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    (tmp_path / "valid.tsv").write_text("english 7\tdeutsch 2\n", encoding="utf-8")
    split = box.split_up(recipe.model_copy(update={"data": recipe.data.model_copy(update=data)}))
    single = split["train"][: -(len(split["train"]) // 6)]  # without the joined rows, one in six
    known, held = box.plain_sides(single), box.plain_sides(split["test"]) | box.plain_sides(split["valid"])
    assert len({source for source, _ in split["test"]}) == 20 and len(single) > 400
    assert not known & held
    assert not {"english7", "deutsch2"} & known, "what is watched in training stays out of it, too"
    longest = split["train"][-1]
    assert longest[0].lower().count("english") == 2 == longest[1].lower().count("deutsch")


def test_each_direction_has_files_of_its_own(
    box: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = {name: [("one", "eins"), ("one", "ein"), ("two", "zwei")] for name in ("train", "valid", "test")}
    monkeypatch.setattr(box, "split_up", lambda recipe: split)
    recipe = toy_config(tmp_path)
    german = box.directed(recipe, "de-en", tmp_path / "data")
    assert (german.task.source, german.task.target) == ("de", "en")
    assert Path(str(german.data.train)).read_text(encoding="utf-8") == "eins\tone\nein\tone\nzwei\ttwo\n"
    english = box.directed(recipe, "en-de", tmp_path / "data")
    assert Path(str(english.data.test)).read_text(encoding="utf-8") == "one\teins\ntwo\tzwei\n"


def test_the_text_or_file_chooses_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from regard.cli.builtin import builtin_for

    kinds = [("clothes", "classify", "image"), ("words", "transcribe", "audio"), ("mood", "classify", "text")]
    for name, task, kind in [*kinds, ("gaps", "fill", "text")]:
        (tmp_path / name).mkdir()
        text = f'version = 3\n[task]\nname = "{task}"\ninput = "{kind}"\n'
        (tmp_path / name / "run.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr("regard.storage.models.PLACE", tmp_path)
    assert builtin_for("classify", ["Photo.PNG"]).name == "clothes"
    assert "clothes (-m selects another)" in capsys.readouterr().err
    assert builtin_for("transcribe", ["a.flac", "b.png"]).name == "words"
    assert [builtin_for("classify", texts).name for texts in (["a fine film"], [])] == ["mood", "mood"]
    (tmp_path / "gaps" / "modules.json").touch()
    assert builtin_for("embed", ["a house"]).name == "gaps", "an encoder that says how its states are pooled"
    assert builtin_for("transcribe", ["-"]).name == "words"
    (tmp_path / "album" / "old").mkdir(parents=True)
    (tmp_path / "album" / "old" / "Cat.jpg").touch()
    assert builtin_for("classify", [str(tmp_path / "album")]).name == "clothes"
    wrong = ["a.wav"], ["a.png"], ["a text"], ["a.png"]
    for task, files in zip(("classify", "tag", "tag", "fill"), wrong, strict=True):
        with pytest.raises(UsageError, match="give a model with -m"):
            builtin_for(task, files)


MODELS = builtin.names()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_package_opens_anywhere_and_names_no_machine(name: str, regard: Command) -> None:
    folder = builtin.PLACE / name
    for file in (each for each in folder.rglob("*") if each.is_file()):
        assert file.stat().st_mode & 0o444 == 0o444, f"{file.name} is for everybody to read"
        assert file.suffix == ".safetensors" or str(Path.home()) not in file.read_text(encoding="utf-8")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "test: " in card and f"-m {name}" in card and "report.html" not in card
    assert "/" not in card.split("| training data |")[1].split("\n")[0], "a name, no path"
    assert regard("models", "show", name).code == 0


def test_the_models_for_lessons_have_learned() -> None:
    """Of unseen phrases the models that look back say nearly all; one vector for a sentence holds some."""
    unseen = list(phrases("test", 60))
    right = {}
    for name in ("phrasebook-rnn", "phrasebook-bahdanau", "phrasebook-transformer"):
        said = load(builtin.PLACE / name).translate([phrase.english for phrase in unseen])
        right[name] = sum(text == phrase.german for text, phrase in zip(said, unseen))
    assert 3 <= right["phrasebook-rnn"] <= 25, right
    assert min(right["phrasebook-bahdanau"], right["phrasebook-transformer"]) >= 48, right


def test_the_translators_of_the_package(regard: Command) -> None:
    said = regard("translate", "I would like to read this book.")
    assert "Buch" in said.out and "lesen" in said.out and "tatoeba-en-de" in said.err
    back = regard("translate", stdin="Ich habe vergessen, die Tür abzuschließen.\n")
    assert "door" in back.out and "tatoeba-de-en" in back.err
    places = [builtin.PLACE / name for name in builtin.translators().values()]
    assert sum(file.stat().st_size for place in places for file in place.iterdir()) <= 16_000_000
    for place in places:
        card = (place / "README.md").read_text(encoding="utf-8")
        assert "CC-BY 2.0" in card and "license: cc-by-2.0" in card and "What it gets wrong" in card


def test_a_packed_model_tells_its_own_size() -> None:
    """The map once counted 1.35 million of 3.7: the engine had packed the others into bytes."""
    place = builtin.PLACE / builtin.translators()["en", "de"]
    task = load(place)
    stored = sum(tensor.numel() for tensor in load_file(place / "model.safetensors").values())
    assert sum(each.numel() for each in task.folder.model.parameters()) < stored, "it is packed"
    assert about("box", task)["parameters"] == stored


def test_the_translators_are_served_by_their_languages() -> None:
    """Without run.toml a folder once forgot them: the server offered "source" and "target"."""
    paths = [builtin.PLACE / name for name in builtin.translators().values()]
    with served(models={path.name: load(path) for path in paths}) as server:
        client = LibreTranslateAPI(server.address)
        assert {each["code"]: each["targets"] for each in client.languages()} == {
            "en": ["de", "en"],
            "de": ["de", "en"],
        }
        assert "Buch" in client.translate("I would like to read this book.", "en", "de")
        assert "door" in client.translate("Ich habe vergessen, die Tür abzuschließen.", "auto", "en")


def test_one_sentence_waits_for_no_compiler_and_no_trainer() -> None:
    """Numbers drawn for mere shapes once brought in torch's compiler: a second of each start."""
    watch = "import sys; from regard.cli import main\n"
    watch += f"try: main(['translate', '{ENGLISH}'])\n"
    watch += "finally: print({'torch._dynamo', 'sympy', 'sacrebleu', 'regard.training.run'} & {*sys.modules})"
    result = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("set()\n")


def test_the_lexicon_finds_translations_of_words(
    box: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences of known words in random order; the spelling is that inside sentences."""
    import lexicon  # type: ignore[import-not-found]

    words = {"dog": "Hund", "sees": "sieht", "cat": "Katze", "old": "alte", "today": "heute", "house": "Haus"}
    rng = random.Random(1)
    drawn = [rng.sample(list(words), 4) for _ in range(200)]
    german = [rng.sample([words[word] for word in each], 4) for each in drawn]
    pairs = [
        (" ".join([left[0].title(), *left[1:]]), " ".join([right[0].title(), *right[1:]]))
        for left, right in zip(drawn, german)
    ]
    assert dict(lexicon.word_pairs(pairs)) == words


def test_placeholder_tokens_are_added_to_a_trained_model(box: ModuleType, toy: Toy, tmp_path: Path) -> None:
    """The new tokens are read as one each, and all others keep their ids and their weights."""
    box.add_placeholders(toy.model, tmp_path / "more")
    old, new = load(toy.model).folder, load(tmp_path / "more").folder
    assert len(new.source) == len(old.source) + 10 and len(new.source.placeholders) == 10
    assert new.source.encode("ba de") == old.source.encode("ba de")
    assert len(new.source.encode("ba ⟦3⟧ de")) == len(old.source.encode("ba de")) + 2  # the space before it
    before, after = (load_file(folder.path / "model.safetensors") for folder in (old, new))
    assert all(torch.equal(after[name][: len(tensor)], tensor) for name, tensor in before.items())
