"""Where tensors lie between the steps of a program, and from which step to which one they do.

Constants lie in DRAM from its first byte on, or in flash; behind them each tensor gets the lowest
bytes that are free while steps read or write it. Shared memory is laid out before: there addresses
are given.

Where steps work on cores of their own and inferences follow each other, some cores are at one
inference while those behind them are at the one before. Then nothing shares bytes, and what passes
between cores lies there several times, for one inference after the other in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from compiler.errors import DoesNotFit
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.schedule.residency.buffer import GRAIN, LiveRange, place
from compiler.schedule_ir.group import Shared
from compiler.tensor_ir.nest import HostNode, NestGraph
from simmodel.arch.element_types import size_of
from simmodel.arch.lazy_array import AnyArray
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes
from simmodel.isa.region import cached_property
from simmodel.program.program import Buffer


@dataclass(frozen=True)
class OffChip:
    """Addresses and live ranges of everything off chip and in shared memory."""

    graph: NestGraph
    arch: Arch
    steps: Sequence[Step]
    constants: Mapping[str, AnyArray]
    """Buffer off chip -> raw elements, packed weights included; only what is read."""
    inferences: int
    """Times that all steps are done, one time after another: step s of inference i is number
    i * len(steps) + s."""

    def check(self) -> None:
        """Raise DoesNotFit where a memory off chip is too small."""
        weights = sum(data.nbytes for data in self.constants.values())
        for role, memory in self.arch.memories.off_chip().items():
            if (end := self._layout[1][role]) <= memory.size:
                continue
            held = weights if role == self.arch.constants else 0
            resident = role == "dram" and self.arch.memories.dram.on_chip
            field = "shared" if resident else role
            place = "on-chip memory" if resident else "DRAM" if role == "dram" else role
            rest = "feature maps" if role == "dram" else "alignment"
            terms = (("constants", held), (rest, end - held))
            raise DoesNotFit(
                demand=end,
                bound=memory.size,
                unit="B",
                terms=tuple(term for term in terms if term[1] or role == "dram"),
                levers=(
                    f"memories.{field}.size of at least {show_bytes(-(-end // GRAIN) * GRAIN)}",
                    *(("memories.dram, for what does not fit on the chip",) if resident else ()),
                ),
                where=f"{self.graph.name}: {place}",
            )

    @property
    def numbers(self) -> int:
        """Steps of all inferences."""
        return len(self.steps) * self.inferences

    @property
    def far(self) -> dict[str, tuple[str, int]]:
        """Memory off chip and address of each buffer there."""
        return self._layout[0]

    @cached_property
    def far_by_inference(self) -> list[dict[str, tuple[str, int]]]:
        """The same in each inference."""
        pitches = {
            s.name: s.size // self.turns[s.name] for s in self.live_ranges if s.name in self.turns
        }
        return [
            self.far | {
                name: (self.far[name][0], self.far[name][1] + number % self.turns[name] * pitch)
                for name, pitch in pitches.items()
            }
            for number in range(self.inferences)
        ]  # fmt: skip

    @cached_property
    def turns(self) -> dict[str, int]:
        """Buffers off chip that lie there several times -> how often: once for each set of cores
        from the first that uses it to the last, which are at an inference each."""
        if not self._pipelined:
            return {}
        ports = {
            self.graph.tensors[n].storage.buffer for n in (*self.graph.inputs, *self.graph.outputs)
        }
        found = {
            name: len({*self._first_cores[min(numbers) : max(numbers) + 1]} - {None})
            for name, numbers in self.users.items()
            if name not in self.shared and name not in ports | self.tables
        }
        return {name: min(count, self.inferences) for name, count in found.items() if count > 1}

    @cached_property
    def _first_cores(self) -> list[int | None]:
        """Of each step, the first core that works on it; None: the host does."""
        groups = (isinstance(step, PlacedGroup) and step.plan.schedule for step in self.steps)
        return [schedule.first_core if schedule else None for schedule in groups]

    @property
    def _pipelined(self) -> bool:
        """Whether cores are at several inferences at once."""
        return self.inferences > 1 and any(self._first_cores)

    @cached_property
    def _layout(self) -> tuple[dict[str, tuple[str, int]], dict[str, int]]:
        """Places off chip, and by memory its first byte behind them."""
        ends, home = {"dram": 0, self.arch.constants: 0}, self.arch.constants
        found: dict[str, tuple[str, int]] = {}
        for name, data in self.constants.items():
            found[name] = home, ends[home]
            ends[home] = -(-(ends[home] + data.nbytes) // GRAIN) * GRAIN
        spans = [span for span in self.live_ranges if span.name not in self.shared]
        placed, ends["dram"] = place(spans, ends["dram"])
        return found | {name: ("dram", address) for name, address in placed.items()}, ends

    def memory_map(self) -> list[Buffer]:
        """Everything that lies off chip, as programs say it."""
        cores, starts = self.arch.cores, range(0, self.numbers, max(1, len(self.steps)))
        far = (
            Buffer(s.name, *self.far[s.name], s.size, None, start + s.first, start + s.last)
            for start in starts
            for s in self.live_ranges
            if s.name not in self.shared
        )
        near = (
            Buffer(
                s.name, "shared", home.address, home.bytes, core, start + s.first, start + s.last
            )
            for start in starts
            for s in self.live_ranges
            if (home := self.shared.get(s.name)) is not None
            for core in (range(0, home.slices * cores, cores) if home.slices > 1 else (None,))
        )
        last = max(0, self.numbers - 1)
        fixed = (
            Buffer(name, *self.far[name], data.nbytes, None, 0, last)
            for name, data in self.constants.items()
        )
        return [*far, *near, *fixed]

    @cached_property
    def shared(self) -> dict[str, Shared]:
        """Buffers in shared memory."""
        groups = [s.plan.schedule.group for s in self.steps if isinstance(s, PlacedGroup)]
        return {
            group.tensors[name].storage.buffer: home
            for group in groups
            for name, home in group.shared.items()
        }

    @cached_property
    def live_ranges(self) -> list[LiveRange]:
        """Of each buffer that is no constant, in one inference."""
        used, last = {name: [*steps] for name, steps in self.users.items()}, len(self.steps) - 1
        for name in (*self.graph.inputs, *self.graph.outputs):
            # Those of the network are theirs alone, see `relocation`.
            tensor = self.graph.tensors[name]
            if tensor.data is None:
                used.setdefault(tensor.storage.buffer, []).extend((0, max(0, last)))
        items = {t.storage.buffer: size_of(t.dtype) for t in self.graph.tensors.values()}
        found = []
        for name, numbers in used.items():
            size, ends = self.graph.buffers[name] * items[name], (min(numbers), max(numbers))
            if self._pipelined:
                size, ends = self.turns.get(name, 1) * (-(-size // GRAIN) * GRAIN), (0, last)
            found.append(LiveRange(name, size, *ends, GRAIN))
        return found

    @cached_property
    def tables(self) -> frozenset[str]:
        """Buffers in which rows are changed that others may have read or written before."""
        placed = (t.placed for t in self.graph.tensors.values() if t.placed is not None)
        return frozenset(each.table.storage.buffer for each in placed)

    @cached_property
    def writers(self) -> dict[str, list[int]]:
        """Buffer off chip or in shared memory -> steps that write it."""
        return self._steps_by(written_by)

    @cached_property
    def users(self) -> dict[str, list[int]]:
        """Buffer off chip or in shared memory -> steps that read or write it."""
        return self._steps_by(touched_by)

    def _steps_by(self, names: Callable[[Step], tuple[str, ...]]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, step in enumerate(self.steps):
            for name in names(step):
                tensor = self.graph.tensors[name]
                if tensor.data is None:
                    found.setdefault(tensor.storage.buffer, []).append(number)
        return found

    @cached_property
    def overlaps(self) -> dict[str, list[str]]:
        """Buffer -> those that share bytes with it, itself included."""
        ends: dict[str, tuple[str, int, int]] = {}
        for span in self.live_ranges:
            home = self.shared.get(span.name)
            low = self.far[span.name][1] if home is None else home.address
            size = span.size if home is None else home.bytes
            ends[span.name] = "dram" if home is None else "shared", low, low + size
        return {
            a: [
                b
                for b, (where, low, high) in ends.items()
                if where == memory and low < end and start < high
            ]
            for a, (memory, start, end) in ends.items()
        }


def pinned_steps(steps: Sequence[Step]) -> dict[tuple[str, int], tuple[int, int]]:
    """Constant that stays for several groups, and core that has it -> the step in which that loads
    it, and the last one in which it reads it."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, HostNode):
            continue
        schedule = step.plan.schedule
        for key in product(schedule.group.pinned, schedule.cores):
            found[key] = found.get(key, (number, number))[0], number
    return found


def written_by(step: Step) -> tuple[str, ...]:
    """Tensors that it writes off chip."""
    if isinstance(step, HostNode):
        return step.outputs if step.pick is None else ()
    group = step.plan.schedule.group
    return tuple(group.tensors[name].sources[0].name for name in group.stored)


def touched_by(step: Step) -> tuple[str, ...]:
    """Tensors that it reads or writes off chip: of those that lie in a table, that and the list."""
    if isinstance(step, HostNode):
        return (*step.inputs, *step.outputs) if step.pick is None else ()
    group = step.plan.schedule.group
    names = (*(name for name in group.inputs if name not in group.residents), *group.stored)
    return tuple(source.name for name in names for source in group.tensors[name].sources)
