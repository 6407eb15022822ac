"""What the benchmark scripts share: a case from model and machine to figures, and a plain table.

The one idea: a case goes through the same workbench as a point of a study, only with the compiler's
passes of the script's choice. So every program has passed the static verifier before it is timed,
whatever is refused or fails becomes a row with its reason, and quantized models and references are
kept in the cache folder ($ARCHGEN_CACHE, else ~/.cache/archgen) for the next run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TypeVar

from archgen.outcomes.points import Outcome, Point
from archgen.process.start import collect_rarely, single_threaded
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, Compiled, Request, compiled_report
from compiler.api import CompileOptions, CompileResult, compile_model
from compiler.options import Stages
from compiler.schedule_ir.schedule import Estimate
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Item, Loop
from simmodel.metrics import Metrics, measure
from simmodel.program.program import Program
from simmodel.trace import OriginTrace, Trace
from simmodel.verify import verify

C = TypeVar("C")
T = TypeVar("T")

QUICK = ":image=64"
"""Appended to a network's name where a quick run is about the script, not about its figures."""
_REASON = 60


@dataclass(frozen=True)
class Case:
    """One program to be made and timed."""

    arch: Arch
    model: str
    """Name in the zoo, with options, or path of an ONNX file."""
    batch: int = 1
    stages: Stages = field(default_factory=Stages)
    """The compiler's passes."""
    variant: str = ""
    """What is special about `stages`, for the reader."""

    @property
    def label(self) -> str:
        """`soma-edge resnet50 b4 no ordering`."""
        return f"{self.arch.name} {self.model} b{self.batch} {self.variant}".rstrip()


@dataclass(frozen=True)
class GroupFigures:
    """One group of layers: what was expected of it and what came."""

    layers: tuple[str, ...]
    estimate: Estimate
    loops: int
    """Outer loops over tiles."""
    first: int
    """Cycle at which its first instruction starts."""
    last: int
    """Cycle at which its last instruction ends."""
    advance: int
    """Cycles from the end of all groups before it to its own end."""
    origins: tuple[OriginTrace, ...] = field(repr=False)


@dataclass(frozen=True)
class Figures:
    """A simulated program."""

    cycles: int
    trace: Trace = field(repr=False)
    metrics: Metrics = field(repr=False)
    groups: tuple[GroupFigures, ...] = field(repr=False)
    constant_bytes: int
    """DRAM bytes read from constants, without burst rounding."""
    map_bytes: int
    """DRAM bytes read and written elsewhere: inputs, outputs and feature maps."""

    on_chip: int
    """On-chip bytes of the whole chip in use at most."""

    @property
    def dram_bytes(self) -> int:
        """Bytes through DRAM's pins in whole bursts, both directions."""
        return self.metrics.dram_read_bytes + self.metrics.dram_write_bytes

    def dram_cycles(self, arch: Arch) -> float:
        """Cycles that this traffic takes at the full rate of DRAM."""
        return self.dram_bytes / arch.dram_bytes_per_cycle

    def matrix_cycles(self, arch: Arch) -> float:
        """Busy cycles of the matrix engines, averaged over cores."""
        return self.trace.busy("matrix") / arch.core_count


@dataclass(frozen=True)
class Result:
    """What became of a case."""

    case: Case
    outcome: Outcome = field(repr=False)
    figures: Figures | None
    """None where there is no verified program; `reason` says why."""
    seconds: float

    @property
    def reason(self) -> str:
        """Why there are no figures, on one line."""
        text = " ".join(str(self.outcome.row.get("reason") or self.outcome.status).split())
        return text if len(text) <= _REASON else f"{text[:_REASON]}..."

    @property
    def matched(self) -> str:
        """Whether the program was executed and computed what ONNX Runtime computes."""
        verdict = self.outcome.row.get("verified")
        return "-" if verdict is None else "yes" if verdict else "WRONG"


