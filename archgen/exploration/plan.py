"""From the sections `explore` and `sensitivity` of a study file to values, or all its mistakes; and
what machines can be compared by: numeric columns of the results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from archgen.energy.price import PRICES
from archgen.exploration import space as spaces
from archgen.exploration.space import DesignSpace, Indices, Parameter
from archgen.outcomes import figures
from archgen.outcomes.columns import COLUMNS, Column, column
from archgen.outcomes.estimated import growth
from archgen.outcomes.figures import more_is_better
from archgen.outcomes.frame import number
from archgen.outcomes.points import Row
from archgen.schema.rewritten import changed
from archgen.schema.tree import ListNode, Mistake, Node, ScalarNode, Table, find, guess, plain
from archgen.schema.tree import Path as TreePath
from archgen.schema.variants import Scalar, as_node, field_of, near, text_of, value_of
from archgen.studies.design import Design, StudyError
from archgen.studies.file import Explore, Machines, Quantity, Sensitivity, StudyFile, ValueRange
from archgen.studies.plan import StudyResolver, opened
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth, Delay

AREA = "area_mm2"


def is_estimable(name: str) -> bool:
    """Whether a measure is known without a run."""
    return any(growth(name)) or figures.is_of_machine(name)


def measure_column(word: str, arch: Arch) -> tuple[str, Column]:
    """The measure of results of `arch` that `word` means, in full or in short (`area`), and the
    definition that it falls under.

    Raises ValueError: there is none, or it is no number.
    """
    name = figures.SHORT.get(word, word) if column(figures.SHORT.get(word, word)) else word
    known, found = _measure_names(arch), column(name)
    if found is None or ("<" in found.name and name not in known):
        raise ValueError(f"{name!r} is no column of the results{guess(name, known)}")
    if not figures.is_figure(name):
        raise ValueError(f"{name!r} is nothing that machines are measured by{guess(name, known)}")
    if arch.price is None and name in PRICES:
        raise ValueError(f"{name!r} needs what a wafer costs: {arch.name} has no section price")
    return name, found


def _measure_names(arch: Arch) -> list[str]:
    """Every measure of the results of `arch`; of families those about its memories."""
    roles = arch.memories.srams()
    families = [
        *(f"peak_{role}_bytes" for role in arch.memories.roles()),
        *(f"area_{part}_mm2" for part in ("mac", "vector", "scalar", *roles, "copy", "link",
                                          "front_end", "other", "dram",
                                          *(["extra"] if arch.energy.area.extra else []))),
        *(f"energy_{part}_mj" for part in ("mac", "vector", *arch.memories.roles(), "link",
                                           "instruction", "leakage")),
    ]  # fmt: skip
    fixed = [known.name for known in COLUMNS if "<" not in known.name]
    return [*filter(figures.is_figure, fixed), *families]


def measured(row: Row, name: str) -> float | None:
    """The measure in a row of the results; None where it has none."""
    value = number(row, name)
    return value if math.isfinite(value) else None


# What a machine has to keep to: `latency_ms <= 5`, `peak_local_bytes <= 512 KiB`.


@dataclass(frozen=True)
class Constraint:
    """A measure and its bound."""

    measure: str
    comparison: str
    """One of <= >= < >."""
    bound: float
    """In the unit of the column."""
    text: str = ""
    """As it was written."""

    def met(self, value: float | None) -> bool:
        """Whether `value` keeps to it; what is not known does not."""
        if value is None:
            return False
        met: bool = figures.ORDERS[self.comparison](value, self.bound)
        return met

    def excess(self, value: float | None) -> float:
        """By how much `value` misses the bound, relative to it; 0 where it is met."""
        if value is None:
            return float("inf")
        if self.met(value):
            return 0.0
        return max(abs(value - self.bound) / (abs(self.bound) or 1.0), 1e-12)

    def missed_by(self, value: float | None) -> float:
        """The factor between `value` and a bound that it misses; 1 where it is met or unknown."""
        if value is None or self.met(value):
            return 1.0
        low, high = sorted((value, self.bound))
        return high / low if low > 0 else float("inf")


def parse_constraint(text: str, arch: Arch) -> Constraint:
    """The constraint that `text` says, about results of `arch`.

    Raises ValueError: with what is wrong and what would be right.
    """
    parts = figures.split_condition(text)
    if parts is None:
        example = "a column, <= or >=, and a bound, such as 'latency_ms <= 5'"
        raise ValueError(f"{text!r}: expected {example}")
    name, comparison, bound = parts
    name, column = measure_column(name, arch)
    if comparison not in figures.ORDERS:
        raise ValueError(f"{text!r}: {comparison!r} compares nothing that varies; write <= or >=")
    return Constraint(
        name, comparison, figures.parse_amount(bound, name, column.unit), text.strip()
    )


# What the two sections ask for.

Given = str | PathLike[str] | Mapping[str, Any]
"""A study file, or what one would hold."""


@dataclass(frozen=True)
class Objective:
    """A measure, and which way is better."""

    measure: str
    more: bool

    @property
    def better(self) -> str:
        """Which way is better, in a word."""
        return "more" if self.more else "less"

    def cost(self, value: float) -> float:
        """`value` with the sign that makes less better."""
        return -value if self.more else value


@dataclass(frozen=True)
class Exploration:
    """What is looked for, and where."""

    design: Design
    """The base machine, the networks and how they are compiled."""
    extends: str
    """The file that the machines of the space extend."""
    space: DesignSpace = field(repr=False)
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    asked: Explore
    common: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Fields that all machines have otherwise than that file."""

    @property
    def measures(self) -> tuple[str, ...]:
        """Of the objectives."""
        return tuple(objective.measure for objective in self.objectives)


