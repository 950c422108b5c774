/*
 * tests/peers/libdwfl.c: walks captured stacks with libdwfl of elfutils, with call-backs for memory
 * and registers. Each process has one Dwfl for its whole life; separate debug files are not used.
 */
#include <elfutils/libdwfl.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/peers/peer.h"

struct state { /* of one life */
	const struct life *life;
	Dwfl *dwfl;
	/* Of the walk under way: */
	const struct sample *sample;
	const struct loaded *loaded; /* last one found */
	uint64_t *pcs;
	size_t n;
};

struct attached {
	struct recording *recording;
	struct state *states;
	uint64_t own[PEER_FRAMES];
};

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
	struct state *s = arg;

	(void)dwfl;
	if (*thread_arg)
		return 0;
	*thread_arg = arg;
	return s->sample ? (pid_t)s->sample->tid : (pid_t)s->life->pid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg)
{
	(void)dwfl;
	(void)tid;
	*thread_arg = arg;
	return true;
}

static bool memory_read(Dwfl *dwfl, Dwarf_Addr addr, Dwarf_Word *result, void *arg)
{
	struct state *s = arg;
	const struct uw_region *stack = &s->sample->stack;
	const struct loaded *loaded = s->loaded;
	const uint8_t *bytes;

	(void)dwfl;
	if (addr >= stack->addr && addr - stack->addr < stack->size &&
	    stack->size - (addr - stack->addr) >= 8) {
		memcpy(result, stack->bytes + (addr - stack->addr), 8);
		return true;
	}
	if (!loaded || addr < loaded->start || addr >= loaded->end)
		loaded = life_loaded(s->life, addr);
	if (!loaded)
		return false;
	s->loaded = loaded;
	bytes = image_at(loaded->image, addr - loaded->bias, 8);
	if (!bytes)
		return false;
	memcpy(result, bytes, 8);
	return true;
}

static bool set_initial_registers(Dwfl_Thread *thread, void *arg)
{
	const struct state *s = arg;
	const struct uw_regs *regs = &s->sample->regs;
	unsigned int pc =
		uw_space_machine(s->life->space) == EM_AARCH64 ? UW_AARCH64_PC : UW_X86_64_RIP;

	/* Registers up to the pc, which has no DWARF number on aarch64. */
	if (!dwfl_thread_state_registers(thread, 0, pc == UW_X86_64_RIP ? pc + 1 : pc, regs->value))
		return false;
	dwfl_thread_state_register_pc(thread, regs->value[pc]);
	return true;
}

static const Dwfl_Thread_Callbacks thread_callbacks = {
	.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = memory_read,
	.set_initial_registers = set_initial_registers,
};

static int no_debuginfo(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base,
			const char *file, const char *link, GElf_Word crc, char **out)
{
	(void)module;
	(void)user;
	(void)name;
	(void)base;
	(void)file;
	(void)link;
	(void)crc;
	(void)out;
	return -1;
}

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = no_debuginfo,
};

static void attached_free(void *self)
{
	struct attached *a = self;

	for (size_t i = 0; a && a->states && i < a->recording->n_lives; i++)
		dwfl_end(a->states[i].dwfl);
	if (a)
		free(a->states);
	free(a);
}

/*
 * libdwfl supports only programs that are linked to a fixed address there; if one is added at
 * another address, it drops the program. node maps its code a second time.
 */
static bool is_elsewhere(const struct loaded *l)
{
	const Elf64_Ehdr *ehdr = (const void *)l->image->bytes;

	return ehdr->e_type == ET_EXEC && l->bias;
}

static int attach(struct state *s)
{
	s->dwfl = dwfl_begin(&callbacks);
	if (!s->dwfl)
		return -ENOMEM;
	dwfl_report_begin(s->dwfl);
	for (size_t i = 0; i < s->life->n_loaded; i++) {
		const struct loaded *l = &s->life->loaded[i];
		const char *path = l->image->module->path;
		int fd = module_fd(l->image->module), own;

		if (fd < 0 || is_elsewhere(l)) /* the vDSO: libdwfl accepts only files */
			continue;
		own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (own >= 0 && !dwfl_report_elf(s->dwfl, path, path, own, l->bias, true))
			(void)close(own);
	}
	(void)dwfl_report_end(s->dwfl, NULL, NULL);
	/* libdwfl asks an ELF file for the machine; without any file it cannot attach. */
	if (s->life->n_loaded &&
	    !dwfl_attach_state(s->dwfl, NULL, (pid_t)s->life->pid, &thread_callbacks, s)) {
		dwfl_end(s->dwfl);
		s->dwfl = NULL;
	}
	return 0;
}

static int attached_new(struct recording *recording, size_t life, void **self)
{
	struct attached *a = calloc(1, sizeof(*a));
	int err = a ? recording_load(recording, life) : -ENOMEM;

	if (!err) {
		a->recording = recording;
		a->states = calloc(recording->n_lives, sizeof(*a->states));
		err = a->states ? 0 : -ENOMEM;
	}
	for (size_t i = 0; !err && i < recording->n_lives; i++) {
		a->states[i].life = &recording->lives[i];
		if (life == SIZE_MAX || life == i)
			err = attach(&a->states[i]);
	}
	if (err) {
		attached_free(a);
		return err;
	}
	*self = a;
	return 0;
}

static int on_frame(Dwfl_Frame *frame, void *arg)
{
	struct state *s = arg;
	Dwarf_Addr pc;
	bool activation;

	if (!dwfl_frame_pc(frame, &pc, &activation) || !pc || s->n == PEER_FRAMES)
		return DWARF_CB_ABORT;
	s->pcs[s->n++] = pc;
	return DWARF_CB_OK;
}

static size_t attached_walk(void *self, const struct sample *sample, uint64_t *pcs)
{
	struct attached *a = self;
	struct state *s = &a->states[sample->life];

	s->sample = sample;
	s->loaded = NULL;
	s->pcs = pcs ? pcs : a->own;
	s->n = 0;
	if (s->dwfl)
		(void)dwfl_getthread_frames(s->dwfl, (pid_t)sample->tid, on_frame, s);
	return s->n;
}

const struct peer peer_libdwfl = {
	.name = "libdwfl", .new = attached_new, .free = attached_free, .walk = attached_walk
};
