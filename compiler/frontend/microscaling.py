"""Numbers rounded to a microscaling format, as a function of ONNX's own operators.

    y = archgen.mxfp8(x)     shape: [-1, 32]          blocks along the last axis
                             shape: [0, 2, 32, -1]    along the first one behind the batch

The one idea: a network says which values its products read in blocks, in a function that any other
software computes by its body; the compiler knows it by its name. The body is written without the
numbers that programs are run with (`simmodel.arch.dtype`), so each holds the other to account.
"""

from __future__ import annotations

import onnx
from onnx import helper

from compiler.frontend.rewrite import ARCHGEN
from simmodel.arch.element_types import MX_BLOCK

_FORMATS = {
    "mxfp8": (8, 448, 3, -6), "mxfp6": (2, 7.5, 3, 0), "mxfp4": (2, 6, 1, 0),
    "mxint8": (6, 127, 0, None), "bfp8": (6, 127, 0, None),
}  # fmt: skip
"""Power of two in the largest number, that number, bits behind the point, the least exponent that a
number has of its own: none, if all share the largest one's."""

_BODY = """
{kind} <shape, axes> (x) => (y) {{
    real = Cast <to: int = 1> (x)
    rows = Constant <value_ints: ints = @shape> ()
    blocks = Reshape (real, rows)
    sizes = Abs (blocks)
    least = Constant <value_float: float = 1.1754944e-38> ()
    ln2 = Constant <value_float: float = 0.6931471805599453> ()
    half = Constant <value_float: float = 0.5> ()
    two = Constant <value_float: float = 2.0> ()
    up = Constant <value_float: float = {up}> ()
    down = Constant <value_float: float = {down}> ()
    most = Constant <value_float: float = {most}> ()
    {largest}
    some = Max (top, least)
    {power_of_some}
    share = Div (sizes, power)
    steps = Mul (share, up)
    {rounded}
    kept = Min (whole, most)
    back = Mul (kept, down)
    size = Mul (back, power)
    sign = Sign (blocks)
    number = Mul (size, sign)
    given = Shape (x)
    like = Reshape (number, given)
    y = {made} (like{first})
}}
"""
_POWER = """
    log_{n} = Log ({of})
    ratio_{n} = Div (log_{n}, ln2)
    exponent_{n} = Floor (ratio_{n})
    near_{n} = Pow (two, exponent_{n})
    above_{n} = Less ({of}, near_{n})
    halved_{n} = Mul (near_{n}, half)
    low_{n} = Where (above_{n}, halved_{n}, near_{n})
    twice_{n} = Mul (low_{n}, two)
    right_{n} = Less ({of}, twice_{n})
    {n} = Where (right_{n}, low_{n}, twice_{n})
"""
"""The power of two in positive numbers; a logarithm that is rounded may be off by one."""
_FLOATING = """
    floor = Constant <value_float: float = {least}> ()
    fine = Constant <value_float: float = {fine}> ()
    own = Max (steps, floor)
    {power_of_own}
    step = Mul (binade, fine)
    count = Div (steps, step)
    near = Round (count)
    whole = Mul (near, step)
"""


def microscaling(kind: str, version: int) -> onnx.FunctionProto:
    """The function that rounds to format `kind`, in ONNX's operators of an opset `version`."""
    top, most, bits, least = _FORMATS[kind]
    if version < 18:
        largest = "top = ReduceMax <axes: ints = @axes, keepdims: int = 1> (sizes)"
    else:
        largest = """along = Constant <value_ints: ints = @axes> ()
    top = ReduceMax <keepdims: int = 1> (sizes, along)"""
    rounded = "whole = Round (steps)"
    if least is not None:
        rounded = _FLOATING.format(
            least=2.0**least, fine=2.0**-bits, power_of_own=_POWER.format(n="binade", of="own")
        )
    body = _BODY.format(
        kind=kind, up=2.0**top, down=2.0**-top, most=float(most), largest=largest, rounded=rounded,
        power_of_some=_POWER.format(n="power", of="some"),
        made="Identity" if version < 15 else "CastLike", first="" if version < 15 else ", x",
    )  # fmt: skip
    text = f'<domain: "{ARCHGEN}", opset_import: ["" : {version}]>\n{body}'
    return onnx.parser.parse_function(text)


def rounding(kind: str, x: str, y: str, channels: int = 0) -> onnx.NodeProto:
    """The node that rounds `x` to `y`: along the last axis, or along the axis behind the batch,
    which has so many `channels`."""
    size = MX_BLOCK[kind]
    shape = [0, channels // size, size, -1] if channels else [-1, size]
    return helper.make_node(
        kind, [x], [y], y, domain=ARCHGEN, shape=shape, axes=[2 if channels else 1]
    )
