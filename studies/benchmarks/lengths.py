"""Programs for a range of lengths: their time at a length inside, and their bytes.

    python studies/benchmarks/lengths.py [--quick] [--execute] [--random N] [--jobs N] [--only TEXT]

Each network is compiled once for a whole range and once for each of a few lengths of it, by the
estimates alone (effort 0). `bucket` are the cycles of the one program at that length, `exact` those
of the program made for it; `x exact` is to be at most 1.05 at the upper edge. The second table has
the bytes of loadables: `one` serves the range, `each` are those of one program for every length of
it, of which the sampled ones were made and the others counted as if bytes grew evenly between them.
Weights are in each of them; `code` and `code each` count the bytes of the packed text alone.

Every program has passed the verifier; with `--execute` its values are compared with ONNX Runtime's.
`--random 64` prints instead how many of 64 lengths, drawn at random from the range, give the values
of ONNX Runtime, all of them through the one program.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from tables import arguments, mapped, ratio, table

from archgen.models.extents import SizeRange, extents
from archgen.outcomes.points import Point
from archgen.program_files import encoded
from archgen.scheduling import choice
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, Compiled, Request
from simmodel.arch.record import Arch
from simmodel.program.assembly import print_program

MACHINES = ("soma-edge", "ascend-310-like", "tpu-v3-like", "gemmini-16")
TIMES = ("machine", "network", "range", "length", "bucket", "exact", "x exact", "executed")
DRAWN = ("machine", "network", "range", "lengths", "verified", "others")
BYTES = ("machine", "network", "range", "one MB", "each MB", "x one", "code kB", "code each kB")


@dataclass(frozen=True)
class Network:
    """A network, the dimension that is left open, and lengths to look at."""

    name: str
    dim: str
    span: str
    lengths: tuple[int, ...]


NETWORKS = (
    Network("bert_base:layers=2", "sequence", "1..512", (1, 128, 256, 512)),
    Network("llama:sequence=1", "past", "1..2047", (1, 511, 1023, 2047)),
    Network("resnet50", "batch", "1..8", (1, 2, 4, 8)),
)
QUICK = (
    Network(
        "bert_base:layers=1,hidden=64,heads=2,vocabulary=100", "sequence", "1..32", (1, 16, 32)
    ),
)
WHOLE = (Network("bert_base", "sequence", "1..512", (1, 128, 256, 512)),)


@dataclass(frozen=True)
class Case:
    """One network on one machine."""

    arch: str
    network: Network
    execute: bool = False

    @property
    def label(self) -> str:
        """As `--only` sees it."""
        return f"{self.arch} {self.network.name}"


@dataclass
class Sizes:
    """Bytes of the programs that a bench compiles."""

    last: tuple[int, int] = (0, 0)

    def compile(self, request: Request) -> Compiled:
        """The program, whose bytes and those of its commands are kept."""
        made = STANDARD.compile(request)
        data = encoded(made.program, request.arch)
        code = len(zlib.compress(print_program(made.program).encode(), 9))
        self.last = len(data), code
        return made


@dataclass(frozen=True)
class Figures:
    """What became of a case."""

    case: Case
    rows: tuple[Sequence[object], ...]
    sizes: Sequence[object] = field(default=())


def figures(case: Case) -> Figures:
    """All programs of a case; what is refused is a row with the reason."""
    network, arch = case.network, load_arch(case.arch)
    own = case.arch, network.name, network.span
    sizes, rows = Sizes(), []
    bench = Workbench(replace(STANDARD, compile=sizes.compile, tries=False))
    (span,) = extents(network.span, ranges=True).ranges
    ranged, one = {}, (0, 0)
    for length in network.lengths:
        ranged[length] = bench.run(point(case, arch, length, span)).row
        one = sizes.last
        if ranged[length]["status"] != "ok":
            return Figures(case, ((*own, length, None, None, None, _reason(ranged[length])),))
    each = {}
    for length in network.lengths:
        row = bench.run(point(case, arch, length, None)).row
        each[length] = sizes.last
        bucket, exact = ranged[length]["latency_cycles"], row.get("latency_cycles")
        verdicts = {ranged[length].get("verified"), row.get("verified")}
        said = "-" if verdicts == {None} else "yes" if verdicts == {True} else "WRONG"
        if row["status"] != "ok":
            said = _reason(row)
        rows.append((*own, length, bucket, exact, ratio(bucket, exact), said))  # type: ignore[arg-type]
    whole, code = (total({n: both[i] for n, both in each.items()}, span) for i in (0, 1))
    bytes_ = (*own, one[0] / 1e6, whole / 1e6, ratio(whole, one[0]), one[1] / 1e3, code / 1e3)
    return Figures(case, tuple(rows), bytes_)


def point(case: Case, arch: Arch, length: int, span: SizeRange | None) -> Point:
    """The network at one length, of the program for `span`, or of its own."""
    network = case.network
    batch = length if network.dim == "batch" else 1
    ranges = () if span is None else ((network.dim, span),)
    dims = () if network.dim == "batch" and span is None else ((network.dim, length),)
    return Point(
        case.label, arch, network.name, batch, arch.types[0], dims, ranges,
        verify=case.execute, scheduling=choice(effort=0),
    )  # fmt: skip


def drawn(case: Case, count: int) -> Sequence[object]:
    """The program of a case's range, executed at `count` of its lengths."""
    network, arch = case.network, load_arch(case.arch)
    (span,) = extents(network.span, ranges=True).ranges
    among = range(span.low, span.high + 1)
    lengths = sorted(random.Random(case.label).sample(among, min(count, len(among))))
    bench = Workbench(replace(STANDARD, tries=False))
    rows = [bench.run(point(case, arch, length, span)).row for length in lengths]
    off = [
        f"{length}: {_reason(row)}"
        for length, row in zip(lengths, rows, strict=True)
        if row.get("verified") is not True
    ]
    told = "; ".join(off[:2]) or "-"
    return case.arch, network.name, network.span, len(rows), len(rows) - len(off), told


def total(sampled: Mapping[int, int], span: SizeRange) -> float:
    """The sum over all lengths of `span`, straight lines between those that are sampled."""
    points = sorted(sampled.items())
    found = float(points[0][1] * (points[0][0] - span.low + 1))
    for (low, first), (high, last) in pairwise(points):
        count = high - low
        found += first * count + (last - first) * (count + 1) / 2
    return found + points[-1][1] * (span.high - points[-1][0])


def _reason(row: Mapping[str, object]) -> str:
    return " ".join(str(row.get("reason") or row["status"]).split())[:60]


def main(given: Sequence[str] | None = None) -> None:
    """Print both tables."""
    options: argparse.Namespace = arguments(
        __doc__,
        given,
        [("whole", "all twelve layers of BERT instead")],
        [("random", "execute that many lengths drawn at random")],
    )
    networks = QUICK if options.quick else WHOLE if options.whole else NETWORKS
    execute = options.execute or bool(options.random)
    cases = [Case(name, network, execute) for network in networks for name in MACHINES]
    chosen = [case for case in cases if all(word in case.label for word in options.only)]
    if options.random:
        rows = list(mapped(partial(drawn, count=options.random), chosen, options.jobs))
        print(table("Lengths drawn at random, through the program of the range", DRAWN, rows))
        return
    found = list(mapped(figures, chosen, options.jobs))
    rows = [row for made in found for row in made.rows]
    print(table("Cycles inside a range, and of a program for the length alone", TIMES, rows))
    sizes = [made.sizes for made in found if made.sizes]
    print(table("Bytes of one program for the range, and of one for each length", BYTES, sizes))


if __name__ == "__main__":
    main()
