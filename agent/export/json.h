/* agent/export/json.h: writes JSON strings (RFC 8259). */
#ifndef AGENT_EXPORT_JSON_H
#define AGENT_EXPORT_JSON_H

#include <stdio.h>

/*
 * Write text (NULL: "") in quotes, sanitized as by sanitize_text(). "<", ">" and "&" become \u003c
 * and so on, so that no name can end the script element of a page that contains the JSON.
 */
void json_text(FILE *out, const char *text);

#endif
