"""A space of machines: a base, some of its fields, and the values that each may have.

The one idea: everything is a choice among listed values, so a machine is a tuple of indices, two
that are equal are known to be, and a small space can be looked at as a whole. Combinations that
the rules between fields forbid are no machines; they are told and not counted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from archgen.exploration.ranges import is_ordered, values_of
from archgen.schema.explain import broken_fields
from archgen.schema.mistakes import Mistake
from archgen.schema.tree import Node, Row, Table, plain
from archgen.schema.variants import (
    Variant,
    family_of,
    laid_over,
    short_names,
    spelled,
    text_of,
    variant,
)
from archgen.studies.sections import Range

Indices = tuple[int, ...]


@dataclass(frozen=True)
class Parameter:
    """A field and the values that it may have."""

    name: str
    """Dotted: `memories.local.size`."""
    values: tuple[Node, ...] = field(repr=False)
    ordered: bool = True
    """Whether the values are amounts that grow."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as they are written."""
        return tuple(text_of(value) for value in self.values)


class Space:
    """All combinations of the values of some parameters of a base machine."""

    def __init__(self, base: Table, parameters: tuple[Parameter, ...]) -> None:
        self.base, self.parameters = base, parameters
        self._machines: dict[Indices, Variant | None] = {}
        self.forbidden: dict[Indices, str] = {}
        """Combinations that turned out to be none, and why."""

    @property
    def size(self) -> int:
        """Combinations, forbidden ones included."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

    def choices(self) -> Iterator[Indices]:
        """Every combination, the last parameter changing quickest."""
        return product(*(range(len(parameter.values)) for parameter in self.parameters))

    def machines(self) -> list[tuple[Indices, Variant]]:
        """Every combination that is a machine."""
        found = ((choice, self.machine(choice)) for choice in self.choices())
        return [(choice, machine) for choice, machine in found if machine is not None]

    def machine(self, choice: Indices) -> Variant | None:
        """The machine of a combination; None where a rule forbids it."""
        if choice not in self._machines:
            nodes = self._nodes(choice)
            made, mistakes = variant(self.base, nodes, self._named(nodes))
            self._machines[choice] = made
            if made is None:
                self.forbidden[choice] = "; ".join(dict.fromkeys(m.message for m in mistakes))
        return self._machines[choice]

    def choice_of(self, machine: Variant) -> Indices:
        """The combination that `machine` was made from."""
        return next(choice for choice, made in self._machines.items() if made is machine)

    def text(self, choice: Indices) -> str:
        """`cores 2, memories.local.size 1 MiB`."""
        nodes = self._nodes(choice)
        return ", ".join(f"{field} {text_of(node)}" for field, node in nodes.items())

    def fields(self, choice: Indices) -> dict[str, Any]:
        """The fields that a combination sets, as a file would hold them."""
        return {name: plain(node) for name, node in self._nodes(choice).items()}

    def _named(self, nodes: Mapping[str, Node]) -> str:
        """What the machine with these values is called, as a template: the base, and what the base
        has otherwise. `edge-size64KiB` says more than eight fields of which one is not as it was.
        """
        base, short = plain(self.base), short_names(nodes)
        moved = [
            short[name]
            for name, node in nodes.items()
            if plain(laid_over(self.base, {name: node})) != base
        ]
        family = family_of(self.base).replace("{", "{{").replace("}", "}}")
        return "-".join([family, *(f"{word}{{{word}}}" for word in moved)])

    def _nodes(self, choice: Indices) -> dict[str, Node]:
        pairs = zip(self.parameters, choice, strict=True)
        return {parameter.name: parameter.values[index] for parameter, index in pairs}

    def drawn(self, chance: random.Random) -> Indices:
        """Any combination."""
        return tuple(chance.randrange(len(parameter.values)) for parameter in self.parameters)


def parameter_of(
    base: Table, name: str, given: Range | list[Any], node: Node | None
) -> tuple[Parameter | None, list[str | Mistake]]:
    """The parameter that a file gives as a list or range, or what is wrong with it: sentences about
    the whole, mistakes about single values."""
    if isinstance(given, Range):
        try:
            values: tuple[Node, ...] = tuple(_spelled(v, node) for v in values_of(given))
        except ValueError as mistake:
            return None, [str(mistake)]
    else:
        values = node.items if isinstance(node, Row) else tuple(map(spelled, given))
    values = tuple({text_of(value): value for value in values}.values())
    if not values:
        return None, ["expected a list of at least one value"]
    broken = [m for value in values for m in broken_fields(laid_over(base, {name: value}))]
    if broken:
        return None, list(dict.fromkeys(broken))
    return Parameter(name, values, is_ordered([plain(value) for value in values])), []


def _spelled(value: Any, node: Node | None) -> Node:
    return spelled(value, node.at) if node is not None else spelled(value)
