"""What a program stored is what its nests make of the values that it had, on every machine."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import onnx
import pytest
from machines import NAMED, crossed, machine
from networks import STEP, Net, feeds_of, model
from onnx import helper
from test_meaning import NETWORKS, QUANTIZED

from archgen.check.reference import run_node
from archgen.check.verify import deviation
from compiler.api import CompileOptions, compile_model
from compiler.numerics.expected_values import ExpectedValues, Recomputation
from compiler.numerics.recipe import Stage, VerificationPlan
from compiler.options import Stages
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import KeepTensors
from simmodel.arch.record import Arch
from simmodel.execute import Run, run

HALF_ONLY = machine(
    name="half", types=("fp16", "int8"), vector={"types": ("fp16", "int8", "int32")}
)
"""Its vector engine rounds every value on the way to fp16."""


APART = Stages(partition=Unfused(), keep=KeepTensors(enabled=False))
"""Every layer stores what it makes."""


def made(
    name: str, arch: Arch, dtype: str, stages: Stages = APART
) -> tuple[VerificationPlan, dict[str, Any], dict[str, Any]]:
    """Recipe, inputs and stored tensors of a network of `test_meaning` as executed by `arch`."""
    net = Net(quantized=dtype == "int8")
    recipe, feeds, done = ran(net.model(NETWORKS[name](net)), arch, dtype, stages)
    return recipe, feeds, done.probed


def ran(
    model: onnx.ModelProto, arch: Arch, dtype: str, stages: Stages | None = None
) -> tuple[VerificationPlan, dict[str, Any], Run]:
    """Recipe, inputs and what was executed of a network."""
    options = CompileOptions(dtype=dtype, stages=stages or Stages())
    compiled, feeds = compile_model(model, arch, options), feeds_of(model)
    assert compiled.recipe is not None
    done = run(compiled.program, feeds, arch, run_node, probes=compiled.probes)
    return compiled.recipe, feeds, done


def expected_values(
    recipe: VerificationPlan, feeds: dict[str, Any], stored: dict[str, Any]
) -> ExpectedValues:
    """All parts of a recomputation."""
    whole = ExpectedValues()
    for part in Recomputation(recipe).run(feeds, stored.__getitem__):
        for held in fields(part):
            ours, more = getattr(whole, held.name), getattr(part, held.name)
            if isinstance(ours, list):
                ours.extend(more)
            else:
                assert ours.keys().isdisjoint(more)
                ours.update(more)
    return whole


def again(name: str, arch: Arch, dtype: str) -> ExpectedValues:
    return expected_values(*made(name, arch, dtype, Stages()))


@pytest.mark.parametrize(("name", "arch"), crossed(QUANTIZED))
def test_integers_are_equal(name: str, arch: Arch) -> None:
    result = again(name, arch, "int8")
    assert result.stored
    for pair in result.stored:
        if pair.expected.dtype.kind in "biu":
            np.testing.assert_array_equal(pair.actual, pair.expected, err_msg=pair.name)
        assert deviation(pair).excess <= 1


@pytest.mark.parametrize("arch", [*NAMED.values(), HALF_ONLY], ids=[*NAMED, "half"])
@pytest.mark.parametrize("name", ["attention", "layer-norm", "branches", "residual", "conv"])
def test_floats_are_within_what_the_order_of_additions_changes(name: str, arch: Arch) -> None:
    result = again(name, arch, "fp16")
    assert [str(deviation(pair)) for pair in result.stored if deviation(pair).excess > 1] == []


def test_a_mistake_is_found_where_it_is_and_not_behind_it() -> None:
    recipe, feeds, stored = made("attention", NAMED["plain"], "fp16")
    name = next(stage.stored[0] for stage in recipe.stages if stage.nests)
    tensors = recipe.graph.tensors
    views = {n for n, t in tensors.items() if t.storage.buffer == tensors[name].storage.buffer}
    readers = {
        stage.stored[0]
        for stage in recipe.stages
        if any(access.tensor in views for nest in stage.nests for access in nest.reads)
    }
    stored[name] = stored[name] * np.float16(1.05)
    result = expected_values(recipe, feeds, stored)
    assert {pair.name for pair in result.stored if deviation(pair).excess > 1} == {name, *readers}
    assert len(result.stored) > 1 + len(readers)


def test_parts_of_a_concatenation_give_the_whole() -> None:
    recipe, feeds, stored = made("branches", NAMED["plain"], "fp32")
    result = expected_values(recipe, feeds, stored)
    joined = next(name for name, array in result.observed.items() if array.shape[1] == 17)
    np.testing.assert_array_equal(result.observed[joined][:, 12:], feeds["x0"])
    np.testing.assert_allclose(result.made[joined].values, result.observed[joined], 1e-5, 1e-6)


def test_a_part_of_a_concatenation_reads_another_as_it_was_stored() -> None:
    """Sums in one buffer, each of the one before: every node starts from what the program had."""
    net = Net(quantized=False)
    x = net.input(1, 8, 4, 4)
    parts = [net.op("Conv", x, net.weight(8, 8, 1, 1))]
    for _ in range(2):
        y = net.op("Sigmoid", net.op("Conv", parts[-1], net.weight(8, 8, 1, 1)))
        parts.append(net.op("Add", parts[-1], y))
    model = net.model(net.op("Conv", net.op("Concat", *parts, axis=1), net.weight(4, 24, 1, 1)))
    recipe, feeds, done = ran(model, NAMED["plain"], "fp16")
    assert len({recipe.graph.tensors[part].storage.buffer for part in parts}) == 1
    result = expected_values(recipe, feeds, done.probed)
    for node in model.graph.node:
        if node.op_type == "Add":
            left, right = (result.observed[name].astype(np.float32) for name in node.input)
            np.testing.assert_array_equal(result.made[node.output[0]].values, left + right)


def test_what_is_stored_on_the_way_is_where_later_operators_start() -> None:
    recipe, feeds, stored = made("attention", NAMED["wide"], "fp16")
    nests = tuple(nest for stage in recipe.stages for nest in stage.nests)
    names = tuple(name for stage in recipe.stages for name in stage.stored)
    kinds = {name: kind for stage in recipe.stages for name, kind in stage.kinds.items()}
    whole = expected_values(replace(recipe, stages=(Stage(nests, names, kinds),)), feeds, stored)
    parts = expected_values(recipe, feeds, stored)
    for one, other in zip(whole.stored, parts.stored, strict=True):
        np.testing.assert_array_equal(one.expected, other.expected, err_msg=one.name)
        assert (one.error is None) is (other.error is None)


def test_sums_of_floats_read_by_another_name_are_still_inexact() -> None:
    """In fp32 no rounding to a shorter type hides what the order of additions changes."""
    recipe, feeds, stored = made("attention", NAMED["plain"], "fp32")
    nests = tuple(nest for stage in recipe.stages for nest in stage.nests)
    last = recipe.stages[-1].stored
    kinds = {name: kind for stage in recipe.stages for name, kind in stage.kinds.items()}
    whole = replace(recipe, stages=(Stage(nests, last, kinds),))
    (equal,) = expected_values(whole, feeds, stored).stored
    assert equal.error is None
    (pair,) = expected_values(whole, feeds, nudged(stored)).stored
    assert pair.error is not None
    assert (pair.error > 0).all()
    assert pair.error.max() < 2e-3
    assert deviation(pair).excess <= 1


def nudged(stored: dict[str, Any]) -> dict[str, Any]:
    """Floats of which the first of each tensor is the next one: all of them need bounds."""
    found = {name: values.copy() for name, values in stored.items()}
    for values in found.values():
        values.flat[0] = np.nextafter(values.flat[0], values.dtype.type(np.inf))
    return found


@pytest.mark.parametrize("name", ["attention", "layer-norm", "branches", "residual"])
def test_bounds_are_the_same_whenever_they_are_derived(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, feeds, stored = made(name, NAMED["plain"], "fp16", Stages())
    late = expected_values(recipe, feeds, nudged(stored)).stored
    assert any(pair.error is not None for pair in late)
    monkeypatch.setattr("compiler.numerics.bounded_tensors._HELD", 0)
    for one, other in zip(late, expected_values(recipe, feeds, nudged(stored)).stored, strict=True):
        np.testing.assert_array_equal(one.error, other.error)


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("conv-3d", NAMED["clustered"]), ("attention", NAMED["fine"]),
        ("residual", NAMED["bare"]), ("residual", NAMED["clustered"]),
    ],
    ids=["3d", "attention", "residual", "clusters"],
)  # fmt: skip
def test_what_stays_on_chip_between_groups_is_seen_there(name: str, arch: Arch) -> None:
    recipe, feeds, seen = made(name, arch, "fp32", Stages(partition=Unfused()))
    kept = [name for stage in recipe.stages for name in stage.kept]
    assert kept
    assert wrong(recipe, feeds, seen) == []
    for each in kept:
        off = seen | {each: seen[each] * np.float32(1.01)}
        assert each in wrong(recipe, feeds, off)


def test_what_clusters_have_in_slices_is_seen_there() -> None:
    """A batch of 4 on 2 clusters, each of which has two images in its own shared memory."""
    net = Net()
    x = net.input(4, 8, 8, 8)
    for _ in range(3):
        x = net.op("Conv", x, net.weight(8, 8, 1, 1))
    arch = machine(clusters=2, cores=2, shared={"level": "cluster"})
    stages = Stages(partition=Unfused(), keep=KeepTensors(enabled=False))
    recipe, feeds, done = ran(net.model(x), arch, "fp32", stages)
    first, second, _ = (stage.stored + stage.kept for stage in recipe.stages)
    assert [stage.kept for stage in recipe.stages] == [first, second, ()]
    off = done.probed[first[0]].copy()
    off[3, 0, 0, 0] += 1
    seen = done.probed | {first[0]: off}
    assert wrong(recipe, feeds, done.probed) == []
    assert wrong(recipe, feeds, seen) == [*first, *second]


def test_cores_that_have_the_same_elements_may_differ_by_a_rounding() -> None:
    """Each core's own are looked at; readers may have started from any of them."""
    stages = Stages(partition=Unfused())
    recipe, feeds, seen = made("conv-transposed", NAMED["gemms"], "fp16", stages)
    copies = [copy for stage in recipe.stages for copy in stage.copies.get("t2", {})]
    assert copies == ["t2 of core 0", "t2 of core 1"]
    assert wrong(recipe, feeds, seen) == []
    for copy in copies:
        assert copy in wrong(recipe, feeds, seen | {copy: seen[copy] * np.float16(1.05)})
    near = seen["t2"].copy()
    near[0, 0, 2, 0] += 0.25
    alike = dict(zip(copies, (near[:, :, :4], near[:, :, 2:]), strict=True))
    own = {"t2", *copies}
    assert not set(wrong(recipe, feeds, seen | {"t2": near})) - own
    assert set(wrong(recipe, feeds, seen | {"t2": near} | alike)) - own


