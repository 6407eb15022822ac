"""Table and pictures of the README and of docs/columns.md, from the folder of a study.

    archgen study archs/*.yaml --model resnet50 --out archgen-out
    python docs/results.py archgen-out

The one idea: figures in the documentation are those of a run, with its date, and never typed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd

import archgen
from archgen.outcomes.bottleneck import verdict
from archgen.plots import gantt_figure, save_figures

ROOT = Path(__file__).parents[1]
PICTURES = ("stalls.png",)
SHOWN = "cocco-simba-1c"
"""The machine whose engines are drawn over time."""
_SECTION = re.compile(r"(?<=^## Results\n).*?(?=^## )", re.M | re.S)


def _two(value: float) -> str:
    """Two digits, without an exponent."""
    return f"{float(f'{value:.2g}'):g}"


def table(study: archgen.Study) -> str:
    """The main figures of each machine, in Markdown."""
    lines = ["| machine | TOPS | latency | images/s | of bound | held by | on chip | energy |",
             "|---|--:|--:|--:|--:|---|--:|--:|"]  # fmt: skip
    for row in study.frame.to_dict("records"):
        arch = study.by_name[row["arch"]]
        tops = 2e-12 * arch.peak_macs(row["dtype"]) * arch.clock
        head = f"| {arch.name} | {tops:.3g} {row['dtype']} |"
        if row["status"] != "ok":
            lines.append(f"{head} {row['status'].replace('_', ' ')} | | | | | |")
            continue
        memory = sum(
            row[f"peak_{role}_bytes"]
            for role in arch.memories.on_chip()
            if not pd.isna(row.get(f"peak_{role}_bytes"))
        )
        rate = row["throughput_ips"]
        places = 1 if rate < 100 else 0
        lines.append(
            f"{head} {row['latency_ms']:.3g} ms | {rate:,.{places}f} | "
            f"{row['of_bound']:.0%} | {verdict(row).words} | {memory / 2**10:,.0f} KiB | "
            f"{_two(row['energy_low_mj'])} - {_two(row['energy_high_mj'])} mJ |"
        )
    return "\n".join(lines)


def section(study: archgen.Study) -> str:
    """What stands below the heading Results of the README."""
    frame = study.frame
    verified = int(frame["verified"].fillna(False).sum())
    day = study.about.started[:10]
    network = ", ".join(dict.fromkeys(frame["model"]))
    return f"""
![Where the time of the matrix engines went, for each machine](docs/images/stalls.png)

*Time of the matrix engines: busy, or idle for one cause.* {network}, batch 1, random weights;
compared with ONNX Runtime and right on {verified} of {len(frame)} machines. Run on {day} with the
study above; `python docs/results.py archgen-out` makes picture and table.

{table(study)}

Of bound: the least possible time on this machine (`bound_cycles`) as a share of the measured time;
at 100 % no schedule can be faster. Held by: the main reason for the time. On chip: the peak of all
on-chip memories of the core that uses most. Energy is a range, see
[docs/energy.md](docs/energy.md); what else the figures do not say is in
[docs/limits.md](docs/limits.md).

"""


def main(folder: str) -> None:
    """Write pictures, and the table into the README."""
    study = archgen.open_study(folder)
    images = ROOT / "docs/images"
    images.mkdir(exist_ok=True)
    for path in save_figures(study.overviews.items(), Path(folder) / "pictures"):
        if path.name in PICTURES:
            (images / path.name).write_bytes(path.read_bytes())
    spans = study.spans[study.spans["arch"] == SHOWN]
    gantt_figure(spans, study.by_name).savefig(images / "engines.png", dpi=110)
    readme = ROOT / "README.md"
    text = _SECTION.sub(lambda _: section(study), readme.read_text(encoding="utf-8"))
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
