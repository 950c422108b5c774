/* agent/http/api_page.c: the page for browsers, which agent/http/page/ contains. */
#include "agent/http/api_internal.h"

#include "agent/http/page/page.h"

#include <string.h>

void api_page(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	/* Of a store of many hosts, the page says so to its scripts. */
	static const char element[] = "<html";
	const char *at = strstr(daemon_page, element);
	size_t n = at ? (size_t)(at - daemon_page) + strlen(element) : 0;

	(void)r;
	reply->type = "text/html; charset=utf-8";
	reply->policy = daemon_page_policy;
	(void)fwrite(daemon_page, 1, n, reply->out);
	(void)fputs(api->remote ? " data-fleet" : "", reply->out);
	(void)fwrite(daemon_page + n, 1, sizeof(daemon_page) - 1 - n, reply->out);
}
