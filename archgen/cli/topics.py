"""What `archgen explain` explains: sections of entries, each from the place that defines it.

The one idea: a topic is data, a list of sections with three words for each entry (name, kind,
meaning), so that the terminal and the documentation show the same thing in their own ways.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from archgen.cli.terminal import ExitCode
from archgen.lint import RULES
from archgen.lint.rules import SEVERITIES, Chip, published_chips
from archgen.outcomes import columns
from archgen.outcomes.columns import COMMAND_COLUMNS, LAYER_COLUMNS, LEVEL_COLUMNS, SPAN_COLUMNS
from archgen.scheduling import PassOptionField, options, passes_by_prefix
from archgen.schema.json_schema import REF, Schema, View, arch_view, view_of
from archgen.studies.file import StudyFile
from compiler import api
from compiler.api import pass_name
from simmodel import machine
from simmodel.arch.base import words_below
from simmodel.arch.memories import DRAM_KINDS
from simmodel.arch.units import show_bytes
from simmodel.metrics import MOVED, WORK


@dataclass(frozen=True)
class ExplainedTerm:
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
    entries: tuple[ExplainedTerm, ...]


def _section(
    title: str, headings: tuple[str, str, str], rows: Iterable[tuple[str, str, str]],
    about: str = "",
) -> Section:  # fmt: skip
    return Section(title, about, headings, tuple(ExplainedTerm(*row) for row in rows))


# The fields of a file format, part by part, from its JSON Schema.


def parts(view: View) -> list[Section]:
    """Every mapping with fixed keys, outer ones first; titles are the paths where it stands."""
    places: dict[str, dict[str, None]] = {}
    schemas: dict[str, Schema] = {}
    for path, kind, schema in _nested_mappings(view, "", view.root):
        places.setdefault(kind, {})[path] = None
        schemas[kind] = schema
    return [
        _section(
            ", ".join(places[kind]) or "top level",
            ("field", "value", "meaning"),
            _fields(view, schema),
            " ".join(str(schema.get("description", "")).split()),
        )
        for kind, schema in schemas.items()
    ]


def _dram_kinds() -> Section:
    """What each kind of DRAM gives, and from what."""
    rows = (
        (name, ", ".join(f"`{field}` {value}" for field, value in kind.fields(0).items()
                         if field not in ("channels", "write_efficiency")), kind.timing)
        for name, kind in DRAM_KINDS.items()
    )  # fmt: skip
    about = (
        "What a kind gives where the file states none of its own, and the timing that it follows "
        "from. Efficiencies are what refresh leaves of long reads and writes; `channels` are as "
        "many as carry the bandwidth. A run opens a row, of which there are four in tFAW: "
        "`run_cost` is what its burst leaves of that. `conflict_penalty` is a turn each way for "
        "1 KiB each way. `latency` is that of a row that is closed, without the controller's."
    )
    return _section("memories.dram.kind", ("kind", "gives", "from"), rows, about)


def _nested_mappings(view: View, path: str, schema: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Path, name in the schema, and schema of each mapping below and with `schema`."""
    yield path, str(schema.get("title", path)), schema
    for key, node in schema.get("properties", {}).items():
        below = f"{path}.{key}" if path else key
        for suffix, inner in _mappings(view, node):
            yield from _nested_mappings(view, below + suffix, inner)


def _mappings(view: View, node: Schema) -> Iterator[tuple[str, Schema]]:
    """Mappings with fixed keys that a value may hold, with what their paths end in."""
    if "$ref" in node:
        inner = view.root["$defs"][node["$ref"].removeprefix(REF)]
        if "properties" in inner:
            yield "", inner
        return
    for option in node.get("anyOf", ()):
        yield from _mappings(view, option)
    if isinstance(more := node.get("additionalProperties"), dict):
        yield from ((f".<name>{end}", inner) for end, inner in _mappings(view, more))
    if "items" in node:
        yield from _mappings(view, node["items"])


def _fields(view: View, schema: Schema) -> Iterator[tuple[str, str, str]]:
    """Name, what it takes, and meaning of each key."""
    for key, node in schema.get("properties", {}).items():
        inner = node if "examples" in node else view.resolved(node)
        own = inner.get("description", "") if inner.get("type") != "object" else ""
        takes = view.expected(inner).removesuffix(" or null")
        default = _default(node.get("default"), inner.get("examples", [""])[0])
        if key in schema.get("required", ()):
            takes += "; required"
        elif default:
            takes += f"; default {default}"
        yield key, takes, " ".join(str(node.get("description") or own).split())


def _default(value: Any, example: str) -> str:
    """A default as a file would say it; nothing where a mapping or nothing is the default."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if (not value and value != 0) or isinstance(value, dict):
        return ""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, str):
        return _LONG.sub(lambda found: f"{float(found[0]):.6g}", value)
    return _IN_UNITS.get(example.partition(" ")[2], "{:g}".format)(value)


_IN_UNITS: dict[str, Callable[[float], str]] = {
    "KiB": show_bytes,
    "nm": lambda value: f"{value:g} nm",
    "GOPS": lambda value: f"{value / 1e9:g} GOPS",
}
"""How a default in base units is written, by the unit of the field's example."""
_LONG = re.compile(r"\d+\.\d{7,}")
"""A decimal fraction that binary could not hold exactly."""


# The topics.

_FRAMES: Mapping[str, Iterable[columns.Column]] = {
    "Study.frame, results.csv and results.parquet: one row for each point": columns.COLUMNS,
    "Study.layers and runs/*.layers.parquet: one row for each node of a point": LAYER_COLUMNS,
    "Study.spans and runs/*.spans.parquet: when each engine worked for which node": SPAN_COLUMNS,
    "Study.levels and runs/*.levels.parquet: levels over time, in bins": LEVEL_COLUMNS,
    "archgen.commands, compile --commands, disasm --level tiles: queue by queue": COMMAND_COLUMNS,
}


