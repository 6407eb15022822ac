"""The commands of a program as text, by layer and tile: what a hardware team reads first.

core 0, layer 'conv1' (Conv), group 0
  tile 0 of 7, first, 1x64x9x56
    load     #0      copy dst=local[0x0]:int8[64,9,56] ...
    matrix   #0      conv ...                            +12
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from archgen.files import write_atomically, write_text
from archgen.outcomes.frame import Record, records


def commands_text(frame: pd.DataFrame) -> str:
    """The rows of `archgen.commands`, layer by layer and tile by tile.

    Behind `+` stand the cycles from the end of who made what a command reads to its start, as far
    as the frame has them.
    """
    lines: list[str] = []
    for (core, layer, group), tiles in _by(records(frame), ("core", "layer", "group")).items():
        named = f"layer {layer!r}" if layer else "no layer"
        lines.append(f"{'host' if core == -1 else f'core {core}'}, {named}, group {group}")
        for key, rows in _by(tiles, ("tile", "tiles", "kind", "sizes", "kinds")).items():
            lines += [f"  {_tile(*key)}"] if layer else []
            lines += (f"    {_command(row)}" for row in rows)
    return "\n".join(lines) + "\n" if lines else ""


def save_commands(frame: pd.DataFrame, path: Path) -> None:
    """`frame` as the file `path`: .csv, .parquet, or text. Raises OSError."""
    if path.suffix == ".csv":
        write_atomically(path, lambda target: frame.to_csv(target, index_label="row"))
    elif path.suffix == ".parquet":
        write_atomically(path, lambda target: frame.to_parquet(target))
    else:
        write_text(path, commands_text(frame))


def _by(rows: list[Record], names: tuple[str, ...]) -> dict[tuple[Any, ...], list[Record]]:
    """Rows with the same values, in order of appearance."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        key = tuple("" if pd.isna(row[name]) else row[name] for name in names)
        found.setdefault(key, []).append(row)
    return found


def _tile(tile: str, tiles: str, kind: str, sizes: str, kinds: str) -> str:
    if not tiles:
        return f"whole layer, {sizes}"
    which = f"tile {tile}" if tile else "a tile"  # of a shorter program, nobody knows which
    return f"{which} of {tiles}, {kinds if '.' in tiles else kind}, {sizes}"


def _command(row: Record) -> str:
    parts = [f"{row['engine']:<8} #{row['position']:<6} {row['opcode']} {row['control']}".rstrip()]
    parts += [f"for {row['loops']}"] if not pd.isna(row["loops"]) else []
    for word, column in (("wait", "waits"), ("signal", "signals"), ("notify", "notifies")):
        parts += [f"{word} {row[column]}"] if not pd.isna(row[column]) else []
    parts += [f"at {row['start_cycle']}"] if not pd.isna(row["start_cycle"]) else []
    parts += [f"+{row['interval_cycles']}"] if not pd.isna(row["interval_cycles"]) else []
    return "  ".join(parts)
