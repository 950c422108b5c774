/*
 * agent/export/firefox.c: writes a profile for profiler.firefox.com in version 48 of the "processed
 * profile format" (docs-developer/CHANGELOG-formats.md of the Firefox Profiler), which later
 * releases upgrade when they read it.
 *
 * Each thread has tables of its own: samples → stackTable (a tree) → frameTable → funcTable →
 * resourceTable → libs, which all threads share.
 */
#include "agent/export/formats.h"

#include "agent/array.h"
#include "agent/export/json.h"
#include "agent/runtime/runtime.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	FORMAT_VERSION = 48,
	GECKO_VERSION = 27,
	THREADS_MAX = 2000, /* further threads become one thread, "N other threads" */
	LIBRARY = 1,	    /* the type of a resource */
	CATEGORY_OTHER = 0,
	CATEGORY_USER,
	CATEGORY_KERNEL,
	CATEGORY_RUNTIMES, /* the first of them, in the order of runtimes_all */
};

#define NONE UINT32_MAX

struct func { /* an entry of funcTable */
	uint32_t function, module;
	uint32_t resource; /* NONE */
	uint32_t name, file;
};

struct frame { /* an entry of frameTable */
	uint32_t func, module, depth;
	uint64_t address;
	int64_t line;
};

struct node { /* an entry of stackTable */
	uint32_t frame, prefix;
};

struct tables { /* tables of one thread */
	struct func *funcs;
	struct frame *frames;
	struct node *nodes;
	uint32_t *resources; /* their modules */
	uint32_t *resource_names;
	const char **texts;
	uint32_t *stacks; /* by sample: its node */
	size_t n_funcs, n_frames, n_nodes, n_resources, n_resource_names, n_texts;
	size_t room_funcs, room_frames, room_nodes, room_resources, room_resource_names, room_texts;
	struct uw_hash_index by_func, by_frame, by_node, by_resource, by_text;
};

struct firefox {
	const struct stacks *s;
	size_t type;
	FILE *out;
	uint32_t *libs; /* by module: its number in libs, or NONE */
	struct stacks_frames unfolded;
	uint64_t first_ns; /* the earliest time of a sample */
	int err;
};

/* ---- tables ---------------------------------------------------------------------------- */

