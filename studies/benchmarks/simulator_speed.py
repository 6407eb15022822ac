"""How fast the machine simulates, against SimPy's own speed on the same computer.

Prints simulated instructions per second for hand-written programs beside the bare timeouts per
second of SimPy, measured in the same run. What to look for: above 8 % in the first two.

    pipeline   one core, tiles through load -> matrix -> vector -> store with two buffers each;
               load and store contend for DRAM, and no instruction is part of a burst
    cores      the same on four cores, which share the DRAM
    crowded    the same with local memories too slow for their engines as well, the costly case:
               nearly every start and end has to share several resources anew
"""

from __future__ import annotations

import time
from collections.abc import Callable

import simpy

from simmodel.arch.record import Arch
from simmodel.isa import Copy, Gemm, Item, Loop, Unary
from simmodel.isa.region import Address, Operand, Ring, contiguous
from simmodel.machine.run import simulate
from simmodel.program.program import Origin, Program

TILE = 4096
TILES = 10_000
TOKENS = {
    "loaded": 0, "loadable": 2, "multiplied": 0, "multipliable": 2, "finished": 0, "finishable": 2,
}  # fmt: skip


def bare_timeouts(count: int = 200_000) -> float:
    """Timeouts per second of one SimPy process that does nothing else."""
    env = simpy.Environment()

    def process() -> simpy.events.ProcessGenerator:
        for _ in range(count):
            yield env.timeout(1)

    env.process(process())
    return count / _seconds(env.run)


def machine(cores: int, banks: int) -> Arch:
    """A small accelerator whose DRAM is slower than the copy engines together."""
    return Arch.model_validate(
        {
            "name": "speed",
            "clock": "1 GHz",
            "cores": cores,
            "memories": {
                "dram": {"size": "1 GiB", "bandwidth": "24 B/cycle", "latency": "100 cycles"},
                "local": {"size": "256 KiB", "banks": banks, "bank_width": 16},
            },
            "matrix": {"kind": "cube", "rows": 16, "cols": 16, "depth": 16},
            "vector": {"lanes": 32},
            "copy": {
                "load": {"from": "dram", "to": "local", "bandwidth": "16 B/cycle"},
                "store": {"from": "local", "to": "dram", "bandwidth": "16 B/cycle"},
            },
        }
    )


def pipeline(cores: int) -> Program:
    """Double-buffered tiles on every core."""
    return Program(
        name="pipeline",
        arch="speed",
        cores=tuple(_stream(core) for core in range(cores)),
        tokens=(TOKENS,) * cores,
        barriers={},
        constants=(),
        buffers=(),
        inputs=(),
        outputs=(),
        origins=(Origin("node", 0, "Conv"),),
    )


def _stream(core: int) -> tuple[Item, ...]:
    source, target = core * 2 * TILE, (1 << 24) + core * 2 * TILE
    weights = _box("local", 1 << 17, 64, 64)
    body = (
        Copy(
            engine="load",
            src=_box("dram", source, TILE),
            dst=_box("local", 0, TILE, ring=True),
            waits=(("loadable", 1),),
            signals=(("loaded", 1),),
        ),
        Gemm(
            engine="matrix",
            a=_box("local", 0, 8, 8, 64, ring=True),
            w=weights,
            dst=_box("local", 2 * TILE, 8, 8, 64, ring=True),
            waits=(("loaded", 1), ("multipliable", 1)),
            signals=(("loadable", 1), ("multiplied", 1)),
        ),
        Unary(
            engine="vector",
            function="relu",
            a=_box("local", 2 * TILE, TILE, ring=True),
            dst=_box("local", 4 * TILE, TILE, ring=True),
            waits=(("multiplied", 1), ("finishable", 1)),
            signals=(("multipliable", 1), ("finished", 1)),
        ),
        Copy(
            engine="store",
            src=_box("local", 4 * TILE, TILE, ring=True),
            dst=_box("dram", target, TILE),
            waits=(("finished", 1),),
            signals=(("finishable", 1),),
        ),
    )
    return (Loop("tile", TILES // 4, body),)


def _box(memory: str, base: int, *shape: int, ring: bool = False) -> Operand:
    slots = Ring(2, TILE, terms=(("tile", 1),)) if ring else None
    return Operand(memory, Address(base, (), slots), shape, contiguous(shape, 1), "int8")


def _seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def instructions_per_second(cores: int, banks: int) -> float:
    """Instructions simulated per second of wall clock, building included."""
    arch, program = machine(cores, banks), pipeline(cores)
    return cores * TILES / _seconds(lambda: simulate(program, arch))


def main() -> None:
    """Best of three of everything, so that a busy computer disturbs less."""
    bare = max(bare_timeouts() for _ in range(3))
    print(f"SimPy timeouts      {bare:10,.0f} /s")
    for name, cores, banks in (("pipeline", 1, 32), ("cores", 4, 32), ("crowded", 4, 16)):
        speed = max(instructions_per_second(cores, banks) for _ in range(3))
        print(f"{name:10} instr.   {speed:10,.0f} /s   {speed / bare:6.1%} of SimPy's timeouts")


if __name__ == "__main__":
    main()
