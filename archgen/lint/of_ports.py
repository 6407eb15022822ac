"""Rules about what moves data: copy engines, links, DRAM and the ports that they end in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from archgen.lint.subject import Check, Sight, Subject
from simmodel.arch import Link
from simmodel.units import show_bytes


def _copy_port(seen: Subject, limit: float) -> Iterator[Sight]:
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


def _copy_dram(seen: Subject, limit: float) -> Iterator[Sight]:
    for name, engine in seen.arch.copy_.items():
        rate = engine.bandwidth.at(seen.arch.clock)
        if ("dram",) in (engine.from_, engine.to) and rate > limit * seen.carried("dram", False):
            figure = f"{rate:,.4g} B/cycle"
            usual = f"DRAM carries {seen.carried('dram', False):,.4g} B/cycle for all cores"
            yield Sight(("copy", name, "bandwidth"), figure, usual, seen.nearest())


def _dram_unused(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    taken = sum(_through(seen, name) for name in arch.copy_)
    rate = arch.dram_bytes_per_cycle
    if taken < limit * rate:
        figure = f"{rate:,.4g} B/cycle"
        usual = f"copy engines and links of all cores load and store {taken:,.4g} B/cycle at most"
        yield Sight(("memories", "dram", "bandwidth"), figure, usual, seen.nearest())


def _through(seen: Subject, name: str) -> float:
    """Bytes per cycle that the copy engines `name` of all cores move from and to DRAM."""
    arch, engine = seen.arch, seen.arch.copy_[name]
    own = engine.bandwidth.at(arch.clock) * arch.core_count
    ways = [(source, target) for source in engine.from_ for target in engine.to]
    rates = [
        min([own, *(_whole(seen, link) for link in _between(arch.links.values(), *way))])
        for way in ways
        if "dram" in way
    ]
    return max(rates, default=0.0)


def _between(links: Iterable[Link], source: str, target: str) -> list[Link]:
    return [link for link in links if source in link.from_ and target in link.to]


def _whole(seen: Subject, link: Link) -> float:
    """Bytes per cycle of all instances of a link, in one direction."""
    return link.bandwidth.at(seen.arch.clock) * _count(seen, link)


def _count(seen: Subject, link: Link) -> int:
    counts = {"chip": 1, "cluster": seen.arch.clusters, "core": seen.arch.core_count}
    return counts[link.scope]


def _link_port(seen: Subject, limit: float) -> Iterator[Sight]:
    for name, link in seen.arch.links.items():
        rate = link.bandwidth.at(seen.arch.clock)
        for roles, write in ((link.from_, False), (link.to, True)):
            shares = {
                role: seen.carried(role, write) * max(1, seen.instances(role) // _count(seen, link))
                for role in roles
            }
            widest = max(shares, key=lambda role: shares[role])
            if "dram" not in roles and rate > limit * sum(shares.values()):
                way = "written" if write else "read"
                usual = f"what shares an instance of it is {way} at {sum(shares.values()):,.4g}"
                figure = f"{rate:,.4g} B/cycle"
                yield Sight(("links", name, "bandwidth"), figure, f"{usual} B/cycle ({widest})")


def _link_unused(seen: Subject, limit: float) -> Iterator[Sight]:
    for name, link in seen.arch.links.items():
        crossed = [
            engine
            for engine in seen.arch.copy_.values()
            if set(engine.from_) & set(link.from_) and set(engine.to) & set(link.to)
        ]
        if len(crossed) < limit:
            ways = f"{'/'.join(link.from_)} to {'/'.join(link.to)}"
            yield Sight(("links", name), f"no copy engine goes from {ways}", "one at least")


def _requests_in_flight(seen: Subject, limit: float) -> Iterator[Sight]:
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


def _copy_startup(seen: Subject, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    for name, engine in arch.copy_.items():
        lost = engine.startup.cycles(arch.clock) * engine.bandwidth.at(arch.clock)
        size = arch.memories.local.size
        if lost > limit * size:
            figure = f"{engine.startup}, in which it would move {show_bytes(int(lost))}"
            usual = f"local memory has {show_bytes(size)}, and a tile is less than half of it"
            chip = "AWS NeuronCore v2: 1 us, 227 KiB of 24 MiB (archs/neuroncore-v2-like.yaml)"
            yield Sight(("copy", name, "startup"), figure, usual, chip)


def _shared_slow(seen: Subject, limit: float) -> Iterator[Sight]:
    if seen.arch.memories.shared is None:
        return
    rate = seen.carried("shared", False) * seen.instances("shared")
    dram = seen.arch.dram_bytes_per_cycle
    if rate < limit * dram:
        usual = f"DRAM behind it has {dram:,.4g} B/cycle"
        chip = "STCP920: 256 GB/s in each of four clusters before 119 GB/s (GraphTurbo, OSDI 2023)"
        yield Sight(("memories", "shared"), f"{rate:,.4g} B/cycle", usual, chip)


CHECKS: dict[str, Check] = {
    "copy-port": _copy_port,
    "copy-dram": _copy_dram,
    "dram-unused": _dram_unused,
    "link-port": _link_port,
    "link-unused": _link_unused,
    "requests-in-flight": _requests_in_flight,
    "copy-startup": _copy_startup,
    "shared-slow": _shared_slow,
}
