/* agent/history/history_load.c: loads what samples refer to into a profile: nodes, frames, functions, types and labels. */
#include "agent/history/history_reading.h"

#include "agent/array.h"
#include "agent/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows -------------------------------------------------------------------------------- */

static struct loaded *find_row(const struct loaded_rows *r, int64_t row)
{
	uint32_t at =
		UW_HASH_FIND(i, &r->by_row, hash_u64(0, (uint64_t)row), r->rows[i].row == row);

	return at == UW_HASH_NONE ? NULL : &r->rows[at];
}

static int keep_row(struct loaded_rows *r, const struct loaded *new)
{
	int err = array_grow(r->rows, r->n, r->room);

	if (!err)
		err = uw_hash_add(&r->by_row, hash_u64(0, (uint64_t) new->row), (uint32_t)r->n);
	if (!err)
		r->rows[r->n++] = *new;
	return err;
}

static void free_rows(struct loaded_rows *r)
{
	free(r->rows);
	uw_hash_fini(&r->by_row);
}

/* Begin to read the row with that id. Release *out if there is one. -EBADMSG: there is no such row. */
static int read_row(struct reading *r, enum history_statement which, int64_t row,
		    sqlite3_stmt **out)
{
	int err;
	sqlite3_stmt *stmt = history_statement(r->h, which, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, row);
	err = db_step(stmt);
	if (err != 1) {
		db_release(stmt);
		return err ? err : -EBADMSG;
	}
	*out = stmt;
	return 0;
}

static const char *text_column(struct reading *r, sqlite3_stmt *stmt, int column)
{
	return stacks_text(r->s, (const char *)sqlite3_column_text(stmt, column));
}

static int load_module(struct reading *r, int64_t row, uint32_t *index)
{
	const struct loaded *known = find_row(&r->modules, row);
	struct stacks_module m = { .start = 0 };
	sqlite3_stmt *stmt = NULL;
	int err;

	if (known) {
		*index = known->index;
		return 0;
	}
	err = read_row(r, READ_MODULE, row, &stmt);
	if (err)
		return err;
	m.path = text_column(r, stmt, 0);
	m.build_id = text_column(r, stmt, 1);
	m.off = (uint64_t)sqlite3_column_int64(stmt, 2);
	m.start = (uint64_t)sqlite3_column_int64(stmt, 3);
	m.limit = (uint64_t)sqlite3_column_int64(stmt, 4);
	db_release(stmt);
	/* Without a path and bounds: an address that lay in no mapping. */
	*index = m.path && m.build_id ? (*m.path || m.limit ? stacks_module(r->s, &m) : 0)
				      : UW_HASH_NONE;
	if (*index == UW_HASH_NONE)
		return -ENOMEM;
	return keep_row(&r->modules, &(struct loaded){ .row = row, .index = *index });
}

/* Make *known large enough for an index in a cache of rows; what is new is 0. */
int history_reserve_known(uint32_t **known, size_t *n, size_t index)
{
	size_t before = *n;
	int err = array_reserve(*known, index + 1, *n);

	if (!err && *n > before)
		memset(*known + before, 0, (*n - before) * sizeof(**known));
	return err;
}

static int load_function(struct reading *r, int64_t row, uint32_t *out)
{
	const struct history_function *from;
	struct stacks_function f;
	size_t index;
	int err;

	if (history_function_place(r->h, row, &index) && index < r->n_functions &&
	    r->functions[index]) {
		*out = r->functions[index] - 1;
		return 0;
	}
	err = history_function(r->h, row, &index);
	if (!err)
		err = history_reserve_known(&r->functions, &r->n_functions, index);
	if (err)
		return err;
	if (!r->functions[index]) {
		from = &history_functions(r->h)[index];
		if (from->file != r->file.from) {
			r->file.from = from->file;
			r->file.to = stacks_sanitized_text(r->s, from->file);
		}
		f = (struct stacks_function){ .name = stacks_sanitized_text(r->s, from->name),
					      .file = r->file.to,
					      .start_line = from->start_line,
					      .placed = from->placed };
		f.system_name = from->system_name == from->name
					? f.name
					: stacks_sanitized_text(r->s, from->system_name);
		*out = f.name && f.system_name && f.file ? stacks_function(r->s, &f) : UW_HASH_NONE;
		if (*out == UW_HASH_NONE)
			return -ENOMEM;
		r->functions[index] = *out + 1;
	}
	*out = r->functions[index] - 1;
	return 0;
}

/* Read the lines of a frame. */
static int load_lines(struct reading *r, const struct history_frame *frame, uint32_t *n)
{
	struct uw_bytes b = history_frame_lines(frame);
	int err = 0;

	*n = 0;
	while (!uw_bytes_done(&b) && !err) {
		int64_t function = (int64_t)uw_bytes_uleb(&b);
		struct stacks_line line = { .line = (int64_t)uw_bytes_uleb(&b) };

		err = b.err ? b.err : array_grow(r->lines, *n, r->room_lines);
		if (!err)
			err = load_function(r, function, &line.function);
		if (!err)
			r->lines[(*n)++] = line;
	}
	return err ? err : *n ? 0 : -EBADMSG;
}

