"""Tokens and barriers of a run: their levels over time, and who waited for whom.

The one idea: tokens are taken in the order in which they are given, so the n-th that is taken,
after those that were there from the start, was given by whoever gave the n-th.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from simmodel.expand import Site
from simmodel.isa import Arrive, Await
from simmodel.program import Program
from simmodel.trace import Counts, Spans

Side = list[tuple[Counts, int]]
"""Spans, by index, and how many tokens each of them gives or takes."""


@dataclass
class Token:
    """What happens to one counting semaphore, or to one barrier."""

    core: int
    """-1 for a barrier."""
    name: str
    initial: int = 0
    needed: int = 0
    """Arrivals that open it, where it is a barrier."""
    late: int = 0
    """Cycles from a giver's end until the token is there: of one that another core gives."""
    givers: Side = field(default_factory=list)
    takers: Side = field(default_factory=list)


def tokens_of(
    program: Program, spans: Spans, sites: Sequence[Sequence[Site]], late: int = 0
) -> list[Token]:
    """All tokens and barriers that were used in the run.

    Args:
        sites: of each core.
        late: cycles until a core knows of a token that another gives it.
    """
    found: dict[tuple[int, str], Token] = {}
    for core, counts in enumerate(program.tokens):
        for name, initial in counts.items():
            found[core, name] = Token(core, name, initial)
    for name, needed in program.barriers.items():
        found[-1, name] = Token(-1, name, needed=needed)
    for core, number, own in _by_site(spans):
        instruction = sites[core][number].instruction
        for name, count in instruction.signals:
            found[core, name].givers.append((own, count))
        for name, count, cores in instruction.notifies:
            for target in cores:
                found[target, name].givers.append((own, count))
                found[target, name].late = late if target != core else 0
        for name, count in instruction.waits:
            found[core, name].takers.append((own, count))
        if isinstance(instruction, Arrive):
            found[-1, instruction.barrier].givers.append((own, 1))
        if isinstance(instruction, Await):
            found[-1, instruction.barrier].takers.append((own, 1))
    return [token for token in found.values() if token.givers or token.takers]


def _by_site(spans: Spans) -> Iterator[tuple[int, int, Counts]]:
    """Core and number of each site, and its spans in order of time."""
    order = np.lexsort((spans.site, spans.stream))
    stream, site = spans.stream[order], spans.site[order]
    cuts = np.flatnonzero((np.diff(stream) != 0) | (np.diff(site) != 0)) + 1
    for own in np.split(order, cuts) if len(order) else ():
        yield int(spans.stream[own[0]]), int(spans.site[own[0]]), own


def _joined(side: Side, times: Counts) -> tuple[Counts, Counts]:
    """Spans in order of `times`, and how many each gives or takes."""
    if not side:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    who = np.concatenate([own for own, _ in side])
    counts = np.repeat([count for _, count in side], [len(own) for own, _ in side])
    order = np.lexsort((who, times[who]))
    return who[order], counts[order]


def token_changes(token: Token, spans: Spans) -> tuple[Counts, Counts]:
    """Cycles at which a token's level changes, and by how much."""
    givers, given = _joined(token.givers, spans.end)
    takers, taken = _joined(token.takers, spans.start)
    cycles = np.concatenate((spans.end[givers] + token.late, spans.start[takers]))
    return cycles, np.concatenate((given, -taken))


def dependences(token: Token, spans: Spans) -> Counts:
    """Rows of giver and taker, as indices of spans: whose end let whom start."""
    givers, given = _joined(token.givers, spans.end)
    takers, taken = _joined(token.takers, spans.start)
    if token.core < 0:
        wanted = np.full(len(takers), token.needed)
    else:
        wanted = np.cumsum(taken) - token.initial
    position = np.searchsorted(np.cumsum(given), wanted)
    known = (wanted > 0) & (position < len(givers))
    return np.stack((givers[position[known]], takers[known]), axis=1)
