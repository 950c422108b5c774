// agent/export/page/page.js: draws the flame graph page and handles its input; model.js has the data.
//
// d3-flame-graph lays out and draws the frames.  With each zoom it gets only the frames that are
// wider than a pixel in the zoomed view, so that the cost of a hundred thousand stacks depends on
// what can be seen.  Names are always set as text, never as markup.
"use strict";
(() => {
	const began = performance.now();
	const $ = id => document.getElementById(id);
	const { P, KIND, INLINED, diff } = Model;
	const ROW = 19; // px
	const NARROWEST = 1; // px
	const LABELLED = 35; // px; d3-flame-graph labels frames of this width and more

	// ---- what is shown -------------------------------------------------------

	// What the user chose; it is stored in the page's address, see remember().
	const chosen = { type: 0, callers: false, group: null, filters: [], table: false };
	let type = P.types[0], keep = null;
	let parent, end, depth, frame, n, now, base, nowTotal, baseTotal, guessed, anyGuessed, cut; // parts of the view

	// Compute the view from what the user chose.
	function look() {
		type = P.types[chosen.type];
		keep = Model.selected(chosen.group, chosen.filters);
		({ parent, end, depth, frame, size: n, now, base, nowTotal, baseTotal, guessed, anyGuessed, cut } = Model.view(type, chosen.callers, keep));
	}
	look();

	const nameOf = i => Model.nameOfFrame(frame[i]);
	const moduleOf = i => Model.moduleOfFrame(frame[i]);
	const kindOf = i => Model.kindOfFrame(frame[i]);
	const isInlined = i => (P.frames[frame[i] * 5 + 4] & INLINED) !== 0;
	const placeOf = i => {
		const file = P.strings[P.frames[frame[i] * 5 + 2]], line = P.frames[frame[i] * 5 + 3];
		return file && line ? `${file}:${line}` : file;
	};

	// The weight of one unit in each profile, so that the two can be compared.
	let nowScale = 1, baseScale = 1;
	let weigh = i => nowTotal[i];

	// ---- numbers for display -------------------------------------------------

	function value(v) {
		const x = v * type.one, size = Math.abs(x);
		if (type.unit === "nanoseconds") {
			for (const [from, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
				if (size >= from)
					return `${(x / from).toFixed(2)} ${name}`;
			return `${x} ns`;
		}
		if (type.unit === "bytes") {
			const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
			let k = 0, left = x;
			for (; Math.abs(left) >= 1024 && k < names.length - 1; k++)
				left /= 1024;
			return `${k ? left.toFixed(2) : left} ${names[k]}`;
		}
		return `${x.toLocaleString("en")} ${type.unit === "count" ? type.type : type.unit}`;
	}
	const percent = (part, whole) => {
		const p = whole ? (100 * part) / whole : 0;
		return `${p > 0 && p < 0.01 ? "<0.01" : p.toFixed(p >= 99.995 ? 0 : 2)} %`;
	};
	const signed = p => `${p > 0 ? "+" : p < 0 ? "−" : "±"}${Math.abs(p).toFixed(2)} %`;
	const counted = (k, one, many) => `${k.toLocaleString("en")} ${k === 1 ? one : many}`;

	// ---- the difference --------------------------------------------------------

	// Return the change of node i in percent: of each profile's own total when shares are compared, else of
	// the larger total.
	function change(i) {
		const now = nowTotal[i] * nowScale, base = baseTotal[i] * baseScale;
		const whole = Math.max(nowTotal[0] * nowScale, baseTotal[0] * baseScale);
		return whole ? (100 * (now - base)) / whole : 0;
	}
	const STEPS = [0.1, 1, 5, 10]; // percent; at each of these changes the colour becomes one step stronger
	function changeClass(i) {
		const c = change(i), size = Math.abs(c);
		let step = 0;
		while (step < STEPS.length && size >= STEPS[step])
			step++;
		return step ? `${c > 0 ? "more" : "less"}${step}` : "same";
	}
	function compareBy(how) {
		const a = nowTotal[0], b = baseTotal[0];
		nowScale = how === "shares" && a ? 1 / a : 1;
		baseScale = how === "shares" && b ? 1 / b : 1;
	}
	function widthsBy(which) {
		weigh = which === "now" ? i => nowTotal[i]
			: which === "base" ? i => baseTotal[i]
			: i => nowTotal[i] * nowScale + baseTotal[i] * baseScale;
	}

	// ---- colours: one for each module, the heaviest first; see page.css ----------

	const COLOURS = 7;
	const coloured = i => (kindOf(i) === KIND.kernel ? "[kernel]" : moduleOf(i));
	// Return for each module the value of the samples that end in it (self), and the sum of the totals of
	// its frames (through), of all that is shown.
	function weighModules() {
		const own = new Map();
		for (let i = 1; i < n; i++) {
			if (kindOf(i) >= KIND.group || !(nowTotal[i] || (diff && baseTotal[i])))
				continue;
			const name = coloured(i);
			if (!own.has(name))
				own.set(name, { name, self: 0, through: 0 });
			const module = own.get(name);
			module.self += chosen.callers ? (depth[i] === 1 ? nowTotal[i] + (diff ? baseTotal[i] : 0) : 0) : now[i] + (diff ? base[i] : 0);
			module.through += nowTotal[i];
		}
		return [...own.values()].sort((a, b) => b.self - a.self || b.through - a.through || (a.name < b.name ? -1 : 1));
	}
	// Colours are assigned once, so that a module has the same colour in every view.
	const colourOfModule = new Map();
	let nextColour = 0;
	for (const { name } of weighModules())
		if (name !== "[kernel]" && nextColour < COLOURS)
			colourOfModule.set(name, `m${nextColour++}`);
	function colourOf(i) {
		const kind = kindOf(i);
		if (kind === KIND.stop)
			return "stop";
		if (diff)
			return changeClass(i);
		if (kind === KIND.root || kind === KIND.group)
			return "group";
		return kind === KIND.kernel ? "kernel" : colourOfModule.get(moduleOf(i)) || "rest";
	}
	// Neighbours of one module differ a little in shade; a function always has the same shade.
	function shadeOf(i) {
		let hash = 0;
		const name = nameOf(i);
		for (let k = 0; k < name.length; k++)
			hash = (hash * 31 + name.charCodeAt(k)) | 0;
		return (hash >>> 3) % 3;
	}

	// ---- search ----------------------------------------------------------------

	let found = null; // by frame: 1 if it matches; null: there is no search, or nothing was found
	function search(term) {
		const say = text => { $("found").textContent = text; };
		$("search").removeAttribute("aria-invalid");
		found = null;
		if (!term) {
			say("");
			return;
		}
		try {
			found = Model.matching(term);
		} catch (error) {
			$("search").setAttribute("aria-invalid", "true");
			say("not a regular expression");
			return;
		}
		const shown = new Set();
		for (let i = 1; i < n; i++)
			if (found[frame[i]] && (nowTotal[i] || (diff && baseTotal[i])))
				shown.add(frame[i]);
		if (!shown.size) {
			found = null; // there is nothing to highlight
			say("nothing found");
			return;
		}
		// A match inside another match adds nothing to the sum.
		let part = 0, frames = 0;
		for (let i = 1, clear = 0; i < n; i++) {
			if (!found[frame[i]] || !(nowTotal[i] || (diff && baseTotal[i])))
				continue;
			frames++;
			if (i >= clear) {
				part += nowTotal[i];
				clear = end[i];
			}
		}
		say(`${counted(shown.size, "function", "functions")} in ${counted(frames, "frame", "frames")}: ${percent(part, nowTotal[0])}`);
	}
	function widestFound() {
		let best = -1;
		for (let i = 1; found && i < n; i++)
			if (found[frame[i]] && (best < 0 || weigh(i) > weigh(best)))
				best = i;
		return best;
	}

	// ---- drawing -----------------------------------------------------------------

	// Replace transitions, which d3-flame-graph calls, by changes that take effect at once.  Without
	// animation, the place of a frame depends only on the view, not on where the frame was before.
	d3.selection.prototype.transition = function () {
		const selection = this;
		const now = { duration: () => now, delay: () => now, ease: () => now };
		for (const what of ["attr", "style", "text"])
			now[what] = (...values) => {
				selection[what](...values);
				return now;
			};
		return now;
	};

	const chartElement = $("chart"), tip = $("tip");
	const chart = flamegraph.default();
	let zoomed = 0, focused = 0, drawn = new Map(), width = 0;

	function labelOf(i) {
		const short = Model.shortOfFrame(frame[i]);
		const name = kindOf(i) === KIND.stop ? `⊘ ${short}` : guessed[i] > 0 ? `≈ ${short}` : short;
		return diff && i ? `${signed(change(i))} ${name}` : name; // the number comes first, because long names are cut off
	}

	// Return the frames to draw: those from the root to the zoomed node, then all in its subtree that are wide
	// enough.
	function visible() {
		const least = (NARROWEST * weigh(zoomed)) / width;
		const item = i => ({ node: i, name: labelOf(i), value: weigh(i), children: [] });
		const top = item(zoomed), todo = [top];
		for (let at; (at = todo.pop()); ) {
			const last = end[at.node];
			for (let j = at.node + 1; j < last; j = end[j]) {
				if (!(weigh(j) > 0) || weigh(j) < least)
					continue;
				const child = item(j);
				at.children.push(child);
				todo.push(child);
			}
		}
		let root = top;
		for (let i = parent[zoomed]; i >= 0; i = parent[i]) {
			const above = item(i);
			above.fade = true;
			above.children.push(root);
			root = above;
		}
		return root;
	}

	// Set an attribute of an element.  d3-flame-graph reuses elements: an attribute that did not change is not
	// set again.
	const marked = new WeakMap();
	function mark(g, name, text) {
		let values = marked.get(g);
		if (!values)
			marked.set(g, (values = {}));
		if (values[name] === text)
			return;
		values[name] = text;
		g.setAttribute(name, text);
	}

	// Add what d3-flame-graph does not set: colours, marks and roles.
	function decorate() {
		drawn = new Map();
		for (const g of chartElement.querySelectorAll("g.frame")) {
			const i = d3.select(g).datum().data.node;
			drawn.set(i, g);
			mark(g, "data-colour", colourOf(i));
			mark(g, "data-shade", shadeOf(i));
			mark(g, "role", "treeitem");
			mark(g, "aria-level", depth[i] + 1);
			mark(g, "aria-label", `${labelOf(i)}, ${percent(nowTotal[i], nowTotal[0])}`);
			g.toggleAttribute("data-guess", guessed[i] > 0);
			g.toggleAttribute("data-narrow", g.getAttribute("width") < LABELLED);
			g.toggleAttribute("data-inlined", isInlined(i));
			g.toggleAttribute("data-found", found !== null && found[frame[i]] === 1);
		}
		chartElement.toggleAttribute("data-searching", found !== null);
	}

	function draw() {
		const start = performance.now(), held = chartElement.contains(document.activeElement);
		width = Math.max(200, chartElement.clientWidth);
		chart.width(width);
		const data = visible();
		if (chartElement.firstChild)
			chart.update(data);
		else
			d3.select(chartElement).datum(data).call(chart);
		chartElement.firstChild.setAttribute("role", "presentation");
		decorate();
		setFocus(drawn.has(focused) ? focused : zoomed, held);
		remember();
		chartElement.dataset.took = (performance.now() - start).toFixed(1);
	}

	let tabbed = null; // the element that gets the focus with the Tab key
	// Put the focus on frame i and describe the frame below the graph.  take: the element gets the keyboard
	// focus, too.
	function setFocus(i, take) {
		const g = drawn.get(i);
		focused = i;
		if (!g)
			return;
		if (tabbed && tabbed !== g) {
			tabbed.setAttribute("tabindex", "-1"); // without a tabindex it would lose the focus, which costs a layout
			tabbed.removeAttribute("aria-current");
		}
		tabbed = g;
		g.setAttribute("tabindex", "0");
		g.setAttribute("aria-current", "true");
		if (take)
			g.focus({ preventScroll: true }), g.scrollIntoView({ block: "nearest" });
		tell($("detail-text"), i);
	}

	function zoom(i) {
		zoomed = i;
		focused = i;
		hideTip();
		draw();
		$("reset").disabled = i === 0;
		drawn.get(i)?.scrollIntoView({ block: "nearest" });
	}

	// ---- the description of a frame --------------------------------------------------

	// Return what is known about frame i as pairs of a heading and a text.
	function facts(i) {
		const rows = [], kind = kindOf(i);
		const self = now[i], total = nowTotal[i], whole = nowTotal[0];
		if (kind === KIND.stop)
			rows.push(["", P.stops[nameOf(i)] || "The stack ends here, before its root."]);
		const where = [moduleOf(i), placeOf(i), isInlined(i) ? "inlined" : ""].filter(Boolean).join(" · ");
		if (where)
			rows.push(["", where]);
		rows.push([!chosen.callers || !i ? "total" : depth[i] === 1 ? "self" : "calls this way", `${value(total)}, ${percent(total, whole)}${zoomed && i >= zoomed && i < end[zoomed] ? ` (${percent(total, nowTotal[zoomed])} of what is shown)` : ""}`]);
		if (kind < KIND.group && !chosen.callers)
			rows.push(["self", `${value(self)}, ${percent(self, whole)}`]);
		if (diff) {
			rows.push(["base", `total ${value(baseTotal[i])}, ${percent(baseTotal[i], baseTotal[0])}${chosen.callers ? "" : `; self ${value(base[i])}`}`]);
			rows.push(["change", signed(change(i)) + (nowScale === 1 ? ` (${value(total - baseTotal[i])})` : " of the whole")]);
		}
		if (guessed[i] > 0)
			rows.push(["≈ guessed", `in ${percent(guessed[i], 1)} of its samples no unwind information led here`]);
		return rows;
	}
	function tell(element, i) {
		const title = document.createElement("strong"), list = document.createElement("span");
		title.textContent = nameOf(i);
		for (const [what, text] of facts(i)) {
			const item = document.createElement("span"), name = document.createElement("b");
			name.textContent = what;
			item.append(name, what ? " " : "", text);
			list.append(item);
		}
		element.replaceChildren(title, list);
	}
	function hideTip() {
		tip.hidden = true;
	}
	function tipAt(event, i) {
		tell(tip, i);
		tip.hidden = false;
		const room = document.documentElement.clientWidth, high = innerHeight;
		tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, room - tip.offsetWidth - 4))}px`;
		const below = event.clientY + 18;
		tip.style.top = `${below + tip.offsetHeight > high ? Math.max(4, event.clientY - tip.offsetHeight - 12) : below}px`;
	}

	// ---- keys and mouse ---------------------------------------------------------------

	const nodeAt = target => {
		const g = target instanceof Element ? target.closest("g.frame") : null;
		return g ? d3.select(g).datum().data.node : -1;
	};
	// Handle clicks before d3-flame-graph does: its own zoom would show only the frames that it was given,
	// which are not all.
	chartElement.addEventListener("click", event => {
		const i = nodeAt(event.target);
		event.stopPropagation();
		if (i >= 0) {
			zoom(i);
			setFocus(i, true);
		}
	}, true);
	chartElement.addEventListener("mousemove", event => {
		const i = nodeAt(event.target);
		if (i >= 0)
			tipAt(event, i);
		else
			hideTip();
	});
	chartElement.addEventListener("mouseleave", hideTip);
	addEventListener("scroll", hideTip, { passive: true });

	// Return the next drawn frame on the level of i, to the right (step > 0) or left, with any parent; or -1.
	function beside(i, step) {
		let best = -1;
		for (const j of drawn.keys())
			if (depth[j] === depth[i] && (step > 0 ? j > i && (best < 0 || j < best) : j < i && j > best))
				best = j;
		return best;
	}
	function widestChild(i) {
		let best = -1;
		for (let j = i + 1; j < end[i]; j = end[j])
			if (drawn.has(j) && (best < 0 || weigh(j) > weigh(best)))
				best = j;
		return best;
	}
	chartElement.addEventListener("keydown", event => {
		if (event.ctrlKey || event.altKey || event.metaKey)
			return;
		const outward = chart.inverted() ? "ArrowUp" : "ArrowDown";
		const inward = chart.inverted() ? "ArrowDown" : "ArrowUp";
		let to = -1;
		if (event.key === outward)
			to = parent[focused];
		else if (event.key === inward)
			to = widestChild(focused);
		else if (event.key === "ArrowRight")
			to = beside(focused, 1);
		else if (event.key === "ArrowLeft")
			to = beside(focused, -1);
		else if (event.key === "Home")
			to = 0;
		else if (event.key === "Enter" || event.key === " ")
			zoom((to = focused));
		else if (event.key === "Backspace")
			zoom((to = Math.max(0, parent[zoomed])));
		else
			return;
		event.preventDefault();
		if (to >= 0)
			setFocus(to, true);
	});
	addEventListener("keydown", event => {
		if (event.ctrlKey || event.altKey || event.metaKey)
			return;
		const typing = event.target === $("search");
		if (event.key === "/" && !typing) {
			event.preventDefault();
			$("search").focus();
			$("search").select();
		} else if (event.key === "Escape" && typing && $("search").value) {
			searchFor("");
			event.preventDefault();
		} else if (event.key === "Escape" && !event.target.closest?.("select")) {
			const held = typing || chartElement.contains(document.activeElement);
			zoom(0);
			if (held)
				setFocus(0, true);
		} else if (event.key === "Enter" && typing && widestFound() >= 0) {
			const i = widestFound();
			if (!drawn.has(i))
				zoom(i);
			setFocus(i, true);
		}
	});

	// ---- tools -------------------------------------------------------------------------

	function searched() {
		search($("search").value);
		decorate();
		setFocus(focused, false);
		drawTable();
		for (const id of ["only", "without"])
			$(id).disabled = found === null;
		remember();
	}
	function searchFor(text) {
		$("search").value = text;
		searched();
	}
	// Compute and draw everything again after the user chose what is shown.
	function refresh(at = 0) {
		look();
		if (diff) {
			compareBy($("scale").value);
			widthsBy($("basis").value);
		}
		introduce();
		drawLegend();
		drawFilters();
		search($("search").value);
		zoom(at > 0 && at < n && weigh(at) > 0 ? at : 0);
		drawTable();
	}
	function filter(without) {
		chosen.filters.push({ term: $("search").value, without });
		$("search").value = "";
		refresh();
		for (const id of ["only", "without"])
			$(id).disabled = true;
	}
	$("only").addEventListener("click", () => filter(false));
	$("without").addEventListener("click", () => filter(true));
	function drawFilters() {
		$("filters").replaceChildren(...chosen.filters.map((one, k) => {
			const element = document.createElement("button");
			element.type = "button";
			element.title = "Take this filter away";
			element.textContent = `${one.without ? "without" : "only"} ${one.term} ✕`;
			element.addEventListener("click", () => {
				chosen.filters.splice(k, 1);
				refresh();
			});
			return element;
		}));
	}
	function offer(id, names, label) {
		$(id).replaceChildren(...names.map((name, k) => {
			const element = document.createElement("option");
			element.value = k;
			element.textContent = name;
			return element;
		}));
		$(id).parentElement.hidden = names.length < label;
	}
	offer("type", P.types.map(one => one.type), 2);
	$("type").addEventListener("change", () => {
		chosen.type = +$("type").value;
		refresh(zoomed);
	});
	offer("group", ["all", ...Model.groups.map(one => one.name)], 3);
	$("group").addEventListener("change", () => {
		chosen.group = Model.groups[$("group").value - 1] || null;
		refresh();
	});
	function pressed(id, on) {
		$(id).setAttribute("aria-pressed", on);
	}
	$("callers").addEventListener("click", () => {
		chosen.callers = !chosen.callers;
		pressed("callers", chosen.callers);
		refresh();
	});
	$("search").addEventListener("input", searched);
	$("reset").addEventListener("click", () => zoom(0));
	function rootBelow(below) {
		chart.inverted(!below);
		$("flip").setAttribute("aria-pressed", below);
		draw();
	}
	$("flip").addEventListener("click", () => {
		rootBelow(chart.inverted());
		drawn.get(zoomed)?.scrollIntoView({ block: "nearest" });
	});
	$("basis").addEventListener("change", () => {
		widthsBy($("basis").value);
		zoom(weigh(zoomed) > 0 ? zoomed : 0);
	});
	$("scale").addEventListener("change", () => {
		compareBy($("scale").value);
		draw();
		drawLegend();
	});
	const root = document.documentElement, darkAsked = matchMedia("(prefers-color-scheme: dark)");
	const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkAsked.matches);
	const nameTheme = () => {
		$("theme").textContent = isDark() ? "Light" : "Dark";
		$("theme").setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
	};
	$("theme").addEventListener("click", () => {
		root.dataset.theme = isDark() ? "light" : "dark";
		nameTheme();
	});
	darkAsked.addEventListener("change", nameTheme);

	function chip(colour, text, onClick) {
		const element = document.createElement(onClick ? "button" : "span"), swatch = document.createElement("i");
		if (onClick) {
			element.type = "button";
			element.title = "Search for this module";
			element.addEventListener("click", onClick);
		}
		swatch.dataset.colour = colour;
		element.append(swatch, text);
		return element;
	}
	function drawLegend() {
		const legend = $("legend"), all = nowTotal[0] + (diff ? baseTotal[0] : 0);
		const chips = [];
		if (diff) {
			const what = document.createElement("span");
			what.textContent = "Change by at least, in percent of the whole:";
			chips.push(what);
			for (let k = STEPS.length; k > 0; k--)
				chips.push(chip(`less${k}`, `−${STEPS[k - 1]} %`));
			chips.push(chip("same", "same"));
			for (let k = 1; k <= STEPS.length; k++)
				chips.push(chip(`more${k}`, `+${STEPS[k - 1]} %`));
		} else {
			const modules = weighModules();
			for (const { name, self } of modules) {
				const colour = name === "[kernel]" ? "kernel" : colourOfModule.get(name);
				if (colour)
					chips.push(chip(colour, `${name || "no module"}${self ? ` ${percent(self, all)}` : ""}`, () => searchFor(name)));
			}
			if (modules.length > chips.length)
				chips.push(chip("rest", counted(modules.length - chips.length, "module more", "modules more")));
		}
		if (anyGuessed)
			chips.push(chip("guess", "≈ found by guess"));
		if (Object.keys(P.stops).length)
			chips.push(chip("stop", "⊘ stacks that end before their root, by reason"));
		legend.replaceChildren(...chips);
	}

	// ---- the table -----------------------------------------------------------------

	const ROWS = 500; // rows that are shown at once
	const COLUMNS = [
		...(diff ? [["change", "Change", row => share(row.total, nowTotal[0]) - share(row.baseTotal, baseTotal[0])]] : []),
		["self", "Self", row => row.self],
		["total", "Total", row => row.total],
		["name", "Function", row => Model.nameOfFrame(row.frame)],
	];
	const share = (part, whole) => (whole ? (100 * part) / whole : 0);
	let order = { column: "self", rising: false };

	function compareRows(a, b) {
		const [, , key] = COLUMNS.find(([id]) => id === order.column);
		const x = key(a), y = key(b), sign = order.rising ? 1 : -1;
		return x < y ? -sign : x > y ? sign : b.total - a.total || a.frame - b.frame;
	}
	function cell(row, text, className) {
		const element = document.createElement("td");
		element.textContent = text;
		if (className)
			element.className = className;
		row.append(element);
		return element;
	}
	function drawTable() {
		$("functions").hidden = !chosen.table;
		if (!chosen.table)
			return;
		const rows = Model.functions(type, keep).filter(row => found === null || found[row.frame]).sort(compareRows);
		$("table-head").replaceChildren(...COLUMNS.map(([id, text]) => {
			const element = document.createElement("th"), button = document.createElement("button");
			button.type = "button";
			button.textContent = text;
			element.scope = "col";
			if (order.column === id)
				element.setAttribute("aria-sort", order.rising ? "ascending" : "descending");
			button.addEventListener("click", () => {
				order = { column: id, rising: order.column === id ? !order.rising : id === "name" };
				drawTable();
			});
			element.append(button);
			return element;
		}));
		$("table-rows").replaceChildren(...rows.slice(0, ROWS).map(row => {
			const element = document.createElement("tr"), name = Model.nameOfFrame(row.frame);
			if (diff)
				cell(element, signed(COLUMNS[0][2](row)), "number");
			for (const part of [row.self, row.total])
				cell(element, `${value(part)} ${percent(part, nowTotal[0])}`, "number");
			const button = document.createElement("button"), where = document.createElement("span");
			button.type = "button";
			button.title = name;
			button.textContent = Model.shortOfFrame(row.frame);
			button.addEventListener("click", () => searchFor(`"${name}"`));
			where.textContent = Model.moduleOfFrame(row.frame);
			cell(element, "", "name").append(button, " ", where);
			return element;
		}));
		$("table-more").textContent = rows.length > ROWS ? `${counted(rows.length - ROWS, "function", "functions")} more: search for them` : counted(rows.length, "function", "functions");
	}
	$("table").addEventListener("click", () => {
		chosen.table = !chosen.table;
		pressed("table", chosen.table);
		drawTable();
		draw();
	});

	// ---- links and the clipboard -----------------------------------------------------

	// Store the view in the page's address, which becomes a link to this view.
	function remember() {
		const q = new URLSearchParams();
		if (chosen.type)
			q.set("type", type.type);
		if (chosen.callers)
			q.set("callers", "");
		if (chosen.table)
			q.set("table", "");
		if (chosen.group)
			q.set("group", chosen.group.name);
		for (const { term, without } of chosen.filters)
			q.append(without ? "without" : "only", term);
		if ($("search").value)
			q.set("search", $("search").value);
		if (zoomed)
			q.set("zoom", zoomed);
		try {
			history.replaceState(null, "", q.size ? `#${q}` : "#");
		} catch (error) {
			// The browser does not let this page change its address: there is no link.
		}
	}
	// Show the view that the page's address describes.
	function recall() {
		const q = new URLSearchParams(location.hash.slice(1)), group = q.get("group");
		chosen.type = Math.max(0, P.types.findIndex(one => one.type === q.get("type")));
		chosen.callers = q.has("callers");
		chosen.table = q.has("table");
		chosen.group = Model.groups.find(one => one.name === group) || null;
		chosen.filters = [];
		for (const [key, term] of q)
			if (key === "only" || key === "without")
				try {
					Model.matching(term);
					chosen.filters.push({ term, without: key === "without" });
				} catch (error) {
					// The link was cut short: leave its filter out.
				}
		$("search").value = q.get("search") || "";
		$("type").value = chosen.type;
		$("group").value = chosen.group ? Model.groups.indexOf(chosen.group) + 1 : 0;
		pressed("callers", chosen.callers);
		pressed("table", chosen.table);
		refresh(+q.get("zoom") || 0);
		for (const id of ["only", "without"])
			$(id).disabled = found === null;
	}
	addEventListener("hashchange", recall);

	// Copy text to the clipboard and show the result on the button.  If the clipboard is not available, select
	// the text instead.
	async function copy(button, text, element) {
		const label = button.dataset.label || (button.dataset.label = button.textContent);
		try {
			await navigator.clipboard.writeText(text);
			button.textContent = "Copied";
		} catch (error) {
			getSelection().selectAllChildren(element);
			button.textContent = "Marked: copy it";
		}
		setTimeout(() => { button.textContent = label; }, 1500);
	}
	$("copy-name").addEventListener("click", event => copy(event.target, nameOf(focused), $("detail-text").querySelector("strong")));
	$("copy-link").addEventListener("click", event => copy(event.target, location.href, $("detail-text")));

	// Write the title and the summary line above the graph.
	function introduce() {
		$("title").textContent = P.title;
		const parts = [];
		if (P.samples !== null && type.unit !== "count" && !keep)
			parts.push(counted(P.samples, "sample", "samples"));
		parts.push(`${value(nowTotal[0])}${type.unit === "count" ? "" : ` of ${type.type}`}`);
		if (keep)
			parts.push(`${percent(nowTotal[0], type.now.reduce((sum, part) => sum + part, 0))} of the profile`);
		if (P.duration_ns > 0)
			parts.push(`in ${(P.duration_ns / 1e9).toFixed(2)} s`);
		if (P.time_ns > 0)
			parts.push(new Date(P.time_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC");
		if (diff)
			parts.push(`compared with ${P.against}: ${value(baseTotal[0])}`);
		if (chosen.callers && cut)
			parts.push("the outermost callers are left out, there are too many");
		parts.push(counted(P.stacks, "stack", "stacks"));
		$("summary").textContent = parts.join(" · ");
		$("comments").replaceChildren(...P.comments.map(text => {
			const item = document.createElement("li");
			item.textContent = text;
			return item;
		}));
		$("about").hidden = !P.comments.length;
		for (const element of document.querySelectorAll(".diff-only"))
			element.hidden = !diff;
	}

	chart.cellHeight(ROW)
		.transitionDuration(0)
		.inverted(true)
		.resetHeightOnZoom(true)
		.setColorMapper(() => "currentColor") // by class, see decorate
		.getName(d => d.data.name)
		.tooltip(Object.assign(() => {}, { show() {}, hide() {} })); // tipAt shows our own tooltip
	nameTheme();
	recall();
	new ResizeObserver(() => {
		if (chartElement.clientWidth !== width && chartElement.clientWidth >= 200)
			draw();
	}).observe(chartElement);
	root.dataset.decoded = began.toFixed(1);
	root.dataset.ready = performance.now().toFixed(1);
})();
