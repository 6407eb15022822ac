"""What to change about a machine first: rules over the account of its runs.

The one idea: a rule gives an upper bound on the share of time that a change can save *with the
same program*, from measured shares alone. Twice the rate of something halves the time it takes, so
it saves at most half of that; and no change saves more than what lies above the roofline, or above
DRAM and the busiest compute engine where it leaves these alone. What a rule has no figure for, it
does not say. A test doubles parts of real machines under the same programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from archgen.outcomes.columns import STALLS
from archgen.outcomes.frame import number
from archgen.report.account import Account
from archgen.report.sheet import listed, percent
from archgen.schema.rewritten import Fields, changed, scaled
from compiler import api
from simmodel.arch.record import Arch, LaneEngine, Matrix
from simmodel.arch.units import show_bytes

DEPTHWISE_TYPES = ("int8", "int32", "fp32")
"""What a vector engine needs for depthwise layers of integers."""
NOUNS = {
    "local": "local memory", "shared": "shared memory", "weights": "weight memory",
    "accumulators": "accumulators",
}  # fmt: skip
"""What memories on the chip are called, by role."""
_FULL = 0.5
"""Share of a memory above which a larger one may help: tiles come in halves and doubles."""
_NODES = 3
Verdict = tuple[float, str]
"""Share of the time that is saved at most, and the figures that this rests on."""


@dataclass(frozen=True)
class LeverRule:
    """A change, and its bound on one run."""

    title: str
    fields: Callable[[Arch], Fields] | None
    """What is set, nothing where the machine has no such part; None: the change is no field's."""
    judge: Callable[[Account], Verdict]
    how: str
    """How the bound follows from the figures."""
    same: Callable[[Arch], bool] = lambda arch: True
    """Whether the same program shows what the change brings; else it takes another one."""

    def on(self, arch: Arch) -> Fields:
        """What is set on `arch`."""
        return {} if self.fields is None else self.fields(arch)


def _bandwidth(account: Account) -> Verdict:
    gain = min(account.dram / 2, 1 - max(account.compute, account.flash))
    waits = account.waiting("data", "store", "bandwidth")
    return gain, (
        f"DRAM's bytes take {percent(account.dram)} of the time at its peak rate; matrix engines "
        f"wait {percent(waits)} for loads, stores and bandwidth"
    )


def _flash(account: Account) -> Verdict:
    """What is left where constants come twice as fast."""
    gain = min(account.flash / 2, 1 - max(account.compute, account.dram))
    return gain, f"flash's bytes take {percent(account.flash)} of the time at its peak rate"


def _latency(account: Account) -> Verdict:
    waits = account.waiting("data", "store", "fill")
    return min(waits, account.idle), (
        f"matrix engines wait {percent(waits)} for data, stores and the first fill, while DRAM "
        f"is at its peak rate {percent(account.dram)} of the time"
    )


def _room(role: str, account: Account) -> Verdict:
    size = account.point.arch.memories.on_chip()[role].size
    peak = account.point.get(f"peak_{role}_bytes")
    if not peak > _FULL * size:
        return 0.0, ""
    waits = account.waiting("data", "store", "bandwidth")
    said = (
        f"{show_bytes(peak)} of {show_bytes(size)} {NOUNS[role]} in use at the peak; matrix "
        f"engines wait {percent(waits)} for loads, stores and bandwidth"
    )
    if role == "accumulators":  # larger products are fewer
        again = max(0.0, account.share("matrix") - account.macs)
        waits += again
        said += f" and compute {percent(again)} of the time beyond what the MACs take at peak"
    return min(waits, account.slack), said


def _computing(account: Account) -> str:
    where = " of the busiest core" if account.point.arch.core_count > 1 else ""
    return f"matrix engines{where} compute {percent(account.share('matrix'))} of the time"


