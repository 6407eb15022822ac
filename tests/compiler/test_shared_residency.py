"""Where tensors lie between groups: what goes through shared memory, where, and what it saves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import onnx
import pytest
from blocks import blocks
from doubles import Everywhere, Moved
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import NAMED, machine, machines
from networks import Checked, Net, check, may_be_refused

from compiler.codegen.multicast import ShareLoads
from compiler.context import CompileOptions, Context
from compiler.lowering.lower import lower
from compiler.memory.on_chip import PlacedGroup
from compiler.options import Stages
from compiler.pipeline import bind, compile_model, fuse_tails, prepared
from compiler.schedule.fusion.dependence import dependences
from compiler.schedule.fusion.partition import PartitionCosts, Unfused
from compiler.schedule.residency.activations import KeepTensors
from compiler.schedule.residency.buffer import LiveRange, lowest
from compiler.schedule.residency.shared_memory import ChooseHomes
from compiler.target.place_on_host import PlaceOnHost
from simmodel.arch.record import Arch
from simmodel.program.program import Buffer


def apart(homes: ChooseHomes | None = None, **stages: Any) -> CompileOptions:
    """Every layer a group of its own, so that tensors pass between groups, and nothing else goes
    through shared memory."""
    made = Stages(
        partition=Unfused(), keep=KeepTensors(enabled=False), homes=homes or Everywhere(),
        share=ShareLoads(enabled=False), **stages,
    )  # fmt: skip
    return CompileOptions(stages=made)


def chain(batch: int = 1, layers: int = 3, side: int = 8) -> onnx.ModelProto:
    """Pointwise convolutions in a row, 8 channels each."""
    net = Net()
    x = net.input(batch, 8, side, side)
    for _ in range(layers):
        x = net.op("Conv", x, net.weight(8, 8, 1, 1))
    return net.model(x)


def near(seen: Checked) -> list[Buffer]:
    return [b for b in seen.compiled.program.buffers if b.memory == "shared"]


def shared_bytes(seen: Checked) -> tuple[float, float]:
    """Bytes stored in shared memory, and loaded from there."""
    moved = {"write": 0.0, "read": 0.0}
    for key, amount in seen.trace.traffic.items():
        memory, _, way = key.rpartition(".")
        if memory.startswith("shared"):
            moved[way] += amount
    return moved["write"], moved["read"]


TENSOR = 8 * 8 * 8 * 4
"""Bytes of each tensor of `chain`."""


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
@pytest.mark.parametrize("own", [False, True])
def test_what_passes_between_groups_leaves_dram_alone(sync: str, own: bool) -> None:
    """By hand: three layers, two tensors between them, each stored once and loaded once."""
    arch = machine(cores=2, sync=sync, shared={"size": 2 * TENSOR}, own_engines=own)
    seen = check(chain(), arch, "fp32", apart())
    weights = 8 * 8 * 4
    assert shared_bytes(seen) == (2 * TENSOR, 2 * TENSOR)
    assert seen.trace.traffic["dram.write"] == TENSOR
    assert seen.trace.traffic["dram.read"] >= TENSOR + 3 * weights
    assert {b.address for b in near(seen)} == {0, TENSOR}
    plain = check(chain(), arch, "fp32", apart(ChooseHomes(shared=False)))
    assert not near(plain)
    assert plain.trace.traffic["dram.write"] == 3 * TENSOR
    assert seen.trace.cycles < plain.trace.cycles


@pytest.mark.parametrize(("size", "hoped"), [(TENSOR, 0), (TENSOR // 2, 2 * TENSOR)])
def test_groups_are_formed_in_the_hope_of_room_that_there_is(size: int, hoped: float) -> None:
    """By hand: the middle one of three layers, with an input, a result and 8 x 8 weights."""
    arch, weights = machine(cores=2, shared={"size": size}), 8 * 8 * 4
    graph, ctx = lower(prepared(chain(), "net"), "fp32"), Context(arch, CompileOptions("fp32"))
    middle = dependences(bind(fuse_tails(graph, ctx), ctx).parts, graph).group(0b010)
    at_best, at_worst = ChooseHomes().optimistic_costs(graph, Moved(arch))
    assert at_best.price(middle) == hoped + weights
    assert at_worst.price(middle) == 2 * TENSOR + weights


def test_of_groups_for_shared_memory_and_for_dram_each_is_taken_where_it_is_quicker() -> None:
    """Of four layers in a row, the former join the first two, and the latter the last two."""

    class InTurn(Unfused):
        def groups(self, costs: PartitionCosts) -> list[int]:
            return next(ways)

    ways = iter(([0b0011, 0b0100, 0b1000], [0b0001, 0b0010, 0b1100]))
    options = apart(ChooseHomes())
    options = replace(options, stages=replace(options.stages, partition=InTurn()))
    arch = machine(cores=2, shared={"size": TENSOR})  # for one of the two tensors between groups
    made = compile_model(chain(layers=4), arch, replace(options, dtype="fp32"))
    groups = [step.plan.schedule.group for step in made.steps if isinstance(step, PlacedGroup)]
    assert [[layer.index for layer in group.layers] for group in groups] == [[0, 1], [2, 3]]


def test_the_tensor_that_saves_most_comes_first() -> None:
    """Room for one at a time: the first saves 3 transfers over 4 steps, all others 2 over 2."""
    net = Net()
    x = net.input(1, 8, 8, 8)
    a = net.op("Conv", x, net.weight(8, 8, 1, 1))
    b = net.op("MaxPool", a, kernel_shape=[1, 1])
    b = net.op("MaxPool", b, kernel_shape=[1, 1])
    c = net.op("Conv", b, net.weight(8, 8, 1, 1))
    d = net.op("Conv", net.op("Add", c, a), net.weight(8, 8, 1, 1))
    arch = machine(cores=2, shared={"size": TENSOR})
    seen = check(net.model(d), arch, "fp32", apart())
    assert [(buffer.first, buffer.last) for buffer in near(seen)] == [(1, 2), (3, 4)]


def test_what_the_host_reads_lies_in_dram() -> None:
    net = Net()
    x = net.input(1, 8, 8, 8)
    a = net.op("Conv", x, net.weight(8, 8, 1, 1))
    b = net.op("Sinh", a)
    c = net.op("Conv", b, net.weight(8, 8, 1, 1))
    d = net.op("Conv", c, net.weight(8, 8, 1, 1))
    kept = apart(host=PlaceOnHost(kept="Sinh"))
    seen = check(net.model(d), machine(shared={}), "fp32", kept)
    assert seen.compiled.host
    assert len(near(seen)) == 1  # between the last two


def test_each_cluster_has_its_slice() -> None:
    """A batch of 4 on 2 clusters: each stores two images at the start of its own memory."""
    arch = machine(clusters=2, cores=2, shared={"level": "cluster", "size": TENSOR * 4})
    seen = check(chain(batch=4), arch, "fp32", apart())
    assert {(b.core, b.size) for b in near(seen)} == {(0, 2 * TENSOR), (2, 2 * TENSOR)}
    assert {b.address for b in near(seen)} == {0, 2 * TENSOR}
    assert shared_bytes(seen) == (8 * TENSOR, 8 * TENSOR)


def test_no_cluster_reads_the_slice_of_another() -> None:
    """One image that is cut by rows, with halos: it could not be read back."""
    net = Net()
    x = net.input(1, 8, 16, 16)
    for _ in range(3):
        x = net.op("Conv", x, net.weight(8, 8, 3, 3), pads=[1] * 4)
    arch = machine(clusters=2, cores=2, shared={"level": "cluster"})
    seen = check(net.model(x), arch, "fp32", apart())
    assert all(b.core is not None for b in near(seen))
    for made in seen.compiled.decisions:
        if made.group.shared:  # then whole columns, whose input is another layer's columns
            assert len(made.schedule.parts) <= arch.cores


@pytest.mark.parametrize(
    "first, last, size, expected",
    [(0, 1, 64, 192), (2, 3, 64, 0), (1, 2, 100, 192), (0, 0, 32, 64)],
)
def test_lowest_address(first: int, last: int, size: int, expected: int) -> None:
    """By hand: bytes 0..64 are taken in steps 0 and 1, 128..192 in steps 0 to 2."""
    placed = [(0, LiveRange("a", 64, 0, 1)), (128, LiveRange("b", 64, 0, 2))]
    if (first, last) == (0, 1):
        placed.append((64, LiveRange("c", 64, 1, 1)))
    assert lowest(LiveRange("new", size, first, last, 64), placed) == expected


@settings(max_examples=25, derandomize=True)
@given(machines(), st.data())
def test_any_network_through_shared_memory(arch: Arch, data: st.DataObject) -> None:
    """Whatever layers read and write, and wherever it lies, the result is the same."""
    assume(arch.memories.shared is not None)
    dtype = data.draw(st.sampled_from(arch.types))
    model: onnx.ModelProto = data.draw(blocks(dtype == "int8", most=2))
    with may_be_refused():
        check(model, arch, dtype, apart())


@settings(max_examples=12, derandomize=True)
@given(st.data())
def test_any_batch_in_slices(data: st.DataObject) -> None:
    """As above where every cluster has a shared memory: halves of a batch."""
    dtype = data.draw(st.sampled_from(NAMED["clustered"].types))
    model: onnx.ModelProto = data.draw(blocks(dtype == "int8", most=2))
    assume(model.graph.input[0].type.tensor_type.shape.dim[0].dim_value % 2 == 0)
    check(model, NAMED["clustered"], dtype, apart())
