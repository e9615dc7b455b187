/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes a command as if the kernel were Linux 5.3, the oldest that Hummingbird runs on: every system call that is newer
 * fails with ENOSYS, for the command and all processes that it starts. With --too-old the kernel is Linux 4.18.
 * usage: as-old-kernel [--too-old] COMMAND [ARGUMENT...]
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The newest call of Linux 5.3 is clone3, of Linux 4.18 on x86-64 rseq. */
#define NEWEST_CALL 435
#define NEWEST_CALL_TOO_OLD 334

int main(int argc, char **argv)
{
	bool too_old = argc > 1 && strcmp(argv[1], "--too-old") == 0;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, too_old ? NEWEST_CALL_TOO_OLD : NEWEST_CALL, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
	argv += too_old;
	if (!argv[1]) {
		fprintf(stderr, "usage: as-old-kernel [--too-old] COMMAND [ARGUMENT...]\n");
		return 2;
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) {
		fprintf(stderr, "as-old-kernel: cannot filter system calls: %s\n", strerror(errno));
		return 1;
	}
	execvp(argv[1], argv + 1);
	fprintf(stderr, "as-old-kernel: %s: %s\n", argv[1], strerror(errno));
	return 127;
}
