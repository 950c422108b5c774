/*
 * agent/perfdata/facts.c: reads the feature sections and build-ids of a perf.data
 * recording.
 */
#include "agent/perfdata/facts.h"

#include "agent/array.h"
#include "agent/perfdata/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void perfdata_facts_fini(struct perfdata_facts *facts)
{
	for (size_t i = 0; i < facts->n_build_ids; i++)
		free(facts->build_ids[i].name);
	free(facts->build_ids);
	uw_hash_fini(&facts->by_name);
	*facts = (struct perfdata_facts){ .build_ids = NULL };
}

/* ---- build-ids ---------------------------------------------------------------- */

/* Return the index of a name (size bytes, without NUL), whose hash is given, or UW_HASH_NONE. */
static uint32_t find_name(const struct perfdata_facts *facts, const char *name, size_t size,
			  uint64_t hash)
{
	return UW_HASH_FIND(i, &facts->by_name, hash,
			    !strncmp(facts->build_ids[i].name, name, size) &&
				    !facts->build_ids[i].name[size]);
}

/* Store the build-id of a file name. Names beyond PERFDATA_BUILD_ID_NAMES_MAX are ignored. */
static int add_build_id(struct perfdata_facts *facts, const char *name, size_t size,
			const struct uw_build_id *id)
{
	uint64_t hash = hash_bytes(0, name, size);
	uint32_t i = find_name(facts, name, size, hash);

	if (size >= PERFDATA_BUILD_ID_NAMES_MAX - facts->names_size)
		return 0;
	if (i == UW_HASH_NONE) {
		char *copy;

		if (array_grow(facts->build_ids, facts->n_build_ids, facts->room_build_ids))
			return -ENOMEM;
		i = (uint32_t)facts->n_build_ids;
		copy = strndup(name, size);
		if (!copy || uw_hash_add(&facts->by_name, hash, i)) {
			free(copy);
			return -ENOMEM;
		}
		facts->build_ids[i].name = copy;
		facts->n_build_ids++;
		facts->names_size += size + 1;
	}
	facts->build_ids[i].id = *id;
	return 0;
}

const struct uw_build_id *perfdata_facts_find(const struct perfdata_facts *facts, const char *name)
{
	size_t size = strlen(name);
	uint32_t i = find_name(facts, name, size, hash_bytes(0, name, size));

	return i == UW_HASH_NONE ? NULL : &facts->build_ids[i].id;
}

/* Return whether perf uses this name for vmlinux. Modules have other names. */
static bool is_kernel(const char *name)
{
	const char *base = strrchr(name, '/');

	return !strncmp(name, "[kernel.", 8) || !strncmp(base ? base + 1 : name, "vmlinux", 7);
}

/* Layout: { header; u32 pid; u8 build_id[20]; u8 size; u8 reserved[3]; char filename[] } */
enum { BUILD_ID_AT = 12, BUILD_ID_SIZE_AT = 32, BUILD_ID_NAME_AT = 36 };

/*
 * Remove the zeros that fill a build-id up to 20 bytes in records without a size. Linkers make
 * build-ids of 20 bytes (SHA-1), 16 bytes (MD5, UUID) or 8 bytes (lld).
 */
static void cut_padding(struct uw_build_id *id)
{
	static const uint8_t zeros[20];

	if (!memcmp(id->bytes, zeros, 20))
		id->size = 0;
	else if (!memcmp(id->bytes + 8, zeros, 12))
		id->size = 8;
	else if (!memcmp(id->bytes + 16, zeros, 4))
		id->size = 16;
}

/*
 * The layout is struct perf_record_header_build_id of perf: header, pid, build-id, path. Older
 * versions always wrote 20 bytes, padded with zeros; later ones set a flag and state the size.
 */
