"""How the compiler is to schedule: what a user may choose, checked, and as the compiler's stages.

The one idea: these choices are part of a point like its model and machine, so a study compares
them as it compares machines: a row for each, and columns that say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TypedDict

from archgen.knobs import Scalar, Settings, turned, wrong
from archgen.schema.mistakes import guess, listed
from compiler import api


class OptionError(ValueError):
    """Choices that are none; `mistakes` holds all of them."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = list(mistakes)
        super().__init__("\n".join(self.mistakes))

    def __reduce__(self) -> tuple[type[OptionError], tuple[list[str]]]:
        return OptionError, (self.mistakes,)


@dataclass(frozen=True)
class Scheduling:
    """One choice of everything; `choices` checks them."""

    fusion: str = "optimal"
    """How layers are partitioned into groups: a name of `STRATEGIES`."""
    halo: str = "auto"
    """A name of `HALOS`."""
    objective: str = "latency"
    """A name of `OBJECTIVES`."""
    effort: int = 1
    """One of `EFFORTS`."""
    passes: Settings = ()
    """Options of passes, as `archgen.knobs` names them."""
    tree: api.Tree | None = None
    """A schedule to follow; what it leaves open is searched for."""

    @property
    def columns(self) -> dict[str, str | int | float | bool | None]:
        """The choices by name of their column."""
        made = asdict(replace(self, tree=None))
        made.pop("passes")
        made.pop("tree")
        return made | {f"pass.{name}": value for name, value in self.passes}

    @property
    def stages(self) -> api.Stages:
        """The compiler's passes with these options."""
        stages = api.stages_of(self.fusion, self.halo, self.objective, self.effort)
        return turned(stages, self.passes)

    @property
    def alternatives(self) -> tuple[api.Stages, ...]:
        """Other ways to compile among which a simulation decides, with these options of passes."""
        if self.tree is not None:
            return ()
        return tuple(turned(way, self.passes) for way in api.alternatives(self.effort, self.stages))


DEFAULT = Scheduling()


def choices(
    fusion: Sequence[str] = (DEFAULT.fusion,),
    halo: Sequence[str] = (DEFAULT.halo,),
    objective: Sequence[str] = (DEFAULT.objective,),
    effort: Sequence[int] = (DEFAULT.effort,),
    passes: Sequence[Settings] = ((),),
) -> tuple[list[Scheduling], list[str]]:
    """Every combination of the values given, each once, and what is wrong with them."""
    mistakes = [
        *_unknown("fusion", fusion, api.STRATEGIES),
        *_unknown("halo", halo, api.HALOS),
        *_unknown("objective", objective, api.OBJECTIVES),
        *_unknown("effort", effort, api.EFFORTS),
    ]
    if mistakes:  # wrong options of passes are those that no strategy would take
        ways = product(api.STRATEGIES, passes)
        some = [Scheduling(fusion=name, passes=settings) for name, settings in ways]
        return [], [*mistakes, *_no_options(some)]
    words = product(dict.fromkeys(fusion), dict.fromkeys(halo), dict.fromkeys(objective))
    found = [
        Scheduling(*each, level, settings)
        for each in words
        for level in dict.fromkeys(effort)
        for settings in dict.fromkeys(passes)
    ]
    return found, _no_options(found)


def _no_options(ways: Sequence[Scheduling]) -> list[str]:
    """What is wrong with options of passes: what none of the ways that set it can take."""
    found: dict[tuple[str, Scalar], list[list[str]]] = {}
    for way in ways:
        for name, value in way.passes:
            found.setdefault((name, value), []).append(wrong({name: value}, way.stages))
    return [said[0][0] for said in found.values() if all(said)]


class Choices(TypedDict, total=False):
    """One choice of a schedule as keywords of a call: fields of `Scheduling` without `passes`."""

    fusion: str
    halo: str
    objective: str
    effort: int


def choice(
    fusion: str = DEFAULT.fusion,
    halo: str = DEFAULT.halo,
    objective: str = DEFAULT.objective,
    effort: int = DEFAULT.effort,
) -> Scheduling:
    """One combination; OptionError with every mistake."""
    found, mistakes = choices([fusion], [halo], [objective], [effort])
    if mistakes:
        raise OptionError(mistakes)
    return found[0]


def _unknown(what: str, given: Sequence[object], known: Iterable[object]) -> list[str]:
    values = {str(value): value for value in known}
    wrong = [value for value in dict.fromkeys(given) if value not in values.values()]
    found = [f"{what} {value!r}: {_expected(value, values)}" for value in wrong]
    return found if given else [f"no {what} given"]


def _expected(value: object, known: Mapping[str, object]) -> str:
    """What `value`, which is none of those `known` by their text, should have been."""
    if value in known:
        return f"expected the number {value}, got text"
    return f"must be {listed(known.values())}{guess(str(value), known)}"
