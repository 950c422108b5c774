/* agent/live/bpf/btf.c: reads BTF and writes the part of it that a BPF program needs. */
#include "agent/live/bpf/btf.h"

#include "agent/array.h"
#include "agent/io.h"

#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KERNEL_BTF  "/sys/kernel/btf/vmlinux"
#define SIZE_MAX_OF (256u << 20) /* larger files are not read */
#define EVERY	    64u		 /* the place of every so many types is stored */
#define TYPES_MAX   (1u << 24)
#define KIND_MAX    BTF_KIND_ENUM64

/*
 * Bytes after struct btf_type, for each kind (Documentation/bpf/btf.rst): once, and for each of its
 * vlen entries.
 */
static const struct {
	uint8_t once, each;
} behind[KIND_MAX + 1] = {
	[BTF_KIND_INT] = { 4, 0 },
	[BTF_KIND_ARRAY] = { sizeof(struct btf_array), 0 },
	[BTF_KIND_STRUCT] = { 0, sizeof(struct btf_member) },
	[BTF_KIND_UNION] = { 0, sizeof(struct btf_member) },
	[BTF_KIND_ENUM] = { 0, sizeof(struct btf_enum) },
	[BTF_KIND_FUNC_PROTO] = { 0, sizeof(struct btf_param) },
	[BTF_KIND_VAR] = { sizeof(struct btf_var), 0 },
	[BTF_KIND_DATASEC] = { 0, sizeof(struct btf_var_secinfo) },
	[BTF_KIND_DECL_TAG] = { sizeof(struct btf_decl_tag), 0 },
	[BTF_KIND_ENUM64] = { 0, sizeof(struct btf_enum64) },
};

struct name { /* a type name in the program */
	const char *text;
	size_t size;
};

struct reduction {
	const uint8_t *types, *types_end;
	const char *strings;
	uint32_t n_strings; /* bytes; the last one is 0 */
	uint32_t n_types;
	uint32_t *places; /* offsets from types, of every EVERYth type */
	size_t n_places, places_room;
	/*
	 * Number of a type in the result, indexed by its number in the whole; 0: not in the result.
	 */
	uint32_t *number;
	/* The types of the result, in its order, by their numbers in the whole. */
	uint32_t *wanted;
	size_t n_wanted, wanted_room;
	struct name *names;
	size_t n_names, names_room;
	uint64_t first_two[1024]; /* one bit for each pair of bytes at the beginning of a name */
	uint8_t *out_types;
	size_t n_out_types, out_types_room;
	char *out_strings;
	size_t n_out_strings, out_strings_room;
};

/* ---- the types that are needed ------------------------------------------------------- */

/* Return the first two bytes of a name as an index into first_two. */
static unsigned int pair_of(const char *text)
{
	return (uint8_t)text[0] | (unsigned int)(uint8_t)text[text[0] != 0] << 8;
}

/* Add a type name of the program, without the part from "___" on (its flavor in libbpf). */
static int add_name(struct reduction *r, const char *text)
{
	const char *flavour = strstr(text, "___");

	if (!*text || array_grow(r->names, r->n_names, r->names_room))
		return *text ? -ENOMEM : 0;
	r->names[r->n_names++] =
		(struct name){ text, flavour ? (size_t)(flavour - text) : strlen(text) };
	r->first_two[pair_of(text) / 64] |= 1ull << pair_of(text) % 64;
	return 0;
}

/* Return whether types of this kind are looked up by name. */
static bool is_composite(unsigned int kind)
{
	return kind == BTF_KIND_STRUCT || kind == BTF_KIND_UNION || kind == BTF_KIND_ENUM ||
	       kind == BTF_KIND_ENUM64 || kind == BTF_KIND_TYPEDEF;
}