int history_load_frame(struct reading *r, int64_t row, uint32_t *out)
{
	struct stacks_location l = { .address = 0 };
	const struct history_frame *frame;
	size_t index;
	int err;

	if (history_frame_place(r->h, row, &index) && index < r->n_frames && r->frames[index]) {
		*out = r->frames[index] - 1;
		return 0;
	}
	err = history_frame(r->h, row, &index);
	if (!err)
		err = history_reserve_known(&r->frames, &r->n_frames, index);
	if (err)
		return err;
	if (!r->frames[index]) {
		frame = &history_frames(r->h)[index];
		l.address = frame->address;
		err = load_module(r, frame->module, &l.module);
		if (!err)
			err = load_lines(r, frame, &l.n_lines);
		if (err)
			return err;
		*out = stacks_location(r->s, &l, r->lines);
		if (*out == UW_HASH_NONE)
			return -ENOMEM;
		r->frames[index] = *out + 1;
	}
	*out = r->frames[index] - 1;
	return 0;
}

/* Make uses as large as the cache of nodes. Most of them may never be touched: then they take no memory. */
static int enlarge_uses(struct reading *r)
{
	const size_t cached = r->h->nodes.n_chunks * NODES_IN_PAGE;
	const size_t n = cached > 2 * r->n_uses ? cached : 2 * r->n_uses;
	struct node_use *uses = calloc(n, sizeof(*uses));

	if (!uses)
		return -ENOMEM;
	if (r->n_uses)
		memcpy(uses, r->uses, r->n_uses * sizeof(*uses));
	free(r->uses);
	r->uses = uses;
	r->n_uses = n;
	return 0;
}

void history_forget_nodes(struct reading *r)
{
	free(r->uses);
	r->uses = NULL;
	r->n_uses = 0;
}

int history_find_node(struct reading *r, int64_t row, size_t *index)
{
	int err = history_node(r->h, row, index);

	if (!err && *index >= UINT32_MAX >> 1)
		err = -EFBIG;
	return !err && *index >= r->n_uses ? enlarge_uses(r) : err;
}

int history_find_parent(struct reading *r, size_t index, uint32_t *out)
{
	const uint32_t up = history_nodes(r->h)[index].up;
	const int64_t id = up ? history_node_id(r->h, index) - up : 0;
	size_t parent = 0;
	int err = 0;

	/* What is known of the parent is read next: let the CPU fetch it while the parent itself is looked up. */
	if (up && history_node_place(r->h, id, &parent) && parent < r->n_uses)
		__builtin_prefetch(&r->uses[parent]);
	if (up)
		err = history_find_node(r, id, &parent);
	if (!err)
		*out = up ? (uint32_t)parent + 1 : 0;
	return err;
}

int history_load_node(struct reading *r, size_t index)
{
	uint32_t location;
	int err = history_load_frame(r, history_nodes(r->h)[index].frame, &location);

	if (!err && location >= INT32_MAX)
		err = -EFBIG;
	if (!err)
		r->uses[index].location = (location + 1) & INT32_MAX;
	return err;
}

/* Look whether all nodes and frames of a stack are there. -EBADMSG: they are not. */
int history_check_stack(struct reading *r, int64_t row)
{
	uint32_t parent = 0;
	size_t index;
	int err = history_find_node(r, row, &index);

	/* A parent's id is below its child's, so this ends. */
	while (!err) {
		if (!r->uses[index].location)
			err = history_load_node(r, index);
		if (!err)
			err = history_find_parent(r, index, &parent);
		if (err || !parent)
			break;
		index = parent - 1;
	}
	return err;
}

/* ---- types ------------------------------------------------------------------------------- */

/* Let the profile have all sample types of the history, in any order if it has some already. */
static int take_types(struct reading *r, const struct stacks_type *types, const int64_t *rows,
		      size_t n)
{
	size_t *index = calloc(n + 1, sizeof(*index));
	bool first = !r->s->n_types;
	int err = index ? 0 : -ENOMEM;

	if (!err && n)
		err = stacks_take_types(r->s, types, n, index);
	for (size_t i = 0; !err && i < n; i++)
		r->type_of[rows[i]] = (int64_t)index[i] + 1;
	r->sum_size = sizeof(struct sum) + r->s->n_types * sizeof(int64_t);
	/* CPU time; else the second, as the first is how many samples there are. */
	if (!err && first && n > 1) {
		size_t cpu = stacks_find_type(r->s, "cpu");

		r->s->default_type = cpu < r->s->n_types ? cpu : 1;
	}
	free(index);
	return err;
}

