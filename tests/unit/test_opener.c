/* tests/unit/test_opener.c: tests which file is opened for a mapping, and with whose rights. */
#include "agent/opener/opener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

static char dir[] = "/tmp/opener.XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(in_dir(name), "w");

	CHECK(f && fputs(text, f) >= 0 && !fclose(f), "fixture");
}

static char first_byte(const struct opener_options *options, const struct opener_file *file,
		       int *err)
{
	struct opener *opener = NULL;
	unsigned int next = 0;
	char c = 0;
	int fd = -1;

	CHECK(!opener_new(options, &opener), "opener_new");
	*err = opener_open(opener, file, &next, &fd);
	if (!*err) {
		CHECK(read(fd, &c, 1) == 1, "readable");
		CHECK(!close(fd), "owned");
	}
	opener_free(opener);
	return c;
}

static void test_only_regular_files_are_opened(void)
{
	struct opener_options options = { 0 };
	struct opener_file file = { .path = "/dev/zero" };
	int err;

	first_byte(&options, &file, &err);
	CHECK(err == -EINVAL, "a device");
	CHECK(!mkfifo(in_dir("fifo"), 0600), "mkfifo");
	file.path = in_dir("fifo");
	first_byte(&options, &file, &err); /* would block for ever */
	CHECK(err == -EINVAL, "a pipe");
	file.path = in_dir("absent");
	first_byte(&options, &file, &err);
	CHECK(err == -ENOENT, "nothing there");
	file.path = "relative";
	first_byte(&options, &file, &err);
	CHECK(err == -ENOENT, "relative names mean nothing");
}

static void test_symfs_is_a_root_of_its_own(void)
{
	struct opener_options options = { .symfs = dir };
	struct opener_file file = { .path = "/file" };
	int err;

	put("file", "s");
	CHECK(first_byte(&options, &file, &err) == 's', "found below symfs");
	CHECK(!symlink("/file", in_dir("absolute")), "symlink");
	file.path = "/absolute";
	CHECK(first_byte(&options, &file, &err) == 's', "an absolute link starts at symfs");
	CHECK(!symlink("../../../../etc/passwd", in_dir("out")), "symlink");
	file.path = "/out";
	first_byte(&options, &file, &err);
	CHECK(err == -ENOENT, "no link leads out of symfs");
	file.path = "/usr/lib/file";
	CHECK(first_byte(&options, &file, &err) == 's', "by its name, if it is not at its place");
	file.deleted = true;
	first_byte(&options, &file, &err);
	CHECK(err == -ENOENT, "another one has the name of a file that was deleted");
}

/* A recording can have it; in memory of its own, so that a sanitizer sees what is read behind it. */
static void test_a_file_without_a_name_is_not_found_below_symfs(void)
{
	struct opener_options options = { .symfs = dir };
	char *empty = strdup("");
	struct opener_file file = { .path = empty };
	int err;

	CHECK(empty, "memory");
	first_byte(&options, &file, &err);
	CHECK(err, "no file");
	free(empty);
}

static void test_symfs_is_searched_for_what_a_build_id_proves(void)
{
	struct opener_options options = { .symfs = dir };
	struct opener_file file = { .path = "/lib/elsewhere/libx.so" };
	int err;

	CHECK(!mkdir(in_dir("deep"), 0700) && !mkdir(in_dir("deep/er"), 0700), "mkdir");
	put("deep/er/libx.so", "d");
	first_byte(&options, &file, &err);
	CHECK(err == -ENOENT, "a name alone proves nothing that lies elsewhere");
	file.build_id = (struct uw_build_id){ .size = 3, .bytes = { 0xab, 0xcd, 0xef } };
	CHECK(first_byte(&options, &file, &err) == 'd', "by its base name, anywhere");
	CHECK(!mkdir(in_dir(".build-id"), 0700) && !mkdir(in_dir(".build-id/ab"), 0700), "mkdir");
	put(".build-id/ab/cdef", "i");
	CHECK(first_byte(&options, &file, &err) == 'i', "by build-id");
	CHECK(!unlink(in_dir(".build-id/ab/cdef")) && !rmdir(in_dir(".build-id/ab")) &&
		      !rmdir(in_dir(".build-id")) && !unlink(in_dir("deep/er/libx.so")) &&
		      !rmdir(in_dir("deep/er")) && !rmdir(in_dir("deep")),
	      "clean");
	file.path = "/etc/passwd";
	CHECK(first_byte(&options, &file, &err) && !err, "the host's file, to be compared");
	file.build_id.size = 0;
	first_byte(&options, &file, &err);
	CHECK(err == -ENOENT, "not without a build-id");
}

