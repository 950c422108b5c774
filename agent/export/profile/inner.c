/* agent/export/profile/inner.c: lists the functions of schedulers and allocators. */
#include "agent/export/profile/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Return whether name is in the list; an entry that ends in '*' is a prefix. */
static bool is_among(const char *name, const char *const *list)
{
	for (; *list; list++) {
		size_t n;

		if (**list != *name) /* nearly all */
			continue;
		n = strlen(*list);
		if ((*list)[n - 1] == '*' ? !strncmp(name, *list, n - 1) : !strcmp(name, *list))
			return true;
	}
	return false;
}

/*
 * Functions of kernel/sched/core.c and kernel/time by which a waiting thread gives up the CPU. The
 * last one is there if several programs watch that.
 */
static const char *const scheduler[] = { "schedule",
					 "__schedule",
					 "schedule_timeout*",
					 "schedule_hrtimeout*",
					 "schedule_preempt_disabled",
					 "schedule_rtlock",
					 "io_schedule*",
					 "preempt_schedule*",
					 "poll_schedule_timeout*",
					 "finish_task_switch*",
					 "context_switch",
					 "__switch_to*",
					 "__traceiter_sched_switch",
					 NULL };

/* Allocation functions of the C library, C++, jemalloc, tcmalloc, mimalloc and GLib. */
static const char *const allocator[] = { "malloc",
					 "calloc",
					 "realloc",
					 "reallocarray",
					 "memalign",
					 "aligned_alloc",
					 "posix_memalign",
					 "valloc",
					 "pvalloc",
					 "__libc_malloc",
					 "__libc_calloc",
					 "__libc_realloc",
					 "__libc_memalign",
					 "_mid_memalign",
					 "_int_malloc",
					 "_int_realloc",
					 "_int_memalign",
					 "sysmalloc*",
					 "tcache_*",
					 "mmap",
					 "mmap64",
					 "__mmap",
					 "__mmap64",
					 "mremap",
					 "operator new*",
					 "__gnu_cxx::new_allocator<*",
					 "std::__new_allocator<*",
					 "std::allocator<*",
					 "std::allocator_traits<*",
					 "je_*",
					 "tc_*",
					 "mi_malloc*",
					 "mi_calloc*",
					 "mi_realloc*",
					 "g_malloc*",
					 "g_realloc*",
					 "g_try_malloc*",
					 "g_slice_alloc*",
					 NULL };

unsigned int inner_of_type(const struct stacks *s, size_t number)
{
	const char *type = s->types[number].type;

	if (!strcmp(type, "wall") && stacks_find_type(s, "off_cpu") >= s->n_types)
		return 0;
	if (!strcmp(type, "off_cpu") || !strcmp(type, "blocked") || !strcmp(type, "runnable") ||
	    !strcmp(type, "wall"))
		return INNER_SCHEDULER;
	return !strncmp(type, "alloc_", 6) || !strncmp(type, "inuse_", 6) ? INNER_ALLOCATOR : 0;
}

unsigned int inner_of_function(const char *name)
{
	return (is_among(name, scheduler) ? INNER_SCHEDULER : 0u) |
	       (is_among(name, allocator) ? INNER_ALLOCATOR : 0u);
}

int inner_functions(const struct stacks *s, size_t type, bool **out, size_t *only)
{
	const char *name = s->types[type].type;
	const unsigned int list = inner_of_type(s, type);
	bool *hidden = NULL;

	if (list) {
		hidden = calloc(s->n_functions + 1, sizeof(*hidden));
		if (!hidden)
			return -ENOMEM;
		for (size_t i = 0; i < s->n_functions; i++)
			hidden[i] = inner_of_function(s->functions[i].name) & list;
	}
	*only = !strcmp(name, "wall") ? stacks_find_type(s, "off_cpu") : type;
	if (*only >= s->n_types)
		*only = type;
	*out = hidden;
	return 0;
}
