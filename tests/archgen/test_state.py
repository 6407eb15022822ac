"""State between inferences: an output that holds an input lies in the same bytes.

The cache of keys and values of an attention is read once and grows by the rows of the new tokens;
nothing of it is written again. A chain of tokens, each fed with the cache that the one before left,
agrees with ONNX Runtime token by token.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import archgen
from archgen.check.reference import run_reference, sample_inputs
from simmodel.arch.record import Arch
from simmodel.errors import HostFailed
from simmodel.program.program import Port, Program

SMALL = "llama:sequence={tokens},layers=2,hidden=64,heads=4,groups=2,wide=96,past={past}"
WIDTH = 16
ROW = 2 * 2 * 2 * WIDTH
"""Elements that one token adds to the caches of keys and values of both layers."""


def compiled(past: int, arch: Arch, tokens: int = 1, dtype: str | None = None) -> Program:
    model = archgen.load_model(SMALL.format(tokens=tokens, past=past))
    return archgen.compile_model(model, arch, dtype=dtype, effort=0)


Values = dict[str, np.ndarray]


def inferred(
    program: Program, proto: onnx.ModelProto, token: Values, caches: tuple[Values, Values],
    states: Mapping[str, str], off: float = 0.02,
) -> tuple[Values, Values]:  # fmt: skip
    """Caches after an inference of a token, here and by ONNX Runtime, which have to be near."""
    made = archgen.execute(program, token | caches[0], archgen.load_arch(program.arch))
    wanted = run_reference(proto, token | caches[1])
    for name, values in wanted.items():
        np.testing.assert_allclose(made[name], values, atol=off, err_msg=name)
    own, exact = ({name: each[after] for name, after in states.items()} for each in (made, wanted))
    return own, exact


def assert_in_place(program: Program, states: Mapping[str, str]) -> None:
    """Each state of integers stays where it is, with one scale."""
    seen = ports(program)
    for name, after in states.items():
        past, present = seen[name].operand, seen[after].operand
        assert (past.dtype, past.address, past.scale) == ("int8", present.address, present.scale)


def ports(program: Program) -> dict[str, Port]:
    return {port.name: port for port in (*program.inputs, *program.outputs)}


@pytest.mark.parametrize("machine", ["ascend-310-like", "tpu-v3-like"])
def test_only_new_rows_of_a_cache_are_written(machine: str) -> None:
    arch = archgen.load_arch(machine)
    program = compiled(48, arch)
    seen = ports(program)
    for layer in range(2):
        for kind in ("key", "value"):
            past = seen[f"past_key_values.{layer}.{kind}"].operand
            present = seen[f"present.{layer}.{kind}"].operand
            assert past.address == present.address
            assert past.strides == present.strides
            assert (past.shape[2], present.shape[2]) == (48, 49)
    assert program.demand is not None
    if arch.memories.shared is not None:  # through which cores hand over what else they make
        written = archgen.simulate(program, arch).traffic["dram.write"]
        assert written < program.demand.written + 48 * ROW
    assert program.demand.written == 2 * (ROW + 64)
    weights = sum(constant.used for constant in program.constants)
    assert program.demand.read <= weights + 2 * (48 * ROW + 64)


def test_a_chain_agrees_with_onnx_runtime_token_by_token() -> None:
    arch = archgen.load_arch("ascend-310-like")
    rng = np.random.default_rng(0)
    first = archgen.load_model(SMALL.format(tokens=1, past=3))
    cache = {n: a for n, a in sample_inputs(first.proto).items() if n != "hidden_states"}
    caches = cache, cache
    for past in range(3, 6):
        model = archgen.load_model(SMALL.format(tokens=1, past=past))
        token = {"hidden_states": rng.standard_normal((1, 1, 64)).astype(np.float32)}
        program = archgen.compile_model(model, arch, effort=0)
        states = archgen.states(model)
        assert set(states) == set(cache)
        caches = inferred(program, model.proto, token, caches, states)


FREE = """<ir_version: 8, opset_import: ["" : 17]>
decoder (float[batch, tokens, 16] x, float[batch, past, 16] past_key)
  => (float[batch, tokens, 16] y, float[batch, total, 16] present_key)
{
  present_key = Concat <axis = 1> (past_key, x)
  turned = Transpose <perm = [0, 2, 1]> (present_key)
  scores = MatMul (x, turned)
  weights = Softmax <axis = -1> (scores)
  y = MatMul (weights, present_key)
}
"""
"""Its cache begins empty."""


@pytest.mark.parametrize(("machine", "off"), [("ascend-310-like", 0.01), ("soma-edge", 0.15)])
def test_a_chain_begins_with_an_empty_cache(machine: str, off: float, tmp_path: Path) -> None:
    path, arch = tmp_path / "decoder.onnx", archgen.load_arch(machine)
    onnx.save(onnx.parser.parse_model(FREE), path)
    rng, used = np.random.default_rng(0), 0
    empty = {"past_key": np.zeros((1, 0, 16), np.float32)}
    caches = empty, empty
    for tokens in (3, 1):
        model = archgen.load_model(path, dims={"past": used, "tokens": tokens})
        program = archgen.compile_model(model, arch, effort=0)
        given = {"x": rng.standard_normal((1, tokens, 16)).astype(np.float32)}
        states = {"past_key": "present_key"}
        caches = inferred(program, model.proto, given, caches, states, off)
        used += tokens


def test_an_index_that_is_out_of_range_names_its_node(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[5000, 4] table, int64[3, 4] i) => (float[3, 4] y)
    { found = GatherElements (table, i)
      y = Relu (found) }"""
    proto, path = onnx.parser.parse_model(text), tmp_path / "look.onnx"
    proto.graph.node[0].name = "look"
    onnx.save(proto, path)
    arch = archgen.load_arch("ascend-310-like")
    program = archgen.compile_model(archgen.load_model(path), arch, effort=0)
    given = {"table": np.zeros((5000, 4), np.float32), "i": np.full((3, 4), 5001)}
    said = (
        r"node 'look' \(GatherElements\) on the host: GatherElements op: "
        "Out of range value in index tensor"
    )
    with pytest.raises(HostFailed, match=said):
        archgen.execute(program, given, arch)


