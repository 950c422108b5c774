/* agent/http/api_page.c: the page for browsers, which agent/http/page/ contains. */
#include "agent/http/api_internal.h"

#include "agent/http/page/page.h"

void api_page(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	(void)api;
	(void)r;
	reply->type = "text/html; charset=utf-8";
	reply->policy = daemon_page_policy;
	(void)fwrite(daemon_page, 1, sizeof(daemon_page) - 1, reply->out);
}
