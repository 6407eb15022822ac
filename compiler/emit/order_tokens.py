"""Whether a stream, executed strictly in its own order, never waits for a token: in closed form.

A stream that never does is free of deadlock with queues of any depth: the first instruction in the
stream that has not ended finds everything it needs, and nothing stands before it in its queue. So
instructions may be moved about freely as long as this holds and barriers keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simmodel.isa import Item, Loop

Balance = dict[str, tuple[int, int]]
"""Token -> what a stretch of code adds to its count, and how low the count falls inside (<= 0)."""


def balance(items: Iterable[Item]) -> Balance:
    """Balance of `items`, executed one after another."""
    result: Balance = {}
    for item in items:
        if isinstance(item, Loop):
            inner = balance(item.body)
            for name, (net, low) in inner.items():
                turns = (item.count - 1) * net
                _append(result, name, turns + net, low + min(0, turns))
            continue
        for name, count in item.waits:
            _append(result, name, -count, -count)
        for name, count in item.signals:
            _append(result, name, count, 0)
    return result


def _append(result: Balance, name: str, net: int, low: int) -> None:
    before, lowest = result.get(name, (0, 0))
    result[name] = before + net, min(lowest, before + low)


def plays(items: Iterable[Item], counts: Mapping[str, int]) -> bool:
    """Whether no count falls below 0 when `items` start with `counts`; other cores give what is not
    in it."""
    return not counts or all(
        counts[name] + low >= 0 for name, (_, low) in balance(items).items() if name in counts
    )


def after(items: Iterable[Item], counts: Mapping[str, int]) -> dict[str, int]:
    """Counts behind `items`."""
    result = dict(counts)
    if not result:  # a machine that interlocks
        return result
    for name, (net, _) in balance(items).items():
        if name in result:
            result[name] += net
    return result
