"""A machine and a program so small that each of their cycles can be worked out by hand.

One instruction per engine, one after another: load 0..10, matrix 10..12, vector 12..16, store
16..20. They are issued in cycles 0 to 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simmodel.arch.record import Arch
from simmodel.isa import Copy, Gemm, Loop, Unary
from simmodel.isa.region import Address, Operand, contiguous
from simmodel.program.program import Buffer, Origin, Program


def machine(**local: Any) -> Arch:
    """One core, 16 B/cycle to and from DRAM, no latencies; `local` changes the local memory."""
    moves = {"bandwidth": "16 B/cycle"}
    return Arch.model_validate({
        "name": "test", "clock": "500 MHz",
        "memories": {
            "dram": {"size": "1 GiB", "burst": 1, **moves},
            "local": {"size": "64 KiB", "banks": 4, "bank_width": 64, **local},
        },
        "matrix": {"kind": "cube", "rows": 4, "cols": 4, "depth": 4},
        "vector": {"lanes": 16},
        "copy": {
            "load": {"from": "dram", "to": "local", **moves},
            "store": {"from": "local", "to": "dram", **moves},
        },
        "front_end": {"issue_width": 1, "queue_depth": 4},
    })  # fmt: skip


def _at(memory: str, address: int, *shape: int) -> Operand:
    return Operand(memory, Address(address), shape, contiguous(shape, 1), "int8")


def _use(token: str) -> tuple[tuple[str, int], ...]:
    return ((token, 1),)


def two_layers() -> Program:
    """A load and a product for `conv` (group 0), then relu and store for `act` (group 1)."""
    load = Copy(
        engine="load", src=_at("dram", 0, 160), dst=_at("local", 0, 160), signals=_use("x"),
    )  # fmt: skip
    product = Gemm(
        engine="matrix", a=_at("local", 0, 1, 1, 4, 8), w=_at("local", 32, 8, 4),
        dst=_at("local", 64, 1, 1, 4, 4), waits=_use("x"), signals=_use("y"),
    )  # fmt: skip
    relu = Unary(
        engine="vector", function="relu", a=_at("local", 0, 64), dst=_at("local", 0, 64),
        waits=_use("y"), signals=_use("z"), origin=1,
    )  # fmt: skip
    store = Copy(
        engine="store", src=_at("local", 0, 64), dst=_at("dram", 1 << 20, 64), waits=_use("z"),
        origin=1,
    )  # fmt: skip
    buffers = (
        Buffer("both", "local", 0, 100, core=0, first=0, last=1),
        Buffer("sums", "local", 32 << 10, 60, core=0, first=0, last=0),
        Buffer("late", "local", 32 << 10, 20, core=0, first=1, last=1),
    )
    return Program(
        "test", "test", ((load, product, relu, store),), ({"x": 0, "y": 0, "z": 0},), {}, (),
        buffers, (), (), (Origin("conv", 0, "Conv"), Origin("act", 1, "Relu")), macs=128,
    )  # fmt: skip


def two_tiles() -> Program:
    """Two loads of 10 cycles each, for relus of 20 cycles each; at most one load is ahead.

    load 0..10, 10..20; vector 10..30, 30..50. Token `full` is 1 from 20 to 30, `free` is 2 at the
    start, 1 from 0, 0 from 10, 1 from 30, 2 from 50.
    """
    load = Copy(
        engine="load", src=_at("dram", 0, 160), dst=_at("local", 0, 160), waits=_use("free"),
        signals=_use("full"),
    )  # fmt: skip
    relu = Unary(
        engine="vector", function="relu", a=_at("local", 0, 320), dst=_at("local", 0, 320),
        waits=_use("full"), signals=_use("free"),
    )  # fmt: skip
    loop = Loop("t", 2, (load, relu))
    tokens = {"full": 0, "free": 2}
    return replace(two_layers(), cores=((loop,),), tokens=(tokens,), buffers=())
