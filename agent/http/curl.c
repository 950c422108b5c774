/* agent/http/curl.c: loads libcurl. */
#include "agent/http/curl.h"

#include "agent/log.h"
#include "agent/textbuf.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

int curl_load(struct curl *out)
{
	static const char *const names[] = { "libcurl-gnutls.so.4", "libcurl.so.4" };
	static const struct {
		const char *name;
		size_t at;
	} functions[] = {
#define FUNCTION(symbol, field) { symbol, offsetof(struct curl, field) }
		FUNCTION("curl_global_init", global_init),
		FUNCTION("curl_easy_init", init),
		FUNCTION("curl_easy_setopt", setopt),
		FUNCTION("curl_easy_perform", perform),
		FUNCTION("curl_easy_getinfo", getinfo),
		FUNCTION("curl_easy_reset", reset),
		FUNCTION("curl_easy_cleanup", cleanup),
		FUNCTION("curl_easy_strerror", error),
		FUNCTION("curl_slist_append", append),
		FUNCTION("curl_slist_free_all", free_list),
		FUNCTION("curl_url", url),
		FUNCTION("curl_url_set", url_set),
		FUNCTION("curl_url_get", url_get),
		FUNCTION("curl_url_cleanup", url_free),
		FUNCTION("curl_free", free),
#undef FUNCTION
	};

	*out = (struct curl){ .handle = NULL };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !out->handle; i++)
		out->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *function = out->handle ? dlsym(out->handle, functions[i].name) : NULL;

		if (!function) {
			log_error(
				"libcurl, which asks daemons and sends profiles, is not installed");
			return -ENOENT;
		}
		memcpy((char *)out + functions[i].at, &function, sizeof(function));
	}
	return 0;
}

/* Return where the host of a URL begins, behind a user and a password. *authority: where these would begin. */
static const char *host_of(const char *url, const char **authority)
{
	const char *scheme = strstr(url, "://"), *at = NULL;
	size_t n;

	*authority = scheme ? scheme + 3 : url;
	n = strcspn(*authority, "/?#");
	/* A fleet has several: "http://USER:PASSWORD@HOST,http://…". */
	for (const char *p = *authority; p < *authority + n && strncmp(p, ",http", 5) != 0; p++)
		at = *p == '@' ? p : at;
	return at ? at + 1 : *authority;
}

const char *curl_shown(const char *url, char out[CURL_SHOWN])
{
	*out = '\0';
	while (*url) {
		const char *authority, *host = host_of(url, &authority), *next;

		next = strstr(host, ",http");
		next = next ? next : host + strlen(host);
		textbuf_add(out, CURL_SHOWN, "%.*s%.*s", (int)(authority - url), url,
			    (int)(next - host), host);
		url = next;
	}
	return out;
}

bool curl_is_here(const char *url)
{
	const char *authority, *host = host_of(url, &authority);

	return !strncmp(host, "127.", 4) || !strncasecmp(host, "localhost", 9) ||
	       !strncmp(host, "[::1]", 5);
}
