/* agent/export/json.c: writes JSON strings that are also safe inside an HTML page. */
#include "agent/export/json.h"

#include "agent/sanitize.h"

#include <string.h>

void json_text(FILE *out, const char *text)
{
	char sanitized[SANITIZED_MAX];

	(void)sanitize_text(text, "", '?', sanitized, sizeof(sanitized));
	(void)fputc('"', out);
	for (const char *at = sanitized; *at;) {
		size_t n = strcspn(at, "\"\\<>&");

		(void)fwrite(at, 1, n, out);
		at += n;
		if (*at == '"' || *at == '\\')
			(void)fprintf(out, "\\%c", *at);
		else if (*at)
			(void)fprintf(out, "\\u%04x", (unsigned int)*at);
		at += *at != '\0';
	}
	(void)fputc('"', out);
}
