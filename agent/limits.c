/* agent/limits.c: the table of limits, their values, and how often each was reached. */
#include "agent/limits.h"

#include "agent/log.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define K  UINT64_C(1024)
#define MI (K * K)
#define GI (K * MI)

struct limits limits = {
	.frames = 1024,
	.mappings = 16 * K,
	.all_mappings = 4 * MI,
	.processes = 64 * K,
	.open_files = 512,
	.table_bytes = 32 * MI,
	.generated_bytes = 64 * MI,
	.deleted_files = 1024,
	.modules = 2048,
	.thread_names = 4096,
	.cgroups = 32 * K,
	.cgroup_path_bytes = K,
	.context_bytes = 16 * K,
	.interpreted_frames = 256 * K,
	.runtime_bytes = 8 * MI,
	.slice_bytes = 32 * K,
	.thread_labels = 24,
	.thread_label_bytes = K,
	.addresses = 128 * K,
	.symbol_tables = 1024,
	.symbol_bytes = 32 * MI,
	.name_bytes = 64 * K,
	.history_bytes = 8 * MI,
	.profile_bytes = 256 * MI,
	.memory_bytes = 2 * GI,
};

struct limits limits_counts;

#define OWN(field)     .at = offsetof(struct limits, field)
#define LIBRARY(field) .at = offsetof(struct uw_limits, field), .of_library = true, .least = 1

/* clang-format off */
static const struct limits_row rows[] = {
	{ "frames", "the walk of a stack stops (max_frames)", OWN(frames), .least = 1, .most = MI },
	{ "operations", "a DWARF expression is given up, and the walk stops (limit)",
	  LIBRARY(operations) },
	{ "instructions", "the call frame information of a function is given up (limit)",
	  LIBRARY(instructions) },
	{ "section-bytes", "a section of unwind information is not read", LIBRARY(section_bytes) },
	{ "held-bytes", "a file with that much unwind information is not used while recording",
	  LIBRARY(held_bytes) },
	{ "functions", "a file gets no compiled table, and no index", LIBRARY(functions) },
	{ "rows", "a file gets no compiled table", LIBRARY(rows) },
	{ "rules", "a file gets no compiled table", LIBRARY(rules) },
	{ "symbols", "no symbol of the file is used", LIBRARY(symbols) },
	{ "name-bytes", "the name of a function or source file is cut there", OWN(name_bytes), .least = 16,
	  .most = 64 * K },
	{ "lines", "further source lines of a file are left out", LIBRARY(lines) },
	{ "debug-bytes", "a packed section of debug information is not read", LIBRARY(debug_bytes) },
	{ "mappings", "of one process, older mappings of data and generated code are forgotten",
	  OWN(mappings), .least = 8, .most = 4 * MI },
	{ "all-mappings", "further mappings are left out", OWN(all_mappings), .least = 8,
	  .most = 64 * MI },
	{ "processes", "another process is forgotten for each new one", OWN(processes), .least = 16,
	  .most = 4 * MI },
	{ "profile-bytes", "a profile, unpacked, is not read", OWN(profile_bytes), .least = K,
	  .most = 4 * GI },
	{ "memory-bytes", "a worker that records gets no more memory", OWN(memory_bytes),
	  .least = 64 * MI, .most = K * GI },
	{ "cgroup-path-bytes", "of a cgroup with a longer path only the number is known",
	  OWN(cgroup_path_bytes), .least = 16, .most = 2 * K },
	{ "context-bytes", "what a program says of itself is not read", OWN(context_bytes), .least = 16,
	  .most = 16 * K },
	{ "slice-bytes", "a sample has no further memory of its interpreter", OWN(slice_bytes), .least = 64,
	  .most = 32 * K },
	{ "thread-labels", "further labels that a thread has set for its work are left out", OWN(thread_labels),
	  .least = 1, .most = 48 },
	{ "thread-label-bytes", "the last labels that a thread has set for its work are left out",
	  OWN(thread_label_bytes), .least = 1, .most = 2000 },
	{ "open-files", "files that no process has mapped are closed", OWN(open_files), .is_cache = true,
	  .least = 16, .most = MI },
	{ "table-bytes", "unwind tables of files that no process has mapped are freed", OWN(table_bytes),
	  .is_cache = true, .least = K, .most = GI },
	{ "deleted-files", "deleted files that no process has mapped are closed", OWN(deleted_files),
	  .is_cache = true, .least = 16, .most = MI },
	{ "modules", "files that no process has mapped are forgotten", OWN(modules), .is_cache = true,
	  .least = 16, .most = 16 * MI },
	{ "generated-bytes",
	  "what was read of the largest runtimes of generated code is dropped, and read again after a minute",
	  OWN(generated_bytes), .least = K, .most = GI },
	{ "thread-names", "names that no thread has are forgotten", OWN(thread_names),
	  .is_cache = true, .least = 16, .most = 16 * MI },
	{ "cgroups", "cgroups without samples are forgotten, the longest unused first", OWN(cgroups),
	  .is_cache = true, .least = 64, .most = MI },
	{ "addresses", "cached names of functions are looked up again", OWN(addresses),
	  .is_cache = true, .least = 16, .most = 64 * MI },
	{ "symbol-tables", "cached symbols are read again", OWN(symbol_tables), .is_cache = true,
	  .least = 1, .most = MI },
	{ "symbol-bytes", "cached symbols and lines are read again", OWN(symbol_bytes),
	  .is_cache = true, .least = 64 * K, .most = 64 * GI },
	{ "interpreted-frames", "the longest unused frames of interpreted code lose their names",
	  OWN(interpreted_frames), .is_cache = true, .least = 16, .most = 64 * MI },
	{ "runtime-bytes", "what was read of a process for names of interpreted code is read again",
	  OWN(runtime_bytes), .is_cache = true, .least = 64 * K, .most = GI },
	{ "history-bytes", "stacks are walked without the thread's last walk", OWN(history_bytes),
	  .is_cache = true, .least = K, .most = 4 * GI },
};
/* clang-format on */

