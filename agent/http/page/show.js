// agent/http/page/show.js: elements and tables, numbers and times as texts. Names from the machine are always set as text,
// never as markup.
"use strict";
const $ = id => document.getElementById(id);

const Show = (() => {
	// Return an element with these attributes; those that begin with "on" are listeners.
	function element(name, attributes = {}, ...children) {
		const e = name.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : document.createElement(name);
		for (const [key, value] of Object.entries(attributes))
			if (key.startsWith("on"))
				e.addEventListener(key.slice(2), value);
			else if (value !== undefined && value !== null && value !== false)
				e.setAttribute(key, value === true ? "" : value);
		e.append(...children);
		return e;
	}
	const button = (text, onclick, attributes = {}) => element("button", { type: "button", onclick, ...attributes }, text);

	// ---- numbers ---------------------------------------------------------------------

	const scaled = (x, steps, digits = 2) => {
		const size = Math.abs(x);
		for (const [from, unit] of steps)
			if (size >= from)
				return `${(x / from).toFixed(digits)} ${unit}`;
		return `${+x.toFixed(digits)} ${steps[steps.length - 1][1]}`;
	};
	const TIME = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
	const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
	const number = x => x.toLocaleString("en");
	const counted = (k, one, many) => `${number(k)} ${k === 1 ? one : many}`;

	function value(v, { type, unit }) {
		if (unit === "nanoseconds")
			return Math.abs(v) >= 3600e9 ? `${(v / 3600e9).toFixed(2)} h` : scaled(v, TIME);
		if (unit === "bytes")
			return scaled(v, BYTES);
		return `${number(v)} ${unit === "count" ? type : unit}`;
	}
	// Return a value of so many seconds as a rate: time in CPUs (or threads that wait), anything else in a second.
	const rateUnit = ({ type, unit }) => (unit === "nanoseconds" ? (type === "cpu" ? "CPUs" : "threads") : unit === "bytes" ? "MiB/s" : `${unit === "count" ? type : unit}/s`);
	const rate = (v, s, { unit }) => (unit === "nanoseconds" ? v / 1e9 : unit === "bytes" ? v / 2 ** 20 : v) / s;
	const few = x => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2));
	const percent = (part, whole) => {
		const p = whole ? (100 * part) / whole : 0;
		return `${p > 0 && p < 0.1 ? "<0.1" : p.toFixed(1)} %`;
	};

	// ---- times -----------------------------------------------------------------------

	const two = x => String(x).padStart(2, "0");
	const day = t => {
		const d = new Date(t * 1000);
		return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
	};
	// Return the local time of day with so many digits of a second; digits -1: without seconds.
	function clock(t, digits = 0) {
		const unit = 10 ** Math.max(0, digits), whole = Math.round(t * unit) / unit, d = new Date(Math.floor(whole) * 1000);
		const rest = digits > 0 ? (whole - Math.floor(whole)).toFixed(digits).slice(1) : "";
		return `${two(d.getHours())}:${two(d.getMinutes())}${digits < 0 ? "" : `:${two(d.getSeconds())}${rest}`}`;
	}
	const digitsFor = length => (length < 0.1 ? 4 : length < 20 ? 3 : length < 200 ? 1 : 0);
	function range([from, to]) {
		const digits = digitsFor(to - from), a = day(from), b = day(to);
		return `${a} ${clock(from, digits)} – ${a === b ? "" : `${b} `}${clock(to, digits)}`;
	}
	function length(s) {
		if (s < 60)
			return scaled(s * 1e9, TIME, s < 1 || s % 1 < 1e-9 ? 0 : 1);
		const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]], texts = [];
		let left = Math.round(s);
		for (const [size, unit] of parts) {
			if (left >= size && texts.length < 2)
				texts.push(`${Math.floor(left / size)} ${unit}`);
			left %= size;
		}
		return texts.join(" ");
	}

	// ---- tables ----------------------------------------------------------------------

	// Attributes of cells with numbers.
	const numeric = { class: "number" };
	// Roles are said, because in a narrow window rows are shown as blocks, which have none.
	const cells = (name, role, values) => element("tr", { role: "row" }, ...values.map(([text, attributes = {}]) => element(name, { role, ...attributes }, ...[text].flat())));
	// Return a table. A cell is [what is in it, attributes]; what is in it: a text, an element, or a list of them.
	function table(head, rows, attributes = {}) {
		return element("div", { class: "wide", ...attributes }, element("table", { role: "table" },
			element("thead", { role: "rowgroup" }, cells("th", "columnheader", head.map(([text, more]) => [text, { scope: "col", ...more }]))),
			element("tbody", { role: "rowgroup" }, ...rows.map(row => cells("td", "cell", row)))));
	}
	function bar(part, whole, bad) {
		const e = element("span", { class: bad ? "bar bad" : "bar", "aria-hidden": "true" });
		e.style.width = `${Math.round(whole ? (140 * part) / whole : 0)}px`;
		return e;
	}
	const p = (...parts) => element("p", {}, ...parts);
	const link = (text, state, attributes = {}) => element("a", { href: `#${State.format({ ...State.get(), ...state })}`, ...attributes }, text);
	const fileName = path => path.split("/").pop() || "no module";

	// ---- panels ----------------------------------------------------------------------

	// Return whether a panel shows something else than this. done is called when it is shown, or failed.
	function isNew(to, key) {
		if (to.dataset.ready === key)
			return false;
		to.setAttribute("aria-busy", "true");
		return true;
	}
	const failed = to => to.setAttribute("aria-busy", "false");
	function done(to, key, ...children) {
		const held = to.contains(document.activeElement), { id } = document.activeElement;
		to.replaceChildren(...children);
		to.dataset.ready = key;
		failed(to);
		// What had the focus is another element now.
		if (held)
			(to.contains($(id)) ? $(id) : to.querySelector("h2[tabindex]") || to).focus({ preventScroll: true });
	}

	// ---- labels ----------------------------------------------------------------------

	const LABELS = { host: "host", comm: "process", thread: "thread", unit: "unit", container_id: "container", user: "user", exe: "executable", "service.name": "service", pid: "process id", tid: "thread id", stop: "stop reason" };
	const labelName = key => LABELS[key] || key;
	// Return the keys in the order in which they are offered.
	const inOrder = keys => [...Object.keys(LABELS).filter(key => keys.includes(key)), ...keys.filter(key => !LABELS[key])];

	return { element, button, table, bar, p, link, fileName, isNew, done, failed, numeric, labelName, inOrder, value, rate, rateUnit, few, number, counted, percent, day, clock, digitsFor, range, length };
})();
