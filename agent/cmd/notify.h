/*
 * agent/cmd/notify.h: tells the service manager how a service is, by the protocol of sd_notify(3)
 * (docs/decisions/service-manager.md).
 */
#ifndef AGENT_CMD_NOTIFY_H
#define AGENT_CMD_NOTIFY_H

#include <stdint.h>

/*
 * Send lines such as "READY=1\nSTATUS=…" to the socket that the environment variable NOTIFY_SOCKET
 * names. Return 1, 0 if there is none, or a negative code.
 */
int notify_send(const char *lines);

/*
 * Return how often "WATCHDOG=1" must be sent, in ns: in half of the time after which the service manager
 * takes the service for dead. 0: never.
 */
uint64_t notify_every_ns(void);

#endif
