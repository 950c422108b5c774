/*
 * agent/export/formats.c: the table of formats, their suffixes, and threads for the formats that
 * need them.
 */
#include "agent/export/formats.h"

#include "agent/export/export.h"
#include "agent/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name, *file;
	int (*write)(const struct stacks *stacks, size_t type, FILE *out);
} formats[FORMAT_N] = {
	[FORMAT_PPROF] = { "pprof", "offwind.pb.gz", NULL },
	[FORMAT_FOLDED] = { "folded", "offwind.folded", format_folded },
	[FORMAT_TEXT] = { "text", "offwind.txt", format_text },
	[FORMAT_TSV] = { "tsv", "offwind.tsv", format_tsv },
	[FORMAT_JSONL] = { "jsonl", "offwind.jsonl", format_jsonl },
	[FORMAT_SPEEDSCOPE] = { "speedscope", "offwind.speedscope.json", format_speedscope },
	[FORMAT_FIREFOX] = { "firefox", "offwind.firefox.json", format_firefox },
	[FORMAT_PARQUET] = { "parquet", "offwind.parquet", format_parquet },
};

int format_find(const char *name, enum format *out)
{
	for (size_t i = 0; i < FORMAT_N; i++)
		if (!strcmp(formats[i].name, name)) {
			*out = (enum format)i;
			return 0;
		}
	return -EINVAL;
}

int format_take(void *to, const char *option, char *name)
{
	if (!format_find(name, to))
		return 0;
	log_error("%s is " FORMAT_NAMES ", not '%s'", option, name);
	return -EINVAL;
}

int format_of_path(const char *path, enum format *out)
{
	static const struct {
		const char *ending;
		enum format format;
		const char *instead;
	} endings[] = {
		{ ".pb.gz", FORMAT_PPROF, NULL },
		{ ".pprof", FORMAT_PPROF, NULL },
		{ ".folded", FORMAT_FOLDED, NULL },
		{ ".collapsed", FORMAT_FOLDED, NULL },
		{ ".txt", FORMAT_TEXT, NULL },
		{ ".tsv", FORMAT_TSV, NULL },
		{ ".jsonl", FORMAT_JSONL, NULL },
		{ ".firefox.json", FORMAT_FIREFOX, NULL },
		{ ".speedscope.json", FORMAT_SPEEDSCOPE, NULL },
		{ ".parquet", FORMAT_PARQUET, NULL },
		{ ".json", FORMAT_N, "choose one with -f: jsonl, speedscope or firefox" },
		{ ".html", FORMAT_N, "offwind flamegraph makes a page" },
		{ ".svg", FORMAT_N,
		  "there is no such format; offwind flamegraph makes a page, and flamegraph.pl "
		  "reads -f folded" },
	};
	size_t size = strlen(path);

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		size_t n = strlen(endings[i].ending);

		if (size <= n || strcmp(path + size - n, endings[i].ending) != 0)
			continue;
		if (endings[i].instead) {
			log_error("%s: %s", path, endings[i].instead);
			return -ENOTSUP;
		}
		*out = endings[i].format;
		return 0;
	}
	return 0;
}

const char *format_file(enum format format)
{
	return formats[format].file;
}

/* All default names begin with "offwind". */
const char *format_suffix(enum format format)
{
	return formats[format].file + strlen("offwind");
}

bool format_is_binary(enum format format)
{
	return format == FORMAT_PPROF || format == FORMAT_PARQUET;
}

bool format_compares(enum format format)
{
	return format == FORMAT_PPROF || format == FORMAT_FOLDED;
}

int format_write(enum format format, const struct stacks *stacks, size_t type, FILE *out)
{
	int err;

	if (format != FORMAT_FOLDED && type >= stacks->n_types)
		type = stacks->default_type;
	if (format == FORMAT_PPROF)
		return fflush(out) ? -errno : format_pprof(stacks, type, 1, fileno(out));
	errno = 0;
	err = formats[format].write(stacks, type, out);
	return err ? err : export_flush(out);
}

/* ---- threads ------------------------------------------------------------------------- */

