"""Where the figures of on-chip memories come from: the fit of the table, or a library.

The one idea: a source answers one question, what a memory costs, so that the figures of another
tool can stand in for the fit without anything else being different.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, Protocol

from archgen.energy.sram import Sram, SramCost, sram_cost
from archgen.energy.table import Figures

_PACKAGE = "hwcomponents_cacti"
_LEAST_WIDTH, _LEAST_DEPTH = 4, 64
"""Bytes and words of the smallest memory that CACTI takes."""


class MissingSource(Exception):
    """A library that an architecture asks for is not installed; the text says what to do."""


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
    """CACTI through the package hwcomponents-cacti (Python 3.12 or later)."""

    def __init__(self) -> None:
        try:
            self._package: Any = importlib.import_module(_PACKAGE)
        except ImportError as problem:
            raise MissingSource(
                f"energy.source is 'hwcomponents', but {_PACKAGE} cannot be imported ({problem}): "
                "pip install hwcomponents-cacti (Python 3.12 or later), or leave energy.source out"
            ) from None

    def sram(self, memory: Sram) -> SramCost:
        """Energy by byte and area of `memory`, as CACTI has it; one bank is one of its banks."""
        width = max(memory.width, _LEAST_WIDTH)
        model = self._package.SRAM(
            tech_node=memory.node * 1e-9,
            width=8 * width,
            depth=max(math.ceil(memory.size / width), _LEAST_DEPTH * memory.banks),
            n_rw_ports=memory.ports,
            n_banks=memory.banks,
        )
        read, write = (
            1e12 * _joules(action()) / memory.width for action in (model.read, model.write)
        )
        return SramCost(read, write, 1e6 * float(model.area))


def _joules(answer: Any) -> float:
    """Energy of an action: alone in older releases, before the latency in newer ones."""
    return float(answer[0] if isinstance(answer, tuple) else answer)


def source_of(name: str, figures: Figures) -> Source:
    """The source called `name`. Raises MissingSource where its package is not installed."""
    return HwComponents() if name == "hwcomponents" else TableSource(figures)
