/*
 * tests/unit/test_compat.c: tests libunwind-offwind.so under libunwind's names: structures as in
 * libunwind's headers, and calls that have no meaning offline. tests/diff/libunwind.sh tests its
 * walks.
 */
/* Both headers declare the same names: rename ours while they are included. */
#define unw_proc_info	 ours_proc_info
#define unw_cursor	 ours_cursor
#define unw_accessors	 ours_accessors
#define unw_save_loc	 ours_save_loc
#define unw_dyn_info	 ours_dyn_info
#define unw_addr_space	 ours_addr_space
#define UNW_ESUCCESS	 OURS_ESUCCESS
#define UNW_EUNSPEC	 OURS_EUNSPEC
#define UNW_ENOMEM	 OURS_ENOMEM
#define UNW_EBADREG	 OURS_EBADREG
#define UNW_EREADONLYREG OURS_EREADONLYREG
#define UNW_ESTOPUNWIND	 OURS_ESTOPUNWIND
#define UNW_EINVALIDIP	 OURS_EINVALIDIP
#define UNW_EBADFRAME	 OURS_EBADFRAME
#define UNW_EINVAL	 OURS_EINVAL
#define UNW_EBADVERSION	 OURS_EBADVERSION
#define UNW_ENOINFO	 OURS_ENOINFO
#include "compat/abi.h"
#undef unw_proc_info
#undef unw_cursor
#undef unw_accessors
#undef unw_save_loc
#undef unw_dyn_info
#undef unw_addr_space
#undef UNW_ESUCCESS
#undef UNW_EUNSPEC
#undef UNW_ENOMEM
#undef UNW_EBADREG
#undef UNW_EREADONLYREG
#undef UNW_ESTOPUNWIND
#undef UNW_EINVALIDIP
#undef UNW_EBADFRAME
#undef UNW_EINVAL
#undef UNW_EBADVERSION
#undef UNW_ENOINFO

#include <dlfcn.h>
#include <endian.h>
#include <libunwind.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

#define SAME(ours, theirs, member)                                                         \
	CHECK(offsetof(struct ours, member) == offsetof(theirs, member) &&                 \
		      sizeof(((struct ours *)0)->member) == sizeof(((theirs *)0)->member), \
	      #theirs "." #member)

static void test_structures_are_libunwinds(void)
{
	CHECK(sizeof(struct ours_proc_info) == sizeof(unw_proc_info_t), "proc info");
	SAME(ours_proc_info, unw_proc_info_t, start_ip);
	SAME(ours_proc_info, unw_proc_info_t, end_ip);
	SAME(ours_proc_info, unw_proc_info_t, lsda);
	SAME(ours_proc_info, unw_proc_info_t, handler);
	SAME(ours_proc_info, unw_proc_info_t, gp);
	SAME(ours_proc_info, unw_proc_info_t, flags);
	SAME(ours_proc_info, unw_proc_info_t, format);
	SAME(ours_proc_info, unw_proc_info_t, unwind_info_size);
	SAME(ours_proc_info, unw_proc_info_t, unwind_info);
	CHECK(sizeof(struct ours_cursor) == sizeof(unw_cursor_t), "cursor");
	CHECK(sizeof(struct ours_accessors) == sizeof(unw_accessors_t), "accessors");
	SAME(ours_accessors, unw_accessors_t, find_proc_info);
	SAME(ours_accessors, unw_accessors_t, put_unwind_info);
	SAME(ours_accessors, unw_accessors_t, get_dyn_info_list_addr);
	SAME(ours_accessors, unw_accessors_t, access_mem);
	SAME(ours_accessors, unw_accessors_t, access_reg);
	SAME(ours_accessors, unw_accessors_t, access_fpreg);
	SAME(ours_accessors, unw_accessors_t, resume);
	SAME(ours_accessors, unw_accessors_t, get_proc_name);
	CHECK(sizeof(struct ours_save_loc) == sizeof(unw_save_loc_t), "save location");
	SAME(ours_save_loc, unw_save_loc_t, type);
	SAME(ours_save_loc, unw_save_loc_t, u);
	CHECK(sizeof(struct ours_dyn_info) == sizeof(unw_dyn_info_t), "dyn info");
	SAME(ours_dyn_info, unw_dyn_info_t, start_ip);
	SAME(ours_dyn_info, unw_dyn_info_t, format);
	CHECK(offsetof(struct ours_dyn_info, table) == offsetof(unw_dyn_info_t, u) &&
		      offsetof(struct ours_dyn_info, table.table_data) ==
			      offsetof(unw_dyn_info_t, u.rti.table_data) &&
		      offsetof(struct ours_dyn_info, table.segbase) ==
			      offsetof(unw_dyn_info_t, u.ti.segbase),
	      "tables");
	CHECK((int)OURS_ENOMEM == UNW_ENOMEM && (int)OURS_EREADONLYREG == UNW_EREADONLYREG &&
		      (int)OURS_ESTOPUNWIND == UNW_ESTOPUNWIND && (int)OURS_EINVAL == UNW_EINVAL &&
		      (int)OURS_EBADFRAME == UNW_EBADFRAME && (int)OURS_ENOINFO == UNW_ENOINFO &&
		      (int)UNW_FORMAT_TABLE == UNW_INFO_FORMAT_TABLE &&
		      (int)UNW_FORMAT_IP_OFFSET == UNW_INFO_FORMAT_IP_OFFSET,
	      "codes");
}

#ifdef __x86_64__

static void *library;

static void *function(const char *name)
{
	void *found = dlsym(library, name);

	CHECK(found != NULL, name);
	if (!found)
		exit(check_done());
	return found;
}

static unsigned int reads;

static int access_reg(unw_addr_space_t as, unw_regnum_t reg, unw_word_t *value, int write,
		      void *arg)
{
	(void)as;
	(void)arg;
	reads++;
	*value = 0x1000 + (unw_word_t)reg;
	return write || reg == 3 ? -UNW_EBADREG : 0;
}

static int access_mem(unw_addr_space_t as, unw_word_t addr, unw_word_t *value, int write, void *arg)
{
	(void)as;
	(void)addr;
	(void)value;
	(void)write;
	(void)arg;
	return -UNW_EINVAL;
}

static int find_proc_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *info, int need,
			  void *arg)
{
	(void)as;
	(void)ip;
	(void)info;
	(void)need;
	return *(int *)arg;
}

