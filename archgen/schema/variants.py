"""Variants of a machine: an architecture file with some of its fields set to other values.

The one idea: a setting is laid over the file's tree as a file that extends it would be, so what is
wrong with a value is said where that value stands, by the same rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import Any

from pydantic import BaseModel

import archgen.schema.tree as trees
from archgen.schema.record import validate
from archgen.schema.tree import FilePosition, ListNode, Mistake, Node, ScalarNode, Table
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth, Delay

Scalar = str | int | float | bool | None
_NOWHERE = FilePosition("")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Setting:
    """One field of an architecture and the value that a variant gives it."""

    field: str
    """Dotted: `memories.local.size`."""
    value: Scalar
    """In base units: bytes, hertz; bandwidths and delays per second or cycle, as spelled."""
    text: str
    """As it was written: `512 KiB`."""


@dataclass(frozen=True)
class Variant:
    """A machine, and what sets it apart from the others of its family."""

    arch: Arch
    family: str
    settings: tuple[Setting, ...] = ()
    file: str = ""
    """That describes the machine, or that it extends; empty: none is known."""


Choice = Mapping[str, Node]
"""Dotted field -> the value to be laid over the file."""


def as_node(value: Any, at: FilePosition = _NOWHERE) -> Node:
    """A value that no file holds as a tree that can be laid over one."""
    if isinstance(value, Mapping):
        entries = {str(k): trees.MappingEntry(at, as_node(v, at)) for k, v in value.items()}
        return Table(at, entries)
    if isinstance(value, list | tuple):
        return ListNode(at, tuple(as_node(item, at) for item in value))
    return ScalarNode(at, value, str(value))


def table_of(values: Mapping[str, Any]) -> Table:
    """What no file holds as the tree of one."""
    found = as_node(values)
    assert isinstance(found, Table)
    return found


def combinations(sweep: Mapping[str, Sequence[Node]], cases: Sequence[Choice]) -> list[Choice]:
    """Every combination of the sweep's values, for each of the cases."""
    grid = [dict(zip(sweep, values, strict=True)) for values in product(*sweep.values())]
    return [{**case, **point} for case in (cases or [{}]) for point in grid]


def variant(
    tree: Table, choice: Choice, name: str | None = None, common: Choice | None = None
) -> tuple[Variant | None, list[Mistake]]:
    """The file `tree` with the fields of `choice` set, or all that is wrong with it.

    Args:
        tree: a whole architecture file, families resolved.
        choice: fields to set; null removes a field.
        name: of the variant, in which `{cores}` or `{size}` stand for values of fields by their
            last word; default: the family's name with each field's last word and value.
        common: fields that the whole family has otherwise, set first and not named.
    """
    family = family_of(tree)
    changed = overlaid(tree, {**(common or {}), **choice})
    named, mistake = _variant_name(family, choice, name)
    if mistake is not None:
        return None, [Mistake(tree.at, "arch.name", mistake)]
    changed = overlaid(changed, {"name": ScalarNode(tree.at, named, named)})
    arch, mistakes = validate(changed, whole=True)
    if arch is None:
        return None, mistakes
    settings = tuple(Setting(f, value_of(arch, f), text_of(node)) for f, node in choice.items())
    return Variant(arch, family, settings), []


def overlaid(tree: Table, choice: Choice) -> Table:
    """`tree` with the fields of `choice` set, whatever that makes of it."""
    for field, node in choice.items():
        tree = trees.merge(tree, nested(field, node))
    return tree


def family_of(tree: Table) -> str:
    """The name of the machine in `tree`."""
    entry = tree.entries.get("name")
    return str(trees.plain(entry.node)) if entry is not None else "machine"


def nested(field: str, node: Node) -> Table:
    """`a.b: x` as `a: {b: x}`."""
    for part in reversed(field.split(".")):
        node = Table(node.at, {part: trees.MappingEntry(node.at, node)})
    assert isinstance(node, Table)
    return node


def _variant_name(family: str, choice: Choice, template: str | None) -> tuple[str, str | None]:
    short = short_names(choice)
    values = {short[field]: text_of(node).replace(" ", "") for field, node in choice.items()}
    if template is None:
        parts = [family, *(f"{word}{text}" for word, text in values.items())]
        return _NOT_IN_NAMES.sub("_", "-".join(parts)), None
    try:
        return _NOT_IN_NAMES.sub("_", template.format(**values)), None
    except ValueError as mistake:
        return "", f"{template!r} is no name with fields in braces: {mistake}"
    except (KeyError, IndexError):
        known = ", ".join(f"{{{word}}}" for word in values) or "no field is set"
        return "", f"{template!r} names a field that this entry does not set; known: {known}"


def short_names(fields: Iterable[str]) -> dict[str, str]:
    """For each dotted field its last words, as many as keep it apart from the others."""
    names = list(fields)
    found: dict[str, str] = {}
    for field in names:
        parts = field.split(".")
        for count in range(1, len(parts) + 1):
            tail = parts[-count:]
            if not any(f != field and f.split(".")[-count:] == tail for f in names):
                break
        found[field] = "_".join(parts[-count:])
    return found


