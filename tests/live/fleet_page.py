"""Tests the page over all hosts of a fleet in a headless Chromium.

usage: fleet_page.py SERVER DIRECTORY HOST…     the hosts that have samples within the last two hours
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cases"))
from browser import Browser

server, folder, *hosts = sys.argv[1:]
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print(f"FAIL: {what}", flush=True)


def until(code, what, seconds=60):
    """Return the value of an expression in the page, once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = b.eval(code)
        if got:
            return got
        time.sleep(0.05)
    print(f"FAIL: waited in vain: {what}; the page says: {b.eval('document.body.innerText')[:2000]}", flush=True)
    sys.exit(1)


def text(panel):
    """Return the text of a panel when it is complete."""
    return until(f"(e => e.dataset.ready && e.getAttribute('aria-busy') === 'false' && e.innerText)(document.getElementById('{panel}'))", panel)


b = Browser(folder, server=server)
b.size(1200, 900)
b.open("/#last=7200")
until("document.documentElement.dataset.timeline && document.documentElement.dataset.heatmap", "the charts")
check(b.eval("[...document.querySelectorAll('[role=tab]')].map(e => e.id).join()") == "tab-graph,tab-labels,tab-complete", "the tabs of a fleet")
until("document.getElementById('legend').innerText.trim() === 'all'", "the timeline has the sum of all hosts")
until("document.getElementById('graph').dataset.ready", "the flame graph")
check("sqlite3VdbeExec" in b.eval("document.querySelector('#graph iframe').contentDocument.body.innerText"), "the functions of the fleet")
until("[...document.getElementById('by').options].some(e => e.value === 'host')", "labels to choose from")
b.eval("State.change({ by: 'host' })")
until(f"document.querySelectorAll('#legend button').length === {min(len(hosts), 12)}", "the timeline by host")

# Which hosts run a function, and one of them alone.
b.eval("State.change({ by: '', view: 'labels' })")
said = text("labels")
check(all(host in said for host in hosts), f"the hosts: {said}")
b.eval("State.change({ mark: 'sqlite3VdbeExec' })")
until("document.getElementById('labels').innerText.includes('Only stacks with sqlite3VdbeExec')", "the hosts of a function")
check(all(host in text("labels") for host in hosts), "each host runs it")
b.eval("State.change({ mark: 'no_such_function' })")
until("!document.querySelector('#labels tbody tr')", "no host runs what nobody does")
b.eval("State.change({ mark: '' })")
until("document.querySelectorAll('#labels tbody tr').length > 1", "all hosts again")
b.eval(f"document.querySelector('#labels button[aria-label=\"Only host={hosts[0]}\"]').click()")
b.eval(f"document.querySelector('#labels button[aria-label=\"Compare with host={hosts[1]}\"]').click()")
until("(e => e && e.contentDocument.body.innerText.includes('compared with'))(document.querySelector('#graph iframe'))", "the difference of two hosts")
b.eval("State.change({ labels: [], base: null, view: 'complete' })")
said = text("complete")
check("of all hosts are whole" in said and ("Nothing was lost" in said or "were lost" in said), f"completeness: {said}")

check(not b.complaints(), f"the page complains: {b.complaints()}")
b.close()
sys.exit(failures > 0)
