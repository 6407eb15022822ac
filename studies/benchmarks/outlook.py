"""How well `archgen study --estimate` predicts what is compiled and simulated, over sweeps.

    python studies/benchmarks/outlook.py [--run FOLDER] [--points]

The one idea: what runs took stands in `outlook.csv`, so that estimates are judged in seconds; with
`--run` the studies below are run again, their points kept in FOLDER, and the file written anew.

    sweep     2 machines x local memory x bandwidth x cores, 2 networks, effort 0
    banks     1 machine x banks x local memory, 2 networks, effort 0
    energy    8 shipped machines, 3 networks, effort 0: mJ as well
    shipped   the shipped machines and resnet50, as in README.md, effort 1: mJ as well

    rank            Spearman's coefficient over the points of a network
    median, worst   |estimate / cycles - 1|, per cent; of energy likewise
    pairs           points that differ in one field and by more than `SAME`; of these `even` have
                    one estimate, and `wrong` estimates the other way around
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
from tables import table

from archgen.schema.load import shipped_names
from archgen.studies.design import Design
from archgen.studies.options import Running
from archgen.studies.plan import load_study
from archgen.studies.sweep import run_estimated, run_study

KEPT = Path(__file__).with_suffix(".csv")
SMALL = ["mobilenet_v2:image=96", "resnet18:image=64"]
NETWORKS = {"energy": [*SMALL, "squeezenet:image=64"], "shipped": ["resnet50"]}
SAME = 0.02
"""Runs that differ by less have no order to be predicted."""
LOCAL, DRAM = "memories.local", "memories.dram.bandwidth"
MACHINES: dict[str, list[Any]] = {
    "sweep": [
        {"extends": "soma-edge", "sweep": {
            f"{LOCAL}.size": ["256 KiB", "1 MiB", "8 MiB"], DRAM: ["4 GB/s", "32 GB/s"],
            "cores": [1, 2]}},
        {"extends": "cocco-simba-2c", "sweep": {
            f"{LOCAL}.size": ["96 KiB", "384 KiB", "1536 KiB"], DRAM: ["8 GB/s", "64 GB/s"],
            "cores": [1, 4]}},
    ],
    "banks": [
        {"extends": "k230-like", "sweep": {
            f"{LOCAL}.banks": [2, 4, 12], f"{LOCAL}.size": ["192 KiB", "768 KiB"]}},
    ],
    "energy": ["mcu-npu", "soma-edge", "cocco-simba-2c", "k230-like", "tpu-v1", "stcp920",
               "nvdla-2048", "gemmini-16-loop"],
    "shipped": list(shipped_names()),
}  # fmt: skip
"""By name of the study."""
COLUMNS = ("study", "model", "points", "rank", "median %", "worst %",
           "energy %", "worst %", "pairs", "even", "wrong")  # fmt: skip


def design(name: str) -> Design:
    """The study of that name."""
    small = name != "shipped"
    return load_study({
        "name": name, "archs": MACHINES[name], "models": NETWORKS.get(name, SMALL),
        "compiler": {"effort": 0 if small else 1}, "verify": False, "isolated": small,
    })  # fmt: skip


def simulated(folder: Path) -> pd.DataFrame:
    """Cycles of every point that has a program."""
    found = []
    for name in MACHINES:
        frame = run_study(design(name), Running(out=folder / name, plots=False)).frame
        frame = frame[frame["status"] == "ok"].rename(
            columns={"latency_cycles": "cycles", "energy_mj": "mj"}
        )
        found.append(frame.assign(study=name)[["study", "arch", "model", "cycles", "mj"]])
    return pd.concat(found)


def compared(runs: pd.DataFrame) -> pd.DataFrame:
    """Every point of `runs` with its estimate and its fields."""
    found = []
    for name, own in runs.groupby("study", sort=False):
        frame = run_estimated(design(str(name)), Running(executor="here")).frame
        frame = frame.rename(columns={"latency_cycles": "estimate"})
        fields = [column for column in frame if str(column).startswith("arch.")]
        kept = frame[["arch", "family", "model", "estimate", "energy_mj", *fields]]
        found.append(own.merge(kept, on=["arch", "model"]))
    return pd.concat(found, ignore_index=True)


def steps(own: pd.DataFrame) -> Iterator[tuple[float, float]]:
    """Of points that differ in one field: how much more one takes than the other, by its cycles and
    by its estimate."""
    fields = [column for column in own if str(column).startswith("arch.")]
    for _, family in own.groupby("family"):
        for one, other in combinations(family.to_dict("records"), 2):
            different = [f for f in fields if one[f] != other[f] and not pd.isna(one[f])]
            ratio = float(other["cycles"]) / float(one["cycles"]) - 1
            if len(different) == 1 and abs(ratio) >= SAME:
                yield ratio, float(other["estimate"]) / float(one["estimate"]) - 1


def row(study: str, model: str, own: pd.DataFrame) -> Sequence[object]:
    """The figures of one network in one study."""
    off = 100 * (own["estimate"] / own["cycles"] - 1).abs()
    energy = 100 * (own["energy_mj"] / own["mj"] - 1).abs()
    rank = own[["estimate", "cycles"]].rank().corr().iloc[0, 1]
    pairs = list(steps(own))
    even = sum(guess == 0 for _, guess in pairs)
    wrong = sum(run * guess < 0 for run, guess in pairs)
    shares = off.median(), off.max(), energy.median(), energy.max()
    shown = ("-" if pd.isna(share) else f"{share:.1f}" for share in shares)
    figures = (f"{rank:.3f}", *shown, len(pairs), even, wrong)
    return (study, model, len(own), *figures)


def main(given: Sequence[str] | None = None) -> None:
    """Print a row for each network of each study, and where asked for each point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="run the studies anew")
    parser.add_argument("--points", action="store_true", help="a row for each point too")
    options = parser.parse_args(given)
    if options.run is not None:
        simulated(options.run).to_csv(KEPT, index=False)
    found = compared(pd.read_csv(KEPT))
    groups = found.groupby(["study", "model"], sort=False)
    rows = [row(study, model, own) for (study, model), own in groups]
    print(table("Estimated against simulated cycles", COLUMNS, rows))
    if options.points:
        columns = ["study", "model", "arch", "cycles", "estimate"]
        every = [
            (*point, f"{100 * (point[-1] / point[-2] - 1):+.1f}")
            for point in found[columns].itertuples(index=False, name=None)
        ]
        print(table("Every point", [*columns, "off %"], every))


if __name__ == "__main__":
    main()
