#include "proto/pprof.h"

#include "proto/arena.h"
#include "proto/profile.pb-c.h"
#include "proto/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* A growing array of pointers or numbers, one machine word an element. */
struct list {
	void *items;
	size_t n, room;
};

/* Open addressing over (hash, index + 1); what an index means is the caller's. */
struct table {
	struct slot {
		uint64_t hash;
		uint64_t index; /* 0: free */
	} * slots;
	size_t n, room; /* room: a power of two */
};

struct pprof {
	int err;
	struct arena arena;
	Perftools__Profiles__Profile profile;
	struct list types, samples, mappings, locations, functions, strings, comments;
	struct list labels; /* handle - 1 → Label, shared by the samples */
	struct table string_table, function_table, location_table, label_table;
};

static void fail(struct pprof *p, int err)
{
	if (!p->err)
		p->err = err;
}

static void *take(struct pprof *p, size_t size)
{
	void *memory = p->err ? NULL : arena_alloc(&p->arena, size);

	if (!memory)
		fail(p, -ENOMEM);
	return memory;
}

/* Makes room for one more; false on failure. */
static bool list_grow(struct pprof *p, struct list *list)
{
	size_t room = list->room ? list->room * 2 : 64;
	void *items;

	_Static_assert(sizeof(void *) == sizeof(int64_t), "lists hold either");
	if (p->err)
		return false;
	if (list->n < list->room)
		return true;
	items = realloc(list->items, room * sizeof(void *));
	if (!items) {
		fail(p, -ENOMEM);
		return false;
	}
	list->items = items;
	list->room = room;
	return true;
}

static bool list_add(struct pprof *p, struct list *list, void *item)
{
	if (!list_grow(p, list))
		return false;
	((void **)list->items)[list->n++] = item;
	return true;
}

static bool list_add_number(struct pprof *p, struct list *list, int64_t number)
{
	if (!list_grow(p, list))
		return false;
	((int64_t *)list->items)[list->n++] = number;
	return true;
}

/* FNV-1a with a final mix; good enough against accidents, and nobody waits on a profile. */
static uint64_t hash_bytes(const void *bytes, size_t size)
{
	const uint8_t *b = bytes;
	uint64_t h = 0xcbf29ce484222325;

	for (size_t i = 0; i < size; i++)
		h = (h ^ b[i]) * 0x100000001b3;
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93;
	return h ^ h >> 32;
}

