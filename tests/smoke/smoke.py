"""Every network on unlike machines at default options: a floor that only rises.

    python tests/smoke/smoke.py [--only TEXT] [--quick] [--check | --write]

Every network of the zoo in a small size, and those of `real_nets.py`, go through `archgen.study` as
a user's do: compiled, proved, simulated, executed, compared with ONNX Runtime, stored. What becomes
of a network on a machine is one of

    verified    its outputs are right
    unchecked   it ran, but nothing says whether its outputs are right
    refused     turned away in words: it does not fit, or is not supported
    wrong       its outputs are wrong
    failed      an error of archgen's own

`--check` compares with the committed table, `smoke.txt`, and ends with 1 where a network has got
worse, is wrong or fails; `--write` makes the table anew. `--quick` leaves out deep networks whose
blocks others have too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import onnx
from real_nets import TEXTS, real_net

import archgen
from archgen.outcomes.points import Outcome
from archgen.process.start import single_threaded
from archgen.zoo.catalog import CATALOG

TABLE = Path(__file__).with_name("smoke.txt")
MACHINES = (
    "soma-edge", "tpu-v3-like", "stcp920", "gemmini-16", "ethos-u55-like", "k230-like",
)  # fmt: skip
WORDS = ("verified", "unchecked", "refused", "wrong", "failed")
"""From best to worst."""
BAD = ("wrong", "failed")

IMAGE = "image=32,classes=10,width=0.25"
LAYER = "layers=1,hidden=64,heads=2"
SMALL = {
    **dict.fromkeys(("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"), IMAGE),
    **dict.fromkeys(("mobilenet_v1", "mobilenet_v2", "mobilenet_v3", "efficientnet_b0"), IMAGE),
    **dict.fromkeys(("shufflenet_v2", "googlenet"), IMAGE),
    "squeezenet": "image=48,classes=10,width=0.25",
    "vgg16": f"{IMAGE},hidden=64",
    "densenet121": "image=32,classes=10,growth=8",
    "unet": "image=32,width=0.125",
    "yolov8n": "image=64,classes=4,width=0.25",
    **dict.fromkeys(
        ("bert_base", "bert_large"), f"sequence=16,{LAYER},vocabulary=100,positions=32"
    ),
    **dict.fromkeys(("vit_b16", "vit_tiny"), f"image=32,classes=10,patch=8,{LAYER}"),
    "gpt2": f"sequence=4,past=6,{LAYER},vocabulary=100,positions=16",
    "whisper_encoder": f"frames=40,mels=8,{LAYER}",
    "conformer": "sequence=20,layers=1,hidden=32,heads=2,kernel=7",
    "lstm_kws": "frames=6,hidden=16",
    "dlrm": "features=5,tables=3,rows=50,width=8,hidden=16",
    "moe": "sequence=4,hidden=32,wide=16,experts=4,active=2,gathered=1",
    "llama": f"sequence=3,past=5,{LAYER},groups=1,wide=96",
    "gemm": "m=16,n=24,k=32",
    "conv": "image=12,channels=8,filters=8",
    "attention": "sequence=16,hidden=32,heads=4",
}
"""Options of each network of the zoo that make it small."""

DEEP = ("resnet34", "resnet101", "resnet152", "densenet121", "bert_large", "vit_b16")
"""Networks of the zoo that repeat the blocks of others, or one of their own, many times."""

Row = tuple[str, ...]
"""What became of a network, by machine."""
Table = dict[str, Row]


def networks(only: str = "", without: Collection[str] = ()) -> list[str]:
    """The names of all networks that have `only` in them, but those of `without`."""
    zoo = [f"{name}:{SMALL[name]}" for name in CATALOG if name not in without]
    return [name for name in (*zoo, *TEXTS) if only in name]


def smoke(name: str) -> tuple[Row, list[str]]:
    """What becomes of a network by machine, and why where it is not verified."""
    with tempfile.TemporaryDirectory() as folder:
        model = name
        if name in TEXTS:
            model = str(Path(folder, f"{name}.onnx"))
            onnx.save(real_net(name), model)
        found = archgen.study(MACHINES, model, out=Path(folder, "out"), plots=False)
    words = [(outcome, word_of(outcome)) for outcome in found.outcomes]
    why = [
        f"{outcome.label}: {word}: {outcome.row.get('reason') or outcome.row.get('note')}"
        for outcome, word in words
        if word != WORDS[0]
    ]
    return tuple(word for _, word in words), why


def word_of(outcome: Outcome) -> str:
    """One of `WORDS`."""
    if outcome.status != "ok":
        return "failed" if outcome.status == "failed" else "refused"
    verified = outcome.row["verified"]
    return "unchecked" if verified is None else "verified" if verified else "wrong"


def read() -> Table:
    """The committed table."""
    rows = [line.split() for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    return {name: tuple(words) for name, *words in rows}


def printed(table: Mapping[str, Row]) -> str:
    """`table` as text, a line for each network."""
    rows = [("network", *MACHINES), *((name, *row) for name, row in sorted(table.items()))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in rows)
    return "".join("  ".join(row).rstrip() + "\n" for row in padded)


def worse(table: Mapping[str, Row], floor: Mapping[str, Row]) -> Iterator[str]:
    """Networks that are wrong, fail, or have fallen below `floor`."""
    for name, row in table.items():
        before = floor.get(name, ("refused",) * len(row))
        for machine, word, was in zip(MACHINES, row, before, strict=True):
            if word in BAD or WORDS.index(word) > WORDS.index(was):
                yield f"{name} on {machine}: {was} -> {word}"


def smoked(names: Sequence[str]) -> Iterator[tuple[str, Row, list[str]]]:
    """All of `names` on every processor, each as soon as it is there."""
    with ProcessPoolExecutor(initializer=single_threaded) as pool:
        for name, (row, why) in zip(names, pool.map(smoke, names), strict=True):
            yield name, row, why


def main(argv: Sequence[str] | None = None) -> int:
    """Run the networks and print the table; 1 where one is worse than the floor."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="networks whose names hold this")
    parser.add_argument("--quick", action="store_true", help="without deep networks")
    parser.add_argument("--check", action="store_true", help="compare with the table")
    parser.add_argument("--write", action="store_true", help="make the table anew")
    chosen = parser.parse_args(argv)
    table: Table = {}
    for name, row, why in smoked(networks(chosen.only, DEEP if chosen.quick else ())):
        table[name] = row
        print(f"{name}: {', '.join(row)}", *why, sep="\n    ", flush=True)
    print(counts(table.values()))
    before = read() if TABLE.exists() else {}
    if chosen.write:
        part = chosen.only or chosen.quick
        TABLE.write_text(printed(before | table if part else table), encoding="utf-8")
    found = list(worse(table, before if chosen.check else {}))
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


def counts(rows: Iterable[Row]) -> str:
    """`210 verified, 6 refused`."""
    words = [word for row in rows for word in row]
    return ", ".join(f"{words.count(word)} {word}" for word in WORDS if word in words)


if __name__ == "__main__":
    sys.exit(main())
