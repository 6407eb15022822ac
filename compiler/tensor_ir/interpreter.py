"""Interpreter of nest graphs: what they compute, in numpy, independent of any machine.

Buffers are flat arrays and tensors strided views of them, so aliasing is real: a nest that writes
a slice of a concatenation changes the whole. Every access becomes one array whose axes are the
nest's loops, with the pad value where positions fall outside; then function, reduction and encoding
are exactly those of the machine's instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from compiler.tensor_ir.arithmetic import code, computes_exactly, function_of
from compiler.tensor_ir.bounds import clipped, needed
from compiler.tensor_ir.nest import Access, Array, Dim, Nest, NestGraph, Pick, Put, Tensor, at
from simmodel.arch.dtype import NAMES, NUMPY, from_blocks, limits, to_blocks
from simmodel.arch.element_types import is_float, per_block
from simmodel.arch.lazy_array import AnyArray, LazyArray, cast, in_pieces
from simmodel.isa.base import decode, encode
from simmodel.isa.contraction import contraction, without_repeats
from simmodel.isa.functions import REDUCE, looked_up, stored, widened
from simmodel.isa.matrix import rounded_between

Host = Callable[[bytes, list[Array]], list[Array]]
"""Runs a payload on arrays as stored and returns its outputs."""


def run(
    graph: NestGraph, inputs: Mapping[str, Array], host: Host | None = None
) -> dict[str, Array]:
    """Outputs of `graph` by name, in their shapes and in the element types of its ports.

    Raises ValueError where an input is missing or has another shape, or a host node has no host.
    """
    tensors = TensorViews(graph)
    for name in graph.inputs:
        given = np.asarray(inputs[name]) if name in inputs else None
        if given is None or given.shape != graph.tensors[name].shape:
            raise ValueError(f"input {name} needs an array of {graph.tensors[name].shape}")
        feed_one(graph, name, given, tensors)
    for step in graph.steps:
        if isinstance(step, Nest):
            run_nest(step, tensors.of(step))
        elif step.pick is not None:
            with_rows(step.pick, tensors[step.outputs[0]], tensors)
        elif host is None:
            raise ValueError(f"{step.origin} ({step.kind}) runs on the host, and none is given")
        else:
            results = host(step.payload, [tensors[name] for name in step.inputs])
            for name, values in zip(step.outputs, results, strict=True):
                tensors[name][...] = values
    kinds = {n: graph.ports.get(n, graph.tensors[n].dtype) for n in graph.outputs}
    return {name: shown(graph, name, tensors).astype(NUMPY[k]) for name, k in kinds.items()}


def feed_one(graph: NestGraph, name: str, given: Array, tensors: Mapping[str, Array]) -> None:
    """Put one input into the graph's `tensors`, as it is stored."""
    known = graph.codes.get(name)
    if known is None:
        tensors[name][...] = given
    else:
        encode(given.astype(np.float32), code(*known), tensors[name])


def shown(graph: NestGraph, name: str, tensors: Mapping[str, Array]) -> Array:
    """The value that a user sees of an input or output among `tensors`."""
    known = graph.codes.get(name)
    return tensors[name] if known is None else decode(tensors[name], code(*known))


_LARGE = 1 << 26
"""Bytes up to which a constant is made as a whole."""
_WHOLE = ""
"""All of a buffer, beside tensors apart from it."""


