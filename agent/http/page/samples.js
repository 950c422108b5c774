// agent/http/page/samples.js: single samples: as a list, one explained frame by frame, and those of a thread along the time.
"use strict";
const Samples = (() => {
	const { element, button, table, p, link, fileName, isNew, done, numeric } = Show;
	const { load } = Daemon;
	const LISTED = 100; // samples in a list
	const LONGEST = 60; // s that are asked for at once
	const CALLER = 80; // letters of a caller's name in a list
	const LANE = 2000; // samples, and waits, of one thread

	const secondsOf = one => Number(one.time_ns) / 1e9;
	const idOf = one => [one.time_ns, one.labels.pid, one.labels.tid].join(".");
	const threadOf = ({ labels }) => `${labels.thread || labels.comm || "thread"} ${labels.pid}/${labels.tid}`;
	// Return an address, which leads to its row of the unwind table.
	const addressOf = f => (f.build_id && !f.module.startsWith("[kernel") ? link(f.address, { view: "unwind", file: f.build_id, pc: f.address.slice(2), find: "" }, { title: "Its row of the unwind table" }) : f.address);

	// ---- one sample, frame by frame ----------------------------------------------------------

	const howFound = f => f.rule || (f.inlined ? "inlined: it has no frame of its own" : f.module.startsWith("[kernel") ? "the kernel walked its own stack" : "no row of an unwind table is stored");
	function explained(one, data) {
		const { thread, comm, pid, tid, stop, ...more } = one.labels;
		const labels = Object.entries(more).map(([key, value]) => `${key}=${value}`).join(" · ");
		return [element("h2", { tabindex: -1 }, `${Show.day(secondsOf(one))} ${Show.clock(secondsOf(one), 6)}: ${threadOf(one)}, ${Show.value(one.value, data)} of ${data.type}`),
			p(element("span", { class: "soft" }, [comm && comm !== thread ? `process ${comm}` : "", labels].filter(Boolean).join(" · "))),
			table([["", numeric], ["Function"], ["Module"], ["Address"], ["How its caller was found"]], one.frames.map((f, i) =>
				[[String(i + 1), numeric], [[f.function, element("span", { class: "soft" }, f.file ? ` ${f.file}${f.line ? `:${f.line}` : ""}` : "")]], [element("span", { title: f.module }, fileName(f.module))],
					[[addressOf(f)], { class: "code" }], [howFound(f), { class: f.rule ? "" : "soft" }]]), { class: "wide blocks" }),
			p(element("strong", {}, `Ended: ${one.stop}. `), one.meaning || "")];
	}
	// Show the sample that was chosen; nothing if there is none.
	async function explain(to, ...before) {
		const s = State.get(), [time, pid, tid] = s.sample.split(".");
		const q = new URLSearchParams({ time_ns: time, pid, tid });
		if (s.type)
			q.set("type", s.type);
		if (!isNew(to, `explain ${q}`))
			return;
		const data = await load("explain", "/api/v1/explain", q);
		done(to, `explain ${q}`, ...before, ...data.samples.length ? data.samples.flatMap(one => explained(one, data))
			: [p("This sample is not there any more. The history has single samples for some hours only, then sums.")]);
		to.querySelector("h2")?.focus({ preventScroll: true });
	}

	// ---- the list --------------------------------------------------------------------------------

	// A caller's name for the list, which may be a template's of a thousand letters; its explanation has it whole.
	const shortened = name => (name.length > CALLER ? `${[...name].slice(0, CALLER - 1).join("")}…` : name);
	// which: the heading of the second column, and what is in it; wide: a sentence.
	function listOf(rows, [heading, which, wide], value, data) {
		return table([["Time"], [heading], [value, numeric], ["Innermost function, and its callers"], ["Ended"]], rows.map(one => {
			const [inner, ...callers] = one.frames.map(f => f.function);
			return [[Show.clock(secondsOf(one), 6), { class: "code" }], [which(one), { class: wide ? "" : "whole" }], [Show.value(one.value, data), numeric],
				[[link(inner || "no frames", { sample: idOf(one) }, { title: "Explain this sample, frame by frame" }), element("span", { class: "soft" }, callers.slice(0, 3).map(name => ` ← ${shortened(name)}`).join("") + (callers.length > 3 ? ` ← ${callers.length - 3} more` : ""))]],
				[one.labels.stop || "root"]];
		}), { class: "wide blocks" });
	}
	async function samples(to) {
		const s = State.get(), [from, until] = State.selected();
		if (s.sample) {
			await explain(to, p(link("← All samples", { sample: "" })));
			return;
		}
		const start = Math.max(from, Math.min(until, Charts.firstAt(s.after > from && s.after < until ? +s.after : from)));
		const end = Math.min(start + LONGEST, until), q = State.query([start, end], { n: LISTED });
		if (!isNew(to, String(q)))
			return;
		const data = await load("panel", "/api/v1/samples", q), last = data.samples[data.samples.length - 1];
		const next = data.samples_left_out ? Math.max(Math.floor(secondsOf(last) * 1e6) / 1e6, start + 1e-6) : end;
		const said = data.samples.length ? `${Show.counted(data.samples.length, "sample", "samples")}, ${Show.clock(secondsOf(data.samples[0]), 3)} – ${Show.clock(secondsOf(last), 3)}. ` : `No sample from ${Show.clock(start)} to ${Show.clock(end)}. Older samples, whose times are not known, are listed at the beginning of their ten minutes or hour. `;
		const tools = element("div", { class: "tools" }, said,
			button("First", () => State.change({ after: "" }), { id: "samples-first", disabled: start <= Charts.firstAt(from) }),
			button("Next", () => State.change({ after: String(next) }), { id: "samples-next", disabled: next >= until, title: "The samples after these" }));
		done(to, String(q), tools, ...data.samples.length ? [listOf(data.samples, ["Thread", threadOf], data.type, data)] : []);
	}

	// ---- one thread along the time -------------------------------------------------------------

	// What a thread waits for, by the kernel's functions in its stack.
	const REASONS = [[/futex/, "a lock or a condition"], [/epoll|_poll\b|select/, "events (poll)"], [/nanosleep|hrtimer/, "a timer"], [/pipe/, "a pipe"], [/unix_|tcp_|sock|skb_/, "a socket"],
		[/do_wait|wait4|waitid/, "a child process"], [/io_schedule|folio|page_bit|filemap|jbd2|ext4|xfs|btrfs/, "a file or disk"], [/sigtimedwait|sigsuspend|do_pause/, "a signal"], [/tty/, "a terminal"],
		[/rwsem|mutex|rt_mutex|down_/, "a lock of the kernel"], [/fault/, "memory"]];
	const SCHEDULER = /^_*schedule|^io_schedule|_schedule$|^schedule_|^__traceiter_/;
	function reasonOf(one) {
		const kernel = one.frames.filter(f => f.module.startsWith("[kernel")).map(f => f.function), all = kernel.join(" ");
		const name = kernel.find(f => !SCHEDULER.test(f)) || one.frames[0]?.function || "", why = REASONS.find(([pattern]) => pattern.test(all));
		return why ? `${why[1]}: ${name}` : name;
	}
	// Return how long a wait was, and for how much of that the thread was ready to run, in s. A sample may stand for several waits.
	const lengthsOf = ({ value, values }) => [value, values.runnable || 0].map(ns => ns / 1e9 / (values.off_cpu_samples || 1));
	const wokenBy = one => (one.labels.waker ? `woken by ${one.labels.waker}` : "");
	// Return names and their sums, the largest first.
	function sumsBy(samples, nameOf, valueOf = one => one.value) {
		const sums = new Map();
		for (const one of samples)
			sums.set(nameOf(one), (sums.get(nameOf(one)) || 0) + valueOf(one));
		return [...sums].sort((a, b) => b[1] - a[1]);
	}

	const BAND = 30, GAP = 6, SHADES = 6; // colours of each band
	const innermost = one => one.frames[0]?.function || "no frames";
	const colourOf = ({ sums, of, shade }, one) => {
		const at = sums.findIndex(([which]) => which === of(one));
		return shade === "ready" ? shade : at < SHADES ? `s${shade + at}` : "rest";
	};
	// Draw when a thread ran, each sample as a line, and when it was ready to run and waited, each wait as long as it was.
	function lane(bands, range) {
		const wide = Charts.width(), high = bands.length * (BAND + GAP) + 20, x = Charts.across(range);
		const svg = element("svg:svg", { id: "lane", width: wide, height: high, role: "img", "aria-label": `When the thread was ${bands.map(({ name }) => name).join(", ")}; the list below has the same` });
		Charts.axis(svg, range, high, 4);
		bands.forEach((band, k) => {
			const { name, samples, of, span, more } = band, top = 4 + k * (BAND + GAP);
			svg.append(element("svg:text", { x: Charts.LEFT - 6, y: top + BAND / 2 + 4, "text-anchor": "end" }, name),
				element("svg:rect", { class: "ground", x: x(range[0]), y: top, width: x(range[1]) - x(range[0]), height: BAND }));
			for (const one of samples) {
				const [from, until] = span ? span(one) : [0, secondsOf(one)];
				const end = x(Math.min(range[1], until)), begin = span ? Math.max(x(range[0]), x(from)) : end - 2;
				svg.append(element("svg:rect", { class: "area", x: begin.toFixed(1), y: top, width: Math.max(1.5, end - begin).toFixed(1), height: BAND, "data-colour": colourOf(band, one),
					onclick: () => State.change({ sample: idOf(one) }) },
				element("svg:title", {}, [`${Show.clock(span ? from : until, 3)} ${name}${span ? ` ${Show.length(until - from)}` : ""}: ${of(one)}`, more?.(one)].filter(Boolean).join(", "))));
			}
		});
		return element("div", { class: "chart" }, svg);
	}
	function legend({ name, sums, shade, data }) {
		return p(element("strong", {}, `${name} `), ...sums.slice(0, SHADES).map(([text, sum], k) => element("span", {}, element("i", { class: "swatch", "data-colour": shade === "ready" ? shade : `s${shade + k}` }), ` ${text} ${Show.value(sum, data)}`)),
			sums.length > SHADES ? `${sums.length - SHADES} more` : "");
	}
	// Say for what a thread waited, who woke it, and how much of the time it was only ready to run.
	function stateOf(sample) {
		const [, ready] = lengthsOf(sample), { off_cpu_samples: n } = sample.values;
		return [`waiting for ${reasonOf(sample).split(":")[0]}`, wokenBy(sample), ready && `runnable for ${Show.length(ready)} of it`, n > 1 && `one of ${Show.number(n)} such waits`].filter(Boolean).join(", ");
	}
	async function threads(to, { types }) {
		const s = State.get(), range = State.selected(), q = State.query(range, { by: "thread", n: 100 }), key = `${q}&${s.thread}&${types}`;
		if (isNew(to, key))
			await drawThread(to, key, q, range, types.includes("off_cpu"));
		const box = $("of-thread");
		if (box && s.sample)
			await explain(box);
		else if (box)
			done(box, "");
	}
	async function drawThread(to, key, q, range, hasOffCpu) {
		const s = State.get(), top = await load("panel", "/api/v1/top", q);
		const chosen = top.rows.find(row => `${row.pid}/${row.tid}` === s.thread) || (!s.thread && top.rows[0]);
		const select = element("select", { id: "thread", onchange: event => State.change({ thread: event.target.value, sample: "" }) },
			...top.rows.map(row => element("option", { value: `${row.pid}/${row.tid}` }, `${row.thread} ${row.pid}/${row.tid}: ${Show.value(row.self, top)}, ${Show.percent(row.self, top.value)}`)));
		const head = p(element("label", {}, "Thread ", select), top.rows_left_out ? ` ${Show.counted(top.rows_left_out, "thread", "threads")} more with less: filter by process, or select a shorter time.` : "");
		if (!chosen) {
			if (s.thread)
				select.prepend(element("option", { value: s.thread, selected: true }, `${s.thread}: nothing in this time`));
			done(to, key, ...top.rows.length ? [head] : [], p("No sample of a thread in this time. Single threads are recorded for two days only."));
			return;
		}
		select.value = `${chosen.pid}/${chosen.tid}`;
		const one = new URLSearchParams({ from: q.get("from"), to: q.get("to"), pid: chosen.pid, tid: chosen.tid, n: LANE });
		const waiting = new URLSearchParams(one);
		waiting.set("type", "off_cpu");
		const [ran, waited] = await Promise.all([load("ran", "/api/v1/samples", one), hasOffCpu ? load("waits", "/api/v1/samples", waiting) : null]);
		const bands = [{ name: ran.type === "cpu" ? "running" : ran.type, samples: ran.samples, sums: sumsBy(ran.samples, innermost), of: innermost, shade: 0, data: ran }];
		if (waited) {
			const late = waited.samples.filter(sample => sample.values.runnable), after = sample => `after ${reasonOf(sample)}`;
			bands.push({ name: "runnable", samples: late, sums: sumsBy(late, () => "no CPU was free", sample => sample.values.runnable), of: after, shade: "ready", data: waited, more: wokenBy,
				span: sample => [secondsOf(sample) - lengthsOf(sample)[1], secondsOf(sample)] });
			bands.push({ name: "waiting", samples: waited.samples, sums: sumsBy(waited.samples, reasonOf, sample => sample.value - (sample.values.runnable || 0)), of: reasonOf, shade: SHADES, data: waited, more: wokenBy,
				span: sample => [secondsOf(sample) - lengthsOf(sample)[0], secondsOf(sample) - lengthsOf(sample)[1]] });
		}
		const about = [ran, waited].filter(Boolean).map((data, k) => `${Show.counted(data.samples.length, ["sample", "wait"][k], ["samples", "waits"][k])}${data.samples_left_out ? `, the first of ${Show.number(data.samples.length + data.samples_left_out)}` : ""}`).join("; ");
		const gap = waited ? "Where there is nothing, it ran between two samples, lost its CPU to another thread, or waited for less than the setting off-cpu: the recording does not tell these apart."
			: "Why it waited is not recorded: the line off-cpu = 10ms in the section [record] of the daemon's configuration switches that on.";
		const all = [...ran.samples.map(sample => ({ ...sample, state: bands[0].name })), ...(waited?.samples || []).map(sample => ({ ...sample, value: lengthsOf(sample)[0] * 1e9, state: stateOf(sample) }))].sort((a, b) => secondsOf(a) - secondsOf(b));
		done(to, key, head, lane(bands, range), element("div", { class: "names" }, ...bands.map(band => (band.sums.length ? legend(band) : ""))), p(`${about}. ${gap} Choose one to see its frames.`),
			element("div", { id: "of-thread" }), listOf(all.slice(0, LISTED), ["State", sample => sample.state, true], "Length", ran),
			...all.length > LISTED ? [p(`${Show.counted(all.length - LISTED, "sample", "samples")} more: select a shorter time.`)] : []);
	}

	return { samples, threads };
})();
