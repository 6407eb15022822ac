"""The networks of the zoo: what each is, its options, and the figures published for it.

The one idea: an entry is data (`catalog.yaml`), a family's builder with its options filled in; a
test compares the built graph with the published figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import onnx

import archgen.zoo.classifiers as classifiers
import archgen.zoo.decoders as decoders
import archgen.zoo.dense_prediction as dense_prediction
import archgen.zoo.other as other
import archgen.zoo.transformer as transformer
from archgen.schema.source import read_packaged
from archgen.zoo.builder import NetworkBuilder, ZooError

__all__ = ["CATALOG", "Option", "ZooError", "ZooNetwork", "build"]

Option = int | float


@dataclass(frozen=True)
class ZooNetwork:
    """One network: ``build(builder, batch=..., **options)`` appends it; ``options`` are all it
    takes, with their defaults. ``macs`` and ``parameters`` are the published figures at batch 1,
    good to ``tolerance`` (relative, as many digits as ``source`` prints)."""

    description: str
    build: Callable[..., None]
    options: Mapping[str, Option]
    macs: float
    parameters: float
    source: str
    tolerance: float = 1e-3


_FAMILIES = (classifiers, decoders, dense_prediction, other, transformer)


def _network(build: str, fixed: Mapping[str, Option] | None = None, **said: Any) -> ZooNetwork:
    """An entry of the catalog; `build` is the name of a function of a family."""
    builder = next(getattr(family, build) for family in _FAMILIES if hasattr(family, build))
    return ZooNetwork(build=partial(builder, **(fixed or {})), **said)


CATALOG = {
    name: _network(**entry)
    for name, entry in read_packaged(Path(__file__).with_name("catalog.yaml")).items()
}


def build(
    name: str, batch: int = 1, *, weights: bool = True, seed: int = 0, pruned: Option = 0,
    **options: Option,
) -> onnx.ModelProto:  # fmt: skip
    """Builds network ``name`` with fixed input shapes for ``batch``.

    ``options`` override the entry's defaults; equal arguments give equal bytes. With
    ``weights=False`` parameters have shapes without data: to be counted, not run. ``pruned``: of
    each four weights along a reduction so many stay, the largest; 0: all. Raises
    ``ZooError`` for an unknown name or options, each in a line, or sizes that leave no output.
    """
    if name not in CATALOG:
        raise ZooError(
            f"unknown network {name!r}{_guess(name, CATALOG)}; known: {', '.join(CATALOG)}"
        )
    entry = CATALOG[name]
    wrong = []
    for option, value in {"batch": batch, **options}.items():
        default = {"batch": 1, **entry.options}.get(option)
        if default is None:
            guess = _guess(option, entry.options)
            known = ", ".join(entry.options)
            wrong.append(f"{name} has no option {option!r}{guess}; it has: {known}")
        elif not (value == default == 0 or 0 < value < math.inf):
            wrong.append(f"{name}: {option}={value} must be positive")
    if pruned not in range(4):
        wrong.append(f"{name}: pruned={pruned} must be 1, 2 or 3 of four weights, or 0")
    if wrong:
        raise ZooError("\n".join(wrong))
    net = NetworkBuilder(name, seed, weights)
    entry.build(net, batch=batch, **{**entry.options, **options})
    if pruned and weights:
        net.prune(int(pruned))
    return net.model


def _guess(word: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(word, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
