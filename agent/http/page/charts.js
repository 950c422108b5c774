// agent/http/page/charts.js: the timeline and the heat map, which share their axis of time, and how a part of it is
// selected. What is drawn are sums that the daemon made: the work here does not depend on the number of samples.
"use strict";
const Charts = (() => {
	const { element } = Show;
	const LEFT = 54, RIGHT = 8, BOTTOM = 18, TOP = 4; // px around what is drawn
	const COLOURS = 12;
	const ROWS = 50; // most parts of a column of the heat map
	const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
	const TICKS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, ...STEPS, 172800, 604800];

	let view = [0, 1], preview = null;
	let timeline = null, heat = null, mark = null; // replies
	let listeners = {};
	const width = () => Math.max(200, $("timeline").clientWidth);
	const x = t => across(view)(t);
	const timeAt = px => view[0] + ((px - LEFT) / (width() - LEFT - RIGHT)) * (view[1] - view[0]);
	const within = t => Math.min(view[1], Math.max(view[0], t));
	const inside = px => Math.min(width() - RIGHT, Math.max(LEFT, px));
	const least = (list, wanted) => list.find(step => step >= wanted * 0.999) || list[list.length - 1];

	// Return the length of a step of the timeline, and of a column of the heat map, for a time and the room there is.
	const stepFor = ([from, to]) => least(STEPS.filter(step => step >= (State.FLEET ? 300 : 0)), (to - from) / ((width() - LEFT - RIGHT) / 3));
	const columnFor = ([from, to]) => least(STEPS.filter(step => step >= (State.FLEET ? 3600 : 1)), (to - from) / ((width() - LEFT - RIGHT) / 1.5));

	// Return how many parts a column has. A part is a multiple of the time for which one sample stands, or the cells would
	// show a pattern of the sampling itself. In a long column they do not.
	const LONG = 10; // s
	let sample = Infinity; // s; the shortest time seen
	const rowsFor = seconds => (seconds < LONG && sample < Infinity ? Math.max(10, Math.round(seconds / (Math.ceil(seconds / sample / ROWS) * sample))) : ROWS);
	function learn(data) {
		if (data.type !== "cpu" || data.unit !== "nanoseconds" || data.column_ns >= LONG * 1e9)
			return;
		for (const values of data.columns)
			for (const v of values)
				if (v > 0 && v / 1e9 < sample)
					sample = v / 1e9;
	}

	// ---- colours -------------------------------------------------------------------------

	const colours = new Map(); // by value: a value has the same colour as long as it is shown
	function colour(values) {
		for (const value of colours.keys())
			if (!values.includes(value))
				colours.delete(value);
		const free = [...Array(COLOURS).keys()].filter(k => ![...colours.values()].includes(k));
		for (const value of values)
			if (value !== null && !colours.has(value))
				colours.set(value, free.shift());
	}
	const colourOf = value => (value === null || colours.get(value) === undefined ? "rest" : `s${colours.get(value)}`);

	// ---- the timeline ----------------------------------------------------------------------

	const TIMELINE = 170; // px
	const from = data => data.from_ns / 1e9, step = data => data.step_ns / 1e9;

	// Return a function from a time in a range to its place.
	const across = ([a, b]) => t => LEFT + ((t - a) / (b - a)) * (width() - LEFT - RIGHT);
	function drawAxis(svg, [a, b], height, top) {
		const x = across([a, b]), tick = least(TICKS, (b - a) / Math.max(2, (width() - LEFT - RIGHT) / 95));
		const offset = new Date(a * 1000).getTimezoneOffset() * 60, digits = tick >= 60 ? -1 : tick >= 1 ? 0 : tick >= 0.1 ? 1 : 3;
		for (let k = Math.ceil((a - offset) / tick); k * tick + offset <= b; k++) {
			const t = k * tick + offset, at = x(t);
			svg.append(element("svg:line", { class: "tick", x1: at, x2: at, y1: top, y2: height - BOTTOM + 3 }));
			if (at > LEFT + 20 && at < width() - 30)
				svg.append(element("svg:text", { x: at, y: height - 4, "text-anchor": "middle" }, tick >= 86400 ? Show.day(t) : Show.clock(t, digits)));
		}
	}
	// Return the outline of values that stand on others, step by step.
	function outline(data, low, high, y) {
		const up = [], down = [], start = from(data), s = step(data);
		for (let i = 0; i < high.length; i++) {
			const left = inside(x(start + i * s)).toFixed(1), right = inside(x(start + (i + 1) * s)).toFixed(1);
			up.push(`${i ? "L" : "M"}${left} ${y(high[i])}H${right}`);
			down.push(`L${right} ${y(low[i])}H${left}`);
		}
		return `${up.join("")}${down.reverse().join("")}Z`;
	}
	function drawTimeline() {
		const svg = element("svg:svg", { width: width(), height: TIMELINE, "aria-hidden": "true" });
		drawAxis(svg, view, TIMELINE, TOP);
		if (timeline) {
			const n = Math.max(0, ...timeline.series.map(one => one.values.length)), sums = new Float64Array(n);
			for (const { values } of timeline.series)
				values.forEach((v, i) => { sums[i] += v; });
			const s = step(timeline), most = Show.rate(Math.max(1, ...sums), s, timeline);
			const grid = [1, 2, 2.5, 5, 10].map(f => f * 10 ** Math.floor(Math.log10(most / 2))).find(f => most / f <= 3.5) || most;
			const y = v => (TIMELINE - BOTTOM - (Show.rate(v, s, timeline) / (most * 1.05)) * (TIMELINE - BOTTOM - TOP)).toFixed(1);
			const level = r => TIMELINE - BOTTOM - (r / (most * 1.05)) * (TIMELINE - BOTTOM - TOP);
			for (let r = 0; r <= most * 1.05 && (r === 0 || sums.some(sum => sum > 0)); r += grid) {
				svg.append(element("svg:line", { class: "grid", x1: LEFT, x2: width() - RIGHT, y1: level(r), y2: level(r) }),
					element("svg:text", { x: LEFT - 6, y: Math.max(10, level(r) + 4), "text-anchor": "end" }, String(+r.toPrecision(3))));
			}
			let low = new Float64Array(n);
			for (const { value, values } of timeline.series) {
				const high = low.map((v, i) => v + values[i]);
				svg.append(element("svg:path", { class: "area", "data-colour": colourOf(value), d: outline(timeline, low, high, y) }));
				low = high;
			}
			if (mark?.series.length) { // else nothing has the function
				const marked = new Float64Array(Math.max(0, ...mark.series.map(one => one.values.length)));
				for (const { values } of mark.series)
					values.forEach((v, i) => { marked[i] += v; });
				svg.append(element("svg:path", { class: "mark", d: outline(mark, new Float64Array(marked.length), marked, y) }));
			}
			$("scale").textContent = `${Show.rateUnit(timeline)} by time`;
		}
		svg.append(element("svg:g", { class: "over" }));
		$("timeline").replaceChildren(svg);
		drawOver();
	}

	// Return the first time not before t at which something was recorded, as far as the timeline shows it; t if it does not.
	function firstAt(t) {
		if (!timeline)
			return t;
		const s = step(timeline), start = from(timeline), n = Math.max(0, ...timeline.series.map(one => one.values.length));
		for (let i = Math.max(0, Math.floor((t - start) / s)); i < n; i++)
			if (timeline.series.some(one => one.values[i] > 0))
				return Math.max(t, start + i * s);
		return t;
	}

	// ---- the heat map ----------------------------------------------------------------------

	const HEAT = 134; // px
	const column = () => heat.column_ns / 1e9, row = () => heat.row_ns / 1e9, begin = () => heat.begin_ns / 1e9;
	const yOfRow = r => HEAT - BOTTOM - (r / heat.rows) * (HEAT - BOTTOM - TOP);

	function gradient() {
		const style = getComputedStyle(document.documentElement);
		const stops = [0, 1, 2, 3, 4].map(k => /#(..)(..)(..)/.exec(style.getPropertyValue(`--heat${k}`)).slice(1).map(h => parseInt(h, 16)));
		return part => {
			const at = Math.min(3.999, part * 4), k = Math.floor(at), f = at - k;
			return stops[k].map((c, i) => Math.round(c + (stops[k + 1][i] - c) * f));
		};
	}
	function drawHeat() {
		const box = $("heatmap"), ratio = devicePixelRatio || 1;
		const svg = element("svg:svg", { width: width(), height: HEAT, "aria-hidden": "true" });
		const canvas = element("canvas", { width: Math.round(width() * ratio), height: HEAT * ratio, "aria-hidden": "true" });
		canvas.style.width = `${width()}px`;
		drawAxis(svg, view, HEAT, HEAT - BOTTOM);
		if (heat && heat.columns.length) {
			const sorted = Float64Array.from(heat.columns.flat().filter(v => v > 0)).sort(), largest = sorted[sorted.length - 1] || 1;
			const most = sorted[Math.floor(sorted.length * 0.995)] || largest; // a few large cells do not make all others pale
			const cells = element("canvas", { width: heat.columns.length, height: heat.rows }), of = gradient();
			const image = new ImageData(heat.columns.length, heat.rows);
			heat.columns.forEach((values, c) => values.forEach((v, r) => {
				if (v > 0)
					image.data.set([...of(Math.min(1, v / most)), 255], ((heat.rows - 1 - r) * heat.columns.length + c) * 4);
			}));
			cells.getContext("2d").putImageData(image, 0, 0);
			const g = canvas.getContext("2d");
			g.imageSmoothingEnabled = false;
			g.beginPath();
			g.rect(LEFT * ratio, 0, (width() - LEFT - RIGHT) * ratio, HEAT * ratio);
			g.clip();
			const left = x(begin()) * ratio, right = x(begin() + heat.columns.length * column()) * ratio;
			g.drawImage(cells, left, TOP * ratio, right - left, (HEAT - BOTTOM - TOP) * ratio);
			for (const part of [0, 0.5, 1])
				svg.append(element("svg:text", { x: LEFT - 6, y: Math.min(HEAT - BOTTOM, Math.max(12, yOfRow(part * heat.rows) + 4)), "text-anchor": "end" },
					part ? Show.length(part * column()) : "0"));
			drawKey(most, largest, of, sorted.length > 0);
			$("heat-scale").textContent = column() === 1 ? "Parts of a second by second" : `Parts of ${Show.length(column())} by time`;
		}
		svg.append(element("svg:g", { class: "over" }));
		box.replaceChildren(canvas, svg);
		drawOver();
	}
	function drawKey(most, largest, of, any) {
		const bar = element("canvas", { width: 60, height: 1, class: "key", "aria-hidden": "true" }), image = new ImageData(60, 1);
		for (let k = 0; k < 60; k++)
			image.data.set([...of(k / 59), 255], k * 4);
		bar.getContext("2d").putImageData(image, 0, 0);
		const merged = heat.samples_without_time;
		$("heat-key").replaceChildren(`one cell: ${Show.length(row())}`, ...any ? [" · 0 ", bar, ` ${Show.few(Show.rate(most, row(), heat))}${largest > most ? " and more" : ""} ${Show.rateUnit(heat)}`] : [],
			merged ? ` · ${Show.counted(merged, "sample", "samples")} of older windows have no exact time and are not in the map` : "");
	}

	// ---- what lies over them: the selection and the cursor -----------------------------------

	// Return the pieces of the heat map that a time covers, as [from, to, lowest row, highest row].
	function pieces([a, b]) {
		const rowOf = (t, round) => round(((t - begin()) / column() - Math.floor((t - begin()) / column() + 1e-9)) * heat.rows + (round === Math.ceil ? -1e-6 : 1e-6));
		const first = Math.floor((a - begin()) / column() + 1e-9), last = Math.ceil((b - begin()) / column() - 1e-9) - 1;
		const start = c => begin() + c * column();
		const lowest = Math.max(0, rowOf(a, Math.floor)), highest = rowOf(b, Math.ceil) || heat.rows;
		if (first >= last)
			return [[start(first), start(first + 1), lowest, highest]];
		return [[start(first), start(first + 1), lowest, heat.rows], [start(first + 1), start(last), 0, heat.rows], [start(last), start(last + 1), 0, highest]]
			.filter(([p, q]) => q > p);
	}
	const cursors = { timeline: null, heatmap: null };
	function drawOver() {
		const select = preview || State.get().select;
		for (const id of ["timeline", "heatmap"]) {
			const over = $(id).querySelector(".over"), high = id === "timeline" ? TIMELINE : HEAT;
			if (!over)
				continue;
			over.replaceChildren();
			if (select && id === "timeline") {
				const [a, b] = select.map(t => inside(x(t)));
				over.append(element("svg:rect", { class: "dim", x: LEFT, width: a - LEFT, y: TOP, height: high - BOTTOM - TOP }),
					element("svg:rect", { class: "dim", x: b, width: width() - RIGHT - b, y: TOP, height: high - BOTTOM - TOP }),
					element("svg:rect", { class: "select", x: a, width: Math.max(1, b - a), y: TOP, height: high - BOTTOM - TOP }));
			} else if (select && heat) {
				const boxes = pieces(select).map(([p, q, low, top]) => [inside(x(p)), Math.max(1.5, inside(x(q)) - inside(x(p))), yOfRow(top), yOfRow(low) - yOfRow(top)]);
				const box = ([left, wide, y, tall]) => `M${left} ${y}h${wide}v${tall}h${-wide}Z`;
				over.append(element("svg:path", { class: "dim", "fill-rule": "evenodd", d: [[LEFT, width() - LEFT - RIGHT, TOP, high - BOTTOM - TOP], ...boxes].map(box).join("") }),
					...boxes.map(one => element("svg:path", { class: "select", d: box(one) })));
			}
			const base = State.base();
			if (base && id === "timeline" && base.to > view[0] && base.from < view[1]) {
				const [a, b] = [base.from, base.to].map(t => inside(x(t)));
				over.append(element("svg:rect", { class: "base", x: a, width: Math.max(1, b - a), y: TOP, height: high - BOTTOM - TOP }),
					element("svg:text", { x: a + 4, y: TOP + 12 }, "compared with"));
			}
			const at = cursors[id];
			if (at !== null && at >= view[0] && at <= view[1])
				over.append(element("svg:line", { class: "cursor", x1: x(at), x2: x(at), y1: TOP, y2: high - BOTTOM }));
		}
	}

	// ---- what is at a time -----------------------------------------------------------------

	function sayTimeline(t) {
		if (!timeline)
			return Show.clock(t);
		const i = Math.floor((t - from(timeline)) / step(timeline)), s = step(timeline);
		const parts = timeline.series.map(one => [one.value, one.values[i] || 0]).filter(([, v]) => v > 0).sort((a, b) => b[1] - a[1]);
		const all = parts.reduce((sum, [, v]) => sum + v, 0), say = v => Show.few(Show.rate(v, s, timeline));
		const names = parts.slice(0, 3).map(([name, v]) => `${name === null ? "others" : name || "(none)"} ${say(v)}`);
		return `${Show.clock(from(timeline) + i * s, s < 1 ? 1 : 0)} + ${Show.length(s)}: ${say(all)} ${Show.rateUnit(timeline)}${names.length ? ` (${names.join(", ")}${parts.length > 3 ? ", …" : ""})` : ""}`;
	}
	function sayHeat(t) {
		if (!heat)
			return Show.clock(t, 3);
		const c = Math.floor((t - begin()) / column()), r = Math.floor((t - begin() - c * column()) / row() + 1e-6), v = heat.columns[c]?.[r] || 0;
		return `${Show.clock(begin() + c * column() + r * row(), row() < 1 ? 3 : 0)} + ${Show.length(row())}: ${Show.value(v, heat)}, ${Show.few(Show.rate(v, row(), heat))} ${Show.rateUnit(heat)}`;
	}

	// ---- selecting ------------------------------------------------------------------------------

	const CHARTS = {
		timeline: {
			say: sayTimeline,
			at: px => within(timeAt(inside(px))),
			cell: t => [t, t],
			step: () => (timeline ? step(timeline) : 1),
			row: () => 0,
		},
		heatmap: {
			say: sayHeat,
			at: (px, py) => {
				if (!heat)
					return within(timeAt(inside(px)));
				const c = Math.floor((timeAt(inside(px)) - begin()) / column()), part = (HEAT - BOTTOM - py) / (HEAT - BOTTOM - TOP);
				return within(begin() + c * column() + Math.min(heat.rows - 1, Math.max(0, Math.floor(part * heat.rows))) * row());
			},
			cell: t => [t, t + (heat ? row() : 0)],
			step: () => (heat ? column() : 1),
			row: () => (heat ? row() : 0),
		},
	};
	const spanned = (chart, a, b) => [Math.min(a, b), within(Math.max(...chart.cell(a), ...chart.cell(b)))];

	function say(id, text) {
		$("reading").textContent = text;
		const e = $(id), t = cursors[id];
		e.setAttribute("aria-valuemin", Math.floor(view[0]));
		e.setAttribute("aria-valuemax", Math.ceil(view[1]));
		e.setAttribute("aria-valuenow", t === null ? Math.floor(view[0]) : Math.floor(t));
		e.setAttribute("aria-valuetext", text);
	}
	function select(range, sameStep) {
		preview = null;
		if (range && range[1] - range[0] < State.SHORTEST)
			range = null;
		listeners.select(range, sameStep);
	}

	for (const [id, chart] of Object.entries(CHARTS)) {
		const e = $(id);
		let anchor = null, pressed = null, moved = false;
		const point = event => {
			const box = e.getBoundingClientRect();
			return chart.at(event.clientX - box.left, event.clientY - box.top);
		};
		e.addEventListener("pointerdown", event => {
			if (event.button !== 0)
				return;
			e.setPointerCapture(event.pointerId);
			pressed = { x: event.clientX, y: event.clientY, t: point(event) };
			moved = false;
		});
		e.addEventListener("pointermove", event => {
			const t = point(event);
			cursors[id] = t;
			if (pressed) {
				moved = moved || Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > 3;
				if (moved)
					preview = spanned(chart, pressed.t, t);
			}
			say(id, preview ? `${Show.range(preview)}: ${Show.length(preview[1] - preview[0])}` : chart.say(t));
			drawOver();
		});
		e.addEventListener("pointerup", event => {
			if (!pressed)
				return;
			const t = point(event), from = pressed.t;
			pressed = null;
			select(moved ? spanned(chart, from, t) : null, false);
		});
		e.addEventListener("pointercancel", () => {
			pressed = preview = null;
			drawOver();
		});
		e.addEventListener("pointerleave", () => {
			if (!pressed && document.activeElement !== e) {
				cursors[id] = null;
				drawOver();
				$("reading").textContent = "";
			}
		});
		e.addEventListener("focus", () => {
			if (cursors[id] === null)
				cursors[id] = within((State.get().select || view)[0]);
			say(id, chart.say(cursors[id]));
			drawOver();
		});
		e.addEventListener("blur", () => {
			cursors[id] = anchor = null;
			drawOver();
		});
		e.addEventListener("keydown", event => {
			if (event.ctrlKey || event.altKey || event.metaKey)
				return;
			const big = (view[1] - view[0]) / 10, old = cursors[id] ?? view[0];
			const by = { ArrowRight: chart.step(), ArrowLeft: -chart.step(), ArrowUp: chart.row(), ArrowDown: -chart.row(), PageUp: -big, PageDown: big,
				Home: view[0] - old, End: view[1] - old }[event.key];
			if (by !== undefined) {
				if (by === 0)
					return;
				const to = within(old + by), more = anchor !== null;
				event.preventDefault();
				cursors[id] = to;
				if (event.shiftKey) {
					anchor = anchor ?? old;
					select(spanned(chart, anchor, to), more);
					say(id, `${chart.say(to)}; selected ${Show.length(Math.abs(to - anchor))}`);
				} else {
					anchor = null;
					say(id, chart.say(to));
				}
				drawOver();
			} else if (event.key === "Enter" || event.key === "+" || event.key === "=") {
				event.preventDefault();
				listeners.zoom(true);
			} else if (event.key === "-") {
				event.preventDefault();
				listeners.zoom(false);
			} else if (event.key === "Escape" && State.get().select) {
				event.preventDefault();
				anchor = null;
				select(null, false);
			}
		});
	}

	return {
		LEFT, rowsFor, stepFor, columnFor, colourOf, width, across, axis: drawAxis, firstAt,
		onSelect: some => { listeners = some; },
		isBusy: () => preview !== null,
		setView: range => { view = range; drawTimeline(); drawHeat(); },
		setTimeline: (data, marked) => {
			timeline = data;
			mark = marked;
			if (data)
				colour(data.series.map(one => one.value));
			drawTimeline();
		},
		setHeat: data => {
			heat = data;
			learn(data);
			drawHeat();
		},
		redraw: () => { drawTimeline(); drawHeat(); },
		drawOver,
	};
})();
