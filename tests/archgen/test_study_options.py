"""What a study is told beside machines and networks: two records, or their fields by name."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest
from host_only import HOST_ONLY, small_model

import archgen
from archgen.scheduling import Choices, Scheduling
from archgen.studies.options import Running, RunningFields, StudyFields, StudyOptions
from archgen.studies.sweep import study

pytestmark = pytest.mark.usefixtures("own_cache")
ARCH = "ascend-310-like"
SPACE = {
    "archs": ARCH,
    "models": "squeezenet:image=32",
    "explore": {"parameters": {"memories.dram.bandwidth": ["8 GB/s", "32 GB/s"]}},
}


def test_every_field_of_a_record_is_a_keyword_of_its_type() -> None:
    assert get_type_hints(RunningFields) == get_type_hints(Running)
    assert get_type_hints(StudyFields) == get_type_hints(Running) | get_type_hints(StudyOptions)
    assert get_type_hints(Choices).items() <= get_type_hints(Scheduling).items()


def test_keywords_overrule_records(tmp_path: Path) -> None:
    net, out = small_model(tmp_path / "small.onnx"), tmp_path / "out"
    options, running = StudyOptions(effort=0, fusion="none"), Running(out=out, plots=False)
    first = study(ARCH, net, options=options, running=running, tools=HOST_ONLY)
    same = study(ARCH, net, effort=0, fusion="none", out=out, plots=False, tools=HOST_ONLY)
    other = study(ARCH, net, options=options, running=running, fusion="line", tools=HOST_ONLY)
    assert (first.reused, same.reused, other.reused) == (0, 1, 0)
    assert [*first.frame["fusion"], *other.frame["fusion"]] == ["none", "line"]
    assert (
        study(ARCH, net, options=options, running=running, fresh=True, tools=HOST_ONLY).reused == 0
    )


def test_a_keyword_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match="'efort'; did you mean 'effort'"):
        archgen.study(ARCH, "squeezenet:image=32", efort=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'job'; did you mean 'jobs'"):
        archgen.explore(SPACE, job=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'effort'"):
        archgen.explore(SPACE, effort=0)  # type: ignore[call-arg]
