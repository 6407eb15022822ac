"""`archgen compile --report` as text: a table of all groups, then each group with its reasons.

The one idea: a number stands beside the one that it is judged by: estimated beside simulated
cycles, what was chosen beside the best that was rejected. Tables shrink with the terminal by
folding names, never by dropping a figure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Console, RenderableType
from rich.text import Text

from archgen.cli.terminal import PlainTable, plain_table
from archgen.outcomes.bottleneck import Verdict
from archgen.outcomes.columns import STALLS
from archgen.toolchain import Explained, Explanation, MeasuredSchedule
from compiler.api import Constants, GroupReport, RejectedOption
from simmodel.arch.units import show_bytes
from simmodel.metrics import MOVED, WORK

_PIPED = 120
"""Width where there is no terminal and COLUMNS is not set."""
_COSTLY = 5
"""Layers whose forms are shown; `--json` has them all."""
_OTHERS = 3
"""Ways beside the one that was taken that are shown."""


def print_report(made: Explanation, held: Verdict) -> None:
    """Print `made`, which `held` holds up, on standard output, as wide as the terminal is."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED
    for part in parts(made, held):
        console.print(part)


def parts(made: Explanation, held: Verdict) -> Iterator[RenderableType]:
    """The report, top to bottom."""
    yield from _head(made, held)
    if made.beside:
        yield _beside(made.beside)
    # Where the cycles of matrix engines, DRAM and flash went, from the bound on; no empty rows.
    engines = WORK | {cause: stall.meaning for cause, stall in STALLS.items()}
    found = made.waterfall
    accounts = (
        ("matrix", found.matrix, engines), ("DRAM", found.dram, MOVED),
        ("flash", found.flash, MOVED),
    )  # fmt: skip
    yield _table("where the cycles went", ">cycles", ">share", "", rows=(
        (f"{name}: {what}", f"{cycles:,.0f}", f"{cycles / made.simulated:.1%}", meaning[what])
        for name, account, meaning in accounts
        for what, cycles in account.items()
        if round(cycles)
    ))  # fmt: skip
    yield _groups(made)
    yield Text("adds: simulated cycles from the end of the groups before; span: from first to last")
    yield from _forms(made)
    if made.host:
        yield Text(f"on the host: {made.host_cycles:,} simulated cycles, none estimated")
    for node in made.host:
        yield Text(f"  {node.origin} ({node.kind}): {node.reason}")
    for explained in made.groups:
        yield from _group_section(explained)


def _head(made: Explanation, held: Verdict) -> Iterator[Text]:
    chosen = ", ".join(f"{name} {value}" for name, value in made.scheduling.columns.items())
    yield Text(f"{made.model} on {made.arch}, {made.dtype}", style="bold")
    yield Text(chosen)
    if len(made.tried) > 1:
        several = len({each.local for each in made.tried}) > 1
        yield Text(f"the best of {len(made.tried)} programs as simulated, the quickest of a kind:")
        least: dict[str, int] = {}
        for each in made.tried:
            memory = f", {show_bytes(each.local)} of local memory" if several else ""
            way = ", ".join((each.partition, *each.how)) + memory
            least[way] = min(each.cycles, least.get(way, each.cycles))
        taken = next((way for way, cycles in least.items() if cycles == made.simulated), None)
        for way, cycles in least.items():
            yield Text(f"  {way}: {cycles:,} cycles{', taken' if way == taken else ''}")
    milliseconds = made.simulated / made.clock * 1e3
    yield Text(
        f"simulated {made.simulated:,} cycles ({milliseconds:.4g} ms), estimated "
        f"{made.estimated:,.0f} ({_estimate_error(made.estimated, made.simulated)})"
    )
    bound, reached = made.bound, made.bound.cycles / max(1, made.simulated)
    said = f"no schedule is below {bound.cycles:,} cycles ({bound.resource})"
    yield Text(f"{said}: {reached:.1%} of this")
    if held.cause:
        yield Text(f"what holds it up: {held.sentence}")
    yield from (Text(f"given up: {note}") for note in made.notes)


