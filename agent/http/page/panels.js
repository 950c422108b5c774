// agent/http/page/panels.js: what the tabs other than the flame graph show of the selected time. Each function fills the
// element of its tab; tools are what page.js lends it.
"use strict";
const Panels = (() => {
	const { element, button } = Show;
	const SAMPLES = 100; // in the list
	const LISTED = 60; // s; the list shows the beginning of a longer time
	const LANE = 2000; // samples of one thread

	const cells = (name, values) => element("tr", {}, ...values.map(([text, attributes = {}]) => element(name, attributes, ...[text].flat())));
	const number = { class: "number" };
	function table(head, rows) {
		return element("div", { class: "wide" }, element("table", {}, element("thead", {}, cells("th", head.map(([text, more]) => [text, { scope: "col", ...more }]))),
			element("tbody", {}, ...rows.map(row => cells("td", row)))));
	}
	function bar(part, whole, bad) {
		const e = element("span", { class: bad ? "bar bad" : "bar", "aria-hidden": "true" });
		e.style.width = `${Math.round(whole ? (140 * part) / whole : 0)}px`;
		return e;
	}
	// Return whether a tab shows something else than this, and nothing asks for this yet. done is called when it is shown.
	let asking = "";
	function isNew(to, key) {
		if (to.dataset.ready === key || asking === key)
			return false;
		asking = key;
		to.setAttribute("aria-busy", "true");
		return true;
	}
	function done(to, key, ...children) {
		to.replaceChildren(...children);
		to.dataset.ready = key;
		to.setAttribute("aria-busy", "false");
		asking = "";
	}
	const p = (...parts) => element("p", {}, ...parts);
	const fileName = path => path.split("/").pop() || "no module";

	// ---- single samples --------------------------------------------------------------------

	const secondsOf = one => one.time_ns / 1e9;
	// Return a link that shows only this sample: its thread, in the microsecond in which it was taken.
	function linkTo(one) {
		const t = secondsOf(one), s = State.get();
		return `#${State.format({ ...s, last: 0, from: t - 2.5, to: t + 2.5, select: [t - 0.0005, t + 0.0005], view: "samples",
			labels: [["pid", String(one.labels.pid)], ["tid", String(one.labels.tid)]] })}`;
	}
	function frames(one) {
		return element("ol", { class: "frames" }, ...one.frames.map(f => element("li", {}, f.function, " ",
			element("span", { class: "soft" }, `${fileName(f.module)}${f.file ? ` ${f.file}${f.line ? `:${f.line}` : ""}` : ` ${f.address}`}${f.inlined ? " inlined" : ""}`))));
	}
	function sample(one, data, open) {
		const inner = one.frames[0]?.function || "no frames", end = one.labels.stop ? ` · ended: ${one.labels.stop}` : "";
		const details = element("details", { open }, element("summary", {},
			`${Show.clock(secondsOf(one), 6)} ${one.labels.thread || one.labels.comm || ""} (${one.labels.pid}/${one.labels.tid}) · ${inner} · ${Show.value(one.value, data)}${end}`));
		const fill = () => {
			if (details.open && details.children.length === 1)
				details.append(frames(one), p(element("a", { href: linkTo(one) }, "Link to this sample"), " · ",
					Object.entries(one.labels).map(([k, v]) => `${k}=${v}`).join(", ")));
		};
		details.addEventListener("toggle", fill);
		fill();
		return element("li", {}, details);
	}
	function listOf(data) {
		return element("ol", { class: "samples" }, ...data.samples.map((one, i) => sample(one, data, i === 0)));
	}
	const leftOut = (data, what) => (data.samples_left_out ? `${Show.counted(data.samples.length, "sample", "samples")}, the first of ${Show.number(data.samples.length + data.samples_left_out)}: select a shorter time to see ${what}.`
		: `${Show.counted(data.samples.length, "sample", "samples")}.`);

	async function samples(to, { load }) {
		const [from, until] = State.selected(), long = until - from > LISTED;
		const q = State.query([from, long ? from + LISTED : until], { n: SAMPLES });
		if (!isNew(to, String(q)))
			return;
		const data = await load("panel", "/api/v1/samples", q);
		done(to, String(q), p(long ? `The first ${Show.length(LISTED)} of ${Show.length(until - from)}. ` : "", leftOut(data, "the others")), listOf(data));
	}

	// ---- one thread over time -----------------------------------------------------------------

	const HIGH = 64;
	// Draw the samples of a thread as lines along the time, in the colour of their innermost function.
	function lane(data, [from, to], names, choose) {
		const wide = Math.max(200, Charts.width()), x = t => ((t - from) / (to - from)) * wide;
		const svg = element("svg:svg", { id: "lane", viewBox: `0 0 ${wide} ${HIGH}`, preserveAspectRatio: "none", role: "img",
			"aria-label": `${data.samples.length} samples from left to right by time; the list below has the same` });
		svg.append(element("svg:rect", { class: "ground", width: wide, height: HIGH }));
		data.samples.forEach((one, i) => {
			const at = x(secondsOf(one)).toFixed(1), k = names.indexOf(one.frames[0]?.function || "");
			const line = element("svg:line", { x1: at, x2: at, y1: 4, y2: HIGH - 4, "stroke-width": 2, "data-colour": k < 0 || k >= 12 ? "rest" : `s${k}` },
				element("svg:title", {}, `${Show.clock(secondsOf(one), 3)} ${one.frames.slice(0, 3).map(f => f.function).join(" ← ")}`));
			line.addEventListener("click", () => choose(i));
			svg.append(line);
		});
		return svg;
	}
	async function threads(to, { load }) {
		const s = State.get(), range = State.selected(), q = State.query(range, { by: "thread", n: 100 });
		const key = `${q}&${s.thread}`;
		if (!isNew(to, key))
			return;
		const top = await load("panel", "/api/v1/top", q);
		const chosen = top.rows.find(row => `${row.pid}/${row.tid}` === s.thread) || (!s.thread && top.rows[0]);
		const select = element("select", { id: "thread", onchange: event => State.change({ thread: event.target.value }) },
			...top.rows.map(row => element("option", { value: `${row.pid}/${row.tid}` },
				`${row.thread} ${row.pid}/${row.tid}: ${Show.value(row.self, top)}, ${Show.percent(row.self, top.value)}`)));
		const head = p(element("label", {}, "Thread ", select), top.rows_left_out ? ` ${Show.counted(top.rows_left_out, "thread", "threads")} more with less: filter by process, or select a shorter time.` : "");
		if (!chosen) {
			if (s.thread)
				select.prepend(element("option", { value: s.thread, selected: true }, `${s.thread}: nothing in this time`));
			done(to, key, head, p("No thread ran in this time."));
			return;
		}
		select.value = `${chosen.pid}/${chosen.tid}`;
		const one = State.query(range, { n: LANE });
		one.set("pid", chosen.pid);
		one.set("tid", chosen.tid);
		const data = await load("panel", "/api/v1/samples", one), sums = new Map();
		for (const { frames: [inner], value } of data.samples)
			sums.set(inner?.function || "", (sums.get(inner?.function || "") || 0) + value);
		const names = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a)), all = [...sums.values()].reduce((a, b) => a + b, 0);
		const detail = element("ol", { class: "samples" });
		const choose = i => detail.replaceChildren(sample(data.samples[i], data, true));
		const legend = p(...names.slice(0, 12).map((name, k) => element("span", {}, element("i", { class: "swatch", "data-colour": `s${k}` }), ` ${name || "no frames"} ${Show.percent(sums.get(name), all)}`)),
			names.length > 12 ? `${names.length - 12} more` : "");
		legend.className = "names";
		done(to, key, head, lane(data, range, names, choose), p(`${leftOut(data, "all")} A line is a sample, in the colour of its innermost function; choose one to see its frames.`), legend, detail, listOf({ ...data, samples: data.samples.slice(0, SAMPLES) }));
	}

	// ---- the values of a label -----------------------------------------------------------------

	const KEYS = ["comm", "thread", "pid", "tid", "container_id", "cgroup", "stop"];
	async function labels(to, { load, toggle }) {
		const s = State.get(), q = State.query(State.selected(), { key: s.key, n: 200 });
		q.delete(s.key); // the other values are of interest, too
		const key = `${q}&${s.labels}`;
		if (!isNew(to, key))
			return;
		const data = await load("panel", "/api/v1/labels", q), whole = data.values.reduce((sum, one) => sum + one.sum, 0);
		const select = element("select", { id: "key", onchange: event => State.change({ key: event.target.value }) },
			...[...new Set([...KEYS, s.key])].map(key => element("option", { value: key }, key)));
		select.value = s.key;
		const compare = value => {
			const [from, until] = State.selected();
			State.change({ base: { from, to: until, labels: [...s.labels.filter(([k]) => k !== s.key), [s.key, value]] }, view: "graph" });
		};
		const rows = data.values.map(({ value, samples: n, sum }) => [[bar(sum, data.values[0].sum)], [Show.value(sum, data), number], [Show.percent(sum, whole), number],
			[Show.number(n), number], [value || "(none)"], [[button(State.hasLabel(s.key, value) ? "All" : "Only", () => toggle(s.key, value), { "aria-label": `Only ${s.key}=${value}`, "aria-pressed": State.hasLabel(s.key, value) }), " ",
				button("Compare with", () => compare(value), { "aria-label": `Compare with ${s.key}=${value}`, title: "Draw what is selected, as a difference to this" })]]]);
		done(to, key, p(element("label", {}, "Label ", select), data.values_left_out ? ` ${Show.counted(data.values_left_out, "value", "values")} more with less.` : ""),
			table([[""], [data.type, number], ["Share", number], ["Samples", number], [s.key], [""]], rows));
	}

	// ---- completeness --------------------------------------------------------------------------

	const WHOLE = ["root", "no_user_state"]; // reasons of stacks that have all their frames
	const MEANING = { root: "The stack is whole.", no_user_state: "There is nothing beyond the kernel's part: the thread is the kernel's own, or ends." };
	const WHAT = { self: "offwind's own", ring_full: "the buffer between the kernel and offwind was full", waiting: "not settled in this time; below 0: settled for an earlier one" };
	async function complete(to, { load, unwound }) {
		const range = State.selected(), q = State.query(range), time = new URLSearchParams({ from: q.get("from"), to: q.get("to") });
		const key = `${q}&${JSON.stringify(unwound?.ends)}`;
		if (!isNew(to, key))
			return;
		const stops = new URLSearchParams(q);
		stops.set("by", "stop");
		const [counters, top] = await Promise.all([load("panel", "/api/v1/counters", time), load("stops", "/api/v1/top", stops)]);
		const sum = what => Object.values(counters[what] || {}).reduce((a, b) => a + b, 0), fired = sum("fired");
		const stop = Object.entries(counters.stop || {}).sort((a, b) => b[1] - a[1]), ended = sum("stop");
		const whole = stop.filter(([reason]) => WHOLE.includes(reason)).reduce((a, [, n]) => a + n, 0);
		const part = (n, of) => [[Show.number(n), number], [Show.percent(n, of), number]];
		const children = [element("h2", {}, "Are the stacks whole?"),
			p(ended ? `${Show.percent(whole, ended)} of ${Show.counted(ended, "stack", "stacks")} of the whole machine are whole.` : "No stack was recorded in this time.")];
		if (stop.length)
			children.push(table([["Ended because of"], ["Stacks", number], ["Share", number], [""], ["Meaning"]], stop.map(([reason, n]) =>
				[[reason], ...part(n, ended), [[bar(n, stop[0][1], !WHOLE.includes(reason))]], [MEANING[reason] || unwound?.sentences[reason] || ""]])));
		const shown = top.rows.filter(row => row.self > 0);
		if (State.get().labels.length && shown.length)
			children.push(element("h2", {}, "With the filters"), table([["Ended because of"], [top.type, number], ["Share", number]],
				shown.map(row => [[row.stop], [Show.value(row.self, top), number], [Show.percent(row.self, top.value), number]])));
		const ends = unwound?.ends || [];
		children.push(element("h2", {}, "Where do stacks that are not whole end?"));
		children.push(ends.length ? table([["Module"], ["Because of"], [unwound.type, number], ["Share", number], ["Last function found"]], ends.slice(0, 50).map(one =>
			[[one.module || "(none)"], [one.reason], [Show.value(one.value, unwound), number], [Show.percent(one.value, unwound.whole), number], [one.name || ""]])) : p(unwound ? "None does, in the flame graph." : "Loading…"));
		if (ends.length > 50)
			children.push(p(`${ends.length - 50} more with less.`));
		const rows = [["fired", "", fired], ["unwound", "", sum("unwound")], ["waiting", "", sum("waiting")],
			...["filtered", "lost", "cut"].flatMap(what => Object.entries(counters[what] || {}).map(([reason, n]) => [what, reason === "all" ? "" : reason, n]))].filter(([what, , n]) => n || what === "fired" || what === "unwound");
		const lost = sum("lost");
		children.push(element("h2", {}, "What was lost or filtered?"), p(lost ? `${Show.number(lost)} of ${Show.counted(fired, "event", "events")} were lost (${Show.percent(lost, fired)}).` : `Nothing was lost of ${Show.counted(fired, "event", "events")}.`),
			table([["What"], ["Reason"], ["Events", number], ["Share", number]], rows.map(([what, reason, n]) => [[what], [[reason, WHAT[reason || what]].filter(Boolean).join(": ")], ...part(n, fired)])));
		done(to, key, ...children);
	}

	return { samples, threads, labels, complete, failed: to => {
		asking = "";
		to.setAttribute("aria-busy", "false");
	} };
})();