/* Collect the names of all types in the program's BTF. */
static int find_names(struct reduction *r, const struct btf *wanted)
{
	uint32_t n = btf__type_cnt(wanted);
	int err = 0;

	for (uint32_t i = 1; !err && i < n; i++) {
		const struct btf_type *type = btf__type_by_id(wanted, i);
		const char *name = btf__name_by_offset(wanted, type->name_off);

		if (name && is_composite(BTF_INFO_KIND(type->info)))
			err = add_name(r, name);
	}
	return err;
}

/* Return whether a type of this name is needed. The bitmap rejects most names at once. */
static bool is_asked_for(const struct reduction *r, const char *name)
{
	if (!(r->first_two[pair_of(name) / 64] >> pair_of(name) % 64 & 1))
		return false;
	for (size_t i = 0; i < r->n_names; i++)
		if (!strncmp(name, r->names[i].text, r->names[i].size) &&
		    (!name[r->names[i].size] || !strncmp(name + r->names[i].size, "___", 3)))
			return true;
	return false;
}

/* ---- the kernel's types --------------------------------------------------------------- */

/*
 * Read the type at this place. Return the bytes behind it, of which there are *size; NULL: damaged.
 */
static const uint8_t *type_at(const struct reduction *r, const uint8_t *at, struct btf_type *type,
			      size_t *size)
{
	unsigned int kind;

	if (sizeof(*type) > (size_t)(r->types_end - at))
		return NULL;
	memcpy(type, at, sizeof(*type));
	kind = BTF_INFO_KIND(type->info);
	if (!kind || kind > KIND_MAX || type->name_off >= r->n_strings)
		return NULL;
	*size = behind[kind].once + (size_t)behind[kind].each * BTF_INFO_VLEN(type->info);
	if (*size > (size_t)(r->types_end - at) - sizeof(*type))
		return NULL;
	return at + sizeof(*type);
}

/* Put a type of the whole into the result, if it is not there yet. Type 0 is void. */
static int want(struct reduction *r, uint32_t type)
{

	if (!type || type > r->n_types || r->number[type])
		return type > r->n_types ? -EBADMSG : 0;
	if (array_grow(r->wanted, r->n_wanted, r->wanted_room))
		return -ENOMEM;
	r->wanted[r->n_wanted++] = type;
	r->number[type] = (uint32_t)r->n_wanted;
	return 0;
}

/* Read the header and set the bounds of types and strings. -EBADMSG. */
static int read_header(struct reduction *r, const uint8_t *all, size_t size)
{
	struct btf_header head;

	if (size < sizeof(head))
		return -EBADMSG;
	memcpy(&head, all, sizeof(head));
	if (head.magic != BTF_MAGIC || head.version != BTF_VERSION || head.hdr_len < sizeof(head) ||
	    head.hdr_len > size)
		return -EBADMSG;
	all += head.hdr_len;
	size -= head.hdr_len;
	if (head.type_off > size || head.type_len > size - head.type_off || head.str_off > size ||
	    head.str_len > size - head.str_off || !head.str_len)
		return -EBADMSG;
	r->types = all + head.type_off;
	r->types_end = r->types + head.type_len;
	r->strings = (const char *)all + head.str_off;
	r->n_strings = head.str_len;
	return r->strings[0] || r->strings[r->n_strings - 1] ? -EBADMSG : 0;
}

/* Store the places of the types, and put the types that are needed by name into the result. */
static int scan_types(struct reduction *r)
{
	uint32_t n_found = 0, found[1024]; /* far more than there are types of such names */
	const uint8_t *at = r->types;
	int err = 0;

	while (at != r->types_end) {
		struct btf_type type;
		const uint8_t *rest;
		size_t size;

		if (r->n_types % EVERY == 0) {
			if (array_grow(r->places, r->n_places, r->places_room))
				return -ENOMEM;
			r->places[r->n_places++] = (uint32_t)(at - r->types);
		}
		rest = type_at(r, at, &type, &size);
		if (!rest || ++r->n_types > TYPES_MAX)
			return rest ? -ENOTSUP : -EBADMSG;
		at = rest + size;
		if (!is_composite(BTF_INFO_KIND(type.info)) ||
		    !is_asked_for(r, r->strings + type.name_off))
			continue;
		if (n_found == sizeof(found) / sizeof(found[0]))
			return -ENOTSUP;
		found[n_found++] = r->n_types;
	}
	r->number = calloc((size_t)r->n_types + 1, sizeof(*r->number));
	if (!r->number)
		return -ENOMEM;
	for (uint32_t i = 0; !err && i < n_found; i++)
		err = want(r, found[i]);
	return err;
}

