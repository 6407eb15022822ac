"""Any option of any compiler pass by its dotted name: `keep.share`, `order.enabled`.

The one idea: passes are frozen dataclasses and `Stages` holds them, so their fields are the options
that a study may sweep; nothing is listed twice.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from archgen.schema.mistakes import guess
from compiler.api import Stages

Scalar = str | int | float | bool | None
Settings = tuple[tuple[str, Scalar], ...]
"""Dotted option -> value, sorted."""

_SIMPLE = (bool, int, float, str, type(None))


def knobs(stages: Stages) -> dict[str, Scalar]:
    """Every option of the passes in `stages` that one value can set, with the value it has."""
    return dict(_walk("", stages))


def _walk(prefix: str, holder: Any) -> Iterable[tuple[str, Scalar]]:
    for known in fields(holder):
        value, name = getattr(holder, known.name), f"{prefix}{known.name}"
        if is_dataclass(value):
            yield from _walk(f"{name}.", value)
        elif isinstance(value, _SIMPLE):
            yield name, value


def wrong(settings: Mapping[str, object], stages: Stages) -> list[str]:
    """What is wrong with settings of these passes: unknown names, values of another type."""
    known = knobs(stages)
    found = []
    for name, value in settings.items():
        if name not in known:
            hint = guess(name, known) or "; `archgen explain passes` lists them"
            found.append(f"pass option {name!r}: no such option{hint}")
        elif complaint := _misfit(stages, name, value):
            found.append(f"pass option {name!r}: {complaint}, got {value!r}")
    return found


def turned(stages: Stages, settings: Settings) -> Stages:
    """`stages` with these options; an option that the chosen strategy does not have is left out."""
    known = knobs(stages)
    for name, value in settings:
        if name in known:
            stages = _with(stages, name.split("."), value)
    return stages


def _with(holder: Any, path: list[str], value: Scalar) -> Any:
    name, *below = path
    made = _with(getattr(holder, name), below, value) if below else value
    return replace(holder, **{name: made})


def _misfit(stages: Stages, name: str, value: object) -> str | None:
    """What the option takes, where `value` is not that."""
    *path, last = name.split(".")
    holder: Any = stages
    for part in path:
        holder = getattr(holder, part)
    wanted = get_type_hints(type(holder))[last]
    return None if _fits(value, wanted) else f"expected {_said(wanted)}"


def _fits(value: object, wanted: Any) -> bool:
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
    if get_origin(wanted) is Literal:
        return " or ".join(repr(word) for word in get_args(wanted))
    if get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(_said(option) for option in get_args(wanted))
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
    return words.get(wanted, "null" if wanted is type(None) else str(wanted))
