/* proto/pprof_read.c: reads, unpacks and checks pprof profiles, which are untrusted input. */
#include "proto/pprof_read.h"

#include "base/growth.h"
#include "base/search.h"
#include "proto/arena.h"
#include "proto/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* Maps an id to an index; sorted by id. Other writers need not use ids in order. */
struct id {
	uint64_t id;
	size_t index;
};

struct ids {
	struct id *all;
	size_t n;
};

struct bytes {
	uint8_t *data;
	size_t n, room, max;
};

struct pprof_file {
	struct arena arena;
	Perftools__Profiles__Profile *profile;
	struct ids mappings, locations, functions;
	size_t n_cut, first_cut; /* strings with a NUL inside, which are truncated in C */
	/* Of pprof_read_apart: the encoded profile, and where its samples go on. */
	struct bytes encoded;
	size_t next, n_samples;
	struct arena sample; /* one of them */
};

/* ---- ids ----------------------------------------------------------------- */

UW_ORDER_2(by_id, struct id, id, index)

/*
 * Build the index of n messages. items is an array of pointers to messages that have their id at
 * offset id_at. Return false if there is no memory; ids->all is then NULL.
 */
static bool ids_init(struct ids *ids, void *const *items, size_t n, size_t id_at)
{
	*ids = (struct ids){ .all = calloc(n ? n : 1, sizeof(*ids->all)), .n = n };
	if (!ids->all)
		return false;
	for (size_t i = 0; i < n; i++) {
		memcpy(&ids->all[i].id, (const char *)items[i] + id_at, sizeof(uint64_t));
		ids->all[i].index = i;
	}
	qsort(ids->all, n, sizeof(*ids->all), by_id);
	return true;
}

#define IDS_INIT(ids, array, n, type) \
	ids_init((ids), (void *const *)(array), (n), offsetof(type, id))

/* Return the index of the message with this id, or SIZE_MAX. */
static size_t ids_find(const struct ids *ids, uint64_t id)
{
	size_t low;

	/* Ids that count from 1 are found without a binary search. */
	if (id - 1 < ids->n && ids->all[id - 1].id == id)
		return ids->all[id - 1].index;
	low = UW_COUNT_WHILE(i, ids->n, ids->all[i].id < id);
	return low < ids->n && ids->all[low].id == id ? ids->all[low].index : SIZE_MAX;
}

/* ---- checking ------------------------------------------------------------ */

struct check {
	const Perftools__Profiles__Profile *profile;
	struct ids mappings, locations, functions;
	pprof_fault_fn fault;
	void *ctx;
	size_t n_faults;
};

/* Count a broken rule and report it. */
__attribute__((format(printf, 2, 3))) static void fault(struct check *c, const char *format, ...)
{
	char text[PPROF_ERROR_SIZE];
	va_list args;

	c->n_faults++;
	if (!c->fault)
		return;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	c->fault(c->ctx, text);
}

/* Check that a string index is in range. what and number name the object for the message. */
static void check_string(struct check *c, int64_t index, const char *what, size_t number)
{
	if (index < 0 || (uint64_t)index >= c->profile->n_string_table)
		fault(c, "%s %zu: string %lld is outside the string table of %zu", what, number,
		      (long long)index, c->profile->n_string_table);
}

/* Check that ids are unique and not 0 and, if strict, count from 1 in order. */
static void check_ids(struct check *c, const struct ids *ids, const char *what, bool strict)
{
	for (size_t i = 0; i < ids->n; i++) {
		const struct id *id = &ids->all[i];

		if (!id->id)
			fault(c, "%s %zu has the reserved id 0", what, id->index);
		else if (i && ids->all[i - 1].id == id->id)
			fault(c, "two %ss have the id %llu", what, (unsigned long long)id->id);
		else if (strict && id->id != id->index + 1)
			fault(c, "%s %zu has the id %llu; ids count from 1", what, id->index,
			      (unsigned long long)id->id);
	}
}

/* Check the sample types, the period type and the times. */
static void check_types(struct check *c, bool strict)
{
	const Perftools__Profiles__Profile *p = c->profile;

	for (size_t i = 0; i < p->n_sample_type; i++) {
		const Perftools__Profiles__ValueType *t = p->sample_type[i];

		check_string(c, t->type, "sample type", i);
		check_string(c, t->unit, "sample type", i);
		if (!strict)
			continue;
		if (!t->type || !t->unit)
			fault(c, "sample type %zu lacks its name or unit", i);
		for (size_t j = 0; j < i && j < 64; j++)
			if (p->sample_type[j]->type == t->type)
				fault(c, "sample types %zu and %zu have one name", j, i);
	}
	if (p->period_type) {
		check_string(c, p->period_type->type, "period type", 0);
		check_string(c, p->period_type->unit, "period type", 0);
	}
	if (strict && !p->n_sample_type)
		fault(c, "no sample type");
	if (strict && (p->time_nanos < 0 || p->duration_nanos < 0 || p->period < 0))
		fault(c, "a negative time, duration or period");
}