static bool table_grow(struct pprof *p, struct table *t)
{
	size_t room = t->room ? t->room * 2 : 256;
	struct slot *slots;

	if (p->err)
		return false;
	if (t->n < t->room / 2)
		return true;
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

/* The slot of key: with its index, or free and to be filled.  NULL on failure. */
static struct slot *table_find(struct pprof *p, struct table *t, uint64_t hash, same_fn same,
			       const void *key)
{
	size_t at;

	if (!table_grow(p, t))
		return NULL;
	for (at = hash & (t->room - 1); t->slots[at].index; at = (at + 1) & (t->room - 1))
		if (t->slots[at].hash == hash && same(p, t->slots[at].index - 1, key))
			break;
	return &t->slots[at];
}

static void table_fill(struct table *t, struct slot *slot, uint64_t hash, uint64_t index)
{
	*slot = (struct slot){ hash, index + 1 };
	t->n++;
}

static bool same_string(const struct pprof *p, uint64_t index, const void *key)
{
	return !strcmp(((char **)p->strings.items)[index], key);
}

/* Index of a text in the string table; 0 (the empty one) on failure. */
static int64_t intern(struct pprof *p, const char *text)
{
	size_t size = text ? strlen(text) : 0;
	uint64_t hash;
	struct slot *slot;
	char *copy;

	if (!size && p->strings.n)
		return 0;
	if (!utf8_valid(text, size)) {
		copy = take(p, utf8_repaired_size(size));
		if (!copy)
			return 0;
		size = utf8_repair(text, size, copy);
		text = copy;
	}
	hash = hash_bytes(text, size);
	slot = table_find(p, &p->string_table, hash, same_string, text ? text : "");
	if (!slot)
		return 0;
	if (slot->index)
		return (int64_t)slot->index - 1;
	copy = take(p, size + 1);
	if (!copy || !list_add(p, &p->strings, copy))
		return 0;
	if (size)
		memcpy(copy, text, size);
	copy[size] = '\0';
	table_fill(&p->string_table, slot, hash, p->strings.n - 1);
	return (int64_t)p->strings.n - 1;
}

int pprof_new(struct pprof **out)
{
	struct pprof *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	arena_init(&p->arena, SIZE_MAX);
	perftools__profiles__profile__init(&p->profile);
	(void)intern(p, ""); /* string_table[0] is "" */
	if (p->err) {
		err = p->err;
		pprof_free(p);
		return err;
	}
	*out = p;
	return 0;
}

void pprof_free(struct pprof *p)
{
	if (!p)
		return;
	free(p->types.items);
	free(p->samples.items);
	free(p->mappings.items);
	free(p->locations.items);
	free(p->functions.items);
	free(p->strings.items);
	free(p->comments.items);
	free(p->labels.items);
	free(p->string_table.slots);
	free(p->function_table.slots);
	free(p->location_table.slots);
	free(p->label_table.slots);
	arena_fini(&p->arena);
	free(p);
}

static Perftools__Profiles__ValueType *value_type(struct pprof *p, const char *type,
						  const char *unit)
{
	Perftools__Profiles__ValueType *t = take(p, sizeof(*t));

	if (!t)
		return NULL;
	perftools__profiles__value_type__init(t);
	t->type = intern(p, type);
	t->unit = intern(p, unit);
	return t;
}

void pprof_sample_type(struct pprof *p, const char *type, const char *unit)
{
	Perftools__Profiles__ValueType *t;

	if (p->samples.n) {
		fail(p, -EINVAL);
		return;
	}
	t = value_type(p, type, unit);
	if (t)
		(void)list_add(p, &p->types, t);
}

void pprof_default_sample_type(struct pprof *p, const char *type)
{
	p->profile.default_sample_type = intern(p, type);
}

void pprof_period(struct pprof *p, const char *type, const char *unit, int64_t period)
{
	p->profile.period_type = value_type(p, type, unit);
	p->profile.period = period;
}

void pprof_time(struct pprof *p, int64_t wall_ns, int64_t duration_ns)
{
	p->profile.time_nanos = wall_ns;
	p->profile.duration_nanos = duration_ns;
}

void pprof_comment(struct pprof *p, const char *text)
{
	(void)list_add_number(p, &p->comments, intern(p, text));
}

uint64_t pprof_mapping(struct pprof *p, const struct pprof_mapping *mapping)
{
	Perftools__Profiles__Mapping *m = take(p, sizeof(*m));

	if (!m || !list_add(p, &p->mappings, m))
		return 0;
	perftools__profiles__mapping__init(m);
	m->id = p->mappings.n;
	m->memory_start = mapping->start;
	m->memory_limit = mapping->limit;
	m->file_offset = mapping->off;
	m->filename = intern(p, mapping->file);
	m->build_id = intern(p, mapping->build_id);
	m->has_functions = true;
	m->has_filenames = true;
	m->has_line_numbers = true;
	m->has_inline_frames = true;
	return m->id;
}

static bool same_function(const struct pprof *p, uint64_t index, const void *key)
{
	const Perftools__Profiles__Function *f =
		((Perftools__Profiles__Function **)p->functions.items)[index];
	const int64_t *k = key;

	return f->name == k[0] && f->system_name == k[1] && f->filename == k[2];
}

uint64_t pprof_function(struct pprof *p, const char *name, const char *system_name,
			const char *file)
{
	const int64_t key[] = { intern(p, name), intern(p, system_name ? system_name : name),
				intern(p, file) };
	uint64_t hash = hash_bytes(key, sizeof(key));
	struct slot *slot = table_find(p, &p->function_table, hash, same_function, key);
	Perftools__Profiles__Function *f;

	if (!slot)
		return 0;
	if (slot->index)
		return slot->index; /* ids are indices + 1, as the slots hold them */
	f = take(p, sizeof(*f));
	if (!f || !list_add(p, &p->functions, f))
		return 0;
	perftools__profiles__function__init(f);
	f->id = p->functions.n;
	f->name = key[0];
	f->system_name = key[1];
	f->filename = key[2];
	table_fill(&p->function_table, slot, hash, f->id - 1);
	return f->id;
}

static bool same_location(const struct pprof *p, uint64_t index, const void *key)
{
	const Perftools__Profiles__Location *l =
		((Perftools__Profiles__Location **)p->locations.items)[index];
	const uint64_t *k = key;

	return l->mapping_id == k[0] && l->address == k[1];
}

static bool add_lines(struct pprof *p, Perftools__Profiles__Location *l,
		      const struct pprof_line *lines, size_t n)
{
	Perftools__Profiles__Line *all = take(p, n * sizeof(*all));

	l->line = take(p, n * sizeof(Perftools__Profiles__Line *));
	if (!all || !l->line)
		return false;
	for (size_t i = 0; i < n; i++) {
		perftools__profiles__line__init(&all[i]);
		all[i].function_id = lines[i].function;
		all[i].line = lines[i].line;
		l->line[i] = &all[i];
		if (!lines[i].function || lines[i].function > p->functions.n)
			fail(p, -EINVAL);
	}
	l->n_line = n;
	return !p->err;
}

uint64_t pprof_location(struct pprof *p, uint64_t mapping, uint64_t address,
			const struct pprof_line *lines, size_t n_lines)
{
	const uint64_t key[] = { mapping, address };
	uint64_t hash = hash_bytes(key, sizeof(key));
	struct slot *slot = table_find(p, &p->location_table, hash, same_location, key);
	Perftools__Profiles__Location *l;

	if (mapping > p->mappings.n)
		fail(p, -EINVAL);
	if (!slot)
		return 0;
	if (slot->index)
		return slot->index;
	l = take(p, sizeof(*l));
	if (!l)
		return 0;
	perftools__profiles__location__init(l);
	l->mapping_id = mapping;
	l->address = address;
	if ((n_lines && !add_lines(p, l, lines, n_lines)) || !list_add(p, &p->locations, l))
		return 0;
	l->id = p->locations.n;
	table_fill(&p->location_table, slot, hash, l->id - 1);
	return l->id;
}

static bool same_label(const struct pprof *p, uint64_t index, const void *key)
{
	const Perftools__Profiles__Label *l =
		((Perftools__Profiles__Label **)p->labels.items)[index];
	const int64_t *k = key;

	return l->key == k[0] && l->str == k[1] && l->num == k[2];
}

static uint64_t label(struct pprof *p, const char *key, int64_t text, int64_t number)
{
	const int64_t k[] = { intern(p, key), text, number };
	uint64_t hash = hash_bytes(k, sizeof(k));
	struct slot *slot = table_find(p, &p->label_table, hash, same_label, k);
	Perftools__Profiles__Label *l;

	if (!slot)
		return 0;
	if (slot->index)
		return slot->index;
	l = take(p, sizeof(*l));
	if (!l || !list_add(p, &p->labels, l))
		return 0;
	perftools__profiles__label__init(l);
	l->key = k[0];
	l->str = text;
	l->num = number;
	table_fill(&p->label_table, slot, hash, p->labels.n - 1);
	return p->labels.n;
}

uint64_t pprof_label_text(struct pprof *p, const char *key, const char *text)
{
	return label(p, key, intern(p, text), 0);
}

uint64_t pprof_label_number(struct pprof *p, const char *key, int64_t number)
{
	return label(p, key, 0, number);
}

void pprof_sample(struct pprof *p, const struct pprof_sample *sample)
{
	Perftools__Profiles__Sample *s = take(p, sizeof(*s));
	size_t n_values = p->types.n;

	if (!s)
		return;
	perftools__profiles__sample__init(s);
	s->location_id = take(p, sample->n_locations * sizeof(*s->location_id));
	s->value = take(p, n_values * sizeof(*s->value));
	s->label = take(p, sample->n_labels * sizeof(*s->label));
	if (!s->location_id || !s->value || !s->label)
		return;
	for (size_t i = 0; i < sample->n_locations; i++) {
		if (!sample->locations[i] || sample->locations[i] > p->locations.n)
			fail(p, -EINVAL);
		s->location_id[i] = sample->locations[i];
	}
	for (size_t i = 0; i < n_values; i++)
		s->value[i] = sample->values[i];
	for (size_t i = 0; i < sample->n_labels; i++) {
		if (!sample->labels[i] || sample->labels[i] > p->labels.n) {
			fail(p, -EINVAL);
			return;
		}
		s->label[i] =
			((Perftools__Profiles__Label **)p->labels.items)[sample->labels[i] - 1];
	}
	s->n_location_id = sample->n_locations;
	s->n_value = n_values;
	s->n_label = sample->n_labels;
	(void)list_add(p, &p->samples, s);
}

/* ---- writing ------------------------------------------------------------- */

struct sink {
	ProtobufCBuffer base; /* first: protobuf-c hands it back */
	int fd, err;
	bool gzip;
	z_stream z;
	size_t used;
	uint8_t out[64 * 1024];
};

static void flush(struct sink *sink)
{
	size_t done = 0;

	while (!sink->err && done < sink->used) {
		ssize_t n = write(sink->fd, sink->out + done, sink->used - done);

		if (n > 0)
			done += (size_t)n;
		else if (n == 0)
			sink->err = -EIO;
		else if (errno != EINTR)
			sink->err = -errno;
	}
	sink->used = 0;
}

static void compress_bytes(struct sink *sink, const uint8_t *data, size_t size, int mode)
{
	int rc;

	sink->z.next_in = (uint8_t *)(uintptr_t)data; /* zlib's own type lacks the const */
	sink->z.avail_in = (uInt)size;
	do {
		if (sink->used == sizeof(sink->out))
			flush(sink);
		sink->z.next_out = sink->out + sink->used;
		sink->z.avail_out = (uInt)(sizeof(sink->out) - sink->used);
		rc = deflate(&sink->z, mode);
		sink->used = sizeof(sink->out) - sink->z.avail_out;
	} while (!sink->err && (sink->z.avail_in || (mode == Z_FINISH && rc != Z_STREAM_END)));
}

static void append(ProtobufCBuffer *buffer, size_t size, const uint8_t *data)
{
	struct sink *sink = (struct sink *)buffer;

	while (!sink->err && size) {
		size_t n = sizeof(sink->out) - sink->used;

		if (n > size)
			n = size;
		if (sink->gzip) {
			n = size < (1u << 30) ? size : 1u << 30;
			compress_bytes(sink, data, n, Z_NO_FLUSH);
		} else {
			memcpy(sink->out + sink->used, data, n);
			sink->used += n;
			if (sink->used == sizeof(sink->out))
				flush(sink);
		}
		data += n;
		size -= n;
	}
}

int pprof_write(struct pprof *p, int gzip_level, int fd)
{
	struct sink *sink;
	int err;

	if (p->err)
		return p->err;
	if (gzip_level < 0 || gzip_level > 9)
		return -EINVAL;
	sink = calloc(1, sizeof(*sink));
	if (!sink)
		return -ENOMEM;
	sink->base.append = append;
	sink->fd = fd;
	sink->gzip = gzip_level != 0;
	/* 16: a gzip header, which zlib fills without a name and with time 0. */
	if (sink->gzip && deflateInit2(&sink->z, gzip_level, Z_DEFLATED, 15 + 16, 8,
				       Z_DEFAULT_STRATEGY) != Z_OK) {
		free(sink);
		return -ENOMEM;
	}
	p->profile.sample_type = p->types.items;
	p->profile.n_sample_type = p->types.n;
	p->profile.sample = p->samples.items;
	p->profile.n_sample = p->samples.n;
	p->profile.mapping = p->mappings.items;
	p->profile.n_mapping = p->mappings.n;
	p->profile.location = p->locations.items;
	p->profile.n_location = p->locations.n;
	p->profile.function = p->functions.items;
	p->profile.n_function = p->functions.n;
	p->profile.string_table = p->strings.items;
	p->profile.n_string_table = p->strings.n;
	p->profile.comment = p->comments.items;
	p->profile.n_comment = p->comments.n;
	(void)perftools__profiles__profile__pack_to_buffer(&p->profile, &sink->base);
	if (sink->gzip) {
		compress_bytes(sink, NULL, 0, Z_FINISH);
		(void)deflateEnd(&sink->z);
	}
	flush(sink);
	err = sink->err;
	free(sink);
	return err;
}
