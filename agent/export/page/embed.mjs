// agent/export/page/embed.mjs: what the pages that are built into the program have in common: hashes for
// their security policies, and C strings.
import { createHash } from "node:crypto";
import { Script } from "node:vm";

export function fail(text) {
	console.error(`page: ${text}`);
	process.exit(1);
}

// Return the source expression that allows this script or style.
export const hash = text => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

export const escape = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// Check that scripts and style do not end the elements that they stand in, and that the scripts can be parsed: they are
// compiled, not run. A browser would leave out one that cannot.
export function check(scripts, style) {
	for (const text of scripts) {
		if (/<\/script|<!--/i.test(text))
			fail("a script ends its own element");
		try {
			new Script(text);
		} catch (error) {
			fail(`a script cannot be parsed: ${error.stack.split("\n").slice(1, 3).join(" ")}: ${error.message}`);
		}
	}
	if (/<\/style/i.test(style))
		fail("the style ends its own element");
}

// Return a text whose {{names}} are replaced by their values; other names stay.
export const fill = (text, values) => text.replace(/\{\{([\w-]+)\}\}/g, (whole, name) => (name in values ? values[name] : whole));

// Return a C string, one literal for each line of the text.  Escapes are octal, because these end after
// three digits.
export const literal = text =>
	[...Buffer.from(text, "utf8").toString("latin1").matchAll(/[^\n]*\n|[^\n]+$/g)]
		.map(([line]) =>
			line.replace(/[^ -~]|["\\?]/g, c => `\\${c.charCodeAt(0).toString(8).padStart(3, "0")}`))
		.map(line => `"${line}"`)
		.join("\n\t");
