"""Energy and area: sums by hand, what must grow with what, overrides, the table and its sources."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sram_fit import (
    Point,
    area_ratio,
    energy_ratio,
    of_area,
    of_energy,
    points,
    refit,
    relative_error,
    standard_error,
)

from archgen.energy import EnergyCosts, costs_of
from archgen.energy.costs import events_of
from archgen.energy.model import count_events, energy_of
from archgen.energy.ranges import UncertainValue, total
from archgen.energy.sram import Sram, sram_cost
from archgen.energy.table import shipped_table
from archgen.outcomes.rows import energy_row
from archgen.schema import load_arch, load_archs, shipped_names
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch
from simmodel.isa import Binary, Copy, Gemm, Item, Loop, Unary, Window
from simmodel.isa.region import Address, Operand, contiguous
from simmodel.machine.run import simulate
from simmodel.program.program import Constant, Origin, Program
from simmodel.verify import verify

FIGURES = shipped_table()
STATED: dict[str, Any] = {
    "node": "22 nm",
    "mac": {"int8": "0.5 pJ"},
    "vector": {"simple": "2 pJ", "multiply": "3 pJ", "divide": "5 pJ", "special": "7 pJ"},
    "memories": {
        "dram": {"read": "10 pJ/bit", "write": "20 pJ/bit", "area": "2 mm2"},
        "local": {"read": "1 pJ/B", "write": "2 pJ/B", "area": "0.5 mm2"},
        "accumulators": {"read": "3 pJ/B", "write": "4 pJ/B", "area": "0.25 mm2"},
    },
    "links": {"bus": "6 pJ/B"},
    "instruction": "11 pJ",
    "leakage": "30 mW",
    "area": {"mac": "100 um2", "lane": "1000 um2", "other": "0.1 mm2"},
}
"""Every figure that the machine below needs, none from the table."""


def machine(**energy: Any) -> Arch:
    return changed({}, **energy)


def changed(parts: dict[str, Any], **energy: Any) -> Arch:
    """The machine with top-level fields replaced."""
    return Arch.model_validate(
        {
            "name": "test", "clock": "1 GHz",
            "memories": {
                "dram": {"size": "1 MiB", "bandwidth": "16 B/cycle"},
                "local": {"size": "64 KiB", "banks": 4}, "accumulators": {"size": "16 KiB"},
            },
            "matrix": {"kind": "cube", "rows": 4, "cols": 4, "depth": 4, "output": "accumulators"},
            "vector": {"lanes": 8, "reads": ["local", "accumulators"], "writes": ["local"]},
            "copy": {
                "load": {"from": "dram", "to": "local", "bandwidth": "16 B/cycle"},
                "store": {"from": "local", "to": "dram", "bandwidth": "16 B/cycle"},
            },
            "links": {"bus": {"from": "dram", "to": "local", "bandwidth": "16 B/cycle"}},
            "front_end": {"sync": "interlock"},
            "energy": energy,
        }
        | parts
    )  # fmt: skip


def at(memory: str, base: int, shape: tuple[int, ...], dtype: str = "int8") -> Operand:
    return Operand(memory, Address(base), shape, contiguous(shape, size_of(dtype)), dtype)


def program(arch: Arch, turns: int = 3) -> Program:
    """A weight tile is loaded, then `turns` times: load 64 bytes, multiply, round, store."""
    a, w = at("local", 0, (1, 1, 4, 16)), at("local", 4096, (16, 16))
    sums, out = at("accumulators", 0, (1, 1, 4, 16), "int32"), at("local", 8192, (1, 1, 4, 16))
    load_w = Copy(engine="load", dst=w, src=at("dram", 4096, (16, 16)), origin=0)
    body: tuple[Item, ...] = (
        Copy(engine="load", dst=a, src=at("dram", 0, (1, 1, 4, 16)), origin=1),
        Gemm(engine="matrix", dst=sums, a=a, w=w, origin=1),
        Unary(engine="vector", function="move", dst=out, a=sums, origin=2),
        Copy(engine="store", dst=at("dram", 8192, (1, 1, 4, 16)), src=out, origin=2),
    )
    origins = tuple(Origin(name, 0, "Gemm") for name in ("weights", "product", "result"))
    data = Constant("data", 0, np.zeros(4096 + 256, np.int8))
    macs = turns * 4 * 16 * 16
    return Program(
        "net", arch.name, ((load_w, Loop("i", turns, body)),), ({},), {}, (data,), (), (), (),
        origins, (), macs,
    )  # fmt: skip


def test_a_small_program_added_up_by_hand() -> None:
    arch = machine(**STATED)
    made = program(arch)
    verify(made, arch)
    trace = simulate(made, arch)
    energy = energy_of(trace, made, arch, costs_of(arch))
    pj = {
        "mac": 3 * (4 * 16 * 16) * 0.5,
        "vector": 3 * 64 * 2,
        "dram": (256 + 3 * 64) * 80 + 3 * 64 * 160,
        # written: weights, inputs, results; read: by the product (16 bytes of a row for each of 4
        # groups of columns), the weights once, results when they are stored
        "local": (256 + 3 * 64 + 3 * 64) * 2 + 3 * (4 * 64 + 256 + 64) * 1,
        "accumulators": 3 * 256 * 4 + 3 * 256 * 3,
        "link": (256 + 3 * 64) * 6,
        "instruction": 13 * 11,
        "leakage": 30e-3 * trace.cycles * 1e-9 * 1e12,
    }
    assert {name: part.value for name, part in energy.parts.items()} == pytest.approx(
        {name: value * 1e-9 for name, value in pj.items()}
    )
    assert energy.total.value == pytest.approx(sum(pj.values()) * 1e-9)
    assert energy.tops_per_w == pytest.approx(2 * made.macs / sum(pj.values()))
    assert energy.average_w == pytest.approx(sum(pj.values()) * 1e-12 / (trace.cycles * 1e-9))


def test_area_added_up_by_hand() -> None:
    area = costs_of(machine(**STATED)).area
    stated = {"local": 0.5, "accumulators": 0.25, "other": 0.1, "dram": 2.0}
    exact = {name: area.parts[name] for name in stated}
    assert {name: part.value for name, part in exact.items()} == pytest.approx(stated)
    assert all(part.low == part.high for part in exact.values()), "stated figures are exact"
    found = {(term.part, term.what): term.mm2.value for term in area.terms}
    assert found["mac", "cells"] == pytest.approx(64 * 1e-4)
    assert found["vector", "lanes"] == pytest.approx(8e-3)


def test_parts_of_the_table_added_up_by_hand() -> None:
    """um2 at 45 nm, where a register has 6.9 a bit, a choice 1.862, a gate 0.798, an adder 137."""
    area = costs_of(changed({"clock": "400 MHz"}, node=45)).area
    engine = (5000 + 16 * 400) * 0.798  # what it is, and 16 requests in flight
    engine += 128 * (4 + 1) * 1.862 + 2 * 128 * 6.9  # 16 bytes shifted and padded, two registers
    engine += 2048 * 0.5 * 6.9  # a request of 256 bytes, in cheaper registers
    engine += (2 * 4 + 1) * (48 * 6.9 + 137)  # 4 dimensions of both sides, lists of rows
    front_end = 5000 * 0.798 + 2 * 16 * 8 * 6.9  # one slot of issue, two words fetched
    front_end += 5 * 8 * 128 * 6.9  # 5 engines with 8 entries of 16 bytes
    front_end += (5 * 8) * 5 * 9 * 137  # each entry against what runs on 5 engines, 3 x 3 operands
    by_hand = {
        "copy": 2 * engine,
        "link": 2 * 2 * 128 * (1.862 + 2 * 6.9),  # two directions, two ends
        "front_end": front_end,
        "scalar": 9000 * 0.798,
        # 6.4 GB/s: 12 data pins of 4.267 Gb/s, a controller, 4 bursts of 64 bytes
        "dram": 6.4 * 8 / 4.267 * 35_600 + 372_000 * 0.798 + 4 * 64 * 8 * 0.5 * 6.9,
    }
    assert {name: area.parts[name].value for name in by_hand} == pytest.approx(
        {name: 1e-6 * um2 for name, um2 in by_hand.items()}
    )
    listed = sum(part.value for name, part in area.parts.items() if name not in ("other", "dram"))
    assert area.parts["other"].value == pytest.approx(0.27 * listed)


def test_an_instruction_of_a_word_costs_its_slot() -> None:
    """At 45 nm: 25 pJ for 4 bytes, as the root of their number; queues of 5 x 8 entries."""

    def at(**front_end: Any) -> EnergyCosts:
        slow = {"clock": "400 MHz", "front_end": {"sync": "interlock"} | front_end}
        return costs_of(changed(slow, node=45))

    alone, three, stated = at(), at(bundle=3), at(bundle=3, instruction_bytes=24)
    assert alone.instruction.value == pytest.approx(45 + 25 * 2)
    assert three.instruction == alone.instruction
    assert stated.instruction.value == pytest.approx(45 + 25 * math.sqrt(2))
    found = [{term.what: term.mm2.value for term in costs.area.terms if term.part == "front_end"}
             for costs in (alone, three, stated)]  # fmt: skip
    bit = 6.9e-6
    assert [each["queues"] for each in found] == pytest.approx(
        [40 * 128 * bit, 40 * 128 * bit, 40 * 64 * bit]
    )
    assert [each["fetch"] for each in found] == pytest.approx(
        [2 * 16 * 8 * bit, 2 * 48 * 8 * bit, 2 * 24 * 8 * bit]
    )


def test_a_clock_beyond_what_the_node_gives_costs_area_and_energy() -> None:
    """At 40 nm a cycle of 2 ns asks for nothing; half of it for the mean of six units."""

    def at(clock: str, **energy: Any) -> EnergyCosts:
        wide = machine().model_dump(mode="json", by_alias=True, exclude_none=True)["memories"]
        wide["dram"]["bandwidth"] = "1 GB/s"
        return costs_of(changed({"clock": clock, "memories": wide}, node=40, **energy))

    slow, easy, fast = at("100 MHz"), at("499 MHz"), at("999.2 MHz")
    assert (easy.mac, easy.area) == (slow.mac, slow.area), "a slower clock saves nothing"
    area, energy = 1.4157, 1.4861
    for event in ("mac int8", "vector special", "instruction"):
        assert events_of(fast)[event] == pytest.approx(energy * events_of(easy)[event], rel=1e-3)
    assert (fast.read, fast.write) == (easy.read, easy.write), "memories have a latency to state"
    before, after = easy.area.parts, fast.area.parts
    for part in ("mac", "vector", "scalar", "copy", "front_end"):
        assert after[part].value == pytest.approx(area * before[part].value, rel=1e-3)
    assert after["dram"] == before["dram"], "its clock is another"
    banks = [next(t.mm2 for t in costs.area.terms if (t.part, t.what) == ("local", "banks"))
             for costs in (easy, fast)]  # fmt: skip
    assert banks[0] == banks[1]
    one, two = easy.mac["int8"], fast.mac["int8"]
    assert two.low / one.low == pytest.approx(1.095, rel=1e-3), "the unit that took least"
    assert two.high / one.high == pytest.approx(2.454, rel=1e-3), "and most"
    stated = at("999.2 MHz", mac={"int8": "0.5 pJ"}, area={"mac": "600 um2"})
    assert stated.mac["int8"].value == 0.5, "what is stated is of this clock"
    assert stated.area.parts["mac"].value == pytest.approx(64 * 6e-4)


def test_an_interface_that_others_share_is_a_port() -> None:
    """At 45 nm, um2: 16 bytes both ways with a choice and two registers, its control, 4 bursts."""
    port = 2 * 128 * (1.862 + 2 * 6.9) + 5000 * 0.798 + 4 * 64 * 8 * 0.5 * 6.9
    own, shared = (costs_of(machine(node=45, interface=kind)) for kind in ("own", "shared"))
    assert shared.area.parts["dram"].value == pytest.approx(1e-6 * port)
    assert shared.area.core == own.area.core
    assert shared.leakage == own.leakage
    behind_a_bus = costs_of(machine(node=45, dram="sram")).area.parts["dram"]
    assert behind_a_bus == shared.area.parts["dram"], "there are no pads to a memory of the chip"


def test_every_part_is_the_sum_of_its_terms() -> None:
    for arch in load_archs(shipped_names()):
        area = costs_of(arch).area
        for name, part in area.parts.items():
            terms = [term.mm2.value for term in area.terms if term.part == name]
            assert part.value == pytest.approx(sum(terms))
        assert area.total.value == pytest.approx(sum(term.mm2.value for term in area.terms))


def test_layers_and_components_add_up_to_the_same() -> None:
    arch = machine()
    made = program(arch)
    trace, costs = simulate(made, arch), costs_of(arch)
    energy = energy_of(trace, made, arch, costs)
    assert len(energy.layers) == len(trace.origins)
    assert sum(energy.layers) + energy.parts["leakage"].value == pytest.approx(energy.total.value)
    row = energy_row(energy, costs.area)
    for total_name, family in (("energy_mj", "energy_"), ("area_mm2", "area_")):
        ends = ("energy_mj", "energy_low_mj", "energy_high_mj", "area_mm2", "area_low_mm2",
                "area_high_mm2")  # fmt: skip
        parts = [row[name] for name in row if name.startswith(family) and name not in ends]
        assert sum(float(part or 0) for part in parts) == pytest.approx(row[total_name])
    assert energy.total.low < energy.total.value < energy.total.high


def test_events_are_those_of_the_trace() -> None:
    arch = machine()
    made = program(arch, turns=5)
    trace = simulate(made, arch)
    events = count_events(made, trace)
    assert sum(own.instructions for own in events) == trace.issued
    assert sum(own.macs["int8"] for own in events) == trace.macs == made.macs
    assert sum(own.links["bus"] for own in events) == trace.traffic["link.bus"]
    assert sum(own.read["dram"] for own in events) == trace.traffic["dram.read"]


def test_a_broadcast_crosses_the_links_of_all_its_targets() -> None:
    link = {"from": "dram", "to": "local", "bandwidth": "16 B/cycle", "scope": "core"}
    copy = machine().model_dump(mode="json", by_alias=True)["copy"]
    copy["load"]["broadcast"] = True
    arch = changed({"cores": 2, "links": {"bus": link}, "copy": copy})
    target = replace(at("local", 0, (1, 1, 4, 16)), cores=(0, 1))
    load = Copy(engine="load", dst=target, src=at("dram", 0, (1, 1, 4, 16)))
    made = replace(program(arch), cores=((Loop("i", 3, (load,)),), ()), tokens=({}, {}))
    trace = simulate(made, arch)
    (own,) = count_events(made, trace)
    assert own.links["bus"] == trace.traffic["link.bus"] == 2 * 3 * 64
    assert own.written["local"] == 2 * 3 * 64


def test_windows_count_each_tap() -> None:
    arch = machine()
    taps = {"dst": at("local", 1024, (2, 2, 8)), "a": at("local", 0, (4, 4, 8))}
    window = Window(engine="vector", function="max", kernel=(3, 3), **taps)
    divide = Binary(
        engine="vector", function="div", dst=taps["a"], a=taps["a"], b=at("local", 0, (4, 4, 8))
    )
    made = replace(program(arch), cores=((window, divide),))
    (own,) = count_events(made, simulate(made, arch))
    assert own.elements == {"simple": 9 * 32, "divide": 128}


def test_area_counts_every_core_and_cluster() -> None:
    shared = {"size": "64 KiB", "level": "cluster"}
    memories = machine().model_dump(mode="json", by_alias=True, exclude_none=True)["memories"]
    many = {"clusters": 2, "cores": 3, "memories": memories | {"shared": shared}}
    one = costs_of(changed(many | {"clusters": 1, "cores": 1})).area
    six = costs_of(changed(many)).area
    each = ("mac", "vector", "scalar", "local", "front_end")
    assert {name: six.parts[name].value / one.parts[name].value for name in each} == pytest.approx(
        dict.fromkeys(each, 6)
    )
    banks = [term.mm2.value for costs in (one, six) for term in costs.terms
             if (term.part, term.what) == ("shared", "banks")]  # fmt: skip
    assert banks[1] == pytest.approx(2 * banks[0])
    assert six.parts["dram"] == one.parts["dram"], "one interface for all cores"


def test_what_a_file_states_comes_before_the_table() -> None:
    plain, stated = costs_of(machine()), costs_of(machine(mac={"int8": "2 pJ"}, instruction=9))
    assert (stated.mac["int8"].value, stated.instruction.value) == (2.0, 9.0)
    assert stated.mac["int8"].stated
    assert not plain.mac["int8"].stated
    assert stated.read == plain.read, "nothing else changes"
    half = costs_of(machine(memories={"local": {"read": "8 pJ/B"}}))
    assert half.read["local"].value == 8.0
    assert half.write == plain.write


memories = st.builds(
    Sram,
    size=st.integers(9, 24).map(lambda bits: 2**bits),
    width=st.sampled_from([2, 8, 32, 128]),
    ports=st.integers(1, 4),
    banks=st.sampled_from([1, 2, 4]),
    node=st.floats(3, 130),
)


@given(memories)
def test_more_memory_never_costs_less(memory: Sram) -> None:
    base = sram_cost(memory, FIGURES)
    assert 0 < base.read <= base.write
    for bigger in (
        replace(memory, size=2 * memory.size),
        replace(memory, ports=memory.ports + 1),
        replace(memory, node=memory.node * 1.2),
    ):
        other = sram_cost(bigger, FIGURES)
        assert other.read > base.read
        assert other.write > base.write
        assert other.area > base.area
    wider = sram_cost(replace(memory, width=2 * memory.width), FIGURES)
    assert wider.read * 2 > base.read, "an access of twice the width costs more"
    assert wider.area >= base.area
    split = sram_cost(replace(memory, banks=2 * memory.banks), FIGURES)
    assert split.area > base.area, "more banks have more edges"


@given(st.floats(3, 100), st.sampled_from(["int8", "fp16", "fp32"]))
def test_a_finer_node_is_never_worse(node: float, dtype: str) -> None:
    def costs(nm: float) -> Any:
        arch = machine(node=nm)
        matrix = arch.matrix.model_copy(update={"rate": {dtype: 1.0}})
        return costs_of(arch.model_copy(update={"matrix": matrix}))

    fine, coarse = costs(node), costs(node * 1.3)
    assert fine.mac[dtype].value < coarse.mac[dtype].value
    assert fine.instruction.value < coarse.instruction.value
    assert fine.area.total.value < coarse.area.total.value


def test_a_write_costs_what_is_stated() -> None:
    one, several = (sram_cost(Sram(2**17, 16, banks=banks), FIGURES) for banks in (1, 4))
    assert one.write / one.read == pytest.approx(FIGURES.sram.write)
    assert 1 < several.write / several.read < FIGURES.sram.write, (
        "wires cost the same in both directions"
    )


def test_ports_cost_what_is_stated() -> None:
    one, two = (sram_cost(Sram(128 * 1024, 8, ports), FIGURES) for ports in (1, 2))
    assert two.read / one.read == pytest.approx(1 + FIGURES.sram.port)
    assert two.area / one.area == pytest.approx(1.42**2), "cells wider and higher"


def test_separate_ports_count_together() -> None:
    def ports(**given: int) -> int:
        memory = machine().memories.local.model_copy(update=given)
        return Sram.of(memory, 22).ports

    assert (ports(), ports(ports=2), ports(read_ports=2, write_ports=1)) == (1, 2, 3)


def test_the_fit_of_energy_is_the_one_of_its_points() -> None:
    fit, known = FIGURES.sram, of_energy()
    found = refit(fit)
    assert found == pytest.approx({name: getattr(fit, name) for name in found}, rel=0.02)
    writes = [math.log(p.write_pj / p.read_pj) for p in known if not math.isnan(p.write_pj)]
    assert math.exp(sum(writes) / len(writes)) == pytest.approx(fit.write, rel=0.03)

    def ratio(p: Point) -> float:
        return energy_ratio(fit, p)

    assert standard_error(known, ratio) == pytest.approx(fit.high, rel=0.02)
    assert fit.low == pytest.approx(1 / fit.high, rel=0.02)
    tool = [p for p in known if p.source == "cacti"]
    assert relative_error(tool, ratio) == pytest.approx(1.26, abs=0.01), "as docs/energy.md says"


def test_the_fit_of_area_is_near_its_points() -> None:
    known = of_area()

    def ratio(p: Point) -> float:
        return area_ratio(FIGURES, p)

    assert standard_error(known, ratio) < FIGURES.area.sram.high
    assert relative_error(known, ratio) == pytest.approx(1.2, abs=0.05), "as docs/energy.md says"
    levels = _mean_ratios(known, ratio)
    assert math.prod(levels) ** (1 / len(levels)) == pytest.approx(1, abs=0.05), "in the middle"


def _mean_ratios(known: list[Point], ratio: Callable[[Point], float]) -> list[float]:
    votes: dict[tuple[str, float], list[float]] = {}
    for point in known:
        votes.setdefault(point.voter, []).append(math.log(ratio(point)))
    return [math.exp(sum(values) / len(values)) for values in votes.values()]


def test_a_product_of_16_by_8_bits_is_two_products_of_8_bits_and_one_sum() -> None:
    mac = costs_of(load_arch("ethos-u55-like")).mac
    assert 1.5 * mac["int8"].value < mac["int16"].value < 2 * mac["int8"].value


@pytest.mark.parametrize("kind", ["systolic", "cube"])
def test_an_array_of_16_by_8_bits_has_two_multipliers_of_8_bits_and_one_sum(kind: str) -> None:
    def cell(**rate: float) -> float:
        matrix = {"kind": kind, "rows": 8, "cols": 8, "rate": rate}
        return costs_of(changed({"matrix": matrix})).area.parts["mac"].value

    narrow = cell(int8=1)
    assert cell(int8=1, int16=0.5) == narrow, "two cells join"
    assert 1.2 * narrow < cell(int8=1, int16=1) < 2 * narrow
    assert cell(int8=2, int16=1) == pytest.approx(2 * narrow)


def test_a_lower_supply_saves_on_the_chip_alone() -> None:
    usual, low = costs_of(machine()), costs_of(machine(voltage="0.425 V"))
    assert low.mac["int8"].value == pytest.approx(usual.mac["int8"].value / 4)
    assert low.read["local"].value == pytest.approx(usual.read["local"].value / 4)
    assert low.read["dram"] == usual.read["dram"]


def test_ranges_add_up_end_by_end() -> None:
    joined = total((UncertainValue.within(2, 0.5, 2), UncertainValue(1, 1, 1, stated=True)))
    assert (joined.value, joined.low, joined.high, joined.stated) == (3, 2, 5, False)


def test_every_shipped_machine_has_energies() -> None:
    for arch in load_archs(shipped_names()):
        costs = costs_of(arch)
        named = [*costs.mac.values(), *costs.read.values(), *costs.area.parts.values()]
        assert all(0 < part.low <= part.value <= part.high for part in named), arch.name
        assert set(costs.read) == {"dram", *arch.memories.on_chip()}


# The table's file.


def test_the_table_cites_a_source_for_every_figure() -> None:
    assert len(points()) > 200
    assert {p.source for p in points()} <= FIGURES.sram.sources.keys()
    assert {"lpddr4", "hbm2", "ddr3"} <= FIGURES.dram.keys()
