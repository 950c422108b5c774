// agent/export/page/page.js: what the flame graph page shows and how it is used; the data is model.js's.
//
// d3-flame-graph lays out and draws.  It is given only what is wider than a pixel from where the
// page is zoomed to, and again with each zoom: so a hundred thousand stacks cost no more than
// what can be seen of them.  Whatever a name holds is set as text, never as markup.
"use strict";
(() => {
	const began = performance.now();
	const $ = id => document.getElementById(id);
	const { P, KIND, INLINED, diff } = Model;
	const ROW = 19; // px
	const NARROWEST = 1; // px
	const LABELLED = 35; // px, from which on d3-flame-graph shows a label

	// ---- what is shown -------------------------------------------------------

	// What the reader chose; the address of the page keeps it, see remember().
	const chosen = { type: 0, callers: false, group: null, filters: [], table: false };
	let type = P.types[0], keep = null;
	let parent, end, depth, frame, n, now, base, nowTotal, baseTotal, guessed, anyGuessed, cut; // of the view

	function look() {
		type = P.types[chosen.type];
		keep = Model.kept(chosen.group, chosen.filters);
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

	// What one unit of either profile weighs, so that they can be compared.
	let nowScale = 1, baseScale = 1;
	let weigh = i => nowTotal[i];

	// ---- numbers as people read them -----------------------------------------

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

	// In percent of the whole: of each profile its own, or of the larger one.
	function change(i) {
		const now = nowTotal[i] * nowScale, base = baseTotal[i] * baseScale;
		const whole = Math.max(nowTotal[0] * nowScale, baseTotal[0] * baseScale);
		return whole ? (100 * (now - base)) / whole : 0;
	}
	const STEPS = [0.1, 1, 5, 10]; // percent from which on a colour is one step stronger
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

	// ---- colours: one a module, the heaviest first; see page.css -----------------

	const COLOURS = 7;
	const coloured = i => (kindOf(i) === KIND.kernel ? "[kernel]" : moduleOf(i));
	// By module: what ended in it, and what went through it, of all that is shown.
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
	// Given once, so that a module keeps its colour in every view.
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
	// Neighbours of one module differ a little, each function always in the same way.
	function shadeOf(i) {
		let hash = 0;
		const name = nameOf(i);
		for (let k = 0; k < name.length; k++)
			hash = (hash * 31 + name.charCodeAt(k)) | 0;
		return (hash >>> 3) % 3;
	}

	// ---- search ----------------------------------------------------------------

	let found = null; // by frame: 1 where it matches; null: nothing is searched
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
			found = null; // nothing to stand out against
			say("nothing found");
			return;
		}
		// A match inside another one adds nothing.
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

	// Without animation: a frame's place follows from what was asked for, not from where it was.
	// d3-flame-graph asks for transitions; here each takes effect at once.
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
		return diff && i ? `${signed(change(i))} ${name}` : name; // the number first: long names are cut
	}

	// The way to the zoomed node, then all beyond it that is wide enough.
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

	// Elements are used again, and an attribute that stays costs nothing.
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

	// What d3-flame-graph does not know: colours by class, marks, roles.
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

	let tabbed = null; // the element that the Tab key comes to
	function setFocus(i, take) {
		const g = drawn.get(i);
		focused = i;
		if (!g)
			return;
		if (tabbed && tabbed !== g) {
			tabbed.setAttribute("tabindex", "-1"); // without one it would lose the focus, which costs a layout
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

	// ---- what a frame is -----------------------------------------------------------

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
	// Before d3-flame-graph hears of it: it would zoom in what it was given, which is not all there is.
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

	// The drawn frame beside i on its level, wherever its parent is.
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
	// After a choice of what is shown: the values, then all that is drawn of them.
	function lookAnew(at = 0) {
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
		lookAnew();
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
				lookAnew();
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
		lookAnew(zoomed);
	});
	offer("group", ["all", ...Model.groups.map(one => one.name)], 3);
	$("group").addEventListener("change", () => {
		chosen.group = Model.groups[$("group").value - 1] || null;
		lookAnew();
	});
	function pressed(id, on) {
		$(id).setAttribute("aria-pressed", on);
	}
	$("callers").addEventListener("click", () => {
		chosen.callers = !chosen.callers;
		pressed("callers", chosen.callers);
		lookAnew();
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

	const ROWS = 500; // that are shown at once
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

	// ---- to others -------------------------------------------------------------------

	// What is shown, in the page's address: a link to this very view.
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
			// Where the page may not have an address of its own, there is no link.
		}
	}
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
					// A link that was cut short: its filter is left out.
				}
		$("search").value = q.get("search") || "";
		$("type").value = chosen.type;
		$("group").value = chosen.group ? Model.groups.indexOf(chosen.group) + 1 : 0;
		pressed("callers", chosen.callers);
		pressed("table", chosen.table);
		lookAnew(+q.get("zoom") || 0);
		for (const id of ["only", "without"])
			$(id).disabled = found === null;
	}
	addEventListener("hashchange", recall);

	// Says what was done on the button itself; where the clipboard is refused, the text is marked instead.
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
		.tooltip(Object.assign(() => {}, { show() {}, hide() {} })); // ours, see tipAt
	nameTheme();
	recall();
	new ResizeObserver(() => {
		if (chartElement.clientWidth !== width && chartElement.clientWidth >= 200)
			draw();
	}).observe(chartElement);
	root.dataset.decoded = began.toFixed(1);
	root.dataset.ready = performance.now().toFixed(1);
})();
