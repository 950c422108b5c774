/*
 * tests/unit/test_export.c: tests the exporters: pprof, folded lines, text, TSV, and hostile names
 * in each of them.
 */
#include "agent/export/export.h"
#include "agent/export/result.h"
#include "agent/process/cgroups.h"
#include "agent/sanitize.h"
#include "proto/pprof_read.h"

#include "tests/check.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- a profile and names for it --------------------------------------------- */

static const struct named {
	uint64_t vaddr;
	const char *function, *system_name, *module;
	uint64_t start;
} named[] = {
	{ 0x401000, "main", "main", "prog", 0x400ff0 },
	{ 0x2345, "work(int; char)", "_Z4workic", "libfoo.so", 0x2300 },
	{ 0x2999, NULL, NULL, "libfoo.so", 0 },
	{ 0xffffffff81000123, "do_syscall_64", "do_syscall_64", "[kernel]", 0xffffffff81000100 },
	{ 0xffffffffc0000010, "ext4_readdir", "ext4_readdir", "[ext4]", 0xffffffffc0000000 },
	{ 0x7f0000001000, NULL, NULL, "[jit]", 0 },
};

static const char *hostile; /* all names, if it is set */

void names_prepare(struct names *names, const struct profile *profile)
{
	(void)names;
	(void)profile;
}

void names_find(struct names *names, const struct location *location, struct name *out)
{
	(void)names;
	*out = (struct name){ .module = "[unknown]" };
	for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
		if (named[i].vaddr != location->vaddr)
			continue;
		*out = (struct name){
			.function = named[i].function,
			.system_name = named[i].system_name,
			.module = named[i].module,
			.start = named[i].start,
			.offset = location->vaddr + location->ra_bytes - named[i].start,
		};
	}
	if (hostile)
		out->function = out->system_name = out->module = hostile;
}

static char paths[6][64] = { "/usr/bin/prog", "/usr/lib/libfoo.so", "[kernel]", "[jit]",
			     "[unknown]" };

static const struct module modules[] = {
	{ .id = 0, .kind = MODULE_FILE, .path = paths[0], .build_id = { 2, { 0xab, 0x01 } } },
	{ .id = 1, .kind = MODULE_FILE, .path = paths[1] },
	{ .id = 2, .kind = MODULE_KERNEL, .path = paths[2] },
	{ .id = 3, .kind = MODULE_JIT, .path = paths[3] },
	{ .id = 4, .kind = MODULE_OTHER, .path = paths[4] },
};

static const struct location locations[] = {
	{ 0x401000, &modules[0], 1, 0 },	   /* 0 main */
	{ 0x2345, &modules[1], 1, 0 },		   /* 1 work */
	{ 0x2999, &modules[1], 0, 0 },		   /* 2 nameless */
	{ 0xffffffff81000123, &modules[2], 1, 0 }, /* 3 */
	{ 0xffffffffc0000010, &modules[2], 0, 0 }, /* 4 */
	{ 0x7f0000001000, &modules[3], 1, 0 },	   /* 5 */
	{ UINT64_MAX, &modules[4], 1, 0 }, /* 6 the caller of a call through a null pointer */
	{ 0x9999, &modules[1], 0, 0 },	   /* 7 in no stack */
	{ 0x401000, &modules[0], 1, UW_CONFIDENCE_CHECKED }, /* 8 main, where a guess led to it */
};

static uint32_t ids[] = { 2, 1, 0, /**/ 4, 3, 1, 8, /**/ 5, 6, /**/ 2, 1, 0 };

#define CONTAINER "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define POD	  "/kubepods.slice/kubepods-pod12ab.slice/cri-containerd-" CONTAINER ".scope"

