"""One point of a study from model to row: prepare, compile, execute and compare, simulate, measure.

The one idea: whatever happens becomes an outcome. What the compiler refuses is an answer with its
reason; an unexpected error is kept with its traceback, so that one point never stops the others.
A workbench lives as long as its process and keeps what consecutive points share: the opened model,
its quantized form, inputs and reference outputs, and what the compiler has decided.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import onnx

from archgen.check import reference, verify
from archgen.check.quantize import quantization_error, unquantized_outputs
from archgen.check.quantizer_input import PRODUCTS
from archgen.energy import costs_of
from archgen.energy.model import energy_of, energy_of_events
from archgen.energy.price import price_row
from archgen.energy.sram import MissingSource
from archgen.extensions import Extension, ExtensionError, activate, blaming_extensions
from archgen.models.binding import declared_otherwise
from archgen.models.encodings import formats_of
from archgen.models.load import ModelError
from archgen.outcomes import rows
from archgen.outcomes.bottleneck import DETAIL, bottleneck_row
from archgen.outcomes.estimated import ESTIMATED
from archgen.outcomes.frame import number
from archgen.outcomes.points import Outcome, Point, Row
from archgen.outcomes.timeline import tables
from archgen.perfetto import compressed, trace_bytes
from archgen.process.files import Recent, cache_dir, code_version, content_hash
from archgen.process.guard import refusal
from archgen.process.internal_errors import error_line, written
from archgen.process.steps import step
from archgen.report.levers import TrialTools, tried
from archgen.report.ranking import machine_content
from archgen.scheduling import DEFAULT
from archgen.studies.prepare import CachedModel, Models
from archgen.studies.store import StudyScheduleCache
from archgen.toolchain import STANDARD, Compiled, MeasuredSchedule, Request, Toolchain
from compiler import api
from simmodel.arch.dtype import Array
from simmodel.arch.element_types import MX
from simmodel.arch.record import Arch
from simmodel.errors import HostFailed, Impossible, NoSuchRow
from simmodel.execute import Skip
from simmodel.metrics import products, waterfall
from simmodel.program.program import Program
from simmodel.trace import Trace

Result = TypeVar("Result")


def outcome_of(point: Point, work: Callable[[], Outcome]) -> Outcome:
    """What `work` makes of `point`, or the outcome that says why there is nothing."""
    if point.dtype not in point.arch.types:
        known = ", ".join(point.arch.types)
        reason = f"{point.arch.name} runs networks of {known}, not {point.dtype}"
        return _refused(point, "unsupported", reason)
    try:
        # Numbers that overflow are wrong or not; the comparison says so, not a warning.
        with np.errstate(all="ignore"):
            activate(point.extensions)
            with blaming_extensions():
                return work()
    except api.DoesNotFit as answer:
        return _refused(point, "does_not_fit", str(answer))
    except (api.UnsupportedModel, ModelError, MissingSource) as answer:
        return _refused(point, "unsupported", str(answer))
    except (ExtensionError, HostFailed, NoSuchRow) as mistake:
        return failure(point, str(mistake))
    except MemoryError as mistake:
        return failure(point, refusal(point.batch, mistake))
    except Exception as mistake:
        return failure(point, mistake)


_LATEST = 1 << 25
"""Bytes of a check's results that are kept where no other point may ask for them."""
_MOST_QUICK = 100
"""Changed machines whose cycles a workbench keeps: points of a study share them."""


