/* agent/send/otlp_encode.c: encodes samples as OTLP profiles. */
#include "agent/send/otlp_encode.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/history/history.h"
#include "agent/send/attributes.h"
#include "proto/arena.h"
#include "proto/otlp.pb-c.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

/* What becomes a message of OTLP_BYTES_MAX takes about 32 MiB; what takes more than this is too much for one message. */
#define ARENA_MAX ((size_t)128 << 20)

/* A table of the dictionary, or another list: pointers to messages. Element 0 means "none". */
struct table {
	void **items;
	size_t n, room;
	ProtobufCBinaryData *packed; /* of intern: each element's bytes, in the arena */
	size_t room_packed;
	struct uw_hash_index index;
};

/* Where a location of stacks is in the table, in programs of one kind. */
struct placed_location {
	uint32_t from;
	int32_t kind, at;
};

/* The samples of one process. */
struct resource {
	uint32_t *labels; /* ids, in their order */
	size_t n_labels;
	Otlp__Profile **profiles; /* by sample type; NULL: none */
	struct table *samples;	  /* by sample type */
};

struct encoding {
	const struct send_window *w;
	const struct stacks *s;
	struct htlhashes *hashes; /* NULL: none */
	struct arena arena;
	struct table strings, attributes, functions, mappings, locations, stacks, links;
	int32_t *function_of, *mapping_of; /* by index in stacks; 0: not yet */
	struct placed_location *placed;
	size_t n_placed, room_placed;
	struct uw_hash_index by_location;
	struct resource *resources;
	size_t n_resources, room_resources;
	struct uw_hash_index by_labels;
	uint32_t *labels; /* of the process, of the sample that is encoded */
	int32_t *ids;
	size_t room_labels, room_ids;
	bool timed; /* samples have times, and each has a value of its own */
	int err;    /* the first error */
};

/* ---- tables ------------------------------------------------------------------------------ */

/* Allocate memory that lasts as long as the encoding; NULL after an error. */
static void *new_bytes(struct encoding *e, size_t size)
{
	void *bytes = e->err ? NULL : arena_alloc(&e->arena, size ? size : 1);

	if (!bytes && !e->err)
		e->err = e->arena.full ? -EFBIG : -ENOMEM;
	return bytes;
}

#define NEW(e, type, init) ((type *)new_message(e, &(const type)init, sizeof(type)))

static void *new_message(struct encoding *e, const void *init, size_t size)
{
	void *message = new_bytes(e, size);

	if (message)
		memcpy(message, init, size);
	return message;
}

/* Append an element, and return its place; 0 after an error. */
static int32_t append(struct encoding *e, struct table *t, void *item)
{
	if (!e->err && t->n >= INT32_MAX)
		e->err = -EFBIG;
	if (!e->err)
		e->err = array_grow(t->items, t->n, t->room);
	if (e->err || !item)
		return 0;
	t->items[t->n] = item;
	return (int32_t)t->n++;
}

/* Append an element that is looked up by a hash. */
static int32_t append_found(struct encoding *e, struct table *t, uint64_t hash, void *item)
{
	int32_t at = append(e, t, item);

	if (!e->err)
		e->err = uw_hash_add(&t->index, hash, (uint32_t)at);
	return at;
}

/*
 * Append a message unless an equal one is there. What differs in stacks may be the same here, where less is
 * said of it.
 */
static int32_t intern(struct encoding *e, struct table *t, const ProtobufCMessage *m)
{
	size_t size = e->err ? 0 : protobuf_c_message_get_packed_size(m);
	uint8_t *bytes = new_bytes(e, size);
	uint64_t hash;
	uint32_t at;

	if (!bytes)
		return 0;
	(void)protobuf_c_message_pack(m, bytes);
	hash = hash_bytes(size, bytes, size);
	at = UW_HASH_FIND(i, &t->index, hash,
			  t->packed[i].len == size && !memcmp(t->packed[i].data, bytes, size));
	if (at != UW_HASH_NONE)
		return (int32_t)at;
	e->err = array_reserve(t->packed, t->n + 1, t->room_packed);
	if (e->err)
		return 0;
	t->packed[t->n] = (ProtobufCBinaryData){ size, bytes };
	return append_found(e, t, hash, (void *)(uintptr_t)m);
}

