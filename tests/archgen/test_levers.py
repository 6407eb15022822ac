"""Levers of a machine: what was tried comes first, and says how its gain is known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from role_nets import conv_net
from small_nets import saved

import archgen
from archgen.api import prepared_for, request_for
from archgen.outcomes.bottleneck import (
    AT_MOST,
    ESTIMATED,
    RECOMPILED,
    SIMULATED,
    TriedChange,
    change_key,
)
from archgen.report.account import Account, account
from archgen.report.lever_rules import RULES, rules_for
from archgen.report.levers import LEAST, WORTH, Lever, levers
from archgen.report.points import point_views
from archgen.report.ranking import rank
from archgen.report.summary import sentences
from archgen.scheduling import choice
from archgen.schema import load_arch
from archgen.schema.rewritten import Fields, changed
from archgen.studies.options import Running
from archgen.studies.results import Study
from archgen.studies.sweep import study
from archgen.toolchain import STANDARD, Compiled, Request, Toolchain
from simmodel.arch.record import Arch

SLOW: Fields = {"copy.load.bandwidth": "1 B/cycle", "name": "slow-load"}
"""DRAM gives soma-edge 16 bytes a cycle: its load engine alone is what loads wait for."""
DENSE: Fields = {"matrix.depthwise": False, "vector.types": ["int8", "uint8", "int16"]}
"""Nothing is made for depthwise layers."""


def variant(fields: Fields) -> Arch:
    made = changed(load_arch("soma-edge"), {k: v for k, v in fields.items() if k != "name"})
    assert made is not None
    return made.model_copy(update={"name": fields.get("name", "variant")})


def found(
    arch: Arch, network: str | Path, tools: Toolchain = STANDARD, effort: int = 0
) -> tuple[Study, list[Lever], Account]:
    made = study([arch], [str(network)], effort=effort, verify=False, levers=True, executor="here",
                 tools=tools)  # fmt: skip
    own = account(point_views(made)[0], made.outcomes[0])
    return made, levers(arch, [own])[0], own


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, list[Lever], Account]:
    return found(variant(SLOW), conv_net(tmp_path_factory.mktemp("slow") / "net.onnx"))


def test_the_engine_that_all_wait_for_comes_first(slow: tuple[Study, list[Lever], Account]) -> None:
    made, changes, own = slow
    first = changes[0]
    assert first.title == "twice the rate of copy engine load"
    assert first.way == SIMULATED
    # Loads at a byte a cycle are all that is waited for; at two they take half of the time.
    assert first.gain == pytest.approx(own.share("load") / 2, abs=0.05)
    # Faster DRAM alone shortens stores behind the last product: 1 024 of 38 770 cycles.
    others = [lever.gain for lever in changes if lever.title == "twice the DRAM bandwidth"]
    assert all(gain < first.gain / 10 for gain in others)
    points = point_views(made)

    def said(*levers: Lever) -> str:
        ranking = rank(points, made.archs)
        told = sentences(made, points, ranking, {made.archs[0].name: levers})
        return " ".join(told).replace("\xa0", " ")

    assert "which saves" in said(*changes) and "simulated on the changed" in said(*changes)
    untried = said(replace(first, way=AT_MOST, gain=0.2))
    assert "1.0 % quicker; not tried: twice the rate of copy engine load, at most 20 %" in untried
    assert "What to change first" not in untried


def test_what_the_host_does_before_an_inference_is_its_time(tmp_path: Path) -> None:
    arch = variant({"host.per_inference": "1 ms", "name": "slow-host"})
    _, changes, own = found(arch, conv_net(tmp_path / "net.onnx"))
    assert own.share("host") > 0.5
    assert changes[0].title == "a host twice as quick, at half the latency"
    assert changes[0].gain == pytest.approx(own.share("host") / 2, abs=0.05)
    assert "host.bandwidth" not in changes[0].fields, "which gains nothing here"
    assert "the host's operators on the machine" not in [lever.title for lever in changes]


def test_late_data_is_that_of_all_memories_off_chip() -> None:
    fields = [rule.on(load_arch("ethos-u55-256-flash")) for rule in RULES]
    late = [each for each in fields if "memories.dram.latency" in each]
    assert [sorted(each) for each in late] == [["memories.dram.latency", "memories.flash.latency"]]


def test_bounds_come_after_what_was_tried(slow: tuple[Study, list[Lever], Account]) -> None:
    _, changes, _ = slow
    order = [(lever.way == AT_MOST, -lever.worth) for lever in changes]
    assert order == sorted(order)
    assert all(lever.gain >= (WORTH if lever.way == AT_MOST else LEAST) for lever in changes)


def test_what_was_tried_overrules_a_bound(slow: tuple[Study, list[Lever], Account]) -> None:
    _, changes, own = slow
    arch, first = own.point.arch, changes[0]
    none = TriedChange(first.fields, -0.001, SIMULATED)
    idle = replace(own, tried={change_key(first.fields): none})
    kept, without = levers(arch, [idle])
    assert first.title in without
    assert first.title not in [lever.title for lever in kept]
    # Over two workloads, of which one gains nothing: 1 - sqrt(1 - gain), and both were simulated.
    (both,) = [lever for lever in levers(arch, [own, idle])[0] if lever.title == first.title]
    assert both.gain == pytest.approx(1 - (1.001 * (1 - first.gain)) ** 0.5)
    assert both.way == SIMULATED
    half = replace(own, tried={})
    (mixed,) = [lever for lever in levers(arch, [own, half])[0] if lever.title == first.title]
    assert mixed.way == AT_MOST, "the weakest"


def on(own: Account, name: str, **busy: float) -> Account:
    """What the account would be on another machine, whose engines are so busy; DRAM a tenth."""
    point = replace(own.point, arch=load_arch(name))
    return replace(own, point=point, busy=busy, dram=0.1, flash=0.0, links={}, tried={})


def test_engines_beside_the_first_array_have_levers_of_their_own(
    slow: tuple[Study, list[Lever], Account],
) -> None:
    own = on(slow[2], "exynos-2400-like", matrix=0.3, vector=0.2, shallow=0.6)
    arch, rules = own.point.arch, {rule.title: rule for rule in rules_for(own.point.arch)}
    shallow, first = rules["twice the columns of shallow"], rules["twice the columns of the array"]
    assert shallow.judge(own)[0] == pytest.approx(0.3)
    assert first.judge(own)[0] == pytest.approx(0.15)
    assert own.idle == pytest.approx(0.4)
    busier = replace(own, busy={"matrix": 0.9, "vector": 0.2, "shallow": 0.8})
    assert shallow.judge(busier)[0] == pytest.approx(0.1), "the other array stays as it is"
    assert changed(arch, shallow.on(arch)).arrays["shallow"].cols == 64
    special = on(slow[2], "neuroncore-v2-engines", matrix=0.3, vector=0.2, activation=0.6)
    lanes = {rule.title: rule for rule in rules_for(special.point.arch)}
    assert lanes["twice the lanes of activation"].judge(special)[0] == pytest.approx(0.3)


def test_bounds_do_not_name_dram_where_there_is_none(
    slow: tuple[Study, list[Lever], Account],
) -> None:
    own = on(slow[2], "hailo-8-like", matrix=0.6, vector=0.2, load=0.5)
    said = [lever.how for lever in levers(own.point.arch, [own])[0]]
    assert "shared memory" in str(said) and "DRAM" not in str(said)


def test_a_gain_is_beside_its_area(slow: tuple[Study, list[Lever], Account]) -> None:
    first = slow[1][0]

    def per_mm2(area: float, share: float) -> float:
        return replace(first, price=replace(first.price, area=area, area_share=share)).per_mm2

    assert per_mm2(0.5, 0.1) == pytest.approx(first.gain / 0.5)
    for area, share in ((0.0, 0.0), (0.01, 0.0005), (-0.5, -0.1)):
        assert math.isnan(per_mm2(area, share)), "hardly any area to divide by"
    bound = replace(first, price=replace(first.price, area=0.5, area_share=0.1), way=AT_MOST)
    assert math.isnan(replace(bound, measured=None).per_mm2), "nobody knows what is saved"
    costly = replace(first.price, energy=0.2, energy_share=0.1)
    assert replace(first, price=costly).per_mj == pytest.approx(first.gain / 0.2)
    assert math.isnan(replace(first, price=replace(costly, energy=-0.2, energy_share=-0.1)).per_mj)


def test_levers_of_schedules_for_energy_are_in_order_of_energy(
    slow: tuple[Study, list[Lever], Account],
) -> None:
    own = slow[2]
    row = {**own.point.row, "objective": "energy-proxy"}
    changes, _ = levers(own.point.arch, [replace(own, point=replace(own.point, row=row))])
    saved = [lever.price.energy_share for lever in changes if lever.way != AT_MOST]
    known = [0.0 if math.isnan(share) else share for share in saved]
    assert len(known) > 1 and known == sorted(known)


def test_where_dram_bounds_bandwidth_comes_before_multipliers(tmp_path: Path) -> None:
    slow = {"memories.dram.bandwidth": "1 B/cycle", "name": "narrow"}
    _, changes, own = found(variant(slow), conv_net(tmp_path / "net.onnx"))
    assert own.point.text("bound") == "bandwidth"
    assert changes[0].title == "twice the DRAM bandwidth"
    shapes = [lever for lever in changes if "of the array" in lever.title]
    assert all(lever.gain < changes[0].gain / 4 for lever in shapes)


def test_where_flash_bounds_its_bandwidth_comes_first(tmp_path: Path) -> None:
    slow = {"memories.flash.bandwidth": "5 MB/s", "host.per_inference": "30 us"}
    arch = changed(load_arch("ethos-u55-256-flash"), slow)
    assert arch is not None
    _, changes, own = found(arch, conv_net(tmp_path / "net.onnx"))
    assert own.flash > 0.5 > own.dram
    assert (changes[0].title, changes[0].way) == ("twice the flash bandwidth", SIMULATED)
    assert changes[0].gain == pytest.approx(own.flash / 2, abs=0.1)
    host = [each.fields for each in changes if "host.latency" in each.fields]
    assert all(each["host.per_inference"] == "15000 ns" for each in host)


def test_what_takes_another_program_gets_one(tmp_path: Path) -> None:
    small = {"matrix.cols": 8, "matrix.depth": 8}  # whose columns few channels fill together
    arch, network = variant(DENSE | small), saved(tmp_path, "Conv-depthwise", (1, 64, 32, 32))
    _, changes, own = found(arch, network)
    (depthwise,) = [lever for lever in changes if lever.fields == {"matrix.depthwise": True}]
    native = changed(arch, depthwise.fields)
    assert native is not None
    _, _, after = found(native, network)
    assert depthwise.way == RECOMPILED
    assert depthwise.gain == 1 - after.cycles / own.cycles, "both at the least effort"


def test_a_machine_is_not_compiled_for_again_to_be_compared_with_another(tmp_path: Path) -> None:
    network, asked = saved(tmp_path, "Conv-depthwise", (1, 64, 32, 32)), list[Arch]()

    def compiled(request: Request) -> Compiled:
        asked.append(request.arch)
        return STANDARD.compile(request)

    arch = variant(DENSE | {"matrix.cols": 8, "matrix.depth": 8})
    quick, thorough = (
        {str(lever.fields): lever.gain for lever in changes if lever.way == RECOMPILED}
        for _, changes, _ in (
            found(arch, network),
            found(arch, network, replace(STANDARD, compile=compiled), effort=1),
        )
    )
    assert asked.count(arch) == 1 and len(asked) > 1
    assert thorough == {fields: quick[fields] for fields in thorough}


@pytest.mark.parametrize("said", [{"plots": False}, {"levers": False}])
def test_nothing_is_tried_where_nobody_asks_for_levers(
    tmp_path: Path, said: dict[str, bool]
) -> None:
    network, asked = saved(tmp_path, "Conv-depthwise", (1, 64, 32, 32)), []

    def compiled(request: Request) -> Compiled:
        asked.append(request.arch)
        return STANDARD.compile(request)

    arch, tools = variant(DENSE), replace(STANDARD, compile=compiled)
    given = Running(executor="here", **said)
    made = study([arch], [str(network)], effort=0, verify=False, running=given, tools=tools)
    assert asked == [arch]
    assert "tried" not in made.outcomes[0].details


def test_a_point_stands_whatever_becomes_of_changed_machines(tmp_path: Path) -> None:
    network = saved(tmp_path, "Conv-depthwise", (1, 64, 32, 32))

    def compiled(request: Request) -> Compiled:
        if request.arch != arch:
            raise AssertionError("nobody has compiled for such a machine yet")
        return STANDARD.compile(request)

    arch = variant(DENSE)
    made, changes, _ = found(arch, network, replace(STANDARD, compile=compiled))
    assert made.outcomes[0].status == "ok"
    (depthwise,) = [lever for lever in changes if lever.fields == {"matrix.depthwise": True}]
    assert depthwise.way == ESTIMATED


# More cores are no slower than one, on a machine by itself.


def behind_dram(cores: int) -> Arch:
    """Cores with memories for weights of their own, all behind a DRAM with which one keeps up."""
    base = archgen.load_arch("cocco-simba-1c")
    local = base.memories.local
    weights = local.model_copy(update={"size": 4 << 20})
    load = base.copy_["load"].model_copy(update={"to": ("local", "weights")})
    return base.model_copy(update={
        "name": f"cores-{cores}", "cores": cores,
        "memories": base.memories.model_copy(update={"weights": weights}),
        "matrix": base.matrix.model_copy(update={"weights": "weights"}),
        "copy_": {**base.copy_, "load": load},
    })  # fmt: skip


def test_groups_that_one_core_would_have_are_a_candidate_where_there_are_two() -> None:
    """One core hides its loads in a long group; two would each gain in short ones, and wait."""
    model, scheduling = archgen.load_model("resnet18:image=96"), choice(effort=0)
    cycles = {}
    for cores in (1, 2):
        arch = behind_dram(cores)
        prepared = prepared_for(model, arch, None, None, scheduling)
        made = STANDARD.compile(request_for(*prepared, arch, True, scheduling))
        cycles[cores] = archgen.simulate(made.program, arch).cycles
    assert cycles[2] <= cycles[1]
