"""Compares the stacks of a profile with those that a program has written of itself (work.php, work.rb, work.pl).

usage: compare.py MODULE TRUTH TSV INNER NATIVE OUTER

Where the function INNER is called by OUTER, the native function NATIVE has called it and stands between them. NATIVE may be several
names with "|" between them, as versions have different names of what they export.

A line of TRUTH is a stack: FUNCTION@LINE for each call, the innermost first; the innermost has the line "*". Functions of
the interpreter itself have any line or none. A sample was right if its frames of MODULE are such a stack as a whole, or, where
it was taken on the way there, the outer part of one; the line of its innermost frame may be any.
"""
import collections, csv, re, sys

module, truth_path, tsv, *order = sys.argv[1:]


def plain(name):
	"""The name as the interpreter's own stacks have it: Ruby 3.1 does not say the class."""
	if module == '[ruby]':
		name = re.sub(r'(^|_in_)[A-Z][\w:]*[#.]', r'\1', name.replace(' ', '_'))
	return name


def outer_parts(stack):
	for i in range(len(stack)):
		yield stack[i:]


truth = set()
whole = set()
for line in open(truth_path, encoding='utf8'):
	stack = [tuple(call.rsplit('@', 1)) if '@' in call else (call, '') for call in line.split()]
	whole.add(tuple(name for name, _ in stack))
	truth.update(tuple([part[0][0]] + part[1:]) for part in outer_parts(stack))
functions = {name for stack in whole for name in stack}

samples = collections.defaultdict(list)
stacks = collections.defaultdict(list)
for row in csv.DictReader(open(tsv, encoding='utf8'), delimiter='\t', quoting=csv.QUOTE_NONE):
	frames = samples[row['sample']]
	stacks[row['sample']].append(row['function'])
	if row['module'] == module:
		frames.append((plain(row['function']), row['line'].strip('-') if row['file'] != '-' else ''))


def same(frame, call):
	return frame[0] == call[0] and (not frame[1] or not call[1] or frame[1] == call[1])


by_depth = collections.defaultdict(list)
for part in truth:
	by_depth[len(part)].append(part)


def is_right(frames):
	return any(frames[0][0] == part[0] and all(map(same, frames[1:], part[1:])) for part in by_depth[len(frames)])


# Names are read soon after the first samples, but reading may take only a part of the time: on a busy machine this takes
# longer. So the samples count from the last one of the first half on that lacks names.
# A thread of Ruby 3.3's own, which runs no code of Ruby, waits there for others.
numbers = [n for n in samples if samples[n] or 'epoll_wait' not in stacks[n]]
early = 1 + max((i for i, n in enumerate(numbers[:len(numbers) // 2]) if not samples[n] or any(name == '[unknown]' for name, _ in samples[n])), default=-1)
right = complete = none = 0
wrong = collections.Counter()
for frames in (samples[n] for n in numbers[early:]):
	# What the places call: the functions of the interpreter, and the one that writes the stack.
	while frames and frames[0][0] != '[unknown]' and (not frames[0][1] or frames[0][0] not in functions):
		frames = frames[1:]
	if not frames:
		none += 1
	elif is_right(frames):
		right += 1
		complete += tuple(name for name, _ in frames) in whole
	else:
		wrong[' '.join('@'.join(f) for f in frames)] += 1
total = len(numbers) - early
print(f'{module}: {total} samples ({early} before that), {right} right, {complete} of them in a place that is known, {none} without frames, {sum(wrong.values())} wrong')
for text, n in wrong.most_common(3):
	print(f'wrong, {n} times: {text[:600]}')
between = sum(any(name in stack[stack.index(order[0]):stack.index(order[2])] for name in order[1].split('|')) for stack in stacks.values() if order[0] in stack and order[2] in stack)
called = sum(order[0] in stack and order[2] in stack for stack in stacks.values())
print(f'{called} times {order[2]} called {order[0]}; {between} times {order[1]} is between them')
if called < 5 or between < 0.95 * called:
	sys.exit(1)
if total < 100 or right < 0.95 * total or complete < 0.7 * total:
	sys.exit(1)