static void table_fini(struct table *t)
{
	free(t->packed);
	free(t->items);
	uw_hash_fini(&t->index);
}

static char *copy_text(struct encoding *e, const char *string)
{
	size_t size = strlen(string) + 1;
	char *copy = new_bytes(e, size);

	if (copy)
		memcpy(copy, string, size);
	return copy;
}

/* Return the place of a text in the table. */
static int32_t text(struct encoding *e, const char *string)
{
	uint64_t hash = hash_bytes(0, string, strlen(string));
	uint32_t at =
		UW_HASH_FIND(i, &e->strings.index, hash, !strcmp(e->strings.items[i], string));

	if (!*string)
		return 0;
	return at != UW_HASH_NONE ? (int32_t)at
				  : append_found(e, &e->strings, hash, copy_text(e, string));
}

/* Return a value that is a text, or a number if string is NULL. */
static Otlp__AnyValue *value_of(struct encoding *e, const char *string, int64_t number)
{
	Otlp__AnyValue *v = NEW(e, Otlp__AnyValue, OTLP__ANY_VALUE__INIT);

	if (!v)
		return NULL;
	if (string) {
		v->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
		v->string_value = copy_text(e, string);
	} else {
		v->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
		v->int_value = number;
	}
	return v;
}

static bool is_attribute(const Otlp__Attribute *a, int32_t key, const char *string, int64_t number)
{
	if (a->key_strindex != key)
		return false;
	if (!string)
		return a->value->value_case == OTLP__ANY_VALUE__VALUE_INT_VALUE &&
		       a->value->int_value == number;
	return a->value->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE &&
	       !strcmp(a->value->string_value, string);
}

/* Return the place of an attribute, whose value is a text, or a number if string is NULL. */
static int32_t attribute(struct encoding *e, const char *name, const char *string, int64_t number)
{
	int32_t key = text(e, name);
	uint64_t hash = string ? hash_bytes((uint64_t)key, string, strlen(string))
			       : hash_u64((uint64_t)key, (uint64_t)number);
	uint32_t at = UW_HASH_FIND(i, &e->attributes.index, hash,
				   is_attribute(e->attributes.items[i], key, string, number));
	Otlp__Attribute *a;

	if (at != UW_HASH_NONE)
		return (int32_t)at;
	a = NEW(e, Otlp__Attribute, OTLP__ATTRIBUTE__INIT);
	if (!a)
		return 0;
	a->key_strindex = key;
	a->value = value_of(e, string, number);
	return append_found(e, &e->attributes, hash, a);
}

/* Return a list of one number. */
static int32_t *list_of_one(struct encoding *e, int32_t number)
{
	int32_t *list = new_bytes(e, sizeof(*list));

	if (list)
		*list = number;
	return list;
}

/* ---- frames ------------------------------------------------------------------------------ */

/* A mapping is known by its build-id; the published rules allow none without. */
static int32_t mapping(struct encoding *e, uint32_t index)
{
	const struct stacks_module *m = &e->s->modules[index];
	const char *hash;
	Otlp__Mapping *to;

	if (e->mapping_of[index] || !*m->build_id)
		return e->mapping_of[index];
	to = NEW(e, Otlp__Mapping, OTLP__MAPPING__INIT);
	if (!to)
		return 0;
	to->memory_start = m->start;
	to->memory_limit = m->limit;
	to->file_offset = m->off;
	to->filename_strindex = text(e, m->path);
	to->attribute_indices = new_bytes(e, 2 * sizeof(*to->attribute_indices));
	if (!to->attribute_indices)
		return 0;
	to->attribute_indices[to->n_attribute_indices++] =
		attribute(e, "process.executable.build_id.gnu", m->build_id, 0);
	hash = e->hashes ? htlhash_of(e->hashes, m) : NULL;
	if (hash)
		to->attribute_indices[to->n_attribute_indices++] =
			attribute(e, "process.executable.build_id.htlhash", hash, 0);
	return e->mapping_of[index] = intern(e, &e->mappings, &to->base);
}

