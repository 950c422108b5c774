// agent/http/page/panels.js: the values of a label, and how complete the selected time is.
"use strict";
const Panels = (() => {
	const { element, button, table, bar, p, link, isNew, done, numeric } = Show;
	const { load } = Daemon;

	// ---- the values of a label -----------------------------------------------------------------

	async function labels(to, { toggle, keys, focus }) {
		const s = State.get(), q = State.query(State.selected(), { key: s.key, n: 200 });
		q.delete(s.key); // the other values are of interest, too
		if (focus)
			q.set("focus", focus);
		const key = `${q}&${s.labels}&${keys}`;
		if (!isNew(to, key))
			return;
		const data = await load("panel", "/api/v1/labels", q), whole = data.values.reduce((sum, one) => sum + one.sum, 0);
		const select = element("select", { id: "key", onchange: event => State.change({ key: event.target.value }) },
			...[...new Set([...keys, s.key])].map(one => element("option", { value: one }, Show.labelName(one))));
		select.value = s.key;
		const compare = value => {
			const [from, until] = State.selected();
			State.change({ base: { from, to: until, labels: [...s.labels.filter(([k]) => k !== s.key), [s.key, value]] }, view: "graph" });
		};
		const rows = data.values.map(({ value, samples: n, sum }) => [[value || "(none)"], [[bar(sum, data.values[0].sum)]], [Show.value(sum, data), numeric], [Show.percent(sum, whole), numeric], [Show.counted(n, "sample", "samples"), numeric],
			[[button(State.hasLabel(s.key, value) ? "All" : "Only", () => toggle(s.key, value), { "aria-label": `Only ${s.key}=${value}`, "aria-pressed": State.hasLabel(s.key, value) }), " ",
				button("Compare with", () => compare(value), { "aria-label": `Compare with ${s.key}=${value}`, title: "Draw what is selected, as a difference to this" })], { class: "whole" }]]);
		done(to, key, p(element("label", {}, "Label ", select), data.values_left_out ? ` ${Show.counted(data.values_left_out, "value", "values")} more with less.` : "",
			...focus ? [` Only stacks with ${s.mark}. `, button("All stacks", () => State.change({ mark: "" }))] : []),
			table([[Show.labelName(s.key)], [""], [data.type, numeric], ["Share", numeric], ["Samples", numeric], [""]], rows, { class: "wide blocks" }));
	}

	// ---- completeness --------------------------------------------------------------------------

	const WHOLE = ["root", "no_user_state"]; // reasons of stacks that have all their frames
	const MEANING = { root: "The stack is whole.", no_user_state: "There is nothing beyond the kernel's part: the thread is the kernel's own, or ends." };
	const WHAT = { self: "offwind's own", ring_full: "the buffer between the kernel and offwind was full", waiting: "not settled in this time; below 0: settled for an earlier one" };
	async function complete(to, { unwound }) {
		const range = State.selected(), q = State.query(range), time = new URLSearchParams({ from: q.get("from"), to: q.get("to") });
		const key = `${q}&${JSON.stringify(unwound?.ends)}`;
		if (!isNew(to, key))
			return;
		const stops = new URLSearchParams(q);
		stops.set("by", "stop");
		const meanings = new URLSearchParams(time);
		meanings.set("key", "stop");
		const [counters, top, reasons, modules] = await Promise.all([load("panel", "/api/v1/counters", time), load("stops", "/api/v1/top", stops), load("reasons", "/api/v1/labels", meanings),
			State.FLEET ? load("ends", "/api/v1/completeness", q) : null]);
		const meaning = { ...Object.fromEntries(reasons.values.map(one => [one.value, one.meaning])), ...MEANING };
		const sum = what => Object.values(counters[what] || {}).reduce((a, b) => a + b, 0), fired = sum("fired");
		const stop = Object.entries(counters.stop || {}).sort((a, b) => b[1] - a[1]), ended = sum("stop");
		const whole = stop.filter(([reason]) => WHOLE.includes(reason)).reduce((a, [, n]) => a + n, 0);
		const part = (n, of) => [[Show.number(n), numeric], [Show.percent(n, of), numeric]];
		const children = [element("h2", {}, "Are the stacks whole?"),
			p(ended ? `${Show.percent(whole, ended)} of ${Show.counted(ended, "stack", "stacks")} of ${State.FLEET ? "all hosts" : "the whole machine"} are whole.` : "No stack was recorded in this time.")];
		if (stop.length)
			children.push(table([["Ended because of"], ["Stacks", numeric], ["Share", numeric], [""], ["Meaning"]], stop.map(([reason, n]) =>
				[[reason], [Show.counted(n, "stack", "stacks"), numeric], [Show.percent(n, ended), numeric], [[bar(n, stop[0][1], !WHOLE.includes(reason))]], [meaning[reason] || ""]]), { class: "wide blocks" }));
		const shown = top.rows.filter(row => row.self > 0);
		if (State.get().labels.length && shown.length)
			children.push(element("h2", {}, "With the filters"), table([["Ended because of"], [top.type, numeric], ["Share", numeric]],
				shown.map(row => [[row.stop], [Show.value(row.self, top), numeric], [Show.percent(row.self, top.value), numeric]])));
		const ends = unwound?.ends || [];
		children.push(element("h2", {}, "Where do stacks that are not whole end?"));
		children.push(modules ? table([["Module"], ["Because of"], [top.type, numeric], ["Share", numeric]], modules.filter(one => one.stop).slice(0, 50).map(one =>
			[[one.module], [one.stop], [Show.value(one[top.type], top), numeric], [one.share, numeric]]), { class: "wide blocks" }) : ends.length ? table([["Module"], ["Because of"], [unwound.type, numeric], ["Share", numeric], ["Last function found"]], ends.slice(0, 50).map(one =>
			[[/^[^[]/.test(one.module) ? link(one.module, { view: "unwind", file: "", pc: "", find: one.module }, { title: "Its unwind table" }) : one.module || "(none)"], [one.reason], [Show.value(one.value, unwound), numeric], [Show.percent(one.value, unwound.whole), numeric], [one.name || ""]]), { class: "wide blocks" }) : p(unwound ? "None does, in the flame graph." : "Loading…"));
		if (ends.length > 50)
			children.push(p(`${ends.length - 50} more with less.`));
		const rows = [["fired", "", fired], ["unwound", "", sum("unwound")], ["waiting", "", sum("waiting")],
			...["filtered", "lost", "cut"].flatMap(what => Object.entries(counters[what] || {}).map(([reason, n]) => [what, reason === "all" ? "" : reason, n]))].filter(([what, , n]) => n || what === "fired" || what === "unwound");
		const lost = sum("lost");
		children.push(element("h2", {}, "What was lost or filtered?"), p(lost ? `${Show.number(lost)} of ${Show.counted(fired, "event", "events")} were lost (${Show.percent(lost, fired)}).` : `Nothing was lost of ${Show.counted(fired, "event", "events")}.`),
			table([["What"], ["Reason"], ["Events", numeric], ["Share", numeric]], rows.map(([what, reason, n]) => [[what], [[reason, WHAT[reason || what]].filter(Boolean).join(": ")], ...part(n, fired)])));
		done(to, key, ...children);
	}

	return { labels, complete };
})();