def wrong(recipe: VerificationPlan, feeds: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """What of the program's own values is not what its steps make."""
    result = expected_values(recipe, feeds, seen)
    return [pair.name for pair in result.stored if deviation(pair).excess > 1]


def means_twice() -> tuple[VerificationPlan, dict[str, Any], dict[str, Any], str, str]:
    """Means, many of them at a tie, that stay on chip in int8 for a sum of the same group, and half
    of which are an output as floats: recipe, inputs, stored tensors, and names of the outputs. All
    that is stored of what lies at a tie is rounded the other way than steps do it."""
    net = Net(quantized=True)
    window = {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0], "count_include_pad": 0}
    x = net.input(1, 8, 2, 6)
    mean = net.op("AveragePool", x, **window)
    net.quantized = False
    half = net.op("Slice", mean, *(net.const([value], "i8") for value in (4, 8, 1)))
    net.quantized = True
    sums = net.op("CumSum", half, net.const(2, "i8"))
    recipe, feeds, done = ran(net.model(half, sums), NAMED["plain"], "int8")
    padded = np.full((4, 3, 7), np.nan)
    padded[:, 1:, 1:] = np.rint(feeds["x0"][0, 4:] / STEP)
    exact = np.nanmean(np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (1, 2)), (3, 4))
    nearest = done.probed[half]
    ties = exact % 1 == 0.5
    assert ties.sum() > 5
    other = np.where(ties, 2 * STEP * exact - nearest, nearest).astype(np.float32)
    stored = {**done.probed, half: other, sums: other.cumsum(2, np.float32)}
    names = tuple(name for stage in recipe.stages for name in stage.stored)
    nests = tuple(nest for stage in recipe.stages for nest in stage.nests)
    return replace(recipe, stages=(Stage(nests, names),)), feeds, stored, half, sums


