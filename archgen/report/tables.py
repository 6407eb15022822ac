"""The tables that compare: machines, points, what bounds them, and what was checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import archgen.report.sheet as sheets
from archgen.energy import costs_of
from archgen.outcomes.axes import axis_of
from archgen.outcomes.bottleneck import verdict
from archgen.outcomes.columns import STALLS
from archgen.outcomes.estimated import has_figures
from archgen.outcomes.figures import DRAM, far_memory, figure_of
from archgen.outcomes.frame import Record, dimensions, grouped, matrix_use, number, size_heading
from archgen.outcomes.points import FIELD, Outcome, Row
from archgen.outcomes.rows import area_row, column_word
from archgen.plots.over_time import stretches
from archgen.report.account import Account
from archgen.report.points import PointView
from archgen.report.ranking import Ranking, Standing
from archgen.report.sheet import Cell, ComputedColumn, Heading, bar, count, ratio, values, words
from archgen.schema.rewritten import peaks
from simmodel.arch.record import Arch
from simmodel.metrics import MOVED, WORK

_MEGA = 1e6
_STATUS = {"does_not_fit": "does not fit", "unsupported": "not supported"}


def machines_sheet(ranking: Ranking) -> sheets.Sheet:
    """One row for each machine, the best first."""
    against = f"against {ranking.baseline}, geometric mean over common workloads"
    total = len(ranking.workloads)
    columns: list[ComputedColumn[Standing]] = [
        values("Rank", lambda s: ranking.places[s.name] if s.best else math.nan, cell=count),
        ComputedColumn(Heading("Machine", number=False),
                       lambda s: sheets.word(s.name, yaml_anchor(ranking, s.name))),
        ComputedColumn(Heading("Results"),
                       lambda s: Cell(f"{len(s.best)} of {total}", str(len(s.best)))),
        values("Speed", lambda s: s.speed, "", f"1 / latency {against}", cell=ratio),
        values("Per area", lambda s: s.per_mm2, "", f"samples/s per mm² {against}", cell=ratio),
        values("Per joule", lambda s: s.per_joule, "", f"samples per joule {against}", cell=ratio),
        values("Area", lambda s: s.area, "mm²"),
        values("Peak", lambda s: peaks(s.arch).tops[s.arch.types[0]], "TOPS"),
        values("DRAM", lambda s: math.nan if s.arch.memories.dram.on_chip
               else s.arch.dram_peak * s.arch.clock / 1e9, "GB/s", "peak"),
        values("On chip", lambda s: peaks(s.arch).on_chip / 1024, "KiB", cell=count),
        values("Clock", lambda s: s.arch.clock / 1e9, "GHz"),
        values("Node", lambda s: s.arch.energy.node or math.nan, "nm"),
    ]  # fmt: skip
    return sheets.sheet("machines", "Machines, the best first", columns, ranking.standings)


def yaml_anchor(ranking: Ranking, name: str) -> str:
    """Id of a machine's file in the page."""
    return f"yaml-{ranking.places[name]}"


