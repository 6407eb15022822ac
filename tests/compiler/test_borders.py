"""Boxes and views are what enumerating every position says. Borders: tiles that lie in them
altogether, and filled where that holds up neither products nor their readers.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import onnx
import pytest
from doubles import AnyTiles, Eager
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMED, machine
from networks import Net, check

from compiler.api import CompileResult, compile_model
from compiler.codegen.nodes import instructions
from compiler.context import CompileOptions
from compiler.options import Stages
from compiler.schedule.fusion.optimal import STRATEGIES
from compiler.tensor_ir.bounds import Box, clipped, full, needed, union
from compiler.tensor_ir.build import through
from compiler.tensor_ir.nest import Access, Affine, Dim, Nest, Storage, Tensor, at
from simmodel.isa import Splat, Sync


@pytest.mark.parametrize(("start", "size"), [(-5, 2), (-5, 5), (12, 2), (10, 1)])
def test_of_a_box_outside_only_its_border_is_left(start: int, size: int) -> None:
    region = clipped(((start, size),), (10,))
    assert region.box[0] == (start + region.before[0], 0)
    assert region.before[0] + region.after[0] == size


def test_a_box_without_positions_adds_nothing_to_another() -> None:
    assert union(((-1, 0), (2, 3)), ((4, 2), (0, 9))) == ((4, 2), (0, 9))
    assert union(((4, 2), (0, 9)), ((-1, 0), (2, 3))) == ((4, 2), (0, 9))


def padded(net: Net, x: str, *amounts: int, value: float | None = None) -> str:
    given = [] if value is None else [net.const(value, "f4")]
    return net.op("Pad", x, net.const(amounts, "i8"), *given)


def rows(before: int, after: int) -> onnx.ModelProto:
    """One row of a product between rows of zeros."""
    net = Net()
    y = net.op("MatMul", net.input(1, 1, 16), net.weight(16, 20))
    return net.model(padded(net, y, 0, before, 0, 0, after, 0))


def image() -> onnx.ModelProto:
    """A convolution, a border wider than a tile, and a reader with a window."""
    net = Net()
    y = net.op("Conv", net.input(1, 3, 6, 5), net.weight(4, 3, 3, 3), pads=[1] * 4)
    z = padded(net, net.op("Relu", y), 0, 0, 5, 1, 0, 0, 6, 2, value=0.5)
    return net.model(net.op("MaxPool", z, kernel_shape=[2, 2], strides=[1, 1]))


def batch() -> onnx.ModelProto:
    """A pool over everything, behind it a border along the batch."""
    net = Net()
    y = net.op("GlobalAveragePool", net.input(2, 4, 3, 3))
    return net.model(net.op("Relu", padded(net, net.op("Neg", y), 3, 0, 0, 0, 2, 0, 0, 0)))


@pytest.mark.parametrize("name", ["plain", "fine", "gemms", "small", "wide", "clustered"])
def test_tiles_in_the_border_have_nothing_to_compute(name: str) -> None:
    for model in (rows(0, 6), rows(5, 0), rows(3, 4), image(), batch()):
        check(model, NAMED[name], "fp32")


@pytest.mark.parametrize("strategy", ["line", "branchx", "optimal"])
def test_groups_around_a_border(strategy: str) -> None:
    options = CompileOptions(stages=Stages(partition=STRATEGIES[strategy]()))
    for model in (rows(2, 3), image(), batch()):
        check(model, NAMED["wide"], "fp32", options)


def test_each_border_of_a_tail_decides_which_tiles_are_alike() -> None:
    """A sum over five channels: the first two of four have unlike borders below, and only the pad
    behind the product's own is read first."""
    net = Net()
    x = net.input(3, 4, 11, 8)
    model = net.model(net.op("LRN", x, alpha=0.5, size=5))
    tiny = {"size": 256, "banks": 1, "bank_width": 16}
    check(model, machine(local=tiny, array=False), "fp16")


ranges = st.tuples(st.integers(0, 5), st.integers(1, 4))
affines = st.builds(
    Affine,
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(-3, 3)), max_size=3, unique_by=lambda term: term[0]
    ).map(tuple),
    st.integers(-6, 6),
)
boxes = st.tuples(st.integers(-6, 12), st.integers(1, 9))


@settings(max_examples=300)
@given(st.tuples(ranges, ranges, ranges), st.lists(affines, max_size=3))
def test_needed_is_the_smallest_box_of_all_positions(
    loops: tuple[tuple[int, int], ...], index: list[Affine]
) -> None:
    values = itertools.product(*(range(start, start + size) for start, size in loops))
    positions = [
        [a.constant + sum(k * value[d] for d, k in a.terms) for a in index] for value in values
    ]
    columns = list(zip(*positions, strict=True))
    enumerated = tuple((min(c), max(c) - min(c) + 1) for c in columns)
    assert needed(Access("x", tuple(index)), loops) == enumerated


