"""Samples for calibration, and chains of them for a network with states.

The one idea: a state is what the network itself has made of what came before, so no noise stands
for it. A chain begins with states of 0, and each inference is fed with what the one before has
left. A cache that grows keeps its extent: the oldest rows go, and as long as there are fewer than
it has, those that there are stand there again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from archgen.check.reference import Detached, detached, sample_sets
from archgen.roles import tell

Array = NDArray[Any]
Sample = dict[str, Array]
_STEPS, _FEW_STEPS = 32, 8
_LARGE = 1 << 26
"""Bytes of weights from which on chains are short."""


def calibration_sets(proto: onnx.ModelProto, seeds: Iterable[int]) -> tuple[list[Sample], str]:
    """Seeded samples for ``proto``, whose input shapes are fixed, and what they are, in words.

    Raises ``ModelError`` where ONNX Runtime cannot run a network with states.
    """
    chains = list(seeds)
    states = _states(proto)
    steps = (
        _FEW_STEPS if sum(len(t.raw_data) for t in proto.graph.initializer) >= _LARGE else _STEPS
    )
    run = Detached(detached(proto), proto).run
    given = (sample_sets(proto, range(n * steps, (n + 1) * steps)) for n in chains if states)
    made = [chain for samples in given if (chain := _chain(run, states, samples))]
    if not made:
        return sample_sets(proto, chains), f"{len(chains)} seeded random samples"
    found = [sample for chain in made for sample in chain]
    return found, (
        f"{len(found)} seeded random samples, {steps} in a row, each with the states that the one "
        "before has left"
    )


def _states(proto: onnx.ModelProto) -> dict[str, str]:
    """Real states, and what each becomes."""
    told = tell(proto)
    pairs = {name: role.becomes for name, role in told.roles.items() if role.becomes is not None}
    real = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    return {name: out for name, out in pairs.items() if told.inputs[name].elem_type in real}


def _chain(
    run: Callable[[Sample], Mapping[str, Array]], states: Mapping[str, str], given: list[Sample]
) -> list[Sample]:
    """``given`` as inferences behind each other; none where states become infinite or undefined,
    or are of another shape than what they become."""
    kept = {name: np.zeros_like(given[0][name]) for name in states}
    rows = dict.fromkeys(states, 0)
    found: list[Sample] = []
    for sample in given:
        found.append(sample | kept)
        made = run(found[-1])
        for name, becomes in states.items():
            after = made[becomes]
            grown = _grown(kept[name].shape, after.shape)
            if grown is None or not np.isfinite(after).all():
                return []
            axis, more = grown
            rows[name] += more
            kept[name] = _newest(after, axis, rows[name], kept[name].shape[axis]) if more else after
    return found


def _grown(before: Sequence[int], after: Sequence[int]) -> tuple[int, int] | None:
    """Along which axis a state has more elements than before, and how many; None where it differs
    otherwise."""
    if len(before) != len(after):
        return None
    more = [(axis, b - a) for axis, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if len(more) > 1 or any(by < 0 for _, by in more):
        return None
    return more[0] if more else (0, 0)


def _newest(after: Array, axis: int, real: int, wanted: int) -> Array:
    """The last ``wanted`` rows of ``after``; of its last ``real`` ones again and again."""
    last = min(real, wanted)
    rows = after.shape[axis] - last + np.arange(-wanted, 0) % last if last else np.arange(0)
    taken: Array = np.take(after, rows, axis)
    return taken
