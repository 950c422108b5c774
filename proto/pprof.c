/* proto/pprof.c: encodes a pprof profile (proto/profile.proto) directly into its wire format. */
#include "proto/pprof.h"

#include "proto/arena.h"
#include "proto/utf8.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Messages are encoded at once when they are added, because a profile can have hundreds of
 * thousands. Each repeated field of the profile has a buffer of its own; the buffers are joined
 * when the profile is written.
 */
struct buffer {
	uint8_t *bytes;
	size_t n, room;
};

/*
 * A hash table with open addressing. A slot holds half of the hash and an index + 1; the user of
 * the table knows what the index refers to.
 */
struct table {
	struct slot {
		uint32_t hash;
		uint32_t index; /* 0: the slot is free */
	} * slots;
	size_t n, room; /* room: a power of two */
};

/* An object that is identified by up to four numbers. Its id is its index + 1. */
struct key {
	uint64_t part[4];
};

struct keys {
	struct key *items;
	size_t n, room;
	struct table table;
};

struct text {
	const char *bytes; /* in the arena, NUL-terminated */
	size_t size;
};

struct pprof {
	int err;
	struct arena arena;
	struct buffer types, samples, mappings, locations, functions, strings;
	struct buffer period_type, comments; /* comments: packed, without the field's header */
	size_t n_types, n_samples, n_mappings;
	struct keys location_keys, function_keys, label_keys;
	struct text *texts;
	size_t n_texts, room_texts;
	struct table string_table;
	int64_t default_sample_type, period, time_ns, duration_ns;
};

/* Store the first error. */
static void fail(struct pprof *p, int err)
{
	if (!p->err)
		p->err = err;
}

/* Allocate from the arena. Return NULL and store -ENOMEM on failure. */
static void *take(struct pprof *p, size_t size)
{
	void *memory = p->err ? NULL : arena_alloc(&p->arena, size);

	if (!memory)
		fail(p, -ENOMEM);
	return memory;
}

/*
 * Make room for one more element of size bytes behind the n existing ones. Return false on error.
 */
static bool grow(struct pprof *p, void **items, size_t n, size_t *room, size_t size)
{
	size_t bigger = *room ? *room * 2 : 64;
	void *moved;

	if (p->err)
		return false;
	if (n < *room)
		return true;
	moved = reallocarray(*items, bigger, size);
	if (!moved) {
		fail(p, -ENOMEM);
		return false;
	}
	*items = moved;
	*room = bigger;
	return true;
}

/* ---- the wire format (protobuf.dev/programming-guides/encoding) ----------- */

enum { VARINT = 0, LEN = 2 };
enum { VARINT_MAX = 10 };

/* Field numbers of profile.proto. */
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE,
	PROFILE_MAPPING,
	PROFILE_LOCATION,
	PROFILE_FUNCTION,
	PROFILE_STRING_TABLE,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS,
	PROFILE_PERIOD_TYPE,
	PROFILE_PERIOD,
	PROFILE_COMMENT,
	PROFILE_DEFAULT_SAMPLE_TYPE
};
enum { VALUE_TYPE_TYPE = 1, VALUE_TYPE_UNIT };
enum { SAMPLE_LOCATION_ID = 1, SAMPLE_VALUE, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_STR, LABEL_NUM, LABEL_NUM_UNIT };
enum {
	MAPPING_ID = 1,
	MAPPING_MEMORY_START,
	MAPPING_MEMORY_LIMIT,
	MAPPING_FILE_OFFSET,
	MAPPING_FILENAME,
	MAPPING_BUILD_ID,
	MAPPING_HAS_FUNCTIONS,
	MAPPING_HAS_FILENAMES,
	MAPPING_HAS_LINE_NUMBERS,
	MAPPING_HAS_INLINE_FRAMES
};
enum { LOCATION_ID = 1, LOCATION_MAPPING_ID, LOCATION_ADDRESS, LOCATION_LINE, LOCATION_IS_FOLDED };
enum { LINE_FUNCTION_ID = 1, LINE_LINE };
enum {
	FUNCTION_ID = 1,
	FUNCTION_NAME,
	FUNCTION_SYSTEM_NAME,
	FUNCTION_FILENAME,
	FUNCTION_START_LINE
};

