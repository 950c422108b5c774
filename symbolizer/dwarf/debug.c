/*
 * symbolizer/dwarf/debug.c: finds the unit and the function of an address, and stores its lines and
 * calls.
 */
#include "symbolizer/dwarf/debug.h"

#include "unwinder/unwinder.h"

#include <dwarf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

/*
 * Limits: bytes of loaded units; .dwo files open at once; unit spans; the work done for one
 * program.
 */
#define HELD_MAX    ((uint64_t)48 << 20)
#define HELD_SOON   ((uint64_t)8 << 20) /* of units that are done with */
#define SPLITS_HELD 64
#define SPANS_MAX   ((size_t)2 << 20)
#define LIMIT_LEAST ((uint64_t)256 << 20)
#define LIMIT_TIMES 24
#define PATH_ROOM   4096
#define ENCLOSING   64
#define SCOPES_MAX  1024
#define NOTES_MAX   ((uint64_t)1 << 20)
#define CHUNK	    ((size_t)256 << 10)

/* ---- where the units are ------------------------------------------------------------------- */

/* Add a range of a unit's code. Empty ranges and those at 0 are ignored. -ENOMEM, -E2BIG. */
static int push_span(struct sym_debug *d, uint64_t low, uint64_t high, uint32_t unit)
{
	if (!low || low >= high)
		return 0;
	if (d->n_spans == d->room_spans) {
		size_t room = d->room_spans ? d->room_spans * 2 : 256;
		struct sym_span *grown;

		if (room > SPANS_MAX)
			return -E2BIG;
		grown = reallocarray(d->spans, room, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		d->spans = grown;
		d->room_spans = room;
	}
	d->spans[d->n_spans++] = (struct sym_span){ .low = low, .high = high, .unit = unit };
	return 0;
}

/* Read one set of .debug_aranges (DWARF 5 §6.1.2). c is positioned after the set's length. */
static int read_set(struct sym_debug *d, struct sym_cursor *c, unsigned int off_size,
		    uint64_t header)
{
	uint16_t version = sym_cursor_u16(c);
	uint64_t off = sym_cursor_uint(c, off_size);
	uint8_t addr_size = sym_cursor_u8(c);
	uint8_t segment = sym_cursor_u8(c);
	struct dw_unit *u;
	uint64_t pad;
	int err;

	if (c->bad || version != 2 || (addr_size != 4 && addr_size != 8) || segment)
		return 0; /* the unit itself is read instead */
	err = dw_file_unit(&d->main, off, &u);
	if (err || u->off != off)
		return err == -ENOMEM ? err : 0;
	header += 2 + off_size + 2;
	pad = header % (2 * (uint64_t)addr_size);
	if (pad)
		(void)sym_cursor_take(c, 2 * (uint64_t)addr_size - pad);
	while (!c->bad && sym_cursor_left(c) >= 2 * (uint64_t)addr_size) {
		uint64_t low = sym_cursor_uint(c, addr_size);
		uint64_t size = sym_cursor_uint(c, addr_size);

		if (!low && !size)
			continue;
		if (size > UINT64_MAX - low)
			continue;
		err = push_span(d, low, low + size, (uint32_t)(u - d->main.units));
		if (err)
			return err;
		u->in_aranges = true;
	}
	return 0;
}

/* Read all sets of .debug_aranges. Damage ends the reading without an error. */
static int read_aranges(struct sym_debug *d, const struct sym_section *s)
{
	uint64_t off = 0;
	int err = 0;

	while (!err && off < s->size && s->size - off >= 12) {
		uint8_t head[12] = { 0 };
		struct sym_cursor c = sym_cursor_of(head, sizeof(head));
		unsigned int off_size = 4;
		const uint8_t *bytes;
		uint8_t *owned;
		uint64_t size;

		err = sym_section_read(s, off, head, sizeof(head));
		if (err)
			return err;
		size = sym_cursor_u32(&c);
		if (size == 0xffffffff) {
			off_size = 8;
			size = sym_cursor_u64(&c);
		}
		off += off_size == 8 ? 12 : 4;
		if (size > s->size - off)
			return 0;
		err = sym_section_map(s, off, size, &bytes, &owned);
		if (err)
			return err;
		c = sym_cursor_of(bytes, size);
		err = read_set(d, &c, off_size, off_size == 8 ? 12 : 4);
		free(owned);
		off += size;
	}
	return err;
}

/* Read the code ranges of a unit that .debug_aranges lacks from the unit's own entry. */
static int ask_unit(struct sym_debug *d, struct dw_unit *u, struct dw_ranges *ranges)
{
	int err;

	if (!u->type || u->type == DW_UT_partial || u->type == DW_UT_type)
		return 0;
	err = dw_unit_root(u);
	if (err || (u->root.tag != DW_TAG_compile_unit && u->root.tag != DW_TAG_skeleton_unit))
		return err == -ENOMEM ? err : 0;
	ranges->n = 0;
	err = dw_ranges_add(u, &u->root.low, &u->root.high, &u->root.ranges, ranges);
	if (err)
		return err == -ENOMEM ? err : 0;
	for (size_t i = 0; !err && i < ranges->n; i++)
		err = push_span(d, ranges->list[i].low, ranges->list[i].high,
				(uint32_t)(u - d->main.units));
	return err;
}

static int by_low(const void *a, const void *b)
{
	const struct sym_span *x = a, *y = b;

	if (x->low != y->low)
		return x->low < y->low ? -1 : 1;
	if (x->high != y->high)
		return x->high > y->high ? -1 : 1;
	return (x->unit > y->unit) - (x->unit < y->unit);
}

/* Find the code ranges of all units and sort them. */
static int find_units(struct sym_debug *d, const struct sym_image *image)
{
	struct sym_section aranges = { .fd = -1, .own_fd = -1 };
	struct dw_ranges ranges = { 0 };
	uint64_t reach = 0;
	int err = dw_file_units(&d->main);

	if (err)
		return err;
	if (!sym_section_open(image, ".debug_aranges", &aranges)) {
		err = read_aranges(d, &aranges);
		sym_section_close(&aranges);
	}
	for (size_t i = 0; err != -ENOMEM && err != -E2BIG && i < d->main.n_units; i++)
		if (!d->main.units[i].in_aranges)
			err = ask_unit(d, &d->main.units[i], &ranges);
	free(ranges.list);
	if (err == -ENOMEM)
		return err;
	if (d->n_spans)
		qsort(d->spans, d->n_spans, sizeof(*d->spans), by_low);
	for (size_t i = 0; i < d->n_spans; i++)
		d->spans[i].reach = reach = d->spans[i].high > reach ? d->spans[i].high : reach;
	return 0;
}

/*
 * Return the unit whose code contains vaddr; NULL: none. Narrow [*low, *high) to the range around
 * vaddr in which no other unit begins or ends.
 */
static struct dw_unit *unit_of(const struct sym_debug *d, uint64_t vaddr, uint64_t *low,
			       uint64_t *high)
{
	struct dw_unit *found = NULL;
	size_t a = 0, b = d->n_spans;

	while (a < b) {
		size_t middle = a + (b - a) / 2;

		if (d->spans[middle].low <= vaddr)
			a = middle + 1;
		else
			b = middle;
	}
	if (a < d->n_spans && d->spans[a].low < *high)
		*high = d->spans[a].low;
	for (int i = 0; i < ENCLOSING && a; i++) {
		const struct sym_span *s = &d->spans[--a];

		if (s->high > vaddr) {
			found = &d->main.units[s->unit];
			*low = s->low > *low ? s->low : *low;
			*high = s->high < *high ? s->high : *high;
			break;
		}
		*low = s->high > *low ? s->high : *low;
		if (s->reach <= vaddr) /* nothing before it extends this far */
			break;
	}
	return found;
}

/* ---- opening -------------------------------------------------------------------------------- */

/*
 * Look for a build-id among ELF notes: name size, description size, type, name and description. The
 * last two are padded to four bytes.
 */
static int build_id_in(const struct sym_image *image, uint64_t off, uint64_t size,
		       struct uw_build_id *out)
{
	struct sym_cursor c;
	void *notes;
	int err = sym_image_load(image, off, size, NOTES_MAX, &notes);

	if (err)
		return err;
	err = -ENOENT;
	c = sym_cursor_of(notes, size);
	while (err && !c.bad && sym_cursor_left(&c) >= 12) {
		uint32_t n_name = sym_cursor_u32(&c), n = sym_cursor_u32(&c);
		uint32_t type = sym_cursor_u32(&c);
		const uint8_t *name = sym_cursor_take(&c, ((uint64_t)n_name + 3) & ~UINT64_C(3));
		const uint8_t *bytes = sym_cursor_take(&c, n);

		(void)sym_cursor_take(&c, -n & 3);
		if (!name || !bytes || type != NT_GNU_BUILD_ID || n_name != 4 ||
		    memcmp(name, "GNU", 4) != 0 || !n || n > UW_BUILD_ID_MAX)
			continue;
		memset(out, 0, sizeof(*out));
		out->size = (uint8_t)n;
		memcpy(out->bytes, bytes, n);
		err = 0;
	}
	free(notes);
	return err;
}

/* Find the build-id of an image. -ENOENT: it has none. */
static int build_id_of(const struct sym_image *image, struct uw_build_id *out)
{
	int err = -ENOENT;

	/* Read sections first: the segments of a debug file have no contents in the file. */
	for (size_t i = 1; err && i < image->n_sections; i++)
		if (image->sections[i].sh_type == SHT_NOTE)
			err = build_id_in(image, image->sections[i].sh_offset,
					  image->sections[i].sh_size, out);
	for (size_t i = 0; err && !image->n_sections && i < image->n_segments; i++)
		if (image->segments[i].p_type == PT_NOTE)
			err = build_id_in(image, image->segments[i].p_offset,
					  image->segments[i].p_filesz, out);
	return err ? -ENOENT : 0;
}

int sym_build_id(int fd, uint64_t elf_off, struct uw_build_id *out)
{
	struct sym_image image;
	int err = sym_image_init_fd(&image, fd, elf_off);

	if (err)
		return err;
	err = build_id_of(&image, out);
	sym_image_fini(&image);
	return err;
}

/*
 * Load a section that has a name, a NUL and more data. *behind is the offset after the NUL; the
 * caller handles padding. The caller frees *bytes.
 */
static int load_link(const struct sym_image *image, const char *section, void **bytes,
		     uint64_t *size, uint64_t *behind)
{
	const Elf64_Shdr *s = sym_image_section(image, section);
	const uint8_t *nul;
	int err;

	if (!s)
		return -ENOENT;
	err = sym_image_load(image, s->sh_offset, s->sh_size, PATH_ROOM, bytes);
	if (err)
		return err;
	nul = memchr(*bytes, 0, s->sh_size);
	if (!nul || nul == *bytes) {
		free(*bytes);
		return -EBADMSG;
	}
	*size = s->sh_size;
	*behind = (uint64_t)(nul - (const uint8_t *)*bytes) + 1;
	return 0;
}

/* Read .gnu_debuglink: the name of the debug file, padding, and the CRC. */
static int link_of(const struct sym_image *image, char *name, size_t room, uint32_t *crc)
{
	uint64_t size, behind;
	void *bytes;
	int err = load_link(image, ".gnu_debuglink", &bytes, &size, &behind);

	if (err)
		return err;
	if (behind > room || size < 4 || ((behind + 3) & ~UINT64_C(3)) > size - 4) {
		err = -EBADMSG;
	} else {
		memcpy(name, bytes, behind);
		memcpy(crc, (const uint8_t *)bytes + ((behind + 3) & ~UINT64_C(3)), 4);
	}
	free(bytes);
	return err;
}

static bool has_debug(const struct sym_image *image)
{
	return sym_image_section(image, ".debug_info") || sym_image_section(image, ".zdebug_info");
}

bool sym_has_debug(int fd, uint64_t elf_off)
{
	struct sym_image image;
	bool has;

	if (sym_image_init_fd(&image, fd, elf_off))
		return false;
	has = has_debug(&image);
	sym_image_fini(&image);
	return has;
}

int sym_debug_where(int fd, uint64_t elf_off, struct sym_debug_where *out)
{
	struct sym_image image;
	int err = sym_image_init_fd(&image, fd, elf_off);

	if (err)
		return err;
	*out = (struct sym_debug_where){ .inside = has_debug(&image) };
	out->linked = !out->inside && !link_of(&image, out->link, sizeof(out->link), &out->crc);
	sym_image_fini(&image);
	return 0;
}

int sym_crc32(int fd, uint32_t *out)
{
	uint8_t *chunk = malloc(CHUNK);
	uLong crc = crc32(0, NULL, 0);
	off_t off = 0;
	ssize_t n;

	if (!chunk)
		return -ENOMEM;
	while ((n = pread(fd, chunk, CHUNK, off)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		crc = crc32(crc, chunk, (uInt)n);
		off += n;
	}
	free(chunk);
	if (n < 0)
		return -errno;
	*out = (uint32_t)crc;
	return 0;
}

/* Open the file that .gnu_debugaltlink names, if its build-id is right. Failure is not an error. */
static void open_alt(struct sym_debug *d, const struct sym_image *image)
{
	struct uw_build_id want = { .size = 0 }, got;
	struct sym_image alt;
	uint64_t size, behind;
	void *bytes;
	int fd;

	if (!d->files.alt || load_link(image, ".gnu_debugaltlink", &bytes, &size, &behind))
		return;
	if (size > behind && size - behind <= UW_BUILD_ID_MAX) {
		want.size = (uint8_t)(size - behind);
		memcpy(want.bytes, (const uint8_t *)bytes + behind, want.size);
	}
	if (want.size && !d->files.alt(d->files.ctx, bytes, &want, &fd)) {
		if (!sym_image_init_fd(&alt, fd, 0)) {
			d->has_alt = !build_id_of(&alt, &got) && uw_build_id_equal(&got, &want) &&
				     !dw_file_open(&alt, false, &d->budget, &d->alt);
			sym_image_fini(&alt);
		}
		if (d->has_alt)
			d->alt.fd = fd;
		else
			(void)close(fd);
	}
	free(bytes);
	if (d->has_alt) {
		d->main.alt = &d->alt;
		d->budget.limit += LIMIT_TIMES * (d->alt.info.size + d->alt.line.size);
	}
}

/* Open the debug information of an image. Takes ownership of the image and its descriptor. */
static int open_debug(struct sym_image *image, const struct sym_debug_files *files,
		      struct sym_lines *lines, struct sym_debug **out)
{
	struct sym_debug *d = calloc(1, sizeof(*d));
	int err = d ? 0 : -ENOMEM;

	if (!err) {
		d->lines = lines;
		d->leaping = DW_LEAP_N - 1;
		if (files)
			d->files = *files;
		d->main.fd = d->alt.fd = d->package.fd = -1;
		err = dw_file_open(image, false, &d->budget, &d->main);
	}
	if (!err) {
		d->main.fd = image->fd;
		d->budget.limit =
			LIMIT_LEAST + LIMIT_TIMES * (d->main.info.size + d->main.line.size);
		open_alt(d, image);
		err = find_units(d, image);
	} else if (image->fd >= 0) {
		(void)close(image->fd);
	}
	sym_image_fini(image);
	if (err) {
		sym_debug_free(d);
		return err;
	}
	*out = d;
	return 0;
}

int sym_debug_open(int fd, uint64_t elf_off, const struct sym_debug_files *files,
		   struct sym_lines *lines, struct sym_debug **out)
{
	struct sym_image image;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int err = own < 0 ? -errno : sym_image_init_fd(&image, own, elf_off);

	if (!err)
		return open_debug(&image, files, lines, out);
	if (own >= 0)
		(void)close(own);
	return err;
}

int sym_debug_open_image(const void *bytes, size_t size, const struct sym_debug_files *files,
			 struct sym_lines *lines, struct sym_debug **out)
{
	struct sym_image image;
	int err = sym_image_init_bytes(&image, bytes, size);

	return err ? err : open_debug(&image, files, lines, out);
}

int sym_debug_twin(const struct sym_debug *of, struct sym_lines *lines, struct sym_debug **out)
{
	struct sym_debug *d = calloc(1, sizeof(*d));
	int err = d ? 0 : -ENOMEM;

	if (err)
		return err;
	d->lines = lines;
	d->files = of->files;
	d->budget = (struct dw_budget){ .limit = of->budget.limit };
	d->leaping = of->leaping;
	d->package.fd = d->main.fd = d->alt.fd = -1;
	err = dw_file_twin(&of->main, &d->budget, &d->main);
	if (!err && of->has_alt) {
		err = dw_file_twin(&of->alt, &d->budget, &d->alt);
		d->has_alt = !err;
		d->main.alt = err ? NULL : &d->alt;
	}
	if (err) {
		sym_debug_free(d);
		return err;
	}
	d->spans = of->spans;
	d->n_spans = of->n_spans;
	d->twin = true;
	*out = d;
	return 0;
}

void sym_debug_free(struct sym_debug *d)
{
	if (!d)
		return;
	sym_split_close(d);
	free(d->packaged);
	dw_file_close(&d->package);
	dw_file_close(&d->main);
	dw_file_close(&d->alt);
	if (!d->twin)
		free(d->spans);
	free(d->origins);
	free(d);
}

/* ---- reading one unit --------------------------------------------------------------------- */

static void unload_all(struct sym_debug *d)
{
	sym_split_close(d);
	for (size_t i = 0; i < d->main.n_units; i++)
		dw_unit_unload(&d->main.units[i]);
	for (size_t i = 0; i < d->alt.n_units; i++)
		dw_unit_unload(&d->alt.units[i]);
}

int sym_unit_text(struct dw_unit *u, uint16_t attribute, char *out, size_t room)
{
	struct dw_value v;
	struct dw_die die;
	uint64_t next;
	int err = dw_unit_load(u);

	*out = '\0';
	if (!err)
		err = dw_unit_root(u);
	if (err)
		return err;
	err = dw_die_at(u, u->header, &die, &next);
	if (err <= 0)
		return err ? err : -EBADMSG;
	err = dw_die_values(&die, &attribute, 1, &v, &next);
	if (err)
		return err;
	err = dw_value_text(u, &v, out, room);
	if (err < 0)
		*out = '\0';
	return err < 0 && err != -ENOENT ? err : 0;
}

int sym_debug_path(struct sym_debug *d, const struct dw_file *file, struct dw_table *table,
		   uint32_t index, const char *dir, uint32_t *out)
{
	char path[PATH_ROOM];
	int n, err;

	*out = LINES_NONE;
	if (index >= table->n_files)
		return 0;
	if (table->files[index].interned) {
		*out = table->files[index].interned - 1;
		return 0;
	}
	n = dw_table_path(file, table, index, dir, path, sizeof(path));
	if (n <= 0)
		return n == -ENOMEM ? n : 0;
	err = sym_lines_intern(d->lines, path, (size_t)n, out);
	if (!err)
		table->files[index].interned = *out + 1;
	return err;
}

struct wanted { /* an address to look up */
	struct dw_unit *unit;
	uint64_t vaddr;
};

struct piece { /* a function, or the code between two functions */
	uint64_t low, high;
	uint64_t die; /* offset of the function's entry in the unit; 0: none */
};

/* Narrow the piece to the function that contains vaddr, or to the gap between two. NULL: a gap. */
static const struct dw_func *narrow(const struct dw_unit *u, uint64_t vaddr, struct piece *p)
{
	size_t a = 0, b = u->n_funcs;

	while (a < b) {
		size_t middle = a + (b - a) / 2;

		if (u->funcs[middle].low <= vaddr)
			a = middle + 1;
		else
			b = middle;
	}
	if (a < u->n_funcs && u->funcs[a].low < p->high)
		p->high = u->funcs[a].low;
	for (int i = 0; i < ENCLOSING && a; i++) {
		const struct dw_func *f = &u->funcs[--a];

		if (f->high > vaddr) {
			p->low = f->low > p->low ? f->low : p->low;
			p->high = f->high < p->high ? f->high : p->high;
			return f;
		}
		p->low = f->high > p->low ? f->high : p->low;
		if (u->reach[a] <= vaddr)
			break;
	}
	return NULL;
}

/*
 * Load a unit and find its functions. *entries is the unit that has the functions: the unit itself,
 * or the split unit if this is a skeleton. *lasting is cleared if the split unit is missing.
 */
static int load_unit(struct sym_debug *d, struct dw_unit *u, struct dw_unit **entries,
		     bool *lasting)
{
	int err = dw_unit_load(u);

	if (!err)
		err = dw_unit_root(u);
	if (err)
		return err;
	*entries = u;
	if (u->root.dwo_id || u->root.dwo_name.form) {
		struct dw_unit *split;

		err = sym_split_unit(d, u, &split);
		if (!err)
			err = dw_unit_load(split);
		if (err == -ENOMEM)
			return err;
		if (err)
			*lasting = false; /* the split unit may appear later */
		else
			*entries = split;
	}
	return sym_unit_funcs(*entries, d->leaping);
}

/* Read the unit's line table once. wanted: see dw_table_read. */
static void load_table(struct sym_debug *d, struct dw_unit *u, const uint64_t *wanted, size_t n)
{
	if (u->lines_tried || !u->root.stmt.form)
		return;
	u->lines_tried = true;
	if (!dw_table_read(u->file, u->root.stmt.u, u->addr_size, wanted, n, &u->table))
		d->budget.held += u->table->n_rows * sizeof(*u->table->rows);
}

/*
 * Find the piece of the unit that contains vaddr. If no function does, search what was skipped so
 * far.
 */
static int find_piece(struct sym_debug *d, struct dw_unit *entries, uint64_t vaddr, struct piece *p)
{
	const struct piece whole = *p;
	const struct dw_func *f = narrow(entries, vaddr, p);

	/* vaddr is in no function, or in one that was skipped. */
	while (!f && entries->leapt && entries->leaping != DW_LEAP_NONE) {
		int err = sym_unit_funcs(entries, entries->leaping - 1);

		if (err)
			return err;
		*p = whole;
		f = narrow(entries, vaddr, p);
		if (f && d->leaping > entries->leaping)
			d->leaping = entries->leaping;
	}
	p->die = f ? f->die : 0;
	return 0;
}

/* Limit a piece to the size that can be stored, around the address. */
static void limit(struct sym_cell *c)
{
	if (c->high - c->low <= UINT32_MAX)
		return;
	c->low = c->vaddr - c->low > INT32_MAX ? c->vaddr - INT32_MAX : c->low;
	c->high = c->high - c->low > UINT32_MAX ? c->low + UINT32_MAX : c->high;
}

/* Store that nothing is known about vaddr and the range around it. */
static int put_nothing(struct sym_debug *d, uint64_t vaddr, uint64_t low, uint64_t high)
{
	struct sym_cell c = { .vaddr = vaddr, .low = low, .high = high };

	limit(&c);
	return sym_lines_put(d->lines, c.low, c.high, NULL, NULL, 0, true);
}

/* The state of reading one unit. */
struct job {
	struct dw_unit *unit, *entries;
	bool lasting;		/* results are final, not because of a missing file */
	struct sym_cell *cells; /* ascending; owned */
	uint64_t *vaddrs;	/* of the cells; owned */
	uint64_t *dies;		/* the functions they are in; owned */
	size_t n;
	struct sym_calls calls;
	char dir[PATH_ROOM];
};

static void free_job(struct job *j)
{
	free(j->cells);
	free(j->vaddrs);
	free(j->dies);
	free(j->calls.list);
}

/* Make a cell for each address that is not known yet. All wanted addresses are in the unit. */
static int find_cells(struct sym_debug *d, struct job *j, const struct wanted *wanted, size_t n)
{
	struct piece p = { .low = 0 };
	int err;

	j->cells = calloc(n, sizeof(*j->cells));
	j->vaddrs = calloc(n, sizeof(*j->vaddrs));
	j->dies = calloc(n, sizeof(*j->dies));
	if (!j->cells || !j->vaddrs || !j->dies)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct sym_cell *c = &j->cells[j->n];

		c->vaddr = wanted[i].vaddr;
		c->call = LINES_NONE;
		if (sym_lines_gap(d->lines, c->vaddr, &c->low, &c->high))
			continue;
		if (c->vaddr >= p.high) {
			p.low = 0;
			p.high = UINT64_MAX;
			(void)unit_of(d, c->vaddr, &p.low, &p.high);
			err = find_piece(d, j->entries, c->vaddr, &p);
			if (err)
				return err;
		}
		c->low = p.low > c->low ? p.low : c->low;
		c->high = p.high < c->high ? p.high : c->high;
		j->vaddrs[j->n] = c->vaddr;
		j->dies[j->n++] = p.die;
	}
	return 0;
}

/* Store the line and the inlined calls of one cell. */
static int put_cell(struct sym_debug *d, struct job *j, struct sym_cell *c)
{
	struct lines_row place = { .file = LINES_NONE };
	struct lines_scope scopes[SCOPES_MAX];
	struct dw_table *t = j->unit->table;
	const struct dw_row *row;
	uint64_t end;
	size_t n = 0;
	int err;

	if (t && !dw_table_find(t, c->vaddr, &row, &end)) {
		c->low = row->addr > c->low ? row->addr : c->low;
		c->high = end < c->high ? end : c->high;
		place.line = row->line;
		err = sym_debug_path(d, j->unit->file, t, row->file, j->dir, &place.file);
		if (err)
			return err;
	} else if (t) { /* nothing is known about the code around it */
		c->low = c->vaddr;
		c->high = c->vaddr + 1;
	}
	limit(c);
	for (uint32_t call = c->call; call != LINES_NONE; call = j->calls.list[call].parent)
		n++;
	n = n < SCOPES_MAX ? n : SCOPES_MAX;
	for (uint32_t i = (uint32_t)n, call = c->call; i--; call = j->calls.list[call].parent) {
		const struct sym_call *from = &j->calls.list[call];

		scopes[i] = (struct lines_scope){ .end = (uint32_t)(c->high - c->low),
						  .name = from->name,
						  .line = from->line,
						  .call_file = from->call_file,
						  .call_line = from->call_line,
						  .up = i ? i - 1 : LINES_NONE };
	}
	return sym_lines_put(d->lines, c->low, c->high,
			     place.file == LINES_NONE && !place.line ? NULL : &place, scopes, n,
			     j->lasting);
}

/* Read the calls of n cells in the same function, or in none, and store the cells. */
static int put_cells(struct sym_debug *d, struct job *j, size_t first, size_t n)
{
	struct sym_cell *cells = j->cells + first;
	uint64_t reach = 0;
	int err = 0;

	if (j->dies[first])
		err = sym_calls_read(d, j->entries, j->dies[first], j->unit, j->dir, cells, n,
				     &j->calls);
	/* Ignore damage: the address is stored without calls. */
	for (size_t i = 0; i < n && err != -ENOMEM; i++) {
		if (cells[i].vaddr < reach)
			continue;
		err = put_cell(d, j, &cells[i]);
		reach = cells[i].high;
	}
	return err;
}

/*
 * Read everything wanted of a unit. If it is read for the first time, and for several addresses,
 * read only the needed rows of its line table.
 */
static int read_unit(struct sym_debug *d, struct job *j, const struct wanted *wanted, size_t n)
{
	/* A unit that is used again is likely to be used often: then read its whole table. */
	bool once = n > 1 && !j->unit->asked;
	size_t past;
	int err = load_unit(d, j->unit, &j->entries, &j->lasting);

	if (!err)
		err = find_cells(d, j, wanted, n);
	if (!err)
		err = sym_unit_text(j->unit, DW_AT_comp_dir, j->dir, sizeof(j->dir));
	if (err)
		return err;
	load_table(d, j->unit, once ? j->vaddrs : NULL, once ? j->n : 0);
	for (size_t i = 0; !err && i < j->n; i = past) {
		for (past = i; past < j->n && j->dies[past] == j->dies[i]; past++)
			;
		err = put_cells(d, j, i, past - i);
	}
	if (once)
		dw_unit_forget_table(j->unit);
	j->unit->asked = true;
	return err;
}

/* Read everything wanted of a unit; free the memory of other units before if it is too much. */
static int add_unit(struct sym_debug *d, const struct wanted *wanted, size_t n)
{
	struct job j = { .unit = wanted->unit, .entries = wanted->unit, .lasting = true };
	int err;

	if (d->budget.held > HELD_MAX || d->n_splits > SPLITS_HELD)
		unload_all(d);
	err = read_unit(d, &j, wanted, n);
	free_job(&j);
	/* For a damaged unit, store that nothing is known about the addresses. */
	for (size_t i = 0; err && err != -ENOMEM && i < n; i++) {
		uint64_t low, high;

		sym_lines_settle(d->lines);
		if (sym_lines_gap(d->lines, wanted[i].vaddr, &low, &high))
			continue;
		(void)unit_of(d, wanted[i].vaddr, &low, &high);
		err = put_nothing(d, wanted[i].vaddr, low, high);
		err = err ? err : -EBADMSG;
	}
	return err == -ENOMEM || err == -E2BIG ? err : 0;
}

/*
 * Do the same, and unload the unit afterwards, because it is usually needed once. The next unit
 * reuses its memory.
 */
static int prepare_unit(struct sym_debug *d, const struct wanted *wanted, size_t n)
{
	struct dw_unit *u = wanted->unit, *entries;
	bool again = u->asked;
	int err = add_unit(d, wanted, n);

	entries = u->split;
	if (!again || d->budget.held > HELD_SOON) {
		dw_unit_unload(u);
		if (entries)
			dw_unit_unload(entries);
	}
	return err;
}

int sym_debug_add(struct sym_debug *d, uint64_t vaddr)
{
	struct wanted wanted = { .vaddr = vaddr };
	uint64_t low, high;
	int err = sym_lines_gap(d->lines, vaddr, &low, &high);

	if (err || vaddr == UINT64_MAX) /* no range can end after UINT64_MAX */
		return err == -EEXIST ? 0 : err;
	wanted.unit = unit_of(d, vaddr, &low, &high);
	/*
	 * If no unit has vaddr, store that for the whole gap between units, up to the size that a
	 * piece can have.
	 */
	err = wanted.unit ? add_unit(d, &wanted, 1) : put_nothing(d, vaddr, low, high);
	sym_lines_settle(d->lines);
	return err;
}

static int by_unit(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	return (x->vaddr > y->vaddr) - (x->vaddr < y->vaddr);
}

int sym_debug_prepare(struct sym_debug *d, const uint64_t *vaddrs, size_t n,
		      struct sym_turns *turns)
{
	struct wanted *wanted = calloc(n + 1, sizeof(*wanted));
	struct sym_turns alone = { 0 };
	size_t past, turn, next = 0;
	int err = wanted ? 0 : -ENOMEM;

	turns = turns ? turns : &alone;
	for (size_t i = 0; !err && i < n; i++) {
		uint64_t low = 0, high = UINT64_MAX;

		wanted[i] = (struct wanted){ .unit = unit_of(d, vaddrs[i], &low, &high),
					     .vaddr = vaddrs[i] };
	}
	if (!err && n)
		qsort(wanted, n, sizeof(*wanted), by_unit);
	turn = atomic_fetch_add(&turns->taken, 1);
	for (size_t i = 0; !err && i < n; i = past, next++) {
		for (past = i; past < n && wanted[past].unit == wanted[i].unit; past++)
			;
		if (next != turn)
			continue;
		turn = atomic_fetch_add(&turns->taken, 1);
		if (wanted[i].unit)
			err = prepare_unit(d, wanted + i, past - i);
		for (size_t j = i; !wanted[i].unit && !err && j < past; j++)
			err = sym_debug_add(d, wanted[j].vaddr);
	}
	sym_lines_settle(d->lines);
	free(wanted);
	return err;
}
