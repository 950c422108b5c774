// agent/http/page/show.js: elements, requests, and numbers and times as texts. Names from the machine are always
// set as text, never as markup.
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

	// ---- requests --------------------------------------------------------------------

	const running = new Map();
	// Request JSON. A newer request of the same name ends this one, which then never resolves. Throws an Error with the
	// daemon's sentence.
	async function load(name, path, query) {
		running.get(name)?.abort();
		const stop = new AbortController();
		running.set(name, stop);
		let reply = null, body = "";
		try {
			reply = await fetch(`${path}?${query}`, { signal: stop.signal });
			if (reply.headers.has("Date"))
				State.daemonSays(reply.headers.get("Date"));
			body = await (reply.ok ? reply.json() : reply.text());
		} catch (error) {
			reply = null;
		}
		if (stop.signal.aborted)
			return new Promise(() => {});
		running.delete(name);
		if (!reply?.ok)
			throw new Error(reply ? body.trim() : "The daemon does not answer.");
		return body;
	}

	// Return whether a reply is outstanding.
	const isBusy = () => running.size > 0;

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

	return { element, button, load, isBusy, value, rate, rateUnit, few, number, counted, percent, day, clock, digitsFor, range, length };
})();
