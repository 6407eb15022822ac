"""Indirect copies: rows that a list of numbers names, in time worked out by hand, and in words
where a number names none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import at, constant, machine, port
from hypothesis import given, settings
from hypothesis import strategies as st

from simmodel.arch.record import Arch
from simmodel.errors import NoSuchRow
from simmodel.execute import execute
from simmodel.isa import Copy, Gather, Indirect, Item, Scatter
from simmodel.machine.run import simulate
from simmodel.program.assembly import parse_items, print_item
from simmodel.program.program import Origin, Program
from simmodel.verify import findings, verify

TABLE = np.arange(80, dtype=np.int8).reshape(10, 8)


def copying(**changes: Any) -> Arch:
    """The test machine with another load engine."""
    arch = machine()
    load = arch.copy_["load"].model_copy(update=changes)
    return arch.model_copy(update={"copy_": {**arch.copy_, "load": load}})


def looked_up(rows: int = 3, extent: int = 10) -> Program:
    """Rows of a table, one for each number in the list, through local memory."""
    pick = Gather(
        engine="load", dst=at("local", 0, (rows, 8)), src=at("dram", 0, (extent, 8)),
        index=at("dram", 1024, (rows,), "int64"), signals=(("full", 1),), origin=0,
    )  # fmt: skip
    out = at("dram", 2048, (rows, 8))
    store = Copy(engine="store", dst=out, src=at("local", 0, (rows, 8)), waits=(("full", 1),))
    return streamed((pick, store), (rows, 8), out.address.base, rows)


def written(rows: int = 2) -> Program:
    """New rows at their places in a table that is given."""
    index = at("local", 64, (rows,), "int64")
    items = (
        Copy(engine="load", dst=index, src=at("dram", 1024, (rows,), "int64")),
        Copy(engine="load", dst=at("local", 0, (rows, 8)), src=at("dram", 2048, (rows, 8)),
             signals=(("full", 1),)),
        Scatter(engine="store", dst=at("dram", 0, (10, 8)), src=at("local", 0, (rows, 8)),
                index=index, waits=(("full", 1),)),
    )  # fmt: skip
    program = streamed(items, (10, 8), 0, rows)
    new = port("new", at("dram", 2048, (rows, 8)))
    return replace(program, inputs=(*program.inputs, new))


def streamed(items: tuple[Item, ...], shape: tuple[int, ...], base: int, rows: int) -> Program:
    ids = port("ids", at("dram", 1024, (rows,), "int64"))
    return Program(
        "rows", "test", (items,), ({"full": 0},), {}, (constant("table", 0, TABLE),), (), (ids,),
        (port("y", at("dram", base, shape)),), (Origin("words", 0, "Gather"),),
    )  # fmt: skip


def test_rows_are_gathered_in_the_order_of_the_list() -> None:
    arch, program = machine(), looked_up()
    verify(program, arch)
    ids = np.array([7, 0, -1])
    assert (execute(program, {"ids": ids}, arch)["y"] == TABLE[ids]).all()


def test_a_short_row_costs_its_number_not_its_bytes() -> None:
    """The list comes 20 cycles after it is asked for, the first row 20 later; the engine takes 7
    cycles for each, DRAM a burst of 64 B at 16 B a cycle for each and for the list (16 cycles). The
    store waits 20 cycles and moves a burst in 4."""
    trace = simulate(looked_up(), copying(indirect=7.0))
    assert trace.cycles == (20 + 20 + 3 * 7) + 20 + 4
    assert simulate(looked_up(), machine()).cycles == (20 + 20 + 16) + 20 + 4
    assert trace.traffic["dram.read"] == 3 * 64 + 64


@pytest.mark.parametrize(
    ("changes", "cycles"),
    [
        ({"indirect": 1.0}, 4),  # 20 cycles of latency / 16 requests in flight = 1.25 a row
        ({"indirect": 0.0, "outstanding": 1}, 60),  # a row at a time
        ({"indirect": 4.0}, 12),
    ],
)
def test_what_bounds_a_row(changes: dict[str, Any], cycles: int) -> None:
    pick = looked_up().cores[0][0]
    assert isinstance(pick, Gather)
    assert pick.cycles(copying(**changes)) == cycles


def test_new_rows_leave_the_others_as_they_are() -> None:
    arch, program = machine(), written()
    verify(program, arch)
    new, ids = np.full((2, 8), -5, np.int8), np.array([9, -9])
    wanted = TABLE.copy()
    wanted[ids] = new
    assert (execute(program, {"ids": ids, "new": new}, arch)["y"] == wanted).all()
    assert simulate(program, arch).traffic["dram.write"] == 2 * 64  # and not the whole table


def test_a_number_that_names_no_row_ends_in_words() -> None:
    with pytest.raises(NoSuchRow) as said:
        execute(looked_up(), {"ids": np.array([3, 10, 2])}, machine())
    assert str(said.value) == (
        "words (Gather): index 10 is out of range, expected -10 .. 9 (10 rows)"
    )


def test_the_whole_table_must_be_there_and_nobody_may_write_it_meanwhile() -> None:
    """Which rows are read is known at run time only."""
    larger = looked_up(extent=12)
    assert [f.rule for f in findings(larger, machine())] == ["unwritten"]
    racing = Copy(engine="peer", dst=at("local", 0, (1,)), src=at("local", 512, (1,)))
    program = looked_up()
    pick, store = program.cores[0]
    streams = ((pick, replace(racing), store),)
    assert "race" in {f.rule for f in findings(replace(program, cores=streams), machine())}


@pytest.mark.parametrize(
    ("change", "arch", "message"),
    [
        ({}, copying(indirect=None), "load takes no list of rows"),
        ({}, copying(rank=1), "load walks 1 dimensions"),
        (
            {"index": at("accumulators", 64, (3,), "int64")},
            machine(),
            "reads no list of rows in accumulators",
        ),
        ({"index": at("dram", 64, (4,), "int64")}, machine(), "fill (3, 8), expected (4, 8)"),
        ({"index": at("dram", 64, (3,), "int8")}, machine(), "index is int8"),
        ({"before": (1, 0)}, machine(), "expected none"),
        ({}, machine(isa={"without": ["copy.gather"]}), "test has no copy.gather"),
    ],
)
def test_what_an_indirect_copy_cannot_be(change: dict[str, Any], arch: Arch, message: str) -> None:
    program = looked_up()
    pick, store = program.cores[0]
    assert isinstance(pick, Gather)
    found = findings(replace(program, cores=((replace(pick, **change), store),)), arch)
    assert message in "; ".join(f.message for f in found)


@settings(max_examples=40)
@given(
    index=st.lists(st.lists(st.integers(-6, 5), min_size=2, max_size=2), min_size=1, max_size=3),
    row=st.lists(st.integers(1, 3), max_size=2),
    scatters=st.booleans(),
)
def test_what_rows_mean(index: list[list[int]], row: list[int], scatters: bool) -> None:
    numbers = np.array(index)
    own = at("local", 0, (*numbers.shape, *row), "int16")
    table = at("dram", 0, (6, *row), "int16")
    ids = at("dram", 1024, numbers.shape, "int64")
    fields = {"engine": "load", "index": ids}
    item: Indirect = Gather(dst=own, src=table, **fields)  # type: ignore[arg-type]
    if scatters:
        item = Scatter(dst=table, src=own, **fields)  # type: ignore[arg-type]
    random = np.random.default_rng(0)
    arrays = {
        id(own): random.integers(-99, 99, own.shape, dtype=np.int16),
        id(table): random.integers(-99, 99, table.shape, dtype=np.int16),
        id(ids): numbers,
    }
    wanted = arrays[id(table)].copy()
    for place in np.ndindex(numbers.shape):
        if scatters:
            wanted[numbers[place]] = arrays[id(own)][place]
    item.execute(lambda operand: arrays[id(operand)])
    if scatters:
        assert (arrays[id(table)] == wanted).all()
    else:
        assert (arrays[id(own)] == wanted[numbers]).all()
    assert parse_items(print_item(item)) == (item,)
    assert not item.breaches
    assert item.source_bytes == numbers.size * int(np.prod(row)) * 2
