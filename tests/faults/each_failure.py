#!/usr/bin/env python3
"""
Makes each allocation and each call of input and output fail once, in a run of its own, and checks
what the program makes of it (tests/faults/inject/inject.c).

  usage: each_failure.py PROGRAM WORK DEPTH SHARE CASE...     each CASE is a line: name, tab, command

DEPTH: how many calling functions tell one call from another. SHARE: one call in SHARE is tried,
and, unless the name of the case ends in *, each that differs from others in the function that is
called or in its direct caller. 1: all. A run begins in a directory with a copy of WORK/start.

A run is right if
- the program ends by itself, in time, with one of its four exit codes, without a report of ASan,
  UBSan or LeakSanitizer;
- it says why if it failed or gave a part (exit codes 1 and 3);
- the file out/profile.pb.gz, which exists before the run, is complete afterwards: either the old
  file, or a new one that the program itself finds nothing wrong with;
- no unfinished file is left beside it.
"""
import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import sys

program, work, depth, share = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
cases = [line.split("\t", 1) for line in sys.argv[5:]]
LIMIT = 300  # seconds; a run takes less than one, and on a slow and busy machine some


def environment(**more):
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:exitcode=99:allocator_may_return_null=1",
               UBSAN_OPTIONS="exitcode=98:halt_on_error=1", INJECT_DEPTH=depth)
    env.update(more)
    return env


def run(command, out, **env):
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(f"{work}/start", out)
    return subprocess.run(["bash", "-c", command.format(offwind=program)], cwd=out, env=environment(**env),
                          capture_output=True, timeout=LIMIT)


def complete(out, old):
    """Whether out/profile.pb.gz is the old file, or a good new one."""
    data = open(f"{out}/profile.pb.gz", "rb").read()
    if data == old:
        return True
    check = subprocess.run([program, "report", "--check", f"{out}/profile.pb.gz"], env=environment(), capture_output=True)
    return check.returncode == 0


def chosen(sites, near_all):
    """A share of the calls; with near_all, also each function with each direct caller."""
    seen, out = set(), []
    for site in sites:
        near = tuple(site[1:3])
        if near_all and near not in seen or int(hashlib.sha256(" ".join(site).encode()).hexdigest(), 16) % share == 0:
            out.append(site)
        seen.add(near)
    return out


def tried(job):
    """Returns whether the call was reached, the exit code, and what is wrong (None: nothing)."""
    name, command, site, number, old = job
    out = os.path.abspath(f"{work}/runs/{name}-{number}")
    mark = f"{out}.mark"
    try:
        done = run(command, out, INJECT_SITE=site[0], INJECT_MARK=mark)
    except subprocess.TimeoutExpired:
        return True, None, f"no end within {LIMIT} s"
    reached = os.path.exists(mark)
    said = done.stderr.decode(errors="replace")
    wrong = None
    if done.returncode not in (0, 1, 2, 3) or "ERROR: " in said or "runtime error" in said:
        wrong = f"exit code {done.returncode}"
    elif done.returncode and not said.strip():
        wrong = f"exit code {done.returncode} without a word"
    elif done.returncode == 2 and "Cannot allocate memory" not in said:
        wrong = "it calls the command line wrong"
    elif not os.path.exists(f"{out}/profile.pb.gz") or not complete(out, old):
        wrong = "the profile is neither the old one nor a good one"
    else:
        left = [f for f in os.listdir(out) if f not in expected and not f.startswith("store.db")]
        if left and site[1] != "unlink":
            wrong = f"it leaves {left}"
    if wrong:
        wrong += "\n" + said[-3000:]
    else:
        shutil.rmtree(out, ignore_errors=True)
    if reached:
        os.unlink(mark)
    return reached, done.returncode, wrong


def where(site):
    addresses = [f"0x{int(pc, 16) - 1:x}" for pc in site[2:]]
    names = subprocess.run(["addr2line", "-fse", program, *addresses], capture_output=True, text=True).stdout.split("\n")
    return " < ".join(f"{names[i]} ({names[i + 1]})" for i in range(0, len(names) - 1, 2))


failures = 0
os.makedirs(f"{work}/runs", exist_ok=True)
old = open(f"{work}/start/profile.pb.gz", "rb").read()
for name, command in cases:
    only_share = name.endswith("*")
    name = name.rstrip("*")
    listing = os.path.abspath(f"{work}/{name}.sites")
    for _ in range(20):  # on a busy machine the program may get no CPU while it is recorded
        if os.path.exists(listing):
            os.unlink(listing)
        plain = run(command, f"{work}/runs/{name}", INJECT_LIST=listing)
        if b"no samples were recorded" not in plain.stderr:
            break
    if plain.returncode != 0:
        print(f"FAIL: {name}: exit code {plain.returncode} without any failure: {plain.stderr.decode()}")
        failures += 1
        continue
    expected = set(os.listdir(f"{work}/runs/{name}"))
    sites = [line.split() for line in open(listing)]
    jobs = [(name, command, site, i, old) for i, site in enumerate(chosen(sites, not only_share))]
    codes, missed = {}, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for job, (reached, code, wrong) in zip(jobs, pool.map(tried, jobs)):
            missed += not reached
            if reached:
                codes[code] = codes.get(code, 0) + 1
            if wrong:
                failures += 1
                print(f"FAIL: {name}: {job[2][1]} {where(job[2])} [{job[2][0]}]: {wrong}")
    print(f"{name}: of {len(sites)} calls {len(jobs)} were made to fail, {missed} not reached; exit codes: "
          + ", ".join(f"{code} × {n}" for code, n in sorted(codes.items(), key=str)))
    if missed > len(jobs) // 4:
        print(f"FAIL: {name}: too many calls were not reached again")
        failures += 1
sys.exit(failures != 0)
