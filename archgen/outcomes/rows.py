"""Metrics and traces as rows of the two frames.

The one idea: names of memories, causes and engines become parts of column names here and nowhere
else; what a figure means is said in `archgen.outcomes.columns`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from archgen.energy.area import Area
from archgen.energy.model import Energy
from archgen.outcomes.frame import number
from archgen.outcomes.points import Row
from archgen.schema.rewritten import Fields, changed
from compiler import api
from simmodel.arch.assumed import ends
from simmodel.arch.record import Arch
from simmodel.isa import Copy, HostCall, Indirect
from simmodel.isa.base import instructions
from simmodel.metrics import WORK, Metrics, Waterfall, fullest, taken
from simmodel.program.program import Program
from simmodel.trace import Trace


def metrics_row(metrics: Metrics, program: Program, arch: Arch) -> Row:
    """The measured columns of a finished point."""
    figures = dict(vars(metrics))
    stalls, peaks, gaps, throughput = map(
        figures.pop, ("stalls", "peak_bytes", "bank_gap_bytes", "throughput")
    )
    del figures["dtype"]  # of the products; the point has its own
    row: Row = figures | {
        "throughput_ips": throughput,
        "roofline_cycles": math.ceil(metrics.roofline_cycles),
        "macs": program.macs,
        "host_ops": host_calls(program),
    }
    for role in arch.memories.roles():
        row[f"peak_{role}_bytes"] = peaks.get(role, 0)
    row |= {f"bank_gap_{role}_bytes": gap for role, gap in gaps.items()}
    row |= {f"stall_{cause}": share for cause, share in stalls.items()}
    return row


def bound_row(bound: api.Attainable | None, cycles: int, arch: Arch) -> Row:
    """The columns of the bound that knows the machine, of a run of `cycles`; none without one."""
    if bound is None:
        return {}
    total, name = max(1, cycles), bound.resource
    reached = {"of_bound": bound.cycles / total, "bound_share": bound.by[name] / total}
    by = "shared" if name == "bandwidth" and arch.memories.dram.on_chip else name
    return {"bound_cycles": bound.cycles, "bound_by": by, **reached}


def waterfall_row(found: Waterfall, cycles: int) -> Row:
    """What matrix engines worked on, and DRAM and flash moved, as shares of a run of `cycles`."""
    total = max(1, cycles)
    row: Row = {f"work_{column_word(name)}": found.matrix[name] / total for name in WORK}
    for start, account in (("moved", found.dram), ("flash_moved", found.flash)):
        row |= {f"{start}_{column_word(name)}": n / total for name, n in account.items()}
    return row


def assumed_row(arch: Arch, cycles: int, simulate: Callable[[Arch], int]) -> Row:
    """The range of the latency of a run that took `cycles`, and which assumption of `arch` matters
    most: each runs at both of its ends, and all at their best and at their worst. `simulate` gives
    the cycles of the same program on a machine with other times."""
    if not arch.assumed:
        return {}

    def run(fields: Fields) -> int:
        other = changed(arch, fields)
        return cycles if other is None else simulate(other)

    tried = {
        field: sorted((run({field: end}), end) for end in ends(arch, field))
        for field in arch.assumed
    }
    found = [cycles, *(each for pair in tried.values() for each, _ in pair)]
    if len(tried) > 1:
        found += [run({field: pair[side][1] for field, pair in tried.items()}) for side in (0, 1)]
    spans = {
        field: max(cycles, slow) - min(cycles, quick)
        for field, ((quick, _), (slow, _)) in tried.items()
    }
    most, total = max(spans, key=spans.__getitem__), sum(spans.values())
    ms = 1e3 / arch.clock
    return {
        "latency_low_ms": min(found) * ms,
        "latency_high_ms": max(found) * ms,
        "assumed_most": most if total else None,
        "assumed_share": spans[most] / total if total else None,
    }


def traffic_row(trace: Trace, program: Program, arch: Arch) -> Row:
    """What each copy engine delivered, from core to core and to several cores too, what crossed
    each link, and the share of its time that its busiest instance and direction was used."""
    copied = dict.fromkeys(arch.copy_, 0)
    for expansion, counts in zip(program.expanded, trace.site_counts, strict=True):
        for site, count in zip(expansion.sites, counts.tolist(), strict=True):
            made = site.instruction
            if isinstance(made, Copy):
                rows = isinstance(made, Indirect)
                each = made.source_bytes if rows else made.dst.distinct
                copied[made.engine] += count * site.times * each * max(1, len(made.dst.cores))
    row: Row = {f"copied_{engine}_bytes": moved for engine, moved in copied.items()}
    for name, link in arch.links.items():
        row[f"link_{name}_bytes"] = trace.traffic[f"link.{name}"]
        could = link.bandwidth.at(arch.clock) * max(1, trace.cycles)
        row[f"link_{name}_busiest"] = trace.busiest_lanes[name] / could
    return row


def column_word(name: str) -> str:
    """A name as part of a column's name."""
    return name.replace(" ", "_").replace("-", "_")


