/* SPDX-License-Identifier: Apache-2.0 */
/* Pods and duty; see pods.h. */
#include "cluster/pods.h"

#include "base/parse_number.h"
#include "base/rng.h"
#include "cluster/pair_model.h"
#include "trace/csv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CREATED, RUN, GPUS, MILLI, QOS };
static const struct hb_csv_column pod_columns[] = {
	{"created_s", 1}, {"run_s", 1}, {"gpus", 1}, {"gpu_milli", 1}, {"qos", 1},
};
static const struct hb_csv_column duty_columns[] = {{"share", 1}, {"duty", 1}};

static int take_number(struct hb_csv *csv, uint32_t column, double least, double most, double *value,
		       struct hb_error *error)
{
	double number = 0;
	if (!hb_number_parse(hb_csv_field(csv, column), &number) || number < least || number > most)
		return hb_csv_field_error(csv, column, "is not a number in the allowed range", error);
	*value = number;
	return 0;
}

/* Which program the pod runs, and how busy it is, is not in the trace: the pod's number decides. */
static void draw_program(struct hb_pod *pod, uint32_t number)
{
	pod->number = number;
	struct hb_rng rng;
	hb_rng_init(&rng, number, 20);
	pod->service = (uint8_t)hb_rng_below(&rng, HB_PAIR_SERVICES);
	pod->low = (uint8_t)(hb_rng_below(&rng, 2) ? HB_PAIR_LLM_TRAINING : HB_PAIR_TRAINING);
	pod->duty = (uint8_t)hb_rng_below(&rng, HB_DUTY_STEPS);
}

static int take_pod(struct hb_csv *csv, struct hb_pod *pod, struct hb_error *error)
{
	double gpus = 0, milli = 0;
	*pod = (struct hb_pod){.run_s = -1};
	int rc = take_number(csv, CREATED, 0, 1e12, &pod->created_s, error);
	if (!rc && hb_csv_field(csv, RUN)[0])
		rc = take_number(csv, RUN, 0, 1e12, &pod->run_s, error);
	rc = rc ? rc : take_number(csv, GPUS, 0, 64, &gpus, error);
	rc = rc ? rc : take_number(csv, MILLI, 0, 1000, &milli, error);
	const char *qos = hb_csv_field(csv, QOS);
	pod->n_gpus = (uint16_t)gpus;
	pod->milli = (uint16_t)milli;
	if (strcmp(qos, "LS") == 0)
		pod->class = gpus > 1 ? HB_POD_WHOLE : HB_POD_HIGH;
	else if (strcmp(qos, "BE") == 0)
		pod->class = gpus > 1 ? HB_POD_WHOLE : HB_POD_LOW;
	else if (strcmp(qos, "Burstable") == 0 || strcmp(qos, "Guaranteed") == 0)
		pod->class = HB_POD_WHOLE;
	else
		rc = rc ? rc : hb_csv_field_error(csv, QOS, "is not LS, BE, Burstable or Guaranteed", error);
	return rc;
}

static int compare_pods(const void *a, const void *b)
{
	const struct hb_pod *x = a, *y = b;
	if (x->created_s != y->created_s)
		return x->created_s > y->created_s ? 1 : -1;
	return (x->number > y->number) - (x->number < y->number);
}

int hb_pods_read(struct hb_pods *pods, const char *path, struct hb_error *error)
{
	struct hb_csv csv;
	uint32_t size = 0;
	int more = 0;
	*pods = (struct hb_pods){0};
	int rc = hb_csv_open(&csv, path, pod_columns, sizeof pod_columns / sizeof pod_columns[0], error);
	if (rc)
		return rc;
	while (!rc && (more = hb_csv_next(&csv, error)) == 1) {
		if (pods->n == size) {
			size = size ? 2 * size : 1024;
			struct hb_pod *grown = size > HB_PODS_MAX ? NULL : realloc(pods->pods, size * sizeof *grown);
			if (!grown) {
				rc = hb_error_set(error, -ENOMEM, "%s: too many pods for the memory", path);
				break;
			}
			pods->pods = grown;
		}
		struct hb_pod *pod = &pods->pods[pods->n];
		rc = take_pod(&csv, pod, error);
		draw_program(pod, pods->n + pods->n_without_gpu);
		if (!rc && pod->n_gpus == 0)
			pods->n_without_gpu++;
		else
			pods->n += !rc;
	}
	hb_csv_close(&csv);
	rc = rc ? rc : more;
	if (!rc && pods->n == 0)
		rc = hb_error_set(error, -EINVAL, "%s: no pod asks for a GPU", path);
	if (!rc)
		qsort(pods->pods, pods->n, sizeof *pods->pods, compare_pods);
	return rc;
}

int hb_pods_repeat(struct hb_pods *pods, uint32_t copies, double spread_s, struct hb_error *error)
{
	uint32_t n = pods->n;
	if (copies <= 1)
		return 0;
	struct hb_pod *grown = (uint64_t)n * copies > HB_PODS_MAX
				       ? NULL
				       : realloc(pods->pods, (size_t)n * copies * sizeof *grown);
	if (!grown)
		return hb_error_set(error, -ENOMEM, "%u copies of %u pods: at most %u pods, and the memory for them",
				    copies, n, HB_PODS_MAX);
	pods->pods = grown;
	for (uint32_t copy = 1; copy < copies; copy++)
		for (uint32_t i = 0; i < n; i++) {
			struct hb_pod *pod = &grown[(size_t)copy * n + i];
			*pod = grown[i];
			pod->created_s += copy * spread_s;
			draw_program(pod, copy * (n + pods->n_without_gpu) + pod->number);
		}
	pods->n = n * copies;
	qsort(grown, pods->n, sizeof *grown, compare_pods);
	return 0;
}

int hb_pods_list_shares(const struct hb_pods *pods, uint16_t *shares, uint32_t most, uint32_t *n)
{
	bool seen[1001] = {false};
	for (uint32_t i = 0; i < pods->n; i++)
		seen[pods->pods[i].milli <= 1000 ? pods->pods[i].milli : 1000] = true;
	*n = 0;
	for (uint16_t share = 0; share <= 1000; share++) {
		if (seen[share] && *n == most)
			return -E2BIG;
		if (seen[share])
			shares[(*n)++] = share;
	}
	return 0;
}

void hb_pods_fini(struct hb_pods *pods)
{
	free(pods->pods);
	*pods = (struct hb_pods){0};
}

int hb_duty_read(double duty[static HB_DUTY_STEPS], const char *path, struct hb_error *error)
{
	struct hb_csv csv;
	uint32_t n = 0;
	int more = 0;
	int rc = hb_csv_open(&csv, path, duty_columns, sizeof duty_columns / sizeof duty_columns[0], error);
	if (rc)
		return rc;
	while (!rc && (more = hb_csv_next(&csv, error)) == 1) {
		if (n == HB_DUTY_STEPS)
			rc = hb_error_set(error, -E2BIG, "%s: more than %d rows", path, HB_DUTY_STEPS);
		else
			rc = take_number(&csv, 1, 0, 1, &duty[n++], error);
	}
	hb_csv_close(&csv);
	rc = rc ? rc : more;
	if (!rc && n != HB_DUTY_STEPS)
		rc = hb_error_set(error, -EINVAL, "%s: %u rows instead of %d", path, n, HB_DUTY_STEPS);
	return rc;
}