static void test_what_means_nothing_offline(void)
{
	unw_accessors_t accessors = { .find_proc_info = find_proc_info,
				      .access_mem = access_mem,
				      .access_reg = access_reg };
	unw_addr_space_t (*create)(unw_accessors_t *, int) =
		(unw_addr_space_t(*)(unw_accessors_t *, int))function("_Ux86_64_create_addr_space");
	unw_accessors_t *(*get)(unw_addr_space_t) =
		(unw_accessors_t * (*)(unw_addr_space_t)) function("_Ux86_64_get_accessors");
	void (*destroy)(unw_addr_space_t) =
		(void (*)(unw_addr_space_t))function("_Ux86_64_destroy_addr_space");
	int (*init)(unw_cursor_t *, unw_addr_space_t, void *) =
		(int (*)(unw_cursor_t *, unw_addr_space_t, void *))function("_Ux86_64_init_remote");
	int (*step)(unw_cursor_t *) = (int (*)(unw_cursor_t *))function("_Ux86_64_step");
	int (*resume)(unw_cursor_t *) = (int (*)(unw_cursor_t *))function("_Ux86_64_resume");
	int (*get_reg)(unw_cursor_t *, int, unw_word_t *) =
		(int (*)(unw_cursor_t *, int, unw_word_t *))function("_Ux86_64_get_reg");
	int (*set_reg)(unw_cursor_t *, int, unw_word_t) =
		(int (*)(unw_cursor_t *, int, unw_word_t))function("_Ux86_64_set_reg");
	int (*get_fpreg)(unw_cursor_t *, int, unw_fpreg_t *) =
		(int (*)(unw_cursor_t *, int, unw_fpreg_t *))function("_Ux86_64_get_fpreg");
	int (*set_fpreg)(unw_cursor_t *, int, unw_fpreg_t) =
		(int (*)(unw_cursor_t *, int, unw_fpreg_t))function("_Ux86_64_set_fpreg");
	int (*is_fpreg)(int) = (int (*)(int))function("_Ux86_64_is_fpreg");
	unw_addr_space_t as = create(&accessors, 0);
	unw_cursor_t cursor, foreign;
	unw_fpreg_t fp = 0;
	unw_word_t value = 0;
	int answer = -UNW_ESTOPUNWIND;

	CHECK(create(&accessors, BIG_ENDIAN) == NULL, "big-endian");
	CHECK(as && get(as) != &accessors && get(as)->access_mem == access_mem,
	      "accessors are copied");
	CHECK(init(&cursor, as, &answer) == 0 && reads == 17, "every register is read once");
	CHECK(get_reg(&cursor, 16, &value) == 0 && value == 0x1010, "rip");
	CHECK(get_reg(&cursor, 17, &value) == 0 && value == 0x1007, "its CFA is rsp");
	CHECK(get_reg(&cursor, 3, &value) == -UNW_EBADREG &&
		      get_reg(&cursor, 99, &value) == -UNW_EBADREG &&
		      get_reg(&cursor, -1, &value) == -UNW_EBADREG,
	      "not known, and none");
	CHECK(set_reg(&cursor, 6, 5) == 0 && get_reg(&cursor, 6, &value) == 0 && value == 5, "set");
	CHECK(set_reg(&cursor, 7, 5) == -UNW_EREADONLYREG, "rsp is for reading");
	CHECK(get_fpreg(&cursor, 17, &fp) == -UNW_EBADREG &&
		      set_fpreg(&cursor, 17, fp) == -UNW_EBADREG && is_fpreg(17) == 0,
	      "no floating-point registers");
	CHECK(resume(&cursor) == -UNW_EINVAL, "nothing goes on");
	CHECK(step(&cursor) == 0, "find_proc_info says that this is all");
	answer = -UNW_EBADVERSION;
	CHECK(step(&cursor) == -UNW_EBADVERSION, "or why not");
	answer = -UNW_ENOINFO;
	CHECK(step(&cursor) == -UNW_ENOINFO, "nobody knows");
	memset(&foreign, 0, sizeof(foreign));
	CHECK(step(&foreign) == -UNW_EINVAL, "a cursor of local unwinding");
	destroy(as);
}

