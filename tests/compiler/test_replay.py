"""Programs of small networks on shipped machines are those of the table, cycle by cycle.

What differs here is better or worse than what was decided before: look at the figures, and where
they are wanted, `python tests/compiler/replay.py --write`.
"""

from __future__ import annotations

import pytest
from replay import TABLE, Key, Record, changes, keys, mean_change, printed, read, replay

PROGRAMS = list(keys())
QUICK = ("mcu-npu", "soma-edge")
"""Machines whose programs are made in the quick tier."""


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, id="-".join(key), marks=() if key[0] in QUICK else pytest.mark.slow)
        for key in PROGRAMS
    ],
)
def test_a_program_is_that_of_the_table(key: Key) -> None:
    before = {known: record for known, record in read().items() if known == key}
    assert not list(changes(before, {key: replay(key)}))


def test_the_table_has_no_other_programs() -> None:
    assert set(read()) == set(PROGRAMS)
    assert printed(read()) == TABLE.read_text()


def test_changes_are_told_by_per_cent() -> None:
    key, gone = ("m", "net", "int8"), ("m", "old", "int8")
    before = {key: Record("a", 200, 64, 8, 3), gone: Record("b", 1, 1, 1, 1)}
    after = {key: Record("c", 210, 64, 8, 3)}
    assert list(changes(before, after)) == [
        "m net int8: cycles 200 -> 210 (+5.00 %)",
        "m old int8: gone",
    ]
    same = {**before, key: Record("c", 200, 64, 8, 3)}
    assert list(changes(before, same)) == ["m net int8: another program, the same figures"]
    assert mean_change(before, after) == pytest.approx(1.05)
