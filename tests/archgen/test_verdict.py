"""Verification of whole programs: right ones pass, slightly wrong ones do not.

Each is judged twice: as it is, and as if the values between many operators had stayed on chip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import model
from onnx import helper, numpy_helper
from role_nets import row_of
from small_nets import NETS, SHAPES, saved

from archgen.backend import DEFAULT
from archgen.check.quantize import quantize
from archgen.check.reference import run_node, run_reference, sample_inputs
from archgen.check.verify import Arrays, CutReference
from archgen.models.load import open_model
from archgen.outcomes.points import Row
from archgen.schema import load_arch
from archgen.toolchain import STANDARD, Array, Compiled, Request, Toolchain, compile_request
from compiler.numerics.recipe import Stage, VerificationPlan
from compiler.options import Stages
from simmodel.execute import Run, run
from simmodel.program.program import Program
from simmodel.verify.happens_before import random_order

LAYERS, CHANNELS = 6, 16
DEPTHS = (1, 100)
"""Operators in a row of which only the last one's result is seen."""
MACHINES = {
    "int8": "soma-edge", "fp16": "ascend-310-like", "bf16": "tpu-v3-like", "fp32": str(DEFAULT),
}  # fmt: skip
STORED = {"int8": "int8", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
DTYPES = ("int8", "fp16", "bf16")


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


def fused(tools: Toolchain, nests: int) -> Toolchain:
    """`tools`, of whose values those alone are seen that `nests` operators together would store."""
    return replace(tools, compile=lambda request: _fused(tools.compile(request), nests))


def _fused(made: Compiled, nests: int) -> Compiled:
    assert made.recipe is not None
    recipe = replace(made.recipe, stages=tuple(_merged(made.recipe, nests)))
    seen = {name for stage in recipe.stages for name in stage.stored}
    probes = tuple(probe for probe in made.probes if probe.name in seen)
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


def judged(folder: Path, dtype: str, nests: int = 1, tools: Toolchain = STANDARD) -> Row:
    """The row of the network, when only every `nests`-th operator's values are seen."""
    row = row_of(network(folder / "net.onnx"), MACHINES[dtype], dtype, fused(tools, nests))
    assert row["status"] == "ok", row.get("reason")
    return row


# Mistakes of a program: what its constants hold. Mistakes of a compiler: another network.


def changing(change: Callable[[Program], Program]) -> Toolchain:
    """Constants are read where they lie: no load reads a copy of several."""

    def compiled(request: Request) -> Compiled:
        way = replace(request.scheduling, passes=(("split.enabled", False),))
        made = STANDARD.compile(replace(request, scheduling=way))
        return replace(made, program=change(made.program), trace=None)

    return replace(STANDARD, compile=compiled)


def with_weights(
    change: Callable[[Array], Array], kind: str, which: int | None = None
) -> Toolchain:
    """A constant of element type `kind` is changed, as a flat array: the largest, or the one at a
    place among those of more than a few elements."""

    def changed(program: Program) -> Program:
        found = [c for c in program.constants if c.data.dtype.name == kind]
        several = [c for c in found if c.data.size > 8]
        wrong = several[which] if which is not None else max(found, key=lambda c: c.data.size)
        data = change(np.asarray(wrong.data).flatten()).reshape(wrong.data.shape)
        own = (replace(c, data=data) if c is wrong else c for c in program.constants)
        return replace(program, constants=tuple(own))

    return changing(changed)


def bit_flipped(data: Array) -> Array:
    raw = data.view(np.uint8)
    raw[raw.size // 2 | (data.itemsize - 1)] ^= 0x40
    return data


def larger(data: Array) -> Array:
    return (data.astype(np.float32) * 1.02).astype(data.dtype)


def mistaking(change: Callable[[onnx.ModelProto], None]) -> Toolchain:
    """The compiler takes the network for another one."""

    def load(proto: onnx.ModelProto, name: str, stages: Stages) -> Any:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        change(copy)
        return STANDARD.load(copy, name, stages)

    return replace(STANDARD, load=load)


def change_constant(
    proto: onnx.ModelProto, dims: int, change: Callable[[Array], Array], place: int = 0
) -> None:
    """One initializer of so many dimensions, changed."""
    tensor = [t for t in proto.graph.initializer if len(t.dims) == dims][place]
    values = change(numpy_helper.to_array(tensor).copy())
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), tensor.name))


