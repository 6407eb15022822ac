"""Rows of records as numbers: a stream of commands, or a list of buffers, ports and the like.

    rows     = count row*
    row      = 0 period times              what goes on as it did: see below
             | 1 record [queue] n form*n word*w         a new structure; all its words
             | 2 structure n place*n step*n             a new pattern: which words change
             | 3 + pattern step*                        a known one

A *structure* is a record, its queue where it is a command, and a form. The words of a row are those
of the row before it of the same structure, plus the steps, in the places that its pattern names
(each as its distance from the one before). So what stays as it is takes no room: shapes, strides,
types and memories are said once, as in registers.

A row of `0 period times` stands for period x times rows. Each moves on from the row `period` before
it as that one did from the row `period` before that: loops that were unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from simmodel.loadable.pools import Pools, Tables
from simmodel.loadable.records import Bound, Record, Written, called
from simmodel.loadable.values import Make, Planner, Taken, Words
from simmodel.loadable.wire import Numbers, unzigzag, written, zigzag

REPEAT, STRUCTURE, PATTERN, KNOWN = range(4)
PERIODS = 32
"""Longest period that is looked for."""
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
    for value in values:
        cls = type(value)
        number = records.number(cls)
        taken = Taken(pools)
        queue = [pools.text(value.engine)] if records.queued(cls) else []
        taken.record(value, len(queue))
        yield Row((number, *queue, len(taken.form), *taken.form), tuple(taken.words))


def encoded(rows: Sequence[Row]) -> bytes:
    """Rows as bytes."""
    writer = _Writer(rows)
    body = written(writer.numbers())
    needed = -(-sum(OVERHEAD + len(row.words) for row in rows) // WARRANT)
    return body + bytes(max(0, needed - len(body)))


class _Writer:
    """Writes rows one after the other."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        names: dict[Structure, int] = {}
        self._kinds = [names.setdefault(row.structure, len(names)) for row in rows]
        self._last: dict[int, Words] = {}
        self._patterns: dict[tuple[int, ...], int] = {}

    def numbers(self) -> Iterator[int]:
        yield len(self._rows)
        at = 0
        while at < len(self._rows):
            period, times = self._repeated(at)
            if times:
                yield from (REPEAT, period, times)
                for row in range(at, at + period * times):
                    self._last[self._kinds[row]] = self._rows[row].words
                at += period * times
                continue
            yield from self._row(at)
            at += 1

    def _row(self, at: int) -> Iterator[int]:
        kind, row = self._kinds[at], self._rows[at]
        before = self._last.get(kind)
        self._last[kind] = row.words
        if before is None:
            yield from (STRUCTURE, *row.structure, *map(zigzag, row.words))
            self._patterns[kind, *range(len(row.words))] = len(self._patterns)
            return
        changed = [n for n, (a, b) in enumerate(zip(before, row.words, strict=True)) if a != b]
        pattern = self._patterns.get((kind, *changed))
        if pattern is None:
            self._patterns[kind, *changed] = len(self._patterns)
            gaps = [n - m for n, m in zip(changed, [0, *changed], strict=False)]
            yield from (PATTERN, kind, len(gaps), *gaps)
        else:
            yield KNOWN + pattern
        yield from (zigzag(row.words[n] - before[n]) for n in changed)

    def _repeated(self, at: int) -> tuple[int, int]:
        """The period that most rows from `at` on follow, and how often; the shortest of equals."""
        best = 0, 0
        for period in range(1, min(PERIODS, at // 2) + 1):
            end = at
            while end < len(self._rows) and self._follows(end, period):
                end += 1
            times = (end - at) // period
            if times * period > best[0] * best[1]:
                best = period, times
        return best if best[0] * best[1] > 1 else (0, 0)

    def _follows(self, at: int, period: int) -> bool:
        kinds, rows = self._kinds, self._rows
        if not kinds[at] == kinds[at - period] == kinds[at - 2 * period]:
            return False
        now, then, before = (rows[at - n * period].words for n in range(3))
        return all(a - 2 * b + c == 0 for a, b, c in zip(now, then, before, strict=True))


class Reader:
    """Reads rows, and makes of each what it stands for."""

    def __init__(
        self, numbers: Numbers, tables: Tables, bounds: Sequence[Bound | None],
        records: Sequence[Record],
    ) -> None:  # fmt: skip
        """`bounds`: of each of the file's `records`, what it is; None where it has no place."""
        self._numbers, self._tables = numbers, tables
        self._bounds, self._records = bounds, records
        self._makes: list[Make] = []
        self._last: list[Words] = []
        """By structure, the words of its last row."""
        self._patterns: list[tuple[int, tuple[int, ...]]] = []
        self._rows: list[tuple[int, Words]] = []
        self._room = WARRANT * numbers.size

    def values(self) -> Iterator[Any]:
        """What the rows stand for. Raises LoadableError."""
        numbers = self._numbers
        count = numbers.next("a number of rows")
        while len(self._rows) < count:
            start, before = numbers.at, len(self._rows)
            self._read(count)
            for kind, words in self._rows[before:]:
                try:
                    yield self._makes[kind](words)
                except LookupError as wrong:
                    numbers.at = start
                    raise numbers.error(str(wrong.args[0])) from None
        numbers.finish()

    def _read(self, count: int) -> None:
        """Read one row, or several that go on as they did."""
        numbers = self._numbers
        what = numbers.below(KNOWN + len(self._patterns), "a row")
        if what == REPEAT:
            self._repeat(count)
        elif what == STRUCTURE:
            self._structure()
        elif what == PATTERN:
            kind = numbers.below(len(self._makes), "a structure")
            gaps = numbers.take(numbers.next("a number of places"), "places")
            places, at = [], 0
            for gap in gaps:
                at += gap
                places.append(at)
            if places and places[-1] >= len(self._last[kind]):
                raise numbers.error(f"expected places below {len(self._last[kind])}, found {at}")
            self._patterns.append((kind, tuple(places)))
            self._stepped(kind, tuple(places))
        else:
            self._stepped(*self._patterns[what - KNOWN])

    def _stepped(self, kind: int, places: tuple[int, ...]) -> None:
        """A row of a known structure."""
        steps = self._numbers.take(len(places), "steps")
        words = list(self._last[kind])
        for place, step in zip(places, steps, strict=True):
            words[place] += unzigzag(step)
        self._add(kind, tuple(words))

    def _structure(self) -> None:
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
        self._makes.append(_command(bound.make, queue[0], make) if queue else make)
        self._last.append(words)
        kind = len(self._makes) - 1
        self._patterns.append((kind, tuple(range(len(words)))))
        self._add(kind, words)

    def _repeat(self, count: int) -> None:
        numbers, rows = self._numbers, self._rows
        period = numbers.below(len(rows) // 2 + 1, "a period")
        times = numbers.next("how often it repeats")
        if not period or not times or period * times > count - len(rows):
            raise numbers.error(f"{times} times {period} rows, {count - len(rows)} are left")
        for _ in range(period * times):
            (kind, then), (other, before) = rows[-period], rows[-2 * period]
            if kind != other:
                raise numbers.error(f"expected rows {period} apart to have one structure")
            words = tuple([2 * a - b for a, b in zip(then, before, strict=True)])
            self._add(kind, words)

    def _add(self, kind: int, words: Words) -> None:
        self._room -= OVERHEAD + len(words)
        if self._room < 0:
            raise self._numbers.error(
                f"{self._numbers.size} bytes stand for more than {WARRANT} words each"
            )
        self._last[kind] = words
        self._rows.append((kind, words))


def _command(build: Callable[..., Any], queue: str, make: Make) -> Make:
    """What makes a command for a queue."""
    return lambda words: build(engine=queue, **make(words))
