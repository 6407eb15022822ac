"""Models that never end, or grow beyond any memory, for test_bounds_of_input.py."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import parser

_HEAD = '<ir_version: 9, opset_import: ["" : 17, "own" : 1]> g (float[1, 8] x) => (float[1, 8] y)'


def _saved(path: Path, text: str) -> Path:
    onnx.save(parser.parse_model(f"{_HEAD} {text}"), path)
    return path


def _looped(nodes: str, constants: str = "") -> str:
    """y = x after rounds of `nodes`, which make v2 of v, and of c whether there is another one."""
    body = f"b (int64 i, bool c, float[1, 8] v) => (bool c2, float[1, 8] v2) {{ {nodes} }}"
    return (
        f"<bool true = {{1}}, int64[2] shape = {{1, 8}}{constants}>"
        f"{{ z = Loop <body = {body}> (, true, x) y = Reshape (z, shape) }}"
    )


def endless(path: Path) -> Path:
    """y = Relu(Relu(Relu(... x))), without end; its shape is known."""
    return _saved(path, _looped("c2 = Identity (c) v2 = Relu (v)"))


def doubling(path: Path, levels: int = 40) -> Path:
    """Functions of which each calls the one before it twice: 2 to the power of `levels` nodes."""
    own = '<domain: "own", opset_import: ["" : 17, "own" : 1]>'
    calls = [f"t = own.f{level} (x) y = own.f{level} (t)" for level in range(levels - 1)]
    functions = [
        f"{own} f{level} (x) => (y) {{ {nodes} }}"
        for level, nodes in enumerate(["y = Relu (x)", *calls])
    ]
    return _saved(path, "\n".join([f"{{ y = own.f{levels - 1} (x) }}", *functions]))


def huge(path: Path, size: int, known: bool) -> Path:
    """y = x + the largest of `size` numbers that a Range makes, whose number is `known` from the
    file, or depends on x in a round of a loop: the shapes of the network itself are known."""
    value, end, result = ("x", "last", "y") if known else ("v", "end", "v2")
    constants = (
        f"int64 first = {{0}}, int64 last = {{{size}}}, int64 step = {{1}}, float zero = {{0}}"
    )
    nodes = f"""r = Range (first, {end}, step) m = ReduceMax <keepdims = 0> (r)
        f = Cast <to = 1> (m) {result} = Add ({value}, f)"""
    if known:
        return _saved(path, f"<{constants}> {{ {nodes} }}")
    before = """a = ReduceMax <keepdims = 0> (v) b = Mul (a, zero) d = Cast <to = 7> (b)
        end = Add (d, last)"""
    return _saved(path, _looped(f"{before} {nodes} c2 = Less (m, first)", f", {constants}"))