class TensorViews(Mapping[str, Array]):
    """Every tensor as a view of its buffer. Buffers are zero at first, made when they are asked for
    and gone when they are dropped; constants are made each time.

    Args:
        graph: whose tensors they are.
        wide: floats in fp32 instead of their types, and constants as in the model.
        apart: types of tensors that are not those of their buffers, whose bytes they do not share.
    """

    def __init__(
        self, graph: NestGraph, *, wide: bool = False, apart: Mapping[str, str] | None = None
    ) -> None:
        self._graph = graph
        kinds = {t.storage.buffer: t.dtype for t in graph.tensors.values()}
        if wide:
            real = {n for n, kind in kinds.items() if is_float(kind) and per_block(kind) == 1}
            kinds = {name: "fp32" if name in real else kind for name, kind in kinds.items()}
        self._kinds = kinds
        self._apart = {
            name: kind
            for name, kind in (apart or {}).items()
            if NUMPY[kind] != NUMPY[kinds[graph.buffer_of(name)]]
        }
        self._constants: dict[str, AnyArray] = {}
        self._held: dict[str, dict[str, Array]] = {}
        """By buffer that is written: all of it, and tensors apart, as far as they are made."""
        for name, tensor in graph.tensors.items():
            data = tensor.data if tensor.exact is None or not wide else tensor.exact
            if data is not None:
                self._constants[name] = cast(data, NUMPY[kinds[tensor.storage.buffer]])
            if tensor.data is None:
                self._held[tensor.storage.buffer] = {}
        self._begins: dict[str, list[str]] = {}
        """Constants in buffers that are written as well."""
        for name in self._constants:
            if (buffer := graph.buffer_of(name)) in self._held:
                self._begins.setdefault(buffer, []).append(name)

    def __getitem__(self, name: str) -> Array:
        tensor = self._graph.tensors[name]
        buffer = tensor.storage.buffer
        if name in self._constants and buffer not in self._begins:
            return np.asarray(self._constants[name])
        held = self._held[buffer]
        if name in self._apart:
            if name not in held:
                held[name] = np.zeros(tensor.shape, self.dtype(name))
            return held[name]
        if _WHOLE not in held:
            held[_WHOLE] = whole = np.zeros(self._graph.buffers[buffer], self.dtype(name))
            for constant in self._begins.get(buffer, ()):
                view_of(self._graph.tensors[constant], whole)[...] = self._constants[constant]
        return view_of(tensor, held[_WHOLE])

    def __iter__(self) -> Iterator[str]:
        return iter(self._graph.tensors)

    def __len__(self) -> int:
        return len(self._graph.tensors)

    def dtype(self, name: str) -> np.dtype[Any]:
        """Element type of a tensor."""
        return NUMPY[self._apart.get(name, self._kinds[self._graph.buffer_of(name)])]

    def of(self, nest: Nest) -> dict[str, AnyArray]:
        """What `nest` reads and writes, each made once."""
        names = (nest.tensor, *(access.tensor for access in nest.reads))
        return {name: self.read(name, nest) for name in dict.fromkeys(names)}

    def read(self, name: str, nest: Nest) -> AnyArray:
        """A tensor for `nest`, which takes some rows of a large constant at a time where it can."""
        held, buffer = self._constants.get(name), self._graph.buffer_of(name)
        small = held is None or held.nbytes <= _LARGE or buffer in self._begins
        if small or not isinstance(held, LazyArray) or held.pieces is None:
            return self[name]
        whole = any(np.issubdtype(self.dtype(a.tensor), np.integer) for a in nest.operands)
        return self[name] if whole or loop_of_rows(nest, name) is None else held

    def drop(self, buffer: str) -> None:
        """Forget what lies in a buffer that nobody asks for again, unless constants do too."""
        if buffer not in self._begins:
            self._held.pop(buffer, None)


def view_of(tensor: Tensor, buffer: Array) -> Array:
    """The tensor as a view of `buffer`."""
    if tensor.elements == 0:
        return np.zeros(tensor.shape, buffer.dtype)
    strides = tuple(s * buffer.itemsize for s in tensor.storage.strides)
    return np.ndarray(
        tensor.shape, buffer.dtype, buffer, tensor.storage.offset * buffer.itemsize, strides
    )


def with_rows(pick: Pick, out: Array, tensors: Mapping[str, Array]) -> None:
    """Write gathered rows, or the table with new rows, to `out`, which may share the bytes of the
    table; IndexError where there is no such row."""
    if not isinstance(pick, Put):
        out[...] = np.take(tensors[pick.table], tensors[pick.index], axis=pick.axis)
        return
    out[...] = tensors[pick.given]
    index, update = tensors[pick.index], tensors[pick.update]
    if not pick.block:
        out[index] = update
        return
    for sample, first in enumerate(index.tolist()):
        rows = slice(first, first + update.shape[pick.axis])
        np.moveaxis(out[sample], pick.axis - 1, 0)[rows] = np.moveaxis(
            update[sample], pick.axis - 1, 0
        )


