"""Images that lie in memory by planes: turned by the load, or read as they are."""

from __future__ import annotations

import pytest
from machines import machine
from networks import Net, check

CUBE = {"kind": "cube", "rows": 4, "cols": 16, "depth": 16, "im2col": False, "depthwise": True}


@pytest.mark.parametrize(
    ("banks", "turned"),
    [
        (1, True),  # four times 1024 reads of 16 B at 16 B/cycle are 4096 cycles
        (8, False),  # 512
    ],
)
def test_planes_are_read_as_they_are_where_that_takes_less(banks: int, turned: bool) -> None:
    """The array takes 16 of 64 columns at a time, and all pixels for each. With channels last, a
    load of 1024 elements is as many pieces; by planes it is 2048 B, 128 cycles."""
    net = Net()
    x = net.input(1, 16, 8, 8)
    model = net.model(net.op("Conv", x, net.weight(64, 16, 1, 1)))
    arch = machine(
        types=("fp16",), matrix=CUBE, vector={"lanes": 1},
        local={"size": 1 << 16, "banks": banks, "bank_width": 16, "mapping": "interleaved"},
    )  # fmt: skip
    made = check(model, arch, "fp16")
    (load,) = (e.busy for e in made.trace.engines if e.engine == "load")
    assert (load >= 1024) == turned
