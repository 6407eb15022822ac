"""Small machines and hand-written programs for the machine's tests."""

from __future__ import annotations

from typing import Any

import handmade

from simmodel.arch.record import Arch
from simmodel.isa import Copy, Gemm, Item, ScalarNop, Unary
from simmodel.isa.base import Sync
from simmodel.isa.region import Operand, Terms
from simmodel.machine.run import simulate
from simmodel.program.program import Program

KIB = 1024


MEMORIES: dict[str, Any] = {
    "dram": {"size": "1 GiB", "bandwidth": "16 B/cycle", "burst": 1},
    "local": {"size": 64 * KIB, "banks": 4, "bank_width": 64},
}


def machine(**changes: Any) -> Arch:
    """One core, 16 B/cycle of DRAM, a 16 B/cycle load and store engine, no latencies."""
    parts: dict[str, Any] = {
        "name": "test", "clock": "1 GHz", "memories": MEMORIES,
        "matrix": {"kind": "cube", "rows": 4, "cols": 4, "depth": 4},
        "vector": {"lanes": 16},
        "copy": {
            "load": {"from": "dram", "to": "local", "bandwidth": "16 B/cycle"},
            "store": {"from": "local", "to": "dram", "bandwidth": "16 B/cycle"},
        },
        "front_end": {"issue_width": 1, "queue_depth": 4},
    }  # fmt: skip
    return Arch.model_validate(_changed(parts, changes))


def _changed(parts: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`parts` with changes, those of a part among its own."""
    merged = {
        name: {**parts[name], **value} if isinstance(value, dict) and name in parts else value
        for name, value in changes.items()
    }
    return {**parts, **merged}


def memories(**changes: Any) -> dict[str, Any]:
    """The test machine's memories with some changed, by role."""
    return _changed(MEMORIES, changes)


def box(memory: str, address: int, *shape: int, terms: Terms = (), **more: Any) -> Operand:
    """An operand, contiguous unless `strides` are given."""
    return handmade.at(memory, address, shape, terms=dict(terms), **more)


def load(amount: int, at: int = 0, **more: Any) -> Copy:
    """`amount` bytes from DRAM to local memory."""
    source, target = more.pop("source", 0), box("local", at, amount, cores=more.pop("cores", ()))
    more = {"engine": "load", **more}
    return Copy(src=box("dram", source, amount), dst=target, **more)


def store(amount: int, at: int = 0, **more: Any) -> Copy:
    """`amount` bytes from local memory to DRAM."""
    target = box("dram", more.pop("target", 1 << 20), amount)
    return Copy(engine="store", src=box("local", at, amount), dst=target, **more)


def gemm(m: int, n: int, k: int, at: int = 0, **more: Any) -> Gemm:
    """A product of 1 x m x k by k x n elements, operands one after another from `at` on."""
    a, w = box("local", at, 1, 1, m, k), box("local", at + m * k, k, n)
    return Gemm(engine="matrix", a=a, w=w, dst=box("local", at + m * k + k * n, 1, 1, m, n), **more)


def relu(amount: int, at: int = 0, to: int = 0, terms: Terms = (), **more: Any) -> Unary:
    """`amount` elements on the vector engine; `terms` move both operands."""
    a, dst = box("local", at, amount, terms=terms), box("local", to, amount, terms=terms)
    return Unary(engine="vector", function="relu", a=a, dst=dst, **more)


def nop(cycles: int, waits: Sync = (), signals: Sync = ()) -> ScalarNop:
    """`cycles` of the scalar unit, no traffic."""
    return ScalarNop(count=cycles, waits=waits, signals=signals)


def program(
    *streams: tuple[Item, ...], tokens: dict[str, int] | None = None, **more: Any
) -> Program:
    """A program of one stream per core, all with the same tokens."""
    own = tuple(dict(tokens or {}) for _ in streams)
    return handmade.program(*streams, tokens=own, **more)


def spans(program: Program, arch: Arch) -> list[tuple[str, int, int]]:
    """(engine, start, end) of every instruction or burst, in order of their ends."""
    trace = simulate(program, arch, trace=True)
    assert trace.spans is not None
    found = zip(trace.spans.engine, trace.spans.start, trace.spans.end, strict=True)
    return [(trace.engine_names[engine], int(start), int(end)) for engine, start, end in found]