@dataclass
class _Probe:
    """Compiles with the passes of a case, and remembers what a study would forget."""

    stages: Stages
    result: CompileResult | None = None
    trace: Trace | None = None

    def compile(self, request: Request) -> Compiled:
        """The verified program, made by `stages`."""
        options = CompileOptions(request.dtype, request.host, self.stages)
        self.result = compile_model(request.model, request.arch, options)
        verify(self.result.program, request.arch)
        return Compiled(
            self.result.program,
            compiled_report(self.result),
            self.result.probes,
            self.result.recipe,
        )

    def simulate(self, program: Program, arch: Arch) -> Trace:
        """The trace of a verified program."""
        self.trace = STANDARD.simulate(program, arch)
        return self.trace


@lru_cache(maxsize=1)
def _bench() -> Workbench:
    """One for each process: consecutive cases share their model."""
    return Workbench(STANDARD)


def run(case: Case, execute: bool = False) -> Result:
    """Compile, verify, execute and compare where asked for, simulate; never raises for the case."""
    return compiled(case, execute)[0]


def compiled(case: Case, execute: bool = False) -> tuple[Result, CompileResult | None]:
    """The same with what the compiler made; None where it refused."""
    begun = time.perf_counter()
    bench, probe = _bench(), _Probe(case.stages)
    bench.tools = replace(STANDARD, compile=probe.compile, simulate=probe.simulate, tries=False)
    dtype = case.arch.types[0]
    point = Point(case.label, case.arch, case.model, case.batch, dtype, verify=execute)
    outcome = bench.run(point)
    figures = None
    if outcome.status == "ok" and probe.result is not None and probe.trace is not None:
        figures = _figures(case, probe.result, probe.trace)
    return Result(case, outcome, figures, time.perf_counter() - begun), probe.result


def run_all(cases: Sequence[Case], options: argparse.Namespace) -> list[Result]:
    """Every case in order, on `options.jobs` processes; says on stderr when one is done."""
    chosen = [case for case in cases if all(word in case.label for word in options.only)]
    one = partial(run, execute=options.execute)
    results: list[Result] = []
    for result in mapped(one, chosen, options.jobs):
        results.append(result)
        said = f"{result.figures.cycles:,} cycles" if result.figures else result.reason
        done = f"[{len(results)}/{len(chosen)}]"
        line = f"{done} {result.case.label}: {said} ({result.seconds:.0f} s)"
        print(line, file=sys.stderr, flush=True)
    return results


def mapped(one: Callable[[C], T], cases: Sequence[C], jobs: int) -> Iterator[T]:
    """`one` of each case in order, on `jobs` processes."""
    if jobs <= 1:
        yield from map(one, cases)
        return
    single_threaded()  # inherited by the workers, which load numpy anew
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=collect_rarely) as pool:
        yield from pool.map(one, cases)


def _figures(case: Case, result: CompileResult, trace: Trace) -> Figures:
    program = result.program
    constants, maps = _dram_traffic(program)
    metrics = measure(trace, program, case.arch, case.batch)
    groups = tuple(_groups(result, trace))
    return Figures(trace.cycles, trace, metrics, groups, constants, maps, _occupied(program))


def _groups(result: CompileResult, trace: Trace) -> Iterator[GroupFigures]:
    made = {decision.step: decision for decision in result.decisions}
    steps = sorted({origin.group for origin in trace.origins})
    ends = 0
    for step in steps:
        origins = tuple(origin for origin in trace.origins if origin.group == step)
        last = max(origin.last for origin in origins)
        before, ends = ends, max(ends, last)
        if step not in made:
            continue
        schedule = made[step].schedule
        yield GroupFigures(
            tuple(layer.name for layer in schedule.group.layers),
            schedule.estimate, len(schedule.loops),
            min(origin.first for origin in origins), last, ends - before, origins,
        )  # fmt: skip