/* Check that a sample has as many values as there are types, known locations, and sound labels. */
static void check_sample(struct check *c, const Perftools__Profiles__Sample *s, size_t i,
			 bool strict)
{
	const Perftools__Profiles__Profile *p = c->profile;

	if (s->n_value != p->n_sample_type)
		fault(c, "sample %zu has %zu values for %zu sample types", i, s->n_value,
		      p->n_sample_type);
	for (size_t j = 0; j < s->n_location_id; j++)
		if (ids_find(&c->locations, s->location_id[j]) == SIZE_MAX)
			fault(c, "sample %zu: no location %llu", i,
			      (unsigned long long)s->location_id[j]);
	for (size_t j = 0; j < s->n_label; j++) {
		const Perftools__Profiles__Label *l = s->label[j];

		check_string(c, l->key, "label of sample", i);
		check_string(c, l->str, "label of sample", i);
		check_string(c, l->num_unit, "label of sample", i);
		if (strict && !l->key)
			fault(c, "sample %zu: a label without key", i);
		if (strict && l->str && (l->num || l->num_unit))
			fault(c, "sample %zu: a label with text and number", i);
	}
}

/* Check that locations refer to known functions and, if strict, are inside their mappings. */
static void check_locations(struct check *c, bool strict)
{
	const Perftools__Profiles__Profile *p = c->profile;

	for (size_t i = 0; i < p->n_location; i++) {
		const Perftools__Profiles__Location *l = p->location[i];
		const Perftools__Profiles__Mapping *m;
		size_t at;

		for (size_t j = 0; j < l->n_line; j++)
			if (ids_find(&c->functions, l->line[j]->function_id) == SIZE_MAX)
				fault(c, "location %llu: no function %llu",
				      (unsigned long long)l->id,
				      (unsigned long long)l->line[j]->function_id);
		if (!strict || !l->mapping_id)
			continue;
		at = ids_find(&c->mappings, l->mapping_id);
		if (at == SIZE_MAX) {
			fault(c, "location %llu: no mapping %llu", (unsigned long long)l->id,
			      (unsigned long long)l->mapping_id);
			continue;
		}
		m = p->mapping[at];
		if (l->address < m->memory_start || l->address >= m->memory_limit)
			fault(c,
			      "location %llu: address 0x%llx is outside mapping %llu [0x%llx, "
			      "0x%llx)",
			      (unsigned long long)l->id, (unsigned long long)l->address,
			      (unsigned long long)m->id, (unsigned long long)m->memory_start,
			      (unsigned long long)m->memory_limit);
	}
}

/* Check mappings, functions, comments and other texts. */
static void check_rest(struct check *c, bool strict)
{
	const Perftools__Profiles__Profile *p = c->profile;

	for (size_t i = 0; i < p->n_mapping; i++) {
		const Perftools__Profiles__Mapping *m = p->mapping[i];

		check_string(c, m->filename, "mapping", i);
		check_string(c, m->build_id, "mapping", i);
		if (strict && m->memory_start >= m->memory_limit)
			fault(c, "mapping %llu spans nothing", (unsigned long long)m->id);
	}
	for (size_t i = 0; i < p->n_function; i++) {
		const Perftools__Profiles__Function *f = p->function[i];

		check_string(c, f->name, "function", i);
		check_string(c, f->system_name, "function", i);
		check_string(c, f->filename, "function", i);
		if (strict && !f->name)
			fault(c, "function %llu has no name", (unsigned long long)f->id);
	}
	for (size_t i = 0; i < p->n_comment; i++)
		check_string(c, p->comment[i], "comment", i);
	check_string(c, p->drop_frames, "drop_frames", 0);
	check_string(c, p->keep_frames, "keep_frames", 0);
	check_string(c, p->default_sample_type, "default_sample_type", 0);
	check_string(c, p->doc_url, "doc_url", 0);
	for (size_t i = 0; strict && i < p->n_string_table; i++)
		if (!utf8_valid(p->string_table[i], strlen(p->string_table[i])))
			fault(c, "string %zu is not UTF-8", i);
}

