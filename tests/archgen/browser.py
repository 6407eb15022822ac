"""A real browser for tests: Chromium without a window, driven over a pair of pipes.

The one idea: the DevTools protocol is JSON messages that end in a zero byte, so a browser needs no
driver, no port and no package. A page is opened at a width and in a colour scheme; what it logs,
what fails in it and what it tries to load is kept.

    python tests/archgen/browser.py report.html pictures

takes pictures of a page, narrow and wide, light and dark, and exits with 1 where the page has
problems or is wider than its window.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-quic", "--disable-dev-shm-usage", "--remote-debugging-pipe",
    "--enable-unsafe-swiftshader",  # WebGL where there is no graphics card
)  # fmt: skip
_PATIENCE = 60.0
"""Seconds for one answer; machines that run tests may be busy."""


def chromium() -> str | None:
    """Path of a Chromium, or None where there is none."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One open page."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._count = 0
        self._session: str | None = None
        self.problems: list[str] = []
        """Errors, warnings and failed assertions of the page."""
        self.requests: list[str] = []
        """Addresses that it asked for."""
        self._events: list[str] = []

    def attach(self) -> None:
        """Open an empty page and listen to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        joined = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = joined["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, file: Path, width: int = 1280, scheme: str = "light", height: int = 900) -> None:
        """Load `file` at `width` pixels, as a reader whose system is set to `scheme` sees it."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.media("screen", scheme)
        self._events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        self._until("Page.loadEventFired")

    def media(self, kind: str, scheme: str) -> None:
        """Show the page on `screen` or in `print`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[feature])

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, JSON-ready; RuntimeError where it throws."""
        made = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in made:
            raise RuntimeError(str(made["exceptionDetails"].get("exception", made)))
        return made["result"].get("value")

    def point_at(self, x: float, y: float) -> None:
        """The mouse moved to a place of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, *places: tuple[float, float]) -> None:
        """The mouse pressed at the first place, moved through all, and released: a click at one."""
        held = {"button": "left", "clickCount": 1}
        (x, y), (last_x, last_y) = places[0], places[-1]
        self.point_at(x, y)
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **held)
        for x, y in places[1:]:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, buttons=1, **held)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=last_x, y=last_y, **held)

    def screenshot(self, target: Path, whole: bool = False) -> None:
        """What is visible, or the whole page, as a PNG file."""
        made = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        target.write_bytes(base64.b64decode(made["data"]))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The browser's answer to one command; RuntimeError where it refuses."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _until(self, event: str) -> None:
        while event not in self._events:
            self._next()

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            read = os.read(self._from, 1 << 20) if ready else b""
            if not read:
                raise RuntimeError("the browser does not answer")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            said = str(params["entry"]["text"])
            if "GL Driver Message" not in said:  # how fast drawing without a card is
                self.problems.append(said)
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(params["request"]["url"])[:200])


@contextmanager
def browser(path: str) -> Iterator[Page]:
    """A page of the Chromium at `path`, which ends with the block."""
    child_reads, to_browser = os.pipe()
    from_browser, child_writes = os.pipe()
    # The browser reads commands from 3 and answers on 4; first out of the way of these two.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (child_reads, child_writes)]

    def connect() -> None:
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [path, *_OPTIONS, f"--user-data-dir={profile}"],
            preexec_fn=connect, pass_fds=(3, 4), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (*ends, child_reads, child_writes):
            os.close(end)
        try:
            page = Page(to_browser, from_browser)
            page.attach()
            yield page
        finally:
            process.terminate()
            process.wait()
            os.close(to_browser)
            os.close(from_browser)


def main(file: Path, folder: Path) -> int:
    """Pictures of the page `file` in `folder`; 1 where something is wrong with it."""
    path = chromium()
    if path is None:
        print(f"no Chromium: looked for {', '.join(NAMES)} and at $CHROMIUM")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with browser(path) as page:
        for width in (380, 1280, 1600):
            for scheme in ("light", "dark"):
                page.open(file, width, scheme)
                page.screenshot(folder / f"{file.stem}-{width}-{scheme}.png", whole=True)
                found = page.run("document.documentElement.scrollWidth")
                wrong += found > width or bool(page.problems)
                print(f"{width} {scheme}: {found} pixels wide, problems: {page.problems}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
