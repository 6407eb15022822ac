"""Small machines and hand-written programs that many tests share.

`pipeline` is the shape of every compiled layer: load, multiply, requantize, store, with tokens and
two buffers each; `relay` passes data from core to core through a barrier.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch
from simmodel.isa import Arrive, Await, Copy, Gemm, Instruction, Item, Loop, Sync, Unary
from simmodel.isa.region import Address, Operand, Ring, contiguous
from simmodel.program.program import Constant, Origin, Port, Program


def machine(sync: str = "tokens", cores: int = 1, **changes: Any) -> Arch:
    """A small machine with every engine and memory; `changes` replace top-level fields."""
    record: dict[str, Any] = {
        "name": "test",
        "clock": "1 GHz",
        "cores": cores,
        "memories": {
            "dram": {"size": "4 MiB", "bandwidth": "16 B/cycle", "latency": "20 cycles"},
            "local": {"size": "64 KiB", "banks": 4, "alignment": 16},
            "shared": {"size": "128 KiB"},
            "accumulators": {"size": "16 KiB"},
        },
        "matrix": {
            "kind": "cube", "rows": 8, "cols": 8, "depth": 8, "depthwise": True,
            "winograd": {},
            "output": "accumulators", "writeback": ["bias", "clip", "requantize"],
            "rate": {"int8": 1.0, "fp16": 0.5},
        },
        "vector": {
            "lanes": 16, "types": ["int8", "uint8", "int16", "int32", "fp16", "fp32"],
            "product_rows": 2,
            "reads": ["local", "accumulators"], "writes": ["local", "accumulators"],
        },
        "scalar": {"types": ["int8", "int32", "fp32"]},
        "copy": {
            "load": {"from": ["dram", "shared"], "to": ["local"], "bandwidth": "16 B/cycle"},
            "store": {"from": ["local"], "to": ["dram", "shared"], "bandwidth": "16 B/cycle"},
            "peer": {
                "from": ["local"], "to": ["local"], "bandwidth": "16 B/cycle",
                "broadcast": True, "peer": True,
            },
        },
        "front_end": {"sync": sync, "queue_depth": 4, "tokens": 8},
    }  # fmt: skip
    return Arch.model_validate(record | changes)


def at(
    memory: str, base: int, shape: tuple[int, ...], dtype: str = "int8", *,
    terms: dict[str, int] | None = None, ring: Ring | None = None,
    strides: tuple[int, ...] | None = None, **more: Any,
) -> Operand:  # fmt: skip
    """An operand, contiguous unless `strides` are given."""
    address = Address(base, tuple((terms or {}).items()), ring)
    return Operand(
        memory, address, shape, strides or contiguous(shape, size_of(dtype)), dtype, **more
    )


def constant(name: str, address: int, data: np.ndarray) -> Constant:
    """A constant in DRAM."""
    return Constant(name, address, data, data.nbytes)


def port(name: str, operand: Operand, dtype: str | None = None) -> Port:
    """A port whose user sees the stored shape."""
    return Port(name, operand, operand.shape, dtype or operand.dtype)


def program(
    *cores: tuple[Item, ...], tokens: tuple[dict[str, int], ...] = (), **more: Any
) -> Program:
    """A program for `machine`, with one origin unless others are given."""
    empty = dict.fromkeys(("constants", "buffers", "inputs", "outputs"), ())
    fields: dict[str, Any] = {**empty, "origins": (Origin("node", 0, "MatMul"),), **more}
    fields["barriers"] = fields.get("barriers") or {}
    tokens = tokens or tuple({} for _ in cores)
    return Program(name="hand", arch="test", cores=cores, tokens=tokens, **fields)


X, W, Y = 0, 4096, 8192
"""DRAM addresses of the pipeline's input, weights and output."""
TILES, ROWS, K, N = 6, 4, 16, 8


def pipeline(sync: str = "tokens") -> Program:
    """y = requantize(x @ w), tile by tile of ROWS rows, everything double-buffered.

    Local: x tiles at 0 and 64, w at 1024, results at 2048 and 2080; sums in accumulators.
    """
    two_x, two_y = Ring(2, ROWS * K, 0, (("t", 1),)), Ring(2, ROWS * N, 0, (("t", 1),))
    two_s = Ring(2, ROWS * N * 4, 0, (("t", 1),))
    x = at("local", 0, (ROWS, 1, 1, K), ring=two_x)
    sums = at("accumulators", 0, (ROWS, 1, 1, N), "int32", ring=two_s)
    y = at("local", 2048, (ROWS, 1, 1, N), ring=two_y, scale=64.0)
    load_w = Copy(
        engine="load", dst=at("local", 1024, (K, N)), src=at("dram", W, (K, N)),
        signals=(("w", 1),),
    )  # fmt: skip
    load_x = Copy(
        engine="load", dst=x, src=at("dram", X, (ROWS, 1, 1, K), terms={"t": ROWS * K}),
        waits=(("x_free", 1),), signals=(("x_full", 1),),
    )  # fmt: skip
    first = Gemm(engine="matrix", dst=sums, a=x, w=at("local", 1024, (K, N)))
    multiply = replace(
        first, waits=(("x_full", 1), ("s_free", 1)), signals=(("x_free", 1), ("s_full", 1))
    )
    scale = Unary(
        engine="vector", function="move", dst=y, a=sums,
        waits=(("s_full", 1), ("y_free", 1)), signals=(("s_free", 1), ("y_full", 1)),
    )  # fmt: skip
    store = Copy(
        engine="store", dst=at("dram", Y, (ROWS, 1, 1, N), terms={"t": ROWS * N}), src=y,
        waits=(("y_full", 1),), signals=(("y_free", 1),),
    )  # fmt: skip
    wait = Sync(engine="matrix", waits=(("w", 1),))
    stream: tuple[Item, ...] = (load_w, wait, Loop("t", TILES, (load_x, multiply, scale, store)))
    tokens = {"w": 0, "x_full": 0, "x_free": 2, "s_full": 0, "s_free": 2, "y_full": 0, "y_free": 2}
    if sync == "interlock":
        stream, tokens = without_tokens(stream), {}
    weights = np.arange(K * N, dtype=np.int64).reshape(K, N) % 23 - 11
    return program(
        stream,
        tokens=(tokens,),
        constants=(constant("w", W, weights.astype(np.int8)),),
        inputs=(port("x", at("dram", X, (TILES * ROWS, K))),),
        outputs=(port("y", at("dram", Y, (TILES * ROWS, N))),),
    )


