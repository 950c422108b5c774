#!/usr/bin/env python3
"""Tests the flame graph page in a headless Chromium.

usage: flamegraph.py OFFWIND ASAN-OFFWIND DIRECTORY

Mouse and keyboard draw, find, enlarge and compare; hostile names stay text.  The expected results follow
from the profiles, which this script writes.
"""
import os
import subprocess
import sys
import time

from browser import Browser, Profile, message, number, varint

offwind, asan, folder = sys.argv[1:4]
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print(f"FAIL: {what}")


def equal(got, want, what):
    check(got == want, f"{what}: {got!r}, not {want!r}")


def page(name, *arguments, program=asan):
    path = os.path.join(folder, name)
    subprocess.run([program, "flamegraph", "-o", path, *arguments], check=True)
    return path


def write(name, profile):
    path = os.path.join(folder, name)
    profile.write(path)
    return path


# The content of the page: by label, the properties of each drawn frame.
FRAMES = """[...document.querySelectorAll('g.frame')].map(g => {
  const r = g.querySelector('rect').getBoundingClientRect(), s = getComputedStyle(g.querySelector('rect'));
  return { text: g.querySelector('foreignObject div').textContent, x: r.x, y: r.y, width: r.width,
    shown: getComputedStyle(g.querySelector('foreignObject div')).display !== 'none',
    fill: s.fill, dash: s.strokeDasharray, stroke: s.stroke, found: g.hasAttribute('data-found'),
    guess: g.hasAttribute('data-guess'), colour: g.dataset.colour, role: g.getAttribute('role'),
    level: g.getAttribute('aria-level'), label: g.getAttribute('aria-label'), fade: g.classList.contains('fade'),
    focus: g === document.activeElement }; })"""


def frames(b):
    return b.eval(FRAMES)


def named(b, text):
    some = [f for f in frames(b) if f["text"] == text]
    check(len(some) == 1, f"{len(some)} frames are {text!r}")
    return some[0] if some else {}


def text_of(b, element):
    return b.eval(f"document.getElementById('{element}').textContent")


def settle(b):
    b.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def near(a, b, by=1.5):
    return abs(a - b) <= by


# 100 samples: 60 whole, 25 cut, 15 of another program.
def small():
    p = Profile(comments=["host: somewhere"])
    libc, app = "/usr/lib/libc.so.6", "/usr/bin/app"
    main, work = ("main", app), ("work", app)
    p.sample([main, work, ("sort_all", app)], 30, comm="app")
    p.sample([main, work], 10, comm="app")
    p.sample([main, ("malloc", libc), ("entry_SYSCALL_64", "[kernel]")], 20, comm="app", guessed="0-1", confidence="guess")
    p.sample([work, ("sort_all", app)], 25, comm="app", stop="truncated")
    p.sample([main, [("outer", app), ("inlined_in", app)]], 15, comm="other")
    return p


def test_draws(b, path):
    b.open(path)
    equal(text_of(b, "title"), "small.pb", "title")
    equal(b.eval("document.title"), "small.pb", "the window's title")
    equal(text_of(b, "summary"), "100 samples · 5 stacks", "summary")
    equal(text_of(b, "comments"), "host: somewhere", "comments")
    whole = named(b, "all")["width"]
    check(near(whole, 1200 - 32), f"the root is {whole} wide")
    want = {"app": 85, "other": 15, "⊘ truncated": 25, "≈ malloc": 20, "≈ entry_SYSCALL_64": 20, "outer": 15, "inlined_in": 15}
    for text, share in want.items():
        f = named(b, text)
        check(f and near(f["width"], whole * share / 100), f"{text} is {f.get('width')} wide of {whole}")
        check(f and f["label"] == f"{text}, {share}.00 %" and f["role"] == "treeitem", f"{text} is told as {f.get('label')}")
    equal(sorted(round(f["width"] * 100 / whole) for f in frames(b) if f["text"] == "sort_all"), [25, 30], "two ways to sort_all")
    equal(len(frames(b)), 14, "frames")
    equal([f["level"] for f in frames(b) if f["text"] in ("all", "inlined_in")], ["1", "5"], "levels")
    # The root is at the top, callees are below, cut stacks are after their mark.
    check(named(b, "all")["y"] < named(b, "app")["y"] < named(b, "⊘ truncated")["y"], "the root is above")
    cut = named(b, "⊘ truncated")
    check(any(f["text"] == "work" and near(f["x"], cut["x"]) and f["y"] > cut["y"] for f in frames(b)), "cut stacks are behind their mark")
    check("hatch" in cut["fill"], f"a stop is drawn as {cut['fill']}")
    for f in frames(b):
        equal(f["guess"], f["text"].startswith("≈"), f"{f['text']}: guessed")
        equal(f["dash"] != "none", f["guess"], f"{f['text']}: a broken edge")
    # One colour per module.
    check(named(b, "≈ malloc")["fill"] != named(b, "outer")["fill"], "modules share a colour")
    equal(named(b, "outer")["fill"], named(b, "inlined_in")["fill"], "one module")
    b.eval("document.getElementById('flip').click()")
    check(named(b, "all")["y"] > named(b, "app")["y"], "the root is below")
    b.eval("document.getElementById('flip').click()")