static struct profile_entry entries[] = {
	{ .stop = UW_STOP_ROOT,
	  .has_user = true,
	  .pid = 10,
	  .tid = 11,
	  .comm = "thr;ead",
	  .process_comm = "prog",
	  .cgroup_id = 7,
	  .n_locations = 3,
	  .n_samples = 3,
	  .value = 30300000 },
	{ .stop = UW_STOP_TRUNCATED,
	  .has_user = true,
	  .stack_cut = true,
	  .confidence = UW_CONFIDENCE_CHECKED,
	  .pid = 10,
	  .tid = 10,
	  .comm = "prog",
	  .process_comm = "prog",
	  .first_location = 3,
	  .n_locations = 4,
	  .n_kernel = 2,
	  .n_samples = 2,
	  .value = 20200000 },
	{ .stop = UW_STOP_NO_MAPPING,
	  .has_user = true,
	  .pid = 20,
	  .tid = 20,
	  .comm = "node",
	  .process_comm = "node",
	  .first_location = 7,
	  .n_locations = 2,
	  .n_samples = 1,
	  .value = 10100000 },
	{ .stop = UW_STOP_ROOT,
	  .has_user = true,
	  .pid = 10,
	  .tid = 12,
	  .comm = "thr;ead",
	  .process_comm = "prog",
	  /* the labels of POD: main adds them */
	  .first_location = 9,
	  .n_locations = 3,
	  .n_samples = 4,
	  .value = 40400000 },
	{ .stop = UW_STOP_NO_USER_STATE,
	  .pid = 2,
	  .tid = 2,
	  .comm = "kthreadd",
	  .process_comm = "kthreadd",
	  .first_location = 3,
	  .n_locations = 2,
	  .n_kernel = 2,
	  .n_samples = 5,
	  .value = 50500000 },
};

static const struct profile profile = {
	.entries = entries,
	.n_entries = 5,
	.location_ids = ids,
	.n_location_ids = sizeof(ids) / sizeof(ids[0]),
	.locations = locations,
	.n_locations = sizeof(locations) / sizeof(locations[0]),
	.start_ns = 5000000000,
	.end_ns = 7000000000,
	.accounting = { .captured = 16,
			.unwound = 15,
			.stop = { [UW_STOP_ROOT] = 7 },
			.lost = { 1 } },
};

static struct source_event events[] = {
	{ .name = "cpu-clock", .type = "cpu", .unit = "nanoseconds", .frequency_hz = 99 },
	{ .name = "cycles", .type = "cycles", .unit = "count", .period = 1000 },
};

static const struct source_info info = {
	.machine = EM_X86_64,
	.kind = "live",
	.host = "box",
	.kernel = "6.1",
	.recorder = "test",
	.command = "a remark\nof two lines",
	.wall_start_ns = 1700000000000000000,
	.wall_first_ns = 4000000000,
	.events = events,
	.n_events = 1,
	.kernel_build_id = { 3, { 1, 2, 3 } },
};

/* ---- pprof ------------------------------------------------------------------ */

/* Do what unwind does for formats that need a whole profile. */
static int export_as(enum format format, const struct profile *p, const struct source_info *i,
		     FILE *out)
{
	struct result *r = NULL;
	int err = result_new(format, &r);

	if (!err)
		err = result_add(r, p, NULL, i);
	if (!err)
		err = result_write(r, NULL, out);
	result_free(r);
	return err;
}

static size_t export(const struct profile *p, const struct source_info *i, uint8_t *out,
		     size_t size)
{
	FILE *file = tmpfile();
	ssize_t n;

	CHECK(file && !export_as(FORMAT_PPROF, p, i, file), "exports");
	n = pread(fileno(file), out, size, 0);
	(void)fclose(file);
	return n > 0 ? (size_t)n : 0;
}

static struct pprof_file *export_and_read(const struct profile *p, const struct source_info *i)
{
	static uint8_t bytes[65536];
	char error[PPROF_ERROR_SIZE] = "";
	struct pprof_file *file = NULL;
	size_t n = export(p, i, bytes, sizeof(bytes));
	int fd = memfd_create("pprof", 0);

