"""A damaged ONNX file through the command line: what a user would see.

The one idea: whatever stands in a file, `archgen study`, `compile` and `models` end in time with
an exit code that is documented and words instead of a traceback, and no point of the study has
failed by an error of ours.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from archgen.cli.main import main as archgen
from fuzzing.graphs import graph
from fuzzing.judge import Verdict, cause_of, within
from fuzzing.mutants import damaged

MACHINE = {
    "name": "small", "clock": "1 GHz", "types": ["fp32", "int8"],
    "memories": {
        "dram": {"size": "64 MiB", "bandwidth": "16 B/cycle"},
        "local": {"size": "64 KiB", "banks": 4},
    },
    "matrix": {"kind": "cube", "rows": 4, "cols": 8, "depth": 8, "rate": {"fp32": 1, "int8": 2}},
    "vector": {"lanes": 16},
    "copy": {
        "load": {"from": "dram", "to": "local", "bandwidth": "16 B/cycle"},
        "store": {"from": "local", "to": "dram", "bandwidth": "16 B/cycle"},
    },
}  # fmt: skip
CPU = 30.0
STATUS = {0: "answered", 1: "answered", 2: "refused"}


@dataclass(frozen=True)
class Said:
    """What a command printed, and how it ended."""

    code: int | None
    """None: by an exception."""
    text: str


def judged_file(seed: int, cpu: float = CPU) -> dict[str, Any]:
    """What becomes of the damaged file of a seed, JSON-ready."""
    rng = random.Random(f"broken {seed}")
    data = damaged(rng, graph(rng, quick=True, coded=rng.random() < 0.2))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.onnx").write_bytes(data)
        (place / "machine.yaml").write_text(yaml.safe_dump(MACHINE), encoding="utf-8")
        found = within(cpu, lambda: _judged(place, rng))
    return found.record()


def _judged(place: Path, rng: random.Random) -> Verdict:
    model, machine = str(place / "model.onnx"), str(place / "machine.yaml")
    dtype = rng.choice(["fp32", "fp32", "int8"])
    options = ["-m", model, "--dtype", dtype, "--effort", "0"]
    out = str(place / "out")
    verbs = {
        "study": ["study", machine, *options, "--jobs", "1", "--no-plots", "--out", out],
        "compile": ["compile", machine, *options],
        "models": ["models", model],
    }
    for verb, words in verbs.items():
        if verb != "study" and rng.random() < 0.6:
            continue
        said = run(words)
        if said.code is None or "Traceback" in said.text:
            return Verdict("traceback", f"{verb} {cause_of(said.text)}", said.text[-600:])
        if said.code not in STATUS:
            return Verdict("code", f"{verb} {said.code}", said.text[-600:])
        if verb == "study":
            for row, trace in failed_rows(place / "out"):
                return Verdict("crash", cause_of(trace) if trace else row[:60], row[:600])
    return Verdict("right")


def run(words: list[str]) -> Said:
    """`archgen` with these words, in this process."""
    text = io.StringIO()
    before, sys.argv = sys.argv, ["archgen", *words]
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            archgen()
    except SystemExit as end:
        return Said(end.code if isinstance(end.code, int) else 1, text.getvalue())
    except Exception:
        return Said(None, text.getvalue() + traceback.format_exc())
    finally:
        sys.argv = before
    return Said(0, text.getvalue())


def failed_rows(out: Path) -> Iterator[tuple[str, str]]:
    """Reason and traceback of every point of a study that failed."""
    for path in sorted((out / "runs").glob("*.json")):
        stored = json.loads(path.read_text(encoding="utf-8"))
        row = stored.get("row", stored)
        if row.get("status") == "failed":
            yield str(row["reason"]), str(stored.get("details", {}).get("traceback", ""))
