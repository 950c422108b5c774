/* agent/send/ports.h: the TCP ports that a sender connects to, so that it can give up all others. */
#ifndef AGENT_SEND_PORTS_H
#define AGENT_SEND_PORTS_H

#include "agent/send/target.h"

enum { PORTS_MAX = 128 };

struct ports {
	uint16_t all[PORTS_MAX];
	size_t n;
	bool any; /* a receiver says where its files go (debuginfo = yes) */
};

/*
 * Find the ports of n targets, of the environment's proxies, and of name servers, by libcurl's reading of the URLs.
 * A URL that libcurl cannot read has none. -ENOENT after reporting that libcurl is not installed, -E2BIG after
 * reporting that there are too many ports, or -ENOMEM.
 */
int ports_find(const struct target *targets, size_t n, struct ports *out);

#endif
