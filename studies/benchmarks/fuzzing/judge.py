"""What becomes of a case, as one word and a signature by which equal causes are grouped.

The one idea: a case goes through the workbench as a point of a study with verification. Answers are
`right`, `unproven`, `does_not_fit` (its sum adds up) and `unsupported`; everything else is a
failure. A failure's signature names the error and the innermost function of ours on its way, or
the operator whose result is wrong: no line numbers, no seeds, no figures.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import onnx

from archgen.outcomes.points import Outcome
from archgen.schema import ArchError
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, Compiled, Request, Toolchain, compile_best
from compiler import api
from compiler.decisions.text.tree import Call, ScheduleStep
from compiler.errors import DoesNotFit
from compiler.explain.dump import form_of
from fuzzing.cases import Case
from simmodel.arch.record import Arch
from simmodel.execute import Host, Run, Skip, run
from simmodel.program.assembly import constant_data, print_program
from simmodel.program.assembly_reader import parse_program
from simmodel.program.program import Probe, Program
from simmodel.verify.happens_before import random_order, starving_order

ANSWERS = ("right", "unproven", "does_not_fit", "unsupported")
ORDERS = {"a random order": random_order, "an order that starves queues": starving_order}
"""Legal orders in which a program is executed again, by what they are drawn from."""
Inputs = Mapping[str, Any]
_FRAME = re.compile(r'File "[^"]*?((?:archgen|compiler|simmodel)/[\w/]+\.py)", line \d+, in (\w+)')
_BECAUSE = "The above exception was the direct cause"
_ERROR = re.compile(r"[A-Za-z_][\w.]*(:|$)")
_NUMBERS = re.compile(r"\w*\d\w*")
_KIND = re.compile(r"\[([a-z ]+)\]")
_SHAPE = re.compile(r": is (\[|missing)")
_OFF = re.compile(r"([\w.]+): (?:off by|is )")


class OutOfTime(BaseException):
    """The case has had its CPU seconds; no handler of errors stops this."""


@dataclass(frozen=True)
class Verdict:
    """What became of a case."""

    kind: str
    """One of `ANSWERS`, or a failure as the README beside `fuzz.py` lists them."""
    signature: str = ""
    """What equal causes share."""
    reason: str = ""
    """The message, shortened."""
    cycles: int = 0
    seconds: float = 0.0
    """CPU."""

    @property
    def good(self) -> bool:
        """Whether it is an answer."""
        return self.kind in ANSWERS

    def same(self, other: Verdict) -> bool:
        """Whether both have one cause."""
        return (self.kind, self.signature) == (other.kind, other.signature)

    def record(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


class Orders:
    """Executes what it is given in the order of `tools`, then in other legal ones."""

    def __init__(self, tools: Toolchain) -> None:
        self._tools = tools
        self.differing: list[str] = []
        """Orders in which outputs were other bytes."""

    def execute(
        self, program: Program, inputs: Inputs, arch: Arch, host: Host, probes: Sequence[Probe],
        skip: Skip,
    ) -> Run:  # fmt: skip
        """The run of the first order."""
        found = self._tools.execute(program, inputs, arch, host, probes, skip)
        wanted = {name: values.tobytes() for name, values in found.outputs.items()}
        for name, order in ORDERS.items():
            got = run(program, inputs, arch, host, probes, skip, order(1)).outputs
            if {name: values.tobytes() for name, values in got.items()} != wanted:
                self.differing.append(name)
        return found


def judged(case: Case, folder: Path, cpu: float = 60, tools: Toolchain = STANDARD) -> Verdict:
    """What `tools` make of `case`, whose files are written to `folder`, within `cpu` seconds."""
    case.write(folder)
    begun = time.process_time()
    found = within(cpu, lambda: _judged(case, folder, tools))
    return replace(found, seconds=round(time.process_time() - begun, 2))


def within(cpu: float, work: Callable[[], Verdict]) -> Verdict:
    """What `work` says, or `hang` with the place where its CPU seconds ended."""
    place: list[str] = []

    def stop(_: int, frame: FrameType | None) -> None:
        place.append(innermost_of(frame))
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu)
    try:
        return work()
    except OutOfTime:
        return Verdict("hang", place[0], f"more than {cpu:.0f} CPU seconds")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def innermost_of(frame: FrameType | None) -> str:
    """File and function of the package in which `frame` runs: the stage, not the very line."""
    while frame is not None:
        path = frame.f_code.co_filename
        found = re.search(r"(?:archgen|compiler|simmodel)/[\w/]+\.py$", path)
        if found:
            return f"{found[0]}:{frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


def _judged(case: Case, folder: Path, tools: Toolchain) -> Verdict:
    refusals: list[DoesNotFit] = []
    programs: list[Compiled] = []
    requests: list[Request] = []

    def compiled(request: Request) -> Compiled:
        requests.append(request)
        try:
            programs.append(tools.compile(request))
        except DoesNotFit as why:
            refusals.append(why)
            raise
        return programs[-1]

    try:
        point = case.point(folder)
    except ArchError as why:
        return Verdict("crash", "ArchError", str(why)[:300])
    orders = Orders(tools)
    outcome = Workbench(replace(tools, compile=compiled, execute=orders.execute)).run(point)
    if outcome.status == "does_not_fit":
        return _sum(refusals, outcome)
    if outcome.status != "ok":
        return _stopped(outcome)
    found = _finished(outcome, case, programs[0])  # others are of levers
    if found.kind == "right" and orders.differing:
        return Verdict("order", "legal orders", f"outputs differ in {orders.differing}")
    if not case.scattered or found.kind != "right":
        return found
    tree = scattered_tree(requests[0], case.scattered)
    way = replace(point.scheduling, tree=tree)
    again = _judged(replace(case, scheduling=way, scattered=0), folder, tools)
    # some axes are for cores that work beside tensors which stay, and `homes` are left out
    refused = again.signature.startswith("TreeError") and "cannot be split along" in again.reason
    return found if again.good or refused else again


def scattered_tree(request: Request, seed: int) -> api.Tree:
    """The compiler's own schedule with steps on any cores that are as many as they have parts."""
    rng, result = random.Random(seed), compile_best(request).result
    text = form_of("tree", result)
    assert text is not None
    tree, cores = api.parse_tree(text), request.arch.core_count

    def moved(step: ScheduleStep | Call) -> ScheduleStep | Call:
        if isinstance(step, Call) or not step.cores or rng.random() < 0.2:
            return step
        first = rng.randrange(cores - len(step.cores) + 1)
        return replace(step, among=(first, first + len(step.cores)))

    return replace(tree, steps=tuple(map(moved, tree.steps)), homes=())


