// agent/export/page/page.js: the flame graph page.
//
// The profile comes as a tree in arrays, one number a node, in preorder:
//
//   up[i]     levels to leave before node i is a child of where that leads; node 0 is the root
//   frame[i]  its frame: five numbers in frames, name, module, file (in strings), line, kind
//   now[i]    what ended in this very frame, in units of `one`; base[i]: in the base profile
//   guessed   pairs: a node, and the part of its total in which it was found by guess
//
// d3-flame-graph lays out and draws.  It is given only what is wider than a pixel from where the
// page is zoomed to, and again with each zoom: so a hundred thousand stacks cost no more than
// what can be seen of them.  Whatever a name holds is set as text, never as markup.
"use strict";
(() => {
	const began = performance.now();
	const $ = id => document.getElementById(id);
	const P = JSON.parse($("profile").textContent);
	const KIND = { user: 0, kernel: 1, group: 2, stop: 3, root: 4 };
	const INLINED = 8; // beside the kind
	const ROW = 19; // px
	const NARROWEST = 1; // px
	const LABELLED = 35; // px, from which on d3-flame-graph shows a label
	const diff = Array.isArray(P.base);

	// ---- the tree ------------------------------------------------------------

	const n = P.frame.length;
	const parent = new Int32Array(n), end = new Int32Array(n), depth = new Int32Array(n);
	const nowTotal = Float64Array.from(P.now);
	const baseTotal = diff ? Float64Array.from(P.base) : null;
	const guessed = new Map();

	(function decode() {
		const path = [];
		for (let i = 0; i < n; i++) {
			for (let up = P.up[i]; up > 0; up--)
				end[path.pop()] = i;
			parent[i] = path.length ? path[path.length - 1] : -1;
			depth[i] = path.length;
			path.push(i);
		}
		for (const i of path)
			end[i] = n;
		for (let i = n - 1; i > 0; i--) {
			nowTotal[parent[i]] += nowTotal[i];
			if (diff)
				baseTotal[parent[i]] += baseTotal[i];
		}
		for (let k = 0; k < P.guessed.length; k += 2)
			guessed.set(P.guessed[k], P.guessed[k + 1]);
	})();

	const frameOf = i => P.frame[i] * 5;
	const nameOf = i => P.strings[P.frames[frameOf(i)]];
	const moduleOf = i => P.strings[P.frames[frameOf(i) + 1]];
	const kindOf = i => P.frames[frameOf(i) + 4] & 7;
	const isInlined = i => (P.frames[frameOf(i) + 4] & INLINED) !== 0;
	const placeOf = i => {
		const file = P.strings[P.frames[frameOf(i) + 2]], line = P.frames[frameOf(i) + 3];
		return file && line ? `${file}:${line}` : file;
	};

	// What one unit of either profile weighs, so that they can be compared.
	let nowScale = 1, baseScale = 1;
	let weigh = i => nowTotal[i];

	// ---- numbers as people read them -----------------------------------------

	function value(v) {
		const x = v * P.one, size = Math.abs(x);
		if (P.unit === "nanoseconds") {
			for (const [from, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
				if (size >= from)
					return `${(x / from).toFixed(2)} ${name}`;
			return `${x} ns`;
		}
		if (P.unit === "bytes") {
			const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
			let k = 0, left = x;
			for (; Math.abs(left) >= 1024 && k < names.length - 1; k++)
				left /= 1024;
			return `${k ? left.toFixed(2) : left} ${names[k]}`;
		}
		return `${x.toLocaleString("en")} ${P.unit === "count" ? P.type : P.unit}`;
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
	const colourOfModule = new Map();
	const modules = (() => {
		const own = new Map();
		for (let i = 0; i < n; i++)
			if (kindOf(i) < KIND.group && (P.now[i] || (diff && P.base[i]))) {
				const name = kindOf(i) === KIND.kernel ? "[kernel]" : moduleOf(i);
				own.set(name, (own.get(name) || 0) + P.now[i] + (diff ? P.base[i] : 0));
			}
		return [...own].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
	})();
	{
		let next = 0;
		for (const [name] of modules)
			if (name !== "[kernel]" && next < COLOURS)
				colourOfModule.set(name, `m${next++}`);
	}
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
	function matcher(term) {
		const re = /^\/(.+)\/$/.exec(term);
		if (re)
			return (test => text => test.test(text))(new RegExp(re[1]));
		const low = term.toLowerCase();
		return text => text.toLowerCase().includes(low);
	}
	function search(term) {
		const say = text => { $("found").textContent = text; };
		$("search").removeAttribute("aria-invalid");
		found = null;
		if (!term) {
			say("");
			return;
		}
		let matches;
		try {
			matches = matcher(term);
		} catch (error) {
			$("search").setAttribute("aria-invalid", "true");
			say("not a regular expression");
			return;
		}
		const strings = new Map();
		const hit = s => {
			if (!strings.has(s))
				strings.set(s, matches(P.strings[s]));
			return strings.get(s);
		};
		found = new Uint8Array(P.frames.length / 5);
		let functions = 0;
		for (let f = 0; f < found.length; f++)
			if ((P.frames[f * 5 + 4] & 7) !== KIND.root && (hit(P.frames[f * 5]) || hit(P.frames[f * 5 + 1]))) {
				found[f] = 1;
				functions++;
			}
		if (!functions) {
			found = null; // nothing to stand out against
			say("nothing found");
			return;
		}
		// A match inside another one adds nothing.
		let now = 0, frames = 0;
		for (let i = 1, clear = 0; i < n; i++) {
			if (!found[P.frame[i]])
				continue;
			frames++;
			if (i >= clear) {
				now += nowTotal[i];
				clear = end[i];
			}
		}
		say(`${counted(functions, "function", "functions")} in ${counted(frames, "frame", "frames")}: ${percent(now, nowTotal[0])}`);
	}
	function widestFound() {
		let best = -1;
		for (let i = 1; found && i < n; i++)
			if (found[P.frame[i]] && (best < 0 || weigh(i) > weigh(best)))
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
		const name = kindOf(i) === KIND.stop ? `⊘ ${nameOf(i)}` : guessed.has(i) ? `≈ ${nameOf(i)}` : nameOf(i);
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
			g.toggleAttribute("data-guess", guessed.has(i));
			g.toggleAttribute("data-narrow", g.getAttribute("width") < LABELLED);
			g.toggleAttribute("data-inlined", isInlined(i));
			g.toggleAttribute("data-found", found !== null && found[P.frame[i]] === 1);
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
		tell($("detail"), i);
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
		const self = P.now[i], total = nowTotal[i], whole = nowTotal[0];
		if (kind === KIND.stop)
			rows.push(["", P.stops[nameOf(i)] || "The stack ends here, before its root."]);
		const where = [moduleOf(i), placeOf(i), isInlined(i) ? "inlined" : ""].filter(Boolean).join(" · ");
		if (where)
			rows.push(["", where]);
		rows.push(["total", `${value(total)}, ${percent(total, whole)}${zoomed && i >= zoomed && i < end[zoomed] ? ` (${percent(total, nowTotal[zoomed])} of what is shown)` : ""}`]);
		if (kind < KIND.group)
			rows.push(["self", `${value(self)}, ${percent(self, whole)}`]);
		if (diff) {
			rows.push(["base", `total ${value(baseTotal[i])}, ${percent(baseTotal[i], baseTotal[0])}; self ${value(P.base[i])}`]);
			rows.push(["change", signed(change(i)) + (nowScale === 1 ? ` (${value(total - baseTotal[i])})` : " of the whole")]);
		}
		if (guessed.has(i))
			rows.push(["≈ guessed", `in ${percent(guessed.get(i), total + (diff ? baseTotal[i] : 0))} of its samples no unwind information led here`]);
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
			$("search").value = "";
			searched();
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
	}
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
			element.title = "Search for it";
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
			for (const [name, own] of modules.slice(0, COLOURS + 1)) {
				const colour = name === "[kernel]" ? "kernel" : colourOfModule.get(name);
				if (colour)
					chips.push(chip(colour, `${name || "no module"} ${percent(own, all)}`, () => {
						$("search").value = name;
						searched();
					}));
			}
			if (modules.length > chips.length)
				chips.push(chip("rest", counted(modules.length - chips.length, "module more", "modules more")));
		}
		if (guessed.size)
			chips.push(chip("guess", "≈ found by guess"));
		if (Object.keys(P.stops).length)
			chips.push(chip("stop", "⊘ stacks that end before their root, by reason"));
		legend.replaceChildren(...chips);
	}

	function introduce() {
		$("title").textContent = P.title;
		const parts = [];
		if (P.samples !== null && P.unit !== "count")
			parts.push(counted(P.samples, "sample", "samples"));
		parts.push(`${value(nowTotal[0])}${P.unit === "count" ? "" : ` of ${P.type}`}`);
		if (P.duration_ns > 0)
			parts.push(`in ${(P.duration_ns / 1e9).toFixed(2)} s`);
		if (P.time_ns > 0)
			parts.push(new Date(P.time_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC");
		if (diff)
			parts.push(`compared with ${P.against}: ${value(baseTotal[0])}`);
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
	introduce();
	if (diff) {
		compareBy("shares");
		widthsBy("both");
	}
	nameTheme();
	drawLegend();
	$("reset").disabled = true;
	draw();
	new ResizeObserver(() => {
		if (chartElement.clientWidth !== width && chartElement.clientWidth >= 200)
			draw();
	}).observe(chartElement);
	root.dataset.decoded = began.toFixed(1);
	root.dataset.ready = performance.now().toFixed(1);
})();
