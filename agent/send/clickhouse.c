/*
 * agent/send/clickhouse.c: windows into the fleet's tables in ClickHouse (docs/fleet.md).
 *
 * The windows of a slot of time are one batch (agent/fleet/batch.h), whose samples the server inserts as one block.
 * When it is not known whether a block arrived, the server is asked before the batch is sent again: the row of a batch
 * says which window was its last. Before each other batch, the server is asked for the batch before: if it is gone, so
 * may be the stacks and names that the server had, and all of them are sent again.
 */
#include "agent/fleet/batch.h"
#include "agent/fleet/condition.h"
#include "agent/fleet/server.h"
#include "agent/hash.h"
#include "agent/log.h"
#include "agent/send/kinds.h"
#include "agent/send/post.h"
#include "proto/gzip.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A query has at most 256 KiB, and an id 20 digits. */
enum { SLOT_S = 300, GZIP_LEVEL = 1, STACKS_AT_ONCE = 8192 };
/* How far back it is looked for the host's last batch. */
#define LOOK_BACK_S (UINT64_C(40) * 86400)

struct clickhouse {
	const struct target *target;
	struct post *post;
	struct batch *batch;
	struct server_url url;	    /* of the host's shard; base "": not chosen yet */
	bool unsure;		    /* what the server has of this host must be asked */
	uint64_t last_id, until_ns; /* the last window that it has, and when that ended */
	uint32_t sent_s;	    /* the slot of the last batch that it took; 0: none yet */
	uint64_t sent_ns;	    /* when the last window of that ended */
	uint64_t n_bytes;	    /* that the batch took so far */
};

/* ---- shards ------------------------------------------------------------------------------- */

/* Return the weight of a shard for a host: the highest one is the host's (rendezvous hashing). */
static uint64_t weight_of(const char *host, const char *url, size_t size)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, the same on each machine */

	for (const char *at = host; *at; at++)
		hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ (uint8_t)url[i]) * UINT64_C(0x100000001b3);
	return uw_hash_u64(hash);
}

/* Choose one of the URLs, which commas separate. The caller frees it. */
static char *choose(const char *urls, const char *host)
{
	const char *best = urls;
	size_t best_size = strcspn(urls, ",");
	uint64_t most = 0;

	for (const char *at = urls; *at; at += *at == ',') {
		size_t n = strcspn(at, ",");
		uint64_t weight = weight_of(host, at, n);

		if (weight >= most) {
			most = weight;
			best = at;
			best_size = n;
		}
		at += n;
	}
	return strndup(best, best_size);
}

static int choose_shard(struct clickhouse *c, const char *host)
{
	char *url = choose(c->target->url, host);
	int err = url ? server_url_parse(url, &c->url) : -ENOMEM;

	free(url);
	return err;
}

/* ---- requests ----------------------------------------------------------------------------- */

/* What a reply means. Nothing is refused for good: tables can be made, rights given, and the server mended. */
static enum send_outcome outcome_of(const struct post_reply *reply, struct send_report *report)
{
	enum send_outcome outcome = post_outcome(reply, report);

	if (outcome == SEND_REFUSED) {
		report->fault = SENDING_FAULT_ACCESS;
		outcome = SEND_AGAIN;
	}
	return outcome;
}

/* Send a body, or a query without one. Return SEND_DONE or SEND_AGAIN. */
static enum send_outcome request(struct clickhouse *c, const char *arguments, const char *sql,
				 void *body, size_t size, struct post_reply *reply,
				 struct send_report *report)
{
	static const char *const headers[] = { "Content-Type: application/octet-stream",
					       "Content-Encoding: gzip" };
	struct post_request r = { .headers = headers,
				  .n_headers = body ? 2 : 1,
				  .body = body ? body : sql,
				  .size = body ? size : strlen(sql) };
	enum send_outcome outcome = SEND_AGAIN;
	char *url = NULL;

	if (asprintf(&url, "%s/?database=%s&wait_end_of_query=1%s", c->url.base, c->url.database,
		     arguments) < 0) {
		report->fault = SENDING_FAULT_MEMORY;
		return SEND_AGAIN;
	}
	r.url = url;
	if (post_send(c->post, &r, reply, report))
		outcome = outcome_of(reply, report);
	free(url);
	return outcome;
}

/* Ask the server for the last window that it has of this host, in slots from a time on. */
static enum send_outcome ask_last(struct clickhouse *c, const char *host, uint64_t from_s,
				  struct send_report *report)
{
	struct post_reply reply = { .status = 0 };
	enum send_outcome outcome = SEND_AGAIN;
	char *sql = NULL, *end = NULL;
	size_t size;
	FILE *out = open_memstream(&sql, &size);

