"""Capabilities of a machine for a nest: which engine, through which memory, in one pass or two.

The only place that decides whether a sum of products can be finished on write-back; cost model,
plan and emission ask here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from compiler.cost.work import depthwise_cycles, least_product_cycles
from compiler.schedule_ir.layer import Binding
from compiler.target.array_mapping import on_columns, roles
from compiler.target.product_tiles import lanes_take
from compiler.tensor_ir.arithmetic import computes_exactly
from compiler.tensor_ir.nest import Access, Nest, Tensor
from simmodel.arch.dtype import limits
from simmodel.arch.element_types import (
    WINOGRAD,
    accumulator_of,
    is_float,
    multiplies,
    per_block,
    product_type,
    size_of,
)
from simmodel.arch.matrix_cycles import tile_limits, whole_tiles
from simmodel.arch.record import Arch
from simmodel.isa.contraction import EXACT
from simmodel.isa.forms import cost_of, elementwise_form
from simmodel.isa.functions import JOINS, UNARY


def scalar_lacks(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> str | None:
    """Why the scalar unit cannot run `nest`, or None."""
    types = _types(nest, tensors, nest.reads)
    if is_float(wide := temporary_type(arch)):
        types.add(wide)  # of real values that stay within a layer
    missing = sorted(kind for kind in types if not arch.scalar.has(kind))
    if missing:
        return f"the scalar unit has no {', '.join(missing)}"
    if nest.bias is not None or nest.multiplier is not None:
        return "the scalar unit adds no bias and no multiplier in one go"
    if nest.reduce and roles(nest).taps:
        return "the scalar unit slides no windows"
    form = form_of(nest, "scalar")
    if not arch.isa.has(form):
        return f"{arch.name} has no {form}"
    rank, _ = arch.reach(form)
    if sum(dim.extent > 1 for dim in nest.dims[nest.rank :]) > rank:
        return f"{form} reduces at most {rank} dimensions"
    return None


def function_engine_lacks(
    nest: Nest, tensors: Mapping[str, Tensor], arch: Arch, name: str
) -> str | None:
    """Why the function engine `name` cannot run `nest`, or None."""
    engine, types = arch.function_engines[name], _types(nest, tensors, nest.reads)
    if is_float(wide := temporary_type(arch)):
        types.add(wide)  # of real values that stay within a layer
    missing = sorted(kind for kind in types if not engine.has(kind))
    if missing:
        return f"{name} has no {', '.join(missing)}"
    if "local" not in engine.reads or "local" not in engine.writes:
        return f"{name} does not compute in local memory"
    form = form_of(nest)
    if nest.bias is not None or nest.multiplier is not None or not engine.has_form(form):
        return f"{name} has no {form}"
    return None if arch.isa.has(form) else f"{arch.name} has no {form}"


def _types(nest: Nest, tensors: Mapping[str, Tensor], reads: Iterable[Access]) -> set[str]:
    """Element types of the result and of what is read, and the one to which the function rounds."""
    function = UNARY.get(nest.function)
    rounds = None if function is None else function.rounds_to
    names = (nest.tensor, *(access.tensor for access in reads))
    return {tensors[name].dtype for name in names} | ({rounds} if rounds is not None else set())


def scalar_takes(nest: Nest, arch: Arch) -> float:
    """Scalar-unit cycles for all elements of `nest`, without start-ups."""
    form = form_of(nest, "scalar")
    return math.prod(dim.extent for dim in nest.dims) * arch.factor(form, cost_of(form))


def array_of(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> str:
    """Name of the array for a sum of products: of those that can multiply such operands and, where
    it is looked up, finish the result, the one that takes the fewest cycles for the products."""
    if len(arch.arrays) < 2:
        return "matrix"

    def takes(name: str) -> float:
        seen = arch.with_array(name)
        kind = rate_type(nest, tensors, seen)
        grouped = nest.beside is not None and seen.matrix.depthwise
        only = {"table": nest.table, "add": nest.added}
        missing = any(done and name not in seen.matrix.writeback for name, done in only.items())
        if grouped or missing or not seen.matrix.peak(kind) or no_products(nest, tensors, seen):
            return math.inf
        kind = tensors[nest.operands[0].tensor].dtype if nest.depthwise else kind
        return array_takes(nest, kind, seen)

    return min(arch.arrays, key=takes)


def on_its_array(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> Arch:
    """The machine as a sum of products sees it: its array is the `matrix` there."""
    return arch.with_array(array_of(nest, tensors, arch))


def contraction_ways(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> tuple[Binding, ...]:
    """Engines for a sum of products over channels, the faster one first: the array, and the vector
    engine if the array does not multiply such types or the vector engine has products of its
    own."""
    array, vector = on_array(nest, tensors, arch), Binding("vector", direct=False)
    seen = arch.with_array(array.array)
    able = no_products(nest, tensors, seen) is None
    if able and not arch.vector.product_rows:
        return (array,)
    if vector_multiplies(nest, tensors, arch) is not None:
        return (array,) if arch.matrix.present else (vector,)
    if not able:
        return (vector,)
    kind = rate_type(nest, tensors, seen)
    quicker = array_takes(nest, kind, seen) <= lanes_take(nest, tensors, arch)
    return (array, vector) if quicker else (vector, array)


def no_products(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> str | None:
    """Why the array cannot multiply the operands of `nest`, or None."""
    left, right = (tensors[a.tensor].dtype for a in nest.operands)
    whole = arch.matrix.granularity != "tile" or tile_limits(arch.matrix)[0] % per_block(left) == 0
    if multiplies(left, right) and arch.matrix.peak(product_type(left)) > 0 and whole:
        return _sums_lack(nest, tensors) if mixed(nest, tensors) else None
    types = {tensors[access.tensor].dtype for access in nest.reads} | {tensors[nest.tensor].dtype}
    return f"no {'/'.join(sorted(types))} products on the matrix engine"


def mixed(nest: Nest, tensors: Mapping[str, Tensor]) -> bool:
    """Whether `nest` adds up products of 16-bit integers by 8-bit ones."""
    kinds = [product_type(tensors[access.tensor].dtype) for access in nest.operands]
    return nest.function == "mul" and nest.reduce == "sum" and kinds == ["int16", "int8"]


def _sums_lack(nest: Nest, tensors: Mapping[str, Tensor]) -> str | None:
    """Why int32 may not hold the sums of `nest`, whatever activations there are, or None. Ranges of
    products contain 0, so no partial sum is beyond the whole."""
    left, right = nest.operands
    weights = tensors[right.tensor].data
    if weights is None:
        return "sums of 16-bit numbers times computed 8-bit ones may exceed int32"
    inner = tuple(
        axis
        for axis, affine in enumerate(right.index)
        if any(dim >= nest.rank for dim, _ in affine.terms)
    )
    centred = np.asarray(weights, np.int64) - right.zero
    up, down = (np.clip(sign * centred, 0, None).sum(inner) for sign in (1, -1))
    low, high = (end - left.zero for end in limits(tensors[left.tensor].dtype))
    bias = None if nest.bias is None else tensors[nest.bias.tensor].data
    added = np.int64(0) if bias is None else np.asarray(bias, np.int64)
    least = (up * low - down * high + np.minimum(added, 0)).min()
    most = (up * high - down * low + np.maximum(added, 0)).max()
    if limits("int32")[0] <= least and most <= limits("int32")[1]:
        return None
    return f"sums of 16-bit numbers times 8-bit weights may reach {max(-least, most):.3g} > 2^31"


def vector_multiplies(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> str | None:
    """Why the vector engine cannot compute the sum of products of `nest`, or None."""
    kinds = [tensors[access.tensor].dtype for access in nest.operands]
    if len({product_type(kind) for kind in kinds}) > 1:
        return f"no products of {' and '.join(kinds)} on the vector engine"
    missing = sorted(kind for kind in kinds if not arch.vector.has(kind) or nest.block > 1)
    if missing:
        return f"the vector engine has no {', '.join(missing)}"
    if not arch.vector.product_rows:
        if not arch.isa.has("vector.ternary.fma"):
            return f"{arch.name} has no vector.ternary.fma"
        depth = math.prod(dim.extent for dim in nest.dims[nest.rank :])
        centred = any(access.zero for access in nest.operands)
        if not is_float(kinds[0]) and centred and depth * 2**16 > EXACT:
            return "multiply-adds of integers with a zero point are rounded on the vector engine"
    return vector_lacks(nest, tensors, arch, finishing=True)


def on_array(nest: Nest, tensors: dict[str, Tensor], arch: Arch) -> Binding:
    """The way of its array to run a sum of products: which engine finishes it, and where its sums
    are."""
    name = array_of(nest, tensors, arch)
    matrix = arch.with_array(name).matrix
    wanted, able = needs(nest, tensors), matrix.writeback
    raw = bool(wanted or able) or matrix.output == "local"
    direct = raw and wanted <= set(able)
    readable = direct or matrix.output in arch.vector.reads
    return Binding("matrix", direct, matrix.output if readable else "local", name)


def product_extents(nest: Nest) -> tuple[int, int, int, int, int]:
    """Pixels, columns, depth, kernel positions and batch of a sum of products, as the array takes
    it; of a depthwise one the batch is its channels."""
    found, extents = roles(nest), on_columns(nest, [dim.extent for dim in nest.dims])
    taps = tuple(tap.dim for tap in found.taps)
    pixels, columns, deep, positions, batch = (
        math.prod(extents[dim] for dim in dims)
        for dims in (found.rows, found.cols, found.inner, taps, found.batch)
    )
    return pixels, columns, deep, positions, batch


def rate_type(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> str:
    """The type whose rate is that of the products of `nest`: that of Winograd's where all of them
    take fewer cycles so."""
    left, right = (tensors[access.tensor] for access in nest.operands[:2])
    kind = product_type(left.dtype, right.multiplied)
    winograd = arch.matrix.winograd
    name = "" if winograd is None else f"{kind}_winograd{winograd.outputs}"
    if winograd is None or not arch.matrix.peak(name) or not slides_by_one(nest):
        return kind
    if winograd.stored:
        return name if any(affine.spare for affine in nest.operands[1].index) else kind
    return min((kind, name), key=lambda each: array_takes(nest, each, arch))


def slides_by_one(nest: Nest) -> bool:
    """Whether `nest` is a convolution of 3 x 3 positions that moves by 1."""
    taps = roles(nest).taps if nest.contraction else ()
    steps = [(nest.dims[tap.dim].extent, tap.stride, tap.dilation) for tap in taps]
    return steps == [(3, 1, 1)] * 2 and taps[0].row != taps[1].row


def array_takes(nest: Nest, dtype: str, arch: Arch) -> float:
    """Cycles of all units of the array for a sum of products; no tiles of one over channels
    undercut them."""
    pixels, columns, deep, positions, batch = product_extents(nest)
    units = arch.matrix.units
    if nest.depthwise:
        cycles = depthwise_cycles(arch, dtype, pixels, batch, positions, nest.sparse)
        return float(cycles / units)
    if dtype in WINOGRAD:
        y, x = (nest.dims[tap.row].extent for tap in roles(nest).taps)
        pixels = pixels // (y * x) * whole_tiles(dtype, y, x)
    return batch * least_product_cycles(arch, dtype, pixels, columns, deep * positions) / units


def needs(nest: Nest, tensors: dict[str, Tensor]) -> set[str]:
    """Write-back abilities needed to finish `nest` in one pass."""
    wanted = set()
    source, target = tensors[nest.operands[0].tensor].dtype, tensors[nest.tensor].dtype
    if nest.bias is not None:
        wanted.add("bias")
    if not nest.unclipped:
        wanted.add("clip")
    integer_result = not is_float(target) and target != accumulator_of(source)
    if nest.multiplier is not None or nest.scale is not None or integer_result:
        wanted.add("requantize")
    if nest.table:
        wanted.add("table")
    if nest.added is not None:
        wanted.add("add")
    return wanted


def vector_lacks(
    nest: Nest, tensors: Mapping[str, Tensor], arch: Arch, *, finishing: bool
) -> str | None:
    """Why the vector engine cannot run `nest`, or, `finishing`, the end of it; or None."""
    if nest.table:
        return "the array looks its results up"
    if nest.added is not None:
        return "the array adds another tensor to its results"
    wanted = _types(nest, tensors, nest.late if finishing else nest.reads)
    if finishing:
        wanted.add(accumulator_of(tensors[nest.operands[0].tensor].dtype))
    missing = sorted(name for name in wanted if not arch.vector.has(name))
    if missing:
        return f"the vector engine has no {', '.join(missing)}"
    if finishing:
        return None
    if mixed(nest, tensors):
        lacks = no_products(nest, tensors, on_its_array(nest, tensors, arch))
        return lacks or "the vector engine has no int16 by int8 products"
    if (form := _missing_form(nest, tensors, arch)) is not None:
        return f"{arch.name} has no {form}"
    if is_float(between_type(arch)) or not _has_real_intermediates(nest, tensors, arch):
        return None
    if step_between(nest, tensors) is None or not arch.vector.has("int32"):
        return "the vector engine has no type for real values between its instructions"
    return None


def _missing_form(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> str | None:
    """A form that the vector engine lacks for a nest's own function; None: it has all."""
    form = form_of(nest)
    if nest.reduce == "blocks" and adds_up_in_pieces(nest, tensors, arch):
        return f"{form} of a whole block"
    wanted = [form]
    if form.startswith("vector.window.") and not slides(nest, arch):
        join = f"vector.binary.{JOINS[str(nest.reduce)]}"
        wanted = ["vector.ternary.fma" if len(nest.operands) > 1 else join]
    return next((each for each in wanted if not arch.isa.has(each)), None)