@dataclass
class ProductSums:
    """What a nest at given operands adds up, as far as it is made: whoever needs it again finds it.

    Sums of few columns are kept by the first of these, where a nest is looked at part by part.
    """

    plain: Array | None = None
    """Sums of the products of operands as stored, without their scales."""
    sizes: Array | None = None
    """Sums of the magnitudes of these products."""
    parts: dict[int, ProductSums] = field(default_factory=dict)

    def part(self, first: int, cut: tuple[slice, ...]) -> ProductSums:
        """Those of a part of the result from column `first` on."""
        found = self.parts.setdefault(first, ProductSums())
        if found.plain is None and self.plain is not None:
            found.plain = self.plain[cut]
        if found.sizes is None and self.sizes is not None:
            found.sizes = self.sizes[cut]
        return found

    def outlined(self, nest: Nest, tensors: Mapping[str, AnyArray]) -> dict[str, Array]:
        """`tensors` with outlines of those that are to be made in pieces (`TensorViews.read`):
        nothing but these sums, which are made, needs their numbers."""
        names = dict.fromkeys([nest.tensor, *(access.tensor for access in nest.reads)])
        read = {name: tensors[name] for name in names}
        lazy = {name: each for name, each in read.items() if isinstance(each, LazyArray)}
        if len(lazy) > 1:
            lazy = {}
        elif lazy and (self.plain is None or self.sizes is None):
            (name,) = lazy
            self._add_up(nest, tensors, name, lazy[name])
        return {
            name: np.broadcast_to(np.empty((), each.dtype), each.shape) if name in lazy
            else np.asarray(each)
            for name, each in read.items()
        }  # fmt: skip

    def _add_up(
        self, nest: Nest, tensors: Mapping[str, AnyArray], name: str, rows: LazyArray
    ) -> None:
        """Add up products with some `rows` of the operand `name` at a time."""
        loop = loop_of_rows(nest, name)
        assert loop is not None
        summed = loop >= nest.rank
        self.plain, self.sizes = np.zeros((2, *nest.shape), np.float32)
        for cut, piece in in_pieces(rows):
            dims = list(nest.dims)
            dims[loop] = replace(dims[loop], extent=len(piece))
            part = replace(nest, dims=tuple(dims))
            given = {
                each.tensor: cut_of(np.asarray(tensors[each.tensor]), each, loop, cut)
                for each in nest.operands
                if each.tensor != name
            }
            sides = sides_of(part, {**given, name: piece})
            columns = (...,) if summed else (*[slice(None)] * loop, cut)
            self.plain[columns] += contracted(part, *sides)
            self.sizes[columns] += contracted(part, *(magnitudes(s, np.float32) for s in sides))


def loop_of_rows(nest: Nest, name: str) -> int | None:
    """The loop of a sum of products along the first axis of its operand `name`, if it can be cut
    there; what is read otherwise as well has none."""
    (access, *more) = (each for each in nest.reads if each.tensor == name)
    product = nest.function == "mul" and nest.reduce == "sum" and nest.block == 1
    if more or not product or access not in nest.operands:
        return None
    loops = [d for d in range(len(nest.dims)) if access.index[0] == at(d)]
    alone = bool(loops) and not any(each.coefficient(loops[0]) for each in access.index[1:])
    return loops[0] if alone and all(cuts_alone(a, loops[0]) for a in nest.operands) else None


def cut_of(values: Array, access: Access, dim: int, cut: slice) -> Array:
    """What `access` reads of `values` at the positions `cut` of a loop that it is cut along."""
    return values[tuple(cut if each.coefficient(dim) else slice(None) for each in access.index)]


def cuts_alone(access: Access, dim: int) -> bool:
    """Whether `access` reads at each position of loop `dim` just that position of one axis."""
    along = [each for each in access.index if each.coefficient(dim)]
    return access.pad is None and all(each == at(dim) for each in along)


def run_nest(nest: Nest, tensors: Mapping[str, AnyArray], sums: ProductSums | None = None) -> None:
    """Compute `nest` into `tensors[nest.tensor]`, which is written in place.

    `tensors` are arrays as stored; `sums` keeps what is added up. Raises ValueError where a read
    outside a tensor has no pad.
    """
    sums = sums or ProductSums()
    tensors = sums.outlined(nest, tensors)
    out = tensors[nest.tensor]
    if out.size == 0:
        return
    if raw_move(nest, tensors[nest.operands[0].tensor].dtype, out.dtype):
        out[...] = over_loops(tensors[nest.operands[0].tensor], nest.operands[0], nest).copy()
        return
    if nest.reduce == "blocks":
        out[...] = to_blocks(rows_of_blocks(nest, tensors), NAMES[out.dtype])[..., 0]
        return
    nest, tensors = by_numbers(nest, tensors)
    with np.errstate(all="ignore"):
        if of_whole_numbers(nest, tensors):
            out[...] = exactly(nest, tensors)
            return
        values = _real_values(nest, tensors, sums)
    encode(values, code(nest.scale, nest.zero), out)
    if nest.table:
        out[...] = looked_up(out, *nest.table)


