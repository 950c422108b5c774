/* agent/export/json.c: writes JSON strings that are also safe inside an HTML page. */
#include "agent/export/json.h"

#include "agent/sanitize.h"

#include <string.h>

void json_text(FILE *out, const char *text)
{
	char clean[CLEAN_MAX];

	(void)clean_text(text, "", '?', clean, sizeof(clean));
	(void)fputc('"', out);
	for (const char *at = clean; *at;) {
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