def other_weights(proto: onnx.ModelProto) -> None:
    def flipped(values: Array) -> Array:
        return bit_flipped(values.flatten()).reshape(values.shape)

    change_constant(proto, 4, flipped, LAYERS // 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nests", DEPTHS)
def test_a_right_program_passes_at_every_operator(tmp_path: Path, dtype: str, nests: int) -> None:
    row = judged(tmp_path, dtype, nests)
    assert row["verified"] is True
    assert isinstance(row["compared"], int) and row["compared"] >= LAYERS
    assert isinstance(row["operator_error"], float) and row["operator_error"] <= 1


@pytest.mark.parametrize(
    ("dtype", "nests", "tools"),
    [
        # One flipped bit of a weight.
        *((dtype, nests, with_weights(bit_flipped, STORED[dtype], which))
          for dtype in DTYPES for nests in DEPTHS for which in (0, LAYERS // 2, LAYERS - 1)),
        # A scale that is two percent off, and weights behind many operators.
        *(("int8", nests, with_weights(larger, "float32", which))
          for nests in DEPTHS for which in (0, LAYERS - 1)),
        *((dtype, DEPTHS[-1], with_weights(larger, STORED[dtype], which))
          for dtype in ("fp16", "bf16") for which in (0, LAYERS - 2)),
        # A mistake of the nests themselves.
        *((dtype, nests, mistaking(other_weights)) for dtype in DTYPES for nests in DEPTHS),
    ],
)  # fmt: skip
def test_a_mistake_is_found(tmp_path: Path, dtype: str, nests: int, tools: Toolchain) -> None:
    assert judged(tmp_path, dtype, nests, tools)["verified"] is False


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

    row = judged(tmp_path, "int8", tools=changing(lacking))
    assert row["verified"] is False
    assert str(row["note"]).startswith("the run did ") and said in str(row["note"])


def test_what_stays_on_chip_is_compared_all_the_same(tmp_path: Path) -> None:
    seen, hidden = (judged(tmp_path, "fp16", nests)["compared"] for nests in DEPTHS)
    assert seen == hidden


def test_probed_values_do_not_depend_on_the_order_of_execution(tmp_path: Path) -> None:
    source = open_model(str(network(tmp_path / "net.onnx")), 1, {})
    proto = quantize(source, None, tmp_path).proto
    arch = load_arch("cocco-simba-4c")
    made = compile_request(Request("net", STANDARD.load(proto, "net", Stages()), arch, "int8"))
    inputs = sample_inputs(proto)
    runs = [
        run(made.program, inputs, arch, run_node, made.probes, order=order)
        for order in (None, random_order(1), random_order(2))
    ]
    assert {probe.name for probe in made.probes} == set(runs[0].probed)
    for name, values in runs[0].probed.items():
        assert all(np.array_equal(other.probed[name], values) for other in runs[1:])


def test_a_reference_computes_from_what_it_is_given(tmp_path: Path) -> None:
    proto = onnx.load(network(tmp_path / "net.onnx"))
    inputs = sample_inputs(proto)
    own = run_reference(proto, inputs, ["r0", "r1"])
    values = {"r0": own["r0"], "r1": own["r1"] + 1}
    runs: list[str] = []

    def computed(key: str, make: Callable[[], Arrays]) -> Arrays:
        runs.append(key)
        return make()

    kinds = dict.fromkeys(values, "fp32")
    reference = CutReference(proto, kinds, computed)
    reference.give(inputs, {})
    assert list(reference.take(["r0", "r1", "y"])) == ["r0"]
    reference.give({}, values)
    result = reference.take(["r0", "r1", "y"])
    assert list(result) == ["r1", "y"]
    assert np.array_equal(result["r1"], own["r1"])
    assert not np.allclose(result["y"], own["y"])
    assert len(runs) == 2
    assert [value.name for value in proto.graph.output] == ["y"]
    at_once = CutReference(proto, kinds, computed)
    at_once.give(inputs, values)
    for name, found in at_once.take(["y", "r0", "r1"]).items():
        assert np.array_equal(found, result.get(name, own["r0"]))


# The verdict itself is judged: hundreds of operators, element types and shapes; for each the
# program as it is, and programs and compilers in which one thing is wrong.

WEIGHED = ("Conv", "Conv-strided", "Conv-depthwise", "ConvTranspose", "MatMul", "Gemm")
"""Networks with weights."""


@pytest.mark.parametrize("shape", SHAPES, ids=["square", "odd"])
@pytest.mark.parametrize("dtype", MACHINES)
@pytest.mark.parametrize("name", NETS)
def test_a_right_program_is_never_refused(
    tmp_path: Path, name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    if (name, dtype) == ("overflow", "fp16"):
        return  # looked at below: it is right, and fp16 leaves nothing of it
    row = row_of(saved(tmp_path, name, shape), MACHINES[dtype], dtype)
    assert row["status"] == "ok", row.get("reason")
    assert row["verified"] is True, row["note"]


def test_what_a_type_cannot_hold_is_named(tmp_path: Path) -> None:
    notes = {}
    for name in ("epsilon", "masked-1e9", "overflow"):
        row = row_of(saved(tmp_path, name, SHAPES[0]), MACHINES["fp16"], "fp16")
        notes[name] = str(row["note"])
    assert row["verified"] is None
    assert "1e-12 is 0 in fp16" in notes["epsilon"]
    assert "-1e+09 is -6.55e+04 in fp16" in notes["masked-1e9"]
    assert "where fp16 ends at 6.55e+04" in notes["overflow"]


def _largest(data: Array) -> int:
    return int(np.argmax(np.abs(data.astype(np.float64))))


def flipped(data: Array) -> Array:
    """One bit of the largest weight: the first one behind the exponent, or the third one."""
    at = _largest(data)
    raw = data[at : at + 1].view({1: np.uint8, 2: np.uint16, 4: np.uint32}[data.itemsize])
    raw ^= {"int8": 1 << 5, "float16": 1 << 9, "bfloat16": 1 << 6, "float32": 1 << 22}[
        data.dtype.name
    ]
    return data


def dropped(data: Array) -> Array:
    data[_largest(data)] = 0
    return data


def swapped(data: Array) -> Array:
    """The halves of the weights change places."""
    half = data.size // 2
    return np.concatenate([data[half:], data[:half]])


def unwritten(*given: Any) -> Run:
    """A run after which the last quarter of what was stored is as memory was before."""
    run = STANDARD.execute(*given)

    def without(values: Array) -> Array:
        flat = values.flatten()
        flat[-max(1, flat.size // 4) :] = 0
        return flat.reshape(values.shape)

    probed = {name: without(values) for name, values in run.probed.items()}
    outputs = {name: without(values) for name, values in run.outputs.items()}
    return Run(iter([probed]), lambda: outputs)


def rolled(mask: Array) -> Array:
    return np.roll(mask, 1, axis=1)


def moved(mask: Array) -> Array:
    """One visible score one per cent off, while its neighbours are masked by -1e9."""
    mask[3, 1] = 0.05
    return mask


def reordered(weights: Array) -> Array:
    weights[[0, 1]] = weights[[1, 0]]
    return weights


def constants(change: Callable[[Array], Array], dims: int = 2) -> Toolchain:
    return mistaking(lambda proto: change_constant(proto, dims, change))


def unnamed(tools: Toolchain, name: str) -> Toolchain:
    """A compiler that says nothing of a value that the network does not have."""

    def compiled(request: Request) -> Compiled:
        made = tools.compile(request)
        assert made.recipe is not None
        known = {
            tensor: [each for each in names if each[0] != name]
            for tensor, names in made.recipe.known.items()
        }
        return replace(made, recipe=replace(made.recipe, known=known))

    return replace(tools, compile=compiled)


def negated(proto: onnx.ModelProto) -> None:
    """What the first node reads, with another sign."""
    first = proto.graph.node[0]
    proto.graph.node.insert(0, helper.make_node("Neg", [first.input[0]], ["negated"]))
    proto.graph.node[1].input[0] = "negated"


FLOATS = ("fp32", "fp16", "bf16")
MISTAKES: dict[str, tuple[Sequence[str], Iterable[str], Callable[[str], Toolchain]]] = {
    **{
        f"{change.__name__} weights": (WEIGHED, MACHINES, lambda dtype, change=change:
            with_weights(change, STORED[dtype]))
        for change in (flipped, dropped, swapped)
    },
    # Of integers the factors, in fp32; of floats the weights.
    "a scale that is two percent off": (WEIGHED, MACHINES, lambda dtype:
        with_weights(larger, "float32" if dtype == "int8" else STORED[dtype])),
    "a tile that is not written": (
        [*WEIGHED, "Sigmoid", "Softmax-last", "LayerNormalization"], MACHINES,
        lambda _: replace(STANDARD, execute=unwritten)),
    "a mask in another place": (
        ["masked-1e9", "masked-lowest", "masked-inf"], FLOATS, lambda _: constants(rolled)),
    "a visible score beside masked ones": (["masked-1e9"], FLOATS, lambda _: constants(moved)),
    "rows of filters in another order": (["Conv"], MACHINES, lambda _: constants(reordered, 4)),
    "rows of weights in another order": (
        ["MatMul", "Gemm"], MACHINES, lambda _: constants(reordered)),
    "a function of the wrong sign": (
        ["Exp", "Sigmoid", "Softmax-last", "Gelu", "Elu"], FLOATS,
        lambda _: unnamed(mistaking(negated), "negated")),
}  # fmt: skip
"""By what is wrong: networks, element types, and tools that make the mistake."""


@pytest.mark.parametrize(
    ("mistake", "name", "dtype"),
    [
        (mistake, name, dtype)
        for mistake, (names, dtypes, _) in MISTAKES.items()
        for name in names
        for dtype in dtypes
    ],
)
def test_a_mistake_is_found_at_any_operator(
    tmp_path: Path, mistake: str, name: str, dtype: str
) -> None:
    path = saved(tmp_path, name, SHAPES["written" in mistake])
    row = row_of(path, MACHINES[dtype], dtype, MISTAKES[mistake][2](dtype))
    assert row["status"] == "ok", row.get("reason")
    assert row["verified"] is False
