/*
 * tests/faults/inject/inject.c: makes one call of the program fail. The program is linked with
 * --wrap for the functions below, which are those that allocate memory and those of input and
 * output.
 *
 * A site is a call as it was reached: the function that is called and the return addresses of the
 * calling functions. With INJECT_LIST=FILE, each new site is appended to FILE: its number, the
 * function, and the addresses. With INJECT_SITE=NUMBER, the first call of this site fails, and
 * INJECT_MARK=FILE is then created. INJECT_DEPTH: how many addresses make a site.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <unwind.h>

#define SITES_MAX 65536u
#define DEPTH_MAX 16u

extern const char __executable_start[];

static struct {
	bool ready;
	unsigned int depth;
	int list;
	uint64_t site;
	const char *mark;
	atomic_bool done;
	pthread_mutex_t lock;
	uint64_t seen[SITES_MAX];
} state = { .list = -1, .lock = PTHREAD_MUTEX_INITIALIZER };

/* system calls of our own, which nothing wraps */
static int raw_open(const char *path)
{
	long fd;

	__asm__ volatile("syscall"
			 : "=a"(fd)
			 : "a"((long)SYS_openat), "D"((long)AT_FDCWD), "S"(path),
			   "d"((long)(O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC)), "r"(0)
			 : "rcx", "r11", "memory");
	return (int)fd;
}

static void raw_write(int fd, const char *text, size_t n)
{
	long wrote;

	__asm__ volatile("syscall"
			 : "=a"(wrote)
			 : "a"((long)SYS_write), "D"((long)fd), "S"(text), "d"(n)
			 : "rcx", "r11", "memory");
	(void)wrote;
}

static void set_up(void)
{
	const char *list = getenv("INJECT_LIST"), *site = getenv("INJECT_SITE");
	const char *depth = getenv("INJECT_DEPTH");

	state.ready = true;
	state.depth = depth ? (unsigned int)strtoul(depth, NULL, 10) : 4;
	if (state.depth > DEPTH_MAX)
		state.depth = DEPTH_MAX;
	state.mark = getenv("INJECT_MARK");
	state.site = site ? strtoull(site, NULL, 16) : 0;
	if (list)
		state.list = raw_open(list);
}

