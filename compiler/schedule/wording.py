"""Schedules in a few words, for reports: tile sizes, halo policies, splits over cores.

Loops carry the names of the dimensions that the operators have: `h 14 of 56, 4 tiles`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Schedule, Tiled, TileLoop
from compiler.target.array_mapping import Mapping, on_columns
from compiler.tensor_ir.nest import Nest
from simmodel.arch.record import Matrix

WHOLE = "all at once"


def sizes_text(schedule: Schedule) -> str:
    """The loops over the group's results; of a layer alone, its own."""
    if not schedule.loops and len(schedule.layers) == 1:
        return loops_text(schedule.layers[0])
    last = schedule.group.layers[-1]
    found = []
    for loop in schedule.loops:
        extent = max(part[loop.axis][1] for part in schedule.parts)
        found.append(f"{name_of(last, loop.axis)} {loop.size} of {extent}")
    return ", ".join(found) or WHOLE


def loops_text(tiled: Tiled) -> str:
    """The loops of a layer, outermost first."""
    return (
        ", ".join(
            f"{loop_name(tiled.layer, loop)} {loop.size} of {tiled.extent(loop)}"
            f"{' ahead' if loop.ahead else ''}"
            for loop in tiled.loops
        )
        or WHOLE
    )


def loop_name(layer: Layer, loop: TileLoop) -> str:
    """What the operator calls the dimension of a loop: of its sum, or of its result."""
    return layer.head.dims[loop.dim].name if loop.reduction else name_of(layer, loop.dim)


def name_of(layer: Layer, axis: int) -> str:
    """What the operator calls an axis of its result."""
    same = layer.head.shape == layer.result.shape
    return (layer.head if same else layer.nests[-1]).dims[axis].name


def array_text(lies: Mapping, nest: Nest, matrix: Matrix, sizes: Sequence[int]) -> str:
    """What lies along each side of the array, and how full that makes it.

    cols 64 o, depth 21 kw x c, then kh: 66 % of the array
    """
    taken = on_columns(nest, sizes)
    parts, full = [], math.prod(sizes) / math.prod(taken) / nest.sparse
    beside, sizes = math.prod(sizes[d] // taken[d] for d in lies.pixels), taken
    for side, loops in lies.on(matrix).items():
        extent, size = math.prod(sizes[d] for d in loops), getattr(matrix, side)
        full *= extent / (-(-extent // size) * size)
        moving = [nest.dims[d].name for d in loops if sizes[d] > 1]
        if moving:
            parts.append(f"{side} {extent} {' x '.join(moving)}")
    steps = [nest.dims[d].name for d in lies.steps if sizes[d] > 1]
    if steps:
        parts.append(f"then {' x '.join(steps)}")
    if beside > 1:
        parts.append(f"{beside} pixels side by side")
    if nest.sparse > 1:
        parts.append(f"1 of {nest.sparse} products counts")
    return f"{', '.join(parts)}: {full:.0%} of the array".replace("%", " %").lstrip(": ")


def halo_of(schedule: Schedule) -> str:
    """rolling, recompute, or none where there are no tiles in a row."""
    if not schedule.loops or len(schedule.layers) == 1:
        return "none"
    if all(loop.axis == 0 for loop in schedule.loops):
        return "none"
    return "rolling" if schedule.loops[-1].rolling else "recompute"


def cores_text(schedule: Schedule) -> str:
    """How many cores take part, and along which axes the result is split."""
    count = len(schedule.parts)
    if count == 1:
        return "1 core"
    last = schedule.group.layers[-1]
    pieces = (len(set(column)) for column in zip(*schedule.parts, strict=True))
    split = [f"{name_of(last, axis)} / {n}" for axis, n in enumerate(pieces) if n > 1]
    return f"{count} cores, {', '.join(split)}"
