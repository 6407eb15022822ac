"""Random machines over the whole schema, as the tree that a file would hold.

The one idea: every field is drawn from a few values that are usual and a few that hurt; trees that
contradict themselves by the rules of `simmodel.arch_rules` are drawn again. A memory that is there
is reached: by the engines that are there, or by engines of its own, or through another memory.
"""

from __future__ import annotations

import random
from typing import Any

from pydantic import ValidationError

from simmodel.arch.record import Arch
from simmodel.arch_rules import problems

Tree = dict[str, Any]
KIB = 1024
TYPES = (
    ["int8"], ["int8"], ["int8", "fp16"], ["fp16"], ["fp32"], ["bf16"], ["fp16", "int8"],
    ["fp32", "int8", "fp16"], ["bf16", "int8"], ["int8", "int16"],
)  # fmt: skip
SCOPES = ("chip", "cluster", "core")
MANY = (2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 12, 13, 16, 16, 17, 24, 31, 32)
"""Cores of a machine with many: powers of two, and what divides badly."""
BLOCKS = ("mxfp8", "mxfp6", "mxfp4", "mxint8", "bfp8")
STORED = ("int8", "uint8", "int16", "int32", "fp16", "bf16", "fp32")


def machine(rng: random.Random, name: str, many: bool = False) -> Tree:
    """A machine that passes every rule; of `MANY` cores if `many`."""
    while True:
        tree = _machine(rng, name)
        if many:
            _of_many_cores(rng, tree)
        if is_machine(tree):
            return tree


def is_machine(tree: Tree) -> bool:
    """Whether every field is legal, and none contradicts another."""
    try:
        return not problems(Arch.model_validate(tree))
    except ValidationError:
        return False


def _some(rng: random.Random, chance: float, **fields: Any) -> Tree:
    """Each field with this chance; what is not drawn is left to its default."""
    return {name: value for name, value in fields.items() if rng.random() < chance}


def _machine(rng: random.Random, name: str) -> Tree:
    pick = rng.choice
    types = list(pick(TYPES))
    memories = _memories(rng)
    matrix = _matrix(rng, types, memories)
    tree: Tree = {
        "name": name, "clock": pick(["1 GHz", "333 MHz", "700 MHz"]), "types": types,
        "clusters": pick([1, 1, 1, 2, 3]), "cores": pick([1, 1, 1, 2, 3, 4, 8]),
        "memories": memories, "matrix": matrix, "vector": _vector(rng, types, memories, matrix),
    }  # fmt: skip
    tree["copy"] = _copies(rng, memories, matrix, tree["vector"])
    tree |= _some(rng, 0.2, scalar={"startup": pick(["1 cycle", "5 cycles"])})
    tree |= _some(rng, 0.3, host={"compute": "1 GOPS", "bandwidth": "2 GB/s", "latency": "1 us"})
    if rng.random() < 0.35:
        tree["links"] = _links(rng, tree["copy"])
    if rng.random() < 0.8:
        tree["front_end"] = _front_end(rng, list(tree["copy"]))
    _reach_several(random.Random(f"several {name}"), tree)
    _of_equal_engines(random.Random(f"equal {name}"), tree)
    _of_functions(random.Random(f"functions {name}"), tree)
    _of_products(random.Random(f"products {name}"), tree)
    _off_chip(random.Random(f"off chip {name}"), tree)
    return tree


