/* proto/pprof.c: encodes a pprof profile (proto/profile.proto) directly into its wire format. */
#include "proto/pprof.h"

#include "base/growth.h"
#include "base/hash.h"
#include "proto/pprof_builder.h"
#include "proto/utf8.h"
#include "proto/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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
 * Make room for one more element of size bytes behind the n existing ones of the array at items.
 * Return false on error.
 */
static bool grow(struct pprof *p, void *items, size_t n, size_t *room, size_t size)
{
	if (!p->err && uw_array_reserve(items, n + 1, room, size, SIZE_MAX))
		fail(p, -ENOMEM);
	return !p->err;
}

/*
 * Append size bytes to the buffer and return their address, for the caller to fill. NULL on error.
 */
static uint8_t *more(struct pprof *p, struct pprof_buffer *b, size_t size)
{
	uint8_t *at;

	if (!p->err && UW_ARRAY_RESERVE(b->bytes, b->n + size, b->room, SIZE_MAX))
		fail(p, -ENOMEM);
	if (p->err)
		return NULL;
	at = b->bytes + b->n;
	b->n += size;
	return at;
}

/*
 * Append the header of a message of size bytes and room for the message. Return the address of the
 * room, or NULL on error.
 */
static uint8_t *more_message(struct pprof *p, struct pprof_buffer *b, unsigned int field,
			     size_t size)
{
	uint8_t *at = more(p, b, 1 + wire_varint_size(size) + size);

	return at ? wire_put_varint(wire_put_tag(at, field, WIRE_LEN), size) : NULL;
}

