"""What is implausible about the machines that a verb ran, below its table.

The one idea: every verb that compares machines says what `archgen lint` warns of, each thing once,
so that nobody reads figures of a machine that cannot be built without knowing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from archgen.lint import brief, findings
from archgen.lint.rules import Kind
from archgen.models.sizes import kinds_of
from archgen.studies.design import Design, Workload
from archgen.studies.results import Study
from simmodel.arch.record import Arch


def of_design(design: Design) -> Iterator[str]:
    """About the machines of `design`; notes where its networks are met by."""
    files = {machine.arch.name: machine.file for machine in design.machines}
    return _lines(design.archs, files, design.workloads)


def of_variants(study: Study, design: Design) -> Iterator[str]:
    """About the machines that `study` has run, all of them variants of the one of `design`."""
    files = {arch.name: design.machines[0].file for arch in study.archs}
    return _lines(study.archs, files, design.workloads)


def _lines(
    archs: Iterable[Arch], files: Mapping[str, str], workloads: Iterable[Workload]
) -> Iterator[str]:
    @cache
    def kinds() -> set[Kind]:
        return {
            kind
            for load in workloads
            for kind in kinds_of(load.model, load.batches, dict(load.dims), dict(load.roles))
        }

    return brief((each for arch in archs for each in findings(arch)), files, kinds)
