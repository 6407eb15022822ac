"""How much is enough: where a curve has given nearly all that it gives.

The one idea: the knee is the least value from which on nothing larger is better by more than 5 %.
It asks for no model of the curve, holds for curves that rise again, and is a sentence an architect
can check: "256 KiB: no larger memory is more than 5 % quicker". Of a curve that is flat, or that
gets worse, the first value is enough; one whose last value still gains more has no knee.
"""

from __future__ import annotations

from collections.abc import Sequence

CLOSE = 0.05
"""As much worse than the best as counts as nearly as good."""


def knee(values: Sequence[float], more: bool = False, close: float = CLOSE) -> int | None:
    """Index of the knee of a curve whose `values` belong to ascending amounts of something, of a
    delay to ever shorter ones.

    Args:
        values: positive; of less than three nothing can be said.
        more: whether more of them is better.
        close: the share by which larger amounts may still be better.
    """
    if len(values) < 3 or min(values) <= 0:
        return None
    for index, value in enumerate(values):
        rest = values[index:]
        enough = value >= (1 - close) * max(rest) if more else value * (1 - close) <= min(rest)
        if enough:
            return index if index < len(values) - 1 else None
    return None
