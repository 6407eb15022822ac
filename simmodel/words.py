"""Instruction words: neighbours in a stream that are fetched and issued as one.

    bundle 3:   [load  matrix  vector] [load  store] [load] ...

A word holds operations of different engines that follow each other in straight-line code, greedily,
up to `front_end.bundle` of them; a loop begins and ends words. With a bundle of 1 each instruction
is a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simmodel.expand import Site
from simmodel.isa import Instruction, Item, Loop


class Packer:
    """The word that is being filled."""

    def __init__(self, bundle: int) -> None:
        self.bundle = bundle
        self._engines: set[str] = set()

    def joins(self, instruction: Instruction) -> bool:
        """Put the next instruction of straight-line code into a word; whether it is the one before
        its own."""
        beside = 0 < len(self._engines) < self.bundle and instruction.engine not in self._engines
        self._engines = {*self._engines, instruction.engine} if beside else {instruction.engine}
        return beside

    def end(self) -> None:
        """End the word: straight-line code is over."""
        self._engines = set()


def joined(sites: Sequence[Site], bundle: int) -> list[bool]:
    """Of each site of a stream, whether it is in the word of the one before it."""
    packer, found = Packer(bundle), []
    around: object = ()
    for site in sites:
        if site.repeats or site.loops != around:
            packer.end()
        around = site.loops
        found.append(packer.joins(site.instruction))
        if site.repeats:
            packer.end()
    return found


def words(items: Iterable[Item], bundle: int) -> int:
    """Words of a stream; a loop counts as one beside those in it."""
    return _words(items, Packer(bundle))


def _words(items: Iterable[Item], packer: Packer) -> int:
    count = 0
    for item in items:
        if isinstance(item, Loop):
            count += 1 + _words(item.body, Packer(packer.bundle))
            packer.end()
        else:
            count += not packer.joins(item)
    return count
