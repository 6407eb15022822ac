"""Random graphs on random machines: each is right, or refused with a sum that adds up.

    python studies/benchmarks/fuzz.py [--minutes 60] [--seed 0] [--jobs 1] [--quick] [--out FOLDER]
    python studies/benchmarks/fuzz.py --many               # machines of 2 to 32 cores
    python studies/benchmarks/fuzz.py --strange            # few operators of any kind, odd extents
    python studies/benchmarks/fuzz.py --only 17            # one seed, and what becomes of it
    python studies/benchmarks/fuzz.py --broken             # damaged ONNX files instead

Every seed is a machine, a graph and the options of a study's point, compiled, proved, executed,
executed again in other legal orders, compared with ONNX Runtime and simulated, in a process of its
own with bounded time and memory. What to look for: `failures: 0`. Answers go to `FOLDER/log.jsonl`;
run again, it goes on behind the last seed. A failure's machine, graph and command are made small
and stand in `FOLDER/SEED-small`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fuzzing.broken import judged_file
from fuzzing.cases import Case, case_of
from fuzzing.forked import Answer, apart, each
from fuzzing.judge import ANSWERS, judged
from fuzzing.shrink import shrunk

from archgen.process.start import single_threaded

CPU = 60.0
"""Seconds of processor time for a case; a quick one takes about one."""
TWICE = 40
"""One seed in so many is run again under two other hash seeds."""


def main(given: Sequence[str] | None = None) -> None:
    """Run seeds until the time is over; exit code 1 if one of them failed."""
    options = arguments(given)
    single_threaded()
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / ("broken.jsonl" if options.broken else "log.jsonl")
    known = {line["seed"] for line in read(log)}
    seeds = [options.only] if options.only is not None else fresh_seeds(options, known)
    work = judged_file if options.broken else partial(answer, options=options)
    for seed, found in each(work, iter(seeds), jobs=options.jobs, seconds=8 * CPU):
        line = {"seed": seed, **found}
        append(log, line)
        if found["kind"] not in ANSWERS:
            say(line)
            if not options.broken and options.shrink:
                make_small(seed, options)
    sys.exit(summarize(read(log) if options.only is None else [line]))


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10, help="how long to begin new seeds")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, help="so many seeds at most")
    parser.add_argument("--only", type=int, help="this seed alone")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--quick", action="store_true", help="small graphs, little effort")
    parser.add_argument("--many", action="store_true", help="machines of 2 to 32 cores")
    parser.add_argument("--strange", action="store_true", help="few operators, odd extents")
    parser.add_argument("--broken", action="store_true", help="damaged ONNX files")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="leave as it is")
    parser.add_argument("--out", type=Path, default=Path("fuzz-out"), help="folder of the answers")
    return parser.parse_args(given)


def fresh_seeds(options: argparse.Namespace, known: set[int]) -> Iterator[int]:
    """Seeds that have no answer yet, until the time is over."""
    until = time.monotonic() + 60 * options.minutes
    seeds = itertools.count(options.seed)
    if options.count is not None:
        seeds = itertools.islice(seeds, options.count)  # type: ignore[assignment]
    for seed in seeds:
        if time.monotonic() > until:
            return
        if seed not in known:
            yield seed


def answer(seed: int, options: argparse.Namespace) -> Answer:
    """What becomes of a seed; sometimes also whether it does so again elsewhere."""
    case = case_of(seed, options.quick, options.many, options.strange)
    with tempfile.TemporaryDirectory() as folder:
        found = judged(case, Path(folder) / f"m{seed}", CPU).record()
    names = [node.op_type for node in case.model.graph.node]
    found |= {"dtype": case.dtype, "operators": " ".join(dict.fromkeys(names))}
    if found["kind"] in ("right", "unproven") and seed % TWICE == 0 and options.only is None:
        for hashes in ("1", "2"):
            again = elsewhere(seed, options, hashes)
            if (again["kind"], again["cycles"]) != (found["kind"], found["cycles"]):
                return found | {"kind": "unstable", "signature": "hash seed", "reason": str(again)}
    return found


def elsewhere(seed: int, options: argparse.Namespace, hashes: str) -> Answer:
    """The answer for a seed in another Python with another hash seed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--only", str(seed), "--no-shrink", "--out", folder]
        command += ["--quick"] * options.quick + ["--many"] * options.many
        command += ["--strange"] * options.strange
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        subprocess.run(command, env=environment, capture_output=True, check=False)
        return read(Path(folder) / "log.jsonl")[0]


def make_small(seed: int, options: argparse.Namespace) -> None:
    """Write the failing case of a seed, and a smaller one that fails alike."""
    case = case_of(seed, options.quick, options.many, options.strange)
    case.write(options.out / str(seed))
    wanted = verdict_apart(case)

    def fails(other: Case) -> bool:
        found = verdict_apart(other)
        return (found["kind"], found["signature"]) == (wanted["kind"], wanted["signature"])

    small = shrunk(case, fails, 3 * CPU)
    folder = options.out / f"{seed}-small"
    small.write(folder)
    print(f"    {small.command(folder)}", flush=True)


def verdict_apart(case: Case) -> Answer:
    """What becomes of a case in a process of its own."""

    def work() -> Answer:
        with tempfile.TemporaryDirectory() as folder:
            return judged(case, Path(folder) / "small", CPU / 3).record()

    return apart(work, 2 * CPU)


def append(log: Path, line: dict[str, Any]) -> None:
    """One more answer, behind an unfinished line too."""
    with log.open("a+b") as file:
        file.seek(max(0, file.tell() - 1))
        whole = file.read() in (b"", b"\n")
        file.write((b"" if whole else b"\n") + json.dumps(line).encode() + b"\n")


def read(log: Path) -> list[dict[str, Any]]:
    """The answers in a log; a line that was not finished is none."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def say(line: dict[str, Any]) -> None:
    """One failure, on one line."""
    reason = " ".join(line["reason"].split())[:160]
    print(f"{line['seed']:>6} {line['kind']}: {line['signature']} | {reason}", flush=True)


def summarize(lines: list[dict[str, Any]]) -> int:
    """Print counts and groups of failures; 1 where there are any."""
    kinds = Counter(line["kind"] for line in lines)
    print(f"{len(lines)} seeds: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))
    groups: dict[tuple[str, str], list[int]] = {}
    for line in lines:
        if line["kind"] not in ANSWERS:
            groups.setdefault((line["kind"], line["signature"]), []).append(line["seed"])
    for (kind, signature), seeds in sorted(groups.items(), key=lambda each: -len(each[1])):
        print(f"  {len(seeds):>4} {kind}: {signature}   seeds {', '.join(map(str, seeds[:6]))}")
    print(f"failures: {sum(map(len, groups.values()))}")
    return 1 if groups else 0


if __name__ == "__main__":
    main()
