"""What a study has varied: the axes that its points lie on.

The one idea: `axes` is the owner of "what was swept" for plots, reports and tables. An axis is a
column of the study's frame (`archgen.outcomes.axes` fills it for every row) with a label, the unit
in which people read it, its values in order, and the scale on which they are even.

    study sweeps memories.local.size: [32 KiB, 64 KiB, 128 KiB] and vector.lanes: [8, 16]
    ->  Axis("arch.memories.local.size", "local.size", "KiB", (32768, 65536, 131072), "log", 1024)
        Axis("arch.vector.lanes", "lanes", "", (8, 16), "log", 1)

Networks are no axis: they are what is compared on one (`workload`). Machines that no field sets
apart, files of their own or families with different fields, are an axis without an order.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import pandas as pd

from archgen.models.load import zoo_options
from archgen.outcomes.columns import COLUMNS, Column, column, ordered
from archgen.outcomes.estimated import ESTIMATED, has_figures
from archgen.outcomes.frame import Frame, Record, dimensions, missing, number, records, sizes, typed
from archgen.outcomes.points import BUCKET, DIMENSION, FIELD, OPTION, SWITCH, Row, Scalar
from archgen.scheduling import DEFAULT
from archgen.schema.json_schema import arch_view
from archgen.schema.variants import LESS, field_of, is_one_of, value_of
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth, Delay, show_bytes

Value = str | int | float
Scale = Literal["linear", "log", "nominal"]
MACHINE, FAMILY = "arch", "family"
_PREFIXES = (FIELD, OPTION, SWITCH, DIMENSION, BUCKET)
_BYTES = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))
_SCALED: Mapping[str, tuple[tuple[str, float], ...]] = {
    "KiB": _BYTES,
    "GHz": (("GHz", 1e9), ("MHz", 1e6), ("Hz", 1.0)),
    "GOPS": (("GOPS", 1e9), ("MOPS", 1e6)),
    "GB/s": (("GB/s", 1e9), ("MB/s", 1e6), ("B/s", 1.0)),
    "s": (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)),
}
"""Units that people read, the largest first, by one that stands for the quantity."""
_OF_COUNTS = ("elements",)
"""Units of columns that the name of a dimension says already."""


@dataclass(frozen=True)
class StudyAxis:
    """One thing that a study varies."""

    column: str
    """Of the frame: `arch.memories.local.size`, `dim.sequence`, `effort`, `arch`."""
    label: str
    """Short, and like that of no other axis of the study: `local.size`."""
    unit: str
    """In which values are read, may be empty: `KiB`."""
    values: tuple[Value, ...]
    """As the column has them, each once; ascending, those of a nominal axis as they appear."""
    scale: Scale
    """On which the values are even; nominal: they have no order."""
    per: float = 1.0
    """What one `unit` is in the column."""
    texts: tuple[str, ...] = ()
    """What people read in place of each value, where the column holds whole sections of a machine:
    `cols 16, depth 32`."""

    @property
    def title(self) -> str:
        """`local.size [KiB]`."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label

    @property
    def ordered(self) -> bool:
        """Whether its values are numbers."""
        return self.scale != "nominal"

    @property
    def is_need(self) -> bool:
        """Whether it is what a network asks for: its sizes and options, of which none is enough."""
        return self.column.startswith((OPTION, DIMENSION, BUCKET))

    @property
    def less_is_more(self) -> bool:
        """Whether it is the smaller value that does more: a delay, cycles of an operation."""
        return self.column.startswith(FIELD) and is_one_of(self.column.removeprefix(FIELD), LESS)

    def number(self, value: Value) -> float:
        """A value of an ordered axis in `unit`."""
        return float(value) / self.per

    def shown(self, value: Value) -> str:
        """A value with its unit: `512 KiB`."""
        if isinstance(value, str):
            return self.texts[self.values.index(value)] if self.texts else value
        if self.unit in dict(_BYTES):
            return show_bytes(float(value))
        return f"{self.number(value):.6g} {self.unit}".strip()

    def value(self, row: Record) -> Value | None:
        """What a row of the frame has on it; None where it has no such thing."""
        found = row.get(self.column)
        return None if missing(found) else found


