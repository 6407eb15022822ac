"""Schedules of whole networks, remembered by what was read of the machine when they were chosen.

Neighbouring points of a study differ in a field or two, and many fields decide nothing about tiles:
the depth of queues, tokens, energies, the host. A decision notes what it has read
(`compiler.target.tracking`) and serves every machine that has the same there; it is kept as a
tree (`compiler.decisions.text`), which is followed like one that was written by hand, so that the
program is the one that a search would give.

    network, options  ->  {memories.local.size: 262144, ...}  ->  tree, estimates, notes
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import ReferenceType, ref

from pydantic import TypeAdapter

from compiler.decisions.group_costs import GroupCosts
from compiler.decisions.text.apply import Expected
from compiler.decisions.text.extract import extract_tree, in_whole
from compiler.decisions.text.tree import Tree
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.options import Stages
from compiler.schedule.tiling.layer_mapping import ParetoFront
from compiler.schedule_ir.layer import Layer
from compiler.target.tracking import Field, TrackedArch, TrackedCache, read_again
from compiler.tensor_ir.nest import HostNode, NestGraph
from compiler.tensor_ir.text import print_graph
from simmodel.arch.record import Arch

MOST = 1000
"""Decisions that are held in memory."""
FRONTS = 20_000
"""Fronts of shares that are held in memory, of some kilobytes each."""
_NAME = 16
"""Characters of each part of a name."""


class Shelf(Protocol):
    """Where texts outlive the process, by name; what is there may be gone the next time."""

    def names(self, start: str) -> Sequence[str]:
        """Those that begin with `start`."""

    def get(self, name: str) -> str | None:
        """The text of that name."""

    def put(self, name: str, text: str) -> None:
        """Keep a text, if that is possible."""


@dataclass(frozen=True)
class NetworkDecision:
    """The schedule of a network, whole and placed."""

    tree: Tree
    expected: tuple[Expected | None, ...]
    """Of each step what the search expects; None: a call of the host."""
    notes: tuple[str, ...]
    """What was given up, with the reason."""


@dataclass(frozen=True)
class _StoredDecision:
    """A decision, and the fields that were read for it."""

    fields: tuple[Field, ...]
    decision: NetworkDecision


_STORED = TypeAdapter(_StoredDecision)


def decision_of(graph: NestGraph, steps: Sequence[Step], notes: Sequence[str]) -> NetworkDecision:
    """What was decided for `graph`."""
    expected = [
        (s.plan.schedule.estimate, *(tiled.estimate for tiled in s.plan.schedule.layers))
        if isinstance(s, PlacedGroup)
        else None
        for s in steps
    ]
    tree, first = in_whole(extract_tree(graph.name, steps, addresses=True))
    return NetworkDecision(tree, tuple(expected[n] for n in first), tuple(notes))


@dataclass
class Decisions:
    """Decisions about any number of networks; those that were not asked for longest go first."""

    shelf: Shelf | None = None
    salt: str = ""
    """What else they depend on: the sources of the compiler and its extensions."""
    most: int = MOST
    found: int = 0
    """How often there was one."""
    kept: OrderedDict[str, NetworkDecision] = field(default_factory=OrderedDict, repr=False)
    """By name: of what was decided, of which fields were read, and of what stood there."""
    fronts: TrackedCache[ParetoFront] = field(
        default_factory=lambda: TrackedCache(FRONTS), repr=False
    )
    """How layers are cut, which machines share whose schedules differ; in memory alone."""
    fields: dict[str, tuple[Field, ...]] = field(default_factory=dict, repr=False)
    """By the first two parts of a name."""
    latest: tuple[Arch, TrackedArch, ReferenceType[GroupCosts]] | None = field(
        default=None, repr=False
    )
    """The last machine that was searched for, and what groups take there as long as a program of
    that search is at hand."""

    def on(self, arch: Arch, stages: Stages) -> tuple[TrackedArch, GroupCosts]:
        """A machine whose fields are noted as they are read, and what groups take there: programs
        for one machine share what is known of them, and are said to have read what all did."""
        known = None if self.latest is None or self.latest[0] is not arch else self.latest[2]()
        if self.latest is not None and known is not None:
            return self.latest[1], known.with_stages(stages)
        tracked = TrackedArch(arch)
        costs = GroupCosts(tracked.machine, stages, self.fronts)
        self.latest = arch, tracked, ref(costs)
        return tracked, costs

    def key(
        self, graph: NestGraph, parts: Sequence[Layer | HostNode], stages: Stages
    ) -> str | None:
        """What is decided: the schedule of a network whose layers are bound, with these options;
        None where these have no text of their own, so that nobody can say if two are the same."""
        bound = [part.ways for part in parts if isinstance(part, Layer)]
        given = repr((stages, bound, graph.registers))
        return None if " at 0x" in given else _hashed(self.salt, print_graph(graph), given)

    def of(self, key: str, arch: Arch) -> NetworkDecision | None:
        """What is known to have been decided for such a machine."""
        for start in self._starts(key):
            name = f"{start}.{_standing(read_again(arch, self.fields[start]))}"
            decision = self.kept.get(name) or self._fetched(name)
            if decision is not None:
                self.kept[name] = decision
                self.kept.move_to_end(name)
                self.found += 1
                return decision
        return None

    def store(self, key: str, noted: Mapping[Field, Hashable], decision: NetworkDecision) -> None:
        """Remember a decision for which just these fields were read."""
        fields = tuple(sorted(noted))
        start = f"{key}.{_hashed(*map('.'.join, fields))}"
        name = f"{start}.{_standing(noted[each] for each in fields)}"
        self.fields[start] = fields
        self.kept[name] = decision
        if len(self.kept) > self.most:
            self.kept.popitem(last=False)
        if self.shelf is not None:
            # Over several lines, as sealed files are.
            content = _STORED.dump_json(_StoredDecision(fields, decision), indent=1)
            self.shelf.put(name, content.decode())

    def _starts(self, key: str) -> Iterator[str]:
        """Of all decisions with this key, what was read, one after the other."""
        known = [start for start in self.fields if start.startswith(key)]
        yield from known
        if self.shelf is None:
            return
        for name in self.shelf.names(key):
            start = name.rpartition(".")[0]
            if start not in self.fields and self._fetched(name) is not None:
                yield start

    def _fetched(self, name: str) -> NetworkDecision | None:
        """The decision of that name from the shelf; with it, which fields it has read."""
        text = None if self.shelf is None else self.shelf.get(name)
        if text is None:
            return None
        try:
            found = _STORED.validate_json(text)
        except ValueError:  # another version has written it
            return None
        self.fields[name.rpartition(".")[0]] = found.fields
        return found.decision


def _hashed(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()[:_NAME]


def _standing(values: Any) -> str:
    return _hashed(*map(repr, values))
