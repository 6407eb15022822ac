"""Several engines of one kind in a core, equal and unlike: which of them work is given to, and that
they work side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from machines import NAMED, WRITEBACK, changed, machine
from networks import Net, check, repeated

from compiler.context import CompileOptions
from compiler.estimate.network_bound import bound_of
from compiler.target.equal_engines import Columns, cut_dim, largest
from compiler.target.vector import kept_dims, lane_of
from simmodel.arch.record import Arch
from simmodel.isa import MatrixInstruction, Product, Splat, Ternary
from simmodel.isa.base import instructions
from simmodel.trace import Trace


def cores(units: int, **others: Any) -> Arch:
    cube = {"rows": 8, "cols": 8, "depth": 8, "units": units, "rate": {"fp16": 1.0}}
    vector = {"lanes": 16, "units": units}
    local = {"size": 1 << 18, "banks": 16, "bank_width": 32}
    return machine(types=("fp16",), matrix=cube, vector=vector, local=local, **others)


def busy(trace: Trace) -> dict[str, int]:
    return {e.engine: e.busy for e in trace.engines if e.busy}


@pytest.mark.parametrize(
    ("extents", "dim"), [([(0, 1), (2, 8), (1, 4)], 2), ([(0, 1), (1, 1)], None)]
)
def test_the_slowest_dimension_that_moves_is_cut(
    extents: list[tuple[int, int]], dim: int | None
) -> None:
    assert cut_dim(extents, 2) == dim


@pytest.mark.parametrize(("wide", "dim"), [(32, 3), (31, 1)])
def test_products_are_cut_by_columns_that_fill_each_engine(wide: int, dim: int) -> None:
    """Two engines of 16 columns."""
    extents = [(1, 8), (2, 6), (3, wide)]
    assert cut_dim(extents, 2, Columns(3, 16)) == dim
    cut = largest([1, 8, 6, wide], (0, 1, 2, 3), 2, Columns(3, 16))
    assert cut == ([1, 8, 6, 16] if dim == 3 else [1, 4, 6, wide])


def wide() -> onnx.ModelProto:
    """64 channels of 16 x 16 from as many."""
    net = Net()
    y = net.op("Conv", net.input(1, 64, 16, 16), net.weight(64, 64, 3, 3), pads=[1] * 4)
    return net.model(y)


def test_two_arrays_take_half_the_lines_each() -> None:
    """32 blocks of 8 pixels x 8 of 8 channels x 9 x 8 positions are 18 432 cycles, more than the
    loads take. Two arrays are bound by these, whatever tiles do with theirs."""
    one, two = (check(wide(), cores(units), "fp16") for units in (1, 2))
    assert busy(one.trace)["matrix"] == 32 * 8 * 9 * 8
    assert busy(two.trace)["matrix"] == busy(two.trace)["matrix1"]
    assert two.trace.cycles < 0.7 * one.trace.cycles


def test_two_vector_engines_take_half_each() -> None:
    """Sixty-four lines of 64 values are 256 vectors of 16 lanes, 128 for each of two; eight times
    as many for a function that takes eight cycles."""
    net = Net()
    y = net.op("Tanh", net.input(64, 64))
    one, two = (check(net.model(y), cores(units), "fp16") for units in (1, 2))
    assert busy(one.trace)["vector"] == 256 * 8
    assert [busy(two.trace)[name] for name in ("vector", "vector1")] == [128 * 8, 128 * 8]


@pytest.mark.parametrize("name", ["twins", "triplets"])
@pytest.mark.parametrize("quantized", [False, True])
def test_layers_in_one_group_pass_on_what_several_have_made(name: str, quantized: bool) -> None:
    """Windows overlap the border between two parts; borders and remainders are cut elsewhere."""
    net = Net(quantized=quantized)
    x = net.input(1, 6, 11, 9)
    x = net.op("Relu", net.op("Conv", x, net.weight(10, 6, 3, 3), pads=[1] * 4))
    y = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    z = net.op("Conv", y, net.weight(10, 1, 3, 3), group=10, pads=[1] * 4)
    out = net.op("Add", y, z)
    check(net.model(net.op("Softmax", out, axis=1)), NAMED[name], "int8" if quantized else "fp32")


def test_tiles_of_other_sizes_are_cut_elsewhere_and_wait_for_each_other() -> None:
    """Twenty channels are two tiles of seven and one of six: four and three each, then three each.
    The fourth channel's sums are the first engine's before they are the second's."""
    cube = {"kind": "cube", "rows": 3, "cols": 1, "depth": 8, "units": 2, "granularity": "tile",
            "im2col": False, "writeback": ()}  # fmt: skip
    arch = machine(
        matrix=cube, vector={"lanes": 1, "rank": 1, "window": False}, weights=512, latency=0,
        local={"size": 32768, "banks": 1, "bank_width": 4},
    )  # fmt: skip
    net = Net()
    x = net.op(
        "Conv", net.input(1, 8, 7, 8), net.weight(4, 8, 1, 3), pads=[0, 1] * 2, strides=[1, 2]
    )
    check(net.model(net.op("Conv", x, net.weight(20, 4, 2, 2), pads=[1] * 4)), arch, "fp16")