static int32_t function(struct encoding *e, uint32_t index)
{
	const struct stacks_function *f = &e->s->functions[index];
	Otlp__Function *to;

	if (e->function_of[index])
		return e->function_of[index];
	to = NEW(e, Otlp__Function, OTLP__FUNCTION__INIT);
	if (!to)
		return 0;
	to->name_strindex = text(e, f->name);
	to->system_name_strindex = text(e, f->system_name);
	to->filename_strindex = text(e, f->file);
	to->start_line = f->start_line;
	return e->function_of[index] = intern(e, &e->functions, &to->base);
}

static void put_lines(struct encoding *e, const struct stacks_location *l, Otlp__Location *to)
{
	const struct stacks_line *from = &e->s->lines[l->first_line];

	to->lines = new_bytes(e, l->n_lines * sizeof(Otlp__Line *));
	for (uint32_t i = 0; i < l->n_lines && !e->err; i++) {
		to->lines[i] = NEW(e, Otlp__Line, OTLP__LINE__INIT);
		if (!to->lines[i])
			break;
		to->lines[i]->function_index = function(e, from[i].function);
		to->lines[i]->line = from[i].line;
		to->n_lines = i + 1;
	}
}

/*
 * Return the place of a location. The same location of generated code is of another kind in another
 * program. A name that is only a place is left to receivers, who have the mapping and the address.
 */
static int32_t location(struct encoding *e, uint32_t index, const char *program)
{
	const struct stacks_location *l = &e->s->locations[index];
	const char *type = attribute_frame_type(&e->s->modules[l->module], program);
	int32_t kind = attribute(e, "profile.frame.type", type, 0), file = mapping(e, l->module);
	uint64_t hash = hash_u64((uint64_t)kind, index);
	uint32_t known = UW_HASH_FIND(i, &e->by_location, hash,
				      e->placed[i].from == index && e->placed[i].kind == kind);
	Otlp__Location *to;
	int32_t at;

	if (known != UW_HASH_NONE)
		return e->placed[known].at;
	to = NEW(e, Otlp__Location, OTLP__LOCATION__INIT);
	if (!to)
		return 0;
	to->mapping_index = file;
	to->address = l->address;
	if (!file || !e->s->functions[e->s->lines[l->first_line].function].placed)
		put_lines(e, l, to);
	to->attribute_indices = list_of_one(e, kind);
	to->n_attribute_indices = 1;
	at = intern(e, &e->locations, &to->base);
	if (!e->err)
		e->err = array_grow(e->placed, e->n_placed, e->room_placed);
	if (!e->err)
		e->err = uw_hash_add(&e->by_location, hash, (uint32_t)e->n_placed);
	if (!e->err)
		e->placed[e->n_placed++] = (struct placed_location){ index, kind, at };
	return at;
}

static int32_t stack(struct encoding *e, const struct stacks_sample *sample)
{
	const char *program = attribute_program(e->s, sample);
	size_t n = sample->n_locations, size = n * sizeof(int32_t);
	uint64_t hash;
	uint32_t at;
	Otlp__Stack *to;

	if (!e->err)
		e->err = array_reserve(e->ids, n, e->room_ids);
	for (size_t i = 0; i < n && !e->err; i++)
		e->ids[i] = location(e, e->s->location_ids[sample->first_location + i], program);
	if (e->err || !n)
		return 0;
	hash = hash_bytes(n, e->ids, size);
	at = UW_HASH_FIND(i, &e->stacks.index, hash,
			  ((Otlp__Stack *)e->stacks.items[i])->n_location_indices == n &&
				  !memcmp(((Otlp__Stack *)e->stacks.items[i])->location_indices,
					  e->ids, size));
	if (at != UW_HASH_NONE)
		return (int32_t)at;
	to = NEW(e, Otlp__Stack, OTLP__STACK__INIT);
	if (to && (to->location_indices = new_bytes(e, size))) {
		memcpy(to->location_indices, e->ids, size);
		to->n_location_indices = n;
	}
	return append_found(e, &e->stacks, hash, to);
}