int perfdata_facts_build_id(struct perfdata_facts *facts, const uint8_t *record, size_t size)
{
	struct uw_build_id id = { .size = 20 };
	const char *name = (const char *)record + BUILD_ID_NAME_AT;
	uint16_t misc;
	size_t length;
	int err;

	if (size < BUILD_ID_NAME_AT)
		return -EBADMSG;
	length = strnlen(name, size - BUILD_ID_NAME_AT);
	if (length == size - BUILD_ID_NAME_AT)
		return -EBADMSG;
	misc = uw_bytes_little2(record + 4);
	if (misc & PERFDATA_MISC_BUILD_ID_SIZE)
		id.size = record[BUILD_ID_SIZE_AT];
	if (id.size > 20)
		return -EBADMSG;
	memcpy(id.bytes, record + BUILD_ID_AT, id.size);
	if (id.size == 20)
		cut_padding(&id);
	if (!id.size)
		return 0;
	err = add_build_id(facts, name, length, &id);
	if (!err && (misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_KERNEL &&
	    is_kernel(name))
		facts->kernel_build_id = id;
	return err;
}

/* Read the BUILD_ID feature: HEADER_BUILD_ID records. */
static int read_build_ids(struct perfdata_facts *facts, const uint8_t *bytes, size_t size)
{
	while (size >= PERFDATA_RECORD_HEADER_SIZE) {
		size_t one = uw_bytes_little2(bytes + 6);
		int err = one <= size ? perfdata_facts_build_id(facts, bytes, one) : -EBADMSG;

		if (err)
			return err;
		bytes += one;
		size -= one;
	}
	return size ? -EBADMSG : 0;
}

/* ---- other features ------------------------------------------------------------ */

/* Take a string from *bytes: u32 room, then that many bytes with a NUL among them. */
static int take_string(const uint8_t **bytes, size_t *size, const char **out, size_t *room)
{
	size_t n;

	if (*size < 4)
		return -EBADMSG;
	n = uw_bytes_little(*bytes);
	if (n > *size - 4)
		return -EBADMSG;
	*out = (const char *)*bytes + 4;
	*room = n;
	*bytes += 4 + n;
	*size -= 4 + n;
	return 0;
}

/*
 * Copy a string behind the prefix before; it is cut if it is too long. An empty string leaves out
 * unchanged.
 */
static int read_string(const uint8_t *bytes, size_t size, const char *before, char *out,
		       size_t room)
{
	const char *string;
	size_t n;
	int err = take_string(&bytes, &size, &string, &n);

	if (err)
		return err;
	n = strnlen(string, n < room ? n : room);
	if (n)
		(void)snprintf(out, room, "%s%.*s", before, (int)n, string);
	return 0;
}

/*
 * Read the command line: u32 number of words, then each word as a string. It is cut if it is too
 * long.
 */
static int read_command(struct perfdata_facts *facts, const uint8_t *bytes, size_t size)
{
	size_t used = 0;
	uint32_t n;

	if (size < 4)
		return -EBADMSG;
	n = uw_bytes_little(bytes);
	bytes += 4;
	size -= 4;
	for (uint32_t i = 0; i < n && used + 1 < sizeof(facts->command); i++) {
		const char *word;
		size_t length;
		int err = take_string(&bytes, &size, &word, &length);

		if (err)
			return err;
		(void)snprintf(facts->command + used, sizeof(facts->command) - used, "%s%.*s",
			       i ? " " : "", (int)strnlen(word, length), word);
		used = strlen(facts->command);
	}
	return 0;
}

/*
 * Read event names. Layout: u32 number of events, u32 size of an attr; for each event: attr, u32
 * number of ids, string name, the ids.
 */
static int read_event_names(struct perfdata_attrs *attrs, const uint8_t *bytes, size_t size)
{
	uint32_t n, attr_size;

	if (size < 8)
		return -EBADMSG;
	n = uw_bytes_little(bytes);
	attr_size = uw_bytes_little(bytes + 4);
	bytes += 8;
	size -= 8;
	for (uint32_t i = 0; i < n; i++) {
		const char *name;
		size_t room;
		uint32_t n_ids;
		int err;

		if (size < 4 || attr_size > size - 4)
			return -EBADMSG;
		n_ids = uw_bytes_little(bytes + attr_size);
		bytes += attr_size + 4;
		size -= attr_size + 4;
		err = take_string(&bytes, &size, &name, &room);
		if (err)
			return err;
		if (n_ids > size / 8)
			return -EBADMSG;
		if (n_ids)
			perfdata_attrs_name(attrs, uw_bytes_little8(bytes), name, room);
		else
			perfdata_attrs_name_nth(attrs, i, name, room);
		bytes += 8 * (size_t)n_ids;
		size -= 8 * (size_t)n_ids;
	}
	return 0;
}

/* Read the clock data: u32 version, u32 clockid, u64 wall clock, u64 the recording's clock. */
static int read_clock(struct perfdata_facts *facts, const uint8_t *bytes, size_t size)
{
	if (size < 24)
		return -EBADMSG;
	facts->wall_ns = uw_bytes_little8(bytes + 8);
	facts->clock_ns = uw_bytes_little8(bytes + 16);
	facts->has_clock = true;
	return 0;
}

bool perfdata_facts_wants(unsigned int feature)
{
	switch (feature) {
	case PERFDATA_FEATURE_BUILD_ID:
	case PERFDATA_FEATURE_HOSTNAME:
	case PERFDATA_FEATURE_OSRELEASE:
	case PERFDATA_FEATURE_VERSION:
	case PERFDATA_FEATURE_ARCH:
	case PERFDATA_FEATURE_CMDLINE:
	case PERFDATA_FEATURE_EVENT_DESC:
	case PERFDATA_FEATURE_DIR_FORMAT:
	case PERFDATA_FEATURE_CLOCK_DATA:
		return true;
	default:
		return false;
	}
}

int perfdata_facts_feature(struct perfdata_facts *facts, struct perfdata_attrs *attrs,
			   unsigned int feature, const uint8_t *bytes, size_t size)
{
	switch (feature) {
	case PERFDATA_FEATURE_BUILD_ID:
		return read_build_ids(facts, bytes, size);
	case PERFDATA_FEATURE_HOSTNAME:
		return read_string(bytes, size, "", facts->host, sizeof(facts->host));
	case PERFDATA_FEATURE_OSRELEASE:
		return read_string(bytes, size, "", facts->kernel, sizeof(facts->kernel));
	case PERFDATA_FEATURE_VERSION:
		return read_string(bytes, size, "perf ", facts->recorder, sizeof(facts->recorder));
	case PERFDATA_FEATURE_ARCH:
		return read_string(bytes, size, "", facts->arch, sizeof(facts->arch));
	case PERFDATA_FEATURE_CMDLINE:
		return read_command(facts, bytes, size);
	case PERFDATA_FEATURE_EVENT_DESC:
		return read_event_names(attrs, bytes, size);
	case PERFDATA_FEATURE_DIR_FORMAT:
		facts->is_directory = true;
		return 0;
	case PERFDATA_FEATURE_CLOCK_DATA:
		return read_clock(facts, bytes, size);
	default:
		return 0;
	}
}
