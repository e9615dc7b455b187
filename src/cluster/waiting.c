/* SPDX-License-Identifier: Apache-2.0 */
/* A ring that grows; see waiting.h. */
#include "cluster/waiting.h"

#include <errno.h>
#include <stdlib.h>

int hb_waiting_add(struct hb_cluster_queue *queue, uint32_t pod)
{
	if (queue->tail - queue->head == queue->size) {
		uint32_t size = queue->size ? 2 * queue->size : 256, n = queue->size;
		uint32_t *pods = malloc(size * sizeof *pods);
		if (!pods)
			return -ENOMEM;
		for (uint32_t i = 0; i < n; i++)
			pods[i] = queue->pods[(queue->head + i) & (n - 1)];
		free(queue->pods);
		*queue = (struct hb_cluster_queue){.pods = pods, .head = 0, .tail = n, .size = size};
	}
	queue->pods[queue->tail++ & (queue->size - 1)] = pod;
	return 0;
}

uint32_t hb_waiting_first(const struct hb_cluster_queue *queue)
{
	return queue->head == queue->tail ? HB_WAITING_NONE : queue->pods[queue->head & (queue->size - 1)];
}

void hb_waiting_fini(struct hb_cluster_queue *queue)
{
	free(queue->pods);
	*queue = (struct hb_cluster_queue){0};
}