def test_tells(b):
    f = named(b, "≈ malloc")
    b.mouse("mouseMoved", f["x"] + 20, f["y"] + 5)
    tip = b.eval("getComputedStyle(document.getElementById('tip')).display === 'none' ? '' : document.getElementById('tip').innerText")
    for part in "malloc", "libc.so.6", "src/a.c:7", "total 20 samples, 20.00 %", "self 0 samples", "100 %":
        check(part in tip, f"{part!r} is not in {tip!r}")
    f = named(b, "inlined_in")
    b.mouse("mouseMoved", f["x"] + 20, f["y"] + 5)
    tip = b.eval("document.getElementById('tip').innerText")
    check("inlined" in tip and "self 15 samples, 15.00 %" in tip, f"of an inlined call: {tip!r}")
    f = named(b, "⊘ truncated")
    b.mouse("mouseMoved", f["x"] + 20, f["y"] + 5)
    tip = b.eval("document.getElementById('tip').innerText")
    check("memory that was not captured" in tip, f"of a stop: {tip!r}")
    b.mouse("mouseMoved", 2, 2)


def test_search(b):
    b.key("/")
    equal(b.eval("document.activeElement.id"), "search", "the key / leads to the search")
    b.type("SORT_")
    equal(text_of(b, "found"), "1 function in 2 frames: 55.00 %", "search")
    equal([f["text"] for f in frames(b) if f["found"]], ["sort_all", "sort_all"], "found")
    b.key("Enter")
    f = [f for f in frames(b) if f["focus"]]
    check(len(f) == 1 and f[0]["text"] == "sort_all" and f[0]["width"] > 300, f"Enter goes to {f}")
    for term, want in (("/^(main|work)$/", "2 functions in 4 frames: 100 %"), ("libc", "1 function in 1 frame: 20.00 %"),
                       ("/(/", "not a regular expression"), ("no such", "nothing found"), ("", "")):
        b.eval(f"(s => {{ s.value = {term!r}; s.dispatchEvent(new Event('input')); }})(document.getElementById('search'))")
        equal(text_of(b, "found"), want, f"search for {term}")
    check(not any(f["found"] for f in frames(b)), "an empty search finds nothing")


def test_zoom_by_mouse(b):
    whole = named(b, "all")["width"]
    f = named(b, "≈ malloc")
    b.click(f["x"] + 30, f["y"] + 5)
    for text in "all", "app", "main", "≈ malloc", "≈ entry_SYSCALL_64":
        check(near(named(b, text)["width"], whole), f"after a click {text} is not as wide as the page")
    equal(len(frames(b)), 5, "frames after a click")
    equal(sorted(f["text"] for f in frames(b) if f["fade"]), ["all", "app", "main"], "the way there is pale")
    f = named(b, "app")
    b.click(f["x"] + 30, f["y"] + 5)
    check(near(named(b, "≈ malloc")["width"], whole * 20 / 85), "a click on the way goes back")
    b.eval("document.getElementById('reset').click()")
    equal(len(frames(b)), 14, "frames of the whole profile")


def test_keyboard(b):
    whole = named(b, "all")["width"]
    b.eval("document.activeElement.blur()")
    for _ in range(20):
        b.key("Tab")
        if b.eval("document.activeElement.closest('#chart') !== null"):
            break
    focus = lambda: [f["text"] for f in frames(b) if f["focus"]]
    equal(focus(), ["all"], "Tab leads into the graph")
    walk = (("ArrowDown", "app"), ("ArrowRight", "other"), ("ArrowLeft", "app"), ("ArrowDown", "main"), ("ArrowDown", "work"),
            ("ArrowLeft", "≈ malloc"), ("ArrowRight", "work"), ("ArrowUp", "main"), ("Home", "all"), ("ArrowUp", "all"))
    for key, want in walk:
        b.key(key)
        equal(focus(), [want], f"after {key}")
    b.key("ArrowDown")
    ring = b.eval("getComputedStyle(document.activeElement.querySelector('rect')).strokeWidth")
    equal(ring, "3px", "the focus is seen")
    check("app" in text_of(b, "detail") and "85 samples" in text_of(b, "detail"), f"of the frame in focus: {text_of(b, 'detail')}")
    b.key("ArrowDown")
    b.key("Enter")
    equal(focus(), ["main"], "the focus stays with what is enlarged")
    check(near(named(b, "main")["width"], whole) and near(named(b, "≈ malloc")["width"], whole / 3), "Enter enlarges")
    b.key("Backspace")
    check(near(named(b, "main")["width"], whole * 60 / 85) and named(b, "app")["width"] == whole, "Backspace goes back by one")
    b.key("Escape")
    equal(len(frames(b)), 14, "Escape shows all")
    equal(focus(), ["all"], "and keeps the focus in the graph")


