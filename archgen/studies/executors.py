"""Clusters that points can be sent to, each through its `concurrent.futures.Executor`.

Optional packages are imported here alone, when a study asks for them. Results are stored by the
process that asked; the cluster's machines need archgen in the same version, and the files of
models at the same paths.
"""

from __future__ import annotations

import os
from concurrent.futures import CancelledError, Future
from importlib import import_module
from itertools import count
from typing import Any

from archgen.outcomes.points import Outcome, Point
from archgen.process.cache import code_version
from archgen.studies.design import StudyError
from archgen.studies.workers import Tools, WorkerDied, Workers, WorkersGone, run_here

_DASK = "dask:"
_START = 20
"""Seconds in which a scheduler has to answer."""


def is_cluster(name: str) -> bool:
    """Whether `name` stands for a cluster."""
    return name.startswith(_DASK)


def cluster(name: str, tools: Tools) -> Workers:
    """The cluster that `name` stands for: `dask:tcp://host:port`, or `dask:local`, which starts
    one on this machine (`dask:local:4` with four workers).

    Raises StudyError when it cannot be reached, or is of another version.
    """
    address: Any = name.removeprefix(_DASK)
    kind, _, size = address.partition(":")
    if kind == "local" and size and not (size.isascii() and size.isdigit() and int(size)):
        raise StudyError([f"executor {name}: expected a positive number of workers, got {size!r}"])
    try:
        distributed = import_module("distributed")
    except ImportError:
        said = f"executor {name}: needs the package distributed: pip install 'archgen[cluster]'"
        raise StudyError([said]) from None
    try:
        if kind == "local":
            quiet = {"threads_per_worker": 1, "dashboard_address": None}
            address = distributed.LocalCluster(n_workers=int(size) if size else None, **quiet)
        client = distributed.Client(address, timeout=_START)
    except (OSError, ValueError) as mistake:
        raise StudyError([f"executor {name}: no scheduler answers: {mistake}"]) from None
    others = {version for version in client.run(_version).values() if version != code_version()}
    if others:
        client.close()
        raise StudyError([f"executor {name}: its workers have another version of archgen"])
    return _Dask(client, distributed.KilledWorker, tools)


class _Dask(Workers):
    """The workers of a Dask cluster, which may come and go while a study runs."""

    def __init__(self, client: Any, killed: type[Exception], tools: Tools) -> None:
        self._client, self._killed, self._tools = client, killed, tools
        self._executor = client.get_executor(pure=False)
        self._names = (f"archgen-{number}" for number in count())
        self._theirs: dict[Future[Outcome], tuple[Future[Outcome], str]] = {}

    def room(self) -> int:
        """Threads of all workers that there are now."""
        threads: dict[str, int] = self._client.nthreads()
        return max(1, sum(threads.values()))

    def submit(self, point: Point) -> Future[Outcome]:
        """Hand the point to the cluster, which gives it to another worker if one dies with it."""
        key = f"{next(self._names)}-{point.key}"
        theirs = self._executor.submit(run_here, point, self._tools, key=key)
        mine: Future[Outcome] = Future()
        self._theirs[mine] = theirs, key
        theirs.add_done_callback(lambda done: self._over(mine, done))
        return mine

    def _over(self, mine: Future[Outcome], theirs: Future[Outcome]) -> None:
        if self._theirs.pop(mine, None) is None:
            return
        try:
            mine.set_result(theirs.result())
        except CancelledError:
            mine.set_exception(WorkersGone("the cluster's scheduler is gone; run again to go on"))
        except self._killed:
            mine.set_exception(WorkerDied())
        except Exception as mistake:
            mine.set_exception(mistake)

    def abandon(self, future: Future[Outcome]) -> None:
        """Restart the worker that has the point; a thread cannot be stopped otherwise. One that
        nobody would restart is ended."""
        theirs, key = self._theirs.pop(future, (None, ""))
        if theirs is None:
            return
        at = [address for address, keys in self._client.processing().items() if key in keys]
        theirs.cancel()
        if not at:
            return
        try:
            self._client.restart_workers(at, raise_for_error=False)
        except ValueError:  # it has no nanny
            self._client.run(_leave, workers=at, wait=False)

    def close(self) -> None:
        """Leave the cluster, or end it where the study has started it."""
        self._theirs.clear()
        self._executor.shutdown(wait=False)
        cluster = self._client.cluster
        self._client.close()
        if cluster is not None:
            cluster.close()


def _version() -> str:
    """Of the worker's sources; asked for here, where all that points need is imported, so that
    imports are no point's time."""
    return code_version()


async def _leave() -> None:
    """End the process at once."""
    os._exit(1)
