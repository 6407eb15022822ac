"""Values to forms and words, and back.

The one idea: a form is worked out once, into functions that know which words they need; rows of one
form, most of what a program holds, are then a lookup for each part that was seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def __init__(self, pools: Pools) -> None:
        self.form: list[int] = []
        self.words: list[int] = []
        self._pools = pools

    def record(self, value: Any, skip: int = 0) -> None:
        """Take apart all fields of a record but the first `skip`. Raises LoadableError."""
        cls: Any = type(value)
        for name, (kind, _) in list(fields_of(cls).items())[skip:]:
            try:
                self.take(getattr(value, name), kind)
            except LoadableError as wrong:
                said = f"{type(value).__name__}.{name}: {wrong}"
                raise LoadableError(None, said) from None

    def take(self, value: Any, kind: Kind) -> None:
        """Take apart a value. Raises LoadableError: it is not of `kind`, or too large."""
        if not fits(value, kind):
            raise LoadableError(None, f"expected {kind}, found {value!r}")
        code, words, parts = kind.code, self.words, kind.parts
        if code in (Code.INT, Code.BOOL):
            if not -LIMIT < value < LIMIT:
                raise LoadableError(None, f"expected a number below {LIMIT}, found {value}")
            words.append(int(value))
        elif code == Code.FLOAT:
            words.append(self._pools.number(value))
        elif code == Code.TEXT:
            words.append(self._pools.text(value))
        elif code == Code.BYTES:
            words += [self._pools.data(value), len(value)]
        elif code == Code.ARRAY:
            self._array(value)
        elif code == Code.CHOICE:
            chosen = next(n for n, part in enumerate(parts) if fits(value, part))
            self.form.append(chosen)
            self.take(value, parts[chosen])
        elif code == Code.RECORD:
            self.record(value)
        elif code != Code.NONE:
            self._several(value, kind)

    def _several(self, value: Any, kind: Kind) -> None:
        if kind.code != Code.ROW:
            self.form.append(len(value))
        if kind.code == Code.LIST:
            for each in value:
                self.take(each, kind.parts[0])
            return
        if kind.code == Code.ROW and len(value) != len(kind.parts):
            raise LoadableError(None, f"expected {kind}, found {value!r}")
        rows = value.items() if kind.code == Code.MAP else [value]
        for row in rows:
            for each, part in zip(row, kind.parts, strict=True):
                self.take(each, part)

    def _array(self, array: Any) -> None:
        name = type_of(array)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        self.form.append(array.ndim)
        self.words += [self._pools.text(name), *array.shape, self._pools.data(data)]


class Planner:
    """Works out what the values of one form are made from."""

    def __init__(self, tables: Tables, form: Sequence[int], room: int) -> None:
        """`room`: words that there can be at most."""
        self._tables, self._form, self._room = tables, form, room
        self.read = 0
        """Entries of the form that have been used."""
        self.words = 0
        """Words that are needed."""

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
            return _joined([self.plan(kind.parts[0], bound) for _ in range(count)])
        if code == Code.MAP:
            return self._map(kind, bound)
        return self._leaf(code)

    def _leaf(self, code: int) -> Make:
        at, tables = self._word(), self._tables
        if code == Code.INT:
            return lambda words: words[at]
        if code == Code.BOOL:
            return lambda words: bool(words[at])
        if code == Code.TEXT:
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
    return lambda words: tuple([part(words) for part in parts])
