"""Levers of a machine: what was tried comes first, and says how its gain is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conv_net import conv_net
from small_nets import saved

from archgen.outcomes.frame import number
from archgen.outcomes.tried import AT_MOST, DETAIL, ESTIMATED, SIMULATED, Tried, key_of, known
from archgen.report.account import Account, account
from archgen.report.levers import LEAST, Lever, levers, without_gain
from archgen.report.points import views
from archgen.report.ranking import rank
from archgen.report.summary import sentences
from archgen.report.words import percent
from archgen.schema import load_arch
from archgen.schema.rewritten import Fields, changed
from archgen.studies.results import Study
from archgen.studies.sweep import study
from simmodel.arch import Arch

SLOW: Fields = {"copy.load.bandwidth": "1 B/cycle", "name": "slow-load"}
"""DRAM gives soma-edge 16 bytes a cycle: its load engine alone is what loads wait for."""
DENSE: Fields = {"matrix.depthwise": False, "vector.types": ["int8", "uint8", "int16"]}
"""Nothing is made for depthwise layers."""


def variant(fields: Fields) -> Arch:
    made = changed(load_arch("soma-edge"), {k: v for k, v in fields.items() if k != "name"})
    assert made is not None
    return made.model_copy(update={"name": fields.get("name", "variant")})


def found(arch: Arch, network: str | Path) -> tuple[Study, list[Lever], Account]:
    made = study([arch], [str(network)], effort=0, verify=False, plots=False, jobs=1)
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
    assert all(lever.gain >= LEAST for lever in changes)


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
    assert replace(first, price=replace(first.price, area=0.5)).per_mm2 == first.gain / 0.5
    free = replace(first, price=replace(first.price, area=0.0)).per_mm2
    assert free != free, "nothing to divide by"


def test_depthwise_layers_on_a_dense_array_are_a_lever(tmp_path: Path) -> None:
    arch, network = variant(DENSE), saved(tmp_path, "Conv-depthwise", (1, 64, 32, 32))
    _, changes, own = found(arch, network)
    (depthwise,) = [lever for lever in changes if lever.fields == {"matrix.depthwise": True}]
    assert depthwise.way == ESTIMATED
    assert depthwise.rests_on.startswith("1 depthwise layer on an array that is not made for them")
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
