"""Verification of whole programs: right ones pass, slightly wrong ones do not.

Each is judged twice: as it is, and as if the values between many operators had stayed on chip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from role_nets import model

from archgen.check.quantize import quantize
from archgen.check.reference import run_node, run_reference, sample_inputs
from archgen.check.verify import OWN, cut, run_cut
from archgen.models.load import open_model
from archgen.outcomes.points import Point, Row
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, Array, Compiled, Request, compile_request
from compiler.numerics.expected_values import Stage, VerificationPlan
from compiler.options import Stages
from simmodel.execute import run
from simmodel.program.program import Constant, Program
from simmodel.verify.happens_before import random_order

LAYERS, CHANNELS = 6, 16
DEPTHS = (1, 100)
"""Operators in a row of which only the last one's result is seen."""
ARCHS = {"int8": "soma-edge", "fp16": "ascend-310-like", "bf16": "tpu-v3-like"}


pytestmark = pytest.mark.usefixtures("own_cache")


def network(path: Path) -> Path:
    """A file with a chain of convolutions, every other one in a residual block."""
    random = np.random.default_rng(0)
    weights, nodes, last = {}, [], "x"
    for i in range(LAYERS):
        shape = (CHANNELS, CHANNELS, 3, 3)
        values = random.standard_normal(shape) / np.sqrt(CHANNELS * 9)
        weights[f"w{i}"] = values.astype(np.float32)
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1] * 4))
        ahead = f"c{i}"
        if i % 2:
            nodes.append(helper.make_node("Add", [f"c{i}", f"r{i - 1}"], [f"a{i}"]))
            ahead = f"a{i}"
        last = f"r{i}" if i < LAYERS - 1 else "y"
        nodes.append(helper.make_node("Relu", [ahead], [last]))
    ends = [1, CHANNELS, 12, 12]
    onnx.save(model(nodes, {"x": ends}, {"y": ends}, weights), path)
    return path


def fused(made: Compiled, nests: int) -> Compiled:
    """`made`, of whose values only those are seen that a group of `nests` operators would store."""
    assert made.recipe is not None
    recipe = replace(made.recipe, stages=tuple(_merged(made.recipe, nests)))
    seen = {name for stage in recipe.stages for name in stage.stored}
    probes = tuple(probe for probe in made.probes if probe.port.name in seen)
    return replace(made, recipe=recipe, probes=probes)


def _merged(recipe: VerificationPlan, nests: int) -> Iterator[Stage]:
    run: list[Stage] = []
    for number, stage in enumerate(recipe.stages):
        ahead = recipe.stages[number + 1 :]
        if not stage.nests:
            yield stage
            continue
        run.append(stage)
        full = sum(len(each.nests) for each in run) >= nests
        if full or not ahead or not ahead[0].nests:
            yield _as_one(recipe, run, ahead)
            run = []


def _as_one(recipe: VerificationPlan, run: list[Stage], ahead: Iterable[Stage]) -> Stage:
    tensors = recipe.graph.tensors
    later = {access.tensor for stage in ahead for nest in stage.nests for access in nest.reads}
    buffers = {tensors[name].storage.buffer for name in (*later, *recipe.graph.outputs)}
    return Stage(
        tuple(nest for stage in run for nest in stage.nests),
        tuple(n for stage in run for n in stage.stored if tensors[n].storage.buffer in buffers),
        {name: kind for stage in run for name, kind in stage.kinds.items()},
        {name: kind for stage in run for name, kind in stage.sums.items()},
    )


def row_of(
    folder: Path,
    dtype: str,
    nests: int = 1,
    change: Callable[[Program], Program] = lambda program: program,
    load: Callable[[onnx.ModelProto, str], Any] = STANDARD.load,
) -> Row:
    """The row of the network on a machine whose programs are changed after compiling, when only
    every `nests`-th operator's values are seen."""

    def changed(request: Request) -> Compiled:
        made = fused(compile_request(request), nests)
        return replace(made, program=change(made.program))

    bench = Workbench(replace(STANDARD, compile=changed, load=load, tries=False))
    path = str(network(folder / "net.onnx"))
    point = Point("key", load_arch(ARCHS[dtype]), path, 1, dtype, scheduling=Scheduling(effort=0))
    return bench.run(point).row


def with_constants(program: Program, change: Callable[[Array], Array], kind: str) -> list[Program]:
    """For each constant of element type `kind`: the program with that one changed."""

    def other(constant: Constant) -> Program:
        data = change(constant.data.copy())
        constants = tuple(replace(c, data=data) if c is constant else c for c in program.constants)
        return replace(program, constants=constants)

    return [other(c) for c in program.constants if c.data.dtype.name == kind and c.data.size > 8]


