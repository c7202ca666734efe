"""Chromium without a window, driven by its DevTools protocol: keys, sizes, pictures and requested addresses."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
GENEROUS_S = 60.0  # a busy machine is slow
KEYS = {"Tab": 9, "Enter": 13, " ": 32}


class Browser:
    """A browser with an empty profile, and one page."""

    def __init__(self, folder: Path) -> None:
        from websockets.sync.client import connect

        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-background-networking",
        ]
        options += ["--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}", "about:blank"]
        self._process = subprocess.Popen(
            [CHROMIUM, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.requested: list[str] = []
        self._number = 0
        port = self._wait(lambda: self._port(folder / "profile" / "DevToolsActivePort"))
        self._stack = contextlib.ExitStack()
        self._socket = self._stack.enter_context(connect(self._page_of(port), max_size=None))
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters):
        """Send a command and return its result; events that arrive meanwhile are stored."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=GENEROUS_S))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._take(message)

    def open(self, address: str) -> None:
        """Load a page and wait until it is complete."""
        with self.loading():
            self.call("Page.navigate", url=address)

    @contextlib.contextmanager
    def loading(self):
        """Wait until the block has led to another document, and it is complete."""
        self.value("window.isBefore = true")
        yield
        self._wait(lambda: self.value("document.readyState === 'complete' && !window.isBefore", of_any=True))

    def value(self, code: str, *, of_any: bool = False):
        """Return the value of an expression on the page; with `of_any`, None while there is no page."""
        try:
            result = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        except AssertionError:
            if of_any:
                return None
            raise
        if of_any and "exceptionDetails" in result:
            return None
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def set_size(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Set the size of the page, as of a telephone or a screen."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, key: str) -> None:
        """Press a key."""
        facts = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **facts, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def write(self, text: str) -> None:
        """Write a text where the focus is."""
        self.call("Input.insertText", text=text)

    def follow(self, key: str) -> None:
        """Press a key that loads another page."""
        with self.loading():
            self.press(key)

    def tab_to(self, words: str, most: int = 60) -> None:
        """Press Tab until the focus is on an element with a text or a label."""
        focus = "(e => [e.innerText || '', e.labels ? [...e.labels].map(l => l.innerText).join(' ') : ''].join(' '))"
        for _ in range(most):
            self.press("Tab")
            if words in self.value(f"{focus}(document.activeElement)"):
                return
        raise AssertionError(f"the keyboard does not reach {words!r}")

    def picture(self, path: Path) -> None:
        """Write a picture of the whole page."""
        content = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(content))

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        self._stack.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()

    def _take(self, message) -> None:
        if message.get("method") == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])

    def _port(self, path: Path) -> int | None:
        return int(path.read_text().splitlines()[0]) if path.exists() and path.read_text().strip() else None

    def _page_of(self, port: int) -> str:
        import urllib.request

        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=GENEROUS_S) as answer:
            pages = json.load(answer)
        return next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")

    def _wait(self, condition):
        end = time.monotonic() + GENEROUS_S
        while time.monotonic() < end:
            if result := condition():
                return result
            time.sleep(0.05)
        raise TimeoutError("the browser did not answer in time")
