/* agent/fleet/asking.c: asks the fleet's server one query in SQL, and reads texts of its reply. */
#include "agent/fleet/asking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sql_begin(struct sql *q)
{
	*q = (struct sql){ .out = NULL };
	q->out = open_memstream(&q->text, &q->size);
	return q->out ? 0 : -ENOMEM;
}

void sql_drop(struct sql *q)
{
	if (q->out)
		(void)fclose(q->out);
	free(q->text);
}

int sql_unreachable(struct http_reply *reply, int err)
{
	return http_fail(reply, 502,
			 err == -EBADMSG ? "the fleet's reply cannot be read"
					 : "the fleet cannot be asked");
}

int sql_ask(struct sql *q, struct fleet *f, struct http_reply *reply, const struct fleet_ids *ids,
	    char **text, struct uw_bytes *out)
{
	size_t size = 0;
	int err = fclose(q->out) ? -ENOMEM : 0;

	q->out = NULL;
	*text = NULL;
	if (!err && f->sql) {
		(void)fprintf(f->sql, "%s;\n", q->text);
		if (ids)
			(void)fprintf(f->sql, "-- with %zu numbers of the rows before as ids\n",
				      ids->n);
	}
	if (!err)
		err = f->ask(f->ctx, q->text, ids, text, &size);
	free(q->text);
	q->text = NULL;
	if (err)
		return sql_unreachable(reply, err);
	*out = uw_bytes_of(*text, size);
	return 0;
}

/* ---- values of replies -------------------------------------------------------------------- */

enum { TEXT_MAX = 65536 };

const char *sql_take_text(struct uw_bytes *b, struct stacks *s)
{
	uint64_t size = uw_bytes_uleb(b);
	struct uw_bytes text = uw_bytes_take(b, size);
	const char *own = NULL;
	char *copy;

	if (b->err || size > TEXT_MAX)
		return NULL;
	copy = strndup((const char *)text.pos, (size_t)size);
	if (copy)
		own = stacks_text(s, copy);
	free(copy);
	return own;
}

void sql_take_short(struct uw_bytes *b, char *out, size_t room)
{
	uint64_t size = uw_bytes_uleb(b);
	struct uw_bytes text = uw_bytes_take(b, size);
	size_t n = b->err ? 0 : size < room - 1 ? (size_t)size : room - 1;

	if (n)
		memcpy(out, text.pos, n);
	out[n] = '\0';
}
