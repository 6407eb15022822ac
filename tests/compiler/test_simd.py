"""Sums of products on the vector engine: what lies along the lanes, what it costs, what comes out,
and where a machine with an array uses them as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from machines import machine
from networks import Net, check

from compiler.context import CompileOptions
from compiler.target.vector import kept_dims, lane_of
from simmodel.arch.record import Arch
from simmodel.isa import Instruction, Item, Loop, Product, Splat, Ternary


def simd(rows: int = 4, **vector: Any) -> Arch:
    return machine(array=False, vector={"product_rows": rows} | vector, types=("fp16", "int8"))


def told(items: tuple[Item, ...], times: int = 1) -> Iterator[tuple[Instruction, int]]:
    for item in items:
        if isinstance(item, Loop):
            yield from told(item.body, times * item.count)
        else:
            yield item, times


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
    items = [pair for core in made.compiled.program.cores for pair in told(core)]
    products = [(i, n) for i, n in items if isinstance(i, Product)]
    assert sum(n * i.cycles(simd()) for i, n in products) == 8 * 6 * 9 * 12 * 2
    assert sum(n * i.macs() for i, n in products) == made.compiled.program.macs
    assert sum(isinstance(i, Splat) for i, _ in items) >= 1


def test_without_registers_for_sums_products_are_multiply_adds() -> None:
    """One for each of the 9 x 12 positions of the reduction, on 24 x 8 x 6 values."""
    made = check(last(conv()), simd(0), "fp16")
    items = [pair for core in made.compiled.program.cores for pair in told(core)]
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
    none = arch.model_copy(
        update={"types": ("fp32",), "matrix": arch.matrix.model_copy(update={"rate": {"int8": 1}})}
    )
    made = check(last(net), none, "fp32", CompileOptions(dtype="fp32"))
    assert not made.compiled.program.payloads
