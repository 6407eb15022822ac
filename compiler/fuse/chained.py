"""An order of the parts that runs down one branch after the other.

Groups are stretches of an order. A model lists branches side by side as often as one after the
other, and only in the second case are the layers of a branch neighbours.
"""

from __future__ import annotations

from compiler.fuse.dependence import Dependences, members


def chained(net: Dependences) -> tuple[int, ...]:
    """Positions in an order in which the parts can run: the newest that is ready comes next.

    before:
        x a1 b1 a2 b2 join      with a1 -> a2 -> join, b1 -> b2 -> join
    after:
        x a1 a2 b1 b2 join
    """
    missing = [needs.bit_count() for needs in net.before]
    ready = [position for position, count in enumerate(missing) if not count][::-1]
    found: list[int] = []
    while ready:
        position = ready.pop()
        found.append(position)
        freed: list[int] = []
        for user in members(net.after[position]):
            missing[user] -= 1
            if not missing[user]:
                freed.append(user)
        ready += freed[::-1]
    return tuple(found)
