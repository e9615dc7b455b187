/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library for LD_PRELOAD that lets calls to the C library fail, as they do when
 * memory, descriptors, threads or disk space run out. failing_calls.py chooses the
 * call through the environment and a file that both map:
 *
 *	HB_FAIL_PROGRAM  name of the program in which calls fail; others are left alone
 *	HB_FAIL_OBJECT   only calls from the object whose path ends in this text count; unset: all calls
 *	HB_FAIL_CONTROL  the file with struct control
 *
 * The N-th call of a kind is the one that lowers control.countdown from 1 to 0.
 */
/* With it, open() and open64() would be the same function here. */
#undef _FILE_OFFSET_BITS

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Calls that can fail, with the error that they fail with. failing_calls.py reads this table. */
#define CALLS(X) \
	X(malloc, ENOMEM) \
	X(mmap, ENOMEM) \
	X(memfd_create, EMFILE) \
	X(socket, EMFILE) \
	X(accept, EMFILE) \
	X(open, EMFILE) \
	X(write, ENOSPC) \
	X(pidfd_open, EMFILE) \
	X(pthread_create, EAGAIN) \
	X(fork, EAGAIN)

enum call {
#define X(name, error) CALL_##name,
	CALLS(X)
#undef X
		N_CALLS
};

static const int errors[N_CALLS] = {
#define X(name, error) [CALL_##name] = (error),
	CALLS(X)
#undef X
};

struct control {
	_Atomic uint32_t armed;     /* 1 + enum call of the calls that are counted down; 0 = none */
	_Atomic uint32_t from_then; /* 1 = the N-th call and all later ones fail; 0 = the N-th alone */
	_Atomic int64_t countdown;
	_Atomic uint64_t failed;           /* calls that have failed */
	_Atomic uint64_t counted[N_CALLS]; /* calls so far */
};

static struct control *control;
static const char *object;
static _Atomic uintptr_t object_begin, object_end;

static int find_object(struct dl_phdr_info *info, size_t size, void *argument)
{
	(void)size;
	(void)argument;
	size_t length = strlen(info->dlpi_name), tail = strlen(object);
	if (length < tail || strcmp(info->dlpi_name + length - tail, object) != 0)
		return 0;
	uintptr_t begin = UINTPTR_MAX, end = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type != PT_LOAD)
			continue;
		uintptr_t at = info->dlpi_addr + part->p_vaddr;
		begin = at < begin ? at : begin;
		end = at + part->p_memsz > end ? at + part->p_memsz : end;
	}
	object_end = end;
	object_begin = begin;
	return 1;
}

static bool is_from_object(const void *caller)
{
	if (!object)
		return true;
	/* The loader's lock may be held by a thread that waits for this one: a call from ld.so itself comes too early anyway. */
	if (!object_end)
		dl_iterate_phdr(find_object, NULL);
	return (uintptr_t)caller >= object_begin && (uintptr_t)caller < object_end;
}

/* Whether this call must fail; then errno is set. */
static bool must_fail(enum call call, const void *caller)
{
	if (!control || !is_from_object(caller))
		return false;
	atomic_fetch_add(&control->counted[call], 1);
	if (control->armed != 1 + (uint32_t)call)
		return false;
	int64_t left = atomic_fetch_sub(&control->countdown, 1);
	if (left > 1 || (left < 1 && !control->from_then))
		return false;
	atomic_fetch_add(&control->failed, 1);
	errno = errors[call];
	return true;
}

#define FAILS(call) must_fail(CALL_##call, __builtin_return_address(0))
/* dlsym() may allocate, so the functions that allocate use glibc's own names instead. */
#define REAL(name) \
	({ \
		static __typeof__(&(name)) real_; \
		if (!real_) \
			real_ = (__typeof__(&(name)))dlsym(RTLD_NEXT, #name); \
		real_; \
	})

/* --- memory --------------------------------------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

EXPORT void *malloc(size_t size)
{
	return FAILS(malloc) ? NULL : __libc_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
	return FAILS(malloc) ? NULL : __libc_calloc(n, size);
}

EXPORT void *realloc(void *old, size_t size)
{
	return FAILS(malloc) ? NULL : __libc_realloc(old, size);
}

EXPORT void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (FAILS(mmap))
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (FAILS(mmap))
		return MAP_FAILED;
	return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}

/* --- descriptors ------------------------------------------------------------------------ */

EXPORT int memfd_create(const char *name, unsigned flags)
{
	return FAILS(memfd_create) ? -1 : REAL(memfd_create)(name, flags);
}

EXPORT int socket(int domain, int type, int protocol)
{
	return FAILS(socket) ? -1 : REAL(socket)(domain, type, protocol);
}

EXPORT int accept(int fd, struct sockaddr *address, socklen_t *length)
{
	return FAILS(accept) ? -1 : REAL(accept)(fd, address, length);
}

EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	if (FAILS(accept))
		return -1;
	return REAL(accept4)(fd, address, length, flags);
}

static mode_t mode_of(int flags, va_list arguments)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define DEFINE_OPEN(name) \
	EXPORT int name(const char *path, int flags, ...) \
	{ \
		va_list arguments; \
		va_start(arguments, flags); \
		mode_t mode = mode_of(flags, arguments); \
		va_end(arguments); \
		return FAILS(open) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode); \
	}
#define DEFINE_OPENAT(name) \
	EXPORT int name(int folder, const char *path, int flags, ...) \
	{ \
		va_list arguments; \
		va_start(arguments, flags); \
		mode_t mode = mode_of(flags, arguments); \
		va_end(arguments); \
		return FAILS(open) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode); \
	}
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

EXPORT FILE *fopen(const char *path, const char *mode)
{
	return FAILS(open) ? NULL : REAL(fopen)(path, mode);
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	return FAILS(open) ? NULL : REAL(fopen64)(path, mode);
}

EXPORT DIR *opendir(const char *path)
{
	return FAILS(open) ? NULL : REAL(opendir)(path);
}

/* Libraries rely on it that their pipes and eventfds can be written to. */
static bool can_be_full(int fd)
{
	struct stat status;
	return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

EXPORT ssize_t write(int fd, const void *bytes, size_t n)
{
	return can_be_full(fd) && FAILS(write) ? -1 : syscall(SYS_write, fd, bytes, n);
}

/* Programs call pidfd_open() in this form, because the C library of Debian 12 is the first that has the function. */
EXPORT long syscall(long number, ...)
{
	long a[6];
	va_list arguments;
	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(arguments, long);
	va_end(arguments);
	if (number == SYS_pidfd_open && FAILS(pidfd_open))
		return -1;
	return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* --- threads and processes --------------------------------------------------------------- */

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	if (FAILS(pthread_create))
		return errno;
	return REAL(pthread_create)(thread, attributes, run, argument);
}

EXPORT pid_t fork(void)
{
	return FAILS(fork) ? -1 : REAL(fork)();
}

__attribute__((constructor)) static void map_control(void)
{
	const char *program = getenv("HB_FAIL_PROGRAM"), *path = getenv("HB_FAIL_CONTROL");
	if (!program || !path || strcmp(program, program_invocation_short_name) != 0)
		return;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	void *mapped = (void *)syscall(SYS_mmap, NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	object = getenv("HB_FAIL_OBJECT");
	if (mapped != MAP_FAILED)
		control = mapped;
}
