"""Random graphs on random machines: right, or refused with a sum that adds up.

The generator is that of `studies/benchmarks/fuzz.py`, which goes on where these seeds end. Where
the compiler would rather not fuse, doubles of its decisions do.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from doubles import anything
from fuzzing.cases import case_of
from fuzzing.judge import judged

from archgen.toolchain import STANDARD, Compiled, Request, Toolchain, compiled_report
from compiler.api import CompileOptions, compile_model
from simmodel.verify import verify

SEEDS, MORE, CORES, STRANGE, SHARE = 50, 60, 20, 20, 5
HALOS = (None, True, True, False)
SLOTS = (2, 2, 1, 3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))


def right_or_refused(
    seeds: range,
    folder: Path,
    tools: Callable[[int], Toolchain] = lambda _: STANDARD,
    many: bool = False,
    strange: bool = False,
) -> None:
    """No seed fails, and most are right."""
    kinds: Counter[str] = Counter()
    failed = []
    for seed in seeds:
        case = case_of(seed, quick=True, many=many, strange=strange)
        found = judged(case, folder / f"m{seed}", tools=tools(seed))
        kinds[found.kind] += 1
        if not found.good:
            failed.append(f"seed {seed} {found.kind}: {found.signature} | {found.reason}")
    assert not failed, "\n".join([*failed, "python studies/benchmarks/fuzz.py --quick --only SEED"])
    assert 2 * kinds["right"] > len(seeds), kinds


@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_any_graph_on_any_machine(first: int, tmp_path: Path) -> None:
    right_or_refused(range(first, first + SHARE), tmp_path)


@pytest.mark.parametrize("first", range(1000, 1000 + MORE, SHARE))
def test_any_groups_with_any_tiles(first: int, tmp_path: Path) -> None:
    right_or_refused(range(first, first + SHARE), tmp_path, careless)


@pytest.mark.parametrize("first", range(0, CORES, SHARE))
def test_any_graph_on_many_cores(first: int, tmp_path: Path) -> None:
    right_or_refused(range(first, first + SHARE), tmp_path, careless, many=True)


@pytest.mark.parametrize("first", range(0, STRANGE, SHARE))
def test_few_operators_of_any_kind_on_odd_extents(first: int, tmp_path: Path) -> None:
    right_or_refused(range(first, first + SHARE), tmp_path, strange=True)


def careless(seed: int) -> Toolchain:
    """Tools with a compiler that prefers nothing."""
    rng = random.Random(seed)
    options = anything(seed, rolling=rng.choice(HALOS), slots=rng.choice(SLOTS))

    def compiled(request: Request) -> Compiled:
        made = compile_model(
            request.model, request.arch, CompileOptions(request.dtype, request.host, options.stages)
        )
        verify(made.program, request.arch)
        return Compiled(made.program, compiled_report(made), made.probes, made.recipe)

    return replace(STANDARD, compile=compiled, tries=False)
