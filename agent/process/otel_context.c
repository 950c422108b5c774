/* agent/process/otel_context.c: decodes the attributes in a process context. */
#include "agent/process/otel_context.h"

#include "base/bytes.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- protobuf ---------------------------------------------------------------------------- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct field {
	uint64_t number;
	enum wire wire;
	uint64_t value;		/* of numbers */
	struct uw_bytes inside; /* of WIRE_BYTES */
};

/* Read the next field of a message. Return false at its end, or at damage. */
static bool next_field(struct uw_bytes *b, struct field *out)
{
	uint64_t key, size;

	if (uw_bytes_done(b))
		return false;
	key = uw_bytes_uleb(b);
	*out = (struct field){ .number = key >> 3, .wire = (enum wire)(key & 7) };
	switch (out->wire) {
	case WIRE_VARINT:
		out->value = uw_bytes_uleb(b);
		break;
	case WIRE_64:
		out->value = uw_bytes_u64(b);
		break;
	case WIRE_32:
		out->value = uw_bytes_u32(b);
		break;
	case WIRE_BYTES:
		size = uw_bytes_uleb(b);
		out->inside.pos = uw_bytes_advance(b, size);
		out->inside.end = out->inside.pos ? out->inside.pos + size : NULL;
		break;
	default: /* groups are not used any more */
		uw_bytes_fail(b);
	}
	return !b->err && out->number;
}

/* ---- attributes -------------------------------------------------------------------------- */

/* Fields of opentelemetry.proto.common.v1. */
enum { KEY_VALUE_KEY = 1, KEY_VALUE_VALUE = 2 };
enum { ANY_STRING = 1, ANY_BOOL = 2, ANY_INT = 3, ANY_DOUBLE = 4, ANY_ARRAY = 5 };

/* Keys of this beginning are between a program and readers of its memory. */
static const char of_threads[] = "threadlocal.";

struct decoding {
	const struct label_rules *rules;
	struct labels *to;
	int n, err;
};

/* Write a value as a text; "": it is none of those that make labels. */
static int value_text(struct uw_bytes any, char out[OTEL_CONTEXT_VALUE + 1])
{
	struct field f;
	double number;
	char *text;

	*out = '\0';
	while (next_field(&any, &f)) {
		size_t size = f.wire == WIRE_BYTES ? uw_bytes_left(&f.inside) : 0;

		*out = '\0'; /* of several values the last one counts */
		if (f.number == ANY_BOOL && f.wire == WIRE_VARINT) {
			(void)strcpy(out, f.value ? "true" : "false");
		} else if (f.number == ANY_INT && f.wire == WIRE_VARINT) {
			(void)snprintf(out, OTEL_CONTEXT_VALUE, "%" PRId64, (int64_t)f.value);
		} else if (f.number == ANY_DOUBLE && f.wire == WIRE_64) {
			memcpy(&number, &f.value, sizeof(number));
			(void)snprintf(out, OTEL_CONTEXT_VALUE, "%.15g", number);
		} else if (f.number == ANY_STRING && size && size <= OTEL_CONTEXT_VALUE) {
			/* Bytes that are no text become longer. */
			text = sym_sanitize((const char *)f.inside.pos, size, 3 * size);
			if (!text)
				return -ENOMEM;
			if (strlen(text) <= OTEL_CONTEXT_VALUE)
				(void)strcpy(out, text);
			free(text);
		}
	}
	return 0;
}

static void take_attribute(struct decoding *d, struct uw_bytes pair)
{
	char key[LABELS_KEY_MAX + 1] = "", value[OTEL_CONTEXT_VALUE + 1] = "";
	const char *name;
	struct field f;

	if (d->err || d->n == OTEL_CONTEXT_LABELS)
		return;
	while (!d->err && next_field(&pair, &f)) {
		size_t size = f.wire == WIRE_BYTES ? uw_bytes_left(&f.inside) : 0;

		if (f.number == KEY_VALUE_VALUE && f.wire == WIRE_BYTES)
			d->err = value_text(f.inside, value);
		if (f.number != KEY_VALUE_KEY || f.wire != WIRE_BYTES)
			continue;
		*key = '\0';
		if (labels_key_is_sound((const char *)f.inside.pos, size)) {
			memcpy(key, f.inside.pos, size);
			key[size] = '\0';
		}
	}
	name = strchr(key, '.') ? label_rules_name(d->rules, key) : NULL;
	if (!name || label_rules_are_own(d->rules, name) || labels_have(d->to->text, name) ||
	    !strncmp(key, of_threads, sizeof(of_threads) - 1))
		return;
	d->n += labels_add(d->to, d->rules, key, value);
}

