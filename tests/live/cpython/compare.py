# Compares samples with the stacks that a program knows of itself.
#   usage: compare.py SAMPLES.jsonl STACKS LEAST [MODULE [SAMPLES]]
# STACKS is what stacks.py wrote. Of the samples in spin at least the part LEAST (0.95) must have one of these
# stacks: all functions, files and lines; and there must be so many (50). Writes what is different, and "SAMPLES of them GOOD".
import json
import sys

samples, stacks, least = open(sys.argv[1], encoding="utf-8"), open(sys.argv[2], encoding="utf-8"), float(sys.argv[3])
module = sys.argv[4] if len(sys.argv) > 4 else "[cpython]"
enough = int(sys.argv[5]) if len(sys.argv) > 5 else 50
true = {tuple(tuple(frame[:2]) + (frame[2],) for frame in json.loads(line)) for line in stacks}
n = good = 0
bad = {}
for line in samples:
    frames = [f for f in json.loads(line)["frames"] if f.get("module") == module]
    if not frames or frames[0].get("function") != "spin":
        continue
    n += 1
    stack = [(f.get("function"), f.get("file"), f.get("line", 0)) for f in reversed(frames)]
    stack[-1] = stack[-1][:2] + (0,)
    if tuple(stack) in true:
        good += 1
    else:
        bad[tuple(stack)] = bad.get(tuple(stack), 0) + 1
for stack, count in sorted(bad.items(), key=lambda item: -item[1])[:3]:
    print(count, "times:", *("%s %s:%s" % frame for frame in stack), sep="\n  ")
print(n, "of them", good, "with", len(true), "stacks")
sys.exit(0 if n >= enough and good >= least * n else 1)
