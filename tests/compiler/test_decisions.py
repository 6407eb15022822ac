"""Decisions that are remembered: they serve just those machines on which the same would be decided,
whichever field differs, and the program is the one that a search gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMED, machine, machines
from networks import Net
from pydantic import ValidationError

from archgen.schema import rewritten
from compiler.api import CompileOptions, QuickEstimator, compile_model, prepared
from compiler.decisions.cache import Decisions
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.options import stages_for
from compiler.target.tracking import TrackedCache
from simmodel.arch.base import FrozenModel, MemoryRole
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth, Delay
from simmodel.arch_rules import problems
from simmodel.program.assembly import print_program

QUICK = CompileOptions(stages=stages_for(0))
BASE = machine(
    name="base", cores=2, accumulators=2048, local={"size": 1024}, matrix={"writeback": ["clip"]}
)
ROLES = get_args(MemoryRole)
"""Where operands lie is no choice among the memories that there are."""


class Texts:
    """A shelf in memory."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def names(self, start: str) -> list[str]:
        return [name for name in self.texts if name.startswith(start)]

    def get(self, name: str) -> str | None:
        return self.texts.get(name)

    def put(self, name: str, text: str) -> None:
        assert text.endswith("\n}")  # as a file with a seal has to
        self.texts[name] = text


def network() -> onnx.ModelProto:
    """Two products and vector work."""
    net = Net(seed=1)
    x = net.input(1, 4, 6, 6)
    y = net.op("Relu", net.op("Conv", x, net.weight(4, 4, 3, 3), pads=[1, 1, 1, 1]))
    return net.model(net.op("Add", net.op("Conv", y, net.weight(4, 4, 1, 1)), x))


PREPARED = prepared(network(), "net")


def program(arch: Arch, decisions: Decisions | None = None) -> str:
    """The program of the network, or why there is none."""
    try:
        return print_program(compile_model(PREPARED, arch, QUICK, decisions=decisions).program)
    except (DoesNotFit, UnsupportedModel) as why:
        return str(why)


def others(value: object, kind: object) -> Iterator[object]:
    """Other values of a field."""
    match value:
        case bool():
            yield not value
        case int() | float():
            yield value * 2
            yield value // 2 or 1
        case Bandwidth():
            yield Bandwidth(value.amount / 4, value.per_cycle)
        case Delay():
            yield Delay(value.amount * 2 + 3, value.in_cycles)
        case None:
            yield 8
        case tuple():
            yield value[1:]
        case str() if get_origin(kind) is Literal:
            words = [word for word in get_args(kind) if word != value and word not in ROLES]
            yield from words[:1]


def changed(arch: Arch) -> Iterator[tuple[str, Arch]]:
    """Machines that differ from `arch` in one field each, over all fields of the schema."""
    whole = arch.model_dump(by_alias=True)

    def below(part: FrozenModel, name: str, into: dict[str, Any]) -> Iterator[tuple[str, Arch]]:
        for field, info in type(part).model_fields.items():
            value, key = getattr(part, field), info.alias or field
            inner = value.items() if isinstance(value, dict) else ()
            parts = [(key, value, into[key])] if isinstance(value, FrozenModel) else []
            parts += [
                (f"{key}.{k}", v, into[key][k]) for k, v in inner if isinstance(v, FrozenModel)
            ]
            for path, each, place in parts:
                yield from below(each, f"{name}{path}.", place)
            for other in () if parts else others(value, info.annotation):
                into[key] = other
                try:
                    made = Arch.model_validate(whole)
                except ValidationError:
                    continue
                finally:
                    into[key] = value
                if not problems(made):
                    yield f"{name}{key}", made

    # Of energies one stands for all: there are as many as of all other fields.
    found = below(arch, "", whole)
    return (pair for pair in found if pair[0] == "energy.node" or "energy." not in pair[0])


def test_a_change_of_any_field_that_changes_a_schedule_is_noticed() -> None:
    decisions = Decisions()
    base = program(BASE, decisions)
    fields: dict[str, bool] = {}
    differing = 0
    for name, arch in changed(BASE):
        before, cold = decisions.found, program(arch)
        assert program(arch, decisions) == cold, name
        fields[name] = decisions.found > before
        differing += cold != base
    assert len(fields) > 60 and differing > 10
    served = {name for name, found in fields.items() if found}
    assert {"front_end.queue_depth", "host.compute"} <= served
    assert not served & {"memories.dram.bandwidth", "matrix.rows", "cores"}