def _of_products(rng: random.Random, tree: Tree) -> None:
    """A second array, unlike the first one; Winograd, structured sparsity, blocks with a scale."""
    pick, types, matrix = rng.choice, tree["types"], tree.get("matrix")
    if matrix is None:
        return
    arrays = [matrix]
    if rng.random() < 0.2:
        second = _matrix(rng, types, tree["memories"]) | _some(rng, 0.25, units=2)
        tree.setdefault("engines", {})["second"] = second
        arrays.append(second)
    for array in arrays:
        if "writeback" in array and rng.random() < 0.4:
            array["writeback"].append("add")
        able = array["kind"] == "cube" and array["granularity"] == "conv" and "int8" in types
        if able and rng.random() < 0.4:
            array["winograd"] = {"outputs": pick([2, 4])} | _some(
                rng, 0.5, channels=pick([1, 4]), stored=True
            )
    if rng.random() < 0.1:
        sparse = [kind for kind in types if kind in ("int8", "fp16", "bf16")]
        matrix["rate"] |= {f"{kind}_2of4": 2 * matrix["rate"][kind] for kind in sparse}
    reals = [kind for kind in types if kind in ("fp16", "bf16")]
    if reals and rng.random() < 0.3:
        blocks = pick(BLOCKS)
        matrix["rate"] |= {f"{kind}_{blocks}": matrix["rate"][kind] for kind in reals}
        if rng.random() < 0.7:
            matrix["rate"][blocks] = pick([0.5, 1, 2])
            tree["vector"]["types"].append(blocks)


