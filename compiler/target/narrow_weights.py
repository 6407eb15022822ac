"""Weights stored in a narrow type and widened on chip.

Weights of a product are loaded in their narrow type, by a copy engine that may widen them part of
the way, and the vector engine multiplies them by their scales in local memory. That costs vector
cycles for each load; it is done if all cores together widen at least as fast as DRAM delivers the
wide type. Weights of which two in four are 0 are loaded without these zeros, and those that are
numbers of a microscaling format in it, where the array multiplies such weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.cost.overlap import copy_rate, path
from compiler.frontend.quantization.narrow_constants import Narrow
from compiler.passes import Omittable
from compiler.target.array_mapping import axis_of, roles
from compiler.target.machine import array_of, contraction_ways
from compiler.tensor_ir.nest import Affine, Nest, NestGraph, Tensor
from simmodel.arch.dtype import holds
from simmodel.arch.element_types import COMPRESSED, PACKED, per_item, size_of, widened
from simmodel.arch.matrix_cycles import tile_limits
from simmodel.arch.record import Arch
from simmodel.isa.forms import cost_of, elementwise_form

_SUB, _MUL = (elementwise_form(name, 2) for name in ("sub", "mul"))
_MOVE = elementwise_form("move", 1)


@dataclass(frozen=True)
class KeepNarrow(Omittable):
    """Decide which constants memory holds in the narrow type that the model has them in.

    before:
        constant w: fp16[512, 2048]           of which the model has int4 in blocks of 32
    after:
        constant w: fp16[512, 2048]           held as int4, fp32 scales of (32, 1)
    """

    def apply(self, graph: NestGraph, arch: Arch) -> NestGraph:
        readers: dict[str, list[Nest | None]] = {}
        for step in graph.steps:
            names = [a.tensor for a in step.reads] if isinstance(step, Nest) else step.inputs
            for name in dict.fromkeys(names):
                nest = step if isinstance(step, Nest) else None
                readers.setdefault(name, []).append(nest)
        found = dict(graph.tensors)
        for name, tensor in graph.tensors.items():
            reading = readers.get(name, [])
            arrays = {array_of(n, graph.tensors, arch) for n in reading if n and n.contraction}
            seen = arch.with_array(min(arrays, default="matrix"))
            if len(arrays) > 1:  # which may lack one another's memories and types
                found[name] = replace(tensor, narrow=None)
                continue
            around = reading, graph, seen
            narrow = self._narrow_form(tensor, *around) if tensor.narrow is not None else None
            kinds = [k for k, base in COMPRESSED.items() if base == tensor.dtype]
            for kind in sorted(filter(seen.matrix.peak, kinds), key=_bytes):
                if narrow is None or _bytes(kind) * tensor.elements < narrow.bytes:
                    narrow = self._compressed_form(tensor, kind, *around) or narrow
            if narrow is not tensor.narrow:
                found[name] = replace(tensor, narrow=narrow)
        return replace(graph, tensors=found)

    def _narrow_form(
        self, tensor: Tensor, readers: list[Nest | None], graph: NestGraph, arch: Arch
    ) -> Narrow | None:
        assert tensor.narrow is not None
        buffer = [t for t in graph.tensors.values() if t.storage.buffer == tensor.storage.buffer]
        if not self.enabled or len(buffer) > 1 or not readers:
            return None
        narrow = _landed(tensor.narrow, tensor.dtype, arch)
        if narrow is None or narrow.bytes >= tensor.elements * size_of(tensor.dtype):
            return None
        able = all(
            nest is not None and _weights_of(nest, tensor, narrow, graph, arch) for nest in readers
        )
        return narrow if able and _keeps_up(tensor, narrow, arch) else None

    def _compressed_form(
        self, tensor: Tensor, kind: str, readers: list[Nest | None], graph: NestGraph, arch: Arch
    ) -> Narrow | None:
        """`tensor` in the compressed type `kind`, where that holds it along the reduction of its
        readers."""
        buffer = [t for t in graph.tensors.values() if t.storage.buffer == tensor.storage.buffer]
        nests = [nest for nest in readers if nest is not None and nest.contraction]
        odd = arch.matrix.granularity == "tile" and tile_limits(arch.matrix)[0] % per_item(kind)
        if not self.enabled or tensor.data is None or odd or len(buffer) > 1:
            return None
        if not 0 < len(readers) == len(nests):
            return None
        one = np.ones((1,) * len(tensor.shape), np.float32)
        narrow = Narrow(kind, tensor.data, one)  # type: ignore[arg-type]
        able = all(_weights_of(nest, tensor, narrow, graph, arch) for nest in nests)
        rows = {row_of(nest) for nest in nests} if able else set()
        data = np.asarray(tensor.data) if len(rows) == 1 else None
        return narrow if data is not None and holds(kind, data, *rows) else None


def _bytes(kind: str) -> float:
    return size_of(kind) / per_item(kind)


def _landed(narrow: Narrow, real: str, arch: Arch) -> Narrow | None:
    """`narrow` in types that engines read: a type below a byte is stored as bytes if no engine
    reads it."""
    role, vector = arch.matrix.weights, arch.vector
    name = arch.copy_engine(arch.constants, role)
    if name is None or role not in vector.reads or role not in vector.writes:
        return None
    wanted = {real, *([narrow.scale_type] if narrow.scale is None else ())}
    wanted |= set() if narrow.zeros is None else {narrow.zero_type}
    if not wanted <= set(vector.types) or not all(map(arch.isa.has, _forms(narrow))):
        return None
    # Pieces of a long row may begin inside a byte of several elements.
    odd = any((arch.reach(form)[1] or 0) % 2 for form in _forms(narrow))
    if narrow.dtype in vector.types and not (_is_packed_type(narrow) and odd):
        return narrow
    able = [t for t in widened(narrow.dtype) if t in vector.types and size_of(t) <= size_of(real)]
    if not able:
        return None
    if narrow.dtype in arch.copy_[name].widens:
        return replace(narrow, landing=able[0])
    return narrow.stored_as(able[0]) if size_of(able[0]) < size_of(real) else None


def row_of(nest: Nest) -> int:
    """The reduction axis of a product's weights."""
    row = axis_of(nest.operands[1], roles(nest).k)
    assert row is not None
    return row


