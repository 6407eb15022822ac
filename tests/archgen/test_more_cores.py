"""More cores are no slower than one, on a machine by itself."""

from __future__ import annotations

import archgen
from archgen.api import prepared_for, request_for
from archgen.scheduling import choice
from archgen.toolchain import STANDARD
from simmodel.arch.record import Arch


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
