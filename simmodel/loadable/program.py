"""A program to the sections of a file, and back.

The one idea: a field of `Program` that holds records is a section of rows, a stream is one too, and
all other fields are one row of the section `program`. So a new field needs no code here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any

from simmodel.isa import INSTRUCTIONS, Item, Loop
from simmodel.loadable.container import Name, Section, packed, unpacked
from simmodel.loadable.copies import numbers_of
from simmodel.loadable.kinds import DEPTH, STREAMS, End, commands, name_of, rows_of
from simmodel.loadable.pools import Pools, Tables, numbers, strings
from simmodel.loadable.records import Bound, Written, bind, read_records
from simmodel.loadable.rows import Reader, encoded, taken
from simmodel.loadable.wire import LoadableError, Numbers, written
from simmodel.program import Program
from simmodel.relocation import PortBytes

CODE, PROGRAM, MACHINE, ABOUT, PORTS = "code", "program", "machine", "about", "ports"
TOKENS = "tokens"


@dataclass(frozen=True)
class About:
    """What a file says about itself."""

    maker: str
    fingerprint: str
    states: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Loadable:
    """A program with all that it takes to run it."""

    program: Program
    machine: str
    """The machine that it is for, as JSON."""
    states: tuple[tuple[str, str], ...] = ()
    """Inputs that are a state, each with the output that it is in the next inference."""
    maker: str = ""
    """What wrote it."""
    ports: tuple[PortBytes, ...] = ()
    """Where its inputs and outputs lie, for who places them elsewhere."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the machine, in hex."""
        return hashlib.sha256(self.machine.encode()).hexdigest()


def to_bytes(loadable: Loadable) -> bytes:
    """The file of a loadable.

    Raises:
        LoadableError: the program has a value that no file holds; says which.
    """
    pools = Pools()
    records = Written(pools)

    def rows(values: Iterable[Any]) -> bytes:
        return encoded(list(taken(values, pools, records)))

    program = loadable.program
    about = About(loadable.maker, loadable.fingerprint, loadable.states)
    sections: dict[Name, bytes] = {
        (MACHINE, 0): loadable.machine.encode(),
        (ABOUT, 0): rows([about]),
        (PROGRAM, 0): rows([program]),
    }
    for name in rows_of(Program):
        sections[name, 0] = rows(getattr(program, name))
    sections[PORTS, 0] = rows(loadable.ports)
    for core, stream in enumerate(getattr(program, STREAMS)):
        sections[CODE, core] = rows(commands(stream))
    sections["records", 0] = written(records.section())
    sections |= {(name, 0): content for name, content in pools.sections().items()}
    return packed(sections)


def from_bytes(data: bytes) -> Loadable:
    """The loadable in a file; its constants are views of `data`.

    Raises:
        LoadableError: with the byte that is wrong and what was expected there.
    """
    file = _File(data)
    values: dict[str, Any] = file.one(PROGRAM, Program, dict)
    for name, cls in rows_of(Program).items():
        if (name, 0) in file.sections:
            values[name] = tuple(file.rows((name, 0), file.bounds([cls])))
    missing = [f.name for f in fields(Program) if f.name not in values and _needed(f)]
    for name in missing:
        if name != STREAMS:
            raise LoadableError(None, f"expected a section {name}, there is none")
    commands = file.bounds([*INSTRUCTIONS.values(), Loop, End])
    cores = len(values[TOKENS])
    values[STREAMS] = tuple(file.stream((CODE, core), commands) for core in range(cores))
    beyond = sorted(core for name, core in file.sections if name == CODE and core >= cores)
    if beyond:
        said = f"section code {beyond[0]}: expected {cores}, as there are lists of tokens"
        raise LoadableError(file.sections[CODE, beyond[0]][0], said)
    about = file.one(ABOUT, About)
    ports = tuple(file.rows((PORTS, 0), file.bounds([PortBytes])))
    found = Loadable(Program(**values), file.text(MACHINE), about.states, about.maker, ports)
    if found.fingerprint != about.fingerprint:
        said = f"machine: expected fingerprint {about.fingerprint}, found {found.fingerprint}"
        raise LoadableError(file.sections[MACHINE, 0][0], said)
    return found


def _needed(field: Field[Any]) -> bool:
    return field.default is field.default_factory is MISSING


class _File:
    """The sections of a file, and the tables that they refer to."""

    def __init__(self, data: bytes) -> None:
        self.sections = unpacked(data)
        offset, content = self._section(("strings", 0))
        texts = strings(content, offset)
        offset, content = self._section(("numbers", 0))
        self._tables = Tables(texts, numbers(content, offset), self._section(("data", 0))[1])
        self._records = read_records(self._record_numbers(), texts)
        self._named = {record.name: record for record in self._records}
        self._seen: dict[str, Bound] = {}

    def _section(self, name: Name) -> Section:
        if name not in self.sections:
            number = f" {name[1]}" if name[1] else ""
            raise LoadableError(None, f"expected a section {name[0]}{number}, there is none")
        return self.sections[name]

    def _record_numbers(self) -> Numbers:
        offset, content = self._section(("records", 0))
        return Numbers(content, "records", len(content), lambda at: at + offset)

    def text(self, name: str) -> str:
        """A section of text."""
        offset, content = self._section((name, 0))
        try:
            return str(content, "utf-8")
        except UnicodeDecodeError:
            raise LoadableError(offset, f"{name}: expected UTF-8") from None

    def bounds(
        self, classes: Sequence[type], make: Callable[..., Any] | None = None
    ) -> list[Bound | None]:
        """Of each record, the class out of `classes` that it is."""
        known = {name_of(cls): cls for cls in classes}
        return [
            bind(each, known[each.name], self._named, self._seen, make)
            if each.name in known
            else None
            for each in self._records
        ]

    def rows(self, name: Name, bounds: Sequence[Bound | None]) -> Iterator[Any]:
        """What the rows of a section stand for."""
        offset, content = self._section(name)
        what = f"{name[0]} {name[1]}" if name[0] == CODE else name[0]
        numbers = numbers_of(content, offset, what)
        return Reader(numbers, self._tables, bounds, self._records).values()

    def one(self, name: str, cls: type, make: Callable[..., Any] | None = None) -> Any:
        """What the only row of a section stands for."""
        found = list(self.rows((name, 0), self.bounds([cls], make)))
        if len(found) != 1:
            offset = self._section((name, 0))[0]
            raise LoadableError(offset, f"{name}: expected one row, found {len(found)}")
        return found[0]

    def stream(self, name: Name, bounds: Sequence[Bound | None]) -> tuple[Item, ...]:
        """The items of a section of code."""
        offset = self._section(name)[0]
        around: list[tuple[Loop, list[Item]]] = []
        items: list[Item] = []
        for command in self.rows(name, bounds):
            if isinstance(command, Loop):
                if len(around) == DEPTH:
                    said = f"code {name[1]}: expected at most {DEPTH} loops inside of each other"
                    raise LoadableError(offset, said)
                around.append((command, items))
                items = []
            elif isinstance(command, End):
                if not around:
                    raise LoadableError(offset, f"code {name[1]}: an end without its loop")
                loop, outer = around.pop()
                outer.append(replace(loop, body=tuple(items)))
                items = outer
            else:
                items.append(command)
        if around:
            raise LoadableError(offset, f"code {name[1]}: a loop without its end")
        return tuple(items)
