/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what libhb-signs adds to a read, in ns. The program runs itself without the
 * library, with it detached (no HP tenant), and with a report function that does
 * nothing. It reads one byte from /dev/zero (no sign) and eight from an eventfd (a
 * sign). Run it by hand or by `meson test --benchmark`; no test depends on it.
 *
 *   HB_SIGNS=.../src/signs/libhb-signs.so signs-cost
 */
#include "base/clock.h"
#include "signs/signs.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 51, CALLS = 4000 };

static void ignore(uint64_t source, uint32_t who)
{
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double cost(int fd, size_t bytes)
{
	double rounds[ROUNDS];
	uint64_t value;
	for (int round = 0; round < ROUNDS; round++) {
		int64_t begin_ns = hb_clock_now_ns();
		for (int i = 0; i < CALLS; i++)
			if (read(fd, &value, bytes) < 0)
				abort();
		rounds[round] = (double)(hb_clock_now_ns() - begin_ns) / CALLS;
	}
	qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
	return rounds[ROUNDS / 2];
}

static void measure(const char *how)
{
	__typeof__(&hb_signs_attach) attach = (__typeof__(attach))dlsym(RTLD_DEFAULT, "hb_signs_attach");
	int zero = open("/dev/zero", O_RDONLY), event = eventfd(1000000000, EFD_SEMAPHORE);
	if (attach && strcmp(how, "attached") == 0)
		attach(ignore);
	printf("%-10s read of a file %6.1f ns, of an eventfd %6.1f ns\n", how, cost(zero, 1), cost(event, 8));
}

static void run_self(const char *self, const char *how)
{
	const char *library = getenv("HB_SIGNS");
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		if (strcmp(how, "without") != 0 && library)
			setenv("LD_PRELOAD", library, 1);
		execl(self, self, how, (char *)NULL);
		_exit(127);
	}
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		measure(argv[1]);
		return 0;
	}
	for (int i = 0; i < 2; i++) {
		run_self(argv[0], "without");
		run_self(argv[0], "detached");
		run_self(argv[0], "attached");
	}
	return 0;
}
