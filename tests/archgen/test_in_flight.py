"""Inferences that follow each other: what came out is the throughput, and the rest stays."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from host_only import invoke
from networks import Net

from archgen.outcomes.answer import answer
from archgen.studies.design import StudyError
from archgen.studies.sweep import study

pytestmark = pytest.mark.usefixtures("own_cache")
NETWORK = "squeezenet:image=32"


def test_throughput_is_what_came_out_and_latency_that_of_one() -> None:
    several = study(["soma-edge"], [NETWORK], effort=[0], in_flight=3)
    row = several.frame.iloc[0]
    one = study(["soma-edge"], [NETWORK], effort=[0]).frame.iloc[0]
    assert (row["in_flight"], row["verified"]) == (3, True)
    assert row["latency_cycles"] == one["latency_cycles"]
    assert row["dram_read_bytes"] == one["dram_read_bytes"]
    assert row["throughput_ips"] == pytest.approx(1e3 / row["interval_ms"])
    assert row["interval_ms"] < 0.5 * row["latency_ms"]  # its weights fit
    assert "with 3 inferences in flight" in answer(several.frame, several.by_name)[0]
    assert one["throughput_ips"] == pytest.approx(1e3 / one["latency_ms"])


def test_the_host_prepares_one_while_others_run(tmp_path: Path) -> None:
    host = tmp_path / "host.yaml"
    host.write_text("{extends: soma-edge, name: slow-host, host: {per_inference: 50 us}}")
    several = study([str(host), "soma-edge"], [NETWORK], effort=[0], in_flight=2).frame
    slow, quick = (several[several["arch"] == name].iloc[0] for name in ("slow-host", "soma-edge"))
    assert slow["latency_cycles"] == quick["latency_cycles"] + 50_000
    assert (slow["host_ms"], quick["host_ms"]) == pytest.approx((0.05, 0))
    assert slow["interval_ms"] == pytest.approx(0.05) and quick["interval_ms"] < 0.05


def test_the_host_does_one_thing_at_a_time(tmp_path: Path) -> None:
    """Its calls of one inference do not overlap with what it does before the next."""
    host = tmp_path / "host.yaml"
    slow = "{per_inference: 50 us, latency: 100 us}"
    host.write_text(f"{{extends: soma-edge, name: slow, host: {slow}, vector: {{types: [int8]}}}}")
    (row,) = study([str(host)], [NETWORK], effort=[0], in_flight=3).frame.to_dict("records")
    assert row["host_ops"] > 0 and row["host_ms"] > 0.15
    assert row["interval_ms"] == pytest.approx(row["host_ms"])


def test_a_network_without_work_flows_through(tmp_path: Path) -> None:
    net = Net()
    onnx.save(net.model(net.op("Flatten", net.input(1, 4, 4))), tmp_path / "flat.onnx")
    row = study(
        ["cocco-simba-4c"], [str(tmp_path / "flat.onnx")], effort=[0], in_flight=2
    ).frame.iloc[0]
    assert (row["verified"], row["in_flight"]) == (True, 2)


def test_a_program_for_a_range_of_sizes_says_why_it_has_none(tmp_path: Path) -> None:
    found = study(
        ["soma-edge"], ["gpt2:layers=1,hidden=48,heads=2,vocabulary=64"], effort=[0],
        dims={"sequence": "1..4"}, in_flight=2,
    )  # fmt: skip
    assert "interval_ms" not in found.frame or found.frame["interval_ms"].isna().all()
    assert found.frame["note"].str.contains("in flight: not where one program").all()


def test_estimates_say_that_they_have_none() -> None:
    found = invoke("study", "soma-edge", "-m", NETWORK, "--estimate", "--in-flight", "2")
    assert "--estimate has no inferences in flight" in str(found.exception)


def test_none_in_flight_is_a_mistake() -> None:
    with pytest.raises(StudyError, match="in_flight 0: must be a positive whole number"):
        study(["soma-edge"], [NETWORK], in_flight=0)
