"""What a group holds on chip: tensors that pass between its layers, and constants that stay.

Tensors have the borders that their readers expect, and as many slots as their engines need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from compiler.geometry.boxes import Key
from compiler.geometry.tile_trace import TileTrace, largest
from compiler.schedule.residency.buffer import BufferList, TileBuffer, engine_between
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Schedule
from compiler.target.group_facts import Facts
from compiler.tensor_ir.nest import dense
from simmodel.arch.dtype import size_of


@dataclass(frozen=True)
class GroupBuffers:
    """What the group keeps on chip for its layers."""

    tensors: Mapping[str, str]
    """Tensor -> buffer of the group."""
    constants: Mapping[tuple[int, Key], str]
    """Constants of a layer that stay -> buffer of the group."""


class GroupBufferMaker(BufferList):
    """Makes the buffers of what a group holds."""

    def __init__(self, schedule: Schedule, slots: int, facts: Facts) -> None:
        super().__init__(facts.arch)
        self.schedule, self.slots, self.facts = schedule, slots, facts
        self.group: Group = schedule.group
        self.loads: list[tuple[str, str]] = []
        """(buffer, copy engine) of what comes from memory."""

    def make_buffers(self, walked: tuple[TileTrace, ...]) -> GroupBuffers:
        """Tensors, then constants that stay."""
        return GroupBuffers(self.tensors(walked), self._constants())

    def tensors(self, walked: tuple[TileTrace, ...]) -> dict[str, str]:
        """Buffers for the tensors that the walk holds."""
        names = dict.fromkeys(name for w in walked for m in w.moments for name in m.holds)
        return {name: self._tensor_buffer(name, walked).name for name in names}

    def _resident_buffer(self, name: str) -> TileBuffer:
        """The place of a tensor that is on chip before or after the group."""
        kept = self.group.kept[name]
        dtype = self.group.tensors[name].dtype
        item = size_of(dtype)
        buffer = self.add(
            name, "local", dtype, kept.room, (), slots=1, level=len(self.schedule.loops),
            last=len(self.group.layers) - 1, address=kept.address, offset=item * kept.offset,
        )  # fmt: skip
        strides = tuple(item * s for s in kept.strides)
        self.buffers[buffer.name] = replace(buffer, shape=kept.padded, strides=strides)
        return self.buffers[buffer.name]

    def _tensor_buffer(self, name: str, walked: tuple[TileTrace, ...]) -> TileBuffer:
        if name in self.group.kept:
            return self._resident_buffer(name)
        tensor = self.group.tensors[name]
        passing = self.facts.passing(self.group, name)
        shape = largest((size for w in walked for size in w.hold_sizes(name)), len(tensor.shape))
        strides = tuple(size_of(tensor.dtype) * s for s in dense(shape, passing.order))
        made = self.group.producer_positions.get(name)
        readers = self.group.internal_readers.get(name) or _readers(self.group, name)
        again = any(len(w.moments) * w.repeats > 1 for w in walked)
        stays = any(_stays(w, name) for w in walked)
        rolled = any(name in w.rolled for w in walked)
        if rolled:
            self.facts.movable(tensor)
        crossing = made is None or len(passing.engines) > 1
        single = rolled or stays or not again or not crossing
        key = (name, passing.border, False) if made is None else None
        bordered = made is not None and any(w.bordered(name) for w in walked)
        last = len(self.group.layers) - 1 if name in self.group.results else max(readers)
        buffer = self.add(
            name, "local", tensor.dtype, shape, strides,
            slots=1 if single else self.slots, level=len(self.schedule.loops), key=key,
            first=0 if made is None else made, last=last,
            lasting=again and (rolled or stays or bordered),
        )  # fmt: skip
        if made is None:
            self._load(buffer, self.group.home(name), self.group.name)
        return buffer

    def _load(self, buffer: TileBuffer, source: str, where: str) -> None:
        self.loads.append((buffer.name, engine_between(source, buffer.role, self.arch, where)))

    def _constants(self) -> dict[tuple[int, Key], str]:
        """Constants that stay for several groups, in one buffer for all layers that read them; then
        those that stay for the group, with one load for all of its tiles."""
        found: dict[tuple[int, Key], str] = {}
        for pinned in (True, False) if self.group.pinned else (False,):
            made: dict[Key, TileBuffer] = {}
            for position, tiled in enumerate(self.schedule.layers):
                own = self.facts.layer(tiled.layer).constants if pinned or tiled.resident else ()
                for constant in own:
                    home = self.group.pinned.get(constant.key[0])
                    if (home is not None) is not pinned:
                        continue
                    before = made.get(constant.key) if pinned else None
                    buffer = before or self.add(
                        constant.key[0], constant.role, constant.dtype, constant.shape,
                        constant.strides, slots=1, level=0, key=constant.key, first=position,
                        room=constant.bytes, address=None if home is None else home.address,
                        lasting=not pinned and bool(self.schedule.loops),
                    )  # fmt: skip
                    if before is None:
                        self._load(buffer, "dram", tiled.layer.name)
                    buffer = replace(buffer, last=position)
                    self.buffers[buffer.name] = made[constant.key] = buffer
                    found[position, constant.key] = buffer.name
        return found


def _stays(walked: TileTrace, name: str) -> bool:
    """Whether a tensor's buffer keeps its place in the tensor over several tiles."""
    origins = {m.holds[name].origin for m in walked.moments if name in m.holds}
    return len(walked.moments) > 1 and len(origins) == 1


def _readers(group: Group, name: str) -> tuple[int, ...]:
    return tuple(p for p, layer in enumerate(group.layers) if name in layer.inputs)
