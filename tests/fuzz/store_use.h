/*
 * tests/fuzz/store_use.h: what the fuzz targets of the store do with a database that somebody else
 * wrote.
 */
#ifndef TESTS_FUZZ_STORE_USE_H
#define TESTS_FUZZ_STORE_USE_H

#include "agent/store/store.h"
#include "symbolizer/symbolizer.h"

#include <string.h>

static volatile uint64_t sink; /* all bytes that are returned must be readable */

static inline void touch_object(struct uw_object *object)
{
	const struct uw_segment *segments;
	uint64_t start, end;
	size_t n;

	segments = uw_object_segments(object, &n);
	for (size_t i = 0; i < n && i < 4; i++)
		for (uint64_t at = 0; at < 64; at += 8)
			if (!uw_object_function(object, segments[i].vaddr + at, &start, &end))
				sink += end - start;
}

static inline void touch_symbols(const struct sym_table *table)
{
	struct sym_symbol s;

	for (size_t i = 0; i < 64 && !sym_table_at(table, i, &s); i++)
		sink += strlen(s.name);
	for (uint64_t at = 0x1000; at < 0x1100; at += 16)
		if (!sym_table_find(table, at, &s))
			sink += strlen(s.name);
}

static inline void look_up(struct store *store, struct uw_object *object,
			   const struct store_file *file)
{
	const struct uw_build_id *id = uw_object_build_id(object);
	struct sym_table *table = NULL;
	struct sym_lines *lines = NULL;
	struct uw_object *gone = NULL;

	if (!store_find_parts(store, object, file))
		touch_object(object);
	if (!store_find_gone(store, id, &gone))
		touch_object(gone);
	if (!store_find_symbols(store, file, NULL, id, &table) ||
	    !store_find_symbols(store, NULL, NULL, id, &table))
		touch_symbols(table);
	if (!store_find_lines(store, file, id, &lines))
		sink += sym_lines_size(lines);
	sink += store_is_missing(store, id) + store_is_quarantined(store, id, file);
	sym_lines_free(lines);
	sym_table_free(table);
	uw_object_put(gone);
}

static inline void fill(struct store *store, struct uw_object *object,
			const struct store_file *file, const uint8_t *elf, size_t size)
{
	struct sym_table *table;

	(void)store_keep(store, object, file);
	if (!sym_table_open_image(elf, size, &table))
		store_want_symbols(store, file, NULL, uw_object_build_id(object), table);
	store_work(store, INT64_MAX);
}

static inline void clear(struct store *store, struct uw_object *object,
			 const struct store_file *file)
{
	uint64_t n;

	(void)store_quarantine(store, uw_object_build_id(object), file, "reason");
	store_missing(store, uw_object_build_id(object));
	(void)store_set_budget(store, 1 << 20);
	(void)store_forget(store, 1000, &n);
	(void)store_shrink(store, 1);
}

#endif
