/* agent/send/ports.c: finds the TCP ports in the URLs of targets and proxies. */
#include "agent/send/ports.h"

#include "agent/http/curl.h"
#include "agent/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PORT_DNS = 53, PORT_PROXY = 1080 }; /* the latter is libcurl's default for proxies */

static int add(struct ports *p, unsigned long port)
{
	if (!port || port > UINT16_MAX)
		return 0;
	for (size_t i = 0; i < p->n; i++)
		if (p->all[i] == port)
			return 0;
	if (p->n == PORTS_MAX) {
		log_error("the targets have more than %d ports", PORTS_MAX);
		return -E2BIG;
	}
	p->all[p->n++] = (uint16_t)port;
	return 0;
}

/* Add the port of a URL, which may leave out its scheme if it is a proxy's. */
static int add_url(struct ports *p, const struct curl *curl, const char *url, bool proxy)
{
	void *parsed = curl->url();
	char *port = NULL;
	int err = 0, rc;

	if (!parsed)
		return -ENOMEM;
	rc = curl->url_set(parsed, CURL_URL_ALL, url,
			   proxy ? CURL_URL_ANY_SCHEME | CURL_URL_GUESS_SCHEME : 0);
	if (!rc)
		rc = curl->url_get(parsed, CURL_URL_PORT, &port, proxy ? 0 : CURL_URL_DEFAULT_PORT);
	if (!rc && port)
		err = add(p, strtoul(port, NULL, 10));
	else if (proxy)
		err = add(p, !strncasecmp(url, "https:", 6) ? 443 : PORT_PROXY);
	if (port)
		curl->free(port);
	curl->url_free(parsed);
	return err;
}

/* Add the ports of the URLs that commas separate. */
static int add_urls(struct ports *p, const struct curl *curl, const char *urls)
{
	int err = 0;

	for (const char *at = urls; !err && *at; at += *at == ',') {
		size_t n = strcspn(at, ",");
		char *url = strndup(at, n);

		err = url ? add_url(p, curl, url, false) : -ENOMEM;
		free(url);
		at += n;
	}
	return err;
}

int ports_find(const struct target *targets, size_t n, struct ports *out)
{
	static const char *const proxies[] = { "http_proxy", "https_proxy", "HTTPS_PROXY",
					       "all_proxy", "ALL_PROXY" };
	struct curl curl;
	int err = curl_load(&curl);

	*out = (struct ports){ .n = 0 };
	if (!err)
		err = add(out, PORT_DNS);
	for (size_t i = 0; !err && i < n; i++) {
		out->any |= targets[i].debuginfo;
		err = add_urls(out, &curl, targets[i].url);
	}
	for (size_t i = 0; !err && i < sizeof(proxies) / sizeof(proxies[0]); i++) {
		const char *proxy = getenv(proxies[i]);

		if (proxy && *proxy)
			err = add_url(out, &curl, proxy, true);
	}
	return err;
}
