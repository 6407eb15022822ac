"""Optuna's part: it proposes combinations and remembers what became of them.

The one idea: its journal in the study's folder holds every combination with its verdict, so an
exploration goes on where it was, also one that was killed, also several at a time. What was asked
for and has no verdict when nobody works on it any more is asked for again.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from archgen.exploration.plan import Exploration
from archgen.exploration.space import Indices, only_listed
from archgen.process.files import content_hash
from archgen.schema.variants import Variant
from archgen.studies.store import Store

JOURNAL = "explore.journal"
RAN, SCREENED, REFUSED, FORBIDDEN = "ran", "screened", "refused", "forbidden"
"""Verdicts: has values; its estimate was against it; has no figures; is no machine."""
_VERDICT, _EXCESS, _MACHINE, _NAME = "verdict", "excess", "machine", "name"
_PATIENCE = 8
"""Proposals in a row that are known already before chance proposes instead."""
_FAR = 1e9
"""As far as a constraint can be missed."""
_LOOK = 0.05
"""Seconds between looks whether others have asked."""
_WAIT = 0.5
"""Seconds between looks whether others are finished."""
_MANY = 100_000
"""Combinations up to which those that are left are listed."""


def _optuna() -> Any:
    found = import_module("optuna")  # slow, and only the verb that searches needs it
    found.logging.set_verbosity(found.logging.ERROR)
    return found


@dataclass(frozen=True)
class Proposal:
    """A combination that waits for its verdict."""

    choice: Indices
    machine: Variant
    trial: Any = field(repr=False)


class ExplorationTrials:
    """The combinations of one exploration, with what became of each."""

    def __init__(
        self, exploration: Exploration, identity: str, folder: Path | None, claims: Store | None
    ) -> None:
        """`identity`: what decides the verdicts; `claims`: who works on what, where others may."""
        self._optuna = optuna = _optuna()
        self.exploration, self.space, self._claims = exploration, exploration.space, claims
        self.known: dict[Indices, str] = {}
        """Combination -> verdict."""
        self._ran: dict[Indices, tuple[Sequence[float], Sequence[float]]] = {}
        """Values, and by how much each constraint is missed, of those that ran."""
        self._taken: set[Indices] = set()
        self._name = identity
        storage = None
        if folder is not None:
            backend = optuna.storages.journal.JournalFileBackend(str(folder / JOURNAL))
            storage = optuna.storages.JournalStorage(backend)
        ways = ["maximize" if o.more else "minimize" for o in exploration.objectives]
        self._listed = {p.name: p for p in self.space.parameters}
        # Older versions, whose trials held places in lists, have other names and stay as they are.
        name = f"{exploration.design.name or 'explore'} {identity} values"
        self._study = optuna.create_study(
            storage=storage, study_name=name, directions=ways,
            load_if_exists=True,
        )  # fmt: skip
        with warnings.catch_warnings():  # Optuna calls names experimental
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study.set_metric_names(exploration.measures)
        self._all = exploration.asked.trials >= self.space.size
        self._remember()

    @property
    def looked(self) -> int:
        """Machines with a verdict."""
        return sum(verdict != FORBIDDEN for verdict in self.known.values())

    def machines(self, *verdicts: str) -> list[Variant]:
        """The machines with one of these verdicts."""
        chosen = [choice for choice, verdict in self.known.items() if verdict in verdicts]
        found = [self.space.machine(choice) for choice in chosen]
        return [machine for machine in found if machine is not None]

    def propose(self, most: int) -> list[Proposal]:
        """At most `most` combinations that nobody has looked at or is about to. None when there are
        no more, or all trials are had, those of others too."""
        while True:
            with self._exclusive_ask():
                self._ask_again()
                self._remember()
                left = self.exploration.asked.trials - self.looked - len(self._taken)
                found = self._proposed(min(most, left))
            if found or not self._taken:
                return found
            time.sleep(_WAIT)

    def _proposed(self, count: int) -> list[Proposal]:
        seed = self.exploration.asked.seed + len(self.known)
        # Seeded anew for each batch, so that one that goes on proposes what it would have.
        base, chance = self._optuna.samplers.BaseSampler, random.Random(seed)
        self._study.sampler = only_listed(base, self._proposing(seed), self._listed)
        found: dict[Indices, Proposal] = {}
        waiting = (self._optuna.trial.TrialState.WAITING,)  # what is asked for again
        for _ in self._study.get_trials(deepcopy=False, states=waiting):
            proposal = self._ask(found)
            if proposal is not None:
                found[proposal.choice] = proposal
        if found:  # a batch that was under way is finished as it was
            return list(found.values())
        misses = 0
        while len(found) < count and self._gone + len(found) < self.space.size:
            if self._all or misses >= _PATIENCE:
                pairs = zip(self._listed.items(), self._unseen(chance, found), strict=True)
                self._study.enqueue_trial({n: held.listed[at] for (n, held), at in pairs})
                misses = 0
            proposal = self._ask(found)
            if proposal is None:
                misses += 1
            else:
                found[proposal.choice] = proposal
        return list(found.values())

    def tell(
        self, proposal: Proposal, verdict: str, values: Sequence[float] = (),
        excess: Sequence[float] = (),
    ) -> None:  # fmt: skip
        """What became of a proposal: with the verdict `ran` its objectives, in their own units, and
        by how much it misses each constraint."""
        trial = proposal.trial
        trial.set_user_attr(_VERDICT, verdict)
        trial.set_user_attr(_MACHINE, self.space.text(proposal.choice))
        trial.set_user_attr(_NAME, proposal.machine.arch.name)
        if verdict == RAN:
            self._record_constraints(trial, excess)
        self._close(trial, values if verdict == RAN else None, verdict)
        self.known[proposal.choice] = verdict
        if verdict == RAN:
            self._ran[proposal.choice] = values, excess

    def _record_constraints(self, trial: Any, excess: Sequence[float]) -> None:
        for constraint, by in zip(self.exploration.constraints, excess, strict=True):
            trial.set_constraint(constraint.text, min(by, _FAR))
        trial.set_user_attr(_EXCESS, [min(by, _FAR) for by in excess])

    def _ask(self, batch: dict[Indices, Proposal]) -> Proposal | None:
        """The next proposal; None where it is no new machine."""
        kinds = self._optuna.distributions
        trial = self._study.ask({n: held.distribution(kinds) for n, held in self._listed.items()})
        choice = self._choice(trial)
        if choice in self._ran:
            values, excess = self._ran[choice]
            self._record_constraints(trial, excess)
            self._close(trial, values)
            return None
        machine = self.space.machine(choice)
        if machine is None:
            trial.set_user_attr(_VERDICT, FORBIDDEN)
            self.known[choice] = FORBIDDEN
        if machine is None or choice in batch or self._is_gone(choice):
            self._close(trial, None)
            return None
        if self._claims is not None:
            self._claims.claim(self._claim(trial.number))
        return Proposal(choice, machine, trial)

    def _close(self, trial: Any, values: Sequence[float] | None, verdict: str = "") -> None:
        states = self._optuna.trial.TrialState
        if values is not None:
            self._study.tell(trial, list(values))
        else:
            self._study.tell(trial, state=states.PRUNED if verdict == SCREENED else states.FAIL)
        if self._claims is not None:
            self._claims.release(self._claim(trial.number))

    def _unseen(self, chance: random.Random, batch: dict[Indices, Proposal]) -> Indices:
        """A combination that nobody has proposed: by chance, or the next where all are wanted."""
        if self._all or self.space.size <= _MANY:
            left = [c for c in self.space.choices() if c not in batch and not self._is_gone(c)]
            return left[0] if self._all else chance.choice(left)
        while True:
            drawn = tuple(chance.randrange(len(p.values)) for p in self.space.parameters)
            if drawn not in batch and not self._is_gone(drawn):
                return drawn

    @property
    def _gone(self) -> int:
        """Combinations that somebody has looked at, or is about to."""
        return len(self.known) + len(self._taken)

    def _is_gone(self, choice: Indices) -> bool:
        """Whether somebody has looked at a combination, or is about to."""
        return choice in self.known or choice in self._taken

    def _remember(self) -> None:
        """Verdicts that the journal has, also those of others who write it now."""
        states = self._optuna.trial.TrialState
        self._taken.clear()
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state == states.RUNNING and self._is_whole(trial):
                self._taken.add(self._choice(trial))
            verdict = trial.user_attrs.get(_VERDICT)
            if verdict is None or not trial.state.is_finished():
                continue
            choice = self._choice(trial)
            self.known[choice] = verdict
            if verdict == RAN:
                self._ran[choice] = trial.values, trial.user_attrs[_EXCESS]

    def _ask_again(self) -> None:
        """What somebody asked for who is gone is proposed again, before anything else."""
        states = self._optuna.trial.TrialState
        for trial in self._study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            claim = self._claim(trial.number)
            if self._claims is None or not self._claims.claim(claim):
                continue
            if self._is_whole(trial):
                self._study.enqueue_trial(dict(trial.params))
            self._study.tell(trial.number, state=states.FAIL)
            self._claims.release(claim)

    @contextmanager
    def _exclusive_ask(self) -> Iterator[None]:
        """While nobody else asks: between asking and claiming a trial it belongs to nobody."""
        key = self._claim(-1)
        while self._claims is not None and not self._claims.claim(key):
            time.sleep(_LOOK)
        try:
            yield
        finally:
            if self._claims is not None:
                self._claims.release(key)

    def _claim(self, number: int) -> str:
        return content_hash({"exploration": self._name, "trial": number})

    def _choice(self, trial: Any) -> Indices:
        return tuple(held.index(trial.params[name]) for name, held in self._listed.items())

    def _is_whole(self, trial: Any) -> bool:
        """Whether all parameters were asked for before whoever asked was gone."""
        return len(trial.params) == len(self.space.parameters)

    def _proposing(self, seed: int) -> Any:
        asked, samplers = self.exploration.asked, self._optuna.samplers
        if asked.sampler == "random":
            return samplers.RandomSampler(seed=seed)
        first = max(4, round(asked.batch * asked.screen.keep))
        if asked.sampler == "nsga2":
            return samplers.NSGAIISampler(population_size=first, seed=seed)
        return samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=first)