def _off_chip(rng: random.Random, tree: Tree) -> None:
    """Constants in flash, all of the network in shared memory, or a grid between cores and DRAM."""
    pick, memories, copies, chance = rng.choice, tree["memories"], tree["copy"], rng.random()
    if chance < 0.06:
        memories["flash"] = {"size": "64 MiB", "bandwidth": pick(["1 B/cycle", "8 B/cycle"])}
        memories["flash"] |= _some(rng, 0.5, latency="64 cycles", burst=pick([16, 128]))
        for engine in [each for each in copies.values() if "dram" in each["from"]]:
            engine["from"] = [*engine["from"], "flash"]
    elif chance < 0.12 and "shared" not in memories:
        memories["dram"] = {  # as a file without DRAM has it
            "size": "4 MiB", "bandwidth": pick(["16 B/cycle", "256 B/cycle"]), "burst": 16,
            "channels": 16, "on_chip": True,
        }  # fmt: skip
        tree |= {"host": {"bandwidth": "2 GB/s", "latency": "1 us"}, "energy": {"dram": "sram"}}
    elif chance < 0.2 and tree["clusters"] * tree["cores"] in (4, 8):
        peers = [n for n, each in copies.items() if "dram" in {*each["from"], *each["to"]}]
        ends = copies[pick(peers)] if peers else {"from": ["dram"], "to": ["local"]}
        tree["links"] = {"grid": {
            "from": list(ends["from"]), "to": list(ends["to"]), "bandwidth": "16 B/cycle",
            "topology": pick(["mesh", "torus"]), "ports": pick([[0], [0, 3]]),
            "shape": [2, tree["clusters"] * tree["cores"] // 2],
            "latency": pick(["0 cycles", "9 cycles"]),
        }}  # fmt: skip


def _of_functions(rng: random.Random, tree: Tree) -> None:
    """An engine for functions beside the vector engine, functions in tables, chains of two."""
    pick, vector = rng.choice, tree["vector"]
    if rng.random() < 0.3:
        forms = pick(["vector.unary.*", ["vector.unary.*", "vector.binary.*"]])
        own = {key: vector[key] for key in ("types", "reads", "rank") if key in vector}
        special = own | {"lanes": pick([1, 8, 16, 64]), "forms": forms}
        tree["engines"] = {"special": special | _some(
            rng, 0.5, startup=pick(["1 cycle", "20 cycles"]),
            cost={"simple": 1, "multiply": pick([0.5, 2]), "divide": 2, "special": 1},
        )}  # fmt: skip
    if rng.random() < 0.25:
        vector["table"] = pick(["1 cycle", "64 cycles"])
        if "writeback" in tree.get("matrix", {}) and rng.random() < 0.5:
            tree["matrix"]["writeback"].append("table")
    if rng.random() < 0.25:
        chains = ["add_mul", "add_add", "sub_mul", "mul_mul"]
        tree["isa"] = {"chains": rng.sample(chains, rng.randrange(1, len(chains) + 1))}


def _of_equal_engines(rng: random.Random, tree: Tree) -> None:
    """Several engines of a kind, products on the vector engine, and no array beside it."""
    for kind in ("matrix", "vector"):
        tree[kind] |= _some(rng, 0.25, units=rng.choice([2, 2, 3, 5]))
    tree["vector"] |= _some(rng, 0.25, product_rows=rng.choice([1, 2, 8]))
    if rng.random() < 0.15 and not {"weights", "accumulators"} & {*tree["memories"]}:
        del tree["matrix"]


def _reach_several(rng: random.Random, tree: Tree) -> None:
    """Loads or copies between cores that write to several cores at once."""
    if rng.random() < 0.5:
        return
    if rng.random() < 0.5:
        for engine in tree["copy"].values():
            if "dram" in engine["from"]:
                engine["broadcast"] = True
    else:
        tree["copy"]["peer"] = {
            "from": ["local"], "to": ["local"], "peer": True, "broadcast": True,
            "bandwidth": rng.choice(["16 B/cycle", "4 B/cycle"]), "rank": rng.choice([1, 2, 3, 4]),
        }  # fmt: skip
    if "front_end" in tree:
        tree["front_end"] |= _some(rng, 0.5, signal=rng.choice(["3 cycles", "100 ns"]))


def _of_many_cores(rng: random.Random, tree: Tree) -> None:
    """Cores in clusters, with what they need to have anything to do with each other: room, signals,
    and mostly a way from core to core, links of their own, or loads for several."""
    total = rng.choice(MANY)
    tree["clusters"] = rng.choice([n for n in (1, 1, 2, 3, 4, 8) if total % n == 0])
    tree["cores"] = total // tree["clusters"]
    memories, copies = tree["memories"], tree["copy"]
    memories["local"] |= _sram(rng, rng.choice([4, 8, 32, 128, 512]) * KIB)
    front = tree.setdefault("front_end", {})
    front |= {"sync": rng.choice(["tokens", "interlock"]), "tokens": rng.choice([8, 24, 64, 256])}
    front |= _some(rng, 0.5, signal=rng.choice(["3 cycles", "40 cycles", "100 ns"]))
    if rng.random() < 0.7:
        memories["dram"]["bandwidth"] = rng.choice(["1 B/cycle", "4 B/cycle", "16 B/cycle"])
    for engine in copies.values():
        if "dram" in engine["from"] and rng.random() < 0.6:
            engine["broadcast"] = True
    if rng.random() < 0.6:
        to = [role for role in ("local", "weights") if role in memories and rng.random() < 0.8]
        copies["peer"] = {
            "from": ["local"], "to": to or ["local"], "peer": True,
            "broadcast": rng.random() < 0.5, "rank": rng.choice([1, 2, 3, 4]),
            "bandwidth": rng.choice(["16 B/cycle", "4 B/cycle", "64 B/cycle"]),
        }  # fmt: skip
        tree.setdefault("links", {}).update(_some(rng, 0.5, mesh={
            "from": ["local"], "to": to or ["local"], "scope": rng.choice(SCOPES),
            "bandwidth": rng.choice(["8 B/cycle", "64 B/cycle"]),
            "latency": rng.choice(["0 cycles", "2 cycles", "30 cycles"]),
        }))  # fmt: skip


def _memories(rng: random.Random) -> Tree:
    pick = rng.choice
    dram: Tree = {
        "size": "64 MiB",
        "bandwidth": pick(["16 B/cycle", "4 GB/s", "1 B/cycle", "300 GB/s"]),
    }
    dram |= _some(
        rng, 0.4, latency=pick(["0 cycles", "20 cycles", "200 ns"]), burst=pick([1, 16, 64, 256]),
        channels=pick([1, 2, 8]), run_cost=pick(["9 ns", "1 cycle"]),
        conflict_penalty=pick([0.1, 1]), read_efficiency=pick([0.5, 0.9]),
        write_efficiency=pick([0.5, 1]),
    )  # fmt: skip
    own = random.Random(str(dram))  # nothing else of a seed depends on it
    dram |= _some(own, 0.3, kind=own.choice(["lpddr4", "ddr5", "hbm3"]))
    sizes = [256, 512, KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, KIB * KIB]
    memories: Tree = {"dram": dram, "local": _sram(rng, rng.choice(sizes[rng.randrange(4) :]))}
    if rng.random() < 0.35:
        size = pick([KIB, 8 * KIB, 64 * KIB, KIB * KIB])
        memories["shared"] = _sram(rng, size) | _some(rng, 0.6, level=pick(["chip", "cluster"]))
    if rng.random() < 0.3:
        memories["weights"] = _sram(rng, pick([256, 512, 2 * KIB, 8 * KIB, 64 * KIB]))
    if rng.random() < 0.4:
        memories["accumulators"] = _sram(rng, pick([256, 512, 2 * KIB, 8 * KIB, 64 * KIB]))
    return memories


def _sram(rng: random.Random, size: int) -> Tree:
    pick = rng.choice
    made: Tree = {"size": size, "banks": pick([1, 1, 2, 4, 8])}
    made["bank_width"] = pick(
        [w for w in (1, 4, 8, 16, 32, 64, 128) if size // made["banks"] % w == 0]
    )
    made |= _some(
        rng, 0.35, mapping="blocked", conflict_penalty=pick([0.25, 0.5, 2.0]),
        latency=pick(["1 cycle", "5 cycles"]),
        alignment=pick([a for a in (1, 2, 16, 32, 64) if size % a == 0]),
    )  # fmt: skip
    if rng.random() < 0.2:
        return made | {"read_ports": pick([1, 2]), "write_ports": pick([1, 2])}
    return made | _some(rng, 0.2, ports=pick([2, 4]))


def _matrix(rng: random.Random, types: list[str], memories: Tree) -> Tree:
    pick = rng.choice
    made: Tree = {
        "kind": pick(["systolic", "cube"]),
        "rows": pick([1, 3, 4, 7, 8, 16, 32]), "cols": pick([1, 4, 5, 8, 16, 32]),
        "granularity": pick(["tile", "gemm", "conv"]),
        "rate": {name: pick([0.25, 0.5, 1, 1, 2, 3.5]) for name in types},
    }  # fmt: skip
    if made["kind"] == "cube":
        made |= _some(rng, 0.7, depth=pick([1, 3, 4, 8, 16]))
    else:
        flow = pick(["weight-stationary", "output-stationary", "input-stationary"])
        made |= _some(rng, 0.6, dataflow=flow, fold_overlap=pick([True, False]))
    made |= _some(
        rng, 0.35, im2col=pick([True, False]), overlap=pick([True, False]),
        startup=pick(["1 cycle", "16 cycles"]), max_pixels=pick([1, 5, 8, 16, 64]), depthwise=True,
    )  # fmt: skip
    finished = [w for w in ("bias", "clip", "requantize") if rng.random() < 0.45]
    if finished:
        made["writeback"] = finished
    if "weights" in memories:
        made["weights"] = "weights"
    if "accumulators" in memories:
        made["output"] = "accumulators"
    return made


def _vector(rng: random.Random, types: list[str], memories: Tree, matrix: Tree) -> Tree:
    pick = rng.choice
    made: Tree = {"lanes": pick([1, 4, 8, 16, 33])}
    held = set(types)
    if rng.random() < 0.6:
        held = set(STORED)
    else:
        held |= {name for name in STORED if rng.random() < 0.6}
    if "accumulators" in memories:
        held |= {"int32" if name.startswith("int") else "fp32" for name in types}
        if not matrix.get("writeback") or rng.random() < 0.75:
            made["reads"] = ["local", "accumulators"]
    made["types"] = [name for name in STORED if name in held]
    made |= _some(
        rng, 0.3, wide_lanes=pick([1, 2, 4]), startup=pick(["2 cycles", "20 cycles"]),
        window=False, max_extent=pick([1, 7, 16, 32, 256]),
        cost={"simple": pick([0.5, 1, 2]), "multiply": 1.5, "divide": 3, "special": pick([1, 20])},
    )  # fmt: skip
    if rng.random() < 0.5:
        made["rank"] = pick([1, 2, 3])
    if "shared" in memories and rng.random() < 0.12:
        made["reads"] = [*made.get("reads", ["local"]), "shared"]
    return made


def _engine(rng: random.Random, source: list[str], target: list[str]) -> Tree:
    pick = rng.choice
    speed = pick(["1 B/cycle", "4 B/cycle", "16 B/cycle", "64 B/cycle", "8 GB/s"])
    made: Tree = {"from": source, "to": target, "bandwidth": speed}
    return made | _some(
        rng, 0.3, startup=pick(["4 cycles", "32 cycles"]), rank=pick([1, 2, 3, 4]),
        outstanding=pick([1, 4, 64]), request=pick([16, 64, 1024]), pad=False, broadcast=True,
        joins_runs=False, per_request=pick(["1 cycle", "5 cycles"]), minimum=pick(["9 ns", "1 us"]),
    )  # fmt: skip


def _copies(rng: random.Random, memories: Tree, matrix: Tree, vector: Tree) -> Tree:
    """Engines that reach everything: one for all, one each way, or one for each memory."""
    near = [role for role in ("local", "weights") if role in memories]
    if "accumulators" in memories and rng.random() < 0.25:
        near.append("accumulators")
    style = rng.random()
    if style < 0.15:
        both = ["dram", "local"]
        made = {"dma": _engine(rng, both, [*both, *(r for r in near if r != "local")])}
    elif style < 0.7:
        made = {"load": _engine(rng, ["dram"], near), "store": _engine(rng, ["local"], ["dram"])}
    else:
        made = {f"load_{role}": _engine(rng, ["dram"], [role]) for role in near}
        made["store"] = _engine(rng, ["local"], ["dram"])
    if "shared" in memories:
        _reach_shared(rng, made, near)
    unread = "accumulators" in memories and "accumulators" not in vector.get("reads", [])
    if unread and rng.random() < 0.3:
        made["drain"] = _engine(rng, ["accumulators"], ["local"])
    if rng.random() < 0.3:
        made["peer"] = _engine(rng, ["local"], ["local"]) | {"peer": True}
    return made


def _reach_shared(rng: random.Random, made: Tree, near: list[str]) -> None:
    """Ways to shared memory: of engines that are there, of their own, or of all that there is."""
    style = rng.random()
    if style < 0.45:
        for engine in made.values():
            if "dram" in engine["from"]:
                engine["from"] = [*engine["from"], "shared"]
            if "dram" in engine["to"]:
                engine["to"] = [*engine["to"], "shared"]
    else:
        made["refill"] = _engine(rng, ["shared"], near)
        made["spill"] = _engine(rng, ["local"], ["shared"])
    if rng.random() < 0.5:
        made["fill"] = _engine(rng, ["dram"], ["shared"])
    if style > 0.85:
        made["empty"] = _engine(rng, ["shared"], ["dram"])


def _links(rng: random.Random, copies: Tree) -> Tree:
    """One or two links that some of the copies cross."""
    made = {}
    for name in rng.sample(["noc", "bus"], rng.choice([1, 1, 2])):
        engine = rng.choice(list(copies.values()))
        made[name] = {
            "from": list(engine["from"]), "to": list(engine["to"]),
            "bandwidth": rng.choice(["2 B/cycle", "16 B/cycle", "20 GB/s"]),
        } | _some(
            rng, 0.5, latency=rng.choice(["1 cycle", "30 cycles"]),
            scope=rng.choice(SCOPES), duplex=rng.choice([True, False]),
        )  # fmt: skip
    return made


def _front_end(rng: random.Random, copies: list[str]) -> Tree:
    pick = rng.choice
    made = _some(
        rng, 0.5, issue_width=pick([1, 2, 4]), instruction_bytes=pick([4, 16, 64]),
        fetch_bandwidth=pick(["4 B/cycle", "64 B/cycle"]), sync=pick(["tokens", "interlock"]),
        tokens=pick([4, 8, 12, 24, 64]),
    )  # fmt: skip
    if rng.random() < 0.6:
        engines = ["matrix", "vector", *copies]
        each = {name: pick([1, 2, 8]) for name in engines if rng.random() < 0.7}
        made["queue_depth"] = pick([1, 2, 4, each])
    return made
