/*
 * tests/fuzz/fuzz_uw_walk.c: fuzzes whole walks: hostile unwind information, code, registers and
 * stack. They are parts of the input, of which an ELF file is made:
 *
 *   0  flags, see below
 *   1  a byte for each register: its two high bits choose where it points, the others the word
 *   34 the size of the unwind information, two bytes; then that of the code, two bytes
 *   38 unwind information, code, stack
 *
 * Whatever they are: a walk ends, the compiled table and the file's own rules lead to the same
 * frames, so does the history of an earlier walk, and uw_explain finds the same callers. A search
 * table that contradicts the FDEs is used for look-ups in the file and not for compiling, so the
 * compiled table is not compared then.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "unwinder/unwinder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	AARCH64 = 1,
	SECTION = 2 | 4, /* which one the unwind information is */
	HEADER = 8,	 /* a search table, which the unwind information ends with */
	SCAN = 16,
	STRIPPED = 32,	/* no section headers: PT_GNU_EH_FRAME leads to the unwind information */
	CHANGED = 64,	/* the second walk sees a stack of which one word differs */
	GENERATED = 128 /* the unwind information is registered, too, for memory without a file */
};

#define HEAD	   38
#define FRAMES_MAX 20
#define ROOM	   32768
#define TABLE_SIZE 64
#define CODE	   ((uint64_t)0x10000) /* vaddr; run-time addresses are the same */
#define INFO	   ((uint64_t)0x20000)
#define JIT	   ((uint64_t)0x40000)
#define STACK	   ((uint64_t)0x70000)

static const char names[] = "\0.eh_frame\0.debug_frame\0.gopclntab\0.text\0.shstrtab";
enum { EH_FRAME = 1, DEBUG_FRAME = 11, GOPCLNTAB = 24, TEXT = 35, NAMES = 41 };
static const uint8_t name_of[] = { EH_FRAME, DEBUG_FRAME, GOPCLNTAB, EH_FRAME };

struct input {
	uint8_t flags;
	uint16_t machine;
	const uint8_t *info, *code;
	size_t info_size, code_size;
	struct uw_region region; /* the stack */
	struct uw_memory memory;
	struct uw_thread thread;
};

static size_t at_most(size_t n, size_t most)
{
	return n < most ? n : most;
}

static bool take_input(struct input *in, const uint8_t *data, size_t size)
{
	static const uint64_t places[] = { STACK, CODE, INFO, JIT };
	unsigned int sp, pc, n;
	size_t rest = size - HEAD;

	if (size < HEAD || size > ROOM)
		return false;
	*in = (struct input){ .flags = data[0],
			      .machine = data[0] & AARCH64 ? EM_AARCH64 : EM_X86_64 };
	in->info_size = at_most((size_t)data[34] | (size_t)data[35] << 8, rest);
	rest -= in->info_size;
	in->code_size = at_most((size_t)data[36] | (size_t)data[37] << 8, rest);
	rest -= in->code_size;
	in->info = data + HEAD;
	in->code = in->info + in->info_size;
	in->region = (struct uw_region){ STACK, rest, in->code + in->code_size };
	in->thread.read = uw_memory_read;
	n = in->flags & AARCH64 ? UW_AARCH64_REGS : UW_X86_64_REGS;
	sp = in->flags & AARCH64 ? UW_AARCH64_SP : UW_X86_64_RSP;
	pc = in->flags & AARCH64 ? UW_AARCH64_PC : UW_X86_64_RIP;
	for (unsigned int i = 0; i < n; i++) {
		uint8_t how = data[1 + i];

		in->thread.regs.value[i] = places[how >> 6] + (how & 63) * (i == pc ? 1u : 8u);
		/* 0xff: unknown; sp and pc must be known */
		if (how != 0xff || i == sp || i == pc)
			in->thread.regs.known |= UINT64_C(1) << i;
	}
	return true;
}