/* ---- processes --------------------------------------------------------------------------- */

/* Add an attribute to a list of the process. */
static void put_attribute(struct encoding *e, struct table *list, const char *key,
			  const char *string, int64_t number)
{
	Otlp__KeyValue *to = NEW(e, Otlp__KeyValue, OTLP__KEY_VALUE__INIT);

	if (!to)
		return;
	to->key = copy_text(e, key);
	to->value = value_of(e, string, number);
	(void)append(e, list, to);
}

static Otlp__Resource *describe(struct encoding *e, const struct resource *r,
				const struct stacks_sample *sample)
{
	Otlp__Resource *to = NEW(e, Otlp__Resource, OTLP__RESOURCE__INIT);
	const char *program = attribute_program(e->s, sample);
	struct table list = { .n = 0 };
	char name[128], service[256];
	bool has_host = false;

	if (!to)
		return NULL;
	put_attribute(e, &list, "service.name", attribute_service(e->s, sample, service), 0);
	if (*program)
		put_attribute(e, &list, "process.executable.name", program, 0);
	for (size_t i = 0; i < r->n_labels; i++) {
		const struct stacks_label *l = &e->s->labels[r->labels[i]];

		has_host |= !strcmp(l->key, "host");
		if (strcmp(l->key, "service.name") != 0)
			put_attribute(e, &list, attribute_name(l->key, name), l->text, l->number);
	}
	if (!has_host)
		put_attribute(e, &list, "host.name", e->w->host, 0);
	to->attributes = new_bytes(e, list.n * sizeof(*to->attributes));
	if (to->attributes && list.n) {
		memcpy(to->attributes, list.items, list.n * sizeof(*to->attributes));
		to->n_attributes = list.n;
	}
	table_fini(&list);
	return to;
}

static bool has_labels(const struct resource *r, const uint32_t *labels, size_t n)
{
	return r->n_labels == n && (!n || !memcmp(r->labels, labels, n * sizeof(*labels)));
}

/* Find the process of a sample, or add it. NULL after an error. */
static struct resource *resource_of(struct encoding *e, const struct stacks_sample *sample)
{
	struct resource *r;
	size_t n = 0;
	uint64_t hash;
	uint32_t at;

	if (!e->err)
		e->err = array_reserve(e->labels, (size_t)sample->n_labels, e->room_labels);
	for (uint32_t i = 0; i < sample->n_labels && !e->err; i++) {
		uint32_t id = e->s->label_ids[sample->first_label + i];

		if (attribute_is_of_process(e->s->labels[id].key, e->w->of_threads))
			e->labels[n++] = id;
	}
	if (e->err)
		return NULL;
	hash = hash_bytes(n, e->labels, n * sizeof(*e->labels));
	at = UW_HASH_FIND(i, &e->by_labels, hash, has_labels(&e->resources[i], e->labels, n));
	if (at != UW_HASH_NONE)
		return &e->resources[at];
	e->err = array_grow(e->resources, e->n_resources, e->room_resources);
	if (e->err)
		return NULL;
	r = &e->resources[e->n_resources];
	*r = (struct resource){ .profiles = NULL };
	r->profiles = calloc(e->s->n_types + 1, sizeof(*r->profiles));
	r->samples = calloc(e->s->n_types + 1, sizeof(*r->samples));
	e->n_resources++;
	if (!r->profiles || !r->samples)
		e->err = -ENOMEM;
	r->labels = new_bytes(e, n * sizeof(*r->labels));
	if (r->labels && n)
		memcpy(r->labels, e->labels, n * sizeof(*r->labels));
	r->n_labels = n;
	if (!e->err)
		e->err = uw_hash_add(&e->by_labels, hash, (uint32_t)e->n_resources - 1);
	return e->err ? NULL : r;
}

