"""Small machines that differ in everything that the compiler asks about, and random ones.

`machine` builds one from a few words; `NAMED` holds one per trait worth a test of its own; the
strategy `machines` draws any combination that passes the rules of `simmodel.arch_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet
from hypothesis import assume
from hypothesis import strategies as st

from simmodel.arch.base import FrozenModel
from simmodel.arch.record import Arch
from simmodel.arch_rules import problems

Record = TypeVar("Record", bound=FrozenModel)
WRITEBACK = ("bias", "clip", "requantize")
FLASH = {"size": "16 MiB", "bandwidth": "4 B/cycle", "burst": 32, "latency": "50 cycles"}
ALL_TYPES = ("int8", "uint8", "int16", "int32", "fp16", "fp32")
WIDTHS = {"weights": 8, "accumulators": 32}
ENDS = {"weights": "weights", "accumulators": "output"}
RATES = {"int8": 2.0, "fp16": 1.0, "fp32": 0.5}


def machine(
    *, name: str = "m", types: tuple[str, ...] = ("fp32", "int8", "fp16"), clusters: int = 1,
    cores: int = 1, sync: str = "tokens", local: dict[str, Any] | None = None, weights: int = 0,
    accumulators: int = 0, matrix: dict[str, Any] | None = None, array: bool = True,
    vector: dict[str, Any] | None = None, engines: dict[str, Any] | None = None,
    copy: dict[str, Any] | None = None, split_loads: bool = False,
    shared: dict[str, Any] | None = None, own_engines: bool = False, among: str = "",
    flash: str = "", latency: int = 20, tokens: int = 64,
) -> Arch:  # fmt: skip
    """A machine; `weights` and `accumulators` are bytes of memories that exist when positive.
    Without `array`, the vector engine multiplies. With `own_engines`, other copy engines reach
    shared memory than DRAM. `among`: what reaches several cores at once, "load" the loads, "peer"
    an engine between local memories, with "each" one core after another. `flash`: loads from it.

    Raises ValueError where the parts contradict each other.
    """
    memories: dict[str, Any] = {
        "dram": {"size": "64 MiB", "bandwidth": "16 B/cycle", "latency": f"{latency} cycles"},
        "local": {"size": 65536, "banks": 4, "bank_width": 16} | (local or {}),
    }
    targets, reads = ["local"], ["local"]
    product: dict[str, Any] = {
        "kind": "cube", "rows": 4, "cols": 8, "depth": 8, "granularity": "conv", "rate": RATES,
    } | (matrix or {})  # fmt: skip
    sizes = {"weights": array and weights, "accumulators": array and accumulators}
    for role, size in sizes.items():
        if size:
            memories[role] = {"size": size, "banks": 2, "bank_width": WIDTHS[role]}
            product[ENDS[role]] = role
            (targets if role == "weights" else reads).append(role)
    copies = _copies(targets, copy or {}, split_loads and bool(weights), among)
    _reach_flash(memories, copies, flash)
    if shared is not None:
        memories["shared"] = {"size": 1 << 20, "banks": 4, "bank_width": 16} | shared
        _reach_shared(copies, own_engines)
    given = {key: value for key, value in (vector or {}).items() if value is not None}
    arch = Arch.model_validate({
        "name": name, "clock": "1 GHz", "types": types, "clusters": clusters, "cores": cores,
        "memories": memories, **({"matrix": product} if array else {}),
        "vector": {"lanes": 16, "types": ALL_TYPES, "reads": reads} | given,
        "engines": engines or {}, "copy": copies,
        "front_end": {"sync": sync, "queue_depth": 4, "tokens": tokens},
    })  # fmt: skip
    if found := problems(arch):
        raise ValueError("; ".join(problem.message for problem in found))
    return arch


def _copies(
    targets: list[str], copy: dict[str, Any], split_loads: bool, among: str
) -> dict[str, Any]:
    """Copy engines between DRAM and the memories of a core, and between cores."""
    moves: dict[str, Any] = {"bandwidth": "16 B/cycle"} | copy
    loads = {"load": ["local"], "fetch": ["weights"]} if split_loads else {"load": targets}
    copies = {name: {"from": ["dram"], "to": to} | moves for name, to in loads.items()}
    copies |= {"store": {"from": ["local"], "to": ["dram"]} | moves}
    everyone: dict[str, Any] = {"broadcast": True}
    if among == "load":
        copies["load"] |= everyone
    if among in ("peer", "each"):
        copies["peer"] = {"from": ["local"], "to": ["local"], "peer": True} | moves
    if among == "peer":
        copies["peer"] |= everyone
    return copies


def _reach_flash(memories: dict[str, Any], copies: dict[str, Any], name: str) -> None:
    """Add flash, and let an engine that is there, or one like the one that loads, reach it."""
    if not name:
        return
    memories["flash"] = FLASH
    engine = copies.get(name, copies["load"] | {"from": []})
    copies[name] = engine | {"from": [*engine["from"], "flash"]}


def _reach_shared(copies: dict[str, Any], own_engines: bool) -> None:
    """Let engines that are there, or others beside them, reach shared memory as well."""
    if own_engines:
        load, store = copies["load"], copies["store"]
        copies["refill"] = load | {"from": ["shared"], "to": list(load["to"])}
        copies["spill"] = store | {"to": ["shared"]}
        return
    for name, engine in copies.items():
        if name != "peer":
            engine["to" if name == "store" else "from"].append("shared")


SYSTOLIC = {"kind": "systolic", "rows": 8, "cols": 4, "depth": 1}
NAMED = {
    arch.name: arch
    for arch in (
        machine(name="plain"),
        machine(name="finishing", matrix={"writeback": WRITEBACK, "depthwise": True}),
        machine(name="interlocked", sync="interlock", accumulators=8192, cores=2),
        machine(name="gemms", matrix=SYSTOLIC | {"granularity": "gemm"}, weights=8192, cores=3,
                among="load"),
        machine(
            name="fine", accumulators=4096, vector={"rank": 1, "max_extent": 32, "window": False},
            matrix=SYSTOLIC | {"granularity": "tile", "max_pixels": 8, "writeback": WRITEBACK},
            copy={"rank": 2}, sync="interlock",
        ),
        machine(
            name="bare", matrix={"granularity": "tile"}, vector={"rank": 2, "window": False},
            copy={"rank": 1}, local={"mapping": "blocked", "alignment": 32},
        ),
        machine(
            name="small", local={"size": 6144, "bank_width": 8}, weights=1024, accumulators=1024,
            split_loads=True, clusters=2, cores=2, matrix={"granularity": "conv"},
        ),
        machine(
            name="unread", accumulators=4096, vector={"reads": ["local"]},
            matrix={"writeback": ["clip"], "granularity": "gemm"},
        ),
        machine(name="wide", cores=6, local={"size": 1 << 20}, latency=200, among="peer"),
        machine(name="lanes", cores=2, array=False, vector={"product_rows": 2, "max_extent": 24}),
        machine(name="chained", array=False, vector={"rank": 2, "window": False}),
        machine(
            name="twins", matrix={"units": 2, "granularity": "gemm"}, accumulators=8192,
            vector={"units": 2, "rank": 2},
        ),
        machine(
            name="triplets", cores=2, sync="interlock", vector={"units": 3, "window": False},
            matrix=SYSTOLIC | {"units": 2, "writeback": WRITEBACK}, weights=8192,
        ),
        machine(name="flashed", flash="fetch", weights=8192, vector={"max_extent": 24}),
        machine(name="joined", cores=3, shared={"size": 1 << 16}, accumulators=8192),
        machine(
            name="clustered", clusters=2, cores=2, sync="interlock", weights=8192,
            shared={"level": "cluster", "alignment": 32, "latency": "10 cycles"},
            own_engines=True,
        ),
        machine(
            name="unlike", cores=2, weights=8192, accumulators=8192, among="load",
            matrix=SYSTOLIC | {"granularity": "tile", "max_pixels": 16},
            engines={"few": {
                "kind": "cube", "rows": 4, "cols": 4, "depth": 2, "units": 2, "depthwise": True,
                "rate": {"int8": 1.0, "fp32": 0.5}, "writeback": WRITEBACK,
            }},
        ),
    )
}  # fmt: skip
"""One machine per trait."""


def crossed(names: Iterable[str]) -> list[ParameterSet]:
    """Every name with every machine; in the quick tier each with one, so that all come up."""
    return [
        pytest.param(
            name, arch, id=f"{name}-{arch.name}",
            marks=() if place % len(NAMED) == turn else pytest.mark.slow,
        )
        for place, name in enumerate(names)
        for turn, arch in enumerate(NAMED.values())
    ]  # fmt: skip


def changed(record: Record, part: str, **fields: Any) -> Record:
    """A machine, or a part of one, with other fields of a part of it, as `memories.local`."""
    head, _, rest = part.partition(".")
    inner = getattr(record, head)
    made = changed(inner, rest, **fields) if rest else inner.model_copy(update=fields)
    return record.model_copy(update={head: made})


def reading_compressed(
    rate: dict[str, float], types: tuple[str, ...], rows: int = 8, room: int = 8192
) -> dict[str, Arch]:
    """Machines that multiply compressed weights at `rate`, one for each way in which these come to
    the array; `rows` of systolic ones, and `room` in bytes for the weights of a network."""

    def made(**fields: Any) -> Arch:
        return machine(types=types, matrix={"rate": rate} | fields.pop("matrix", {}), **fields)

    systolic = {"kind": "systolic", "rows": rows, "cols": 4, "depth": 1}
    return {
        "conv": made(),
        "im2col": made(matrix={"im2col": False}, weights=room, split_loads=True),
        "gemm": made(
            matrix=systolic | {"granularity": "gemm"}, weights=room // 2, sync="interlock"
        ),
        "tile": made(matrix=systolic | {"granularity": "tile"}, accumulators=8192),
        "cores": made(cores=2, among="load", local={"size": 2 * room}),
        "shared": made(cores=2, among="peer", shared={}, local={"size": room}),
        "flash": made(flash="fetch", weights=room),
        "small": made(local={"size": room // 2}, copy={"rank": 2}),
    }


@st.composite
def arrays(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of any array."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    array = {"rows": pick(1, 3, 4, 8, 16), "cols": pick(1, 4, 5, 8, 16)}
    flow = pick("weight-stationary", "output-stationary", "input-stationary")
    kind = (
        {"kind": "systolic", "depth": 1, "dataflow": flow}
        if draw(st.booleans())
        else {"kind": "cube", "depth": pick(1, 4, 8)}
    )
    finished = draw(st.sets(st.sampled_from((*WRITEBACK, "add"))))
    return array | kind | {
        "granularity": pick("tile", "gemm", "conv"), "depthwise": draw(st.booleans()),
        "writeback": tuple(w for w in (*WRITEBACK, "add") if w in finished),
        "max_pixels": pick(None, None, 1, 8, 16),
        "units": pick(1, 1, 2, 3), "im2col": draw(st.booleans()),
        "overlap": pick(True, True, False),
    }  # fmt: skip


@st.composite
def machines(draw: st.DrawFn) -> Arch:
    """Any machine."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    matrix, array = draw(arrays()), pick(True, True, True, False)
    beside = draw(arrays()) if array and pick(True, False, False) else {}
    beside |= {"rate": pick(RATES, {"int8": 1.0})} if beside else {}
    kinds = pick(("fp32", "int8", "fp16"), ("fp32", "int8", "fp16"), ("int8",), ("fp16", "int8"))
    held = {("int8",): ("int8", "int32"), ("fp16", "int8"): ("fp16", "int8", "int32", "fp32")}
    vector = {
        "types": held.get(kinds, ALL_TYPES),
        "reads": pick(None, None, None, ["local"]),
        "lanes": pick(1, 8, 16), "rank": pick(1, 2, 3), "window": draw(st.booleans()),
        "max_extent": pick(None, None, 7, 32), "product_rows": pick(0, 0, 1, 4),
        "units": pick(1, 1, 2, 3),
    }  # fmt: skip
    banks = pick(1, 2, 8)
    width = pick(4, 16, 64)
    size = pick(256, 512, 1024, 2048, 4096, 8192, 32768, 262144)
    assume(size % (banks * width) == 0)
    local = {
        "size": size, "banks": banks, "bank_width": width, "alignment": pick(1, 1, 16, 64),
        "mapping": pick("interleaved", "blocked"),
    }  # fmt: skip
    near = {
        "size": pick(1024, 8192, 1 << 20), "level": pick("chip", "cluster"),
        "banks": pick(1, 4), "mapping": pick("interleaved", "blocked"),
        "alignment": pick(1, 64), "latency": pick("0 cycles", "30 cycles"),
    }  # fmt: skip
    try:
        return machine(
            types=kinds, clusters=pick(1, 1, 2), cores=pick(1, 1, 2, 3),
            sync=pick("tokens", "interlock"),
            local=local, weights=pick(0, 0, 512, 8192), accumulators=pick(0, 0, 512, 8192),
            matrix=matrix, array=array, vector=vector, engines={"few": beside} if beside else {},
            split_loads=draw(st.booleans()),
            copy={"rank": pick(1, 2, 3, 4), "pad": pick(True, True, True, False)},
            shared=pick(None, near, near), own_engines=draw(st.booleans()),
            among=pick("", "load", "peer"),
            latency=pick(0, 20), tokens=pick(64, 64, 64, 24, 12),
        )  # fmt: skip
    except ValueError:
        assume(False)
        raise