class Workbench:
    """Runs points one after the other and keeps the last models that they needed."""

    def __init__(self, tools: Toolchain) -> None:
        self.tools = tools
        self._models = Models(tools.load)
        self._unquantized = Recent[Mapping[str, Array]]()
        self._quick = Recent[int | None](_MOST_QUICK)
        self._memo = api.Memo(_LATEST) if tools.alone else api.Memo()
        self._bucket: tuple[Request, Compiled | api.DoesNotFit | api.UnsupportedModel] | None = None
        self._decisions: dict[tuple[Extension, ...], api.Decisions] = {}

    def run(self, point: Point) -> Outcome:
        """What becomes of `point`; never raises for anything about the point itself."""
        return outcome_of(point, lambda: self._run_point(point, point.identity()))

    def _run_point(self, point: Point, row: Row) -> Outcome:
        arch, tools, kept = point.arch, self.tools, self._models.of(point)
        model = kept.model
        request = Request(
            model.name, kept.loaded, arch, point.dtype, point.host, point.scheduling,
            point.schedule_from, self._decided_with(point.extensions),
        )  # fmt: skip
        compiled, compile_s = _timed(lambda: self._compiled(request, point))
        program = compiled.program
        notes = [declared_otherwise(model.proto.graph, program.outputs), model.note]
        notes += [_unread_format(point, program), _products_elsewhere(compiled)]
        verify_s: float | None = None
        checked: Row = {}
        if point.verify:
            verdict, verify_s = _timed(lambda: self._verify(point, kept, compiled))
            checked = _verdict_row(verdict)
            # What is wrong is read first.
            notes.insert(0 if verdict.verified is False else len(notes), verdict.note)
        trace, simulate_s = self._simulated(compiled, arch)
        try:
            metrics = tools.measure(trace, program, arch, point.batch)
        except Impossible as why:
            # It left out what its outputs take, whatever values were compared.
            checked["verified"] = False
            notes.insert(0, str(why))
            program = replace(program, demand=None, macs=min(program.macs, trace.macs))
            metrics = tools.measure(trace, program, arch, point.batch)
        repeated = self._repeated(point, kept, compiled, notes)
        costs = costs_of(arch)
        energy = energy_of(trace, program, arch, costs)
        row |= {"status": "ok", **rows.metrics_row(metrics, program, arch), **repeated}
        row |= rows.assumed_row(arch, trace.cycles, partial(tools.cycles, program))
        row |= rows.traffic_row(trace, program, arch)
        row |= rows.bound_row(compiled.bound, trace.cycles, arch)
        row |= rows.waterfall_row(waterfall(trace, program, arch), trace.cycles)
        if point.schedule_from is not None:
            row["schedule_from"] = point.schedule_from.name
        row |= rows.energy_row(energy, costs.area)
        joules = energy.total.value * 1e-3 / point.batch
        row |= price_row(arch, costs.area, number(row, "throughput_ips"), joules)
        row |= rows.merit_row(row) | bottleneck_row(row)
        row |= {"compile_s": compile_s, "verify_s": verify_s, "simulate_s": simulate_s}
        row["working_set_bytes"] = compiled.working_set
        row |= checked | repeated
        row["note"] = "; ".join(filter(None, notes)) or None
        own = rows.layer_rows(trace, program, energy.layers)
        layers = [point.identity() | layer for layer in own]
        details = {
            "report": compiled.report,
            "traffic": dict(trace.traffic),
            "tokens": max(map(len, program.tokens), default=0),
        }
        made = tables(trace, program, arch, point.identity())
        if point.trace and made:
            made["trace"] = compressed(trace_bytes(trace, program, arch))
        outcome = Outcome(point.key, point.label, row, layers, details, made)
        if not tools.tries:
            return outcome
        return self._with_tried_changes(outcome, request, compiled, (model.key, point.extensions))

    def _with_tried_changes(
        self, outcome: Outcome, request: Request, compiled: Compiled, network: tuple[object, ...]
    ) -> Outcome:
        """`outcome` with what changes of its machine bring; `network` and the request say what was
        compiled."""
        way = replace(request.scheduling, effort=0, objective=DEFAULT.objective, tree=None)
        quick = replace(request, scheduling=way, schedule_from=None)

        def anew(arch: Arch) -> int | None:
            if arch == request.arch:
                if quick == request:
                    return round(number(outcome.row, "latency_cycles"))
                for stages, cycles in compiled.quick:
                    if stages == way.stages:
                        return cycles
            key = (*network, request.dtype, request.host, way, machine_content(arch))
            return self._quick.get(key, lambda: self._anew(replace(quick, arch=arch)))

        def cycles(arch: Arch) -> int:
            with step(f"trying a change of {arch.name}"):
                return self.tools.cycles(compiled.program, arch)

        can = self.tools.anew and compiled.products
        means = TrialTools(cycles, compiled.products, anew if can else None)
        found = tried(outcome, request.arch, means)
        return replace(
            outcome, details={**outcome.details, DETAIL: [asdict(each) for each in found]}
        )

    def _anew(self, request: Request) -> int | None:
        """Cycles of a program; None where there is none."""
        try:
            return self._simulated(self.tools.compile(request), request.arch)[0].cycles
        except Exception:
            # A point stands, whatever becomes of a machine that nobody has asked for.
            return None

    def _compiled(self, request: Request, point: Point) -> Compiled:
        """The program; one for all lengths of the point's ranges is made once, and once refused."""
        if not point.ranges:
            return self.tools.compile(request)
        if self._bucket is None or self._bucket[0] != request:
            try:
                self._bucket = request, self.tools.compile(request)
            except (api.DoesNotFit, api.UnsupportedModel) as answer:
                self._bucket = request, answer
        known = self._bucket[1]
        if isinstance(known, Exception):
            raise known
        at = known.at
        if at is None:
            raise api.UnsupportedModel("this toolchain has no programs for ranges of sizes")
        return at(point.lengths)

    def _decided_with(self, extensions: tuple[Extension, ...]) -> api.Decisions:
        """The compiler's decisions, which are others with other extensions."""
        if extensions not in self._decisions:
            folder = self.tools.decisions
            contents = [each.content for each in extensions]
            salt = content_hash({"code": code_version(), "extensions": contents})
            shelf = None if folder is None else StudyScheduleCache(folder)
            self._decisions[extensions] = api.Decisions(shelf, salt)
        return self._decisions[extensions]

    def _simulated(self, compiled: Compiled, arch: Arch) -> tuple[Trace, float]:
        """The run of a program and its seconds, unless the compiler has these already."""
        if compiled.trace is not None:
            return compiled.trace, compiled.simulate_s
        return _timed(lambda: self.tools.simulate(compiled.program, arch))

    def _repeated(
        self, point: Point, kept: CachedModel, compiled: Compiled, notes: list[str]
    ) -> Row:
        """Columns of several inferences one after another, of which the last is checked; to `notes`
        what is to be said of it."""
        if point.in_flight == 1:
            return {}
        if compiled.repeated is None:
            notes.append("in flight: not where one program is for a range of sizes")
            return {}
        said = f"{point.in_flight} inferences in flight"
        try:
            with step(said):
                several, cycles = compiled.repeated(point.in_flight)
        except api.DoesNotFit as why:
            notes.append(f"{said}: {why}")
            return {}
        if (segments := several.report.get("segments", 1)) > 1:
            notes.append(f"{said}: {segments} segments of layers, each on cores of its own")
        seconds = max(1, cycles) / point.arch.clock
        row: Row = {
            "in_flight": point.in_flight, "interval_ms": seconds * 1e3,
            "throughput_ips": point.batch / seconds,
        }  # fmt: skip
        if not point.verify:
            return row
        verdict = self._verify(point, kept, several, every=True)
        if verdict.verified is False:
            notes.insert(0, f"{said}, the last: {verdict.note}")
            return {"verified": False}
        return row

    def _verify(
        self, point: Point, kept: CachedModel, compiled: Compiled, every: bool = False
    ) -> verify.Comparison:
        """The verdict on the values of the program, where `every` one of equal layers is executed
        or as many as the point wants."""
        recipe, again = compiled.recipe, None
        if recipe is not None:
            again = api.Recomputation(
                verify.as_named(recipe, kept.model.proto), self._memo, reference.run_node,
                every=every or point.execute == "all",
            )  # fmt: skip
        if again is None or not again.skipped.twins:
            return self._comparison(point, kept, compiled, again)
        # What is wrong is said in full, and nothing is that had come from what was skipped.
        if again.skipped.proved_in(compiled.program):
            verdict = self._comparison(point, kept, compiled, again)
            if verdict.verified:
                return replace(verdict, max_abs_error=None, executed=str(again.skipped))
        return self._verify(point, kept, compiled, every=True)

    def _comparison(
        self, point: Point, kept: CachedModel, compiled: Compiled, again: api.Recomputation | None
    ) -> verify.Comparison:
        """The verdict on what `again` computes; errors of outputs are end to end."""
        model, tools = kept.model, self.tools
        skipped = api.NOTHING_SKIPPED if again is None else again.skipped
        inputs = reference.sample_inputs(model.proto)
        with step(f"running {model.name} in ONNX Runtime"):
            between = sorted({value.name for value in skipped.given.values()})
            whole: dict[str, Array] | None = None
            if between or not skipped.twins:  # else nothing starts from it, and it has all layers
                whole = reference.cached_reference(
                    model.proto, model.key, inputs, cache_dir(), between
                )
                made_as = {port.name: port.shape for port in compiled.program.outputs}
                reference.check_declared(model.proto, made_as, whole)
        given = {} if again is None else skipped.raw(whole or {}, again.recipe.graph)
        probes = [each for each in compiled.probes if each.name not in skipped.lacking]
        run = tools.execute(
            compiled.program, inputs, point.arch, reference.run_node, probes,
            Skip(frozenset(skipped.twins), given),
        )  # fmt: skip
        parts: Iterable[api.ExpectedValues] = [api.ExpectedValues(dict(inputs))]
        own: Mapping[str, str] = {}
        unmade: Collection[str] = ()
        if again is not None:
            parts, own = again.run(inputs, run.take, given), again.observed
            unmade = again.unmade

        def computed(key: str, make: Callable[[], verify.Arrays]) -> verify.Arrays:
            # Machines that compute the same integers need it once.
            with step(f"running parts of {model.name} in ONNX Runtime"):
                return self._memo.get(f"{model.key} {key}", make)

        cut = verify.CutReference(model.proto, own, computed, unmade)
        checking = verify.Checking(cut)
        for part in parts:
            checking.take(part)
        outputs = {n: values for n, values in run.outputs.items() if n not in skipped.outputs}
        rest = {name: _as_given(compiled, name, values) for name, values in outputs.items()}
        verdict = checking.verdict(outputs, whole, rest)
        if point.dtype != "int8" or skipped.carried:
            return verdict  # what lies on chip behind equal layers is not the network's
        with step(f"running {model.name} in ONNX Runtime as it was"):
            exact = self._unquantized.get(
                model.key, lambda: unquantized_outputs(kept.opened, inputs, cache_dir())
            )
        return replace(verdict, quantization_error=quantization_error(outputs, exact))