/* Write the ELF file. Return its size. */
static size_t make_file(const struct input *in, uint8_t *file)
{
	const size_t info_at = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
	const size_t code_at = info_at + in->info_size, names_at = code_at + in->code_size;
	const size_t sections_at = (names_at + sizeof(names) + 7) & ~(size_t)7;
	const bool stripped = in->flags & STRIPPED,
		   header = in->flags & HEADER && in->info_size > TABLE_SIZE;
	Elf64_Ehdr *e = (void *)file;
	Elf64_Phdr *p = (void *)(file + sizeof(*e));
	Elf64_Shdr *s = (void *)(file + sections_at);

	memset(file, 0, sections_at + 4 * sizeof(*s));
	*e = (Elf64_Ehdr){ .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
					EV_CURRENT },
			   .e_type = ET_DYN,
			   .e_machine = in->machine,
			   .e_version = EV_CURRENT,
			   .e_entry = CODE,
			   .e_phoff = sizeof(*e),
			   .e_shoff = stripped ? 0 : sections_at,
			   .e_ehsize = sizeof(*e),
			   .e_phentsize = sizeof(*p),
			   .e_phnum = header ? 3 : 2,
			   .e_shentsize = sizeof(*s),
			   .e_shnum = stripped ? 0 : 4,
			   .e_shstrndx = stripped ? 0 : 3 };
	p[0] = (Elf64_Phdr){ PT_LOAD, PF_R | PF_X,   code_at,	    CODE,
			     CODE,    in->code_size, in->code_size, 1 };
	p[1] = (Elf64_Phdr){ PT_LOAD, PF_R, info_at, INFO, INFO, in->info_size, in->info_size, 1 };
	p[2] = (Elf64_Phdr){ .p_type = PT_GNU_EH_FRAME,
			     .p_offset = code_at - TABLE_SIZE,
			     .p_vaddr = INFO + in->info_size - TABLE_SIZE,
			     .p_filesz = TABLE_SIZE };
	memcpy(file + info_at, in->info, in->info_size);
	memcpy(file + code_at, in->code, in->code_size);
	if (stripped)
		return names_at;
	memcpy(file + names_at, names, sizeof(names));
	s[1] = (Elf64_Shdr){ .sh_name = name_of[(in->flags & SECTION) / 2],
			     .sh_type = SHT_PROGBITS,
			     .sh_flags = SHF_ALLOC,
			     .sh_addr = INFO,
			     .sh_offset = info_at,
			     .sh_size = in->info_size };
	s[2] = (Elf64_Shdr){ .sh_name = TEXT,
			     .sh_type = SHT_PROGBITS,
			     .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
			     .sh_addr = CODE,
			     .sh_offset = code_at,
			     .sh_size = in->code_size };
	s[3] = (Elf64_Shdr){ .sh_name = NAMES,
			     .sh_type = SHT_STRTAB,
			     .sh_offset = names_at,
			     .sh_size = sizeof(names) };
	return sections_at + 4 * sizeof(*s);
}

/* A space of the file, of memory without a file, and of what is registered for that. */
static struct uw_space *make_space(const struct input *in, struct uw_object *object,
				   const struct uw_steppers *steppers)
{
	const uint64_t pages = (in->code_size + 4095) & ~UINT64_C(4095);
	const size_t code_at = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr) + in->info_size;
	const struct uw_dynamic_code code = { JIT, JIT + 0x1000, "code", in->info, in->info_size };
	struct uw_mapping mappings[] = {
		{ .start = CODE,
		  .end = CODE + (pages ? pages : 4096),
		  .off = code_at,
		  .prot = PROT_READ | PROT_EXEC,
		  .kind = UW_MAPPING_FILE,
		  .resolved = true,
		  .object = object },
		{ .start = JIT,
		  .end = JIT + 0x1000,
		  .prot = PROT_READ | PROT_WRITE | PROT_EXEC,
		  .kind = UW_MAPPING_ANON },
	};
	struct uw_dynamic *dynamic = NULL;
	struct uw_space *space;

	if (uw_space_new(in->machine, NULL, NULL, &space))
		abort();
	for (size_t i = 0; i < 2; i++)
		(void)uw_space_map(space, &mappings[i]);
	uw_space_use(space, steppers);
	if (in->flags & GENERATED && !uw_dynamic_make(in->machine, &code, 1, false, &dynamic)) {
		uw_space_set_dynamic(space, dynamic);
		uw_dynamic_put(dynamic);
	}
	return space;
}

