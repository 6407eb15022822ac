"""Sharing of bandwidth: fairness of one moment, and the fabric against a plain fluid simulation."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest

from simmodel.machine.fabric import Fabric, fill
from simmodel.machine.flow import ROUNDING, Flow, Resource
from simmodel.machine.queue import Clock
from simmodel.trace import BANDWIDTH


def crowd(
    demands: list[dict[str, float]], limits: dict[str, float]
) -> tuple[list[Flow], dict[str, Resource]]:
    """Flows with these demands, entered at resources with these limits."""
    env = Clock()
    resources = {name: Resource(env, name, limit, BANDWIDTH) for name, limit in limits.items()}
    flows = []
    for demand in demands:
        flow = Flow()
        flow.usage = tuple((resources[name], amount) for name, amount in demand.items())
        for resource, amount in flow.usage:
            resource.flows[flow] = amount
            resource.load += amount
        flows.append(flow)
    return flows, resources


def speeds(demands: list[dict[str, float]], limits: dict[str, float]) -> list[float]:
    """Speed of each flow when all of them run."""
    flows, resources = crowd(demands, limits)
    for flow in flows:
        flow.narrow = tuple(use for use in flow.usage if use[0].crowded)
    binding, levels = fill(flows, [r for r in resources.values() if r.crowded])
    return [
        levels[binding[flow]] / binding[flow].flows[flow] if flow in binding else 1.0
        for flow in flows
    ]


def test_equal_bytes_not_equal_speed() -> None:
    # 12 B/cycle for one that could use 8 and one that could use 16: 6 each.
    assert speeds([{"r": 8}, {"r": 16}], {"r": 12}) == [6 / 8, 6 / 16]


def test_what_one_leaves_the_others_share() -> None:
    # Of 12 the first takes its 2, the others 5 each.
    assert speeds([{"r": 2}, {"r": 10}, {"r": 20}], {"r": 12}) == [1.0, 0.5, 0.25]


def test_two_bottlenecks() -> None:
    # q gives 2 to the first of its two; so r has 10 left for the third.
    found = speeds([{"r": 10, "q": 10}, {"q": 10}, {"r": 20}], {"r": 12, "q": 4})
    assert found == [0.2, 0.2, 0.5]


def test_each_bottleneck_for_another_flow() -> None:
    # r and q offer 5 to each: half speed for both, by different resources. q comes first by name
    # and settles the second flow at 5 B/cycle, 2 of them through r. The first flow gets the other
    # 8 of r, 3.2 of them through q.
    found = speeds([{"r": 10, "q": 4}, {"r": 4, "q": 10}], {"r": 10, "q": 10})
    assert found == [0.8, 0.5]


@pytest.mark.parametrize("seed", range(60))
def test_shares_are_feasible_and_fair(seed: int) -> None:
    dice = random.Random(seed)
    names = "abcd"
    limits = {name: float(dice.randrange(4, 40)) for name in names}
    demands = []
    for _ in range(dice.randrange(1, 12)):
        amount = float(dice.randrange(1, 30))
        demands.append({name: amount for name in names if dice.random() < 0.5})
    found = speeds(demands, limits)
    load = {
        name: sum(s * d.get(name, 0) for s, d in zip(found, demands, strict=True)) for name in names
    }
    assert all(load[name] <= limits[name] * (1 + 1e-6) for name in names)
    for speed, demand in zip(found, demands, strict=True):
        if speed == 1.0:
            continue
        # Somewhere it is held back: a full resource in which nobody moves more than it does.
        rates = [s * max(d.values(), default=0) for s, d in zip(found, demands, strict=True)]
        assert any(
            load[name] >= limits[name] * (1 - 1e-6)
            and speed * amount
            >= max(r for r, d in zip(rates, demands, strict=True) if name in d) - 1e-6
            for name, amount in demand.items()
        )


@dataclass
class Job:
    """One flow of the comparison: when it starts, its work, what it uses."""

    start: int
    length: float
    demand: dict[str, float]


def random_jobs(dice: random.Random, names: str) -> list[Job]:
    jobs = []
    for _ in range(dice.randrange(2, 25)):
        demand = {name: float(dice.randrange(1, 12)) for name in names if dice.random() < 0.6}
        jobs.append(Job(dice.randrange(0, 60), float(dice.randrange(1, 50)), demand))
    return jobs


def by_fabric(jobs: list[Job], limits: dict[str, float]) -> list[int]:
    """Ends of all jobs, by the machine's fabric."""
    env = Clock()
    resources = {name: Resource(env, name, limit, BANDWIDTH) for name, limit in limits.items()}
    fabric = Fabric(env)
    ends = [0] * len(jobs)

    def run(index: int, job: Job):  # type: ignore[no-untyped-def]
        yield env.timeout(job.start)
        flow = Flow()
        usage = tuple((resources[name], amount) for name, amount in job.demand.items())
        yield fabric.start(flow, usage, job.length, env.now)
        fabric.end(flow, env.now)
        ends[index] = env.now

    for index, job in enumerate(jobs):
        env.process(run(index, job))
    env.run()
    return ends


def by_steps(jobs: list[Job], limits: dict[str, float]) -> list[int]:
    """Ends of all jobs, by computing every speed anew after each start and end."""
    left = {i: job.length for i, job in enumerate(jobs)}
    ends = [0] * len(jobs)
    now = 0
    while left:
        running = [i for i in left if jobs[i].start <= now]
        rate = dict(zip(running, speeds([jobs[i].demand for i in running], limits), strict=True))
        starts = [jobs[i].start for i in left if jobs[i].start > now]
        due = [now + max(0, math.ceil(left[i] / rate[i] - ROUNDING)) for i in running]
        step = min(starts + due) - now
        for i in running:
            left[i] -= step * rate[i]
        now += step
        for i in [i for i in running if left[i] <= ROUNDING]:
            ends[i] = now
            del left[i]
    return ends


@pytest.mark.parametrize("seed", range(80))
def test_fabric_agrees_with_plain_fluid_simulation(seed: int) -> None:
    dice = random.Random(seed)
    names = "a" if seed % 2 else "abc"
    limits = {name: float(dice.randrange(6, 30)) for name in names}
    jobs = random_jobs(dice, names)
    assert by_fabric(jobs, limits) == by_steps(jobs, limits)
