"""The table of records: which fields the records of a file have, so that it explains itself.

The one idea: a file brings along the fields of the classes that it was written with. A reader
compares them with its own: a field that it has beyond them gets its default, so files outlive new
fields; what it does not have, or has otherwise, is refused by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simmodel.loadable.kinds import DEPTH, PARTS, Code, Kind, fields_of, name_of
from simmodel.loadable.pools import Pools
from simmodel.loadable.wire import LoadableError, Numbers

QUEUE = "engine"
"""The field that says which queue a command goes to."""


@dataclasses.dataclass(frozen=True)
class Record:
    """A record as a file knows it."""

    name: str
    fields: tuple[tuple[str, Kind], ...]
    place: int | None = None
    """Byte of the file at which it stands."""

    @property
    def queued(self) -> bool:
        """Whether it is a command, which goes to a queue."""
        return bool(self.fields) and self.name.endswith(":") and self.fields[0][0] == QUEUE


@dataclasses.dataclass(frozen=True)
class Bound:
    """A record of the file and the class that it becomes."""

    record: Record
    cls: Any
    make: Callable[..., Any]
    """Gives what stands for it from its fields by name."""
    inside: dict[str, Bound]
    """By name, the records that its fields hold."""


class Written:
    """Records of the classes that a file needs, each with its number."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._numbers: dict[type, int] = {}

    def number(self, cls: type) -> int:
        """The number of a class; those in it are known then as well."""
        if cls not in self._numbers:
            self._numbers[cls] = len(self._numbers)
            for _, inside in fields_of(cls).values():
                for each in inside:
                    self.number(each)
        return self._numbers[cls]

    def queued(self, cls: type) -> bool:
        """Whether instances of a class are commands, whose first field is their queue."""
        return name_of(cls).endswith(":") and next(iter(fields_of(cls))) == QUEUE

    def section(self) -> list[int]:
        """The table, as numbers."""
        names = {name_of(cls): number for cls, number in self._numbers.items()}
        found = [len(self._numbers)]
        for cls in self._numbers:
            fields = fields_of(cls)
            found += [self._pools.text(name_of(cls)), len(fields)]
            for name, (kind, _) in fields.items():
                found += [self._pools.text(name), *_spelled(kind, names)]
        return found


def _spelled(kind: Kind, numbers: dict[str, int]) -> list[int]:
    if kind.code == Code.RECORD:
        return [Code.RECORD, numbers[kind.record]]
    counted = [len(kind.parts)] if kind.code in (Code.ROW, Code.CHOICE) else []
    return [kind.code, *counted, *(n for part in kind.parts for n in _spelled(part, numbers))]


def read_records(numbers: Numbers, strings: Sequence[str]) -> list[Record]:
    """The table of a file. Raises LoadableError."""
    count = numbers.below(numbers.left, "a number of records")
    raw, places = [], []
    for _ in range(count):
        places.append(numbers.here)
        name = strings[numbers.below(len(strings), "the name of a record")]
        size = numbers.below(numbers.left + 1, "a number of fields")
        raw.append((name, [_field(numbers, strings, count) for _ in range(size)]))
    numbers.finish()
    names = [name for name, _ in raw]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LoadableError(
            places[0], f"records: expected different names, {twice!r} is there twice"
        )
    return [
        Record(name, tuple((each, _named(kind, names)) for each, kind in fields), place)
        for (name, fields), place in zip(raw, places, strict=True)
    ]


def _field(numbers: Numbers, strings: Sequence[str], records: int) -> tuple[str, Kind]:
    name = strings[numbers.below(len(strings), "the name of a field")]
    return name, _kind(numbers, records, 0)


def _kind(numbers: Numbers, records: int, depth: int) -> Kind:
    if depth == DEPTH:
        raise numbers.error(f"expected at most {DEPTH} kinds inside of each other")
    code = Code(numbers.below(len(Code), "a kind"))
    if code == Code.RECORD:
        return Kind(code, (), str(numbers.below(records, "a record")))
    parts = PARTS.get(code, 0)
    if code in (Code.ROW, Code.CHOICE):
        parts = numbers.below(numbers.left + 1, "a number of parts")
    return Kind(code, tuple(_kind(numbers, records, depth + 1) for _ in range(parts)))


def _named(kind: Kind, names: Sequence[str]) -> Kind:
    """`kind`, with records by their names, as in annotations."""
    if kind.code == Code.RECORD:
        return Kind(Code.RECORD, (), names[int(kind.record)])
    return Kind(kind.code, tuple(_named(part, names) for part in kind.parts))


def bind(
    record: Record, cls: Any, records: Mapping[str, Record], seen: dict[str, Bound],
    make: Callable[..., Any] | None = None,
) -> Bound:  # fmt: skip
    """`record` as an instance of `cls`, or as what `make` makes, and so on for the records in it.

    Raises:
        LoadableError: it has a field that the class does not have, or has otherwise, or lacks one
            that has no default.
    """
    if record.name in seen:
        return seen[record.name]
    bound = seen[record.name] = Bound(record, cls, make or cls, {})
    own, what = fields_of(cls), f"records: {called(record.name)}"
    for name, kind in record.fields:
        if name not in own:
            there = ", ".join(own) or "none"
            said = f"{what} has a field {name!r} unknown here; there are {there}"
            raise LoadableError(record.place, said)
        if own[name][0] != kind:
            said = f"{what}: expected {name} to be {own[name][0]}, found {kind}"
            raise LoadableError(record.place, said)
        for each in own[name][1]:
            bound.inside[name_of(each)] = bind(records[name_of(each)], each, records, seen)
    given = [name for name, _ in record.fields]
    if len(set(given)) < len(given):
        raise LoadableError(record.place, f"{what} has a field twice")
    for field in dataclasses.fields(cls):
        needed = field.default is field.default_factory is dataclasses.MISSING
        if needed and field.name in own and field.name not in given:
            raise LoadableError(record.place, f"{what}: expected a field {field.name!r}")
    return bound


def called(name: str) -> str:
    """A record's name, as messages say it."""
    return f"instruction {name[:-1]!r}" if name.endswith(":") else name
