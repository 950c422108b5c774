/* agent/history/history_upgrade.c: what the steps need that make an older history one of today (schema/history_2.sql, history_3.sql). */
#include "agent/history/history_internal.h"

#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

enum { HASH_MAX = 0x7fffffff };

int64_t history_hash_end(struct sha256_ctx *ctx)
{
	uint32_t hash;

	sha256_digest(ctx, sizeof(hash), (uint8_t *)&hash);
	return hash & HASH_MAX;
}

int64_t history_text_hash(const char *text)
{
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, strlen(text), (const uint8_t *)text);
	return history_hash_end(&ctx);
}

static void text_hash(sqlite3_context *ctx, int n, sqlite3_value **values)
{
	const char *text = (const char *)sqlite3_value_text(values[0]);

	(void)n;
	if (text)
		sqlite3_result_int64(ctx, history_text_hash(text));
	else
		sqlite3_result_error_nomem(ctx);
}

static void frame_hash(sqlite3_context *ctx, int n, sqlite3_value **values)
{
	(void)n;
	sqlite3_result_int64(ctx, history_frame_hash(&(struct history_frame_key){
					  .module = sqlite3_value_int64(values[0]),
					  .address = (uint64_t)sqlite3_value_int64(values[1]),
					  .variant = sqlite3_value_int64(values[2]) }));
}

/* Frames that become a page. */
struct gathered {
	struct history_page_frame frames[FRAMES_IN_PAGE];
	uint8_t *lines[FRAMES_IN_PAGE]; /* owned copies */
	size_t n;
};

/* Add a frame: its id, module, address, variant and lines. */
static void gather(sqlite3_context *ctx, int n, sqlite3_value **values)
{
	struct gathered *g = sqlite3_aggregate_context(ctx, sizeof(*g));
	const size_t at = (size_t)((uint64_t)sqlite3_value_int64(values[0]) - 1) % FRAMES_IN_PAGE;
	const void *lines = sqlite3_value_blob(values[4]);
	const size_t size = (size_t)sqlite3_value_bytes(values[4]);

	(void)n;
	if (!g || g->lines[at] || !(g->lines[at] = malloc(size + 1))) {
		sqlite3_result_error_nomem(ctx);
		return;
	}
	if (size)
		memcpy(g->lines[at], lines, size);
	g->frames[at] = (struct history_page_frame){
		.there = true,
		.key = { .module = sqlite3_value_int64(values[1]),
			 .address = (uint64_t)sqlite3_value_int64(values[2]),
			 .variant = sqlite3_value_int64(values[3]) },
		.lines = uw_bytes_of(g->lines[at], size),
	};
	g->n = at >= g->n ? at + 1 : g->n;
}

static void give_page(sqlite3_context *ctx)
{
	struct gathered *g = sqlite3_aggregate_context(ctx, 0);
	struct history_bytes page = { .bytes = NULL };

	if (g && history_pack_frames(g->frames, g->n, &page))
		sqlite3_result_error_nomem(ctx);
	else if (page.bytes)
		sqlite3_result_blob64(ctx, page.bytes, page.size, SQLITE_TRANSIENT);
	free(page.bytes);
	for (size_t i = 0; g && i < FRAMES_IN_PAGE; i++)
		free(g->lines[i]);
}

int history_prepare_upgrade(sqlite3 *db)
{
	static const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
	int rc = sqlite3_create_function(db, "text_hash", 1, flags, NULL, text_hash, NULL, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(db, "frame_hash", 3, flags, NULL, frame_hash, NULL,
					     NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(db, "frame_page", 5, flags, NULL, NULL, gather,
					     give_page);
	return rc;
}