@pytest.mark.parametrize("room", [6, 1024])
def test_one_program_fills_a_cache_of_fixed_room(room: int) -> None:
    """A small one is written whole, of a larger one the new rows and where they belong."""
    arch = archgen.load_arch("ascend-310-like")
    model = archgen.load_model(
        f"llama:sequence=1,room={room},layers=1,hidden=64,heads=4,groups=2,wide=96"
    )
    program = archgen.compile_model(model, arch, effort=0)
    if room > 6:
        assert program.demand is not None and program.demand.written == 2 * (ROW // 2 + 64)
        assert archgen.simulate(program, arch).traffic["dram.write"] < 2 * room
    rng, states = np.random.default_rng(1), archgen.states(model)
    assert states == {f"past_key_values.0.{kind}": f"present.0.{kind}" for kind in ("key", "value")}
    cache = {name: np.zeros((1, 2, room, 16), np.float32) for name in states}
    caches = cache, cache
    for used in range(6):
        token = {"hidden_states": rng.standard_normal((1, 1, 64)).astype(np.float32)}
        token |= {"used": np.array([used], np.int32), "total": np.array([used + 1], np.int32)}
        caches = inferred(program, model.proto, token, caches, states)


def test_a_quantized_cache_is_rounded_once() -> None:
    """What comes out of one inference goes into the next as it is: both have one scale."""
    arch = archgen.load_arch("soma-edge")
    model = archgen.load_model(SMALL.format(tokens=1, past=3))
    program, states = archgen.compile_model(model, arch, effort=0), archgen.states(model)
    assert_in_place(program, states)
    given = sample_inputs(model.proto)
    for name in states:
        given[name] *= 3  # beyond what the calibration has seen of inputs
    made = archgen.execute(program, given, arch)
    again = given | {name: made[after][:, :, 1:] for name, after in states.items()}
    kept = archgen.execute(program, again, arch)
    for name, after in states.items():
        np.testing.assert_array_equal(kept[after][:, :, :3], again[name])


def test_a_quantized_cache_with_room_keeps_its_integers() -> None:
    """Of the cache, an inference writes the new rows in int8; what stands there already comes out
    as it went in."""
    arch = archgen.load_arch("soma-edge")
    model = archgen.load_model(
        "llama:sequence=1,room=64,layers=1,hidden=64,heads=4,groups=2,wide=96"
    )
    program, states = archgen.compile_model(model, arch, effort=0), archgen.states(model)
    assert_in_place(program, states)
    assert archgen.simulate(program, arch).traffic["dram.write"] < 64 * ROW // 2
    given = sample_inputs(model.proto) | {"used": np.array([3], np.int32)}
    first = archgen.execute(program, given, arch)
    kept = archgen.execute(program, given | {n: first[a] for n, a in states.items()}, arch)
    for after in states.values():
        np.testing.assert_array_equal(kept[after], first[after])


WRITTEN = """<ir_version: 10, opset_import: ["" : 21]>
decoder (float[1, 1, 16] x, float[1, 64, 16] cache, int64[1, 1, 2] at)
  => (float[1, 64, 16] new_cache, float[1, 1, 64] scores)
{
  row = MatMul (x, w)
  new_cache = ScatterND (cache, at, row)
  turned = Transpose <perm = [0, 2, 1]> (new_cache)
  scores = MatMul (x, turned)
}
"""


def test_a_row_scattered_into_a_quantized_cache_is_checked(tmp_path: Path) -> None:
    """The cache as it was lies in the same bytes, and is not compared with the new one."""
    proto, path = onnx.parser.parse_model(WRITTEN), tmp_path / "decoder.onnx"
    w = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    onnx.save(proto, path)
    study = archgen.study("soma-edge", path, effort=0, plots=False)
    (point,) = study.frame.itertuples()
    assert point.verified and not point.host_ops
    model, arch = archgen.load_model(path), archgen.load_arch("soma-edge")
    assert_in_place(archgen.compile_model(model, arch, effort=0), {"cache": "new_cache"})
