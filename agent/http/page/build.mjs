// agent/http/page/build.mjs: combines page.html, the styles and the scripts into the daemon's page.
//   usage: node build.mjs PAGE-DIRECTORY THEME.CSS HASHES.JSON PAGE.H
// HASHES.JSON: what the flame graph's page runs.
import { check, fill, hash, literal } from "../../export/page/embed.mjs";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [directory, theme, hashesFile, pageFile] = process.argv.slice(2);
const own = name => readFileSync(join(directory, name), "utf8");

// The scripts, each after those that it needs.
const scripts = ["state.js", "show.js", "daemon.js", "charts.js", "samples.js", "panels.js", "tables.js", "page.js"].map(own);
const style = readFileSync(theme, "utf8") + own("page.css");
check(scripts, style);
const page = fill(own("page.html"), { style, scripts: scripts.map(text => `<script>${text}</script>`).join("\n") });

// Nothing but these scripts and styles runs, and requests go to the daemon only. The flame graph is in a frame that has
// a page which this page's script has loaded, so that this policy holds for it, too.
const graph = JSON.parse(readFileSync(hashesFile, "utf8"));
const policy = [
	"default-src 'none'",
	`script-src ${[...scripts.map(hash), ...graph.scripts].join(" ")}`,
	`style-src ${[hash(style), ...graph.styles].join(" ")}`,
	"connect-src 'self'",
	"frame-src blob:",
	"img-src data:",
	"base-uri 'none'",
	"form-action 'none'",
	"frame-ancestors 'none'",
	"require-trusted-types-for 'script'",
	"trusted-types 'none'",
].join("; ");
writeFileSync(pageFile, `/* Written by agent/http/page/build.mjs: the daemon's page, and its content security policy. */
static const char daemon_page[] =\n\t${literal(page)};
static const char daemon_page_policy[] =\n\t${literal(policy)};
`);
