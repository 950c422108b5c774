/* agent/live/system/feature.h: which features the kernel has, and which a test leaves unused. */
#ifndef AGENT_LIVE_SYSTEM_FEATURE_H
#define AGENT_LIVE_SYSTEM_FEATURE_H

#include <stdbool.h>

/*
 * Return whether to behave as if the kernel lacked a feature, so that the code for older kernels
 * can be tested on newer ones. The environment variable OFFWIND_WITHOUT is a comma-separated list
 * of find_vma, loop, task_storage, task_pt_regs, attach_cookie (each of these selects the plain
 * programs), mmap_build_id, procmap_query, uprobe_multi, snprintf, and ringbuf, without which
 * nothing can be recorded. reduced_btf turns off the reduced type information; see btf.h. plans: no sample has
 * slices, and the programs lack the code for them.
 */
bool live_bpf_without(const char *feature);

/* Return whether the kernel has BPF ring buffers (5.8 and newer). */
bool live_bpf_has_ring_buffers(void);
/*
 * Return whether the kernel can only run the plain programs. Asks the kernel for each helper: its
 * version number does not show what was backported.
 */
bool live_bpf_needs_fallback(void);

/*
 * Return whether this kernel stores VMAs in a tree that the plain programs can search (before 6.1).
 */
bool live_bpf_vma_tree(void);
/* As live_bpf_vma_tree, from the types in a file. path: of a file that libbpf can read. */
bool live_bpf_vma_tree_in(const char *path);

#endif
