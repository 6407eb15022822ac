"""Which forms do the work of a layer, which loops they walk themselves, and what was rejected.

    fc: engine             matrix                  3,136    not vector 12,544, host 90,211
    fc: vector.unary.move  49 x [512]                294    not 2 x 49 x [256] 588

The one idea: the same sums are asked that decided, of the largest tile that was emitted; so a
reader sees what the clock of the instructions said of each way, and by how much it lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import compiler.target.machine as targets
from compiler.cost.overlap import host_cycles
from compiler.cost.work import array_work
from compiler.explain.rejected import RejectedOption, cheaper
from compiler.geometry.boxes import needs
from compiler.plan.make_plan import LayerPlan, symbolic
from compiler.schedule.wording import array_text
from compiler.schedule_ir.layer import Binding, Layer
from compiler.target.array_mapping import Mapping as Lies
from compiler.target.array_mapping import joining, mapping, on_columns, pixel_blocks, roles
from compiler.target.bind import depthwise_each
from compiler.target.loops.cover import Cover, CoverProblem, covers, shown
from compiler.target.product_tiles import lanes_take
from compiler.target.vector import VectorWork
from compiler.tensor_ir.nest import HostNode, Nest
from simmodel.arch.element_types import WINOGRAD
from simmodel.arch.record import Arch

MOST = 4
"""Ways beside the one that was taken that are named, the quickest first."""

Works = Mapping[tuple[int, str], tuple[CoverProblem, Cover]]
"""By origin and form, as of `compiler.codegen.legalize.Names`."""


@dataclass(frozen=True)
class FormReport:
    """What one operator was given to, or how one form walks its loops."""

    node: str
    form: str
    """`engine`, with the price of the whole operator; or a form, with that of its largest tile."""
    taken: str
    """The engine; or loops around instructions, in brackets what one walks."""
    cycles: float
    """Of one core, were operands at hand."""
    rejected: tuple[RejectedOption, ...]
    """Quickest first, then what is impossible."""


def forms_of(
    plan: LayerPlan, first: int, works: Works, arch: Arch
) -> tuple[tuple[FormReport, ...], str]:
    """Engines, forms and loops of all operators of a layer, and how the largest tile of each of its
    products lies on the array; `first`: origin of its first operator in the program."""
    layer, made, arrays = plan.tiled.layer, list[FormReport](), list[str]()
    extents = needs(layer, *symbolic(plan.tiled)).loops
    for compute in plan.computes:
        nest, sizes = compute.nest, [span.size for span in extents[compute.position]]
        made.append(engine_report(nest, layer, compute.binding, arch))
        seen = arch.with_array(compute.binding.array)
        if compute.binding.engine == "matrix" and nest.depthwise and seen.matrix.depthwise:
            cycles, *_ = depthwise_each(nest, layer.tensors, arch)
            walks = f"[{' x '.join(str(n) for n in sizes if n > 1)}]"
            made.append(FormReport(nest.origin, "matrix.depthwise", walks, cycles, ()))
        elif compute.binding.engine == "matrix":
            depth = 1 if (k := roles(nest).k) is None else sizes[k]
            kind = targets.rate_type(nest, layer.tensors, seen)
            lies = mapping(nest, seen.matrix, kind, depth, (compute.steps[0], compute.steps[1]))
            one = "one channel after another, " if nest.depthwise and nest.beside is None else ""
            arrays.append(one + array_text(lies, nest, seen.matrix, sizes))
            made.append(_on_array(nest, lies, sizes, kind, seen))
        elif targets.form_of(nest).startswith("vector.window") and targets.slides(nest, arch):
            around = layer.tensors, arch, compute.binding, layer.inside, sizes[: nest.rank]
            kernel = " x ".join(str(dim.extent) for dim in nest.dims[nest.rank :])
            cycles = float(VectorWork(nest, *around).cycles)  # in one instruction, as it always is
            made.append(
                FormReport(nest.origin, targets.form_of(nest), f"[all of {kernel}]", cycles, ())
            )
        for (origin, form), (work, cover) in works.items():
            if origin == first + compute.position:
                made.append(_form_report(nest, form, work, cover))
    return tuple(made), "; ".join(arrays)


def engine_report(nest: Nest, layer: Layer, way: Binding, arch: Arch) -> FormReport:
    """Which engine has an operator, and what the others would take for all of it."""
    priced = list(_engines(nest, layer, arch))
    own = next(cycles for name, cycles, _ in priced if name in (way.finisher, way.adder))
    cycles = math.nan if own is None else own
    others = []
    for name, takes, why in priced:
        if takes and cheaper(takes, cycles):
            why = why or "taken only where no other engine can"
        if name != way.adder:
            others.append(RejectedOption(name, takes, cycles, why))
    finished = ", finished by vector" if way.engine == "matrix" and not way.direct else ""
    return FormReport(nest.origin, "engine", f"{way.adder}{finished}", cycles, _sorted(others))


def _engines(nest: Nest, layer: Layer, arch: Arch) -> Iterator[tuple[str, float | None, str]]:
    """Each engine, what it takes for all of `nest`, or why it cannot run it."""
    tensors = layer.tensors
    if nest.depthwise:
        engines = targets.array_of(nest, tensors, arch), "vector"
        names = zip(engines, depthwise_each(nest, tensors, arch), strict=True)
        yield from ((n, c, "") if c < math.inf else (n, None, "no such products") for n, c in names)
    elif nest.contraction:
        for name in arch.arrays or ("matrix",):
            seen = arch.with_array(name)
            why = targets.no_products(nest, tensors, seen)
            taken = (
                None
                if why
                else targets.array_takes(nest, targets.rate_type(nest, tensors, seen), seen)
            )
            yield name, taken, why or ""
        why = targets.vector_multiplies(nest, tensors, arch)
        yield "vector", None if why else lanes_take(nest, tensors, arch), why or ""
    else:
        why = targets.vector_lacks(nest, tensors, arch, finishing=False)
        work = VectorWork(nest, tensors, arch, Binding("vector"), layer.inside, nest.shape)
        yield "vector", None if why else float(work.cycles), why or ""
        for name in arch.function_engines:
            why = targets.function_engine_lacks(nest, tensors, arch, name)
            yield name, None if why else float(replace(work, way=Binding(name)).cycles), why or ""
    if arch.scalar.types and not (nest.contraction or nest.depthwise):
        why = targets.scalar_lacks(nest, tensors, arch)
        yield "scalar", None if why else targets.scalar_takes(nest, arch), why or ""
    inputs = [a.tensor for a in nest.reads if tensors[a.tensor].data is None]
    operations = 2 * nest.macs or math.prod(dim.extent for dim in nest.dims)
    call = HostNode(tuple(inputs), (nest.tensor,), b"", nest.origin, nest.kind, "", operations)
    yield "host", float(host_cycles(call, tensors, arch)), ""


def _form_report(nest: Nest, form: str, work: CoverProblem, taken: Cover) -> FormReport:
    """Which loops instructions of one form walk, and all ways in which they could."""
    against = max(taken.cycles, taken.issued)
    others = {
        shown(cover, work.loops): max(cover.cycles, cover.issued)
        for cover in sorted(covers(*work), key=lambda cover: cover.rank, reverse=True)
    }
    own = shown(taken, work.loops)
    found = [
        RejectedOption(text, cycles, against) for text, cycles in others.items() if text != own
    ]
    return FormReport(nest.origin, form, own, against, _sorted(found))


def _on_array(nest: Nest, lies: Lies, sizes: list[int], kind: str, arch: Arch) -> FormReport:
    """What one instruction of the array takes, and whether kernel positions join its reduction."""
    found, others = roles(nest), []
    taps = tuple(tap.dim for tap in found.taps)
    form, text, cycles = _products(nest, lies, sizes, kind, arch)
    tap = next(iter(joining(nest, arch.matrix)), None)
    if tap is not None:
        apart = Lies(found.rows, found.cols, found.inner, taps)
        rest = tuple(dim for dim in taps if dim != tap.dim)
        together = Lies(found.rows, found.cols, (tap.dim, *found.inner), rest, tap.dim)
        other = together if lies.joined is None else apart
        _, what, takes = _products(nest, other, sizes, kind, arch)
        why = "operands do not lie side by side" if cheaper(takes, cycles) else ""
        others += [RejectedOption(what, takes, cycles, why)] if what != text else []
    return FormReport(nest.origin, form, text, cycles, tuple(others))


def _products(
    nest: Nest, lies: Lies, sizes: list[int], kind: str, arch: Arch
) -> tuple[str, str, float]:
    """Form, loops and cycles of a tile that lies so on the array."""
    matrix, sizes = arch.matrix, on_columns(nest, sizes)

    def extent(dims: tuple[int, ...]) -> int:
        return math.prod(sizes[dim] for dim in dims)

    found = roles(nest)
    walked = [sizes[d] if d is not None else 1 for d in (found.b, found.y, found.x)]
    pixels, count = pixel_blocks(matrix.max_pixels, walked, kind)
    columns, deep, steps = (extent(dims) for dims in (lies.columns, lies.depth, lies.steps))
    batch = math.ceil(extent(found.batch) / nest.sparse)
    work = array_work(arch, kind, (pixels, count * batch), columns, deep, steps)
    form = "matrix.tile" if matrix.granularity == "tile" else "matrix.gemm"
    form = "matrix.conv" if matrix.granularity == "conv" and found.taps else form
    form = "matrix.winograd" if kind in WINOGRAD else form
    pixels, columns, deep, steps = work.extents
    walks = [pixels, columns, deep * (steps if matrix.im2col else 1)]
    around = [str(work.count)] if work.count > 1 else []
    text = " x ".join([*around, f"[{' x '.join(map(str, walks))}]"])
    return form, text, work.cycles / matrix.units


def _sorted(options: list[RejectedOption]) -> tuple[RejectedOption, ...]:
    """The quickest, and all that is impossible."""
    able = sorted((o for o in options if o.cycles is not None), key=lambda o: o.cycles or 0.0)
    return (*able[:MOST], *(o for o in options if o.cycles is None))
