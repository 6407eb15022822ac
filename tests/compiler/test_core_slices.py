"""What stays on chip where several cores work: every core keeps a slice, and reads no other one's.

Two convolutions of 3 x 3 on 16 x 16 pixels of 8 channels, on two cores: the second one needs a row
of its neighbour's, so each core keeps 9 rows of the first one's result and makes them itself.

Where cores split channels, a convolution reads all of them: each core hands on what it has made. A
depthwise layer reads the channels that it makes. There are 16, of which the array makes 8 at once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from blocks import blocks, conv
from doubles import Clinging
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine
from networks import Net, check, feeds_of, reference, refused

from compiler.api import CompileOptions, CompileResult, compile_model, prepared
from compiler.codegen.nodes import instructions
from compiler.cost.multicast import Cores, Handover, handover_cycles, handovers
from compiler.decisions.text.extract import extract_tree
from compiler.decisions.text.text import parse_tree, print_tree
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.geometry.cuts import split_channels, splits
from compiler.geometry.tile_trace import TraceCache
from compiler.memory.on_chip import PlacedGroup
from compiler.options import Stages
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency import activations
from compiler.schedule.residency.activations import Slices, slicings
from compiler.schedule.residency.table import Slicing
from compiler.schedule.tiling.choose_tiles import ChooseTiles, GroupSearch
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Estimate
from compiler.tensor_ir.bounds import Box
from simmodel.arch.record import Arch
from simmodel.execute import execute
from simmodel.isa import Await, Copy, Instruction, Item, Loop, Sync
from simmodel.isa.region import Operand
from simmodel.machine.run import simulate
from simmodel.program.program import Program
from simmodel.verify import findings
from simmodel.verify.happens_before import random_order

ROWS, CHANNELS = 16, 8
PIXEL = CHANNELS * 4
TWO = machine(name="two", cores=2, local={"size": 1 << 18})
INTERLOCKED = machine(name="interlocked", cores=2, local={"size": 1 << 18}, sync="interlock")
PASSING = machine(name="passing", cores=2, local={"size": 1 << 18}, among="peer")
FIRST, SECOND = "t4", "t8"
WALKS = TraceCache()
APART = f"tree net\nstep\n  layer {FIRST}\nstep\n  layer {SECOND}\n"


def network(kernel: int = 3, batch: int = 1, stride: int = 1) -> onnx.ModelProto:
    """Two convolutions in a row."""
    net = Net()
    x = net.input(batch, CHANNELS, ROWS, 16)
    x = net.op("Relu", conv(net, x, CHANNELS, (3, 3)))
    pads = (kernel // 2,) * 4
    last = conv(net, x, CHANNELS, (kernel, kernel), stride=(stride,) * 2, pads=pads)
    return net.model(net.op("Relu", last))


def compiled(
    model: onnx.ModelProto, tree: str | None = None, arch: Arch = TWO, stages: Stages | None = None
) -> CompileResult:
    options = CompileOptions(
        "fp32", tree=None if tree is None else parse_tree(tree), stages=stages or Stages()
    )
    return compile_model(prepared(model, "net"), arch, options)


def home(*cores: str) -> str:
    """The tree whose first result stays, on cores that keep `cores` of it."""
    lines = "".join(f"  core {core}\n" for core in cores)
    return APART.replace("net\n", f"net\nhome {FIRST} local\n{lines}", 1)


def groups(made: CompileResult) -> list[Group]:
    return [step.plan.schedule.group for step in made.steps if isinstance(step, PlacedGroup)]


def rows(slices: Slices) -> list[tuple[int, int]]:
    """First row and row behind the last one, by core."""
    return [(start, start + size) for _, _, (start, size), _ in slices]


@pytest.mark.parametrize(
    ("kernel", "stride", "kept"),
    [
        (1, 1, [(0, 8), (8, 16)]),
        (3, 1, [(0, 9), (7, 16)]),
        (5, 1, [(0, 10), (6, 16)]),
        (3, 2, [(0, 8), (7, 16)]),
    ],
)
def test_a_core_keeps_its_share_and_what_its_readers_reach(
    kernel: int, stride: int, kept: list[tuple[int, int]]
) -> None:
    _, second = groups(compiled(network(kernel, stride=stride), APART))
    whole = [(0, 16), (0, 16)]
    assert [rows(way.slices) for way in slicings(FIRST, [second], TWO, 2, WALKS)] == [kept, whole]
    ways = slicings(FIRST, [second], TWO, 2, WALKS, passing=True)
    both = [(rows(w.slices), w.passed) for w in ways]
    alone = kept == [(0, 8), (8, 16)]
    sliced = [(kept, False)] if alone else [(kept, True), (kept, False)]
    assert both == [*sliced, (whole, True), (whole, False)]  # or all of it on both cores


def test_ways_to_keep_a_tensor_for_its_readers_are_found_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[tuple[str, tuple[Group, ...]]]()

    def noted(name: str, readers: Sequence[Group], *rest: Any, **more: Any) -> Iterator[Slicing]:
        asked.append((name, tuple(readers)))
        return slicings(name, readers, *rest, **more)

    monkeypatch.setattr(activations, "slicings", noted)
    compile_model(network(), TWO, CompileOptions(stages=Stages(partition=Unfused())))
    assert asked and all(a != b for a, b in itertools.combinations(asked, 2))


def test_images_are_kept_where_they_are_worked_on() -> None:
    _, second = groups(compiled(network(batch=2), APART))
    images, halves, _ = (way.slices for way in slicings(FIRST, [second], TWO, 2, WALKS))
    assert images == (((0, 1), (0, 8), (0, 16), (0, 16)), ((1, 1), (0, 8), (0, 16), (0, 16)))
    assert rows(halves) == [(0, 9), (7, 16)]


@pytest.mark.parametrize("arch", [TWO, INTERLOCKED])
def test_what_is_kept_in_slices_takes_no_dram_and_is_right(arch: Arch) -> None:
    model = network()
    made = compiled(model, home(), arch)
    (_, second) = groups(made)
    (kept,) = second.residents.values()
    assert rows(kept.slices) == [(0, 9), (7, 16)]
    # A border of one all round: but none between the cores, where the slice goes on.
    assert kept.padded == (1, CHANNELS, 10, 18)
    trace = simulate(made.program, arch)
    assert trace.traffic["dram.write"] == ROWS * 16 * PIXEL  # the output alone
    first, last = (
        step.plan.schedule.estimate for step in made.steps if isinstance(step, PlacedGroup)
    )
    apart = compiled(model, APART, arch)
    own = [step.plan.schedule.estimate for step in apart.steps if isinstance(step, PlacedGroup)]
    assert first.bytes + last.bytes < own[0].bytes + own[1].bytes - 2 * ROWS * 16 * PIXEL * 0.9
    right(made.program, model, arch)


def test_cores_pass_each_other_the_rows_that_they_need() -> None:
    """One row of 16 pixels of 8 channels, each way."""
    model = network()
    for sync, tokens in itertools.product(("tokens", "interlock"), (64, 14)):
        front = PASSING.front_end.model_copy(update={"sync": sync, "tokens": tokens})
        arch = PASSING.model_copy(update={"front_end": front})
        made = compiled(model, home("h = 0:9", "h = 7:16").replace("local", "local passed"), arch)
        first, _ = groups(made)
        assert handovers(
            first, ((((0, 1), (0, 8), (0, 8), (0, 16))), ((0, 1), (0, 8), (8, 8), (0, 16))), FIRST
        ) == (
            Handover(0, (1,), ((0, 1), (0, 8), (7, 1), (0, 16))),
            Handover(1, (0,), ((0, 1), (0, 8), (8, 1), (0, 16))),
        )
        trace = simulate(made.program, arch)
        assert trace.traffic["dram.write"] == ROWS * 16 * PIXEL
        # Cores with few tokens meet at barriers.
        assert ("room0_0" in made.program.barriers) == (tokens < 64)
        # And at none that nobody waits for: loads behind one would be issued after these meetings.
        waits = {
            i.barrier for s in made.program.cores for i in instructions(s) if isinstance(i, Await)
        }
        assert waits == made.program.barriers.keys()
        # The first layer's products are those of its rows alone, none of them twice.
        assert trace.macs == 2 * ROWS * 16 * CHANNELS * CHANNELS * 9
        right(made.program, model, arch)
        text = print_tree(extract_tree("net", made.steps))
        assert f"home {FIRST} local at " in text and " passed\n  core h = 0:9\n" in text
        assert print_tree(extract_tree("net", compiled(model, text, arch).steps)) == text


def test_rows_that_are_not_passed_or_not_waited_for_are_caught() -> None:
    tree = home("h = 0:9", "h = 7:16").replace("local", "local passed")
    made = compiled(network(), tree, PASSING)
    for gone in ("copies", "waits"):
        cores = tuple(tuple(without(stream, gone)) for stream in made.program.cores)
        assert findings(replace(made.program, cores=cores), PASSING), gone


def without(items: tuple[Item, ...], gone: str) -> Iterator[Item]:
    """`items` without the copies to other cores, or without waiting for what others copy here."""
    for item in items:
        if isinstance(item, Loop):
            yield replace(item, body=tuple(without(item.body, gone)))
        elif gone == "copies" and isinstance(item, Copy) and item.dst.cores:
            yield Sync(
                engine=item.engine, waits=item.waits, signals=item.signals, notifies=item.notifies
            )
        elif gone == "waits":
            assert isinstance(item, Instruction)
            yield replace(item, waits=tuple(w for w in item.waits if not w[0].startswith("sent@")))
        else:
            yield item


def test_a_slice_that_is_moved_is_caught() -> None:
    """Every core's first layer writes a row further on: the second one reads what nobody wrote."""
    made = compiled(network(), home())
    (kept,) = groups(made)[1].residents.values()
    row = kept.padded[3] * PIXEL
    low, high = kept.address, kept.address + kept.padded[2] * row
    assert not findings(made.program, TWO)
    cores = tuple(tuple(moved(stream, low, high, row)) for stream in made.program.cores)
    assert findings(replace(made.program, cores=cores), TWO)


