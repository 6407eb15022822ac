"""Nest graphs as text: one line per buffer, tensor and operator.

    graph net
    buffer y 1024
    tensor y: int8[1, 8, 4, 4] at y + 0 by (128, 1, 32, 8)
    constant w: int8[8, 3, 3, 3] at w + 0 by (27, 9, 3, 1)
    input x: fp32
    output y: fp32
    y[n=1, o=8, h=4, w=4] = clip(sum over c=3, i=3, j=3 of
        mul(x[n, c, 2*h + i - 1, 2*w + j - 1] pad 0.0 zero 3, w[o, c, i, j])
        + b[o] * f[o], -inf, 6.0) as scale 0.1 zero 3 origin conv_1 kind Conv
    host (p, q) = TopK(y) reason "no nest" origin topk_1 operations 64
    host (e) = Gather(i) reason "rows" operations 0 origin words picks w by i along 0

A name is written bare where it is a word, in quotes otherwise. Numbers of constants and payloads
of host nodes are no text. `LineTokens` reads what is written like this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from compiler.tensor_ir.nest import (
    Access,
    Affine,
    HostNode,
    Nest,
    NestGraph,
    Pick,
    Picked,
    Put,
    Step,
    Tensor,
)
from simmodel.arch.dtype import NAMES
from simmodel.program.assembly_reader import PLAIN, AssemblyLine

_RESERVED = frozenset(
    {"graph", "buffer", "tensor", "constant", "input", "output", "host", "clip", "over", "of",
     "inf", "nan", "pad", "scale", "zero", "origin", "kind", "composite",
     "sparse", "block", "picks", "puts", "put", "into", "by", "along", "blocks"}
)  # fmt: skip


def print_graph(graph: NestGraph) -> str:
    """The text form of `graph`."""
    lines = [f"graph {spelled(graph.name)}"]
    lines += [f"buffer {spelled(name)} {size}" for name, size in graph.buffers.items()]
    lines += [_tensor(tensor) for tensor in graph.tensors.values()]
    for word, names in (("input", graph.inputs), ("output", graph.outputs)):
        lines += [
            f"{word} {spelled(name)}{f': {graph.ports[name]}' if name in graph.ports else ''}"
            f"{_code(*graph.codes.get(name, (None, 0)))}"
            for name in names
        ]
    lines += [print_step(step) for step in graph.steps]
    return "\n".join(lines) + "\n"


def print_step(step: Step) -> str:
    """One operator on one line."""
    return _nest(step) if isinstance(step, Nest) else _host_text(step)


def spelled(name: str) -> str:
    """A name as text: bare where it is a word, in quotes otherwise."""
    plain = PLAIN.fullmatch(name) is not None and name not in _RESERVED
    return name if plain else json.dumps(name)


def _tensor(t: Tensor) -> str:
    word = "tensor" if t.data is None else "constant"
    place = f"{spelled(t.storage.buffer)} + {t.storage.offset} by ({_list(t.storage.strides)})"
    narrow, placed, more = t.narrow, t.placed, ""
    if narrow is not None:  # only for the reader, as the numbers are no text
        zeros = " with zeros" if narrow.zeros is not None else ""
        blocks, scales = _list(narrow.blocks), NAMES[narrow.scales.dtype]
        more = f"  # held as {narrow.dtype}, {scales} scales of ({blocks}){zeros}"
    more += "  # held as digits of products" if t.digits else ""
    more += _pick(t.picked)
    if placed is not None:
        table, index = spelled(placed.table.name), spelled(placed.index.name)
        blocks = " blocks" if placed.block else ""
        more += f" put into {table} by {index} along {placed.axis}{blocks}"
    return f"{word} {spelled(t.name)}: {t.dtype}[{_list(t.shape)}] at {place}{more}"


def _list(numbers: Iterable[object]) -> str:
    return ", ".join(map(str, numbers))


def _nest(nest: Nest) -> str:
    names = [spelled(dim.name) for dim in nest.dims]
    loops = [f"{name}={dim.extent}" for name, dim in zip(names, nest.dims, strict=True)]
    value = ", ".join(_access(access, names) for access in nest.operands)
    parameters = ", ".join(repr(float(v)) for v in nest.parameters)
    value = f"{nest.function}({value}{'; ' if parameters else ''}{parameters})"
    if nest.reduce is not None:
        value = f"{nest.reduce} over {', '.join(loops[nest.rank :])} of {value}"
    if nest.bias is not None:
        value += f" + {_access(nest.bias, names)}"
    if nest.multiplier is not None:
        value += f" * {_access(nest.multiplier, names)}"
    if nest.added is not None:
        value += f" rounded in ({_list(nest.middle)})" if nest.middle else ""
        value += f" + {_access(nest.added, names)}"
    if not nest.unclipped:
        value = f"clip({value}, {float(nest.low)!r}, {float(nest.high)!r})"
    code = _code(nest.scale, nest.zero)
    value += f" as{code}" if code else ""
    value += f" looked up in ({_list(nest.table)})" if nest.table else ""
    value += _source(nest.origin, nest.kind, nest.composite)
    value += f" sparse {nest.sparse}" if nest.sparse > 1 else ""
    value += f" block {nest.block}" if nest.block > 1 else ""
    return f"{spelled(nest.tensor)}[{', '.join(loops[: nest.rank])}] = {value}"


def _access(access: Access, names: list[str]) -> str:
    index = ", ".join(_affine(affine, names) for affine in access.index)
    pad = "" if access.pad is None else f" pad {float(access.pad)!r}"
    return f"{spelled(access.tensor)}[{index}]{pad}{_code(access.scale, access.zero)}"


def _affine(affine: Affine, names: list[str]) -> str:
    terms = [names[dim] if k == 1 else f"{k}*{names[dim]}" for dim, k in affine.terms]
    if affine.constant or not terms:
        terms.append(str(affine.constant))
    return " + ".join(terms).replace("+ -", "- ")


def _code(scale: float | None, zero: int) -> str:
    text = "" if scale is None else f" scale {float(scale)!r}"
    return f"{text} zero {zero}" if zero else text


def _source(origin: str, kind: str, composite: str | None) -> str:
    text = f" origin {spelled(origin)}" if origin else ""
    text += f" kind {spelled(kind)}" if kind else ""
    return text if composite is None else f"{text} composite {spelled(composite)}"


def _host_text(node: HostNode) -> str:
    results = ", ".join(map(spelled, node.outputs))
    inputs = ", ".join(map(spelled, node.inputs))
    return (
        f"host ({results}) = {spelled(node.kind)}({inputs}) reason {json.dumps(node.reason)}"
        f" operations {node.operations}{_source(node.origin, '', None)}{_pick(node.pick)}"
    )


def _pick(pick: Pick | Picked | None) -> str:
    if pick is None:
        return ""
    if isinstance(pick, Put):
        given, update = spelled(pick.given), spelled(pick.update)
        blocks = " blocks" if pick.block else ""
        return (
            f" puts {update} into {given} by {spelled(pick.index)} along {pick.axis}{blocks}"
            f" as {spelled(pick.table)}"
        )
    ends = (pick.table, pick.index)
    table, index = (spelled(each if isinstance(each, str) else each.name) for each in ends)
    return f" picks {table} by {index} along {pick.axis}"


class LineTokens(AssemblyLine):
    """The tokens of one line, taken from the left."""

    COMMENT = "#"
