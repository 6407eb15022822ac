"""One operator as instructions that follow each other, each over the whole of a tile.

    y = sum over i=3 of mul(x[n + i], w[i]) + b      on an engine without windows
    mul(x, w) at 0
    fma(x, w, <) at 1
    fma(x, w, <) at 2
    add(<, b)

`<` is what the link before left: real values in the widest type there is, which only the last link
clips and encodes. What is expected to take how long, how much room there must be in between and
what is emitted all ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Literal, NamedTuple

from compiler.nest.ir import Nest
from simmodel.isa.functions import JOINS


class Link(NamedTuple):
    """One instruction, however many it takes to walk all loops."""

    function: str
    reads: tuple[int | None, ...]
    """Accesses by their position among the nest's; None: what the link before left, of the first
    one the sums that are there already."""
    kind: Literal["each", "reduce", "window"] = "each"
    """Element by element, over the loops of the reduction, or sliding over them."""
    at: tuple[int, ...] | None = None
    """Position of the loops of the reduction that it is for; None: it walks them, or there are
    none."""
    parameters: tuple[float, ...] = ()


def fission(
    nest: Nest, *, own: bool = True, taps: Sequence[int] = (), windows: bool = False,
    pieces: bool = False,
) -> list[Link]:  # fmt: skip
    """The links of `nest`.

    Args:
        nest: an operator.
        own: whether its own function is to be computed; else its sums are there, to be finished.
        taps: extents of the loops of a reduction that slides; empty: it does not.
        windows: whether one instruction slides.
        pieces: whether a reduction is made of several results that may not lie in the nest's.
    """
    links = list(_function(nest, taps, windows=windows)) if own else []
    late = [("add", nest.bias), ("mul", nest.multiplier)]
    wanted = [(function, nest.reads.index(access)) for function, access in late if access]
    if not wanted and (pieces or not own):
        links.append(Link("move", (None,)))
    return [*links, *(Link(function, (None, access)) for function, access in wanted)]


def _function(nest: Nest, taps: Sequence[int], *, windows: bool) -> Iterable[Link]:
    """What the nest does with its operands."""
    operands = tuple(range(len(nest.operands)))
    if nest.reduce is None:
        yield Link(nest.function, operands, parameters=nest.parameters)
        return
    if not taps or windows:
        yield Link(nest.reduce, operands if taps else operands[:1], "window" if taps else "reduce")
        return
    first, more = ("mul", "fma") if len(operands) > 1 else ("move", JOINS[nest.reduce])
    for number, position in enumerate(product(*map(range, taps))):
        yield Link(more if number else first, (*operands, None)[: len(operands) + bool(number)],
                   at=position)  # fmt: skip


def printed(links: Iterable[Link], names: Sequence[str]) -> str:
    """Links as lines of text; `names` are of the nest's accesses."""
    lines = []
    for link in links:
        reads = ", ".join("<" if index is None else names[index] for index in link.reads)
        kind = "" if link.kind == "each" else f"{link.kind} "
        place = "" if link.at is None else f" at {' '.join(map(str, link.at))}"
        lines.append(f"{kind}{link.function}({reads}){place}")
    return "\n".join(lines)