	CHECK(write(fd, bytes, n) == (ssize_t)n && !lseek(fd, 0, SEEK_SET), "a file");
	CHECK(!pprof_read(fd, 1 << 20, &file, error), error);
	(void)close(fd);
	return file;
}

static void print_fault(void *ctx, const char *text)
{
	(void)ctx;
	(void)printf("  %s\n", text);
}

static const Perftools__Profiles__Location *location_of(const struct pprof_file *f, size_t sample,
							size_t frame)
{
	return pprof_profile(f)->location[pprof_place_of_location(
		f, pprof_profile(f)->sample[sample]->location_id[frame])];
}

static const char *function_of(const struct pprof_file *f, size_t sample, size_t frame)
{
	return pprof_text(f,
			  pprof_profile(f)
				  ->function[pprof_place_of_function(
					  f, location_of(f, sample, frame)->line[0]->function_id)]
				  ->name);
}

/* Return the text of a label, or its number as text; "-" if there is no such label. */
static const char *label_of(const struct pprof_file *f, size_t sample, const char *key)
{
	static char number[32];
	const Perftools__Profiles__Sample *s = pprof_profile(f)->sample[sample];

	for (size_t i = 0; i < s->n_label; i++) {
		const Perftools__Profiles__Label *l = s->label[i];

		if (strcmp(pprof_text(f, l->key), key) != 0)
			continue;
		(void)snprintf(number, sizeof(number), "%lld", (long long)l->num);
		return l->str ? pprof_text(f, l->str) : number;
	}
	return "-";
}

static bool has_comment(const struct pprof_file *f, const char *text)
{
	const Perftools__Profiles__Profile *p = pprof_profile(f);

	for (size_t i = 0; i < p->n_comment; i++)
		if (!strcmp(pprof_text(f, p->comment[i]), text))
			return true;
	return false;
}

