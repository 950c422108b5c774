/*
 * tests/unit/test_runtime.c: tests frames of interpreted code: their table, the memory that leads to names,
 * and where they stand among native frames, by a runtime that is this program.
 */
#include "agent/hash.h"
#include "agent/limits.h"
#include "agent/pipeline/fold.h"
#include "agent/pipeline/names.h"
#include "agent/pipeline/pipeline.h"
#include "agent/runtime/runtime.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/check.h"

/* ---- a runtime ----------------------------------------------------------------------------- */

static struct runtime_put put[8]; /* what it puts: address is the line of its name */
static size_t n_put;
static const char *says;
static int n_attached, n_detached, attach_err;
static uint64_t piece_at;

static bool is_named(const char *base)
{
	return !strcmp(base, "test_runtime");
}

static int attach(const struct runtime_file *file, void **state, struct plan *plan)
{
	CHECK(!plan->n && file->memory, "no plan yet");
	if (attach_err)
		return attach_err;
	n_attached++;
	*state = &n_attached;
	return 0;
}

static void detach(void *state)
{
	CHECK(state == &n_attached, "state");
	n_detached++;
}

enum { NAMELESS = 9 }; /* put with this address */

static void decode(void *state, struct runtime_stack *stack)
{
	CHECK(state == &n_attached, "state");
	for (size_t i = 0; i < n_put; i++) {
		struct runtime_name name = { .function = put[i].address == NAMELESS ? "" : "f",
					     .file = "f.fake",
					     .line = (uint32_t)put[i].address };
		const uint8_t *piece = piece_at ? runtime_piece(stack->memory, piece_at, 4) : NULL;

		if (piece)
			name.function = (const char *)piece;
		CHECK(runtime_put(stack, put[i].at,
				  runtime_frames_add(stack->frames, "[fake]", &name),
				  put[i].instead),
		      "room");
	}
	stack->missing = says;
}

static const struct runtime_ops fake = { .module = "[fake]",
					 .is_named = is_named,
					 .attach = attach,
					 .detach = detach,
					 .decode = decode };

const struct runtime_ops *const runtimes_all[] = { &fake, NULL };

/* ---- the table ------------------------------------------------------------------------------- */

static uint64_t add(struct runtime_frames *frames, const char *function, uint32_t line)
{
	const struct runtime_name name = { .function = function, .file = "a.py", .line = line };

	return runtime_frames_add(frames, "[fake]", &name);
}

static void test_equal_names_have_one_address(void)
{
	struct runtime_frames *a = NULL, *b = NULL;
	struct runtime_name name = { .function = "f" };
	uint64_t f;
	char *text;

	CHECK(!runtime_frames_new(&a) && !runtime_frames_new(&b), "new");
	f = add(a, "f", 1);
	CHECK(f && f <= UINT64_MAX >> 2, "62 bits");
	CHECK(f == add(a, "f", 1) && f == add(b, "f", 1), "in every table");
	/* The first 8 bytes of `printf '[fake]\0f\0a.py\0\1\0\0\0\0\0\0\0' | sha256sum`, without 2 bits. */
	CHECK(f == 0x26b3a6e414bc77d7, "for ever");
	CHECK(f != add(a, "g", 1) && f != add(a, "f", 2), "another name or line");
	CHECK(f != runtime_frames_add(a, "[other]", &name), "another runtime");
	CHECK(runtime_frames_count(a) == 4, "four");
	text = runtime_frames_find(a, f, &name);
	CHECK(text && !strcmp(name.function, "f") && !strcmp(name.file, "a.py") && name.line == 1,
	      "found");
	free(text);
	CHECK(!runtime_frames_find(a, f + 1, &name) && !runtime_frames_use(a, f + 1), "no other");
	text = runtime_frames_find(a, add(a, "e\x1b[1m\xff", 1), &name);
	CHECK(text && !strchr(name.function, '\x1b'), "texts are sanitised");
	free(text);
	runtime_frames_free(a);
	runtime_frames_free(b);
}

