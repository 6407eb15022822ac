"""How far an int8 network is from the one that it was made of.

    before: y = 0.50 -0.20      int8: y = 0.48 -0.20      quantization_error = 0.02 / 0.54 = 0.037

The one idea: a program is right where it computes the int8 network; how good that network is, is
another question, with another reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archgen.check.quantized_parts import products
from archgen.check.reference import cached_reference
from archgen.check.verify import differences
from archgen.check.widen import widened
from archgen.models.load import SourceModel

Array = NDArray[Any]


class Unquantized:
    """Networks before they were quantized; the outputs of the last one are kept, as many machines
    are judged by them."""

    def __init__(self) -> None:
        self._last: tuple[str, Mapping[str, Array]] = ("", {})

    def outputs(
        self,
        key: str,
        opened: Callable[[], SourceModel],
        inputs: Mapping[str, Array],
        cache_dir: Path,
    ) -> Mapping[str, Array]:
        """Outputs of the network behind the quantized one of `key`; none where it was quantized
        already. Raises ModelError where ONNX Runtime refuses it."""
        if self._last[0] != key:
            source = opened()
            wide = SourceModel(source.name, widened(source.proto))
            exact: Mapping[str, Array] = {}
            if products(wide.proto)[1]:
                exact = cached_reference(wide.proto, wide.content_key, inputs, cache_dir)
            self._last = key, exact
        return self._last[1]


def quantization_error(actual: Mapping[str, Array], exact: Mapping[str, Array]) -> float | None:
    """The norm of what outputs of real numbers are off by, as a share of their own; the largest of
    any output. None where none can be compared."""
    found = []
    for name, values in exact.items():
        made = actual.get(name)
        if made is None or made.shape != values.shape or values.dtype.kind != "f":
            continue
        size = float(np.linalg.norm(values.astype(np.float64)))
        if np.isfinite(size) and size:
            found.append(float(np.linalg.norm(differences(made, values))) / size)
    return max(found, default=None)