def test_what_is_not_stored_is_what_a_stored_copy_says() -> None:
    recipe, feeds, stored, half, sums = means_twice()
    result = expected_values(recipe, feeds, stored)
    assert [str(deviation(pair)) for pair in result.stored if deviation(pair).excess > 1] == []
    np.testing.assert_array_equal(result.observed[half], stored[half])
    np.testing.assert_array_equal(result.made[sums].values, stored[half].cumsum(2))


def test_a_stored_copy_that_no_rounding_explains_is_found() -> None:
    recipe, feeds, stored, half, _ = means_twice()
    stored[half][0, 1, 1, 1] += 2 * STEP
    result = expected_values(recipe, feeds, stored)
    assert [pair.name for pair in result.stored if deviation(pair).excess > 1] == [half]


def names_of_one_state(kind: str) -> tuple[ExpectedValues, dict[str, Any]]:
    """A recurrent layer of one step, whose result and last state are the same bytes, and a part of
    it, which is all of it and another node's."""
    random = np.random.default_rng(0)
    shapes = {"w": (1, 12, 4), "r": (1, 12, 4)}
    arrays = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    arrays |= {"begin": np.array([0]), "end": np.array([9])}
    results = {"z": [1, 1, 1, 4], "last": [1, 1, 4], "part": [1, 1, 1, 4]}
    nodes = [
        helper.make_node("GRU", ["x", "w", "r"], ["y", "last"], hidden_size=4),
        helper.make_node("Slice", ["y", "begin", "end"], ["part"]),
        helper.make_node("Neg", ["y"], ["z"]),
    ]
    proto = model(nodes, {"x": [1, 1, 4]}, results, arrays, opset=22)
    recipe, feeds, done = ran(proto, machine(types=(kind,)), kind)
    return expected_values(recipe, feeds, done.probed), done.outputs