/* Give the index of an item in a table; the item is added if it is new. NONE: out of memory. */
#define FIND(t, table, index, item, hash, same)                                                \
	__extension__({                                                                        \
		uint32_t id_ =                                                                 \
			UW_HASH_FIND(i_, &(t)->index, (hash), same(&(t)->table[i_], &(item))); \
		if (id_ == UW_HASH_NONE && (t)->n_##table < NONE - 1 &&                        \
		    !array_grow((t)->table, (t)->n_##table, (t)->room_##table) &&              \
		    !uw_hash_add(&(t)->index, (hash), (uint32_t)(t)->n_##table)) {             \
			(t)->table[(t)->n_##table] = (item);                                   \
			id_ = (uint32_t)(t)->n_##table++;                                      \
		}                                                                              \
		id_;                                                                           \
	})

static bool same_text(const char *const *a, const char *const *b)
{
	return *a == *b;
}

/* Return the index of a text; equal texts of a profile are one pointer. */
static uint32_t text_id(struct tables *t, const char *text)
{
	return FIND(t, texts, by_text, text, hash_u64(0, (uint64_t)(uintptr_t)text), same_text);
}

static bool same_resource(const uint32_t *a, const uint32_t *b)
{
	return *a == *b;
}

/*
 * Return the index of a module's resource; NONE if the module is not in libs, or out of memory
 * (ff->err).
 */
static uint32_t resource_id(struct firefox *ff, struct tables *t, uint32_t module)
{
	size_t n = t->n_resources;
	uint32_t id, name;

	if (ff->libs[module] == NONE)
		return NONE;
	id = FIND(t, resources, by_resource, module, hash_u64(1, module), same_resource);
	if (id == NONE || t->n_resources == n)
		return id;
	name = text_id(t, ff->s->modules[module].name);
	if (name == NONE)
		ff->err = -ENOMEM;
	if (array_grow(t->resource_names, t->n_resource_names, t->room_resource_names))
		ff->err = -ENOMEM;
	else
		t->resource_names[t->n_resource_names++] = name;
	return id;
}

static bool same_func(const struct func *a, const struct func *b)
{
	return a->function == b->function && a->module == b->module;
}

/* Return the index of the frame's function and module; NONE: out of memory. */
static uint32_t func_id(struct firefox *ff, struct tables *t, const struct stacks_frame *frame)
{
	struct func want = { .function = frame->function, .module = frame->module };
	uint64_t hash = hash_u64(hash_u64(2, want.function), want.module);
	size_t n = t->n_funcs;
	uint32_t id = FIND(t, funcs, by_func, want, hash, same_func);

	if (id != NONE && t->n_funcs > n) {
		const struct stacks_function *f = &ff->s->functions[frame->function];
		struct func *func = &t->funcs[id];

		func->resource = resource_id(ff, t, frame->module);
		func->name = text_id(t, f->name);
		func->file = *f->file ? text_id(t, f->file) : NONE;
		if (func->name == NONE || (*f->file && func->file == NONE))
			return NONE;
	}
	return id;
}

static bool same_frame(const struct frame *a, const struct frame *b)
{
	return a->func == b->func && a->depth == b->depth && a->address == b->address &&
	       a->line == b->line;
}

static bool same_node(const struct node *a, const struct node *b)
{
	return a->frame == b->frame && a->prefix == b->prefix;
}

/* Give the node for a sample's stack in *out; NONE if it has no frames. -ENOMEM. */
static int stack_id(struct firefox *ff, struct tables *t, size_t sample, uint32_t *out)
{
	const struct stacks *s = ff->s;

	*out = NONE;
	if (stacks_unfold(s, &s->samples[sample], &ff->unfolded))
		return -ENOMEM;
	for (size_t i = ff->unfolded.n, depth = 0; i-- > 0;) {
		const struct stacks_frame *from = &ff->unfolded.frames[i];
		struct frame frame;
		struct node node;

		depth = from->inlined ? depth + 1 : 0;
		frame = (struct frame){ .func = func_id(ff, t, from),
					.module = from->module,
					.depth = (uint32_t)depth,
					.address = from->address,
					.line = from->line };
		if (frame.func == NONE || ff->err)
			return -ENOMEM;
		node = (struct node){ .prefix = *out };
		node.frame = FIND(t, frames, by_frame, frame,
				  hash_u64(hash_u64(frame.address, frame.func),
					   (uint64_t)frame.line << 16 ^ depth),
				  same_frame);
		if (node.frame == NONE)
			return -ENOMEM;
		*out = FIND(t, nodes, by_node, node, hash_u64(hash_u64(3, node.prefix), node.frame),
			    same_node);
		if (*out == NONE)
			return -ENOMEM;
	}
	return 0;
}

static void tables_fini(struct tables *t)
{
	free(t->funcs);
	free(t->frames);
	free(t->nodes);
	free(t->resources);
	free(t->resource_names);
	free(t->texts);
	free(t->stacks);
	uw_hash_fini(&t->by_func);
	uw_hash_fini(&t->by_frame);
	uw_hash_fini(&t->by_node);
	uw_hash_fini(&t->by_resource);
	uw_hash_fini(&t->by_text);
}

/* ---- JSON --------------------------------------------------------------------------------- */

/* Write one column of a table: the statements print item i, for i from 0 to n - 1. */
#define COLUMN(ff, name, n, ...)                             \
	do {                                                 \
		(void)fputs("\"" name "\":[", (ff)->out);    \
		for (size_t i = 0; i < (n); i++) {           \
			if (i)                               \
				(void)fputc(',', (ff)->out); \
			__VA_ARGS__;                         \
		}                                            \
		(void)fputs("],", (ff)->out);                \
	} while (0)

/* Write an index, or what stands for none. */
static void put_index(const struct firefox *ff, uint32_t value, const char *none)
{
	if (value == NONE)
		(void)fputs(none, ff->out);
	else
		(void)fprintf(ff->out, "%" PRIu32, value);
}

/*
 * Write the address of a frame within its module; -1 if the module is not in libs, or the address
 * too large. JavaScript's numbers are exact up to 2^53 only.
 */
static void put_address(const struct firefox *ff, const struct frame *f)
{
	const struct stacks_module *m = &ff->s->modules[f->module];
	uint64_t address = m->kernel && f->address >= m->start ? f->address - m->start : f->address;

	if (ff->libs[f->module] == NONE || address >= (uint64_t)1 << 53)
		(void)fputs("-1", ff->out);
	else
		(void)fprintf(ff->out, "%" PRIu64, address);
}

static void put_line(const struct firefox *ff, int64_t line)
{
	if (line > 0)
		(void)fprintf(ff->out, "%" PRId64, line);
	else
		(void)fputs("null", ff->out);
}

static void put_category(const struct firefox *ff, uint32_t module)
{
	const struct stacks_module *m = &ff->s->modules[module];

	(void)fprintf(ff->out, "%zu",
		      m->kernel	   ? CATEGORY_KERNEL
		      : m->runtime ? CATEGORY_RUNTIMES + runtime_number(m->runtime)
				   : CATEGORY_USER);
}

/* Write a thread's tables. */
static void put_tables(const struct firefox *ff, const struct tables *t)
{
	FILE *out = ff->out;

	(void)fputs("\"stackTable\":{", out);
	COLUMN(ff, "frame", t->n_nodes, put_index(ff, t->nodes[i].frame, "null"));
	COLUMN(ff, "prefix", t->n_nodes, put_index(ff, t->nodes[i].prefix, "null"));
	COLUMN(ff, "category", t->n_nodes, put_category(ff, t->frames[t->nodes[i].frame].module));
	COLUMN(ff, "subcategory", t->n_nodes, (void)fputc('0', out));
	(void)fprintf(out, "\"length\":%zu},\n\"frameTable\":{", t->n_nodes);
	COLUMN(ff, "address", t->n_frames, put_address(ff, &t->frames[i]));
	COLUMN(ff, "inlineDepth", t->n_frames, (void)fprintf(out, "%" PRIu32, t->frames[i].depth));
	COLUMN(ff, "category", t->n_frames, put_category(ff, t->frames[i].module));
	COLUMN(ff, "subcategory", t->n_frames, (void)fputc('0', out));
	COLUMN(ff, "func", t->n_frames, put_index(ff, t->frames[i].func, "null"));
	COLUMN(ff, "nativeSymbol", t->n_frames, (void)fputs("null", out));
	COLUMN(ff, "innerWindowID", t->n_frames, (void)fputc('0', out));
	COLUMN(ff, "implementation", t->n_frames, (void)fputs("null", out));
	COLUMN(ff, "line", t->n_frames, put_line(ff, t->frames[i].line));
	COLUMN(ff, "column", t->n_frames, (void)fputs("null", out));
	(void)fprintf(out, "\"length\":%zu},\n\"funcTable\":{", t->n_frames);
	COLUMN(ff, "name", t->n_funcs, put_index(ff, t->funcs[i].name, "0"));
	COLUMN(ff, "isJS", t->n_funcs, (void)fputs("false", out));
	COLUMN(ff, "relevantForJS", t->n_funcs, (void)fputs("false", out));
	COLUMN(ff, "resource", t->n_funcs, put_index(ff, t->funcs[i].resource, "-1"));
	COLUMN(ff, "fileName", t->n_funcs, put_index(ff, t->funcs[i].file, "null"));
	COLUMN(ff, "lineNumber", t->n_funcs,
	       put_line(ff, ff->s->functions[t->funcs[i].function].start_line));
	COLUMN(ff, "columnNumber", t->n_funcs, (void)fputs("null", out));
	(void)fprintf(out, "\"length\":%zu},\n\"resourceTable\":{", t->n_funcs);
	COLUMN(ff, "lib", t->n_resources, put_index(ff, ff->libs[t->resources[i]], "null"));
	COLUMN(ff, "name", t->n_resources, put_index(ff, t->resource_names[i], "0"));
	COLUMN(ff, "host", t->n_resources, (void)fputs("null", out));
	COLUMN(ff, "type", t->n_resources, (void)fprintf(out, "%d", LIBRARY));
	(void)fprintf(out, "\"length\":%zu},\n", t->n_resources);
	(void)fputs("\"nativeSymbols\":{\"libIndex\":[],\"address\":[],\"name\":[],"
		    "\"functionSize\":[],\"length\":0},\n"
		    "\"markers\":{\"data\":[],\"name\":[],\"startTime\":[],\"endTime\":[],"
		    "\"phase\":[],\"category\":[],\"length\":0},\n\"stringArray\":[",
		    out);
	for (size_t i = 0; i < t->n_texts; i++) {
		if (i)
			(void)fputc(',', out);
		json_text(out, t->texts[i]);
	}
	(void)fputs("]", out);
}

/* Return whether the sample type is a time. */
static bool in_time(const struct firefox *ff)
{
	return !strcmp(ff->s->types[ff->type].unit, "nanoseconds");
}

/* Write nanoseconds as milliseconds, the format's unit. */
static void put_ms(const struct firefox *ff, int64_t ns)
{
	uint64_t size = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;

	(void)fprintf(ff->out, "%s%" PRIu64 ".%06" PRIu64, ns < 0 ? "-" : "", size / 1000000,
		      size % 1000000);
}

/* Write a sample's value; a time in milliseconds. */
static void put_weight(const struct firefox *ff, int64_t value)
{
	if (in_time(ff))
		put_ms(ff, value);
	else
		(void)fprintf(ff->out, "%" PRId64, value);
}

/*
 * Write the times of a thread's samples. Samples without a time follow each other, each as long as
 * its value.
 */
static void put_times(const struct firefox *ff, const struct format_thread *thread)
{
	const struct stacks *s = ff->s;
	int64_t before = 0;

	(void)fputs("\"time\":[", ff->out);
	for (size_t i = 0; i < thread->n_samples; i++) {
		size_t sample = thread->samples[i];
		int64_t value = stacks_value(s, sample, ff->type);

		if (i)
			(void)fputc(',', ff->out);
		if (s->timed) {
			put_ms(ff, (int64_t)(s->samples[sample].time_ns - ff->first_ns));
		} else {
			put_weight(ff, before);
			before = stacks_sum(before, value > 0 ? value : 0);
		}
	}
	(void)fputs("],", ff->out);
}

/* Write a thread with its samples and tables. */
static int put_thread(struct firefox *ff, const struct format_thread *thread)
{
	const char *unit = ff->s->types[ff->type].unit;
	struct tables t = { .stacks = calloc(thread->n_samples + 1, sizeof(uint32_t)) };
	FILE *out = ff->out;
	int err = t.stacks ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < thread->n_samples; i++)
		err = stack_id(ff, &t, thread->samples[i], &t.stacks[i]);
	if (err) {
		tables_fini(&t);
		return err;
	}
	(void)fputs("{\"processType\":\"default\",\"processStartupTime\":0,"
		    "\"processShutdownTime\":null,\"registerTime\":0,\"unregisterTime\":null,"
		    "\"pausedRanges\":[],\"showMarkersInTimeline\":false,\n\"name\":",
		    out);
	json_text(out, *thread->name ? thread->name : thread->process);
	(void)fputs(",\"processName\":", out);
	json_text(out, *thread->process ? thread->process : thread->name);
	(void)fprintf(out, ",\"isMainThread\":%s,\"pid\":",
		      !strcmp(thread->pid, thread->tid) ? "true" : "false");
	json_text(out, thread->pid);
	(void)fputs(",\"tid\":", out);
	json_text(out, thread->tid);
	(void)fputs(",\n\"samples\":{", out);
	COLUMN(ff, "stack", thread->n_samples, put_index(ff, t.stacks[i], "null"));
	put_times(ff, thread);
	COLUMN(ff, "weight", thread->n_samples,
	       put_weight(ff, stacks_value(ff->s, thread->samples[i], ff->type)));
	(void)fprintf(out, "\"weightType\":\"%s\",\"length\":%zu},\n",
		      in_time(ff)	       ? "tracing-ms"
		      : !strcmp(unit, "bytes") ? "bytes"
					       : "samples",
		      thread->n_samples);
	put_tables(ff, &t);
	(void)fputc('}', out);
	tables_fini(&t);
	return 0;
}

/*
 * Write a module's Breakpad id: the first 16 bytes of its build-id as a GUID of little-endian
 * fields, and an age of 0.
 */
static void put_breakpad_id(const struct firefox *ff, const char *build_id)
{
	static const int order[] = { 3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15 };
	size_t n = strlen(build_id);

	(void)fputc('"', ff->out);
	for (size_t i = 0; i < 16; i++) {
		size_t at = 2 * (size_t)order[i];
		bool known = at + 1 < n && strspn(build_id + at, "0123456789abcdefABCDEF") >= 2;

		for (size_t j = at; j < at + 2; j++)
			(void)fputc(!known		 ? '0'
				    : build_id[j] >= 'a' ? build_id[j] - 'a' + 'A'
							 : build_id[j],
				    ff->out);
	}
	(void)fputs("0\"", ff->out);
}

/* Write the modules that samples are in. */
static void put_libs(const struct firefox *ff)
{
	const struct stacks *s = ff->s;
	const char *comma = "";

	(void)fputs("\"libs\":[", ff->out);
	for (size_t i = 0; i < s->n_modules; i++) {
		const struct stacks_module *m = &s->modules[i];

		if (ff->libs[i] == NONE)
			continue;
		(void)fprintf(ff->out, "%s\n{\"arch\":\"\",\"name\":", comma);
		json_text(ff->out, m->name);
		(void)fputs(",\"path\":", ff->out);
		json_text(ff->out, m->path);
		(void)fputs(",\"debugName\":", ff->out);
		json_text(ff->out, m->name);
		(void)fputs(",\"debugPath\":", ff->out);
		json_text(ff->out, m->path);
		(void)fputs(",\"breakpadId\":", ff->out);
		put_breakpad_id(ff, m->build_id);
		(void)fputs(",\"codeId\":", ff->out);
		if (*m->build_id)
			json_text(ff->out, m->build_id);
		else
			(void)fputs("null", ff->out);
		(void)fputc('}', ff->out);
		comma = ",";
	}
	(void)fputs("],\n", ff->out);
}

/* Write the head of the profile. */
static void put_meta(const struct firefox *ff)
{
	/* For runtimes. The names are the profiler's; not of other categories. */
	static const char *const colours[] = { "green",	  "lightblue", "purple", "red",
					       "magenta", "blue",      "brown",	 "lightgreen" };
	const struct stacks *s = ff->s;

	(void)fputs("{\"meta\":{\"interval\":", ff->out);
	if (!strcmp(s->period_type.unit, "nanoseconds") && s->period > 0)
		put_ms(ff, s->period);
	else
		(void)fputc('1', ff->out);
	(void)fputs(",\"startTime\":", ff->out);
	put_ms(ff, s->time_ns);
	(void)fprintf(ff->out,
		      ",\"processType\":0,\"stackwalk\":1,\"debug\":false,\"symbolicated\":true,"
		      "\"version\":%d,\"preprocessedProfileVersion\":%d,"
		      "\"product\":\"offwind\",\"importedFrom\":\"offwind " OFFWIND_VERSION "\","
		      "\"usesOnlyOneStackType\":true,\"doesNotUseFrameImplementation\":true,"
		      "\"sourceCodeIsNotOnSearchfox\":true,\"markerSchema\":[],"
		      "\"extensions\":{\"id\":[],\"name\":[],\"baseURL\":[],\"length\":0},\n"
		      "\"categories\":["
		      "{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]},"
		      "{\"name\":\"User\",\"color\":\"yellow\",\"subcategories\":[\"Other\"]},"
		      "{\"name\":\"Kernel\",\"color\":\"orange\",\"subcategories\":[\"Other\"]}",
		      GECKO_VERSION, FORMAT_VERSION);
	for (size_t i = 0; runtimes_all[i]; i++)
		(void)fprintf(ff->out,
			      ",{\"name\":\"%s\",\"color\":\"%s\",\"subcategories\":[\"Other\"]}",
			      runtimes_all[i]->module,
			      colours[i % (sizeof(colours) / sizeof(colours[0]))]);
	(void)fputs("]},\n", ff->out);
}

/* Number the modules that samples are in, and find the time of the first sample. */
static void look_around(struct firefox *ff)
{
	const struct stacks *s = ff->s;
	uint32_t n = 0;

	ff->first_ns = UINT64_MAX;
	for (size_t i = 0; i < s->n_samples; i++) {
		const struct stacks_sample *sample = &s->samples[i];

		if (!stacks_value(s, i, ff->type))
			continue;
		if (sample->time_ns < ff->first_ns)
			ff->first_ns = sample->time_ns;
		for (uint32_t j = 0; j < sample->n_locations; j++)
			ff->libs[s->locations[s->location_ids[sample->first_location + j]].module] =
				0;
	}
	ff->libs[0] = NONE;
	for (size_t i = 0; i < s->n_modules; i++)
		if (ff->libs[i] != NONE)
			ff->libs[i] = n++;
}

/* Write the threads beyond THREADS_MAX as one. */
static int put_others(struct firefox *ff, const struct format_threads *threads)
{
	struct format_thread others = { .process = "", .pid = "others", .tid = "others" };
	char name[64];
	size_t n = 0;
	int err;

	(void)snprintf(name, sizeof(name), "%zu other threads", threads->n - THREADS_MAX);
	others.name = name;
	for (size_t i = THREADS_MAX; i < threads->n; i++)
		n += threads->all[i].n_samples;
	others.samples = calloc(n + 1, sizeof(*others.samples));
	if (!others.samples)
		return -ENOMEM;
	for (size_t i = THREADS_MAX; i < threads->n; i++)
		for (size_t j = 0; j < threads->all[i].n_samples; j++)
			others.samples[others.n_samples++] = threads->all[i].samples[j];
	(void)fputs(",\n", ff->out);
	err = put_thread(ff, &others);
	free(others.samples);
	return err;
}

int format_firefox(const struct stacks *s, size_t type, FILE *out)
{
	struct firefox ff = { .s = s, .type = type, .out = out };
	struct format_threads threads = { 0 };
	int err;

	ff.libs = malloc((s->n_modules + 1) * sizeof(*ff.libs));
	if (!ff.libs)
		return -ENOMEM;
	memset(ff.libs, 0xff, (s->n_modules + 1) * sizeof(*ff.libs)); /* NONE */
	look_around(&ff);
	err = format_threads(s, type, &threads);
	if (!err) {
		put_meta(&ff);
		put_libs(&ff);
		(void)fputs("\"pages\":[],\"counters\":[],\"profilerOverhead\":[],\n"
			    "\"threads\":[\n",
			    out);
	}
	for (size_t i = 0; !err && i < threads.n && i < THREADS_MAX; i++) {
		if (i)
			(void)fputs(",\n", out);
		err = put_thread(&ff, &threads.all[i]);
	}
	if (!err && threads.n > THREADS_MAX)
		err = put_others(&ff, &threads);
	(void)fputs("]}\n", out);
	format_threads_fini(&threads);
	free(ff.libs);
	free(ff.unfolded.frames);
	return err;
}