/* Append a message with the encoded fields [fields, end). */
static void add_message(struct pprof *p, struct pprof_buffer *b, unsigned int field,
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

/*
 * Append item n, whose hash is hash, to an index. Ids have 32 bits. Return false on error.
 */
static bool index_add(struct pprof *p, struct uw_hash_index *index, uint64_t hash, size_t n)
{
	if (!p->err && (n >= UW_HASH_NONE || uw_hash_add(index, hash, (uint32_t)n)))
		fail(p, -ENOMEM);
	return !p->err;
}

/*
 * Return the id of key, which is added if needed; *fresh says whether it was added. Return 0 on
 * error.
 */
static uint64_t id_of(struct pprof *p, struct pprof_keys *keys, const struct pprof_key *key,
		      bool *fresh)
{
	uint64_t hash = hash_bytes(key, sizeof(*key));
	uint32_t found =
		UW_HASH_FIND(i, &keys->index, hash, !memcmp(&keys->items[i], key, sizeof(*key)));

	*fresh = false;
	if (p->err)
		return 0;
	if (found != UW_HASH_NONE)
		return (uint64_t)found + 1;
	if (!grow(p, &keys->items, keys->n, &keys->room, sizeof(*keys->items)) ||
	    !index_add(p, &keys->index, hash, keys->n))
		return 0;
	keys->items[keys->n] = *key;
	*fresh = true;
	return ++keys->n;
}

/* Return the index of a text in the string table, or UW_HASH_NONE. */
static uint32_t find_text(const struct pprof *p, const struct pprof_text *text, uint64_t hash)
{
	return UW_HASH_FIND(i, &p->text_index, hash,
			    p->texts[i].size == text->size &&
				    !memcmp(p->texts[i].bytes, text->bytes, text->size));
}

/* Add a new text to the string table. Return its index, or 0 on error. */
static uint64_t add_text(struct pprof *p, const struct pprof_text *text, uint64_t hash)
{
	uint8_t *at;

	if (!grow(p, &p->texts, p->n_texts, &p->room_texts, sizeof(*p->texts)) ||
	    !index_add(p, &p->text_index, hash, p->n_texts))
		return 0;
	at = more_message(p, &p->strings, PROFILE_STRING_TABLE, text->size);
	if (!at)
		return 0;
	if (text->size)
		memcpy(at, text->bytes, text->size);
	p->texts[p->n_texts] = *text;
	return p->n_texts++;
}

/*
 * Return the index of a text in the string table; it is added, and repaired, if needed. Return 0
 * (the empty text) on error.
 */
static uint64_t intern(struct pprof *p, const char *string)
{
	struct pprof_text text = { .bytes = string ? string : "",
				   .size = string ? strlen(string) : 0 };
	uint64_t hash;
	uint32_t found;
	char *copy;

	if (p->err || (!text.size && p->n_texts))
		return 0;
	/* Texts in the table are valid UTF-8, so only new texts must be checked. */
	hash = hash_bytes(text.bytes, text.size);
	found = find_text(p, &text, hash);
	if (found != UW_HASH_NONE)
		return found;
	if (!utf8_valid(text.bytes, text.size)) {
		copy = take(p, utf8_repaired_size(text.size));
		if (!copy)
			return 0;
		text.size = utf8_repair(string, text.size, copy);
		text.bytes = copy;
		hash = hash_bytes(text.bytes, text.size);
		found = find_text(p, &text, hash);
		return found != UW_HASH_NONE ? found : add_text(p, &text, hash);
	}
	copy = take(p, text.size + 1);
	if (!copy)
		return 0;
	memcpy(copy, text.bytes, text.size + 1);
	text.bytes = copy;
	return add_text(p, &text, hash);
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

static void keys_fini(struct pprof_keys *keys)
{
	free(keys->items);
	uw_hash_fini(&keys->index);
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
	keys_fini(&p->mapping_keys);
	keys_fini(&p->location_keys);
	keys_fini(&p->function_keys);
	keys_fini(&p->label_keys);
	free(p->texts);
	uw_hash_fini(&p->text_index);
	arena_fini(&p->arena);
	free(p);
}

/* Append a ValueType message (type and unit) as the given field. */
static void add_value_type(struct pprof *p, struct pprof_buffer *b, unsigned int field,
			   const char *type, const char *unit)
{
	uint8_t fields[WIRE_SMALL_MAX], *end = fields;

	end = wire_put_number(end, VALUE_TYPE_TYPE, intern(p, type));
	end = wire_put_number(end, VALUE_TYPE_UNIT, intern(p, unit));
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
	uint8_t *at = more(p, &p->comments, wire_varint_size(index));

	if (at)
		(void)wire_put_varint(at, index);
}

uint64_t pprof_mapping(struct pprof *p, const struct pprof_mapping *mapping)
{
	uint64_t file = intern(p, mapping->file), build_id = intern(p, mapping->build_id);
	struct pprof_key key = { { mapping->start, mapping->limit, mapping->off,
				   file << 32 | build_id << 1 | mapping->nameless } };
	uint8_t fields[WIRE_SMALL_MAX], *end = fields;
	bool fresh;
	uint64_t id = id_of(p, &p->mapping_keys, &key, &fresh);

	if (!fresh)
		return id;
	end = wire_put_number(end, MAPPING_ID, id);
	end = wire_put_number(end, MAPPING_MEMORY_START, mapping->start);
	end = wire_put_number(end, MAPPING_MEMORY_LIMIT, mapping->limit);
	end = wire_put_number(end, MAPPING_FILE_OFFSET, mapping->off);
	end = wire_put_number(end, MAPPING_FILENAME, file);
	end = wire_put_number(end, MAPPING_BUILD_ID, build_id);
	for (unsigned int has = MAPPING_HAS_FUNCTIONS; has <= MAPPING_HAS_INLINE_FRAMES; has++)
		end = wire_put_number(end, has, !mapping->nameless);
	add_message(p, &p->mappings, PROFILE_MAPPING, fields, end);
	return id;
}

uint64_t pprof_function(struct pprof *p, const struct pprof_function *f)
{
	uint64_t of_name = intern(p, f->name);
	struct pprof_key key = { { of_name, f->system_name ? intern(p, f->system_name) : of_name,
				   intern(p, f->file), (uint64_t)f->start_line } };
	uint8_t fields[WIRE_SMALL_MAX], *end = fields;
	bool fresh;
	uint64_t id = id_of(p, &p->function_keys, &key, &fresh);

	if (!fresh)
		return id;
	end = wire_put_number(end, FUNCTION_ID, id);
	end = wire_put_number(end, FUNCTION_NAME, key.part[0]);
	end = wire_put_number(end, FUNCTION_SYSTEM_NAME, key.part[1]);
	end = wire_put_number(end, FUNCTION_FILENAME, key.part[2]);
	end = wire_put_number(end, FUNCTION_START_LINE, key.part[3]);
	add_message(p, &p->functions, PROFILE_FUNCTION, fields, end);
	return id;
}

/* Return the size of an encoded Line message without its header. */
static size_t line_size(const struct pprof_line *line)
{
	return wire_number_size(line->function) + wire_number_size((uint64_t)line->line);
}

/*
 * Append a location. Unknown mappings and functions are an error (-EINVAL) of the caller. Return
 * id, or 0 on error.
 */
static uint64_t add_location(struct pprof *p, uint64_t id, const struct pprof_key *key,
			     const struct pprof_line *lines, size_t n_lines, bool folded)
{
	uint8_t fields[WIRE_SMALL_MAX], *end = fields, *at;
	size_t size = 0;

	if (key->part[0] > p->mapping_keys.n)
		fail(p, -EINVAL);
	for (size_t i = 0; i < n_lines; i++) {
		if (!lines[i].function || lines[i].function > p->function_keys.n)
			fail(p, -EINVAL);
		/* A line has at most 22 bytes, so its length takes one byte. */
		size += 2 + line_size(&lines[i]);
	}
	end = wire_put_number(end, LOCATION_ID, id);
	end = wire_put_number(end, LOCATION_MAPPING_ID, key->part[0]);
	end = wire_put_number(end, LOCATION_ADDRESS, key->part[1]);
	at = more_message(p, &p->locations, PROFILE_LOCATION,
			  (size_t)(end - fields) + size + wire_number_size(folded));
	if (!at)
		return 0;
	memcpy(at, fields, (size_t)(end - fields));
	at += end - fields;
	for (size_t i = 0; i < n_lines; i++) {
		at = wire_put_varint(wire_put_tag(at, LOCATION_LINE, WIRE_LEN),
				     line_size(&lines[i]));
		at = wire_put_number(at, LINE_FUNCTION_ID, lines[i].function);
		at = wire_put_number(at, LINE_LINE, (uint64_t)lines[i].line);
	}
	(void)wire_put_number(at, LOCATION_IS_FOLDED, folded);
	return id;
}

uint64_t pprof_location(struct pprof *p, uint64_t mapping, uint64_t address,
			const struct pprof_line *lines, size_t n_lines)
{
	struct pprof_key key = { { mapping, address, n_lines ? lines[0].function : 0 } };
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
	struct pprof_key key = { { mapping, address } };
	struct pprof_keys *keys = &p->location_keys;

	if (!grow(p, &keys->items, keys->n, &keys->room, sizeof(*keys->items)))
		return 0;
	keys->items[keys->n++] = key;
	return add_location(p, keys->n, &key, lines, n_lines, folded);
}

/* Return the handle of a label. */
static uint64_t label(struct pprof *p, const char *name, uint64_t text, int64_t number,
		      uint64_t unit)
{
	struct pprof_key key = { { intern(p, name), text, (uint64_t)number, unit } };
	bool fresh;

	return id_of(p, &p->label_keys, &key, &fresh);
}

uint64_t pprof_label_text(struct pprof *p, const char *key, const char *text)
{
	return label(p, key, intern(p, text), 0, 0);
}

uint64_t pprof_label_number(struct pprof *p, const char *key, int64_t number, const char *unit)
{
	return label(p, key, 0, number, intern(p, unit));
}

/* Return the size of an encoded Label message without its header. */
static size_t label_size(const struct pprof_key *label)
{
	return wire_number_size(label->part[0]) + wire_number_size(label->part[1]) +
	       wire_number_size(label->part[2]) + wire_number_size(label->part[3]);
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

/* Compute all sizes first: in protobuf's encoding the size of a message comes before its fields. */
void pprof_sample(struct pprof *p, const struct pprof_sample *sample)
{
	size_t locations = 0, values = 0, labels = 0;
	uint8_t *at;

	if (!p->err && !sample_is_sound(p, sample))
		fail(p, -EINVAL);
	if (p->err)
		return;
	for (size_t i = 0; i < sample->n_locations; i++)
		locations += wire_varint_size(sample->locations[i]);
	for (size_t i = 0; i < p->n_types; i++)
		values += wire_varint_size((uint64_t)sample->values[i]);
	for (size_t i = 0; i < sample->n_labels; i++)
		labels += 2 + label_size(&p->label_keys.items[sample->labels[i] - 1]);
	at = more_message(p, &p->samples, PROFILE_SAMPLE,
			  wire_packed_size(locations) + wire_packed_size(values) + labels);
	if (!at)
		return;
	at = wire_put_packed(at, SAMPLE_LOCATION_ID, locations);
	for (size_t i = 0; i < sample->n_locations; i++)
		at = wire_put_varint(at, sample->locations[i]);
	at = wire_put_packed(at, SAMPLE_VALUE, values);
	for (size_t i = 0; i < p->n_types; i++)
		at = wire_put_varint(at, (uint64_t)sample->values[i]);
	for (size_t i = 0; i < sample->n_labels; i++) {
		const struct pprof_key *l = &p->label_keys.items[sample->labels[i] - 1];

		at = wire_put_varint(wire_put_tag(at, SAMPLE_LABEL, WIRE_LEN), label_size(l));
		at = wire_put_number(at, LABEL_KEY, l->part[0]);
		at = wire_put_number(at, LABEL_STR, l->part[1]);
		at = wire_put_number(at, LABEL_NUM, l->part[2]);
		at = wire_put_number(at, LABEL_NUM_UNIT, l->part[3]);
	}
	p->n_samples++;
}
