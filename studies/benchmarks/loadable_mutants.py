"""Damaged loadables: each is refused in words or read, quickly and in little memory.

    python studies/benchmarks/loadable_mutants.py --mutants 100000 --seed 1 --jobs 2

The one idea: a reader of files that others made has to stand anything. A mutant is a loadable with
bytes flipped, set, cut out, repeated or put in. A third are left at that, which the checksum
notices: they are refused, or the program is the same. Of the others the document is changed, bytes
or a number in it, and packed again, so that every check behind the checksum is met as well.
Whatever else than a `LoadableError` comes out, or takes longer than --seconds, or more memory than
the file warrants, is printed with its seed and ends the script with 1.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import archgen
from archgen.program_files import encoded
from simmodel.program.assembly import print_program
from simmodel.program.loadable import LoadableError, from_bytes, packed, unpacked
from simmodel.program.program import Program

SMALL = "layers=1,hidden=16,heads=2,vocabulary=20"
POINTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("soma-edge", "resnet18:image=32,width=0.25", {}),
    ("cocco-simba-2c", "squeezenet:image=64", {}),
    ("gemmini-16", "vit_tiny:image=32", {}),
    ("stcp920", f"bert_base:{SMALL}", {"batch": "1..2", "sequence": "1..12"}),
)  # fmt: skip
"""Machines and networks whose loadables are damaged, and their ranges."""
TAUGHT = (-1, 0, 1, 3, 255, 2**31, 2**63, 2**64, 10**300, "1e999", "x", "none", "((", "")
"""What tends to be nobody's case, in place of a number."""
BYTES, FIXED = 8192, 256 << 20
"""Bytes of memory that each byte of a file warrants, and what a process has in any case."""
ITEMS = 60
"""Items of a stream, constants, and elements of each that are kept."""
SHARE = 500
"""Mutants that a process is given at once."""


@dataclass(frozen=True)
class Base:
    """A loadable to be damaged."""

    data: bytes
    document: bytes
    rest: bytes
    text: str


def shortened(program: Program) -> Program:
    """The first items of each stream, and the first bytes of the first constants: then damage is
    seldom in one number among many."""
    return replace(
        program,
        cores=tuple(stream[:ITEMS] for stream in program.cores),
        constants=tuple(
            replace(each, data=np.ravel(each.data)[:ITEMS]) for each in program.constants[:ITEMS]
        ),
    )


def base_of(data: bytes) -> Base:
    """A loadable and what is known of it."""
    document, at = unpacked(data)
    return Base(data, document, data[at:], print_program(from_bytes(data).program))


def mutant(base: Base, dice: random.Random) -> tuple[bytes, bool]:
    """A damaged file, and whether its checksum was made right again."""
    if dice.random() < 1 / 3:
        return damaged(base.data, dice), False
    document = base.document
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        document = (renumbered if dice.random() < 0.7 else damaged)(document, dice)
    rest = damaged(base.rest, dice) if dice.random() < 0.1 else base.rest
    return packed(document, rest), True


def damaged(data: bytes, dice: random.Random) -> bytes:
    """`data` with a few bytes changed."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(out) + 1)
        size = min(dice.choice((1, 1, 2, 4, 16, 64)), len(out) - at)
        match dice.randrange(6):
            case 0 if size:
                out[at] ^= 1 << dice.randrange(8)
            case 1 if size:
                out[at] = dice.choice((0, 1, 127, 128, 255))
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = out[at : at + size]
            case 4:
                out[at:at] = dice.randbytes(size)
            case 5 if dice.random() < 0.1:
                del out[at:]
    return bytes(out)


def renumbered(document: bytes, dice: random.Random) -> bytes:
    """`document` with one of its numbers replaced."""
    numbers = list(re.finditer(rb"\d+", document))
    if not numbers:
        return document
    chosen = dice.choice(numbers)
    number = str(dice.choice(TAUGHT)).encode()
    return document[: chosen.start()] + number + document[chosen.end() :]


def judged(base: Base, data: bytes, checked: bool) -> str:
    """What comes of a damaged file: `refused`, `same` or `another`; raises what should not be."""
    try:
        found = from_bytes(data)
    except LoadableError as wrong:
        assert str(wrong)
        return "refused"
    if checked:
        return "another"
    if print_program(found.program) != base.text:
        raise AssertionError("another program, and no checksum noticed")
    return "same"


def _late(number: int, frame: Any) -> None:
    raise TimeoutError("it takes too long")


def share(bases: Sequence[Base], seconds: float, seeds: range) -> tuple[Counter[str], list[str]]:
    """Outcomes of the mutants of these seeds, and what is wrong with any."""
    signal.signal(signal.SIGALRM, _late)
    limit = FIXED + BYTES * max(len(base.data) for base in bases)
    resource.setrlimit(resource.RLIMIT_AS, (limit + (4 << 30), resource.RLIM_INFINITY))
    found, wrong = Counter[str](), []
    for seed in seeds:
        dice = random.Random(seed)
        base = dice.choice(bases)
        data, checked = mutant(base, dice)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            found[judged(base, data, checked)] += 1
        except Exception as mistake:
            found["wrong"] += 1
            wrong.append(f"seed {seed}: {type(mistake).__name__}: {mistake}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if peak > limit:
        wrong.append(f"seeds {seeds}: {peak >> 20} MiB, the files warrant {limit >> 20}")
    found["MiB"] = peak >> 20
    return found, wrong


def shares(count: int, seed: int) -> Iterator[range]:
    """Seeds of `count` mutants in shares."""
    for first in range(0, count, SHARE):
        yield range(seed * 10**9 + first, seed * 10**9 + min(count, first + SHARE))


def main() -> None:
    parser = argparse.ArgumentParser(description="Damage loadables and read them.")
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20, help="for each file")
    options = parser.parse_args()
    bases = []
    for machine, network, ranges in POINTS:
        arch = archgen.load_arch(machine)
        model = archgen.load_family(network, dims=ranges) if ranges else archgen.load_model(network)
        program = archgen.compile_model(model, arch, effort=0)
        bases.append(base_of(encoded(shortened(program), arch)))
        print(f"{machine} {network}: {len(bases[-1].data)} bytes", flush=True)
    total, failures, started, peak = Counter[str](), list[str](), time.time(), 0
    with ProcessPoolExecutor(options.jobs) as pool:
        work = partial(share, bases, options.seconds)
        for found, wrong in pool.map(work, shares(options.mutants, options.seed)):
            peak = max(peak, found.pop("MiB"))
            total += found
            failures += wrong
            print("\n".join(wrong), end="\n" if wrong else "", flush=True)
    said = ", ".join(f"{count} {name}" for name, count in sorted(total.items()))
    print(f"{said}; {time.time() - started:.0f} s, at most {peak} MiB; failures: {len(failures)}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
