/* tests/unit/test_live_perf.c: tests how the kernel's side-band records become events. */
#include "agent/live/system/perf.h"

#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void test_lists_of_cpus_are_read(void)
{
	static const struct {
		const char *list;
		int err;
		size_t n;
		int first, last;
	} cases[] = {
		/* Forms of Documentation/admin-guide/cputopology.rst */
		{ "0\n", 0, 1, 0, 0 },
		{ "0-1\n", 0, 2, 0, 1 },
		{ "0-3,8,10-11\n", 0, 7, 0, 11 },
		{ "2,4-31,32-63", 0, 61, 2, 63 },
		{ "", -EBADMSG, 0, 0, 0 },
		{ "\n", -EBADMSG, 0, 0, 0 },
		{ "x", -EBADMSG, 0, 0, 0 },
		{ "3-1", -EBADMSG, 0, 0, 0 },
		{ "0-", -EBADMSG, 0, 0, 0 },
		{ "-1", -EBADMSG, 0, 0, 0 },
		{ "0 1", -EBADMSG, 0, 0, 0 },
		{ "0-99999999", -EBADMSG, 0, 0, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int *cpus = NULL;
		size_t n = 0;

		CHECK(live_cpus_parse(cases[i].list, &cpus, &n) == cases[i].err, cases[i].list);
		CHECK(n == cases[i].n, cases[i].list);
		if (n) {
			CHECK(cpus[0] == cases[i].first && cpus[n - 1] == cases[i].last,
			      cases[i].list);
		}
		free(cpus);
	}
}

/* Records with the layout of perf_event_open(2), field by field. */
struct builder {
	_Alignas(8) uint8_t bytes[512];
	size_t n;
};

static void put(struct builder *b, const void *bytes, size_t n)
{
	memcpy(b->bytes + b->n, bytes, n);
	b->n += n;
}

static void put_u32(struct builder *b, uint32_t value)
{
	put(b, &value, sizeof(value));
}

static void put_u64(struct builder *b, uint64_t value)
{
	put(b, &value, sizeof(value));
}

static void begin(struct builder *b, uint32_t type, uint16_t misc)
{
	struct perf_event_header header = { .type = type, .misc = misc };

	memset(b, 0, sizeof(*b));
	put(b, &header, sizeof(header));
}

static void put_text(struct builder *b, const char *text)
{
	put(b, text, strlen(text) + 1);
	while (b->n % 8)
		b->bytes[b->n++] = 0;
}

/* The trailer: pid, tid, time, id, cpu, res. */
static struct perf_event_header *finish(struct builder *b, uint64_t time_ns)
{
	uint16_t size;

	put_u32(b, 91);
	put_u32(b, 92);
	put_u64(b, time_ns);
	put_u64(b, 77);
	put_u32(b, 1);
	put_u32(b, 0);
	size = (uint16_t)b->n;
	memcpy(b->bytes + 6, &size, sizeof(size));
	return (struct perf_event_header *)(void *)b->bytes;
}

static void test_tasks_and_names(void)
{
	struct event e[LIVE_DECODE_MAX];
	struct builder b;

	begin(&b, PERF_RECORD_FORK, 0);
	for (uint32_t i = 5; i < 9; i++)
		put_u32(&b, i); /* pid, ppid, tid, ptid */
	put_u64(&b, 1000);
	CHECK(live_sideband_decode(finish(&b, 1001), NULL, e) == 1, "one event");
	CHECK(e[0].type == EVENT_FORK && e[0].pid == 5 && e[0].tid == 7 && e[0].time_ns == 1001 &&
		      e[0].fork.parent_pid == 6 && e[0].fork.parent_tid == 8,
	      "fork");

	begin(&b, PERF_RECORD_COMM, 0);
	put_u32(&b, 5);
	put_u32(&b, 7);
	put_text(&b, "worker 1");
	CHECK(live_sideband_decode(finish(&b, 5), NULL, e) == 1, "one event");
	CHECK(e[0].type == EVENT_COMM && e[0].pid == 5 && e[0].tid == 7 &&
		      !strcmp(e[0].comm.comm, "worker 1"),
	      "a name");

	begin(&b, PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC);
	put_u32(&b, 5);
	put_u32(&b, 5);
	put_text(&b, "true");
	CHECK(live_sideband_decode(finish(&b, 5), NULL, e) == 2, "two events");
	CHECK(e[0].type == EVENT_EXEC && e[1].type == EVENT_COMM && e[0].time_ns == 5 &&
		      e[1].time_ns == 5,
	      "the exec, then the name");
}

static struct perf_event_header *mapping(struct builder *b, uint16_t misc, const char *path)
{
	begin(b, PERF_RECORD_MMAP2, misc);
	put_u32(b, 5);
	put_u32(b, 7);
	put_u64(b, 0x1000);
	put_u64(b, 0x2000);
	put_u64(b, 0x3000);
	if (misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
		put(b, "\x14\0\0\0", 4);
		put(b, "abcdefghijklmnopqrst", 20);
	} else {
		put_u32(b, 8);
		put_u32(b, 1);
		put_u64(b, 42);
		put_u64(b, 43);
	}
	put_u32(b, 5); /* PROT_READ | PROT_EXEC */
	put_u32(b, 2); /* MAP_PRIVATE */
	put_text(b, path);
	return finish(b, 9);
}

static void test_mappings(void)
{
	const struct live_file file = { .major = 8, .minor = 1, .inode = 42, .generation = 43 };
	struct event e[LIVE_DECODE_MAX];
	const struct event_mapping *m = &e[0].mapping;
	struct builder b;

	CHECK(live_sideband_decode(mapping(&b, PERF_RECORD_MISC_MMAP_BUILD_ID, "/bin/a b"), NULL,
				   e) == 1,
	      "one event");
	CHECK(e[0].type == EVENT_MAPPING && m->start == 0x1000 && m->end == 0x3000 &&
		      m->off == 0x3000 && m->prot == 5,
	      "where");
	CHECK(!strcmp(m->path, "/bin/a b") && !m->deleted, "what");
	CHECK(m->build_id.size == 20 && !memcmp(m->build_id.bytes, "abcdefghijklmnopqrst", 20),
	      "its build-id");
	CHECK(!m->inode && !m->major, "then no inode is told");
	CHECK(live_sideband_decode(mapping(&b, PERF_RECORD_MISC_MMAP_BUILD_ID, "/bin/a"), &file,
				   e) == 1,
	      "one event");
	CHECK(m->build_id.size == 20 && m->major == 8 && m->minor == 1 && m->inode == 42 &&
		      m->inode_generation == 43,
	      "another event knew the file");

	CHECK(live_sideband_decode(mapping(&b, 0, "/tmp/x (deleted)"), NULL, e) == 1, "one event");
	CHECK(!strcmp(m->path, "/tmp/x") && m->deleted, "deleted is no part of the path");
	CHECK(m->major == 8 && m->minor == 1 && m->inode == 42 && m->inode_generation == 43,
	      "device and inode");
	CHECK(!m->build_id.size, "then no build-id is told");
}

static void test_whose_mapping_or_name_it_is(void)
{
	static const struct {
		uint32_t type;
		uint16_t size;
		bool told;
	} cases[] = {
		{ PERF_RECORD_MMAP2, 112, true }, { PERF_RECORD_COMM, 56, true },
		{ PERF_RECORD_COMM, 8, false },	  { PERF_RECORD_FORK, 64, false },
		{ PERF_RECORD_EXIT, 64, false },  { PERF_RECORD_LOST, 56, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct {
			struct perf_event_header header;
			uint32_t pid, tid;
		} record = { { cases[i].type, 0, cases[i].size }, 4711, 4712 };
		uint32_t pid = 0;

		CHECK(live_sideband_pid(&record.header, &pid) == cases[i].told, "told");
		CHECK(pid == (cases[i].told ? 4711 : 0), "whose");
	}
}

static void test_unsound_records_tell_nothing(void)
{
	struct event e[LIVE_DECODE_MAX];
	struct builder b;
	struct perf_event_header *record = mapping(&b, 0, "/bin/true");
	uint16_t size = record->size;

	for (uint16_t n = 0; n < size; n++) {
		record->size = n;
		if (n < 72 + 10 + 32) /* fixed part, path with its NUL, trailer */
			CHECK(!live_sideband_decode(record, NULL, e), "cut short");
	}
	record = mapping(&b, PERF_RECORD_MISC_MMAP_BUILD_ID, "/bin/true");
	b.bytes[8 + 8 + 24] = 21; /* build_id_size: the field has 20 bytes */
	CHECK(live_sideband_decode(record, NULL, e) == 1 && !e[0].mapping.build_id.size,
	      "no build-id");
	begin(&b, 9999, 0);
	put_u64(&b, 0);
	CHECK(!live_sideband_decode(finish(&b, 1), NULL, e), "of a type not known");
}

int main(void)
{
	test_lists_of_cpus_are_read();
	test_tasks_and_names();
	test_mappings();
	test_whose_mapping_or_name_it_is();
	test_unsound_records_tell_nothing();
	return check_done();
}
