"""The notebooks of `studies/`, executed from top to bottom as a reader would, and kept clean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "studies").glob("*.ipynb"))
TIMEOUT = 1200
"""Seconds for a cell; what hangs ends, and what a busy machine delays does not."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_rich_results(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    shown = [
        kind
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for kind in output.get("data", ())
    ]
    assert shown.count("image/png") >= 3, "figures"
    assert shown.count("text/html") >= 5, "studies, comparisons and frames"


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
