"""Which layers form a group: every strategy on small networks, against all partitions; the order of
branches for the smallest peak of live bytes, against all orders.

The price is of the simplest kind: a fixed cost per group and the bytes that it moves; what passes
between its layers has to fit a small memory.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import pytest
from doubles import Moved, Priced
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import Part, bytes_held, bytes_moved, lines, network, shown
from machines import machine
from networks import Net

from compiler.api import CompileOptions, compile_model, prepared
from compiler.schedule.fusion.dependence import Dependences, dependences, made_by, members, union
from compiler.schedule.fusion.optimal import STRATEGIES, Optimal
from compiler.schedule.fusion.partition import PartitionCosts, Unfused
from compiler.schedule.fusion.reorder import by_need, chained, least_memory_order
from compiler.schedule_ir.group import Group
from compiler.tensor_ir.nest import HostNode, NestGraph

Price = Callable[[Group], float]
CHAIN = ("a = x", "b = a", "c = b", "d = c")
DIAMOND = ("a = x", "b = a", "c = a", "d = b c", "e = d")


def price(capacity: int = 1000, fixed: float = 5.0) -> Price:
    """A price of groups that hold at most `capacity` bytes."""

    def cycles(group: Group) -> float:
        return math.inf if bytes_held(group) > capacity else fixed + bytes_moved(group)

    return cycles


def cut(name: str, *text: str, capacity: int = 1000, **given: dict[str, int]) -> str:
    """The groups that strategy `name` makes of a network."""
    parts, graph = network(*text, **given)  # type: ignore[arg-type]
    return shown(STRATEGIES[name]().apply(parts, graph, Priced(price(capacity))))


def test_without_fusion_each_layer_is_a_group() -> None:
    assert cut("none", *CHAIN) == "{a} {b} {c} {d}"


@pytest.mark.parametrize("name", ["line", "branch", "branchx", "optimal"])
def test_a_memory_of_one_tensor_holds_pairs(name: str) -> None:
    assert cut(name, *CHAIN, capacity=10) == "{a b} {c d}"


def test_greedy_strategies_take_what_comes_first_and_the_optimum_what_pays_most() -> None:
    sizes = {"a": 10, "b": 30, "c": 10}
    assert cut("line", *CHAIN, capacity=30, sizes=sizes) == "{a b} {c d}"
    assert cut("optimal", *CHAIN, capacity=30, sizes=sizes) == "{a} {b c} {d}"


def test_a_line_has_no_branches() -> None:
    assert cut("line", *DIAMOND) == "{a b} {c d e}"  # d sees one tensor of each


def test_joining_that_costs_more_is_refused() -> None:
    def dear(group: Group) -> float:
        return 10.0 ** len(group.layers)

    parts, graph = network(*CHAIN)
    for strategy in STRATEGIES.values():
        assert shown(strategy().apply(parts, graph, Priced(dear))) == "{a} {b} {c} {d}"


def test_layers_that_fit_nowhere_stay_alone() -> None:
    parts, graph = network(*CHAIN)
    for strategy in STRATEGIES.values():
        groups = strategy().apply(parts, graph, Priced(lambda group: math.inf))
        assert shown(groups) == "{a} {b} {c} {d}"


def test_groups_never_wait_for_each_other() -> None:
    # {a1 a2} and {b1 b2} have no way out and back in, but each would wait for the other.
    parts, graph = network("a1 = x", "b1 = z", "a2 = a1 b1", "b2 = b1 a1")
    assert dependences(parts, graph).convex(0b0101)
    assert dependences(parts, graph).convex(0b1010)
    for name, strategy in STRATEGIES.items():
        groups = strategy(max_layers=2).apply(parts, graph, Priced(price()))
        sound(parts, graph, groups)
        assert {"{a1 a2}", "{b1 b2}"} - set(shown(groups).replace("} ", "}|").split("|")), name


def test_what_is_read_as_part_of_a_whole_goes_through_memory() -> None:
    places = {"a": ("y", 0), "b": ("y", 10), "y": ("y", 0)}
    text = ("p = x", "a = p", "q = x", "b = q", "z = y", "w = z")
    parts, graph = network(*text, sizes={"y": 20}, places=places)
    for name in STRATEGIES:
        groups = STRATEGIES[name]().apply(parts, graph, Priced(price()))
        sound(parts, graph, groups)
        home = {
            layer: group
            for group in groups
            if isinstance(group, Group)
            for layer in group.producer_positions
        }
        assert home["z"] is not home["a"]
        assert home["z"] is not home["b"]
        assert "a" in home["a"].results
    assert shown(STRATEGIES["line"]().apply(parts, graph, Priced(price()))) == "{p a} {q b} {z w}"


def test_slices_that_lie_in_turns_share_no_byte() -> None:
    parts, graph = network("a = x", "b = x", "c = odd", places={"a": ("y", 0), "odd": ("y", 1)})
    tensors = dict(graph.tensors)
    for name in ("a", "odd"):
        tensors[name] = replace(tensors[name], storage=replace(tensors[name].storage, strides=(2,)))
    apart = replace(graph, tensors=tensors, buffers={**graph.buffers, "y": 20})
    assert dependences(parts, graph).before[2] == 0b001
    assert dependences(parts, apart).before[2] == 0


def test_bytes_are_not_overwritten_before_they_are_read() -> None:
    parts, graph = network("a = x", "b = a", "c = x", places={"a": ("m", 0), "c": ("m", 5)})
    net = dependences(parts, graph)
    assert net.before[2] == 0b011
    assert not net.legal(0b110)


def test_legal_says_what_may_pass_on_chip() -> None:
    places = {"a": ("m", 0), "c": ("m", 10), "v": ("m", 5)}
    parts, graph = network("a = x", "c = x", "b = v", sizes={"m": 20}, places=places)
    assert dependences(*network(*CHAIN)).legal(0b1111)
    assert not dependences(parts, graph).legal(0b111)


def test_a_tensor_that_others_see_in_a_whole_does_not_stay_on_chip() -> None:
    # b reads what a wrote under its own name, but z needs the same bytes in the buffer.
    places = {"a": ("y", 0), "c": ("y", 10), "y": ("y", 0)}
    parts, graph = network("a = x", "b = a", "c = b", "z = y", sizes={"y": 20}, places=places)
    net = dependences(parts, graph)
    assert not net.legal(0b0011)
    assert net.legal(0b0110)
    assert not net.legal(0b1100)


def test_an_order_runs_down_one_branch_after_the_other() -> None:
    parts, graph = network("s = x", "a1 = s", "b1 = s", "a2 = a1", "b2 = b1", "y = a2 b2")
    assert chained(dependences(parts, graph)) == (0, 1, 3, 2, 4, 5)
    assert by_need(dependences(parts, graph)) == (0, 1, 3, 2, 4, 5)


def test_an_order_by_need_has_a_block_of_attention_side_by_side() -> None:
    """`v` is ready late on a branch of its own, which all blocks need."""
    lines = "s = x", "v = x", "a1 = s", "b1 = s", "a2 = a1 v", "b2 = b1 v", "y = a2 b2"
    parts, graph = network(*lines)
    assert chained(dependences(parts, graph)) == (0, 2, 3, 1, 4, 5, 6)
    assert by_need(dependences(parts, graph)) == (1, 0, 2, 4, 3, 5, 6)


def test_a_bound_spares_prices_and_changes_nothing() -> None:
    asked = []

    def watched(group: Group) -> float:
        asked.append(group)
        return price(capacity=20)(group)

    text = [f"t{i + 1} = t{i}" for i in range(20)]
    parts, graph = network(*text)
    without = Optimal().apply(parts, graph, Priced(watched))
    many = len(asked)
    asked.clear()
    bounded = Optimal().apply(parts, graph, Priced(watched, lambda g: 5.0 + bytes_moved(g)))
    assert shown(bounded) == shown(without)
    assert len(asked) < many <= 12 * len(text)


@settings(max_examples=60)
@given(lines(most=12, hosts=True), st.integers(0, 60), st.sampled_from(sorted(STRATEGIES)))
def test_every_strategy_is_sound(text: tuple[str, ...], capacity: int, name: str) -> None:
    parts, graph = network(*text)
    sound(parts, graph, STRATEGIES[name]().apply(parts, graph, Priced(price(capacity))))


@settings(max_examples=60)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=7), st.integers(0, 60))
def test_the_optimum_of_a_chain_is_that_of_all_partitions(made: list[int], capacity: int) -> None:
    text = [f"t{i + 1} = t{i}" for i in range(len(made))]
    sizes = {f"t{i + 1}": size for i, size in enumerate(made)}
    parts, graph = network(*text, sizes=sizes)
    cost = price(capacity)
    best = pytest.approx(cheapest(parts, graph, cost))
    assert total(Optimal(patience=9).apply(parts, graph, Priced(cost)), cost) == best
    bounded = Optimal(patience=9).apply(parts, graph, Priced(cost, lambda group: 0.9 * cost(group)))
    assert total(bounded, cost) == best


def test_the_optimum_of_small_networks_is_mostly_that_of_all_partitions() -> None:
    rng = random.Random(5)
    ratios = []
    for _ in range(60):
        text, sizes = drawn(rng)
        parts, graph = network(*text, sizes=sizes)
        cost = price(capacity=rng.randint(5, 100))
        found = total(Optimal().apply(parts, graph, Priced(cost)), cost)
        ratios.append(found / cheapest(parts, graph, cost))
        assert found <= total(STRATEGIES["none"]().apply(parts, graph, Priced(cost)), cost)
    assert min(ratios) >= 1 - 1e-9
    assert sum(ratio < 1 + 1e-9 for ratio in ratios) >= 50
    assert sum(ratios) / len(ratios) < 1.02


def test_two_groups_may_be_one_if_no_other_waits_between_them() -> None:
    parts, graph = network(*drawn(random.Random(5))[0])
    costs = PartitionCosts(net := dependences(parts, graph), Priced(lambda _: 1.0))
    for groups in filter(net.sequence, partitions(len(parts))):
        reads = {one: union(net.before[i] for i in members(one)) for one in groups}
        tied = (
            pair
            for pair in combinations(groups, 2)
            if any(reads[a] & (sum(pair) - a) for a in pair)
        )
        joined = ((pair, [*(set(groups) - {*pair}), sum(pair)]) for pair in tied)
        assert Optimal()._pairs(costs, groups) == [
            pair for pair, all_ in joined if net.sequence(all_)
        ]


def drawn(rng: random.Random) -> tuple[list[str], dict[str, int]]:
    """Four to six layers that each read one or two of the last four tensors, and their sizes."""
    names = ["x"]
    text = []
    for index in range(rng.randint(4, 6)):
        near = names[-4:]
        read = rng.sample(near, min(len(near), rng.randint(1, 2)))
        text.append(f"t{index} = {' '.join(read)}")
        names.append(f"t{index}")
    return text, {name: rng.randint(1, 40) for name in names[1:]}


def total(groups: tuple[Group | HostNode, ...], cost: Price) -> float:
    return sum(cost(group) for group in groups if isinstance(group, Group))


def cheapest(parts: tuple[Part, ...], graph: NestGraph, cost: Price) -> float:
    """Cost of the best of all partitions whose groups can run one after the other."""
    net = dependences(parts, graph)
    sums = (
        sum(cost(net.group(group)) for group in groups)
        for groups in partitions(len(parts))
        if net.sequence(groups) is not None
    )
    return min(sums)


def partitions(count: int) -> Iterator[list[int]]:
    """Every partition of `count` positions into sets."""
    if not count:
        yield []
        return
    for groups in partitions(count - 1):
        bit = 1 << (count - 1)
        yield [*groups, bit]
        for index, group in enumerate(groups):
            yield [*groups[:index], group | bit, *groups[index + 1 :]]


def sound(parts: tuple[Part, ...], graph: NestGraph, groups: tuple[Group | HostNode, ...]) -> None:
    """All parts once, in an order in which they can run; results are what others read."""
    flat = [x for g in groups for x in (g.layers if isinstance(g, Group) else (g,))]
    assert sorted(map(id, flat)) == sorted(map(id, parts))
    ran: set[str] = set()
    writers = {graph.tensors[n].storage.buffer: set[str]() for p in parts for n in made(p)}
    for part in parts:
        for name in made(part):
            writers[graph.tensors[name].storage.buffer].add(name)
    for part in flat:
        for name in part.inputs:
            assert writers.get(graph.tensors[name].storage.buffer, set()) <= ran
        ran.update(made(part))
    for group in groups:
        if isinstance(group, Group):
            assert set(group.results) == visible(parts, graph, group)


def visible(parts: tuple[Part, ...], graph: NestGraph, group: Group) -> set[str]:
    """What `group` makes that parts outside read, or that the network gives."""
    inside = {id(layer) for layer in group.layers}
    read = {name for part in parts if id(part) not in inside for name in part.inputs}
    buffers = {graph.tensors[name].storage.buffer for name in (*read, *graph.outputs)}
    return {
        name for name in group.producer_positions if graph.tensors[name].storage.buffer in buffers
    }


def made(part: Part) -> tuple[str, ...]:
    return part.outputs if isinstance(part, HostNode) else (part.result.name,)


@settings(max_examples=40)
@given(lines(most=10))
def test_a_line_is_straight(text: tuple[str, ...]) -> None:
    parts, graph = network(*text)
    for group in STRATEGIES["line"]().apply(parts, graph, Priced(price())):
        assert isinstance(group, Group)
        assert group.internal_readers == {
            first.result.name: (position + 1,)
            for position, (first, _) in enumerate(pairwise(group.layers))
        }


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


@pytest.mark.parametrize(("size", "layers"), [(4096, [1, 1]), (1 << 20, [2])])
def test_a_residual_is_cut_off_where_it_leaves_a_product_small_tiles(
    size: int, layers: list[int]
) -> None:
    """Of 64 x 512 by 512 x 64 the weights take 64 KiB, and tiles of sums with a residual and a
    result, two slots each, most of a memory of 4 KiB: operands are loaded more often."""
    net = Net()
    x = net.input(64, 512)
    y = net.op("Add", net.op("MatMul", x, net.weight(512, 64)), net.input(64, 64))
    arch = machine(types=("fp32",), local={"size": size})
    made = compile_model(prepared(net.model(y), "net"), arch, CompileOptions())
    found = [len(d.schedule.layers[0].layer.nests) for d in made.decisions]
    assert found == layers
