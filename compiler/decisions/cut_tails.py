"""Tails that had better be layers of their own: what they read takes room from a product's tiles.

The operators of a layer share its tiles. A residual that is added there needs slots for what it
reads and for its result, so tiles of the product are smaller and its operands are loaded more
often. Where that costs more than to store sums and to load them again, the tail is cut off;
whether it shares tiles with other layers is then decided like that of any layer, so that both
pieces take no longer than they do alone:

    {product; add} 700 k cycles  ->  {product} 626 k  {add} 68 k
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.decisions.group_costs import GroupCosts
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.nest import HostNode

WORTH = 1.005
"""A tail is cut off where the layer takes so many times what both take apart: what is nearly equal
stays together, as sums that are stored take DRAM from others."""


def without_tails(
    parts: Sequence[Layer | HostNode], costs: GroupCosts
) -> tuple[Layer | HostNode, ...]:
    """`parts`, of which no product has a tail that costs more than it saves.

    Both pieces have the number of the layer, as they have where a schedule by hand names them.
    """
    found: list[Layer | HostNode] = []
    for part in parts:
        found += [part] if isinstance(part, HostNode) else _pieces(part, costs)
    return tuple(found)


def _pieces(layer: Layer, costs: GroupCosts) -> tuple[Layer, ...]:
    """`layer`, or its product and the tail behind it."""
    at = _first_residual(layer)
    if at is None:
        return (layer,)
    apart = layer.part(0, at), layer.part(at, len(layer.nests) - at)
    whole, *groups = (Group((part,), (part.result.name,)) for part in (layer, *apart))
    together = costs.price(whole)
    # Most often bounds say already that nothing is to be won, and prices take long.
    if together <= WORTH * sum(map(costs.lower_bound, groups)):
        return (layer,)
    return apart if together > WORTH * sum(map(costs.price, groups)) else (layer,)


def _first_residual(layer: Layer) -> int | None:
    """The first operator behind a product that reads what another layer makes, as large as its
    own result."""
    if not layer.product:
        return None
    for position, nest in enumerate(layer.nests[1:], 1):
        whole = nest.composite is not None and nest.composite == layer.nests[position - 1].composite
        read = [layer.tensors[a.tensor] for a in nest.operands if a.tensor not in layer.inside]
        size = layer.tensors[nest.tensor].elements
        if not whole and any(t.data is None and t.elements >= size for t in read):
            return position
    return None