def text_of(node: Node) -> str:
    """A value as it was written."""
    if isinstance(node, ScalarNode):
        return "none" if node.value is None else node.text
    if isinstance(node, ListNode):
        return "+".join(text_of(item) for item in node.items)
    return "+".join(f"{key}_{text_of(entry.node)}" for key, entry in node.entries.items())


def field_of(arch: Arch, field: str) -> Any:
    """What stands in a dotted field; None for what the machine does not have."""
    found: Any = arch
    for part in field.split("."):
        found = _field_value(found, part)
    return found


def value_of(arch: Arch, field: str) -> Scalar:
    """The value of a dotted field in base units; text for what is no single value, None for what
    the machine does not have."""
    found = field_of(arch, field)
    if isinstance(found, Bandwidth | Delay):
        return found.amount
    if isinstance(found, BaseModel):
        return str(found.model_dump(mode="json", by_alias=True))
    return found if isinstance(found, str | int | float | bool | None) else str(found)


def _field_value(holder: Any, part: str) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(part)
    name = _attribute(type(holder), part) if isinstance(holder, BaseModel) else None
    return None if name is None else getattr(holder, name)


@cache
def _attribute(kind: type[BaseModel], part: str) -> str | None:
    fields = kind.model_fields.items()
    return next((name for name, info in fields if part == (info.alias or name)), None)


# How far a field is changed: by a factor, as people say it, in steps that hardware has.

TWICE = 2.0
"""How many times as large a field becomes where nobody says otherwise."""
_MOST = 1000
"""Times as large; more is a slip."""
_AMOUNT = r"\d+(?:\.\d+)?(?:[eE]\+?\d+)?"
_STEP = re.compile(
    rf"\+?(?P<share>{_AMOUNT}) ?%|(?P<times>{_AMOUNT}) ?[xX]|[xX] ?(?P<before>{_AMOUNT})"
)


def factor_of(text: str) -> float:
    """How many times as large a field becomes: `10%` is 1.1, `1.5x` is 1.5. Raises ValueError."""
    match = _STEP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r}: expected a share to add or a factor, such as 10% or 1.5x")
    share, times = match["share"], match["times"] or match["before"]
    found = 1 + float(share) / 100 if share else float(times)
    if not 1 < found <= _MOST:
        raise ValueError(f"{text!r}: expected more than 0% or 1x, and at most {_MOST}x")
    return found


def near(own: int, factor: float, steps: int = 1) -> Iterator[int]:
    """Whole numbers near `factor` times `own`, at least `steps` away from it: the nearest, then
    multiples of ever larger divisors of `own`, which keep more of what makes it lawful: that banks
    divide a size, that a count is even or a power of two. `own` is above 0, as all of them are."""
    low = [each for each in range(1, math.isqrt(own) + 1) if own % each == 0]
    found = dict[int, None]()
    for divisor in sorted({*low, *(own // each for each in low)}):
        count, whole = round(own * factor / divisor), own // divisor
        count = max(count, whole + steps) if factor > 1 else min(count, whole - steps)
        if count > 0:
            found[count * divisor] = None
    yield from found


def elasticity(result: float, field: float) -> float | None:
    """Per cent of a result for one per cent of a field, of how many times as large both became;
    None where that is no number."""
    if not (0 < result < math.inf and 0 < field < math.inf) or field == 1:
        return None
    return math.log(result) / math.log(field)


# Of which fields more is at least as good, and of which less is.

MORE = (
    "clusters", "cores", "memories.*.size", "memories.*.banks", "memories.*.ports",
    "memories.*.read_ports", "memories.*.write_ports", "memories.dram.bandwidth",
    "memories.dram.channels", "memories.flash.bandwidth", "memories.flash.channels",
    "memories.flash.read_efficiency", "copy.*.bandwidth", "copy.*.outstanding", "links.*.bandwidth",
    "links.*.ports", "front_end.issue_width", "front_end.queue_depth", "front_end.queue_depth.*",
    "front_end.tokens", "front_end.fetch_bandwidth", "front_end.loop_buffer", "host.compute",
    "host.bandwidth", "vector.lanes", "vector.wide_lanes", "engines.*.lanes",
    "engines.*.wide_lanes", "matrix.sustained", "engines.*.sustained",
    "memories.dram.read_efficiency", "memories.dram.write_efficiency", "copy.*.joins_runs",
    "copy.*.broadcast", "copy.*.peer", "copy.*.from", "copy.*.to", "*.units", "matrix.rows",
    "matrix.cols", "matrix.depth", "engines.*.rows", "engines.*.cols", "engines.*.depth",
)  # fmt: skip
"""Fields of which more never takes anything away, though what is there may take longer to fill."""
LESS = (
    "*.latency", "*.startup", "host.per_inference", "memories.*.conflict_penalty",
    "front_end.signal", "copy.*.indirect",
    "vector.cost.*", "engines.*.cost.*", "scalar.cost.*", "memories.*.run_cost",
    "copy.*.per_request", "copy.*.minimum",
)  # fmt: skip
"""Fields of which less never does: delays, and cycles of an operation."""


def is_one_of(field: str, patterns: Iterable[str]) -> bool:
    """Whether the path of a field is like one of `patterns`."""
    return any(fnmatchcase(field, pattern) for pattern in patterns)
