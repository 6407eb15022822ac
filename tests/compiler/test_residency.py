"""What may stay on chip, and the working set: on small networks by hand, where a tensor has 10
bytes; constants of several groups, and parameters of a layer, are loaded once.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import onnx
import pytest
from doubles import Moved, Pinning, anything
from layers import network
from machines import machine
from networks import Net, check, repeated

from compiler.api import CompileResult, compile_model
from compiler.context import CompileOptions
from compiler.explain.report import working_set
from compiler.options import Stages, stages_of
from compiler.schedule.fusion.dependence import dependences
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import KeepTensors, KeptBuffer, candidates
from compiler.schedule.residency.table import Part, ResidencyTable, cheaper_stretches
from compiler.schedule.residency.weights import PinConstants
from compiler.schedule_ir.group import Group
from compiler.tensor_ir.nest import NestGraph
from simmodel.arch.record import Arch
from simmodel.isa import Copy
from simmodel.machine.run import simulate
from simmodel.program.program import Program

ARCH = machine(local={"size": 1024, "alignment": 1})
CHAIN = ("a = x", "b = a", "c = b a", "y = c")


def apart(*lines: str) -> tuple[tuple[Part, ...], NestGraph]:
    """Every layer a group of its own."""
    parts, graph = network(*lines)
    return Unfused().apply(parts, graph, Moved(ARCH)), graph


def found(*lines: str) -> dict[str, KeptBuffer]:
    return {each.name: each for each in candidates(*apart(*lines), Moved(ARCH))}


def test_candidates_are_what_later_groups_alone_read() -> None:
    a, b, c = found(*CHAIN).values()
    assert [(each.first, each.last, each.groups) for each in (a, b, c)] == [
        (0, 2, {0, 1, 2}), (1, 2, {1, 2}), (2, 3, {2, 3}),
    ]  # fmt: skip
    # Its store and two loads, for two groups; a store and a load, for one.
    assert (a.saved, a.worth, b.saved, b.worth) == (30, 1.5, 20, 2.0)


def test_what_saves_most_for_its_place_comes_first_as_far_as_the_share_reaches() -> None:
    parts, graph = apart(*CHAIN)
    # Places of 64 bytes from the end on; b and c lie there one after the other, in group 2 both.
    everything = KeepTensors(share=0.75).apply(parts, graph, Moved(ARCH))
    assert [_kept(part) for part in everything] == [
        {"a": 832}, {"a": 832, "b": 960}, {"a": 832, "b": 960, "c": 896}, {"c": 896},
    ]  # fmt: skip
    little = KeepTensors(share=0.125).apply(parts, graph, Moved(ARCH))
    assert [_kept(part) for part in little] == [{}, {"b": 960}, {"b": 960, "c": 896}, {"c": 896}]
    none = KeepTensors(enabled=False).apply(parts, graph, Moved(ARCH))
    assert none == parts


class Beside(Moved):
    """Prices by which b takes 30 bytes more in a group that reads a from elsewhere."""

    def price(self, group: Group) -> float:
        apart = "a" in {*group.inputs} - group.residents.keys()
        return super().price(group) + 30 * (apart and "b" in group.residents)


def test_what_pays_beside_a_later_one_alone_is_offered_again() -> None:
    parts, graph = apart(*CHAIN)
    kept = KeepTensors(share=0.75).apply(parts, graph, Beside(ARCH))
    assert [_kept(part) for part in kept] == [
        {"a": 896}, {"a": 896, "b": 832}, {"a": 896, "b": 832, "c": 960}, {"c": 960},
    ]  # fmt: skip


class Counted(Moved):
    """Prices that are counted."""

    asked = 0

    def price(self, group: Group) -> float:
        self.asked += 1
        return super().price(group)


def test_what_is_decided_of_one_layer_serves_equal_ones() -> None:
    def kept(count: int) -> tuple[int, list[int]]:
        parts, graph = apart("t0 = x", *(f"t{n} = t{n - 1}" for n in range(1, count)))
        prices = Counted(ARCH)
        found = KeepTensors().apply(parts, graph, prices)
        places = {name: at for part in found for name, at in _kept(part).items()}
        return prices.asked, list(places.values())

    # Each lies beside the one before it: at the end, and 64 bytes in front of that.
    (few, places), (many, more) = kept(8), kept(16)
    assert (places, more) == ([960, 896] * 3 + [960], [960, 896] * 7 + [960])
    assert few == many


def test_what_the_parts_behind_add_is_not_there_to_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, _ = apart(*CHAIN)
    table, asked, price = ResidencyTable([*parts], Moved(ARCH)), list[float](), Moved.price

    def cost_below(self: Moved, group: Group, limit: float) -> float:
        asked.append(limit)
        return price(self, group)

    monkeypatch.setattr(Moved, "cost_below", cost_below)
    first, second, behind, _ = (price(table.prices, table.group(n)) for n in range(4))
    table.best([((), {0: table.group(0), 1: table.group(1)})], 1e4)
    ahead = [second + behind, first + behind, first + second]
    assert asked == pytest.approx([1e4 - cycles for cycles in ahead])


def _kept(part: Part) -> dict[str, int]:
    assert isinstance(part, Group)
    lowest = min((kept.address for kept in part.residents.values()), default=1024)
    assert part.room("local", 1024) == lowest
    return {name: kept.address for name, kept in part.residents.items()}


def test_a_place_by_hand_is_taken() -> None:
    parts, graph = apart(*CHAIN)
    table = ResidencyTable(list(parts), Moved(ARCH))
    a, b, _ = candidates(parts, graph, table.prices)
    for candidate, address in ((a, 0), (b, None)):
        (place,) = candidate.places(table, 1024, address)
        table.commit(place)
    assert not [*b.places(table, 1024, 0)]
    assert [_kept(part) for part in table.parts[:3]] == [
        {"a": 0},
        {"a": 0, "b": 960},
        {"a": 0, "b": 960},
    ]


def test_of_two_ways_each_stretch_is_taken_from_the_cheaper_one() -> None:
    parts, graph = network(*CHAIN)
    net, alone = dependences(parts, graph), Unfused().apply(parts, graph, Moved(ARCH))
    grouped = net.group(0b0011), net.group(0b1100)
    # x, a and b instead of a twice; b, a and y instead of c twice more.
    assert cheaper_stretches((grouped, grouped), (alone, alone), Moved(ARCH)) == grouped
    # Where b and c stay, a and b alone move x, a and a again, c and y alone a and y.
    kept = KeepTensors(share=0.125).apply(alone, graph, Moved(ARCH))
    mixed = cheaper_stretches((grouped, grouped), (alone, kept), Moved(ARCH))
    assert mixed == (grouped[0], *alone[2:])


WEIGHTS = 24 * 24 * 4
LAYERS = 5


def tied() -> onnx.ModelProto:
    """Layers with one matrix."""
    net = Net()
    x, w = net.input(1, 24), net.weight(24, 24)
    for _ in range(LAYERS):
        x = net.op("Tanh", net.op("MatMul", x, w))
    return net.model(x)


def loaded(arch: Arch, pin: PinConstants, **stages: object) -> int:
    """Bytes of DRAM that a program of `tied` reads; it is verified, executed and compared."""
    options = CompileOptions(stages=replace(Stages(pin=pin), **stages))  # type: ignore[arg-type]
    return check(tied(), arch, "fp32", options).trace.traffic["dram.read"]


@pytest.mark.parametrize(
    "arch",
    [machine(), machine(weights=8192), machine(sync="interlock")],
    ids=["local", "weights", "interlock"],
)
def test_weights_of_several_layers_are_loaded_once(arch: Arch) -> None:
    for partition in (Unfused(), Stages().partition):
        pinned = loaded(arch, PinConstants(), partition=partition)
        again = loaded(arch, PinConstants(enabled=False), partition=partition)
        assert pinned < 2 * WEIGHTS < LAYERS * WEIGHTS <= again


def test_every_core_that_comes_to_them_loads_its_own_copy() -> None:
    """Whatever the groups, their cores and the tensors that are kept beside."""
    for seed in range(6):
        options = anything(seed, rolling=None)
        options = replace(options, stages=replace(options.stages, pin=Pinning()))
        made = check(tied(), machine(cores=3), "fp32", options)
        pinned = [d.group.pinned for d in made.compiled.decisions]
        assert any(pinned)
        assert made.trace.traffic["dram.read"] < 4 * WEIGHTS


def test_what_does_not_fit_beside_them_is_given_up() -> None:
    little = machine(local={"size": 2048})
    assert loaded(little, PinConstants()) >= LAYERS * WEIGHTS


DEEP, WIDE = 64, 128
"""Channels in and out of the product: 32 KiB of weights, 512 bytes of bias."""


def biased() -> onnx.ModelProto:
    net = Net()
    weights, bias = net.weight(WIDE, DEEP, 1, 1), net.weight(WIDE)
    return net.model(net.op("Conv", net.input(1, DEEP, 4, 4), weights, bias))


def loads(program: Program, size: int) -> list[int]:
    """Of each core, loads of the constant of `size` bytes."""
    (home,) = (c for c in program.constants if c.data.nbytes == size)
    return [
        sum(
            times
            for copy, times in repeated(core)
            if isinstance(copy, Copy)
            and copy.src.memory == "dram"
            and 0 <= copy.src.address.base - home.address < size
        )
        for core in program.cores
    ]


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
@pytest.mark.parametrize("cores", [1, 2])
def test_a_bias_is_loaded_once_beside_streamed_weights(cores: int, sync: str) -> None:
    """Weights come in pieces, since 16 KiB do not hold them; the bias, 1/64 of them, at once."""
    arch = machine(cores=cores, sync=sync, local={"size": 16384})
    program = check(biased(), arch, "fp32").compiled.program
    assert max(loads(program, 4 * WIDE * DEEP)) > 1
    assert loads(program, 4 * WIDE) == [1] * cores


@pytest.mark.parametrize("latency", [20, 500])
def test_the_price_counts_one_load(latency: int) -> None:
    """Three loads more would be 1 500 cycles of the longer latency."""
    made = check(biased(), machine(local={"size": 16384}, latency=latency), "fp32")
    expected = sum(step.schedule.estimate.total for step in made.compiled.decisions)
    assert expected == pytest.approx(made.trace.cycles, rel=0.05)


APART = replace(stages_of("line", "auto", "latency", 0), partition=Unfused())
"""Each layer is a group of its own; what passes between them may stay on chip."""


def made(model: onnx.ModelProto, arch: Arch) -> CompileResult:
    return compile_model(model, arch, CompileOptions(dtype="fp16", stages=APART))


def roomy(size: int) -> Arch:
    return machine(types=("fp16",), local={"size": size, "banks": 4, "bank_width": 16})


def chain(*channels: int) -> onnx.ModelProto:
    """Convolutions of one pixel each, over an image of 16 x 16."""
    net = Net()
    x = net.input(1, 4, 16, 16)
    for before, after in zip((4, *channels), channels, strict=False):
        x = net.op("Conv", x, net.weight(after, before, 1, 1))
    return net.model(x)


def branches() -> onnx.ModelProto:
    """Two branches, each 32 channels wide and then 2, before they are added."""
    net = Net()
    x = net.input(1, 4, 16, 16)
    wide = [net.op("Conv", x, net.weight(32, 4, 1, 1)) for _ in range(2)]
    thin = [net.op("Conv", each, net.weight(2, 32, 1, 1)) for each in wide]
    return net.model(net.op("Add", *thin))


def test_of_a_chain_it_is_the_largest_result_with_the_one_before_it() -> None:
    """256 pixels of 2 bytes; the input of 4 channels comes from DRAM and is not counted."""
    assert working_set(made(chain(8, 24, 16, 2), roomy(65536))) == (24 + 16) * 256 * 2


def test_branches_are_walked_one_after_the_other() -> None:
    """Only one is wide at a time: 32 channels beside what the other one left, and its own 2."""
    assert working_set(made(branches(), roomy(65536))) == (2 + 32 + 2) * 256 * 2


def test_with_room_for_it_nothing_is_spilled_and_with_less_something_is() -> None:
    """Layer by layer: 20 KiB are alive at once, of which memory for tiles and weights is apart."""
    model, output = chain(8, 24, 16, 2), 2 * 256 * 2
    wrote = {
        size: simulate(made(model, arch).program, arch).traffic["dram.write"]
        for size, arch in ((size, roomy(size)) for size in (16384, 32768))
    }
    assert wrote[32768] == output
    assert wrote[16384] > output


def phases() -> onnx.ModelProto:
    """A transposed convolution in groups: its outputs of each phase lie between those of others."""
    net = Net()
    y = net.op(
        "ConvTranspose", net.input(1, 8, 6, 6), net.weight(8, 4, 3, 3), group=2, strides=[2, 2],
        pads=[1] * 4, output_padding=[1, 1],
    )  # fmt: skip
    return net.model(net.op("Conv", net.op("Tanh", y), net.weight(2, 8, 1, 1)))


def interleaved() -> onnx.ModelProto:
    """Pairs that are turned by a right angle, as positions are encoded: one element from each half
    in turn, in a tensor that is only read in another shape."""
    net = Net()
    pairs = net.op("Reshape", net.op("Tanh", net.input(1, 24, 16)), net.const([1, 24, 8, 2], "i8"))
    even, odd = (
        net.op("Slice", pairs, *(net.const([n], "i8") for n in (first, first + 1, 3)))
        for first in (0, 1)
    )
    turned = net.op("Concat", net.op("Neg", odd), even, axis=-1)
    rows = net.op("Reshape", turned, net.const([1, 24, 16], "i8"))
    return net.model(net.op("MatMul", rows, net.weight(16, 4)))


@pytest.mark.parametrize("model", [phases(), interleaved()], ids=["phases", "pairs"])
def test_results_that_lie_between_each_other_stay_on_chip(model: onnx.ModelProto) -> None:
    traffic = check(model, machine(local={"size": 1 << 16}), "fp32").trace.traffic
    (output,) = model.graph.output
    shape = [dim.dim_value for dim in output.type.tensor_type.shape.dim]
    assert traffic["dram.write"] < 2 * 4 * prod(shape)