/*
 * Return whether a message is a KeyValue and not a Resource: the second field of the one is a message,
 * of the other a number.
 */
static bool is_pair(struct uw_bytes message)
{
	struct field f;

	while (next_field(&message, &f))
		if (f.number == KEY_VALUE_VALUE && f.wire == WIRE_BYTES)
			return true;
	return false;
}

/* opentelemetry.proto.resource.v1.Resource: the first field is an attribute, each time. */
static void take_resource(struct decoding *d, struct uw_bytes resource)
{
	struct field f;

	while (next_field(&resource, &f))
		if (f.number == 1 && f.wire == WIRE_BYTES)
			take_attribute(d, f.inside);
}

/*
 * opentelemetry.proto.processcontext.v1development.ProcessContext: the first field is the resource, the
 * second a further attribute, each time. In a Resource the first field is an attribute itself.
 */
int otel_context_decode(const void *bytes, size_t size, const struct label_rules *rules,
			struct labels *to)
{
	struct decoding d = { .rules = rules, .to = to };
	struct uw_bytes payload = uw_bytes_of(bytes, size);
	struct field f;

	while (next_field(&payload, &f)) {
		if (f.wire != WIRE_BYTES)
			continue;
		if (f.number == 2 || (f.number == 1 && is_pair(f.inside)))
			take_attribute(&d, f.inside);
		else if (f.number == 1)
			take_resource(&d, f.inside);
	}
	return d.err ? d.err : d.n;
}

/* ---- threads ----------------------------------------------------------------------------- */

static bool is_text(const struct uw_bytes *b, const char *text)
{
	size_t n = strlen(text);

	return uw_bytes_left(b) == n && !memcmp(b->pos, text, n);
}

/* Take the names of keys: the values of a list, in their order. */
static void take_keys(const uint8_t *payload, struct uw_bytes any, struct otel_context_keys *out)
{
	struct field array, value, text;

	while (next_field(&any, &array)) {
		if (array.number != ANY_ARRAY || array.wire != WIRE_BYTES)
			continue;
		out->n = 0;
		while (next_field(&array.inside, &value) && out->n < OTEL_CONTEXT_KEYS) {
			size_t key = out->n, size;

			if (value.number != 1 || value.wire != WIRE_BYTES)
				continue;
			out->keys[key].size = 0;
			out->n++;
			while (next_field(&value.inside, &text)) {
				size = text.wire == WIRE_BYTES ? uw_bytes_left(&text.inside) : 0;
				if (text.number != ANY_STRING ||
				    text.inside.pos - payload > UINT16_MAX ||
				    !labels_key_is_sound((const char *)text.inside.pos, size))
					continue;
				out->keys[key].at = (uint16_t)(text.inside.pos - payload);
				out->keys[key].size = (uint16_t)size;
			}
		}
	}
}

/* Take an attribute, if it is one of those that are for readers of threads. */
static void take_threads(const uint8_t *payload, struct uw_bytes pair,
			 struct otel_context_keys *out)
{
	struct uw_bytes key = { .pos = NULL }, value = { .pos = NULL }, any;
	struct field f;

	while (next_field(&pair, &f)) {
		if (f.wire == WIRE_BYTES && f.number == KEY_VALUE_KEY)
			key = f.inside;
		if (f.wire == WIRE_BYTES && f.number == KEY_VALUE_VALUE)
			value = f.inside;
	}
	if (is_text(&key, "threadlocal.attribute_key_map"))
		take_keys(payload, value, out);
	any = value;
	while (is_text(&key, "threadlocal.schema_version") && next_field(&any, &f))
		if (f.number == ANY_STRING && f.wire == WIRE_BYTES)
			out->published = is_text(&f.inside, "tls_v1") ||
					 is_text(&f.inside, "tlsdesc_v1_dev");
}

void otel_context_threads(const void *bytes, size_t size, struct otel_context_keys *out)
{
	struct uw_bytes payload = uw_bytes_of(bytes, size), resource;
	struct field f, attribute;

	*out = (struct otel_context_keys){ .n = 0 };
	while (next_field(&payload, &f)) {
		if (f.wire != WIRE_BYTES)
			continue;
		if (f.number == 2 || (f.number == 1 && is_pair(f.inside))) {
			take_threads(bytes, f.inside, out);
			continue;
		}
		resource = f.inside;
		while (f.number == 1 && next_field(&resource, &attribute))
			if (attribute.number == 1 && attribute.wire == WIRE_BYTES)
				take_threads(bytes, attribute.inside, out);
	}
}