@settings(max_examples=300)
@given(st.lists(st.tuples(boxes, st.integers(1, 8)), max_size=3))
def test_clipped_counts_positions_inside_in_front_and_behind(
    cases: list[tuple[tuple[int, int], int]],
) -> None:
    box: Box = tuple(b for b, _ in cases)
    region = clipped(box, tuple(extent for _, extent in cases))
    assert region.sizes == tuple(size for _, size in box)
    for axis, ((start, size), extent) in enumerate(cases):
        positions = range(start, start + size)
        inside = [p for p in positions if 0 <= p < extent]
        assert region.before[axis] == sum(p < 0 for p in positions)
        assert region.after[axis] == sum(p >= extent for p in positions)
        assert region.box[axis][1] == len(inside)
        assert not inside or region.box[axis][0] == inside[0]


@given(boxes, boxes)
def test_union_holds_both_and_no_more(a: tuple[int, int], b: tuple[int, int]) -> None:
    ((start, size),) = union((a,), (b,))
    assert start == min(a[0], b[0])
    assert start + size == max(sum(a), sum(b))


def test_reductions_run_over_everything() -> None:
    nest = Nest("y", (Dim("i", 8), Dim("r", 5)), 1, "move", (), "sum")
    assert full(nest, ((2, 3),)) == [(2, 3), (0, 5)]


# Views read as what they are views of.

BASE = Tensor("base", (1, 3, 1, 8), "fp16", Storage("base", 0, (24, 8, 8, 1)))
COPY = replace(BASE, name="view")
HALF = Tensor("view", (1, 3, 1, 4), "fp16", Storage("base", 0, (24, 8, 8, 2)))
WINDOW = Access("view", (at(0), at(1), Affine(((2, 1),), -1), at(3)), pad=0.0)
"""Reaches out of the one row at both sides."""


def test_every_second_column() -> None:
    plain = Access("view", (at(0), at(1), at(2), at(3)))
    found = through(plain, HALF, BASE)
    assert found is not None
    assert found.tensor == "base"
    assert found.index[3] == Affine(((3, 2),), 0)


def test_a_border_of_a_single_row_stays() -> None:
    assert through(WINDOW, COPY, BASE) == replace(WINDOW, tensor="base")


def test_a_border_inside_the_base_has_no_reading() -> None:
    assert through(WINDOW, HALF, BASE) is None
    later = replace(COPY, shape=(1, 3, 1, 7), storage=Storage("base", 1, (24, 8, 8, 1)))
    assert through(WINDOW, later, BASE) is None


def test_loops_of_one_turn_keep_their_roles() -> None:
    """A window of one position slides along a row of one: dropped, it would be no window."""
    single = replace(HALF, shape=(1, 3, 1, 1))
    window = Access("view", (at(0), at(1), Affine(((2, 1), (4, 1))), Affine(((3, 1), (5, 1)))))
    found = through(window, single, BASE)
    assert found is not None
    assert found.index[2].terms == ((2, 1), (4, 1))
    assert found.index[3].terms == ((3, 1), (5, 1))


def test_dimensions_of_extent_one_may_be_left_out_and_added() -> None:
    """Pooled maps as rows, and back: a batch of one keeps its loop."""
    pooled = Tensor("pooled", (1, 8, 1, 1), "int8", Storage("base", 0, (8, 1, 8, 8)))
    rows = Tensor("rows", (1, 8), "int8", Storage("base", 0, (8, 1)))
    found = through(Access("rows", (at(0), at(2))), rows, pooled)
    assert found == Access("pooled", (at(0), at(2), Affine(), Affine()))
    back = through(Access("pooled", (at(0), at(3), at(1), at(2))), pooled, rows)
    assert back == Access("rows", (at(0), at(3)))


ARCH = machine(
    types=("int8",), matrix={"writeback": ["bias", "clip", "requantize"]}, vector={"lanes": 2},
    local={"size": 16384},
)  # fmt: skip


def grouped(reader: str) -> CompileResult:
    """A convolution whose result the vector engine, or the matrix engine, reads with a border."""
    net = Net(quantized=True)
    x = net.op("Conv", net.input(1, 8, 30, 30), net.weight(8, 8, 3, 3))
    if reader == "vector":
        y = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    else:
        y = net.op("Conv", x, net.weight(8, 8, 3, 3), pads=[1] * 4)
    stages = Stages(partition=Eager(chance=1.0), tile=AnyTiles(rolling=False))
    return compile_model(net.model(y), ARCH, CompileOptions(stages=stages))


@pytest.mark.parametrize(("reader", "around"), [("vector", "matrix B vector"),
                                                ("matrix", "vector B matrix")])  # fmt: skip
def test_products_do_not_wait_for_borders_that_the_vector_engine_reads(
    reader: str, around: str
) -> None:
    made = grouped(reader)
    (decision,) = made.decisions
    assert decision.schedule.loops  # tiles, of which the next is begun while this one is read
    works = [i for i in instructions(made.program.cores[0]) if not isinstance(i, Sync)]
    works = [i for i in works if i.engine in ("matrix", "vector")]
    order = " ".join("border" if isinstance(i, Splat) else i.engine for i in works)
    shown = re.sub(r"border( border)*", "B", order)
    assert shown.count("B") == shown.count(around) == 2
