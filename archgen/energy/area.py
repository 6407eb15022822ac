"""Area of the chip, part by part.

The one idea: what the architecture file lists has an area of its own (cells, lanes, memories), and
everything else (control, copy engines, wiring, clock) is a share of that. Pins, the physical side
of DRAM and what is not part of the accelerator are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from archgen.energy.ranges import Range, total
from archgen.energy.scaling import at_node
from archgen.energy.sources import Source
from archgen.energy.sram import Sram
from archgen.energy.table import AreaFigures, Figures, Operation, Sum
from archgen.schema.peaks import instances
from simmodel.arch import Arch
from simmodel.dtype import is_float, size_of

_STATIONARY, _MOVING = 2, 1
"""Registers of an operand that waits for its turn while another is in use, and of one that goes
through."""


@dataclass(frozen=True)
class Area:
    """mm2 by component: mac, vector, each memory's role, other."""

    parts: dict[str, Range]

    @property
    def total(self) -> Range:
        """mm2 of everything."""
        return total(self.parts.values())


def area_of(arch: Arch, figures: Figures, source: Source) -> Area:
    """Area of `arch`; what its section `energy` states comes before the table."""
    parts = {"mac": _matrix(arch, figures), "vector": _vector(arch, figures)}
    parts |= {role: _memory(arch, role, figures, source) for role in arch.memories.on_chip()}
    stated, other = arch.energy.area.other, figures.area.other
    # Control, wires and clock are in no list: a share of what is.
    listed = total(parts.values()).value
    parts["other"] = Range.given(
        stated, lambda: Range.within(other.share * listed, other.low, other.high)
    )
    return Area(parts)


def _matrix(arch: Arch, figures: Figures) -> Range:
    def from_table() -> Range:
        # A rate below 1 means that narrower cells join for a product, one above 1 that they split.
        cells = [_cell(name, figures) * rate for name, rate in arch.matrix.rate.items()]
        # One array serves all types, so it is built for the one that takes most.
        return _logic(max(cells, default=0.0), arch.energy.node, figures.area)

    return _times(
        arch.energy.area.mac, from_table, arch.matrix.cells * arch.matrix.units * arch.core_count
    )


def _cell(dtype: str, figures: Figures) -> float:
    """um2 at 45 nm of a multiply-accumulate and its registers: two operands and a sum."""
    area, operand = figures.area, _operation(dtype)
    bits = 8 * (size_of(dtype) * (_STATIONARY + _MOVING) + size_of(_sum(dtype)))
    return (
        area.arithmetic.multiply[operand]
        + area.arithmetic.add[_sum(dtype)]
        + (bits * area.register_.bit)
    )


def _vector(arch: Arch, figures: Figures) -> Range:
    def from_table() -> Range:
        kind: Operation = vector_type(arch)
        arithmetic = figures.area.arithmetic
        lane = arithmetic.multiply[kind] + arithmetic.add[_sum(kind)]
        lane += 8 * size_of(kind) * (_STATIONARY + _MOVING) * figures.area.register_.bit
        return _logic(lane, arch.energy.node, figures.area)

    return _times(
        arch.energy.area.lane, from_table, arch.vector.lanes * arch.vector.units * arch.core_count
    )


def vector_type(arch: Arch) -> Sum:
    """The type in which the vector engine computes: fp32, or int32 where it knows integers only."""
    return "fp32" if any(is_float(name) for name in arch.vector.types) else "int32"


def _operation(dtype: str) -> Operation:
    known: tuple[Operation, ...] = ("int8", "int16", "int32", "fp16", "bf16", "fp32")
    return next(name for name in known if name == dtype)


def _sum(dtype: str) -> Sum:
    return "fp32" if is_float(dtype) else "int32"


def _logic(at_45: float, node: float, area: AreaFigures) -> Range:
    """mm2 of logic of `at_45` um2 at 45 nm."""
    bare = 1e-6 * at_45 * at_node(area.logic.points, node)
    return Range.within(bare * area.datapath.factor, area.datapath.low, area.datapath.high)


def _memory(arch: Arch, role: str, figures: Figures, source: Source) -> Range:
    memory, given = arch.memories.on_chip()[role], arch.energy.memories

    def from_source() -> Range:
        fit = figures.area.sram
        made = source.sram(Sram.of(memory, arch.energy.node)).area
        return Range.within(made, fit.low, fit.high)

    stated = next((known.area for name, known in given.items() if name == role), None)
    return _times(stated, from_source, instances(arch, role))


def _times(stated: float | None, otherwise: Callable[[], Range], count: int) -> Range:
    return Range.given(stated, otherwise).times(count)