/* Size limit of a message that has only numbers. The largest is a mapping. */
enum { SMALL_MAX = 10 * (1 + VARINT_MAX) };

static size_t varint_size(uint64_t value)
{
	return (size_t)(70 - __builtin_clzll(value | 1)) / 7;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*at++ = (uint8_t)(value | 0x80);
	*at++ = (uint8_t)value;
	return at;
}

/* Write a field's tag. Fields up to 15 have a tag of one byte. */
static uint8_t *put_tag(uint8_t *at, unsigned int field, unsigned int type)
{
	*at++ = (uint8_t)(field << 3 | type);
	return at;
}

/* Return the size of a number field with its tag; zero is not written. */
static size_t number_size(uint64_t value)
{
	return value ? 1 + varint_size(value) : 0;
}

/* Write a number field. Zero is left out, because it is the default value for readers. */
static uint8_t *put_number(uint8_t *at, unsigned int field, uint64_t value)
{
	return value ? put_varint(put_tag(at, field, VARINT), value) : at;
}

/*
 * Append size bytes to the buffer and return their address, for the caller to fill. NULL on error.
 */
static uint8_t *more(struct pprof *p, struct buffer *b, size_t size)
{
	uint8_t *at;

	if (p->err)
		return NULL;
	if (size > b->room - b->n) {
		size_t room = b->room + b->room / 2 + size + 256;
		uint8_t *bytes = realloc(b->bytes, room);

		if (!bytes) {
			fail(p, -ENOMEM);
			return NULL;
		}
		b->bytes = bytes;
		b->room = room;
	}
	at = b->bytes + b->n;
	b->n += size;
	return at;
}

/*
 * Append the header of a message of size bytes and room for the message. Return the address of the
 * room, or NULL on error.
 */
static uint8_t *more_message(struct pprof *p, struct buffer *b, unsigned int field, size_t size)
{
	uint8_t *at = more(p, b, 1 + varint_size(size) + size);

	return at ? put_varint(put_tag(at, field, LEN), size) : NULL;
}

/* Append a message with the encoded fields [fields, end). */
static void add_message(struct pprof *p, struct buffer *b, unsigned int field,
			const uint8_t *fields, const uint8_t *end)
{
	uint8_t *at = more_message(p, b, field, (size_t)(end - fields));

	if (at)
		memcpy(at, fields, (size_t)(end - fields));
}

/* ---- lookup of existing objects ------------------------------------------------ */

/*
 * Hash eight bytes in each round. The hash only has to be good against accidental collisions. It
 * needs no secret seed, because a profile that is slow to build harms nobody.
 */
static uint64_t hash_bytes(const void *bytes, size_t size)
{
	const uint8_t *b = bytes;
	uint64_t h = size, word;

	for (; size >= 8; size -= 8, b += 8) {
		memcpy(&word, b, 8);
		h = (h ^ word) * 0x9e3779b97f4a7c15;
		h ^= h >> 32;
	}
	if (size) {
		word = 0;
		memcpy(&word, b, size);
		h = (h ^ word) * 0x9e3779b97f4a7c15;
		h ^= h >> 32;
	}
	h *= 0xd6e8feb86659fd93;
	return h ^ h >> 32;
}

/* Keep the table at most half full. Return false on error. */
static bool table_grow(struct pprof *p, struct table *t)
{
	size_t room = t->room ? t->room * 2 : 256;
	struct slot *slots;

	if (p->err)
		return false;
	if (t->n < t->room / 2)
		return true;
	if (t->n >= UINT32_MAX - 1) {
		fail(p, -ENOMEM);
		return false;
	}
	slots = calloc(room, sizeof(*slots));
	if (!slots) {
		fail(p, -ENOMEM);
		return false;
	}
	for (size_t i = 0; i < t->room; i++) {
		size_t at = t->slots[i].hash & (room - 1);

		if (!t->slots[i].index)
			continue;
		while (slots[at].index)
			at = (at + 1) & (room - 1);
		slots[at] = t->slots[i];
	}
	free(t->slots);
	t->slots = slots;
	t->room = room;
	return true;
}

