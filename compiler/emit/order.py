"""The order in which a core's instructions are issued: loads ahead of the work that hides them.

One front end issues in order into finite queues, so a long run of products keeps the loads behind
it from being issued. What an engine does in which order stays as it is; between engines only tokens
and barriers count, and where the hardware interlocks, operands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from compiler.emit.order_access import Accesses
from compiler.emit.order_atoms import Atom, Pricer, apart, engines, heard_of, users_of
from compiler.emit.order_clock import Clock, issued_by
from compiler.emit.order_loops import Choice, LoopOrder
from compiler.emit.order_tokens import after, plays
from compiler.options import Amount, Count, Omittable, Within
from simmodel.arch import Arch
from simmodel.isa import Item, Loop
from simmodel.region import Register


@dataclass(frozen=True)
class OrderInstructions(Omittable):
    """Issues what starts first, first.

    Before, and after with two slots for the operands:

        for t: load t; product t        load 0; for t: load t + 1, product t; product n
    """

    distance: Annotated[int, Within(0, 8)] = 2
    """Most iterations that one instruction of a loop is issued ahead of another."""
    growth: Amount = 2048
    """Most instructions and loops that rotating one loop may add to the stream."""
    window: Annotated[int, Within(2, 64)] = 6
    """Iterations of each loop that are played to judge an order."""
    pays: Count = 200
    """A copy of a loop's body has to win one part in so many of the time of what is played."""
    flying: Annotated[int, Within(2)] = 256
    """Most accesses in flight that are looked through where the hardware interlocks."""
    turns: bool = False
    """Whether one engine of a core works at a time, which takes fewest tokens."""

    def apply(
        self,
        stream: Sequence[Item],
        arch: Arch,
        tokens: Mapping[str, int],
        registers: Sequence[Register] = (),
    ) -> tuple[Item, ...]:
        """`stream` of one core in a better order, or as it is.

        Args:
            stream: items that, executed one after another, never wait for a token.
            arch: the machine.
            tokens: initial counts.
            registers: lengths that are known when it runs; accesses are apart at all of them.
        """
        return self.apply_all([stream], arch, [tokens], registers)[0]

    def apply_all(
        self,
        streams: Sequence[Sequence[Item]],
        arch: Arch,
        tokens: Sequence[Mapping[str, int]],
        registers: Sequence[Register] = (),
    ) -> tuple[tuple[Item, ...], ...]:
        """The same for every core; what is found for one loop serves its likes on other cores."""
        known: dict[Hashable, Choice] = {}
        own = frozenset(name for counts in tokens for name in counts)
        users = users_of(streams, arch)
        pricers = (Pricer(arch, users, own, heard) for heard in heard_of(streams, arch))
        cores = zip(streams, pricers, tokens, strict=True)
        # A register is like a loop that turns backwards from the upper edge.
        around = {register.name: register.low - register.high + 1 for register in registers}
        return tuple(
            self._ordered(tuple(stream), pricer, counts, known, around)
            for stream, pricer, counts in cores
        )

    def _ordered(
        self,
        stream: tuple[Item, ...],
        pricer: Pricer,
        tokens: Mapping[str, int],
        known: dict[Hashable, Choice],
        around: Mapping[str, int],
    ) -> tuple[Item, ...]:
        if not self.enabled or self.turns or not plays(stream, tokens):
            return stream
        atoms = apart(_Sequence(self, pricer.arch, pricer, known).atoms(stream, tokens, around))
        fresh = partial(Clock, pricer.arch, tokens, around, self.flying)
        items = tuple(atom.item for atom in _arranged(atoms, pricer.arch, fresh))
        return items if plays(items, tokens) else stream


@dataclass(frozen=True)
class _Sequence:
    options: OrderInstructions
    arch: Arch
    pricer: Pricer
    known: dict[Hashable, Choice]

    def atoms(
        self, items: Sequence[Item], counts: Mapping[str, int], loops: Mapping[str, int]
    ) -> list[Atom]:
        """`items`, with the loops of several engines rotated."""
        result: list[Atom] = []
        for item in items:
            if isinstance(item, Loop) and len(engines(item)) > 1:
                result += self._loop(item, counts, loops)
            else:
                result.append(self.pricer.atom(item))
            counts = after([item], counts)
        return result

    def _loop(self, loop: Loop, counts: Mapping[str, int], loops: Mapping[str, int]) -> list[Atom]:
        inside = {**loops, loop.variable: loop.count}
        body = apart(self.atoms(loop.body, counts, inside))
        whole = Loop(loop.variable, loop.count, tuple(atom.item for atom in body))
        if loop.count < 2 or any(atom.cost.fence for atom in body):
            return [self.pricer.loop(whole, body)]
        options = self.options
        order = LoopOrder(
            self.arch, whole, body, counts, inside, options.window, options.pays, options.flying
        )
        key = order.signature
        choice = self.known.get(key)
        if choice is None or not order.legal(choice.schedule):
            choice = order.best(options.distance, options.growth)
            self.known[key] = choice
        return order.atoms(choice, self.pricer)


def _arranged(atoms: list[Atom], arch: Arch, fresh: Callable[..., Clock]) -> list[Atom]:
    """Whichever order of `atoms` a `fresh` coarse clock likes best."""
    clock = fresh()
    starts = [clock.play(atom, _touched(atom, arch))[0] for atom in atoms]
    best, least = atoms, _cycles(atoms, arch, fresh(queues=True))
    if least <= clock.now:
        return atoms
    depth = arch.front_end.depth
    late = [issued_by(atom, start, depth) for atom, start in zip(atoms, starts, strict=True)]
    for times in (starts, late):
        found = [atoms[i] for i in _by_time(atoms, times)]
        cycles = _cycles(found, arch, fresh(queues=True))
        if cycles < least:
            best, least = found, cycles
    return best


def _by_time(atoms: list[Atom], times: list[int]) -> list[int]:
    """Indices of `atoms` by `times`; loads first among equals."""
    return sorted(range(len(atoms)), key=lambda i: (times[i], not atoms[i].cost.load, i))


def _cycles(atoms: list[Atom], arch: Arch, clock: Clock) -> int:
    for atom in atoms:
        clock.play(atom, _touched(atom, arch))
    return clock.now


def _touched(atom: Atom, arch: Arch) -> Accesses:
    return atom.accesses if arch.front_end.sync == "interlock" else ()
