"""Several engines of one kind in a core: each takes a part of a tile, and they work side by side.

Arrays complete 8 x 8 dot products of length 8 in a cycle, vectors have 16 lanes: times are worked
out by hand.
"""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from machines import NAMED, machine
from networks import Net, check

from compiler.target.equal_engines import Columns, cut_dim, largest
from simmodel.arch.record import Arch
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
