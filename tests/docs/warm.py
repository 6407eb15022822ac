"""The command `archgen` without its start: one process imports everything, and is forked for each.

The one idea: a page of twenty commands would import pandas, onnx and matplotlib twenty times, which
is most of the time that its test takes. So `archgen` on the path of the blocks is a few lines that
hand arguments, folder, environment and files to a process that has the imports. Its fork is the
command: it reads and prints in their place, and its exit code is theirs.

    python tests/docs/warm.py SOCKET      # the process; ends with its standard input
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

CLIENT = """#!{python} -SE
import json, os, socket, sys
here = socket.socket(socket.AF_UNIX)
here.connect({address!r})
told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(here, [len(told).to_bytes(4, "big")], [0, 1, 2])
here.sendall(told)
sys.exit(int(here.recv(4) or b"1"))
"""


@contextmanager
def commands() -> Iterator[Path]:
    """A folder that holds `archgen`, with what answers it; the usual one where nothing forks."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "archgen"
        if sys.platform != "linux":
            script.symlink_to(Path(sys.executable).with_name("archgen"))
            yield folder
            return
        address = str(folder / "socket")
        script.write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
        script.chmod(0o755)
        with subprocess.Popen(
            [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None
            server.stdout.readline()  # It listens.
            yield folder


def serve(address: str) -> None:
    """Fork a command for each connection until standard input ends."""
    for name in ("simmodel", "compiler", "archgen"):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    with socket.socket(socket.AF_UNIX) as door, selectors.DefaultSelector() as ready:
        door.bind(address)
        door.listen()
        ready.register(door, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        print("listens", flush=True)
        while all(key.fileobj is door for key, _ in ready.select()):
            peer, _ = door.accept()
            if os.fork() == 0:
                _command(peer)
            peer.close()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _command(peer: socket.socket) -> None:
    """Be the command that `peer` asks for; never returns."""
    size, files, _, _ = socket.recv_fds(peer, 4, 3)
    told = b""
    while len(told) < int.from_bytes(size, "big"):
        told += peer.recv(1 << 16)
    arguments, folder, environment = json.loads(told)
    for place, file in enumerate(files):
        os.dup2(file, place)
    # What the process printed to may have been of another kind.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv = ["archgen", *arguments]
    code = 1
    try:
        importlib.import_module("archgen.cli.main").main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        peer.sendall(str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
