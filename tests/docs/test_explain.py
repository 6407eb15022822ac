"""What `archgen explain` prints is complete, and so are the pages that are made from it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from archgen.cli.explain import TOPICS
from archgen.cli.main import VERBS, cli
from archgen.cli.topics import SECTIONS
from archgen.scheduling import options
from compiler.options import Stages


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
    assert listed == list(options(Stages()))


def test_the_reference_has_every_verb() -> None:
    text = explained("cli")
    assert all(f"Usage: archgen {verb} " in text for verb in VERBS)
