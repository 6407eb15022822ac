"""Which fields the commands of a machine have, by their paths, and what kind of value each holds.

The one idea: they follow from the classes alone, as their packing does, so those of an extension's
instructions are among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from simmodel.isa import INSTRUCTIONS, Loop
from simmodel.loadable.kinds import Code, End, Kind, fields_of

OPCODE = "opcode"
NAMES = (Code.TEXT, Code.VARIABLE)
"""Kinds that are packed as numbers of names."""
Fields = Mapping[str, Code]
"""Path -> what is packed there; CHOICE: a value that may be missing, whose own fields follow."""


def command_fields(mnemonic: str) -> Fields:
    """The fields of one command, of an instruction or of `loop` and `end`."""
    others: dict[str, Any] = {"loop": Loop, "end": End}
    return _of_class(others.get(mnemonic) or INSTRUCTIONS[mnemonic])


def all_fields() -> Fields:
    """The fields of all commands."""
    return {
        path: code
        for mnemonic in ("loop", "end", *INSTRUCTIONS)
        for path, code in command_fields(mnemonic).items()
    }


@cache
def _of_class(cls: Any) -> Fields:
    return {OPCODE: Code.TEXT, **dict(_of_record(cls, ""))}


def _of_record(cls: Any, prefix: str) -> Iterator[tuple[str, Code]]:
    for name, kind in fields_of(cls).items():
        yield from _of_kind(kind, f"{prefix}{name}")


def _of_kind(kind: Kind, path: str) -> Iterator[tuple[str, Code]]:
    if kind.code == Code.CHOICE:
        yield path, Code.CHOICE
        yield f"{path}.given", Code.INT
        for part in kind.parts:
            yield from _of_kind(part, path)
    elif kind.code == Code.LIST:
        yield f"{path}.count", Code.INT
        yield from _of_kind(kind.parts[0], path)
    elif kind.code == Code.ROW:
        for number, part in enumerate(kind.parts):
            yield from _of_kind(part, f"{path}.{number}")
    elif kind.code == Code.RECORD:
        yield from _of_record(kind.record, f"{path}.")
    elif kind.code != Code.NONE:
        yield path, kind.code