_table = partial(plain_table, padding=(0, 1, 0, 0))


def _beside(schedules: Sequence[MeasuredSchedule]) -> PlainTable:
    """A schedule by hand and the compiler's own, as a study measures both."""
    words = {True: "yes", False: "NO", None: "not checked"}
    host = [">on the host"] if any(made.host_cycles for made in schedules) else []
    flight = [">interval"] if any(made.interval_cycles for made in schedules) else []
    return _table("schedule", ">cycles", *host, *flight, ">DRAM MB", ">local", ">verified", rows=(
        (f"{made.schedule}: {made.reason}",)
        if made.cycles is None or made.dram_bytes is None or made.local_bytes is None
        else (made.schedule, f"{made.cycles:,}", *([f"{made.host_cycles:,}"] if host else []),
              *([f"{made.interval_cycles or 0:,}"] if flight else []),
              f"{made.dram_bytes / 1e6:.3f}", show_bytes(made.local_bytes), words[made.verified])
        for made in schedules
    ))  # fmt: skip


def _groups(made: Explanation) -> PlainTable:
    more = ["cores"] if any(g.group.cores != "1 core" for g in made.groups) else []
    table = _table(
        ">#", "nodes", ">layers", "tiles", "halo", *more, ">estimated", ">adds", ">off", ">span",
        ">DRAM MB",
    )  # fmt: skip
    table.columns[1].overflow = "ellipsis"
    for each in made.groups:
        group, took = each.group, each.simulated
        ends = (name.split("+")[0] for name in _ends(group))
        tiles = f"{group.tile_count} x ({group.tiles})" if group.tile_count > 1 else group.tiles
        moved = took.dram_read_bytes + took.dram_write_bytes
        table.add_row(
            str(group.step), " .. ".join(ends), str(len(group.layers)), tiles, group.halo,
            *([group.cores] if more else []), f"{group.adds:,.0f}", f"{took.added:,}",
            _estimate_error(group.adds, took.added), f"{took.last - took.first:,}",
            f"{moved / 1e6:.2f}",
        )  # fmt: skip
    return table


def _forms(made: Explanation) -> Iterator[RenderableType]:
    """Of the layers for which engines work longest, the forms and what was rejected."""
    costs = [
        (cycles, layer)
        for each in made.groups
        for cycles, layer in zip(each.simulated.layers, each.group.layers, strict=False)
        if layer.forms
    ]
    if not costs:
        return
    rows: list[tuple[str | Text, ...]] = []
    for busy, layer in sorted(costs, key=lambda cost: -cost[0])[:_COSTLY]:
        operators = f"{layer.nodes[0].split('+')[0]} ({layer.operator})"
        rows.append((Text(operators, style="bold"), "busy in all", f"{busy:,}"))
        several = len({form.node for form in layer.forms}) > 1
        for form in layer.forms:
            name = f"{form.node.split('+')[0]}: {form.form}" if several else form.form
            own = (name, form.taken, f"{form.cycles:,.0f}")
            others = [_option(each)[1:] for each in form.rejected[:_OTHERS]]
            rows.append((*own, *others[0]) if others else own)
            rows += [("", "", "", *other) for other in others[1:]]
    headings = ("layer, engine and forms", "taken", ">cycles", "rejected", ">would be")
    yield _table(*headings, rows=rows)
    yield Text("engine: cycles of the whole operator; forms: of its largest tile, loops around")
    yield Text("what one instruction walks [in brackets], and other ways, the quickest first")


def _ends(group: GroupReport) -> list[str]:
    """Its first node and its last one."""
    return list(dict.fromkeys((group.nodes[0], group.nodes[-1])))


