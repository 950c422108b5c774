"""Tests the daemon's page in a headless Chromium.

usage: daemon_page.py OFFWIND DIRECTORY PORT

DIRECTORY has the program phases (daemon_page.c). The daemon records this program only. It is told when to enter its
second phase, so that both have as much CPU time as the test needs on a machine that is busy.
"""
import gzip
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cases"))
from browser import Browser

offwind, folder, port = sys.argv[1:4]
NEEDED = 40  # samples of each phase
LEFT, RIGHT, TOP, BOTTOM = 54, 8, 4, 18  # px around the charts
TOKEN = "s3cret"
HOSTILE = "<b id=pwned>"
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print(f"FAIL: {what}", flush=True)


def equal(got, want, what):
    check(got == want, f"{what}: {got!r}, not {want!r}")


def until(condition, what, seconds=180):
    """Return what condition returns, once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = condition()
        if got:
            return got
        time.sleep(0.05)
    print(f"FAIL: waited in vain: {what}", flush=True)
    sys.exit(1)


# ---- the daemon -------------------------------------------------------------------------


server = f"http://127.0.0.1:{port}"


def ask(path):
    with urllib.request.urlopen(server + path, timeout=60) as reply:
        return reply.read()


def samples_of(function, start):
    """Return how many samples of a function there are; this ends the window, so that they are in the history."""
    try:
        ask("/debug/pprof/profile?seconds=1")
    except urllib.error.HTTPError as error:
        if error.code != 503:  # the window was not written in time
            raise
        return 0
    query = urllib.parse.urlencode({"from": start, "to": "now", "type": "samples", "focus": f"^{function}$", "step": 86400000})
    return sum(sum(one["values"]) for one in json.loads(ask("/api/v1/timeline?" + query))["series"])


def is_ready():
    """Return whether the daemon answers; None: it wants a token."""
    try:
        return ask("/healthz") == b"ok\n"
    except urllib.error.HTTPError as error:
        return None if error.code == 401 else False
    except OSError:
        return False


# ---- the page --------------------------------------------------------------------------------


class Page(Browser):
    def __init__(self):
        super().__init__(folder, 480, server)

    def go(self, state, settles=True):
        """Open the page anew: an address that differs behind # only would load nothing."""
        self("Page.navigate", url="about:blank")
        self.wait_for("Page.loadEventFired")
        self("Page.navigate", url=server + "/#" + state)
        self.wait_for("Page.loadEventFired")
        if settles:
            self.settle()

    def address(self):
        return dict(urllib.parse.parse_qsl(self.eval("location.hash.slice(1)"), keep_blank_values=True))

    def graph(self, code):
        """Evaluate an expression in the flame graph's frame, whose document is d."""
        return self.eval("(d => %s)(document.querySelector('#graph iframe:not(.coming)')?.contentDocument)" % code)

    def settle(self):
        """Wait until all that the state asks for is shown."""
        until(lambda: self.eval("""document.readyState === 'complete' && document.documentElement.dataset.timeline !== undefined
            && document.documentElement.dataset.heatmap !== undefined && !Daemon.isBusy() && !document.querySelector('.coming')
            && !document.querySelector('[role=tabpanel]:not([hidden])[aria-busy=true]')
            && !document.querySelector('[role=tabpanel]:not([hidden]):empty')"""), "the page settles")
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def functions(self):
        """Return the texts of the graph's frames."""
        return self.graph("[...d.querySelectorAll('g.frame foreignObject div')].map(e => e.textContent)")

    def press(self, selector):
        self.eval(f"document.querySelector({selector!r}).click()")
        self.settle()

    def place(self, id, t):
        """Return where a time is in a chart; in the heat map, upward is the part of its column."""
        box = self.eval(f"(r => [r.x, r.y, r.width, r.height])(document.getElementById('{id}').getBoundingClientRect())")
        start, end = self.eval("State.shown()")
        column = self.eval("Charts.columnFor(State.shown())")
        part = t / column % 1 if id == "heatmap" else 0.5
        return box[0] + LEFT + (t - start) / (end - start) * (box[2] - LEFT - RIGHT), box[1] + TOP + (1 - part) * (box[3] - TOP - BOTTOM)

    def drag(self, id, start, end):
        (x, y), (to, down) = self.place(id, start), self.place(id, end)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        for part in 0.3, 0.7, 1:
            self.mouse("mouseMoved", x + (to - x) * part, y + (down - y) * part, button="left", buttons=1)
        self.mouse("mouseReleased", to, down, button="left", clickCount=1)
        self.settle()

    def hover(self, code):
        """Move the mouse to an element of the graph's frame."""
        x, y = self.eval("(e => (e.scrollIntoView({ block: 'center' }), (r => [r.x, r.y])(e.getBoundingClientRect())))(document.querySelector('#graph iframe'))")
        box = self.graph(f"(r => [r.x, r.y, r.width, r.height])(({code}).getBoundingClientRect())")
        self.mouse("mouseMoved", x + box[0] + box[2] / 2, y + box[1] + box[3] / 2)

    def travel(self, by=-1):
        before = self.eval("location.hash")
        self.eval(f"history.go({by})")
        until(lambda: self.eval("location.hash") != before, "the way back")
        self.settle()

    def shift(self, key):
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        for kind in "keyDown", "keyUp":
            self("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], modifiers=8)


def legend(b):
    return b.eval("[...document.querySelectorAll('#legend > *')].map(e => e.textContent)")


def selected(b):
    return [float(t) for t in b.address()["select"].split("~")]


def test_shows(b, times):
    b.go(times)
    entries = legend(b)
    check(any(e.startswith("phases ") for e in entries), f"the legend: {entries}")
    check(any(e.startswith(HOSTILE) for e in entries), f"a hostile name in the legend: {entries}")
    equal(b.eval("document.getElementById('pwned')"), None, "an element out of a name")
    check("CPUs" in b.eval("document.getElementById('scale').textContent"), "the timeline has a unit")
    check("CPUs" in b.eval("document.getElementById('heat-key').textContent"), "the heat map has a unit")
    check(b.eval("document.querySelectorAll('#timeline .area').length") == 2, "two areas")
    names = b.functions()
    for name in "phase_one", "phase_two", "child_work":
        check(name in names, f"{name} is not in the graph: {names}")
    rows = b.graph("[...d.querySelectorAll('#table-rows tr')].map(e => e.textContent)")
    check(any("phase_two" in r for r in rows), f"the table: {rows[:5]}")
    equal(b.graph("d.getElementById('title').offsetParent"), None, "the frame has no title of its own")
    check(b.eval("(c => { const g = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return g.some(v => v > 0); })(document.querySelector('#heatmap canvas'))"),
          "the heat map is not empty")


def test_selects(b, phases):
    one, two = phases
    b.drag("timeline", *one)
    got = selected(b)
    slack = b.eval("(s => (s[1] - s[0]) / 100)(State.shown())")
    check(abs(got[0] - one[0]) < slack and abs(got[1] - one[1]) < slack, f"selected {got}, not {one}")
    names = b.functions()
    check("phase_one" in names and "phase_two" not in names, f"the first phase: {names}")
    check(b.eval("document.querySelector('#timeline .select') !== null && document.querySelector('#heatmap .select') !== null"), "both charts show it")
    link = b.eval("location.href")
    b.drag("heatmap", *two)
    names = b.functions()
    check("phase_two" in names and "phase_one" not in names, f"the second phase: {names}")
    b.travel()
    equal(b.eval("location.href"), link, "back")
    names = b.functions()
    check("phase_one" in names and "phase_two" not in names, f"after going back: {names}")
    b.travel(1)
    check("phase_two" in b.functions(), "and forward")
    b.travel(-2)
    check("select" not in b.address(), "back to no selection")
    names = b.functions()
    check("phase_one" in names and "phase_two" in names, f"without a selection: {names}")
    b.go(link.split("#")[1])
    names = b.functions()
    check("phase_one" in names and "phase_two" not in names, f"a link shows the same: {names}")
    b.press("#clear")
    check("select" not in b.address(), "the button clears the selection")


def test_filters(b):
    b.eval("[...document.querySelectorAll('#legend button')].find(e => e.textContent.startsWith('phases ')).click()")
    b.settle()
    equal(b.address().get("label"), "comm=phases", "the filter is in the address")
    names = b.functions()
    check("phase_one" in names and "child_work" not in names, f"one process: {names}")
    equal(len(legend(b)), 1, "entries of the legend")
    b.press("#filters button")
    check("label" not in b.address() and "child_work" in b.functions(), "all processes")
    b.eval(f"[...document.querySelectorAll('#legend button')].find(e => e.textContent.startsWith({HOSTILE!r})).click()")
    b.settle()
    equal(b.address().get("label"), "comm=" + HOSTILE, "a hostile filter")
    check("child_work" in b.functions() and "phase_one" not in b.functions(), "its process")
    b.press("#filters button")


def test_compares(b, phases):
    one, two = phases
    b.drag("timeline", *one)
    b.press("#as-base")
    b.drag("timeline", *two)
    check("~" in b.address().get("base", ""), f"the base is in the address: {b.address()}")
    equal(b.eval("document.querySelectorAll('#timeline .base').length"), 1, "the timeline shows the base")
    check("compared with" in b.graph("d.getElementById('summary').textContent"), "the graph says that it compares")
    changes = {f.split(" % ")[1]: float(f.split(" % ")[0].replace("−", "-").replace("±", "")) for f in b.functions() if " % " in f}
    check(changes.get("phase_two", 0) > 20 and changes.get("phase_one", 0) < -20, f"the difference: {changes}")
    b.eval("(s => { s.value = ''; s.dispatchEvent(new Event('change')); })(document.getElementById('compare'))")
    b.settle()
    check("base" not in b.address(), "no base")
    b.press("#clear")
    # Two values of a label.
    b.press("#tab-labels")
    check(b.eval("document.querySelectorAll('#labels tbody tr').length") == 2, "two processes")
    b.eval("document.querySelector('#labels button[aria-label=\"Only comm=phases\"]').click()")
    b.settle()
    b.eval(f"[...document.querySelectorAll('#labels button')].find(e => e.getAttribute('aria-label') === 'Compare with comm={HOSTILE}').click()")
    b.settle()
    equal((b.address().get("label"), b.address().get("base_label")), ("comm=phases", "comm=" + HOSTILE), "two values")
    changes = {f.split(" % ")[1]: f[0] for f in b.functions() if " % " in f}
    equal((changes.get("child_work"), changes.get("phase_one")), ("−", "+"), "their difference")
    b.eval("State.change({ base: null, labels: [] })")
    b.settle()


def test_graph(b):
    b.eval("document.activeElement.blur()")
    b.key("/")
    equal(b.graph("d.activeElement.id"), "search", "the key / leads into the graph")
    b.type("phase_t")
    until(lambda: "search=phase_t" in b.address().get("graph", ""), "the search is in the address")
    rows = b.graph("[...d.querySelectorAll('#table-rows tr')].length")
    equal(rows, 1, "rows that the search finds")
    b.key("Escape")
    until(lambda: "search" not in b.address().get("graph", ""), "the search is cleared")
    before = b.eval("location.href")
    x, y = b.eval("(r => [r.x, r.y])(document.querySelector('#graph iframe').getBoundingClientRect())")
    b.eval("document.querySelector('#graph iframe').scrollIntoView()")
    x, y = b.eval("(r => [r.x, r.y])(document.querySelector('#graph iframe').getBoundingClientRect())")
    f = b.graph("(r => [r.x, r.y])([...d.querySelectorAll('g.frame')].find(g => g.textContent.startsWith('phase_two')).querySelector('rect').getBoundingClientRect())")
    b.click(x + f[0] + 3, y + f[1] + 5)
    until(lambda: "zoom=" in b.address().get("graph", ""), "the zoom is in the address")
    zoomed = b.eval("location.href")
    b.travel()
    equal(b.eval("location.href"), before, "back undoes the zoom")
    until(lambda: b.graph("d.querySelectorAll('g.frame.fade').length") == 0, "the graph follows")
    b.travel(1)
    until(lambda: b.graph("d.querySelectorAll('g.frame.fade').length") > 0, "and forward")
    equal(b.eval("location.href"), zoomed, "its address")
    # A row of the table and the frames of its function show each other.
    b.hover("[...d.querySelectorAll('#table-rows tr')].find(e => e.textContent.includes('phase_two'))")
    until(lambda: set(b.graph("[...d.querySelectorAll('g.frame[data-linked] foreignObject div')].map(e => e.textContent)")) == {"phase_two"}, "the frames of a row", 20)
    b.hover("[...d.querySelectorAll('g.frame')].find(g => g.textContent === 'main')")
    until(lambda: [r for r in b.graph("[...d.querySelectorAll('#table-rows tr[data-linked]')].map(e => e.textContent)") if "main" in r], "the row of a frame", 20)
    # Where a function ran.
    check("phase_two" in b.graph("d.getElementById('detail-text').textContent"), "the frame in focus")
    b.graph("d.getElementById('mark').click()")
    until(lambda: b.address().get("mark") == "phase_two", "the mark is in the address")
    b.settle()
    until(lambda: b.eval("document.querySelectorAll('#timeline .mark').length") == 1, "the mark is drawn")
    check(any(e.startswith("phase_two: ") and "%" in e for e in legend(b)), f"the mark in the legend: {legend(b)}")
    # Callers and callees.
    b.graph("d.getElementById('around').click()")
    until(lambda: "of=phase_two" in b.address().get("graph", ""), "callers and callees are in the address")
    callers = b.graph("[...d.querySelectorAll('#chart-callers g.frame foreignObject div')].map(e => e.textContent)")
    check("main" in callers and "phase_two" in callers, f"callers: {callers}")
    b.eval("State.change({ graph: null, mark: '' })")
    b.settle()


def test_hides_interpreters(b):
    graphs = "performance.getEntriesByType('resource').map(e => e.name).filter(n => n.includes('/flamegraph?') && n.includes('hide=interpreters')).length"
    box = "document.getElementById('hide').checked"
    b.eval("performance.clearResourceTimings()")
    equal((b.eval(box), b.eval(graphs)), (False, 0), "not at first")
    b.press("#hide")
    b.settle()
    equal((b.address().get("hide"), b.eval(box), b.eval(graphs)), ("interpreters", True, 1), "the address and the graph say so")
    check("main" in b.functions(), f"other programs stay: {b.functions()[:9]}")
    b.travel()
    b.settle()
    check("hide" not in b.address() and not b.eval(box), "back")
    b.eval("State.change({ hide: 'interpreters' })")
    b.press("#hide")
    b.settle()
    check("hide" not in b.address(), "pressed once more")


def test_keyboard(b):
    b.eval("document.getElementById('presets').querySelector('button').focus()")
    for _ in range(20):
        b.key("Tab")
        if b.eval("document.activeElement.id") == "timeline":
            break
    equal(b.eval("document.activeElement.id"), "timeline", "Tab leads to the timeline")
    check("CPUs" in b.eval("document.activeElement.getAttribute('aria-valuetext')"), "what is there is said")
    b.key("Home")
    for _ in range(3):
        b.key("ArrowRight")
    steps = b.eval("history.length")
    for _ in range(4):
        b.shift("ArrowRight")
    b.settle()
    got, step = selected(b), b.eval("Charts.stepFor(State.shown())")
    check(abs(got[1] - got[0] - 4 * step) < step / 10, f"four steps of {step}: {got}")
    equal(b.eval("history.length"), steps + 1, "one step for the back button")
    b.key("Enter")
    b.settle()
    shown = b.eval("State.shown()")
    check(shown[0] <= got[0] + 0.01 and shown[1] >= got[1] - 0.01 and shown[1] - shown[0] < max(5.1, 5 * step), f"Enter zooms in: {shown}, selected {got}")
    b.travel()
    b.eval("document.getElementById('heatmap').focus()")
    equal(b.eval("document.activeElement.getAttribute('role')"), "slider", "a role")
    b.key("ArrowUp")
    b.shift("ArrowUp")
    b.shift("ArrowUp")
    b.settle()
    got = selected(b)
    check(0.02 < got[1] - got[0] < 3 * b.eval("Charts.columnFor(State.shown())"), f"parts of a second: {got}")
    b.key("Escape")
    b.settle()
    check("select" not in b.address(), "Escape clears the selection")
    b.eval("document.getElementById('tab-graph').focus()")
    b.key("ArrowRight")
    b.settle()
    equal((b.address().get("view"), b.eval("document.activeElement.id")), ("samples", "tab-samples"), "arrows change the tab")


def check_names(b, tab):
    """Check that a screen reader has a name for each control."""
    unnamed = b.eval("""[...document.querySelectorAll('button, select, input, a, [role=slider], [role=tab], iframe')]
        .filter(e => e.offsetParent && !(e.textContent.trim() || e.getAttribute('aria-label') || e.title || e.closest('label'))).map(e => e.outerHTML.slice(0, 80))""")
    equal(unnamed, [], f"controls without a name: {tab}")


def test_touch(b, phases):
    b("Emulation.setTouchEmulationEnabled", enabled=True)
    b.press("#tab-graph")
    (x, y), (to, _) = b.place("timeline", phases[0][0]), b.place("timeline", phases[0][1])
    b("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    for part in 0.2, 0.4, 0.6, 0.8, 1:
        b("Input.dispatchTouchEvent", type="touchMove", touchPoints=[{"x": x + (to - x) * part, "y": y}])
    b("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    b.settle()
    check("select" in b.address(), "a finger selects")
    names = b.functions()
    check("phase_one" in names and "phase_two" not in names, f"what it selected: {names}")
    b("Emulation.setTouchEmulationEnabled", enabled=False)
    b.press("#clear")


def follow(b, link, text=""):
    """Choose the first link of those within the page that has a text."""
    before = b.eval("location.hash")
    b.eval(f"[...document.querySelectorAll({link!r})].find(e => e.textContent.includes({text!r})).click()")
    until(lambda: b.eval("location.hash") != before, f"the link {link} leads on")
    b.settle()


def test_tabs(b, phases):
    b.press("#tab-samples")
    follow(b, "#samples tbody a", "phase_")
    text = b.eval("document.getElementById('samples').textContent")
    check("main" in text and "CFA = " in text and "Ended: root. The stack ended" in text, f"an explanation: {text[:1000]}")
    equal(b.eval("document.activeElement.tagName"), "H2", "the focus is at the explanation")
    # From a frame to its row of the unwind table, and back.
    follow(b, "#samples td.code a")
    equal((b.address().get("view"), b.eval("document.querySelectorAll('#unwind .hit').length")), ("unwind", 1), "the row of a frame")
    check(b.eval("document.querySelector('#unwind h2').textContent").endswith("/phases"), "its file")
    b.press("#rows-first")
    check("pc" not in b.address() and b.eval("document.querySelectorAll('#unwind tbody tr').length") > 5, "the table from its beginning")
    b.travel(-2)
    equal(b.eval("document.getElementById('samples').textContent"), text, "back to the explanation")
    b.travel()
    b.press("#tab-unwind")
    check("/phases" in b.eval("document.getElementById('unwind').textContent"), "files with tables")
    b.eval("(e => { e.value = 'libc.so'; e.dispatchEvent(new Event('change')); })(document.getElementById('find'))")
    b.settle()
    found = b.eval("[...document.querySelectorAll('#unwind tbody a')].map(e => e.textContent)")
    check(found and all("libc.so" in name for name in found), f"files that are searched for: {found}")
    b.eval("State.change({ find: '' })")
    # One thread along the time.
    b.press("#tab-threads")
    lines = b.eval("document.querySelectorAll('#lane .area').length")
    check(lines >= NEEDED, f"samples of a thread: {lines}")
    check("off-cpu = " in b.eval("document.getElementById('threads').textContent"), "how waits can be recorded")
    b.eval("document.querySelector('#lane .area').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    b.settle()
    check("CFA = " in b.eval("document.getElementById('of-thread').textContent"), "a sample of the lane")
    other = b.eval("(s => { s.selectedIndex = 1; s.dispatchEvent(new Event('change')); return s.value; })(document.getElementById('thread'))")
    b.settle()
    equal((b.address().get("thread"), b.address().get("sample")), (other, None), "the other thread is in the address")
    b.press("#tab-complete")
    text = until(lambda: (lambda t: t if "Loading" not in t else "")(b.eval("document.getElementById('complete').textContent")), "completeness")
    check(" are whole." in text and "root" in text and "fired" in text and "unwound" in text, text[:400])
    b.press("#tab-graph")
    file = os.path.join(folder, "offwind.pb.gz")
    b("Browser.setDownloadBehavior", session=None, behavior="allow", downloadPath=folder)
    b.press("#pprof")
    until(lambda: os.path.exists(file), "the download")
    with gzip.open(file) as profile:
        check(b"phase_one" in profile.read(), "the download")


def test_time(b, times):
    b.press("#live")
    check("from" not in b.address() and b.eval("document.getElementById('live').getAttribute('aria-pressed')") == "true", f"live: {b.address()}")
    b.press("[data-last='900']")
    equal(b.address().get("last"), "900", "the last 15 minutes")
    asked = b.eval("document.documentElement.dataset.timeline")
    until(lambda: b.eval("document.documentElement.dataset.timeline") != asked, "a live page goes on")
    b.press("#live")
    check("from" in b.address(), "not live any more")
    shown = b.eval("State.shown()")
    b.press("#earlier")
    now = b.eval("State.shown()")
    check(abs(shown[0] - now[0] - 450) < 1, f"earlier: {shown}, {now}")
    b.press("#zoom-out")
    now = b.eval("State.shown()")
    check(abs(now[1] - now[0] - 1800) < 1, f"zoomed out: {now}")
    b.eval("(s => { s.value = 'thread'; s.dispatchEvent(new Event('change')); })(document.getElementById('by'))")
    b.settle()
    equal(b.address().get("by"), "thread", "by thread")
    b.go(times)


def test_looks(b):
    b.size(480, 900)
    b.settle()
    check(b.eval("document.documentElement.scrollWidth") <= 480, f"at 480 px the page is {b.eval('document.documentElement.scrollWidth')} wide")
    check(b.graph("d.documentElement.scrollWidth") <= 480, "the graph is wider")
    for tab in "samples", "threads", "labels", "complete", "unwind", "graph":
        b.press(f"#tab-{tab}")
        check_names(b, tab)
        check(b.eval("document.documentElement.scrollWidth") <= 480, f"at 480 px {tab} is {b.eval('document.documentElement.scrollWidth')} wide")
        wide = b.eval("[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent.slice(0, 80))")
        equal(wide, [], f"at 480 px, tables of {tab} that must be scrolled to the side")
    b.size(1200, 900)
    b.settle()
    ground = lambda: b.eval("getComputedStyle(document.body).backgroundColor"), lambda: b.graph("d.defaultView.getComputedStyle(d.body).backgroundColor")
    light = [g() for g in ground]
    b("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = [g() for g in ground]
    check(light[0] == light[1] and dark[0] == dark[1] and light != dark, f"light {light}, dark {dark}")
    b("Emulation.setEmulatedMedia", features=[])
    b.press("#theme")
    equal([g() for g in ground], dark, "the button")
    b.press("#theme")
    equal([g() for g in ground], light, "and back")


def test_problems(b, times):
    """Test that broken links and what the daemon refuses are survived and said."""
    b.go("from=abc&to=1&select=2~1&label=x&base=zz&view=nothing&graph=%23%26zoom%3D-1")
    equal(b.eval("document.getElementById('problem').hidden"), True, "a broken link")
    b.go(times + "&type=nothing", settles=False)
    until(lambda: "no sample type 'nothing'" in b.eval("document.getElementById('problem').textContent"), "what the daemon says")
    equal([c for c in b.complaints() if "status of 400" not in c], [], "other complaints")


def test_nothing(b, times):
    """Test what the page says when there is no sample, or no daemon."""
    b.go(times + "&label=comm%3Dnobody")
    check("No sample of this time passes the filters." in b.eval("document.getElementById('legend').textContent"), "nobody's samples")
    b.press("#legend button")
    check("label" not in b.address() and len(legend(b)) == 2, "all samples again")
    problem = "document.getElementById('problem')"
    b("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    b.eval("document.getElementById('later').click()")
    until(lambda: "does not answer" in b.eval(problem + ".textContent"), "no daemon")
    b("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    until(lambda: b.eval(problem + ".hidden"), "the daemon is there again")
    b.settle()


def test_policy(b):
    with urllib.request.urlopen(server + "/", timeout=60) as reply:
        policy = reply.headers["Content-Security-Policy"]
    check("default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy and "*" not in policy, policy)
    for attempt in ("const s = document.createElement('script'); s.append('window.ran = 1'); document.body.append(s)",
                    "document.body.insertAdjacentHTML('beforeend', '<b id=made></b>')", "setTimeout('window.ran = 2')",
                    "fetch('http://127.0.0.1:1/').catch(() => {})"):
        before = len(b.complaints())
        b.eval(f"{{ try {{ {attempt} }} catch (e) {{ }} }}")
        until(lambda: len(b.complaints()) > before, f"not seen to be refused: {attempt}", 30)
    equal(b.eval("typeof window.ran"), "undefined", "a script that the policy does not name ran")
    equal(b.eval("document.getElementById('made')"), None, "markup was made of text")


def test_token(b, times):
    """Test the page of a daemon that has a token: it is asked for once, and all that is shown is asked for with it."""
    b.go(times, settles=False)
    until(lambda: b.eval("document.getElementById('token')?.offsetParent != null"), "the page asks for the token")
    equal(b.eval("document.activeElement.id"), "token", "the focus is there")
    for token in "wrong", TOKEN:
        b.type(token)
        b.key("Enter")
        if token == "wrong":
            until(lambda: b.eval("document.getElementById('refused').textContent") != "", "a wrong token is refused")
    b.settle()
    check("phase_one" in b.functions(), "the flame graph")
    b.go(times + "&view=unwind")
    check(b.eval("document.querySelectorAll('#unwind tbody tr').length") > 0, "the token is remembered")
    os.remove(os.path.join(folder, "offwind.pb.gz"))
    b.press("#pprof")
    until(lambda: os.path.exists(os.path.join(folder, "offwind.pb.gz")), "the download")


def test_page(times, phases, set_token):
    b = Page()
    try:
        b.size(1200, 900)
        test_shows(b, times)
        test_selects(b, phases)
        test_filters(b)
        test_compares(b, phases)
        test_graph(b)
        test_hides_interpreters(b)
        test_keyboard(b)
        test_touch(b, phases)
        test_tabs(b, phases)
        test_time(b, times)
        test_looks(b)
        equal(b.complaints(), [], "of the page")
        test_problems(b, times)
        test_nothing(b, times)
        test_policy(b)
        set_token()
        test_token(b, times)
    finally:
        b.close()


def main():
    program = subprocess.Popen([os.path.join(folder, "phases")])
    daemon = None
    try:
        config = os.path.join(folder, "offwind.conf")
        with open(config, "w") as file:
            file.write(f"[store]\ndb = {folder}/offwind.db\n[record]\npid = {program.pid}\nfreq = 49\n[server]\nlisten = {server[7:]}\n")
        daemon = subprocess.Popen([offwind, "daemon", "--config", config, "--quiet"])
        until(lambda: daemon.poll() is not None or is_ready(), "the daemon answers")
        start = time.time()
        until(lambda: samples_of("phase_one", start) >= NEEDED, "the first phase")
        middle = time.time()
        program.send_signal(signal.SIGUSR1)
        time.sleep(0.2)  # the phases are apart by more than a pixel
        second = time.time()
        until(lambda: samples_of("phase_two", start) >= NEEDED, "the second phase")
        end = time.time()
        span = end - start
        times = f"from={start - 0.2 * span:.3f}&to={end + 0.2 * span:.3f}"

        def set_token():
            with open(os.path.join(folder, "token"), "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(TOKEN)
            with open(config, "a") as file:
                file.write(f"token-file = {folder}/token\n")
            daemon.send_signal(signal.SIGHUP)
            until(lambda: is_ready() is None, "the daemon asks for the token")

        test_page(times, ((start - 0.1 * span, middle - 0.3), (second + 0.3, end + 0.1 * span)), set_token)
    finally:
        for child in filter(None, (daemon, program)):
            child.terminate()
            child.wait()
    sys.exit(failures != 0)


main()
