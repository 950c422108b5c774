/* agent/fleet/addresses.c: takes addresses without names from the servers of a fleet, and gives them names. */
#include "agent/fleet/addresses.h"

#include "agent/fleet/batch.h"
#include "agent/fleet/condition.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct uw_bytes take_text(struct uw_bytes *b)
{
	uint64_t size = uw_bytes_uleb(b);

	if (size > ADDRESSES_TEXT)
		b->err = -EBADMSG;
	return uw_bytes_take(b, size);
}

int address_take(struct uw_bytes *b, struct address *out)
{
	out->build_id = take_text(b);
	out->module = take_text(b);
	out->frame = uw_bytes_u64(b);
	out->vaddr = uw_bytes_u64(b);
	return b->err;
}

static char *copy_of(const struct uw_bytes *text)
{
	return strndup((const char *)text->pos, uw_bytes_left(text));
}

char *addresses_query(const struct addresses *a, const struct addresses_choice *choice)
{
	char *text = NULL;
	size_t size;
	FILE *sql = open_memstream(&text, &size);

	if (!sql)
		return NULL;
	/* Code whose addresses differ from start to start has no path, or was sent with its names. */
	(void)fputs("SELECT build_id, module, frame, vaddr FROM names FINAL WHERE build_id != '' "
		    "AND substring(module, 1, 1) = '/'",
		    sql);
	if (choice->build_id) {
		(void)fputs(" AND build_id = ", sql);
		condition_text(sql, choice->build_id);
	} else if (!choice->all) {
		(void)fprintf(sql, " AND version < %" PRIu64, batch_version(BATCH_SYMBOL, 0));
	}
	if (a->build_id) {
		(void)fputs(" AND (build_id > ", sql);
		condition_text(sql, a->build_id);
		(void)fputs(" OR (build_id = ", sql);
		condition_text(sql, a->build_id);
		(void)fprintf(sql, " AND vaddr > %" PRIu64 "))", a->vaddr);
	}
	(void)fprintf(sql, " ORDER BY build_id, vaddr LIMIT %d", ADDRESSES_BATCH);
	if (!fclose(sql))
		return text;
	free(text);
	return NULL;
}

int addresses_take(struct addresses *a, char *reply, size_t size)
{
	struct uw_bytes b = uw_bytes_of(reply, size);
	struct address last = { .frame = 0 };
	char *build_id = NULL;

	free(a->asked);
	a->asked = reply;
	a->size = size;
	a->there = false;
	for (a->n = 0; !uw_bytes_done(&b); a->n++)
		if (a->n >= ADDRESSES_BATCH || address_take(&b, &last))
			return -EBADMSG;
	if (!a->n)
		return b.err;
	/* A server that does not go on would be asked for ever. */
	build_id = copy_of(&last.build_id);
	if (!build_id)
		return -ENOMEM;
	if (a->build_id && (strcmp(build_id, a->build_id) < 0 ||
			    (!strcmp(build_id, a->build_id) && last.vaddr <= a->vaddr))) {
		free(build_id);
		return -EBADMSG;
	}
	free(a->build_id);
	a->build_id = build_id;
	a->vaddr = last.vaddr;
	a->n_asked += a->n;
	a->there = true;
	return 0;
}

/* Append a text of foreign bytes, which may have a NUL: then it ends there. */
static int put_text(struct block *out, size_t column, const struct uw_bytes *text)
{
	char *copy = copy_of(text);

	if (!copy)
		return -ENOMEM;
	block_text(out, column, copy);
	free(copy);
	return out->err;
}

/* Make the row of an address. */
static int put_row(struct block *out, const struct address *of, struct uw_bytes *found, uint64_t n,
		   uint64_t time_s)
{
	enum batch_quality quality = BATCH_SYMBOL;
	int err = put_text(out, 1, &of->build_id);

	block_u64(out, 0, of->frame);
	block_u64(out, 2, of->vaddr);
	if (!err)
		err = put_text(out, 3, &of->module);
	for (uint64_t i = 0; i < n && !err; i++) {
		struct uw_bytes function = take_text(found), file = take_text(found);
		uint32_t line = uw_bytes_u32(found);

		if (found->err)
			return found->err;
		err = put_text(out, 4, &function);
		if (!err)
			err = put_text(out, 5, &file);
		block_u32(out, 6, line);
		if (line)
			quality = BATCH_LINES;
	}
	for (size_t column = 4; column < 7; column++)
		block_array(out, column, n);
	block_u64(out, 7, batch_version(quality, (uint32_t)time_s));
	block_row(out);
	return err ? err : out->err;
}

int addresses_name(struct addresses *a, const struct addresses_choice *choice, const void *found,
		   size_t size, struct block *out)
{
	struct uw_bytes asked = uw_bytes_of(a->asked, a->size), b = uw_bytes_of(found, size);
	struct address at = { .frame = 0 };
	uint64_t next = 0; /* the number of the row that asked goes on with */
	int err = 0;

	block_init(out, "names", batch_columns(BATCH_NAMES));
	while (!err && !uw_bytes_done(&b)) {
		uint64_t i = uw_bytes_uleb(&b), n = uw_bytes_uleb(&b);

		/* Rows come in the order in which they were asked. */
		if (b.err || i < next || i >= a->n || !n || n > ADDRESSES_INLINED)
			return -EBADMSG;
		for (; next <= i && !err; next++)
			err = address_take(&asked, &at);
		if (!err)
			err = put_row(out, &at, &b, n, choice->time_s);
	}
	err = err ? err : b.err;
	if (!err) {
		a->n_named += out->n_rows;
		a->there = false;
	}
	return err;
}

void addresses_fini(struct addresses *a)
{
	free(a->asked);
	free(a->build_id);
	*a = (struct addresses){ .n = 0 };
}