def _weights_of(nest: Nest, tensor: Tensor, narrow: Narrow, graph: NestGraph, arch: Arch) -> bool:
    """Whether `nest` is a product on the matrix engine that reads `tensor` only as its weights,
    with scales along its columns and blocks of its reduction."""
    reads = [access for access in nest.reads if access.tensor == tensor.name]
    if not nest.contraction or len(reads) > 1 or reads[0] is not nest.operands[1]:
        return False
    if contraction_ways(nest, graph.tensors, arch)[0].engine != "matrix":
        return False
    found, access = roles(nest), reads[0]
    plain = all(affine == Affine(affine.terms[:1]) for affine in access.index)
    if not plain or found.batch or found.k is None or len(found.cols) != 1 or access.zero:
        return False
    row, column = axis_of(access, found.k), axis_of(access, found.cols[0])
    assert row is not None and column is not None
    shape = narrow.scales.shape
    if any(n > 1 for axis, n in enumerate(shape) if axis not in (row, column)):
        return False
    if shape[column] not in (1, tensor.shape[column]):
        return False
    if not _is_packed_type(narrow):
        return True
    even = tensor.shape[column] % 2 == 0 and tensor.shape[row] % 2 == 0
    return even and (shape[row] == 1 or narrow.blocks[row] % 2 == 0)


def _is_packed_type(narrow: Narrow) -> bool:
    return bool(PACKED & {narrow.dtype, narrow.landing})


def fits_tiles(narrow: Narrow, row: int, depth: Any, width: Any) -> Any:
    """Whether tiles of so many rows and columns are whole blocks and whole bytes; extents may be
    arrays over candidates."""
    if narrow.compressed:
        return depth % per_item(narrow.dtype) == 0
    fits = (depth % narrow.blocks[row] == 0) | (narrow.scales.shape[row] == 1)
    return fits & (depth % 2 == 0) & (width % 2 == 0) if _is_packed_type(narrow) else fits


def _keeps_up(tensor: Tensor, narrow: Narrow, arch: Arch) -> bool:
    """Whether widening is as fast as memory off chip would deliver the wide type."""
    far, cores = arch.constants, arch.core_count
    engine = path(arch, far, arch.matrix.weights)
    rate = min(arch.far_rates[far], cores * copy_rate(arch, engine, far))
    given = tensor.elements * size_of(tensor.dtype) / rate
    return tensor.elements * widening(narrow, tensor.dtype, arch) / cores <= given


def widening(narrow: Narrow, real: str, arch: Arch) -> float:
    """Vector-engine cycles of one core per element, without start-ups."""
    if narrow.compressed:
        return 0.0
    scales = size_of(narrow.scale_type) if narrow.scale is None else 0
    wide = arch.vector.elements(max(size_of(real), scales))
    rates = {_SUB: arch.vector.elements(size_of(real))}
    return sum(arch.factor(f, cost_of(f)) / rates.get(f, wide) for f in _forms(narrow))


def _forms(narrow: Narrow) -> tuple[str, ...]:
    """Forms of the vector engine that widening needs."""
    last = _MUL if narrow.scale is None else _MOVE
    return (last,) if narrow.zeros is None else (_SUB, last)