static void test_pprof_holds_the_profile(void)
{
	struct pprof_file *f = export_and_read(&profile, &info);
	const Perftools__Profiles__Profile *p;
	const Perftools__Profiles__Mapping *m;

	if (!f)
		return;
	p = pprof_profile(f);
	CHECK(!pprof_check(p, true, print_fault, NULL), "strictly sound");
	CHECK(p->n_sample_type == 2 && p->n_sample == 5 && p->n_location == 7, "only what is used");
	CHECK(!strcmp(pprof_text(f, p->sample_type[0]->type), "samples") &&
		      !strcmp(pprof_text(f, p->sample_type[0]->unit), "count") &&
		      !strcmp(pprof_text(f, p->sample_type[1]->type), "cpu") &&
		      !strcmp(pprof_text(f, p->sample_type[1]->unit), "nanoseconds"),
	      "sample types");
	CHECK(!strcmp(pprof_text(f, p->default_sample_type), "cpu"), "default");
	CHECK(p->period == 10101010 && !strcmp(pprof_text(f, p->period_type->type), "cpu"),
	      "99 Hz");
	CHECK(p->time_nanos == 1700000001000000000 && p->duration_nanos == 2000000000, "times");
	CHECK(p->sample[1]->value[0] == 2 && p->sample[1]->value[1] == 20200000, "values");
	CHECK(!strcmp(function_of(f, 1, 0), "ext4_readdir") &&
		      !strcmp(function_of(f, 1, 1), "do_syscall_64") &&
		      !strcmp(function_of(f, 1, 2), "work(int; char)") &&
		      !strcmp(function_of(f, 1, 3), "main"),
	      "kernel frames come first");
	CHECK(!strcmp(function_of(f, 0, 0), "[libfoo.so]") &&
		      location_of(f, 0, 0)->address == 0x2999,
	      "without symbol: the module, and its address");
	CHECK(!strcmp(function_of(f, 2, 0), "[jit]"), "generated code");
	m = pprof_profile(f)->mapping[pprof_place_of_mapping(f, location_of(f, 1, 0)->mapping_id)];
	CHECK(m && !strcmp(pprof_text(f, m->filename), "[kernel]") &&
		      !strcmp(pprof_text(f, m->build_id), "010203") && !m->file_offset &&
		      m->memory_start == 0xffffffff81000000 &&
		      m->memory_limit == 0xffffffffc0001000,
	      "the kernel's mapping spans what was seen");
	m = pprof_profile(f)->mapping[pprof_place_of_mapping(f, location_of(f, 0, 0)->mapping_id)];
	CHECK(m && m->memory_start == 0x2000 && m->memory_limit == 0x3000 &&
		      m->file_offset == 0x2000 && m->has_functions,
	      "a file that was not opened: addresses are offsets");
	m = pprof_profile(f)->mapping[pprof_place_of_mapping(f, location_of(f, 0, 2)->mapping_id)];
	CHECK(m && !strcmp(pprof_text(f, m->build_id), "ab01"), "build-id");
	CHECK(m && m->id == 1, "the program comes first, before libraries");
	CHECK(location_of(f, 2, 1)->mapping_id == 0, "what was in no mapping has none");
	CHECK(!strcmp(label_of(f, 0, "pid"), "10") && !strcmp(label_of(f, 0, "tid"), "11") &&
		      !strcmp(label_of(f, 0, "thread"), "thr;ead") &&
		      !strcmp(label_of(f, 0, "comm"), "prog") &&
		      !strcmp(label_of(f, 0, "cgroup"), "7") &&
		      !strcmp(label_of(f, 0, "container_id"), "-"),
	      "labels");
	CHECK(!strcmp(label_of(f, 3, "cgroup"), POD) &&
		      !strcmp(label_of(f, 3, "container_id"), CONTAINER),
	      "a cgroup whose path is known, and its container");
	CHECK(!strcmp(label_of(f, 0, "stop"), "-") &&
		      !strcmp(label_of(f, 1, "stop"), "truncated") &&
		      !strcmp(label_of(f, 2, "stop"), "no_mapping") &&
		      !strcmp(label_of(f, 4, "stop"), "-") &&
		      !strcmp(label_of(f, 1, "cgroup"), "-") &&
		      !strcmp(label_of(f, 0, "confidence"), "-") &&
		      !strcmp(label_of(f, 1, "confidence"), "checked") &&
		      !strcmp(label_of(f, 0, "guessed"), "-") &&
		      !strcmp(label_of(f, 1, "guessed"), "3") &&
		      location_of(f, 1, 3) == location_of(f, 0, 2),
	      "why a stack is not whole");
	CHECK(has_comment(f, "host: box") && has_comment(f, "kernel: 6.1") &&
		      has_comment(f, "offwind " OFFWIND_VERSION) &&
		      has_comment(f, "command: a remark of two lines"),
	      "comments");
	CHECK(has_comment(f, "captured 16 = unwound 15 (root 7) + lost 1 (ring_full 1)"),
	      "accounting");
	pprof_file_free(f);
}

static void test_equal_profiles_give_equal_bytes(void)
{
	static uint8_t a[65536], b[65536];
	size_t n = export(&profile, &info, a, sizeof(a));

	CHECK(n && export(&profile, &info, b, sizeof(b)) == n && !memcmp(a, b, n), "same bytes");
}

