// agent/http/page/daemon.js: asks the daemon, with its token if it has one.
"use strict";
const Daemon = (() => {
	// ---- the token -------------------------------------------------------------------

	// What the daemon asks for if its configuration has a token. It stays as long as the browser's tab.
	// It is only looked for when the daemon wants one: the first look takes a browser that has just started a tenth of a second.
	let token = "", login = null;
	// Wait until there is another token than this one, which the user gives.
	function askForToken(refused) {
		token = token || sessionStorage.getItem("token") || "";
		if (token !== refused)
			return Promise.resolve();
		login = login || new Promise(done => {
			$("refused").textContent = refused ? "The daemon does not take this token." : "";
			document.documentElement.dataset.locked = "";
			$("token").value = "";
			$("token").focus();
			$("login").addEventListener("submit", event => {
				event.preventDefault();
				token = $("token").value.replace(/[^!-~]/g, ""); // a header takes nothing else
				sessionStorage.setItem("token", token);
				delete document.documentElement.dataset.locked;
				login = null;
				done();
			}, { once: true });
		});
		return login;
	}
	async function request(path, options) {
		for (;;) {
			const given = token, reply = await fetch(path, given ? { ...options, headers: { Authorization: `Bearer ${given}` } } : options);
			if (reply.status !== 401)
				return reply;
			await askForToken(given);
		}
	}

	// ---- requests --------------------------------------------------------------------

	const running = new Map();
	// Times in nanoseconds have more digits than a number of JavaScript: they stay texts.
	const parse = text => JSON.parse(text.replace(/"time_ns":(\d+)/g, '"time_ns":"$1"'));
	// Ask for something; sql: to be sent. Return the reply, parsed if it is JSON. A newer request of the same name ends this
	// one, which then never resolves. Throws an Error with the daemon's sentence; isRefused tells it from no answer.
	async function load(name, path, query = "", sql = undefined) {
		running.get(name)?.abort();
		const stop = new AbortController();
		running.set(name, stop);
		let reply = null, body = null;
		try {
			reply = await request(`${path}?${query}`, { signal: stop.signal, method: sql ? "POST" : "GET", body: sql });
			if (reply.headers.has("Date"))
				State.daemonSays(reply.headers.get("Date"));
			const isJson = /json/.test(reply.headers.get("Content-Type"));
			body = await (reply.ok && !isJson ? reply.blob() : reply.text());
			if (reply.ok && isJson)
				body = parse(body);
		} catch (error) {
			reply = null;
		}
		if (stop.signal.aborted)
			return new Promise(() => {});
		running.delete(name);
		if (!reply?.ok)
			throw Object.assign(new Error(reply ? body.trim() : "The daemon does not answer."), { isRefused: reply !== null, status: reply?.status });
		return body;
	}
	// Download a file. A link would not send the token.
	async function download(name, path, query) {
		const address = URL.createObjectURL(await load("download", path, query));
		Show.element("a", { href: address, download: name }).click();
		setTimeout(() => URL.revokeObjectURL(address), 60000);
	}

	// Return whether a reply is outstanding; names: one of these.
	const isBusy = (...names) => (names.length ? names.some(name => running.has(name)) : running.size > 0);

	return { load, download, isBusy };
})();
