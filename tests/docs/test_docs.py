"""The documentation and notebooks, followed from top to bottom as a reader would: every block runs,
nothing generated is stale."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pages import (
    PAGES,
    ROOT,
    TIMEOUT,
    Block,
    Reader,
    WrongPage,
    blocks,
    environment,
    generated,
    prepare,
)  # fmt: skip
from warm import commands

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#([\w-]+))?\)")

_TEST = re.compile(r"`(test_\w+)`")


def name_of(page: Path) -> str:
    return page.stem


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    with commands() as folder:
        yield folder


@pytest.fixture
def reader(warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in environment(warm).items():
        monkeypatch.setenv(name, value)
    return Reader(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_does_what_it_says(page: Path, reader: Reader) -> None:
    for block in blocks(page):
        reader.follow(block)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "<!-- generated: " in page.read_text(encoding="utf-8")],
    ids=name_of,
)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    stale = page.read_text(encoding="utf-8") != generated(page)
    assert not stale, f"run: python tests/docs/pages.py {page.relative_to(ROOT)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target, _ in _LINK.findall(page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_that_a_page_names_are_there(page: Path) -> None:
    known = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(_TEST.findall(page.read_text(encoding="utf-8"))) <= known


def test_the_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in PAGES[1:] if f"docs/{page.name}" not in readme]
    assert not missing


def test_the_map_of_the_house_names_what_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+\? \| ([^|]+) \| ([^|]*) \|$", page, re.M)
    assert len(rows) > 20
    for files, names in rows:
        sources = [ROOT / path for path in re.findall(r"`(\w+/[\w/.]+)`", files)]
        folders = [path if path.is_dir() else path.parent for path in sources]
        text = "\n".join(f.read_text("utf-8") for folder in folders for f in folder.glob("*.py"))
        assert all(path.exists() for path in sources), files
        for name in re.findall(r"\w+", names):
            assert re.search(rf"^ *(?:def |class )?{name}\b[^\n]*[=:(]", text, re.M), name


def block(language: str, text: str, mark: str = "", value: str = "") -> Block:
    return Block(ROOT / "README.md", 1, language, text, mark, value, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        block("sh", "archgen check no-such-machine.yaml"),
        block("sh", "true", "exit", "2"),
        block("yaml", "name: nobody"),
        block("text", "words that nobody printed\n", "output"),
    ],
)
def test_what_is_wrong_in_a_page_is_found(wrong: Block, reader: Reader) -> None:
    with pytest.raises(WrongPage, match=r"README\.md:1"):
        reader.follow(wrong)


def test_outputs_are_compared_by_their_words(reader: Reader) -> None:
    reader.follow(block("python", "print('latency   3.5 ms,  2 cores')"))
    reader.follow(block("text", "latency 11.25 ms, 4 cores\n...\n", "output"))
    with pytest.raises(WrongPage, match="nothing like"):
        reader.follow(block("text", "latency 3.5 us, 2 cores\n", "output"))


def test_the_results_in_the_readme_are_of_machines_that_are_shipped() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.split("\n## Results\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([\w-]+) \| [\d.]+ ", shown, re.M)
    assert rows
    assert set(rows) <= {path.stem for path in (ROOT / "archs").glob("*.yaml")}


def test_the_source_of_the_readme_holds_no_comments() -> None:
    assert "<!--" not in (ROOT / "README.md").read_text(encoding="utf-8")


# Notebooks.

NOTEBOOKS = sorted((ROOT / "studies").glob("*.ipynb"))
assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_rich_results(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
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


# docs/operators.md says where operators run today: it names all, and a sample is made anew.

SAMPLE = ("Relu", "Conv", "MatMul", "Softmax", "NonZero", "StringSplit", "Where", "Bernoulli")


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("operators")


def test_every_operator_has_a_row(operators: ModuleType) -> None:
    text = operators.PAGE.read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:] == operators.operators()
    assert text.startswith(operators.HEAD)
    assert text.endswith(f"{operators.microsoft_table()}\n")


def test_rows_are_up_to_date(
    operators: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path))
    text = operators.PAGE.read_text(encoding="utf-8")
    chosen = operators.representatives(operators.cases())
    stale = [name for name in SAMPLE if operators.line(name, chosen) not in text.splitlines()]
    assert not stale, "run: python docs/operators.py"