def simd(rows: int = 4, **vector: Any) -> Arch:
    return machine(array=False, vector={"product_rows": rows} | vector, types=("fp16", "int8"))


def last(net: Net) -> onnx.ModelProto:
    return net.model(net.nodes[-1].output[0])


def conv(kernel: int = 3, **attributes: Any) -> Net:
    """24 channels of 8 x 6 from 12."""
    net = Net()
    x = net.input(1, 12, 8, 6)
    pads = [kernel // 2] * 4
    net.op("Relu", net.op("Conv", x, net.weight(24, 12, kernel, kernel), pads=pads, **attributes))
    return net


@pytest.mark.parametrize(
    ("extents", "lane"),
    [
        ([(1, 7), (2, 7), (3, 512)], 3),  # 8 full vectors
        ([(3, 20), (1, 7), (2, 64)], 2),
        ([(1, 16), (2, 16)], 2),  # both full: what lies closest
        ([(1, 1), (2, 1)], None),
    ],
)
def test_the_fullest_vectors_lie_along_the_lanes(
    extents: list[tuple[int, int]], lane: int | None
) -> None:
    assert lane_of(extents, 16) == lane


@pytest.mark.parametrize(
    ("rank", "kept"), [(1, {4}), (2, {3, 4}), (3, {1, 3, 4}), (4, {1, 2, 3, 4})]
)
def test_an_instruction_walks_lanes_then_the_reduction_then_rows(rank: int, kept: set[int]) -> None:
    """Rows of 2 and 9, a reduction of 3 and 30, lanes."""
    assert kept_dims([2, 9, 3, 30, 16], [False, False, True, True, False], rank) == kept


def test_a_convolution_is_rows_of_vectors() -> None:
    """Whatever its tiles, 8 x 6 pixels x 9 x 12 positions x 2 vectors of 16 lanes for 24 channels,
    beside sums that are cleared and finished."""
    made = check(last(conv()), simd(), "fp16")
    items = [pair for core in made.compiled.program.cores for pair in repeated(core)]
    products = [(i, n) for i, n in items if isinstance(i, Product)]
    assert sum(n * i.cycles(simd()) for i, n in products) == 8 * 6 * 9 * 12 * 2
    assert sum(n * i.macs() for i, n in products) == made.compiled.program.macs
    assert sum(isinstance(i, Splat) for i, _ in items) >= 1


def test_without_registers_for_sums_products_are_multiply_adds() -> None:
    """One for each of the 9 x 12 positions of the reduction, on 24 x 8 x 6 values."""
    made = check(last(conv()), simd(0), "fp16")
    items = [pair for core in made.compiled.program.cores for pair in repeated(core)]
    chained = sum(n * i.dst.elements for i, n in items if isinstance(i, Ternary))
    assert chained == 9 * 12 * 24 * 8 * 6
    assert made.trace.macs == chained


@pytest.mark.parametrize(
    "vector",
    [
        {"rank": 1}, {"rank": 2, "max_extent": 7}, {"rank": 3, "lanes": 5},
        {"product_rows": 0, "rank": 1, "max_extent": 10, "window": False},
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["fp16", "int8"])
def test_whatever_the_engine_walks_the_sums_are_right(vector: dict[str, Any], kind: str) -> None:
    net = Net(quantized=kind == "int8")
    x = net.input(1, 8, 6, 5)
    y = net.op("Conv", x, net.weight(12, 4, 3, 3), group=2, strides=[2, 1], pads=[1, 0, 1, 0])
    z = net.op("Reshape", y, net.const([1, 12, 9], np.int64))
    net.op("MatMul", z, net.weight(9, 10))
    check(last(net), simd(**vector), kind)


BIG: dict[str, Any] = {"kind": "systolic", "rows": 256, "cols": 256, "depth": 1}


@pytest.mark.parametrize(("rows", "engine"), [(1, "vector"), (400, "matrix")])
def test_a_large_array_leaves_small_products_to_wide_lanes(rows: int, engine: str) -> None:
    """An array of 256 x 256 fills for 256 cycles and more; 64 lanes multiply 1 x 64 x 64 in 64."""
    net = Net()
    net.op("MatMul", net.input(rows, 64), net.weight(64, 64))
    wide = {"lanes": 64, "product_rows": 4}
    arch = machine(types=("fp16",), matrix=BIG, vector=wide, local={"size": 1 << 20})
    made = check(last(net), arch, "fp16", CompileOptions(dtype="fp16"))
    busy = {e.engine: e.busy for e in made.trace.engines}
    assert (busy["matrix"] > 0) == (engine == "matrix")
    demand = made.compiled.program.demand
    assert (demand.macs, bool(demand.products)) == (rows * 64 * 64, engine == "matrix")


def test_types_that_the_array_lacks_are_multiplied_in_lanes() -> None:
    """No call of the host for real products between integer ones."""
    net = Net()
    net.op("MatMul", net.input(5, 12), net.weight(12, 20))
    arch = machine(types=("fp32",), matrix={"rate": {"fp32": 1.0}})
    none = changed(arch, "matrix", rate={"int8": 1})
    made = check(last(net), none, "fp32", CompileOptions(dtype="fp32"))
    assert not made.compiled.program.payloads


LARGE: dict[str, Any] = {"rows": 16, "cols": 16, "depth": 16}
SMALL: dict[str, Any] = {"kind": "cube", "rows": 16, "cols": 16, "depth": 1, "depthwise": True}


def unlike(rates: tuple[float, float] = (1.0, 1.0), **fields: Any) -> Arch:
    """A core whose two arrays multiply at these `rates`; `fields` of the small one."""
    large, small = rates
    return machine(
        types=("fp16",), matrix={**LARGE, "rate": {"fp16": large}}, vector={"lanes": 2},
        local={"size": 1 << 18, "banks": 16, "bank_width": 64},
        engines={"small": {**SMALL, "rate": {"fp16": small}, **fields}},
    )  # fmt: skip


def separable() -> onnx.ModelProto:
    """A depthwise 3 x 3 convolution of 16 channels, and a dense one of 1 x 1 to 64."""
    net = Net()
    x = net.op("Conv", net.input(1, 16, 64, 64), net.weight(16, 1, 3, 3), group=16, pads=[1] * 4)
    return net.model(net.op("Conv", x, net.weight(64, 16, 1, 1)))


@pytest.mark.parametrize(
    ("fields", "dense", "small"),
    [
        # 256 blocks of 16 pixels: 9 positions of all channels, or on the large one 16 channels one
        # after another, whose 9 positions fill one fold; the dense one takes 4 folds of columns.
        ({}, 256 * 4, 256 * 9),
        ({"rate": {"fp16": 0.5}}, 256 * (16 + 4), 0),
        ({"depthwise": False}, 256 * (16 + 4), 0),
        ({"rate": {"int8": 1.0}}, 256 * (16 + 4), 0),
        # With a depth of 8 it takes 9 positions in 2 steps, two of them half of the blocks each.
        ({"depth": 8, "units": 2}, 256 * 4, 128 * 2),
        # A larger one gets the dense product too: two sets of columns.
        ({"depth": 16, "cols": 32}, 0, 256 * (1 + 2)),
    ],
)
def test_a_product_runs_where_it_takes_fewer_cycles(
    fields: dict[str, Any], dense: int, small: int
) -> None:
    found = busy(check(separable(), unlike(**fields), "fp16").trace)
    assert (found.get("matrix", 0), found.get("small", 0)) == (dense, small)


def test_both_work_at_the_same_time() -> None:
    """Each takes 64 k cycles, one for what the other makes of the tile before."""
    arch = unlike((1 / 64, 9 / 256))
    found = check(separable(), arch, "fp16")
    assert (busy(found.trace)["matrix"], busy(found.trace)["small"]) == (65536, 65536)
    assert 65536 < found.trace.cycles < 65536 * 1.2
    assert bound_of(found.compiled, arch).matrix == pytest.approx(65536)


@pytest.mark.parametrize(("group", "engine"), [(1, "matrix"), (16, "small")])
@pytest.mark.parametrize("able", ["matrix", "small"])
def test_results_are_looked_up_by_the_array_of_their_product(
    group: int, engine: str, able: str
) -> None:
    """A sigmoid behind a convolution goes to its array where that has tables."""
    plain = {"rate": {"int8": 1.0}, "writeback": WRITEBACK}
    arrays = {"matrix": LARGE | plain, "small": SMALL | plain}
    arrays[able] |= {"writeback": (*WRITEBACK, "table")}
    arch = machine(
        types=("int8",), matrix=arrays["matrix"], engines={"small": arrays["small"]},
        vector={"lanes": 16, "table": "8 cycles"},
    )  # fmt: skip
    net = Net(quantized=True)
    weights = net.weight(16, 16 // group, 3, 3)
    x = net.op("Conv", net.input(1, 16, 8, 8), weights, group=group, pads=[1] * 4)
    found = check(net.model(net.op("Sigmoid", x)), arch, "int8")
    flat = [i for core in found.compiled.program.cores for i, *_ in instructions(core)]
    products = [i for i in flat if isinstance(i, MatrixInstruction)]
    assert {i.engine for i in products} == {engine}
    assert any(i.table for i in products) == (able == engine)