/* ---- samples ----------------------------------------------------------------------------- */

static Otlp__ValueType *type_of(struct encoding *e, const struct stacks_type *type)
{
	Otlp__ValueType *to = NEW(e, Otlp__ValueType, OTLP__VALUE_TYPE__INIT);

	if (to) {
		to->type_strindex = text(e, type->type);
		to->unit_strindex = text(e, type->unit);
	}
	return to;
}

/* Read n bytes from a label that has them in hexadecimal digits, and nothing else. */
static bool read_id(const struct stacks_label *l, uint8_t *out, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	if (!l || !l->text || strlen(l->text) != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++) {
		const char *high = strchr(digits, l->text[2 * i]),
			   *low = strchr(digits, l->text[2 * i + 1]);

		if (!high || !low)
			return false;
		out[i] = (uint8_t)((size_t)(high - digits) << 4 | (size_t)(low - digits));
	}
	return true;
}

enum { TRACE_BYTES = 16, SPAN_BYTES = 8 };

/* Return the link to the trace and the span that a sample's thread worked for; 0: it has none. */
static int32_t link_of(struct encoding *e, const struct stacks_sample *sample)
{
	Otlp__Link *link;
	uint8_t ids[TRACE_BYTES + SPAN_BYTES];

	if (!read_id(stacks_label(e->s, sample, "trace_id"), ids, TRACE_BYTES) ||
	    !read_id(stacks_label(e->s, sample, "span_id"), ids + TRACE_BYTES, SPAN_BYTES))
		return 0;
	link = NEW(e, Otlp__Link, OTLP__LINK__INIT);
	if (!link || !(link->trace_id.data = new_bytes(e, sizeof(ids))))
		return 0;
	memcpy(link->trace_id.data, ids, sizeof(ids));
	link->trace_id.len = TRACE_BYTES;
	link->span_id = (ProtobufCBinaryData){ SPAN_BYTES, link->trace_id.data + TRACE_BYTES };
	return intern(e, &e->links, &link->base);
}

static int compare_ids(const void *a, const void *b) /* for qsort */
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

/*
 * Put the attributes of a sample together: what is not of its process, and not in its link. Return their number, in
 * e->ids. They are a set: samples whose labels come in another order have the same ones, in the same order.
 */
static size_t sample_attributes(struct encoding *e, const struct stacks_sample *sample,
				int32_t link)
{
	char name[128];
	size_t n = 0;

	if (!e->err)
		e->err = array_reserve(e->ids, (size_t)sample->n_labels, e->room_ids);
	for (uint32_t i = 0; i < sample->n_labels && !e->err; i++) {
		const struct stacks_label *l =
			&e->s->labels[e->s->label_ids[sample->first_label + i]];

		bool linked = link && (!strcmp(l->key, "trace_id") || !strcmp(l->key, "span_id"));

		if (!linked && !attribute_is_of_process(l->key, e->w->of_threads) &&
		    strcmp(l->key, HISTORY_TIME_LABEL) != 0)
			e->ids[n++] =
				attribute(e, attribute_name(l->key, name), l->text, l->number);
	}
	if (n > 1)
		qsort(e->ids, n, sizeof(*e->ids), compare_ids);
	return n;
}

/*
 * An id that follows from the window, the process and the sample type: a receiver can tell a profile that
 * was sent twice.
 */
