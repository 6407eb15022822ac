"""The commands of one layer as a C header and as CSV, to drive a model or an RTL test bench with.

    python studies/09_commands_for_rtl.py --out rtl
    python studies/09_commands_for_rtl.py stream-32x32 net.onnx --layer conv2 --out rtl

What you should see: `rtl/commands.csv` with a row for each command of the layer, in the order of
each queue, and `rtl/commands.h` with the same as an array of structs: queue, opcode, tile, its kind
(first, steady, last), cycles since what it reads was written, and its control words. A test bench
that issues each queue in order, after its tokens, at the earliest by these intervals, does what
archgen has verified and timed. By default it is a layer of SqueezeNet that two cores work on, row
by row, each loading what the next tile needs while it works on this one.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd

import archgen

Codes = Mapping[str, Mapping[str, int]]
"""Field -> name -> number."""
KINDS = ("none", "only", "first", "steady", "last")
STRUCT = """typedef struct {
    uint16_t queue;     /* QUEUE_... */
    uint8_t opcode;     /* OPCODE_... */
    uint8_t kind;       /* of the tile: KIND_... */
    uint16_t count;     /* control words */
    uint32_t position;  /* in the queue */
    uint32_t tile;      /* number of the tile in the innermost loop over tiles */
    int64_t interval;   /* cycles since the last write of what it reads; -1: there from the start */
    const int64_t *words;
} command_t;
"""


def main() -> None:
    """Compile, list, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arch", nargs="?", default="cocco-simba-2c")
    parser.add_argument("model", nargs="?", default="squeezenet:image=64")
    parser.add_argument("--layer", help="part of its first node's name [default: with most tiles]")
    parser.add_argument("--out", type=Path, default=Path("rtl"))
    asked = parser.parse_args()
    arch = archgen.load_arch(asked.arch)
    program = archgen.compile_model(archgen.load_model(asked.model), arch, effort=0)
    rows = of_layer(archgen.commands(program, arch, expand=True), asked.layer)
    asked.out.mkdir(parents=True, exist_ok=True)
    rows.to_csv(asked.out / "commands.csv", index_label="row")
    text = header(rows, archgen.codes(arch))
    (asked.out / "commands.h").write_text(text, encoding="utf-8")
    kinds = ", ".join(f"{count} {kind}" for kind, count in rows["kind"].value_counts().items())
    print(f"{rows['layer'].iloc[0]}: {len(rows)} commands ({kinds}) in {asked.out}")


def of_layer(frame: pd.DataFrame, named: str | None) -> pd.DataFrame:
    """The commands of one layer, queue by queue."""
    if named is None:
        tiles = frame.groupby("layer")["tile"].nunique()
        chosen = str(tiles.idxmax())
    else:
        found = [name for name in frame["layer"].dropna().unique() if named in name]
        if not found:
            raise SystemExit(f"no layer with {named!r} in its name")
        chosen = found[0]
    rows = frame[frame["layer"] == chosen]
    return rows.sort_values(["core", "engine", "position"], kind="stable")


def header(rows: pd.DataFrame, codes: Codes) -> str:
    """The rows as C; `codes` are the machine's numbers of names."""
    queues = [f"core{row.core}_{row.engine}" for row in rows.itertuples()]
    texts: dict[str, int] = {}
    lines = ["/* made by archgen */", "#include <stdint.h>", ""]
    lines += enumerated("QUEUE", queues) + enumerated("KIND", KINDS)
    for field, numbers in codes.items():
        lines += numbered(field.rpartition(".")[2], numbers)
    lines += [STRUCT]
    table = []
    for number, row in enumerate(rows.to_dict("records")):
        words = list(flat(json.loads(row["words"]) if isinstance(row["words"], str) else {}))
        lines.append(f"/* {', '.join(name for name, _ in words) or 'no words'} */")
        values = ", ".join(str(word(*each, codes, texts)) for each in words) or "0"
        lines.append(f"static const int64_t WORDS_{number}[] = {{{values}}};")
        table.append(entry(number, row, queues[number], len(words)))
    names = ", ".join(json.dumps(text) for text in texts) or '""'
    lines += ["", f"static const char *const TEXTS[] = {{{names}}}; /* what words of text mean */"]
    lines += [f"#define COMMANDS {len(table)}", "static const command_t commands[COMMANDS] = {"]
    return "\n".join([*lines, *table, "};", ""])


def entry(number: int, row: dict[str, Any], queue: str, words: int) -> str:
    """One command as the initializer of its struct."""
    interval = -1 if pd.isna(row["interval_cycles"]) else row["interval_cycles"]
    tile = row["tile"].rpartition(".")[2] or 0
    fields = [symbol("QUEUE", queue), symbol("OPCODE", row["opcode"]), symbol("KIND", row["kind"])]
    fields += [words, row["position"], tile, interval, f"WORDS_{number}"]
    return f"    {{{', '.join(map(str, fields))}}},"


def enumerated(prefix: str, values: Any) -> list[str]:
    """An enum with a symbol for each different value."""
    symbols = dict.fromkeys(symbol(prefix, value) for value in values)
    return [f"enum {{ {', '.join(symbols)} }};", ""]


def numbered(prefix: str, numbers: Mapping[str, int]) -> list[str]:
    """An enum with the numbers that a machine gives to names."""
    symbols = (f"{symbol(prefix.upper(), name)} = {number}" for name, number in numbers.items())
    return [f"enum {{ {', '.join(symbols)} }};", ""]


def symbol(prefix: str, value: str) -> str:
    """A name that C takes."""
    return f"{prefix}_{re.sub(r'[^A-Za-z0-9]', '_', value).upper()}"


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Control words by their full name: `dst.shape.0`."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif value is not None:
        yield name, value


def word(path: str, value: Any, codes: Codes, texts: dict[str, int]) -> int:
    """A number as it is, a fraction as the bits of its single precision, text by the number that
    the machine has for it, else by its place in the table of texts."""
    if value in ("inf", "-inf", "nan"):  # JSON has no such number
        value = float(value)
    if isinstance(value, str):
        known = next((codes[field] for field in codes if fnmatchcase(path, field)), {})
        return known[value] if value in known else texts.setdefault(value, len(texts))
    if isinstance(value, float):
        return int.from_bytes(struct.pack("<f", value), "little")
    return int(value)


if __name__ == "__main__":
    main()
