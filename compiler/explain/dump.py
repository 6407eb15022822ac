"""The intermediate forms of a compilation as text: `archgen compile --after STAGE`.

The one idea: a stage's name is enough. The compiler calls an observer after every stage; the form
that was asked for becomes text at once, before a later pass changes it, and what comes later need
not work. A pass that runs again has its turn behind its name: `fold-pad`, `fold-pad.2`. From `fuse`
on a stage may have to give up what it made and make it again; what it made last is shown. Groups,
homes, schedules and addresses are a tree (`compiler.decisions.text`) that says more from stage to
stage, and that `--tree` takes back.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import takewhile
from typing import Any

import onnx
import onnx_ir as ir

from compiler.context import CompileOptions, CompileResult, ScheduledNetwork
from compiler.decisions.text.extract import extract_tree, in_whole, remarks_of
from compiler.decisions.text.text import print_tree
from compiler.errors import CompilerError
from compiler.frontend.importer import NUMBERS
from compiler.geometry.tile_trace import Repeat, TileTrace
from compiler.memory.on_chip import PlacedGroup
from compiler.options import Stages
from compiler.passes import pass_name
from compiler.pipeline import compile_model, emit_program, prepared
from compiler.plan.make_plan import LayerPlan
from compiler.schedule_ir.layer import Layer
from compiler.target.bind import print_bound
from compiler.tensor_ir.nest import HostNode, NestGraph
from compiler.tensor_ir.text import print_graph, print_step
from simmodel.arch.record import Arch
from simmodel.program.assembly import print_program
from simmodel.program.program import Program

_SHOWN = 8
"""Elements up to which a constant's values are written out."""
_ELSEWHERE = re.compile(r' = \["location": "\.\.\."\]')


def _turn(stage: str, turns: Counter[str]) -> str:
    """The name of a stage's next turn: with `.2`, `.3` behind it where it comes again."""
    turns[stage] += 1
    return stage if turns[stage] == 1 or stage in CHOSEN else f"{stage}.{turns[stage]}"


CHOSEN = ("fuse", "pin", "keep", "homes", "tree", "tile", "plan", "layout", "emit", "order")
"""Stages whose forms differ between the programs that are tried."""
PLACED = ("tree", "tile", "plan", "layout")
"""Those among them that print the steps of a program."""
_TURNS: Counter[str] = Counter()
FORMS = (
    *(
        _turn(pass_name(type(step)), _TURNS)
        for known in takewhile(lambda known: known.name != "partition", fields(Stages))
        for held in [getattr(Stages(), known.name)]
        for step in (held if isinstance(held, tuple) else [held])
    ),
    *CHOSEN,
)
"""Everything that can be printed, in order: graphs, nests, groups, schedules, plans, programs."""


class _Reached(Exception):
    """The form that was asked for is there."""


def form_of(stage: str, result: CompileResult) -> str | None:
    """What `stage` made of the groups of `result`, whoever chose their schedules; None for a stage
    before that."""
    search = result.search
    if search is not None and stage == "emit":
        stages = search.costs.stages
        order = replace(stages.order, enabled=False)
        split = replace(stages.split, enabled=False)
        fill = replace(stages.fill, enabled=False)
        plain = search.context.with_stages(replace(stages, order=order, split=split, fill=fill))
        code = emit_program(ScheduledNetwork(search, result.steps), plain)
        return print_program(code.program)
    if stage == "order":
        return print_program(result.program)
    if stage not in PLACED or search is None:
        return None
    return text_of(stage, result.steps, search.graph.name)


def form_after(
    stage: str, proto: onnx.ModelProto, name: str, arch: Arch, options: CompileOptions
) -> str:
    """What `stage` (of `FORMS`) makes of the network `proto`, as text that ends with a newline.

    Raises ValueError for no stage, and whatever the compiler refuses in a stage before it.
    """
    if stage == "emit":  # as it is emitted: before it is put in order
        stages = replace(options.stages, order=replace(options.stages.order, enabled=False))
        options, stage = replace(options, stages=stages), "order"
    text, turns = "", Counter[str]()

    def observe(reached: str, form: object) -> None:
        nonlocal text
        if stage == _turn(reached, turns):
            text = text_of(reached, form, name)
            if reached not in CHOSEN:
                raise _Reached

    try:
        compile_model(prepared(proto, name, options.stages, observe), arch, options, observe)
    except _Reached:
        pass
    except CompilerError:
        if not text:
            raise
    if not text:
        raise ValueError(f"no stage {stage!r}; there are: {', '.join(FORMS)}")
    return text


