"""Fields of commands, derived from the annotations of the dataclasses.

    command  = opcode, queue, then the fields of the instruction in the order of its class
    field    = number, name (by a table), list (count, then its elements), optional (one bit first)

The one idea: no class has code here, so a new field or instruction needs none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from simmodel.isa import INSTRUCTIONS, Instruction, Item, Loop

OPCODE = "opcode"


class Code(Enum):
    """Kinds of values."""

    INT = auto()
    FLOAT = auto()
    TEXT = auto()
    """A name, encoded as a number."""
    LIST = auto()
    """Any number of values of one kind."""
    ROW = auto()
    """Values of several kinds, one of each."""
    OPTIONAL = auto()
    """A value or none."""
    RECORD = auto()


_ANY = object()
"""Whatever value a field may have."""


@dataclasses.dataclass(frozen=True)
class ValueType:
    """One kind of values, and the kinds of its elements."""

    code: Code
    parts: tuple[ValueType, ...] = ()
    record: Any = None
    """The class of a record; of plain values their types in Python."""

    def __str__(self) -> str:
        return self.record.__name__ if self.code is Code.RECORD else self.code.name.lower()


_INT = ValueType(Code.INT, (), int)
_PLAIN = {
    int: _INT, bool: _INT, float: ValueType(Code.FLOAT, (), (int, float)),
    str: ValueType(Code.TEXT, (), str),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class End:
    """End of a loop in a flat stream."""


Command = Instruction | Loop | End


def commands(items: Iterable[Item]) -> Iterator[Command]:
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
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls) if (cls, f.name) != (Loop, "body")]
    return {name: _value_type(hints[name], f"{cls.__name__}.{name}") for name in names}


def _value_type(hint: Any, field: str) -> ValueType:
    """The kind of a field, from its annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Literal and all(isinstance(each, str) for each in args):
        return _PLAIN[str]
    if origin in (Union, UnionType) and len(args) == 2 and args[1] is NoneType:
        return ValueType(Code.OPTIONAL, (_value_type(args[0], field),))
    if origin is tuple and args[-1:] == (Ellipsis,):
        return ValueType(Code.LIST, (_value_type(args[0], field),))
    if origin is tuple:
        return ValueType(Code.ROW, tuple(_value_type(each, field) for each in args))
    if dataclasses.is_dataclass(hint):
        return ValueType(Code.RECORD, (), hint)
    raise TypeError(f"{field}: no command holds {hint}")


def fits(value: Any, kind: ValueType) -> bool:
    """Whether `value` is of `kind`."""
    if kind.record is not None:
        return isinstance(value, kind.record)
    if kind.code is Code.OPTIONAL:
        return value is None or fits(value, kind.parts[0])
    if not isinstance(value, tuple):
        return False
    parts = kind.parts if kind.code is Code.ROW else kind.parts * len(value)
    return len(value) == len(parts) and all(map(fits, value, parts))


Leaf = tuple[str, Code, Any]
"""Path of a field, kind and value; the own fields of an OPTIONAL value follow it."""


def values_of(command: Command) -> Iterator[Leaf]:
    """The fields of a command, its opcode aside."""
    cls: Any = type(command)
    for name, kind in fields_of(cls).items():
        yield from _leaves(kind, name, getattr(command, name))


def _leaves(kind: ValueType, path: str, value: Any) -> Iterator[Leaf]:
    code = kind.code
    if code is Code.OPTIONAL:
        yield path, code, value
        yield f"{path}.given", Code.INT, int(value is None)
        if value is not None:
            yield from _leaves(kind.parts[0], path, value)
    elif code is Code.LIST:
        elements = (_ANY,) if value is _ANY else value
        yield f"{path}.count", Code.INT, len(elements)
        for each in elements:
            yield from _leaves(kind.parts[0], path, each)
    elif code is Code.ROW:
        row = zip(kind.parts, repeat(_ANY) if value is _ANY else value, strict=False)
        for number, (part, each) in enumerate(row):
            yield from _leaves(part, f"{path}.{number}", each)
    elif code is Code.RECORD:
        for name, part in fields_of(kind.record).items():
            each = _ANY if value is _ANY else getattr(value, name)
            yield from _leaves(part, f"{path}.{name}", each)
    else:
        yield path, code, value


@cache
def _fields_of_class(cls: Any) -> Mapping[str, Code]:
    kinds = fields_of(cls).items()
    leaves = (leaf for name, kind in kinds for leaf in _leaves(kind, name, _ANY))
    return {OPCODE: Code.TEXT, **{path: code for path, code, _ in leaves}}


def command_fields(mnemonic: str) -> Mapping[str, Code]:
    """Path -> kind of the fields of one command, of an instruction or of `loop` and `end`."""
    others: dict[str, Any] = {"loop": Loop, "end": End}
    return _fields_of_class(others.get(mnemonic) or INSTRUCTIONS[mnemonic])


def all_fields() -> Mapping[str, Code]:
    """The fields of all commands."""
    found: dict[str, Code] = {}
    for mnemonic in ("loop", "end", *INSTRUCTIONS):
        found |= command_fields(mnemonic)
    return found
