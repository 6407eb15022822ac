"""Layers in instances over the batch: the same values, weights as often, and less through DRAM."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from blocks import conv
from machines import machine
from networks import Net, feeds_of

from archgen.check.reference import run_node
from compiler.api import CompileOptions, CompileResult, compile_model, parse_tree, prepared
from compiler.context import ScheduledNetwork
from compiler.decisions.instances import Instances
from compiler.decisions.text.extract import extract_tree, in_whole
from compiler.decisions.text.text import print_tree
from compiler.errors import UnsupportedModel
from compiler.numerics.expected_values import Recomputation
from compiler.options import Stages, stages_for
from compiler.schedule.batch import BatchAxes, ChooseInstances
from simmodel.arch.record import Arch
from simmodel.execute import run
from simmodel.verify import verify

WHOLE = ChooseInstances(enabled=False)


def blocks(batch: int, size: int = 16) -> Net:
    """A residual block on large maps and one, behind a pooling, on small ones."""
    net = Net(quantized=True)
    x = net.op("Relu", conv(net, net.input(batch, 8, size, size), 16, (3, 3)))
    x = net.op("Add", conv(net, x, 16, (3, 3)), x)
    y = net.op("MaxPool", x, kernel_shape=[4, 4], strides=[4, 4])
    net.result = net.op("Add", conv(net, y, 16, (3, 3)), y)  # type: ignore[attr-defined]
    return net


def compiled(net: Net, arch: Arch, options: CompileOptions | None = None) -> CompileResult:
    model = prepared(net.model(net.result), "net")  # type: ignore[attr-defined]
    return compile_model(model, arch, options or CompileOptions("int8"))


def outputs(made: CompileResult, arch: Arch, net: Net) -> dict[str, np.ndarray]:
    """Of a verified program, of which every stored tensor is what its operator makes of its own
    inputs."""
    verify(made.program, arch)
    assert made.recipe is not None
    feeds = feeds_of(net.model(net.result))  # type: ignore[attr-defined]
    done = run(made.program, feeds, arch, run_node, made.probes)
    for part in Recomputation(made.recipe).run(feeds, done.take):
        for check in part.stored:
            off = np.abs(check.actual.astype("f8") - check.expected.astype("f8"))
            assert (off <= (0 if check.error is None else check.error)).all(), check.name
    return done.outputs


@pytest.mark.parametrize(("cores", "early", "late"), [(1, 2, 1), (1, 4, 2), (2, 4, 4), (2, 2, 1)])
def test_a_schedule_by_hand_says_how_often_its_steps_are_done(
    cores: int, early: int, late: int
) -> None:
    arch, net = machine(cores=cores, local={"size": 65536, "banks": 4}), blocks(4)
    plain = compiled(net, arch)
    assert plain.search is not None
    tree = extract_tree("net", plain.search.parts and plain.steps)
    steps = []
    for step in tree.steps:
        for work in step.layers:  # type: ignore[union-attr]
            small = plain.search.graph.tensors[work.nests[-1]].shape[-1] <= 4
            layer = f"layer {', '.join(map(repr, work.nests))}".replace("'", '"')
            steps.append(f"step\n instances {late if small else early}\n {layer}\n")
    given = parse_tree("tree net\n" + "".join(steps))
    assert parse_tree(print_tree(given)) == given
    made = compiled(net, arch, CompileOptions("int8", tree=given))
    assert len(made.steps) == sum(step.instances for step in given.steps)  # type: ignore[union-attr]
    expected = outputs(plain, arch, net)
    for name, values in outputs(made, arch, net).items():
        np.testing.assert_array_equal(values, expected[name])
    shown, first = in_whole(extract_tree("net", made.steps))
    assert len(first) == len(steps)
    assert [s.instances for s in shown.steps] == [s.instances for s in given.steps]  # type: ignore[union-attr]


@pytest.mark.parametrize("batch", [8, 6, 7])
def test_layers_are_done_for_as_many_images_as_have_room(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maps of two images have no room in half of local memory, and small ones of all have."""
    monkeypatch.setattr(ScheduledNetwork, "cycles", math.inf)  # of the whole batch
    arch, net = machine(local={"size": 65536, "banks": 4}), blocks(batch, 32)
    stages = stages_for(0)
    whole = compiled(net, arch, CompileOptions("int8", stages=replace(stages, instances=WHOLE)))
    made = compiled(net, arch, CompileOptions("int8", stages=stages))
    assert made.search is not None and made.search.instances is not None
    counts = [*made.search.instances.counts.values()]
    assert counts[0] == batch and counts == sorted(counts, reverse=True)
    assert counts[-1] < batch or batch == 7
    expected = outputs(whole, arch, net)
    for name, values in outputs(made, arch, net).items():
        np.testing.assert_array_equal(values, expected[name])
    undivided = made.search.undivided
    assert undivided.parts == whole.search.parts  # type: ignore[union-attr]


def test_no_instances_where_images_meet_or_the_host_computes() -> None:
    arch = machine()

    def axes(net: Net) -> BatchAxes | None:
        search = compiled(net, arch).search
        assert search is not None
        return BatchAxes.of(search.graph, search.parts)

    found = axes(blocks(6))
    assert found is not None and found.size == 6
    assert axes(blocks(1)) is None
    mean = blocks(4)
    mean.result = mean.op("ReduceMean", mean.result, axes=[0], keepdims=1)  # type: ignore[attr-defined]
    assert axes(mean) is None
    hosted = blocks(4)
    hosted.result = hosted.op("Det", hosted.result)  # type: ignore[attr-defined]
    assert axes(hosted) is None


def test_instances_that_a_batch_has_not_are_refused() -> None:
    net, arch = blocks(4), machine()
    tree = extract_tree("net", compiled(net, arch).steps)
    steps = tuple(replace(step, instances=3, cores=(), loops=()) for step in tree.steps)  # type: ignore[arg-type]
    options = CompileOptions("int8", Stages(), tree=replace(tree, steps=steps, homes=()))
    with pytest.raises(UnsupportedModel, match="3 instances of a batch that can be cut into 4"):
        compiled(net, arch, options)


def test_tensors_of_instances_are_known_before_their_network_is_made() -> None:
    search = compiled(blocks(4), machine(), CompileOptions("int8", stages=stages_for(0))).search
    assert search is not None
    whole = search.undivided
    early = whole.parts[0].nests[-1].tensor  # type: ignore[union-attr]
    found = Instances.of(whole.graph, whole.parts, {early: 4})
    names = set(found.sources)
    assert f"{early}@3of4" in names and found.sources[f"{early}@3of4"] == (early, 3, 4)
    assert names <= found.network[0].tensors.keys()