def axes(frame: Frame, archs: Mapping[str, Arch]) -> tuple[StudyAxis, ...]:
    """The axes of the points of `frame`, `Study.frame` or some of its rows: fields of machines
    first, then options of networks and their sizes, then batches, types and options of the
    compiler. `archs`, machines by name, know what a field is measured in."""
    told = (FIELD, OPTION, DIMENSION, BUCKET, SWITCH)
    known = {MACHINE, FAMILY, "model", "batch", "dtype", *DEFAULT.columns}
    rows = records(frame[[n for n in frame if n in known or str(n).startswith(told)]])
    names = [*_columns_with_prefix(frame, FIELD), *_columns_with_prefix(frame, OPTION)]
    names += [*dimensions(rows), *_columns_with_prefix(frame, BUCKET), "batch", "dtype"]
    names += [*DEFAULT.columns, *_columns_with_prefix(frame, SWITCH)]
    found = [axis_of(name, rows, archs) for name in names if name in frame and _varies(name, rows)]
    machines = _machines(rows, [axis for axis in found if axis.column.startswith(FIELD)])
    return tuple(_with_short_labels([*machines, *found]))


def axis_of(name: str, rows: Sequence[Record], archs: Mapping[str, Arch]) -> StudyAxis:
    """The axis that the column `name` of `rows` is; its label is its name."""
    found = dict.fromkeys(row[name] for row in rows if not missing(row[name]))
    truth = any(isinstance(value, bool) for value in found)
    values: list[Value] = [str(value) if truth else value for value in found]
    if any(isinstance(value, str) for value in values):
        told = tuple(map(str, values))
        return StudyAxis(name, name, "", told, "nominal", texts=_texts(told))
    ordered = sorted(values, key=float)
    unit, per = _display_unit(name, ordered, archs)
    return StudyAxis(name, name, unit, tuple(ordered), scale_of(ordered), per)


def workload(row: Record, varied: Iterable[StudyAxis] = ()) -> str:
    """`bert, sequence 128, batch 4`: the network of a row without what is an axis (sizes where
    they are given, the batch where it is not 1)."""
    without = {axis.column for axis in varied}
    name, _, text = str(row["model"]).rsplit("/", 1)[-1].removesuffix(".onnx").partition(":")
    options = [part for part in text.split(",") if part]
    named = {part: part.partition("=")[0].strip() for part in options}
    kept = [p for p, own in named.items() if not {OPTION + own, DIMENSION + own} & without]
    asked = {DIMENSION + own for own in named.values()}
    words = [f"{name}:{','.join(kept)}" if kept else name]
    words += [
        f"{dim} {size}"
        for dim, size in sizes(row).items()
        if f"{DIMENSION}{dim}" not in without | asked
    ]
    if row["batch"] != 1 and "batch" not in without:
        words.append(f"batch {int(row['batch'])}")
    return ", ".join(words)


def scale_of(values: Sequence[Value]) -> Scale:
    """Log where ascending values grow by factors rather than by steps: of three and more, where
    factors differ less than steps do; of two, where the one is at least twice the other."""
    numbers = [float(value) for value in values if not isinstance(value, str)]
    if len(numbers) < len(values):
        return "nominal"
    if min(numbers) <= 0:
        return "linear"
    if len(numbers) < 3:
        return "log" if numbers[-1] >= 2 * numbers[0] else "linear"
    steps = [b - a for a, b in pairwise(numbers)]
    factors = [math.log(b / a) for a, b in pairwise(numbers)]
    return "log" if max(factors) / min(factors) < max(steps) / min(steps) else "linear"


def _columns_with_prefix(frame: Frame, prefix: str) -> list[str]:
    return [str(name) for name in frame if str(name).startswith(prefix)]


def _varies(name: str, rows: Sequence[Record]) -> bool:
    """Whether points differ in a column: those of one network, where it is about networks."""
    held: dict[str, str] = {}
    of_network = name.startswith((OPTION, DIMENSION, BUCKET))
    for row in rows:
        if not missing(row[name]):
            key = str(row["model"]).partition(":")[0] if of_network else ""
            if held.setdefault(key, text := str(row[name])) != text:
                return True
    return False


def _texts(values: Sequence[str]) -> tuple[str, ...]:
    """What sets sections apart, fields in their order; nothing where some value is no section."""
    try:
        tables = [ast.literal_eval(value) for value in values]
    except (ValueError, SyntaxError):
        return ()
    if not all(isinstance(table, dict) and table for table in tables):
        return ()
    fields = list(dict.fromkeys(field for table in tables for field in table))
    own = [field for field in fields if len({str(table.get(field)) for table in tables}) > 1]
    return tuple(
        ", ".join(f"{field} {table[field]}" for field in own if field in table) for table in tables
    )