int history_load_types(struct reading *r)
{
	struct stacks_type types[HISTORY_TYPES];
	int64_t rows[HISTORY_TYPES];
	int err;
	sqlite3_stmt *stmt = history_statement(r->h, READ_TYPES, &err);
	size_t n = 0;

	if (!stmt)
		return err;
	r->n_types = HISTORY_TYPES;
	r->type_of = calloc(r->n_types, sizeof(*r->type_of));
	err = r->type_of ? 0 : -ENOMEM;
	while (!err && (err = db_step(stmt)) == 1) {
		rows[n] = sqlite3_column_int64(stmt, 0);
		err = n < HISTORY_TYPES && rows[n] > 0 && rows[n] < HISTORY_TYPES ? 0 : -EBADMSG;
		if (err)
			break;
		types[n] = (struct stacks_type){ .type = text_column(r, stmt, 1),
						 .unit = text_column(r, stmt, 2) };
		err = types[n].type && types[n].unit ? 0 : -ENOMEM;
		n++;
	}
	db_release(stmt);
	return err ? err : take_types(r, types, rows, n);
}

/* ---- labels ------------------------------------------------------------------------------ */

/* Prepare the labels that have columns of their own. */
int history_make_labels(struct reading *r)
{
	r->pid.key = r->pid.unit = stacks_text(r->s, "pid");
	r->tid.key = r->tid.unit = stacks_text(r->s, "tid");
	r->time.key = stacks_text(r->s, HISTORY_TIME_LABEL);
	r->time.unit = stacks_text(r->s, "nanoseconds");
	return r->pid.key && r->tid.key && r->time.key && r->time.unit ? 0 : -ENOMEM;
}

/* Add a label's index to an array of n. */
static int keep_label(struct reading *r, const struct stacks_label *label, uint32_t **ids, size_t n,
		      size_t *room)
{
	int err = array_grow(*ids, n, *room);

	if (err)
		return err;
	(*ids)[n] = stacks_keep_label(r->s, label);
	return (*ids)[n] == UW_HASH_NONE ? -ENOMEM : 0;
}

/* Read one label of a row in labels. */
static int read_label(struct reading *r, sqlite3_stmt *stmt)
{
	bool text = sqlite3_column_type(stmt, 1) == SQLITE_TEXT;
	struct stacks_label l = { .key = text_column(r, stmt, 0),
				  .text = text ? text_column(r, stmt, 1) : NULL,
				  .number = text ? 0 : sqlite3_column_int64(stmt, 1) };
	int err = !l.key || (text && !l.text) ? -ENOMEM : 0;

	if (!err)
		err = keep_label(r, &l, &r->label_ids, r->n_label_ids, &r->room_label_ids);
	r->n_label_ids += !err;
	return err;
}

static int load_labels(struct reading *r, int64_t row, struct loaded *out)
{
	const struct loaded *known = find_row(&r->labels, row);
	struct loaded new = { .row = row, .index = (uint32_t)r->n_label_ids };
	sqlite3_stmt *stmt;
	int err;

	if (known) {
		*out = *known;
		return 0;
	}
	stmt = history_statement(r->h, READ_LABELS, &err);
	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, row);
	while ((err = db_step(stmt)) == 1) {
		err = read_label(r, stmt);
		if (err)
			break;
	}
	db_release(stmt);
	if (err < 0 && !(err = history_labels_failed(r->h, row, err))) {
		r->n_label_ids = new.index;
		r->found->n_damaged_labels++;
	}
	new.n = (uint32_t)r->n_label_ids - new.index;
	*out = new;
	return err ? err : keep_row(&r->labels, &new);
}

/* Put a label with a number behind the n ids that there are. */
static int put_number(struct reading *r, const struct stacks_label *label, uint64_t number,
		      uint32_t *n)
{
	struct stacks_label l = *label;
	int err;

	l.number = (int64_t)number;
	err = number ? keep_label(r, &l, &r->ids, *n, &r->room_ids) : 0;
	*n += number && !err;
	return err;
}

/* Put the labels of a sum behind the n ids that there are. */
int history_put_labels(struct reading *r, const struct sum_key *sum, uint32_t *n)
{
	struct loaded labels = { .n = 0 };
	int err = put_number(r, &r->time, sum->time_ns, n);

	if (!err)
		err = put_number(r, &r->pid, sum->pid, n);
	if (!err)
		err = put_number(r, &r->tid, sum->tid, n);
	if (!err && sum->labels)
		err = load_labels(r, (int64_t)sum->labels, &labels);
	if (!err)
		err = array_reserve(r->ids, (size_t)*n + labels.n, r->room_ids);
	for (uint32_t i = 0; !err && i < labels.n; i++)
		r->ids[(*n)++] = r->label_ids[labels.index + i];
	return err;
}

void history_load_fini(struct reading *r)
{
	free(r->type_of);
	history_forget_nodes(r);
	free(r->frames);
	free(r->functions);
	free_rows(&r->modules);
	free_rows(&r->labels);
	free(r->label_ids);
	free(r->ids);
	free(r->lines);
}
