"""The verdict itself is judged: right programs are never refused, and mistakes are found.

Hundreds of operators, element types and shapes; for each the program as it is, and programs and
compilers in which one thing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from small_nets import NETS, SHAPES, saved

from archgen.backend.base import DEFAULT
from archgen.outcomes.points import Point, Row
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, Array, Compiled, Request, Toolchain
from compiler.options import Stages
from simmodel.arch.record import Arch
from simmodel.execute import Run
from simmodel.program.program import Constant, Program

pytestmark = pytest.mark.usefixtures("own_cache")

MACHINES = {
    "fp32": str(DEFAULT),
    "fp16": "ascend-310-like",
    "bf16": "tpu-v3-like",
    "int8": "soma-edge",
}
STORED = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}
WEIGHED = ("Conv", "Conv-strided", "Conv-depthwise", "ConvTranspose", "MatMul", "Gemm")
"""Networks with weights."""


@cache
def machine(dtype: str) -> Arch:
    return load_arch(MACHINES[dtype])


def row_of(path: str, dtype: str, tools: Toolchain = STANDARD) -> Row:
    batch = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_value
    point = Point("key", machine(dtype), path, batch, dtype, scheduling=Scheduling(effort=0))
    return Workbench(replace(tools, tries=False)).run(point).row


@pytest.mark.parametrize("shape", SHAPES, ids=["square", "odd"])
@pytest.mark.parametrize("dtype", MACHINES)
@pytest.mark.parametrize("name", NETS)
def test_a_right_program_is_never_refused(
    tmp_path: Path, name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    if (name, dtype) == ("overflow", "fp16"):
        return  # looked at below: it is right, and fp16 leaves nothing of it
    row = row_of(saved(tmp_path, name, shape), dtype)
    assert row["status"] == "ok", row.get("reason")
    assert row["verified"] is True, row["note"]


def test_what_a_type_cannot_hold_is_named(tmp_path: Path) -> None:
    note = str(row_of(saved(tmp_path, "epsilon", SHAPES[0]), "fp16")["note"])
    assert "1e-12 is 0 in fp16" in note
    note = str(row_of(saved(tmp_path, "masked-1e9", SHAPES[0]), "fp16")["note"])
    assert "-1e+09 is -6.55e+04 in fp16" in note
    row = row_of(saved(tmp_path, "overflow", SHAPES[0]), "fp16")
    assert "infinite" in str(row["note"])
    assert "where fp16 ends at 6.55e+04" in str(row["note"])
    assert row["verified"] is None


# Mistakes of a program: what its constants hold, what it stores.


def with_weights(change: Callable[[Array], Array], kind: str) -> Callable[[Program], Program]:
    """A program whose largest constant of element type `kind` is changed, as a flat array."""

    def changed(program: Program) -> Program:
        found = [c for c in program.constants if c.data.dtype.name == kind]
        largest = max(found, key=lambda constant: constant.data.size)

        def made(constant: Constant) -> Constant:
            if constant is not largest:
                return constant
            flat = constant.data.flatten()
            return replace(constant, data=change(flat).reshape(constant.data.shape))

        return replace(program, constants=tuple(made(c) for c in program.constants))

    return changed


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


def larger(data: Array) -> Array:
    return (data.astype(np.float32) * 1.02).astype(data.dtype)


def dropped(data: Array) -> Array:
    data[_largest(data)] = 0
    return data


def swapped(data: Array) -> Array:
    """The halves of the weights change places."""
    half = data.size // 2
    return np.concatenate([data[half:], data[:half]])


def changing(change: Callable[[Program], Program]) -> Toolchain:
    def compiled(request: Request) -> Compiled:
        made = STANDARD.compile(request)
        return replace(made, program=change(made.program), trace=None)

    return replace(STANDARD, compile=compiled)


def unwritten(*given: Any) -> Run:
    """A run after which the last quarter of what was stored is as memory was before."""
    run = STANDARD.execute(*given)

    def without(values: Array) -> Array:
        flat = values.flatten()
        flat[-max(1, flat.size // 4) :] = 0
        return flat.reshape(values.shape)

    return replace(
        run,
        outputs={name: without(values) for name, values in run.outputs.items()},
        probed={name: without(values) for name, values in run.probed.items()},
    )


# Mistakes of a compiler: it takes the network for another one.


def mistaking(change: Callable[[onnx.ModelProto], None]) -> Toolchain:
    def load(proto: onnx.ModelProto, name: str, stages: Stages) -> Any:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        change(copy)
        return STANDARD.load(copy, name, stages)

    return replace(STANDARD, load=load)


def change_constant(proto: onnx.ModelProto, dims: int, change: Callable[[Array], Array]) -> None:
    """The first initializer of so many dimensions, changed."""
    tensor = next(t for t in proto.graph.initializer if len(t.dims) == dims)
    values = change(numpy_helper.to_array(tensor).copy())
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), tensor.name))


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
        f"{change.__name__} weights": (WEIGHED, MACHINES, lambda dtype, change=change: changing(
            with_weights(change, STORED[dtype])))
        for change in (flipped, dropped, swapped)
    },
    # Of integers the factors, in fp32; of floats the weights.
    "a scale that is two percent off": (WEIGHED, MACHINES, lambda dtype: changing(
        with_weights(larger, "float32" if dtype == "int8" else STORED[dtype]))),
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
def test_a_mistake_is_found(tmp_path: Path, mistake: str, name: str, dtype: str) -> None:
    path = saved(tmp_path, name, SHAPES["written" in mistake])
    row = row_of(path, dtype, MISTAKES[mistake][2](dtype))
    assert row["status"] == "ok", row.get("reason")
    assert row["verified"] is False
