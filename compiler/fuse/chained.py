"""An order of the parts that runs down one branch after the other.

Groups are stretches of an order. A model lists branches side by side as often as one after the
other, and only in the second case are the layers of a branch neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.fuse.dependence import Dependences, Ties, members, union


def chained(net: Ties) -> tuple[int, ...]:
    """Positions in an order in which the parts can run: the newest that is ready comes next.

    before:
        x a1 b1 a2 b2 join      with a1 -> a2 -> join, b1 -> b2 -> join
    after:
        x a1 a2 b1 b2 join
    """
    return newest_first(net.before)


def rechained(net: Dependences, groups: Sequence[int], late: bool) -> tuple[int, ...]:
    """The same with the parts of each of `groups` side by side; `late`: last branch first.

    The groups are disjoint, have all parts, and stand in an order in which they can run.
    """
    home = {part: index for index, group in enumerate(groups) for part in members(group)}
    needs = [union(net.before[i] for i in members(group)) & ~group for group in groups]
    before = [union(1 << home[part] for part in members(need)) for need in needs]
    return tuple(i for index in newest_first(before, late) for i in members(groups[index]))


def newest_first(before: Sequence[int], late: bool = False) -> tuple[int, ...]:
    """Positions so that each stands behind those in its `before`, and next to the newest."""
    step = 1 if late else -1
    missing = [needs.bit_count() for needs in before]
    users: list[list[int]] = [[] for _ in before]
    for user, needs in enumerate(before):
        for position in members(needs):
            users[position].append(user)
    ready = [position for position, count in enumerate(missing) if not count][::step]
    found: list[int] = []
    while ready:
        position = ready.pop()
        found.append(position)
        freed: list[int] = []
        for user in users[position]:
            missing[user] -= 1
            if not missing[user]:
                freed.append(user)
        ready += freed[::step]
    return tuple(found)