def points_sheet(
    points: Sequence[PointView], ranking: Ranking, card_of: Callable[[PointView], str]
) -> sheets.Sheet:
    """One row for each point of the study; `card_of` says which id of the page tells more of it."""
    base = next((each.best for each in ranking.standings if each.name == ranking.baseline), {})
    guessed, far = any(point.is_guess for point in points), far_memory(p.arch for p in points)
    columns: list[ComputedColumn[PointView]] = [
        ComputedColumn(Heading("Machine", number=False),
                       lambda p: sheets.word(p.machine, card_of(p))),
        words("Workload", lambda p: p.workload),
        words("Choice", lambda p: p.choice),
        *(values(h.text, h.key, title=h.title, key=h.key, cell=count) for h in lengths(points)),
        *(_swept_column(heading, field, points) for heading, field in swept(points)),
        ComputedColumn(Heading("Status", number=False), _status),
        values("Estimated", lambda p: p.time if guessed else math.nan, "ms",
               "latency, layer by layer and without a program",
               cell=lambda ms: sheets.figure(ms, 4)),
        ComputedColumn(Heading("Latency", "ms"), lambda p: _figure(p, "latency_ms")),
        ComputedColumn(Heading("Throughput", "samples/s"), lambda p: _figure(p, "throughput_ips")),
        values("Interval", "interval_ms", "ms"),
        values("Speed", lambda p: _speed(p, base), "", f"against the best of {ranking.baseline}",
               cell=ratio),
        values("Matrix use", "matrix_utilization", cell=bar),
        values("Of roofline", "efficiency", cell=bar),
        values("Of bound", "of_bound", cell=bar),
        ComputedColumn(Heading("Held by", number=False), _held_by),
        values(_capital(far), lambda p: figure_of(p.row, DRAM) / _MEGA, "MB", "read and written",
               "dram"),
        values("Local peak", lambda p: p.get("peak_local_bytes") / 1024, "KiB", cell=count),
        values("Working set", lambda p: p.get("working_set_bytes") / 1024, "KiB"),
        values("Energy", "energy_mj", "mJ"),
        values("Area", "area_mm2", "mm²"),
        values("Per area", lambda p: p.per_mm2, "samples/s/mm²"),
        values("Of area", "tops_per_mm2", "TOPS/mm²"),
        values("Efficiency", "tops_per_w", "TOPS/W"),
        values("On host", "host_ops", "operators", cell=count),
        ComputedColumn(Heading("Verified", number=False), _verified),
        words("Schedule from", lambda p: p.text("schedule_from")),
    ]  # fmt: skip
    return sheets.sheet("points", "Every point of the study, in its order", columns, points)


def swept(points: Sequence[PointView]) -> list[tuple[Heading, str]]:
    """The columns of fields of the architecture that the study sweeps, and these fields."""
    return _headed([name for name in (points[0].row if points else {}) if name.startswith(FIELD)])


def _headed(names: Sequence[str]) -> list[tuple[Heading, str]]:
    fields = [name.removeprefix(FIELD) for name in names]
    return [(Heading(".".join(f.split(".")[-2:]), title=f"field {f}"), f) for f in fields]


def _swept_column(
    heading: Heading, field: str, points: Sequence[PointView]
) -> ComputedColumn[PointView]:
    """Cells say their own unit (`512 KiB`, `1 MiB`), and sort and compare in that of the axis."""
    name = f"{FIELD}{field}"
    rows, archs = [point.row for point in points], {point.machine: point.arch for point in points}
    along = axis_of(name, rows, archs)

    def cell(point: PointView) -> Cell:
        value = along.value(point.row)
        if value is None:
            return sheets.word(sheets.NONE)
        shown = along.shown(str(value) if isinstance(value, bool) else value)
        return Cell(shown, f"{along.number(value):.12g}") if along.ordered else sheets.word(shown)

    return ComputedColumn(replace(heading, said=along.unit), cell)


def lengths(points: Sequence[PointView]) -> list[Heading]:
    """The columns of free dimensions of networks in which points differ."""
    names = dimensions([point.row for point in points])
    varied = [name for name in names if len({point.get(name) for point in points}) > 1]
    said = "size of a free input dimension"
    return [Heading(size_heading(name), title=said, key=name) for name in varied]


def machine_description(point: PointView, outcome: Outcome, points: Sequence[PointView]) -> str:
    """What the machine of a point is: its description, or of a variant that a sweep has made what
    sets it apart from the others of `points`. It has inherited its parent's description, which
    speaks of other sizes."""
    family = str(outcome.row.get("family") or point.machine)
    if family == point.machine:
        return point.arch.description
    names = [name for name in outcome.row if name.startswith(FIELD)]
    made = [_swept_column(heading, field, points) for heading, field in _headed(names)]
    parts = [f"{each.heading.text} {each.cell(point).text}" for each in made]
    return f"{family} with {', '.join(parts)}" if parts else f"A variant of {family}"


def _status(point: PointView) -> Cell:
    status, link = str(point.row["status"]), "" if has_figures(point.row) else "refused"
    return sheets.word(_STATUS.get(status, status), link, "bad" if status == "failed" else "")


def _figure(point: PointView, column: str) -> Cell:
    """A figure with four digits; one that was only estimated says so."""
    found = sheets.figure(point.get(column), 4)
    guessed = point.is_guess and found.value
    return replace(found, text=f"{sheets.ABOUT} {found.text}") if guessed else found