size_t pprof_check(const Perftools__Profiles__Profile *p, bool strict, pprof_fault_fn fault_fn,
		   void *ctx)
{
	struct check c = { .profile = p, .fault = fault_fn, .ctx = ctx };

	if (!p->n_string_table || p->string_table[0][0] != '\0')
		fault(&c, "string_table[0] is not \"\"");
	if (!IDS_INIT(&c.mappings, p->mapping, p->n_mapping, Perftools__Profiles__Mapping) ||
	    !IDS_INIT(&c.locations, p->location, p->n_location, Perftools__Profiles__Location) ||
	    !IDS_INIT(&c.functions, p->function, p->n_function, Perftools__Profiles__Function)) {
		fault(&c, "out of memory");
		goto out;
	}
	check_ids(&c, &c.mappings, "mapping", strict);
	check_ids(&c, &c.locations, "location", strict);
	check_ids(&c, &c.functions, "function", strict);
	check_types(&c, strict);
	for (size_t i = 0; i < p->n_sample; i++)
		check_sample(&c, p->sample[i], i, strict);
	check_locations(&c, strict);
	check_rest(&c, strict);
out:
	free(c.mappings.all);
	free(c.locations.all);
	free(c.functions.all);
	return c.n_faults;
}

size_t pprof_check_file(const struct pprof_file *file, pprof_fault_fn fault_fn, void *ctx)
{
	struct check c = { .fault = fault_fn, .ctx = ctx };

	if (file->n_cut)
		fault(&c, "string %zu has a NUL inside, and %zu others", file->first_cut,
		      file->n_cut - 1);
	return c.n_faults + pprof_check(file->profile, true, fault_fn, ctx);
}

/* ---- reading ------------------------------------------------------------- */

/* Make room for at least one more byte, doubling the buffer up to max. -EFBIG at max. */
static int bytes_grow(struct bytes *b)
{
	int err = UW_ARRAY_GROW(b->data, b->n, b->room, b->max);

	return err == -E2BIG ? -EFBIG : err;
}

struct input {
	int fd;
	uint64_t off; /* file offset of the buffer's end */
	size_t n;
	uint8_t buffer[64 * 1024];
};

/* Refill the buffer. n is 0 at the end of the file. */
static int input_read(struct input *in)
{
	ssize_t n;

	do
		n = read(in->fd, in->buffer, sizeof(in->buffer));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	in->n = (size_t)n;
	in->off += in->n;
	return 0;
}

/* Read all of an uncompressed file. */
static int read_plain(struct input *in, struct bytes *out)
{
	int err = 0;

	while (!err && in->n) {
		size_t done = 0;

		while (!err && done < in->n) {
			size_t n;

			err = bytes_grow(out);
			if (err)
				break;
			n = out->room - out->n;
			if (n > in->n - done)
				n = in->n - done;
			memcpy(out->data + out->n, in->buffer + done, n);
			out->n += n;
			done += n;
		}
		if (!err)
			err = input_read(in);
	}
	return err;
}

/*
 * Decompress all of a gzip file. Several gzip members are joined to one message, as gzip(1) does.
 */
static int read_gzip(struct input *in, struct bytes *out, char *error)
{
	z_stream z = { 0 };
	bool ended = false;
	int err = 0;

	if (inflateInit2(&z, 15 + 16) != Z_OK)
		return -ENOMEM;
	z.next_in = in->buffer;
	z.avail_in = (uInt)in->n;
	while (!err) {
		int rc;

		if (!z.avail_in) {
			err = input_read(in);
			z.next_in = in->buffer;
			z.avail_in = (uInt)in->n;
			if (err || (!in->n && ended))
				break;
			if (!in->n) {
				(void)snprintf(error, PPROF_ERROR_SIZE,
					       "offset %llu: the gzip stream is cut short",
					       (unsigned long long)in->off);
				err = -EBADMSG;
				break;
			}
		}
		if (ended && inflateReset(&z) != Z_OK)
			err = -EBADMSG;
		ended = false;
		if (!err)
			err = bytes_grow(out);
		if (err)
			break;
		z.next_out = out->data + out->n;
		z.avail_out =
			out->room - out->n > UINT32_MAX ? UINT32_MAX : (uInt)(out->room - out->n);
		rc = inflate(&z, Z_NO_FLUSH);
		out->n = (size_t)(z.next_out - out->data);
		ended = rc == Z_STREAM_END;
		if (rc == Z_MEM_ERROR) {
			err = -ENOMEM;
		} else if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) {
			(void)snprintf(error, PPROF_ERROR_SIZE, "offset %llu: gzip: %s",
				       (unsigned long long)(in->off - z.avail_in),
				       z.msg ? z.msg : "damaged");
			err = -EBADMSG;
		}
	}
	(void)inflateEnd(&z);
	return err;
}