def _sum(refusals: list[DoesNotFit], outcome: Outcome) -> Verdict:
    """A refusal whose terms add up to what is asked for, which is more than there is."""
    reason = str(outcome.row["reason"])[:300]
    for why in refusals:
        if why.demand <= why.bound or sum(n for _, n in why.terms) != why.demand:
            return Verdict("sum", "terms", reason)
        if not why.levers or not why.where:
            return Verdict("sum", "no levers", reason)
    return Verdict("does_not_fit", "", reason)


def _stopped(outcome: Outcome) -> Verdict:
    reason = str(outcome.row["reason"])
    if outcome.status == "unsupported":
        if "ONNX Runtime cannot run" in reason:  # each operator has run there, as it was drawn
            return Verdict("reference", _NUMBERS.sub("", reason.split(":")[-1])[:80], reason[:600])
        return Verdict("unsupported", "", reason[:300])
    trace = str(outcome.details.get("traceback", ""))
    if "VerifyError: " in reason:
        rules = sorted(set(_KIND.findall(reason)))
        return Verdict("rejected", " ".join(rules), reason[:600])
    return Verdict("crash", cause_of(trace) if trace else reason[:60], reason[:600])


def cause_of(trace: str) -> str:
    """The first error of a traceback, and the innermost function of ours on its way."""
    first = trace.split(_BECAUSE)[0].strip()
    frames = _FRAME.findall(first)
    place = ":".join(frames[-1]) if frames else "elsewhere"
    said = [line for line in first.splitlines() if _ERROR.match(line)]
    kind = said[-1].split(":")[0].rsplit(".", 1)[-1] if said else "error"
    return f"{kind} {place}"


def _finished(outcome: Outcome, case: Case, made: Compiled) -> Verdict:
    row = outcome.row
    cycles = int(row.get("latency_cycles") or 0)
    note = str(row.get("note") or "")
    if row["verified"] is False:
        kind = "shape" if _SHAPE.search(note) else "wrong"
        return Verdict(kind, f"{case.dtype} {_blamed(note, case.model)}", note[:600], cycles)
    for name in ("matrix_utilization", "efficiency"):
        if float(row.get(name) or 0) > 1.0001:  # type: ignore[arg-type]
            return Verdict("account", name, f"{name} {row[name]}", cycles)
    text = print_program(made.program)
    if print_program(parse_program(text, constant_data(made.program))) != text:
        return Verdict("crash", "text of the program changes when read", "", cycles)
    right = row["verified"] is True
    return Verdict("right" if right else "unproven", "", note[:300], cycles)


def _blamed(note: str, model: onnx.ModelProto) -> str:
    """Operators whose results the note calls wrong."""
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    blamed = {makers.get(name, "") for name in _OFF.findall(note)}
    return " ".join(sorted(blamed - {""})) or "elsewhere"
