"""How far a field is changed: by a factor, as people say it, in steps that hardware has.

    near(8, 1.1)        9, 10, 12, 16
    near(12, 1 / 2)     6

The one idea: a step that no machine can take is no answer, so a factor is a wish; whole numbers
near it are offered until one is lawful. Steps of different size compare as elasticities.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

TWICE = 2.0
"""How many times as large a field becomes where nobody says otherwise."""
_MOST = 1000
"""Times as large; more is a slip."""
_AMOUNT = r"\d+(?:\.\d+)?(?:[eE]\+?\d+)?"
_STEP = re.compile(
    rf"\+?(?P<share>{_AMOUNT}) ?%|(?P<times>{_AMOUNT}) ?[xX]|[xX] ?(?P<before>{_AMOUNT})"
)


def factor_of(text: str) -> float:
    """How many times as large a field becomes: `10%` is 1.1, `1.5x` is 1.5. Raises ValueError."""
    match = _STEP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r}: expected a share to add or a factor, such as 10% or 1.5x")
    share, times = match["share"], match["times"] or match["before"]
    found = 1 + float(share) / 100 if share else float(times)
    if not 1 < found <= _MOST:
        raise ValueError(f"{text!r}: expected more than 0% or 1x, and at most {_MOST}x")
    return found


def near(own: int, factor: float, steps: int = 1) -> Iterator[int]:
    """Whole numbers near `factor` times `own`, at least `steps` away from it: the nearest, then
    multiples of ever larger divisors of `own`, which keep more of what makes it lawful: that banks
    divide a size, that a count is even or a power of two. `own` is above 0, as all of them are."""
    found = dict[int, None]()
    for divisor in _divisors(own):
        count, whole = round(own * factor / divisor), own // divisor
        count = max(count, whole + steps) if factor > 1 else min(count, whole - steps)
        if count > 0:
            found[count * divisor] = None
    yield from found


def _divisors(number: int) -> list[int]:
    """In rising order."""
    low = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return sorted({*low, *(number // each for each in low)})


def elasticity(result: float, field: float) -> float | None:
    """Per cent of a result for one per cent of a field, of how many times as large both became;
    None where that is no number."""
    if not (0 < result < math.inf and 0 < field < math.inf) or field == 1:
        return None
    return math.log(result) / math.log(field)
