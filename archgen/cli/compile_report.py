"""`archgen compile --report` as text: a table of all groups, then each group with its reasons.

The one idea: a number stands beside the one that it is judged by: estimated beside simulated
cycles, what was chosen beside the best that was rejected. Tables shrink with the terminal by
folding names, never by dropping a figure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from archgen.outcomes.columns import STALLS
from archgen.toolchain import Explained, Explanation, MeasuredSchedule
from compiler.api import Choice, Constants, GroupReport, RejectedOption, SimulatedProgram, Trial
from simmodel.arch.units import show_bytes
from simmodel.waterfall import MOVED, WORK

_PIPED = 120
"""Width where there is no terminal and COLUMNS is not set."""
_COSTLY = 5
"""Layers whose forms are shown; `--json` has them all."""
_OTHERS = 3
"""Ways beside the one that was taken that are shown."""


def print_report(made: Explanation) -> None:
    """Print `made` on standard output, as wide as the terminal is."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPED
    for part in parts(made):
        console.print(part)


def parts(made: Explanation) -> Iterator[RenderableType]:
    """The report, top to bottom."""
    yield from _head(made)
    if made.beside:
        yield _beside(made.beside)
    yield _waterfall(made)
    yield _groups(made)
    yield Text("adds: simulated cycles from the end of the groups before; span: from first to last")
    yield from _forms(made)
    if made.host:
        yield Text(f"on the host: {made.host_cycles:,} simulated cycles, none estimated")
    for node in made.host:
        yield Text(f"  {node.origin} ({node.kind}): {node.reason}")
    for explained in made.groups:
        yield from _group_section(explained)


def _head(made: Explanation) -> Iterator[Text]:
    chosen = ", ".join(f"{name} {value}" for name, value in made.scheduling.columns.items())
    yield Text(f"{made.model} on {made.arch}, {made.dtype}", style="bold")
    yield Text(chosen)
    if len(made.tried) > 1:
        several = len({each.local for each in made.tried}) > 1
        yield Text(f"the best of {len(made.tried)} programs as simulated: {made.partition}, of")
        yield from (Text(f"  {_candidate_text(each, several)}") for each in made.tried)
    milliseconds = made.simulated / made.clock * 1e3
    yield Text(
        f"simulated {made.simulated:,} cycles ({milliseconds:.4g} ms), estimated "
        f"{made.estimated:,.0f} ({_estimate_error(made.estimated, made.simulated)})"
    )
    yield Text(_bound_text(made))
    yield from (Text(f"given up: {note}") for note in made.notes)


def _bound_text(made: Explanation) -> str:
    """What no schedule undercuts, which resource sets that, and how near this one is."""
    bound, reached = made.bound, made.bound.cycles / max(1, made.simulated)
    return f"no schedule is below {bound.cycles:,} cycles ({bound.resource}): {reached:.1%} of this"


def _candidate_text(program: SimulatedProgram, several: bool) -> str:
    memory = f", {show_bytes(program.local)} of local memory" if several else ""
    judged = ", groups as simulated" if program.judged else ""
    return f"{program.partition}{judged}{memory}: {program.cycles:,} cycles"


def _new_table(*headings: str, left: tuple[str, ...] = ()) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(
            heading,
            justify="left" if heading in left else "right",
            overflow="fold",
            no_wrap=heading not in left,
        )
    return table


def _beside(schedules: Sequence[MeasuredSchedule]) -> Table:
    """A schedule by hand and the compiler's own, as a study measures both."""
    table = _new_table("schedule", "cycles", "DRAM MB", "local", "verified", left=("schedule",))
    words = {True: "yes", False: "NO", None: "not checked"}
    for made in schedules:
        if made.cycles is None or made.dram_bytes is None or made.local_bytes is None:
            table.add_row(f"{made.schedule}: {made.reason}", "", "", "", "")
            continue
        table.add_row(
            made.schedule, f"{made.cycles:,}", f"{made.dram_bytes / 1e6:.3f}",
            show_bytes(made.local_bytes), words[made.verified],
        )  # fmt: skip
    return table


def _waterfall(made: Explanation) -> Table:
    """Where the cycles of matrix engines and of DRAM went, from the bound on; no empty rows."""
    table = _new_table(
        "where the cycles went", "cycles", "share", "", left=("where the cycles went", "")
    )
    engines = WORK | {cause: stall.meaning for cause, stall in STALLS.items()}
    accounts = ("matrix", made.waterfall.matrix, engines), ("DRAM", made.waterfall.dram, MOVED)
    for name, account, meaning in accounts:
        for what, cycles in account.items():
            if round(cycles):
                share = cycles / made.simulated
                table.add_row(f"{name}: {what}", f"{cycles:,.0f}", f"{share:.1%}", meaning[what])
    return table