static void test_a_file_newer_than_the_recording_is_stale(void)
{
	struct opener_options options = { .until_ns = (uint64_t)(time(NULL) - 100) * 1000000000 };
	struct opener_file file = { .path = in_dir("file") };
	int err;

	put("file", "n");
	file.path = in_dir("file");
	first_byte(&options, &file, &err);
	CHECK(err == -ESTALE, "changed after the recording ended");
	file.build_id.size = 20;
	CHECK(first_byte(&options, &file, &err) == 'n', "a build-id decides better than a clock");
}

static void test_a_deleted_file_is_found_through_the_process(void)
{
	struct opener_options options = { .live = true };
	struct opener_file file = { .path = in_dir("gone"), .pid = (uint32_t)getpid() };
	char line[512], path[256] = "";
	FILE *maps = fopen("/proc/self/maps", "r");
	int err;

	/*
	 * The mapping is marked as deleted, so that no name helps: only /proc/PID/map_files is
	 * left.
	 */
	CHECK(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0, "own name");
	while (maps && fgets(line, sizeof(line), maps) && !strstr(line, path))
		;
	CHECK(maps && sscanf(line, "%lx-%lx", &file.start, &file.end) == 2, "own first mapping");
	(void)fclose(maps);
	file.deleted = true;
	CHECK(first_byte(&options, &file, &err) == 0x7f, "an ELF file begins with 0x7f");
}

/* The process is gone and the path leads nowhere here, as in a container. */
static void test_a_file_is_found_by_its_inode(void)
{
	struct opener_options options = { .live = true };
	struct opener_file file = { .path = "/no/such/path" };
	struct stat st;
	long generation = 0;
	int err, fd;

	put("inode", "i");
	fd = open(in_dir("inode"), O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && !fstat(fd, &st), "fixture");
	file.major = major(st.st_dev);
	file.minor = minor(st.st_dev);
	file.inode = st.st_ino;
	/* Only root may do this, and not every file system has generation numbers. */
	if (!geteuid() && !ioctl(fd, FS_IOC_GETVERSION, &generation) && generation) {
		file.inode_generation = (uint32_t)generation;
		CHECK(first_byte(&options, &file, &err) == 'i', "by inode and generation");
		file.inode_generation ^= 1;
		CHECK(!first_byte(&options, &file, &err) && err == -ENOENT,
		      "a later file of that inode is another one");
		file.inode_generation ^= 1;
		options.live = false;
		CHECK(!first_byte(&options, &file, &err), "a recording's inodes are no handles");
	}
	CHECK(!close(fd) && !unlink(in_dir("inode")), "clean");
}

