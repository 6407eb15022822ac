"""What does not fit is tried in smaller pieces; what fits in none is refused with its sum."""

from __future__ import annotations

import pytest
from blocks import conv
from doubles import anything
from machines import machine
from networks import Net, check, refused

from compiler.errors import DoesNotFit


def chain(layers: int) -> Net:
    net = Net()
    x = net.input(1, 4, 16, 8)
    for _ in range(layers):
        x = conv(net, x, 4, (3, 3))
    return net


def test_few_tokens_make_short_groups() -> None:
    net = chain(4)
    model = net.model(f"t{net.count}")
    options = anything(1, rolling=True)
    plenty = check(model, machine(tokens=64), "fp32", options).compiled
    few = check(model, machine(tokens=6), "fp32", options).compiled
    assert max(len(d.group.layers) for d in plenty.decisions) > 1
    assert len(few.program.tokens[0]) <= 6
    assert len(few.decisions) >= len(plenty.decisions)


def test_too_few_tokens_are_refused_with_their_sum() -> None:
    net = chain(2)
    model = net.model(f"t{net.count}")
    local = {"size": 1024, "banks": 1}
    with pytest.raises(DoesNotFit) as why:
        check(model, machine(tokens=1, local=local), "fp32", anything(1, rolling=True))
    assert "tokens of a core" in refused(why.value)
    assert [name for name, _ in why.value.terms] == ["full buffers", "empty buffers"]


def test_what_fits_nowhere_is_refused_with_its_sum() -> None:
    net = chain(2)
    model = net.model(f"t{net.count}")
    local = {"size": 64, "banks": 1, "bank_width": 16}
    with pytest.raises(DoesNotFit) as why:
        check(model, machine(local=local), "fp32")
    assert "local" in refused(why.value)
