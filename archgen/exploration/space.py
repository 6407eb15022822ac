"""A space of machines: a base, some of its fields, and the values that each may have.

The one idea: everything is a choice among listed values, so a machine is a tuple of indices, two
that are equal are known to be, and a small space can be looked at as a whole. Combinations that
the rules between fields forbid are no machines; they are told and not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from archgen.schema import variants
from archgen.schema.record import broken_fields
from archgen.schema.tree import ListNode, Mistake, Node, Table, plain
from archgen.schema.variants import Variant
from archgen.studies.file import Quantity, ValueRange
from simmodel.arch.units import Bandwidth, Delay, parse_bytes, parse_hertz, split

# Ranges of quantities as the values in them: `{from: 128 KiB, to: 1 MiB}` is four sizes.

_EXAMPLE = "'512 KiB'"
_NEAR = 1e-9
_DEFAULT_STEPS = 5
_KIB = 1024
Reading = Callable[[object], tuple[float, object]]
"""Text to a number in base units, and what has to agree for numbers to be comparable."""


_READINGS: tuple[Reading, ...] = (
    lambda value: (float(parse_bytes(value)), "bytes"),
    lambda value: (parse_hertz(value), "hertz"),
    lambda value: attrgetter("amount", "per_cycle")(Bandwidth.parse(value)),
    lambda value: attrgetter("amount", "in_cycles")(Delay.parse(value)),
)


def base_value(value: object) -> tuple[float, object]:
    """Number in base units, and its kind: `bytes`, `number` for one without a unit, ...

    Raises ValueError for what is no quantity.
    """
    number, unit = split(value, _EXAMPLE)
    if not unit:
        return number, "number"
    for reading in _READINGS:
        try:
            return reading(value)
        except ValueError:
            continue
    return number, unit


def values_of(given: ValueRange) -> list[Quantity]:
    """The values of a range, from first to last. Raises ValueError."""
    low, kind = base_value(given.from_)
    high, other = base_value(given.to)
    if kind != other:
        raise ValueError(f"{given.from_} and {given.to} are not of the same kind")
    if not 0 < low < high:
        raise ValueError(f"expected a range that goes up from above zero, got {given.from_} .. "
                         f"{given.to}")  # fmt: skip
    if given.steps is not None and given.scale == "powers of two":
        raise ValueError("steps belong to the scales linear and log")
    if given.scale == "powers of two":
        inner = low * 2.0 ** np.arange(1, math.ceil(math.log2(high / low) - _NEAR))
    else:
        spaced = np.geomspace if given.scale == "log" else np.linspace
        inner = spaced(low, high, given.steps or _DEFAULT_STEPS)[1:-1]
    spelled_values = (spelled_like(given.from_, base) for base in inner.tolist())
    return list(dict.fromkeys([given.from_, *spelled_values, given.to]))


def spelled_like(example: Quantity, base: float) -> Quantity:
    """The amount `base`, in base units, as `example` is written."""
    number, unit = split(example, _EXAMPLE)
    own, kind = base_value(example)
    scaled = number * base / own
    if not unit:
        whole = isinstance(example, int) or float(example).is_integer()
        return max(1, round(scaled)) if whole else float(f"{scaled:.4g}")
    if kind == "bytes" and not math.isclose(scaled, round(scaled), rel_tol=_NEAR):
        return f"{round(base / _KIB)} KiB" if base >= 16 * _KIB else f"{round(base)} B"
    return f"{scaled:.4g} {unit}" if scaled < 1000 else f"{round(scaled)} {unit}"


def is_ordered(values: Sequence[object]) -> bool:
    """Whether values are amounts of one kind, which grow."""
    try:
        found = [base_value(value) for value in values]
    except ValueError:
        return False
    return len({kind for _, kind in found}) == 1 and found == sorted(found, key=itemgetter(0))


Indices = tuple[int, ...]
_WIDE = 4.0
"""Ratio of the largest to the smallest from which on amounts are compared by their ratios."""


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
        return tuple(variants.text_of(value) for value in self.values)

    # The values as Optuna proposes them, and its journal has them.

    @cached_property
    def listed(self) -> tuple[float | str, ...]:
        """Amounts in base units where they grow, else words."""
        if self.ordered:
            amounts = tuple(float(base_value(plain(v))[0]) for v in self.values)
            if len(set(amounts)) == len(amounts):
                return amounts
        return self.texts

    @property
    def amounts(self) -> tuple[float, ...]:
        """The listed values where they are amounts, else none."""
        return tuple(value for value in self.listed if isinstance(value, float))

    def distribution(self, kinds: Any) -> Any:
        """Optuna's; half a step beyond both ends, so that these are proposed as often as others."""
        amounts = self.amounts
        if len(amounts) < 2:
            return kinds.CategoricalDistribution(list(self.listed))
        places = list(map(self._scaled_amount, amounts))
        low = places[0] - (places[1] - places[0]) / 2
        high = places[-1] + (places[-1] - places[-2]) / 2
        ends = (math.exp(low), math.exp(high)) if self._log else (low, high)
        return kinds.FloatDistribution(*ends, log=self._log)

    def nearest(self, value: Any) -> float | str:
        """The listed value that is nearest to what was proposed."""
        return self.listed[self.index(value)]

    def index(self, value: Any) -> int:
        """Its place in the list."""
        if isinstance(self.listed[0], str):
            return self.listed.index(value)
        proposed = self._scaled_amount(value)
        away = [abs(self._scaled_amount(each) - proposed) for each in self.amounts]
        return away.index(min(away))

    @property
    def _log(self) -> bool:
        amounts = self.amounts
        return amounts[0] > 0 and amounts[-1] >= _WIDE * amounts[0]

    def _scaled_amount(self, amount: float) -> float:
        return math.log(amount) if self._log else amount


