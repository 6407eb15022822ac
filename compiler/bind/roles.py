"""What each loop of a sum of products is for: row, column, reduction, kernel position or batch.

rows      output loops that only the input has: pixels, tokens
cols      the output loop that only the weights have: output channels
batch     output loops that both have: heads, groups, channels of a depthwise product
taps      reduction loops that slide along a row loop: kernel positions
inner     the other reduction loop: input channels

Channels that a depthwise product computes together are in no role: see `Nest.beside`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from compiler.nest.ir import Access, Nest


@dataclass(frozen=True)
class Tap:
    """A kernel loop and the row loop that it slides along."""

    dim: int
    row: int
    stride: int
    dilation: int
    axis: int
    """Axis of the input tensor where they meet."""


@dataclass(frozen=True)
class Roles:
    """Loops of a nest by role; positions in the nest's dims."""

    rows: tuple[int, ...]
    cols: tuple[int, ...]
    batch: tuple[int, ...]
    taps: tuple[Tap, ...]
    inner: tuple[int, ...]
    y: int | None
    """Row loop that an instruction walks as its second: lines."""
    x: int | None
    """Row loop that an instruction walks as its last: columns."""

    @property
    def b(self) -> int | None:
        """Row loop that an instruction walks as its first, where there is a third: the batch."""
        others = [d for d in self.rows if d not in (self.y, self.x)]
        return others[-1] if others else None

    @property
    def col(self) -> int | None:
        """The column loop, where there is one."""
        return self.cols[0] if self.cols else None

    @property
    def k(self) -> int | None:
        """The reduction loop, where there is one."""
        return self.inner[0] if self.inner else None


@lru_cache(maxsize=4096)
def roles(nest: Nest) -> Roles:
    """Roles of the loops of a sum of products, or of a window (which has no weights)."""
    left = nest.operands[0]
    right = nest.operands[1] if len(nest.operands) > 1 else None
    out = range(nest.rank)
    taps = tuple(tap for dim in range(nest.rank, len(nest.dims)) for tap in _taps(left, dim))
    sliding = {tap.dim for tap in taps}
    inner = tuple(
        d for d in range(nest.rank, len(nest.dims)) if d not in sliding and d != nest.beside
    )
    free = tuple(d for d in out if not left.uses(d))
    cols = free[-1:]  # of others, broadcast on the left, each has a product of its own
    shared = tuple(d for d in out if left.uses(d) and right is not None and right.uses(d))
    batch = tuple(sorted((*shared, *free[:-1])))
    rows = tuple(d for d in out if d not in cols and d not in batch)
    y, x = _walked(nest, rows, taps)
    return Roles(rows, cols, batch, taps, inner, y, x)


def _taps(access: Access, dim: int) -> list[Tap]:
    found = []
    for axis, affine in enumerate(access.index):
        dilation = affine.coefficient(dim)
        others = [(d, c) for d, c in affine.terms if d != dim]
        if dilation and others:
            row, stride = others[0]
            found.append(Tap(dim, row, stride, dilation, axis))
    return found


def _walked(
    nest: Nest, rows: tuple[int, ...], taps: tuple[Tap, ...]
) -> tuple[int | None, int | None]:
    """The two row loops of one instruction: those with taps, else the last ones that move."""
    slid = tuple(dict.fromkeys(tap.row for tap in taps))
    if len(slid) == 2:
        return slid[0], slid[1]
    moving = [d for d in rows if nest.dims[d].extent > 1 and d not in slid]
    if len(slid) == 1:
        return None, slid[0]
    if len(moving) >= 2:
        return moving[-2], moving[-1]
    return None, (moving[-1] if moving else (rows[-1] if rows else None))