	report->fault = SENDING_FAULT_MEMORY;
	if (!out)
		return SEND_AGAIN;
	(void)fprintf(out,
		      "SELECT max(value), argMax(labels, value), toUInt32(max(time)) FROM samples "
		      "WHERE type = 0 AND time >= toDateTime(%" PRIu64
		      ") AND toStartOfHour(time) >= toStartOfHour(toDateTime(%" PRIu64
		      ")) AND host = ",
		      from_s, from_s);
	condition_text(out, host);
	(void)fputs(" FORMAT TabSeparated", out);
	if (!fclose(out))
		outcome = request(c, "", sql, NULL, 0, &reply, report);
	free(sql);
	if (outcome != SEND_DONE)
		return outcome;
	c->until_ns = strtoull(reply.body, &end, 10);
	if (*end != '\t') {
		report->fault = SENDING_FAULT_REPLY;
		post_say(report, "the reply is no number", reply.body);
		return SEND_AGAIN;
	}
	c->last_id = strtoull(end, &end, 10);
	batch_server_has(c->batch, (uint32_t)strtoull(end, NULL, 10));
	c->unsure = false;
	return SEND_DONE;
}

/*
 * Ask what is not known of the server: what it has of this host, or whether it still has the last batch. If it has not,
 * another server or other tables are there: forget what the old ones had.
 */
static enum send_outcome ask(struct clickhouse *c, const char *host, uint64_t time_s, bool *lost,
			     struct send_report *report)
{
	uint64_t from_s = time_s > LOOK_BACK_S ? time_s - LOOK_BACK_S : 0;
	enum send_outcome outcome;

	if (!c->unsure && c->sent_s > from_s)
		from_s = c->sent_s;
	outcome = ask_last(c, host, from_s, report);
	*lost = outcome == SEND_DONE && c->until_ns < c->sent_ns;
	if (*lost) {
		batch_forget(c->batch);
		c->sent_ns = c->until_ns;
	}
	return outcome;
}

static bool server_has(const struct clickhouse *c, uint64_t id, uint64_t end_ns)
{
	return end_ns <= c->until_ns && id <= c->last_id;
}

/* Ask which of these stacks the server has, and leave them out of the batch. Return false if it cannot be asked. */
static bool leave_out(struct clickhouse *c, const uint64_t *ids, size_t n)
{
	struct send_report ignored = { .text = "" };
	struct post_reply reply = { .status = 0 };
	char *sql = NULL;
	size_t size;
	FILE *out = open_memstream(&sql, &size);
	bool done = false;

	if (!out)
		return false;
	(void)fputs("SELECT DISTINCT stack FROM stacks WHERE day = today() AND stack IN (", out);
	for (size_t i = 0; i < n; i++)
		(void)fprintf(out, "%s%" PRIu64, i ? "," : "", ids[i]);
	(void)fputs(") FORMAT RowBinary", out);
	if (!fclose(out))
		done = request(c, "", sql, NULL, 0, &reply, &ignored) == SEND_DONE &&
		       reply.size % 8 == 0 && !batch_leave_out(c->batch, reply.body, reply.size);
	free(sql);
	return done;
}

/*
 * Leave out the stacks that the server got today, of this host before the daemon was started again, or of other hosts:
 * their frames are much larger than the question. Where it cannot be answered, as by tables of an older version, all are sent.
 */
static void leave_out_stacks(struct clickhouse *c)
{
	size_t n;
	const uint64_t *ids = batch_stacks(c->batch, &n);

	for (size_t i = 0; i < n; i += STACKS_AT_ONCE)
		if (!leave_out(c, ids + i, n - i < STACKS_AT_ONCE ? n - i : STACKS_AT_ONCE))
			return;
}

/* Insert the rows of one table. */
static enum send_outcome insert(struct clickhouse *c, enum batch_table table,
				struct send_report *report)
{
	struct post_reply reply = { .status = 0 };
	const struct block *block;
	enum send_outcome outcome;
	uint8_t *bytes = NULL;
	char *argument;
	size_t size = 0;

