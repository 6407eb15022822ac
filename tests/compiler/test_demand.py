"""What outputs demand: products and bytes of the part that they depend on, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from machines import NAMED
from networks import Net, check

from compiler.api import CompileOptions, compile_model, prepared
from compiler.tensor_ir.demand import demanded, pieces
from simmodel.errors import Impossible
from simmodel.machine.run import simulate
from simmodel.metrics import measure
from simmodel.program.program import Program

Build = Callable[[Net], tuple[str, ...]]


def slice_(net: Net, x: str, starts: list[int], ends: list[int], axes: list[int]) -> str:
    given = (net.const(values, "i8") for values in (starts, ends, axes))
    return net.op("Slice", x, *given)


def conv(net: Net, x: str, out: int, kernel: int = 1) -> str:
    weights = net.weight(out, net.shapes[x][1], kernel, kernel)
    return net.op("Conv", x, weights, pads=[kernel // 2] * 4)


def part(start: int, end: int, axis: int, *layers: tuple[int, int]) -> Build:
    """A part along one axis of what convolutions make: channels and kernel of each."""

    def build(net: Net) -> tuple[str, ...]:
        x = net.input(1, 4, 8, 8)
        for out, kernel in layers:
            x = conv(net, x, out, kernel)
        return (net.op("Relu", slice_(net, x, [start], [end], [axis])),)

    return build


rows = part(2, 4, 2, (8, 1))


def gathered(net: Net) -> tuple[str, ...]:
    y = net.op("MatMul", net.input(1, 6, 4), net.weight(4, 8))
    return (net.op("Relu", net.op("Gather", y, net.const([1], "i8"), axis=1)),)


def corners(net: Net) -> tuple[str, ...]:
    y = conv(net, net.input(1, 4, 8, 8), 8)
    first = slice_(net, y, [0, 0], [2, 2], [2, 3])
    last = slice_(net, y, [6, 6], [8, 8], [2, 3])
    return net.op("Relu", first), net.op("Relu", last)


def strided(net: Net) -> tuple[str, ...]:
    y = conv(net, net.input(1, 4, 8, 8), 4)
    return (net.op("Conv", y, net.weight(8, 4, 1, 1), strides=[2, 2]),)


def unused(net: Net) -> tuple[str, ...]:
    x = net.input(1, 4, 8, 8)
    net.input(1, 4, 8, 8)
    conv(net, x, 16)  # nobody reads it
    return (conv(net, x, 8),)


def split(net: Net) -> tuple[str, ...]:
    x = net.input(1, 8, 8, 8)
    half = slice_(net, x, [0], [4], [1])
    return (conv(net, half, 8),)


def joined(net: Net) -> tuple[str, ...]:
    x = net.input(1, 4, 8, 8)
    y = net.op("Concat", conv(net, x, 8), conv(net, x, 8), axis=1)
    return (net.op("Relu", slice_(net, y, [8], [16], [1])),)


def seen_otherwise(net: Net) -> tuple[str, ...]:
    x = net.input(1, 4, 8, 8)
    return conv(net, x, 8), net.op("Reshape", x, net.const([1, 256], "i8"))


# Multiply-accumulates, elements of constants and inputs, elements of outputs.
BY_HAND: dict[str, tuple[Build, int, int, int]] = {
    "two of eight rows": (rows, 2 * 8 * 4 * 8, 4 * 2 * 8 + 32, 8 * 2 * 8),
    "rows with their halo": (
        part(3, 5, 2, (4, 1), (8, 3)), 4 * 8 * 4 * 4 + 2 * 8 * 8 * 36, 4 * 4 * 8 + 16 + 288,
        8 * 2 * 8),
    "three channels": (part(5, 8, 1, (8, 1)), 64 * 4 * 3, 4 * 64 + 4 * 3, 3 * 64),
    "one of six rows": (gathered, 4 * 8, 4 + 32, 8),
    "two corners": (corners, 8 * 4 * 8, 8 * 4 + 32, 8 * 8),
    "every second pixel": (strided, 16 * 16 + 16 * 32, 4 * 16 + 16 + 32, 8 * 16),
    "an input and a product of no use": (unused, 64 * 32, 4 * 64 + 32, 8 * 64),
    "half of an input": (split, 64 * 32, 4 * 64 + 32, 8 * 64),
    "half of what is joined": (joined, 64 * 32, 4 * 64 + 32, 8 * 64),
    "an input as output": (seen_otherwise, 64 * 32, 4 * 64 + 32, 8 * 64),
}  # fmt: skip


def made(build: Build, machine: str) -> Program:
    net = Net()
    model = net.model(*build(net))
    return compile_model(prepared(model, "net"), NAMED[machine], CompileOptions("fp32")).program


@pytest.mark.parametrize("case", BY_HAND)
def test_demand_is_what_outputs_depend_on(case: str) -> None:
    build, macs, read, written = BY_HAND[case]
    program = made(build, "plain")
    assert program.demand is not None
    assert program.macs == program.demand.macs == macs
    assert program.demand.products == (("fp32", macs),)
    assert (program.demand.read, program.demand.written) == (4 * read, 4 * written)


def test_marks_are_covered_once_by_a_piece_for_all_rows_that_are_alike() -> None:
    columns = np.arange(40)
    for pattern in (columns[:, None] >= columns, columns[:, None] % 3 == columns % 2):
        marks, covered = np.stack([pattern, pattern, ~pattern]), np.zeros((3, 40, 40), int)
        found = [*pieces(marks)]
        for piece in found:
            covered[np.ix_(*piece)] += 1
        assert np.array_equal(covered, marks)
        assert len(found) <= sum(len(np.unique(own, axis=0)) for own in (pattern, ~pattern))


@pytest.mark.parametrize("machine", ["plain", "bare", "joined", "clustered"])
@pytest.mark.parametrize("case", BY_HAND)
def test_every_run_does_what_its_outputs_demand(case: str, machine: str) -> None:
    net = Net()
    check(net.model(*BY_HAND[case][0](net)), NAMED[machine], "fp32")  # measures, too


def test_a_run_that_moves_too_few_bytes_shows() -> None:
    program, arch = made(rows, "plain"), NAMED["plain"]
    trace, demand = simulate(program, arch), program.demand
    assert demand is not None and measure(trace, program, arch).efficiency <= 1
    for changed, message in (
        (replace(demand, read=1 << 20), "bytes of reads"),
        (replace(demand, written=1 << 20), "bytes of writes"),
        (replace(demand, macs=1 << 40), "multiply-accumulates"),
    ):
        with pytest.raises(Impossible, match=message):
            measure(trace, replace(program, demand=changed), arch)


def test_what_no_output_takes_is_seen_in_executed_products() -> None:
    # Two corners are wanted of 8 x 8 pixels, and whole tiles are computed.
    program, arch = made(corners, "plain"), NAMED["plain"]
    metrics = measure(simulate(program, arch), program, arch)
    assert (program.macs, metrics.executed_macs) == (8 * 32, 64 * 32)
    assert metrics.matrix_utilization * metrics.latency_cycles == 8 * 32 / arch.peak_macs("fp32")


def test_programs_of_one_graph_share_its_demand() -> None:
    net = Net()
    model = prepared(net.model(*rows(net)), "net")
    made = compile_model(model, NAMED["plain"], CompileOptions("fp32"))
    assert made.search is not None
    graph = made.search.graph
    assert demanded(graph) is demanded(graph)
    assert demanded(replace(graph)) == demanded(graph)
