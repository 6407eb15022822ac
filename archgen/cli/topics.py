"""What `archgen explain` explains: sections of entries, each from the place that defines it.

The one idea: a topic is data, a list of sections with three words for each entry (name, kind,
meaning), so that the terminal and the documentation show the same thing in their own ways.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise

from archgen.cli.codes import Code
from archgen.cli.fields import Field, Part, parts
from archgen.cli.vocabulary import HEADINGS, TERMS
from archgen.knobs import Option, held, options
from archgen.lint import RULES
from archgen.lint.known import Chip, known
from archgen.lint.rules import SEVERITIES
from archgen.outcomes.columns import (
    COLUMNS,
    COMMAND_COLUMNS,
    LAYER_COLUMNS,
    LEVEL_COLUMNS,
    SPAN_COLUMNS,
    Column,
)
from archgen.outcomes.stalls import STALLS
from archgen.schema.json_schema import arch_view
from archgen.schema.view import View
from archgen.studies.file import StudyFile
from compiler import api
from compiler.api import pass_name
from simmodel import machine
from simmodel.waterfall import MOVED, WORK


@dataclass(frozen=True)
class Entry:
    """One word that is explained."""

    name: str
    kind: str
    meaning: str


@dataclass(frozen=True)
class Section:
    """Entries under a title; `headings` are the words above a table of them."""

    title: str
    about: str
    headings: tuple[str, str, str]
    entries: tuple[Entry, ...]


_FRAMES: Mapping[str, Iterable[Column]] = {
    "Study.frame, results.csv and results.parquet: one row for each point": COLUMNS,
    "Study.layers and runs/*.layers.parquet: one row for each node of a point": LAYER_COLUMNS,
    "Study.spans and runs/*.spans.parquet: when each engine worked for which node": SPAN_COLUMNS,
    "Study.levels and runs/*.levels.parquet: levels over time, in bins": LEVEL_COLUMNS,
    "archgen.commands, compile --commands, disasm --level tiles: queue by queue": COMMAND_COLUMNS,
}


def _columns() -> list[Section]:
    return [
        Section(
            title,
            "",
            ("column", "unit", "meaning"),
            tuple(Entry(known.name, known.unit, known.meaning) for known in frame),
        )
        for title, frame in _FRAMES.items()
    ]


def _stalls() -> list[Section]:
    title = "Why an engine did not compute; every idle cycle has exactly one cause"
    found = (
        Entry(cause, "", f"{stall.meaning}. Levers: {stall.levers}")
        for cause, stall in STALLS.items()
    )
    return [Section(title, "", ("cause", "", "meaning and levers"), tuple(found))]


def _plots() -> list[Section]:
    figures = import_module("archgen.plots.saving")  # slow: with pandas and matplotlib
    drawn = {
        "Figures that compare points, in the folder of a study": figures.OVERVIEWS,
        "Figures of what happened within one point": figures.DETAILS,
    }
    return [
        Section(
            title,
            "",
            ("figure", "function", "what it shows"),
            tuple(Entry(name, draw.__name__, _text_of(draw)) for name, draw in figures.items()),
        )
        for title, figures in drawn.items()
    ]


def _text_of(documented: object) -> str:
    """A docstring as one line, without what it says to programmers about errors."""
    text = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
    return " ".join(text.split(" Raises ")[0].split("Raises ")[0].split())


def _passes() -> list[Section]:
    stages, known = api.Stages(), options(api.Stages())
    return [
        Section(
            f"{word}: {type(step).__name__}",
            _first_line(step),
            ("option", "value", "meaning"),
            tuple(_entry(name, known[name]) for name in known if name.startswith(f"{word}.")),
        )
        for word, step in held(stages)
    ]


def _first_line(documented: object) -> str:
    return inspect.cleandoc(documented.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


def _entry(name: str, option: Option) -> Entry:
    said: dict[str, str] = {}
    for cls in reversed(option.holder.__mro__[:-1]):
        said |= _said_of_fields(cls) if dataclasses.is_dataclass(cls) else {}
    default = json.dumps(option.value).strip('"')
    return Entry(name, f"{option.takes}; default {default}", said[option.field])


def _said_of_fields(cls: type) -> dict[str, str]:
    """The strings below the fields of a class, or the values of an enumeration, by name."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    return {
        target.id: " ".join(below.value.value.split())
        for above, below in pairwise(body)
        if isinstance(above, ast.AnnAssign | ast.Assign)
        for target in ([above.target] if isinstance(above, ast.AnnAssign) else above.targets)
        if isinstance(target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def _architecture() -> list[Section]:
    return [_of_part(part) for part in parts(arch_view())]


def _study() -> list[Section]:
    return [_of_part(part) for part in parts(View(StudyFile.model_json_schema(by_alias=True)))]


def _of_part(part: Part) -> Section:
    found = tuple(Entry(field.name, _value(field), field.meaning) for field in part.fields)
    return Section(part.title or "top level", part.about, ("field", "value", "meaning"), found)


def _value(field: Field) -> str:
    if field.required:
        return f"{field.value}; required"
    return f"{field.value}; default {field.default}" if field.default else field.value


def _lint() -> list[Section]:
    rules = [
        Section(
            f"{severity}: {meant}",
            "",
            ("rule", "looks at", "limit; its source"),
            tuple(
                Entry(name, rule.about, f"{rule.threshold}; {_source(rule.source, rule.status)}")
                for name, rule in RULES.items()
                if rule.severity == severity
            ),
        )
        for severity, meant in SEVERITIES.items()
    ]
    chips = tuple(Entry(chip.name, _figures(chip), _source(chip.source, chip.status))
                  for chip in known().chips.values())  # fmt: skip
    headings = ("chip", "figures of the whole chip", "source")
    return [*rules, Section("Published chips that machines are held against", "", headings, chips)]


def _source(source: str, status: str) -> str:
    return f"{'the published chips below' if source == 'chips' else source} ({status})"


def _figures(chip: Chip) -> str:
    known_figures = (
        (chip.clock and chip.clock / 1e9, "{:g} GHz"),
        (chip.node, "{:g} nm"),
        (chip.tops, "{:,.4g} TOPS int8"),
        (chip.sram and chip.sram / 2**20, "{:.3g} MiB"),
        (chip.dram and chip.dram / 1e9, "{:,.4g} GB/s"),
        (chip.macs_per_byte, "{:,.3g} MAC/B"),
        (chip.area, "{:g} mm2"),
    )
    return ", ".join(words.format(figure) for figure, words in known_figures if figure)


def laws() -> str:
    """The rules of time of the machine, numbered."""
    return inspect.cleandoc(machine.__doc__ or "")


def pictures() -> dict[str, str]:
    """Name of each rewriting pass -> what it does, with a picture of before and after."""
    return {
        pass_name(type(step)): inspect.cleandoc(step.__doc__ or "")
        for _, step in held(api.Stages())
    }


def _codes() -> list[Section]:
    title = "Exit codes of all verbs; where several hold, the first of them"
    said = _said_of_fields(Code)
    found = (Entry(str(code.value), "", said[code.name]) for code in Code)
    return [Section(title, "", ("code", "", "meaning"), tuple(found))]


def _words() -> list[Section]:
    terms = tuple(Entry(name, "", meaning) for name, meaning in TERMS.items())
    headings = tuple(Entry(name, where, said) for name, (where, said) in HEADINGS.items())
    parts = {f"waits: {cause}": stall.meaning for cause, stall in STALLS.items()}
    parts |= {**WORK, **{f"DRAM: {what}": said for what, said in MOVED.items()}}
    accounts = tuple(Entry(name, "", said) for name, said in parts.items())
    return [
        Section("Terms", "", ("term", "", "meaning"), terms),
        Section("Headings of tables", "Those of frames are columns, those of sweeps fields of "
                "architecture files.", ("heading", "where", "meaning"), headings),
        Section("What the cycles of matrix engines and of DRAM went to, as in the waterfall", "",
                ("part", "", "meaning"), accounts),
    ]  # fmt: skip


SECTIONS: dict[str, Callable[[], list[Section]]] = {
    "architecture": _architecture,
    "study": _study,
    "columns": _columns,
    "plots": _plots,
    "stalls": _stalls,
    "passes": _passes,
    "codes": _codes,
    "lint": _lint,
    "words": _words,
}
"""Topic -> its sections."""