def rows_of_blocks(nest: Nest, tensors: Mapping[str, Array]) -> Array:
    """What `nest` makes blocks of: the numbers of each along the last axis."""
    (access,) = nest.operands
    return over_loops(real(tensors[access.tensor], access), access, nest)


def by_numbers(nest: Nest, tensors: Mapping[str, Array]) -> tuple[Nest, Mapping[str, Array]]:
    """`nest` and its operands with numbers in the place of blocks, over which it has a loop."""
    if nest.block == 1:
        return nest, tensors
    inner = at(len(nest.dims))
    reads = tuple(replace(each, index=(*each.index, inner)) for each in nest.operands)
    made = {each.tensor: from_blocks(tensors[each.tensor]) for each in nest.operands}
    dims = (*nest.dims, Dim("block", nest.block))
    return replace(nest, dims=dims, operands=reads, block=1), {**tensors, **made}


def raw_move(nest: Nest, source: np.dtype[np.generic], target: np.dtype[np.generic]) -> bool:
    """Whether bytes are copied unchanged."""
    access = nest.operands[0]
    plain = (access.scale, access.zero) == (nest.scale, nest.zero) and access.pad is None
    untouched = nest.bias is None and nest.multiplier is None and nest.reduce is None
    return nest.function == "move" and source == target and plain and nest.unclipped and untouched


def of_whole_numbers(nest: Nest, tensors: Mapping[str, Array]) -> bool:
    """Whether `nest` computes in integers exactly, given its operands and its result."""
    names = (nest.tensor, *(access.tensor for access in nest.operands))
    return computes_exactly(nest, {name: NAMES[tensors[name].dtype] for name in names})


def exactly(nest: Nest, tensors: Mapping[str, Array]) -> Array:
    """The result of an integer nest, as elements of its type."""
    function, kind = function_of(nest), tensors[nest.tensor].dtype
    raw = widened(*(tensors[access.tensor] for access in nest.operands))
    operands = [over_loops(a, access, nest) for a, access in zip(raw, nest.operands, strict=True)]
    values = function.meaning(exact=True)(*operands, *nest.parameters)
    if nest.reduce is not None:
        function = REDUCE[nest.reduce]
        values = function.apply(values, axis=tuple(range(nest.rank, len(nest.dims))))
    return stored(values, kind, nest.low, nest.high, wraps=function.wraps)


def _real_values(nest: Nest, tensors: Mapping[str, Array], sums: ProductSums) -> Array:
    """Real values of the result, before they are encoded."""
    if nest.function == "mul" and nest.reduce == "sum":
        values = _products(nest, tensors, sums)
    else:
        operands = [
            over_loops(real(tensors[access.tensor], access), access, nest)
            for access in nest.operands
        ]
        values = function_of(nest).apply(*operands, *nest.parameters)
        if nest.reduce is not None:
            axes = tuple(range(nest.rank, len(nest.dims)))
            values = REDUCE[nest.reduce].apply(values, axis=axes).astype(values.dtype)
    if nest.bias is not None:
        values = values + per_output(nest.bias, nest, tensors).astype(values.dtype)
    if nest.multiplier is not None:
        values = values.astype(np.float32) * per_output(nest.multiplier, nest, tensors)
    if nest.added is not None:
        if nest.middle:
            values = rounded_between(values, NAMES[tensors[nest.tensor].dtype], *nest.middle)
        values = values.astype(np.float32, copy=False) + per_output(nest.added, nest, tensors)
    if not nest.unclipped:
        values = np.clip(values, nest.low, nest.high)
    return values


def _products(nest: Nest, tensors: Mapping[str, Array], sums: ProductSums) -> Array:
    """The exact sum of products; fp32 of floats, fp64 of integers."""
    if sums.plain is None:
        sums.plain = contracted(nest, *sides_of(nest, tensors))
    whole = np.issubdtype(tensors[nest.operands[0].tensor].dtype, np.integer)
    exact = np.float64 if whole else np.float32
    factor = math.prod(access.scale or 1.0 for access in nest.operands)
    total: Array = sums.plain.astype(exact, copy=False)
    return total if factor == 1.0 else total * np.float32(factor)