typedef bool (*same_fn)(const struct pprof *p, uint64_t index, const void *key);

/* Return the slot of key, or the free slot that table_fill() is to fill; NULL on error. */
static struct slot *table_find(struct pprof *p, struct table *t, uint64_t hash, same_fn same,
			       const void *key)
{
	size_t at;

	if (!table_grow(p, t))
		return NULL;
	for (at = (uint32_t)hash & (t->room - 1); t->slots[at].index; at = (at + 1) & (t->room - 1))
		if (t->slots[at].hash == (uint32_t)hash && same(p, t->slots[at].index - 1, key))
			break;
	return &t->slots[at];
}

static void table_fill(struct table *t, struct slot *slot, uint64_t hash, uint64_t index)
{
	*slot = (struct slot){ (uint32_t)hash, (uint32_t)index + 1 };
	t->n++;
}

struct wanted {
	const struct keys *keys;
	const struct key *key;
};

static bool same_key(const struct pprof *p, uint64_t index, const void *ctx)
{
	const struct wanted *want = ctx;

	(void)p;
	return !memcmp(&want->keys->items[index], want->key, sizeof(*want->key));
}

/*
 * Return the id of key, which is added if needed; *fresh says whether it was added. Return 0 on
 * error.
 */
static uint64_t id_of(struct pprof *p, struct keys *keys, const struct key *key, bool *fresh)
{
	struct wanted want = { .keys = keys, .key = key };
	uint64_t hash = hash_bytes(key, sizeof(*key));
	struct slot *slot = table_find(p, &keys->table, hash, same_key, &want);
	void *items = keys->items;

	*fresh = false;
	if (!slot)
		return 0;
	if (slot->index)
		return slot->index;
	if (!grow(p, &items, keys->n, &keys->room, sizeof(*keys->items)))
		return 0;
	keys->items = items;
	keys->items[keys->n] = *key;
	table_fill(&keys->table, slot, hash, keys->n);
	*fresh = true;
	return ++keys->n;
}

static bool same_text(const struct pprof *p, uint64_t index, const void *key)
{
	const struct text *have = &p->texts[index], *want = key;

	return have->size == want->size && !memcmp(have->bytes, want->bytes, want->size);
}

/*
 * Add a new text to the string table, and fill its slot in the hash table. Return its index, or 0
 * on error.
 */
static uint64_t add_text(struct pprof *p, const struct text *text, uint64_t hash, struct slot *slot)
{
	void *items = p->texts;
	uint8_t *at;

	if (!grow(p, &items, p->n_texts, &p->room_texts, sizeof(*p->texts)))
		return 0;
	p->texts = items;
	at = more_message(p, &p->strings, PROFILE_STRING_TABLE, text->size);
	if (!at)
		return 0;
	if (text->size)
		memcpy(at, text->bytes, text->size);
	p->texts[p->n_texts] = *text;
	table_fill(&p->string_table, slot, hash, p->n_texts);
	return p->n_texts++;
}

/*
 * Return the index of a text in the string table; it is added, and repaired, if needed. Return 0
 * (the empty text) on error.
 */