def _array_verdict(account: Account) -> Verdict:
    share = account.share("matrix")
    reached = account.macs / share if share > 0 else 0.0
    # Twice the array at most halves the time it computes; DRAM and other engines stay.
    return min(share / 2, account.beside("matrix")), (
        f"{_computing(account)}, at {percent(reached)} of their peak"
    )


def _beside_verdict(name: str, account: Account) -> Verdict:
    """Twice an engine of `engines`."""
    share = account.share(name)
    return min(share / 2, account.beside(name)), f"{name} computes {percent(share)} of the time"


def _fit(part: float, account: Account) -> Verdict:
    """Of a change that takes off `part` of what matrix engines compute beyond their peak."""
    share = account.share("matrix")
    gain = min(part * (share - account.macs), account.beside("matrix"), account.slack)
    worst = [f"{name} {percent(lost)}" for name, lost in account.worst_fit(_NODES)]
    return gain, (
        f"{_computing(account)}; at their peak the MACs would "
        f"take {percent(account.macs)}" + (f". Most is lost at {listed(worst)}" if worst else "")
    )


def _vector(account: Account) -> Verdict:
    share, waits = account.share("vector"), account.waiting("engine")
    return min(share / 2, account.beside("vector")), (
        f"vector engines compute {percent(share)} of the time; matrix engines wait "
        f"{percent(waits)} for other engines"
    )


def _front_end(account: Account) -> Verdict:
    waits, meaning = account.waiting("front_end"), STALLS["front_end"].meaning
    return min(waits, account.idle), f"matrix engines wait {percent(waits)}: {meaning}"


def _conflict(role: str, account: Account) -> Verdict:
    stalls = (number(row, "stall_conflict_cycles", 0.0) for row in account.layers)
    waits = sum(stalls) / account.time  # of all engines, as a mean over cores
    used, banks = account.memories[role], account.point.arch.memories.on_chip()[role].banks
    # At worst all bytes lie in one bank, whose streams wait for nothing else.
    return min(waits, account.idle, used * banks), (
        f"all engines together wait {percent(waits)} of the time for ports and banks of "
        f"memories on the chip; what passes {NOUNS[role]} takes {percent(used)} of it at the "
        "rate of all banks"
    )


def _cores(account: Account) -> Verdict:
    # Twice the cores at most halve the time that engines compute; DRAM stays.
    far = account.point.arch.memories.far_name("dram")
    return min(account.compute / 2, 1 - account.dram), (
        f"the busiest compute engines work {percent(account.compute)} of the time; bytes of {far} "
        f"take {percent(account.dram)} of it at its peak rate"
    )


def _host_verdict(part: float, account: Account) -> Verdict:
    """Of a change that takes off `part` of the host's time, or all that operators take there."""
    share, on_host = account.share("host"), account.on_host()
    said = f"runs {listed(on_host)}" if on_host else "prepares inferences"
    gain = min(part * share, account.idle) if on_host or part < 1 else 0.0
    return gain, f"the host {said} in {percent(share)} of the time"


def _copy(name: str, account: Account) -> Verdict:
    """Twice the rate of a copy engine; DRAM may hold it back before."""
    arch, share = account.point.arch, account.share(name)
    engine, dram = arch.copy_[name], arch.dram_bytes_per_cycle
    rate = engine.bandwidth.at(arch.clock)
    bound = dram if "dram" in (engine.from_ + engine.to) else 2 * rate
    saved = max(0.0, 1 - rate / min(2 * rate, bound))  # new time over old is old rate over new
    said = f"{name} is busy at its own full rate {percent(share)} of the time"
    return min(share * saved, account.idle), said


def _link(name: str, account: Account) -> Verdict:
    share = account.links[name]
    said = f"its busiest part is used {percent(share)} of the time"
    return min(share / 2, account.idle), said


def _times(factors: Mapping[str, float]) -> Callable[[Arch], Fields]:
    return lambda arch: {k: v for each in factors.items() for k, v in scaled(arch, *each).items()}


def _double(*names: str) -> Callable[[Arch], Fields]:
    return _times(dict.fromkeys(names, 2))


