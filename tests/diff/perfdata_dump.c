/*
 * tests/diff/perfdata_dump.c: prints the events of a perf.data file, one per line, for comparison
 * with perf script.
 *   usage: perfdata_dump FILE|-        exit: 0 all, 3 a part (the reason is on stderr), 1 nothing
 *          perfdata_dump --info FILE|-
 */
#include "agent/source/source.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static void print_hex(const char *before, const uint8_t *bytes, size_t size)
{
	(void)fputs(before, stdout);
	for (size_t i = 0; i < size; i++)
		(void)printf("%02x", bytes[i]);
}

static void print_mapping(const struct event_mapping *m)
{
	(void)printf(" %" PRIx64 "-%" PRIx64 " off %" PRIx64 " prot %u dev %x:%x ino %" PRIu64
		     " %" PRIu64 "%s",
		     m->start, m->end, m->off, m->prot, m->major, m->minor, m->inode,
		     m->inode_generation, m->deleted ? " deleted" : "");
	print_hex(" id ", m->build_id.bytes, m->build_id.size);
	(void)printf(" %s\n", m->path);
}

static void print_sample(const struct source *source, const struct event_sample *s)
{
	(void)printf(" %s cpu %u period %" PRIu64 "%s%s%s",
		     s->event < source->info.n_events ? source->info.events[s->event].name : "?",
		     s->cpu, s->period, s->has_user_regs ? " user" : "", s->compat ? " compat" : "",
		     s->stack_cut ? " cut" : "");
	for (unsigned int i = 0; i < UW_REGS_MAX; i++)
		if (s->regs.known >> i & 1)
			(void)printf(" r%u=%" PRIx64, i, s->regs.value[i]);
	for (uint32_t i = 0; i < s->n_regions; i++) {
		(void)printf(" stack %" PRIx64 "+%" PRIu64 " crc %lx", s->regions[i].addr,
			     s->regions[i].size,
			     crc32(0, s->regions[i].bytes, (uInt)s->regions[i].size));
	}
	if (s->n_kernel_ips)
		(void)printf(" kernel");
	for (uint32_t i = 0; i < s->n_kernel_ips; i++)
		(void)printf(" %" PRIx64, s->kernel_ips[i]);
	(void)printf("\n");
}

static void print_event(const struct source *source, const struct event *e)
{
	static const char *const names[] = {
		[EVENT_MAPPING] = "mapping", [EVENT_EXEC] = "exec",
		[EVENT_FORK] = "fork",	     [EVENT_EXIT] = "exit",
		[EVENT_COMM] = "comm",	     [EVENT_SAMPLE] = "sample",
		[EVENT_CGROUP] = "cgroup",   [EVENT_FREED] = "freed",
		[EVENT_LOST] = "lost",	     [EVENT_GENERATED] = "generated",
		[EVENT_MEMORY] = "memory",   [EVENT_CHANGED] = "changed",
		[EVENT_WAKER] = "waker",
	};

	(void)printf("%s %d/%d %" PRIu64, names[e->type], (int)e->pid, (int)e->tid, e->time_ns);
	switch (e->type) {
	case EVENT_MAPPING:
		print_mapping(&e->mapping);
		break;
	case EVENT_FORK:
		(void)printf(" from %d/%d\n", (int)e->fork.parent_pid, (int)e->fork.parent_tid);
		break;
	case EVENT_COMM:
		(void)printf(" %s\n", e->comm.comm);
		break;
	case EVENT_SAMPLE:
		print_sample(source, &e->sample);
		break;
	case EVENT_LOST:
		(void)printf(" reason %d samples %" PRIu64 " sideband %" PRIu64 "\n",
			     e->lost.reason, e->lost.n_samples, e->lost.n_sideband);
		break;
	default:
		(void)printf("\n");
	}
}

static void print_info(const struct source_info *info)
{
	(void)printf("machine %u kind %s host %s kernel %s recorder %s\n", info->machine,
		     info->kind, info->host, info->kernel, info->recorder);
	(void)printf("wall %" PRIu64 " first %" PRIu64 " text %" PRIx64 " same boot %d",
		     info->wall_start_ns, info->wall_first_ns, info->kernel_text, info->same_boot);
	print_hex(" kernel id ", info->kernel_build_id.bytes, info->kernel_build_id.size);
	(void)printf("\n");
	for (size_t i = 0; i < info->n_events; i++)
		(void)printf("event %s type %s unit %s period %" PRIu64 " frequency %" PRIu64 "\n",
			     info->events[i].name, info->events[i].type, info->events[i].unit,
			     info->events[i].period, info->events[i].frequency_hz);
}

int main(int argc, char **argv)
{
	bool only_info = argc == 3 && !strcmp(argv[1], "--info");
	const char *path = argv[argc - 1];
	char error[512] = "";
	struct source *source;
	struct event event;
	int fd, rc;

	if (argc != 2 + only_info)
		return 2;
	fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	if (fd < 0) {
		perror(path);
		return 1;
	}
	if (source_perfdata_open(fd, path, &source, error)) {
		(void)fprintf(stderr, "%s\n", error);
		return 1;
	}
	while ((rc = source_next(source, &event, -1)) == 1)
		if (!only_info)
			print_event(source, &event);
	if (only_info)
		print_info(&source->info);
	if (rc)
		(void)fprintf(stderr, "%s\n", source->error);
	source_close(source);
	return rc ? 3 : 0;
}