static uint64_t intern(struct pprof *p, const char *string)
{
	struct text text = { .bytes = string ? string : "", .size = string ? strlen(string) : 0 };
	uint64_t hash;
	struct slot *slot;
	char *copy;

	if (!text.size && p->n_texts)
		return 0;
	/* Texts in the table are valid UTF-8, so only new texts must be checked. */
	hash = hash_bytes(text.bytes, text.size);
	slot = table_find(p, &p->string_table, hash, same_text, &text);
	if (!slot)
		return 0;
	if (slot->index)
		return slot->index - 1;
	if (!utf8_valid(text.bytes, text.size)) {
		copy = take(p, utf8_repaired_size(text.size));
		if (!copy)
			return 0;
		text.size = utf8_repair(string, text.size, copy);
		text.bytes = copy;
		hash = hash_bytes(text.bytes, text.size);
		slot = table_find(p, &p->string_table, hash, same_text, &text);
		if (!slot)
			return 0;
		return slot->index ? slot->index - 1 : add_text(p, &text, hash, slot);
	}
	copy = take(p, text.size + 1);
	if (!copy)
		return 0;
	memcpy(copy, text.bytes, text.size + 1);
	text.bytes = copy;
	return add_text(p, &text, hash, slot);
}

/* ---- building -------------------------------------------------------------------- */

int pprof_new(struct pprof **out)
{
	struct pprof *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	arena_init(&p->arena, SIZE_MAX);
	(void)intern(p, ""); /* string_table[0] must be "" */
	if (p->err) {
		err = p->err;
		pprof_free(p);
		return err;
	}
	*out = p;
	return 0;
}

static void keys_fini(struct keys *keys)
{
	free(keys->items);
	free(keys->table.slots);
}

void pprof_free(struct pprof *p)
{
	if (!p)
		return;
	free(p->types.bytes);
	free(p->samples.bytes);
	free(p->mappings.bytes);
	free(p->locations.bytes);
	free(p->functions.bytes);
	free(p->strings.bytes);
	free(p->period_type.bytes);
	free(p->comments.bytes);
	keys_fini(&p->location_keys);
	keys_fini(&p->function_keys);
	keys_fini(&p->label_keys);
	free(p->texts);
	free(p->string_table.slots);
	arena_fini(&p->arena);
	free(p);
}

/* Append a ValueType message (type and unit) as the given field. */
static void add_value_type(struct pprof *p, struct buffer *b, unsigned int field, const char *type,
			   const char *unit)
{
	uint8_t fields[SMALL_MAX], *end = fields;

	end = put_number(end, VALUE_TYPE_TYPE, intern(p, type));
	end = put_number(end, VALUE_TYPE_UNIT, intern(p, unit));
	add_message(p, b, field, fields, end);
}

void pprof_sample_type(struct pprof *p, const char *type, const char *unit)
{
	if (p->n_samples) {
		fail(p, -EINVAL);
		return;
	}
	add_value_type(p, &p->types, PROFILE_SAMPLE_TYPE, type, unit);
	p->n_types++;
}

void pprof_default_sample_type(struct pprof *p, const char *type)
{
	p->default_sample_type = (int64_t)intern(p, type);
}

void pprof_period(struct pprof *p, const char *type, const char *unit, int64_t period)
{
	p->period_type.n = 0;
	add_value_type(p, &p->period_type, PROFILE_PERIOD_TYPE, type, unit);
	p->period = period;
}

void pprof_time(struct pprof *p, int64_t wall_ns, int64_t duration_ns)
{
	p->time_ns = wall_ns;
	p->duration_ns = duration_ns;
}

void pprof_comment(struct pprof *p, const char *text)
{
	uint64_t index = intern(p, text);
	uint8_t *at = more(p, &p->comments, varint_size(index));

	if (at)
		(void)put_varint(at, index);
}

/* Append a mapping. named sets its has_functions to has_inline_frames flags. */
static uint64_t add_mapping(struct pprof *p, const struct pprof_mapping *mapping, bool named)
{
	uint8_t fields[SMALL_MAX], *end = fields;
	uint64_t id = p->n_mappings + 1;

	end = put_number(end, MAPPING_ID, id);
	end = put_number(end, MAPPING_MEMORY_START, mapping->start);
	end = put_number(end, MAPPING_MEMORY_LIMIT, mapping->limit);
	end = put_number(end, MAPPING_FILE_OFFSET, mapping->off);
	end = put_number(end, MAPPING_FILENAME, intern(p, mapping->file));
	end = put_number(end, MAPPING_BUILD_ID, intern(p, mapping->build_id));
	for (unsigned int has = MAPPING_HAS_FUNCTIONS; has <= MAPPING_HAS_INLINE_FRAMES; has++)
		end = put_number(end, has, named);
	add_message(p, &p->mappings, PROFILE_MAPPING, fields, end);
	if (p->err)
		return 0;
	p->n_mappings = id;
	return id;
}