static void test_each_event_has_two_values(void)
{
	struct source_info two = info;
	struct profile_entry mixed[2] = { entries[0], entries[1] };
	struct profile p = profile;
	struct pprof_file *f;

	two.n_events = 2;
	mixed[1].event = 1;
	p.entries = mixed;
	p.n_entries = 2;
	f = export_and_read(&p, &two);
	if (!f)
		return;
	CHECK(pprof_profile(f)->n_sample_type == 4 &&
		      !strcmp(pprof_text(f, pprof_profile(f)->sample_type[2]->type),
			      "cycles_samples") &&
		      !strcmp(pprof_text(f, pprof_profile(f)->sample_type[3]->type), "cycles"),
	      "four sample types");
	CHECK(pprof_profile(f)->sample[0]->value[0] == 3 &&
		      pprof_profile(f)->sample[0]->value[2] == 0 &&
		      pprof_profile(f)->sample[1]->value[0] == 0 &&
		      pprof_profile(f)->sample[1]->value[3] == 20200000,
	      "each in its own");
	CHECK(!pprof_check(pprof_profile(f), true, print_fault, NULL), "strictly sound");
	pprof_file_free(f);
	p.entries[0].event = 9;
	CHECK(export_as(FORMAT_PPROF, &p, &two, stdout) == -EINVAL, "an event that is not there");
}

static void test_waits_are_split(void)
{
	static const char *const types[] = { "off_cpu_samples", "off_cpu", "blocked", "runnable",
					     "wall" };
	struct source_event both[] = {
		events[0], { .name = "off-cpu", .type = SOURCE_OFF_CPU, .unit = "nanoseconds" }
	};
	struct source_info two = info;
	struct profile_entry mixed[2] = { entries[0], entries[1] };
	struct profile p = profile;
	const int64_t *values;
	struct pprof_file *f;

	two.events = both;
	two.n_events = 2;
	mixed[1].event = 1;
	mixed[1].n_off_cpu = 70;
	mixed[1].runnable = 200000;
	p.entries = mixed;
	p.n_entries = 2;
	f = export_and_read(&p, &two);
	if (!f)
		return;
	CHECK(pprof_profile(f)->n_sample_type == 7, "seven sample types");
	for (size_t i = 0; i < 5; i++)
		CHECK(!strcmp(pprof_text(f, pprof_profile(f)->sample_type[2 + i]->type), types[i]),
		      types[i]);
	values = pprof_profile(f)->sample[1]->value;
	CHECK(!values[0] && !values[1] && values[2] == 70 && values[3] == 20200000,
	      "each sample stands for waits");
	CHECK(values[4] == 20000000 && values[5] == 200000 && values[6] == 20200000,
	      "the parts are the whole");
	values = pprof_profile(f)->sample[0]->value;
	CHECK(!values[2] && !values[3] && !values[4] && !values[5] && values[6] == 30300000,
	      "a running thread does not wait");
	pprof_file_free(f);
}

/* The segments of this program, as the loader reports them. */
struct segments {
	ElfW(Phdr) all[32];
	size_t n;
};

static int own_segments(struct dl_phdr_info *object, size_t size, void *ctx)
{
	struct segments *s = ctx;

	(void)size;
	for (size_t i = 0; i < object->dlpi_phnum && s->n < 32; i++)
		if (object->dlpi_phdr[i].p_type == PT_LOAD)
			s->all[s->n++] = object->dlpi_phdr[i];
	return 1; /* the program itself comes first */
}

static void test_files_have_a_mapping_a_segment(void)
{
	struct segments want = { .n = 0 };
	struct module self = modules[0];
	struct location at[33];
	uint32_t in[33];
	struct profile_entry entry = entries[0];
	struct profile p = profile;
	struct pprof_file *f;
	int fd = open("/proc/self/exe", O_RDONLY);

	(void)dl_iterate_phdr(own_segments, &want);
	CHECK(fd >= 0 && want.n > 1 && !uw_object_open(fd, 0, &self.object), "this program");
	for (size_t i = 0; i < want.n; i++) {
		at[i] = (struct location){ want.all[i].p_vaddr + want.all[i].p_memsz - 1, &self, 0,
					   0 };
		in[i] = (uint32_t)i;
	}
	entry.n_locations = (uint32_t)want.n;
	entry.first_location = 0;
	p.entries = &entry;
	p.n_entries = 1;
	p.locations = at;
	p.n_locations = want.n;
	p.location_ids = in;
	p.n_location_ids = want.n;
	f = export_and_read(&p, &info);
	CHECK(f && pprof_profile(f)->n_mapping == want.n, "a mapping each");
	for (size_t i = 0; f && i < want.n; i++) {
		const Perftools__Profiles__Mapping *m = pprof_profile(f)->mapping[i];
		uint64_t vaddr = want.all[i].p_vaddr, end = vaddr + want.all[i].p_memsz;

		CHECK(m->memory_start == vaddr / 4096 * 4096 &&
			      m->memory_limit == (end + 4095) / 4096 * 4096 &&
			      m->file_offset == want.all[i].p_offset / 4096 * 4096,
		      "whole pages of the segment");
	}
	if (f)
		CHECK(!pprof_check(pprof_profile(f), true, print_fault, NULL), "strictly sound");
	pprof_file_free(f);
	uw_object_put(self.object);
	(void)close(fd);
}