def without_tokens(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The same stream with nothing to wait for or signal."""
    bare: list[Item] = []
    for item in items:
        if isinstance(item, Loop):
            bare.append(replace(item, body=without_tokens(item.body)))
        elif not isinstance(item, Sync) or isinstance(item, Arrive | Await):
            bare.append(replace(item, waits=(), signals=()))
    return tuple(bare)


def pipeline_answer(x: np.ndarray) -> np.ndarray:
    """What `pipeline` computes."""
    weights = np.arange(K * N).reshape(K, N) % 23 - 11
    sums = (x.astype(np.int64) @ weights).astype(np.float32)
    return np.clip(np.rint(sums / np.float32(64)), -128, 127).astype(np.int8)


def relay(cores: int = 2) -> Program:
    """Core c loads its block of x, stores it to a scratch area; after a barrier core c stores to y
    the block of core c + 1: a rotation."""
    block, scratch, out = 32, 4096, 8192
    streams = []
    for core in range(cores):
        own, next_ = block * core, scratch + block * ((core + 1) % cores)
        streams.append((
            _move("load", ("dram", own), ("local", 0), block, signals=(("in", 1),)),
            _move("store", ("local", 0), ("dram", scratch + own), block, waits=(("in", 1),)),
            Arrive(engine="store", barrier="all"),
            Await(engine="load", barrier="all"),
            _move("load", ("dram", next_), ("local", 64), block, signals=(("again", 1),)),
            _move("store", ("local", 64), ("dram", out + own), block, waits=(("again", 1),)),
        ))  # fmt: skip
    return program(
        *streams,
        tokens=tuple({"in": 0, "again": 0} for _ in range(cores)),
        barriers={"all": cores},
        inputs=(port("x", at("dram", 0, (cores, block))),),
        outputs=(port("y", at("dram", out, (cores, block))),),
    )


def _move(
    engine: str, source: tuple[str, int], target: tuple[str, int], size: int, **sync: Any
) -> Instruction:
    return Copy(engine=engine, src=at(*source, (size,)), dst=at(*target, (size,)), **sync)


WINDOW = 48
"""Bytes of DRAM and of local memory that `random_programs` move about."""


@st.composite
def random_programs(draw: st.DrawFn, cores: int = 2) -> Program:
    """Copies among a few bytes, with some of the tokens and barriers that would order them.

    Every core first loads its local window; whether the rest is free of races is left to chance.
    """
    streams, tokens, meeting = [], [], draw(st.booleans())
    for _ in range(cores):
        first = _move("load", ("dram", 0), ("local", 0), WINDOW)
        items: list[Instruction] = [first]
        for _ in range(draw(st.integers(1, 4))):
            items.append(draw(_transfers(cores)))
            if meeting and len(items) == 2:
                engine = items[1].engine
                items.append(Arrive(engine=engine, barrier="meet"))
                items += [Await(engine=e, barrier="meet") for e in ("load", "store", "peer")]
        counts: dict[str, int] = {}
        for _ in range(draw(st.integers(0, 6))):
            giver = draw(st.integers(0, len(items) - 2))
            taker = draw(st.integers(giver + 1, len(items) - 1))
            name = f"t{len(counts)}"
            counts[name] = 0
            items[giver] = replace(items[giver], signals=(*items[giver].signals, (name, 1)))
            items[taker] = replace(items[taker], waits=(*items[taker].waits, (name, 1)))
        streams.append(tuple(items))
        tokens.append(counts)

    return program(
        *streams,
        tokens=tuple(tokens),
        barriers={"meet": cores} if meeting else {},
        inputs=(port("x", at("dram", 0, (WINDOW,))),),
        outputs=(port("y", at("dram", 0, (WINDOW,))),),
    )


@st.composite
def _transfers(draw: st.DrawFn, cores: int) -> Instruction:
    """A copy; from local to local memory also of other cores, or to several."""
    engine, source, target = draw(
        st.sampled_from(
            [("load", "dram", "local"), ("store", "local", "dram"), ("peer", "local", "local")]
        )
    )
    rows, run = draw(st.integers(1, 3)), draw(st.integers(1, 6))

    def operand(memory: str) -> Operand:
        stride = draw(st.integers(run, 12))
        start = draw(st.integers(0, WINDOW - (rows - 1) * stride - run))
        return at(memory, start, (rows, run), strides=(stride, 1))

    owners = st.sampled_from([(), *((c,) for c in range(cores)), tuple(range(cores))])
    to = draw(owners) if engine == "peer" and cores > 1 else ()
    return Copy(engine=engine, src=operand(source), dst=replace(operand(target), cores=to))