def text_of(stage: str, form: Any, network: str) -> str:
    """A stage's result as text; groups and schedules are those of `network`."""
    if isinstance(form, ir.Model):
        return _graph(form)
    if isinstance(form, NestGraph):
        return print_graph(form)
    if isinstance(form, Program):
        return print_program(form)
    if stage in _WRITERS:
        return "\n".join(_WRITERS[stage](form)) + "\n"
    tree, first = in_whole(extract_tree(network, form, addresses=stage == "layout"))
    return print_tree(tree, remarks_of(tree, [form[number] for number in first]))


def _graph(model: ir.Model) -> str:
    """ONNX text; constants of many elements without their values."""
    proto = ir.to_proto(model)
    for tensor in proto.graph.initializer:
        if math.prod(tensor.dims) > _SHOWN:
            for field in NUMBERS:
                tensor.ClearField(field)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="...")
    return _ELSEWHERE.sub("", onnx.printer.to_text(proto)) + "\n"


def _each_part(
    parts: Sequence[Layer | PlacedGroup | HostNode], lines: Callable[[Any], Iterator[str]]
) -> Iterator[str]:
    """Calls of the host in a line, and the `lines` of layers or groups below their names."""
    for number, part in enumerate(parts):
        if isinstance(part, HostNode):
            yield f"{number} {print_step(part)}"
            continue
        of_group = isinstance(part, PlacedGroup) and part.plan.schedule.group.name
        yield f"group {number}: {of_group}" if of_group else f"layer {number}"
        yield from (f"  {line}" for line in lines(part))


def _tile_lines(step: PlacedGroup) -> Iterator[str]:
    """The sequence of tiles of each core: runs that are alike but for where they lie, and what each
    layer computes in them."""
    for core, walked in enumerate(step.plan.walked):
        turns = f", {walked.repeats} times" if walked.repeats > 1 else ""
        yield f"core {core}: {len(walked.moments)} tiles{turns}"
        yield from (
            f"  {line}" for run in walked.alike for line in _repeat_lines(run, walked, step)
        )


def _repeat_lines(run: Repeat, walked: TileTrace, step: PlacedGroup) -> Iterator[str]:
    last = run.first + run.count - 1
    ends = {0: "first", len(walked.moments) - 1: "last"}
    kind = ends.get(run.first, "middle") if run.count == 1 else "middle"
    tiles = f"tile {run.first}" if run.count == 1 else f"tiles {run.first} - {last}"
    yield f"{tiles} ({kind})"
    work = walked.moments[run.first].work
    for layer, box in zip(step.plan.schedule.group.layers, work, strict=True):
        made = "nothing new" if box is None else ", ".join(f"{at}:{at + n}" for at, n in box)
        yield f"  {layer.result.name}: {made}"


def _plan(step: PlacedGroup) -> Iterator[str]:
    plan = step.plan
    for b in plan.buffers.values():
        shape = ", ".join(map(str, b.shape))
        yield f"buffer {b.name}: {b.role} {b.dtype}[{shape}] {b.slots} x {b.bytes} B"
    yield from (f"load {buffer} with {engine}" for buffer, engine in plan.loads)
    for layer in plan.layers:
        yield f"layer {layer.position}: {layer.tiled.layer.name}"
        yield from (f"  {line}" for line in _step_lines(layer))
    yield from (f"store {buffer} with {engine}" for buffer, engine in plan.stores)


def _step_lines(layer: LayerPlan) -> Iterator[str]:
    yield from (f"load {buffer} with {engine}" for buffer, engine in layer.loads)
    for c in layer.computes:
        sums = f" sums {c.sums}" if c.sums is not None else ""
        reads = ", ".join(c.reads)
        yield f"{c.nest.kind or c.nest.function} on {c.binding.engine}: {reads} -> {c.writes}{sums}"
    if layer.store is not None:
        yield f"store {layer.result} with {layer.store}"


_WRITERS: dict[str, Callable[[Any], Iterator[str]]] = {
    "fuse-tails": partial(_each_part, lines=lambda layer: map(print_step, layer.nests)),
    "bind": print_bound,
    "tile": partial(_each_part, lines=_tile_lines),
    "plan": partial(_each_part, lines=_plan),
}
"""Stages whose forms are neither graphs nor trees -> how these become lines."""