static void check_same(const struct uw_stack *a, const struct uw_stack *b)
{
	if (a->n_frames != b->n_frames || a->stop != b->stop || a->stop_addr != b->stop_addr)
		abort();
	for (size_t i = 0; i < a->n_frames; i++) {
		const struct uw_frame *f = &a->frames[i], *g = &b->frames[i];

		if (f->pc != g->pc || f->lookup != g->lookup || f->cfa != g->cfa ||
		    f->sp != g->sp || f->stepper != g->stepper || f->confidence != g->confidence ||
		    f->exact != g->exact || f->signal != g->signal)
			abort();
	}
}

static void check_stack(const struct uw_stack *s)
{
	if (s->stop >= UW_STOP_N || s->n_frames > FRAMES_MAX || !s->n_frames)
		abort();
	for (size_t i = 0; i < s->n_frames; i++)
		if (s->frames[i].lookup != s->frames[i].pc - !s->frames[i].exact)
			abort();
}

/* Compare a walk through the history with one without it. */
static void walk_again(const struct uw_job *job, struct uw_worker *worker,
		       struct uw_history *history)
{
	struct uw_frame frames[FRAMES_MAX];
	struct uw_stack plain = { .frames = frames, .max_frames = FRAMES_MAX };
	struct uw_incremental all;

	uw_walk(job->space, worker, job->thread, &plain);
	uw_walk_incremental(history, 1, worker, job, &all);
	if (all.n) {
		struct uw_frame turned[FRAMES_MAX];
		struct uw_stack whole = *job->stack;

		if (all.n > FRAMES_MAX)
			abort();
		for (size_t i = 0; i < all.n; i++)
			turned[i] = all.frames[all.n - 1 - i];
		whole.frames = turned;
		whole.n_frames = all.n;
		check_same(&whole, &plain);
	} else {
		check_same(job->stack, &plain);
	}
}

static void explain(void *ctx, const struct uw_step *step)
{
	const struct uw_stack *stack = ctx;

	if (step->differs || step->frame >= stack->n_frames || step->n_saves > UW_REGS_MAX)
		abort();
}

static void walk(struct input *in, struct uw_object *objects[2])
{
	static struct uw_worker *worker;
	static struct uw_history *history;
	static struct uw_steppers *scanning;
	static uint8_t changed[ROOM];
	struct uw_frame frames[2][FRAMES_MAX];
	struct uw_stack stacks[2];
	struct uw_space *spaces[2];
	struct uw_job job;

	if (!worker && (uw_worker_new(&worker) || uw_history_new(FRAMES_MAX, 1 << 20, &history) ||
			uw_steppers_new(&scanning) || uw_steppers_enable(scanning, "scan", true)))
		abort();
	in->memory = (struct uw_memory){ &in->region, 1 };
	in->thread.ctx = &in->memory;
	for (size_t i = 0; i < 2; i++) {
		spaces[i] = make_space(in, objects[i], in->flags & SCAN ? scanning : NULL);
		stacks[i] = (struct uw_stack){ .frames = frames[i], .max_frames = FRAMES_MAX };
		uw_walk(spaces[i], worker, &in->thread, &stacks[i]);
		check_stack(&stacks[i]);
		uw_explain(spaces[i], &in->thread, &stacks[i], explain, &stacks[i]);
	}
	check_same(&stacks[0], &stacks[1]);
	uw_history_forget(history);
	job = (struct uw_job){ spaces[1], &in->thread, &stacks[1] };
	walk_again(&job, worker, history);
	if (in->flags & CHANGED && in->region.size >= 8) {
		memcpy(changed, in->region.bytes, in->region.size);
		changed[in->region.size / 2 & ~(size_t)7] ^= 8;
		in->region.bytes = changed;
	}
	walk_again(&job, worker, history);
	uw_space_free(spaces[0]);
	uw_space_free(spaces[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static _Alignas(8) uint8_t file[ROOM + 1024];
	struct uw_object *objects[2] = { NULL, NULL };
	struct input in;
	size_t n;

	if (!take_input(&in, data, size))
		return 0;
	n = make_file(&in, file);
	if (!uw_object_open_image(file, n, &objects[0]) &&
	    !uw_object_open_image(file, n, &objects[1])) {
		if (!(in.flags & HEADER))
			(void)uw_object_compile(objects[1]);
		walk(&in, objects);
	}
	uw_object_put(objects[0]);
	uw_object_put(objects[1]);
	return 0;
}