uint64_t pprof_mapping(struct pprof *p, const struct pprof_mapping *mapping)
{
	return add_mapping(p, mapping, true);
}

uint64_t pprof_mapping_nameless(struct pprof *p, const struct pprof_mapping *mapping)
{
	return add_mapping(p, mapping, false);
}

uint64_t pprof_function_in(struct pprof *p, const struct pprof_function *f)
{
	uint64_t of_name = intern(p, f->name);
	struct key key = { { of_name, f->system_name ? intern(p, f->system_name) : of_name,
			     intern(p, f->file), (uint64_t)f->start_line } };
	uint8_t fields[SMALL_MAX], *end = fields;
	bool fresh;
	uint64_t id = id_of(p, &p->function_keys, &key, &fresh);

	if (!fresh)
		return id;
	end = put_number(end, FUNCTION_ID, id);
	end = put_number(end, FUNCTION_NAME, key.part[0]);
	end = put_number(end, FUNCTION_SYSTEM_NAME, key.part[1]);
	end = put_number(end, FUNCTION_FILENAME, key.part[2]);
	end = put_number(end, FUNCTION_START_LINE, key.part[3]);
	add_message(p, &p->functions, PROFILE_FUNCTION, fields, end);
	return id;
}

uint64_t pprof_function(struct pprof *p, const char *name, const char *system_name,
			const char *file)
{
	return pprof_function_in(
		p,
		&(struct pprof_function){ .name = name, .system_name = system_name, .file = file });
}

/* Return the size of an encoded Line message without its header. */
static size_t line_size(const struct pprof_line *line)
{
	return number_size(line->function) + number_size((uint64_t)line->line);
}

/*
 * Append a location. Unknown mappings and functions are an error (-EINVAL) of the caller. Return
 * id, or 0 on error.
 */
static uint64_t add_location(struct pprof *p, uint64_t id, const struct key *key,
			     const struct pprof_line *lines, size_t n_lines, bool folded)
{
	uint8_t fields[SMALL_MAX], *end = fields, *at;
	size_t size = 0;

	if (key->part[0] > p->n_mappings)
		fail(p, -EINVAL);
	for (size_t i = 0; i < n_lines; i++) {
		if (!lines[i].function || lines[i].function > p->function_keys.n)
			fail(p, -EINVAL);
		/* A line has at most 22 bytes, so its length takes one byte. */
		size += 2 + line_size(&lines[i]);
	}
	end = put_number(end, LOCATION_ID, id);
	end = put_number(end, LOCATION_MAPPING_ID, key->part[0]);
	end = put_number(end, LOCATION_ADDRESS, key->part[1]);
	at = more_message(p, &p->locations, PROFILE_LOCATION,
			  (size_t)(end - fields) + size + number_size(folded));
	if (!at)
		return 0;
	memcpy(at, fields, (size_t)(end - fields));
	at += end - fields;
	for (size_t i = 0; i < n_lines; i++) {
		at = put_varint(put_tag(at, LOCATION_LINE, LEN), line_size(&lines[i]));
		at = put_number(at, LINE_FUNCTION_ID, lines[i].function);
		at = put_number(at, LINE_LINE, (uint64_t)lines[i].line);
	}
	(void)put_number(at, LOCATION_IS_FOLDED, folded);
	return id;
}