/* ---- lines ------------------------------------------------------------------ */

static char *text; /* output of the last export_* call, until the next call */
static size_t text_size;

static FILE *text_open(void)
{
	free(text);
	text = NULL;
	return open_memstream(&text, &text_size);
}

static void test_folded_lines(void)
{
	FILE *out = text_open();

	CHECK(!export_as(FORMAT_FOLDED, &profile, &info, out) && !fclose(out), "exports");
	/* Threads with the same name are one line: 3 + 4. */
	CHECK(!strcmp(text, "kthreadd;do_syscall_64_[k];ext4_readdir_[k] 5\n"
			    "node;[unknown];[jit] 1\n"
			    "prog;main;work(int: char);do_syscall_64_[k];ext4_readdir_[k] 2\n"
			    "thr:ead;main;work(int: char);[libfoo.so] 7\n"),
	      text);
}

/* Equal stacks of one thread are one sample, unless each sample keeps its time. */
static void test_separate_samples_keep_their_times(void)
{
	struct profile_entry twice[2] = { entries[0], entries[0] };
	struct profile p = profile;
	FILE *out = text_open();

	p.entries = twice;
	p.n_entries = 2;
	CHECK(!export_as(FORMAT_JSONL, &p, &info, out) && !fclose(out), "exports");
	CHECK(strstr(text, "\"samples\":6,\"cpu\":60600000") && !strstr(text, "time_ns"), text);
	p.separate = true;
	twice[0].time_ns = 5;
	twice[1].time_ns = 7;
	out = text_open();
	CHECK(!export_as(FORMAT_JSONL, &p, &info, out) && !fclose(out), "exports");
	CHECK(strstr(text, "{\"sample\":1,\"time_ns\":5,\"values\":{\"samples\":3,") == text &&
		      strstr(text, "\n{\"sample\":2,\"time_ns\":7,\"values\":{\"samples\":3,"),
	      text);
}

static const struct walked_frame frames[] = {
	{ { 0xffffffffc0000010, &modules[2], 0, 0 }, 0xffffffffc0000010, 0, true, 0, NULL },
	{ { 0xffffffff81000123, &modules[2], 1, 0 }, 0xffffffff81000124, 0, false, 0, NULL },
	{ { 0x2999, &modules[1], 0, 0 }, 0x7f0000002999, UW_STEPPER_CONTEXT, true, 0, NULL },
	{ { 0x2345, &modules[1], 1, 0 }, 0x7f0000002346, UW_STEPPER_CFI, false, 0, NULL },
	{ { 0x401000, &modules[0], 1, 0 },
	  0x401001,
	  UW_STEPPER_FP,
	  false,
	  UW_CONFIDENCE_GUESS,
	  NULL },
};

static const struct event sample = {
	.type = EVENT_SAMPLE,
	.pid = 10,
	.tid = 11,
	.time_ns = 12345678901234,
	.sample = { .cpu = 3, .period = 10101010 },
};