	report->fault = SENDING_FAULT_MEMORY;
	if (batch_block(c->batch, table, &block))
		return SEND_AGAIN;
	if (!block->n_rows)
		return SEND_DONE;
	argument = block_insert(block);
	if (!argument || block_pack(block, &bytes, &size) ||
	    gzip_replace(&bytes, &size, GZIP_LEVEL)) {
		outcome = SEND_AGAIN;
	} else {
		outcome = request(c, argument, NULL, bytes, size, &reply, report);
		c->n_bytes += size;
		/* Where an insert was done, there is nothing to say: this is a page to log in, or the like. */
		if (outcome == SEND_DONE && reply.size) {
			report->fault = SENDING_FAULT_REPLY;
			post_say(report, "the reply is not that of an insert", NULL);
			outcome = SEND_AGAIN;
		}
	}
	free(argument);
	free(bytes);
	return outcome;
}

/* Let the server have the batch. */
static enum send_outcome flush(struct clickhouse *c, const char *host, struct send_report *report)
{
	enum send_outcome outcome;
	bool lost;

	if (!batch_until(c->batch))
		return SEND_DONE;
	outcome = ask(c, host, batch_time(c->batch), &lost, report);
	if (lost) {
		/* The batch lacks the stacks and names that were sent before. */
		batch_drop(c->batch);
		report->fault = SENDING_FAULT_REPLY;
		report->rewind = true;
		post_say(report, "the server has lost what it had: all stacks are sent again",
			 NULL);
		return SEND_AGAIN;
	}
	if (outcome == SEND_DONE && !server_has(c, batch_last(c->batch), batch_until(c->batch))) {
		leave_out_stacks(c);
		/* What rows refer to goes first; when the samples are there, all is. */
		for (size_t i = 0; i < BATCH_TABLES && outcome == SEND_DONE; i++)
			outcome = insert(c, (enum batch_table)i, report);
	}
	if (outcome != SEND_DONE) {
		c->unsure = true;
		return outcome;
	}
	c->sent_s = batch_time(c->batch);
	c->sent_ns = batch_until(c->batch);
	batch_sent(c->batch);
	report->settled = true;
	report->n_bytes = c->n_bytes;
	c->n_bytes = 0;
	return SEND_DONE;
}

/* ---- a target ----------------------------------------------------------------------------- */

static void clickhouse_close(void *opened)
{
	struct clickhouse *c = opened;

	if (!c)
		return;
	post_free(c->post);
	batch_free(c->batch);
	server_url_fini(&c->url);
	free(c);
}

static int clickhouse_open(const struct target *target, void **out)
{
	struct clickhouse *c = calloc(1, sizeof(*c));
	int err = c ? 0 : -ENOMEM;

	if (!err)
		*c = (struct clickhouse){ .target = target, .unsure = true };
	if (!err)
		err = batch_new(target->slot_s ? target->slot_s : SLOT_S, target->no_names,
				&c->batch);
	if (err)
		log_error("%s", strerror(-err));
	if (!err)
		err = post_new(target, &c->post);
	if (err) {
		clickhouse_close(c);
		return err;
	}
	*out = c;
	return 0;
}

static enum send_outcome clickhouse_send(void *opened, const struct send_window *window,
					 struct send_report *report)
{
	struct clickhouse *c = opened;
	const struct batch_window w = { .id = (uint64_t)window->id,
					.start_ns = window->start_ns,
					.end_ns = window->end_ns,
					.host = window->host,
					.stacks = window->stacks,
					.counters = window->counters,
					.n_counters = window->n_counters };
	enum send_outcome outcome = SEND_DONE;
	bool lost; /* then ask has forgotten what the server had */

	report->fault = SENDING_FAULT_MEMORY;
	if (!c->url.base && choose_shard(c, window->host))
		return SEND_AGAIN;
	if (!batch_takes(c->batch, &w))
		outcome = flush(c, window->host, report);
	/* Before the first window of all: it may be there, if the daemon ended before that was noted. */
	if (outcome == SEND_DONE && c->unsure)
		outcome = ask(c, window->host, window->start_ns / 1000000000, &lost, report);
	if (outcome != SEND_DONE)
		return outcome;
	if (!batch_until(c->batch) && server_has(c, w.id, w.end_ns))
		return SEND_DONE;
	if (!batch_add(c->batch, &w))
		return SEND_HELD;
	batch_drop(c->batch);
	c->unsure = true; /* of the windows that come again, the server may have some */
	report->rewind = true;
	return SEND_AGAIN;
}

const struct target_kind target_clickhouse = {
	.name = "clickhouse",
	.has_batches = true,
	.open = clickhouse_open,
	.send = clickhouse_send,
	.close = clickhouse_close,
};
