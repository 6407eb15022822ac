"""How long one compilation takes: CPU seconds by stage, and how many prices of groups it asks.

    python studies/benchmarks/compile_speed.py
    python studies/benchmarks/compile_speed.py --only gemmini --efforts 0
    python studies/benchmarks/compile_speed.py --layers 1,32

The network is loaded and quantized before the clock starts. Seconds are of this process, so that
others on the computer hardly count. `prices` are groups cut and followed in time, `floors` what a
bound alone may have spared. What to look for: at effort 1 `seconds` below 4 for cocco-simba-1c and
below 8 for the others, at effort 0 below 1.5.

With `--layers`, whole studies of networks with so many equal layers (`--networks`: network@machine,
with spaces), each with an empty cache: CPU seconds and memory, also as ratios to the first number,
and how many of the layers were executed. Equal layers are to cost once: ratios of at most 1.3.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from tables import table

from archgen.models.load import open_model
from archgen.process.start import collect_rarely
from archgen.schema import load_arch
from archgen.studies.prepare import prepare
from compiler import pipeline
from compiler.api import CompileOptions, prepared
from compiler.options import alternatives, stages_for
from compiler.schedule.tiling.group_price import GroupPricer
from compiler.search import autotune, best_program
from simmodel.machine.run import simulate

MACHINES = ("cocco-simba-1c", "gemmini-16", "stcp920")
STAGES = ("emit", "verify", "simulate")
T = TypeVar("T")


class Spent:
    """CPU seconds and calls by name; what is inside of another stage counts for that one only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._inside = False

    def timed(self, name: str, function: Callable[..., T]) -> Callable[..., T]:
        """`function`, its time noted."""

        def run(*args: Any, **options: Any) -> T:
            outermost, self._inside = not self._inside, True
            started = time.process_time()
            try:
                return function(*args, **options)
            finally:
                if outermost:
                    self.seconds[name] += time.process_time() - started
                    self._inside = False

        return run

    def counted(self, name: str, function: Callable[..., T]) -> Callable[..., T]:
        """`function`, its calls noted."""

        def run(*args: Any, **options: Any) -> T:
            self.calls[name] += 1
            return function(*args, **options)

        return run


@contextmanager
def watched(spent: Spent) -> Iterator[None]:
    """Stages and prices of what is compiled meanwhile are noted in `spent`."""
    places: list[tuple[Any, str, Callable[..., Any]]] = [
        (pipeline, "emit_program", spent.timed("emit", pipeline.emit_program)),
        (autotune, "emit_program", spent.timed("emit", autotune.emit_program)),
        (best_program, "verify", spent.timed("verify", best_program.verify)),
        (GroupPricer, "price", spent.counted("prices", GroupPricer.price)),
        (GroupPricer, "floor", spent.counted("floors", GroupPricer.floor)),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, function in places:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def row(machine: str, effort: int, model: str) -> tuple[object, ...]:
    """One compilation, measured."""
    arch, stages = load_arch(machine), stages_for(effort)
    dtype = arch.types[0]
    network = prepared(prepare(open_model(model, 1, {}), dtype).proto, model, stages)
    options = CompileOptions(dtype=dtype, stages=stages)
    wanted = best_program.Wanted(network, arch, options, alternatives(effort, stages))
    spent = Spent()
    judge = spent.timed("simulate", simulate)
    with watched(spent):
        started = time.process_time()
        best = best_program.best_program(wanted, judge)
        if best.trace is None:
            judge(best.result.program, arch)
        seconds = time.process_time() - started
    stages_s = [spent.seconds[name] for name in STAGES]
    return (
        machine, effort, seconds, seconds - sum(stages_s), *stages_s,
        spent.calls["prices"], spent.calls["floors"],
    )  # fmt: skip


def study_row(network: str, layers: int, machine: str) -> tuple[Any, ...]:
    """A study of one network: CPU seconds, MB at most, and which of equal layers were executed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "archgen", "study", machine, "--no-plots", "--jobs", "1"]
        command += ["--model", f"{network}layers={layers}", "--out", folder]
        started = subprocess.Popen(
            command, env={**os.environ, "ARCHGEN_CACHE": f"{folder}/cache"},
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        _, _, used = os.wait4(started.pid, 0)
        (point,) = pd.read_csv(Path(folder, "results.csv")).to_dict("records")
    executed = point.get("executed")
    seconds, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    return (seconds, memory, executed if isinstance(executed, str) else "all")


def layers_table(networks: str, layers: list[int]) -> str:
    """Networks of so many equal layers, and ratios to the first number of them."""
    rows: list[tuple[Any, ...]] = []
    for network, machine in (each.split("@") for each in networks.split()):
        first: tuple[float, float] | None = None
        for count in layers:
            seconds, memory, executed = study_row(network, count, machine)
            first = first or (seconds, memory)
            ratios = seconds / first[0], memory / first[1]
            rows.append((network, machine, count, seconds, memory, *ratios, executed))
    columns = ("network", "machine", "layers", "seconds", "MB", "x", "x MB", "executed")
    return table("studies of equal layers", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="machines whose names have this in them")
    parser.add_argument("--model", default="resnet50", help="network of the zoo, or an ONNX file")
    parser.add_argument("--efforts", default="0,1", help="levels, with commas")
    parser.add_argument("--layers", default="", help="numbers of equal layers, with commas")
    parser.add_argument(
        "--networks", default="llama:sequence=128,@tpu-v3-like", help="network@machine, with spaces"
    )
    options = parser.parse_args()
    if options.layers:
        print(layers_table(options.networks, [*map(int, options.layers.split(","))]))
        return
    collect_rarely()  # as whoever compiles does
    efforts = [int(effort) for effort in options.efforts.split(",")]
    rows = [
        row(machine, effort, options.model)
        for machine in MACHINES
        if options.only in machine
        for effort in efforts
    ]
    columns = ("machine", "effort", "seconds", "search", *STAGES, "prices", "floors")
    print(table(f"CPU seconds of one compilation of {options.model}", columns, rows))


if __name__ == "__main__":
    main()