def moved(items: tuple[Item, ...], low: int, high: int, by: int) -> Iterator[Item]:
    """`items`, which write `by` bytes further on between `low` and `high` of local memory."""
    for item in items:
        if isinstance(item, Loop):
            yield replace(item, body=tuple(moved(item.body, low, high, by)))
        elif isinstance(item, Instruction) and inside(getattr(item, "dst", None), low, high):
            there = item.dst.address.plus(by)  # type: ignore[attr-defined]
            yield replace(item, dst=replace(item.dst, address=there))  # type: ignore[attr-defined]
        else:
            yield item


def inside(operand: Operand | None, low: int, high: int) -> bool:
    return operand is not None and operand.memory == "local" and low <= operand.address.base < high


def right(program: Program, model: onnx.ModelProto, arch: Arch) -> None:
    """It is proven, and computes the same in any order that it allows."""
    assert not findings(program, arch)
    feeds = feeds_of(model)
    (want,) = reference(model, feeds).values()
    for seed in range(3):
        order = random_order(seed)
        (got,) = execute(program, feeds, arch, order=order).values()
        np.testing.assert_allclose(got, want, 0, 1e-4 * np.abs(want).max())


@settings(max_examples=6)
@given(
    blocks(quantized=False, most=3), st.integers(2, 8), st.sampled_from(["tokens", "interlock"]),
    st.sampled_from(["", "load", "peer", "each"]), st.integers(0, 9),
)  # fmt: skip
def test_any_network_keeps_slices_on_any_number_of_cores(
    model: onnx.ModelProto, cores: int, sync: str, among: str, taste: int
) -> None:
    arch = machine(cores=cores, local={"size": 1 << 17}, sync=sync, among=among)
    stages = Stages(keep=Clinging(taste=taste))
    try:
        made = check(model, arch, "fp32", CompileOptions(stages=stages)).compiled
    except (DoesNotFit, UnsupportedModel) as why:
        refused(why)
        return
    feeds = feeds_of(model)
    want = execute(made.program, feeds, arch)
    for seed in range(2):
        order = random_order(seed)
        got = execute(made.program, feeds, arch, order=order)
        assert all(np.array_equal(got[name], want[name]) for name in want)


