"""Random networks on random machines: right, or refused with a sum that adds up.

`check` compares ONNX Runtime, the nests and the executed program, after the verifier's proof, and
simulates to the end. Where the compiler would rather not fuse, doubles of its decisions do.
"""

from __future__ import annotations

import onnx
from blocks import blocks
from doubles import anything
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import machines
from networks import check, networks, refused

from compiler.driver import CompileOptions
from compiler.errors import DoesNotFit, UnsupportedModel
from compiler.fuse.strategies import STRATEGIES
from compiler.plan.make_plan import MakePlan
from compiler.stages import Stages
from compiler.tile.choose_tiles import ChooseTiles
from simmodel.arch import Arch


def examples(count: int) -> settings:
    """So many, always the same."""
    return settings(
        max_examples=count, deadline=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


HALOS = st.sampled_from((None, True, True, False))
SLOTS = st.sampled_from((2, 2, 1, 3))


def right_or_refused(
    model: onnx.ModelProto, arch: Arch, dtype: str, options: CompileOptions | None = None
) -> None:
    try:
        check(model, arch, dtype, options)
    except (DoesNotFit, UnsupportedModel) as why:
        refused(why)


@examples(140)
@given(machines(), st.data())
def test_any_network_on_any_machine(arch: Arch, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(arch.types))
    model: onnx.ModelProto = data.draw(networks(dtype == "int8"))
    right_or_refused(model, arch, dtype)


@examples(110)
@given(machines(), st.data())
def test_any_groups_with_any_tiles(arch: Arch, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(arch.types))
    model = data.draw(blocks(dtype == "int8", most=2))
    seed = data.draw(st.integers(0, 999))
    options = anything(seed, rolling=data.draw(HALOS), slots=data.draw(SLOTS))
    right_or_refused(model, arch, dtype, options)


@examples(50)
@given(machines(), st.sampled_from(sorted(STRATEGIES)), st.data())
def test_any_strategy(arch: Arch, strategy: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(arch.types))
    model = data.draw(blocks(dtype == "int8", most=2))
    stages = Stages(
        partition=STRATEGIES[strategy](),
        tile=ChooseTiles(rolling=data.draw(HALOS)),
        plan=MakePlan(slots=data.draw(SLOTS)),
    )
    right_or_refused(model, arch, dtype, CompileOptions(stages=stages))