@pytest.mark.parametrize("kind", ["fp32", "fp16"])
def test_all_names_that_a_node_gives_to_the_same_bytes_are_as_unsure_as_they(kind: str) -> None:
    found, _ = names_of_one_state(kind)
    for name in ("y", "last"):
        error = found.made[name].error
        assert error is not None
        assert error.max() > 0
    np.testing.assert_array_equal(found.made["y"].values[0], found.made["last"].values)


@pytest.mark.parametrize("kind", ["fp32", "fp16"])
def test_what_another_node_hands_on_is_exact(kind: str) -> None:
    found, outputs = names_of_one_state(kind)
    part = found.made.get("part")
    if part is not None:  # else nobody says that it could be off
        assert part.error is None
        np.testing.assert_array_equal(part.values, outputs["part"])
    np.testing.assert_array_equal(found.observed["y"], outputs["part"])


def test_a_view_of_what_others_wrote_in_the_own_buffer_is_read_as_they_were_stored() -> None:
    """A concatenation twice in another: its parts lie in the first half, of which the second is a
    copy, and are values of other nodes than the one that copies."""
    net = Net(quantized=False)
    x = net.input(1, 8, 4, 4)
    parts = [net.op("Conv", x, net.weight(o, 8, 1, 1)) for o in (3, 5)]
    inner = net.op("Concat", *parts, axis=1)
    model = net.model(net.op("Concat", inner, inner, axis=2))
    recipe, feeds, done = ran(model, NAMED["plain"], "fp16")
    result = expected_values(recipe, feeds, done.probed)
    whole = np.concatenate([result.observed[part] for part in parts], axis=1)
    (output,) = done.outputs
    np.testing.assert_array_equal(result.made[output].values, np.concatenate([whole] * 2, axis=2))


def test_nothing_is_held_longer_than_somebody_reads_it() -> None:
    """Convolutions one behind the other: whatever their number, two values are there at once."""
    net = Net(quantized=False)
    y = net.input(1, 8, 4, 4)
    for _ in range(6):
        y = net.op("Conv", y, net.weight(8, 8, 1, 1))
    recipe, feeds, done = ran(net.model(y), NAMED["plain"], "fp16", APART)
    again = Recomputation(recipe)
    graph = recipe.graph
    made = [nest.tensor for stage in recipe.stages for nest in stage.nests]
    for part in again.run(feeds, done.take):
        if part.made:
            now = made.index(graph.outputs[0] if y in part.made else next(iter(part.made)))
            for name in made[: max(0, now)]:
                for values in (again.machine, again.model):
                    with pytest.raises(KeyError):
                        values.tensors[name]