struct chain {
	uintptr_t pcs[DEPTH_MAX + 2];
	unsigned int n, most;
};

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *ctx)
{
	struct chain *chain = ctx;

	chain->pcs[chain->n++] = _Unwind_GetIP(context) - (uintptr_t)__executable_start;
	return chain->n < chain->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* Return whether this call is to fail. */
static __attribute__((noinline)) bool fails(const char *function)
{
	struct chain chain = { .n = 0 };
	const uintptr_t *pcs = chain.pcs + 2; /* without this function and the wrapper */
	uint64_t hash = 0xcbf29ce484222325u;
	unsigned int n;
	char line[512];
	int room;

	if (!state.ready)
		set_up();
	if (state.list < 0 && (!state.site || atomic_load(&state.done)))
		return false;
	chain.most = state.depth + 2;
	(void)_Unwind_Backtrace(note_frame, &chain);
	n = chain.n > 2 ? chain.n - 2 : 0;
	/* Addresses of shared libraries differ from run to run. */
	for (unsigned int i = 0; i < n; i++)
		if (pcs[i] < (uintptr_t)1 << 30)
			hash = (hash ^ pcs[i]) * 0x100000001b3u;
	for (const char *c = function; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
	if (!hash)
		hash = 1;
	if (state.site) {
		if (hash != state.site || atomic_exchange(&state.done, true))
			return false;
		if (state.mark)
			(void)raw_open(state.mark);
		return true;
	}
	(void)pthread_mutex_lock(&state.lock);
	for (size_t i = hash % SITES_MAX;; i = (i + 1) % SITES_MAX) {
		if (state.seen[i] == hash)
			break;
		if (state.seen[i])
			continue;
		state.seen[i] = hash;
		room = snprintf(line, sizeof(line), "%016" PRIx64 " %s", hash, function);
		for (unsigned int k = 0; k < n && room < 480; k++)
			room += snprintf(line + room, sizeof(line) - (size_t)room, " %" PRIxPTR,
					 pcs[k]);
		line[room] = '\n';
		raw_write(state.list, line, (size_t)room + 1);
		break;
	}
	(void)pthread_mutex_unlock(&state.lock);
	return false;
}

/*
 * A wrapper: function, its result's type, what it returns and the errno it sets when it fails, its
 * parameters and arguments.
 */
#define WRAP(function, type, failure, code, parameters, arguments) \
	type __real_##function parameters;                         \
	type __wrap_##function parameters;                         \
	type __wrap_##function parameters                          \
	{                                                          \
		if (fails(#function)) {                            \
			errno = (code);                            \
			return failure;                            \
		}                                                  \
		return __real_##function arguments;                \
	}

WRAP(malloc, void *, NULL, ENOMEM, (size_t n), (n))
WRAP(calloc, void *, NULL, ENOMEM, (size_t n, size_t size), (n, size))
WRAP(realloc, void *, NULL, ENOMEM, (void *p, size_t n), (p, n))
WRAP(reallocarray, void *, NULL, ENOMEM, (void *p, size_t n, size_t size), (p, n, size))
WRAP(aligned_alloc, void *, NULL, ENOMEM, (size_t align, size_t n), (align, n))
WRAP(posix_memalign, int, ENOMEM, ENOMEM, (void **p, size_t align, size_t n), (p, align, n))
WRAP(strdup, char *, NULL, ENOMEM, (const char *s), (s))
WRAP(strndup, char *, NULL, ENOMEM, (const char *s, size_t n), (s, n))
WRAP(vasprintf, int, -1, ENOMEM, (char **out, const char *format, va_list ap), (out, format, ap))
WRAP(open_memstream, FILE *, NULL, ENOMEM, (char **out, size_t *size), (out, size))
WRAP(getline, ssize_t, -1, ENOMEM, (char **line, size_t *n, FILE *f), (line, n, f))
WRAP(getdelim, ssize_t, -1, ENOMEM, (char **line, size_t *n, int c, FILE *f), (line, n, c, f))
WRAP(realpath, char *, NULL, EIO, (const char *path, char *out), (path, out))
WRAP(pthread_create, int, EAGAIN, EAGAIN,
     (pthread_t * t, const pthread_attr_t *a, void *(*run)(void *), void *ctx), (t, a, run, ctx))

WRAP(read, ssize_t, -1, EIO, (int fd, void *p, size_t n), (fd, p, n))
WRAP(pread, ssize_t, -1, EIO, (int fd, void *p, size_t n, off_t off), (fd, p, n, off))
WRAP(pread64, ssize_t, -1, EIO, (int fd, void *p, size_t n, off_t off), (fd, p, n, off))
WRAP(write, ssize_t, -1, ENOSPC, (int fd, const void *p, size_t n), (fd, p, n))
WRAP(pwrite, ssize_t, -1, ENOSPC, (int fd, const void *p, size_t n, off_t off), (fd, p, n, off))
WRAP(pwrite64, ssize_t, -1, ENOSPC, (int fd, const void *p, size_t n, off_t off), (fd, p, n, off))
WRAP(fsync, int, -1, EIO, (int fd), (fd))
WRAP(fdatasync, int, -1, EIO, (int fd), (fd))
WRAP(ftruncate, int, -1, ENOSPC, (int fd, off_t n), (fd, n))
WRAP(ftruncate64, int, -1, ENOSPC, (int fd, off_t n), (fd, n))
WRAP(fstat, int, -1, EIO, (int fd, struct stat *st), (fd, st))
WRAP(stat, int, -1, EACCES, (const char *path, struct stat *st), (path, st))
WRAP(lstat, int, -1, EACCES, (const char *path, struct stat *st), (path, st))
WRAP(fstatat, int, -1, EACCES, (int fd, const char *path, struct stat *st, int flags),
     (fd, path, st, flags))
WRAP(lseek, off_t, -1, EIO, (int fd, off_t off, int whence), (fd, off, whence))
WRAP(readlink, ssize_t, -1, EACCES, (const char *path, char *out, size_t n), (path, out, n))
WRAP(readlinkat, ssize_t, -1, EACCES, (int fd, const char *path, char *out, size_t n),
     (fd, path, out, n))
WRAP(rename, int, -1, EIO, (const char *from, const char *to), (from, to))
WRAP(renameat, int, -1, EIO, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(mkdir, int, -1, EACCES, (const char *path, mode_t mode), (path, mode))
WRAP(dup, int, -1, EMFILE, (int fd), (fd))
WRAP(pipe2, int, -1, EMFILE, (int fds[2], int flags), (fds, flags))
WRAP(memfd_create, int, -1, EMFILE, (const char *name, unsigned int flags), (name, flags))
WRAP(epoll_create1, int, -1, EMFILE, (int flags), (flags))
WRAP(epoll_ctl, int, -1, ENOMEM, (int fd, int op, int of, struct epoll_event *e), (fd, op, of, e))
WRAP(mmap, void *, MAP_FAILED, ENOMEM, (void *p, size_t n, int prot, int flags, int fd, off_t off),
     (p, n, prot, flags, fd, off))
WRAP(mmap64, void *, MAP_FAILED, ENOMEM,
     (void *p, size_t n, int prot, int flags, int fd, off_t off), (p, n, prot, flags, fd, off))
WRAP(fopen, FILE *, NULL, EMFILE, (const char *path, const char *mode), (path, mode))
WRAP(fdopen, FILE *, NULL, ENOMEM, (int fd, const char *mode), (fd, mode))
WRAP(fflush, int, EOF, ENOSPC, (FILE * f), (f))
WRAP(opendir, DIR *, NULL, EMFILE, (const char *path), (path))
WRAP(fdopendir, DIR *, NULL, ENOMEM, (int fd), (fd))

WRAP(statx, int, -1, EACCES,
     (int at, const char *path, int flags, unsigned int mask, struct statx *out),
     (at, path, flags, mask, out))
WRAP(fstatfs, int, -1, EIO, (int fd, struct statfs *out), (fd, out))
WRAP(statfs, int, -1, EIO, (const char *path, struct statfs *out), (path, out))
WRAP(poll, int, -1, ENOMEM, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout))
WRAP(process_vm_readv, ssize_t, -1, EFAULT,
     (pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from, unsigned long m,
      unsigned long flags),
     (pid, to, n, from, m, flags))
WRAP(open_by_handle_at, int, -1, EMFILE, (int at, struct file_handle *h, int flags), (at, h, flags))
WRAP(link, int, -1, EIO, (const char *from, const char *to), (from, to))
WRAP(linkat, int, -1, EIO, (int a, const char *from, int b, const char *to, int flags),
     (a, from, b, to, flags))
WRAP(unlink, int, -1, EACCES, (const char *path), (path))

/* It closes the file even when it reports that the last bytes could not be written. */
int __real_fclose(FILE *f);
int __wrap_fclose(FILE *f);
int __wrap_fclose(FILE *f)
{
	bool failed = fails("fclose");
	int result = __real_fclose(f);

	if (!failed)
		return result;
	errno = ENOSPC;
	return EOF;
}

/* variadic: the wrappers take the arguments themselves */
#define WRAP_OPEN(function)                                                    \
	int __real_##function(const char *path, int flags, ...);               \
	int __wrap_##function(const char *path, int flags, ...);               \
	int __wrap_##function(const char *path, int flags, ...)                \
	{                                                                      \
		va_list ap;                                                    \
		mode_t mode;                                                   \
                                                                               \
		va_start(ap, flags);                                           \
		mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0; \
		va_end(ap);                                                    \
		if (fails(#function)) {                                        \
			errno = EMFILE;                                        \
			return -1;                                             \
		}                                                              \
		return __real_##function(path, flags, mode);                   \
	}
WRAP_OPEN(open)
WRAP_OPEN(open64)

#define WRAP_OPENAT(function)                                                  \
	int __real_##function(int at, const char *path, int flags, ...);       \
	int __wrap_##function(int at, const char *path, int flags, ...);       \
	int __wrap_##function(int at, const char *path, int flags, ...)        \
	{                                                                      \
		va_list ap;                                                    \
		mode_t mode;                                                   \
                                                                               \
		va_start(ap, flags);                                           \
		mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0; \
		va_end(ap);                                                    \
		if (fails(#function)) {                                        \
			errno = EMFILE;                                        \
			return -1;                                             \
		}                                                              \
		return __real_##function(at, path, flags, mode);               \
	}
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)

int __real_asprintf(char **out, const char *format, ...);
int __wrap_asprintf(char **out, const char *format, ...);
int __wrap_asprintf(char **out, const char *format, ...)
{
	va_list ap;
	int n;

	if (fails("asprintf")) {
		errno = ENOMEM;
		return -1;
	}
	va_start(ap, format);
	n = __real_vasprintf(out, format, ap);
	va_end(ap);
	return n;
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
__attribute__((no_sanitize_address)) int __wrap_fcntl(int fd, int command, ...)
{
	va_list ap;
	long value;

	va_start(ap, command);
	value = va_arg(ap, long);
	va_end(ap);
	if (fails("fcntl")) {
		errno = EMFILE;
		return -1;
	}
	return __real_fcntl(fd, command, value);
}

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
__attribute__((no_sanitize_address)) int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *value;

	va_start(ap, request);
	value = va_arg(ap, void *);
	va_end(ap);
	if (fails("ioctl")) {
		errno = EIO;
		return -1;
	}
	return __real_ioctl(fd, request, value);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
__attribute__((no_sanitize_address)) long __wrap_syscall(long number, ...)
{
	va_list ap;
	long a[6];

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (fails("syscall")) {
		errno = EIO;
		return -1;
	}
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