def energy_row(energy: Energy, area: Area) -> Row:
    """The columns of energy and area of a finished point."""
    spent = energy.total
    row: Row = {
        "energy_mj": spent.value,
        "energy_low_mj": spent.low,
        "energy_high_mj": spent.high,
        "average_w": energy.average_w,
        "tops_per_w": energy.tops_per_w,
    }
    row |= {f"energy_{name}_mj": part.value for name, part in energy.parts.items()}
    return row | area_row(area)


def area_row(area: Area) -> Row:
    """The columns of area, which need no run."""
    parts = {f"area_{name}_mm2": part.value for name, part in area.parts.items()}
    whole = area.total
    ends = {"area_mm2": whole.value, "area_low_mm2": whole.low, "area_high_mm2": whole.high,
            "core_mm2": area.core.value}  # fmt: skip
    return {**ends, **parts}


def host_calls(program: Program) -> int:
    """Operators that `program` leaves to the host, in one call or in pieces."""
    every = (item for stream in program.cores for item, _ in instructions(stream))
    return len({item.origin for item in every if isinstance(item, HostCall)})


def layer_rows(trace: Trace, program: Program, energies: Sequence[float]) -> list[Row]:
    """One row for each node of the model that has instructions; `energies` are theirs, in mJ."""
    rows, levels = [], {role: taken(own) for role, own in fullest(program.buffers).items()}
    steps = {role: [*level] for role, level in levels.items()}
    for origin, energy in zip(trace.origins, energies, strict=True):
        row: Row = {
            "node": origin.node,
            "operator": origin.kind,
            "group": origin.group,
            "start_cycle": origin.first,
            "end_cycle": origin.last,
            "turns": origin.turns,
            "turn_cycles": origin.turn_cycles,
            "executed_macs": origin.macs,
            "products_cycles": origin.products,
            "instructions": origin.instructions,
            "energy_mj": energy,
        }
        for role, level in levels.items():
            since = bisect_right(steps[role], origin.group)
            row[f"peak_{role}_bytes"] = level[steps[role][since - 1]] if since else 0
        row |= {f"busy_{engine}_cycles": cycles for engine, cycles in origin.busy.items()}
        for role in sorted({*origin.read, *origin.written}):
            row[f"{role}_read_bytes"] = origin.read.get(role, 0)
            row[f"{role}_write_bytes"] = origin.written.get(role, 0)
        rows.append(row | {f"stall_{cause}_cycles": n for cause, n in origin.stalls.items()})
    return rows


# Figures of merit of a point: quotients of figures that it has, such as samples per square
# millimetre.

_LEAST = 0.001
"""Share of a machine's area below which more of it buys nothing: a quotient would be noise."""
_TERA_PER_MS = 1e-9
"""Tera-operations per second of an operation per millisecond."""
_PER_AREA: Mapping[str, str] = {
    "throughput_per_mm2": "area_mm2",
    "throughput_low_per_mm2": "area_high_mm2",
    "throughput_high_per_mm2": "area_low_mm2",
}


def per_area(gain: float, more: float, whole: float) -> float:
    """What each of `more` mm2 gains, on a machine of `whole`; NaN where it takes hardly any."""
    return gain / more if more > 0 and more >= _LEAST * whole else math.nan


def merit_row(row: Row) -> Row:
    """The figures of merit that the figures in `row` allow."""

    def over(above: float, below: float) -> float:
        return above / below if below else math.nan

    latency, area, samples = (
        number(row, name) for name in ("latency_ms", "area_mm2", "throughput_ips")
    )
    tops = over(2 * _TERA_PER_MS * number(row, "macs"), latency)
    found = {name: over(samples, number(row, below)) for name, below in _PER_AREA.items()}
    found |= {
        "tops_per_mm2": over(tops, area),
        "latency_area": latency * area,
        "throughput_per_watt": over(samples, number(row, "average_w")),
    }
    return {name: value for name, value in found.items() if math.isfinite(value)}
