"""What `archgen explain` prints is complete: every heading of a table, printed or in a page, every
column and every option can be looked up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import archgen
from archgen.cli.compare import _FIGURES
from archgen.cli.explain import TOPICS, matching_sections
from archgen.cli.machines import _LEVELS
from archgen.cli.main import VERBS, cli
from archgen.cli.summary import _CELLS
from archgen.cli.topics import SECTIONS, parts
from archgen.outcomes.columns import (
    COLUMNS,
    HEADINGS,
    LAYER_COLUMNS,
    LEVEL_COLUMNS,
    LIMITS,
    SPAN_COLUMNS,
    STALLS,
)
from archgen.scheduling import options
from archgen.schema.json_schema import arch_view
from compiler.options import Stages
from simmodel.metrics import MOVED, WORK

HERE = Path(archgen.__file__).parent
FILES = [*sorted((HERE / "cli").glob("*.py")), *sorted((HERE / "report").glob("*.py"))]
PAGE = HERE / "report/templates/report.html.j2"
FIRST = ("Heading", "values", "words")
"""Makers of a column of the report: its heading, then what else is said of it."""
MAKERS = ("add_column", "plain_table", "_table", *FIRST)


NAMED = ("headings", "more")
"""Names of headings that are not where a table is made."""


def headings(tree: ast.Module) -> Iterator[str]:
    """Texts that are given to what makes columns: at once, in a loop, or by a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in MAKERS:
            yield from (text for given in node.args for text in _texts(given))
        elif isinstance(node, ast.For) and any(
            isinstance(each, ast.Call) and _called(each) == "add_column"
            for below in node.body for each in ast.walk(below)
        ):  # fmt: skip
            yield from _texts(node.iter)
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in NAMED:
            yield from _texts(node.value)


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value.removeprefix(">")
    elif isinstance(node, ast.Starred):
        yield from _texts(node.value)
    elif isinstance(node, ast.IfExp):
        yield from (text for each in (node.body, node.orelse) for text in _texts(each))
    elif isinstance(node, ast.Tuple | ast.List):
        yield from (text for each in node.elts for text in _texts(each))
    elif isinstance(node, ast.BinOp):
        yield from (text for each in (node.left, node.right) for text in _texts(each))


def of_a_heading(tree: ast.Module) -> Iterator[str]:
    """As `headings`; of columns of the report their text alone, not unit and meaning."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in FIRST:
            node.args = node.args[:1]
    yield from headings(tree)


def shown() -> list[str]:
    """Every heading that is written anywhere, and those from tables of their own."""
    found = [text for file in FILES for text in of_a_heading(ast.parse(file.read_text("utf-8")))]
    found += [text for cell in PAGE.read_text("utf-8").split('<th scope="col"')[1:]
              for text in [cell.split(">")[1].split("<")[0]]]  # fmt: skip
    found += [*_LEVELS.values(), *_FIGURES.values()]
    found += [heading for _, heading, _ in _CELLS]
    found += [f"waits: {cause}" for cause in STALLS] + [f"DRAM: {what}" for what in MOVED]
    return [text for text in dict.fromkeys(" ".join(t.split()) for t in (*found, *WORK)) if text]


def test_every_heading_is_explained() -> None:
    known = shown()
    assert len(known) > 150
    assert [text for text in known if not matching_sections(text)] == []


def test_no_heading_is_explained_that_is_not_shown() -> None:
    known = {text.lower() for text in shown()} | {"finished", "model", "batch"}
    stale = [name for name in HEADINGS if not known & set(name.split(" / "))]
    assert stale == []


@pytest.mark.parametrize("frame", [COLUMNS, LAYER_COLUMNS, SPAN_COLUMNS, LEVEL_COLUMNS])
def test_every_column_is_explained(frame: tuple[archgen.outcomes.columns.Column, ...]) -> None:
    for column in frame:
        found = [each.meaning for part in matching_sections(column.name) for each in part.entries]
        assert column.meaning in found, column.name


def test_every_field_is_explained() -> None:
    for part in parts(arch_view()):
        for path in part.title.split(", "):
            for field in part.entries:
                name = f"{path}.{field.name}".removeprefix("top level.").lstrip(".")
                found = [each.meaning for made in matching_sections(name) for each in made.entries]
                assert field.meaning in found, name


def test_every_answer_to_what_holds_a_run_up_is_explained() -> None:
    for words in (words for each in LIMITS.values() for words in (each.words, each.phrase)):
        names = [entry.name for part in matching_sections(words) for entry in part.entries]
        assert words in [spelt for name in names for spelt in name.split(" / ")]


@pytest.mark.parametrize(
    "word", ["knee", "pareto", "levers", "lever", "traffic", "roofline", "bound", "Of roofline"]
)
def test_words_of_reports_are_explained(word: str) -> None:
    assert any(section.title.startswith("words: ") for section in matching_sections(word))


def explained(*words: str) -> str:
    done = CliRunner().invoke(cli, ["explain", *words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_says_the_same_in_a_terminal_and_in_the_documentation(topic: str) -> None:
    text, markdown = explained(topic), explained(topic, "--markdown")
    for section in SECTIONS.get(topic, list)():
        for entry in section.entries:
            assert entry.name in text
            assert f"`{entry.name}`" in markdown


@pytest.mark.parametrize("topic", SECTIONS)
def test_everything_has_a_meaning(topic: str) -> None:
    plain = {"name", "description", "memories", "matrix", "vector", "scalar", "copy", "dram"}
    for section in SECTIONS[topic]():
        unsaid = [entry.name for entry in section.entries if not entry.meaning]
        mappings = [entry.name for entry in section.entries if "mapping" in entry.kind]
        assert set(unsaid) <= plain | set(mappings) | _NAMES_THAT_SAY_ALL, section.title


_NAMES_THAT_SAY_ALL = {
    "startup", "input", "weights", "simple", "multiply", "divide", "special", "read", "write",
    "fusion", "halo", "objective", "effort", "models", "batches", "verify", "host", "calibration",
    "from", "to", "scale", "seed", "metric",
}  # fmt: skip


def test_every_option_of_every_pass_is_listed() -> None:
    listed = [entry.name for section in SECTIONS["passes"]() for entry in section.entries]
    assert listed == list(options(Stages()))


def test_the_reference_has_every_verb() -> None:
    text = explained("cli")
    assert all(f"Usage: archgen {verb} " in text for verb in VERBS)