const struct limits_row *limits_rows(size_t *n)
{
	*n = sizeof(rows) / sizeof(rows[0]);
	return rows;
}

const struct limits_row *limits_find(const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strlen(rows[i].name) == n && !strncmp(rows[i].name, name, n))
			return &rows[i];
	return NULL;
}

bool limits_are_bytes(const struct limits_row *row)
{
	const char *dash = strrchr(row->name, '-');

	return dash && !strcmp(dash, "-bytes");
}

/* Return the number at an offset in one of the structs. */
static uint64_t at(const void *base, size_t off)
{
	uint64_t value;

	memcpy(&value, (const char *)base + off, sizeof(value));
	return value;
}

uint64_t limits_value(const struct limits_row *row)
{
	struct uw_limits library;

	if (!row->of_library)
		return at(&limits, row->at);
	uw_limits_get(&library);
	return at(&library, row->at);
}

uint64_t limits_most(const struct limits_row *row)
{
	struct uw_limits library;

	if (row->most)
		return row->most;
	uw_limits_most(&library);
	return at(&library, row->at);
}

uint64_t limits_count(const struct limits_row *row)
{
	struct uw_limits library;

	if (!row->of_library)
		return __atomic_load_n((uint64_t *)((char *)&limits_counts + row->at),
				       __ATOMIC_RELAXED);
	uw_limits_reached(&library);
	return at(&library, row->at);
}

int limits_set(const struct limits_row *row, uint64_t value)
{
	struct uw_limits library;

	if (value < row->least || value > limits_most(row))
		return -EINVAL;
	if (!row->of_library) {
		memcpy((char *)&limits + row->at, &value, sizeof(value));
		return 0;
	}
	uw_limits_get(&library);
	memcpy((char *)&library + row->at, &value, sizeof(value));
	return uw_limits_set(&library);
}

void limits_say(void)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct limits_row *row = &rows[i];
		uint64_t n = row->is_cache ? 0 : limits_count(row);

		if (n)
			log_warning("limit %s=%" PRIu64 " reached %" PRIu64
				    " time%s: beyond it, %s; --limit %s=N changes it",
				    row->name, limits_value(row), n, n == 1 ? "" : "s", row->beyond,
				    row->name);
	}
}
