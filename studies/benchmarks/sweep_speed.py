"""How fast a sweep is: points of one study against the same points as commands of their own.

    python studies/benchmarks/sweep_speed.py --points 200 --jobs 2 --singles 5
    python studies/benchmarks/sweep_speed.py --estimate --jobs 1 --model mobilenet_v2:image=64

The one idea: a study pays once for what its points share (imports, the model, its quantized form,
references, what the compiler does before it knows the machine), a command pays every time. Printed
are seconds per point of both, and what share of the study went into which step.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from archgen.process.start import single_threaded
from archgen.studies.options import Running
from archgen.studies.plan import load_study
from archgen.studies.results import Study
from archgen.studies.sweep import run_estimated, run_study

SIZES = [f"{n} KiB" for n in (256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048)]
BANDWIDTHS = [f"{n} GB/s" for n in (4, 8, 12, 16, 20, 24, 32, 40, 48, 64)]
CORES = [1, 2]
STEPS = ("compile_s", "verify_s", "simulate_s")


def sweep(points: int, family: str, model: str, effort: int, verify: bool) -> dict[str, Any]:
    """A study of `points` machines, as its file says it."""
    cases = [
        {"memories.local.size": size, "memories.dram.bandwidth": bandwidth, "cores": cores}
        for size, bandwidth, cores in itertools.product(SIZES, BANDWIDTHS, CORES)
    ]
    chosen = cases[:: max(1, len(cases) // points)][:points]
    machines = {"extends": family, "cases": chosen}
    return {
        "name": "sweep",
        "archs": [machines],
        "models": [model],
        "compiler": {"effort": effort},
        "verify": verify,
    }


def timed_study(
    file: dict[str, Any], folder: Path, jobs: int, estimate: bool
) -> tuple[Study, float]:
    """The study and its seconds, without the start of Python."""
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(file, sort_keys=False), encoding="utf-8")
    started = time.perf_counter()
    run = run_estimated if estimate else run_study
    result = run(load_study(path), Running(jobs, folder / "sweep", plots=False))
    return result, time.perf_counter() - started


def timed_singles(file: dict[str, Any], folder: Path, count: int, estimate: bool) -> float:
    """Mean seconds of a command for one point, in a process of its own."""
    cases = file["archs"][0]["cases"]
    spread = cases[:: max(1, len(cases) // count)][:count]
    seconds = []
    for index, case in enumerate(spread):
        path = folder / f"single-{index}.yaml"
        one = {**file, "archs": [{**file["archs"][0], "cases": [case]}]}
        path.write_text(yaml.safe_dump(one, sort_keys=False), encoding="utf-8")
        code = "from archgen.cli.main import main; main()"
        arguments = ["study", str(path), "--jobs", "1", "--no-plots", "--out", f"{path}.out"]
        arguments += ["--estimate"] * estimate
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return sum(seconds) / len(seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--singles", type=int, default=5)
    parser.add_argument("--family", default="soma-edge")
    parser.add_argument("--model", default="squeezenet:image=64")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--no-verify", action="store_true")
    parser.add_argument("--estimate", action="store_true", help="by prices of layers alone")
    given = parser.parse_args()
    single_threaded()
    file = sweep(given.points, given.family, given.model, given.effort, not given.no_verify)
    with tempfile.TemporaryDirectory() as name:
        os.environ["ARCHGEN_CACHE"] = f"{name}/cache"
        result, total = timed_study(file, Path(name), given.jobs, given.estimate)
        count = len(result.outcomes)
        single = timed_singles(file, Path(name), given.singles, given.estimate)
    print(f"{count} points with {given.jobs} jobs: {total:.1f} s, {total / count:.3f} s per point")
    print(f"one point as a command, cache filled: {single:.2f} s")
    print(f"ratio: {single / (total / count):.1f}")
    busy = total * given.jobs
    for step in () if given.estimate else STEPS:
        seconds = float(result.frame[step].sum())
        print(
            f"  {step.removesuffix('_s'):9} {seconds / count:.3f} s, {seconds / busy:.0%} of jobs"
        )
    print(f"  {result.frame['status'].value_counts().to_dict()}")


if __name__ == "__main__":
    main()
