"""A row that is longer than an instruction's longest is cut: where, for an engine to choose from.

    1000 by at most 256                4 of 250; or 3 of 256 and a rest of 232
    1000 walked as rows of its own     one of 1000 as 4 rows of 250; or 768 as 3 rows, and 232

Each cut is the size of a piece; what is left behind the last whole one is a nest of its own, which
is covered in whatever way suits it.
"""

from __future__ import annotations

from collections.abc import Iterator


def cuts(extent: int, longest: int, grain: int, *, spare: bool) -> Iterator[int]:
    """Sizes of the pieces into which a row of `extent` may be cut.

    Args:
        extent: of the row.
        longest: elements along the innermost dimension of an instruction.
        grain: pieces begin at multiples of it.
        spare: whether the engine has a dimension left, to walk a piece as several rows.
    """
    if extent <= longest:
        yield extent
        return
    most = longest // grain * grain
    if spare:
        yield extent
        yield extent // most * most
    yield most
    even = -(-extent // most)
    if extent % even == 0 and extent // even % grain == 0:
        yield extent // even