def _column_sections() -> list[Section]:
    return [
        _section(title, ("column", "unit", "meaning"), ((c.name, c.unit, c.meaning) for c in frame))
        for title, frame in _FRAMES.items()
    ]


def _stalls() -> list[Section]:
    title = "Why an engine did not compute; every idle cycle has exactly one cause"
    rows = (
        (cause, "", f"{stall.meaning}. Levers: {stall.levers}")
        for cause, stall in columns.STALLS.items()
    )
    return [_section(title, ("cause", "", "meaning and levers"), rows)]


def _plots() -> list[Section]:
    figures = import_module("archgen.plots.saving")  # slow: with pandas and matplotlib
    drawn = {
        "Figures that compare points, in the folder of a study": figures.OVERVIEWS,
        "Figures of what happened within one point": figures.DETAILS,
    }
    return [
        _section(
            title,
            ("figure", "function", "what it shows"),
            ((name, draw.__name__, _text_of(draw)) for name, draw in figures.items()),
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
        _section(
            f"{word}: {type(step).__name__}",
            ("option", "value", "meaning"),
            (_pass_row(name, known[name]) for name in known if name.startswith(f"{word}.")),
            inspect.cleandoc(step.__doc__ or "").partition("\n\n")[0].replace("\n", " "),
        )
        for word, step in passes_by_prefix(stages)
    ]


def _pass_row(name: str, option: PassOptionField) -> tuple[str, str, str]:
    said: dict[str, str] = {}
    for cls in reversed(option.holder.__mro__[:-1]):
        said |= _said_of_fields(cls) if dataclasses.is_dataclass(cls) else {}
    default = json.dumps(option.value).strip('"')
    return name, f"{option.takes}; default {default}", said[option.field]


def _said_of_fields(cls: type) -> dict[str, str]:
    """The text below each field of a class, on one line."""
    return {name: " ".join(words.split()) for name, words in words_below(cls).items()}


def _lint() -> list[Section]:
    rules = [
        _section(
            f"{severity}: {meant}",
            ("rule", "looks at", "limit; its source"),
            (
                (name, rule.about, f"{rule.threshold}; {_source(rule.source, rule.status)}")
                for name, rule in RULES.items()
                if rule.severity == severity
            ),
        )
        for severity, meant in SEVERITIES.items()
    ]
    chips = (
        (chip.name, _figures(chip), _source(chip.source, chip.status))
        for chip in published_chips().chips.values()
    )
    title = "Published chips that machines are held against"
    return [*rules, _section(title, ("chip", "figures of the whole chip", "source"), chips)]


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
        for _, step in passes_by_prefix(api.Stages())
    }


def _codes() -> list[Section]:
    title = "Exit codes of all verbs; where several hold, the first of them"
    said = _said_of_fields(ExitCode)
    rows = ((str(code.value), "", said[code.name]) for code in ExitCode)
    return [_section(title, ("code", "", "meaning"), rows)]


def _term_sections() -> list[Section]:
    accounts = {f"waits: {cause}": stall.meaning for cause, stall in columns.STALLS.items()}
    terms = ((name, "", said) for name, said in columns.TERMS.items())
    accounts |= WORK
    accounts |= {f"{f}: {what}": said for f in ("DRAM", "flash") for what, said in MOVED.items()}
    return [
        _section("Terms", ("term", "", "meaning"), terms),
        _section(
            "Headings of tables", ("heading", "where", "meaning"),
            ((name, where, said) for name, (where, said) in columns.HEADINGS.items()),
            "Those of frames are columns, those of sweeps fields of architecture files.",
        ),
        _section(
            "What the cycles of matrix engines, DRAM and flash went to, as in the waterfall",
            ("part", "", "meaning"), ((name, "", said) for name, said in accounts.items()),
        ),
        _section(
            "What holds a run up (`held_by`)",
            ("in tables / in sentences", "in the column", "meaning"),
            (
                (" / ".join(dict.fromkeys((limit.words, limit.phrase))), cause,
                 f"{limit.phrase} takes more of the time than all else"
                 f"{'; moved by ' * bool(limit.fields)}{', '.join(limit.fields)}")
                for cause, limit in columns.LIMITS.items()
            ),
        ),
    ]  # fmt: skip


SECTIONS: dict[str, Callable[[], list[Section]]] = {
    "architecture": lambda: [*parts(arch_view()), _dram_kinds()],
    "study": lambda: parts(view_of(StudyFile)),
    "columns": _column_sections,
    "plots": _plots,
    "stalls": _stalls,
    "passes": _passes,
    "codes": _codes,
    "lint": _lint,
    "words": _term_sections,
}


# The reference of the command line.

_HELP_WIDTH = 96


def reference() -> str:
    """The overview, then each verb, as their `--help` prints it at a fixed width: asked of the
    commands themselves, so a page of the documentation that holds it cannot drift from them."""
    group: click.Group = import_module("archgen.cli.main").cli
    context = _help_context(group, "archgen", None)
    verbs = {name: group.get_command(context, name) for name in group.list_commands(context)}
    helps = (
        verb.get_help(_help_context(verb, name, context)).rstrip()
        for name, verb in verbs.items()
        if verb is not None
    )
    return "\n\n\n".join([group.get_help(context).rstrip(), *helps])


def _help_context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(
        command, info_name=name, parent=parent, help_option_names=["-h", "--help"],
        terminal_width=_HELP_WIDTH, max_content_width=_HELP_WIDTH,
    )  # fmt: skip
