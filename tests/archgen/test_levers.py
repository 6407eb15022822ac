"""Levers of a machine: what was tried comes first, and says how its gain is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conv_net import conv_net
from small_nets import saved

from archgen.outcomes.frame import number
from archgen.outcomes.stalls import STALLS
from archgen.outcomes.tried import (
    ANEW,
    AT_MOST,
    DETAIL,
    ESTIMATED,
    SIMULATED,
    Tried,
    key_of,
    known,
)
from archgen.report.account import Account, account
from archgen.report.alike import Measured
from archgen.report.levers import LEAST, Lever, levers, without_gain
from archgen.report.points import PointView, views
from archgen.report.ranking import rank
from archgen.report.rules import rules_for
from archgen.report.summary import sentences
from archgen.report.trying import COMPILED, POINTS, WORTH
from archgen.report.words import percent
from archgen.schema import load_arch
from archgen.schema.rewritten import Fields, changed
from archgen.standard import STANDARD
from archgen.studies.options import Running
from archgen.studies.results import Study
from archgen.studies.sweep import study
from archgen.toolchain import Compiled, Request, Toolchain
from simmodel.arch import Arch

SLOW: Fields = {"copy.load.bandwidth": "1 B/cycle", "name": "slow-load"}
"""DRAM gives soma-edge 16 bytes a cycle: its load engine alone is what loads wait for."""
DENSE: Fields = {"matrix.depthwise": False, "vector.types": ["int8", "uint8", "int16"]}
"""Nothing is made for depthwise layers."""


def variant(fields: Fields) -> Arch:
    made = changed(load_arch("soma-edge"), {k: v for k, v in fields.items() if k != "name"})
    assert made is not None
    return made.model_copy(update={"name": fields.get("name", "variant")})


def found(
    arch: Arch, network: str | Path, tools: Toolchain = STANDARD
) -> tuple[Study, list[Lever], Account]:
    made = study([arch], [str(network)], effort=0, verify=False, levers=True, executor="here",
                 tools=tools)  # fmt: skip
    own = account(views(made)[0], made.outcomes[0])
    return made, levers(arch, [own]), own


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
    assert "twice the DRAM bandwidth" not in [lever.title for lever in changes]
    points = views(made)
    said = sentences(points, rank(points, made.archs), {made.archs[0].name: changes}, 1)
    assert any("which saves" in each and "as simulated" in each for each in said)


def test_bounds_come_after_what_was_tried(slow: tuple[Study, list[Lever], Account]) -> None:
    _, changes, _ = slow
    order = [(lever.way == AT_MOST, -lever.gain) for lever in changes]
    assert order == sorted(order)
    assert all(lever.gain >= (WORTH if lever.way == AT_MOST else LEAST) for lever in changes)


def test_what_was_tried_overrules_a_bound(slow: tuple[Study, list[Lever], Account]) -> None:
    _, changes, own = slow
    arch, first = own.point.arch, changes[0]
    none = Tried(first.fields, -0.001, SIMULATED)
    idle = replace(own, tried={key_of(first.fields): none})
    assert first.title in without_gain(arch, [idle])
    assert first.title not in [lever.title for lever in levers(arch, [idle])]
    # Over two workloads, of which one gains nothing: 1 - sqrt(1 - gain), and both were simulated.
    (both,) = [lever for lever in levers(arch, [own, idle]) if lever.title == first.title]
    assert both.gain == pytest.approx(1 - (1.001 * (1 - first.gain)) ** 0.5)
    assert both.way == SIMULATED
    half = replace(own, tried={})
    (mixed,) = [lever for lever in levers(arch, [own, half]) if lever.title == first.title]
    assert mixed.way == AT_MOST, "the weakest"


def test_a_gain_is_beside_its_area(slow: tuple[Study, list[Lever], Account]) -> None:
    first = slow[1][0]

    def per_mm2(area: float, share: float) -> float:
        return replace(first, price=replace(first.price, area=area, area_share=share)).per_mm2

    assert per_mm2(0.5, 0.1) == pytest.approx(first.gain / 0.5)
    for area, share in ((0.0, 0.0), (0.01, 0.0005), (-0.5, -0.1)):
        assert math.isnan(per_mm2(area, share)), "hardly any area to divide by"
    bound = replace(first, price=replace(first.price, area=0.5, area_share=0.1), way=AT_MOST)
    assert math.isnan(replace(bound, measured=None).per_mm2), "nobody knows what is saved"


def test_a_measurement_counts_before_what_was_tried(
    slow: tuple[Study, list[Lever], Account],
) -> None:
    _, changes, own = slow
    arch, first, second = own.point.arch, *changes[:2]
    bound = next(lever for lever in changes if lever.way == AT_MOST and lever.fields)

    def measure(found: Mapping[str, float]) -> Callable[[Fields], Measured | None]:
        known = {key_of(lever.fields): found[lever.title] for lever in changes
                 if lever.title in found}  # fmt: skip
        return lambda fields: (
            Measured("other", known[key_of(fields)], 1) if key_of(fields) in known else None
        )

    turned = measure({first.title: 0.02, second.title: 0.6})
    assert levers(arch, [own], turned)[0].title == second.title
    sure = measure({bound.title: 0.9})
    best = levers(arch, [own], sure)[0]
    assert (best.title, best.known, best.way) == (bound.title, 0.9, AT_MOST)
    worse = measure({first.title: -0.05})
    assert first.title not in [lever.title for lever in levers(arch, [own], worse)]
    assert first.title in without_gain(arch, [own], worse)
    points, made = views(slow[0]), slow[0]
    said = sentences(points, rank(points, made.archs), {arch.name: levers(arch, [own], turned)}, 1)
    assert any(f"{second.title}; other has it, and takes 60" in each for each in said)


def test_where_dram_bounds_bandwidth_comes_before_multipliers(tmp_path: Path) -> None:
    slow = {"memories.dram.bandwidth": "1 B/cycle", "name": "narrow"}
    _, changes, own = found(variant(slow), conv_net(tmp_path / "net.onnx"))
    assert own.point.text("bound") == "bandwidth"
    assert changes[0].title == "twice the DRAM bandwidth"
    shapes = [lever for lever in changes if "of the array" in lever.title]
    assert all(lever.gain < changes[0].gain / 4 for lever in shapes)


def test_few_tokens_are_a_lever() -> None:
    arch = load_arch("cocco-simba-4c")
    have = arch.front_end.tokens
    own = judged(arch.name, waits={"core": 0.3, "data": 0.1}, tokens=have)
    gain, said = verdict(own, "twice the tokens")
    assert gain == pytest.approx(0.4)
    assert said.startswith(f"{have} of {have} tokens of a core in use")
    assert verdict(replace(own, tokens=have / 2), "twice the tokens") == (0.0, "")
    # Four cores that hand each other results need eight tokens each.
    few = changed(arch, {"front_end.tokens": 16})
    assert few is not None
    apart = replace(own, point=replace(own.point, arch=few), tokens=4)
    gain, said = verdict(apart, "twice the tokens")
    assert gain == pytest.approx(0.4) and "hand each other no results" in said
    assert "twice the tokens" not in [r.title for r in rules_for(load_arch("gemmini-16"))]


def test_what_takes_another_program_gets_one(tmp_path: Path) -> None:
    small = {"matrix.cols": 8, "matrix.depth": 8}  # whose columns few channels fill together
    arch, network = variant(DENSE | small), saved(tmp_path, "Conv-depthwise", (1, 64, 32, 32))
    _, changes, own = found(arch, network)
    (depthwise,) = [lever for lever in changes if lever.fields == {"matrix.depthwise": True}]
    native = changed(arch, depthwise.fields)
    assert native is not None
    _, _, after = found(native, network)
    assert depthwise.way == ANEW
    assert depthwise.gain == 1 - after.cycles / own.cycles, "both at the least effort"


def test_half_used_memory_is_doubled_and_compiled_for(tmp_path: Path) -> None:
    arch = variant({"memories.local.size": "4 KiB", "memories.local.banks": 4, "name": "tight"})
    network = conv_net(tmp_path / "net.onnx")
    made, _, own = found(arch, network)
    stored = known(made.outcomes[0].details)
    double = {"memories.local.size": "8 KiB"}
    other = changed(arch, double)
    assert other is not None
    assert own.point.get("peak_local_bytes") > 2 * 1024
    each = stored[key_of(double)]
    assert (each.way, each.gain) == (ANEW, 1 - found(other, network)[2].cycles / own.cycles)


def test_the_usual_effort_is_not_spent_on_trying(tmp_path: Path) -> None:
    network, asked = saved(tmp_path, "Conv-depthwise", (1, 64, 32, 32)), []

    def compiled(request: Request) -> Compiled:
        asked.append((request.arch.name, request.scheduling.effort, request.arch == arch))
        return STANDARD.compile(request)

    arch, tools = variant(DENSE), replace(STANDARD, compile=compiled)
    study([arch], [str(network)], effort=1, verify=False, levers=True, executor="here", tools=tools)
    first, before, *others = asked
    assert (first, before) == (("variant", 1, True), ("variant", 0, True))
    assert 1 <= len(others) <= COMPILED
    assert {(effort, same) for _, effort, same in others} == {(0, False)}


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


def test_of_many_points_none_is_compiled_for_changes(tmp_path: Path) -> None:
    network, asked = saved(tmp_path, "Conv-depthwise", (1, 8, 6, 6)), []

    def compiled(request: Request) -> Compiled:
        asked.append(request.arch.name)
        return STANDARD.compile(request)

    tools = replace(STANDARD, compile=compiled)
    names = [f"m{number}" for number in range(POINTS + 1)]
    archs = [variant({**DENSE, "name": name}) for name in names]
    study(archs, [str(network)], effort=0, verify=False, levers=True, executor="here", tools=tools)
    assert sorted(asked) == sorted(names)


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


def test_depthwise_layers_on_a_dense_array_are_estimated(tmp_path: Path) -> None:
    arch, network = variant(DENSE), saved(tmp_path, "Conv-depthwise", (1, 64, 32, 32))
    _, changes, own = found(arch, network, replace(STANDARD, anew=False))
    (depthwise,) = [lever for lever in changes if lever.fields == {"matrix.depthwise": True}]
    assert depthwise.way == ESTIMATED
    assert depthwise.rests_on.startswith("1 depthwise layer on an engine that is not made for them")
    native = changed(arch, depthwise.fields)
    assert native is not None
    _, others, after = found(native, network)
    busy = [number(row, "busy_matrix_cycles") for row in after.layers]
    then = sum(cycles for cycles in busy if cycles > 0) / own.point.get("latency_cycles")
    assert percent(then) in depthwise.rests_on, "as many cycles as the native layer then took"
    assert all("matrix.depthwise" not in lever.fields for lever in others), "it has them"


def test_what_was_tried_is_stored(slow: tuple[Study, list[Lever], Account]) -> None:
    (outcome,) = slow[0].outcomes
    stored = known(outcome.details)
    assert stored
    assert set(stored) == {key_of(each["fields"]) for each in outcome.details[DETAIL]}


def verdict(own: Account, title: str) -> tuple[float, str]:
    (rule,) = [rule for rule in rules_for(own.point.arch) if rule.title == title]
    return rule.judge(own)


def judged(name: str, **parts: Any) -> Account:
    """An account of a run on a shipped machine, with other figures."""
    arch = load_arch(name)
    row = {"dtype": arch.types[0], "efficiency": 0.1, **parts.pop("row", {})}
    waits = dict.fromkeys(STALLS, 0.0) | parts.pop("waits", {})
    shares = {"busy": {}, "dram": 0.0, "links": {}, "memories": {}, "macs": 0.0, "layers": ()}
    return Account(PointView(0, row, arch, "", ""), waits=waits, **{**shares, **parts})


def test_twice_the_cores_halve_what_engines_compute() -> None:
    busy = judged("soma-edge", busy={"matrix": 0.8, "vector": 0.3}, dram=0.7)
    assert verdict(busy, "twice the cores")[0] == pytest.approx(0.3), "DRAM remains"
    free = replace(busy, dram=0.1)
    assert verdict(free, "twice the cores")[0] == pytest.approx(0.4)
