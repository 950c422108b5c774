/*
 * tests/unit/test_names_stored.c: tests names from symbols in the store while another process replaces or deletes their row.
 */
#include "agent/pipeline/names.h"
#include "agent/process/modules.h"
#include "agent/store/store.h"
#include "symbolizer/symbolizer.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

#define N_PLACES 16
#define WORK_NS	 UINT64_C(60000000000)

static char folder[] = "/tmp/offwind-names-XXXXXX";
static char db_name[64], program[4096];
static const struct source_info info;
static struct opener *opener;

/* Functions of this program, far from each other, whose names are shown as they are: no C++. */
static struct {
	uint64_t addr;
	const char *name;
} places[N_PLACES];

/* A file that changed within the last two seconds is not stored (agent/store/identity.c). */
static void wait_until_old(int fd)
{
	struct stat st;

	CHECK(!fstat(fd, &st), "stat");
	while (time(NULL) < st.st_ctime + 4)
		(void)usleep(100000);
}

static struct sym_table *find_places(void)
{
	int fd = open(program, O_RDONLY | O_CLOEXEC);
	struct sym_table *table = NULL;
	struct sym_symbol symbol;
	size_t n;

	CHECK(fd >= 0 && !sym_table_open(fd, 0, &table), "this program's symbols");
	wait_until_old(fd);
	(void)close(fd);
	n = sym_table_size(table);
	for (size_t i = 0; i < N_PLACES; i++) {
		size_t at = i * (n - 1) / (N_PLACES - 1);

		do
			CHECK(!sym_table_at(table, at, &symbol), "a symbol");
		while (!strncmp(symbol.name, "_Z", 2) && ++at < n);
		CHECK(!sym_table_find(table, symbol.addr, &symbol), "the one that is chosen there");
		places[i].addr = symbol.addr;
		places[i].name = symbol.name;
	}
	return table;
}

/* Another process deletes the symbols, for instance to stay within the store's budget. */
static void delete_them(void)
{
	sqlite3 *db = NULL;

	CHECK(sqlite3_open(db_name, &db) == SQLITE_OK &&
		      sqlite3_exec(db, "DELETE FROM symbols", NULL, NULL, NULL) == SQLITE_OK &&
		      sqlite3_changes(db) == 1,
	      "the row");
	(void)sqlite3_close(db);
}

/* Another process, which did not find them in the store, stores them, too. */
static void store_them_again(void)
{
	int fd = open(program, O_RDONLY | O_CLOEXEC);
	struct uw_object *object = NULL;
	struct store_counters counters = { 0 };
	struct sym_table *table = NULL;
	struct store *store = NULL;
	struct store_file file;

	CHECK(fd >= 0 && !uw_object_open(fd, 0, &object) && !sym_table_open(fd, 0, &table) &&
		      !store_open(db_name, &store),
	      "another process");
	store_file_of(fd, 0, program, &file);
	store_want_symbols(store, &file, NULL, uw_object_build_id(object), table);
	store_work(store, WORK_NS);
	store_counters(store, &counters);
	CHECK(counters.symbols_stored == 1, "stored by another process");
	store_close(store);
	uw_object_put(object);
	(void)close(fd);
}

/* Name one function after another. After the first, do what another process does. */
static struct store_counters name_all(void (*meanwhile)(void))
{
	struct event_mapping mapping = { .start = 1, .end = 2, .path = program };
	struct uw_mapping mapped = { .start = 1, .end = 2 };
	struct store_counters counters = { 0 };
	struct modules *modules = NULL;
	struct names *names = NULL;
	struct store *store = NULL;
	struct name name;

	CHECK(!store_open(db_name, &store), "the store");
	CHECK(!modules_new(opener, &info, false, &modules) &&
		      !names_new(opener, &info, true, &names),
	      "set up");
	store_read_beside(store); /* as a recording does */
	names_store(names, store);
	mapped.user = modules_get(modules, 1, &mapping);
	uw_object_put(modules_resolve(modules, &mapped));
	for (size_t i = 0; i < N_PLACES; i++) {
		struct location location = { .module = mapped.user, .vaddr = places[i].addr };

		names_find(names, &location, &name);
		CHECK(name.function && !strcmp(name.function, places[i].name), places[i].name);
		if (!i && meanwhile)
			meanwhile();
	}
	names_free(names);
	store_work(store, WORK_NS);
	store_counters(store, &counters);
	modules_free(modules);
	store_close(store);
	return counters;
}

int main(void)
{
	const struct opener_options options = { 0 };
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	struct store_counters counters;
	char command[96];
	struct sym_table *table;

	CHECK(n > 0 && mkdtemp(folder) && !opener_new(&options, &opener), "set up");
	(void)snprintf(db_name, sizeof(db_name), "%s/db", folder);
	table = find_places();
	counters = name_all(NULL);
	CHECK(!counters.symbols_found && counters.symbols_stored == 1, "stored");
	counters = name_all(store_them_again);
	CHECK(counters.symbols_found == 1 && !counters.symbols_stored, "read from the same row");
	counters = name_all(delete_them);
	CHECK(counters.symbols_found == 1 && counters.symbols_stored == 1,
	      "read from the file, and stored again");
	sym_table_free(table);
	opener_free(opener);
	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	CHECK(!system(command), command);
	return check_done();
}
