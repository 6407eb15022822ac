"""What `archgen explain` prints is complete, and so are the pages that are made from it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from archgen.cli.explain import TOPICS
from archgen.cli.main import VERBS, cli
from archgen.cli.topics import SECTIONS, pictures
from archgen.cli.words import meant, near
from archgen.knobs import knobs
from compiler.stages import Stages


def explained(*words: str) -> str:
    done = CliRunner().invoke(cli, ["explain", *words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_says_the_same_in_a_terminal_and_in_the_documentation(topic: str) -> None:
    text, markdown = explained(topic), explained(topic, "--markdown")
    for section in SECTIONS.get(topic, list)():
        for entry in section.entries:
            assert entry.name in text
            assert f"`{entry.name}`" in markdown


@pytest.mark.parametrize("topic", SECTIONS)
def test_everything_has_a_meaning(topic: str) -> None:
    plain = {"name", "description", "memories", "matrix", "vector", "scalar", "copy", "dram"}
    for section in SECTIONS[topic]():
        unsaid = [entry.name for entry in section.entries if not entry.meaning]
        mappings = [entry.name for entry in section.entries if "mapping" in entry.kind]
        assert set(unsaid) <= plain | set(mappings) | _NAMES_THAT_SAY_ALL, section.title


_NAMES_THAT_SAY_ALL = {
    "startup", "input", "weights", "simple", "multiply", "divide", "special", "read", "write",
    "fusion", "halo", "objective", "effort", "models", "batches", "verify", "host", "calibration",
    "from", "to", "scale", "seed", "metric",
}  # fmt: skip


def test_every_option_of_every_pass_is_listed() -> None:
    listed = [entry.name for section in SECTIONS["passes"]() for entry in section.entries]
    assert listed == list(knobs(Stages()))


def test_passes_show_what_they_do() -> None:
    assert " => " in " ".join(explained("fold-batch-norm").split())
    assert len(pictures()) > 20


def test_an_unknown_topic_is_guessed() -> None:
    done = CliRunner().invoke(cli, ["explain", "colums"])
    assert done.exit_code == 2
    assert "did you mean 'columns'" in done.output


def test_the_reference_has_every_verb() -> None:
    text = explained("cli")
    assert all(f"Usage: archgen {verb} " in text for verb in VERBS)


def test_tables_are_tables() -> None:
    for topic in SECTIONS:
        rows = [line for line in explained(topic, "--markdown").splitlines() if line[:1] == "|"]
        bars = {line.replace("\\|", "").count("|") for line in rows}
        assert bars <= {3, 4}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("latency_ms", "latency_cycles at the architecture's clock"),
        ("stall_data", "more on-chip memory"),
        ("matrix.granularity", "['tile', 'gemm' or 'conv'; default conv]"),
        ("memories.local.size", "required] Of one instance"),
        ("arch.cores", "Cores in each cluster."),
        ("dim.sequence", "size of a free input dimension"),
        ("copy.load.bandwidth", "copy.<name>.bandwidth"),
        ("granularity", "matrix.granularity"),
        ("front_end", "issue_width"),
        ("copy-port", "times what all banks together carry"),
    ],
)
def test_a_word_is_explained_by_itself(word: str, said: str) -> None:
    text = explained(word)
    assert said in " ".join(text.split())
    assert len(text.splitlines()) < 60


def test_the_narrowest_name_is_meant() -> None:
    assert "stall_<cause>_cycles" in explained("stall_data_cycles")
    assert "fraction" not in explained("stall_data_cycles")


@pytest.mark.parametrize("topic", ["architecture", "columns", "stalls", "lint"])
def test_every_entry_can_be_looked_up(topic: str) -> None:
    for section in SECTIONS[topic]():
        path = section.title.split(", ")[0] if topic == "architecture" else "top level"
        inside = "" if path == "top level" else f"{path}."
        for entry in section.entries[:3]:
            found = [each.meaning for part in meant(inside + entry.name) for each in part.entries]
            assert entry.meaning in found, entry.name


def test_a_misspelt_word_gets_the_nearest_ones() -> None:
    done = CliRunner().invoke(cli, ["explain", "memories.locl.size"])
    assert done.exit_code == 2
    assert "nothing is called 'memories.locl.size'; did you mean 'memories.local.size'" in (
        done.output
    )
    assert near("zzzqq") == []


def test_a_misspelt_verb_gets_the_nearest_one() -> None:
    done = CliRunner().invoke(cli, ["studdy", "soma-edge"])
    assert done.exit_code == 2
    assert "No such command 'studdy'; did you mean 'study'?" in done.output
