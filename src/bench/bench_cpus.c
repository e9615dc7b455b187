/* SPDX-License-Identifier: Apache-2.0 */
/* Dividing the machine's cores; see bench_cpus.h. */
#include "bench/bench_cpus.h"

#include <stdio.h>

#define CORES_NEEDED 4

/* The first processor of its core, as the kernel tells; neighbours in pairs where it does not. */
static int core_of(int cpu)
{
	char path[96];
	int first = cpu & ~1;
	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
	FILE *file = fopen(path, "re");
	if (!file)
		return first;
	if (fscanf(file, "%d", &first) != 1 || first < 0 || first >= CPU_SETSIZE)
		first = cpu & ~1;
	fclose(file);
	return first;
}

bool hb_bench_cpus_split(const cpu_set_t *allowed, const int core[CPU_SETSIZE], bool high, cpu_set_t *set)
{
	int rank[CPU_SETSIZE] = {0}, n = 0; /* of a core, from 1 */
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, allowed) && !rank[core[cpu]])
			rank[core[cpu]] = ++n;
	CPU_ZERO(set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, allowed) && (rank[core[cpu]] <= n / 2) == high)
			CPU_SET(cpu, set);
	return n >= CORES_NEEDED;
}

bool hb_bench_cpus_choose(bool high, cpu_set_t *set)
{
	cpu_set_t allowed;
	int core[CPU_SETSIZE] = {0};
	if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
		return false;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			core[cpu] = core_of(cpu);
	return hb_bench_cpus_split(&allowed, core, high, set);
}
