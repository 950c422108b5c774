// agent/http/page/state.js: what the user chose, which is all in the page's address.
//
// Times are seconds since 1970. The part of the address behind # has, each only if it is not the default:
//
//   last=SECONDS      the time shown, if it follows the clock
//   from=, to=        the time shown, if it does not
//   select=FROM~TO    the selected part of it
//   by=, type=        the label that the timeline tells apart, the sample type; of a fleet, no label by default
//   label=KEY=VALUE   a filter; there can be several
//   base=SECONDS, base=before, base=FROM~TO with base_label=KEY=VALUE: what the selection is compared with
//   hide=interpreters the interpreters' own functions are left out
//   mark=FUNCTION     the function that the timeline shows
//   view=, thread=, key=   the open tab, its thread, its label
//   sample=TIME_NS.PID.TID, after=SECONDS   the sample that is explained, where the list of samples begins
//   file=BUILD-ID, pc=HEX, find=TEXT   the unwind table, the address in it, the files that are listed
//   graph=            the state of the flame graph, as that page's own address has it
"use strict";
const State = (() => {
	// What answers is a store of many hosts: it has sums of minutes, and neither single samples nor unwind tables.
	const FLEET = "fleet" in document.documentElement.dataset;
	const DEFAULT = { last: FLEET ? 21600 : 300, from: 0, to: 0, select: null, by: FLEET ? "" : "comm", type: "", labels: [], base: null, hide: "", mark: "",
		view: "graph", thread: "", key: FLEET ? "host" : "comm", sample: "", after: "", file: "", pc: "", find: "", graph: null };
	const VIEWS = FLEET ? ["graph", "labels", "complete"] : ["graph", "samples", "threads", "labels", "complete", "unwind"];
	const TEXTS = ["by", "type", "hide", "mark", "view", "thread", "key", "sample", "after", "file", "pc", "find"];
	const SHORTEST = 0.001;

	const seconds = t => String(Math.round(t * 1e6) / 1e6);
	const span = text => {
		const [from, to] = (text || "").split("~").map(Number);
		return from > 0 && to > from ? [from, to] : null;
	};
	const pair = text => {
		const at = text.indexOf("=");
		return at > 0 ? [text.slice(0, at), text.slice(at + 1)] : null;
	};

	// Return the state that a text describes. What the text does not say, or says wrongly, is the default.
	function parse(text) {
		const q = new URLSearchParams(text.replace(/^#/, "")), s = { ...DEFAULT };
		for (const key of TEXTS)
			if (q.has(key))
				s[key] = q.get(key);
		if (!VIEWS.includes(s.view))
			s.view = DEFAULT.view;
		if (s.hide !== "interpreters")
			s.hide = DEFAULT.hide;
		if (q.get("last") > 0)
			s.last = Math.min(+q.get("last"), 1e9);
		const shown = span(`${q.get("from")}~${q.get("to")}`);
		if (shown)
			[s.from, s.to, s.last] = [...shown, 0];
		s.select = span(q.get("select"));
		s.labels = q.getAll("label").map(pair).filter(Boolean);
		const base = q.get("base"), frozen = span(base);
		if (base === "before" || base > 0)
			s.base = { ago: base === "before" ? base : +base };
		else if (frozen)
			s.base = { from: frozen[0], to: frozen[1], labels: q.getAll("base_label").map(pair).filter(Boolean) };
		if (q.has("graph"))
			s.graph = q.get("graph");
		return s;
	}

	function format(s) {
		const q = new URLSearchParams();
		if (!s.last) {
			q.set("from", seconds(s.from));
			q.set("to", seconds(s.to));
		} else if (s.last !== DEFAULT.last) {
			q.set("last", s.last);
		}
		if (s.select)
			q.set("select", s.select.map(seconds).join("~"));
		for (const key of TEXTS)
			if (s[key] !== DEFAULT[key])
				q.set(key, s[key]);
		for (const [key, value] of s.labels)
			q.append("label", `${key}=${value}`);
		if (s.base)
			q.set("base", s.base.ago || `${seconds(s.base.from)}~${seconds(s.base.to)}`);
		for (const [key, value] of s.base?.labels || [])
			q.append("base_label", `${key}=${value}`);
		if (s.graph !== null)
			q.set("graph", s.graph);
		return q.toString();
	}

	let state = parse(location.hash), listener = () => {};
	// Change some members. Each change is a step for the browser's back button, unless it belongs to the step
	// before it.
	function change(members, sameStep = false) {
		const before = format(state);
		// A sample, and a place in the list of samples, belong to the time and the filters in which they were chosen.
		const forgotten = ["select", "from", "last", "labels", "type"].some(key => key in members) ? { sample: "", after: "" } : {};
		state = { ...state, ...forgotten, ...members };
		const text = format(state);
		if (text !== before)
			history[sameStep ? "replaceState" : "pushState"](null, "", `#${text}`);
		listener();
	}
	addEventListener("popstate", () => {
		state = parse(location.hash);
		listener();
	});

	// ---- what follows from it --------------------------------------------------------

	let ahead = 0; // of the daemon's clock, in seconds
	const now = () => Date.now() / 1000 + ahead;
	let shownNow = now();

	// Return the time shown, as [from, to].
	function shown() {
		return state.last ? [shownNow - state.last, shownNow] : [state.from, state.to];
	}
	// Return the time that everything below the charts is about.
	function selected() {
		const [from, to] = shown();
		if (!state.select)
			return [from, to];
		return state.select;
	}

	// A comma in a condition is between two values, unless there is a backslash before it.
	const whole = value => value.replaceAll(",", "\\,");
	// Return arguments for requests about a time.
	function query([from, to], more = {}) {
		const q = new URLSearchParams({ from: seconds(from), to: seconds(to) });
		if (state.type)
			q.set("type", state.type);
		for (const [key, value] of state.labels)
			q.append(key, whole(value));
		for (const [key, value] of Object.entries(more))
			q.set(key, value);
		return q;
	}
	// Return arguments for requests for whole stacks of the selected time.
	const stackQuery = () => query(selected(), state.hide ? { hide: state.hide } : {});
	// Return the time and the filters of what the selection is compared with, or null.
	function base() {
		const [from, to] = selected();
		if (!state.base)
			return null;
		if (!state.base.ago)
			return state.base;
		const ago = state.base.ago === "before" ? to - from : state.base.ago;
		return { from: from - ago, to: to - ago, labels: state.labels };
	}
	// Return the arguments for the base.
	function baseQuery() {
		const b = base(), q = new URLSearchParams();
		if (!b)
			return q;
		q.set("base_from", seconds(b.from));
		q.set("base_to", seconds(b.to));
		for (const [key, value] of b.labels)
			q.append(`base.${key}`, whole(value));
		return q;
	}

	return { FLEET, SHORTEST, get: () => state, change, parse, format, shown, selected, query, stackQuery, base, baseQuery, now,
		onChange: fn => { listener = fn; },
		tick: () => { shownNow = now(); },
		// Take the time of a reply: the daemon may run on a machine whose clock differs.
		daemonSays: date => {
			const seen = Date.parse(date) / 1000 - Date.now() / 1000;
			if (Math.abs(seen - ahead) > 2)
				ahead = seen;
		},
		hasLabel: (key, value) => state.labels.some(([k, v]) => k === key && v === value) };
})();
