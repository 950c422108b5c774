/*
 * compat/common.c: the accessors that are the same for traced processes (_UPT_) and for core files
 * (_UCD_): neither gives floating-point registers, and neither can be resumed.
 */
#include "compat/abi.h"

#define BOTH(name)                                                                  \
	extern __typeof__(u_##name) _UPT_##name __attribute__((alias("u_" #name))); \
	extern __typeof__(u_##name) _UCD_##name __attribute__((alias("u_" #name)))

static void u_put_unwind_info(unw_as as, struct unw_proc_info *info, void *arg)
{
	(void)as;
	(void)arg;
	compat_release(info);
}
BOTH(put_unwind_info);

/* The list is found by its symbol. Programs that need it look the symbol up themselves. */
static int u_get_dyn_info_list_addr(unw_as as, unw_word *addr, void *arg)
{
	(void)as;
	(void)arg;
	*addr = 0;
	return -UNW_ENOINFO;
}
BOTH(get_dyn_info_list_addr);

/* Floating-point registers are not supported. */
static int u_access_fpreg(unw_as as, int reg, void *value, int write, void *arg)
{
	(void)as;
	(void)reg;
	(void)value;
	(void)write;
	(void)arg;
	return -UNW_EBADREG;
}
BOTH(access_fpreg);

/* Resuming a thread at a frame would have to write registers; a core file cannot be resumed. */
static int u_resume(unw_as as, struct unw_cursor *cursor, void *arg)
{
	(void)as;
	(void)cursor;
	(void)arg;
	return -UNW_EINVAL;
}
BOTH(resume);
