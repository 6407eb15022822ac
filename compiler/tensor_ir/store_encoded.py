"""Quantized states stay quantized: no conversion between two inferences.

The user sees real values. If a network quantizes an input at once, and an output is the dequantized
content of the same bytes with the same scale, both conversions move to the ports: a port states its
scale, and integers pass from inference to inference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.passes import Omittable, Result
from compiler.tensor_ir.build import identity
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph
from compiler.tensor_ir.rewrite import NestPass, reads_of
from simmodel.arch.dtype import is_float


@dataclass(frozen=True)
class StoreEncoded(NestPass, Omittable):
    """Inputs and outputs in one buffer, in the scale in which it holds them.

    input past: fp32                                    input past: fp32 scale 0.5 zero 3
    output present: fp32                                output present: fp32 scale 0.5 zero 3
    q[i=4] = move(past[i]) as scale 0.5 zero 3       =>
    present[i=5] = move(c[i] scale 0.5 zero 3)          # past is q and present is c, where
                                                        # q is the first four of c's integers
    """

    def apply(self, ir: NestGraph) -> Result[NestGraph]:
        """Give the ports of states the encoding of what is stored."""
        ends = {step.tensor: step for step in _conversions(ir) if step.tensor in ir.outputs}
        found = []
        for begin in _conversions(ir):
            name = begin.operands[0].tensor
            buffer = ir.tensors[begin.tensor].storage.buffer
            for end in ends.values() if name in ir.inputs else ():
                access = end.operands[0]
                same = (begin.scale, begin.zero) == (access.scale, access.zero)
                if same and ir.tensors[access.tensor].storage.buffer == buffer:
                    found.append((begin, end))
        return Result(_drop_conversions(ir, found), bool(found))


def _conversions(ir: NestGraph) -> Iterator[Nest]:
    """Nests that quantize an input without other readers, or compute an output without readers by
    dequantizing."""
    read: dict[str, int] = {}
    for name in (name for step in ir.steps for name in reads_of(step)):
        buffer = ir.tensors[name].storage.buffer
        read[buffer] = read.get(buffer, 0) + 1
    shown = {ir.tensors[name].storage.buffer for name in ir.outputs}
    for step in ir.steps:
        if isinstance(step, HostNode) or step.function != "move" or step.reduce is not None:
            continue
        access, made = step.operands[0], ir.tensors[step.tensor]
        source = ir.tensors[access.tensor]
        whole = identity(access, step.rank) and access.pad is None and made.shape == source.shape
        if not whole or not step.unclipped or len(step.reads) > 1 or source.data is not None:
            continue
        given = access.tensor in ir.inputs and read[source.storage.buffer] == 1
        begins = given and access.scale is None and step.scale is not None
        ends = step.tensor in ir.outputs and not read.get(made.storage.buffer)
        begins = begins and is_float(source.dtype) and source.storage.buffer not in shown
        ends = ends and step.scale is None and access.scale is not None and is_float(made.dtype)
        if begins or ends:
            yield step


def _drop_conversions(ir: NestGraph, found: list[tuple[Nest, Nest]]) -> NestGraph:
    """`ir` without the conversions `found`."""
    tensors, codes = dict(ir.tensors), dict(ir.codes)
    for begin, end in found:
        assert begin.scale is not None
        for port, stored in ((begin.operands[0].tensor, begin.tensor),
                             (end.tensor, end.operands[0].tensor)):  # fmt: skip
            tensors[port] = replace(ir.tensors[stored], name=port)
            codes[port] = begin.scale, begin.zero
    gone = {id(step) for pair in found for step in pair}
    used = {tensor.storage.buffer for tensor in tensors.values()}
    return replace(
        ir,
        tensors=tensors,
        buffers={name: size for name, size in ir.buffers.items() if name in used},
        steps=tuple(step for step in ir.steps if id(step) not in gone),
        codes=codes,
    )