class DesignSpace:
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

    def machines(self) -> list[Variant]:
        """Every combination that is a machine."""
        return [made for made in map(self.machine, self.choices()) if made is not None]

    def machine(self, choice: Indices) -> Variant | None:
        """The machine of a combination; None where a rule forbids it."""
        if choice not in self._machines:
            nodes = self._nodes(choice)
            made, mistakes = variants.variant(self.base, nodes, self._name_template(nodes))
            self._machines[choice] = made
            if made is None:
                self.forbidden[choice] = "; ".join(dict.fromkeys(m.message for m in mistakes))
        return self._machines[choice]

    def fields_of(self, machine: Variant) -> dict[str, Any]:
        """The fields that a machine sets, as a file would hold them."""
        choice = next(choice for choice, made in self._machines.items() if made is machine)
        return {name: plain(node) for name, node in self._nodes(choice).items()}

    def text(self, choice: Indices) -> str:
        """`cores 2, memories.local.size 1 MiB`."""
        nodes = self._nodes(choice)
        return ", ".join(f"{field} {variants.text_of(node)}" for field, node in nodes.items())

    def _name_template(self, nodes: Mapping[str, Node]) -> str:
        """What the machine with these values is called, as a template: the base, and what the base
        has otherwise. `edge-size64KiB` says more than eight fields of which one is not as it was.
        """
        base, short = plain(self.base), variants.short_names(nodes)
        moved = [
            short[name]
            for name, node in nodes.items()
            if plain(variants.overlaid(self.base, {name: node})) != base
        ]
        family = variants.family_of(self.base).replace("{", "{{").replace("}", "}}")
        return "-".join([family, *(f"{word}{{{word}}}" for word in moved)])

    def _nodes(self, choice: Indices) -> dict[str, Node]:
        pairs = zip(self.parameters, choice, strict=True)
        return {parameter.name: parameter.values[index] for parameter, index in pairs}


def parameter_of(
    base: Table, name: str, given: ValueRange | list[Any], node: Node | None
) -> tuple[Parameter | None, list[str | Mistake]]:
    """The parameter that a file gives as a list or range, or what is wrong with it: sentences about
    the whole, mistakes about single values."""
    if isinstance(given, ValueRange):
        try:
            place = () if node is None else (node.at,)
            values: tuple[Node, ...] = tuple(variants.as_node(v, *place) for v in values_of(given))
        except ValueError as mistake:
            return None, [str(mistake)]
    else:
        values = node.items if isinstance(node, ListNode) else tuple(map(variants.as_node, given))
    values = tuple({variants.text_of(value): value for value in values}.values())
    if not values:
        return None, ["expected a list of at least one value"]
    broken = [m for value in values for m in broken_fields(variants.overlaid(base, {name: value}))]
    if broken:
        return None, list(dict.fromkeys(broken))
    return Parameter(name, values, is_ordered([plain(value) for value in values])), []


def only_listed(base: Any, sampler: Any, listed: Mapping[str, Parameter]) -> Any:
    """`sampler`, of Optuna's class `base`, with its proposals moved to listed values."""

    class OnlyListed(base):  # type: ignore[misc]
        """Moves what `sampler` proposes."""

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return sampler.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            found = sampler.sample_relative(study, trial, search_space)
            return {name: listed[name].nearest(value) for name, value in found.items()}

        def sample_independent(self, study: Any, trial: Any, name: str, kind: Any) -> Any:
            return listed[name].nearest(sampler.sample_independent(study, trial, name, kind))

        def before_trial(self, study: Any, trial: Any) -> None:
            sampler.before_trial(study, trial)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            sampler.after_trial(study, trial, state, values)

        def reseed_rng(self) -> None:
            sampler.reseed_rng()

    return OnlyListed()
