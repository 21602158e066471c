"""A headless Chromium over its debugging pipe: no driver to install, no port, and every request and message is seen."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

__all__ = ["Browser", "Page", "chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def chromium() -> str | None:
    """Return the browser: ``SERVECHECK_CHROMIUM``, else the first that is found; ``None`` where there is none."""
    return os.environ.get("SERVECHECK_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """A running browser; use it as a context manager."""

    def __init__(self, path: str, *, patience: float = 60.0) -> None:
        self._path, self._patience = path, patience
        self._waiting: list[dict[str, Any]] = []
        self._last = 0
        self._rest = b""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            profile = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            from_us, self._write = os.pipe()
            self._read, to_us = os.pipe()
            # Descriptors 3 and 4 are where the browser looks; ours may be these very numbers.
            high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (from_us, to_us)]
            command = 'exec "$0" "$@" 3<&{} 4>&{}'.format(*high)
            flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
            for end in high:
                os.set_inheritable(end, True)
            self._process = subprocess.Popen(
                ["/bin/bash", "-c", command, self._path, *flags, f"--user-data-dir={profile}", "about:blank"],
                pass_fds=high,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for end in (*high, from_us, to_us):
                os.close(end)
            stack.callback(self._stop)
            self.call("Browser.getVersion")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _stop(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, session: str | None = None, **params: object) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are kept."""
        self._last += 1
        message: dict[str, object] = {"id": self._last, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:  # a pipe takes what fits
            data = data[os.write(self._write, data) :]
        for found in self._messages():
            if found.get("id") == self._last:
                assert "error" not in found, f"{method}: {found['error']}"
                result: dict[str, Any] = found["result"]
                return result
            self._waiting.append(found)
        raise AssertionError(f"{method}: the browser said nothing")

    def events(self) -> list[dict[str, Any]]:
        """Return the events since the last time."""
        found, self._waiting = self._waiting, []
        return found

    def _messages(self) -> Iterator[dict[str, Any]]:
        until = time.monotonic() + self._patience
        while True:
            whole, cut, rest = self._rest.partition(b"\0")
            if cut:
                self._rest = rest
                yield json.loads(whole)
                continue
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                return
            data = os.read(self._read, 1 << 20)
            if not data:
                return
            self._rest += data

    def page(self, path: Path, *, query: str = "", width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """Open a file and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.open(f"{path.resolve().as_uri()}{query}")
        return page


class Page:
    """A page, with what it asked for and what it complained about."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self._requests: list[str] = []
        self._complaints: list[str] = []

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command to this page."""
        return self._browser.call(method, self._session, **params)

    def open(self, url: str) -> None:
        """Go to an address and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        self.run("new Promise(r => document.readyState === 'complete' ? r() : addEventListener('load', () => r()))")

    def run(self, script: str) -> Any:
        """Evaluate an expression, waiting for a promise, and return its value."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Press a key as a keyboard does."""
        more = {"text": text} if text else {}
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes.get(key, 0), **more)

    def seen(self) -> tuple[list[str], list[str]]:
        """Return the addresses that were asked for, and errors and warnings of the console."""
        for event in self._browser.events():
            if event.get("sessionId") != self._session:
                continue
            method, params = event["method"], event["params"]
            if method == "Network.requestWillBeSent":
                self._requests.append(params["request"]["url"])
            elif method == "Runtime.exceptionThrown":
                self._complaints.append(str(params["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                self._complaints.append(str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                self._complaints.append(params["entry"]["text"])
        return self._requests, self._complaints

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen as a PNG file."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
