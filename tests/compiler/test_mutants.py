"""Mutated programs and mutated assembly: refused in words, or run to the same bytes every time."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from mutants import Subject, mutants, subjects, text_verdict, texts, verdict

COUNT = 120


@pytest.fixture(scope="module")
def found() -> list[Subject]:
    return subjects()


def test_a_mutant_is_refused_or_runs_the_same_whatever_memory_held(
    found: list[Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    for subject, program, seed in mutants(found, 0):
        if seed == COUNT:
            break
        try:
            counts[verdict(subject, program, monkeypatch)] += 1
        except Exception as escape:
            pytest.fail(f"seed {seed}, {subject.name}: {type(escape).__name__}: {escape}")
    assert counts["refused"] > COUNT // 2 and counts["harmless"] > 10, counts


def test_mutated_assembly_is_refused_with_its_line_or_read_and_judged(found: list[Subject]) -> None:
    counts: Counter[str] = Counter()
    for seed in range(COUNT):
        rng = random.Random(seed)
        subject, text = texts(found, rng)
        counts[text_verdict(subject, text)] += 1
    assert min(counts[verdict] for verdict in ("unreadable", "refused", "sound")) > 2, counts