static const struct walked walked = {
	.number = 42,
	.event = &sample,
	.comm = "my thread",
	.event_name = "cpu-clock",
	.frames = frames,
	.n_frames = 5,
	.n_kernel = 2,
	.has_user = true,
	.stop = UW_STOP_TRUNCATED,
};

static void test_text_is_as_perf_script_has_it(void)
{
	FILE *out = text_open();

	CHECK(!export_text(out, &walked, NULL, false) && !fclose(out), "exports");
	CHECK(!strcmp(text,
		      "my thread           10/11    [003] 12345.678901:   10101010 cpu-clock: \n"
		      "\tffffffffc0000010 ext4_readdir+0x10 ([ext4])\n"
		      "\tffffffff81000124 do_syscall_64+0x24 ([kernel])\n"
		      "\t    7f0000002999 [unknown] (/usr/lib/libfoo.so)\n"
		      "\t    7f0000002346 work(int; char)+0x46 (/usr/lib/libfoo.so)\n"
		      "\t          401001 main+0x11 (/usr/bin/prog)\n"
		      "# stop: truncated\n"
		      "# guessed: 1 by fp\n"
		      "\n"),
	      text);
}

static void test_tsv_rows(void)
{
	struct walked empty = walked;
	FILE *out = text_open();

	empty.n_frames = empty.n_kernel = 0;
	empty.number = 43;
	empty.stop = UW_STOP_NO_USER_STATE;
	CHECK(!export_tsv_header(out) && !export_tsv(out, &walked, NULL) &&
		      !export_tsv(out, &empty, NULL) && !fclose(out),
	      "exports");
	CHECK(!strcmp(text,
		      "sample\tframe\tmodule\trel_pc\tfunction\tfunction_"
		      "offset\tstepper\tstop\tconfidence\tfile\tline\tinlined\tvalue\n"
		      "42\t0\t[ext4]\tffffffffc0000010\text4_"
		      "readdir\t16\tkernel\ttruncated\trule\t-\t-\t0\t10101010\n"
		      "42\t1\t[kernel]\tffffffff81000124\tdo_syscall_"
		      "64\t36\tkernel\ttruncated\trule\t-\t-\t0\t10101010\n"
		      "42\t2\tlibfoo.so\t2999\t-\t-\tcontext\ttruncated\trule\t-\t-\t0\t10101010\n"
		      "42\t3\tlibfoo.so\t2346\twork(int; "
		      "char)\t70\tcfi\ttruncated\trule\t-\t-\t0\t10101010\n"
		      "42\t4\tprog\t401001\tmain\t17\tfp\ttruncated\tguess\t-\t-\t0\t10101010\n"
		      "43\t-\t-\t-\t-\t-\t-\tno_user_state\t-\t-\t-\t0\t10101010\n"),
	      text);
}

/* ---- hostile names ------------------------------------------------------------ */

static size_t count_of(const char *in, char what)
{
	size_t n = 0;

	for (; *in; in++)
		n += *in == what;
	return n;
}

static bool is_clean(const char *in)
{
	for (; *in; in++)
		if ((unsigned char)*in < 0x20 && *in != '\n' && *in != '\t')
			return false;
	return true;
}

static void check_hostile(const char *name)
{
	struct walked w = walked;
	struct profile p = profile;
	struct profile_entry entry = entries[1];
	FILE *out = text_open();

	hostile = name;
	w.comm = w.event_name = name;
	entry.comm = entry.process_comm = name;
	p.entries = &entry;
	p.n_entries = 1;

	CHECK(!export_tsv(out, &w, NULL) && !fclose(out), "tsv");
	CHECK(count_of(text, '\n') == 5 && count_of(text, '\t') == 5 * 12 && is_clean(text), text);
	out = text_open();
	CHECK(!export_text(out, &w, NULL, false) && !fclose(out), "text");
	CHECK(count_of(text, '\n') == 9 && count_of(text, '\t') == 5 && is_clean(text), text);
	out = text_open();
	CHECK(!export_as(FORMAT_FOLDED, &p, &info, out) && !fclose(out), "folded");
	CHECK(count_of(text, '\n') == 1 && count_of(text, ';') == 4 && !count_of(text, '\t') &&
		      is_clean(text) && !strcmp(strrchr(text, ' '), " 2\n"),
	      text);
	hostile = NULL;
}