def _unread_format(point: Point, program: Program) -> str:
    """That the format in which weights or activations are asked for saves nothing, and where it
    would."""
    arch, (_, formats) = point.arch, formats_of(point.model)
    kind = formats.get("weights", "")
    if active := formats.get("activations"):
        if any(made.a.dtype == active for made, _ in products(program)):
            return ""
        if arch.matrix.peak(active) and arch.vector.has(active):
            return f"activations={active} saves nothing: no product has constant weights in blocks"
        lacking = "matrix.rate" if arch.vector.has(active) else "vector.types"
        return f"activations={active}: {lacking} of {arch.name} has none, so the host multiplies"
    if not kind or any(made.w.dtype.endswith(kind) for made, _ in products(program)):
        return ""
    said = f"weights={kind} only rounds weights, which are read as those of {point.dtype}"
    able = [name for name in MX if name.endswith(kind)]
    read = " or ".join(MX[name] for name in able if arch.peak_macs(name))
    if not read:
        return f"{said}: matrix.rate of {arch.name} has no {' or '.join(able)}"
    return f"{said}: {arch.name} reads {kind} in networks of {read}, in whole blocks of 32"


def _products_elsewhere(compiled: Compiled) -> str:
    """Which products the host computes and why: it is far slower at them than a matrix engine."""
    host = compiled.report.get("host", ())
    left = [each for each in host if each["operator"].removeprefix("Q") in PRODUCTS]
    if not left:
        return ""
    first = left[0]
    counted = f"{len(left)} product{'s' if len(left) > 1 else ''} left to the host, first"
    return f"{counted} {first['operator']} {first['node']!r}: {first['reason']}"