def test_dark(b):
    ground = lambda: b.eval("getComputedStyle(document.body).backgroundColor")
    ink = lambda: b.eval("getComputedStyle(document.body).color")
    light = ground(), ink()
    b("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = ground(), ink()
    lightness = lambda rgb: sum(int(n) for n in rgb[4:-1].split(","))
    check(lightness(light[0]) > 600 > 200 > lightness(light[1]), f"by light: {light}")
    check(lightness(dark[0]) < 150 and lightness(dark[1]) > 600, f"in the dark: {dark}")
    b.eval("document.getElementById('theme').click()")
    equal((ground(), ink()), light, "the button overrules the system")
    b("Emulation.setEmulatedMedia", features=[])
    b.eval("document.getElementById('theme').click()")
    equal((ground(), ink()), dark, "and so without one")
    b.eval("document.getElementById('theme').click()")


# How people with red, green and blue blindness see linear RGB (Machado, Oliveira and Fernandes 2009, severity 1.0).
SIGHTS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour):
    """Of "#rrggbb", as sRGB (IEC 61966-2-1) means it."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def lab(rgb):
    """CIE L*a*b* by D65."""
    r, g, b = (max(0, c) for c in rgb)
    f = lambda t: t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116
    x, y, z = (f(t) for t in ((0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047,
                              0.2126729 * r + 0.7151522 * g + 0.0721750 * b,
                              (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(a, b):
    """Return the contrast as WCAG 2.1 defines it."""
    light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * bl for r, g, bl in (a, b))
    return (light[1] + 0.05) / (light[0] + 0.05)


def test_colours(b):
    modules = [f"m{i}" for i in range(7)] + ["kernel", "rest"]
    changes = [f"{way}{i}" for way in ("less", "more") for i in range(1, 5)] + ["same"]
    seen = lambda colour: b.eval(f"""(() => {{ const e = document.createElement('i'); e.dataset.colour = '{colour}';
      document.getElementById('legend').append(e); const c = getComputedStyle(e).backgroundColor.match(/\\d+/g);
      e.remove(); return '#' + c.slice(0, 3).map(n => (+n).toString(16).padStart(2, '0')).join(''); }})()""")
    for theme, ground in (("light", "#ffffff"), ("dark", "#17181a")):
        b.eval(f"document.documentElement.dataset.theme = '{theme}'")
        colours = {name: seen(name) for name in modules + changes}
        for sight, matrix in SIGHTS.items():
            as_seen = {n: lab([sum(m * c for m, c in zip(row, linear(colours[n]))) for row in matrix]) for n in colours}
            apart = lambda x, y: sum((p - q) ** 2 for p, q in zip(as_seen[x], as_seen[y])) ** 0.5
            # A difference of 2.3 is just noticeable.
            for i, x in enumerate(modules):
                for y in modules[:i]:
                    check(apart(x, y) > 10, f"{theme}, {sight}: {x} and {y} are {apart(x, y):.1f} apart")
            for i in range(1, 5):
                check(apart(f"less{i}", f"more{i}") > 15, f"{theme}, {sight}: less{i} and more{i}")
        for name, colour in colours.items():
            # The third shade of a module is paler: mixed with the background.
            mixed = linear(colour)
            if name in modules:
                mixed = linear("#" + "".join(f"{round(0.82 * int(colour[i:i + 2], 16) + 0.18 * int(ground[i:i + 2], 16)):02x}" for i in (1, 3, 5)))
            ink = linear("#ffffff" if name in ("less4", "more4") else "#000000")
            check(contrast(mixed, ink) >= 4.5 and contrast(linear(colour), ink) >= 4.5, f"{theme}: names on {name} have {contrast(mixed, ink):.1f}")
    b.eval("delete document.documentElement.dataset.theme")


def set_to(b, element, value, event="input"):
    b.eval(f"(s => {{ s.value = {value!r}; s.dispatchEvent(new Event('{event}')); }})(document.getElementById('{element}'))")


def press(b, element):
    b.eval(f"document.getElementById('{element}').click()")


def rows(b):
    return b.eval("[...document.querySelectorAll('#table-rows tr')].map(r => [...r.cells].map(c => c.innerText.replace(/\\s+/g, ' ').trim()))")


def test_callers(b):
    """Test the inverted graph: a function is as wide as the samples that ended in it, its callers come after it."""
    whole = named(b, "all")["width"]
    press(b, "callers")
    first = {f["text"]: round(f["width"] * 100 / whole) for f in frames(b) if f["level"] == "2"}
    equal(first, {"sort_all": 55, "work": 10, "≈ entry_SYSCALL_64": 20, "inlined_in": 15}, "where samples ended")
    second = sorted((f["text"], round(f["width"] * 100 / whole)) for f in frames(b) if f["level"] == "3")
    equal(second, [("main", 10), ("outer", 15), ("work", 55), ("≈ malloc", 20)], "their callers")
    third = sorted((f["text"], round(f["width"] * 100 / whole)) for f in frames(b) if f["level"] == "4")
    equal(third, [("app", 10), ("main", 15), ("main", 20), ("main", 30), ("⊘ truncated", 25)], "and theirs")
    f = named(b, "sort_all")
    b.mouse("mouseMoved", f["x"] + 20, f["y"] + 5)
    tip = b.eval("document.getElementById('tip').innerText")
    check("self 55 samples, 55.00 %" in tip and "total" not in tip, f"of a function in which samples ended: {tip!r}")
    b.mouse("mouseMoved", 2, 2)
    set_to(b, "search", "main")
    equal(text_of(b, "found"), "1 function in 4 frames: 75.00 %", "search among callers")
    set_to(b, "search", "")
    press(b, "callers")
    equal(len(frames(b)), 14, "and back")


def test_table(b):
    press(b, "table")
    want = [["55 samples 55.00 %", "55 samples 55.00 %", "sort_all app"],
            ["20 samples 20.00 %", "20 samples 20.00 %", "entry_SYSCALL_64 [kernel]"],
            ["15 samples 15.00 %", "15 samples 15.00 %", "inlined_in app"],
            ["10 samples 10.00 %", "65 samples 65.00 %", "work app"],
            ["0 samples 0.00 %", "75 samples 75.00 %", "main app"],
            ["0 samples 0.00 %", "20 samples 20.00 %", "malloc libc.so.6"],
            ["0 samples 0.00 %", "15 samples 15.00 %", "outer app"]]
    equal(rows(b), want, "the table, by what functions took themselves")
    b.eval("[...document.querySelectorAll('#table-head button')].find(e => e.textContent === 'Total').click()")
    equal([r[2].split()[0] for r in rows(b)][:3], ["main", "work", "sort_all"], "by total")
    b.eval("[...document.querySelectorAll('#table-head button')].find(e => e.textContent === 'Function').click()")
    equal([r[2].split()[0] for r in rows(b)], sorted(r[2].split()[0] for r in want), "by name")
    b.eval("[...document.querySelectorAll('#table-rows button')].find(e => e.textContent === 'work').click()")
    equal(text_of(b, "found"), "1 function in 2 frames: 65.00 %", "a row leads to its frames")
    equal([r[2] for r in rows(b)], ["work app"], "a search narrows the table")
    set_to(b, "search", "")
    equal(b.eval("document.querySelectorAll('#table-rows [tabindex=\"0\"]').length"), 1, "buttons of the table that Tab leads to")
    b.eval("document.querySelector('#table-rows [tabindex=\"0\"]').focus()")
    b.key("ArrowDown")
    b.key("ArrowDown")
    b.key("ArrowLeft")
    equal(b.eval("document.activeElement.getAttribute('aria-label')"), "Enlarge the widest frame of main", "arrows in the table")
    b.eval("[...document.querySelectorAll('#table-rows button')].find(e => e.getAttribute('aria-label') === 'Enlarge the widest frame of work').click()")
    check("zoom=" in b.eval("location.hash") and text_of(b, "detail-text").startswith("work"), "a row enlarges its function")
    b.key("Escape")
    check("zoom=" not in b.eval("location.hash"), "and back")
    press(b, "table")
    check(near(named(b, "all")["width"], 1200 - 32), "the graph takes the table's room again")


def test_around(b):
    """Test the callers and callees of one function, which are two graphs with the function between them."""
    whole = named(b, "all")["width"]
    press(b, "table")
    b.eval("[...document.querySelectorAll('#table-rows button')].find(e => e.getAttribute('aria-label') === 'Callers and callees of work').click()")
    inside = lambda chart: {f["text"]: round(f["width"] / whole, 1) for f in b.eval(FRAMES.replace("document.", f"document.getElementById('{chart}').", 1))}
    total = b.eval("document.getElementById('charts').clientWidth") / whole
    wide = lambda samples: round(total * samples / 65, 1)
    # work is in 65 samples: main called it in 40, and 25 stacks are cut above it.
    equal(inside("chart"), {"work": wide(65), "sort_all": wide(55)}, "what work calls")
    callers = inside("chart-callers")
    equal([callers.get(text) for text in ("work", "main", "⊘ truncated")], [wide(65), wide(40), wide(25)], "who calls work")
    y = b.eval("['chart-callers', 'chart'].map(id => document.getElementById(id).getBoundingClientRect().y)")
    check(y[0] < y[1], "the callers are above")
    check(b.eval("document.getElementById('callers').disabled"), "the graph is not inverted twice")
    check("callers and callees of work" in text_of(b, "filters"), text_of(b, "filters"))
    check("65 samples" in text_of(b, "detail"), f"of the function: {text_of(b, 'detail')}")
    link = b.eval("location.href")
    check("of=work" in link and "in=app" in link, link)
    b.eval("document.querySelector('#filters button').click()")
    equal(b.eval("document.getElementById('chart-callers').hidden"), True, "and back")
    equal(len(frames(b)), 14, "all frames")
    press(b, "table")
    b("Page.navigate", url=link)
    settle(b)
    equal(inside("chart"), {"work": wide(65), "sort_all": wide(55)}, "a link shows it again")
    b.eval("document.querySelector('#filters button').click()")
    press(b, "table")


def test_linked(b):
    """Test that the row and the frames of a function show each other."""
    press(b, "table")
    linked = lambda: (b.eval("[...document.querySelectorAll('g.frame[data-linked] foreignObject div')].map(e => e.textContent)"),
                      b.eval("[...document.querySelectorAll('#table-rows tr[data-linked]')].map(e => e.querySelector('button:not(.around)').textContent)"))
    f = named(b, "inlined_in")
    b.mouse("mouseMoved", f["x"] + 20, f["y"] + 5)
    equal(linked(), (["inlined_in"], ["inlined_in"]), "a frame shows its row")
    row = b.eval("(r => [r.x, r.y])([...document.querySelectorAll('#table-rows tr')].find(r => r.textContent.includes('sort_all')).getBoundingClientRect())")
    b.mouse("mouseMoved", row[0] + 20, row[1] + 5)
    equal(linked(), (["sort_all", "sort_all"], ["sort_all"]), "a row shows its frames")
    b.mouse("mouseMoved", 2, 2)
    equal(linked(), ([], []), "nothing is left")
    press(b, "table")


def test_filters(b):
    set_to(b, "search", '"malloc"')
    press(b, "without")
    equal(text_of(b, "summary"), "80 samples · 80.00 % of the profile · 5 stacks", "without one function's stacks")
    check(not any("malloc" in f["text"] for f in frames(b)), "they are not drawn")
    set_to(b, "search", "sort_all")
    press(b, "only")
    equal(text_of(b, "summary"), "55 samples · 55.00 % of the profile · 5 stacks", "two filters")
    b.eval("document.querySelector('#filters button').click()")
    equal(b.eval("[...document.querySelectorAll('#filters button')].map(e => e.textContent)"), ["only sort_all ✕"], "one is taken away")
    b.eval("document.querySelector('#filters button').click()")
    equal(len(frames(b)), 14, "and the other")
    set_to(b, "group", "2", "change")
    equal(text_of(b, "summary"), "15 samples · 15.00 % of the profile · 5 stacks", "one program")
    set_to(b, "group", "0", "change")
    check(b.eval("document.getElementById('type').parentElement.hidden"), "one sample type needs no choice")


def test_types(b):
    """Test several sample types, two of which are proportional, and a link that shows the same view again."""
    p = Profile(kind=[("samples", "count"), ("cpu", "nanoseconds"), ("wait", "nanoseconds")])
    long = "ns::sort<int (*)(int)>(std::vector<int, A<int> >&, int) const [clone .cold]"
    odd = ["operator()", "(anonymous namespace)", "Row::operator()(int) const", "f(void (*)(int))", "main.(*T).run", "<impl A for (B, C)>::d"]
    p.sample([("main", "/bin/x"), (long, "/bin/x")], [3, 30000000, 0])
    p.sample([("main", "/bin/x"), ("sleep", "/bin/x")], [0, 0, 7000])
    for name in odd:
        p.sample([("main", "/bin/x"), (name, "/bin/x")], [1, 10000000, 0])
    path = page("types.html", "--type", "cpu", write("types.pb", p))
    b.open(path)
    equal(b.eval("[...document.querySelectorAll('#type option')].map(e => e.textContent)"), ["cpu", "samples", "wait"], "types")
    equal(text_of(b, "summary"), "9 samples · 90.00 ms of cpu · 8 stacks", "the first type")
    check(open(path, encoding="utf-8").read().count('"like":0') == 1, "equal values are written once")
    texts = {f["text"] for f in frames(b)}
    want = {"ns::sort<int (*)(int)> [clone .cold]", "operator()", "(anonymous namespace)", "Row::operator()", "f", "main.(*T).run", "<impl A for (B, C)>::d"}
    check(want <= texts, f"without parameter lists: {sorted(texts)}")
    set_to(b, "type", "2", "change")
    equal(text_of(b, "summary"), "9 samples · 7.00 µs of wait · 8 stacks", "another type")
    equal(sorted(f["text"] for f in frames(b)), ["all", "main", "sleep"], "its frames")
    f = named(b, "sleep")
    b.click(f["x"] + 30, f["y"] + 5)
    press(b, "table")
    set_to(b, "search", "main")
    link = b.eval("location.href")
    b.open(path)
    equal(named(b, "main")["fade"], False, "without the link the page begins anew")
    b("Page.navigate", url="about:blank")
    b.wait_for("Page.loadEventFired")
    b("Page.navigate", url=link)
    b.wait_for("Page.loadEventFired")
    equal(sorted((f["text"], f["fade"], f["found"]) for f in frames(b)),
          [("all", True, False), ("main", True, True), ("sleep", False, False)], "a link shows the same view")
    equal([r[2] for r in rows(b)], ["main x"], "with its table")
    b("Page.navigate", url=link.split("#")[0] + "#type=no&only=/(/&without=x&zoom=99999999999&group=&search=/(/&callers")
    settle(b)
    equal(text_of(b, "found"), "not a regular expression", "a broken link does no harm")
    equal(b.complaints(), [], "of types and links")


def test_waits(b):
    """Test that the time of a thread that waits counts for the function that waits, not for the scheduler, as in report."""
    kernel = "[kernel]"
    p = Profile(kind=[("samples", "count"), ("cpu", "nanoseconds"), ("off_cpu", "nanoseconds"), ("wall", "nanoseconds")])
    inner = [("futex_wait", kernel), ("schedule", kernel), ("__schedule", kernel)]
    p.sample([("main", "/bin/x"), *inner], [0, 0, 6000000, 6000000])
    p.sample([("main", "/bin/x"), *inner], [1, 2000000, 0, 2000000])  # the CPU time of the scheduler is its own
    p.sample([("schedule", kernel), ("__schedule", kernel)], [0, 0, 1000000, 1000000])
    b.open(page("waits.html", "--type", "wall", write("waits.pb", p)))
    press(b, "table")
    own = lambda: {r[2].split()[0]: " ".join(r[0].split()[:2]) for r in rows(b)}
    equal(own(), {"futex_wait": "6.00 ms", "__schedule": "3.00 ms", "schedule": "0 ns", "main": "0 ns"}, "of both times")
    b.open(page("waits.html", "--type", "off_cpu", write("waits.pb", p)))
    press(b, "table")
    equal(own(), {"futex_wait": "6.00 ms", "__schedule": "1.00 ms", "schedule": "0 ns", "main": "0 ns"}, "of waiting")
    b.open(page("waits.html", "--type", "cpu", write("waits.pb", p)))
    press(b, "table")
    equal(own()["__schedule"], "2.00 ms", "of CPU time")
    equal(b.complaints(), [], "of waits")


def test_narrow(b):
    b.size(360, 700)
    settle(b)
    check(near(named(b, "all")["width"], 360 - 16), f"in a small window the root is {named(b, 'all')['width']} wide")
    check(b.eval("document.documentElement.scrollWidth") <= 360, "a small window scrolls sideways")
    b.size(1200, 900)
    settle(b)
    check(near(named(b, "all")["width"], 1200 - 32), "the graph follows the window")


HOSTILE = ["<img src=x onerror=\"window.pwned=1\">", "</script><script>window.pwned=2</script>", "<!--<script>", "]]>&lt;b&gt;&quot;",
           "'\"`;window.pwned=3//\\u003c\\", "\u2028window.pwned=4\u2029", "a\x00b\x01\x1b[31m\x7f\x9b".replace("\x00", ""), "\u202eevil\u2066",
           b"bad\xff\xfeutf8\xc3", "{{title}}{{profile}}", "javascript:window.pwned=5", "__proto__", "constructor", "%s%n", "${window.pwned=6}"]


def shown_as(name):
    """Check what the exporters promise: UTF-8 without control characters and without characters that reorder text."""
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    hidden = "\u2028\u2029\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    return "".join("?" if ord(c) < 32 or 127 <= ord(c) < 160 or c in hidden else c for c in text)


def test_hostile(b):
    p = Profile(kind="</script><b>", comments=HOSTILE)
    for i, name in enumerate(HOSTILE):
        path = name if isinstance(name, bytes) else name.encode()
        p.sample([(name, b"/tmp/" + path.replace(b"/", b"_"))], 1, comm=name, stop=name, guessed=name)
    path = page("hostile.html", "--title", "</title><script>window.pwned=7</script>\u2028\x1b", write("hostile.pb", p))
    raw = open(path, "rb").read()
    raw.decode("utf-8")
    check(not any(c in raw for c in list(range(9)) + [11, 12, 13, 27, 127]), "control bytes in the page")
    check("\u2028".encode() not in raw and "\u202e".encode() not in raw, "line ends in the page")
    equal(raw.lower().count(b"<script"), 4, "script elements in the page")
    equal(raw.lower().count(b"</script"), 4, "their ends")
    b.open(path)
    settle(b)
    b.mouse("mouseMoved", 300, 400)
    texts = {f["text"].removeprefix("⊘ ") for f in frames(b)}
    for name in HOSTILE:
        check(shown_as(name) in texts, f"{shown_as(name)!r} is not shown as it is: {sorted(texts)}")
    equal(b.eval("typeof window.pwned"), "undefined", "a name's script ran")
    equal(b.eval("document.querySelectorAll('img, b:not(#tip b, #detail b)').length"), 0, "elements out of names")
    equal(text_of(b, "title"), shown_as("</title><script>window.pwned=7</script>\u2028\x1b"), "title")
    equal(b.eval("[...document.querySelectorAll('#comments li')].map(e => e.textContent)"), [shown_as(n) for n in HOSTILE], "comments")
    b.eval("(s => { s.value = 'onerror'; s.dispatchEvent(new Event('input')); })(document.getElementById('search'))")
    check(text_of(b, "found").startswith("3 functions"), f"a hostile name is found: {text_of(b, 'found')}")
    equal(b.complaints(), [], "of the hostile page")


def test_policy(b):
    """Test what the other tests rely on: the policy is in force, and refused requests are noticed."""
    policy = b.eval("document.querySelector('meta[http-equiv]').content")
    check("default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy, policy)
    attempts = ("const s = document.createElement('script'); s.append('window.ran = 1'); document.body.append(s)",
                "document.body.setAttribute('onclick', 'window.ran = 2'); document.body.click()",
                "document.body.insertAdjacentHTML('beforeend', '<b id=made></b>')",
                "setTimeout('window.ran = 3')",
                "const i = document.createElement('img'); i.src = 'http://127.0.0.1:1/'; document.body.append(i)",
                "const s = document.createElement('style'); s.textContent = 'body { display: none }'; document.body.append(s)")
    for i, attempt in enumerate(attempts):
        before = len(b.complaints())
        b.eval(f"{{ try {{ {attempt} }} catch (e) {{ }} }}")
        settle(b)
        check(len(b.complaints()) > before, f"not seen to be refused: {attempt}")
    equal(b.eval("typeof window.ran"), "undefined", "a script that the policy does not name ran")
    equal(b.eval("document.getElementById('made')"), None, "markup was made of text")
    equal(b.eval("getComputedStyle(document.body).display"), "block", "a style that the policy does not name")


def test_difference(b):
    base, now = Profile(), Profile()
    for name, before, after in (("same", 400, 400), ("slower", 100, 300), ("faster", 300, 100), ("gone", 200, 0), ("new", 0, 200)):
        for p, value in ((base, before), (now, after)):
            if value:
                p.sample([("main", "/bin/x"), (name, "/bin/x")], value)
    path = page("diff.html", "--diff", write("base.pb", base), write("now.pb", now))
    b.open(path)
    whole = named(b, "all")["width"]
    check("compared with base.pb: 1,000 samples" in text_of(b, "summary"), text_of(b, "summary"))
    want = {"±0.00 % same": ("same", 40), "+20.00 % slower": ("more4", 20), "−20.00 % faster": ("less4", 20),
            "−20.00 % gone": ("less4", 10), "+20.00 % new": ("more4", 10)}
    for text, (colour, share) in want.items():
        f = named(b, text)
        equal(f.get("colour"), colour, text)
        check(f and near(f["width"], whole * share / 100), f"{text} is {f.get('width')} wide")
    rgb = lambda text: [int(n) for n in named(b, text)["fill"][4:-1].split(",")]
    more, less, same = rgb("+20.00 % slower"), rgb("−20.00 % faster"), rgb("±0.00 % same")
    check(more[0] > more[2] + 80 and less[2] > less[0] + 80, f"more is {more}, less is {less}: red and blue")
    check(max(same) - min(same) < 10, f"no change is {same}: no colour")
    for widths, absent, width in (("now", "−20.00 % gone", 30), ("base", "+20.00 % new", 10)):
        b.eval(f"(s => {{ s.value = '{widths}'; s.dispatchEvent(new Event('change')); }})(document.getElementById('basis'))")
        check(absent not in [f["text"] for f in frames(b)], f"widths of {widths}: {absent}")
        check(near(named(b, "+20.00 % slower")["width"], whole * width / 100), f"widths of {widths}")
    f = named(b, "+20.00 % slower")
    b.mouse("mouseMoved", f["x"] + 20, f["y"] + 5)
    tip = b.eval("document.getElementById('tip').innerText")
    check("total 300 samples" in tip and "base total 100 samples" in tip and "+20.00 %" in tip, tip)
    equal(b.complaints(), [], "of the difference")


def hundred_thousand(path):
    """Return stacks of 20 to 35 frames, no two equal, with 20,000 functions."""
    functions, modules = 20000, 16
    texts = [b"", b"samples", b"count"] + [b"/usr/lib/lib%d.so" % i for i in range(modules)] + \
        [b"name::Space%d<int, T%d>::method_%d(char const*)" % (i % 97, i % 13, i) for i in range(functions)]
    parts = [message(1, number(1, 1) + number(2, 2))]
    parts += [message(3, number(1, i + 1) + number(5, 3 + i)) for i in range(modules)]
    parts += [message(5, number(1, i + 1) + number(2, 3 + modules + i)) for i in range(functions)]
    parts += [message(4, number(1, i + 1) + number(2, i % modules + 1) + message(4, number(1, i + 1))) for i in range(functions)]
    ids = [varint(i + 1) for i in range(functions)]
    for k in range(100000):
        stack = [ids[j] for j in range(15)] + [ids[100 + 10 * j + k // 10**j % 10] for j in (4, 3, 2, 1, 0)]
        stack += [ids[(k * 7 + j * 31) % functions] for j in range(k % 16)]
        parts.append(message(2, message(1, b"".join(reversed(stack))) + message(2, varint(1 + k % 5))))
    with open(path, "wb") as file:
        file.write(b"".join(parts) + b"".join(message(6, text) for text in texts))


def test_hundred_thousand(b):
    profile = os.path.join(folder, "large.pb")
    hundred_thousand(profile)
    start = time.monotonic()
    path = page("large.html", profile, program=offwind)
    made = time.monotonic() - start
    b.open(path)
    settle(b)
    paint = b.eval("performance.getEntriesByType('paint').map(e => e.startTime)")[0]
    ready = float(b.eval("document.documentElement.dataset.ready"))
    n = len(frames(b))
    check("100,000 stacks" in text_of(b, "summary"), text_of(b, "summary"))
    check(100 < n < 20000, f"{n} frames are drawn")
    check(min(f["width"] for f in frames(b)) >= 0.9, "what is narrower than a pixel is drawn")
    deepest = lambda: max(int(f["level"]) for f in frames(b))
    before = deepest()
    zoomed = b.eval("""(() => { const start = performance.now(), level = g => +g.getAttribute('aria-level');
      const wide = [...document.querySelectorAll('g.frame')].filter(g => g.getAttribute('width') > 100);
      wide.sort((a, b) => level(a) - level(b)).at(-1).dispatchEvent(new MouseEvent('click', { bubbles: true }));
      document.body.offsetHeight; return performance.now() - start; })()""")
    check(deepest() > before, "what was too narrow is seen when it is enlarged")
    b.key("/")
    start = time.monotonic()
    b.type("method_19")
    searched = (time.monotonic() - start) * 1000 / 9
    check("functions in" in text_of(b, "found"), text_of(b, "found"))
    print(f"100,000 stacks: page of {os.path.getsize(path) / 1e6:.1f} MB made in {made:.2f} s, painted after {paint:.0f} ms, "
          f"drawn after {ready:.0f} ms ({n} frames), enlarged in {zoomed:.0f} ms, a key of the search {searched:.0f} ms")
    # The limits are for a busy machine; an idle one takes a tenth.
    check(ready < 10000 and zoomed < 5000 and searched < 5000, "too slow")
    equal(b.complaints(), [], "of the large page")


def main():
    path = page("small.html", write("small.pb", small()))
    b = Browser(folder)
    try:
        b.size(1200, 900)
        test_draws(b, path)
        test_tells(b)
        test_search(b)
        test_zoom_by_mouse(b)
        test_keyboard(b)
        test_callers(b)
        test_table(b)
        test_around(b)
        test_linked(b)
        test_filters(b)
        test_dark(b)
        test_colours(b)
        test_narrow(b)
        equal(b.complaints(), [], "of the page")
        test_policy(b)
        test_hostile(b)
        test_difference(b)
        test_types(b)
        test_waits(b)
        test_hundred_thousand(b)
    finally:
        b.close()
    sys.exit(failures != 0)


main()