static void test_no_name_breaks_a_line(void)
{
	static char all[3 * 255 + 1], lang[3 * SANITIZED_MAX];
	struct pprof_file *f;
	size_t n = 0;

	for (int c = 1; c < 256; c++) {
		all[n++] = (char)c;
		all[n++] = 'x';
	}
	memset(lang, ';', sizeof(lang) - 1);
	check_hostile(all);
	check_hostile(lang);
	check_hostile("");
	check_hostile("a\nb\tc;d e\r\x1b[31m\xc2\x85\xe2\x80\xa8\xe2\x80\xae\xff\xc3");
	hostile = all;
	f = export_and_read(&profile, &info);
	if (f)
		CHECK(!pprof_check(pprof_profile(f), true, print_fault, NULL), "pprof is UTF-8");
	pprof_file_free(f);
	hostile = NULL;
}

static void test_clean_text(void)
{
	char out[8];

	CHECK(sanitize_text("a\tb", "", ' ', out, sizeof(out)) == 3 && !strcmp(out, "a b"), "tab");
	CHECK(sanitize_text("a;b", ";", ':', out, sizeof(out)) == 3 && !strcmp(out, "a:b"), "also");
	CHECK(sanitize_text(NULL, "", ' ', out, sizeof(out)) == 0 && !*out, "nothing");
	CHECK(sanitize_text("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", "", ' ', out, sizeof(out)) == 6,
	      "cut whole");
	CHECK(sanitize_text("\xff", "", ' ', out, sizeof(out)) == 3 && !strcmp(out, "\xef\xbf\xbd"),
	      "U+FFFD");
	CHECK(sanitize_text("\xc2\x9b", "", '?', out, sizeof(out)) == 1 && *out == '?',
	      "C1 control");
	CHECK(sanitize_text("\xd8\x9c", "", '?', out, sizeof(out)) == 1 && *out == '?', "U+061C");
	CHECK(sanitize_text("abcdefgh", "", ' ', out, 1) == 0 && !*out, "room for nothing");
}

static void test_full_disk_is_told(void)
{
	FILE *full = fopen("/dev/full", "w");

	if (!full)
		return;
	CHECK(export_as(FORMAT_FOLDED, &profile, &info, full) == -ENOSPC, "folded");
	(void)fclose(full);
	full = fopen("/dev/full", "w");
	(void)setvbuf(full, NULL, _IONBF, 0);
	CHECK(export_text(full, &walked, NULL, false) == -ENOSPC, "text");
	CHECK(export_tsv(full, &walked, NULL) == -ENOSPC, "tsv");
	CHECK(export_as(FORMAT_PPROF, &profile, &info, full) == -ENOSPC, "pprof");
	(void)fclose(full);
}

int main(void)
{
	struct cgroups cgroups = { 0 };

	CHECK(!cgroups_event(&cgroups, &(struct event_cgroup){ 7, POD }), "a cgroup");
	entries[3].labels[PROFILE_CGROUP] = cgroups_find(&cgroups, 7)->labels;
	test_pprof_holds_the_profile();
	test_equal_profiles_give_equal_bytes();
	test_each_event_has_two_values();
	test_waits_are_split();
	test_files_have_a_mapping_a_segment();
	test_folded_lines();
	test_separate_samples_keep_their_times();
	test_text_is_as_perf_script_has_it();
	test_tsv_rows();
	test_no_name_breaks_a_line();
	test_clean_text();
	test_full_disk_is_told();
	free(text);
	cgroups_fini(&cgroups);
	return check_done();
}
