/* agent/live/system/feature.c: asks the kernel for its features. */
#include "agent/live/system/feature.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdlib.h>
#include <string.h>

bool live_bpf_without(const char *feature)
{
	const char *list = getenv("OFFWIND_WITHOUT");
	size_t n = strlen(feature);

	while (list && *list) {
		size_t word = strcspn(list, ",");

		if (word == n && !strncmp(list, feature, n))
			return true;
		list += word + (list[word] == ',');
	}
	return false;
}

bool live_bpf_has_ring_buffers(void)
{
	return !live_bpf_without("ringbuf") &&
	       libbpf_probe_bpf_map_type(BPF_MAP_TYPE_RINGBUF, NULL) != 0;
}

bool live_bpf_needs_fallback(void)
{
	const struct {
		const char *name;
		enum bpf_func_id helper;
	} needed[] = { { "find_vma", BPF_FUNC_find_vma },
		       { "loop", BPF_FUNC_loop },
		       { "task_storage", BPF_FUNC_task_storage_get },
		       { "task_pt_regs", BPF_FUNC_task_pt_regs },
		       { "attach_cookie", BPF_FUNC_get_attach_cookie } };

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (live_bpf_without(needed[i].name) ||
		    libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, needed[i].helper, NULL) == 0)
			return true;
	return false;
}

/* Return whether a struct has a member of this name, also inside an unnamed struct or union. */
static bool has_member(const struct btf *btf, const struct btf_type *type, const char *name,
		       int depth)
{
	const struct btf_member *member = btf_members(type);

	for (int i = 0; i < btf_vlen(type); i++, member++) {
		const struct btf_type *inner = btf__type_by_id(btf, member->type);
		const char *its = btf__name_by_offset(btf, member->name_off);

		if (its && !strcmp(its, name))
			return true;
		if (its && !*its && inner && btf_is_composite(inner) && depth &&
		    has_member(btf, inner, name, depth - 1))
			return true;
	}
	return false;
}

/*
 * Return whether mm_struct has a red-black tree of VMAs (mm_rb). Takes ownership of btf; NULL: the
 * types could not be read.
 */
static bool has_vma_tree(struct btf *btf)
{
	bool has = false;
	int id;

	if (!btf)
		return false;
	id = btf__find_by_name_kind(btf, "mm_struct", BTF_KIND_STRUCT);
	if (id > 0)
		has = has_member(btf, btf__type_by_id(btf, (uint32_t)id), "mm_rb", 4);
	btf__free(btf);
	return has;
}

bool live_bpf_vma_tree(void)
{
	return has_vma_tree(btf__load_vmlinux_btf());
}

bool live_bpf_vma_tree_in(const char *path)
{
	return has_vma_tree(btf__parse(path, NULL));
}