MAPS, SIDE = 16, 16
FIRST, SECOND = "t4", "t8"
PIXELS = SIDE * SIDE * 4
ALL = ((0, 1), (0, 16), (0, 16), (0, 16))


def several(cores: int = 2, among: str = "peer", **changed: object) -> Arch:
    return machine(name="several", cores=cores, local={"size": 1 << 18}, among=among, **changed)


def two_layers(second: str = "conv", channels: int = MAPS) -> onnx.ModelProto:
    """Two layers in a row; the second one reads all channels of the first, or its own."""
    net = Net()
    x = net.input(1, MAPS, SIDE, SIDE)
    x = net.op("Relu", conv(net, x, channels, (3, 3)))
    group = 1 if second == "conv" else channels
    return net.model(net.op("Relu", conv(net, x, channels, (3, 3), group=group)))


def halves(*homes: str, kept: str = "") -> str:
    """The tree of two layers that two cores split by channels."""
    lines = "".join(f"  core {line}".rstrip() + "\n" for line in homes)
    steps = "".join(
        f"step\n  core o = 0:8\n  core o = 8:16\n  layer {name}\n" for name in (FIRST, SECOND)
    )
    return f"tree net\nhome {FIRST} local{kept}\n{lines}{steps}"


WHOLE = halves("", "", kept=" passed")


