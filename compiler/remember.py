"""Values that were worked out of a machine, remembered by what was read of it: machines that have
the same there share them.

The one idea is that of `compiler.seen`: a function is given a view of the machine and says nothing
of what it needs; what it has read is part of the key under which its value is kept. It has read all
when it returns: its view is closed then, so that no value asks for more later on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from compiler.seen import Field, Seen, read_again
from simmodel.arch import Arch

Value = TypeVar("Value")
Fields = tuple[Field, ...]


class Hashed:
    """A value that is looked up often and whose hash takes long: it is worked out once."""

    __slots__ = ("number", "value")

    def __init__(self, value: Hashable) -> None:
        self.value, self.number = value, hash(value)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and self.value == other.value


@dataclass
class Remembered(Generic[Value]):
    """Values of one function; those that were not asked for longest go first."""

    most: int
    found: int = 0
    """How often there was one."""
    kept: OrderedDict[Hashable, Value] = field(default_factory=OrderedDict, repr=False)
    """By what was asked, which fields were read for it, and what stood there."""
    read: list[Fields] = field(default_factory=list, repr=False)
    """All sets of fields that were read."""

    def of(
        self, key: Hashable, arch: Arch, standing: dict[int, Hashed],
        make: Callable[[Arch], Value],
    ) -> Value:  # fmt: skip
        """The value of `make` for a machine, made once for all that are alike to it.

        Args:
            key: what is asked; with a machine, it decides the value.
            arch: the machine.
            standing: of this machine, what stands in each of `read`; it is filled in.
            make: makes the value from the machine that it is given.
        """
        asked = Hashed(key)
        for number, fields in enumerate(self.read):
            if number not in standing:
                standing[number] = Hashed(read_again(arch, fields))
            name = asked, number, standing[number]
            if name in self.kept:
                self.kept.move_to_end(name)
                self.found += 1
                return self.kept[name]
        seen = Seen(arch)
        value = make(seen.machine)
        noted = dict(sorted(seen.closed().items()))
        number = self._number(tuple(noted))
        self.kept[asked, number, Hashed(tuple(noted.values()))] = value
        if len(self.kept) > self.most:
            self.kept.popitem(last=False)
        return value

    def _number(self, fields: Fields) -> int:
        """The position of a set of fields among all."""
        if fields not in self.read:
            self.read.append(fields)
        return self.read.index(fields)
