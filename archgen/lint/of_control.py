"""Rules about what keeps order (tokens, queues, fetch), and how cores reach each other."""

from __future__ import annotations

from collections.abc import Iterator

from archgen.energy.front_end import instruction_bytes
from archgen.lint.product import Product
from archgen.lint.subject import Check, Sight, Subject
from simmodel.units import show_bytes


def _tokens_few(seen: Subject, limit: float) -> Iterator[Sight]:
    front, engines = seen.arch.front_end, seen.arch.engines()
    if front.sync == "tokens" and front.tokens < limit * len(engines):
        figure = f"{front.tokens} for {len(engines)} engines"
        usual = f"{limit * len(engines):g} at least"
        chip = "Arm Ethos-U: two kernels and two transfers in flight; AWS NeuronCore v2: 256"
        yield Sight(("front_end", "tokens"), figure, usual, chip)


def _queue_shallow(seen: Subject, limit: float) -> Iterator[Sight]:
    front = seen.arch.front_end
    least = min(seen.arch.engines(), key=front.depth)
    if front.depth(least) < limit:
        figure = f"{front.depth(least)} for {least}"
        usual = "two and more: one behind the one that runs"
        chip = "Arm Ethos-U (Vela): two kernels in flight; Gemmini: 8 and 2"
        yield Sight(("front_end", "queue_depth"), figure, usual, chip)


def _fetch_slow(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    rate = arch.front_end.fetch_bandwidth
    if rate is None or not arch.matrix.present:
        return
    size = instruction_bytes(arch)
    engines = len(arch.engines()) - 1  # the scalar unit has little to do
    fetched = engines * size / rate.at(arch.clock)
    cycles = Product.best(arch).cycles
    if fetched > limit * cycles:
        figure = (
            f"{engines} instructions of {size:.4g} B, one for each engine, are fetched in "
            f"{fetched:,.0f} cycles; the array's longest takes {cycles:,}"
        )
        usual = f"{engines * size / cycles:,.3g} B/cycle at least"
        yield Sight(("front_end", "fetch_bandwidth"), figure, usual, seen.nearest())


def _loop_buffer_idle(seen: Subject, limit: float) -> Iterator[Sight]:
    front = seen.arch.front_end
    kept = front.loop_buffer or 0
    if kept > limit and front.fetch_bandwidth is None:
        figure = (
            f"{show_bytes(kept)} that save nothing: instructions are there without being fetched"
        )
        usual = "with front_end.fetch_bandwidth"
        yield Sight(("front_end", "loop_buffer"), figure, usual)


def _cores_apart(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    peers = sum(engine.peer for engine in arch.copy_.values())
    ways = peers + (arch.memories.shared is not None)
    if arch.core_count > 1 and ways < limit:
        figure = f"{arch.core_count} cores that meet in DRAM alone"
        usual = "memories.shared, or a copy engine with peer: true"
        chip = "Google TPU v3: links between cores; STCP920: 8 MiB in each cluster"
        yield Sight(("cores",), figure, usual, chip)


def _weights_each_core(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    ways = sum(engine.broadcast for engine in arch.copy_.values())
    ways += arch.memories.shared is not None
    if arch.core_count > 1 and ways < limit:
        figure = f"each of {arch.core_count} cores loads weights that all need from DRAM"
        usual = "a copy engine with broadcast: true, or memories.shared"
        chip = "Simba (Shao et al., MICRO 2019) sends them to several elements at once"
        yield Sight(("copy",), figure, usual, chip)


CHECKS: dict[str, Check] = {
    "tokens-few": _tokens_few,
    "queue-shallow": _queue_shallow,
    "fetch-slow": _fetch_slow,
    "loop-buffer-idle": _loop_buffer_idle,
    "cores-apart": _cores_apart,
    "weights-each-core": _weights_each_core,
}
