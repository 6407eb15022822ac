"""Conversions to types of a byte or less, which memories and ports hold and no engine computes in.

    y = (x + c) - c        c = 1.5 * 2^23 steps of the type at the size of x

The one idea: such a number lies in a larger type, so a conversion is arithmetic. Whole numbers keep
their low bits, or saturate where they are quantized. Of a real number, adding and taking away what
has no room for less than a step rounds it, half to even; the step follows from the power of two at
or below the number, which is found by rounding to one bit. All of that is exact in fp32 alone.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from compiler.nest.ir import Tensor
from compiler.ops.node import Node
from simmodel.dtype import NUMPY, is_float, largest, limits

WHOLE = frozenset({"int2", "uint2", "int4", "uint4"})
REAL = frozenset({"fp8e4m3", "fp8e5m2", "fp8e4m3fnuz", "fp8e5m2fnuz", "fp4e2m1"})
ROUNDED = WHOLE | REAL
"""Types of results that are rounded here."""

_BITS = 23
"""Of the significand of fp32, without the first."""


def wrapped(node: Node, x: Tensor, name: str) -> None:
    """The low bits of whole numbers, or of real ones without their fractions."""
    make, out, shape = node.build.elementwise, node.out, node.shape()
    node.build.composite = node.build.composite or out
    low, high = limits(name)
    cut = "trunc" if is_float(x.dtype) else "move"
    whole = make(f"{out}.whole", shape, cut, [x], "int32")
    bits = make(f"{out}.bits", shape, "bitwise_and", [whole, _whole(node, high - low)], "int32")
    if not low:
        make(out, shape, "move", [bits], node.dtype())
        return
    turned = make(f"{out}.turned", shape, "bitwise_xor", [bits, _whole(node, -low)], "int32")
    make(out, shape, "sub", [turned, _whole(node, -low)], node.dtype())


def _whole(node: Node, number: int) -> Tensor:
    return node.build.constant(f"{node.out}.{number}", np.asarray(number, np.int32))


def rounded(node: Node, x: Tensor, name: str, *, saturates: bool = True) -> None:
    """Real numbers as those of type `name`: the nearest one, beyond the largest that or, where it
    does not saturate, what the type has for no number."""
    make, out, shape = node.build.elementwise, node.out, node.shape()
    node.build.composite = node.build.composite or out
    kind, top = ml_dtypes.finfo(NUMPY[name]), largest(name)  # type: ignore[no-untyped-call]
    bound = top if saturates else 2 * top

    def step(
        said: str,
        function: str,
        *operands: Tensor | float,
        low: float = -np.inf,
        high: float = np.inf,
    ) -> Tensor:
        read = [each if isinstance(each, Tensor) else _real(node, each) for each in operands]
        return make(f"{out}.{said}", shape, function, read, "fp32", low=low, high=high)

    near = step("near", "move", x, low=-bound, high=bound)
    size = step("size", "abs", near, low=float(kind.smallest_normal))
    wide = step("wide", "mul", size, 2.0**_BITS + 1)
    power = step("power", "sub", wide, step("rest", "sub", wide, size))
    above = step("above", "greater", power, size)
    below = step("below", "select", above, step("half", "mul", power, 0.5), power)
    steps = step("steps", "mul", below, 1.5 * 2.0 ** (_BITS - kind.nmant))
    result = step("result", "sub", step("sum", "add", near, steps), steps)
    if not saturates:
        infinite = bool(np.isinf(np.asarray(np.inf, np.float32).astype(NUMPY[name])))
        beyond = np.inf if infinite else np.nan
        for sign, function in ((1, "greater"), (-1, "less")):
            over = step(f"{function}.over", function, result, sign * top)
            result = step(f"{function}.kept", "select", over, sign * beyond, result)
    if name == "fp4e2m1":  # has none for what is no number
        missing = step("missing", "is_nan", near)
        result = step("present", "select", missing, 0.0, result)
    make(out, shape, "move", [result], node.dtype())


def _real(node: Node, number: float) -> Tensor:
    return node.build.constant(f"{node.out}.{number}", np.asarray(number, np.float32), "fp32")
