"""Fields of commands, derived from the annotations of the dataclasses.

The one idea: no class has code here, so a new field or instruction needs none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from simmodel.isa import Instruction, Item, Loop
from simmodel.isa.region import Variable


class Code(Enum):
    """Kinds of values."""

    NONE = auto()
    INT = auto()
    BOOL = auto()
    FLOAT = auto()
    TEXT = auto()
    VARIABLE = auto()
    """Name of a loop's variable or of a register."""
    LIST = auto()
    """Any number of values of one kind."""
    ROW = auto()
    """Values of several kinds, one of each."""
    CHOICE = auto()
    """A value of one of several kinds."""
    RECORD = auto()


_PLAIN = {
    NoneType: Code.NONE,
    int: Code.INT,
    bool: Code.BOOL,
    float: Code.FLOAT,
    str: Code.TEXT,
    Variable: Code.VARIABLE,
}
_TAKEN: dict[Code, tuple[type, ...]] = {
    Code.NONE: (NoneType,),
    Code.INT: (int, np.integer),
    Code.BOOL: (bool, np.bool_),
    Code.TEXT: (str,),
    Code.VARIABLE: (str,),
    Code.FLOAT: (int, float, np.number),
    Code.LIST: (tuple,),
    Code.ROW: (tuple,),
}
"""Python's types of the values of each kind."""


@dataclasses.dataclass(frozen=True)
class ValueType:
    """One kind of values, and the kinds of its elements."""

    code: Code
    parts: tuple[ValueType, ...] = ()
    record: Any = None
    """The class of a record."""


@dataclasses.dataclass(frozen=True)
class End:
    """End of a loop in a flat stream."""


def commands(items: Iterable[Item]) -> Iterator[Instruction | Loop | End]:
    """A flat stream: each loop is followed by its items, then an end."""
    for item in items:
        yield item
        if isinstance(item, Loop):
            yield from commands(item.body)
            yield End()


@cache
def fields_of(cls: Any) -> Mapping[str, ValueType]:
    """Field name -> kind of its values; items of a loop are commands behind it and no field.

    Raises:
        TypeError: a field has a type that no command holds.
    """
    hints = get_type_hints(cls, include_extras=True)
    names = [f.name for f in dataclasses.fields(cls) if (cls, f.name) != (Loop, "body")]
    return {name: _kind(hints[name], f"{cls.__name__}.{name}") for name in names}


def _kind(hint: Any, field: str) -> ValueType:
    """The kind of a field, from its annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return ValueType(_PLAIN[hint])
    if origin is Literal and all(isinstance(each, str) for each in args):
        return ValueType(Code.TEXT)
    if origin in (Union, UnionType):
        return ValueType(Code.CHOICE, tuple(_kind(each, field) for each in args))
    if origin is tuple and args[-1:] == (Ellipsis,):
        return ValueType(Code.LIST, (_kind(args[0], field),))
    if origin is tuple:
        return ValueType(Code.ROW, tuple(_kind(each, field) for each in args))
    if dataclasses.is_dataclass(hint):
        return ValueType(Code.RECORD, (), hint)
    raise TypeError(f"{field}: no command holds {hint}")


def fits(value: Any, kind: ValueType) -> bool:
    """Whether `value` is of `kind`, as far as a choice needs to know."""
    if kind.code == Code.CHOICE:
        return any(fits(value, part) for part in kind.parts)
    if kind.code == Code.RECORD:
        return type(value) is kind.record
    return isinstance(value, _TAKEN[kind.code])
