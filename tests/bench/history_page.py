#!/usr/bin/env python3
"""tests/bench/history_page.py: how long the daemon's page takes until it shows a long time, in a headless Chromium.

usage: history_page.py OFFWIND FOLDER HOURS   FOLDER has offwind-history.db; the page shows its last hours (root)
"""
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cases"))
from browser import Browser  # noqa: E402

# Notes when the charts are drawn, and when a flame graph is; a picture later each.
WATCH = """(() => {
    const drawn = fn => requestAnimationFrame(() => requestAnimationFrame(() => fn(Math.round(performance.now()))));
    window.marks = { charts: 0, graphs: [] };
    new MutationObserver((_, self) => {
        const { timeline, heatmap } = document.documentElement?.dataset || {};
        if (timeline && heatmap) {
            self.disconnect();
            drawn(t => { marks.charts = t; });
        }
    }).observe(document, { attributes: true, subtree: true });
    addEventListener("message", event => { if (event.data.about === "ready") drawn(t => marks.graphs.push(t)); });
})()"""


def until(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def main():
    offwind, folder, hours = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with sqlite3.connect(f"{folder}/offwind-history.db") as db:
        newest = db.execute("SELECT max(end_ns) FROM windows").fetchone()[0] / 1e9
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{s.getsockname()[1]}"
    with open(f"{folder}/offwind.conf", "w") as file:  # it records this program, which waits
        file.write(f"[store]\ndb = {folder}/offwind.db\n[server]\nlisten = {server[7:]}\n[record]\npid = {os.getpid()}\nfreq = 1\n")
    daemon = subprocess.Popen([offwind, "daemon", "--config", f"{folder}/offwind.conf", "--quiet"])

    def answers():
        try:
            return urllib.request.urlopen(server + "/healthz").read() == b"ok\n"
        except OSError:
            return daemon.poll() is not None

    until(answers, "the daemon answers")
    page = Browser(folder, 240, server)
    page.size(1280, 900)
    page("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    for what in "first", "again":
        page("Page.navigate", url=f"{server}/#from={newest - hours * 3600:.3f}&to={newest:.3f}")
        page.wait_for("Page.loadEventFired")
        until(lambda: page.eval("marks.charts && marks.graphs.length > 1 && !Daemon.isBusy() && !document.querySelector('.coming')"), "the page")
        marks = page.eval("marks")
        print(f"page, {what:20} charts {marks['charts']:6} ms, flame graph {marks['graphs'][0]:6} ms, with the smallest stacks {marks['graphs'][-1]:6} ms")
        page.screenshot(f"{folder}/page-{what}.png")
        page("Page.navigate", url="about:blank")
        page.wait_for("Page.loadEventFired")
    page.close()
    daemon.terminate()
    daemon.wait()


main()