@dataclass(frozen=True)
class SensitivityPlan:
    """A machine and what is changed about it."""

    design: Design
    space: DesignSpace = field(repr=False)
    base: Indices
    """The machine itself."""
    metric: Objective
    asked: Sensitivity


def load_exploration(given: Given, trials: int | None = None) -> Exploration:
    """What the section `explore` asks for, or `trials` machines of that. Raises StudyError with
    every mistake."""
    asked, file, maker = _opened_section(given, "explore")
    if trials is not None:
        asked = asked.model_copy(update={"trials": trials})
    design, base, extends = _base(file, maker)
    reader = _Section(maker, base, design.machines[0].arch, "explore")
    parameters = [reader.parameter(name, value) for name, value in asked.parameters.items()]
    objectives = reader.objectives(asked.objectives)
    constraints = reader.constraints(asked.constraints)
    maker.check(design)
    space = DesignSpace(base, tuple(p for p in parameters if p is not None))
    entry = file.archs[0]
    common = entry.set if isinstance(entry, Machines) else {}
    return Exploration(design, extends, space, objectives, constraints, asked, common)


def load_sensitivity_plan(given: Given, by: float | None = None) -> SensitivityPlan:
    """What the section `sensitivity` asks for; `by`: the factor of all fields that it does not list
    values of. Raises StudyError with every mistake."""
    asked, file, maker = _opened_section(given, "sensitivity")
    if by is not None:
        asked = _all_by(asked, by)
    design, base, _ = _base(file, maker)
    reader = _Section(maker, base, design.machines[0].arch, "sensitivity")
    around = [reader.around(name, value, asked) for name, value in asked.parameters.items()]
    metric = reader.measure(("metric",), asked.metric)
    maker.check(design)
    known = [pair for pair in around if pair is not None]
    space = DesignSpace(base, tuple(parameter for parameter, _ in known))
    own = tuple(index for _, index in known)
    return SensitivityPlan(design, space, own, Objective(metric, more_is_better(metric)), asked)


def _all_by(asked: Sensitivity, factor: float) -> Sensitivity:
    """The same with one factor for all fields. Raises StudyError where all of them list values."""
    listed = {n: v for n, v in asked.parameters.items() if isinstance(v, list | ValueRange)}
    if len(listed) == len(asked.parameters):
        said = "every field of the section sensitivity lists its values, so no step changes any"
        raise StudyError([f"{said}; give a field nothing (`{next(iter(listed))}:`) in their place"])
    parameters = {name: listed.get(name) for name in asked.parameters}
    return asked.model_copy(update={"factor": factor, "parameters": parameters})


def _opened_section(given: Given, section: str) -> tuple[Any, StudyFile, StudyResolver]:
    """The `section` of a file; StudyError where there is none, or nothing of it can be read."""
    file, maker = opened(given if isinstance(given, Mapping) else Path(given))
    asked = getattr(file, section)
    if asked is None and find(maker.tree, (section,)) is None:
        other = {"explore": "sensitivity", "sensitivity": "explore"}[section]
        known = getattr(file, other) is not None
        hint = f"; `archgen {other}` is what this file is for" if known else ""
        maker.say((), [f"missing key {section!r}, expected a mapping with parameters{hint}"])
    if asked is None:
        maker.refuse(maker.design(file))
    return asked, file, maker


def _base(file: StudyFile, maker: StudyResolver) -> tuple[Design, Table, str]:
    """The design of the one machine that the file is about, compiled in one way, so that machines
    can be compared; the machine's fields, and the file that they come from."""
    design, found = maker.design(file), maker.base(file)
    if len(design.ways) > 1:
        maker.say(("compiler",), ["expected one way to compile: machines are compared, not ways"])
    if len(design.dtypes) > 1:
        maker.say(("dtypes",), ["expected one element type: machines are compared, not types"])
    if found is None or not design.machines:
        maker.refuse(design)
    return replace(design, only=(), skip=()), *found