def bit_flipped(data: Array) -> Array:
    raw = data.view(np.uint8)
    raw[raw.size // 2 | (data.itemsize - 1)] ^= 0x40
    return data


def two_percent_more(data: Array) -> Array:
    return (data * 1.02).astype(data.dtype)


def wrong_weights(proto: onnx.ModelProto, name: str, stages: Stages) -> Any:
    """What the compiler makes of the model when it takes one weight for another."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    tensor = [t for t in copy.graph.initializer if len(t.dims) == 4][LAYERS // 2]
    values = numpy_helper.to_array(tensor)
    flipped = bit_flipped(values.flatten()).reshape(values.shape)
    tensor.CopyFrom(numpy_helper.from_array(flipped, tensor.name))
    return STANDARD.load(copy, name, stages)


@pytest.mark.parametrize("dtype", list(ARCHS))
@pytest.mark.parametrize("nests", DEPTHS)
def test_a_right_program_passes_at_every_operator(tmp_path: Path, dtype: str, nests: int) -> None:
    row = row_of(tmp_path, dtype, nests)
    assert row["verified"] is True
    assert isinstance(row["compared"], int)
    assert row["compared"] >= LAYERS
    assert isinstance(row["operator_error"], float)
    assert row["operator_error"] <= 1


@pytest.mark.parametrize("dtype", list(ARCHS))
@pytest.mark.parametrize("nests", DEPTHS)
@pytest.mark.parametrize("which", [0, LAYERS // 2, LAYERS - 1])
def test_one_flipped_bit_of_a_weight_is_found(
    tmp_path: Path, dtype: str, nests: int, which: int
) -> None:
    kind = {"int8": "int8", "fp16": "float16", "bf16": "bfloat16"}[dtype]
    row = row_of(tmp_path, dtype, nests, lambda p: with_constants(p, bit_flipped, kind)[which])
    assert row["status"] == "ok"
    assert row["verified"] is False


@pytest.mark.parametrize("nests", DEPTHS)
@pytest.mark.parametrize("which", [0, LAYERS - 1])
def test_a_scale_that_is_two_percent_off_is_found(tmp_path: Path, nests: int, which: int) -> None:
    change = partial(with_constants, change=two_percent_more, kind="float32")
    row = row_of(tmp_path, "int8", nests, lambda p: change(p)[which])
    assert row["status"] == "ok"
    assert row["verified"] is False


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("which", [0, LAYERS - 2])
def test_weights_that_are_two_percent_off_are_found_behind_many_operators(
    tmp_path: Path, dtype: str, which: int
) -> None:
    kind = {"fp16": "float16", "bf16": "bfloat16"}[dtype]
    change = partial(with_constants, change=two_percent_more, kind=kind)
    row = row_of(tmp_path, dtype, DEPTHS[-1], lambda p: change(p)[which])
    assert row["verified"] is False


@pytest.mark.parametrize("dtype", list(ARCHS))
@pytest.mark.parametrize("nests", DEPTHS)
def test_a_mistake_of_the_nests_themselves_is_found(tmp_path: Path, dtype: str, nests: int) -> None:
    assert row_of(tmp_path, dtype, nests, load=wrong_weights)["verified"] is False


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"written": 1 << 30}, "bytes of writes to DRAM, its outputs take at least 1073741824"),
        ({"macs": 1 << 40}, "multiply-accumulates, its outputs take at least"),
    ],
)
def test_a_run_that_left_something_out_is_wrong_whatever_was_compared(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    def lacking(program: Program) -> Program:
        assert program.demand is not None
        return replace(program, demand=replace(program.demand, **change))

    row = row_of(tmp_path, "int8", change=lacking)
    assert row["status"] == "ok" and row["verified"] is False
    assert str(row["note"]).startswith("the run did ") and said in str(row["note"])


def test_what_stays_on_chip_is_compared_all_the_same(tmp_path: Path) -> None:
    seen, hidden = (row_of(tmp_path, "fp16", nests)["compared"] for nests in DEPTHS)
    assert seen == hidden


def test_probed_values_do_not_depend_on_the_order_of_execution(tmp_path: Path) -> None:
    source = open_model(str(network(tmp_path / "net.onnx")), 1, {})
    proto = quantize(source, None, tmp_path).proto
    arch = load_arch("cocco-simba-4c")
    made = compile_request(Request("net", STANDARD.load(proto, "net", Stages()), arch, "int8"))
    inputs = sample_inputs(proto)
    runs = [
        run(made.program, inputs, arch, run_node, order, made.probes)
        for order in (None, random_order(1), random_order(2))
    ]
    assert {probe.port.name for probe in made.probes} == set(runs[0].probed)
    for name, values in runs[0].probed.items():
        assert all(np.array_equal(other.probed[name], values) for other in runs[1:])


def test_a_cut_model_computes_from_what_it_is_fed(tmp_path: Path) -> None:
    proto = onnx.load(network(tmp_path / "net.onnx"))
    inputs = sample_inputs(proto)
    own = run_reference(proto, inputs, ["r0", "r1"])
    values = {"r0": own["r0"], "r1": own["r1"] + 1}
    short = cut(proto, values)
    assert {value.name for value in short.graph.input} == {"x", "r0" + OWN, "r1" + OWN}
    result = run_cut(short, proto, inputs, values)
    assert np.array_equal(result["r1"], own["r1"])
    assert not np.allclose(result["y"], own["y"])
    assert [value.name for value in proto.graph.output] == ["y"]
