/*
 * generator/register.c: the list of generated code that offwind/dynamic.h describes.
 *
 * Other processes read the list while it changes. A new entry is complete before the list begins
 * with it, and the generation is written last.
 */
#include "generator/dynamic.h"

#include <pthread.h>

#pragma GCC visibility push(default)

unw_dyn_info_list_t _U_dyn_info_list = { .version = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Increment the generation after the list was changed. */
static void changed(void)
{
	__atomic_store_n(&_U_dyn_info_list.generation, _U_dyn_info_list.generation + 1,
			 __ATOMIC_RELEASE);
}

/*
 * Insert the entry at the front: a reader that runs at the same time sees the old list or the new
 * one.
 */
void _U_dyn_register(unw_dyn_info_t *info)
{
	(void)pthread_mutex_lock(&lock);
	info->prev = NULL;
	info->next = _U_dyn_info_list.first;
	if (info->next)
		info->next->prev = info;
	__atomic_store_n(&_U_dyn_info_list.first, info, __ATOMIC_RELEASE);
	changed();
	(void)pthread_mutex_unlock(&lock);
}

/*
 * Remove the entry. A reader that runs at the same time may still be at the entry; it detects the
 * change by the generation.
 */
void _U_dyn_cancel(unw_dyn_info_t *info)
{
	(void)pthread_mutex_lock(&lock);
	if (info->prev)
		info->prev->next = info->next;
	else
		__atomic_store_n(&_U_dyn_info_list.first, info->next, __ATOMIC_RELEASE);
	if (info->next)
		info->next->prev = info->prev;
	info->next = info->prev = NULL;
	changed();
	(void)pthread_mutex_unlock(&lock);
}

unw_word_t _U_dyn_info_list_addr(void)
{
	return (uintptr_t)&_U_dyn_info_list;
}