def field_text(field: str, value: Any) -> str:
    """The value of a machine's field as people read it: `1 MiB`, `0.8 GHz`; words as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)
    name = FIELD + field
    return axis_of(name, [{name: value}], {}).shown(value)


def _display_unit(
    name: str, values: Sequence[Value], archs: Mapping[str, Arch]
) -> tuple[str, float]:
    """The unit in which these values are read, and what one of it is in the column."""
    if not name.startswith(FIELD):
        known = column(name)
        unit = known.unit if known is not None else ""
        return ("" if unit in _OF_COUNTS else unit), 1.0
    base = _quantity(name.removeprefix(FIELD), archs)
    least = min((float(value) for value in values if float(value) > 0), default=1.0)
    units = _SCALED.get(base, ((base, 1.0),))
    # 0.5 GB/s reads well, 0.5 KiB does not.
    room = 1.0 if units is _BYTES else 10.0
    return next((pair for pair in units if pair[1] <= least * room * (1 + 1e-9)), units[-1])


def _quantity(field: str, archs: Mapping[str, Arch]) -> str:
    """The unit that stands for what a field is measured in; empty for a plain number."""
    every = (value for arch in archs.values() if (value := field_of(arch, field)) is not None)
    first = next(every, None)
    if isinstance(first, Bandwidth):
        return "B/cycle" if all(value.per_cycle for value in (first, *every)) else "GB/s"
    if isinstance(first, Delay):
        return "cycles" if all(value.in_cycles for value in (first, *every)) else "s"
    examples = arch_view().at(tuple(field.split("."))).get("examples", [""])
    return str(examples[0]).partition(" ")[2]


def _machines(rows: Sequence[Record], fields: Sequence[StudyAxis]) -> list[StudyAxis]:
    """The axis of machines that fields do not set apart, where there are several."""
    named = FAMILY if fields and all(FAMILY in row for row in rows) else MACHINE
    found = tuple(dict.fromkeys(str(row[named]) for row in rows))
    return [StudyAxis(named, "machine", "", found, "nominal")] if len(found) > 1 else []


def _with_short_labels(found: Sequence[StudyAxis]) -> list[StudyAxis]:
    """With short labels: of a field its last words, as many as no other axis has."""
    made = []
    for axis in found:
        own = _label_words(axis)
        others = [_label_words(other) for other in found if other is not axis]
        least = min(2, len(own)) if axis.column.startswith((FIELD, SWITCH)) else 1
        counts = range(least, len(own) + 1)
        count = next((n for n in counts if all(o[-n:] != own[-n:] for o in others)), len(own))
        made.append(replace(axis, label=".".join(own[-count:])))
    return made


def _label_words(axis: StudyAxis) -> list[str]:
    if axis.column in (MACHINE, FAMILY):
        return ["machine"]
    prefix = next((each for each in _PREFIXES if axis.column.startswith(each)), "")
    name = axis.column.removeprefix(prefix)
    whole = {BUCKET: f"range of {name}", DIMENSION: name}.get(prefix)
    return name.split(".") if whole is None else [whole]


# What every row's machine and network have in the columns that a study varies.


def with_swept(frame: Frame, archs: Iterable[Arch], columns: tuple[Column, ...] = COLUMNS) -> Frame:
    """`frame` with the value of each row's machine in every column `arch.<field>`, of each row's
    network in `dim.<dimension>`, and with columns `model.<option>` for options in which some
    network of the zoo differs. What a machine or a network does not have stays missing."""
    machines = tuple(archs)
    found: dict[str, list[Scalar]] = {}
    for name in _columns_with_prefix(frame, FIELD):
        known = machine_field_values(machines, name.removeprefix(FIELD))
        pairs = zip(frame[name], frame["arch"], strict=True)
        found[name] = [known.get(str(arch), own) for own, arch in pairs]
    if "model" in frame:
        specs = {spec: zoo_options(spec) for spec in map(str, frame["model"].unique())}
        for name in _columns_with_prefix(frame, DIMENSION):
            sizes = _of_option(specs, name.removeprefix(DIMENSION))
            pairs = zip(frame[name], frame["model"], strict=True)
            found[name] = [sizes.get(str(m)) if missing(own) else own for own, m in pairs]
        for name in _varied_options(specs):
            if f"{DIMENSION}{name}" not in found:
                values = _of_option(specs, name)
                found[f"{OPTION}{name}"] = [values.get(str(spec)) for spec in frame["model"]]
    if not found:
        return frame
    arrays = {str(name): frame[name].array for name in frame}
    arrays |= {name: typed(values, name, columns).array for name, values in found.items()}
    return pd.DataFrame({name: arrays[name] for name in ordered(arrays, columns)}, copy=False)


def _of_option(specs: Mapping[str, Mapping[str, Scalar]], name: str) -> dict[str, Scalar]:
    return {spec: options[name] for spec, options in specs.items() if name in options}


def _varied_options(specs: Mapping[str, Mapping[str, Scalar]]) -> list[str]:
    """Options in which networks of one name differ."""
    seen: dict[tuple[str, str], set[Scalar]] = {}
    for spec, options in specs.items():
        for option, value in options.items():
            seen.setdefault((spec.partition(":")[0], option), set()).add(value)
    return list(dict.fromkeys(option for (_, option), values in seen.items() if len(values) > 1))


def machine_field_values(archs: Iterable[Arch], field: str) -> dict[str, Scalar]:
    """The value of a dotted field by name of the machine, of those that have it, as numbers that
    compare: where one bandwidth or delay is in seconds all are."""
    found = [(arch, value) for arch in archs if (value := field_of(arch, field)) is not None]
    timed = [value for _, value in found if isinstance(value, Bandwidth | Delay)]
    if all(v.per_cycle if isinstance(v, Bandwidth) else v.in_cycles for v in timed):
        return {arch.name: value_of(arch, field) for arch, _ in found}
    return {arch.name: _in_seconds(value, arch.clock) for arch, value in found}


def _in_seconds(value: Bandwidth | Delay, clock: float) -> float:
    if isinstance(value, Bandwidth):
        return value.amount * (clock if value.per_cycle else 1.0)
    return value.amount / (clock if value.in_cycles else 1.0)


def rows_with_fields(rows: Iterable[Row], archs: Iterable[Arch]) -> list[Row]:
    """`rows` that name their machine, with its value of every field that any of them has set."""
    given, machines = list(rows), tuple(archs)
    fields = dict.fromkeys(name for row in given for name in row if name.startswith(FIELD))
    values = {name: machine_field_values(machines, name.removeprefix(FIELD)) for name in fields}
    return [
        row
        | {name: known[str(row["arch"])] for name, known in values.items() if row["arch"] in known}
        for row in given
    ]


# Points that differ in one or two axes alone: what a line or a map may be drawn through.

Place = tuple[Value | None, ...]
"""A value on each of some axes."""


@dataclass(frozen=True)
class Slice:
    """Points of one network along some axes."""

    network: str
    fixed: tuple[tuple[StudyAxis, Value], ...]
    """The other axes, with what all of its points have there."""
    rows: tuple[Record, ...] = field(repr=False)
    """Each place once; in the order of the first axis that it is along."""

    @property
    def label(self) -> str:
        """`banks 4, dram.bandwidth 16 GB/s`."""
        return ", ".join(axis_setting_text(axis, value) for axis, value in self.fixed)


def axis_setting_text(axis: StudyAxis, value: Value) -> str:
    """`banks 4`; a text speaks for itself."""
    shown = axis.shown(value)
    return shown if isinstance(value, str) and axis.label == "machine" else f"{axis.label} {shown}"


def deviating_axes(rows: Sequence[Record], axes: Sequence[StudyAxis]) -> list[list[StudyAxis]]:
    """For each row the axes on which it is not where most rows are."""
    counts = [(axis, Counter(axis.value(row) for row in rows)) for axis in axes]
    pairs = [(axis, count.most_common(1)[0][0]) for axis, count in counts if count]
    return [[axis for axis, value in pairs if axis.value(row) != value] for row in rows]


def slices(
    rows: Sequence[Record], axes: Sequence[StudyAxis], along: Sequence[StudyAxis]
) -> list[Slice]:
    """The slices of `rows` along some of their `axes`, of two places and more; those with most
    places first, of as many those with the quickest point, then in order of appearance. Of points
    at one place the first that has figures counts, before one that was only estimated one that ran.
    """
    others = [axis for axis in axes if axis not in along]
    found: dict[Place, dict[Place, Record]] = {}
    names: dict[tuple[Any, ...], str] = {}
    sized = [name for name in [*rows[:1], {}][0] if name.startswith(DIMENSION)]
    for row in rows:
        place = tuple(axis.value(row) for axis in along)
        if None not in place:
            said = row["model"], row["batch"], *(row[name] for name in sized)
            if said not in names:
                names[said] = workload(row, axes)
            key = (names[said], *(axis.value(row) for axis in others))
            own = found.setdefault(key, {})
            pair = own.get(place, row), row
            own[place] = max(pair, key=lambda r: (has_figures(r), r["status"] != ESTIMATED))
    orders: list[dict[Value | None, int]] = [
        {value: index for index, value in enumerate(axis.values)} for axis in along
    ]
    made = []
    for (network, *values), places in found.items():
        if all(len({place[n] for place in places}) > 1 for n in range(len(along))):
            pairs = zip(others, values, strict=True)
            fixed = tuple((axis, value) for axis, value in pairs if value is not None)
            order = sorted(places, key=lambda place: [*map(dict.__getitem__, orders, place)])
            made.append(Slice(str(network), fixed, tuple(places[place] for place in order)))
    return sorted(made, key=lambda each: (-len(each.rows), _least_time(each)))


def _least_time(one: Slice) -> float:
    times = [number(row, "latency_ms") for row in one.rows if has_figures(row)]
    return min((time for time in times if time > 0), default=math.inf)