def half(core: int) -> Box:
    return ((0, 1), (8 * core, 8), (0, 16), (0, 16))


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
@pytest.mark.parametrize("among", ["peer", "each"])
def test_cores_that_split_channels_give_each_other_all_that_they_make(
    sync: str, among: str
) -> None:
    model, arch = two_layers(), several(sync=sync, among=among)
    made = compiled(model, WHOLE, arch)
    first, second = groups(made)
    assert second.residents[FIRST].slices == (ALL, ALL)
    assert handovers(first, (half(0), half(1)), FIRST) == (
        Handover(0, (1,), half(0)),
        Handover(1, (0,), half(1)),
    )
    trace = simulate(made.program, arch)
    # The output alone: of each pixel either core has half a burst of 64 B.
    assert trace.traffic["dram.write"] == SIDE * SIDE * 2 * 64
    assert trace.macs == 2 * SIDE * SIDE * MAPS * MAPS * 9  # none of them twice
    right(made.program, model, arch)
    text = print_tree(extract_tree("net", made.steps))
    assert " passed\n  core\n  core\n" in text and "  core o = 0:8\n  core o = 8:16\n" in text
    assert print_tree(extract_tree("net", compiled(model, text, arch).steps)) == text


def test_what_is_read_first_is_handed_on_first() -> None:
    net = Net()
    first = net.op("Relu", conv(net, net.input(1, MAPS, SIDE, SIDE), MAPS, (3, 3)))
    second = net.op("Relu", conv(net, first, MAPS, (3, 3)))
    third, last = (net.op("Relu", conv(net, each, MAPS, (3, 3))) for each in (second, first))
    homes = "".join(
        f"home {name} local passed\n  core h = 0:9\n  core h = 7:16\n" for name in (first, second)
    )
    steps = "".join(
        f"step\n  core h = 0:8\n  core h = 8:16\n  layer {one}\n  layer {two}\n"
        for one, two in ((first, second), (third, last))
    )
    made = compiled(net.model(third, last), f"tree net\n{homes}{steps}", several())
    kept = groups(made)[0].residents
    low, high = sorted((first, second), key=lambda name: kept[name].address)
    found = [high if base >= kept[high].address else low for base in handed(made, low)]
    assert found == [second, first] * 2


def handed(made: CompileResult, name: str = FIRST) -> list[int]:
    """Addresses on other cores, from where one tensor stays on, to which cores copy."""
    start = groups(made)[0].residents[name].address
    items = (item for core in made.program.cores for item in instructions(core))
    copies = (item for item in items if isinstance(item, Copy) and item.dst.cores)
    return [base for copy in copies if (base := copy.dst.address.base) >= start]


@pytest.mark.parametrize("gone", ["copies", "waits"])
def test_channels_that_are_not_handed_on_or_not_waited_for_are_caught(gone: str) -> None:
    made = compiled(two_layers(), WHOLE, several())
    cores = tuple(tuple(without(stream, gone)) for stream in made.program.cores)
    assert findings(replace(made.program, cores=cores), several())


