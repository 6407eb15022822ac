"""Which words have to be fetched, against a buffer that is simulated word by word."""

from __future__ import annotations

import random
from collections import deque

import pytest
from programs import machine, nop, program

from simmodel.isa import Item, Loop
from simmodel.program.encoding import at_hand

WORD = 16


def random_items(dice: random.Random, depth: int) -> tuple[Item, ...]:
    items: list[Item] = []
    for number in range(dice.randrange(1, 4)):
        if depth and dice.random() < 0.5:
            body = random_items(dice, depth - 1)
            items.append(Loop(f"v{depth}{number}", dice.randrange(1, 5), body))
        else:
            items.append(nop(1))
    return tuple(items)


class Buffer:
    """Holds the words that were fetched last."""

    def __init__(self, words: int) -> None:
        self._held: deque[int] = deque(maxlen=words)
        self.found: list[bool] = []

    def run(self, items: tuple[Item, ...], first: int) -> int:
        """Walk a stream whose first word lies at `first`; where the next one lies."""
        for item in items:
            self.fetch(first, loop=isinstance(item, Loop))
            first += 1
            if isinstance(item, Loop):
                for _ in range(item.count):
                    end = self.run(item.body, first)
                first = end
        return first

    def fetch(self, word: int, loop: bool) -> None:
        held = word in self._held
        if not held:
            self._held.append(word)
        if not loop:
            self.found.append(held)


@pytest.mark.parametrize("seed", range(200))
def test_what_is_at_hand_is_what_a_buffer_holds(seed: int) -> None:
    dice = random.Random(seed)
    items, words = random_items(dice, 3), dice.randrange(1, 12)
    arch = machine(front_end={"loop_buffer": words * WORD})
    made = program(items)
    buffer = Buffer(words)
    buffer.run(items, 0)
    sites = made.expanded[0]
    flags = at_hand(items, sites, arch)
    # Of sites that repeat only the first turn is told.
    turns = [sites.sites[index].times for index in sites.order]
    ends = [sum(turns[:n]) for n in range(len(turns))]
    assert flags.tolist() == [buffer.found[n] for n in ends]


def test_nothing_is_at_hand_without_a_buffer() -> None:
    items = (Loop("i", 3, (nop(1), nop(1))),)
    assert not at_hand(items, program(items).expanded[0], machine()).any()
