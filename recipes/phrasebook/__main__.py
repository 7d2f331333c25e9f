"""Write the built-in corpus into the package, or a split of any length as a table.

python -m recipes.phrasebook
python -m recipes.phrasebook train 1000000 > train.tsv
"""

from __future__ import annotations

import argparse
from pathlib import Path
from zipfile import ZIP_BZIP2, ZipFile, ZipInfo

from recipes.phrasebook import phrases
from regard.data.phrasebook import ARCHIVE, SIZES

EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is written


def write(path: Path) -> None:
    with ZipFile(path, "w") as archive:
        for split, count in SIZES.items():
            pairs = list(phrases(split, count))
            columns = {"en": [pair.english for pair in pairs], "de": [pair.german for pair in pairs]}
            if split == "test":
                columns["phenomena"] = [" ".join(sorted(pair.phenomena)) for pair in pairs]
            for name, lines in columns.items():
                member = ZipInfo(f"{split}.{name}", EPOCH)
                member.create_system = 3  # of any system
                text = "".join(f"{line}\n" for line in lines)
                archive.writestr(member, text, compress_type=ZIP_BZIP2, compresslevel=9)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("split", nargs="?", choices=list(SIZES))
    options.add_argument("count", nargs="?", type=int, default=50_000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    if given.split is None:
        write(ARCHIVE)
        return
    for pair in phrases(given.split, given.count, given.seed):
        print(f"{pair.english}\t{pair.german}")


if __name__ == "__main__":
    main()