static void set_id(struct encoding *e, Otlp__Profile *p, size_t from, size_t resource, size_t type)
{
	const uint64_t numbers[] = { (uint64_t)e->w->id, e->w->start_ns,
				     e->w->end_ns,	 from,
				     resource,		 type };
	struct sha256_ctx sha;

	p->profile_id.data = new_bytes(e, 16);
	if (!p->profile_id.data)
		return;
	sha256_init(&sha);
	sha256_update(&sha, strlen(e->w->host), (const uint8_t *)e->w->host);
	sha256_update(&sha, sizeof(numbers), (const uint8_t *)numbers);
	sha256_digest(&sha, 16, p->profile_id.data);
	p->profile_id.len = 16;
}

/* What makes a sample one of its profile. */
struct identity {
	int32_t stack, link;
	int32_t *attributes;
	size_t n;
	uint64_t hash;
	uint64_t time_ns; /* not a part of it */
};

static bool is_sample(const Otlp__Sample *s, const struct identity *id)
{
	return s->stack_index == id->stack && s->link_index == id->link &&
	       s->n_attribute_indices == id->n &&
	       (!id->n || !memcmp(s->attribute_indices, id->attributes, id->n * sizeof(int32_t)));
}

/* When a sample was taken; of a window whose samples are summed, when that began. */
static uint64_t time_of(const struct encoding *e, const struct stacks_sample *sample)
{
	const struct stacks_label *l = stacks_label(e->s, sample, HISTORY_TIME_LABEL);

	return l && !l->text && l->number > 0 ? (uint64_t)l->number : e->w->start_ns;
}

/* Append a value with its time to a sample. Both arrays have room for the next power of two. */
static void append_timed(struct encoding *e, Otlp__Sample *to, int64_t value, uint64_t time_ns)
{
	size_t n = to->n_values;

	if (!(n & (n - 1))) {
		int64_t *values = new_bytes(e, (n ? 2 * n : 1) * sizeof(*values));
		uint64_t *times = new_bytes(e, (n ? 2 * n : 1) * sizeof(*times));

		if (!values || !times)
			return;
		if (n) {
			memcpy(values, to->values, n * sizeof(*values));
			memcpy(times, to->timestamps_unix_nano, n * sizeof(*times));
		}
		to->values = values;
		to->timestamps_unix_nano = times;
	}
	to->values[n] = value;
	to->timestamps_unix_nano[n] = time_ns;
	to->n_values = to->n_timestamps_unix_nano = n + 1;
}

/* Add a sample's value of one type to its process. */
static void put_value(struct encoding *e, struct resource *r, size_t type, int64_t value,
		      const struct identity *id)
{
	struct table *t = &r->samples[type];
	uint32_t at = UW_HASH_FIND(i, &t->index, id->hash, is_sample(t->items[i], id));
	Otlp__Sample *to;

	if (at != UW_HASH_NONE) {
		to = t->items[at];
		if (e->timed)
			append_timed(e, to, value, id->time_ns);
		else
			*to->values = stacks_sum(*to->values, value);
		return;
	}
	to = NEW(e, Otlp__Sample, OTLP__SAMPLE__INIT);
	if (!r->profiles[type])
		r->profiles[type] = NEW(e, Otlp__Profile, OTLP__PROFILE__INIT);
	if (!to || !r->profiles[type])
		return;
	to->stack_index = id->stack;
	to->link_index = id->link;
	to->attribute_indices = id->attributes;
	to->n_attribute_indices = id->n;
	if (e->timed)
		append_timed(e, to, value, id->time_ns);
	else if ((to->values = new_bytes(e, sizeof(*to->values))))
		*to->values = value;
	if (!to->values)
		return;
	to->n_values = 1;
	(void)append_found(e, t, id->hash, to);
}

