"""Tokens and barriers: one giver and one taker, balance, arrivals, and no wait without an end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simmodel.order import Ints, Timeline, TokenUse, barrier_uses
from simmodel.verify.finding import Finding

COUNT = 2**31
"""What a token holds, and what one instruction gives or takes, stays below it."""


def token_findings(line: Timeline) -> Iterator[Finding]:
    """Tokens with several givers or takers, and tokens that do not balance."""
    for use in line.token_uses:
        for role, occurrences in (("signalled", use.givers), ("awaited", use.takers)):
            queues = _queues(line, occurrences, use.core)
            if len(queues) > 1:
                message = f"token {use.name!r} is {role} by {' and '.join(queues)}"
                yield Finding("token-queues", message, use.core)
        yield from _balance(use)


def _queues(line: Timeline, occurrences: Ints, home: int) -> list[str]:
    """Engines, those of other cores than `home` with their core."""
    found = (line.queues[queue] for queue in np.unique(line.queue[occurrences]))
    return [engine if core == home else f"{engine} of core {core}" for core, engine in found]


def _balance(use: TokenUse) -> Iterator[Finding]:
    given, taken = int(use.given.sum()), int(use.taken.sum())
    if not 0 <= use.initial < COUNT:
        yield Finding("balance", f"token {use.name!r} starts with {use.initial}", use.core)
    if given != taken:
        message = f"token {use.name!r} is given {given} and taken {taken} times"
        yield Finding("balance", message, use.core)


def barrier_findings(line: Timeline) -> Iterator[Finding]:
    """Barriers whose arrivals differ from what is declared."""
    uses = barrier_uses(line)
    for name, declared in line.program.barriers.items():
        arrivals = len(uses[name][0]) if name in uses else 0
        if arrivals != declared:
            yield Finding("barrier", f"barrier {name!r}: {arrivals} arrivals, declared {declared}")