def _matrix_with(name: str) -> Callable[[Arch], Fields]:
    """What its matrix engine can do, where it has one that cannot."""
    return lambda arch: (
        {f"matrix.{name}": True} if arch.matrix.present and not getattr(arch.matrix, name) else {}
    )


def _never_same(arch: Arch) -> bool:
    return False


def _tokens(arch: Arch) -> Fields:
    return _double("front_end.tokens")(arch) if arch.front_end.sync == "tokens" else {}


def _semaphores(account: Account) -> Verdict:
    """Of more of them, where most are taken, or cores have too few to hand each other results."""
    arch = account.point.arch
    have, other = arch.front_end.tokens, changed(arch, _tokens(arch))
    between = api.between_cores
    apart = other is not None and between(other) is not None and not between(arch)
    if not (account.tokens > _FULL * have or apart):
        return 0.0, ""
    waits = account.waiting("data", "store", "engine", "core")
    taken = "so few that cores hand each other no results" if apart else (
        f"{account.tokens:g} of {have} tokens of a core in use"
    )  # fmt: skip
    return min(waits, account.slack), (
        f"{taken}; matrix engines wait {percent(waits)} for loads, stores, other engines and cores"
    )


def _no_bound(account: Account) -> Verdict:
    return 0.0, ""  # as it takes another program, there is no bound


_enable_depthwise = _matrix_with("depthwise")


def _types(arch: Arch) -> Fields:
    """Those that depthwise layers of integers take, where an instruction covers more than a row."""
    lacks = [name for name in DEPTHWISE_TYPES if not arch.vector.has(name)]
    able = arch.vector.rank > 1 and bool(lacks) and bool(_enable_depthwise(arch))
    return {"vector.types": [*arch.vector.types, *lacks]} if able else {}


_WAITS = "those waits; DRAM and the busiest compute engine remain"
_FEW = "those waits, as far as they lie above the roofline; judged where tokens are few"
_PARTS = (("banks", "banks"), ("bank_width", "bank width"))
_ROOM = "those waits, as far as they lie above the roofline; judged where more than half is in use"
_BEYOND = "the time that matrix engines compute beyond what the MACs take at peak"
_OWN = "half of the engine's own time; compute engines and DRAM remain"
_BYTES = "half of the time that its bytes take; DRAM and compute engines remain"
_HOST = "the host's own time; DRAM and the busiest compute engine remain"
_LATE = (
    "those waits, of which latency, start-ups and the order of transfers have a part; DRAM and the "
    "busiest compute engine remain"
)
_FAR_TWICE = _double("memories.dram.bandwidth")
_HALF_LATE = _times({"memories.flash.latency": 0.5, "memories.dram.latency": 0.5})
_ARRAY = {"rows": "rows", "cols": "columns", "depth": "depth"}
_HALF = "half of the time that matrix engines compute; DRAM and other engines remain"
DEPTHWISE = (
    LeverRule("depthwise products on the array", _enable_depthwise, _no_bound, "", _never_same),
    LeverRule(
        "types for depthwise layers on the vector engine", _types, _no_bound, "", _never_same
    ),
)
"""Changes that make another program; `archgen.report.levers` estimates what they bring."""
SHAPES = tuple(
    LeverRule(
        f"twice the {noun} of the array",
        _double(f"matrix.{field}"),
        _array_verdict,
        _HALF,
        # Instructions that cover layers, not one array's worth, run on a wider one as they are.
        lambda arch: arch.matrix.granularity != "tile",
    )
    for field, noun in _ARRAY.items()
)
RULES = (
    LeverRule("twice the DRAM bandwidth",
         lambda arch: {} if arch.memories.dram.on_chip else _FAR_TWICE(arch), _bandwidth,
         "half of the time that the bytes take at peak rate; the busiest compute engine remains"),
    LeverRule("twice the flash bandwidth", _double("memories.flash.bandwidth"), _flash,
         "half of the time that constants take at peak rate; DRAM and the busiest engine remain"),
    LeverRule("half the DRAM latency, as more requests in flight or loads further ahead would hide "
         "it",
         lambda arch: {} if arch.memories.flash or arch.memories.dram.on_chip else
         scaled(arch, "memories.dram.latency", 0.5),
         _latency, _LATE),
    LeverRule("half the latency of flash and DRAM, as more requests in flight would hide it",
         lambda arch: _HALF_LATE(arch) if arch.memories.flash else {}, _latency, _LATE),
    *SHAPES,
    *DEPTHWISE,
    LeverRule("half the start-up of the matrix engine", _times({"matrix.startup": 0.5}),
         partial(_fit, 0.5), f"half of {_BEYOND}"),
    LeverRule("im2col in the matrix engine", _matrix_with("im2col"), partial(_fit, 1), _BEYOND),
    LeverRule("a matrix engine that fits the layers: shape, granularity", None,
         partial(_fit, 1), _BEYOND),
    LeverRule("twice the vector lanes", _double("vector.lanes"), _vector,
         "half of the time that vector engines compute; DRAM and other engines remain"),
    LeverRule("a quicker front end: twice the issue width and deeper queues",
         _double("front_end.issue_width", "front_end.queue_depth"), _front_end, _WAITS),
    LeverRule("twice the rate of fetching instructions", _double("front_end.fetch_bandwidth"),
         _front_end, _WAITS),
    LeverRule("twice the tokens", _tokens, _semaphores, _FEW, _never_same),
    LeverRule("twice the cores", _double("cores"), _cores,
         "half of the time that the busiest compute engines work; DRAM remains", _never_same),
    LeverRule("a host twice as quick, at half the latency",
         _times({"host.compute": 2, "host.latency": 0.5, "host.per_inference": 0.5}),
         partial(_host_verdict, 0.5), f"half of {_HOST}"),
    LeverRule("twice the bandwidth of the host", _double("host.bandwidth"),
         partial(_host_verdict, 0.5), f"half of {_HOST}"),
    LeverRule("the host's operators on the machine", None, partial(_host_verdict, 1),
         _HOST),
)  # fmt: skip


