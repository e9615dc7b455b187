# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests, driven through its debugging pipe (file
descriptors 3 and 4, one JSON message before each NUL).

    with Browser() as browser:
        browser.open("http://127.0.0.1:9464/")
        browser.wait_for("document.title === 'x'")
"""
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

LIMIT = 120


def find():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="hb-browser-")
        child_in, self.out = os.pipe()
        self.incoming, child_out = os.pipe()

        def place():
            # In this order, so that no descriptor is overwritten before it was used.
            first, second = os.dup(child_in), os.dup(child_out)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=os.environ | {"HOME": self.folder, "LD_LIBRARY_PATH": ""})
        os.close(child_in)
        os.close(child_out)
        self.number, self.rest, self.errors, self.session = 0, b"", [], None
        pages = [target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        page = pages[0]["targetId"] if pages else self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Log.enable")
        return self

    def __exit__(self, kind, value, trace):
        self.process.terminate()
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.incoming)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self):
        end = time.monotonic() + LIMIT
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.incoming], [], [], max(0, end - time.monotonic()))
            data = os.read(self.incoming, 1 << 16) if ready else b""
            assert data, "the browser does not answer"
            self.rest += data
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        """Keeps errors of the page: exceptions, and resources that the browser refused."""
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(message["params"]["exceptionDetails"].get("text"))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.errors.append(message["params"]["entry"]["text"])

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self.note(message)

    def open(self, address):
        self.call("Page.navigate", url=address)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, f"{script}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def wait_for(self, script):
        end = time.monotonic() + LIMIT
        while True:
            value = self.run(script)
            if value:
                return value
            assert time.monotonic() < end, f"never: {script}; the page:\n{self.run('document.body.innerText')}"
            time.sleep(0.05)

    def click(self, selector):
        """Clicks in the middle of the element, as a user would."""
        x, y = self.wait_for(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; "
                             "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); "
                             "return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)
