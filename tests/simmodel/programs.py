"""Small machines and hand-written programs for the machine's tests."""

from __future__ import annotations

from typing import Any

from simmodel.arch.record import Arch
from simmodel.isa import Copy, Gemm, Item, ScalarNop, Unary
from simmodel.isa.base import Sync
from simmodel.isa.region import Address, Operand, Terms, contiguous
from simmodel.machine.run import simulate
from simmodel.program.program import Origin, Program

KIB = 1024


def machine(**changes: Any) -> Arch:
    """One core, 16 B/cycle of DRAM, a 16 B/cycle load and store engine, no latencies."""
    parts: dict[str, Any] = {
        "name": "test",
        "clock": "1 GHz",
        "memories": {
            "dram": {"size": "1 GiB", "bandwidth": "16 B/cycle", "burst": 1},
            "local": {"size": 64 * KIB, "banks": 4, "bank_width": 64},
        },
        "matrix": {"kind": "cube", "rows": 4, "cols": 4, "depth": 4},
        "vector": {"lanes": 16},
        "copy": {
            "load": {"from": "dram", "to": "local", "bandwidth": "16 B/cycle"},
            "store": {"from": "local", "to": "dram", "bandwidth": "16 B/cycle"},
        },
        "front_end": {"issue_width": 1, "queue_depth": 4},
    }
    for name, value in changes.items():
        merge = isinstance(value, dict) and isinstance(parts.get(name), dict)
        parts[name] = {**parts[name], **value} if merge else value
    return Arch.model_validate(parts)


def memories(**changes: Any) -> dict[str, Any]:
    """The test machine's memories with some changed, by role."""
    dram = {"size": "1 GiB", "bandwidth": "16 B/cycle", "burst": 1}
    local = {"size": 64 * KIB, "banks": 4, "bank_width": 64}
    found: dict[str, Any] = {"dram": dram, "local": local}
    for role, parts in changes.items():
        found[role] = {**found.get(role, {}), **parts}
    return found


def box(
    memory: str,
    address: int,
    *shape: int,
    terms: Terms = (),
    dtype: str = "int8",
    cores: tuple[int, ...] = (),
    strides: tuple[int, ...] | None = None,
) -> Operand:
    """An operand, contiguous unless `strides` are given."""
    size = {"int8": 1, "int32": 4}[dtype]
    place = Address(address, terms)
    return Operand(memory, place, shape, strides or contiguous(shape, size), dtype, cores=cores)


def load(amount: int, at: int = 0, waits: Sync = (), signals: Sync = (), **more: Any) -> Copy:
    """`amount` bytes from DRAM to local memory."""
    engine = more.pop("engine", "load")
    cores = more.pop("cores", ())
    source = more.pop("source", 0)
    return Copy(
        engine=engine,
        src=box("dram", source, amount),
        dst=box("local", at, amount, cores=cores),
        waits=waits,
        signals=signals,
        **more,
    )


def store(amount: int, at: int = 0, waits: Sync = (), signals: Sync = (), **more: Any) -> Copy:
    """`amount` bytes from local memory to DRAM."""
    return Copy(
        engine="store",
        src=box("local", at, amount),
        dst=box("dram", more.pop("target", 1 << 20), amount),
        waits=waits,
        signals=signals,
        **more,
    )


def gemm(m: int, n: int, k: int, waits: Sync = (), signals: Sync = (), **more: Any) -> Gemm:
    """A product of 1 x m x k by k x n elements, operands one after another from `at` on."""
    at = more.pop("at", 0)
    return Gemm(
        engine="matrix",
        a=box("local", at, 1, 1, m, k),
        w=box("local", at + m * k, k, n),
        dst=box("local", at + m * k + k * n, 1, 1, m, n),
        waits=waits,
        signals=signals,
        **more,
    )


def relu(
    amount: int, at: int = 0, to: int = 0, waits: Sync = (), signals: Sync = (), terms: Terms = ()
) -> Unary:
    """`amount` elements on the vector engine; `terms` move both operands."""
    return Unary(
        engine="vector",
        function="relu",
        a=box("local", at, amount, terms=terms),
        dst=box("local", to, amount, terms=terms),
        waits=waits,
        signals=signals,
    )


def nop(cycles: int, waits: Sync = (), signals: Sync = ()) -> ScalarNop:
    """`cycles` of the scalar unit, no traffic."""
    return ScalarNop(count=cycles, waits=waits, signals=signals)


def program(
    *streams: tuple[Item, ...],
    tokens: dict[str, int] | None = None,
    barriers: dict[str, int] | None = None,
    **more: Any,
) -> Program:
    """A program of one stream per core, all with the same tokens."""
    return Program(
        name="test",
        arch="test",
        cores=streams,
        tokens=tuple(dict(tokens or {}) for _ in streams),
        barriers=barriers or {},
        constants=more.get("constants", ()),
        buffers=more.get("buffers", ()),
        inputs=more.get("inputs", ()),
        outputs=more.get("outputs", ()),
        origins=more.get("origins", (Origin("node", 0, "Conv"),)),
        macs=more.get("macs", 0),
    )


def spans(program: Program, arch: Arch) -> list[tuple[str, int, int]]:
    """(engine, start, end) of every instruction or burst, in order of their ends."""
    trace = simulate(program, arch, trace=True)
    assert trace.spans is not None
    found = zip(trace.spans.engine, trace.spans.start, trace.spans.end, strict=True)
    return [(trace.engine_names[engine], int(start), int(end)) for engine, start, end in found]
