/* agent/live/bpf/multi.c: uprobe-multi links, by the system call bpf(2). */
#include "agent/live/bpf/multi.h"

#include <errno.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RETURNS 1u /* BPF_F_UPROBE_MULTI_RETURN */

/* The part of union bpf_attr in <linux/bpf.h> of 6.6 for link_create with uprobe_multi. */
struct link_create {
	uint32_t program, target, type, flags;
	uint64_t path, offs, counters, cookies;
	uint32_t n, multi_flags, pid, zero;
};

_Static_assert(sizeof(struct link_create) == 64, "as the kernel has it");

int live_multi_attach(int program, uint32_t pid, const char *path, const uint64_t *offs,
		      const uint64_t *cookies, size_t n, bool returns)
{
	const struct link_create attr = { .program = (uint32_t)program,
					  .type = LIVE_MULTI_ATTACH_TYPE,
					  .path = (uintptr_t)path,
					  .offs = (uintptr_t)offs,
					  .cookies = (uintptr_t)cookies,
					  .n = (uint32_t)n,
					  .multi_flags = returns ? RETURNS : 0,
					  .pid = pid };
	long fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : (int)fd;
}

/*
 * Try it out with a program that does nothing: the kernel's version number does not show what was
 * backported.
 */
bool live_multi_supported(void)
{
	/* r0 = 0; exit */
	const struct bpf_insn code[] = { { .code = BPF_ALU64 | BPF_MOV | BPF_K },
					 { .code = BPF_JMP | BPF_EXIT } };
	union bpf_attr attr;
	const uint64_t off = 0;
	long program;
	int err, pid_err;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_KPROBE;
	attr.expected_attach_type = LIVE_MULTI_ATTACH_TYPE;
	attr.insns = (uintptr_t)code;
	attr.insn_cnt = sizeof(code) / sizeof(code[0]);
	attr.license = (uintptr_t) "GPL";
	program = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
	if (program < 0)
		return false;
	/* The root directory is no regular file, which only a kernel with such links finds out. */
	err = live_multi_attach((int)program, 0, "/", &off, NULL, 1, false);
	/*
	 * The first kernels with such links took the pid for a tid, and did not see the other
	 * threads of the process. Kernels with the fix refuse a negative pid before they look at
	 * the file.
	 */
	pid_err = live_multi_attach((int)program, UINT32_MAX, "/", &off, NULL, 1, false);
	(void)close((int)program);
	if (err >= 0)
		(void)close(err);
	if (pid_err >= 0)
		(void)close(pid_err);
	return err == -EBADF && pid_err == -EINVAL;
}
