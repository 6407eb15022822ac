"""Rows of records as numbers: a stream of commands, or a list of buffers, ports and the like.

    rows     = count row*
    row      = 0 record [queue] n form*n word*w         a new structure; all its words
             | 1 structure n place*n step*n             a new pattern: which words change
             | 2 + pattern step*                        a known one

A *structure* is a record, its queue where it is a command, and a form. The words of a row are those
of the row before it of the same structure, plus the steps, in the places that its pattern names
(each as its distance from the one before). So what stays as it is takes no room: shapes, strides,
types and memories are said once, as in registers; and what goes on as it did are the same bytes
again, which sections hold once (`simmodel.loadable.copies`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from simmodel.isa import Loop
from simmodel.loadable.copies import squeezed
from simmodel.loadable.kinds import End
from simmodel.loadable.pools import Pools, Tables
from simmodel.loadable.records import Bound, Record, Written, called
from simmodel.loadable.values import Make, Planner, Taken, Words
from simmodel.loadable.wire import Numbers, unzigzag, written, zigzag

STRUCTURE, PATTERN, KNOWN = range(3)
WARRANT = 256
"""Words of rows that each byte of a section may stand for at most."""
OVERHEAD = 8
"""Words that a row counts for beside its own."""
Structure = tuple[int, ...]
"""Record, queue where there is one, form."""


@dataclass(frozen=True)
class Row:
    """A record, taken apart."""

    structure: Structure
    words: Words


def taken(values: Iterable[Any], pools: Pools, records: Written) -> Iterator[Row]:
    """Rows of records. Raises LoadableError: one has what no file holds."""
    around: list[int] = []
    for value in values:
        cls = type(value)
        number = records.number(cls)
        if cls is End:
            around.pop()
        taken = Taken(pools, around)
        queue = [pools.text(value.engine)] if records.queued(cls) else []
        taken.record(value, len(queue))
        if cls is Loop:
            around.append(pools.text(value.variable))
        yield Row((number, *queue, len(taken.form), *taken.form), tuple(taken.words))


def encoded(rows: Sequence[Row]) -> bytes:
    """Rows as bytes."""
    least = -(-sum(OVERHEAD + len(row.words) for row in rows) // WARRANT)
    return squeezed(written(_numbers(rows)), least)


def _numbers(rows: Sequence[Row]) -> Iterator[int]:
    yield len(rows)
    known: dict[Structure, int] = {}
    last: list[Words] = []
    patterns: dict[tuple[int, ...], int] = {}
    for row in rows:
        words, kind = row.words, known.setdefault(row.structure, len(known))
        if kind == len(last):
            last.append(words)
            patterns[kind, *range(len(words))] = len(patterns)
            yield from (STRUCTURE, *row.structure, *map(zigzag, words))
            continue
        before, last[kind] = last[kind], words
        changed = [n for n, (a, b) in enumerate(zip(before, words, strict=True)) if a != b]
        pattern = patterns.setdefault((kind, *changed), new := len(patterns))
        if pattern == new:
            gaps = [n - m for n, m in zip(changed, [0, *changed], strict=False)]
            yield from (PATTERN, kind, len(gaps), *gaps)
        else:
            yield KNOWN + pattern
        yield from (zigzag(words[n] - before[n]) for n in changed)


class Reader:
    """Reads rows, and makes of each what it stands for."""

    def __init__(
        self, numbers: Numbers, tables: Tables, bounds: Sequence[Bound | None],
        records: Sequence[Record],
    ) -> None:  # fmt: skip
        """`bounds`: of each of the file's `records`, what it is; None where it has no place."""
        self._numbers, self._tables = numbers, tables
        self._bounds, self._records = bounds, records
        self._structures: list[_Known] = []
        self._last: list[Words] = []
        """By structure, the words of its last row."""
        self._patterns: list[tuple[int, tuple[int, ...]]] = []
        self._around: list[int] = []
        """Names of the loops around the next row."""
        self._room = WARRANT * numbers.size

    def values(self) -> Iterator[Any]:
        """What the rows stand for. Raises LoadableError."""
        numbers = self._numbers
        for _ in range(numbers.next("a number of rows")):
            start = numbers.at
            kind = self._row()
            known, words = self._structures[kind], self._last[kind]
            self._room -= OVERHEAD + len(words)
            if self._room < 0:
                said = f"{numbers.size} bytes stand for more than {WARRANT} words each"
                raise numbers.error(said)
            try:
                yield known.make(self._named(words, known.variables))
            except LookupError as wrong:
                numbers.at = start
                raise numbers.error(str(wrong.args[0])) from None
            if known.cls is Loop:
                self._around.append(words[0])
            elif known.cls is End and self._around:
                self._around.pop()
        numbers.finish()

    def _row(self) -> int:
        """Read a row; its words are then the last of its structure, which is returned."""
        numbers = self._numbers
        what = numbers.below(KNOWN + len(self._patterns), "a row")
        if what == STRUCTURE:
            return self._structure()
        if what == PATTERN:
            self._patterns.append(self._pattern())
        kind, places = self._patterns[-1 if what == PATTERN else what - KNOWN]
        words = list(self._last[kind])
        for place, step in zip(places, numbers.take(len(places), "steps"), strict=True):
            words[place] += unzigzag(step)
        self._last[kind] = tuple(words)
        return kind

    def _pattern(self) -> tuple[int, tuple[int, ...]]:
        numbers = self._numbers
        kind = numbers.below(len(self._structures), "a structure")
        gaps = numbers.take(numbers.next("a number of places"), "places")
        places = tuple(accumulate(gaps))
        if places and places[-1] >= len(self._last[kind]):
            said = f"expected places below {len(self._last[kind])}, found {places[-1]}"
            raise numbers.error(said)
        return kind, places

    def _structure(self) -> int:
        numbers = self._numbers
        number = numbers.below(len(self._bounds), "a record")
        bound = self._bounds[number]
        if bound is None:
            numbers.at -= 1
            raise numbers.error(f"{called(self._records[number].name)} is unknown here")
        queue: tuple[str, ...] = ()
        if bound.record.queued:
            queue = (self._tables.texts[numbers.below(len(self._tables.texts), "a queue")],)
        form = numbers.take(numbers.next("the length of a form"), "entries of a form")
        planner = Planner(self._tables, form, numbers.left)
        try:
            make = planner.record(bound, len(queue))
        except LookupError as wrong:
            raise numbers.error(f"{bound.record.name} {wrong.args[0]}") from None
        if planner.read < len(form):
            raise numbers.error(f"expected a form of {planner.read} entries, found {len(form)}")
        words = tuple(map(unzigzag, numbers.take(planner.words, "words")))
        make = _command(bound.make, queue[0], make) if queue else make
        self._structures.append(_Known(bound.cls, make, tuple(planner.variables)))
        self._last.append(words)
        kind = len(self._structures) - 1
        self._patterns.append((kind, tuple(range(len(words)))))
        return kind

    def _named(self, words: Words, variables: tuple[int, ...]) -> Words:
        """`words` with the names of variables in place of where their loops are."""
        if not variables:
            return words
        named, around = list(words), self._around
        for place in variables:
            outwards = words[place]
            if outwards >= len(around):
                raise LookupError(f"expected one of {len(around)} loops, found number {outwards}")
            named[place] = around[-1 - outwards] if outwards >= 0 else -1 - outwards
        return tuple(named)


@dataclass(frozen=True)
class _Known:
    """A structure as it is read."""

    cls: type
    make: Make
    variables: tuple[int, ...]
    """Places of the words that say which loop is meant."""


def _command(build: Callable[..., Any], queue: str, make: Make) -> Make:
    """What makes a command for a queue."""
    return lambda words: build(engine=queue, **make(words))