def sides_of(nest: Nest, tensors: Mapping[str, Array]) -> list[Array]:
    """The operands of a sum of products, each over its own loops."""
    return [
        over_own_loops(centred(tensors[access.tensor], access), access, nest, position)
        for position, access in enumerate(nest.operands)
    ]


def contracted(nest: Nest, left: Array, right: Array) -> Array:
    """The sum of products of two operands over their own loops, in the shape of the result."""
    names = map(letters, within_loops(nest))
    return contraction(left, next(names), right, next(names), letters(range(nest.rank)))


def within_loops(nest: Nest) -> tuple[list[int], list[int]]:
    """The loops of each operand of a sum of products: each loop belongs to one of them, those of
    the reduction to both."""
    used = [{d for d in range(len(nest.dims)) if access.uses(d)} for access in nest.operands]
    neither = set(range(len(nest.dims))) - used[0] - used[1]
    inner = set(range(nest.rank, len(nest.dims)))
    return sorted(used[0] | inner | neither), sorted(used[1] | inner)


def over_own_loops(values: Array, access: Access, nest: Nest, position: int) -> Array:
    """`values` of operand `position` of a sum of products, over the loops of `within_loops`."""
    return at_first(over_loops(values, access, nest), within_loops(nest)[position])


def magnitudes(view: Array, kind: type) -> Array:
    """Absolute values of a view; an axis along which it repeats stays one."""
    return np.broadcast_to(np.abs(without_repeats(view).astype(kind, copy=False)), view.shape)


def letters(loops: Iterable[int]) -> str:
    """Names of loops for `contract`."""
    return "".join(chr(ord("a") + loop) for loop in loops)


def centred(raw: Array, access: Access) -> Array:
    """raw - zero; padded positions become the pad value in raw steps."""
    if np.issubdtype(raw.dtype, np.integer):
        values: Array = raw.astype(np.int32) - access.zero
    else:
        values = raw.astype(np.float32, copy=False)
    return values


def real(raw: Array, access: Access) -> Array:
    """Real values (fp32) of what an access reads."""
    return decode(raw, code(access.scale, access.zero))


def per_output(access: Access, nest: Nest, tensors: Mapping[str, Array]) -> Array:
    """A bias or multiplier over the output loops; integers as they are where they have no code."""
    raw = tensors[access.tensor]
    exact = np.issubdtype(raw.dtype, np.integer) and (access.scale, access.zero) == (None, 0)
    values = raw if exact else real(raw, access)
    return at_first(over_loops(values, access, nest), range(nest.rank))


def at_first(values: Array, loops: Container[int]) -> Array:
    """Values over all loops at the first position of each but `loops`."""
    first: Array = values[tuple(slice(None) if d in loops else 0 for d in range(values.ndim))]
    return first


def over_loops(values: Array, access: Access, nest: Nest) -> Array:
    """`values` at the positions of `access`: one axis per loop, none of them copied."""
    loops = [(0, dim.extent) for dim in nest.dims]
    box = needed(access, loops)
    first = [affine.constant for affine in access.index]
    if any(at < 0 or at + n > size for (at, n), size in zip(box, values.shape, strict=True)):
        if access.pad is None:
            said = f"{nest.tensor}: reads outside {access.tensor}, which has no pad value"
            raise ValueError(said)
        region = clipped(box, values.shape)
        pads = list(zip(region.before, region.after, strict=True))
        pad = _pad_value(access, values.dtype)
        inside = tuple(slice(start, start + size) for start, size in region.box)
        values = np.pad(values[inside], pads, constant_values=pad)
        first = [begin - start for begin, (start, _) in zip(first, box, strict=True)]
    strides = [0] * len(loops)
    for affine, stride in zip(access.index, values.strides, strict=True):
        for dim, factor in affine.terms:
            strides[dim] += factor * stride
    begin = tuple([slice(at, None) for at in first])
    return as_strided(values[begin], [n for _, n in loops], strides)


def _pad_value(access: Access, dtype: np.dtype[np.generic]) -> float:
    """The pad in the steps of `dtype`: real values, or integers that a product centred."""
    if np.issubdtype(dtype, np.integer) and access.pad and math.isinf(access.pad):
        low, high = limits(NAMES[np.dtype(dtype)])
        return low if access.pad < 0 else high
    if np.issubdtype(dtype, np.floating) or access.scale is None or not access.pad:
        return access.pad or 0.0
    return round(access.pad / access.scale)