/* Two numbers of libunwind stand for other registers here: those are read, set and located. */
static void test_a_register_is_located_as_it_is_read(void)
{
	unw_accessors_t accessors = { .access_mem = access_mem, .access_reg = access_reg };

	for (int arm = 0; arm < 2; arm++) {
#define NAMED(name) function(arm ? "_Uaarch64_" name : "_Ux86_64_" name)
		unw_addr_space_t (*create)(unw_accessors_t *, int) =
			(unw_addr_space_t(*)(unw_accessors_t *, int))NAMED("create_addr_space");
		void (*destroy)(unw_addr_space_t) =
			(void (*)(unw_addr_space_t))NAMED("destroy_addr_space");
		int (*init)(unw_cursor_t *, unw_addr_space_t, void *) =
			(int (*)(unw_cursor_t *, unw_addr_space_t, void *))NAMED("init_remote");
		int (*get_reg)(unw_cursor_t *, int, unw_word_t *) =
			(int (*)(unw_cursor_t *, int, unw_word_t *))NAMED("get_reg");
		int (*set_reg)(unw_cursor_t *, int, unw_word_t) =
			(int (*)(unw_cursor_t *, int, unw_word_t))NAMED("set_reg");
		int (*locate)(unw_cursor_t *, int, unw_save_loc_t *) =
			(int (*)(unw_cursor_t *, int, unw_save_loc_t *))NAMED("get_save_loc");
#undef NAMED
		unw_addr_space_t as = create(&accessors, 0);
		/* x30 is UNW_REG_IP; the number after rip is the CFA. */
		int reg = arm ? 30 : 17, same = arm ? 32 : 7;
		unw_save_loc_t loc = { .type = UNW_SLT_NONE };
		unw_cursor_t cursor;
		unw_word_t value = 0;

		CHECK(init(&cursor, as, NULL) == 0 && get_reg(&cursor, reg, &value) == 0 &&
			      value == 0x1000 + (unw_word_t)same,
		      "its value is another register's");
		CHECK(locate(&cursor, reg, &loc) == 0 && loc.type == UNW_SLT_REG &&
			      loc.u.regnum == same,
		      "and so is its place");
		if (arm)
			CHECK(set_reg(&cursor, reg, 5) == 0 && locate(&cursor, reg, &loc) == 0 &&
				      loc.type == UNW_SLT_NONE,
			      "a value that was set is saved nowhere");
		CHECK(locate(&cursor, 99, &loc) == -UNW_EBADREG &&
			      locate(&cursor, -1, &loc) == -UNW_EBADREG,
		      "no register");
		destroy(as);
	}
}

static void test_names_are_libunwinds(void)
{
	const char *(*strerror_of)(int) = (const char *(*)(int))function("_Ux86_64_strerror");
	const char *(*regname_of)(int) = (const char *(*)(int))function("_Ux86_64_regname");
	const char *(*arm_regname)(int) = (const char *(*)(int))function("_Uaarch64_regname");

	/* The values of Debian's library (1.6.2). */
	CHECK(!strcmp(regname_of(0), "RAX") && !strcmp(regname_of(UNW_REG_IP), "RIP") &&
		      !strcmp(regname_of(-1), "???"),
	      "registers");
	CHECK(!strcmp(arm_regname(30), "lr") && !strcmp(arm_regname(99), "???"), "of aarch64");
	CHECK(!strcmp(strerror_of(-UNW_ENOINFO), "no unwind info found") &&
		      !strcmp(strerror_of(0), "no error") &&
		      !strcmp(strerror_of(-99), "invalid error code"),
	      "errors");
}

#endif

int main(void)
{
	test_structures_are_libunwinds();
#ifdef __x86_64__
	const char *build = getenv("BUILD");
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/libunwind-offwind.so", build ? build : "build");
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	CHECK(library != NULL, path);
	if (library) {
		test_what_means_nothing_offline();
		test_a_register_is_located_as_it_is_read();
		test_names_are_libunwinds();
		(void)dlclose(library);
	}
#endif
	return check_done();
}
