"""Types below a byte and of eight bits: two elements in a byte, widened by who reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import at, constant, machine, port, program
from hypothesis import given
from hypothesis import strategies as st

from simmodel.arch.dtype import NUMPY, largest, limits, pack, unpack
from simmodel.arch.element_types import PACKED, SIZES, STORED, bytes_for, widened
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.isa import Binary, Copy, Instruction, Item, Loop, Unary
from simmodel.program.assembly import parse_items, print_item
from simmodel.program.program import Program
from simmodel.verify import findings

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
