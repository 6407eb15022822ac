"""Any option of any compiler pass by its dotted name: `keep.share`, `fold_constants.limit`.

The one idea: passes are frozen dataclasses and `Stages` holds them, so their fields are the options
that a study may sweep; nothing is listed twice. A pass of a row of rewrites goes by its own name,
and all of its turns have the same options.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import product
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from archgen.schema.mistakes import guess
from compiler import api
from compiler.api import Within, pass_name

Scalar = str | int | float | bool | None
Settings = tuple[tuple[str, Scalar], ...]
"""Dotted option -> value, sorted."""

_SIMPLE = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Option:
    """One option of a pass that one value can set."""

    holder: type
    """The class with the field."""
    field: str
    value: Scalar
    """What it is."""
    wanted: Any
    """Its type, with its range."""

    @property
    def takes(self) -> str:
        """What it may be, in words."""
        return _said(self.wanted)


def options(stages: api.Stages) -> dict[str, Option]:
    """Every option of the passes in `stages`, by dotted name."""
    found: dict[str, Option] = {}
    for prefix, holder in held(stages):
        found |= _walk(f"{prefix}.", holder)
    return found


def held(stages: api.Stages) -> Iterator[tuple[str, Any]]:
    """The passes of `stages` in order, each kind once, with the word before its options."""
    for known in fields(stages):
        value = getattr(stages, known.name)
        if not isinstance(value, tuple):
            yield known.name, value
            continue
        first = {type(step): step for step in reversed(value)}
        for kind in dict.fromkeys(map(type, value)):
            yield _word(first[kind]), first[kind]


def _word(step: object) -> str:
    return pass_name(type(step)).replace("-", "_")


def _walk(prefix: str, holder: Any) -> Iterator[tuple[str, Option]]:
    wanted = _types(type(holder))
    for known in fields(holder):
        value, name = getattr(holder, known.name), f"{prefix}{known.name}"
        if is_dataclass(value):
            yield from _walk(f"{name}.", value)
        elif isinstance(value, _SIMPLE):
            yield name, Option(type(holder), known.name, value, wanted.get(known.name, type(value)))


def _types(holder: type) -> Mapping[str, Any]:
    """Types of fields; none where the class is of an extension, which is no module to look into."""
    known = holder.__module__ in sys.modules
    return get_type_hints(holder, include_extras=True) if known else {}


def combinations_of(passes: Mapping[str, Any]) -> Iterator[Settings]:
    """Every combination of the values of options, each one value or a list."""
    lists = [value if isinstance(value, list) else [value] for value in passes.values()]
    for values in product(*lists):
        yield tuple(sorted(zip(passes, values, strict=True)))


def knobs(stages: api.Stages) -> dict[str, Scalar]:
    """Every option of the passes in `stages` that one value can set, with the value it has."""
    return {name: option.value for name, option in options(stages).items()}


def wrong(settings: Mapping[str, object], stages: api.Stages) -> list[str]:
    """What is wrong with settings of these passes: unknown names, values of another type or out of
    range."""
    known = options(stages)
    found = []
    for name, value in settings.items():
        if name not in known:
            hint = guess(name, known) or "; `archgen explain passes` lists them"
            found.append(f"pass option {name!r}: no such option{hint}")
        elif not _fits(value, known[name].wanted):
            found.append(f"pass option {name!r}: expected {known[name].takes}, got {value!r}")
    return found


def turned(stages: api.Stages, settings: Settings) -> api.Stages:
    """`stages` with these options; an option that the chosen strategy does not have is left out."""
    known = knobs(stages) if settings else {}
    for name, value in settings:
        if name in known:
            stages = _set(stages, name.split("."), value)
    return stages


def _set(stages: api.Stages, path: list[str], value: Scalar) -> api.Stages:
    """`stages` with one option set, of a stage or of all passes of a name in a row of passes."""
    if any(path[0] == known.name for known in fields(stages)):
        made: api.Stages = _with(stages, path, value)
        return made
    rows: dict[str, Any] = {
        known.name: tuple(
            _with(step, path[1:], value) if _word(step) == path[0] else step for step in row
        )
        for known in fields(stages)
        if isinstance(row := getattr(stages, known.name), tuple)
    }
    return replace(stages, **rows)


def _with(holder: Any, path: list[str], value: Scalar) -> Any:
    name, *below = path
    made = _with(getattr(holder, name), below, value) if below else value
    return replace(holder, **{name: made})


def _fits(value: object, wanted: Any) -> bool:
    if get_origin(wanted) is Annotated:
        kind, *ranges = get_args(wanted)
        found: Any = value
        return _fits(value, kind) and all(r.holds(found) for r in ranges if isinstance(r, Within))
    if get_origin(wanted) is Literal:
        return value in get_args(wanted)
    if get_origin(wanted) in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(wanted))
    if isinstance(value, bool):
        return wanted is bool
    if wanted is float:
        return isinstance(value, int | float)
    return isinstance(wanted, type) and isinstance(value, wanted)


def _said(wanted: Any) -> str:
    if get_origin(wanted) is Annotated:
        kind, *ranges = get_args(wanted)
        return " ".join([_said(kind), *(str(r) for r in ranges if isinstance(r, Within))])
    if get_origin(wanted) is Literal:
        return " or ".join(repr(word) for word in get_args(wanted))
    if get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(_said(option) for option in get_args(wanted))
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
    return words.get(wanted, "null" if wanted is type(None) else str(wanted))