const char *format_thread_name(const struct stacks *s, size_t sample, char number[STACKS_NUMBER])
{
	const struct stacks_label *l = stacks_label(s, &s->samples[sample], "thread");
	const char *name = stacks_label_text(l, number);

	return *name ? name
		     : stacks_label_text(stacks_label(s, &s->samples[sample], "comm"), number);
}

/* Compare two threads; equal texts are the same pointer. */
static bool same_thread(const struct format_thread *a, const struct format_thread *b)
{
	return a->name == b->name && a->process == b->process && a->pid == b->pid &&
	       a->tid == b->tid;
}

/* Return a label of a sample as text, stored once in threads->texts. NULL: out of memory. */
static const char *keep_label(struct format_threads *threads, const struct stacks *s, size_t sample,
			      const char *key)
{
	char number[STACKS_NUMBER];
	const char *text = stacks_label_text(stacks_label(s, &s->samples[sample], key), number);

	return strings_keep(&threads->texts, text, strlen(text));
}

static uint64_t magnitude(int64_t value)
{
	return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

/*
 * Order threads by weight, then by names and numbers, so that the result does not depend on the
 * input's order.
 */
static int heaviest_first(const void *a, const void *b)
{
	const struct format_thread *x = a, *y = b;
	uint64_t left = magnitude(x->weight), right = magnitude(y->weight);
	int order = (left < right) - (left > right);

	order = order ? order : strcmp(x->process, y->process);
	order = order ? order : strcmp(x->name, y->name);
	order = order ? order : strcmp(x->pid, y->pid);
	return order ? order : strcmp(x->tid, y->tid);
}

int format_threads(const struct stacks *s, size_t type, struct format_threads *out)
{
	struct format_threads t = { 0 };
	struct uw_hash_index index = { 0 };
	uint32_t *of = calloc(s->n_samples + 1, sizeof(*of));
	size_t *next;
	int err = of ? 0 : -ENOMEM;

	t.samples = calloc(s->n_samples + 1, sizeof(*t.samples));
	t.all = calloc(s->n_samples + 1, sizeof(*t.all));
	if (!t.samples || !t.all)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < s->n_samples; i++) {
		struct format_thread want = { .name = keep_label(&t, s, i, "thread"),
					      .process = keep_label(&t, s, i, "comm"),
					      .pid = keep_label(&t, s, i, "pid"),
					      .tid = keep_label(&t, s, i, "tid") };
		uint64_t hash;

		of[i] = UW_HASH_NONE;
		if (!stacks_value(s, i, type))
			continue;
		if (!want.name || !want.process || !want.pid || !want.tid) {
			err = -ENOMEM;
			break;
		}
		hash = hash_u64(
			hash_u64((uint64_t)(uintptr_t)want.name, (uint64_t)(uintptr_t)want.tid),
			(uint64_t)(uintptr_t)want.pid);
		of[i] = UW_HASH_FIND(k, &index, hash, same_thread(&t.all[k], &want));
		if (of[i] == UW_HASH_NONE) {
			of[i] = (uint32_t)t.n;
			t.all[t.n++] = want;
			err = uw_hash_add(&index, hash, of[i]);
		}
		t.all[of[i]].n_samples++;
		t.all[of[i]].weight = stacks_sum(t.all[of[i]].weight, stacks_value(s, i, type));
	}
	next = t.samples;
	for (size_t i = 0; !err && i < t.n; i++) {
		t.all[i].samples = next;
		next += t.all[i].n_samples;
		t.all[i].n_samples = 0;
	}
	for (size_t i = 0; !err && i < s->n_samples; i++)
		if (of[i] != UW_HASH_NONE)
			t.all[of[i]].samples[t.all[of[i]].n_samples++] = i;
	if (!err && t.n)
		qsort(t.all, t.n, sizeof(*t.all), heaviest_first);
	uw_hash_fini(&index);
	free(of);
	if (err)
		format_threads_fini(&t);
	else
		*out = t;
	return err;
}

void format_threads_fini(struct format_threads *t)
{
	free(t->all);
	free(t->samples);
	strings_fini(&t->texts);
	*t = (struct format_threads){ 0 };
}
