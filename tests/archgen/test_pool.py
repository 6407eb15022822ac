"""Which point is begun next: the program of a range is made by one worker, and kept in use."""

from __future__ import annotations

from concurrent.futures import Future

from archgen.models.extents import SizeRange
from archgen.outcomes.points import Outcome, Point
from archgen.process.steps import ProcessStep
from archgen.schema import load_arch
from archgen.studies.workers import run_points

ARCH = load_arch("mcu-npu")


def bucket(name: str, *sizes: int) -> list[Point]:
    """Points of one range."""
    span = (("rows", SizeRange(1, 9)),)
    return [
        Point(f"{name}{size}", ARCH, name, size, "int8", (("rows", size),), span) for size in sizes
    ]


class Benches:
    """Workers of a test: of the points that are under way, the one begun first is done first."""

    def __init__(self, count: int) -> None:
        self.has: list[Point | None] = [None] * count
        self.under: dict[Future[Outcome], tuple[int, Point]] = {}
        self.begun: list[str] = []

    def room(self) -> int:
        return len(self.has)

    def at_hand(self) -> list[Point]:
        busy = {number for number, _ in self.under.values()}
        return [has for n, has in enumerate(self.has) if n not in busy and has is not None]

    def submit(self, point: Point) -> Future[Outcome]:
        busy = {number for number, _ in self.under.values()}
        free = [n for n in range(len(self.has)) if n not in busy]
        number = min(free, key=lambda n: self.has[n] != point.range_point)
        made = "+" if self.has[number] != point.range_point else ""
        self.begun.append(f"{point.key}{made}")
        self.has[number] = point.range_point
        future: Future[Outcome] = Future()
        self.under[future] = number, point
        return future

    def at(self, future: Future[Outcome]) -> ProcessStep | None:
        if future is next(iter(self.under)):
            _, point = self.under.pop(future)
            future.set_result(Outcome(point.key, point.key, {"status": "ok"}))
        return None

    def abandon(self, future: Future[Outcome]) -> None:
        raise AssertionError(future)

    def close(self) -> None:
        """Nothing is open."""


def begun(points: list[Point], count: int) -> str:
    """The points as they were begun; + where a worker had to make the program."""
    benches = Benches(count)
    outcomes = list(run_points(points, benches))
    assert sorted(each.key for each in outcomes) == sorted(point.key for point in points)
    return " ".join(benches.begun)


def test_one_worker_makes_the_program_of_a_range() -> None:
    points = bucket("a", 1, 2, 3) + bucket("b", 1, 2)
    assert begun(points, 2) == "a1+ b1+ a2 b2 a3"


def test_one_worker_alone_goes_from_range_to_range() -> None:
    mixed = [*bucket("a", 1), *bucket("b", 1), *bucket("a", 2), *bucket("b", 2)]
    assert begun(mixed, 1) == "a1+ a2 b1+ b2"


def test_others_wait_for_the_first_point_of_a_range_and_then_help() -> None:
    assert begun(bucket("a", 1, 2, 3, 4), 3) == "a1+ a2 a3 a4+"


def test_points_without_ranges_keep_their_order() -> None:
    alone = [Point(name, ARCH, name, 1, "int8") for name in "xyz"]
    assert begun(alone, 2) == "x y z"
    assert begun([*alone, *bucket("a", 1, 2)], 2) == "x y z a1+ a2"