def _dram_traffic(program: Program) -> tuple[int, int]:
    """DRAM bytes of constants, and of everything else."""
    spans = [(c.address, c.address + c.data.nbytes) for c in program.constants]
    constants = maps = 0
    for stream in program.cores:
        for copy, times in _copies(stream, 1):
            for operand in (copy.src, copy.dst):
                if operand.memory != "dram":
                    continue
                size = times * size_of(operand.dtype)
                for extent in operand.shape:
                    size *= extent
                base = operand.address.base
                if any(low <= base < high for low, high in spans):
                    constants += size
                else:
                    maps += size
    return constants, maps


def _copies(items: Iterable[Item], times: int) -> Iterator[tuple[Copy, int]]:
    for item in items:
        if isinstance(item, Loop):
            yield from _copies(item.body, times * item.count)
        elif isinstance(item, Copy):
            yield item, times


def _occupied(program: Program) -> int:
    """On-chip bytes of the chip that are in use at most, each memory at its own peak: addresses
    that some buffer of a step covers, so that buffers that take turns count once."""
    covered: dict[tuple[str, int | None], dict[int, list[tuple[int, int]]]] = {}
    for buffer in program.buffers:
        if buffer.memory != "dram":
            steps = covered.setdefault((buffer.memory, buffer.core), {})
            for step in range(buffer.first, buffer.last + 1):
                end = buffer.address + buffer.size
                steps.setdefault(step, []).append((buffer.address, end))
    return sum(max(map(_union, steps.values())) for steps in covered.values())


def _union(spans: Iterable[tuple[int, int]]) -> int:
    """Length of what `spans` cover together."""
    total = reached = 0
    for low, high in sorted(spans):
        total += max(0, high - max(low, reached))
        reached = max(reached, high)
    return total


def on_chip_size(arch: Arch) -> int:
    """Bytes of all on-chip memories of the chip."""
    shared = arch.memories.shared
    instances = arch.clusters if shared is not None and shared.level == "cluster" else 1
    return sum(
        memory.size * (instances if role == "shared" else arch.core_count)
        for role, memory in arch.memories.on_chip().items()
    )


def with_local(arch: Arch, **changes: object) -> Arch:
    """`arch` with another local memory."""
    local = arch.memories.local.model_copy(update=changes)
    memories = arch.memories.model_copy(update={"local": local})
    return arch.model_copy(update={"memories": memories})


def machines(names: Iterable[str]) -> list[Arch]:
    """Shipped machines by name."""
    return [load_arch(name) for name in names]


def arguments(
    text: str | None,
    given: Sequence[str] | None = None,
    flags: Sequence[tuple[str, str]] = (),
    counts: Sequence[tuple[str, str]] = (),
) -> argparse.Namespace:
    """The options that all scripts take, and this one's: names with what they do.

    `flags` are on or off, `counts` take a whole number (0 where they are not given).
    """
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few and small cases")
    parser.add_argument(
        "--execute", action="store_true", help="execute every program and compare its values"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT",
        help="cases whose label (machine, network, batch, variant) holds TEXT; repeatable",
    )  # fmt: skip
    for flag, meaning in flags:
        parser.add_argument(f"--{flag}", action="store_true", help=meaning)
    for count, meaning in counts:
        parser.add_argument(f"--{count}", type=int, default=0, metavar="N", help=meaning)
    return parser.parse_args(given)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Aligned text: the first column and texts to the left, numbers to the right."""
    texts = [[_shown(value) for value in row] for row in rows]
    lines = [list(columns), *texts]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    right = [any(_numeric(line[i]) for line in texts) for i in range(len(columns))]
    shown = [
        "  ".join(
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(["", title, shown[0], rule, *shown[1:]])


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _numeric(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] == "-" and text[1:2].isdigit())


def ratio(above: float | None, below: float | None) -> float | None:
    """`above / below`, or None where either is missing or nothing."""
    return above / below if above and below else None
