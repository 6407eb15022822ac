"""The order of branches for the smallest peak of live bytes, against all orders."""

from __future__ import annotations

from itertools import permutations

from doubles import Moved
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import lines, network, shown
from machines import machine

from compiler.schedule.fusion.dependence import Dependences, dependences, made_by
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.fusion.reorder import least_memory_order


def named(net: Dependences, positions: tuple[int, ...]) -> str:
    return " ".join(name for i in positions for name in made_by(net.parts[i]))


def net_of(*text: str, **sizes: int) -> Dependences:
    return dependences(*network(*text, sizes=sizes))


def test_one_large_result_at_a_time() -> None:
    net = net_of("a = x", "b = x", "c = a", "d = b", "y = c d", a=100, b=100)
    order = least_memory_order(net)
    assert named(net, order.positions) == "a c b d y"
    assert order.peak == 120  # c waits while d reads b


def test_the_branch_that_leaves_less_runs_first() -> None:
    net = net_of("s = x", "a = s", "b = s", "c = a", "d = b", "y = c d", c=50, a=60, b=90, d=5)
    order = least_memory_order(net)
    assert named(net, order.positions) == "s b d a c y"
    assert order.peak == 115  # d waits while c reads a; the other way round c and d wait for b: 150


def test_what_is_written_into_a_whole_lives_until_the_whole_is_read() -> None:
    places = {"a": ("y", 0), "b": ("y", 10), "y": ("y", 0)}
    net = dependences(*network("a = x", "b = x", "z = y", sizes={"y": 20}, places=places))
    assert least_memory_order(net).peak == 30  # a, b and z


def test_networks_too_wide_for_an_exact_answer_still_get_a_better_order() -> None:
    heads = [f"h{i} = s" for i in range(20)]
    tails = [f"t{i} = h{i}" for i in range(20)]
    sizes = {"s": 1, "y": 1} | {f"h{i}": 50 + 7 * i % 40 for i in range(20)}
    sizes |= {f"t{i}": 1 + 11 * i % 30 for i in range(20)}
    join = "y = " + " ".join(f"t{i}" for i in range(20))
    net = net_of("s = x", *heads, *tails, join, **sizes)
    order = least_memory_order(net, 16)
    assert order.peak < 0.6 * peak_of(net, tuple(range(42)))
    assert order.peak == peak_of(net, order.positions)


@settings(max_examples=50)
@given(lines(most=7), st.lists(st.integers(1, 40), min_size=7, max_size=7))
def test_the_peak_is_that_of_the_best_of_all_orders(text: tuple[str, ...], made: list[int]) -> None:
    net = net_of(*text, **{f"t{i}": size for i, size in enumerate(made)})
    order = least_memory_order(net)
    every = permutations(range(len(text)))
    assert order.peak == min(peak_of(net, o) for o in every if runs(net, o))
    assert order.peak == peak_of(net, order.positions)
    assert runs(net, order.positions)


@settings(max_examples=50)
@given(lines(most=9), st.lists(st.integers(1, 40), min_size=9, max_size=9), st.integers(1, 3))
def test_a_narrow_search_never_makes_it_worse(
    text: tuple[str, ...], made: list[int], width: int
) -> None:
    net = net_of(*text, **{f"t{i}": size for i, size in enumerate(made)})
    order = least_memory_order(net, width)
    assert runs(net, order.positions)
    assert peak_of(net, order.positions) == order.peak <= peak_of(net, tuple(range(len(text))))


def runs(net: Dependences, order: tuple[int, ...]) -> bool:
    """Whether every part comes after what it needs."""
    done = 0
    for part in order:
        if net.before[part] & ~done:
            return False
        done |= 1 << part
    return True


def peak_of(net: Dependences, order: tuple[int, ...]) -> int:
    """Most bytes at once, by looking at every moment of every tensor's life."""
    moment = {part: time for time, part in enumerate(order)}
    bytes_at = [0] * len(order)
    for part in order:
        for size, readers in net.results[part]:
            last = max((moment[i] for i in order if readers >> i & 1), default=moment[part])
            for time in range(moment[part], last + 1):
                bytes_at[time] += size
    return max(bytes_at)


def test_groups_run_in_the_order_that_was_found() -> None:
    # Listed side by side, a and b would both wait; one branch after the other needs half of that.
    text = ("a = x", "b = x", "c = a", "d = b", "y = c d")
    parts, graph = network(*text, sizes={"a": 100, "b": 100})
    apart = Unfused().apply(parts, graph, Moved(machine()))
    assert shown(apart) == "{a} {c} {b} {d} {y}"