def _estimate_error(estimated: float, simulated: float) -> str:
    """How far an estimate is off, in percent of the simulated cycles."""
    return f"{100 * (estimated / simulated - 1):+.0f} %" if simulated else "-"


def _group_section(explained: Explained) -> Iterator[RenderableType]:
    group, took = explained.group, explained.simulated
    yield Text(f"\ngroup {group.step}: {' .. '.join(_ends(group))}", style="bold")
    e = group.estimate
    yield Text(
        f"estimated {e.total:,.0f} cycles: matrix {e.matrix:,.0f}, vector {e.vector:,.0f}, "
        f"memory {e.memory:,.0f}, {show_bytes(round(e.bytes))} of DRAM"
    )
    busy = ", ".join(f"{engine} {cycles:,}" for engine, cycles in took.busy.items())
    yield Text(
        f"simulated from {took.first:,} to {took.last:,}, adds {took.added:,} cycles: busy {busy}; "
        f"{show_bytes(took.dram_read_bytes)} read, {show_bytes(took.dram_write_bytes)} written"
    )
    if took.stalls:
        causes = sorted(took.stalls.items(), key=lambda item: -item[1])
        waited = ", ".join(f"{cause} {cycles:,}" for cause, cycles in causes)
        yield Text(f"engines waited for: {waited}")
    yield _choices(group)
    if group.trials:
        yield _table("tried alone", ">estimated", ">simulated", rows=(
            (trial.what, f"{trial.estimated:,.0f}", f"{trial.cycles:,}") for trial in group.trials
        ))  # fmt: skip
    yield _layers(group)
    if arrays := [(str(n), layer.array) for n, layer in enumerate(group.layers) if layer.array]:
        yield _table(">layer", "on the array, largest tile", rows=arrays)
    yield _buffers(group)
    yield Text(", ".join(f"{memory}: {show_bytes(n)} in use" for memory, n in group.peaks.items()))


def _choices(group: GroupReport) -> PlainTable:
    table = _table("decision", "taken", ">chosen", "best rejected", ">would be")
    for choice in group.choices:
        best = f"{group.estimate.total:,.0f}", "there is no other", ""
        rejected = best if choice.rejected is None else _option(choice.rejected)
        table.add_row(choice.decision, choice.taken, *rejected)
        for option in group.neighbours if choice.decision == "group" else ():
            if option != choice.rejected:
                table.add_row("", "", *_option(option))
    return table


def _option(option: RejectedOption) -> tuple[str, str, str]:
    against = f"{option.against:,.0f}"
    what = f"{option.what}: {option.why}" if option.why else option.what
    return against, what, "-" if option.cycles is None else f"{option.cycles:,.0f}"


def _layers(group: GroupReport) -> PlainTable:
    headings = ("nodes", "operator", "engine", "inner loops", "result goes to", "constants")
    return _table(">layer", *headings, rows=(
        (str(position), "+".join(layer.nodes), layer.operator, layer.engine, layer.loops,
         f"{layer.scope} [{', '.join(map(str, layer.shape))}]",
         "\n".join(map(_constants_text, layer.constants)) or "-")
        for position, layer in enumerate(group.layers)
    ))  # fmt: skip


def _constants_text(constants: Constants) -> str:
    how = "loaded once" if constants.stay else "streamed"
    instead = f"; else {constants.instead}" if constants.instead else ""
    return f"{show_bytes(constants.bytes)} {how}, {constants.memory}{instead}"


def _buffers(group: GroupReport) -> PlainTable:
    headings = ("buffer", "memory", "for", ">bytes", ">slots", ">address", "layers")
    return _table(*headings, rows=(
        (b.name, b.memory, b.purpose, f"{b.bytes:,}", str(b.slots), f"{b.address:,}",
         str(b.first) if b.first == b.last else f"{b.first} - {b.last}")
        for b in sorted(group.buffers, key=lambda b: (b.memory, b.address))
    ))  # fmt: skip
