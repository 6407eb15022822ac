"""Values to forms and words, and back.

The one idea: a form is worked out once, into functions that know which words they need; rows of one
form, most of what a program holds, are then a lookup for each part that was seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from simmodel.loadable.kinds import Code, Kind, fields_of, fits
from simmodel.loadable.pools import Pools, Tables, type_of
from simmodel.loadable.records import Bound
from simmodel.loadable.wire import LIMIT, LoadableError

Words = tuple[int, ...]
Make = Callable[[Words], Any]
"""Gives a value from the words of its row. Raises LookupError, in words."""


class Taken:
    """Form and words of one value, as it is taken apart."""

    def __init__(self, pools: Pools, around: Sequence[int]) -> None:
        """`around`: names of the loops around it, the outermost first."""
        self.form: list[int] = []
        self.words: list[int] = []
        self.pools, self._around = pools, around

    def record(self, value: Any, skip: int = 0) -> None:
        """Take apart all fields of a record but the first `skip`. Raises LoadableError: a value is
        not of its kind, or too large."""
        _fields(self, value, skip)

    def outwards(self, name: int) -> int:
        """Loops between here and that of this name; below 0 a name that none around has."""
        for outwards, known in enumerate(reversed(self._around)):
            if known == name:
                return outwards
        return -1 - name


Put = Callable[[Taken, Any], None]
"""Takes a value of one kind apart. Raises LoadableError: it is of another."""


def _fields(to: Taken, value: Any, skip: int = 0) -> None:
    cls: Any = type(value)
    for name, put in _puts(cls)[skip:]:
        try:
            put(to, getattr(value, name))
        except LoadableError as wrong:
            raise LoadableError(None, f"{cls.__name__}.{name}: {wrong}") from None


@cache
def _puts(cls: Any) -> tuple[tuple[str, Put], ...]:
    """What takes the fields of a record apart."""
    return tuple((name, _put(kind)) for name, (kind, _) in fields_of(cls).items())


def _put(kind: Kind) -> Put:
    if kind.code in (Code.LIST, Code.MAP):
        put = _several(kind)
    elif kind.code == Code.ROW:
        put = _row([_put(part) for part in kind.parts])
    elif kind.code == Code.CHOICE:
        put = _choice(kind)
    elif kind.code == Code.RECORD:
        put = _fields
    else:
        put = _LEAVES[kind.code]

    def checked(to: Taken, value: Any) -> None:
        if not fits(value, kind):
            raise LoadableError(None, f"expected {kind}, found {value!r}")
        put(to, value)

    return checked


def _several(kind: Kind) -> Put:
    each = _put(kind.parts[0]) if kind.code == Code.LIST else _row(list(map(_put, kind.parts)))
    plain = kind.parts[0].code == Code.INT and kind.code == Code.LIST

    def put(to: Taken, value: Any) -> None:
        to.form.append(len(value))
        if plain and all(type(n) is int and -LIMIT < n < LIMIT for n in value):
            to.words += value
            return
        for element in value.items() if kind.code == Code.MAP else value:
            each(to, element)

    return put


def _row(parts: Sequence[Put]) -> Put:
    def put(to: Taken, value: Any) -> None:
        if len(value) != len(parts):
            raise LoadableError(None, f"expected {len(parts)} values, found {value!r}")
        for each, part in zip(value, parts, strict=True):
            part(to, each)

    return put


def _choice(kind: Kind) -> Put:
    parts = [_put(part) for part in kind.parts]

    def put(to: Taken, value: Any) -> None:
        chosen = next(n for n, part in enumerate(kind.parts) if fits(value, part))
        to.form.append(chosen)
        parts[chosen](to, value)

    return put


def _whole(to: Taken, value: Any) -> None:
    if not -LIMIT < value < LIMIT:
        raise LoadableError(None, f"expected a number below {LIMIT}, found {value}")
    to.words.append(int(value))


def _array(to: Taken, array: Any) -> None:
    name = type_of(array)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    to.form.append(array.ndim)
    to.words += [to.pools.text(name), *array.shape, to.pools.data(data)]


_LEAVES: dict[Code, Put] = {
    Code.NONE: lambda to, value: None,
    Code.INT: _whole,
    Code.BOOL: _whole,
    Code.FLOAT: lambda to, value: to.words.append(to.pools.number(value)),
    Code.TEXT: lambda to, value: to.words.append(to.pools.text(value)),
    Code.VARIABLE: lambda to, value: to.words.append(to.outwards(to.pools.text(value))),
    Code.BYTES: lambda to, value: to.words.extend((to.pools.data(value), len(value))),
    Code.ARRAY: _array,
}


class Planner:
    """Works out what the values of one form are made from."""

    def __init__(self, tables: Tables, form: Sequence[int], room: int) -> None:
        """`room`: words that there can be at most."""
        self._tables, self._form, self._room = tables, form, room
        self.read = 0
        """Entries of the form that have been used."""
        self.words = 0
        """Words that are needed."""
        self.variables: list[int] = []
        """Those of them that say which loop is meant; what is made takes names there."""

    def record(self, bound: Bound, skip: int = 0) -> Make:
        """What makes a record from its words, all but its first `skip` fields.

        Raises:
            LookupError: form and record do not suit each other; in words.
        """
        start = self.words
        fields = bound.record.fields[skip:]
        parts = [(name, self.plan(kind, bound)) for name, kind in fields]
        build, end, seen = bound.make, self.words, dict[Words, Any]()

        def make(words: Words) -> Any:
            own = words[start:end]
            if own not in seen:
                seen[own] = build(**{name: part(words) for name, part in parts})
            return seen[own]

        return make if not skip else lambda words: {name: part(words) for name, part in parts}

    def plan(self, kind: Kind, bound: Bound) -> Make:
        """What makes a value of `kind`, inside of the record `bound`. Raises as `record`."""
        code = kind.code
        if code == Code.NONE:
            return lambda words: None
        if code == Code.CHOICE:
            return self.plan(kind.parts[self._entry(len(kind.parts), "kinds")], bound)
        if code == Code.RECORD:
            return self.record(bound.inside[kind.record])
        if code == Code.ROW:
            return _joined([self.plan(part, bound) for part in kind.parts])
        if code == Code.LIST:
            count = self._entry(self._left + 1, "elements")
            if kind.parts[0].code == Code.INT:
                return self._numbers(count)
            return _joined([self.plan(kind.parts[0], bound) for _ in range(count)])
        if code == Code.MAP:
            return self._map(kind, bound)
        return self._leaf(code)

    def _numbers(self, count: int) -> Make:
        """What makes a tuple of whole numbers, which are so many words."""
        start = self.words
        for _ in range(count):
            self._word()
        end = self.words
        return lambda words: words[start:end]

    def _leaf(self, code: int) -> Make:
        at, tables = self._word(), self._tables
        if code == Code.INT:
            return lambda words: words[at]
        if code == Code.BOOL:
            return lambda words: bool(words[at])
        if code == Code.VARIABLE:
            self.variables.append(at)
        if code in (Code.TEXT, Code.VARIABLE):
            return lambda words: tables.text(words[at])
        if code == Code.FLOAT:
            return lambda words: tables.number(words[at])
        if code == Code.BYTES:
            size = self._word()
            return lambda words: bytes(tables.bytes(words[at], words[size]))
        assert code == Code.ARRAY
        rank = self._entry(32, "dimensions")
        shape = [self._word() for _ in range(rank)]
        place = self._word()
        return lambda words: tables.array(
            tables.text(words[at]), tuple(words[each] for each in shape), words[place]
        )

    def _map(self, kind: Kind, bound: Bound) -> Make:
        count = self._entry(self._left + 1, "pairs")
        pairs = [tuple(self.plan(part, bound) for part in kind.parts) for _ in range(count)]

        def make(words: Words) -> Any:
            found = {key(words): value(words) for key, value in pairs}
            if len(found) < len(pairs):
                raise LookupError("expected different keys, one is there twice")
            return found

        return make

    @property
    def _left(self) -> int:
        """Values that form and words may still hold."""
        return self._room - self.words + len(self._form) - self.read

    def _word(self) -> int:
        if self.words >= self._room:
            raise LookupError(f"expected another word, there are {self._room}")
        self.words += 1
        return self.words - 1

    def _entry(self, limit: int, what: str) -> int:
        if self.read >= len(self._form):
            raise LookupError(f"expected another entry of the form, it has {len(self._form)}")
        entry = self._form[self.read]
        if entry >= limit:
            raise LookupError(f"expected fewer than {limit} {what}, found {entry}")
        self.read += 1
        return entry


def _joined(parts: list[Make]) -> Make:
    """What makes a tuple."""
    if not parts:
        return lambda words: ()
    return lambda words: tuple([part(words) for part in parts])