def _as_given(compiled: Compiled, name: str, values: Array) -> api.ExpectedValue:
    """An output that no operator makes: a constant or an input, as its type in memory holds it."""
    if compiled.recipe is None:  # whoever made the program says nothing of its operators
        return api.ExpectedValue(values, api.host_error(values))
    tensor = compiled.recipe.graph.tensors.get(name)
    if tensor is None:
        return api.ExpectedValue(values, None)
    error = np.broadcast_to(tensor.uncertain, values.shape) if np.any(tensor.uncertain) else None
    rounded = None if name in compiled.recipe.graph.codes else tensor.dtype
    return api.ExpectedValue(values, error, rounded)


def _verdict_row(verdict: verify.Comparison) -> Row:
    errors = {
        "operator_error": verdict.excess,
        "max_step_error": verdict.max_step_error,
        "max_abs_error": verdict.max_abs_error,
        "quantization_error": verdict.quantization_error,
        "tolerance": verdict.tolerance,
    }
    finite = {n: e if e is None or math.isfinite(e) else None for n, e in errors.items()}
    checked = {"compared": verdict.compared, "unchecked": verdict.unchecked}
    return {
        "verified": verdict.verified, "executed": verdict.executed or None, **checked, **finite,
    }  # fmt: skip


def _refused(point: Point, status: str, reason: str) -> Outcome:
    return Outcome(point.key, point.label, point.identity() | {"status": status, "reason": reason})


def failure(point: Point, mistake: BaseException | str) -> Outcome:
    """The outcome of a point that ended in an unexpected error (or in `mistake`, a sentence)."""
    if isinstance(mistake, str):
        reason, report = mistake, ""
    else:
        reason, report = error_line(mistake), written(mistake, point.identity())
    row = point.identity() | {"status": "failed", "reason": reason}
    return Outcome(point.key, point.label, row, details={"traceback": report})


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    started = time.perf_counter()
    result = work()
    return result, round(time.perf_counter() - started, 3)


