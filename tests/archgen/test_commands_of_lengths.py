"""Commands of a program for ranges of lengths: with terms in them, or as they are at one length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import archgen
from archgen.cli.main import cli
from archgen.program_files import Loaded
from simmodel.program.sizes import LengthError, specialize

GPT2 = "gpt2:layers=1,hidden=8,heads=2,vocabulary=10,positions=16"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder for ranges of two lengths."""
    path = tmp_path_factory.mktemp("lengths") / "gpt2.npu"
    given = ["compile", "stcp920", "-m", GPT2, "--dim", "past=1..9", "--dim", "sequence=1..6"]
    table = str(path.with_suffix(".csv"))
    given += ["--effort", "0", "-o", str(path), "--commands", table]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def loaded(file: Path) -> Loaded:
    """What that file holds."""
    return archgen.load(file)


def disasm(*given: object) -> str:
    return CliRunner().invoke(cli, ["disasm", *map(str, given)]).output


def test_open_lengths_are_terms_of_addresses_and_limits(loaded: Loaded) -> None:
    """The new key lies behind the cache, 4 values of 2 bytes for each token of it."""
    frame = archgen.commands(loaded.program)
    stores = frame[frame["control"].str.startswith("dst=dram[0x1788 + 8*past]")]
    assert json.loads(stores["steps"].iloc[0]) == {"dst": {"past": 8}}
    said = json.loads(stores["words"].iloc[0])["dst"]
    assert (said["address"], said["limits"][:16]) == (0x1788, "{2: 6 + sequence")


def test_commands_at_a_length_are_those_that_the_front_end_makes_then(loaded: Loaded) -> None:
    lengths = {"past": 4, "sequence": 1}
    there = specialize(loaded.program, lengths)
    frame = archgen.commands(loaded.program, loaded.arch, dims=lengths)
    assert frame["control"].tolist() == archgen.commands(there)["control"].tolist()
    assert not frame["control"].str.contains("past|sequence").any()
    assert frame["end_cycle"].max() <= archgen.simulate(there, loaded.arch).cycles
    with pytest.raises(LengthError, match=r"^past is 10, expected 1 .. 9; sequence is not given"):
        archgen.commands(loaded.program, dims={"past": 10})


def test_each_turn_is_one_of_the_longest_where_no_length_is_given(loaded: Loaded) -> None:
    every = archgen.commands(loaded.program, expand=True)
    longest = archgen.commands(loaded.program, dims={"past": 9, "sequence": 6}, expand=True)
    assert every["control"].tolist() == longest["control"].tolist()


def test_a_tile_has_its_number_where_none_of_its_kind_is_left_out(loaded: Loaded) -> None:
    """Of six tokens one is there, so most cores have nothing to do; at all six nothing lacks."""
    whole = archgen.commands(loaded.program, dims={"past": 9, "sequence": 6})
    open_ = archgen.commands(loaded.program)
    assert whole["tile"].tolist() == open_["tile"].tolist()
    short = archgen.commands(loaded.program, dims={"past": 4, "sequence": 1})
    unknown = short[short["layer"].notna() & short["tile"].isna()]
    keys = ["core", "engine", "layer", "tiles", "kinds", "opcode"]
    most, left = (frame.groupby(keys, dropna=False)["times"].sum() for frame in (open_, short))
    assert len(unknown)
    for key in unknown[keys].itertuples(index=False, name=None):
        assert left[key] != most.get(key, 0)


def test_disasm_takes_lengths(file: Path) -> None:
    at = ("--dim", "past=4", "--dim", "sequence=1")
    assert "register name=past low=1 high=9" in disasm(file)
    for level in ("program", "tiles"):
        text = disasm(file, "--level", level, *at)
        assert "copy" in text and "past +" not in text and "*past" not in text
    assert len(disasm(file, "--words", *at)) > 1000
