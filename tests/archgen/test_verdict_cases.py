"""The verdict itself is judged: right programs are never refused, and mistakes are found.

Hundreds of operators, element types and shapes; for each the program as it is, and programs and
compilers in which one thing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from role_nets import row_of
from small_nets import NETS, SHAPES, saved
from test_verdict import MACHINES, STORED, change_constant, larger, mistaking, with_weights

from archgen.toolchain import STANDARD, Array, Compiled, Request, Toolchain
from simmodel.execute import Run

pytestmark = pytest.mark.usefixtures("own_cache")
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
def test_a_mistake_is_found(tmp_path: Path, mistake: str, name: str, dtype: str) -> None:
    path = saved(tmp_path, name, SHAPES["written" in mistake])
    row = row_of(path, MACHINES[dtype], dtype, MISTAKES[mistake][2](dtype))
    assert row["status"] == "ok", row.get("reason")
    assert row["verified"] is False
