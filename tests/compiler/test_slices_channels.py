"""What stays on chip where cores split channels: all of it on every core, or each its channels.

A convolution that sums over channels reads all of them: each core hands what it has made to all
others. An element-wise or depthwise layer reads the channels that it makes: nothing is handed on.
Two cores, 16 channels of 16 x 16 pixels, of which the array makes 8 at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import onnx
import pytest
from blocks import conv
from machines import machine
from networks import Net
from test_slices import compiled, groups, right, without

from compiler.context import CompileResult
from compiler.cost.multicast import Handover, handover_cycles, handovers
from compiler.decisions.text.extract import extract_tree
from compiler.decisions.text.text import print_tree
from compiler.geometry.cuts import split_channels, splits
from compiler.memory.on_chip import PlacedGroup
from compiler.schedule.residency.activations import slicings
from compiler.schedule.residency.table import Slicing
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Estimate
from compiler.tensor_ir.bounds import Box
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Item, Loop
from simmodel.machine.run import simulate
from simmodel.verify import findings

CHANNELS, SIDE = 16, 16
FIRST, SECOND = "t4", "t8"
PIXELS = SIDE * SIDE * 4
ALL = ((0, 1), (0, 16), (0, 16), (0, 16))


def several(cores: int = 2, among: str = "peer", **changed: object) -> Arch:
    return machine(name="several", cores=cores, local={"size": 1 << 18}, among=among, **changed)


def network(second: str = "conv", channels: int = CHANNELS) -> onnx.ModelProto:
    """Two layers in a row; the second one reads all channels of the first, or its own."""
    net = Net()
    x = net.input(1, CHANNELS, SIDE, SIDE)
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
    model, arch = network(), several(sync=sync, among=among)
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
    assert trace.macs == 2 * SIDE * SIDE * CHANNELS * CHANNELS * 9  # none of them twice
    right(made.program, model, arch)
    text = print_tree(extract_tree("net", made.steps))
    assert " passed\n  core\n  core\n" in text and "  core o = 0:8\n  core o = 8:16\n" in text
    assert print_tree(extract_tree("net", compiled(model, text, arch).steps)) == text


def handed(made: CompileResult) -> list[Copy]:
    """Copies to what stays on other cores."""
    first, _ = groups(made)
    items = (item for core in made.program.cores for item in flat(core))
    copies = [item for item in items if isinstance(item, Copy) and item.dst.cores]
    return [copy for copy in copies if copy.dst.address.base >= first.residents[FIRST].address]


def flat(items: tuple[Item, ...]) -> Iterator[Item]:
    for item in items:
        yield from flat(item.body) if isinstance(item, Loop) else (item,)


@pytest.mark.parametrize("gone", ["copies", "waits"])
def test_channels_that_are_not_handed_on_or_not_waited_for_are_caught(gone: str) -> None:
    made = compiled(network(), WHOLE, several())
    cores = tuple(tuple(without(stream, gone)) for stream in made.program.cores)
    assert findings(replace(made.program, cores=cores), several())


@pytest.mark.parametrize("arch", [several(), several(among=""), several(sync="interlock")])
def test_a_depthwise_layer_reads_the_channels_that_its_core_made(arch: Arch) -> None:
    model = network("depthwise")
    made = compiled(model, halves("o = 0:8", "o = 8:16"), arch)
    first, _ = groups(made)
    assert first.residents[FIRST].slices == (half(0), half(1))
    assert not handovers(first, (half(0), half(1)), FIRST)
    assert not handed(made)
    right(made.program, model, arch)


def test_ways_to_keep_channels() -> None:
    """Slices for who reads its own channels; all on all cores for who sums over them."""

    def by_channels(second: str, *, passing: bool) -> list[Slicing]:
        _, reader = groups(compiled(network(second), f"tree net\n{APART}", several()))
        ways = slicings(FIRST, [reader], several(), 2, passing=passing)
        return [way for way in ways if all(box[2] == (0, 16) for box in way.slices)]

    own, everything = Slicing((half(0), half(1))), Slicing((ALL, ALL), passed=True)
    assert by_channels("depthwise", passing=False) == [own]
    assert by_channels("depthwise", passing=True) == [own, everything]
    assert by_channels("conv", passing=True) == [everything]
    assert by_channels("conv", passing=False) == []


APART = f"step\n  layer {FIRST}\nstep\n  layer {SECOND}\n"


def test_cores_split_channels_of_one_product_and_what_follows_it() -> None:
    arch = several()

    def together(model: onnx.ModelProto) -> Group:
        tree = f"tree net\nstep\n  layer {FIRST}\n  layer {SECOND}\n"
        (group,) = groups(compiled(model, tree, arch))
        return group

    followed_by_own = together(network("depthwise"))
    assert split_channels(followed_by_own) == 1
    assert (half(0), half(1)) in splits(followed_by_own, arch, 2)
    # Both cores would make all that the second product sums over.
    both = together(network())
    assert split_channels(both) is None
    assert (half(0), half(1)) not in splits(both, arch, 2)


def test_estimates_count_what_is_handed_on() -> None:
    arch = several()
    first, alone = (estimate(compiled(network(), tree, arch)) for tree in (WHOLE, FAR))
    assert first.bytes < alone.bytes - CHANNELS * PIXELS * 0.9
    given = (Handover(0, (1,), half(0)), Handover(1, (0,), half(1)))
    assert first.total > handover_cycles(arch, given, 4) >= CHANNELS * PIXELS / 2 / 16


FAR = "tree net\n" + "".join(WHOLE.partition("step")[1:])


def estimate(made: CompileResult) -> Estimate:
    """Of the first step."""
    step = made.steps[0]
    assert isinstance(step, PlacedGroup)
    return step.plan.schedule.estimate
