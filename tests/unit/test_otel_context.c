/*
 * tests/unit/test_otel_context.c: tests how process contexts are decoded. The messages are put together
 * by hand from the definitions of opentelemetry-proto (common, resource, processcontext).
 */
#include "agent/process/otel_context.h"

#include "tests/check.h"

#include <stdio.h>
#include <string.h>

struct message {
	unsigned char bytes[20000];
	size_t n;
};

static void varint(struct message *m, unsigned long long value)
{
	for (; value >= 128; value >>= 7)
		m->bytes[m->n++] = (unsigned char)(value | 128);
	m->bytes[m->n++] = (unsigned char)value;
}

static void put_bytes(struct message *m, unsigned int number, const void *bytes, size_t n)
{
	varint(m, number << 3 | 2);
	varint(m, n);
	memcpy(m->bytes + m->n, bytes, n);
	m->n += n;
}

static void put_message(struct message *m, unsigned int number, const struct message *inside)
{
	put_bytes(m, number, inside->bytes, inside->n);
}

/* Put a KeyValue whose value is a message AnyValue. */
static void put_pair(struct message *m, unsigned int number, const char *key,
		     const struct message *any)
{
	struct message pair = { .n = 0 };

	put_bytes(&pair, 1, key, strlen(key));
	put_message(&pair, 2, any);
	put_message(m, number, &pair);
}

static void put_text(struct message *m, unsigned int number, const char *key, const char *value)
{
	struct message any = { .n = 0 };

	put_bytes(&any, 1, value, strlen(value));
	put_pair(m, number, key, &any);
}

static void put_number(struct message *m, const char *key, unsigned int kind,
		       unsigned long long value)
{
	struct message any = { .n = 0 };

	varint(&any, kind << 3);
	varint(&any, value);
	put_pair(m, 1, key, &any);
}

/* Return the labels as "key=value key=value". */
static const char *decoded(const struct message *m, const struct label_rules *rules, int n)
{
	static char text[LABELS_TEXT_MAX + 64];
	struct labels labels = { .n = 0 };
	const char *at = labels.text;
	struct label_item item;
	int got = otel_context_decode(m->bytes, m->n, rules, &labels);
	size_t used = 0;

	CHECK(got == n, "the number of labels");
	text[0] = '\0';
	while (labels_next(&at, &item))
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s=%s",
					 used ? " " : "", item.key, item.value);
	return text;
}

static void check(const struct message *m, int n, const char *wanted, const char *what)
{
	const char *text = decoded(m, NULL, n);

	CHECK(!strcmp(text, wanted), what);
	if (strcmp(text, wanted) != 0)
		(void)printf("%s\n", text);
}

static struct message resource_of(const char *key, const char *value)
{
	struct message resource = { .n = 0 };

	put_text(&resource, 1, key, value);
	return resource;
}

static void test_both_forms_are_read(void)
{
	struct message resource = resource_of("service.name", "shop"), context = { .n = 0 };

	put_text(&resource, 1, "service.version", "1.2");
	varint(&resource, 2 << 3); /* dropped_attributes_count */
	varint(&resource, 3);
	check(&resource, 2, "service.name=shop service.version=1.2", "Resource");
	put_message(&context, 1, &resource);
	put_text(&context, 2, "thread.kind", "x");
	check(&context, 3, "service.name=shop service.version=1.2 thread.kind=x", "ProcessContext");
}

static void test_values_become_texts(void)
{
	struct message resource = { .n = 0 }, any = { .n = 0 }, list = { .n = 0 };
	double half = 0.5;

	put_number(&resource, "a.bool", 2, 1);
	put_number(&resource, "a.int", 3, (unsigned long long)-7);
	varint(&any, 4 << 3 | 1);
	memcpy(any.bytes + any.n, &half, 8);
	any.n += 8;
	put_pair(&resource, 1, "a.double", &any);
	put_bytes(&list, 5, "", 0); /* ArrayValue */
	put_pair(&resource, 1, "a.list", &list);
	put_text(&resource, 1, "a.text", "caf\xc3\xa9\n\xff");
	check(&resource, 4,
	      "a.bool=true a.int=-7 a.double=0.5 a.text=caf\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd",
	      "one of each");
}

static void test_what_could_deceive_is_left_out(void)
{
	struct message resource = { .n = 0 };
	char value[OTEL_CONTEXT_VALUE + 2];
	struct label_rules *rules;
	char error[LABELS_ERROR];

	put_text(&resource, 1, "unit", "sshd.service");
	put_text(&resource, 1, "pid", "1");
	put_text(&resource, 1, "stop", "root");
	put_text(&resource, 1, "", "x");
	put_text(&resource, 1, "a b.c", "x");
	put_text(&resource, 1, "a.b\1", "x");
	put_text(&resource, 1, "a.b", "");
	put_text(&resource, 1, "service.name", "first");
	put_text(&resource, 1, "service.name", "second");
	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	put_text(&resource, 1, "a.long", value);
	check(&resource, 1, "service.name=first", "few are left");
	value[OTEL_CONTEXT_VALUE] = '\0';
	resource.n = 0;
	put_text(&resource, 1, "a.long", value);
	CHECK(strlen(decoded(&resource, NULL, 1)) == OTEL_CONTEXT_VALUE + 7, "the longest");
	resource.n = 0;
	put_text(&resource, 1, "k8s.pod.uid", "not mine");
	put_text(&resource, 1, "service.name", "shop");
	put_text(&resource, 1, "host.id", "7");
	CHECK(!label_rules_new(&rules) &&
		      !label_rules_add(rules, LABEL_RENAME, "pod:k8s.pod.uid,service.name:app",
				       error) &&
		      !label_rules_add(rules, LABEL_DROP, "host.*", error),
	      error);
	CHECK(!strcmp(decoded(&resource, rules, 1), "app=shop"), "the rules hold");
	label_rules_free(rules);
}

static void test_many_attributes_are_bounded(void)
{
	struct message resource = { .n = 0 };
	struct labels labels = { .n = 0 };
	char key[32], value[201];

	for (int i = 0; i < 100; i++) {
		(void)snprintf(key, sizeof(key), "a.%d", i);
		put_text(&resource, 1, key, "v");
	}
	CHECK(otel_context_decode(resource.bytes, resource.n, NULL, &labels) == OTEL_CONTEXT_LABELS,
	      "no more");
	memset(value, 'v', 200);
	value[200] = '\0';
	resource.n = labels.n = 0;
	for (int i = 0; i < 32; i++) {
		(void)snprintf(key, sizeof(key), "b.%d", i);
		put_text(&resource, 1, key, value);
	}
	CHECK(otel_context_decode(resource.bytes, resource.n, NULL, &labels) == 19, "no more room");
}

static void test_a_damaged_payload_gives_its_beginning(void)
{
	struct message resource = resource_of("service.name", "shop");
	struct labels labels;
	size_t whole = resource.n;

	put_text(&resource, 1, "service.version", "1.2");
	for (size_t n = 0; n < resource.n; n++) {
		labels = (struct labels){ .n = 0 };
		CHECK(otel_context_decode(resource.bytes, n, NULL, &labels) == (n >= whole), "cut");
	}
}

int main(void)
{
	test_both_forms_are_read();
	test_values_become_texts();
	test_what_could_deceive_is_left_out();
	test_many_attributes_are_bounded();
	test_a_damaged_payload_gives_its_beginning();
	return check_done();
}
