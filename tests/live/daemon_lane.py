"""Tests the lane of a thread in the daemon's page: when it was ready to run and when it waited, for what, and who woke it.

usage: daemon_lane.py URL DIRECTORY REPLY

REPLY is a file with the daemon's waits of one thread, from /api/v1/samples, which a timer ended.
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cases"))
from browser import Browser

server, folder, reply = sys.argv[1:]
with open(reply) as file:
    waits = json.load(file)["samples"]
ends = [int(wait["time_ns"]) / 1e9 for wait in waits]
labels = waits[0]["labels"]
late = [wait for wait in waits if wait["values"].get("runnable")]
LANE = """[...document.querySelectorAll('#lane .area')].map(e => [e.dataset.colour, +e.getAttribute('x'), +e.getAttribute('width'), e.textContent])"""

b = Browser(folder, 200, server)
try:
    for width in 1200, 480:
        b.size(width, 900)
        b("Page.navigate", url="about:blank")
        b.wait_for("Page.loadEventFired")
        b("Page.navigate", url=f"{server}/#from={ends[0] - 0.1:.3f}&to={ends[-1] + 0.1:.3f}&view=threads&thread={labels['pid']}/{labels['tid']}&label=thread%3D{labels['thread']}")
        b.wait_for("Page.loadEventFired")
        end = time.monotonic() + 120
        while time.monotonic() < end and not b.eval("document.querySelectorAll('#lane .area').length && !Daemon.isBusy()"):
            time.sleep(0.1)
        shapes = b.eval(LANE)
        ready = [one for one in shapes if one[0] == "ready"]
        waited = [one for one in shapes if one[0] != "ready" and " waiting " in one[3]]
        print(width, len(waits), "waits", len(late), "late,", len(ready), "and", len(waited), "shapes;", waited[:1], ready[:1])
        assert len(waited) == len(waits) and len(ready) == len(late), "each wait is there once, and its parts"
        # One that was woken before it had left its CPU was not seen to be woken.
        assert sum("a timer: " in one[3] and "woken by " in one[3] for one in waited) > 0.8 * len(waited), "for what, and who woke it"
        assert any("woken by [interrupt]" in one[3] for one in waited), "a timer is an interrupt"
        # The thread is ready to run when the wait ends, and not before.
        for wait, run in zip([one for one, data in zip(waited, waits) if data["values"].get("runnable")], ready):
            assert abs(wait[1] + wait[2] - run[1]) < 2, (wait, run)
        text = b.eval("document.getElementById('threads').textContent")
        assert "no CPU was free" in text and "runnable for " in text and "waiting for a timer, woken by " in text, text[:1000]
        assert b.eval("document.documentElement.scrollWidth") <= width, f"wider than {width}"
    assert not b.complaints(), b.complaints()
finally:
    b.close()
