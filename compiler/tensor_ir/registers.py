"""Lengths known only at run time (registers), and integers that depend on them.

The one idea: every number that depends on a length is its value at the maximum of the range, minus
a multiple of how far the length is below the maximum, or of how far a share of it (a ceiling
division) is. A number that is no such sum is an error where it occurs.

Lists of registers have lengths first and shares behind them; a point has lengths alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import onnx

from simmodel.isa.region import Register, Terms

Point = tuple[int, ...]
"""A value for each of some lengths, in their order."""

_MOST_SHARES = 2
"""Shares in one sum."""


@dataclass(frozen=True)
class Count:
    """A number of positions: `base` and, for each of `terms`, factor times register."""

    base: int
    terms: Terms

    def at(self, values: Mapping[str, int]) -> int:
        """The number where the registers have `values`."""
        return self.base + sum(factor * values[name] for name, factor in self.terms)


def lengths_among(registers: Sequence[Register]) -> tuple[Register, ...]:
    """The registers that are lengths, not shares of them."""
    return tuple(register for register in registers if not register.terms)


def values_at(registers: Sequence[Register], lengths: Mapping[str, int]) -> dict[str, int]:
    """Values of all registers at these lengths."""
    return {r.name: r.share(lengths) if r.terms else lengths[r.name] for r in registers}


def sizes_at(registers: Sequence[Register], point: Point) -> dict[str, int]:
    """The lengths at a point, by name."""
    names = (register.name for register in lengths_among(registers))
    return dict(zip(names, point, strict=True))


def values_at_point(registers: Sequence[Register], point: Point) -> dict[str, int]:
    """Values of all registers at a point."""
    return values_at(registers, sizes_at(registers, point))


def point_text(registers: Sequence[Register], point: Point) -> str:
    """A point in words: `n=5, past=3`."""
    return ", ".join(f"{name}={value}" for name, value in sizes_at(registers, point).items())


def with_size(point: Point, at: int, value: int) -> Point:
    """`point` with another value of length number `at`."""
    return (*point[:at], value, *point[at + 1 :])


def below(terms: Terms, registers: Sequence[Register], values: Mapping[str, int]) -> int:
    """Decrease of a number with `terms` from the maximum to these `values` of the registers."""
    high = {register.name: register.high for register in registers}
    return sum(factor * (high[name] - values[name]) for name, factor in terms)


def edge_of(registers: Sequence[Register]) -> Point:
    """The maximum of all ranges."""
    return tuple(register.high for register in lengths_among(registers))


def from_where(holds: Callable[[Point], bool], registers: Sequence[Register], point: Point) -> str:
    """`; a range from n=5 on would do`: the least value of one length, others as at `point`, from
    which on the condition is true; empty if no single length has one."""
    for at, register in enumerate(lengths_among(registers)):
        above = range(point[at] + 1, register.high + 1)
        points = [with_size(point, at, value) for value in above]
        least = bisect_left(points, True, key=holds)
        if least < len(above):
            return f"; a range from {register.name}={above[least]} on would do"
    return ""


def share(count: Count, parts: int, registers: Sequence[Register]) -> Register | None:
    """Ceiling of so many positions divided by `parts`, as a register; None if the positions are no
    sum of lengths. Nested ceilings are one: ceil((ceil(n / 2) + 1) / 3) = ceil((n + 2) / 6)."""
    known = {register.name: register for register in registers if register.terms}
    of = [known[name] for name, _ in count.terms if name in known]
    if of:
        if len(count.terms) > 1 or count.terms[0][1] != 1:
            return None
        count = Count(of[0].base + of[0].parts * count.base, of[0].terms)
        parts *= of[0].parts
    low = -(-count.at({register.name: register.low for register in registers}) // parts)
    high = -(-count.at({register.name: register.high for register in registers}) // parts)
    terms = (name if factor == 1 else f"{factor}*{name}" for name, factor in count.terms)
    base = f"{count.base:+d}" if count.base else ""
    label = f"{'+'.join(terms)}{base}/{parts}"  # sequence/2, past+1/4, 12*batch/8
    return Register(label, low, high, parts, count.base, count.terms)


def fitted(known: Mapping[Point, int], registers: Sequence[Register]) -> Terms | None:
    """Terms of a number from its values at the maximum and at other points; None if it is not
    linear in the registers at these points. With shares among them, there have to be more points
    than unknowns."""
    if len({*known.values()}) == 1:
        return ()
    lengths = lengths_among(registers)
    shares = [register for register in registers if register.terms]
    beside = [r for r in lengths if r.low < r.high]
    sums: list[Sequence[Register]] = [lengths]
    for count in range(1, _MOST_SHARES + 1):
        for chosen in combinations(shares, count):
            sums += [chosen, (*beside, *chosen)]
    edge = edge_of(registers)
    points = [values_at_point(registers, point) for point in known if point != edge]
    less = np.array([known[edge] - number for point, number in known.items() if point != edge])
    for among in sums:
        steps = [[each.high - values[each.name] for each in among] for values in points]
        table = np.reshape(steps, (len(points), len(among)))
        factors, _, rank, _ = np.linalg.lstsq(table, less, rcond=None)
        whole = np.rint(factors).astype(int).tolist()
        terms = tuple((r.name, f) for r, f in zip(among, whole, strict=True) if f)
        told = among is lengths or len(points) > len(among) == rank
        if told and all(
            known[edge] - below(terms, registers, values_at_point(registers, point)) == number
            for point, number in known.items()
        ):
            return terms
    return None


def counted(known: Mapping[Point, int], registers: Sequence[Register]) -> Count | None:
    """The same as a number of positions."""
    terms = fitted(known, registers)
    return None if terms is None else count_of(terms, known, registers)


def count_of(terms: Terms, known: Mapping[Point, int], registers: Sequence[Register]) -> Count:
    """The number with `terms` that is at the maximum as it is known."""
    edge = edge_of(registers)
    return Count(known[edge] - Count(0, terms).at(values_at_point(registers, edge)), terms)


def payload_of_any(payload: bytes) -> bytes:
    """A payload that states ranks instead of extents."""
    proto = onnx.load_model_from_string(payload)
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    del proto.graph.value_info[:]
    made: bytes = proto.SerializeToString(deterministic=True)
    return made