/* ---- the result ------------------------------------------------------------------------ */

/* Append bytes to a growing buffer. */
static int put(uint8_t **out, size_t *n, size_t *room, const void *bytes, size_t size)
{
	if (array_reserve(*out, *n + size, *room))
		return -ENOMEM;
	memcpy(*out + *n, bytes, size);
	*n += size;
	return 0;
}

/* Append a name to the strings of the result. *out is its offset there; 0 for the empty name. */
static int put_name(struct reduction *r, uint32_t off, uint32_t *out)
{
	uint8_t *strings = (uint8_t *)r->out_strings;
	const char *name;
	int err;

	if (off >= r->n_strings)
		return -EBADMSG;
	name = r->strings + off;
	*out = *name ? (uint32_t)r->n_out_strings : 0;
	if (!*name)
		return 0;
	err = put(&strings, &r->n_out_strings, &r->out_strings_room, name, strlen(name) + 1);
	r->out_strings = (char *)strings;
	return err;
}

/* Add a type that is inside another one. *out is its number in the result. */
static int put_within(struct reduction *r, uint32_t type, uint32_t *out)
{
	int err = want(r, type);

	*out = err ? 0 : r->number[type];
	return err;
}

/* Translate the names and types in one entry behind a type to the result's numbers. */
static int put_behind(struct reduction *r, unsigned int kind, uint8_t *each)
{
	struct btf_array array;
	struct btf_member member;
	uint32_t name_off;
	int err = 0;

	switch (kind) {
	case BTF_KIND_ARRAY:
		memcpy(&array, each, sizeof(array));
		err = put_within(r, array.type, &array.type);
		if (!err)
			err = put_within(r, array.index_type, &array.index_type);
		memcpy(each, &array, sizeof(array));
		return err;
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		memcpy(&member, each, sizeof(member));
		err = put_name(r, member.name_off, &member.name_off);
		if (!err)
			err = put_within(r, member.type, &member.type);
		memcpy(each, &member, sizeof(member));
		return err;
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64: /* both begin with the name */
		memcpy(&name_off, each, sizeof(name_off));
		err = put_name(r, name_off, &name_off);
		memcpy(each, &name_off, sizeof(name_off));
		return err;
	default:
		return 0;
	}
}

/*
 * Append a type to the result. Pointers become pointers to void. Types inside this one are added to
 * the list, so the loop in live_btf_reduce comes to them later.
 */
static int put_type(struct reduction *r, uint32_t number)
{
	const uint8_t *at = r->types + r->places[(number - 1) / EVERY], *rest;
	unsigned int kind, each;
	struct btf_type type;
	size_t size, begin;
	int err;

	rest = type_at(r, at, &type, &size);
	for (uint32_t i = (number - 1) % EVERY; i; i--)
		rest = type_at(r, rest + size, &type, &size);
	kind = BTF_INFO_KIND(type.info);
	err = put_name(r, type.name_off, &type.name_off);
	switch (kind) {
	case BTF_KIND_PTR:
		type.type = 0;
		break;
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_TYPE_TAG:
		if (!err)
			err = put_within(r, type.type, &type.type);
		break;
	case BTF_KIND_INT:
	case BTF_KIND_FLOAT:
	case BTF_KIND_FWD:
	case BTF_KIND_ARRAY:
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
		break;
	default: /* functions, variables, sections and tags are inside no type */
		return -ENOTSUP;
	}
	if (!err)
		err = put(&r->out_types, &r->n_out_types, &r->out_types_room, &type, sizeof(type));
	begin = r->n_out_types;
	if (!err)
		err = put(&r->out_types, &r->n_out_types, &r->out_types_room, rest, size);
	each = kind == BTF_KIND_ARRAY ? behind[kind].once : behind[kind].each;
	for (size_t i = 0; !err && each && i < size; i += each)
		err = put_behind(r, kind, r->out_types + begin + i);
	return err;
}