def _speed(point: PointView, base: dict[str, PointView]) -> float:
    against = base.get(point.workload)
    return math.nan if against is None or not point.time > 0 else against.time / point.time


def _held_by(point: PointView) -> Cell:
    found = verdict(point.row)
    if not found.cause:
        return sheets.word(sheets.NONE)
    return Cell(f"{found.words} {sheets.percent(found.share)}", f"{found.share:.6g}")


def _verified(point: PointView) -> Cell:
    if point.wrong:
        return sheets.word("WRONG", mark="bad")
    if point.text("verified"):
        some = point.text("executed")
        return sheets.word(f"yes, {some} executed" if some else "yes", mark="good")
    return sheets.word("not checked" if point.has_run else sheets.NONE)


def bounds_sheet(accounts: Sequence[Account]) -> sheets.Sheet:
    """What bounds each machine's best run of each workload."""
    far = far_memory(account.point.arch for account in accounts)
    columns: list[ComputedColumn[Account]] = [
        words("Machine", lambda a: a.point.machine),
        words("Workload", lambda a: a.point.workload),
        ComputedColumn(Heading("Held by", number=False), lambda a: _held_by(a.point)),
        values("Of bound", lambda a: a.point.get("of_bound"), cell=bar),
        values(
            _capital(far), lambda a: a.dram, "", "time of its bytes at its peak rate", "dram", bar
        ),
        values("Matrix busy", lambda a: a.point.get("matrix_busy"), cell=bar),
        values("Vector busy", lambda a: a.point.get("vector_busy"), cell=bar),
        values("Matrix use", lambda a: a.macs, cell=bar),
        *(_wait_column(cause) for cause in STALLS if any(a.waits[cause] > 0 for a in accounts)),
    ]
    caption = f"Shares of the time: engines, {far}, and the matrix engines' waits by cause"
    return sheets.sheet("bounds", caption, columns, accounts)


def _wait_column(cause: str) -> ComputedColumn[Account]:
    title = STALLS[cause].meaning
    return values(f"Waits: {cause}", lambda a: a.waits[cause], "", title, f"waits_{cause}", bar)


_NAMES: tuple[ComputedColumn[PointView], ...] = (
    words("Machine", lambda p: p.machine),
    words("Workload", lambda p: p.workload),
    words("Choice", lambda p: p.choice),
)


def waterfall_sheet(points: Sequence[PointView]) -> sheets.Sheet:
    """From the bound of each run to its cycles: what matrix engines worked on and waited for, and
    what DRAM, or what is in its place, and flash moved; each adds up to the run."""
    parts = [(what, f"work_{column_word(what)}", what, title) for what, title in WORK.items()]
    parts += [(f"waits: {c}", f"stall_{c}", f"waits_{c}", s.meaning) for c, s in STALLS.items()]
    far = far_memory(point.arch for point in points)
    for role, name, start in (("dram", far, "moved"), ("flash", "flash", "flash_moved")):
        parts += [
            (f"{name}: {w}", f"{start}_{column_word(w)}", f"{role}_{w}", t)
            for w, t in MOVED.items()
        ]
    columns: list[ComputedColumn[PointView]] = [
        *_NAMES,
        values("Cycles", "latency_cycles", cell=count),
        values("Least", "bound_cycles", "cycles", cell=count),
        values("Of least", "of_bound", cell=bar),
        ComputedColumn(Heading("Held by", number=False), _held_by),
        *(
            values(_capital(text), name, "", title, key.replace(" ", "_"), bar)
            for text, name, key, title in parts
            if any(point.get(name) > 0 for point in points)
        ),
    ]
    caption = "From the bound to the measured cycle, as shares of it"
    return sheets.sheet("waterfall", caption, columns, points)


def checks_sheet(points: Sequence[PointView]) -> sheets.Sheet:
    """What was compared, how far off it was, and what it took."""
    columns: list[ComputedColumn[PointView]] = [
        *_NAMES,
        ComputedColumn(Heading("Verified", number=False), _verified),
        values("Compared", "compared", "values", cell=count),
        values("Largest error", "operator_error", "of what is allowed"),
        values("Largest step", "max_step_error"),
        values("End to end", "max_abs_error"),
        values("Quantization", "quantization_error", "of the outputs"),
        values("Compile", "compile_s", "s"),
        values("Verify", "verify_s", "s"),
        values("Simulate", "simulate_s", "s"),
    ]
    done = [point for point in points if point.has_run]
    return sheets.sheet("checks", "What was compared, and what it took", columns, done)


