"""Atoms: what the order of a stream is made of, each an instruction or a loop that stays whole.

An atom keeps what the coarse clock of `order_clock` asks again and again, so that the atom of
another iteration costs nothing to price.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from compiler.codegen.issue_order.access import Accesses, accesses, merged
from compiler.codegen.nodes import instructions
from compiler.cost.multicast import EARLY
from simmodel.arch.base import OFF_CHIP
from simmodel.arch.record import Arch
from simmodel.isa import Arrive, Await, Claim, Copy, Fill, HostCall, Instruction, Item, Loop, Sync
from simmodel.isa.base import operand_traffic
from simmodel.isa.region import Operand, cached_property, replace
from simmodel.program.substitute import fixed, shifted

# Whether a stream, executed strictly in its own order, never waits for a token: in closed form.

Balance = dict[str, tuple[int, int]]
"""Token -> what a stretch of code adds to its count, and how low the count falls inside (<= 0)."""


def balance(items: Iterable[Item]) -> Balance:
    """Balance of `items`, executed one after another."""
    result: Balance = {}
    for item in items:
        if isinstance(item, Loop):
            inner: Balance | None = item.__dict__.get("_balance")
            if inner is None:  # several passes ask for that of one loop
                inner = item.__dict__["_balance"] = balance(item.body)
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


def pass_by(item: Item, counts: dict[str, int]) -> None:
    """Change `counts`, those ahead of `item`, to those behind it; of a machine that interlocks
    there are none."""
    if not counts:
        return
    if isinstance(item, Loop):
        changes = [(name, change) for name, (change, _) in balance([item]).items()]
    else:
        changes = [*item.signals, *((name, -count) for name, count in item.waits)]
    for name, change in changes:
        if name in counts:
            counts[name] += change


@dataclass(frozen=True)
class Cost:
    """What an atom occupies, whatever iteration it is of."""

    engines: tuple[str, ...]
    cycles: int
    """At least 1, so that whatever depends on it comes strictly later."""
    unit: int
    """Cycles of one instruction, or of one iteration where several engines work."""
    times: int
    """Instructions that the front end has to place in the queue."""
    size: int
    """Instructions and loops of the stream."""
    load: bool
    """Whether a copy engine alone works, and brings data closer."""
    fence: bool
    """Whether it holds barriers or host calls, which keep their order."""
    meets: bool
    """Whether other cores wait for it, or it for them: it keeps its order to all that are like it,
    and to barriers. That is the order of the other cores too, so none waits in a circle."""
    waits: tuple[tuple[str, int], ...]
    signals: tuple[tuple[str, int], ...]
    gap: int = 0
    """Cycles more where the engine has waited: an array fills anew."""
    lanes: tuple[str, ...] = ()
    """Of its engines: each sees what is in one lane in its old order, see `STAGED`."""
    fetch: bool = False
    """Whether it takes what another core has put into one of several places in shared memory: the
    next load may begin before it."""


@dataclass(frozen=True, eq=False)
class IssueUnit:
    """An item and its cost."""

    item: Item
    cost: Cost
    touched: Callable[[], Accesses]
    """Finds `accesses`."""

    @cached_property
    def accesses(self) -> Accesses:
        """What it touches; loops around it are left as they are."""
        return self.touched()

    def shifted(self, variable: str, by: int) -> IssueUnit:
        """`by` iterations of a loop around it later."""
        if not by:
            return self
        item = shifted(self.item, variable, by)
        return IssueUnit(
            item, self.cost, lambda: tuple(a.later(variable, by) for a in self.accesses)
        )

    def fixed(self, variable: str, value: int) -> IssueUnit:
        """In iteration `value` of a loop around it."""

        def touched() -> Accesses:
            found = [access.at(variable, value) for access in self.accesses]
            return merged(found) if isinstance(self.item, Loop) else tuple(found)

        return IssueUnit(fixed(self.item, {variable: value}), self.cost, touched)


STAGED = "+staged"
"""Lane of an engine for what it stores for other cores to load: they wait for it while it waits for
a result that it is to store, though neither needs the other."""


def merge_staging_lanes(body: Sequence[IssueUnit]) -> list[IssueUnit]:
    """`body` with one lane for each engine that has a token in more than one: what a token keeps in
    order is told by its count alone."""
    users: dict[str, set[str]] = {}
    if not any(lane.endswith(STAGED) for atom in body for lane in atom.cost.lanes):
        return list(body)
    for atom in body:
        for name, _ in (*atom.cost.waits, *atom.cost.signals):
            users.setdefault(name, set()).update(atom.cost.lanes)
    joined = {
        lane.removesuffix(STAGED)
        for lanes in users.values() for lane in lanes
        if lane.endswith(STAGED) and lane.removesuffix(STAGED) in lanes
    }  # fmt: skip
    if not joined:
        return list(body)

    def lanes(atom: IssueUnit) -> tuple[str, ...]:
        bare = ((lane.removesuffix(STAGED), lane) for lane in atom.cost.lanes)
        return tuple(dict.fromkeys(name if name in joined else lane for name, lane in bare))

    return [replace(atom, cost=replace(atom.cost, lanes=lanes(atom))) for atom in body]


def in_places(operand: Operand) -> bool:
    """Whether an operand lies in one of several places in shared memory, where cores pass on what
    they load."""
    ring = operand.address.ring
    return operand.memory == "shared" and ring is not None and ring.slots >= EARLY


def engines(item: Item) -> set[str]:
    """Engines that work in `item`."""
    return {each.engine for each in instructions([item])}


def far_loads(item: Instruction, arch: Arch) -> dict[str, float]:
    """Bytes that each memory off chip moves for it, or could in the time that it takes."""
    kind, found = item.prototype, dict[str, float]()  # of equal layers, asked once
    sides = ((kind.reads(), False), (kind.writes(), True))
    for operand, write in ((operand, write) for side, write in sides for operand in side):
        if (far := operand.memory) in OFF_CHIP:
            load = operand_traffic(arch, operand, write=write).load(arch)
            found[far] = found.get(far, 0) + load
    return found


def users_of(streams: Sequence[Sequence[Item]], arch: Arch) -> dict[int, int]:
    """Origin -> streams of `streams` that copy from or to memory off chip for it."""

    known: dict[int, bool] = {}  # by prototype

    def far(item: Instruction) -> bool:
        kind = item.prototype
        found = known.get(id(kind))
        if found is None:
            found = known[id(kind)] = any(o.memory in OFF_CHIP for o in kind.operands())
        return found

    found = Counter[int]()
    for stream in streams:
        copies = [item for item in instructions(stream) if item.engine in arch.copy_]
        found.update({item.origin for item in copies if far(item)})
    return found


Heard = tuple[int, str]
"""Origin, and the token by which a core says that it is done."""


def remote_waits_of(
    streams: Sequence[Sequence[Item]], arch: Arch
) -> tuple[dict[Heard, int], list[dict[int, int]]]:
    """How long cores are at what others wait for; and each of `streams` at its own part of the
    same, by origin."""
    told: dict[Heard, int] = {}
    known: dict[int, int] = {}  # by prototype
    parts: list[dict[int, int]] = []
    for stream in streams:
        mine: dict[int, int] = defaultdict(int)
        for item in instructions(stream):
            if item.notifies and isinstance(item, Copy | Fill):
                kind = item.prototype
                if id(kind) not in known:
                    known[id(kind)] = kind.startup(arch) + kind.cycles(arch)
                cycles = known[id(kind)]
                mine[item.origin] = max(mine[item.origin], cycles)
                for name, _, _ in item.notifies:
                    told[item.origin, name] = max(told.get((item.origin, name), 0), cycles)
        parts.append(mine)
    return told, parts


_FAR = {"dram": 0, "flash": 0, "shared": 1}
"""How far a memory is from the engines: less is farther; what is not listed is near."""


@dataclass(frozen=True)
class Pricer:
    """Makes atoms on one machine."""

    arch: Arch
    users: Mapping[int, int]
    """Origin -> cores that use memory off chip for it, at the same time and alike."""
    own: frozenset[str] = frozenset()
    """Tokens that no other core gives."""
    told: Mapping[Heard, int] = field(default_factory=dict)
    """Cycles that another core takes for what this one waits for."""
    mine: Mapping[int, int] = field(default_factory=dict)
    """Origin -> cycles that this one takes for its own part meanwhile."""
    known: dict[tuple[Hashable, ...], tuple[Instruction, Cost]] = field(default_factory=dict)
    """By all that decides, those of all cores: what equal instructions cost but for tokens, and
    their prototype, which keeps its identity."""

    def issue_unit(self, item: Item) -> IssueUnit:
        """An item that needs no attention inside."""
        if isinstance(item, Instruction):
            return IssueUnit(item, self._instruction_cost(item), partial(accesses, item))
        return self.loop(item, [self.issue_unit(inner) for inner in item.body])

    def loop(self, item: Loop, body: list[IssueUnit], pace: int = 0) -> IssueUnit:
        """A loop over `body`, which takes `pace` cycles per iteration (0: its busiest engine's)."""
        costs = [atom.cost for atom in body]
        names = tuple(dict.fromkeys(e for cost in costs for e in cost.engines))
        busy = {e: sum(c.cycles for c in costs if e in c.engines) for e in names}
        pace = pace or max(busy.values(), default=1)
        alone = len(names) == 1
        times = sum(cost.times for cost in costs)
        net = {name: change for name, (change, _) in balance([item]).items()}
        cost = Cost(
            engines=names,
            cycles=pace * item.count,
            unit=max(1, pace // times) if alone else pace,
            times=times * item.count,
            size=1 + sum(c.size for c in costs),
            load=all(c.load for c in costs),
            fence=any(c.fence for c in costs),
            meets=any(c.meets for c in costs),
            waits=tuple((n, -k) for n, k in net.items() if k < 0),
            signals=tuple((n, k) for n, k in net.items() if k > 0),
            gap=costs[0].gap if alone else 0,
            lanes=tuple(dict.fromkeys(lane for cost in costs for lane in cost.lanes)),
        )
        name, count = item.variable, item.count
        return IssueUnit(
            item, cost, lambda: merged(a.swept(name, count) for u in body for a in u.accesses)
        )

    def _instruction_cost(self, item: Instruction) -> Cost:
        kind, least = item.prototype, self.users.get(item.origin, 1)
        if only_waits := type(item) in (Sync, Claim):
            longest = max(
                (self.told.get((item.origin, name), 0) for name, _ in item.waits), default=0
            )
            least = max(1, longest - self.mine.get(item.origin, 0))
        waits, own = item.waits, self.own
        meets = bool(item.notifies) or any(name not in own for name, _ in waits)
        found = self.known.get(key := (id(kind), least, meets, bool(self.mine)))
        if found is None:
            cycles = least if only_waits else self._busy_cycles(kind, least)
            found = self.known[key] = kind, self._priced(kind, cycles, meets)
        cost = found[1]
        if waits or item.signals:
            return replace(cost, waits=waits, signals=item.signals)
        return cost

    def _priced(self, item: Instruction, cycles: int, meets: bool) -> Cost:
        fence = isinstance(item, HostCall | Arrive | Await)
        return Cost(
            (item.engine,), cycles, cycles, 1, 1, self._loads(item), fence, meets, (), (),
            item.overlap(self.arch), self._lanes(item, meets),
            meets and isinstance(item, Copy) and in_places(item.src),
        )  # fmt: skip

    def _lanes(self, item: Instruction, meets: bool) -> tuple[str, ...]:
        name, copies = item.engine, self.arch.copy_
        if meets and isinstance(item, Copy) and item.dst.memory == "shared":
            return (name + STAGED,)
        if type(item) is Sync and self.mine and name in copies and "shared" in copies[name].to:
            return (name, name + STAGED)  # it speaks for all that the engine did or is to do
        return (name,)

    def _busy_cycles(self, item: Instruction, users: int) -> int:
        """Cycles of `item`, which so many cores do at the same time."""
        arch = self.arch
        start = item.startup(arch)
        work = item.cycles(arch) - item.overlap(arch)  # most follow their like
        if item.engine in arch.copy_:
            for far, load in far_loads(item, arch).items():
                work = max(work, int(load * users / arch.far_rates[far]))
        return max(1, start + work)

    def _loads(self, item: Instruction) -> bool:
        """Whether it stands in the queue of an engine that fills memory near the engines."""
        engine = self.arch.copy_.get(item.engine)
        if engine is None:
            return False
        near = len(_FAR)
        nearest = max(_FAR.get(role, near) for role in engine.from_)
        return any(_FAR.get(role, near) > nearest for role in engine.to)
