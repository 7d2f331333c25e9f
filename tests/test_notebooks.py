"""The notebooks run from beginning to end, in the small settings that they have for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAME = lambda path: path.stem  # noqa: E731


def test_there_is_one_for_each_kind_of_people() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["builder", "learner", "practitioner"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAME)
def test_no_outputs_are_committed(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    assert any("REGARD_NOTEBOOK" in "".join(cell["source"]) for cell in code), "the cell of parameters"


@pytest.mark.filterwarnings("default")  # of the kernel's own machinery, which is not ours
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem == "learner" else pytest.mark.slow)
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("REGARD_NOTEBOOK", "small")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    found = nbformat.read(path, as_version=4)
    nbformat.validate(found)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(found, timeout=240, kernel_name="python3", resources=place).execute()
    ran = [cell for cell in found.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in ran)
    shown = {name for cell in ran for output in cell.outputs for name in output.get("data", {})}
    assert path.stem == "builder" or "text/html" in shown, "a figure"
