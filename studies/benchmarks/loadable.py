"""Loadables: how many bytes commands are, what fetching them costs, how fast they are read.

    python studies/benchmarks/loadable.py [--quick] [--small] [--jobs N] [--only TEXT]

Every machine in `archs/`, six networks, batch 1, effort 0, each program verified. `commands` stand
in the streams, loops and their ends included; `issued` are those that the machine executes.
`packed` are the bytes of the document in the loadable. *Flat* are commands with all their control
words, packed as docs/loadable.md says of machines that say nothing themselves: `flat` those of the
streams, loops kept, `unrolled` those that are issued, each as often as it is.

`stall` is the rise of the cycles, in per cent, where control words are fetched at 16, 4 and 1 byte
a cycle instead of without limit; the program is the same, the words as packed flat. `kept` is the
rise at 1 byte a cycle with a loop buffer of 4 KiB.
Reading is from bytes to a program: thousands of commands, and megabytes of the file, a second.
"""

from __future__ import annotations

import argparse
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tables import QUICK, arguments, mapped, table

import archgen
from archgen.program_files import encoded
from archgen.schema import shipped_names
from compiler.api import CompilerError
from simmodel.arch.record import Arch
from simmodel.program.command_fields import commands
from simmodel.program.encoding import fetched, program_bytes
from simmodel.program.loadable import from_bytes, unpacked
from simmodel.program.program import Program

MODELS = ("resnet50", "mobilenet_v2", "squeezenet", "bert_base:sequence=128", "gpt2:sequence=64",
          "vit_tiny")  # fmt: skip
SMALL = ("resnet50:image=64", "mobilenet_v2:image=64", "squeezenet:image=64",
         "bert_base:sequence=16,layers=2", "gpt2:sequence=16,layers=2",
         "vit_tiny:image=64,layers=4")  # fmt: skip
"""The same, for tables of every machine."""
FETCHED = (16, 4, 1)
"""Bytes a cycle."""
KEPT = 4096
"""Bytes of a loop buffer."""
COLUMNS = (
    "machine", "network", "commands", "issued", "packed kB", "flat kB", "unrolled MB",
    *(f"stall {rate} B" for rate in FETCHED), "kept", "k/s", "MB/s",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One program."""

    arch: str
    model: str

    @property
    def label(self) -> str:
        """As `--only` sees it."""
        return f"{self.arch} {self.model}"


def packing(arch: Arch, rate: int | None, kept: int | None = None) -> Arch:
    """`arch` with commands of the sizes that their fields take, fetched at `rate`, and a loop
    buffer for `kept` bytes of them."""
    machine: dict[str, Any] = arch.model_dump(by_alias=True)
    machine["encoding"] = {}
    machine["front_end"] |= {
        "instruction_bytes": None,
        "fetch_bandwidth": None if rate is None else f"{rate} B/cycle",
        "loop_buffer": kept,
    }
    return Arch.model_validate(machine)


def unrolled(program: Program, arch: Arch) -> int:
    """Bytes of all commands that are issued."""
    total = 0
    for stream in program.expanded:
        sizes = fetched(arch, stream.sites, [False] * len(stream.sites))
        each = [size * site.times for size, site in zip(sizes, stream.sites, strict=True)]
        total += sum(each[site] for site in stream.order.tolist())
    return total


def row(point: Point, simulated: bool) -> Sequence[object]:
    """All figures of one program."""
    arch = archgen.load_arch(point.arch)
    try:
        program = archgen.compile_model(archgen.load_model(point.model), arch, effort=0)
    except CompilerError as reason:
        return (point.arch, point.model, *[None] * (len(COLUMNS) - 3), str(reason)[:40])
    data = encoded(program, arch)
    packed = len(zlib.compress(unpacked(data)[0], 9))
    started = time.process_time()
    read = from_bytes(data).program
    seconds = time.process_time() - started
    count = sum(1 for stream in read.cores for _ in commands(stream))
    flat, issued = packing(arch, None), sum(each.issued for each in program.expanded)
    words, wide = program_bytes(program, flat), unrolled(program, flat)
    fetching = [packing(arch, rate) for rate in FETCHED] + [packing(arch, FETCHED[-1], KEPT)]
    stalls: list[float | None] = [None] * len(fetching)
    if simulated:
        free = archgen.simulate(program, flat).cycles
        stalls = [100 * (archgen.simulate(program, each).cycles / free - 1) for each in fetching]
    return (
        point.arch, point.model, count, issued, packed / 1e3, words / 1e3, wide / 1e6,
        *stalls, count / seconds / 1e3, len(data) / seconds / 1e6,
    )  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    options: argparse.Namespace = arguments(
        __doc__,
        given,
        [
            ("bytes-only", "no simulation: without the stalls"),
            ("small", "smaller images, shorter sentences, fewer layers"),
        ],
    )
    names = ("soma-edge", "gemmini-16", "cocco-simba-2c") if options.quick else shipped_names()
    models = [f"{m}{QUICK}" for m in MODELS[:3]] if options.quick else list(MODELS)
    models = list(SMALL) if options.small else models
    points = [Point(name, model) for model in models for name in names]
    chosen = [point for point in points if all(word in point.label for word in options.only)]
    rows = list(mapped(partial(row, simulated=not options.bytes_only), chosen, options.jobs))
    print(table("Bytes of programs, and what fetching and reading them costs", COLUMNS, rows))


if __name__ == "__main__":
    main()