static void put_sample(struct encoding *e, size_t index)
{
	const struct stacks_sample *sample = &e->s->samples[index];
	struct resource *r = resource_of(e, sample);
	struct identity id = { .stack = r ? stack(e, sample) : 0,
			       .time_ns = e->timed ? time_of(e, sample) : 0 };

	id.link = r ? link_of(e, sample) : 0;
	id.n = r ? sample_attributes(e, sample, id.link) : 0;
	id.attributes = new_bytes(e, id.n * sizeof(*id.attributes));
	if (!id.attributes)
		return;
	if (id.n)
		memcpy(id.attributes, e->ids, id.n * sizeof(*id.attributes));
	id.hash = hash_bytes((uint64_t)id.link << 32 | (uint32_t)id.stack, id.attributes,
			     id.n * sizeof(*id.attributes));
	for (size_t t = 0; t < e->s->n_types; t++) {
		int64_t value = stacks_value(e->s, index, t);

		if (value)
			put_value(e, r, t, value, &id);
	}
}

/* ---- the message ------------------------------------------------------------------------- */

/* Element 0 of each table. */
static void put_zeros(struct encoding *e)
{
	Otlp__Link *link = NEW(e, Otlp__Link, OTLP__LINK__INIT);
	char *empty = new_bytes(e, 1);

	if (empty)
		*empty = '\0';
	(void)append(e, &e->strings, empty);
	(void)append(e, &e->attributes, NEW(e, Otlp__Attribute, OTLP__ATTRIBUTE__INIT));
	(void)append(e, &e->functions, NEW(e, Otlp__Function, OTLP__FUNCTION__INIT));
	(void)append(e, &e->mappings, NEW(e, Otlp__Mapping, OTLP__MAPPING__INIT));
	(void)append(e, &e->locations, NEW(e, Otlp__Location, OTLP__LOCATION__INIT));
	(void)append(e, &e->stacks, NEW(e, Otlp__Stack, OTLP__STACK__INIT));
	if (link && (link->trace_id.data = new_bytes(e, TRACE_BYTES + SPAN_BYTES))) {
		memset(link->trace_id.data, 0, TRACE_BYTES + SPAN_BYTES);
		link->trace_id.len = TRACE_BYTES;
		link->span_id =
			(ProtobufCBinaryData){ SPAN_BYTES, link->trace_id.data + TRACE_BYTES };
	}
	(void)append(e, &e->links, link);
}

/* Put the profiles of a process together. Return their number. */
static size_t put_profiles(struct encoding *e, size_t number, size_t from, Otlp__ScopeProfiles *to)
{
	struct resource *r = &e->resources[number];
	size_t n = 0;

	to->profiles = new_bytes(e, e->s->n_types * sizeof(*to->profiles));
	for (size_t t = 0; t < e->s->n_types && !e->err; t++) {
		Otlp__Profile *p = r->profiles[t];

		if (!p)
			continue;
		p->sample_type = type_of(e, &e->s->types[t]);
		p->samples = (Otlp__Sample **)r->samples[t].items;
		p->n_samples = r->samples[t].n;
		p->time_unix_nano = e->w->start_ns;
		p->duration_nano = e->w->end_ns - e->w->start_ns;
		set_id(e, p, from, number, t);
		to->profiles[n++] = p;
	}
	to->n_profiles = n;
	return n;
}

/* Describe each process of the samples [from, to), by its first sample. */
static void describe_all(struct encoding *e, size_t from, size_t to, Otlp__Resource **out)
{
	for (size_t i = from; i < to && !e->err; i++) {
		const struct resource *r = resource_of(e, &e->s->samples[i]);
		size_t at = r ? (size_t)(r - e->resources) : 0;

		if (r && !out[at])
			out[at] = describe(e, r, &e->s->samples[i]);
	}
}

