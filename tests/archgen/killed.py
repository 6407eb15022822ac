"""A study that is killed again and again, for test_store.py: a script that prints what it saw.

The one idea: imports are paid once. Each round is a fork of this process that runs the study until
SIGKILL hits it, at a seeded random moment; what is on disk afterwards is told as one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from host_only import HOST_ONLY, LOG, compile_host_only

from archgen.process.files import code_version
from archgen.schema import load_arch
from archgen.studies.design import Design, designed, points
from archgen.studies.options import Running
from archgen.studies.store import Store
from archgen.studies.sweep import run_study
from archgen.toolchain import Compiled, Request
from simmodel.machine.run import traced

ROUND = "ARCHGEN_TEST_ROUND"
"""Environment variable that marks the processes which a round has started."""
MACHINES = 40
_SLOW = 0.005
_MOST, _PAUSE = 6, 0.04
"""Compilations before a kill, and seconds after the last of them."""
_ANY = "ascend-310-like"


def compile_slowly(request: Request) -> Compiled:
    """`compile_host_only`, after some milliseconds."""
    time.sleep(_SLOW)
    return compile_host_only(request)


SLOW = replace(HOST_ONLY, compile=compile_slowly, simulate=traced)


def many(model: Path, count: int = MACHINES) -> Design:
    """A design of `count` points that differ in the name of the machine."""
    arch = load_arch(_ANY)
    machines = [arch.model_copy(update={"name": f"machine-{n}"}) for n in range(count)]
    return designed(machines, [model])


def quiet(out: Path | str, jobs: int = 1, **options: Any) -> Running:
    """Without plots, which take longer than all points."""
    return Running(jobs, out, plots=False, **options)


def rounds(folder: Path, kills: int, jobs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Studies in `folder`, each killed at some moment; a new study when one is done."""
    chance = random.Random(seed)
    design = many(folder / "small.onnx")
    labels = {point.key: point.arch.name for point in points(design)}
    study, killed = 0, 0
    while killed < kills:
        out = folder / f"out-{jobs}-{study}"
        mark = f"{jobs}-{study}-{killed}"
        before = len(_log(out))
        moment = before + chance.randint(0, _MOST), chance.uniform(0, _PAUSE)
        hit = _killed(design, out, jobs, moment, mark)
        killed += hit
        yield _seen(out, labels, hit, before, mark)
        study += not hit


def _killed(design: Design, out: Path, jobs: int, moment: tuple[int, float], mark: str) -> bool:
    """Whether the study was killed before its end: some seconds after so many compilations."""
    child = os.fork()
    if child == 0:
        os.environ[ROUND], os.environ[LOG] = mark, f"{out}.log"
        run_study(design, quiet(out, jobs), tools=SLOW)
        os._exit(0)
    lines, delay = moment
    while len(_log(out)) < lines:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def _seen(out: Path, labels: dict[str, str], hit: bool, before: int, mark: str) -> dict[str, Any]:
    """What there is after a round: machines whose points are whole, those that were compiled for in
    it; JSON files that are not whole; processes that outlived it by seconds."""
    survivors = _survivors(mark)
    files = list((out / "runs").glob("*.json"))
    found = list(Store(out).everything())
    return {
        "killed": hit,
        "stored": sorted(labels[outcome.key] for outcome in found),
        "compiled": [line.split()[0] for line in _log(out)[before:]],
        "broken": len(files) - len(found),
        "survivors": survivors,
    }


def _log(out: Path) -> list[str]:
    log = Path(f"{out}.log")
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def _survivors(mark: str, patience: float = 20) -> int:
    """Processes of the round `mark` that are still there after `patience` seconds."""
    end = time.monotonic() + patience
    while (count := _marked(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return count


def _marked(mark: str) -> int:
    wanted, count = f"{ROUND}={mark}\0".encode(), 0
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            count += wanted in entry.read_bytes()
        except OSError:
            continue
    return count


def main(folder: str, kills: str, jobs: str, seed: str) -> None:
    """Print each round as a line of JSON."""
    code_version()
    for seen in rounds(Path(folder), int(kills), int(jobs), int(seed)):
        print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
