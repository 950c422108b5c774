/*
 * agent/export/json.h: JSON texts (RFC 8259).
 */
#ifndef AGENT_EXPORT_JSON_H
#define AGENT_EXPORT_JSON_H

#include <stdio.h>

/*
 * text (NULL: "") in quotes, cleaned as clean_text does, all of it; "<", ">" and "&" as \u003c …, so that
 * no name can end the script of a page that the JSON is put into.
 */
void json_text(FILE *out, const char *text);

#endif
