"""The notebooks of `studies/`, executed from top to bottom as a reader would, and kept clean; its
sentences say what it shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from figures import Tie, WrongFigure, stretches

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "studies").glob("*.ipynb"))
TIMEOUT = 1200
"""Seconds for a cell; what hangs ends, and what a busy machine delays does not."""
ASKED = """
import json as _json
import numpy as _np

def _values(source):
    try:
        return _np.ravel(_np.asarray(eval(source), float)).tolist()
    except Exception as mistake:
        return f"{type(mistake).__name__}: {mistake}"

print(_json.dumps([_values(source) for source in SOURCES]))
"""
"""A cell at the end, which says what figures of sentences are tied to."""


def prose(path: Path) -> list[str]:
    """The cells of a notebook that are sentences."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def tied(path: Path) -> list[Tie]:
    """What figures in its sentences are tied to, where they are tested."""
    every = [tie for text in prose(path) for stretch in stretches(text) for tie in stretch.ties]
    return [tie for tie in every if tie.tested]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_rich_results(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    ties = tied(path)
    sources = ASKED.replace("SOURCES", repr([tie.source for tie in ties]))
    notebook.cells.append(nbformat.v4.new_code_cell(sources))
    client.execute()
    found = json.loads(notebook.cells.pop().outputs[0].text)
    assert not list(wrong_figures(ties, found))
    shown = [
        kind
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for kind in output.get("data", ())
    ]
    assert shown.count("image/png") >= 3, "figures"
    assert shown.count("text/html") >= 5, "studies, comparisons and frames"


def wrong_figures(ties: list[Tie], found: list[list[float] | str]) -> Iterator[str]:
    """Figures that are not what the notebook has made."""
    for tie, values in zip(ties, found, strict=True):
        try:
            if isinstance(values, str):
                raise WrongFigure(f"{tie.source}: {values}")
            tie.check(values)
        except WrongFigure as wrong:
            yield str(wrong)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_figure_of_a_sentence_says_where_it_is_from(path: Path) -> None:
    every = [stretch for text in prose(path) for stretch in stretches(text)]
    assert not [each for stretch in every for each in stretch.mistakes()]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_what_a_run_leaves(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert set(content["metadata"]) == {"kernelspec", "language_info"}
    assert content["metadata"]["language_info"] == {"name": "python"}
    for cell in content["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
        assert not cell["metadata"]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