@pytest.mark.parametrize("arch", [several(), several(among=""), several(sync="interlock")])
def test_a_depthwise_layer_reads_the_channels_that_its_core_made(arch: Arch) -> None:
    model = two_layers("depthwise")
    made = compiled(model, halves("o = 0:8", "o = 8:16"), arch)
    first, _ = groups(made)
    assert first.residents[FIRST].slices == (half(0), half(1))
    assert not handovers(first, (half(0), half(1)), FIRST)
    assert not handed(made)
    right(made.program, model, arch)


def test_ways_to_keep_channels() -> None:
    """Slices for who reads its own channels; all on all cores for who sums over them."""

    def by_channels(second: str, *, passing: bool) -> list[Slicing]:
        _, reader = groups(compiled(two_layers(second), APART, several()))
        ways = slicings(FIRST, [reader], several(), 2, WALKS, passing=passing)
        return [way for way in ways if all(box[2] == (0, 16) for box in way.slices)]

    own, made = Slicing((half(0), half(1))), Slicing((ALL, ALL))
    everything = [Slicing((ALL, ALL), passed=True), made]
    assert by_channels("depthwise", passing=False) == [own, made]
    assert by_channels("depthwise", passing=True) == [own, *everything]
    assert by_channels("conv", passing=True) == everything
    assert by_channels("conv", passing=False) == [made]


def test_cores_split_channels_of_one_product_and_what_follows_it() -> None:
    arch = several()

    def together(model: onnx.ModelProto) -> Group:
        tree = f"tree net\nstep\n  layer {FIRST}\n  layer {SECOND}\n"
        (group,) = groups(compiled(model, tree, arch))
        return group

    followed_by_own = together(two_layers("depthwise"))
    assert split_channels(followed_by_own) == 1
    assert (half(0), half(1)) in splits(followed_by_own, arch, 2)
    # Both cores would make all that the second product sums over.
    both = together(two_layers())
    assert split_channels(both) is None
    assert (half(0), half(1)) not in splits(both, arch, 2)


def test_estimates_count_what_is_handed_on() -> None:
    arch = several()
    first, alone = (estimate(compiled(two_layers(), tree, arch)) for tree in (WHOLE, FAR))
    assert first.bytes < alone.bytes - MAPS * PIXELS * 0.9
    given = (Handover(0, (1,), half(0)), Handover(1, (0,), half(1)))
    cycles = handover_cycles(arch, given, 4)
    assert first.total > cycles >= MAPS * PIXELS / 2 / 16
    # No layer loads anything meanwhile, so the first weights of the next one may come, unless the
    # engine that loads is the one that passes.
    assert first.total - first.rest == alone.total - alone.rest
    joint = several(among="load")
    engine = joint.copy_["load"].model_copy(update={"from_": ("dram", "local")})
    joint = joint.model_copy(update={"copy_": joint.copy_ | {"load": engine}})
    first, alone = (estimate(compiled(two_layers(), tree, joint)) for tree in (WHOLE, FAR))
    passed = handover_cycles(joint, given, 4)
    assert first.total - first.rest == alone.total - alone.rest + passed


FAR = "tree net\n" + "".join(WHOLE.partition("step")[1:])


def estimate(made: CompileResult) -> Estimate:
    """Of the first step."""
    step = made.steps[0]
    assert isinstance(step, PlacedGroup)
    return step.plan.schedule.estimate


# What each of several cores keeps as a whole.


