"""The tables of energy and area, each figure with the range that it is known in."""

from __future__ import annotations

from collections.abc import Sequence

from archgen.energy import costs_of
from archgen.energy.area import Area
from archgen.report.points import PointView
from archgen.report.sheet import Cell, Heading, Made, Sheet, figure, sheet, word
from archgen.report.words import NONE, percent, short
from simmodel.arch import Arch


def area_sheet(archs: Sequence[Arch]) -> Sheet:
    """Area of each machine by part."""
    areas = {arch.name: costs_of(arch).area for arch in archs}
    parts = dict.fromkeys(name for area in areas.values() for name in area.parts)
    columns: list[Made[Arch]] = [
        Made(Heading("Machine", number=False), lambda a: word(a.name)),
        Made(Heading("Node", "nm"), lambda a: figure(a.energy.node)),
        Made(Heading("Total", "mm²"), lambda a: figure(areas[a.name].total.value)),
        Made(Heading("Range", "mm²", "with every figure at the end of its range"),
             lambda a: _range(areas[a.name].total.low, areas[a.name].total.high)),
        Made(Heading("Without DRAM", "mm²", "without what stands on the chip for DRAM"),
             lambda a: figure(areas[a.name].core.value)),
        *(_area_part(name, areas) for name in parts),
    ]  # fmt: skip
    return sheet("areas", "Area of each machine by part, with its share", columns, archs)


def _area_part(name: str, areas: dict[str, Area]) -> Made[Arch]:
    def cell(arch: Arch) -> Cell:
        area = areas[arch.name]
        found = area.parts.get(name)
        return word(NONE) if found is None else _of(found.value, area.total.value)

    return Made(Heading(_titled(name), "mm²", key=name), cell)


def energy_sheet(points: Sequence[PointView]) -> Sheet:
    """Energy of each run by component."""
    names = dict.fromkeys(
        name.removeprefix("energy_").removesuffix("_mj")
        for point in points
        for name in point.row
        if name.startswith("energy_") and name not in _ENDS
    )
    columns: list[Made[PointView]] = [
        Made(Heading("Machine", number=False), lambda p: word(p.machine)),
        Made(Heading("Workload", number=False), lambda p: word(p.workload)),
        Made(Heading("Total", "mJ"), lambda p: figure(p.get("energy_mj"))),
        Made(Heading("Range", "mJ", "with every figure at the end of its range"),
             lambda p: _range(p.get("energy_low_mj"), p.get("energy_high_mj"))),
        Made(Heading("Per sample", "mJ"), lambda p: figure(p.per_sample_mj)),
        Made(Heading("Power", "W", "average over the run"), lambda p: figure(p.get("average_w"))),
        Made(Heading("Efficiency", "TOPS/W"), lambda p: figure(p.get("tops_per_w"))),
        *(_energy_part(name) for name in names),
    ]  # fmt: skip
    caption = "Energy of the best run of each machine and workload, by component, with its share"
    return sheet("energies", caption, columns, points)


_ENDS = ("energy_mj", "energy_low_mj", "energy_high_mj")


def _energy_part(name: str) -> Made[PointView]:
    heading = Heading(_titled(name), "µJ", key=name)
    return Made(heading, lambda p: _of(1e3 * p.get(f"energy_{name}_mj"), 1e3 * p.get("energy_mj")))


def _titled(name: str) -> str:
    """`MAC` and `DRAM` are abbreviations, the other components are words."""
    return name.upper() if name in ("mac", "dram") else name.replace("_", " ").capitalize()


def _of(value: float, whole: float) -> Cell:
    """A part, and its share of the whole."""
    shown = figure(value)
    if not shown.value or not whole > 0:
        return shown
    return Cell(f"{shown.text} ({percent(value / whole)})", shown.value, share=value / whole)


def _range(low: float, high: float) -> Cell:
    if not high >= low:
        return word(NONE)
    return Cell(f"{short(low)} to {short(high)}", f"{high:.6g}")