static void test_the_unused_go(void)
{
	const uint64_t before = limits.interpreted_frames;
	struct runtime_frames *frames = NULL;
	uint64_t used, n = 0;

	limits.interpreted_frames = 16;
	CHECK(!runtime_frames_new(&frames), "new");
	used = add(frames, "used", 1);
	for (uint32_t i = 0; i < 1000; i++) {
		CHECK(add(frames, "f", i) != 0, "added");
		CHECK(runtime_frames_use(frames, used), "what is used stays");
	}
	CHECK(runtime_frames_count(frames) == 16, "bounded");
	for (uint32_t i = 0; i < 1000; i++) {
		struct runtime_name name = { .function = NULL };
		uint64_t address;
		struct runtime_frames *other = NULL;
		char *text;

		CHECK(!runtime_frames_new(&other), "new");
		address = add(other, "f", i);
		text = runtime_frames_find(frames, address, &name);
		CHECK(!text || name.line == i, "each address still has its own name");
		n += text != NULL;
		free(text);
		runtime_frames_free(other);
	}
	CHECK(n == 15, "all others are there");
	runtime_frames_free(frames);
	limits.interpreted_frames = before;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int n_reads, live_err;
static unsigned int turn;

/* A runtime_live_fn: a byte has the lowest bits of its piece's address, plus turn. Page 7 cannot be read. */
static int read_live(void *ctx, struct opener_part *parts, size_t n)
{
	(void)ctx;
	n_reads++;
	for (size_t i = 0; !live_err && i < n; i++) {
		parts[i].err = parts[i].addr >> 12 == 7 ? -EFAULT : 0;
		if (!parts[i].err)
			memset(parts[i].out, (int)((parts[i].addr + turn) & 0xff), parts[i].size);
	}
	return live_err;
}

/* A recording has small pieces, then a large one of each address. */
static void test_larger_pieces_are_bounded(void)
{
	const uint64_t before = limits.runtime_bytes;
	struct event_sample sample = { .n_regions = 0 };
	static uint64_t large[2 + 512] = { [1] = 512 * 8 };
	struct runtime_memory *m = NULL;
	size_t n = 0;

	limits.runtime_bytes = 64 << 10;
	CHECK(!runtime_memory_new(&m), "new");
	runtime_memory_begin(m, &sample, NULL, NULL);
	for (uint64_t i = 0; i < 200; i++) {
		const uint64_t small[] = { (1 + i) << 20, 8, i };
		const struct event_memory event = { (const uint8_t *)small, sizeof(small) };

		CHECK(!runtime_memory_store(m, &event), "store");
	}
	for (uint64_t i = 0; i < 200; i++) {
		const struct event_memory event = { (const uint8_t *)large, sizeof(large) };

		large[0] = (1 + i) << 20;
		CHECK(!runtime_memory_store(m, &event), "store");
	}
	for (uint64_t i = 0; i < 200; i++)
		n += runtime_piece(m, (1 + i) << 20, 512 * 8) != NULL;
	CHECK(n && n <= 16, "not more than the limit");
	runtime_memory_free(m);
	limits.runtime_bytes = before;
}

static void test_pieces_are_read_once(void)
{
	struct event_sample sample = { .n_regions = 0 };
	struct runtime_memory *m = NULL, *later = NULL;
	struct event_memory event;
	const uint8_t *piece;
	const void *bytes;

	CHECK(!runtime_memory_new(&m) && !runtime_memory_new(&later), "new");
	runtime_memory_begin(m, &sample, read_live, NULL);
	piece = runtime_piece(m, 0x1042, 100);
	CHECK(piece && piece[99] == 0x42 && n_reads == 1, "read");
	CHECK(runtime_piece(m, 0x1042, 50) && n_reads == 1, "stored");
	CHECK(runtime_piece(m, 0x2043, 8) && n_reads == 2, "another");
	CHECK(!runtime_piece(m, 0, 8) && !runtime_piece(m, 1, RUNTIME_PIECE_MAX + 1) &&
		      !runtime_piece(m, UINT64_MAX - 3, 8) && n_reads == 2,
	      "what cannot be");
	event.size = runtime_memory_news(m, &bytes);
	event.bytes = bytes;
	CHECK(event.size == 2 * 16 + 100 + 8, "news");
	CHECK(!runtime_memory_store(later, &event), "store");
	CHECK(!runtime_memory_news(m, &bytes), "told once");
	runtime_memory_begin(later, &sample, NULL, NULL);
	piece = runtime_piece(later, 0x1042, 100);
	CHECK(piece && piece[99] == 0x42 && n_reads == 2, "the same from a recording");
	CHECK(!runtime_piece(later, 0x3000, 8), "and nothing else");
	runtime_forget(later, 0x1042);
	CHECK(runtime_piece(later, 0x1042, 100), "what a recording has stays");
	runtime_forget(m, 0x1042);
	live_err = -ETIME;
	CHECK(!runtime_piece(m, 0x1042, 100) && runtime_is_late(m), "no time");
	live_err = 0;
	CHECK(runtime_piece(m, 0x1042, 100) && n_reads == 4, "read again");
	event = (struct event_memory){ "\1\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16 };
	CHECK(!runtime_memory_store(later, &event) && !runtime_piece(later, 1, 1), "damaged");

	/* Pieces are read again, all at once, but those of a recording stay. */
	{
		struct runtime_want wants[] = {
			{ .addr = 0x1042, .size = 100 },
			{ .addr = 0x2043, .size = 4 },
			{ .addr = 0x7000, .size = 8 },
			{ .addr = 1, .size = 8 },
		};

		turn = 1;
		(void)runtime_memory_news(m, &bytes);
		runtime_renew(m, wants, 4);
		piece = runtime_piece(m, 0x1042, 100);
		CHECK(n_reads == 5 && piece && piece[99] == 0x43, "again, at once");
		CHECK(!wants[0].failed && !wants[1].failed && wants[2].failed && wants[3].failed,
		      "what failed");
		piece = runtime_piece(m, 0x2043, 4);
		CHECK(n_reads == 5 && piece && piece[3] == 0x44, "both");
		CHECK(runtime_memory_news(m, &bytes) == 2 * 16 + 100 + 4, "news of both");
		CHECK(!runtime_piece(m, 0x7000, 8) && n_reads == 6, "what cannot be read");
		live_err = -ETIME;
		runtime_renew(m, wants, 1);
		CHECK(!runtime_piece(m, 0x1042, 100) && runtime_is_late(m), "not now");
		live_err = 0;
		runtime_renew(later, wants, 2);
		piece = runtime_piece(later, 0x1042, 100);
		CHECK(piece && piece[99] == 0x42, "a recording has no process");
		turn = 0;
	}
	runtime_memory_free(m);
	runtime_memory_free(later);
}

static void test_captured_bytes(void)
{
	static const uint8_t a[] = "0123456789abcdef", b[] = "ABCDEFGHIJKLMNOP";
	const struct uw_region regions[] = { { 0x100, 16, a } };
	const struct uw_region slices[] = { { 0x108, 16, b }, { 0x200, 8, b } };
	struct event_sample sample = {
		.regions = regions, .n_regions = 1, .slices = slices, .n_slices = 2
	};
	struct runtime_memory *m = NULL;
	uint64_t value;
	char text[9] = "";

	CHECK(!runtime_memory_new(&m), "new");
	runtime_memory_begin(m, &sample, NULL, NULL);
	CHECK(runtime_read(m, 0x100, text, 8) && !strcmp(text, "01234567"), "the stack");
	CHECK(runtime_read(m, 0x108, text, 8) && !strcmp(text, "ABCDEFGH"), "slices come first");
	CHECK(runtime_read_u64(m, 0x200, &value) && !memcmp(&value, "ABCDEFGH", 8), "a word");
	CHECK(!runtime_read(m, 0x201, text, 8) && !runtime_read(m, UINT64_MAX, text, 8), "or none");
	runtime_memory_free(m);
}

/* ---- merging ----------------------------------------------------------------------------------- */

static char shown[256];

static int on_walked(void *ctx, const struct walked *w)
{
	(void)ctx;
	shown[0] = '\0';
	for (size_t i = 0; i < w->n_frames; i++) {
		const struct location *l = &w->frames[i].location;
		struct runtime_name name;
		char *text = l->module->kind == MODULE_RUNTIME
				     ? runtime_frames_find(l->module->frames, l->vaddr, &name)
				     : NULL;
		size_t n = strlen(shown);

		(void)snprintf(shown + n, sizeof(shown) - n, text ? "%s%u " : "native ",
			       text ? name.function : "", text ? name.line : 0);
		free(text);
	}
	if (w->missing)
		(void)strcat(shown, w->missing);
	return 0;
}

static void put_event(struct pipeline *p, struct event event)
{
	static uint64_t now = 1000;

	event.pid = event.tid = 7;
	event.time_ns = now++;
	CHECK(!pipeline_event(p, &event), "event");
}

static void sample(struct pipeline *p)
{
	struct event event = { .type = EVENT_SAMPLE };

	event.sample.has_user_regs = true;
	event.sample.period = 1;
	event.sample.regs.known = 1u << UW_X86_64_RIP | 1u << UW_X86_64_RSP;
	event.sample.regs.value[UW_X86_64_RIP] = 0x100010;
	put_event(p, event);
}

static const struct source_event counted = { .name = "x", .type = "x", .unit = "count" };
static const struct source_info info = { .machine = EM_X86_64,
					 .events = (struct source_event *)(uintptr_t)&counted,
					 .n_events = 1 };

static struct pipeline *start(bool fold)
{
	struct pipeline_options options = { .fold = fold, .on_walked = fold ? NULL : on_walked };
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	struct pipeline *p = NULL;

	CHECK(n > 0 && !pipeline_new(&options, &info, &p), "pipeline");
	put_event(p, (struct event){ .type = EVENT_MAPPING,
				     .mapping = { .start = 0x100000,
						  .end = 0x200000,
						  .prot = PROT_READ | PROT_EXEC,
						  .path = path } });
	return p;
}

static void test_frames_stand_where_they_ran(void)
{
	struct pipeline *p = start(false);

	n_put = 0;
	sample(p);
	CHECK(!strcmp(shown, "native "), shown);
	CHECK(n_attached == 1, "attached");
	n_put = 3;
	put[0] = (struct runtime_put){ .at = 1, .address = 3 };
	put[1] = (struct runtime_put){ .at = 0, .address = 1 };
	put[2] = (struct runtime_put){ .at = 0, .address = 2 };
	says = " a reason";
	sample(p);
	CHECK(!strcmp(shown, "f1 f2 native f3  a reason"), shown);
	says = NULL;
	put[1].instead = true;
	sample(p);
	CHECK(!strcmp(shown, "f1 f2 f3 "), shown);
	put[1].instead = false;
	put[0].at = 99;
	sample(p);
	CHECK(!strcmp(shown, "f1 f2 native f3 "), "beyond the last is outside of all");
	piece_at = 0x5000;
	put_event(p, (struct event){ .type = EVENT_MEMORY,
				     .memory = { "\0\x50\0\0\0\0\0\0\4\0\0\0\0\0\0\0abc", 20 } });
	sample(p);
	CHECK(!strcmp(shown, "abc1 abc2 native abc3 "), shown);
	put_event(p, (struct event){ .type = EVENT_EXEC });
	CHECK(n_detached == 1, "another program");
	sample(p);
	CHECK(!strcmp(shown, "native "), shown);
	piece_at = 0;
	pipeline_free(p);
}

static void test_a_version_that_is_not_known_is_a_reason(void)
{
	struct pipeline *p;

	n_put = 0;
	attach_err = -ENOTSUP;
	p = start(false);
	sample(p);
	CHECK(!strcmp(shown, "native the interpreter is of a version or a build that is not known"),
	      shown);
	put_event(p, (struct event){ .type = EVENT_EXEC });
	attach_err = 0;
	sample(p);
	CHECK(!strcmp(shown, "native "), "another program");
	pipeline_free(p);
	attach_err = -ENOMEM;
	p = start(false);
	sample(p);
	CHECK(!strcmp(shown, "native "), "not for other errors");
	pipeline_free(p);
	attach_err = 0;
}

static void test_a_profile_has_them(void)
{
	struct pipeline *p = start(true);
	struct profile *profile = NULL;
	struct names *names = NULL;
	struct name name = { .function = NULL };

	n_put = 2;
	put[0] = (struct runtime_put){ .at = 0, .address = 1 };
	put[1] = (struct runtime_put){ .at = 1, .address = 2 };
	sample(p);
	sample(p);
	CHECK(!pipeline_take(p, &profile), "take");
	CHECK(profile->n_entries == 1 && profile->entries[0].n_samples == 2, "equal stacks");
	CHECK(profile->entries[0].n_locations == 3 && profile->n_locations == 3, "three frames");
	CHECK(!names_new(pipeline_opener(p), &info, true, &names), "names");
	names_find(names, &profile->locations[profile->location_ids[2]], &name);
	CHECK(name.function && !strcmp(name.function, "f") && name.n_places == 1 &&
		      name.places[0].line == 2 && !strcmp(name.places[0].file, "f.fake") &&
		      !strcmp(name.module, "[fake]") && !name.offset,
	      "named, with its line");
	profile_free(profile);
	put[1].address = NAMELESS;
	sample(p);
	CHECK(!pipeline_take(p, &profile), "take");
	names_find(names, &profile->locations[profile->location_ids[2]], &name);
	CHECK(!name.function && !name.n_places && !strcmp(name.module, "[fake]"),
	      "an empty name is none");
	names_free(names);
	profile_free(profile);
	pipeline_free(p);
	CHECK(n_detached == n_attached, "all are detached");
}

int main(void)
{
	hash_randomize();
	test_equal_names_have_one_address();
	test_the_unused_go();
	test_pieces_are_read_once();
	test_larger_pieces_are_bounded();
	test_captured_bytes();
	test_frames_stand_where_they_ran();
	test_a_version_that_is_not_known_is_a_reason();
	test_a_profile_has_them();
	return check_done();
}
