/*
 * agent/perfdata/header.c: reads the header of a perf.data file or pipe, and the events and the
 * features that a file describes there.
 */
#include "agent/perfdata/reader_state.h"

#include "agent/io.h"
#include "agent/perfdata/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct section {
	uint64_t off, size;
};

static struct section section_at(const uint8_t *bytes)
{
	return (struct section){ .off = uw_bytes_little8(bytes),
				 .size = uw_bytes_little8(bytes + 8) };
}

/* Return whether all of the section is inside the file. */
static bool is_there(const struct perfdata *p, const struct section *s)
{
	return s->off <= p->file_size && s->size <= p->file_size - s->off;
}

/*
 * Read a section of at most max bytes. The caller frees the result. On failure record damage at
 * described_at, where the file describes the section, and return NULL.
 */
static uint8_t *read_section(struct perfdata *p, const struct section *s, uint64_t max,
			     uint64_t described_at, const char *what)
{
	uint8_t *bytes = NULL;
	int err = -EBADMSG;

	if (is_there(p, s) && s->size <= max) {
		bytes = malloc(s->size ? (size_t)s->size : 1);
		err = bytes ? io_read_at(p->fd, s->off, bytes, (size_t)s->size) : -ENOMEM;
	}
	if (!err)
		return bytes;
	free(bytes);
	perfdata_damage(p, err, described_at, "%s: %s", what,
			err == -EBADMSG ? "not all of it is in the file" : strerror(-err));
	return NULL;
}

/* Read the attrs section: the events and their ids. */
static void read_attrs(struct perfdata *p, const struct section *attrs, uint64_t attr_size)
{
	enum { ATTRS_AT = 24 };
	size_t size = (size_t)attr_size;
	uint8_t *bytes;

	if (attr_size < PERF_ATTR_SIZE_VER0 + PERFDATA_SECTION_SIZE || attr_size > 4096) {
		perfdata_damage(p, -EBADMSG, 16, "an event's description cannot have %llu bytes",
				(unsigned long long)attr_size);
		return;
	}
	bytes = read_section(p, attrs, (uint64_t)PERFDATA_ATTRS_MAX * attr_size, ATTRS_AT,
			     "the events");
	for (uint64_t at = 0; bytes && attrs->size - at >= attr_size && !p->err; at += attr_size) {
		uint64_t ids_at = attrs->off + at + attr_size - PERFDATA_SECTION_SIZE;
		struct section ids = section_at(bytes + at + attr_size - PERFDATA_SECTION_SIZE);
		uint8_t *id_bytes = read_section(p, &ids, (uint64_t)PERFDATA_IDS_MAX * 8, ids_at,
						 "an event's ids");

		if (id_bytes)
			perfdata_take_attr(p, attrs->off + at, bytes + at,
					   size - PERFDATA_SECTION_SIZE, id_bytes,
					   (size_t)ids.size / 8);
		free(id_bytes);
	}
	free(bytes);
}

/*
 * Read the feature sections that are needed. Damage in them costs names and build-ids but no
 * events, so reading goes on and the damage is reported at the end.
 */
static void read_features(struct perfdata *p, const uint8_t *header)
{
	uint64_t at = p->end;

	for (unsigned int i = 0; i < PERFDATA_FEATURES; i++) {
		uint8_t bytes[PERFDATA_SECTION_SIZE], *content;
		struct section table = { .off = at, .size = sizeof(bytes) }, s;
		int err;

		if (!(header[72 + i / 8] >> i % 8 & 1))
			continue;
		if (!is_there(p, &table) || io_read_at(p->fd, at, bytes, sizeof(bytes))) {
			perfdata_damage(p, -EBADMSG, at, "the file ends before its features");
			return;
		}
		s = section_at(bytes);
		if (perfdata_facts_wants(i)) {
			content = read_section(p, &s, PERFDATA_FEATURE_MAX, at, "a feature");
			err = content ? perfdata_facts_feature(&p->facts, &p->attrs, i, content,
							       (size_t)s.size)
				      : 0;
			if (err)
				perfdata_damage(p, err, s.off, "feature %u is damaged", i);
			free(content);
		} else if (!is_there(p, &s)) {
			perfdata_damage(p, -EBADMSG, at, "the file ends inside its features");
		}
		at += sizeof(bytes);
	}
}

