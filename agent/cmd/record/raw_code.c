/* agent/cmd/record/raw_code.c: notes which code of large files walks will read (raw_code.h). */
#include "agent/cmd/record/raw_code.h"

#include "agent/array.h"
#include "agent/process/module.h"
#include "agent/source/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Code is noted in pieces of this size. A walk reads 16 bytes on each side of an address. */
#define PIECE	256u
#define AROUND	16u
#define OFF_MAX ((uint64_t)4 << 30) /* what is further in a file is not noted */
/* Limits of all files together, because a process can have any words on its stack: 32 MiB of code, and 8 MiB of bits. */
#define PIECES_MAX (1u << 17)
#define WORDS_MAX  (1u << 20)
/* Where a function without unwind information begins is looked for so far below an address in it. */
#define BELOW  (8192u / PIECE)
#define RANGES 64u /* mappings of large code in a process; the others are not noted */

struct noted { /* a bit for each piece of a module's file */
	uint64_t *words;
	size_t n;
};

struct range { /* mapped code of a large file */
	uint64_t start, end, off;
	uint32_t module;
};

struct raw_code {
	struct noted *modules; /* by module id */
	size_t n_modules, room_modules;
	size_t n_pieces, n_words;
	/* The mappings of the process that was looked at last, which had this set of files then. */
	uint32_t pid;
	uint64_t files;
	struct range ranges[RANGES];
	size_t n_ranges;
};

int raw_code_new(struct raw_code **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -ENOMEM;
}

void raw_code_free(struct raw_code *code)
{
	if (!code)
		return;
	for (size_t i = 0; i < code->n_modules; i++)
		free(code->modules[i].words);
	free(code->modules);
	free(code);
}

static bool is_noted(const struct noted *noted, uint64_t piece)
{
	return piece / 64 < noted->n && noted->words[piece / 64] >> piece % 64 & 1;
}

static void note_piece(struct raw_code *code, uint32_t module, uint64_t piece)
{
	struct noted *noted;
	size_t room, need = piece / 64 + 1;

	if (piece >= OFF_MAX / PIECE || code->n_pieces == PIECES_MAX)
		return;
	while (code->n_modules <= module) {
		if (array_grow(code->modules, code->n_modules, code->room_modules))
			return;
		code->modules[code->n_modules++] = (struct noted){ .n = 0 };
	}
	noted = &code->modules[module];
	if (is_noted(noted, piece))
		return;
	room = noted->n;
	if (need > room) {
		if (code->n_words + (need - room) > WORDS_MAX ||
		    array_reserve(noted->words, need, room))
			return;
		memset(noted->words + noted->n, 0, (room - noted->n) * sizeof(*noted->words));
		code->n_words += room - noted->n;
		noted->n = room;
	}
	noted->words[piece / 64] |= (uint64_t)1 << piece % 64;
	code->n_pieces++;
}

/* Note the code around an address that lies in the range. */
static void note(struct raw_code *code, const struct range *range, uint64_t addr)
{
	uint64_t off = addr - range->start + range->off;

	note_piece(code, range->module, (off - (off < AROUND ? off : AROUND)) / PIECE);
	note_piece(code, range->module, (off + AROUND - 1) / PIECE);
}

/* Return whether a mapping may have code that a capture does not store anyway; fill *out. */
static bool is_large(const struct uw_mapping *m, struct range *out)
{
	const struct module *module = m->user;

	if (!(m->prot & PROT_EXEC) || !module || module->kind != MODULE_FILE ||
	    m->end - m->start <= SYM_CODE_MAX)
		return false;
	*out = (struct range){ m->start, m->end, m->off, module->id };
	return true;
}

/* List the mappings of large code in the thread's process, unless they are the ones that are listed. */
static void list_ranges(struct raw_code *code, const struct thread *thread)
{
	if (code->n_ranges && code->pid == thread->pid && code->files == thread->files)
		return;
	code->pid = thread->pid;
	code->files = thread->files;
	code->n_ranges = 0;
	for (const struct uw_mapping *m = uw_space_above(thread->space, 0);
	     m && code->n_ranges < RANGES; m = uw_space_above(thread->space, m->end))
		code->n_ranges += is_large(m, &code->ranges[code->n_ranges]);
}

/* Note a word of a thread if it may be a return address. One that ends a mapping is one, too. */
static void note_word(struct raw_code *code, uint64_t word)
{
	for (size_t i = 0; i < code->n_ranges; i++)
		if (word - code->ranges[i].start <= code->ranges[i].end - code->ranges[i].start)
			note(code, &code->ranges[i], word);
}

void raw_code_sample(struct raw_code *code, const struct thread *thread,
		     const struct event_sample *sample)
{
	unsigned int pc = machine_of(uw_space_machine(thread->space))->pc;
	const struct uw_mapping *m;
	struct range range;

	if (!thread->generates) {
		/* What a walk needs where the thread was interrupted: a system call that has made it, for instance. */
		m = sample->regs.known >> pc & 1
			    ? uw_space_find(thread->space, sample->regs.value[pc])
			    : NULL;
		if (m && is_large(m, &range))
			note(code, &range, sample->regs.value[pc]);
		return;
	}
	list_ranges(code, thread);
	if (!code->n_ranges)
		return;
	for (unsigned int i = 0; i < UW_REGS_MAX; i++)
		if (sample->regs.known >> i & 1)
			note_word(code, sample->regs.value[i]);
	for (size_t i = 0; i < sample->n_regions; i++) {
		const struct uw_region *region = &sample->regions[i];

		for (uint64_t at = -region->addr % 8; region->size >= 8 && at <= region->size - 8;
		     at += 8) {
			uint64_t word;

			memcpy(&word, region->bytes + at, sizeof(word));
			note_word(code, word);
		}
	}
}

void raw_code_join(struct raw_code *code, uint32_t module, uint32_t other)
{
	for (uint64_t i = 0; other < code->n_modules && i < code->modules[other].n * 64; i++)
		if (is_noted(&code->modules[other], i))
			note_piece(code, module, i);
}

/* Return whether code in a piece has no unwind information. */
static bool is_bare(struct uw_object *object, uint64_t piece)
{
	uint64_t vaddr, start, end;

	return !uw_object_vaddr(object, piece * PIECE, &vaddr) &&
	       (uw_object_function(object, vaddr, &start, &end) == -ENOENT ||
		uw_object_function(object, vaddr + PIECE - 1, &start, &end) == -ENOENT);
}

struct sym_part *raw_code_parts(const struct raw_code *code, uint32_t module,
				struct uw_object *object, size_t *n)
{
	struct sym_part *parts = NULL;
	size_t room = 0;

	*n = 0;
	if (module >= code->n_modules)
		return NULL;
	for (uint64_t i = 0; i < code->modules[module].n * 64; i++) {
		uint64_t first = i;

		if (!is_noted(&code->modules[module], i))
			continue;
		if (object && is_bare(object, i))
			first -= first < BELOW ? first : BELOW;
		for (; *n && first * PIECE <= parts[*n - 1].end; --*n)
			if (parts[*n - 1].start < first * PIECE)
				first = parts[*n - 1].start / PIECE;
		if (!array_grow(parts, *n, room))
			parts[(*n)++] = (struct sym_part){ first * PIECE, (i + 1) * PIECE };
	}
	return parts;
}
