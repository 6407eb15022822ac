"""What cores hand to each other at the end of the step that makes a tensor which they keep.

    core 0, which makes rows 0:8            core 1, which makes rows 8:16
    notify room@0                           notify room@1
    wait room@1; copy row 7 to core 1       wait room@0; copy row 8 to core 0
    notify sent@0; wait sent@1              notify sent@1; wait sent@0

Each is one step of the copy engine between cores, which reads and writes the core's slice: so it
stands behind what the core makes of it and whatever lay there before, and ahead of what reads it.
Cores meet in the order of their queues, so one token for each pair does for the whole program.
Where a core has too few tokens for that, all meet at two barriers: one when the takers have room,
one when the givers have sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from compiler.codegen.legalize import legal_copy
from compiler.codegen.multicast import Meeting
from compiler.codegen.nodes import EngineStep, Node
from compiler.codegen.tile import EmissionContext, address_of_ranges, in_buffer
from compiler.cost.multicast import Handover, between_cores, copies_of, handovers, meets_at_barriers
from compiler.geometry.boxes import Range
from compiler.plan.make_plan import Plan
from compiler.plan.symbolic_parts import Following
from compiler.schedule.residency.buffer import TileBuffer
from compiler.schedule_ir.group import ResidentTensor
from simmodel.isa import Arrive, Await, Claim, Copy, Item
from simmodel.isa.region import Address, Operand


def with_handovers(
    trees: Sequence[list[Node]], names: Sequence[str], plan: Plan, around: EmissionContext,
    origin: int, following: Following, barriers: dict[str, int],
) -> list[list[Node]]:  # fmt: skip
    """The trees of the cores of one step, with what they hand to each other at its end, of results
    in the order of `names`; `barriers` gets the arrivals at those where they meet."""
    found = [list(tree) for tree in trees]
    group, engine, first = plan.schedule.group, between_cores(around.arch), plan.schedule.first_core
    for name in names if engine is not None else ():
        if name in group.residents:
            handed = [
                replace(one, giver=first + one.giver, takers=tuple(first + n for n in one.takers))
                for one in handovers(group, plan.schedule.parts, name)
            ]
            step = _Handing(around, plan, name, handed, str(engine), origin, following, barriers)
            for core, tree in enumerate(found):
                tree += step.nodes(core)
    return found


@dataclass(frozen=True)
class _Handing:
    around: EmissionContext
    plan: Plan
    name: str
    handed: Sequence[Handover]
    engine: str
    origin: int
    following: Following
    barriers: dict[str, int]

    @property
    def resident(self) -> ResidentTensor:
        return self.plan.schedule.group.residents[self.name]

    @property
    def buffer(self) -> TileBuffer:
        return self.plan.buffers[self.plan.held[self.name]]

    def nodes(self, core: int) -> list[EngineStep]:
        given = [one for one in self.handed if one.giver == core]
        given.sort(key=lambda one: (one.takers[0] - core) % self.around.arch.core_count)
        takers = tuple(sorted({taker for one in given for taker in one.takers}))
        givers = tuple(dict.fromkeys(one.giver for one in self.handed if core in one.takers))
        if not takers and not givers:
            return []
        buffer, arch = self.buffer, self.around.arch
        first = Address(self.resident.address + buffer.offset)
        place = Operand(buffer.role, first, buffer.shape, buffer.strides, buffer.dtype)
        own = [item for one in given for item in self._copies(one)]
        if meets_at_barriers(arch):
            items = self._at_barriers(own, takers, givers, place)
        else:
            meeting = Meeting(self.engine, self.origin, arch, core, free="room", full="sent")
            items = meeting.items(own, takers, givers, place)
        uses = self.around.uses((buffer,), (buffer,))
        return [EngineStep(self.engine, tuple(items), uses, self.origin)]

    def _at_barriers(
        self, own: Sequence[Item], takers: Sequence[int], givers: Sequence[int], place: Operand
    ) -> list[Item]:
        """The same as `Meeting.items`, with barriers for tokens."""
        at: dict[str, Any] = {"engine": self.engine, "origin": self.origin}
        number = self.plan.schedule.group.results.index(self.name)
        names = {word: f"{word}{self.around.step}_{number}" for word in ("room", "sent")}

        def arrive(word: str) -> Arrive:
            self.barriers[names[word]] = self.barriers.get(names[word], 0) + 1
            return Arrive(barrier=names[word], **at)

        interlock = self.around.arch.front_end.sync == "interlock"
        claim = [Claim(dst=place, **at)] if interlock and givers else []
        items: list[Item] = [*claim, arrive("room")] if givers else []
        if takers:
            items += [Await(barrier=names["room"], **at), *own, arrive("sent")]
        return [*items, Await(barrier=names["sent"], **at), *claim] if givers else items

    def _copies(self, one: Handover) -> list[Item]:
        src = self._slice_operand(one, one.giver, ())
        items: list[Item] = []
        for takers in copies_of(self.around.arch, self.engine, one):
            dst = self._slice_operand(one, takers[0], takers)
            copy = Copy(engine=self.engine, origin=self.origin, dst=dst, src=src)
            items += legal_copy(copy, self.around.arch, self.around.names)
        return items

    def _slice_operand(self, one: Handover, core: int, cores: tuple[int, ...]) -> Operand:
        giver, own = (n - self.plan.schedule.first_core for n in (one.giver, core))
        spans = self.following.work(giver, self.name, tuple(Range(*span) for span in one.box))
        found = resident_operand(self.plan, self.name, own, spans, self.following)
        return replace(found, cores=cores)


def resident_operand(
    plan: Plan, name: str, part: int, spans: Sequence[Range], following: Following
) -> Operand:
    """The box `spans` of a tensor that stays on chip, in the slice of a part of the machine."""
    group = plan.schedule.group
    resident, buffer = group.residents[name], plan.buffers[plan.held[name]]
    before, _ = resident.around(part)
    pairs = zip(resident.slices[part], before, strict=True)
    origin = following.buffered_box(part, name, [Range(first - b, n) for (first, n), b in pairs])
    address = Address(resident.address + buffer.offset)
    address = address_of_ranges(address, spans, origin, buffer.strides, buffer.dtype)
    shape = tuple(span.size for span in spans)
    return in_buffer(buffer, address, shape, group.tensors[name], spans)