/*
 * Read the header of a file, its events and its features. Return false if the file cannot be read;
 * damage then says why. A header whose data size is 0 belongs to a recording that perf did not
 * finish: its records reach to the end of the file.
 */
static bool open_file(struct perfdata *p)
{
	uint8_t header[PERFDATA_FILE_HEADER_SIZE];
	struct section attrs, data;
	bool has_features;

	if (!p->seekable) {
		perfdata_damage(
			p, -ENOTSUP, 0,
			"a perf.data file cannot be read from a pipe: name the file itself");
		return false;
	}
	if (io_read_at(p->fd, 0, header, sizeof(header))) {
		perfdata_damage(p, -EBADMSG, 0, "the file ends inside its header");
		return false;
	}
	/* The first versions of the format had no features. */
	has_features = uw_bytes_little8(header + 8) == PERFDATA_FILE_HEADER_SIZE;
	if (!has_features && uw_bytes_little8(header + 8) != 72) {
		perfdata_damage(p, -EBADMSG, 8, "a header cannot have %llu bytes",
				(unsigned long long)uw_bytes_little8(header + 8));
		return false;
	}
	attrs = section_at(header + 24);
	data = section_at(header + 40);
	read_attrs(p, &attrs, uw_bytes_little8(header + 16));
	if (p->err)
		return false;
	if (!p->attrs.n) {
		perfdata_damage(p, -EBADMSG, 24, "no event is described");
		return false;
	}
	if (data.off > p->file_size) {
		perfdata_damage(p, -EBADMSG, 40, "the records begin behind the end of the file");
		return false;
	}
	p->closed = data.size != 0;
	p->off = data.off;
	p->end = p->end_declared = p->file_size;
	if (p->closed && data.size <= p->file_size - data.off)
		p->end = p->end_declared = data.off + data.size;
	else if (p->closed)
		p->end_declared =
			data.size > UINT64_MAX - data.off ? UINT64_MAX : data.off + data.size;
	if (p->closed && p->end == p->end_declared && has_features)
		read_features(p, header);
	return true;
}

/* Set up the stream mode of perf record -o -, whose header is only a magic number and a size. */
static bool open_pipe(struct perfdata *p)
{
	p->closed = true;
	p->off = PERFDATA_PIPE_HEADER_SIZE;
	p->end = p->end_declared = p->seekable ? p->file_size : UINT64_MAX;
	if (!p->seekable)
		p->pipe.begin += PERFDATA_PIPE_HEADER_SIZE;
	return true;
}

/*
 * Distinguish the formats by the magic number, which is "2ELIFREP" in the other byte order, and
 * files from pipes by the size of the header.
 */
bool perfdata_read_header(struct perfdata *p)
{
	const uint8_t *head;
	size_t got;
	int err = perfdata_peek(p, PERFDATA_PIPE_HEADER_SIZE, &head, &got);

	if (err) {
		perfdata_damage(p, err, 0, "%s", strerror(-err));
		return false;
	}
	if (got >= 8 && !memcmp(head, "2ELIFREP", 8))
		perfdata_damage(p, -ENOTSUP, 0,
				"recorded on a big-endian machine, which is not supported");
	else if (got >= 8 && !memcmp(head, "PERFFILE", 8))
		perfdata_damage(p, -ENOTSUP, 0,
				"written by perf before Linux 3.2, which is not supported");
	else if (got < PERFDATA_PIPE_HEADER_SIZE || memcmp(head, "PERFILE2", 8) != 0)
		perfdata_damage(p, -EBADMSG, 0, "not a recording of perf");
	else if (uw_bytes_little8(head + 8) == PERFDATA_PIPE_HEADER_SIZE)
		return open_pipe(p);
	else
		return open_file(p);
	return false;
}