def _groups(made: Explanation) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    several = any(g.group.cores != "1 core" for g in made.groups)
    table.add_column("#", justify="right")
    table.add_column("nodes", overflow="ellipsis")
    table.add_column("layers", justify="right")
    table.add_column("tiles", overflow="fold")
    table.add_column("halo", no_wrap=True)
    if several:
        table.add_column("cores", overflow="fold")
    for heading in ("estimated", "adds", "off", "span", "DRAM MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in made.groups:
        group, took = each.group, each.simulated
        moved = took.dram_read_bytes + took.dram_write_bytes
        table.add_row(
            str(group.step), _short(group), str(len(group.layers)), _tiling_text(group), group.halo,
            *([group.cores] if several else []),
            f"{group.adds:,.0f}", f"{took.added:,}",
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
    left = ("layer, engine and forms", "taken", "rejected")
    table = _new_table(left[0], left[1], "cycles", left[2], "would be", left=left)
    for busy, layer in sorted(costs, key=lambda cost: -cost[0])[:_COSTLY]:
        operators = f"{'+'.join(layer.nodes).split('+')[0]} ({layer.operator})"
        table.add_row(Text(operators, style="bold"), "busy in all", f"{busy:,}", "", "")
        several = len({form.node for form in layer.forms}) > 1
        for form in layer.forms:
            name = f"{form.node.split('+')[0]}: {form.form}" if several else form.form
            others = list(map(_other, form.rejected[:_OTHERS])) or [("", "")]
            for number, other in enumerate(others):
                own = ("", "", "") if number else (name, form.taken, f"{form.cycles:,.0f}")
                table.add_row(*own, *other)
    yield table
    yield Text("engine: cycles of the whole operator; forms: of its largest tile, loops around")
    yield Text("what one instruction walks [in brackets], and other ways, the quickest first")


def _other(option: RejectedOption) -> tuple[str, str]:
    """What was rejected, and its cycles or why it has none."""
    _, what, cycles = _option(option)
    return what, cycles


def _node_span(group: GroupReport) -> str:
    first, last = group.nodes[0], group.nodes[-1]
    return first if first == last else f"{first} .. {last}"


def _short(group: GroupReport) -> str:
    """Its ends, of what was merged into one operator the first."""
    return " .. ".join(name.split("+")[0] for name in _node_span(group).split(" .. "))


def _tiling_text(group: GroupReport) -> str:
    return f"{group.tile_count} x ({group.tiles})" if group.tile_count > 1 else group.tiles


def _estimate_error(estimated: float, simulated: float) -> str:
    """How far an estimate is off, in percent of the simulated cycles."""
    return f"{100 * (estimated / simulated - 1):+.0f} %" if simulated else "-"


def _group_section(explained: Explained) -> Iterator[RenderableType]:
    group, took = explained.group, explained.simulated
    yield Text(f"\ngroup {group.step}: {_node_span(group)}", style="bold")
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
        yield _trials(group.trials)
    yield _layers(group)
    if any(layer.array for layer in group.layers):
        yield _arrays(group)
    yield _buffers(group)
    yield Text(", ".join(f"{memory}: {show_bytes(n)} in use" for memory, n in group.peaks.items()))


def _choices(group: GroupReport) -> Table:
    left = ("decision", "taken", "best rejected")
    table = _new_table("decision", "taken", "chosen", "best rejected", "would be", left=left)
    for choice in group.choices:
        table.add_row(choice.decision, choice.taken, *_rejected(choice, group))
        for option in group.neighbours if choice.decision == "group" else ():
            if option != choice.rejected:
                table.add_row("", "", *_option(option))
    return table


def _trials(trials: Sequence[Trial]) -> Table:
    table = _new_table("tried alone", "estimated", "simulated", left=("tried alone",))
    for trial in trials:
        table.add_row(trial.what, f"{trial.estimated:,.0f}", f"{trial.cycles:,}")
    return table


def _rejected(choice: Choice, group: GroupReport) -> tuple[str, str, str]:
    if choice.rejected is None:
        return f"{group.estimate.total:,.0f}", "there is no other", ""
    return _option(choice.rejected)


def _option(option: RejectedOption) -> tuple[str, str, str]:
    against = f"{option.against:,.0f}"
    what = f"{option.what}: {option.why}" if option.why else option.what
    return against, what, "-" if option.cycles is None else f"{option.cycles:,.0f}"


def _layers(group: GroupReport) -> Table:
    left = ("nodes", "operator", "engine", "inner loops", "result goes to", "constants")
    table = _new_table("layer", *left, left=left)
    for position, layer in enumerate(group.layers):
        constants = "\n".join(map(_constants_text, layer.constants)) or "-"
        table.add_row(
            str(position), "+".join(layer.nodes), layer.operator, layer.engine, layer.loops,
            f"{layer.scope} [{', '.join(map(str, layer.shape))}]", constants,
        )  # fmt: skip
    return table


def _arrays(group: GroupReport) -> Table:
    table = _new_table("layer", "on the array, largest tile", left=("on the array, largest tile",))
    for position, layer in enumerate(group.layers):
        if layer.array:
            table.add_row(str(position), layer.array)
    return table


def _constants_text(constants: Constants) -> str:
    how = "loaded once" if constants.stay else "streamed"
    instead = f"; else {constants.instead}" if constants.instead else ""
    return f"{show_bytes(constants.bytes)} {how}, {constants.memory}{instead}"


def _buffers(group: GroupReport) -> Table:
    left = ("buffer", "memory", "for", "layers")
    table = _new_table("buffer", "memory", "for", "bytes", "slots", "address", "layers", left=left)
    for b in sorted(group.buffers, key=lambda b: (b.memory, b.address)):
        span = str(b.first) if b.first == b.last else f"{b.first} - {b.last}"
        table.add_row(
            b.name, b.memory, b.purpose, f"{b.bytes:,}", str(b.slots), f"{b.address:,}", span
        )
    return table
