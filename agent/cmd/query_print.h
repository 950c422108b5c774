/* agent/cmd/query_print.h: prints the replies of a daemon as tables. */
#ifndef AGENT_CMD_QUERY_PRINT_H
#define AGENT_CMD_QUERY_PRINT_H

#include <stdio.h>

/*
 * Print a reply in JSON (docs/openapi.yaml) as a table. Return 0, or a negative code after reporting what is
 * wrong with it.
 */
typedef int query_print(const char *json, FILE *out);

query_print query_print_top, query_print_labels, query_print_timeline, query_print_heatmap,
	query_print_rows;

#endif
