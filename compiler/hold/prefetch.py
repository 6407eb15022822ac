"""How early what is loaded for each layer finds room, if only sums of bytes counted.

Loads come one after another in the order of their use. Each is there from some layer on until its
own is over, and takes its bytes in all layers between.
"""

from __future__ import annotations

from collections.abc import Sequence


def earliest(
    layers: Sequence[int],
    sizes: Sequence[float],
    free: Sequence[float],
    wishes: Sequence[int] | None = None,
) -> list[int]:
    """For each load, the first layer from which on it can be there.

    Args:
        layers: that use what is loaded, ascending.
        sizes: bytes of each load.
        free: bytes that each layer leaves.
        wishes: no load is there before this layer; None: any may be the first.
    """
    left = list(free)
    found: list[int] = []
    floor = 0
    for number, (layer, size) in enumerate(zip(layers, sizes, strict=True)):
        first = layer
        left[layer] -= size
        least = floor if wishes is None else max(floor, wishes[number])
        while first > least and left[first - 1] >= size:
            first -= 1
            left[first] -= size
        floor = max(floor, first)
        found.append(first)
    return found
