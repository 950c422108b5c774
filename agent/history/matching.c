/* agent/history/matching.c: the nodes whose functions match a regular expression. */
#include "agent/history/matching.h"

#include "agent/array.h"
#include "agent/history/history_internal.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MATCHING_NO = 1, MATCHING_YES };

void matching_fini(struct matching *m)
{
	free(m->nodes.known);
	free(m->frames.known);
	free(m->functions.known);
	free(m->path);
	if (m->history)
		history_limit_rows(m->history);
}

/* Give the place for what is known about a cached row; valid until the next call. */
static int place(struct matching_rows *rows, size_t index, uint8_t **out)
{
	size_t before = rows->room;
	int err = array_reserve(rows->known, index + 1, rows->room);

	if (err)
		return err;
	memset(rows->known + before, 0, rows->room - before);
	*out = &rows->known[index];
	return 0;
}

static int function_matches(struct matching *m, int64_t id, bool *out)
{
	const char *name;
	uint8_t *known = NULL;
	size_t index;
	int err = history_function(m->history, id, &index);

	if (!err)
		err = place(&m->functions, index, &known);
	if (err)
		return err;
	if (!*known) {
		name = history_functions(m->history)[index].name;
		*known = regexec(m->regex, name, 0, NULL, 0) ? MATCHING_NO : MATCHING_YES;
	}
	*out = *known == MATCHING_YES;
	return 0;
}

/* Functions of inlined calls count, too. */
static int frame_matches(struct matching *m, int64_t id, bool *out)
{
	struct uw_bytes lines;
	uint8_t *known = NULL;
	size_t index;
	int err = history_frame(m->history, id, &index);

	*out = false;
	if (!err)
		err = place(&m->frames, index, &known);
	if (err)
		return err;
	if (!*known) {
		lines = history_frame_lines(&history_frames(m->history)[index]);
		while (!err && !*out && !uw_bytes_done(&lines)) {
			int64_t function = (int64_t)uw_bytes_uleb(&lines);

			(void)uw_bytes_uleb(&lines); /* the line */
			err = lines.err ? lines.err : function_matches(m, function, out);
		}
		if (!err)
			*known = *out ? MATCHING_YES : MATCHING_NO;
	}
	*out = *known == MATCHING_YES;
	return err;
}

int matching_node(struct matching *m, uint64_t node, bool *out)
{
	int64_t id = (int64_t)node;
	uint8_t *known = NULL;
	size_t n = 0, index;
	int err = 0;

	*out = false;
	if (!m->checked)
		err = history_check_names(m->history);
	m->checked = !err;
	while (id && !*out && !err) {
		struct history_node row;

		err = history_node(m->history, id, &index);
		if (!err)
			err = place(&m->nodes, index, &known);
		if (err || *known)
			break;
		err = array_grow(m->path, n, m->room_path);
		if (err)
			break;
		m->path[n++] = index;
		row = history_nodes(m->history)[index];
		err = frame_matches(m, row.frame, out);
		id = row.up ? id - row.up : 0;
	}
	if (!err && id && !*out)
		*out = *known == MATCHING_YES;
	/* All nodes on the way have the answer of the last one. */
	while (n && !err) {
		err = place(&m->nodes, m->path[--n], &known);
		if (!err)
			*known = *out ? MATCHING_YES : MATCHING_NO;
	}
	return err;
}
