"""What products take on another machine: whole folds of the network's own extents."""

from __future__ import annotations

import pytest
from networks import Net
from test_attainable import CUBE, convolution
from test_closed_forms import free
from test_group_depthwise import SLOW, narrow, window

from compiler.api import CompileOptions, compile_model
from compiler.cost.work import product_startup
from compiler.estimate.network_bound import product_cycles_on
from compiler.options import Stages
from compiler.target.group_depthwise import GroupDepthwise


@pytest.mark.parametrize(
    ("wider", "cycles"),
    [
        ({}, 90),
        ({"cols": 64}, 90),  # 32 filters fill half of the columns
        ({"rows": 20}, 45),  # five blocks of twenty pixels
        ({"depth": 64}, 50),  # nine times 32 channels are five folds of 64
        ({"depth": 288}, 10),
    ],
)
def test_a_larger_array_gains_whole_folds(wider: dict[str, int], cycles: int) -> None:
    """Ten blocks of ten pixels, 32 channels at nine kernel positions, 32 filters."""
    made = compile_model(convolution(32), free(CUBE), CompileOptions(dtype="fp16"))
    found = product_cycles_on(made, free(CUBE | wider))
    assert list(found.dense.values()) == [cycles]
    assert found.depthwise == {}


@pytest.mark.parametrize("together", [True, False])
def test_depthwise_layers_take_the_same_elsewhere_whatever_they_are_here(together: bool) -> None:
    """64 channels on 32 columns at nine kernel positions are 18 folds of ten blocks, each 256
    cycles long; on one lane each of 6400 results takes nine products of 256 cycles,
    and as long to be finished."""
    net = Net(quantized=True)
    stages = Stages(depthwise=GroupDepthwise(enabled=together))
    options = CompileOptions(dtype="int8", stages=stages)
    made = compile_model(net.model(window(net, net.input(1, 64, 10, 10), 64)), narrow(), options)
    native, lanes = narrow(depthwise=True), narrow()
    (on_array,) = product_cycles_on(made, native).depthwise.values()
    assert on_array == 18 * 10 * SLOW + product_startup(native)
    (on_lanes,) = product_cycles_on(made, lanes).depthwise.values()
    assert 6400 * 9 * SLOW <= on_lanes <= 6400 * 10 * SLOW
