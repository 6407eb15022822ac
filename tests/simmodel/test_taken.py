"""Bytes in use step by step: as often as a byte is covered, it counts once."""

from __future__ import annotations

import numpy as np

from simmodel.metrics import taken
from simmodel.program.program import Buffer


def test_a_byte_counts_once_while_any_buffer_has_it() -> None:
    numbers = np.random.default_rng(0).integers(0, 24, (40, 4))
    buffers = [
        Buffer(f"b{n}", "local", int(low), int(size), first=int(first), last=int(first + more))
        for n, (low, size, first, more) in enumerate(numbers)
    ]
    made = taken(buffers)
    assert [*made] == sorted({s for b in buffers for s in (b.first, b.last + 1)})
    for step, count in made.items():
        there = [b for b in buffers if b.first <= step <= b.last]
        covered = {byte for b in there for byte in range(b.address, b.address + b.size)}
        assert count == len(covered)
