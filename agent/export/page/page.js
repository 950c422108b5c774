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

	// What the user chose; it is stored in the page's address, see remember().  of: the function whose callers and
	// callees are shown, or -1.
	const chosen = { type: 0, callers: false, of: -1, below: false, group: null, filters: [], table: false };
	let type = P.types[0], keep = null;
	let whole = 0, baseWhole = 0; // the values of all samples that are shown, and of the base's

	// The weight of one unit in each profile, so that the two can be compared.
	let nowScale = 1, baseScale = 1;
	let weigh = (now, base) => now;

	// The panes that are shown: the main one, and above it that of callers while one function is looked at.
	let main, upper, panes;
	const nameOfFunction = f => Model.nameOfFrame(Model.frameOf(f)), moduleOfFunction = f => Model.moduleOfFrame(Model.frameOf(f));

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

	const STEPS = [0.1, 1, 5, 10]; // percent; at each of these changes the colour becomes one step stronger
	function compareBy(how) {
		nowScale = how === "shares" && whole ? 1 / whole : 1;
		baseScale = how === "shares" && baseWhole ? 1 / baseWhole : 1;
	}
	function widthsBy(which) {
		weigh = which === "now" ? now => now
			: which === "base" ? (now, base) => base
			: (now, base) => now * nowScale + base * baseScale;
	}
	// Return a change in percent: of each profile's own total when shares are compared, else of the larger total.
	function changed(now, base) {
		const all = Math.max(whole * nowScale, baseWhole * baseScale);
		return all ? (100 * (now * nowScale - base * baseScale)) / all : 0;
	}

	// ---- colours: one for each module, the heaviest first; see page.css ----------

	const COLOURS = 7;
	// Return for each module the value of the samples that end in it (self), and the sum of the totals of
	// its frames (through), of all that is shown.
	function weighModules() {
		const own = new Map(), { size: n, frame, depth, now, base, nowTotal, baseTotal } = main.view();
		for (let i = 1; i < n; i++) {
			const kind = Model.kindOfFrame(frame[i]);
			if (kind >= KIND.group || !(nowTotal[i] || (diff && baseTotal[i])))
				continue;
			const name = kind === KIND.kernel ? "[kernel]" : Model.moduleOfFrame(frame[i]);
			if (!own.has(name))
				own.set(name, { name, self: 0, through: 0 });
			const module = own.get(name);
			module.self += chosen.callers ? (depth[i] === 1 ? nowTotal[i] + (diff ? baseTotal[i] : 0) : 0) : now[i] + (diff ? base[i] : 0);
			module.through += nowTotal[i];
		}
		return [...own.values()].sort((a, b) => b.self - a.self || b.through - a.through || (a.name < b.name ? -1 : 1));
	}
	// Colours are assigned once, so that a module has the same colour in every view. "[cpython]" and other modules that are no
	// files come first: each is a kind of frames, and small ones are not to look like the rest.
	const colourOfModule = new Map();
	function assignColours() {
		const isKind = ({ name }) => /^\[.+\]$/.test(name), modules = weighModules();
		let next = 0;
		for (const { name } of [...modules.filter(isKind), ...modules.filter(m => !isKind(m))])
			if (name !== "[kernel]" && next < COLOURS)
				colourOfModule.set(name, `m${next++}`);
	}
	// ---- search ----------------------------------------------------------------

	let found = null; // by frame: 1 if it matches; null: there is no search, or nothing was found
	function search(term) {
		const say = text => { $("found").textContent = text; };
		const { size: n, frame, end, nowTotal, baseTotal } = main.view();
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

	// ---- the description of a frame --------------------------------------------------

	const tip = $("tip");
	function tell(element, facts, name) {
		const title = document.createElement("strong"), list = document.createElement("span");
		title.textContent = name;
		for (const [what, text] of facts) {
			const item = document.createElement("span"), heading = document.createElement("b");
			heading.textContent = what;
			item.append(heading, what ? " " : "", text);
			list.append(item);
		}
		element.replaceChildren(title, list);
	}
	function hideTip() {
		tip.hidden = true;
	}
	function tipAt(event, facts, name) {
		tell(tip, facts, name);
		tip.hidden = false;
		const room = document.documentElement.clientWidth, high = innerHeight;
		tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, room - tip.offsetWidth - 4))}px`;
		const below = event.clientY + 18;
		tip.style.top = `${below + tip.offsetHeight > high ? Math.max(4, event.clientY - tip.offsetHeight - 12) : below}px`;
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

	// ---- a pane: one tree, drawn by d3-flame-graph -----------------------------------

	// The function whose frames and row are highlighted, or -1; the pane that the focus was in last.
	let linked = -1, inFocus = null;
	function link(f) {
		if (f === linked)
			return;
		linked = f;
		for (const one of panes)
			one.showLinked();
		linkRows();
	}

	// upward: it shows the callers of a function, which is at its bottom.
	function makePane(chartElement, upward) {
		const chart = flamegraph.default();
		let zoomed = 0, focused = 0, drawn = new Map(), width = 0, narrow = 0; // narrow: frames that are not drawn
		let tree, parent, end, depth, frame, n, now, base, nowTotal, baseTotal, guessed, anyGuessed; // parts of the view
		const nameOf = i => Model.nameOfFrame(frame[i]);
		const moduleOf = i => Model.moduleOfFrame(frame[i]);
		const kindOf = i => Model.kindOfFrame(frame[i]);
		const functionAt = i => Model.functionOf[frame[i]];
		const isInlined = i => (P.frames[frame[i] * 5 + 4] & INLINED) !== 0;
		const placeOf = i => {
			const file = P.strings[P.frames[frame[i] * 5 + 2]], line = P.frames[frame[i] * 5 + 3];
			return file && line ? `${file}:${line}` : file;
		};
		const weight = i => weigh(nowTotal[i], diff ? baseTotal[i] : 0);
		const change = i => changed(nowTotal[i], baseTotal[i]);
		function changeClass(i) {
			const c = change(i), size = Math.abs(c);
			let step = 0;
			while (step < STEPS.length && size >= STEPS[step])
				step++;
			return step ? `${c > 0 ? "more" : "less"}${step}` : "same";
		}

		// Compute the view from what the user chose.
		function look() {
			tree = Model.view(type, upward || chosen.callers, keep, chosen.of);
			({ parent, end, depth, frame, size: n, now, base, nowTotal, baseTotal, guessed, anyGuessed } = tree);
			zoomed = focused = 0;
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
		// Neighbours of one module differ a little in shade; a function always has the same shade.
		function shadeOf(i) {
			let hash = 0;
			const name = nameOf(i);
			for (let k = 0; k < name.length; k++)
				hash = (hash * 31 + name.charCodeAt(k)) | 0;
			return (hash >>> 3) % 3;
		}


		function labelOf(i) {
			const short = Model.shortOfFrame(frame[i]);
			const name = kindOf(i) === KIND.stop ? `⊘ ${short}` : guessed[i] > 0 ? `≈ ${short}` : short;
			return diff && i ? `${signed(change(i))} ${name}` : name; // the number comes first, because long names are cut off
		}

		// Return the frames to draw: those from the root to the zoomed node, then all in its subtree that are wide
		// enough.
		function visible() {
			const least = (NARROWEST * weight(zoomed)) / width;
			narrow = 0;
			const item = i => ({ node: i, name: labelOf(i), value: weight(i), children: [] });
			const top = item(zoomed), todo = [top];
			for (let at; (at = todo.pop()); ) {
				const last = end[at.node];
				for (let j = at.node + 1; j < last; j = end[j]) {
					if (!(weight(j) > 0))
						continue;
					if (weight(j) < least) {
						narrow += end[j] - j;
						continue;
					}
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
				mark(g, "aria-label", `${labelOf(i)}, ${percent(nowTotal[i], whole)}`);
				g.toggleAttribute("data-guess", guessed[i] > 0);
				g.toggleAttribute("data-narrow", g.getAttribute("width") < LABELLED);
				g.toggleAttribute("data-inlined", isInlined(i));
				g.toggleAttribute("data-found", found !== null && found[frame[i]] === 1);
				g.toggleAttribute("data-linked", linked >= 0 && Model.functionOf[frame[i]] === linked);
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
			if (!upward)
				$("narrow").textContent = narrow ? `${counted(narrow, "frame is", "frames are")} narrower than a pixel here, and not drawn: enlarge a frame, search, or see the table.` : "";
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
			inFocus = pane;
			tell($("detail-text"), facts(i), nameOf(i));
			for (const id of ["around", "mark"])
				$(id).disabled = functionAt(i) < 0;
		}

		function zoom(i) {
			zoomed = i;
			focused = i;
			sameStep = false;
			hideTip();
			draw();
			if (pane === main)
				$("reset").disabled = i === 0;
			drawn.get(i)?.scrollIntoView({ block: "nearest" });
		}

		// Return what is known about frame i as pairs of a heading and a text.
		function facts(i) {
			const rows = [], kind = kindOf(i);
			const self = now[i], total = nowTotal[i];
			if (kind === KIND.stop)
				rows.push(["", P.stops[nameOf(i)] || "The stack ends here, before its root."]);
			const where = [moduleOf(i), placeOf(i), isInlined(i) ? "inlined" : ""].filter(Boolean).join(" · ");
			if (where)
				rows.push(["", where]);
			rows.push([chosen.of >= 0 && i ? (upward ? "calls this way" : "called this way") : !chosen.callers || !i ? "total" : depth[i] === 1 ? "self" : "calls this way", `${value(total)}, ${percent(total, whole)}${zoomed && i >= zoomed && i < end[zoomed] ? ` (${percent(total, nowTotal[zoomed])} of what is shown)` : ""}`]);
			if (kind < KIND.group && !chosen.callers && !upward)
				rows.push(["self", `${value(self)}, ${percent(self, whole)}`]);
			if (diff) {
				rows.push(["base", `total ${value(baseTotal[i])}, ${percent(baseTotal[i], baseWhole)}${chosen.callers || upward ? "" : `; self ${value(base[i])}`}`]);
				rows.push(["change", signed(change(i)) + (nowScale === 1 ? ` (${value(total - baseTotal[i])})` : " of the whole")]);
			}
			if (guessed[i] > 0)
				rows.push(["≈ guessed", `in ${percent(guessed[i], 1)} of its samples no unwind information led here`]);
			return rows;
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
				tipAt(event, facts(i), nameOf(i));
			else
				hideTip();
			link(i >= 0 ? Model.functionOf[frame[i]] : -1);
		});
		chartElement.addEventListener("mouseleave", () => {
			hideTip();
			link(-1);
		});
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
				if (drawn.has(j) && (best < 0 || weight(j) > weight(best)))
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

		function widest(isWanted) {
			let best = -1;
			for (let i = 1; i < n; i++)
				if (isWanted(i) && (best < 0 || weight(i) > weight(best)))
					best = i;
			return best;
		}
		const widestFound = () => (found ? widest(i => found[frame[i]]) : -1), widestOf = f => widest(i => functionAt(i) === f);
		function showLinked() {
			for (const [i, g] of drawn)
				g.toggleAttribute("data-linked", linked >= 0 && functionAt(i) === linked);
		}

		chart.cellHeight(ROW)
			.transitionDuration(0)
			.inverted(!upward)
			.resetHeightOnZoom(true)
			.setColorMapper(() => "currentColor") // by class, see decorate
			.getName(d => d.data.name)
			.tooltip(Object.assign(() => {}, { show() {}, hide() {} })); // tipAt shows our own tooltip
		new ResizeObserver(() => {
			if (tree && chartElement.clientWidth !== width && chartElement.clientWidth >= 200)
				draw();
		}).observe(chartElement);

		const pane = { element: chartElement, chart, look, draw, decorate, zoom, setFocus, widestFound, widestOf, showLinked,
			view: () => tree, zoomed: () => zoomed, focused: () => focused, name: () => nameOf(focused), function: () => functionAt(focused),
			isDrawn: i => drawn.has(i), weight, showZoomed: () => drawn.get(zoomed)?.scrollIntoView({ block: "nearest" }) };
		return pane;
	}

	// ---- keys of the page ---------------------------------------------------------------

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
			const held = typing || main.element.contains(document.activeElement);
			main.zoom(0);
			if (held)
				main.setFocus(0, true);
		} else if (event.key === "Enter" && typing && main.widestFound() >= 0) {
			const i = main.widestFound();
			if (!main.isDrawn(i))
				main.zoom(i);
			main.setFocus(i, true);
		}
	});

	// ---- tools -------------------------------------------------------------------------

	function searched() {
		search($("search").value);
		for (const one of panes) {
			one.decorate();
			one.setFocus(one.focused(), false);
		}
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
	function refresh(place = "") {
		look();
		introduce();
		drawLegend();
		drawFilters();
		search($("search").value);
		$("functions").hidden = !chosen.table; // or the graph would be drawn twice, as the table leaves it less room
		for (const one of panes) {
			const at = one === main && place ? Model.nodeAt(one.view(), place) : 0;
			one.zoom(one.weight(at) > 0 ? at : 0);
		}
		drawTable();
	}
	// Compute what is shown.
	function look() {
		const { of } = chosen;
		type = P.types[chosen.type];
		keep = Model.selected(chosen.group, chosen.filters);
		panes = of < 0 ? [main] : [upper, main];
		upper.element.hidden = of < 0;
		if (of < 0)
			upper.element.replaceChildren();
		for (const id of ["callers", "flip"])
			$(id).disabled = of >= 0;
		main.chart.inverted(of >= 0 || !chosen.below);
		for (const one of panes)
			one.look();
		const all = of < 0 ? main.view() : Model.view(type, false, keep);
		whole = all.nowTotal[0];
		baseWhole = diff ? all.baseTotal[0] : 0;
		if (diff) {
			compareBy($("scale").value);
			widthsBy($("basis").value);
		}
	}
	// Show the callers and the callees of a function; -1: all samples.
	function showAround(f) {
		chosen.of = f;
		sameStep = false;
		refresh();
		if (f >= 0)
			main.setFocus(0, true);
	}
	function filter(without) {
		chosen.filters.push({ term: $("search").value, without });
		sameStep = false;
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
				sameStep = false;
				refresh();
			});
			return element;
		}));
		if (chosen.of >= 0) {
			const element = document.createElement("button");
			element.type = "button";
			element.title = "Show all functions again";
			element.textContent = `callers and callees of ${nameOfFunction(chosen.of)} ✕`;
			element.addEventListener("click", () => showAround(-1));
			$("filters").append(element);
		}
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
		refresh(Model.placeOf(main.view(), main.zoomed()));
	});
	offer("group", ["all", ...Model.groups.map(one => one.name)], 3);
	$("group").addEventListener("change", () => {
		chosen.group = Model.groups[$("group").value - 1] || null;
		sameStep = false;
		refresh();
	});
	function pressed(id, on) {
		$(id).setAttribute("aria-pressed", on);
	}
	$("callers").addEventListener("click", () => {
		chosen.callers = !chosen.callers;
		pressed("callers", chosen.callers);
		sameStep = false;
		refresh();
	});
	$("search").addEventListener("input", searched);
	$("reset").addEventListener("click", () => main.zoom(0));
	$("flip").addEventListener("click", () => {
		chosen.below = !chosen.below;
		pressed("flip", chosen.below);
		main.chart.inverted(!chosen.below);
		main.draw();
		main.showZoomed();
	});
	$("basis").addEventListener("change", () => {
		widthsBy($("basis").value);
		for (const one of panes)
			one.zoom(one.weight(one.zoomed()) > 0 ? one.zoomed() : 0);
	});
	$("scale").addEventListener("change", () => {
		compareBy($("scale").value);
		for (const one of panes)
			one.draw();
		drawLegend();
		drawTable();
	});
	$("around").addEventListener("click", () => showAround(inFocus.function()));
	$("mark").addEventListener("click", () => tellParent("mark", { name: inFocus.name() }));
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
		const legend = $("legend"), all = whole + baseWhole;
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
		if (main.view().anyGuessed)
			chips.push(chip("guess", "≈ found by guess"));
		if (Object.keys(P.stops).length)
			chips.push(chip("stop", "⊘ stacks that end before their root, by reason"));
		legend.replaceChildren(...chips);
	}

	// ---- the table -----------------------------------------------------------------

	const ROWS = 500; // rows that are shown at once
	const COLUMNS = [
		...(diff ? [["change", "Change", row => changed(row.total, row.baseTotal)]] : []),
		["self", "Self", row => row.self],
		["total", "Total", row => row.total],
		["name", "Function", row => Model.nameOfFrame(row.frame)],
	];
	let order = { column: "self", rising: false };

	function compareRows(a, b) {
		const [, , key] = COLUMNS.find(([id]) => id === order.column);
		const x = key(a), y = key(b), sign = order.rising ? 1 : -1;
		return x < y ? -sign : x > y ? sign : b.total - a.total || a.frame - b.frame;
	}
	const rowOf = new Map(); // by function: its row of the table
	function linkRows() {
		for (const [f, row] of rowOf)
			row.toggleAttribute("data-linked", f === linked);
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
				remember();
			});
			element.append(button);
			return element;
		}));
		rowOf.clear();
		$("table-rows").replaceChildren(...rows.slice(0, ROWS).map(row => {
			const element = document.createElement("tr"), name = Model.nameOfFrame(row.frame);
			if (diff)
				cell(element, signed(COLUMNS[0][2](row)), "number");
			for (const part of [row.self, row.total])
				cell(element, `${value(part)} ${percent(part, whole)}`, "number");
			const button = document.createElement("button"), where = document.createElement("span");
			button.type = "button";
			button.title = name;
			button.textContent = Model.shortOfFrame(row.frame);
			button.addEventListener("click", () => searchFor(`"${name}"`));
			where.textContent = Model.moduleOfFrame(row.frame);
			const around = document.createElement("button");
			around.type = "button";
			around.title = "Callers and callees";
			around.setAttribute("aria-label", `Callers and callees of ${name}`);
			around.className = "around";
			around.addEventListener("click", () => showAround(row.function));
			const enlarge = document.createElement("button");
			enlarge.type = "button";
			enlarge.title = "Enlarge its widest frame";
			enlarge.setAttribute("aria-label", `Enlarge the widest frame of ${name}`);
			enlarge.className = "around enlarge";
			enlarge.addEventListener("click", () => {
				const i = main.widestOf(row.function);
				if (i < 0)
					return; // it only calls the function around which the graph is
				main.zoom(i);
				main.setFocus(i, false);
			});
			cell(element, "", "name").append(around, enlarge, button, " ", where);
			for (const one of [around, enlarge, button])
				one.tabIndex = -1;
			rowOf.set(row.function, element);
			for (const enters of ["mouseenter", "focusin"])
				element.addEventListener(enters, () => link(row.function));
			for (const leaves of ["mouseleave", "focusout"])
				element.addEventListener(leaves, () => link(-1));
			return element;
		}));
		const first = $("table-rows").querySelector("button:not(.around)");
		if (first)
			first.tabIndex = 0;
		$("table-more").textContent = rows.length > ROWS ? `${counted(rows.length - ROWS, "function", "functions")} more: search for them` : counted(rows.length, "function", "functions");
	}
	// Tab leads to one button of the table, or the graph would be a thousand keys away; arrows lead to the others.
	$("table-rows").addEventListener("keydown", event => {
		const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] || [0, 0];
		const rows = [...$("table-rows").children], buttonsOf = row => [...row?.querySelectorAll("button") || []], row = event.target.closest("tr");
		const to = buttonsOf(rows[rows.indexOf(row) + down])[buttonsOf(row).indexOf(event.target) + right];
		if (!to || to === event.target)
			return;
		event.preventDefault();
		for (const one of $("table-rows").querySelectorAll("[tabindex='0']"))
			one.tabIndex = -1;
		to.tabIndex = 0;
		to.focus();
	});
	$("table").addEventListener("click", () => {
		chosen.table = !chosen.table;
		pressed("table", chosen.table);
		drawTable();
		for (const one of panes)
			one.draw();
	});

	// ---- links and the clipboard -----------------------------------------------------

	// The daemon's page shows this page in a frame. It asks for that with "embed" in the address, and hears of changes.
	const embedded = parent !== window && new URLSearchParams(location.hash.slice(1)).has("embed");
	function tellParent(about, what) {
		if (embedded)
			parent.postMessage({ about, ...what }, location.origin);
	}

	// Store the view in the page's address, which becomes a link to this view.  sameStep is false if the user's
	// last action is a step that the browser's back button should undo.
	let sameStep = true, remembered = "", recalling = false;
	function remember() {
		const q = new URLSearchParams();
		if (recalling)
			return;
		if (chosen.type)
			q.set("type", type.type);
		if (chosen.callers)
			q.set("callers", "");
		if (chosen.of >= 0) {
			q.set("of", nameOfFunction(chosen.of));
			q.set("in", moduleOfFunction(chosen.of));
		}
		if (chosen.below)
			q.set("below", "");
		if (chosen.table)
			q.set("table", "");
		if (order.column !== "self" || order.rising)
			q.set("order", `${order.rising ? "-" : ""}${order.column}`);
		for (const id of ["basis", "scale"])
			if ($(id).value !== $(id).options[0].value)
				q.set(id, $(id).value);
		if (chosen.group)
			q.set("group", chosen.group.name);
		for (const { term, without } of chosen.filters)
			q.append(without ? "without" : "only", term);
		if ($("search").value)
			q.set("search", $("search").value);
		if (main.zoomed())
			q.set("zoom", Model.placeOf(main.view(), main.zoomed()));
		if (String(q) !== remembered)
			tellParent("state", { graph: String(q), sameStep });
		remembered = String(q);
		sameStep = true;
		if (embedded)
			q.set("embed", "");
		try {
			history.replaceState(null, "", q.size ? `#${q}` : "#");
		} catch (error) {
			// The browser does not let this page change its address: there is no link.
		}
	}
	// Show the view that the page's address describes.
	function recall() {
		const q = new URLSearchParams(location.hash.slice(1)), group = q.get("group");
		const [, rising, column] = /^(-?)(\w+)$/.exec(q.get("order")) || [];
		recalling = true;
		chosen.type = Math.max(0, P.types.findIndex(one => one.type === q.get("type")));
		chosen.callers = q.has("callers");
		chosen.of = q.has("of") ? Model.findFunction(q.get("of"), q.get("in") || "") : -1;
		chosen.below = q.has("below");
		chosen.table = q.has("table");
		order = COLUMNS.some(([id]) => id === column) ? { column, rising: rising === "-" } : { column: "self", rising: false };
		for (const id of ["basis", "scale"])
			$(id).value = [...$(id).options].some(one => one.value === q.get(id)) ? q.get(id) : $(id).options[0].value;
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
		pressed("flip", chosen.below);
		pressed("table", chosen.table);
		refresh(q.get("zoom") || "");
		recalling = false;
		sameStep = true;
		remember();
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
	$("copy-name").addEventListener("click", event => copy(event.target, inFocus.name(), $("detail-text").querySelector("strong")));
	$("copy-link").addEventListener("click", event => copy(event.target, location.href, $("detail-text")));

	// Write the title and the summary line above the graph.
	function introduce() {
		$("title").textContent = P.title;
		const parts = [];
		if (type.samples !== null && type.unit !== "count" && !keep && chosen.of < 0)
			parts.push(counted(type.samples, "sample", "samples"));
		parts.push(`${value(main.view().nowTotal[0])}${type.unit === "count" ? "" : ` of ${type.type}`}`);
		if (keep || chosen.of >= 0)
			parts.push(`${percent(main.view().nowTotal[0], type.now.reduce((sum, part) => sum + part, 0))} of the profile`);
		if (P.duration_ns > 0)
			parts.push(`in ${(P.duration_ns / 1e9).toFixed(2)} s`);
		if (P.time_ns > 0)
			parts.push(new Date(P.time_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC");
		if (diff)
			parts.push(`compared with ${P.against}: ${value(main.view().baseTotal[0])}`);
		if (panes.some(one => one.view().cut))
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

	main = makePane($("chart"), false);
	upper = makePane($("chart-callers"), true);
	panes = [main];
	inFocus = main;
	root.toggleAttribute("data-embedded", embedded);
	look();
	assignColours();
	nameTheme();
	recall();
	addEventListener("scroll", hideTip, { passive: true });
	new ResizeObserver(() => tellParent("height", { height: Math.ceil(document.body.getBoundingClientRect().height) })).observe(document.body);
	root.dataset.decoded = began.toFixed(1);
	root.dataset.ready = performance.now().toFixed(1);
	tellParent("ready", { types: P.types.map(one => one.type), unwound: embedded ? Model.unwound() : null });
})();