/* A file that is found by its name is opened with the rights of the process's user. */
static void test_names_lead_to_what_the_user_may_read(void)
{
	struct opener_options options = { .live = true };
	struct opener_user user = { .known = true, .uid = 4242, .gid = 4242 };
	struct opener_file file = { .user = &user };
	struct stat st;
	int err;

	if (geteuid())
		return;
	put("private", "p");
	file.path = in_dir("private");
	CHECK(!chmod(dir, 0755) && !chmod(file.path, 0600), "root's alone");
	CHECK(!first_byte(&options, &file, &err) && err == -EACCES, "a user may not read it");
	user.known = false;
	CHECK(!first_byte(&options, &file, &err) && err == -EACCES, "nor may an unknown one");
	user = (struct opener_user){ .known = true, .reads_all = true };
	CHECK(first_byte(&options, &file, &err) == 'p', "root may");
	user.reads_all = false;
	CHECK(first_byte(&options, &file, &err) == 'p', "and its owner");
	CHECK(!chown(file.path, 0, 77) && !chmod(file.path, 0640), "of a group");
	user = (struct opener_user){ .known = true, .uid = 4242, .gid = 4242 };
	CHECK(!first_byte(&options, &file, &err) && err == -EACCES, "for others");
	user.groups[user.n_groups++] = 77;
	CHECK(first_byte(&options, &file, &err) == 'p', "for its members");
	CHECK(!chmod(dir, 0700), "in a directory that is root's alone");
	CHECK(!first_byte(&options, &file, &err) && err == -EACCES, "it is out of reach");
	CHECK(!stat(file.path, &st), "fixture");
	file.major = major(st.st_dev);
	file.minor = minor(st.st_dev);
	file.inode = st.st_ino;
	CHECK(first_byte(&options, &file, &err) == 'p', "unless it is what the kernel mapped");
	file.named = true;
	CHECK(!first_byte(&options, &file, &err) && err == -EACCES, "and not sought for its name");
	file.named = false;
	file.inode++;
	CHECK(!first_byte(&options, &file, &err) && err == -EACCES, "another file is not");
	options.live = false;
	CHECK(first_byte(&options, &file, &err) == 'p',
	      "a recording is read with one's own rights");
	options.live = true;
	file.compared = true;
	CHECK(first_byte(&options, &file, &err) == 'p', "which have come back each time");
	CHECK(!unlink(in_dir("private")), "clean");
}

/* In a process of its own, which gets no right back. */
static int without_setgid(const struct opener_options *options, const struct opener_file *file)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
	int err = -EINVAL;

	if (setgroups(1, &(gid_t){ 77 }) || syscall(SYS_capget, &header, caps))
		return err;
	caps[0].effective &= ~(1u << CAP_SETGID);
	caps[0].permitted &= ~(1u << CAP_SETGID);
	if (!syscall(SYS_capset, &header, caps))
		(void)first_byte(options, file, &err);
	return err;
}

static void test_own_groups_do_not_help_another_user(void)
{
	const struct opener_options options = { .live = true };
	const struct opener_user user = { .known = true, .uid = 4242, .gid = 4242 };
	const struct opener_file file = { .path = in_dir("private"), .user = &user, .named = true };
	int status = 0;
	pid_t child;

	if (geteuid())
		return;
	put("private", "p");
	CHECK(!chmod(dir, 0755) && !chown(file.path, 0, 77) && !chmod(file.path, 0640), "fixture");
	child = fork();
	if (!child)
		_exit(without_setgid(&options, &file) != -EACCES);
	CHECK(waitpid(child, &status, 0) == child && !status,
	      "a user whose groups cannot be taken reads what everybody may read");
	CHECK(!unlink(in_dir("private")), "clean");
}

int main(void)
{
	CHECK(mkdtemp(dir) != NULL, "temporary folder");
	test_only_regular_files_are_opened();
	test_symfs_is_a_root_of_its_own();
	test_a_file_without_a_name_is_not_found_below_symfs();
	test_symfs_is_searched_for_what_a_build_id_proves();
	test_a_file_newer_than_the_recording_is_stale();
	test_a_deleted_file_is_found_through_the_process();
	test_a_file_is_found_by_its_inode();
	test_names_lead_to_what_the_user_may_read();
	test_own_groups_do_not_help_another_user();
	for (const char *const *name =
		     (const char *const[]){ "file", "fifo", "absolute", "out", NULL };
	     *name; name++)
		(void)unlink(in_dir(*name));
	CHECK(!rmdir(dir), "clean");
	return check_done();
}
