"""Constants whose element type on the machine cannot hold them."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from compiler.nest.ir import NestGraph


def lost_constants(graph: NestGraph) -> Iterator[str]:
    """Constants that vanish in their element type, or are beyond what it holds, in words."""
    for tensor in graph.tensors.values():
        if tensor.data is None or tensor.exact is None or tensor.storage.buffer != tensor.name:
            continue
        limits = ml_dtypes.finfo(tensor.data.dtype)  # type: ignore[no-untyped-call]
        vanished = (tensor.data == 0) & (tensor.exact != 0)
        beyond = np.isfinite(tensor.exact) & (np.abs(tensor.exact) > float(limits.max))
        if beyond.any() or (vanished.any() and not np.any(tensor.data)):
            at = int(np.argmax(beyond if beyond.any() else vanished))
            was, became = float(tensor.exact.flat[at]), float(tensor.data.flat[at])
            yield f"{tensor.name}: {was:.3g} is {became:.3g} in {tensor.dtype}"
