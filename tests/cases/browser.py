"""tests/cases/browser.py: drives a headless Chromium through its debugging pipe, and writes pprof profiles.

flamegraph.py, pprof_readers.py and daemon_page.py use it.
"""
import base64
import fcntl
import json
import os
import select
import signal
import subprocess
import time

# No services, no first-run work, no requests to a network; the sandbox needs another user than root.
FLAGS = """--headless --no-sandbox --disable-gpu --no-first-run --disable-extensions --disable-sync
--disable-background-networking --disable-component-update --disable-default-apps --disable-breakpad
--disable-dev-shm-usage --hide-scrollbars --force-device-scale-factor=1 --remote-debugging-pipe
--no-proxy-server about:blank""".split()


class Browser:
    def __init__(self, folder, seconds=240, server=None):
        """server: the one address, "http://127.0.0.1:7227", that pages may come from and ask; None: only files."""
        self.server = server
        rules = "MAP * ~NOTFOUND" + (", EXCLUDE 127.0.0.1" if server else "")
        self.deadline = time.monotonic() + seconds
        (to_read, self.to), (self.back, back_write) = (map(self.high, os.pipe()) for _ in range(2))

        # The browser uses descriptors 3 and 4.
        start = f'exec chromium "$@" 3<&{to_read} 4>&{back_write} {to_read}<&- {back_write}>&-'
        with open(os.path.join(folder, "chromium.log"), "wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", start, "bash", f"--user-data-dir={folder}/browser", "--host-resolver-rules=" + rules, *FLAGS], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, pass_fds=(to_read, back_write), start_new_session=True,
                env={**os.environ, "HOME": folder})
        os.close(to_read)
        os.close(back_write)
        self.rest = b""
        self.number = 0
        self.events = []
        target = self("Target.createTarget", session=None, url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", session=None, targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self(domain + ".enable")

    @staticmethod
    def high(fd):
        """Return a copy of a descriptor with a number above 4, and close the original."""
        copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
        os.close(fd)
        return copy

    def receive(self):
        while b"\0" not in self.rest:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.back, 1 << 20)
            if not more:
                raise EOFError("the browser is gone")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def __call__(self, method, session=True, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            got = self.receive()
            if got.get("id") == self.number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            if "method" in got:
                self.events.append(got)

    def wait_for(self, method):
        while True:
            for i, event in enumerate(self.events):
                if event["method"] == method:
                    return self.events.pop(i)
            got = self.receive()
            if "method" in got:
                self.events.append(got)

    def open(self, path):
        self.events.clear()
        self("Page.navigate", url=self.server + path if self.server else "file://" + os.path.abspath(path))
        self.wait_for("Page.loadEventFired")

    def size(self, width, height):
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def eval(self, code):
        """Return the value of an expression; the page's policy does not apply to the debugger."""
        got = self("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{code}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def key(self, key, text=None):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "Backspace": 8, "Home": 36,
                 "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        more = {"windowsVirtualKeyCode": codes[key]} if key in codes else {"text": text or key}
        if key == "Enter":
            more["text"] = "\r"
        self("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text):
        for c in text:
            self.key(c)

    def mouse(self, kind, x, y, **more):
        self("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self("Page.captureScreenshot", format="png")["data"]))

    def complaints(self):
        """Return what the page was refused, threw or logged, and all requests beyond its own file or server."""
        self("Runtime.evaluate", expression="0")
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                found.append(json.dumps(params)[:400])
            elif event["method"] == "Network.requestWillBeSent":
                url = params["request"]["url"]
                own = self.server and url.startswith(self.server + "/")
                if not own and params.get("type") != "Document" and url != "data:,":
                    found.append("asks for " + url[:200])
        return found

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.to)
        os.close(self.back)


# ---- pprof, as profile.proto numbers it ------------------------------------------------


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, n):
    return varint(field << 3) + varint(n)


def message(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


class Profile:
    """Samples of (stack from the root, value, labels); kind may be a list of (type, unit), and a value is a list of
    as many numbers then; a frame is a name or (name, module), or a list of
    those that were inlined one into the other, the outermost first."""

    def __init__(self, kind="samples", unit="count", comments=()):
        self.texts = {b"": 0}
        kinds = [(kind, unit)] if isinstance(kind, (str, bytes)) else kind
        self.parts = [message(1, number(1, self.text(k)) + number(2, self.text(u))) for k, u in kinds]
        self.functions, self.modules, self.locations = {}, {}, {}
        self.parts += [number(13, self.text(c)) for c in comments]

    def text(self, text):
        raw = text if isinstance(text, bytes) else text.encode()
        return self.texts.setdefault(raw, len(self.texts))

    def function(self, name):
        if name not in self.functions:
            self.functions[name] = len(self.functions) + 1
            self.parts.append(message(5, number(1, self.functions[name]) + number(2, self.text(name)) +
                                      number(4, self.text("src/a.c")) + number(5, 7)))
        return self.functions[name]

    def module(self, path):
        if path not in self.modules:
            n = self.modules[path] = len(self.modules) + 1
            self.parts.append(message(3, number(1, n) + number(2, n << 32) + number(3, (n + 1) << 32) +
                                      number(5, self.text(path)) + number(7, 1)))
        return self.modules[path]

    def location(self, frame):
        key = tuple(frame) if isinstance(frame, list) else (frame,)
        if key not in self.locations:
            n = self.locations[key] = len(self.locations) + 1
            named = [f if isinstance(f, tuple) else (f, "/usr/bin/app") for f in key]
            module = self.module(named[0][1])
            lines = b"".join(message(4, number(1, self.function(name))) for name, _ in reversed(named))
            self.parts.append(message(4, number(1, n) + number(2, module) + number(3, (module << 32) + n) + lines))
        return self.locations[key]

    def sample(self, stack, value, **labels):
        ids = b"".join(varint(self.location(frame)) for frame in reversed(stack))
        told = b"".join(message(3, number(1, self.text(k)) + (number(3, v) if isinstance(v, int) else number(2, self.text(v))))
                        for k, v in labels.items())
        self.parts.append(message(2, message(1, ids) + message(2, b"".join(map(varint, value if isinstance(value, list) else [value]))) + told))

    def write(self, path):
        with open(path, "wb") as file:
            file.write(b"".join(self.parts) + b"".join(message(6, text) for text in self.texts))