/* Join header, types and strings of the result. The caller frees *out. */
static int join(const struct reduction *r, uint8_t **out, size_t *out_size)
{
	const struct btf_header head = {
		.magic = BTF_MAGIC,
		.version = BTF_VERSION,
		.hdr_len = sizeof(head),
		.type_len = (uint32_t)r->n_out_types,
		.str_off = (uint32_t)r->n_out_types,
		.str_len = (uint32_t)r->n_out_strings,
	};
	size_t room = sizeof(head) + r->n_out_types + r->n_out_strings, n = 0;
	uint8_t *all = malloc(room);
	int err;

	if (!all)
		return -ENOMEM;
	err = put(&all, &n, &room, &head, sizeof(head));
	if (!err && r->n_out_types)
		err = put(&all, &n, &room, r->out_types, r->n_out_types);
	if (!err)
		err = put(&all, &n, &room, r->out_strings, r->n_out_strings);
	if (err) {
		free(all);
		return err;
	}
	*out = all;
	*out_size = n;
	return 0;
}

/*
 * Find the names that wanted uses, then the place of each type in all. put_type appends the types
 * inside a type to r->wanted, so the loop over r->wanted ends when nothing is missing.
 */
int live_btf_reduce(const struct btf *wanted, const void *all, size_t size, uint8_t **out,
		    size_t *out_size)
{
	struct reduction *r = calloc(1, sizeof(*r));
	uint8_t *strings = NULL;
	int err = -ENOMEM;

	if (!r)
		return err;
	err = put(&strings, &r->n_out_strings, &r->out_strings_room, "", 1);
	r->out_strings = (char *)strings;
	if (!err)
		err = read_header(r, all, size);
	if (!err)
		err = find_names(r, wanted);
	if (!err)
		err = scan_types(r);
	for (size_t i = 0; !err && i < r->n_wanted; i++)
		err = put_type(r, r->wanted[i]);
	if (!err)
		err = join(r, out, out_size);
	free(r->places);
	free(r->number);
	free(r->wanted);
	free(r->names);
	free(r->out_types);
	free(r->out_strings);
	free(r);
	return err;
}

/* ---- the running kernel's types ----------------------------------------------------------- */

int live_btf_write(const struct btf *wanted, int fd)
{
	int from = open(KERNEL_BTF, O_RDONLY | O_CLOEXEC), err = 0;
	size_t size = 0, out_size = 0;
	uint8_t *bytes = MAP_FAILED, *out = NULL;
	struct stat st;

	if (from < 0)
		return -errno;
	if (fstat(from, &st))
		err = -errno;
	else if (st.st_size <= 0 || st.st_size > SIZE_MAX_OF)
		err = -ENOTSUP;
	else
		size = (size_t)st.st_size;
	/* Since Linux 6.16 the file can be mapped; older kernels need a copy. */
	if (!err)
		bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, from, 0);
	if (!err && bytes == MAP_FAILED) {
		bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		err = bytes == MAP_FAILED ? -errno : io_read_at(from, 0, bytes, size);
	}
	if (!err)
		err = live_btf_reduce(wanted, bytes, size, &out, &out_size);
	if (!err)
		err = io_write(fd, out, out_size);
	free(out);
	if (bytes != MAP_FAILED)
		(void)munmap(bytes, size);
	(void)close(from);
	return err;
}