def normed(heads: int) -> onnx.ModelProto:
    """A product, of whose numbers the mean is taken away, and a product of what is left, all 64
    wide; some of that is done on `heads` of a part of the width."""
    net = Net()
    x = net.op("MatMul", net.input(1, 1, 64), net.weight(64, 64))
    x = net.op("Reshape", x, net.const([1, heads, 1, 64 // heads], "i8"))
    x = net.op("Softmax", x, axis=-1)
    x = net.op("Reshape", x, net.const([1, 1, 64], "i8"))
    x = net.op("Sub", x, net.op("ReduceMean", x, net.const([-1], "i8"), keepdims=1))
    return net.model(net.op("MatMul", x, net.weight(64, 64)))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_what_all_cores_read_is_passed_or_made_by_each(sync: str, heads: int) -> None:
    """A sum over all that a product makes bars splits; nothing of it goes through slow DRAM."""
    arch, model = several(sync=sync, latency=2000), normed(heads)
    made = compiled(model, arch=arch)
    text = print_tree(extract_tree("net", made.steps))
    # What is passed while the last weights arrive costs nothing; as little does what each makes.
    for tree, ways in (
        (text, {True}),
        (re.sub("(home t10 .*) passed", r"\1", text), {True, False}),
    ):
        made = compiled(model, tree, arch)
        kept = [kept for group in groups(made) for kept in group.residents.values()]
        assert {own.passed for own in kept} == ways
        assert all(own.everywhere for own in kept)
        assert simulate(made.program, arch).traffic["dram.write"] == 64 * 4  # the output alone
        assert print_tree(extract_tree("net", made.steps)) == tree
        right(made.program, model, arch)


def test_parts_that_are_passed_piece_by_piece_take_a_cycle_for_each() -> None:
    arch, given = several(), (Handover(0, (1,), half(0)),)
    side, apart = (
        handover_cycles(arch, given, 4, (0, SIDE * SIDE * step, SIDE * step, step))
        for step in (1, 2)
    )
    assert apart - side == MAPS * SIDE * SIDE / 2 * (1 - 4 / 16)


def test_layers_that_find_what_stays_are_priced_as_layers_alone() -> None:
    """Their weights arrive first, and nobody behind them in the group waits for the load engine."""
    net = Net()
    arch = machine(cores=2, local={"size": 1 << 20}, among="peer", latency=2000)
    x = net.op("MatMul", net.input(1, 1, 512), net.weight(512, 512))
    model = net.model(net.op("MatMul", x, net.weight(512, 512)))
    first, second = (
        layer for group in groups(compiled(model, arch=arch)) for layer in group.layers
    )
    names = first.result.name, second.result.name
    steps = "".join(f"step\n  layer {name}\n" for name in names)
    alone, kept = (
        [step.plan.schedule.estimate for step in made.steps if isinstance(step, PlacedGroup)]
        for home in ("", f"home {names[0]} local passed\n  core\n  core\n")
        for made in [compiled(model, f"tree net\n{home}{steps}", arch)]
    )
    assert all(0 < own.lead <= own.total / 2 for own in (*alone, *kept))
    assert kept[1].total < alone[1].total
    search = GroupSearch(ChooseTiles(), arch, slots=2)
    ways = (Group((first,), names[:1]), Group((first, second), names[1:]))
    late = [search.pricer(group).shares(Cores(2)).held_up for group in ways]
    assert late == [0.0, search.tiles.held_up]


# Slices along rows and channels at once.


def late_layers() -> onnx.ModelProto:
    """Four convolutions of 32 channels on 8 x 8 pixels."""
    net = Net()
    x = net.input(1, 32, 8, 8)
    for _ in range(4):
        x = net.op("Relu", conv(net, x, 32, (3, 3)))
    return net.model(x)


@pytest.mark.parametrize("sync", ["tokens", "interlock"])
def test_late_layers_stay_on_all_cores_along_rows_and_channels(sync: str) -> None:
    """Rows are enough for 8 of 16 cores, channels for 4, both together for all."""
    model, arch = late_layers(), several(cores=16, sync=sync, tokens=256)
    made = compiled(model, arch=arch, stages=Stages(partition=Unfused()))
    between = [group.residents for group in groups(made)]
    assert [len(residents) for residents in between] == [1, 2, 2, 1]
    # A core makes 8 channels of two rows, and keeps all channels of these and of those around them.
    for kept in (kept for residents in between for kept in residents.values()):
        assert kept.passed and len(kept.slices) == 16
        assert kept.slices[5][1:3] == ((0, 32), (1, 4))
    trace = simulate(made.program, arch)
    # The output alone: of each pixel each of four cores has half a burst of 64 B.
    assert trace.traffic["dram.write"] == 8 * 8 * 4 * 64
    assert trace.macs == 4 * 8 * 8 * 32 * 32 * 9  # none of them twice
    right(made.program, model, arch)
