/* SPDX-License-Identifier: Apache-2.0 */
/* Writes when and where each pod ran in one replay; see hb_cluster_schedule_write() in cluster_study.h. */
#include "cluster/cluster_study.h"

#include <errno.h>
#include <stdlib.h>

static const struct hb_cluster_rule *find_last_rule(uint32_t rules)
{
	const struct hb_cluster_rule *last = &hb_cluster_rules[0];
	for (uint32_t i = 0; i < HB_CLUSTER_RULES; i++)
		last = rules & (1u << i) ? &hb_cluster_rules[i] : last;
	return last;
}

static void write_visit(FILE *out, const struct hb_cluster_study *study, const struct hb_pod *pod,
			const struct hb_cluster_visit *visit)
{
	static const char *const classes[] = {"high", "low", "whole"};
	const char *program = pod->class == HB_POD_HIGH  ? hb_pair_service_names[pod->service]
			      : pod->class == HB_POD_LOW ? hb_pair_low_names[pod->low]
							 : "";
	double duty = pod->class == HB_POD_HIGH
			      ? study->duty[pod->duty] * study->duty_factor / hb_pair_busy_share[pod->service]
			      : 0;
	if (visit->start_s < 0)
		return;
	fprintf(out, "%u,%s,%s,%.4f,%.6g,%.9g,", pod->number, classes[pod->class], program, duty < 1 ? duty : 1,
		pod->created_s, visit->start_s);
	if (visit->end_s >= 0)
		fprintf(out, "%.9g", visit->end_s);
	fprintf(out, ",%u\n", visit->gpu);
}

int hb_cluster_schedule_write(FILE *out, const struct hb_cluster_study *study, struct hb_error *error)
{
	struct hb_cluster_result result;
	struct hb_cluster_visit *visits = calloc(study->pods->n + 1, sizeof *visits);
	if (!visits)
		return hb_error_set(error, -ENOMEM, "out of memory");
	struct hb_cluster_setup setup = {.pods = study->pods,
					 .duty = study->duty,
					 .model = study->model,
					 .rule = find_last_rule(study->rules),
					 .arrivals = HB_CLUSTER_LIMITED,
					 .n_gpus = study->n_gpus,
					 .most_loss = 1,
					 .duty_factor = study->duty_factor,
					 .truth = 1,
					 .visits = visits};
	int rc = hb_cluster_run(&setup, &result, error);
	if (!rc)
		fputs("pod,class,program,duty,created_s,start_s,end_s,gpu\n", out);
	for (uint32_t i = 0; !rc && i < study->pods->n; i++)
		write_visit(out, study, &study->pods->pods[i], &visits[i]);
	free(visits);
	return rc;
}
