/* agent/send/kinds.h: the kinds of targets (agent/send/target.h), each in a file of its own. */
#ifndef AGENT_SEND_KINDS_H
#define AGENT_SEND_KINDS_H

#include "agent/send/target.h"

extern const struct target_kind target_otlp; /* OTLP profiles */
extern const struct target_kind target_pyroscope;
extern const struct target_kind target_parca;
extern const struct target_kind target_clickhouse; /* the fleet's tables */

#endif
