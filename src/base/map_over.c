/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces a mapping that other threads read; see map_over.h. */
#include "base/map_over.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *hb_map_over(void *at, size_t bytes, int protection, int flags, int fd)
{
	if (at)
		flags |= MAP_FIXED;
#ifdef __SANITIZE_THREAD__ /* treats mmap() as a write to each byte, which would race with every reader */
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, 0L);
#else
	return mmap(at, bytes, protection, flags, fd, 0);
#endif
}
