// agent/http/page/page.js: shows what the state says: asks the daemon for what changed, and handles the controls.
"use strict";
(() => {
	const { element, button } = Show;
	const { load } = Daemon;
	const PRESETS = [...State.FLEET ? [] : [[300, "5 min"], [900, "15 min"]], [3600, "1 h"], [21600, "6 h"], [86400, "1 d"], [604800, "7 d"], ...State.FLEET ? [[2592000, "30 d"]] : []];
	const LIVE_S = 5; // how often a live page asks again, at least
	const LONG_S = 7200, PARTS = 2000; // of a time as long as this, the graph first comes without what has less than one of so many parts
	const DRAWN_MS = 100; // so long a browser may take to draw a graph that is there, before the daemon and it have more to do
	const RETRY_S = 3; // how often the page asks again when the daemon did not answer
	const root = document.documentElement;

	// ---- problems ------------------------------------------------------------------------

	const problems = new Map();
	const unanswered = new Set(); // what the daemon did not answer, or has nothing of yet: it is asked again
	function problem(about, text) {
		if (text)
			problems.set(about, text);
		else
			problems.delete(about);
		const texts = [...new Set(problems.values())];
		$("problem").hidden = !texts.length;
		$("problem").textContent = texts.join(" ");
	}
	// The daemon's sentences begin small and have no full stop.
	const sentence = text => (text === "the history is empty" ? "Nothing is recorded yet: a daemon that has just started needs some seconds." : `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.?$/, ".")}`);
	// Run an asynchronous function, and show what goes wrong.
	async function attempt(about, fn) {
		try {
			await fn();
			unanswered.delete(about);
			problem(about, "");
		} catch (error) {
			asked.delete(about);
			if (about === "panel" || about === "graph")
				Show.failed($(about === "panel" ? State.get().view : "graph"));
			if (!error.isRefused || error.status === 404 || error.status === 503)
				unanswered.add(about);
			problem(about, error.isRefused ? sentence(error.message) : "The daemon does not answer. The page asks again every few seconds.");
		}
	}

	// ---- the charts ------------------------------------------------------------------------

	// What was asked for last, by name: the same is not asked for again.
	const asked = new Map();
	const isNew = (name, key) => asked.get(name) !== key && asked.set(name, key);
	const aligned = ([from, to], step) => [Math.floor(from / step + 1e-6) * step, Math.ceil(to / step - 1e-6) * step];
	// Return a regular expression for exactly this name, as POSIX has it.
	const exactly = name => `^${name.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&")}$`;

	function drawCharts() {
		const s = State.get(), shown = State.shown(), step = Charts.stepFor(shown), column = Charts.columnFor(shown);
		const time = State.query(aligned(shown, step), { step: step * 1000 });
		Charts.setView(shown);
		const all = new URLSearchParams(time);
		all.set("by", s.by);
		const marked = new URLSearchParams(time);
		if (s.mark)
			marked.set("focus", exactly(s.mark));
		if (isNew("timeline", `${all}&${s.mark}`))
			attempt("timeline", async () => {
				const [data, mark] = await Promise.all([load("timeline", "/api/v1/timeline", all),
					s.mark ? load("mark", "/api/v1/timeline", marked) : null]);
				Charts.setTimeline(data, mark);
				drawLegend(data, mark);
				shownType = data.type;
				drawTypes();
				if (!types.length)
					loadChoices();
				if (data.series.length)
					problem("ready", "");
				root.dataset.timeline = all;
			}).then(drawBelow);
		// Of a fleet, the parts of a column are its slots of time, which it has itself.
		const heat = State.query(aligned(shown, column), { step: column * 1000, ...State.FLEET ? {} : { rows: Charts.rowsFor(column) } });
		if (isNew("heatmap", String(heat)))
			attempt("heatmap", async () => {
				Charts.setHeat(await load("heatmap", "/api/v1/heatmap", heat));
				root.dataset.heatmap = heat;
				if (heat.has("rows") && Charts.rowsFor(column) !== +heat.get("rows"))
					drawCharts();
			}).then(drawBelow);
	}
	const sumOf = one => one.values.reduce((a, b) => a + b, 0);
	const nameOf = value => value || "(none)";
	function drawLegend(data, mark) {
		const s = State.get(), all = data.series.reduce((sum, one) => sum + sumOf(one), 0);
		const entry = (colour, text) => [element("i", { "data-colour": colour }), text];
		const chips = data.series.map(one => {
			const share = `${Show.percent(sumOf(one), all)}`, title = `${Show.value(sumOf(one), data)} of ${data.type}`;
			if (one.value === null)
				return element("span", { title }, ...entry("rest", `all others ${share}`));
			if (!s.by)
				return element("span", { title }, ...entry(Charts.colourOf(one.value), "all"));
			return element("button", { type: "button", "aria-pressed": State.hasLabel(s.by, one.value), title: `${title}. Choose it to see only this; again to see all.`,
				onclick: () => toggle(s.by, one.value) }, ...entry(Charts.colourOf(one.value), `${nameOf(one.value)} ${share}`));
		});
		if (mark)
			chips.push(element("button", { type: "button", title: "Take it away", onclick: () => State.change({ mark: "" }) },
				...entry("mark", `${s.mark}: ${Show.percent(mark.series.reduce((sum, one) => sum + sumOf(one), 0), all)} ✕`)));
		if (!data.series.length)
			chips.push(...s.labels.length ? [element("span", {}, "No sample of this time passes the filters."), button("All samples", () => State.change({ labels: [] }))]
				: [element("span", {}, "No sample was recorded in this time.")]);
		$("legend").replaceChildren(...chips);
	}
	function toggle(key, value) {
		const { labels } = State.get();
		State.change({ labels: State.hasLabel(key, value) ? labels.filter(([k, v]) => k !== key || v !== value) : [...labels.filter(([k]) => k !== key), [key, value]] });
	}

	// ---- the flame graph: the page of offwind flamegraph, in a frame -----------------------

	let frame = null, coming = null; // elements; coming: until the new one is drawn
	let unwound = null; // what the frame says of its profile
	// Whether the graph first comes without its smallest stacks. The daemon does not take out of what is chosen by labels or compared.
	function isCut(s) {
		const [from, to] = State.selected();
		return !State.FLEET && to - from >= LONG_S && !(s.labels.length || s.base || s.hide);
	}
	const hashOf = s => `embed=&${s.graph === null ? (innerWidth >= 900 ? "table=" : "") : s.graph}`;

	function drawGraph() {
		const s = State.get(), q = State.stackQuery();
		if (s.view !== "graph" && (s.view !== "complete" || State.FLEET))
			return;
		const other = s.base && !s.base.ago && String(s.base.labels) !== String(s.labels);
		if (!other)
			q.set("by", s.by); // else no process of the one would meet its like in the other
		q.set("title", "offwind");
		for (const [key, value] of State.baseQuery())
			q.set(key, value);
		const url = `/api/v1/flamegraph?${q}`;
		if (asked.get("graph") === url) {
			const shown = coming || frame, want = hashOf(s);
			if (shown && shown.dataset.hash !== want) {
				shown.dataset.hash = want;
				shown.contentWindow.location.replace(`${shown.dataset.page}#${want}`);
			}
			return;
		}
		// A graph that somebody looks at closely is not replaced as time goes by.
		if (asked.has("graph") && isLookedAt(frame, "graph why"))
			return;
		$("graph").setAttribute("aria-busy", asked.get("graph why") !== why(s));
		asked.set("graph", url);
		asked.set("graph why", why(s));
		coming?.remove();
		coming = null;
		attempt("graph", async () => {
			let some = false; // of what is asked for is shown
			try {
				if (isCut(s)) {
					await arrive(await load("graph", "/api/v1/flamegraph", `${q}&cut=${PARTS}`), url);
					some = true;
					if (asked.get("graph") !== url)
						return;
				}
				arrive(await load("graph", "/api/v1/flamegraph", q), url);
			} catch (error) {
				if (error.isRefused && !some) // what is shown is not what is asked for
					frame = frame?.remove();
				throw error;
			}
		});
	}
	// Show a page in a frame, behind the one that is there until it is drawn. Its address is one of this page's own, because a
	// frame's request would have no token. Return a promise of when it is there; never, if another page comes before it.
	function arrive(page, url) {
		const address = URL.createObjectURL(page), hash = hashOf(State.get());
		coming?.remove();
		coming = element("iframe", { src: `${address}#${hash}`, title: "Flame graph and table of functions", class: "coming", "data-hash": hash, "data-page": address, "data-url": url });
		const there = new Promise(done => coming.addEventListener("load", () => {
			URL.revokeObjectURL(address);
			setTimeout(done, DRAWN_MS);
		}));
		$("graph").append(coming);
		return there;
	}
	// What the part below the charts shows, apart from how time goes by.
	const why = s => State.format({ ...s, graph: null, view: "", mark: "" });
	const isLookedAt = (e, about) => State.get().last > 0 && asked.get(about) === why(State.get()) && e?.matches(":hover, :focus, :focus-within");

	function fit(which, height) {
		which.style.height = `${Math.round(Math.min(Math.max(320, height), Math.max(360, innerHeight - 24)))}px`;
	}
	addEventListener("message", event => {
		const which = [coming, frame].find(one => one && event.source === one.contentWindow), said = event.data;
		if (!which || event.origin !== location.origin)
			return;
		if (said.about === "ready" && which === coming) {
			frame?.remove();
			frame = coming;
			coming = null;
			frame.classList.remove("coming");
			$("graph").setAttribute("aria-busy", "false");
			$("graph").dataset.ready = frame.dataset.url;
			({ unwound } = said);
			followTheme();
			panel();
		} else if (said.about === "height") {
			fit(which, said.height);
		} else if (said.about === "state" && which === frame) {
			frame.dataset.hash = `embed=&${said.graph}`;
			if (said.graph !== State.get().graph)
				State.change({ graph: said.graph }, said.sameStep);
		} else if (said.about === "mark") {
			State.change({ mark: said.name });
			$("timeline").scrollIntoView({ block: "nearest" });
		}
	});
	// ---- controls --------------------------------------------------------------------------

	let keys = State.FLEET ? ["host", "comm"] : ["comm", "thread", "pid"], types = [], shownType = ""; // labels and types of samples that there are; the one that is shown
	// Ask which there are; without an answer there is less to choose from.
	function loadChoices() {
		load("keys", "/api/v1/labels").then(reply => {
			({ keys, types } = reply);
			drawTypes();
			drawControls();
			panel();
		}, () => {});
	}
	function drawTypes() {
		$("type-choice").hidden = types.length < 2;
		if (types.length !== $("type").options.length)
			$("type").replaceChildren(...types.map(name => element("option", { value: name }, name)));
		$("type").value = State.get().type || shownType;
	}

	const preset = (seconds, s) => (s.last ? s.last === seconds : Math.abs(s.to - s.from - seconds) < 1);
	$("presets").append(...PRESETS.map(([seconds, text]) => button(text, () => {
		const now = State.now();
		State.change(State.get().last ? { last: seconds, select: null } : { from: now - seconds, to: now, select: null });
	}, { "data-last": seconds, "aria-label": `the last ${text}` })));
	$("live").addEventListener("click", () => {
		const s = State.get(), [from, to] = State.shown();
		State.change(s.last ? { last: 0, from, to } : { last: Math.round(to - from), select: null });
	});
	$("by").addEventListener("change", () => State.change({ by: $("by").value }));
	$("type").addEventListener("change", () => State.change({ type: $("type").value }));

	// Show another time; it does not follow the clock then.
	function show([from, to], select = null) {
		const middle = (from + to) / 2, half = Math.max(2.5, (to - from) / 2);
		State.change({ last: 0, from: middle - half, to: middle + half, select });
	}
	function zoom(closer) {
		const { select } = State.get(), [from, to] = State.shown(), part = (to - from) / 2;
		if (!closer)
			show([from - part, to + part], select);
		else if (select)
			show(select, select[1] - select[0] < 5 ? select : null);
		else
			show([from + part / 2, to - part / 2]);
	}
	function move(sign) {
		const [from, to] = State.shown(), by = (sign * (to - from)) / 2;
		show([from + by, to + by]);
	}
	Charts.onSelect({
		zoom,
		select: (range, sameStep) => {
			const [from, to] = State.shown();
			if (range || State.get().select)
				State.change(range ? { select: range, last: 0, from, to } : { select: null }, sameStep);
			else
				Charts.drawOver();
		},
	});
	$("zoom-in").addEventListener("click", () => zoom(true));
	$("zoom-out").addEventListener("click", () => zoom(false));
	$("earlier").addEventListener("click", () => move(-1));
	$("later").addEventListener("click", () => move(1));
	$("clear").addEventListener("click", () => State.change({ select: null }));

	$("pprof").addEventListener("click", () => attempt("download", () => Daemon.download("offwind.pb.gz", "/api/v1/profile", State.stackQuery())));

	const COMPARE = [["", "nothing"], ["before", "the time before"], ["3600", "1 h before"], ["86400", "1 d before"], ["604800", "7 d before"]];
	function drawCompare() {
		const { base } = State.get(), options = [...COMPARE];
		if (base && !base.ago)
			options.push(["frozen", [`${Show.range([base.from, base.to])}`, ...base.labels.map(([k, v]) => `${k}=${v}`)].join(", ")]);
		const value = !base ? "" : base.ago ? String(base.ago) : "frozen";
		if (!options.some(([v]) => v === value))
			options.push([value, `${Show.length(base.ago)} before`]);
		$("compare").replaceChildren(...options.map(([v, text]) => element("option", { value: v }, text)));
		$("compare").value = value;
	}
	$("compare").addEventListener("change", () => {
		const value = $("compare").value;
		if (value !== "frozen")
			State.change({ base: value ? { ago: value === "before" ? value : +value } : null });
	});
	$("as-base").addEventListener("click", () => {
		const [from, to] = State.selected(), s = State.get();
		State.change({ base: { from, to, labels: s.labels } });
	});

	$("hide").addEventListener("change", () => State.change({ hide: $("hide").checked ? "interpreters" : "" }));

	function drawControls() {
		const s = State.get(), selected = State.selected(), base = State.base();
		for (const one of $("presets").children)
			one.setAttribute("aria-pressed", preset(+one.dataset.last, s));
		$("live").setAttribute("aria-pressed", s.last > 0);
		const by = [...State.FLEET ? [""] : [], ...Show.inOrder([...new Set([...keys, "stop", s.by])].filter(Boolean))];
		if (String(by) !== String([...$("by").options].map(one => one.value)))
			$("by").replaceChildren(...by.map(value => element("option", { value }, value ? Show.labelName(value) : "nothing")));
		$("by").value = s.by;
		$("filters").replaceChildren(...s.labels.map(([key, value]) =>
			button(`${key}=${value} ✕`, () => toggle(key, value), { title: "Take this filter away" })));
		$("range").textContent = `${s.select ? "" : s.last ? "Last " : ""}${s.last && !s.select ? Show.length(s.last) : `${Show.range(selected)} (${Show.length(selected[1] - selected[0])})`}`;
		$("clear").disabled = !s.select;
		$("hide").checked = s.hide !== "";
		drawCompare();
		$("compare").title = base ? `Compared with ${Show.range([base.from, base.to])}` : "Draws one normalised difference of two times, or of two filters";
		$("pprof").title = `For go tool pprof and other programs: ${$("range").textContent}${s.labels.length ? ", with the filters" : ""}`;
		for (const tab of document.querySelectorAll("[role=tab]")) {
			const on = tab.id === `tab-${s.view}`;
			tab.setAttribute("aria-selected", on);
			tab.tabIndex = on ? 0 : -1;
			$(tab.getAttribute("aria-controls")).hidden = !on;
		}
	}
	for (const view of State.FLEET ? ["samples", "threads", "unwind"] : []) {
		$(`tab-${view}`).remove();
		$(view).remove();
	}
	const tabs = [...document.querySelectorAll("[role=tab]")];
	tabs.forEach((tab, k) => {
		tab.addEventListener("click", () => State.change({ view: tab.getAttribute("aria-controls") }));
		tab.addEventListener("keydown", event => {
			const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
			if (!by)
				return;
			event.preventDefault();
			const to = tabs[(k + by + tabs.length) % tabs.length];
			to.focus();
			to.click();
		});
	});

	const darkAsked = matchMedia("(prefers-color-scheme: dark)");
	const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkAsked.matches);
	function followTheme() {
		$("theme").textContent = isDark() ? "Light" : "Dark";
		$("theme").setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
		if (frame?.contentDocument && root.dataset.theme)
			frame.contentDocument.documentElement.dataset.theme = root.dataset.theme;
		Charts.redraw();
	}
	$("theme").addEventListener("click", () => {
		root.dataset.theme = isDark() ? "light" : "dark";
		followTheme();
	});
	darkAsked.addEventListener("change", followTheme);

	addEventListener("keydown", event => {
		const typing = event.target.closest?.("input, select, textarea");
		if (event.key !== "/" || typing || event.ctrlKey || event.altKey || event.metaKey)
			return;
		event.preventDefault();
		if (State.get().view !== "graph")
			State.change({ view: "graph" });
		frame?.contentWindow.focus();
		frame?.contentDocument.getElementById("search").focus();
	});

	// ---- everything ------------------------------------------------------------------------

	const PANELS = { ...Samples, ...Panels, ...Tables };
	function panel() {
		const s = State.get(), to = $(s.view);
		if (!PANELS[s.view])
			problem("panel", "");
		if (!PANELS[s.view] || (to.dataset.ready && isLookedAt(to, `${s.view} why`)))
			return;
		asked.set(`${s.view} why`, why(s));
		attempt("panel", () => PANELS[s.view](to, { unwound, toggle, types, keys: Show.inOrder(keys), focus: s.mark && exactly(s.mark) }));
	}
	// What is below the charts comes after them: they are what is seen first, and the list of samples begins where
	// the timeline does.
	function drawBelow() {
		const to = $(State.get().view);
		if (Daemon.isBusy("timeline", "heatmap")) {
			if (!to.firstChild)
				to.setAttribute("aria-busy", "true");
			return;
		}
		drawGraph();
		panel();
	}
	function draw() {
		drawControls();
		drawCharts();
		drawBelow();
	}
	let next = 0;
	setInterval(() => {
		const s = State.get();
		if (!(s.last || unanswered.size) || document.hidden || Charts.isBusy() || Daemon.isBusy() || coming || Date.now() < next)
			return;
		next = Date.now() + (unanswered.size ? RETRY_S : Math.max(LIVE_S, s.last / 300)) * 1000;
		State.tick();
		draw();
	}, 1000);
	document.addEventListener("visibilitychange", () => { next = 0; });

	let seen = 0;
	new ResizeObserver(() => {
		if (Charts.width() !== seen) {
			seen = Charts.width();
			drawCharts();
		}
	}).observe($("timeline"));
	$("host").textContent = State.FLEET ? `all hosts, at ${location.host}` : location.host;
	State.onChange(draw);
	seen = Charts.width();
	// Whether something is recorded, which also tells the daemon's time; then all the rest.
	load("ready", "/readyz").catch(error => {
		if (error.isRefused && error.message !== "there is no window yet") // else there is nothing to draw, which is said
			problem("ready", `Nothing is recorded at the moment: ${error.message}.`);
	}).then(() => {
		State.tick();
		draw();
	});
	followTheme();
	root.dataset.ready = "";
})();
