// agent/export/page/build.mjs: combines page.html, the styles, model.js, page.js and the libraries into
// three pieces of text, between which every page has its title and its profile.
//   usage: node build.mjs PAGE-DIRECTORY NODE_MODULES PARTS.H LICENCES.TXT HASHES.JSON
// HASHES.JSON gets what the daemon's page has to allow, which shows this page in a frame.
import { check, escape, fail, fill, hash, literal } from "./embed.mjs";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const [directory, modules, partsFile, licencesFile, hashesFile] = process.argv.slice(2);
const own = name => readFileSync(join(directory, name), "utf8");

// The libraries, each after those that it needs.  d3-flame-graph also depends on d3-transition, with
// d3-timer, d3-ease and d3-dispatch; they are left out, because page.js replaces transitions.
const libraries = [
	["internmap", "internmap.min.js"],
	["d3-array", "d3-array.min.js"],
	["d3-color", "d3-color.min.js"],
	["d3-interpolate", "d3-interpolate.min.js"],
	["d3-format", "d3-format.min.js"],
	["d3-time", "d3-time.min.js"],
	["d3-time-format", "d3-time-format.min.js"],
	["d3-scale", "d3-scale.min.js"],
	["d3-hierarchy", "d3-hierarchy.min.js"],
	["d3-selection", "d3-selection.min.js"],
	["d3-flame-graph", "d3-flamegraph.umd.min.js"],
].map(([name, file]) => {
	const about = JSON.parse(readFileSync(join(modules, name, "package.json"), "utf8"));
	return {
		name,
		version: about.version,
		licence: about.license,
		text: readFileSync(join(modules, name, "LICENSE"), "utf8").trim(),
		code: readFileSync(join(modules, name, "dist", file), "utf8").trim(),
	};
});

// Return the licence texts.  Each text is printed once, after the names and copyright lines of all
// libraries that have this licence.
function licences() {
	const texts = new Map();
	for (const { name, version, licence, text } of libraries) {
		const [first, ...rest] = text.split("\n");
		const copyright = /^Copyright/.test(first) ? first.trim() : "";
		const terms = copyright ? rest.join("\n").trim() : text;
		if (!texts.has(terms))
			texts.set(terms, []);
		texts.get(terms).push(`${name} ${version} (${licence})${copyright ? `: ${copyright}` : ""}`);
	}
	return [...texts].map(([terms, names]) => `${names.join("\n")}\n\n${terms}\n`).join(`\n${"-".repeat(72)}\n\n`);
}

// Return the style elements that d3-flame-graph adds to the page: the page's security policy must list
// their hashes.
function stylesAdded(code) {
	const styles = [];
	const document = {
		createElement: () => ({}),
		head: { appendChild: element => styles.push(element.textContent) },
	};
	vm.runInNewContext(code, { document }, { timeout: 10000 });
	return styles;
}

const code = libraries.map(l => l.code.replace(/^\/\/# sourceMappingURL=.*$/m, "")).join("\n;\n");
const scripts = { libraries: code, model: own("model.js"), script: own("page.js") };
const style = own("theme.css") + own("page.css");
check(Object.values(scripts), style);

const licenceText = licences();
const hashes = {
	scripts: Object.values(scripts).map(hash),
	styles: [style, ...stylesAdded(code)].map(hash),
};
const filled = {
	...scripts,
	style,
	"script-hashes": hashes.scripts.join(" "),
	"style-hashes": hashes.styles.join(" "),
	licences: escape(licenceText),
	libraries_named: escape(libraries.filter(l => l.name === "d3-flame-graph").map(l => `${l.name} ${l.version}`).join("")),
};
const parts = fill(own("page.html"), filled).split(/\{\{(?:title|profile)\}\}/);
if (parts.length !== 3)
	fail("page.html must have {{title}} and {{profile}}, in this order");

writeFileSync(partsFile, `/* Written by agent/export/page/build.mjs: the page before its title, before its profile, and its end. */
static const char page_start[] =\n\t${literal(parts[0])};
static const char page_middle[] =\n\t${literal(parts[1])};
static const char page_end[] =\n\t${literal(parts[2])};
`);
writeFileSync(licencesFile, licenceText);
writeFileSync(hashesFile, JSON.stringify(hashes));
