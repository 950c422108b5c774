/* agent/history/history_upgrade.c: what the steps need that make an older history one of today (schema/history_2.sql). */
#include "agent/history/history_internal.h"

#include <nettle/sha2.h>
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

int history_prepare_upgrade(sqlite3 *db)
{
	return sqlite3_create_function(db, "text_hash", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
				       text_hash, NULL, NULL);
}
