"""What a value is made of, derived from the annotations of the dataclasses: no class has code here.

A value is a *form* and *words*. The form says what its type leaves open: how long its lists are and
which of several kinds a value has. The words are whole numbers, one for each leaf:

    kind       words                                    form
    int        itself
    bool       0 or 1
    float      place in the table of numbers
    text       place in the table of strings
    variable   loops between it and that one; below 0: -1 less the place of a register's name
    bytes      offset and length in the data
    array      type (text), each extent, offset         dimensions
    list       those of its elements                    elements
    map        those of keys and values                 pairs
    row        those of its parts
    choice     those of the value                       which of the kinds
    record     those of its fields
    none
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from simmodel.isa import Instruction, Item, Loop
from simmodel.loadable.wire import LoadableError
from simmodel.program import Program
from simmodel.region import Variable


class Code(IntEnum):
    """Codes of kinds, as they stand in files."""

    NONE = 0
    INT = 1
    BOOL = 2
    FLOAT = 3
    TEXT = 4
    BYTES = 5
    ARRAY = 6
    LIST = 7
    MAP = 8
    ROW = 9
    CHOICE = 10
    RECORD = 11
    VARIABLE = 12


PARTS = {Code.LIST: 1, Code.MAP: 2}
"""Parts of the kinds that always have as many; rows and choices say how many they have."""
DEPTH = 16
"""Most kinds inside of each other."""
_PLAIN = {
    NoneType: Code.NONE,
    int: Code.INT,
    bool: Code.BOOL,
    float: Code.FLOAT,
    str: Code.TEXT,
    bytes: Code.BYTES,
    Variable: Code.VARIABLE,
}
_TAKEN: dict[int, tuple[type, ...]] = {
    Code.NONE: (NoneType,),
    Code.INT: (int, np.integer),
    Code.BOOL: (bool, np.bool_),
    Code.TEXT: (str,),
    Code.VARIABLE: (str,),
    Code.FLOAT: (int, float, np.number),
    Code.BYTES: (bytes,),
    Code.ARRAY: (np.ndarray,),
    Code.LIST: (tuple,),
    Code.ROW: (tuple,),
    Code.MAP: (dict,),
}
"""Python's types of the values of each kind."""
STREAMS = "cores"
"""The field of `Program` that holds instructions."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of values, and the kinds that it is made of."""

    code: Code
    parts: tuple[Kind, ...] = ()
    record: str = ""
    """Name of the record, of kind RECORD alone."""

    def __str__(self) -> str:
        name = self.code.name.lower()
        if self.code == Code.RECORD:
            return self.record
        return f"{name}({', '.join(map(str, self.parts))})" if self.parts else name


@dataclasses.dataclass(frozen=True)
class End:
    """What stands behind the last item of a loop."""


def commands(items: Iterable[Item], depth: int = 0) -> Iterator[Instruction | Loop | End]:
    """A stream without its nesting: behind each loop its items, then an end.

    Raises:
        LoadableError: there are too many loops inside of each other.
    """
    if depth > DEPTH:
        raise LoadableError(None, f"expected at most {DEPTH} loops inside of each other")
    for item in items:
        yield item
        if isinstance(item, Loop):
            yield from commands(item.body, depth + 1)
            yield End()


def rows_of(cls: Any) -> dict[str, Any]:
    """Fields of a class that are lists of records: these are sections of their own."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(cls).items():
        args = get_args(hint)
        if get_origin(hint) is tuple and len(args) == 2 and dataclasses.is_dataclass(args[0]):
            found[name] = args[0]
    return found


APART: dict[type, tuple[str, ...]] = {Loop: ("body",), Program: (STREAMS, *rows_of(Program))}
"""Fields that are no part of their record: items of a loop stand behind it in the stream."""


@cache
def name_of(cls: Any) -> str:
    """How files call a class: instructions by their mnemonics, which are no names of classes."""
    name: str = f"{cls.MNEMONIC}:" if issubclass(cls, Instruction) else cls.__name__
    return name


@cache
def fields_of(cls: Any) -> Mapping[str, tuple[Kind, tuple[type, ...]]]:
    """Field name -> kind of its values and the records in it.

    Raises:
        LoadableError: a field has a type that no file holds.
    """
    hints = get_type_hints(cls, include_extras=True)
    names = [f.name for f in dataclasses.fields(cls) if f.name not in APART.get(cls, ())]
    found = {}
    for name in names:
        inside: list[type] = []
        try:
            found[name] = kind_of(hints[name], inside), tuple(inside)
        except TypeError as mistake:
            raise LoadableError(None, f"{name_of(cls)} {name}: {mistake}") from None
    return found


def kind_of(hint: Any, inside: list[type]) -> Kind:
    """The kind that an annotation means; adds the records in it to `inside`.

    Raises:
        TypeError: no file holds such values.
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return Kind(_PLAIN[hint])
    if origin is Literal and all(isinstance(each, str) for each in args):
        return Kind(Code.TEXT)
    if origin in (Union, UnionType):
        return Kind(Code.CHOICE, tuple(kind_of(each, inside) for each in args))
    if origin is tuple and args[-1:] == (Ellipsis,):
        return Kind(Code.LIST, (kind_of(args[0], inside),))
    if origin is tuple:
        return Kind(Code.ROW, tuple(kind_of(each, inside) for each in args))
    if origin is dict:
        return Kind(Code.MAP, tuple(kind_of(each, inside) for each in args))
    if origin is np.ndarray:
        return Kind(Code.ARRAY)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        inside.append(hint)
        return Kind(Code.RECORD, (), name_of(hint))
    raise TypeError(f"a loadable holds no {hint}")


def fits(value: Any, kind: Kind) -> bool:
    """Whether `value` is of `kind`, as far as a choice needs to know."""
    code = kind.code
    if code == Code.CHOICE:
        return any(fits(value, part) for part in kind.parts)
    if code == Code.RECORD:
        cls: Any = type(value)
        return name_of(cls) == kind.record and dataclasses.is_dataclass(cls)
    return isinstance(value, _TAKEN[code])