def slides(nest: Nest, arch: Arch) -> bool:
    """Whether one vector instruction slides along a window of `nest`, whose weights then have to be
    the same at each place."""
    taps, weights = roles(nest).taps, nest.operands[1:]
    return arch.vector.window and not any(w.uses(tap.row) for w in weights for tap in taps)


def _has_real_intermediates(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> bool:
    """Whether real values pass between the vector instructions of one nest."""
    if all(access.scale is None for access in nest.operands):
        return False
    by_taps = nest.reduce is not None and bool(roles(nest).taps) and not slides(nest, arch)
    return by_taps or adds_up_in_pieces(nest, tensors, arch)


def step_between(nest: Nest, tensors: Mapping[str, Tensor]) -> float | None:
    """The step of integer intermediates between the vector instructions of `nest`: of encoded
    integers all sums and products are whole numbers of steps. None: they need not be, or int32 may
    overflow."""
    if nest.reduce not in ("sum", "max", "min") or nest.function not in ("move", "mul"):
        return None
    if nest.bias is not None or nest.multiplier is not None:
        return None
    kinds = [tensors[access.tensor].dtype for access in nest.operands]
    if any(map(is_float, kinds)):
        return None
    depth = math.prod(dim.extent for dim in nest.dims[nest.rank :])
    if depth * math.prod(2.0 ** (8 * size_of(kind)) for kind in kinds) > 2.0**31:
        return None
    return math.prod(1.0 if a.scale is None else a.scale for a in nest.operands)


def adds_up_in_pieces(nest: Nest, tensors: Mapping[str, Tensor], arch: Arch) -> bool:
    """Whether the vector engine needs several instructions to reduce to one element.

    Intermediate results may be neither rounded to the result's steps nor clipped. The low bits of
    integers may be added up as they are.
    """
    if nest.reduce is None or roles(nest).taps or joins_in_place(nest, tensors):
        return False
    extents = [dim.extent for dim in nest.dims[nest.rank :] if dim.extent > 1]
    rank, limit = arch.reach(form_of(nest))
    too_long = limit is not None and math.prod(extents) > limit
    return too_long or len(extents) > rank


def joins_in_place(nest: Nest, tensors: Mapping[str, Tensor]) -> bool:
    """Whether pieces of a reduction may be accumulated in the result's own buffer: intermediate
    results are there neither rounded further than the result nor clipped."""
    if nest.reduce in ("max", "min"):
        return True
    names = (nest.tensor, *(access.tensor for access in nest.operands))
    kinds = {name: tensors[name].dtype for name in names}
    return nest.unclipped and computes_exactly(nest, kinds)


def form_of(nest: Nest, engine: str = "vector") -> str:
    """The instruction form, of the vector engine or another one, that does most of a nest."""
    if nest.reduce is None:
        return elementwise_form(nest.function, len(nest.operands), engine)
    if not roles(nest).taps:
        return f"{engine}.reduce.{nest.reduce}"
    return f"vector.window.{'fma' if len(nest.operands) > 1 else nest.reduce}"


REALS = ("fp32", "fp16", "bf16")
"""Types of real values, the widest first."""


def temporary_type(arch: Arch) -> str:
    """Element type of real values within layers: the scalar unit's where the vector engine has
    none."""
    found = next((t for t in REALS if t in arch.scalar.types), "int32")
    return next((t for t in REALS if t in arch.vector.types), found)


def sums_apart(way: Binding) -> bool:
    """Whether one engine finishes sums while another goes on with those of the next tile."""
    return way.engine != way.finisher and not way.direct


AHEAD = 4
"""Most tiles whose sums wait for their finisher, unless more are asked for."""


def slots_of_sums(way: Binding, arch: Arch, size: Any, slots: int) -> Any:
    """Slots for `size` bytes of partial sums where others have `slots`, or arrays of both: one
    where two engines take turns or their memory has no room for more, as larger tiles of long
    reductions load less. In half of a memory of their own up to `AHEAD`: products go on while their
    finisher is busy with another layer."""
    if not sums_apart(way) or slots == 1:
        return 1
    if way.sums == "local":
        return slots  # whoever asks knows how much of it there is
    room = arch.memories.on_chip()[way.sums].size
    more = np.maximum(slots, np.minimum(AHEAD, room // 2 // np.maximum(size, 1)))
    return np.where(slots * size > room, 1, more)


def between_type(arch: Arch) -> str:
    """Element type of intermediate values between vector instructions: real, or whole numbers of
    steps (`step_between`)."""
    return next((t for t in REALS if t in arch.vector.types), "int32")


def real_type(arch: Arch, dtype: str) -> str:
    """Element type in memory of real values in a network of type `dtype`.

    Integer networks keep theirs as wide as the vector engine can read; where it reads none, only
    the host touches them.
    """
    if not dtype.startswith("int"):
        return dtype
    kind = temporary_type(arch)
    return kind if is_float(kind) else "fp32"