# Points without a result: the sum that does not fit, and what would make it fit.

_TRY = "; try: "


@dataclass(frozen=True)
class Refusal:
    """A reason, and the points that it holds for."""

    status: str
    labels: tuple[str, ...]
    reason: tuple[str, ...]
    """Lines; the sum that does not fit."""
    levers: tuple[str, ...]


def refusals(points: Sequence[PointView]) -> list[Refusal]:
    """Every reason for which points have no result, in their order."""
    refused = [point for point in points if not has_figures(point.row)]
    found = grouped(refused, lambda point: (str(point.row["status"]), point.text("reason")))
    return [
        Refusal(_STATUS.get(status, status), tuple(p.label for p in own), *split_reason(reason))
        for (status, reason), own in found.items()
    ]


def split_reason(reason: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines of a reason without its levers, and the levers."""
    lines, levers = [], []
    for line in reason.splitlines():
        said, _, tried = line.partition(_TRY)
        lines.append(said)
        levers += [lever.strip() for lever in tried.split(", or ") if lever.strip()]
    return tuple(lines), tuple(dict.fromkeys(levers))


# The tables of energy and area, each figure with the range that it is known in.


def area_sheet(standings: Sequence[Standing]) -> sheets.Sheet:
    """Area of each machine by part."""
    rows = [(each.arch, _area_row(each)) for each in standings]
    columns: list[ComputedColumn[tuple[Arch, Row]]] = [
        words("Machine", lambda own: own[0].name),
        values("Node", lambda own: own[0].energy.node or math.nan, "nm"),
        values("Total", lambda own: number(own[1], "area_mm2"), "mm²"),
        ComputedColumn(Heading("Range", "mm²"),
                       lambda own: _range(*(number(own[1], f"area_{end}_mm2") for end in _ENDS))),
        values("Without DRAM", lambda own: number(own[1], "core_mm2"), "mm²"),
        *_part_columns(rows, lambda own: own[1], "area_mm2", "mm²"),
    ]  # fmt: skip
    return sheets.sheet("areas", "Area of each machine by part, with its share", columns, rows)


def _area_row(standing: Standing) -> Row:
    """Columns of the area of a machine, which its results have already."""
    known = (point.row for point in standing.points if point.get("area_mm2") > 0)
    return next(known, None) or area_row(costs_of(standing.arch).area)


def energy_sheet(points: Sequence[PointView]) -> sheets.Sheet:
    """Energy of each run by component."""
    columns: list[ComputedColumn[PointView]] = [
        *_NAMES[:2],
        values("Total", "energy_mj", "mJ"),
        ComputedColumn(Heading("Range", "mJ"),
                       lambda p: _range(p.get("energy_low_mj"), p.get("energy_high_mj"))),
        values("Per sample", lambda p: p.per_sample_mj, "mJ"),
        values("Power", "average_w", "W"),
        values("Efficiency", "tops_per_w", "TOPS/W"),
        *_part_columns(points, lambda point: point.row, "energy_mj", "µJ", 1e3),
    ]  # fmt: skip
    caption = "Energy of the best run of each machine and workload, by component, with its share"
    return sheets.sheet("energies", caption, columns, points)


_ENDS = ("low", "high")


def _part_columns(
    items: Sequence[sheets.Item], row_of: Callable[[sheets.Item], Record], whole: str, unit: str,
    factor: float = 1.0,
) -> Iterator[ComputedColumn[sheets.Item]]:  # fmt: skip
    """A column for each part of the column `whole` in rows, times `factor` in `unit`, with its
    share of the whole."""
    start, end = whole.split("_")

    def column(part: str) -> ComputedColumn[sheets.Item]:
        columns = f"{start}_{part}_{end}", whole
        return ComputedColumn(
            Heading(_titled(part), unit, key=part),
            lambda item: _part_cell(*(factor * number(row_of(item), name) for name in columns)),
        )

    names = dict.fromkeys(name for item in items for name in row_of(item))
    parts = (re.fullmatch(rf"{start}_(?!low_|high_)(.+)_{end}", name) for name in names)
    yield from (column(part[1]) for part in parts if part is not None)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _titled(name: str) -> str:
    """`MAC` and `DRAM` are abbreviations, the other components are words."""
    return name.upper() if name in ("mac", "dram") else name.replace("_", " ").capitalize()


def _part_cell(value: float, whole: float) -> Cell:
    shown = sheets.figure(value)
    if not shown.value or not whole > 0:
        return shown
    return Cell(f"{shown.text} ({sheets.percent(value / whole)})", shown.value, share=value / whole)


def _range(low: float, high: float) -> Cell:
    if not high >= low:
        return sheets.word(sheets.NONE)
    return Cell(f"{sheets.short(low)} to {sheets.short(high)}", f"{high:.6g}")


# The layers of one point. Those of a group run at the same time, so a layer's own time is shared
# out: its group's stretch of the run, by the cycles in which engines worked for each of its layers.

_LETTERS = 60


def layer_sheet(account: Account) -> sheets.Sheet:
    """Every layer of a run: when, how much, how well, and what it waited for longest."""
    point, amount = account.point, partial(number, default=0.0)
    rows = zip(account.layers, time_shares(account.layers), strict=True)
    items = [row | {"place": n, "share": share} for n, (row, share) in enumerate(rows, 1)]
    per_layer = "from its first instruction to its last; layers overlap"
    use = (
        "MACs over what the matrix engines could do, in the type of these, in the cycles that they "
        "worked for it"
    )
    cause = "idle cycles of all engines whose next instruction was this layer's"
    columns: list[ComputedColumn[Record]] = [
        values("#", "place", key="place", cell=count),
        values("Group", "group", cell=count),
        ComputedColumn(Heading("Node", number=False), lambda r: _node(str(r["node"]))),
        sheets.words("Operator", lambda r: str(r["operator"])),
        values("Start", "start_cycle", "cycle", cell=count),
        values("Cycles", lambda r: amount(r, "end_cycle") - amount(r, "start_cycle"), "", per_layer,
               cell=count),
        values("Turns", "turns", "", "of the outermost loop that it computes in", cell=count),
        values("Turn", "turn_cycles", "cycles", "from one turn of its loop to the next",
               cell=count),
        values("Share of time", "share", key="share", cell=bar),
        values("MACs", "executed_macs", cell=count),
        values("Matrix use", lambda r: matrix_use(r, point.arch), "", use, "use", bar),
        values("DRAM read", lambda r: amount(r, "dram_read_bytes") / 1e3, "KB"),
        values("DRAM write", lambda r: amount(r, "dram_write_bytes") / 1e3, "KB"),
        values("Energy", lambda r: 1e3 * amount(r, "energy_mj"), "µJ",
               "of its own work, leakage left out"),
        ComputedColumn(Heading("Largest wait", number=False, key="wait", title=cause), _wait),
    ]  # fmt: skip
    return sheets.sheet(f"{point.anchor}-table", f"Layers of {point.label}", columns, items)


def time_shares(rows: Sequence[Record]) -> list[float]:
    """Share of the run's time of each row; adds up to 1 where there is time at all."""
    taken = {part.group: part.end - part.start for part in stretches(rows)}
    total = sum(taken.values()) or 1
    members = grouped(rows, lambda row: int(row["group"]))
    shares = []
    for row in rows:
        group = int(row["group"])
        worked = sum(map(_worked, members[group]))
        share = _worked(row) / worked if worked else 1 / len(members[group])
        shares.append(share * taken.get(group, 0) / total)
    return shares


def _worked(row: Record) -> float:
    """Cycles in which any engine worked for a layer."""
    return sum(number(row, name, 0.0) for name in row if name.startswith("busy_"))


def _node(name: str) -> Cell:
    """The node; of long names the end, which tells layers apart."""
    return Cell(name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…", name)


def _wait(row: Record) -> Cell:
    waits = {cause: number(row, f"stall_{cause}_cycles", 0.0) for cause in STALLS}
    del waits["no_work"]
    cause = max(waits, key=lambda name: waits[name])
    if not waits[cause] > 0:
        return sheets.word(sheets.NONE)
    return Cell(f"{cause} {sheets.integer_text(waits[cause])}", f"{waits[cause]:.6g}")