@dataclass(frozen=True)
class _Section:
    """Reads the entries of one section and tells the maker what is wrong with them."""

    maker: StudyResolver
    base: Table
    arch: Arch
    name: str

    def parameter(self, name: str, given: ValueRange | list[Any]) -> Parameter | None:
        path = (self.name, "parameters", name)
        made, wrong = spaces.parameter_of(self.base, name, given, find(self.maker.tree, path))
        self.maker.mistakes += [each for each in wrong if isinstance(each, Mistake)]
        self.maker.say(path, [each for each in wrong if isinstance(each, str)])
        return made

    def objectives(self, given: Sequence[str | Mapping[str, str]]) -> tuple[Objective, ...]:
        """Each measure once."""
        found: dict[str, Objective] = {}
        for index, entry in enumerate(given):
            named = {entry: ""} if isinstance(entry, str) else entry
            for name, way in named.items():
                name = self.measure(("objectives", index), name)
                found[name] = Objective(name, way == "max" if way else more_is_better(name))
        return tuple(found.values())

    def measure(self, below: TreePath, name: str) -> str:
        """The name of a measure in full."""
        try:
            return measure_column(name, self.arch)[0]
        except ValueError as mistake:
            self.maker.say((self.name, *below), [str(mistake)])
        return name

    def constraints(self, given: Sequence[str]) -> tuple[Constraint, ...]:
        """Every constraint that can be read."""
        found = []
        for index, text in enumerate(given):
            try:
                found.append(parse_constraint(text, self.arch))
            except ValueError as mistake:
                self.maker.say((self.name, "constraints", index), [str(mistake)])
        return tuple(found)

    def around(
        self, name: str, given: float | list[Any] | ValueRange | None, asked: Sensitivity
    ) -> tuple[Parameter, int] | None:
        """The values of the field `name` around the machine's own, and which is that."""
        path = (self.name, "parameters", name)
        own = self._own(name)
        if own is None:
            self.parameter(name, [None])
            said = "this machine does not have it, so there is nothing to change"
            self.maker.say(path, [said])
            return None
        if not isinstance(given, list | ValueRange):
            try:
                given = self._amounts_around(name, own, given or asked.factor, asked.steps)
            except ValueError:
                said = f"{own!r} is no amount that a factor could change; list the values"
                self.maker.say(path, [said])
                return None
        made = self.parameter(name, given)
        return None if made is None else _with_own(made, own)

    def _amounts_around(self, name: str, own: Quantity, factor: float, steps: int) -> list[Any]:
        """`own` and `steps` amounts on either side, each `factor` from the next, or what is lawful
        and near that. Raises ValueError where it is no amount."""
        amount, _ = spaces.base_value(own)
        if amount <= 0 or isinstance(own, bool):
            raise ValueError(own)
        found = [
            self._amount_near(name, own, factor**power, abs(power)) if power else own
            for power in range(-steps, steps + 1)
        ]
        return list(dict.fromkeys(value for value in found if value is not None))

    def _amount_near(self, name: str, own: Quantity, factor: float, steps: int) -> Quantity | None:
        """An amount near `factor` times `own`; None where whole numbers have none on that side. One
        that rules forbid stays where nothing near it is lawful: they say why."""
        amount = field_of(self.arch, name)
        if isinstance(amount, float) and isinstance(own, int | float):
            made = float(f"{own * factor:.4g}")
            return int(made) if made.is_integer() else made
        wished = spaces.spelled_like(own, spaces.base_value(own)[0] * factor)
        if not isinstance(amount, int):
            return wished
        values = [spaces.spelled_like(own, each) for each in near(amount, factor, steps)]
        lawful = (each for each in values if changed(self.arch, {name: each}) is not None)
        return next(lawful, wished if values else None)

    def _own(self, name: str) -> Quantity | None:
        """What the machine has in the field `name`, as its file spells it."""
        node = find(self.base, tuple(name.split(".")))
        value = plain(node) if isinstance(node, ScalarNode) else self._default(name)
        return value if isinstance(value, str | int | float) else None

    def _default(self, name: str) -> Scalar:
        """What a field has that the file does not state, with its unit."""
        found = field_of(self.arch, name)
        return str(found) if isinstance(found, Bandwidth | Delay) else value_of(self.arch, name)


def _with_own(parameter: Parameter, own: Quantity) -> tuple[Parameter, int]:
    """`parameter` with the machine's own value in its place, and which it is."""
    values, node = list(parameter.values), as_node(own)
    amounts, mine = list(map(_amount, values)), _amount(node)
    if mine in amounts:
        return parameter, amounts.index(mine)
    place = len(values)
    if parameter.ordered and isinstance(mine, float):
        place = sum(each < mine for each in amounts if isinstance(each, float))
    values.insert(place, node)
    return replace(parameter, values=tuple(values)), place


def _amount(node: Node) -> float | str:
    """What tells a value from others: the amount where it is one."""
    value = plain(node)
    if isinstance(node, ListNode | Table) or isinstance(value, bool) or value is None:
        return text_of(node)
    try:
        return float(spaces.base_value(value)[0])
    except ValueError:
        return text_of(node)
