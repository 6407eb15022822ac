"""How the compiler is to schedule: what a user may choose, checked, and as the compiler's stages.

The one idea: these choices are part of a point like its model and machine, so a study compares
them as it compares machines: a row for each, and columns that say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from archgen.schema.mistakes import guess, listed
from compiler.fuse.strategies import STRATEGIES
from compiler.stages import Stages

HALOS: Mapping[str, bool | None] = {"auto": None, "rolling": True, "recompute": False}
"""What neighbouring tiles of a group share: kept, computed again; auto: whichever is cheaper."""


class OptionError(ValueError):
    """Choices that are none; `mistakes` holds all of them."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = list(mistakes)
        super().__init__("\n".join(self.mistakes))


@dataclass(frozen=True)
class Scheduling:
    """One choice of everything; `choices` checks them."""

    fusion: str = "optimal"
    """How layers are partitioned into groups: a name of `compiler.fuse.strategies`."""
    halo: str = "auto"
    """A name of `HALOS`."""

    @property
    def columns(self) -> dict[str, str | int | float | bool | None]:
        """The choices by name of their column."""
        return {"fusion": self.fusion, "halo": self.halo}

    @property
    def stages(self) -> Stages:
        """The compiler's passes with these options."""
        stages = Stages()
        tile = replace(stages.tile, rolling=HALOS[self.halo])
        return replace(stages, partition=STRATEGIES[self.fusion](), tile=tile)


DEFAULT = Scheduling()


def choices(
    fusion: Sequence[str] = (DEFAULT.fusion,), halo: Sequence[str] = (DEFAULT.halo,)
) -> tuple[list[Scheduling], list[str]]:
    """Every combination of the values given, each once, and what is wrong with them."""
    mistakes = [*_unknown("fusion", fusion, STRATEGIES), *_unknown("halo", halo, HALOS)]
    values = (dict.fromkeys(given) for given in (fusion, halo))
    return [] if mistakes else [Scheduling(*each) for each in product(*values)], mistakes


def choice(fusion: str, halo: str) -> Scheduling:
    """One combination; OptionError with every mistake."""
    found, mistakes = choices([fusion], [halo])
    if mistakes:
        raise OptionError(mistakes)
    return found[0]


def _unknown(what: str, given: Sequence[str], known: Iterable[str]) -> list[str]:
    names = list(known)
    wrong = [name for name in dict.fromkeys(given) if name not in names]
    found = [f"{what} {name!r}: must be {listed(names)}{guess(name, names)}" for name in wrong]
    return found if given else [f"no {what} given"]
