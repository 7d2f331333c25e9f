"""What the engine of Firefox's translator (bergamot 0.4.5) makes of lines of text: greedy, no short-list.

Its wheels are for Python 3.10 and older. Unpack one (`unzip bergamot-0.4.5-cp310-*.whl -d bergamot`), as
importing the package connects. This program needs nothing of Regard:

    python -m bench.bergamot bergamot FOLDER_OF_MODEL < texts.txt > outputs.txt
"""

import importlib.util
import sys
import types
from pathlib import Path

CONFIG = """models: [{model}]
vocabs: [{vocabulary}, {vocabulary}]
beam-size: 1
normalize: 1.0
word-penalty: 0
max-length-break: 256
mini-batch-words: 1024
workspace: 128
max-length-factor: 2.5
skip-cost: true
cpu-threads: 0
quiet: true
quiet-translation: true
gemm-precision: int8shiftAlphaAll
alignment: soft
"""


def engine(wheel: Path):
    """The compiled module alone."""
    package = types.ModuleType("bergamot")
    package.__path__ = [str(wheel / "bergamot")]
    sys.modules["bergamot"] = package
    (library,) = (wheel / "bergamot").glob("_bergamot*.so")
    spec = importlib.util.spec_from_file_location("bergamot._bergamot", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    bergamot, folder = engine(Path(sys.argv[1])), Path(sys.argv[2])
    (model,), (vocabulary,) = folder.glob("model*.bin"), folder.glob("vocab*.spm")
    service = bergamot.Service(bergamot.ServiceConfig(1, 0, "off"))
    loaded = service.modelFromConfig(CONFIG.format(model=model, vocabulary=vocabulary))
    texts = bergamot.VectorString()
    for line in sys.stdin:
        texts.append(line.rstrip("\n"))
    for response in service.translate(loaded, texts, bergamot.ResponseOptions(False, False, False)):
        print(response.target.text.replace("\n", " "))


if __name__ == "__main__":
    main()
