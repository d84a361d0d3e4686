"""Drives a headless Chromium by its debugging pipe: opens a page, sends mouse and keys, takes pictures.

Only needs Python and a Chromium; find_browser() returns None if there is none.
"""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser():
    named = os.environ.get("SHARDLENS_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A tab of a Chromium that ends with the object."""

    def __init__(self, program, width=1300, height=900, scale=1):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, commands = os.pipe()
        answers, from_browser = os.pipe()

        def take_pipes():  # Chromium reads commands from 3 and answers on 4
            os.dup2(to_browser, 13)
            os.dup2(from_browser, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}",
             f"--force-device-scale-factor={scale}", "about:blank"],
            preexec_fn=take_pipes, close_fds=False, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.commands = os.fdopen(commands, "wb", buffering=0)
        self.answers = os.fdopen(answers, "rb")
        self.number = 0
        self.events = []
        self.session = None
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        self.send("Page.enable")
        self.send("Runtime.enable")
        self.send("Network.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=False)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        """Ends Chromium with every process that it has started: some outlive the first one by a
        moment, in which they still write into the folder that is removed here."""
        self.commands.close()
        self.process.terminate()
        self.process.wait(timeout=60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.answers.close()
        self.folder.cleanup()

    def read(self):
        text = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser has ended")
            text += byte
        return json.loads(text)

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != self.number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path):
        self.events.clear()
        self.send("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_for("document.readyState === 'complete'")

    def ask(self, expression):
        """Returns the value of a JavaScript expression, as JSON."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression, seconds=120):
        end = time.monotonic() + seconds
        while not self.ask(expression):
            if time.monotonic() > end:
                raise RuntimeError(f"not within {seconds} s: {expression}")
            time.sleep(0.02)

    def frame(self):
        """Waits until the last input is drawn."""
        self.ask("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
                 ".then(() => 1)")

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.frame()

    def click(self, x, y):
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.frame()

    def drag(self, x0, y0, x1, y1):
        self.move(x0, y0)
        self.mouse("mousePressed", x0, y0, button="left", buttons=1, clickCount=1)
        for part in (0.25, 0.5, 0.75, 1):
            self.mouse("mouseMoved", x0 + part * (x1 - x0), y0 + part * (y1 - y0), button="left",
                       buttons=1)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1)
        self.frame()

    def wheel(self, x, y, delta, shift=False):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta, modifiers=8 if shift else 0)
        self.frame()

    def key(self, key, text=None):
        text = text if text is not None else (key if len(key) == 1 else None)
        down = {"type": "keyDown", "key": key} | ({"text": text} if text else {})
        self.send("Input.dispatchKeyEvent", **down)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def box(self, selector, index=0):
        """Returns x, y, width and height of an element, in pixels of the tab."""
        return self.ask(f"(() => {{ const b = document.querySelectorAll({json.dumps(selector)})"
                        f"[{index}].getBoundingClientRect();"
                        f" return [b.x, b.y, b.width, b.height]; }})()")

    def click_text(self, text):
        """Clicks the button with this text."""
        self.ask("[...document.querySelectorAll('button')]"
                 f".find(b => b.textContent.startsWith({json.dumps(text)})).click()")
        self.frame()

    def picture(self, path):
        answer = self.send("Page.captureScreenshot", format="png")
        pathlib.Path(path).write_bytes(base64.b64decode(answer["data"]))

    def requests(self):
        """Returns the addresses that the page requested since it was opened, except its own."""
        self.ask("1")
        asked = [event["params"]["request"]["url"] for event in self.events
                 if event.get("method") == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("file:")]
