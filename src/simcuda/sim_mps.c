/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins the simulated MPS. A process whose CUDA_MPS_PIPE_DIRECTORY has a running
 * control daemon makes its contexts inside the server's; any other process runs
 * beside it. While the connection is open, this process is one of the server's
 * clients.
 */
#include "simcuda/sim_driver.h"

#include "simcuda/mps_wire.h"

#include <string.h>

static int connection = -1; /* under sim.lock */
static pid_t connected_pid;

static uint32_t limit_of(int percent)
{
	const char *own = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	if (own && *own)
		percent = atoi(own);
	if (percent <= 0 || percent >= 100)
		return 0;
	uint32_t limit = ((uint32_t)sim.info.spec.sm_count * (uint32_t)percent + 99) / 100;
	return limit ? limit : 1;
}

CUresult sim_mps_join(int gpu, uint64_t *token, uint32_t *sm_limit)
{
	char text[MPS_TEXT];
	unsigned long long number;
	int percent;
	*token = 0;
	if (getenv("HB_SIM_MPS_SERVER")) /* the server itself does not join: its contexts are the ones to join */
		return CUDA_SUCCESS;
	if (connection < 0 || connected_pid != getpid()) {
		connection = mps_connect();
		connected_pid = getpid();
	}
	if (connection < 0)
		return CUDA_SUCCESS;
	snprintf(text, sizeof text, "join %d", gpu);
	if (mps_send(connection, text) < 0 || !mps_receive(connection, text)) {
		close(connection);
		connection = -1;
		return CUDA_ERROR_MPS_CONNECTION_FAILED;
	}
	if (sscanf(text, "token %llu %d", &number, &percent) == 2) {
		*token = number;
		if (!*sm_limit)
			*sm_limit = limit_of(percent);
		return CUDA_SUCCESS;
	}
	return strstr(text, "clients") ? CUDA_ERROR_MPS_MAX_CLIENTS_REACHED : CUDA_ERROR_MPS_SERVER_NOT_READY;
}
