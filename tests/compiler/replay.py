"""Replayed programs: what the compiler makes of small networks on every shipped machine.

A line of `replay.txt` for each pins the program (a hash of its text without tiles), its cycles, its
bytes of DRAM and the peaks of its memories, so a change of any of them in a commit is a decision.
Renew the table and see what became better or worse, by how many per cent:

    python tests/compiler/replay.py --write

Without `--write` the table stays as it is; `--only` takes parts of names.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from blocks import attention, conv
from networks import Net

from archgen.program_files import encoded
from archgen.schema import load_arch, shipped_names
from compiler.api import CompileOptions, compile_model, prepared
from simmodel.arch.record import Arch
from simmodel.machine.run import simulate
from simmodel.metrics import measure
from simmodel.program.assembly import print_program
from simmodel.program.loadable import from_bytes
from simmodel.verify import verify

TABLE = Path(__file__).with_name("replay.txt")


@dataclass(frozen=True)
class Record:
    """What is pinned of one program."""

    program: str
    """First digits of a hash of its text."""
    cycles: int
    dram_bytes: int
    local_bytes: int
    """Peak of the fullest core's local memory."""
    instructions: int


Key = tuple[str, str, str]
"""Machine, network, element type."""
Table = dict[Key, Record]


def _residual(net: Net) -> str:
    """A stem and two residual blocks, the second with a stride."""
    x = net.op("Relu", conv(net, net.input(1, 3, 40, 40), 16, (3, 3), stride=(2, 2)))
    a = conv(net, net.op("Relu", conv(net, x, 16, (3, 3))), 16, (3, 3))
    x = net.op("Relu", net.op("Add", a, x))
    a = conv(net, net.op("Relu", conv(net, x, 48, (3, 3), stride=(2, 2))), 48, (3, 3))
    return net.op("Relu", net.op("Add", a, conv(net, x, 48, (1, 1), stride=(2, 2))))


def _depthwise(net: Net) -> str:
    """Expand, depthwise, project, twice."""
    x = net.input(1, 16, 24, 24)
    for stride in (1, 2):
        a = net.op("Relu", conv(net, x, 64, (1, 1)))
        a = net.op("Relu", conv(net, a, 64, (3, 3), stride=(stride, stride), group=64))
        a = conv(net, a, 16, (1, 1))
        x = net.op("Add", a, x) if stride == 1 else a
    return x


def _attention(net: Net) -> str:
    """One encoder block of 48 tokens and two heads."""
    x = net.input(1, 48, 32)
    x = net.op("Add", attention(net, x, 2), x)
    ones = net.const([1.0] * 32, "f4")
    a = net.op("LayerNormalization", x, ones, net.const([0.0] * 32, "f4"), axis=-1)
    a = net.op(
        "MatMul", net.op("Relu", net.op("MatMul", a, net.weight(32, 96))), net.weight(96, 32)
    )
    return net.op("Add", a, x)


def _joined(net: Net) -> str:
    """Branches of several kernels, concatenated twice."""
    x = net.input(1, 24, 20, 20)
    for _ in range(2):
        branches = [
            conv(net, x, 16, (1, 1)),
            net.op("Relu", conv(net, conv(net, x, 8, (1, 1)), 24, (3, 3))),
            conv(net, net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), 8, (1, 1)),
        ]
        x = net.op("Concat", *branches, axis=1)
    return x


def _pyramid(net: Net) -> str:
    """Down and up again, with a shortcut between the two."""
    high = net.op("Relu", conv(net, net.input(1, 8, 32, 32), 16, (3, 3)))
    low = net.op("MaxPool", high, kernel_shape=[2, 2], strides=[2, 2])
    low = net.op("Relu", conv(net, low, 32, (3, 3)))
    up = net.op("Resize", low, "", net.const([1, 1, 2, 2], "f4"), mode="nearest")
    return conv(net, net.op("Concat", up, high, axis=1), 16, (3, 3))


def _classifier(net: Net) -> str:
    """Channels scaled by what they are on the whole, then pooled and classified, batch 2."""
    x = net.op("Relu", conv(net, net.input(2, 16, 14, 14), 96, (3, 3)))
    s = net.op("Relu", conv(net, net.op("GlobalAveragePool", x), 24, (1, 1)))
    x = net.op("Mul", x, net.op("Sigmoid", conv(net, s, 96, (1, 1))))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.op("MatMul", x, net.weight(96, 200))


