"""Types below a byte and of eight bits: two elements in a byte, widened by who reads them; and
copies of rows that a list names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import at, constant, machine, port, program
from hypothesis import given, settings
from hypothesis import strategies as st

from simmodel.arch.dtype import NUMPY, largest, limits, pack, unpack
from simmodel.arch.element_types import PACKED, SIZES, STORED, bytes_for, widened
from simmodel.arch.record import Arch
from simmodel.errors import NoSuchRow
from simmodel.execute import execute
from simmodel.isa import Binary, Copy, Gather, Indirect, Instruction, Item, Loop, Scatter, Unary
from simmodel.machine.run import simulate
from simmodel.program.assembly import parse_items, print_item
from simmodel.program.program import Origin, Program
from simmodel.verify import findings, verify

ROWS, ROW = 4, 6


def test_a_name_has_the_size_that_numpy_gives_it() -> None:
    assert {name: dtype.itemsize for name, dtype in NUMPY.items()} == SIZES


def narrow_machine(**copies: Any) -> Arch:
    """The test machine, whose copy engine `load` widens and whose vector engine reads them all."""
    base = machine().model_dump(by_alias=True)
    base["copy"]["load"]["widens"] = sorted(STORED)
    base["vector"]["types"] = [*base["vector"]["types"], *sorted(STORED)]
    base["copy"]["load"] |= copies
    return Arch.model_validate(base)


def bytes_program(
    data: np.ndarray, dtype: str, middle: tuple[Item, ...], shape: tuple[int, ...], out: str
) -> Program:
    """Constant `data` at DRAM 0, then what is done with it, then local memory at 1024 stored."""
    size = bytes_for(dtype, data.size)
    raw = pack(data.reshape(-1), dtype)
    assert raw.nbytes == size
    source = at("local", 1024, shape, out)
    store = Copy(engine="store", dst=at("dram", 8192, shape, out), src=source, waits=(("made", 1),))
    return program(
        (*middle, store),
        tokens=({"made": 0, "loaded": 0},),
        constants=(constant("w", 0, raw),),
        outputs=(port("y", at("dram", 8192, shape, out)),),
    )


def numbers(dtype: str, count: int, seed: int = 0) -> np.ndarray:
    """Raw values of every kind that `dtype` has."""
    random = np.random.default_rng(seed)
    if dtype in PACKED:
        low, high = limits(dtype)
        return random.integers(low, high + 1, count).astype(np.int8)
    return (random.standard_normal(count) * 8).astype(NUMPY[dtype])


@given(st.sampled_from(sorted(PACKED)), st.integers(1, 9), st.integers(1, 9), st.integers())
def test_packing_and_unpacking_give_the_same_elements(
    dtype: str, rows: int, row: int, seed: int
) -> None:
    values = numbers(dtype, rows * row, abs(seed)).reshape(rows, row)
    raw = pack(values, dtype)
    assert raw.shape == (rows, bytes_for(dtype, row))
    np.testing.assert_array_equal(unpack(raw, dtype, row), values)


def test_an_operand_below_a_byte_counts_whole_bytes() -> None:
    rows = at("local", 16, (4, 6), "int4", strides=(10, 1))  # 3 bytes every 5
    assert (rows.bytes, rows.run, rows.distinct, rows.span) == (12, 3, 12, (0, 18))
    assert rows.traffic(4) == 16
    whole = at("local", 16, (4, 6), "int4")
    assert (whole.run, whole.distinct, whole.span) == (12, 12, (0, 12))
    odd = at("local", 0, (3, 5), "int4", strides=(6, 1))
    assert (odd.run, odd.distinct, odd.span) == (3, 9, (0, 9))
    assert whole.offset(0, 3) == 9
    with pytest.raises(ValueError, match="element 3 of a row of int4 begins inside a byte"):
        whole.offset(1, 3)


def test_cycles_and_bytes_of_a_widening_copy_by_hand() -> None:
    """32 x 64 elements of 4 bits are 1024 bytes of DRAM and 4096 of fp16 on chip; 16 bytes a cycle
    of the engine are those that it writes: 256 cycles, behind 20 of latency."""
    copy = Copy(
        engine="load", dst=at("local", 0, (32, 64), "fp16"), src=at("dram", 0, (32, 64), "int4")
    )
    arch = narrow_machine(outstanding=1 << 20)
    assert (copy.startup(arch), copy.cycles(arch)) == (20, 256)
    assert [flow.bytes for flow in copy.traffic(arch)] == [1024, 4096]
    raw = replace(copy, dst=at("local", 0, (32, 64), "int4"))
    assert raw.cycles(arch) == 64
    assert [flow.bytes for flow in raw.traffic(arch)] == [1024, 1024]
    assert parse_items(print_item(copy)) == (copy,)


@pytest.mark.parametrize("narrow", sorted(STORED))
def test_a_copy_widens_to_every_type_that_holds_the_numbers(narrow: str) -> None:
    data = numbers(narrow, ROWS * ROW).reshape(ROWS, ROW)
    for wide in (t for t in widened(narrow) if t in ("int8", "fp16", "fp32")):
        load = Copy(
            engine="load", dst=at("local", 1024, (ROWS, ROW), wide),
            src=at("dram", 0, (ROWS, ROW), narrow), signals=(("made", 1),),
        )  # fmt: skip
        made = bytes_program(data, narrow, (load,), (ROWS, ROW), wide)
        arch = narrow_machine()
        assert not list(findings(made, arch))
        np.testing.assert_array_equal(execute(made, {}, arch)["y"], data.astype(NUMPY[wide]))


@pytest.mark.parametrize("narrow", sorted(STORED))
def test_the_vector_engine_reads_them_and_scales_blocks(narrow: str) -> None:
    """Rows in blocks of two share a row of scales; a loop walks the blocks."""
    data = numbers(narrow, ROWS * ROW).reshape(ROWS, ROW)
    scales = np.linspace(0.5, 3, 2 * ROW).astype(np.float32)
    size = bytes_for(narrow, 2 * ROW)
    load = Copy(
        engine="load", dst=at("local", 0, (ROWS * ROW,), narrow),
        src=at("dram", 0, (ROWS * ROW,), narrow),
    )  # fmt: skip
    other = Copy(
        engine="load", dst=at("local", 512, (2 * ROW,), "fp32"),
        src=at("dram", 4096, (2 * ROW,), "fp32"), signals=(("loaded", 2),),
    )  # fmt: skip
    scale = Binary(
        engine="vector", function="mul", waits=(("loaded", 1),), signals=(("made", 1),),
        dst=at("local", 1024, (2, ROW), "fp32", terms={"t": 2 * ROW * 4}),
        a=at("local", 0, (2, ROW), narrow, terms={"t": size}),
        b=at("local", 512, (2, ROW), "fp32", terms={"t": ROW * 4}, strides=(0, 4)),
    )  # fmt: skip
    made = bytes_program(data, narrow, (load, other, Loop("t", 2, (scale,))), (ROWS, ROW), "fp32")
    store = made.cores[0][-1]
    assert isinstance(store, Instruction)
    stream = (*made.cores[0][:-1], replace(store, waits=(("made", 2),)))
    made = replace(made, cores=(stream,), constants=(*made.constants, constant("s", 4096, scales)))
    arch = narrow_machine()
    assert not list(findings(made, arch))
    expected = data.astype(np.float32) * scales.reshape(2, ROW).repeat(2, axis=0)
    np.testing.assert_array_equal(execute(made, {}, arch)["y"], expected)


def test_a_loop_of_widening_copies_is_executed_in_bulk() -> None:
    data = numbers("int4", 8 * ROW).reshape(8, ROW)
    load = Copy(
        engine="load", dst=at("local", 1024, (2, ROW), "int8", terms={"t": 2 * ROW}),
        src=at("dram", 0, (2, ROW), "int4", terms={"t": ROW}),
    )  # fmt: skip
    flag = Copy(
        engine="load", dst=at("local", 0, (1,)), src=at("dram", 0, (1,)), signals=(("made", 1),)
    )
    made = bytes_program(data, "int4", (Loop("t", 4, (load,)), flag), (8, ROW), "int8")
    wide = made.expanded[0].sites[0].wide
    assert isinstance(wide, Copy)
    assert (wide.src.shape, wide.src.strides) == ((4, 2, ROW), (2 * ROW, ROW, 1))
    np.testing.assert_array_equal(execute(made, {}, narrow_machine())["y"], data)


@pytest.mark.parametrize("narrow", sorted(STORED))
def test_the_vector_engine_writes_them_and_saturates(narrow: str) -> None:
    """Values are made by the same engine from fp32 constants, far beyond what the type holds."""
    data = np.linspace(-1e6, 1e6, ROWS * ROW).astype(np.float32)
    load = Copy(
        engine="load", dst=at("local", 0, data.shape, "fp32"),
        src=at("dram", 0, data.shape, "fp32"), signals=(("loaded", 1),),
    )  # fmt: skip
    move = Unary(
        engine="vector", function="move", dst=at("local", 512, data.shape, narrow),
        a=at("local", 0, data.shape, "fp32"), waits=(("loaded", 1),),
    )  # fmt: skip
    back = Unary(
        engine="vector", function="move", dst=at("local", 1024, data.shape, "fp32"),
        a=at("local", 512, data.shape, narrow), signals=(("made", 1),),
    )  # fmt: skip
    made = bytes_program(data, "fp32", (load, move, back), data.shape, "fp32")
    arch = narrow_machine()
    assert not list(findings(made, arch))
    high = limits(narrow)[1] if narrow in PACKED else largest(narrow)
    low = limits(narrow)[0] if narrow in PACKED else -high
    whole = np.rint if narrow in PACKED else np.asarray
    expected = whole(np.clip(data, low, high)).astype(NUMPY[narrow]).astype(np.float32)
    np.testing.assert_array_equal(execute(made, {}, arch)["y"], expected)


@pytest.mark.parametrize(
    ("change", "rule", "words"),
    [
        ({"strides": (7, 1)}, "shape", "expected one of 1 and even ones"),
        ({"dtype": "int16"}, "type", "src is int16"),
    ],
)
def test_the_verifier_knows_rows_that_begin_inside_a_byte(
    change: dict[str, Any], rule: str, words: str
) -> None:
    src = at("dram", 0, (ROWS, ROW), **{"dtype": "int4", **change})
    copy = Copy(engine="load", dst=at("local", 0, (ROWS, ROW), "int8"), src=src)
    assert any(r == rule and words in message for r, message in copy.breaches)


def test_bytes_that_two_elements_share_are_one_byte_to_the_verifier() -> None:
    """Two rows of three elements, the second from the byte in which the first one ends."""
    first, second = (
        Copy(
            engine=engine, dst=at("local", base, (3,), "int4"), src=at("dram", 0, (3,), "int4"),
        )
        for engine, base in (("load", 0), ("store", 1))
    )  # fmt: skip
    arch = narrow_machine()
    base = arch.model_dump(by_alias=True)
    base["copy"]["store"] |= {"from": ["dram", "local"], "to": ["dram", "local"]}
    both = program((first, second), constants=(constant("w", 0, np.zeros(2, np.uint8)),))
    found = list(findings(both, Arch.model_validate(base)))
    assert [finding.rule for finding in found] == ["race"]


def test_what_the_machine_does_not_widen_it_does_not_encode() -> None:
    copy = Copy(engine="load", dst=at("local", 0, (4,), "int8"), src=at("dram", 0, (4,), "int4"))
    assert copy.unencodable(machine()) == "load does not widen int4"
    assert copy.unencodable(narrow_machine()) is None


# Indirect copies: rows that a list of numbers names, in time worked out by hand.

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
