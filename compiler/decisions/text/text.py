"""Trees as text, and back: a line for each decision, what it is about first.

    tree resnet18                       # the network
    home pool local at 458752 passed    # stays on chip; `at` may be left out; passed on
      core h = 0:15                     # what each core keeps, where there are several
      core h = 13:28
    step                                # layers that share loops
      core h = 0:28                     # what each core does of the last result
      core h = 28:56
      cores 2:4                         # which cores these are, where not the first ones
      instances 4                       # done for a quarter of the batch at a time, and with it the
                                        # steps behind it that are done as often
    slots 2                           # tiles of a streamed buffer that are there at once
      for h 14 rolling                  # tiles of 14 rows that keep what they share; `ahead 2`:
                                        # the first two layers work one tile ahead of the others
      layer conv, relu: for o 32; for c 64; resident
      layer pool
      buffer conv at 4096 every 7168    # all buffers of the step, or none
    host topk_values, topk_indices      # a call of the host

Dimensions carry the names that they have in the operators (`archgen compile --after join-concat`).
What follows `#` is a comment; indentation is for the reader. A name is written bare where it is a
word, in quotes otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from compiler.decisions.text.tree import (
    BufferAddress,
    Call,
    For,
    Home,
    Memory,
    ScheduleStep,
    Span,
    StepLayer,
    Tree,
)
from compiler.tensor_ir.text import LineTokens, spelled
from simmodel.errors import SeveralMistakes
from simmodel.program.assembly_reader import AssemblyLine, ParseError

Remarked = Home | ScheduleStep | StepLayer | BufferAddress
"""What a remark may stand behind."""

_MEMORIES: tuple[Memory, ...] = get_args(Memory)
_COLUMN = 44
"""Where remarks begin, if the line leaves them room."""


class TreeError(SeveralMistakes):
    """A text that is no tree, or not one of this network and machine; `mistakes` has all, each with
    its line."""


def print_tree(tree: Tree, remarks: Mapping[Remarked, str] | None = None) -> str:
    """The text of `tree`, with `remarks` as comments."""
    said = remarks or {}
    lines = [f"tree {spelled(tree.network)}"]
    for home in tree.homes:
        lines.append(_remarked(_home(home), said.get(home)))
        lines += map(_core, home.cores)
    for step in tree.steps:
        if isinstance(step, Call):
            lines.append(f"host {_names_text(step.outputs)}")
        else:
            lines += _step_text(step, said)
    return "\n".join(lines) + "\n"


def _remarked(line: str, remark: str | None) -> str:
    return line if remark is None else f"{line:{_COLUMN}}  # {remark}"


def _names_text(names: Iterable[str]) -> str:
    return ", ".join(map(spelled, names))


def _home(home: Home) -> str:
    at = "" if home.address is None else f" at {home.address}"
    return f"home {spelled(home.tensor)} {home.memory}{at}{' passed' if home.passed else ''}"


def _step_text(step: ScheduleStep, remarks: Mapping[Remarked, str]) -> Iterator[str]:
    yield _remarked("step", remarks.get(step))
    yield from map(_core, step.cores)
    if step.among is not None:
        yield f"  cores {step.among[0]}:{step.among[1]}"
    if step.instances > 1:
        yield f"  instances {step.instances}"
    if step.slots is not None:
        yield f"  slots {step.slots}"
    for loop in step.loops:
        yield f"  {_for(loop)}"
    for work in step.layers:
        items = [*map(_for, work.loops), *(["resident"] if work.resident else [])]
        cut = f": {'; '.join(items)}" if items else ""
        yield _remarked(f"  layer {_names_text(work.nests)}{cut}", remarks.get(work))
    for buffer in step.buffers:
        line = f"  buffer {spelled(buffer.buffer)} at {buffer.start} every {buffer.pitch}"
        yield _remarked(line, remarks.get(buffer))


def _core(core: Iterable[Span]) -> str:
    spans = ", ".join(f"{spelled(s.dim)} = {s.start}:{s.stop}" for s in core)
    return f"  core {spans}".rstrip()


def _for(loop: For) -> str:
    ahead = " ahead" * (loop.ahead or bool(loop.stages))
    ahead += f" {', '.join(map(str, loop.stages))}".rstrip()
    return f"for {spelled(loop.dim)} {loop.size}{' rolling' if loop.rolling else ''}{ahead}"


def parse_tree(text: str) -> Tree:
    """The tree that `text` describes; TreeError with every line that cannot be read."""
    reader = _TreeParser()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            reader.take(LineTokens(number, line))
        except ValueError as mistake:
            said = mistake.message if isinstance(mistake, ParseError) else mistake
            reader.mistakes.append(f"line {number}: {said}")
    return reader.finished()


class _TreeParser:
    """The tree so far; a line is read by the method that is named by its first word."""

    LINES = (
        "tree", "slots", "instances", "home", "step", "core", "cores", "for", "layer", "buffer",
        "host",
    )  # fmt: skip
    SINGLE = "slots", "instances", "among"
    """What a step has one of."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []
        self.network: str | None = None
        self.homes: list[Home] = []
        self.steps: list[ScheduleStep | Call] = []

    def take(self, words: LineTokens) -> None:
        first, self.line = words.next, words.number
        if not first:
            return
        if first not in self.LINES:
            raise ValueError(f"no line begins with {first!r}; there are: {', '.join(self.LINES)}")
        words.at += 1
        getattr(self, f"read_{first}")(words)
        words.finish()

    def finished(self) -> Tree:
        """What was read; TreeError where something could not be."""
        if self.network is None:
            others = self.mistakes if self.steps else []  # else it is something else altogether
            self.mistakes = ["line 1: a tree begins with 'tree NETWORK'", *others]
        steps = [step for step in self.steps if isinstance(step, ScheduleStep)]
        self.mistakes += [
            f"line {step.line}: this step has no layer" for step in steps if not step.layers
        ]
        self.mistakes += _again("home", ((home.tensor, home.line) for home in self.homes))
        for step in steps:
            self.mistakes += _again("place", ((b.buffer, b.line) for b in step.buffers))
        if self.mistakes or self.network is None:
            raise TreeError(self.mistakes)
        return Tree(self.network, tuple(self.steps), tuple(self.homes))

    def read_tree(self, words: LineTokens) -> None:
        self.network = words.name()

    def read_slots(self, words: LineTokens) -> None:
        if self._open().slots is not None:
            raise ValueError("the step has its slots already")
        self._add(slots=_parse_number(words))

    def read_instances(self, words: LineTokens) -> None:
        self._add(instances=_parse_number(words))

    def read_home(self, words: LineTokens) -> None:
        name, memory = words.name(), words.name()
        found = next((known for known in _MEMORIES if known == memory), None)
        if found is None:
            raise ValueError(f"no home {memory!r}; there are: {', '.join(_MEMORIES)}")
        address = _parse_number(words, 0) if words.accept("at") else None
        passed = found == "local" and words.accept("passed")
        self.homes.append(Home(name, found, address, (), passed, self.line))

    def read_step(self, words: LineTokens) -> None:
        self.steps.append(ScheduleStep((), line=self.line))

    def _open(self) -> ScheduleStep:
        """The step that a line belongs to."""
        if not self.steps or isinstance(self.steps[-1], Call):
            raise ValueError("this line belongs to a step: 'step' is missing before it")
        return self.steps[-1]

    def _add(self, **fields: Any) -> None:
        """Say more of the step that a line belongs to, at the end of what it has several of."""
        step = self._open()
        more: dict[str, Any] = {
            name: value if name in self.SINGLE else (*getattr(step, name), value)
            for name, value in fields.items()
        }
        self.steps[-1] = replace(step, **more)

    def read_core(self, words: LineTokens) -> None:
        spans = (_span(words), *words.items_after(",", _span)) if words.next else ()
        if not self.steps and self.homes and self.homes[-1].memory == "local":
            home = self.homes[-1]
            self.homes[-1] = replace(home, cores=(*home.cores, spans))
            return
        self._add(cores=spans)

    def read_cores(self, words: LineTokens) -> None:
        if self._open().among is not None:
            raise ValueError("the step has its cores already")
        first = _parse_number(words, 0)
        words.expect(":")
        self._add(among=(first, _parse_number(words, first + 1)))

    def read_for(self, words: LineTokens) -> None:
        loop = _parse_loop(words)
        loop = replace(loop, rolling=words.accept("rolling"))
        self._add(loops=replace(loop, stages=words.items_after("ahead", _parse_number)))

    def read_layer(self, words: LineTokens) -> None:
        names = _parse_names(words)
        loops: list[For] = []
        resident = False
        more = words.accept(":")
        while more:
            if words.accept("resident"):
                if resident:
                    raise ValueError("'resident' stands here twice")
                resident = True
            elif words.accept("for"):
                loops.append(replace(_parse_loop(words), ahead=words.accept("ahead")))
            else:
                raise ValueError(f"expected 'for' or 'resident', got {words.next!r}")
            more = words.accept(";")
            if words.next == ",":
                raise ValueError("what is said of a layer stands apart by ';', not by ','")
        self._add(layers=StepLayer(names, tuple(loops), resident, self.line))

    def read_buffer(self, words: LineTokens) -> None:
        name = words.name()
        words.expect("at")
        start = _parse_number(words, 0)
        words.expect("every")
        self._add(buffers=BufferAddress(name, start, _parse_number(words), self.line))

    def read_host(self, words: LineTokens) -> None:
        self.steps.append(Call(_parse_names(words), self.line))


def _parse_names(words: LineTokens) -> tuple[str, ...]:
    return words.name(), *words.items_after(",", LineTokens.name)


def _parse_number(words: AssemblyLine, least: int = 1) -> int:
    number = words.integer()
    if number < least:
        raise ValueError(f"expected a number from {least} on, not {number}")
    return number


def _parse_loop(words: LineTokens) -> For:
    return For(words.name(), _parse_number(words), line=words.number)


def _span(words: AssemblyLine) -> Span:
    dim = words.name()
    words.expect("=")
    start = words.integer()
    words.expect(":")
    return Span(dim, start, words.integer(), words.number)


def _again(what: str, named: Iterable[tuple[str, int]]) -> Iterator[str]:
    """A sentence for every name that has come before."""
    seen: dict[str, int] = {}
    for name, line in named:
        if name in seen:
            yield f"line {line}: a second {what} of {name}; the first is in line {seen[name]}"
        seen.setdefault(name, line)