NETWORKS: Mapping[str, Callable[[Net], str]] = {
    "residual": _residual, "depthwise": _depthwise, "attention": _attention, "joined": _joined,
    "pyramid": _pyramid, "classifier": _classifier,
}  # fmt: skip


def keys(only: str = "") -> Iterator[Key]:
    """All programs, of machines and networks whose names have `only` in them."""
    for machine in shipped_names():
        dtype = load_arch(machine).types[0]  # the preferred one
        for network in NETWORKS:
            if only in f"{machine} {network} {dtype}":
                yield machine, network, dtype


def replay(key: Key) -> Record:
    """Compile, write and read, verify and simulate one network on one machine."""
    machine, network, dtype = key
    arch: Arch = load_arch(machine)
    net = Net(quantized=dtype == "int8")
    graph = prepared(net.model(NETWORKS[network](net)), network)
    made = compile_model(graph, arch, CompileOptions(dtype=dtype)).program
    program = from_bytes(encoded(made, arch)).program  # so what is pinned went through a file
    assert program.cores == made.cores
    verify(program, arch)
    found = measure(simulate(program, arch), program, arch)
    text = _instructions(print_program(program))
    return Record(
        hashlib.sha256(text.encode()).hexdigest()[:12],
        found.latency_cycles,
        found.dram_read_bytes + found.dram_write_bytes,
        found.peak_bytes.get("local", 0),
        found.instructions,
    )


def _instructions(text: str) -> str:
    """A program's text without what it says about tiles, which changes no instruction."""
    rows = (row for row in text.splitlines(keepends=True) if not row.startswith("tile "))
    bare = re.sub(r"( ![0-9]+)/[0-9]+$", r"\1", "".join(rows), flags=re.MULTILINE)
    return re.sub(r" !0$", "", bare, flags=re.MULTILINE)


def read(path: Path = TABLE) -> Table:
    """The committed table."""
    rows = [line.split() for line in path.read_text().splitlines()[1:]]
    return {(m, n, d): Record(h, *map(int, figures)) for m, n, d, h, *figures in rows}  # type: ignore[arg-type]


def printed(table: Table) -> str:
    """`table` as text, a line for each program."""
    head = ("machine", "network", "type", *(field.name for field in fields(Record)))
    rows = [(*key, *map(str, astuple(record))) for key, record in sorted(table.items())]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = (
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in (head, *rows)
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def changes(before: Table, after: Table) -> Iterator[str]:
    """What became another program, and by how many per cent its figures rose."""
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if old is None or new is None:
            yield f"{' '.join(key)}: {'new' if old is None else 'gone'}"
            continue
        parts = [
            f"{name} {was} -> {now} ({100 * (now / was - 1) if was else math.inf:+.2f} %)"
            for name, was, now in _figures(old, new)
            if was != now
        ]
        yield f"{' '.join(key)}: {', '.join(parts) or 'another program, the same figures'}"


def _figures(old: Record, new: Record) -> Iterator[tuple[str, int, int]]:
    for field in fields(Record)[1:]:
        yield field.name, getattr(old, field.name), getattr(new, field.name)


def mean_change(before: Table, after: Table) -> float:
    """Geometric mean of the cycles after over those before."""
    common = before.keys() & after.keys()
    logs = [math.log(after[key].cycles / before[key].cycles) for key in common]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def replayed(wanted: Iterable[Key]) -> Table:
    """Replay all of `wanted`, on every processor."""
    wanted = list(wanted)
    with ProcessPoolExecutor() as pool:
        return dict(zip(wanted, pool.map(replay, wanted, chunksize=1), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay small networks on every machine.")
    parser.add_argument("--write", action="store_true", help="renew the table")
    parser.add_argument("--only", default="", help="part of 'MACHINE NETWORK TYPE'")
    options = parser.parse_args()
    before = read() if TABLE.exists() else {}
    wanted = list(keys(options.only))
    after = replayed(wanted)
    part = before if not options.only else {k: before[k] for k in wanted if k in before}
    for line in changes(part, after):
        print(line)
    print(f"{len(after)} programs, cycles x {mean_change(part, after):.4f} on the whole")
    if options.write:
        TABLE.write_text(printed(before | after if options.only else after))


if __name__ == "__main__":
    main()
