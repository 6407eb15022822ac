"""Programs of small networks on shipped machines are those of the table, cycle by cycle.

What differs here is better or worse than what was decided before: look at the figures, and where
they are wanted, `python tests/compiler/replay.py --write`.
"""

from __future__ import annotations

import pytest
from replay import TABLE, Record, changes, keys, mean_change, printed, read, replay

MACHINES = sorted({(machine, dtype) for machine, _, dtype in keys()})


@pytest.mark.parametrize(("machine", "dtype"), MACHINES)
def test_programs_are_those_of_the_table(machine: str, dtype: str) -> None:
    wanted = [key for key in keys(machine) if key[0] == machine and key[2] == dtype]
    table = read()
    before = {key: table[key] for key in wanted if key in table}
    assert not list(changes(before, {key: replay(key) for key in wanted}))


def test_the_table_has_no_other_programs() -> None:
    assert set(read()) == set(keys())
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