def _covers_layers(engine: LaneEngine | Matrix, arch: Arch) -> bool:
    """Whether instructions for an engine run on a wider one as they are."""
    return not isinstance(engine, Matrix) or engine.granularity != "tile"


def rules_for(arch: Arch) -> list[LeverRule]:
    """Those of `RULES` that say something of `arch`, and some for each of its memories on the chip,
    copy engines and links."""
    memories = arch.memories.on_chip()
    found = [*RULES]
    for name, engine in arch.engines_.items():
        wider = _ARRAY if isinstance(engine, Matrix) else {"lanes": "lanes"}
        for part, noun in wider.items():
            found.append(LeverRule(
                f"twice the {noun} of {name}", _double(f"engines.{name}.{part}"),
                partial(_beside_verdict, name), _OWN,
                partial(_covers_layers, engine),
            ))  # fmt: skip
    for role in memories:
        size, room = _double(f"memories.{role}.size"), partial(_room, role)
        found.append(LeverRule(f"twice the {NOUNS[role]}", size, room, _ROOM, _never_same))
        for part, noun in _PARTS:
            fields, conflict = _double(f"memories.{role}.{part}"), partial(_conflict, role)
            found.append(LeverRule(f"twice the {noun} of {NOUNS[role]}", fields, conflict, _WAITS))
    for name in arch.copy_:
        rate, title = _double(f"copy.{name}.bandwidth"), f"twice the rate of copy engine {name}"
        found.append(LeverRule(title, rate, partial(_copy, name), _OWN))
    for name in arch.links:
        rate, title = _double(f"links.{name}.bandwidth"), f"twice the bandwidth of link {name}"
        found.append(LeverRule(title, rate, partial(_link, name), _BYTES))
    return [rule for rule in found if rule.fields is None or rule.fields(arch)]
