"""How tightly buffers are packed on chip: the MiniMalloc problems, from a folder of CSV files.

    python studies/benchmarks/placement.py FOLDER [EFFORT]

Every file is a problem with a row for each buffer: id, lower, upper, size; a buffer is alive from
step `lower` to before `upper`. The name tells the capacity: `NAME.CAPACITY.csv`. What to look
for: a peak of at most 1.0 of the capacity everywhere. Where the lower bound is 1.0 too, some
steps have not a byte to spare. `greedy` means that no search was needed.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.memory.packing import lower_bound, pack
from compiler.schedule.residency.buffer import LiveRange


@dataclass(frozen=True)
class Result:
    """What came of one problem."""

    packing: dict[str, int] | None
    method: str
    seconds: float


def read(path: Path) -> list[LiveRange]:
    """The buffers of one problem."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            LiveRange(row["id"], int(row["size"]), int(row["lower"]), int(row["upper"]) - 1)
            for row in csv.DictReader(file)
        ]


def solve(items: Sequence[LiveRange], capacity: int, effort: int) -> Result:
    """Pack greedily, and search if that does not fit."""
    begun = time.perf_counter()
    method = "greedy"
    packing = pack(items, capacity, effort=0)
    if packing is None and effort > 0:
        method = "search"
        packing = pack(items, capacity, effort)
    return Result(packing, method, time.perf_counter() - begun)


def check(items: Sequence[LiveRange], addresses: dict[str, int]) -> int:
    """The peak in bytes, computed anew; fails if two items that are alive together overlap."""
    for index, one in enumerate(items):
        for two in items[:index]:
            apart_in_time = one.last < two.first or two.last < one.first
            low, high = sorted((one, two), key=lambda item: addresses[item.name])
            apart = addresses[low.name] + low.size <= addresses[high.name]
            assert apart_in_time or apart, f"{one.name} and {two.name} overlap"
    assert min(addresses.values()) >= 0
    return max(addresses[item.name] + item.size for item in items)


def main(folder: Path, effort: int) -> None:
    """Print one line for each problem."""
    print(f"{'problem':8} {'items':>5} {'bound':>6} {'peak':>6} {'seconds':>8}  method")
    for path in sorted(folder.glob("*.csv")):
        capacity = int(path.name.split(".")[-2])
        items = read(path)
        result = solve(items, capacity, effort)
        bound = f"{lower_bound(items) / capacity:6.3f}"
        peak = "     -"
        if result.packing is not None:
            peak = f"{check(items, result.packing) / capacity:6.3f}"
        name = path.name.split(".")[0]
        print(f"{name:8} {len(items):5} {bound} {peak} {result.seconds:8.2f}  {result.method}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2)