/* Read all of fd, and decompress it if it begins with the gzip magic. */
static int read_all(int fd, struct bytes *out, char *error)
{
	struct input *in = malloc(sizeof(*in));
	int err;

	if (!in)
		return -ENOMEM;
	in->fd = fd;
	in->off = 0;
	err = input_read(in);
	if (!err && in->n >= 2 && in->buffer[0] == 0x1f &&
	    in->buffer[1] == 0x8b) /* RFC 1952 §2.3.1 */
		err = read_gzip(in, out, error);
	else if (!err)
		err = read_plain(in, out);
	free(in);
	return err;
}

/* pprof_fault_fn: store the first message in ctx, a buffer of PPROF_ERROR_SIZE bytes. */
static void first_fault(void *ctx, const char *text)
{
	char *error = ctx;

	if (!error[0])
		(void)snprintf(error, PPROF_ERROR_SIZE, "%s", text);
}

/* Read a varint. Bits beyond 64 are dropped. */
static uint64_t take_varint(const uint8_t **at, const uint8_t *end)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; *at < end; shift += 7) {
		uint8_t byte = *(*at)++;

		value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
		if (byte < 0x80)
			break;
	}
	return value;
}

/* Tags of fields, with their wire types. */
enum { SAMPLE = 2 << 3 | 2, STRING_TABLE = 6 << 3 | 2 };

struct field {
	uint64_t tag;
	const uint8_t *content; /* of a varint: its end */
	size_t size;
};

/* Take a field of an encoded message. False: there are no more, or it is not complete or of a type without a size. */
static bool take_field(const uint8_t **at, const uint8_t *end, struct field *out)
{
	const uint8_t *p = *at;
	uint64_t tag = take_varint(&p, end), size = 0;
	unsigned int type = tag & 7;

	if (*at == end || type == 3 || type == 4)
		return false;
	if (type == 0)
		(void)take_varint(&p, end);
	else
		size = type == 1 ? 8 : type == 5 ? 4 : take_varint(&p, end);
	if (size > (uint64_t)(end - p))
		return false;
	*out = (struct field){ .tag = tag, .content = p, .size = (size_t)size };
	*at = p + size;
	return true;
}

/*
 * Find strings of the encoded message that contain a NUL; unpacked C strings do not show them. The
 * message was unpacked before, so its fields are known to be complete.
 */
static void find_cut(struct pprof_file *file, const struct bytes *b)
{
	const uint8_t *at = b->data, *end = at + b->n;
	struct field f;

	for (size_t i = 0; take_field(&at, end, &f);) {
		if (f.tag != STRING_TABLE)
			continue;
		if (f.size && memchr(f.content, 0, f.size) && !file->n_cut++)
			file->first_cut = i;
		i++;
	}
}

/* Copy an encoded message without its samples; what is not complete is copied as it is. The caller frees to->data. -ENOMEM. */
static int copy_rest(const struct bytes *b, struct bytes *to)
{
	const uint8_t *at = b->data, *end = at + b->n;
	struct field f;

	*to = (struct bytes){ .data = malloc(b->n) }; /* what is not written takes no memory */
	if (!to->data)
		return -ENOMEM;
	for (const uint8_t *begin = at; begin < end; begin = at) {
		if (!take_field(&at, end, &f)) {
			f.tag = 0;
			at = end;
		}
		if (f.tag == SAMPLE)
			continue;
		memcpy(to->data + to->n, begin, (size_t)(at - begin));
		to->n += (size_t)(at - begin);
	}
	return 0;
}

/* Unpack and check the message. On failure error says why, unless it is -ENOMEM. */
static int decode(struct pprof_file *file, const struct bytes *b, char *error)
{
	Perftools__Profiles__Profile *p =
		perftools__profiles__profile__unpack(&file->arena.allocator, b->n, b->data);

	if (!p) {
		bool full = file->arena.used > file->arena.limit / 2;

		(void)snprintf(error, PPROF_ERROR_SIZE,
			       full ? "it unpacks to more than %zu bytes"
				    : "not a pprof profile (%zu bytes)",
			       full ? file->arena.limit : file->encoded.n);
		return full ? -EFBIG : -EBADMSG;
	}
	if (!file->encoded.n) {
		(void)snprintf(error, PPROF_ERROR_SIZE, "it is empty");
		return -EBADMSG;
	}
	if (pprof_check(p, false, first_fault, error))
		return -EBADMSG;
	if (!IDS_INIT(&file->mappings, p->mapping, p->n_mapping, Perftools__Profiles__Mapping) ||
	    !IDS_INIT(&file->locations, p->location, p->n_location,
		      Perftools__Profiles__Location) ||
	    !IDS_INIT(&file->functions, p->function, p->n_function, Perftools__Profiles__Function))
		return -ENOMEM;
	find_cut(file, b);
	file->profile = p;
	return 0;
}