def few_channels(*, quantized: bool) -> onnx.ModelProto:
    """What stages of lowering decide by prices: rows and columns of a kernel of few channels,
    channels of a depthwise product together, sums that start from a bias, moves, host calls."""
    net = Net(quantized, seed=1)
    x = net.op("Conv", net.input(1, 3, 12, 12), net.weight(4, 3, 5, 5), net.vector(4), pads=[2] * 4)
    for _ in range(2):
        y = net.op("Conv", x, net.weight(4, 1, 3, 3), net.vector(4), pads=[1] * 4, group=4)
        x = net.op("Add", net.op("Conv", y, net.weight(4, 4, 1, 1), net.vector(4)), x)
    return net.model(net.op("Softmax", net.op("Transpose", x, perm=[0, 2, 3, 1])))


@pytest.mark.parametrize("quantized", [False, True])
def test_what_is_remembered_changes_no_estimate_whatever_field_differs(quantized: bool) -> None:
    model = prepared(few_channels(quantized=quantized), "net", QUICK.stages)
    every = [BASE, *(arch for _, arch in changed(BASE))]
    known = QuickEstimator(model)

    def on(network: QuickEstimator, arch: Arch) -> object:
        try:
            return network.on(arch, QUICK)
        except UnsupportedModel as why:
            return str(why)

    alone = [on(QuickEstimator(model), arch) for arch in every]
    assert alone == [on(known, arch) for arch in every]
    assert alone[::-1] == [on(known, arch) for arch in reversed(every)]
    found = {getattr(estimate, "cycles", 0.0) for estimate in alone}
    assert len(every) > 60 and len(found) > 20


@pytest.mark.parametrize(("cores", "tokens", "found"), [(1, 8, 1), (2, 8, 1), (4, 8, 0)])
def test_tokens_beyond_those_for_all_cores_decide_nothing(
    cores: int, tokens: int, found: int
) -> None:
    few = machine(cores=cores, tokens=tokens)
    more = rewritten.changed(few, {"front_end.tokens": 2 * tokens})
    assert more is not None  # spelled and read again, like each lever of a report
    decisions = Decisions()
    program(few, decisions)
    assert program(more, decisions) == program(more)
    assert decisions.found == found


@given(st.lists(st.one_of(machines(), st.sampled_from(list(NAMED.values()))), max_size=3))
@settings(max_examples=5)
def test_what_was_decided_before_changes_no_program(found: list[Arch]) -> None:
    decisions = Decisions(Texts())
    for arch in (*found, *reversed(found)):
        assert program(arch, decisions) == program(arch)


def test_what_one_process_decides_serves_the_next() -> None:
    shelf = Texts()
    program(BASE, Decisions(shelf))
    again = Decisions(shelf)
    assert program(BASE, again) == program(BASE)
    assert again.found == 1
    result = compile_model(PREPARED, BASE, QUICK, decisions=again)
    cold = compile_model(PREPARED, BASE, QUICK)
    pairs = zip(result.decisions, cold.decisions, strict=True)
    assert all(a.schedule.estimate == b.schedule.estimate for a, b in pairs)
    assert result.notes == cold.notes
    other = Decisions(shelf, salt="other sources")
    assert program(BASE, other) == program(BASE)
    assert other.found == 0


def test_what_cannot_be_read_is_decided_again() -> None:
    shelf = Texts()
    program(BASE, Decisions(shelf))
    for text in ("", "{}", '{"fields": [], "notes": [], "expected": [], "tree": ["nonsense"]}'):
        shelf.texts = dict.fromkeys(shelf.texts, text)
        again = Decisions(shelf)
        assert program(BASE, again) == program(BASE)
        assert again.found == 0


def test_machines_whose_schedules_differ_share_how_layers_are_cut() -> None:
    decisions = Decisions()
    for size in (1024, 2048, 4096):
        arch = machine(local={"size": size})
        assert program(arch, decisions) == program(arch)
    assert decisions.found == 0
    assert decisions.fronts.found > 5
    slower = machine(local={"size": 4096}, latency=90)
    assert program(slower, decisions) == program(slower)


def test_what_is_remembered_is_what_a_machine_gives_and_is_read_while_it_is_made() -> None:
    known: TrackedCache[int] = TrackedCache(most=2)

    def size_of(arch: Arch) -> int:
        return known.of("size", arch, {}, lambda seen: seen.memories.local.size)

    sizes = [
        machine(local={"size": size}, cores=cores) for size in (1024, 2048) for cores in (1, 2)
    ]
    assert [size_of(arch) for arch in sizes] == [1024, 1024, 2048, 2048]
    assert known.found == 2
    assert size_of(machine(local={"size": 4096})) == 4096
    assert len(known.kept) == 2
    views: list[Arch] = []
    TrackedCache[None](most=2).of("late", BASE, {}, views.append)
    with pytest.raises(AttributeError, match="cores is read when nobody notes it"):
        _ = views[0].cores