uint64_t pprof_location(struct pprof *p, uint64_t mapping, uint64_t address,
			const struct pprof_line *lines, size_t n_lines)
{
	struct key key = { { mapping, address, n_lines ? lines[0].function : 0 } };
	bool fresh;
	uint64_t id;

	/*
	 * The key includes a hash of all lines. Two processes can map the same file, or generate
	 * code at the same address, and still have different names there.
	 */
	for (size_t i = 0; i < n_lines; i++) {
		const uint64_t line[] = { key.part[3], lines[i].function, (uint64_t)lines[i].line };

		key.part[3] = hash_bytes(line, sizeof(line));
	}
	id = id_of(p, &p->location_keys, &key, &fresh);
	if (!fresh)
		return p->err ? 0 : id;
	return add_location(p, id, &key, lines, n_lines, false);
}

uint64_t pprof_location_new(struct pprof *p, uint64_t mapping, uint64_t address,
			    const struct pprof_line *lines, size_t n_lines, bool folded)
{
	struct key key = { { mapping, address } };
	struct keys *keys = &p->location_keys;
	void *items = keys->items;

	if (!grow(p, &items, keys->n, &keys->room, sizeof(*keys->items)))
		return 0;
	keys->items = items;
	keys->items[keys->n++] = key;
	return add_location(p, keys->n, &key, lines, n_lines, folded);
}

/* Return the handle of a label. */
static uint64_t label(struct pprof *p, const char *name, uint64_t text, int64_t number,
		      uint64_t unit)
{
	struct key key = { { intern(p, name), text, (uint64_t)number, unit } };
	bool fresh;

	return id_of(p, &p->label_keys, &key, &fresh);
}

uint64_t pprof_label_text(struct pprof *p, const char *key, const char *text)
{
	return label(p, key, intern(p, text), 0, 0);
}

uint64_t pprof_label_number(struct pprof *p, const char *key, int64_t number)
{
	return label(p, key, 0, number, 0);
}

uint64_t pprof_label_quantity(struct pprof *p, const char *key, int64_t number, const char *unit)
{
	return label(p, key, 0, number, intern(p, unit));
}

/* Return the size of an encoded Label message without its header. */
static size_t label_size(const struct key *label)
{
	return number_size(label->part[0]) + number_size(label->part[1]) +
	       number_size(label->part[2]) + number_size(label->part[3]);
}

/* Return the size of a packed field of n bytes with its header; an empty field is left out. */
static size_t packed_size(size_t n)
{
	return n ? 1 + varint_size(n) + n : 0;
}

/* Write the header of a packed field of n bytes. */
static uint8_t *put_packed(uint8_t *at, unsigned int field, size_t n)
{
	return n ? put_varint(put_tag(at, field, LEN), n) : at;
}

/* Return whether all locations and labels of a sample exist. */
static bool sample_is_sound(const struct pprof *p, const struct pprof_sample *s)
{
	for (size_t i = 0; i < s->n_locations; i++)
		if (!s->locations[i] || s->locations[i] > p->location_keys.n)
			return false;
	for (size_t i = 0; i < s->n_labels; i++)
		if (!s->labels[i] || s->labels[i] > p->label_keys.n)
			return false;
	return true;
}

void pprof_sample(struct pprof *p, const struct pprof_sample *sample)
{
	size_t locations = 0, values = 0, labels = 0;
	uint8_t *at;

	if (!p->err && !sample_is_sound(p, sample))
		fail(p, -EINVAL);
	if (p->err)
		return;
	for (size_t i = 0; i < sample->n_locations; i++)
		locations += varint_size(sample->locations[i]);
	for (size_t i = 0; i < p->n_types; i++)
		values += varint_size((uint64_t)sample->values[i]);
	for (size_t i = 0; i < sample->n_labels; i++)
		labels += 2 + label_size(&p->label_keys.items[sample->labels[i] - 1]);
	at = more_message(p, &p->samples, PROFILE_SAMPLE,
			  packed_size(locations) + packed_size(values) + labels);
	if (!at)
		return;
	at = put_packed(at, SAMPLE_LOCATION_ID, locations);
	for (size_t i = 0; i < sample->n_locations; i++)
		at = put_varint(at, sample->locations[i]);
	at = put_packed(at, SAMPLE_VALUE, values);
	for (size_t i = 0; i < p->n_types; i++)
		at = put_varint(at, (uint64_t)sample->values[i]);
	for (size_t i = 0; i < sample->n_labels; i++) {
		const struct key *l = &p->label_keys.items[sample->labels[i] - 1];

		at = put_varint(put_tag(at, SAMPLE_LABEL, LEN), label_size(l));
		at = put_number(at, LABEL_KEY, l->part[0]);
		at = put_number(at, LABEL_STR, l->part[1]);
		at = put_number(at, LABEL_NUM, l->part[2]);
		at = put_number(at, LABEL_NUM_UNIT, l->part[3]);
	}
	p->n_samples++;
}