static size_t put_resources(struct encoding *e, size_t from, size_t to, Otlp__ExportRequest *out)
{
	Otlp__Resource **described = new_bytes(e, e->n_resources * sizeof(*described));
	Otlp__Scope *scope = NEW(e, Otlp__Scope, OTLP__SCOPE__INIT);
	static char name[] = "offwind", version[] = OFFWIND_VERSION;
	size_t n = 0;

	out->resource_profiles = new_bytes(e, e->n_resources * sizeof(*out->resource_profiles));
	if (!out->resource_profiles)
		return 0;
	scope->name = name;
	scope->version = version;
	memset(described, 0, e->n_resources * sizeof(*described));
	describe_all(e, from, to, described);
	for (size_t i = 0; i < e->n_resources && !e->err; i++) {
		Otlp__ResourceProfiles *r =
			NEW(e, Otlp__ResourceProfiles, OTLP__RESOURCE_PROFILES__INIT);
		Otlp__ScopeProfiles *s = NEW(e, Otlp__ScopeProfiles, OTLP__SCOPE_PROFILES__INIT);

		if (!r || !s || !(r->scope_profiles = new_bytes(e, sizeof(s))))
			break;
		r->resource = described[i];
		r->scope_profiles[0] = s;
		r->n_scope_profiles = 1;
		s->scope = scope;
		n += put_profiles(e, i, from, s);
		out->resource_profiles[out->n_resource_profiles++] = r;
	}
	return n;
}

static int pack(struct encoding *e, const Otlp__ExportRequest *request, uint8_t **bytes,
		size_t *size)
{
	*size = otlp__export_request__get_packed_size(request);
	if (*size > OTLP_BYTES_MAX)
		return -EFBIG;
	*bytes = malloc(*size + 1);
	if (!*bytes)
		return -ENOMEM;
	(void)otlp__export_request__pack(request, *bytes);
	return e->err;
}

static void fini(struct encoding *e)
{
	struct table *const tables[] = { &e->strings,	&e->attributes, &e->functions, &e->mappings,
					 &e->locations, &e->stacks,	&e->links };

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		table_fini(tables[i]);
	for (size_t i = 0; i < e->n_resources; i++) {
		struct resource *r = &e->resources[i];

		for (size_t t = 0; r->samples && t < e->s->n_types; t++)
			table_fini(&r->samples[t]);
		free(r->samples);
		free(r->profiles);
	}
	free(e->resources);
	uw_hash_fini(&e->by_labels);
	free(e->function_of);
	free(e->mapping_of);
	free(e->placed);
	uw_hash_fini(&e->by_location);
	free(e->labels);
	free(e->ids);
	arena_fini(&e->arena);
}

int otlp_encode(const struct otlp_part *part, uint8_t **bytes, size_t *size, size_t *n_profiles)
{
	struct encoding e = { .w = part->window,
			      .s = part->window->stacks,
			      .hashes = part->hashes };
	const size_t from = part->from, to = part->to;
	Otlp__ExportRequest request = OTLP__EXPORT_REQUEST__INIT;
	Otlp__Dictionary dictionary = OTLP__DICTIONARY__INIT;
	int err;

	arena_init(&e.arena, ARENA_MAX);
	e.function_of = calloc(e.s->n_functions + 1, sizeof(*e.function_of));
	e.mapping_of = calloc(e.s->n_modules + 1, sizeof(*e.mapping_of));
	if (!e.function_of || !e.mapping_of)
		e.err = -ENOMEM;
	for (size_t i = from; i < to && !e.timed; i++)
		e.timed = stacks_label(e.s, &e.s->samples[i], HISTORY_TIME_LABEL);
	put_zeros(&e);
	for (size_t i = from; i < to && !e.err; i++)
		put_sample(&e, i);
	*n_profiles = put_resources(&e, from, to, &request);
	request.dictionary = &dictionary;
#define TABLE(field, type, table) \
	(dictionary.field = (type **)(table).items, dictionary.n_##field = (table).n)
	TABLE(mapping_table, Otlp__Mapping, e.mappings);
	TABLE(location_table, Otlp__Location, e.locations);
	TABLE(function_table, Otlp__Function, e.functions);
	TABLE(link_table, Otlp__Link, e.links);
	TABLE(string_table, char, e.strings);
	TABLE(attribute_table, Otlp__Attribute, e.attributes);
	TABLE(stack_table, Otlp__Stack, e.stacks);
#undef TABLE
	err = e.err ? e.err : pack(&e, &request, bytes, size);
	fini(&e);
	return err;
}