# A schedule written by hand beside the compiler's own: both executed, checked and timed.


def measured_schedules(point: Point) -> tuple[MeasuredSchedule, ...]:
    """What becomes of `point`, whose schedule is given, and of the same with the compiler's own."""
    own = replace(point, scheduling=replace(point.scheduling, tree=None))
    bench = Workbench(STANDARD)
    pairs = (("by hand", point), ("the compiler's own", own))
    return tuple(_measured_schedule(name, bench.run(each).row) for name, each in pairs)


def _measured_schedule(name: str, row: dict[str, Any]) -> MeasuredSchedule:
    if row["status"] != "ok":
        return MeasuredSchedule(name, None, None, None, None, None, row["reason"])
    moved = row["dram_read_bytes"] + row["dram_write_bytes"]
    cycles, peak = row["latency_cycles"], row["peak_local_bytes"]
    host = round(cycles * row["host_ms"] / row["latency_ms"]) if cycles else 0
    cycles -= host  # nothing overlaps with it
    interval = row.get("interval_ms")
    if interval is not None:
        interval = round(row["latency_cycles"] * interval / row["latency_ms"])
    verified, note = row.get("verified"), row["note"]
    return MeasuredSchedule(name, cycles, host, moved, peak, verified, note, interval)


# What the compiler's cost model says of a point, before there is a program: an outcome like any
# other, with status `estimated` and its figures in the columns of measured ones, so that stores,
# workers and comparisons need not know the difference. It proves nothing: what counts is compiled,
# executed, checked and simulated afterwards.

EFFORT = 0
"""How long the compiler searches for an estimate."""


@dataclass(frozen=True)
class Estimator:
    """A compiler as far as its cost model."""

    load: Callable[[onnx.ModelProto, str, api.Stages], Any]
    """As that of a toolchain."""
    estimate: Callable[[Request], api.NetworkEstimate]
    """Raises CompilerError where the machine is refused."""
    name: str = "estimated"
    """What keeps its outcomes apart from those of others."""


def quick_estimate(request: Request) -> api.NetworkEstimate:
    """What `request` should take, layer by layer, without any schedule. CompilerError where an
    operator can run nowhere."""
    stages = replace(request.scheduling, effort=EFFORT).stages
    network: api.QuickEstimator = request.model
    return network.on(request.arch, api.CompileOptions(request.dtype, request.host, stages))


def quick_estimator(proto: onnx.ModelProto, name: str, stages: api.Stages) -> api.QuickEstimator:
    """A network that keeps what its estimates on several machines share."""
    return api.QuickEstimator(api.prepared(proto, name, stages))


OUTLOOK = Estimator(quick_estimator, quick_estimate, "outlook")
"""Layers are priced one by one: a fraction of a second."""


def to_estimate(point: Point, by: Estimator) -> Point:
    """`point` as `by` estimates it: a point of its own, which shares nothing with the run, and at
    its own sizes also where its program is for more."""
    return replace(point, key=content_hash({by.name: point.key}), verify=False, ranges=())


class EstimateBench:
    """Estimates points one after the other and keeps the last models that they needed."""

    def __init__(self, tools: Estimator) -> None:
        self.tools = tools
        self._models = Models(tools.load)

    def run(self, point: Point) -> Outcome:
        """What is to be expected of `point`; never raises for anything about the point itself."""
        return outcome_of(point, lambda: self._estimate_point(point))

    def _estimate_point(self, point: Point) -> Outcome:
        arch, kept = point.arch, self._models.of(point)
        name = kept.model.name
        request = Request(name, kept.loaded, arch, point.dtype, point.host, point.scheduling)
        found = self.tools.estimate(request)
        milliseconds = found.cycles / arch.clock * 1e3
        throughput = point.batch / milliseconds * 1e3 if milliseconds else None
        costs = costs_of(arch)
        row: Row = {
            **point.identity(),
            "status": ESTIMATED,
            "latency_cycles": round(found.cycles),
            "latency_ms": milliseconds,
            "throughput_ips": throughput,
            "host_ops": found.host_ops,
            **rows.bound_row(found.bound, round(found.cycles), arch),
            **rows.area_row(costs.area),
        }
        joules = None
        if (events := found.events) is not None:
            energy = energy_of_events([events], found.cycles / arch.clock, found.macs, costs)
            row |= {"macs": found.macs, **rows.energy_row(energy, costs.area)}
            joules = energy.total.value * 1e-3 / point.batch
        row |= price_row(arch, costs.area, throughput, joules)
        row |= rows.merit_row(row) | bottleneck_row(row)
        return Outcome(point.key, point.label, row)
