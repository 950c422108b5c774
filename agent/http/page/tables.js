// agent/http/page/tables.js: the stored unwind tables: which files have one, and the rows of one, a page at a time.
"use strict";
const Tables = (() => {
	const { element, button, table, p, link, isNew, done, numeric } = Show;
	const { load } = Daemon;
	const FILES = 200, ROWS = 100; // on one page
	const ask = sql => load("panel", "/api/v1/query", "", sql);
	const quoted = text => `'${text.replace(/'/g, "''")}'`;
	const hex = n => `0x${n.toString(16)}`;

	async function files(to) {
		const { find } = State.get(), key = `files ${find}`;
		if (!isNew(to, key))
			return;
		const rows = await ask(`SELECT lower(hex(build_id)) AS id, path, uses, n_rows, size FROM objects JOIN tables ON tables.object = objects.id
			WHERE instr(path, ${quoted(find)}) OR instr(lower(hex(build_id)), lower(${quoted(find)})) ORDER BY last_used DESC, path LIMIT ${FILES + 1}`);
		const input = element("input", { id: "find", type: "search", value: find, autocomplete: "off", spellcheck: "false", onchange: event => State.change({ find: event.target.value.trim() }) });
		done(to, key, p(element("label", {}, "Path or build-id ", input)),
			p(rows.length ? `${rows.length > FILES ? `The ${FILES} files that were used last` : Show.counted(rows.length, "file", "files")}, the last used first. Choose one to see the rows of its unwind table.`
				: find ? `No file whose path or build-id has “${find}” has a stored table. The kernel and generated code never have one.` : "No table is stored yet."),
			...rows.length ? [table([["File"], ["Rows", numeric], ["Size", numeric], ["Uses", numeric], ["Build-id"]], rows.slice(0, FILES).map(one =>
				[[one.id ? link(one.path, { file: one.id, pc: "" }) : one.path], [Show.counted(one.n_rows, "row", "rows"), numeric], [Show.value(one.size, { unit: "bytes" }), numeric], [Show.counted(one.uses, "use", "uses"), numeric], [one.id, { class: "code soft" }]]), { class: "wide blocks" })] : []);
	}
	async function rows(to) {
		const { file, pc } = State.get(), key = `rows ${file} ${pc}`, at = parseInt(pc, 16) || 0;
		if (!isNew(to, key))
			return;
		const [[about], found] = await Promise.all([
			load("file", "/api/v1/query", "", `SELECT path, n_rows, (SELECT count(*) FROM unwind_gaps('${file}')) AS gaps, (SELECT sum(size) FROM unwind_gaps('${file}')) AS bare
				FROM objects JOIN tables ON tables.object = objects.id WHERE build_id = x'${file}'`),
			ask(`SELECT start, "end", function, words FROM unwind_rows('${file}') WHERE "end" > ${at} ORDER BY start LIMIT ${ROWS + 1}`)]);
		const address = element("input", { id: "address", value: pc, size: 14, autocomplete: "off", spellcheck: "false", onchange: event => State.change({ pc: event.target.value.trim().replace(/^0x/i, "") }) });
		const shown = found.slice(0, ROWS), hit = at && found[0]?.start <= at;
		let before = "";
		done(to, key, p(link("← All files", { file: "", pc: "" })),
			element("h2", { tabindex: -1 }, about ? about.path : file),
			p(element("span", { class: "soft" }, about ? `build-id ${file} · ${Show.counted(about.n_rows, "row", "rows")} · ${about.gaps ? `${Show.counted(about.gaps, "range", "ranges")} of code without unwind information, ${Show.value(about.bare, { unit: "bytes" })} together` : "unwind information for all of its code"}` : "No table is stored for this file.")),
			element("div", { class: "tools" }, element("label", {}, "Address (hexadecimal) ", address),
				button("Beginning", () => State.change({ pc: "" }), { id: "rows-first", disabled: !at }),
				button(`Next ${ROWS} rows`, () => State.change({ pc: found[ROWS].start.toString(16) }), { id: "rows-next", disabled: found.length <= ROWS })),
			...at && !hit ? [p(`No row has the address ${hex(at)}${shown.length ? "; these follow it." : "."}`)] : [],
			...shown.length ? [table([["Function"], ["From"], ["To"], ["The caller's registers"]], shown.map((row, i) => {
				const name = row.function === before ? "" : row.function ?? "";
				before = row.function;
				return [[name], [hex(row.start), { class: "code" }], [hex(row.end), { class: "code" }], [row.words ?? "", hit && !i ? { class: "hit" } : {}]];
			}), { class: "wide blocks" })] : []);
	}
	// A build-id goes into SQL: only digits.
	const unwind = to => (/^([0-9a-f]{2})+$/.test(State.get().file) ? rows(to) : files(to));

	return { unwind };
})();
