"""Finished points on disk, by the content of everything that decides them.

The one idea: a key is a hash of architecture, model, options and the sources of these packages, so
a stored result is either exactly what a run would give or is not found. Files appear whole or not
at all: tables first, then the JSON whose presence says that the point is finished. Tables are not
read until someone asks for what is in them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import archgen
import compiler
import simmodel
from archgen.frame import LayerRow, layers_frame, table_bytes
from archgen.point import Outcome
from archgen.reference import write_atomically

_FORMAT = 2


def cache_dir() -> Path:
    """Where quantized models and references are kept: $ARCHGEN_CACHE or ~/.cache/archgen."""
    given = os.environ.get("ARCHGEN_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "archgen"


@lru_cache(maxsize=1)
def code_version() -> str:
    """SHA-256 (hex) of the names and contents of all sources of the three packages, and of the
    table of energies."""
    digest = hashlib.sha256()
    for package in (archgen, compiler, simmodel):
        root = Path(next(iter(package.__path__)))
        for path in sorted([*root.rglob("*.py"), *root.glob("energy/*.yaml")]):
            digest.update(f"{package.__name__}/{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def content_hash(parts: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of `parts`, which JSON can express, whatever their order."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """The folder `runs/` of a study: for each point `<label>.<key>.json`, and beside it
    `.layers.parquet`, `.spans.parquet` and `.levels.parquet`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"

    def _stem(self, label: str, key: str) -> Path:
        plain = re.sub(r"[^A-Za-z0-9._=-]+", "-", label).strip("-")[:120]
        return self.folder / f"{plain}.{key[:16]}"

    def load(self, label: str, key: str) -> Outcome | None:
        """The finished point, or None when it is absent, damaged or has another key."""
        stem = self._stem(label, key)
        try:
            stored = json.loads(Path(f"{stem}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
            return None
        if stored.get("format") != _FORMAT or stored.get("key") != key:
            return None
        tables: dict[str, bytes | Path] = {
            name: Path(f"{stem}.{name}.parquet") for name in stored["tables"]
        }
        if not all(Path(f"{stem}.{name}.parquet").exists() for name in tables):
            return None
        rows: list[LayerRow] = stored["layers"]
        return Outcome(key, label, stored["row"], rows, stored["details"], tables, reused=True)

    def save(self, outcome: Outcome) -> None:
        """Write all files of `outcome`; the JSON last."""
        stem = self._stem(outcome.label, outcome.key)
        layers = table_bytes(layers_frame([outcome]))
        for name, table in {"layers": layers, **outcome.tables}.items():
            if isinstance(table, bytes):
                _write(Path(f"{stem}.{name}.parquet"), table)
        content = {
            "format": _FORMAT,
            "key": outcome.key,
            "row": outcome.row,
            "details": outcome.details,
            "layers": outcome.layers,
            "tables": list(outcome.tables),
        }
        text = json.dumps(content, indent=1, allow_nan=False)
        _write(Path(f"{stem}.json"), text.encode())


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda target: target.write_bytes(content))