/* Read a profile, with its samples or apart from them. */
static int read_file(int fd, size_t max_bytes, bool apart, struct pprof_file **out, char *error)
{
	/* Unpacked messages take up to about six times the bytes of the profile. */
	const size_t limit = max_bytes > SIZE_MAX / 8 ? SIZE_MAX : max_bytes * 6 + (1u << 20);
	struct pprof_file *file = calloc(1, sizeof(*file));
	struct bytes rest = { .data = NULL };
	int err;

	error[0] = '\0';
	if (!file)
		return -ENOMEM;
	arena_init(&file->arena, limit);
	arena_init(&file->sample, limit);
	file->encoded.max = max_bytes;
	err = read_all(fd, &file->encoded, error);
	if (!err && apart && file->encoded.n)
		err = copy_rest(&file->encoded, &rest);
	if (!err)
		err = decode(file, apart ? &rest : &file->encoded, error);
	free(rest.data);
	if (!apart) {
		free(file->encoded.data);
		file->encoded.data = NULL;
	}
	if (err) {
		if (!error[0])
			(void)snprintf(error, PPROF_ERROR_SIZE, "%s",
				       err == -EFBIG ? "it is larger than any profile"
						     : strerror(-err));
		pprof_file_free(file);
		return err;
	}
	*out = file;
	return 0;
}

int pprof_read(int fd, size_t max_bytes, struct pprof_file **out, char *error)
{
	return read_file(fd, max_bytes, false, out, error);
}

int pprof_read_apart(int fd, size_t max_bytes, struct pprof_file **out, char *error)
{
	return read_file(fd, max_bytes, true, out, error);
}

/* Find the next sample of an encoded profile. */
static bool take_sample(struct pprof_file *file, struct field *f)
{
	const struct bytes *b = &file->encoded;
	const uint8_t *at = b->data + file->next;
	bool is;

	do
		is = take_field(&at, b->data + b->n, f);
	while (is && f->tag != SAMPLE);
	file->next = (size_t)(at - b->data);
	return is;
}

int pprof_next_sample(struct pprof_file *file, const Perftools__Profiles__Sample **out, char *error)
{
	struct check c = { .profile = file->profile,
			   .locations = file->locations,
			   .fault = first_fault,
			   .ctx = error };
	Perftools__Profiles__Sample *s;
	struct field f;

	error[0] = '\0';
	if (!file->encoded.data || !take_sample(file, &f))
		return 0;
	arena_reset(&file->sample);
	s = perftools__profiles__sample__unpack(&file->sample.allocator, f.size, f.content);
	if (!s) {
		(void)snprintf(error, PPROF_ERROR_SIZE, "sample %zu is damaged", file->n_samples);
		return -EBADMSG;
	}
	check_sample(&c, s, file->n_samples++, false);
	*out = s;
	return c.n_faults ? -EBADMSG : 1;
}

void pprof_file_free(struct pprof_file *file)
{
	if (!file)
		return;
	free(file->mappings.all);
	free(file->locations.all);
	free(file->functions.all);
	free(file->encoded.data);
	arena_fini(&file->sample);
	arena_fini(&file->arena); /* the arena holds the profile */
	free(file);
}

const Perftools__Profiles__Profile *pprof_profile(const struct pprof_file *file)
{
	return file->profile;
}

size_t pprof_place_of_location(const struct pprof_file *file, uint64_t id)
{
	return ids_find(&file->locations, id);
}

size_t pprof_place_of_mapping(const struct pprof_file *file, uint64_t id)
{
	return ids_find(&file->mappings, id);
}

size_t pprof_place_of_function(const struct pprof_file *file, uint64_t id)
{
	return ids_find(&file->functions, id);
}

const char *pprof_text(const struct pprof_file *file, int64_t index)
{
	const Perftools__Profiles__Profile *p = file->profile;

	return index >= 0 && (uint64_t)index < p->n_string_table ? p->string_table[index] : "";
}
