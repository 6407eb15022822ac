"""Where the figures of on-chip memories come from: the fit of the table, or a library.

The one idea: a source answers one question, what a memory costs, so that the figures of another
tool can stand in for the fit without anything else being different.
"""

from __future__ import annotations

import importlib
import inspect
import math
from typing import Any, Protocol

from archgen.energy.sram import Sram, SramCost, sram_cost
from archgen.energy.table import Figures

_PACKAGE = "hwcomponents_cacti"
_LEAST_WIDTH, _LEAST_DEPTH = 4, 64
"""Bytes and words of the smallest memory that CACTI takes."""


class MissingSource(Exception):
    """A library that an architecture asks for cannot be used; the text says why and what to do."""


class Source(Protocol):
    """Answers what a memory costs."""

    def sram(self, memory: Sram) -> SramCost:
        """Energy by byte and area of `memory` at its node's nominal voltage."""


class TableSource:
    """The fit of the table."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def sram(self, memory: Sram) -> SramCost:
        """Energy by byte and area of `memory`, from the fit."""
        return sram_cost(memory, self._figures)


class HwComponents:
    """CACTI through the package hwcomponents-cacti (Python 3.12 or later).

    Whatever it cannot do here is told as MissingSource: that it is not installed, that a release
    takes other arguments, that its program cannot run on this system.
    """

    def __init__(self) -> None:
        try:
            self._package: Any = importlib.import_module(_PACKAGE)
        except ImportError as problem:
            raise _missing(
                f"{_PACKAGE} cannot be imported ({problem})",
                "pip install hwcomponents-cacti (Python 3.12 or later)",
            ) from None
        except OSError as problem:
            raise _not_here(problem) from None

    def sram(self, memory: Sram) -> SramCost:
        """Energy by byte and area of `memory`, as CACTI has it; one bank is one of its banks."""
        model = self._made(memory)
        try:
            read, write = (1e12 * _joules(action()) for action in (model.read, model.write))
            area = 1e6 * float(model.area)
        except (AttributeError, TypeError, ValueError, IndexError) as problem:
            raise _other_release(f"its answers are others ({problem})") from None
        except Exception as problem:  # releases raise it bare where their program fails
            raise _not_here(problem) from None
        return SramCost(read / memory.width, write / memory.width, area)

    def _made(self, memory: Sram) -> Any:
        """The package's model of `memory`, with as many of the arguments as this release takes."""
        maker = getattr(self._package, "SRAM", None)
        if maker is None:
            raise _other_release("it has no SRAM")
        width = max(memory.width, _LEAST_WIDTH)
        depth = max(math.ceil(memory.size / width), _LEAST_DEPTH * memory.banks)
        common = {
            "tech_node": memory.node * 1e-9, "width": 8 * width,
            "n_rw_ports": memory.ports, "n_banks": memory.banks,
        }  # fmt: skip
        try:
            taken = inspect.signature(maker).parameters.values()
        except (TypeError, ValueError) as problem:
            raise _other_release(f"its SRAM tells no arguments ({problem})") from None
        names = {each.name for each in taken}
        every = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken)
        # Releases from 1.0.40 on want bits in all, earlier ones words.
        bits = {"size": 8 * width * depth} if "size" in names else {"depth": depth}
        given = common | bits
        strange = [name for name in given if name not in names and not every]
        asked = [
            each.name
            for each in taken
            if each.default is inspect.Parameter.empty
            and each.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
            and each.name not in given
        ]
        if strange or asked:
            raise _other_release(_arguments(strange, asked))
        try:
            return maker(**given)
        except (TypeError, ValueError) as problem:
            raise _other_release(f"it takes other arguments ({problem})") from None
        except Exception as problem:  # releases raise it bare where their program fails
            raise _not_here(problem) from None


def _arguments(strange: list[str], asked: list[str]) -> str:
    """What a release takes otherwise, in words."""
    said = [f"its SRAM takes no {', '.join(strange)}"] if strange else []
    said += [f"its SRAM wants {', '.join(asked)}"] if asked else []
    return "; ".join(said)


def _other_release(said: str) -> MissingSource:
    return _missing(
        f"{_PACKAGE} is a release that archgen does not know: {said}",
        "pip install 'hwcomponents-cacti<=1.0.40'",
    )


def _not_here(problem: Exception) -> MissingSource:
    return _missing(
        f"{_PACKAGE} cannot run its CACTI on this system ({problem})",
        "use a system that has what it names (a newer C library, usually)",
    )


def _missing(said: str, remedy: str) -> MissingSource:
    return MissingSource(
        f"energy.source is 'hwcomponents', but {said}: {remedy}, or leave energy.source out"
    )


def _joules(answer: Any) -> float:
    """Energy of an action: alone in older releases, before the latency in newer ones."""
    return float(answer[0] if isinstance(answer, tuple) else answer)


def source_of(name: str, figures: Figures) -> Source:
    """The source called `name`. Raises MissingSource where its package cannot be used."""
    return HwComponents() if name == "hwcomponents" else TableSource(figures)
