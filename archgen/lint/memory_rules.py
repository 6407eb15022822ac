"""Rules about the memories on the chip: banks, ports, and room for what the array needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from archgen.lint.engine_rules import ArrayProduct
from archgen.lint.subject import Check, LintedMachine, Sight
from simmodel.arch.record import Arch, Link
from simmodel.arch.units import show_bytes


def _bank_small(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    for role, memory in seen.arch.memories.on_chip().items():
        if memory.bank_size < limit:
            figure = f"{memory.banks} banks of {memory.bank_size} B"
            usual = f"{limit:g} B and more"
            chip = "Eyeriss: 448 B for the weights of each cell; NVDLA: banks of 32 KiB"
            yield Sight(("memories", role, "banks"), figure, usual, chip)


def _bank_wide(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    for role, memory in seen.arch.memories.on_chip().items():
        if memory.bank_width > limit:
            figure = f"{memory.bank_width} B in one access"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): 1024 B of its accumulators"
            yield Sight(("memories", role, "bank_width"), figure, f"up to {limit:g} B", chip)


def _ports_many(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    for role, memory in seen.arch.memories.on_chip().items():
        both = (memory.read_ports or 0) + (memory.write_ports or 0)
        ports = both if memory.split_ports else memory.ports
        if ports > limit:
            field = "read_ports" if memory.split_ports else "ports"
            usual = "one or two; more bandwidth comes from banks"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): two reads and a write"
            yield Sight(("memories", role, field), f"{ports} ports on each bank", usual, chip)


def _memory_bypassed(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    for role in arch.memories.on_chip():
        if _readers(arch, role) < limit:
            yield Sight(("memories", role), "nothing reads it", "an engine at least")


def _readers(arch: Arch, role: str) -> int:
    """Engines that read a memory; sums that are written back by the array are read by it."""
    matrix = arch.matrix
    readers = [role in engine.from_ for engine in arch.copy_.values()]
    readers += [role in arch.vector.reads]
    if matrix.present:
        written_back = role == matrix.output and bool(matrix.writeback)
        readers += [role in (matrix.input, matrix.weights) or written_back]
    return sum(readers)


def _two_tiles(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    if not arch.matrix.present:
        return
    held = ArrayProduct.least(arch).operand_bytes()
    for role, parts in held.items():
        memory = arch.memories.on_chip()[role]
        once = sum(parts.values())
        if memory.size < limit * once:
            named = ", ".join(f"{show_bytes(size)} of {what}" for what, size in parts.items())
            figure = f"{show_bytes(memory.size)}; an array-sized product has {named}"
            usual = f"{show_bytes(int(limit * once))} at least"
            chip = "Google TPU v1 (Jouppi et al., ISCA 2017): four tiles of weights"
            yield Sight(("memories", role, "size"), figure, usual, chip)


def _accumulators_few(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch, memory = seen.arch, seen.arch.memories.accumulators
    stays = arch.matrix.kind == "systolic" and arch.matrix.dataflow == "weight-stationary"
    if memory is None or arch.matrix.output != "accumulators" or not stays:
        return
    rows = memory.size // ArrayProduct.least(arch).row_of_sums
    if rows < limit * arch.matrix.rows:
        figure = f"{show_bytes(memory.size)}: {rows} rows of sums for {arch.matrix.rows} rows"
        usual = (
            f"{limit * arch.matrix.rows:g} rows at least; new weights need "
            f"{arch.matrix.rows} cycles to be shifted in"
        )
        chip = "Google TPU v1 (Jouppi et al., ISCA 2017): 4096 rows of sums for 256 rows"
        yield Sight(("memories", "accumulators", "size"), figure, usual, chip)


MEMORY_CHECKS: dict[str, Check] = {
    "bank-small": _bank_small,
    "bank-wide": _bank_wide,
    "ports-many": _ports_many,
    "memory-bypassed": _memory_bypassed,
    "two-tiles": _two_tiles,
    "accumulators-few": _accumulators_few,
}


# Rules about what moves data: copy engines, links, DRAM and the ports that they end in.


def _copy_port(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    for name, engine in seen.arch.copy_.items():
        rate = engine.bandwidth.at(seen.arch.clock)
        for roles, write in ((engine.from_, False), (engine.to, True)):
            widest = max(roles, key=lambda role: seen.carried(role, write))
            carried = seen.carried(widest, write)
            if "dram" not in roles and rate > limit * carried:
                way = "written" if write else "read"
                figure = f"{rate:,.4g} B/cycle"
                usual = f"all banks of {widest} together are {way} at {carried:,.4g} B/cycle"
                yield Sight(("copy", name, "bandwidth"), figure, usual)


def _copy_dram(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    for name, engine in seen.arch.copy_.items():
        rate = engine.bandwidth.at(seen.arch.clock)
        if ("dram",) in (engine.from_, engine.to) and rate > limit * seen.carried("dram", False):
            figure = f"{rate:,.4g} B/cycle"
            usual = f"DRAM carries {seen.carried('dram', False):,.4g} B/cycle for all cores"
            yield Sight(("copy", name, "bandwidth"), figure, usual, seen.nearest())


def _dram_unused(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    taken = sum(_through(seen, name) for name in arch.copy_)
    rate = arch.dram_bytes_per_cycle
    if taken < limit * rate:
        figure = f"{rate:,.4g} B/cycle"
        usual = f"copy engines and links of all cores load and store {taken:,.4g} B/cycle at most"
        yield Sight(("memories", "dram", "bandwidth"), figure, usual, seen.nearest())


def _through(seen: LintedMachine, name: str) -> float:
    """Bytes per cycle that the copy engines `name` of all cores move from and to DRAM."""
    arch, engine = seen.arch, seen.arch.copy_[name]
    own = engine.bandwidth.at(arch.clock) * arch.core_count
    ways = [(source, target) for source in engine.from_ for target in engine.to]
    rates = [
        min(
            [
                own,
                *(
                    _total_bandwidth(seen, link)
                    for link in _links_between(arch.links.values(), *way)
                ),
            ]
        )
        for way in ways
        if "dram" in way
    ]
    return max(rates, default=0.0)


def _links_between(links: Iterable[Link], source: str, target: str) -> list[Link]:
    return [link for link in links if source in link.from_ and target in link.to]


def _total_bandwidth(seen: LintedMachine, link: Link) -> float:
    """Bytes per cycle of all instances of a link, in one direction."""
    return link.bandwidth.at(seen.arch.clock) * _link_instances(seen, link)


def _link_instances(seen: LintedMachine, link: Link) -> int:
    counts = {"chip": 1, "cluster": seen.arch.clusters, "core": seen.arch.core_count}
    return counts[link.scope]


def _link_port(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    for name, link in seen.arch.links.items():
        rate = link.bandwidth.at(seen.arch.clock)
        for roles, write in ((link.from_, False), (link.to, True)):
            shares = {
                role: seen.carried(role, write)
                * max(1, seen.instances(role) // _link_instances(seen, link))
                for role in roles
            }
            widest = max(shares, key=lambda role: shares[role])
            if "dram" not in roles and rate > limit * sum(shares.values()):
                way = "written" if write else "read"
                usual = f"what shares an instance of it is {way} at {sum(shares.values()):,.4g}"
                figure = f"{rate:,.4g} B/cycle"
                yield Sight(("links", name, "bandwidth"), figure, f"{usual} B/cycle ({widest})")


def _link_unused(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    for name, link in seen.arch.links.items():
        crossed = [
            engine
            for engine in seen.arch.copy_.values()
            if set(engine.from_) & set(link.from_) and set(engine.to) & set(link.to)
        ]
        if len(crossed) < limit:
            ways = f"{'/'.join(link.from_)} to {'/'.join(link.to)}"
            yield Sight(("links", name), f"no copy engine goes from {ways}", "one at least")


def _requests_in_flight(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    for name, engine in arch.copy_.items():
        if "dram" not in (*engine.from_, *engine.to) or not arch.dram_latency:
            continue
        flying = engine.outstanding * engine.request
        rate = flying / arch.dram_latency
        wanted = min(engine.bandwidth.at(arch.clock), arch.dram_bytes_per_cycle)
        least = limit if "dram" in engine.from_ else limit * _POSTED
        if rate < least * wanted:
            figure = f"{show_bytes(flying)} in {arch.dram_latency} cycles: {rate:,.3g} B/cycle"
            most = wanted * arch.dram_latency / engine.request
            usual = f"{wanted:,.4g} B/cycle need {most:,.0f} requests of {engine.request} B"
            chip = "Arm Ethos-U65: 32 requests of 128 B for 500 cycles (archs/ethos-u65-like.yaml)"
            yield Sight(("copy", name, "outstanding"), figure, usual, chip)


_POSTED = 0.5
"""Of what loads need: hardly anything waits for a store."""


def _copy_startup(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    for name, engine in arch.copy_.items():
        lost = engine.startup.cycles(arch.clock) * engine.bandwidth.at(arch.clock)
        size = arch.memories.local.size
        if lost > limit * size:
            figure = f"{engine.startup}, in which it would move {show_bytes(int(lost))}"
            usual = f"local memory has {show_bytes(size)}, and a tile is less than half of it"
            chip = "AWS NeuronCore v2: 1 us, 227 KiB of 24 MiB (archs/neuroncore-v2-like.yaml)"
            yield Sight(("copy", name, "startup"), figure, usual, chip)


def _shared_slow(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    if seen.arch.memories.shared is None:
        return
    rate = seen.carried("shared", False) * seen.instances("shared")
    dram = seen.arch.dram_bytes_per_cycle
    if rate < limit * dram:
        usual = f"DRAM behind it has {dram:,.4g} B/cycle"
        chip = "STCP920: 256 GB/s in each of four clusters before 119 GB/s (GraphTurbo, OSDI 2023)"
        yield Sight(("memories", "shared"), f"{rate:,.4g} B/cycle", usual, chip)


PORT_CHECKS: dict[str, Check] = {
    "copy-port": _copy_port,
    "copy-dram": _copy_dram,
    "dram-unused": _dram_unused,
    "link-port": _link_port,
    "link-unused": _link_unused,
    "requests-in-flight": _requests_in_flight,
    "copy-startup": _copy_startup,
    "shared-slow": _shared_slow,
}
