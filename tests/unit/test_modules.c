/*
 * tests/unit/test_modules.c: tests that a recorder closes the files of ended processes once they are
 * many, and opens them again when they are needed.
 */
#include "agent/process/modules.h"

#include "agent/clock.h"
#include "agent/limits.h"
#include "agent/opener/places.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

enum { FILES = 700, MAPPED = 10, DELETED = 20 };

static char dir[] = "/tmp/modules.XXXXXX";

static const char *path_of(int i)
{
	static char path[64];

	(void)snprintf(path, sizeof(path), "%s/%d", dir, i);
	return path;
}

/* Copy a small ELF file. */
static void copy(int i)
{
	int from = open("/bin/true", O_RDONLY | O_CLOEXEC);
	int to = open(path_of(i), O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	struct stat st;

	CHECK(from >= 0 && to >= 0 && !fstat(from, &st) &&
		      sendfile(to, from, NULL, (size_t)st.st_size) == st.st_size,
	      "copy");
	(void)close(from);
	(void)close(to);
}

/* The first MAPPED + DELETED files have inodes of their own; the others are links of file 0. */
static void make_files(void)
{
	char first[64];

	(void)snprintf(first, sizeof(first), "%s", path_of(0));
	for (int i = 0; i < FILES; i++) {
		if (i < MAPPED + DELETED)
			copy(i);
		else
			CHECK(!link(first, path_of(i)), "link");
	}
}

/* minor: of the device that the kernel reports. */
static struct module *map_from(struct modules *modules, int i, uint32_t minor)
{
	const struct event_mapping mapping = { .start = (uint64_t)(i + 1) << 20,
					       .end = (uint64_t)(i + 2) << 20,
					       .minor = minor,
					       .inode = (uint64_t)i + 1000,
					       .path = path_of(i) };

	return modules_get(modules, (uint32_t)getpid(), &mapping);
}

static struct module *map(struct modules *modules, int i)
{
	return map_from(modules, i, 0);
}

static bool resolves(struct modules *modules, struct module *module)
{
	const struct uw_mapping mapping = { .user = module };
	struct uw_object *object = modules_resolve(modules, &mapping);

	uw_object_put(object);
	return object;
}

static size_t count_open(struct module *const *all)
{
	size_t n = 0;

	for (int i = 0; i < FILES; i++)
		n += module_fd(all[i]) >= 0;
	return n;
}

static void test_unused_files_are_closed(struct modules *modules)
{
	static struct module *all[FILES];
	struct module *closed, *next, *other;
	size_t n;

	for (int i = 0; i < FILES; i++)
		all[i] = map(modules, i);
	CHECK(count_open(all) == FILES, "each file is held from the first mapping on");
	CHECK(modules_are_many(modules, now_ns()), "they are many");
	for (int i = 0; i < MAPPED + DELETED; i++)
		CHECK(resolves(modules, all[i]), "an object");
	for (int i = MAPPED; i < MAPPED + DELETED; i++)
		CHECK(!unlink(path_of(i)), "unlink");

	for (int i = 0; i < MAPPED; i++)
		modules_note(all[i]);
	modules_park(modules, now_ns());
	CHECK(!modules_are_many(modules, now_ns()), "no longer many");
	for (int i = 0; i < MAPPED; i++)
		CHECK(module_fd(all[i]) >= 0 && all[i]->object, "what is mapped stays open");
	for (int i = MAPPED; i < MAPPED + DELETED; i++)
		CHECK(module_fd(all[i]) >= 0 && !all[i]->object,
		      "a deleted file stays open, without its object");
	n = count_open(all);
	CHECK(n > 100 && n < 400, "the longest unused are closed");
	closed = all[MAPPED + DELETED];
	next = all[MAPPED + DELETED + 1];
	CHECK(module_fd(closed) < 0 && module_fd(all[FILES - 1]) >= 0, "by age");
	CHECK(closed->state == MODULE_NOT_OPENED, "as if it were not needed so far");

	/* For names, and when a process maps it again. */
	modules_unpark(modules, closed);
	CHECK(module_fd(closed) >= 0 && closed->object && closed->state == MODULE_USABLE,
	      "open again");
	CHECK(module_fd(next) < 0 && map(modules, MAPPED + DELETED + 1) == next &&
		      module_fd(next) >= 0,
	      "mapped again: held again");
	CHECK(resolves(modules, next) && resolves(modules, all[MAPPED]) &&
		      all[MAPPED]->state == MODULE_USABLE,
	      "and usable, deleted or not");
	modules_unpark(modules, all[MAPPED + 1]);
	CHECK(all[MAPPED + 1]->object, "a deleted file's names");

	/* Nothing is noted now: all but the last ones may go, and after ten minutes these, too. */
	modules_park(modules, now_ns());
	CHECK(all[0]->object, "mapped until now");
	modules_park(modules, now_ns() + UINT64_C(11 * 60) * 1000000000);
	CHECK(!all[0]->object && module_fd(all[0]) < 0, "no longer mapped");
	CHECK(resolves(modules, map(modules, 0)), "and mapped again");

	/* In another container, the same file is reported with another device. */
	CHECK(map(modules, 1) == all[1] && module_fd(all[1]) >= 0 && !all[1]->object,
	      "held again, and not needed so far");
	other = map_from(modules, 1, 1);
	CHECK(other != all[1] && resolves(modules, other), "the same file is needed elsewhere");
	CHECK(module_canonical(other) == all[1] && resolves(modules, all[1]), "both are one file");
}

/* Return a catalogue of a recorder, and its opener. */
static struct modules *new_modules(struct opener **opener)
{
	static const struct source_info info = { .kind = "live" };
	static const struct opener_options options = { .live = true };
	struct modules *modules = NULL;

	CHECK(!opener_new(&options, opener) && !modules_new(*opener, &info, true, &modules), "new");
	return modules;
}

/* A file that nobody has had mapped for ten minutes is closed, however few there are. */
static void test_long_unused_files_are_closed(void)
{
	const uint64_t now = now_ns(), minute = UINT64_C(60000000000);
	struct module *unused, *mapped, *counted, *ended;
	struct modules *modules;
	struct opener *opener;

	modules = new_modules(&opener);
	unused = map(modules, 0);
	mapped = map(modules, 1);
	counted = map(modules, 2);
	ended = map(modules, 3);
	CHECK(resolves(modules, unused) && resolves(modules, mapped), "objects");
	CHECK(!modules_are_many(modules, now + minute), "they are few");
	CHECK(modules_are_many(modules, now + 11 * minute), "but there may be old ones");
	modules_note(mapped);
	modules_note(ended);
	modules_note_counted(counted);
	modules_park(modules, now + 11 * minute);
	CHECK(module_fd(unused) < 0 && !unused->object, "mapped long ago");
	CHECK(module_fd(mapped) >= 0 && mapped->object, "still mapped");
	CHECK(module_fd(counted) >= 0, "the profile that is being made has it");
	CHECK(!modules_are_many(modules, now + 12 * minute), "not looked for again at once");
	modules_note(mapped);
	modules_park(modules, now + 17 * minute);
	CHECK(module_fd(ended) >= 0, "mapped until six minutes ago, at least");
	CHECK(module_fd(counted) < 0, "no profile has it now");
	modules_note(mapped);
	modules_park(modules, now + 22 * minute);
	CHECK(module_fd(ended) < 0 && module_fd(mapped) >= 0, "mapped long ago, too");
	CHECK(map(modules, 0) == unused && resolves(modules, unused), "mapped again: open again");
	modules_free(modules);
	opener_free(opener);
}

/* A file that was reported in two ways is one file, for as long as either is mapped. */
static void test_long_unused_file_of_two_modules(void)
{
	const uint64_t now = now_ns(), minute = UINT64_C(60000000000);
	struct module *first, *other;
	struct modules *modules;
	struct opener *opener;

	modules = new_modules(&opener);
	first = map(modules, 0);
	other = map_from(modules, 0, 1);
	CHECK(first != other && resolves(modules, first) && resolves(modules, other), "objects");
	CHECK(module_canonical(other) == first && first->object == other->object, "one file");
	modules_note(other);
	modules_park(modules, now + 11 * minute);
	CHECK(module_fd(first) >= 0 && first->object, "its names may be asked for");
	modules_note(first);
	modules_park(modules, now + 22 * minute);
	CHECK(module_fd(other) < 0 && !other->object && module_canonical(other) == other,
	      "the other is not mapped any more");
	modules_park(modules, now + 33 * minute);
	CHECK(module_fd(first) < 0 && !first->object, "nor is the first");
	CHECK(map_from(modules, 0, 1) == other && resolves(modules, other) &&
		      map(modules, 0) == first && resolves(modules, first),
	      "both are mapped again");
	CHECK(module_canonical(first) == other && first->object == other->object, "one file again");
	modules_park(modules, now + 44 * minute);
	modules_park(modules, now + 55 * minute);
	CHECK(module_fd(first) < 0 && module_fd(other) < 0, "and both end again");
	modules_free(modules);
	opener_free(opener);
}

/* A recorder that is late opens a file only when a sample needs it. */
static void test_a_file_is_opened_later_in_a_hurry(void)
{
	struct module *first, *second;
	struct modules *modules;
	struct opener *opener;

	modules = new_modules(&opener);
	modules_hurry(modules, true);
	first = map(modules, 0);
	second = map(modules, 1);
	CHECK(module_fd(first) < 0 && module_fd(second) < 0, "not at its mapping");
	CHECK(resolves(modules, first) && module_fd(first) >= 0, "when a sample needs it");
	CHECK(map(modules, 1) == second && module_fd(second) < 0, "nor when it is mapped again");
	modules_hurry(modules, false);
	CHECK(module_fd(map(modules, 2)) >= 0, "at its mapping again");
	CHECK(resolves(modules, second) && second->state == MODULE_USABLE, "and the others later");
	modules_free(modules);
	opener_free(opener);
}

#define DELETED_FILE "/none/deleted" /* which only its mapping leads to */
static int n_busy;		     /* so many links in map_files keep the opener waiting */

/* In place of the opener's (agent/opener/places.h). */
int places_mapped_link(const struct opener_file *file, int *fd)
{
	if (strcmp(file->path, DELETED_FILE) != 0)
		return -ENOENT;
	if (n_busy) {
		n_busy--;
		return -EBUSY;
	}
	*fd = open(path_of(0), O_PATH | O_CLOEXEC);
	return *fd < 0 ? -errno : 0;
}

/* A deleted file that the opener would have had to wait for too long is looked for again when a sample needs it. */
static void test_a_file_that_keeps_the_opener_waiting(void)
{
	const struct event_mapping mapping = {
		.start = 1 << 20, .end = 2 << 20, .inode = 7, .deleted = true, .path = DELETED_FILE
	};
	struct source_info info = { .kind = "live" };
	struct opener_options options = { .live = true };
	struct modules *modules = NULL;
	struct opener *opener;
	struct module *module;

	CHECK(!opener_new(&options, &opener) && !modules_new(opener, &info, true, &modules), "new");
	n_busy = 1;
	module = modules_get(modules, (uint32_t)getpid(), &mapping);
	CHECK(!n_busy && module_fd(module) < 0, "not at its mapping");
	CHECK(resolves(modules, module) && module->state == MODULE_USABLE, "then");
	modules_free(modules);
	opener_free(opener);
}

/* Map file i of an own name, in the process with that number. */
static struct module *map_named(struct modules *modules, uint32_t pid, uint64_t i, const char *path)
{
	const struct event_mapping mapping = {
		.start = 0x1000, .end = 0x2000, .inode = i, .path = path
	};

	return modules_get(modules, pid, &mapping);
}

static void test_unused_modules_are_forgotten(struct modules *modules)
{
	enum { MOST = 64 };
	const uint32_t pid = (uint32_t)getpid();
	const struct limits defaults = limits;
	struct module *mapped, *counted, *used, *code;
	uint64_t serial;
	uint32_t ids = 0;
	size_t before = modules_count(modules);

	limits.modules = MOST;
	limits_counts.modules = 0;
	modules_park(modules, now_ns()); /* from here on, by the new limit */
	mapped = map_named(modules, pid, 1, "/none/mapped");
	counted = map_named(modules, pid, 2, "/none/counted");
	used = map_named(modules, pid, 3, "/none/used");
	code = map_named(modules, 1u << 23, 0, "");
	CHECK(mapped && counted && used && code && code->kind == MODULE_JIT, "modules");
	module_use(used);
	serial = used->serial;
	for (uint64_t i = 0; i < 20 * MOST; i++) {
		struct module *m = map_named(modules, pid, i + 100, "/none/other");

		CHECK(m && m->serial > serial, "no serial is used twice");
		ids = m && m->id > ids ? m->id : ids;
		if (!modules_are_many(modules, now_ns()))
			continue;
		modules_note(mapped);
		modules_note_counted(counted);
		modules_park(modules, now_ns());
	}
	CHECK(modules_known(modules) < 3 * MOST, "they do not pile up");
	CHECK(ids < before + 3 * MOST && modules_count(modules) < before + 3 * MOST,
	      "ids are used again");
	CHECK(limits_counts.modules > 10 * MOST, "each that went is counted");
	/* With ASan, the first two are also read. */
	CHECK(map_named(modules, pid, 1, "/none/mapped") == mapped, "a process has it");
	CHECK(map_named(modules, pid, 2, "/none/counted") == counted, "a profile has it");
	CHECK(map_named(modules, pid, 3, "/none/used") == used && used->serial == serial,
	      "a cache has it");
	for (size_t i = 0; i < modules_count(modules); i++) {
		const struct module *m = modules_at(modules, i);

		CHECK(!m || m->id == i, "each has its own id");
		CHECK(!m || m->kind != MODULE_JIT, "generated code went");
	}
	module_unuse(used);
	/* The indexes do not lead to what was forgotten. */
	limits.modules = 16;
	modules_park(modules, now_ns());
	CHECK(modules_known(modules) < 32, "nearly all are gone");
	for (uint64_t i = 0; i < 20 * MOST; i++) {
		const struct module *m = map_named(modules, pid, i + 100, "/none/other");

		CHECK(m && modules_at(modules, m->id) == m, "found or made again");
	}
	limits = defaults;
}

/* Return whether the process's generated code has a name at 0x1010. */
static bool has_name(const struct module *module)
{
	uint64_t start = 0;
	char *name = module_generated_name(module, 0x1010, &start);
	bool has = name && !strcmp(name, "made");

	free(name);
	return has;
}

static void test_code_of_ended_processes_is_released(struct modules *modules)
{
	const struct uw_dynamic_code code = { .start = 0x1000, .end = 0x1100, .name = "made" };
	struct module *living = map_named(modules, 1u << 23, 0, ""),
		      *counted = map_named(modules, 1u << 24, 0, ""),
		      *ended = map_named(modules, 1u << 25, 0, "");
	struct uw_dynamic *dynamic = NULL;

	CHECK(!uw_dynamic_make(EM_X86_64, &code, 1, true, &dynamic), "code");
	module_add_generated(living, dynamic);
	module_add_generated(counted, dynamic);
	module_add_generated(ended, dynamic);
	uw_dynamic_put(dynamic);
	module_use(ended); /* cached names refer to it, so it is not forgotten */
	CHECK(has_name(living) && has_name(counted) && has_name(ended), "named");
	modules_note(living);
	modules_note_counted(counted);
	modules_park(modules, now_ns());
	CHECK(has_name(living) && has_name(counted), "a process or a profile has it");
	CHECK(!has_name(ended), "nobody has it");
	module_unuse(ended);
}

/* Let this process open so many more files; -1: as many as before. */
static void allow_files(int n)
{
	static struct rlimit before;
	struct rlimit limit;

	if (n < 0) {
		CHECK(!setrlimit(RLIMIT_NOFILE, &before), "setrlimit");
		return;
	}
	CHECK(!getrlimit(RLIMIT_NOFILE, &before), "getrlimit");
	limit = before;
	limit.rlim_cur = (rlim_t)open("/", O_RDONLY | O_CLOEXEC);
	(void)close((int)limit.rlim_cur);
	limit.rlim_cur += (rlim_t)n;
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
}

static void test_a_file_too_many_is_opened_later(struct opener *opener,
						 const struct source_info *info)
{
	struct modules *modules;
	struct module *module, *other;

	CHECK(!modules_new(opener, info, true, &modules), "new");
	allow_files(0);
	module = map(modules, 0);
	other = map(modules, 1);
	CHECK(!resolves(modules, module) && !resolves(modules, other), "no more files");
	CHECK(module->state == MODULE_UNREADABLE && module->error == -EMFILE, "which is said");
	CHECK(map(modules, 0) == module && !resolves(modules, module), "mapped again: tried again");
	allow_files(-1);
	CHECK(map(modules, 0) == module && resolves(modules, module), "and again");
	CHECK(module->state == MODULE_USABLE && !module->error, "in use");
	modules_unpark(modules, other);
	CHECK(other->state == MODULE_USABLE, "for its names, too");
	modules_free(modules);
}

static void test_few_files_stay_open(struct opener *opener, const struct source_info *info)
{
	enum { FEW = 200 };
	struct modules *modules;
	int held = 0, needed = 0;

	allow_files(FEW);
	CHECK(!modules_new(opener, info, true, &modules), "new");
	for (int i = 0; i < FILES; i++) {
		int fd;

		if (i >= MAPPED && i < MAPPED + DELETED)
			continue;
		CHECK(module_fd(map(modules, i)) >= 0, "a file");
		if (modules_are_many(modules, now_ns()))
			modules_park(modules, now_ns());
		fd = open("/", O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0 && !close(fd), "there is room for other files");
	}
	modules_free(modules);

	/* Each is needed by a process, so nothing is closed. */
	CHECK(!modules_new(opener, info, true, &modules), "new");
	for (int i = MAPPED + DELETED; i < FILES; i++)
		held += module_fd(map(modules, i)) >= 0;
	CHECK(held > FEW / 4 && held <= FEW / 2, "held without need: half of them");
	for (int i = FILES - 1; i >= MAPPED + DELETED; i--) {
		struct module *module = map(modules, i);

		if (resolves(modules, module))
			needed += module_fd(module) >= 0;
		else
			CHECK(module->error == -EMFILE, "too many");
	}
	CHECK(needed > held, "others are opened when a walk needs them");
	CHECK(needed <= FEW - FEW / 4, "not the last ones");
	modules_free(modules);
	allow_files(-1);
}

static void test_unused_tables_are_freed(struct opener *opener, const struct source_info *info)
{
	const struct limits defaults = limits;
	struct module *all[3];
	struct modules *modules;

	CHECK(!modules_new(opener, info, true, &modules), "new");
	for (int i = 0; i < 3; i++) {
		all[i] = map(modules, i);
		CHECK(resolves(modules, all[i]) && !uw_object_compile(all[i]->object) &&
			      uw_object_memory(all[i]->object) > 1000,
		      "a table");
	}
	limits_counts.table_bytes = 0;
	modules_park(modules, now_ns());
	CHECK(all[1]->object && all[2]->object && !limits_counts.table_bytes, "they are small");
	limits.table_bytes = uw_object_memory(all[2]->object) * 2 - 1;
	modules_note(all[0]);
	modules_park(modules, now_ns());
	CHECK(all[0]->object, "a process has it mapped");
	CHECK(!all[1]->object && !all[2]->object && limits_counts.table_bytes == 2, "beyond");
	CHECK(module_fd(all[1]) >= 0 && all[1]->state == MODULE_NOT_OPENED, "the file stays open");
	CHECK(resolves(modules, map(modules, 1)) && resolves(modules, all[2]), "and is read again");
	limits = defaults;
	modules_free(modules);
}

/* source_info.embedded_file: a copy that is damaged. */
static int damaged_copy(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
			struct uw_build_id *build_id, int *fd)
{
	(void)ctx, (void)major, (void)minor, (void)inode, (void)path;
	*build_id = (struct uw_build_id){ .size = 20, .bytes = { 1 } };
	return fd ? -EBADMSG : 0;
}

static void test_a_copy_that_cannot_be_read_is_the_reason(void)
{
	const struct source_info with = { .kind = "test", .embedded_file = damaged_copy },
				 without = { .kind = "test" };
	const struct opener_options options = { .live = false };
	struct opener *opener;

	CHECK(!opener_new(&options, &opener), "new");
	for (int copy = 0; copy < 2; copy++) {
		struct modules *modules;
		struct module *module;

		CHECK(!modules_new(opener, copy ? &with : &without, false, &modules), "new");
		module = map(modules, FILES); /* there is no such file */
		CHECK(!resolves(modules, module), "no object");
		CHECK(module->error == (copy ? -EBADMSG : -ENOENT) &&
			      module->state == (copy ? MODULE_DAMAGED : MODULE_MISSING),
		      "the reason");
		modules_free(modules);
	}
	opener_free(opener);
}

int main(void)
{
	struct source_info info = { .kind = "live" };
	struct opener_options options = { .live = true };
	struct rlimit limit;
	struct opener *opener;
	struct modules *modules = NULL;

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < 2048 && limit.rlim_max >= 2048) {
		limit.rlim_cur = 2048;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	CHECK(mkdtemp(dir), "mkdtemp");
	make_files();
	CHECK(!opener_new(&options, &opener) && !modules_new(opener, &info, true, &modules), "new");
	test_long_unused_files_are_closed();
	test_long_unused_file_of_two_modules();
	test_a_copy_that_cannot_be_read_is_the_reason();
	test_a_file_is_opened_later_in_a_hurry();
	test_a_file_that_keeps_the_opener_waiting();
	test_unused_files_are_closed(modules);
	test_unused_modules_are_forgotten(modules);
	test_code_of_ended_processes_is_released(modules);
	modules_free(modules);
	test_a_file_too_many_is_opened_later(opener, &info);
	test_few_files_stay_open(opener, &info);
	test_unused_tables_are_freed(opener, &info);
	opener_free(opener);
	for (int i = 0; i < FILES; i++)
		(void)unlink(path_of(i));
	(void)rmdir(dir);
	return check_done();
}
