/*
 * tests/fuzz/fuzz_otel_ctx.c: fuzzes the decoder of process contexts. Byte 0 chooses whether there are
 * rules; the rest is the payload. Whatever a program publishes, its labels are bounded, have names that
 * are not offwind's own, and each name once.
 */
#include "agent/process/otel_context.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct label_rules *make_rules(void)
{
	struct label_rules *rules;
	char error[LABELS_ERROR];

	if (label_rules_new(&rules) ||
	    label_rules_add(rules, LABEL_DROP, "telemetry.*,a*b.*", error) ||
	    label_rules_add(rules, LABEL_RENAME, "service.name:service,pod:k8s.pod.uid", error))
		abort();
	return rules;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct label_rules *all;
	const struct label_rules *rules;
	struct labels labels = { .n = 0 };
	struct label_item items[OTEL_CONTEXT_LABELS + 1];
	const char *at = labels.text;
	uint8_t *payload;
	int n, found = 0;

	if (!size)
		return 0;
	if (!all)
		all = make_rules();
	rules = data[0] & 1 ? all : NULL;
	/* The end of the payload is where the memory ends. */
	payload = malloc(size - 1 ? size - 1 : 1);
	if (!payload)
		return 0;
	memcpy(payload, data + 1, size - 1);
	n = otel_context_decode(payload, size - 1, rules, &labels);
	if (n < 0 || n > OTEL_CONTEXT_LABELS || labels.n > LABELS_TEXT_MAX)
		abort();
	while (found <= n && labels_next(&at, &items[found])) {
		const struct label_item *item = &items[found];
		bool renamed = rules && !strcmp(item->key, "service");

		if (!labels_key_is_sound(item->key, strlen(item->key)) || !*item->value ||
		    strlen(item->value) > OTEL_CONTEXT_VALUE ||
		    (!renamed && !strchr(item->key, '.')) || label_rules_are_own(rules, item->key))
			abort();
		for (int i = 0; i < found; i++)
			if (!strcmp(items[i].key, item->key))
				abort();
		found++;
	}
	if (found != n || *at)
		abort();
	free(payload);
	return 0;
}
