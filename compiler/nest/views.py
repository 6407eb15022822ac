"""Reading a view as what it is a view of: the same elements under the other tensor's index.

    view[n, c, h, w] = base[n, c, 2 h, 2 w]      x = view[.., i, ..]   ->   x = base[.., 2 i, ..]

A view is only strides and an offset; which dimension of the base each of its dimensions walks
follows from these. What a view merges or splits has no such reading.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.nest.ir import Access, Affine, Nest, Tensor

Walk = tuple[int, int, int]
"""Of a dimension of the base: dimension of the view that walks it or -1, step, first position."""


def walks(view: Tensor, base: Tensor) -> tuple[Walk, ...] | None:
    """How `view` walks the dimensions of `base`; None where not each by at most one of its own."""
    if view.storage.buffer != base.storage.buffer or view.dtype != base.dtype:
        return None
    if view.storage.registers != base.storage.registers:
        return None  # it begins elsewhere in the base at another length
    rest = view.storage.offset - base.storage.offset
    if rest < 0:
        return None
    starts = [0] * len(base.shape)
    order = sorted(range(len(base.shape)), key=lambda d: -base.storage.strides[d])
    for d in order:
        if base.shape[d] > 1 and base.storage.strides[d] > 0:
            starts[d] = min(rest // base.storage.strides[d], base.shape[d] - 1)
            rest -= starts[d] * base.storage.strides[d]
    if rest:
        return None
    found = [(-1, 0, start) for start in starts]
    for v, extent in enumerate(view.shape):
        if extent == 1:
            continue
        along = _walked(v, view, base, starts, order)
        if along is None or found[along][0] != -1:
            return None
        step = view.storage.strides[v] // base.storage.strides[along]
        found[along] = (v, step, starts[along])
    return tuple(found)


def _walked(v: int, view: Tensor, base: Tensor, starts: list[int], order: list[int]) -> int | None:
    """The dimension of `base` along which dimension `v` of the view runs."""
    stride, extent = view.storage.strides[v], view.shape[v]
    for d in order:
        unit = base.storage.strides[d]
        if base.shape[d] == 1 or unit <= 0 or stride < unit or stride % unit:
            continue
        last = starts[d] + (extent - 1) * (stride // unit)
        return d if last < base.shape[d] else None
    return None


def through(access: Access, view: Tensor, base: Tensor) -> Access | None:
    """`access` to a view as an access to its base; None where there is none."""
    found = walks(view, base)
    if found is None:
        return None
    if access.pad is not None:
        # What lies outside the view must lie outside the base, on the same side.
        alike = all(
            walk == ((d, 1, 0) if extent > 1 else (-1, 0, 0))
            for d, (walk, extent) in enumerate(zip(found, base.shape, strict=True))
        )
        same = alike and view.shape == base.shape
        return replace(access, tensor=base.name) if same else None
    index = []
    units = _units(view, base, found)
    for d, (v, step, start) in enumerate(found):
        if v < 0:
            # Loops of one turn keep their roles.
            terms = access.index[units[d]].terms if d in units else ()
            index.append(Affine(terms, start))
            continue
        inner = access.index[v]
        terms = tuple((dim, factor * step) for dim, factor in inner.terms)
        registers = tuple((name, factor * step) for name, factor in inner.registers)
        index.append(Affine(terms, inner.constant * step + start, registers))
    return replace(access, tensor=base.name, index=tuple(index))


def _units(view: Tensor, base: Tensor, found: tuple[Walk, ...]) -> dict[int, int]:
    """Dimension of the base that nothing walks -> the view's dimension of extent 1 it stands for.

    In tensors of equal rank that is its namesake; where dimensions of extent 1 were added or left
    out, the first that is free on both sides, and so on.
    """
    single = [v for v, extent in enumerate(view.shape) if extent == 1]
    if len(view.shape) == len(base.shape):
        return {v: v for v in single}
    free = [d for d, (v, _, _) in enumerate(found) if v < 0]
    return dict(zip(free, single, strict=False))


def _loops(access: Access) -> set[int]:
    return {dim for affine in access.index for dim, _ in affine.terms}


def reading(nest: Nest, view: Tensor, base: Tensor) -> Nest | None:
    """`nest` with every read of `view` as one of `base`."""

    def changed(access: Access | None) -> Access | None:
        if access is None or access.tensor != view.name:
            return access
        found = through(access, view, base)
        if nest.reduce is not None and found is not None and _loops(found) != _loops(access):
            return None  # what a loop of a sum is for shows in who uses it
        return found

    operands = tuple(changed(access) for access in nest.operands)
    bias, multiplier = changed(nest.bias), changed(nest.multiplier)
    lost = (nest.bias is not None and bias is None) or (
        nest.multiplier is not None and multiplier is None
    )
    kept = tuple(access for access in operands if access is not None)
    if lost or len(kept) < len(operands):
        return None
    return replace(nest, operands=kept, bias=bias, multiplier=multiplier)


def starts_in(part: Tensor, whole: Tensor) -> tuple[int, ...] | None:
    """Where `part`, a box of `whole` in the same buffer, begins in it; None where it is no box."""
    found = walks(part, whole)
    if found is None or len(part.shape) != len(whole.shape):
        return None
    along = ((v, step) for v, step, _ in found)
    same = (
        walk == ((axis, 1) if extent > 1 else (-1, 0))
        for axis, (walk, extent) in enumerate(zip(along, part.shape, strict=True))
    )
    return tuple(start for _, _, start in found) if all(same) else None
