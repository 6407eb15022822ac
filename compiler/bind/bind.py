"""Bound layers: for each operator the engine that runs it, decided once for everything below.

    layer 3
      t7: matrix, finished by vector, sums in accumulators; or vector
      t8: vector

The one idea: what an engine can do is asked in `compiler.bind.machine`, what it shall do is written
on the layer. Prices, plans, trees and instructions read it there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from compiler.bind.engines import possible
from compiler.binding import Binding
from compiler.layer import Layer
from compiler.nest.ir import HostNode
from compiler.passes import ContractBroken, ensured
from simmodel.arch import Arch

Part = Layer | HostNode


@dataclass(frozen=True)
class Bind:
    """Say of each operator which engine runs it, and who finishes what the array adds up.

    before:
        {depthwise; add}
    after:
        {depthwise on matrix, finished on write-back; add on vector}
    """

    depthwise: Literal["quicker", "matrix", "vector"] = "quicker"
    """Engine of depthwise products where both can: the one that takes fewer cycles, or this one."""

    @ensured
    def apply(self, parts: Sequence[Part], arch: Arch) -> tuple[Part, ...]:
        """`parts` with every layer bound to the engines of `arch`."""
        return tuple(
            part if isinstance(part, HostNode) else self.bound(part, arch) for part in parts
        )

    def bound(self, layer: Layer, arch: Arch) -> Layer:
        """One layer, bound."""
        ways = (possible(nest, layer.tensors, arch) for nest in layer.nests)
        return replace(layer, ways=tuple(map(self._wanted, ways)))

    def _wanted(self, ways: tuple[Binding, ...]) -> tuple[Binding, ...]:
        """The `ways` for one nest, quickest first, with those on the wanted engine before others.

        Only depthwise products have several.
        """
        return tuple(sorted(ways, key=lambda way: way.engine != self.depthwise))

    def ensures(self, made: tuple[Part, ...], parts: Sequence[Part], arch: Arch) -> None:
        """Each operator has a binding that the machine offers."""
        if len(made) != len(parts):
            raise ContractBroken(f"{len(parts)} parts became {len(made)}")
        check_bound(made, arch)


def check_bound(parts: Sequence[Part], arch: Arch) -> None:
    """Raise ContractBroken where an operator of `parts` is not bound, or to what `arch` does not
    offer for it."""
    for layer in (part for part in parts if isinstance(part, Layer)):
        if len(layer.ways) != len(layer.nests):
            raise ContractBroken(f"{layer.name} is not bound")
        for nest, ways in zip(layer.nests, layer.ways, strict=True):
            if set(ways) != set(possible(nest, layer.tensors, arch)):
                said = ", ".join(map(_said, ways)) or "nothing"
                raise ContractBroken(f"{nest.tensor} is bound to {said}, which cannot run it")


def print_bound(parts: Sequence[Part]) -> Iterator[str]:
    """The bindings as lines of text."""
    for number, part in enumerate(parts):
        if isinstance(part, HostNode):
            yield f"call {', '.join(part.outputs)}"
            continue
        yield f"layer {number}"
        for nest, (chosen, *others) in zip(part.nests, part.ways, strict=True):
            alternatives = "".join(f"; or {_said(way)}" for way in others)
            yield f"  {nest.tensor}: {_said(chosen)}{alternatives}"


_WAY = re.compile(
    r"(?P<engine>matrix|vector|scalar|copy)(?P<vector>, finished by vector)?"
    r"(?:, sums in (?P<sums>\w+))?"
)


def parse_bound(text: str) -> dict[str, tuple[Binding, ...]]:
    """Tensor -> how the nest that makes it may run, from what `print_bound` writes.

    Raises ValueError with the number of a line that is none.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("layer ", "call ")):
            continue
        tensor, _, said = line.strip().rpartition(": ")
        ways = [_WAY.fullmatch(way) for way in said.split("; or ")]
        if not tensor or None in ways:
            raise ValueError(f"line {number}: expected '  TENSOR: ENGINE', got {line!r}")
        found[tensor] = tuple(_way(way) for way in ways if way is not None)
    return found


def _way(said: re.Match[str]) -> Binding:
    return Binding(said["engine"], said["vector"] is None, said["sums"] or "local")  # type: ignore[arg-type]


def _said(binding: Binding) -> str:
    words: list[str] = [binding.engine]
    if not binding.direct:
        words.append("finished by vector")
    if binding.product:
        words.append(f"sums in {binding.sums}")
    return ", ".join(words)
