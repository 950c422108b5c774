// agent/export/page/model.js: holds the profile as trees, and sums the samples that the page shows.
//
// The page contains the profile as a tree in arrays, with one number for each node, in preorder:
//
//   up[i]     how many levels to go up from node i - 1 to reach the parent of node i; node 0 is the root
//   frame[i]  index of the node's frame: five numbers in frames: name, module, file (indices in
//             strings), line, kind with flags
//
// and for each sample type, unless the type has the same values as an earlier one (like):
//
//   now[i]    value of the samples that ended in this node, in units of one; base[i]: in the base profile
//   samples   how many samples the type's values are of; null: not known, or of several events
//   inner     the flag of functions that the type's self values pass over; 0: none
//   guessed   pairs: a node, and the part of its total for which the node was found by guess
"use strict";
const Model = (() => {
	const P = JSON.parse(document.getElementById("profile").textContent);
	const KIND = { user: 0, kernel: 1, group: 2, stop: 3, root: 4 };
	const INLINED = 8; // flag, added to the kind
	const INVERSE_MAX = 6e6; // nodes of the inverted tree; more callers are left out
	const diff = P.diff;
	const n = P.frame.length;

	for (const type of P.types)
		if ("like" in type)
			for (const list of ["now", "base", "guessed"])
				type[list] = P.types[type.like][list];

	const kindOfFrame = f => P.frames[f * 5 + 4] & 7;

	// ---- the two trees ---------------------------------------------------------

	// Compute where the subtree of each node ends and how deep each node is.  Parents come before children.
	function finish(parent, frame) {
		const size = parent.length, end = new Int32Array(size), depth = new Int32Array(size);
		for (let i = 1; i < size; i++)
			depth[i] = depth[parent[i]] + 1;
		for (let i = size - 1; i >= 0; i--) {
			end[i] = Math.max(end[i], i + 1);
			if (i)
				end[parent[i]] = Math.max(end[parent[i]], end[i]);
		}
		return { size, parent, frame, end, depth, cut: false };
	}

	// The tree from the root to the callees.
	const down = (() => {
		const parent = new Int32Array(n), path = [];
		for (let i = 0; i < n; i++) {
			for (let up = P.up[i]; up > 0; up--)
				path.pop();
			parent[i] = path.length ? path[path.length - 1] : -1;
			path.push(i);
		}
		return finish(parent, Uint32Array.from(P.frame));
	})();

	// Return whether samples end in node i.
	const ends = i => P.types.some(type => type.now[i] > 0 || (diff && type.base[i] > 0));

	// Begin a tree with this frame as its root.  child(to, f) returns the child of node `to` with frame f, which is
	// made if necessary; -1: there are too many.
	function grow(rootFrame) {
		const children = new Map(), parent = [-1], frame = [rootFrame], frames = P.frames.length / 5;
		function child(to, f) {
			const key = to * frames + f;
			let node = children.get(key);
			if (node === undefined) {
				if (parent.length >= INVERSE_MAX)
					return -1;
				node = parent.length;
				children.set(key, node);
				parent.push(to);
				frame.push(f);
			}
			return node;
		}
		return { parent, frame, child };
	}

	// Build the tree from the functions in which samples ended to their callers.  at[d] is the node of
	// this tree that counts the samples which end in node d of down.
	let inverse = null;
	function inverted() {
		if (inverse)
			return inverse;
		const tree = grow(P.frame[0]), at = new Int32Array(n).fill(-1);
		let cut = false;
		for (let d = 0; d < n; d++) {
			if (!ends(d))
				continue;
			let to = 0;
			for (let i = d; i > 0; i = down.parent[i]) {
				const child = tree.child(to, down.frame[i]);
				if (child < 0) {
					cut = true;
					break;
				}
				to = child;
			}
			at[d] = to;
		}
		inverse = inPreorder(tree, at, cut);
		return inverse;
	}

	// Build the two trees around a function, with the function as their root: of its callers, and of what it calls.
	// Where the function calls itself, its outermost call counts.  parts: triples of a node, the node of down that
	// it stands for, and the node of down with the samples for which it does.
	let around = { of: -1 };
	function aroundFunction(of) {
		if (around.of === of)
			return around;
		const callers = grow(namedBy[of]), callees = grow(namedBy[of]);
		const callersAt = new Int32Array(n).fill(-1), calleesAt = new Int32Array(n).fill(-1);
		const callersParts = [], calleesParts = [];
		let cut = false;
		for (let d = 0; d < n; d++) {
			const up = down.parent[d];
			if (d && calleesAt[up] >= 0) { // below the function
				const child = callees.child(calleesAt[up], down.frame[d]);
				cut = cut || child < 0;
				calleesAt[d] = child < 0 ? calleesAt[up] : child;
				callersAt[d] = callersAt[up];
			} else if (functionOf[down.frame[d]] === of) {
				let to = 0;
				callersParts.push(0, d, d);
				for (let i = up; i > 0; i = down.parent[i]) {
					const child = callers.child(to, down.frame[i]);
					if (child < 0) {
						cut = true;
						break;
					}
					to = child;
					callersParts.push(to, i, d);
				}
				calleesAt[d] = 0;
				callersAt[d] = to;
			} else {
				continue;
			}
			calleesParts.push(calleesAt[d], d, d);
		}
		around = { of, callers: inPreorder(callers, callersAt, cut, callersParts), callees: inPreorder(callees, calleesAt, cut, calleesParts) };
		return around;
	}

	// Finish a tree: renumber its nodes in preorder, children sorted by frame, also in at and parts.
	function inPreorder({ parent, frame }, at, cut, parts = []) {
		const size = parent.length, order = new Float64Array(size - 1);
		for (let i = 1; i < size; i++)
			order[i - 1] = frame[i] * size + i;
		order.sort();
		const first = new Int32Array(size).fill(-1), next = new Int32Array(size).fill(-1);
		for (let k = size - 2; k >= 0; k--) {
			const i = order[k] % size;
			next[i] = first[parent[i]];
			first[parent[i]] = i;
		}
		const place = new Int32Array(size), newParent = new Int32Array(size), newFrame = new Uint32Array(size);
		for (let i = 0, count = 0; i >= 0; ) {
			newParent[count] = i ? place[parent[i]] : -1;
			newFrame[count] = frame[i];
			place[i] = count++;
			if (first[i] >= 0) {
				i = first[i];
				continue;
			}
			while (i >= 0 && next[i] < 0)
				i = parent[i];
			if (i >= 0)
				i = next[i];
		}
		for (let d = 0; d < n; d++)
			if (at[d] >= 0)
				at[d] = place[at[d]];
		for (let k = 0; k < parts.length; k += 3)
			parts[k] = place[parts[k]];
		return Object.assign(finish(newParent, newFrame), { at, cut, parts });
	}

	// ---- search ------------------------------------------------------------------

	// Return a function that tests names against the term: text, "a whole name" between quotes, or a
	// /regular expression/.
	function matcher(term) {
		const re = /^\/(.+)\/$/.exec(term);
		if (re)
			return (test => text => test.test(text))(new RegExp(re[1]));
		if (term.length > 2 && term.startsWith('"') && term.endsWith('"'))
			return (name => text => text === name)(term.slice(1, -1));
		const low = term.toLowerCase();
		return text => text.toLowerCase().includes(low);
	}
	// Return an array by frame: 1 if the frame's name or module matches.  Throws if the regular expression
	// in the term is wrong.
	function matching(term) {
		const matches = matcher(term), strings = new Map(), hits = new Uint8Array(P.frames.length / 5);
		const hit = s => {
			if (!strings.has(s))
				strings.set(s, matches(P.strings[s]));
			return strings.get(s);
		};
		for (let f = 0; f < hits.length; f++)
			if (kindOfFrame(f) !== KIND.root && (hit(P.frames[f * 5]) || hit(P.frames[f * 5 + 1])))
				hits[f] = 1;
		return hits;
	}

	// ---- which samples count --------------------------------------------------------

	// The groups: { node, name } for each value of the label that the profile is grouped by.  Their nodes
	// are children of the root.
	const groups = [];
	for (let i = 1; i < n; i = down.end[i])
		if (kindOfFrame(down.frame[i]) === KIND.group)
			groups.push({ node: i, name: P.strings[P.frames[down.frame[i] * 5]] });

	// Return an array by node of down: 1 if samples that end in the node are shown; null: all are shown.
	function selected(group, filters) {
		if (!group && !filters.length)
			return null;
		const keep = new Uint8Array(n).fill(1);
		if (group) {
			const { node } = group;
			keep.fill(0, 0, node).fill(0, down.end[node]);
		}
		const has = new Uint8Array(n);
		for (const { term, without } of filters) {
			const hits = matching(term);
			for (let i = 0; i < n; i++) {
				has[i] = hits[down.frame[i]] || (i && has[down.parent[i]]) ? 1 : 0;
				if (has[i] === (without ? 1 : 0))
					keep[i] = 0;
			}
		}
		return keep;
	}

	// ---- values -----------------------------------------------------------------------

	// Return the sum of each node's own value and those of all nodes below it.
	function totals(own, parent) {
		const total = Float64Array.from(own);
		for (let i = total.length - 1; i > 0; i--)
			total[parent[i]] += total[i];
		return total;
	}

	// Return an array by node of down: the part of its samples for which the node was found by guess, 0 to 1.
	function guessedParts(type) {
		const part = new Float64Array(n);
		if (!type.guessed.length)
			return part;
		const now = totals(type.now, down.parent), base = diff ? totals(type.base, down.parent) : null;
		for (let k = 0; k < type.guessed.length; k += 2) {
			const i = type.guessed[k], all = now[i] + (base ? base[i] : 0);
			part[i] = all ? Math.min(1, type.guessed[k + 1] / all) : 0;
		}
		return part;
	}

	// Return the tree that the page shows, with the values of the samples in keep.  of: a function, around which the
	// tree is; -1: all samples.
	function view(type, callers, keep, of = -1) {
		const tree = of >= 0 ? aroundFunction(of)[callers ? "callers" : "callees"] : callers ? inverted() : down;
		const now = new Float64Array(tree.size), base = diff ? new Float64Array(tree.size) : null;
		const part = guessedParts(type);
		let guessed = part;
		for (let d = 0; d < n; d++) {
			const i = tree.at ? tree.at[d] : d;
			if (i < 0 || (keep && !keep[d]))
				continue;
			now[i] += type.now[d];
			if (diff)
				base[i] += type.base[d];
		}
		const nowTotal = totals(now, tree.parent), baseTotal = diff ? totals(base, tree.parent) : null;
		if (of >= 0 && type.guessed.length) {
			guessed = new Float64Array(tree.size);
			const sum = d => (keep && !keep[d] ? 0 : type.now[d] + (diff ? type.base[d] : 0));
			const weight = totals(Float64Array.from(down.frame, (f, d) => sum(d)), down.parent);
			for (let k = 0; k < tree.parts.length; k += 3)
				guessed[tree.parts[k]] += part[tree.parts[k + 1]] * weight[tree.parts[k + 2]];
			for (let i = 0; i < tree.size; i++) {
				const all = nowTotal[i] + (diff ? baseTotal[i] : 0);
				guessed[i] = all ? Math.min(1, guessed[i] / all) : 0;
			}
		} else if (callers && of < 0) {
			guessed = new Float64Array(tree.size);
			// Walk from the node in which samples ended to the root, in both trees at once.
			for (let d = 0; type.guessed.length && d < n; d++) {
				if (tree.at[d] <= 0 || (keep && !keep[d]))
					continue;
				const path = [], weight = type.now[d] + (diff ? type.base[d] : 0);
				for (let i = tree.at[d]; i > 0; i = tree.parent[i])
					path.push(i);
				for (let i = d; i > 0 && path.length; i = down.parent[i])
					guessed[path.pop()] += part[i] * weight;
			}
			for (let i = 0; i < tree.size; i++) {
				const all = nowTotal[i] + (diff ? baseTotal[i] : 0);
				guessed[i] = all ? Math.min(1, guessed[i] / all) : 0;
			}
		}
		return { ...tree, callers, now, base, nowTotal, baseTotal, guessed, anyGuessed: type.guessed.length > 0 };
	}

	// ---- functions --------------------------------------------------------------------

	// A function is a name in a module.  functionOf: by frame, the number of its function, or -1.
	// namedBy: by function, a frame that has its name.
	const functionOf = new Int32Array(P.frames.length / 5).fill(-1), namedBy = [];
	{
		const numbers = new Map();
		for (let f = 0; f < functionOf.length; f++) {
			if (kindOfFrame(f) >= KIND.group)
				continue;
			const key = P.frames[f * 5] * P.strings.length + P.frames[f * 5 + 1];
			if (!numbers.has(key)) {
				numbers.set(key, namedBy.length);
				namedBy.push(f);
			}
			functionOf[f] = numbers.get(key);
		}
	}

	// Return the function of that name in that module, or -1.
	const findFunction = (name, module) => namedBy.findIndex(f => P.strings[P.frames[f * 5]] === name && P.strings[P.frames[f * 5 + 1]] === module);

	// Return the function that a node's own value is counted for: the innermost one that is not among those that the type passes
	// over, such as the scheduler's for threads that wait.  own: the node's function, if there is no other.
	function functionOutside(i, own, inner) {
		let at = i;
		while (at > 0 && P.frames[down.frame[at] * 5 + 4] & inner)
			at = down.parent[at];
		return at > 0 && functionOf[down.frame[at]] >= 0 ? functionOf[down.frame[at]] : own;
	}

	// Return the self and total values of each function.  A recursive call is counted once in the total.
	function functions(type, keep) {
		const { now, base, nowTotal, baseTotal } = view(type, false, keep);
		const columns = () => new Float64Array(namedBy.length);
		const self = columns(), total = columns(), baseSelf = columns(), baseSum = columns();
		const open = new Int32Array(namedBy.length), path = [];
		// Of the sum of CPU time and waiting time, only the waiting time passes over the scheduler.
		const offCpu = type.type === "wall" && P.types.find(other => other.type === "off_cpu");
		const partOf = (values, of, i) => (!offCpu ? values[i] : keep && !keep[i] ? 0 : Math.min(values[i], offCpu[of][i] * offCpu.one / type.one));
		for (let i = 0; i < n; i++) {
			while (path.length && i >= down.end[path[path.length - 1]]) {
				const left = functionOf[down.frame[path.pop()]];
				if (left >= 0)
					open[left]--;
			}
			path.push(i);
			const f = functionOf[down.frame[i]];
			if (f < 0)
				continue;
			const outside = type.inner && P.frames[down.frame[i] * 5 + 4] & type.inner ? functionOutside(i, f, type.inner) : f;
			const part = outside === f ? 0 : partOf(now, "now", i);
			self[f] += now[i] - part;
			self[outside] += part;
			if (diff) {
				const basePart = outside === f ? 0 : partOf(base, "base", i);
				baseSelf[f] += base[i] - basePart;
				baseSelf[outside] += basePart;
			}
			if (open[f]++ === 0) {
				total[f] += nowTotal[i];
				if (diff)
					baseSum[f] += baseTotal[i];
			}
		}
		return namedBy.map((frame, f) => ({ function: f, frame, self: self[f], total: total[f], baseSelf: baseSelf[f], baseTotal: baseSum[f] }))
			.filter(row => row.total > 0 || row.baseTotal > 0);
	}

	// ---- places -------------------------------------------------------------------------

	// A place is the way from the root to a node, as a text that has the same meaning in another profile: a hash of the
	// names and modules on the way (FNV-1a).
	function hashText(hash, text) {
		for (let k = 0; k < text.length; k++)
			hash = Math.imul(hash ^ text.charCodeAt(k), 0x01000193);
		return Math.imul(hash ^ 0xffff, 0x01000193);
	}
	const step = (hash, f) => hashText(hashText(hash, P.strings[P.frames[f * 5]]), P.strings[P.frames[f * 5 + 1]]);
	function placeOf(tree, i) {
		const way = [];
		for (; i > 0; i = tree.parent[i])
			way.push(tree.frame[i]);
		return (way.reduceRight(step, 0x811c9dc5) >>> 0).toString(16);
	}
	// Return the node at a place; 0: there is none.
	function nodeAt(tree, place) {
		const wanted = parseInt(place, 16) | 0, hash = new Int32Array(tree.size);
		hash[0] = 0x811c9dc5;
		for (let i = 1; i < tree.size; i++) {
			hash[i] = step(hash[tree.parent[i]], tree.frame[i]);
			if (hash[i] === wanted)
				return i;
		}
		return 0;
	}

	// ---- where stacks ended -------------------------------------------------------------

	// Return, for each stop reason and each module whose frame is the last that was found, the value of those stacks.
	function unwound() {
		const total = totals(P.types[0].now, down.parent), sums = new Map();
		for (let i = 1; i < n; i++) {
			if (kindOfFrame(down.frame[i]) !== KIND.stop)
				continue;
			const reason = P.strings[P.frames[down.frame[i] * 5]];
			let left = total[i];
			const add = (module, name, value) => {
				const key = JSON.stringify([reason, module]);
				if (!sums.has(key))
					sums.set(key, { reason, module, name, value: 0 });
				sums.get(key).value += value * P.types[0].one;
			};
			for (let j = i + 1; j < down.end[i]; j = down.end[j]) {
				add(P.strings[P.frames[down.frame[j] * 5 + 1]], P.strings[P.frames[down.frame[j] * 5]], total[j]);
				left -= total[j];
			}
			if (left > 0)
				add("", "", left);
		}
		return { whole: total[0] * P.types[0].one, type: P.types[0].type, unit: P.types[0].unit,
			ends: [...sums.values()].sort((a, b) => b.value - a.value) };
	}

	// ---- names --------------------------------------------------------------------------

	// Return a C++ name without its parameter list, which would fill the screen.
	function shortened(name) {
		const tail = /(?: const| volatile| &&?| noexcept| \[[^\]]*\])*$/.exec(name);
		const stem = name.slice(0, tail.index);
		if (!stem.endsWith(")"))
			return name;
		let level = 0, at = stem.length - 1;
		for (; at >= 0; at--) {
			level += stem[at] === ")" ? 1 : stem[at] === "(" ? -1 : 0;
			if (level === 0)
				break;
		}
		if (at <= 0 || stem.slice(0, at).endsWith("operator") || stem.slice(at) === "(anonymous namespace)")
			return name;
		return stem.slice(0, at) + (/ \[[^\]]*\]$/.exec(tail[0]) || [""])[0];
	}
	const shortNames = new Map();
	const nameOfFrame = f => P.strings[P.frames[f * 5]];
	const shortOfFrame = f => {
		const s = P.frames[f * 5];
		if (!shortNames.has(s))
			shortNames.set(s, shortened(P.strings[s]));
		return shortNames.get(s);
	};

	return { P, KIND, INLINED, diff, groups, selected, matching, view, functions, findFunction, functionOf, frameOf: f => namedBy[f], placeOf, nodeAt, unwound,
		kindOfFrame, nameOfFrame, shortOfFrame,
		moduleOfFrame: f => P.strings[P.frames[f * 5 + 1]] };
})();