/* ---- writing ------------------------------------------------------------- */

/* Return the whole message, which the caller frees; NULL: out of memory. */
static uint8_t *join(const struct pprof *p, size_t *size)
{
	uint8_t times[SMALL_MAX], *times_end = times, period[SMALL_MAX], *period_end = period;
	uint8_t last[SMALL_MAX], *last_end = last;
	uint8_t *all, *at;

	times_end = put_number(times_end, PROFILE_TIME_NANOS, (uint64_t)p->time_ns);
	times_end = put_number(times_end, PROFILE_DURATION_NANOS, (uint64_t)p->duration_ns);
	period_end = put_number(period_end, PROFILE_PERIOD, (uint64_t)p->period);
	period_end = put_packed(period_end, PROFILE_COMMENT, p->comments.n);
	last_end =
		put_number(last_end, PROFILE_DEFAULT_SAMPLE_TYPE, (uint64_t)p->default_sample_type);
	const struct {
		const uint8_t *bytes;
		size_t n;
	} parts[] = {
		{ p->types.bytes, p->types.n },
		{ p->samples.bytes, p->samples.n },
		{ p->mappings.bytes, p->mappings.n },
		{ p->locations.bytes, p->locations.n },
		{ p->functions.bytes, p->functions.n },
		{ p->strings.bytes, p->strings.n },
		{ times, (size_t)(times_end - times) },
		{ p->period_type.bytes, p->period_type.n },
		{ period, (size_t)(period_end - period) },
		{ p->comments.bytes, p->comments.n },
		{ last, (size_t)(last_end - last) },
	};

	*size = 0;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		*size += parts[i].n;
	at = all = malloc(*size);
	for (size_t i = 0; all && i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (parts[i].n)
			memcpy(at, parts[i].bytes, parts[i].n);
		at += parts[i].n;
	}
	return all;
}

/*
 * Replace *bytes by its gzip form. The gzip header has no name and the time 0, so that the same
 * profile gives the same bytes.
 */
static int compress_all(uint8_t **bytes, size_t *size, int level)
{
	struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(level);
	size_t room;
	uint8_t *out;

	if (!compressor)
		return -ENOMEM;
	room = libdeflate_gzip_compress_bound(compressor, *size);
	out = malloc(room);
	if (out) {
		*size = libdeflate_gzip_compress(compressor, *bytes, *size, out, room);
		free(*bytes);
		*bytes = out;
	}
	libdeflate_free_compressor(compressor);
	return out ? 0 : -ENOMEM;
}

/* Write all bytes. Return 0 or a system error. */
static int write_all(int fd, const uint8_t *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n == 0)
			return -EIO;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			bytes += n;
			size -= (size_t)n;
		}
	}
	return 0;
}

int pprof_write(struct pprof *p, int gzip_level, int fd)
{
	uint8_t *bytes;
	size_t size;
	int err = 0;

	if (p->err)
		return p->err;
	if (gzip_level < 0 || gzip_level > 9)
		return -EINVAL;
	bytes = join(p, &size);
	if (!bytes)
		return -ENOMEM;
	if (gzip_level)
		err = compress_all(&bytes, &size, gzip_level);
	if (!err)
		err = write_all(fd, bytes, size);
	free(bytes);
	return err;
}
