/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the nodes and jobs of `hb place`; see pairing.h. An error names the input and the place in it, such as jobs[2].duty. */
#include "cluster/pairing.h"

#include "base/json.h"
#include "base/units.h"
#include "base/usage_mean.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE HB_PAIRING_NONE
#define PPM 1e6
#define LEAST_REQUESTS 100 /* of a tenant, below which its attainment says little */
#define BIT(sharing) (1u << (sharing))

struct reader {
	struct hb_pairing *pairing;
	const char *origin;
	struct hb_error *error;
	char where[160]; /* the object that is read, such as jobs[2] */
};

static int fail(const struct reader *reader, const char *key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(const struct reader *reader, const char *key, const char *format, ...)
{
	char text[256];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	bool inside = *reader->where || *key;
	return hb_error_set(reader->error, -EINVAL, "%s: %s%s%s%s%s", reader->origin, reader->where,
			    *reader->where && *key ? "." : "", key, inside ? ": " : "", text);
}

/* --- values -------------------------------------------------------------------------------------------------------- */

static int check_keys(const struct reader *reader, json_t *object, const char *const *known)
{
	const char *key;
	json_t *value;
	if (!json_is_object(object))
		return fail(reader, "", "must be an object");
	json_object_foreach(object, key, value)
	{
		size_t i = 0;
		while (known[i] && strcmp(known[i], key) != 0)
			i++;
		if (!known[i])
			return fail(reader, "", "'%.40s' is not a known key", key);
	}
	return 0;
}

static int take_name(const struct reader *reader, json_t *object, const char *key, char name[HB_PAIRING_NAME_MAX])
{
	const char *text = json_string_value(json_object_get(object, key));
	size_t n = text ? strlen(text) : 0;
	for (size_t i = 0; i < n; i++)
		if (iscntrl((unsigned char)text[i]))
			return fail(reader, key, "has a control character");
	if (!n || n >= HB_PAIRING_NAME_MAX)
		return fail(reader, key, "must be a text of 1 to %d bytes", HB_PAIRING_NAME_MAX - 1);
	memcpy(name, text, n + 1);
	return 0;
}

/* Writes *number only if the key is there. */
static int take_number(const struct reader *reader, json_t *object, const char *key, double most, double *number)
{
	json_t *value = json_object_get(object, key);
	if (!value)
		return 0;
	if (!json_is_number(value) || !(json_number_value(value) >= 0 && json_number_value(value) <= most))
		return fail(reader, key, "must be a number from 0 to %g", most);
	*number = json_number_value(value);
	return 0;
}

static int take_count(const struct reader *reader, json_t *object, const char *key, uint32_t most, uint32_t *count)
{
	double number = *count;
	int rc = take_number(reader, object, key, most, &number);
	if (!rc && number != (uint32_t)number)
		rc = fail(reader, key, "must be a whole number");
	*count = rc ? *count : (uint32_t)number;
	return rc;
}

static int take_bytes(const struct reader *reader, json_t *object, const char *key, uint64_t *bytes)
{
	struct hb_error error;
	json_t *value = json_object_get(object, key);
	if (!value)
		return 0;
	if (json_is_integer(value) && json_integer_value(value) >= 0) {
		*bytes = (uint64_t)json_integer_value(value);
		return 0;
	}
	if (!json_is_string(value))
		return fail(reader, key, "must be a size such as \"40GiB\", or a number of bytes");
	return hb_bytes_parse(json_string_value(value), bytes, &error) ? fail(reader, key, "%.200s", error.text) : 0;
}

/* Writes the index of the text in `names`; leaves *index if the key is missing. */
static int take_word(const struct reader *reader, json_t *object, const char *key, const char *const *names, uint32_t n,
		     uint32_t *index)
{
	char known[160];
	size_t at = 0;
	json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);
	for (uint32_t i = 0; i < n; i++) {
		if (text && strcmp(names[i], text) == 0) {
			*index = i;
			return 0;
		}
		at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", names[i]);
	}
	if (!value)
		return 0;
	return fail(reader, key, "'%.40s' is not known; known: %s", text ? text : "(no text)", known);
}

static uint32_t find_node(const struct hb_pairing *pairing, const char *name)
{
	uint32_t i = 0;
	while (i < pairing->n_nodes && strcmp(pairing->nodes[i], name) != 0)
		i++;
	return i < pairing->n_nodes ? i : NONE;
}

/* --- what a daemon measured ---------------------------------------------------------------------------------------- */

static double share_of(const json_t *gpu, const char *list)
{
	int64_t ppm = hb_usage_mean_ppm(gpu, list);
	return ppm < 0 ? 0 : (double)ppm / PPM;
}

static uint32_t count_of(const json_t *object, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(object, key));
	return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static uint64_t bytes_of(const json_t *object, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(object, key));
	return n < 0 ? 0 : (uint64_t)n;
}

/* Keeps the attainment of the HP tenant that is nearest to missing its objective on this GPU. */
static void read_attainment(struct hb_pairing_gpu *gpu, const json_t *status)
{
	size_t i, j;
	json_t *tenant, *on;
	json_array_foreach(json_object_get(status, "tenants"), i, tenant)
	{
		const char *priority = json_string_value(json_object_get(tenant, "priority"));
		double asked = json_integer_value(json_object_get(tenant, "attainment_asked_ppm")) / PPM;
		if (!priority || strcmp(priority, "high") != 0)
			continue;
		json_array_foreach(json_object_get(tenant, "gpus"), j, on)
		{
			const char *uuid = json_string_value(json_object_get(on, "gpu"));
			double attainment = json_integer_value(json_object_get(on, "attainment_ppm")) / PPM;
			if (!uuid || strcmp(uuid, gpu->uuid) != 0 || count_of(on, "requests") < LEAST_REQUESTS ||
			    !json_is_integer(json_object_get(on, "attainment_ppm")) ||
			    json_integer_value(json_object_get(on, "slo_ns")) <= 0 ||
			    (gpu->has_attainment && attainment - asked >= gpu->attainment - gpu->asked))
				continue;
			gpu->has_attainment = true;
			gpu->attainment = attainment;
			gpu->asked = asked;
		}
	}
}

static int read_measured_gpu(const struct reader *reader, struct hb_pairing_gpu *gpu, json_t *status,
			     const json_t *from)
{
	const char *uuid = json_string_value(json_object_get(from, "uuid"));
	const char *engine = json_string_value(json_object_get(from, "engine"));
	uint64_t total = bytes_of(from, "memory_total"), used = bytes_of(from, "memory_used");
	if (!uuid || strlen(uuid) >= sizeof gpu->uuid || !engine)
		return fail(reader, "status",
			    "a GPU has no uuid or no engine; it must be what hb status --json prints");
	memcpy(gpu->uuid, uuid, strlen(uuid) + 1);
	gpu->is_measured = true;
	/* Programs that take turns wait for a switch of the GPU, as with the temporal engine. */
	gpu->sharings = BIT(strcmp(engine, "spatial") == 0 ? HB_PAIR_SPATIAL : HB_PAIR_TEMPORAL);
	gpu->is_lost = json_is_true(json_object_get(json_object_get(from, "health"), "lost"));
	gpu->free_bytes = total ? total - hb_bytes_least(total, used) : UINT64_MAX;
	gpu->reserve_bytes = bytes_of(from, "reserve");
	gpu->n_high = count_of(from, "high");
	gpu->n_low = count_of(from, "low");
	gpu->high_share = share_of(from, "high_ppm");
	gpu->other_share = share_of(from, "not_managed_ppm");
	gpu->low_was_beside = share_of(from, "low_ppm") > 0;
	read_attainment(gpu, status);
	return 0;
}

/* --- nodes --------------------------------------------------------------------------------------------------------- */

static int add_gpus(struct reader *reader, uint32_t n, uint32_t sharings, uint64_t bytes)
{
	struct hb_pairing *pairing = reader->pairing;
	if (n > HB_PAIRING_GPUS_MAX - pairing->n_gpus)
		return fail(reader, "gpus", "there are more than %u GPUs", HB_PAIRING_GPUS_MAX);
	for (uint32_t i = 0; i < n; i++)
		pairing->gpus[pairing->n_gpus++] = (struct hb_pairing_gpu){.node = pairing->n_nodes - 1,
									   .number = i,
									   .sharings = sharings,
									   .free_bytes = bytes,
									   .high = NONE,
									   .low = NONE};
	return 0;
}

static int read_node(struct reader *reader, json_t *node)
{
	static const char *const known[] = {"name", "gpus", "memory", "engine", "status", NULL};
	static const char *const engines[] = {"any", "temporal", "spatial"};
	static const uint32_t sharings[] = {BIT(HB_PAIR_TEMPORAL) | BIT(HB_PAIR_SPATIAL), BIT(HB_PAIR_TEMPORAL),
					    BIT(HB_PAIR_SPATIAL)};
	struct hb_pairing *pairing = reader->pairing;
	json_t *status = json_object_get(node, "status"), *measured = json_object_get(status, "gpus"), *from;
	uint32_t n_measured = (uint32_t)json_array_size(measured), n = n_measured, engine = 0, first = pairing->n_gpus;
	uint64_t bytes = UINT64_MAX;
	size_t i;
	char name[HB_PAIRING_NAME_MAX] = "";
	int rc = check_keys(reader, node, known);
	rc = rc ? rc : take_name(reader, node, "name", name);
	if (!rc && find_node(pairing, name) != NONE)
		rc = fail(reader, "name", "'%s' is there twice", name);
	if (!rc && status && (!json_is_array(measured) || json_integer_value(json_object_get(status, "version")) != 1))
		rc = fail(reader, "status", "is not what hb status --json prints");
	rc = rc ? rc : take_count(reader, node, "gpus", HB_PAIRING_GPUS_MAX, &n);
	if (!rc && n < n_measured)
		rc = fail(reader, "gpus", "is less than the %u GPUs of its status", n_measured);
	if (!rc && !n && !status)
		rc = fail(reader, "gpus", "must be the number of GPUs, or there must be a status");
	rc = rc ? rc : take_bytes(reader, node, "memory", &bytes);
	rc = rc ? rc : take_word(reader, node, "engine", engines, 3, &engine);
	if (rc)
		return rc;
	memcpy(pairing->nodes[pairing->n_nodes++], name, sizeof name);
	rc = add_gpus(reader, n, sharings[engine], bytes);
	json_array_foreach(measured, i, from)
	{
		rc = rc ? rc : read_measured_gpu(reader, &pairing->gpus[first + i], status, from);
	}
	return rc;
}

/* --- jobs ---------------------------------------------------------------------------------------------------------- */

/* The job runs already: it describes the tenant of its priority, if a daemon measured the GPU. */
static int read_runs_on(struct reader *reader, json_t *object, uint32_t index)
{
	static const char *const known[] = {"node", "gpu", NULL};
	struct hb_pairing *pairing = reader->pairing;
	struct hb_pairing_job *job = &pairing->jobs[index];
	char name[HB_PAIRING_NAME_MAX] = "";
	uint32_t number = 0, i = 0;
	strncat(reader->where, ".runs_on", sizeof reader->where - strlen(reader->where) - 1);
	int rc = check_keys(reader, object, known);
	rc = rc ? rc : take_name(reader, object, "node", name);
	rc = rc ? rc : take_count(reader, object, "gpu", HB_PAIRING_GPUS_MAX, &number);
	if (rc)
		return rc;
	uint32_t node = find_node(pairing, name);
	while (i < pairing->n_gpus && (pairing->gpus[i].node != node || pairing->gpus[i].number != number))
		i++;
	if (node == NONE || i == pairing->n_gpus)
		return fail(reader, "", "there is no GPU %u on a node '%s'", number, name);
	struct hb_pairing_gpu *gpu = &pairing->gpus[i];
	uint32_t *place = job->is_high ? &gpu->high : &gpu->low;
	if (*place != NONE)
		return fail(reader, "", "job '%s' runs there with the same priority", pairing->jobs[*place].name);
	*place = index;
	job->gpu = i;
	job->runs = true;
	if (!gpu->is_measured && gpu->free_bytes != UINT64_MAX)
		gpu->free_bytes -= hb_bytes_least(gpu->free_bytes, job->memory_bytes);
	return 0;
}

static int read_job_node(struct reader *reader, json_t *object, struct hb_pairing_job *job)
{
	char name[HB_PAIRING_NAME_MAX] = "";
	if (!json_object_get(object, "node"))
		return 0;
	int rc = take_name(reader, object, "node", name);
	job->only_node = rc ? NONE : find_node(reader->pairing, name);
	return !rc && job->only_node == NONE ? fail(reader, "node", "there is no node '%s'", name) : rc;
}

/* The keys that only jobs of one priority have. */
static int read_terms(struct reader *reader, json_t *object, struct hb_pairing_job *job)
{
	static const char *const of_high[] = {"duty", "within"}, *const of_low[] = {"speed"};
	const char *const *others = job->is_high ? of_low : of_high;
	double points = -1;
	int rc = 0;
	for (int i = 0; !rc && i < (job->is_high ? 1 : 2); i++)
		if (json_object_get(object, others[i]))
			rc = fail(reader, others[i], "is not for jobs of %s priority", job->is_high ? "high" : "low");
	if (!job->is_high) {
		rc = rc ? rc : take_number(reader, object, "speed", 1, &job->least_speed);
		return rc ? rc : take_word(reader, object, "program", hb_pair_low_names, HB_PAIR_LOWS, &job->program);
	}
	rc = rc ? rc : take_number(reader, object, "duty", 1, &job->duty);
	rc = rc ? rc : take_number(reader, object, "within", 100, &points);
	job->most_loss = points < 0 ? -1 : points / 100;
	return rc ? rc : take_word(reader, object, "program", hb_pair_service_names, HB_PAIR_SERVICES, &job->program);
}

static int read_job(struct reader *reader, json_t *object)
{
	static const char *const known[] = {"name",   "priority", "program", "duty",    "within",
					    "memory", "speed",    "node",    "runs_on", NULL};
	static const char *const priorities[] = {"low", "high"};
	struct hb_pairing *pairing = reader->pairing;
	struct hb_pairing_job *job = &pairing->jobs[pairing->n_jobs];
	uint32_t priority = NONE;
	*job = (struct hb_pairing_job){.duty = -1, .most_loss = -1, .only_node = NONE, .gpu = NONE};
	int rc = check_keys(reader, object, known);
	rc = rc ? rc : take_name(reader, object, "name", job->name);
	for (uint32_t i = 0; !rc && i < pairing->n_jobs; i++)
		if (strcmp(pairing->jobs[i].name, job->name) == 0)
			rc = fail(reader, "name", "'%s' is there twice", job->name);
	rc = rc ? rc : take_word(reader, object, "priority", priorities, 2, &priority);
	if (!rc && priority == NONE)
		rc = fail(reader, "priority", "must be \"high\" or \"low\"");
	job->is_high = priority == 1;
	job->program = job->is_high ? HB_PAIR_OTHER_SERVICE : HB_PAIR_OTHER_LOW;
	rc = rc ? rc : read_terms(reader, object, job);
	rc = rc ? rc : take_bytes(reader, object, "memory", &job->memory_bytes);
	rc = rc ? rc : read_job_node(reader, object, job);
	if (!rc && json_object_get(object, "runs_on"))
		rc = read_runs_on(reader, json_object_get(object, "runs_on"), pairing->n_jobs);
	if (!rc && job->is_high && job->duty < 0 && !(job->runs && pairing->gpus[job->gpu].is_measured))
		rc = fail(reader, "duty",
			  "is missing: the share of the time in which the requests of the job run, 0 to 1, which no "
			  "daemon has measured");
	pairing->n_jobs += !rc;
	return rc;
}

/* --- both ---------------------------------------------------------------------------------------------------------- */

static int read_list(struct reader *reader, json_t *root, const char *key, uint32_t most,
		     int (*read_one)(struct reader *reader, json_t *object))
{
	json_t *list = json_object_get(root, key), *object;
	size_t i;
	int rc = 0;
	reader->where[0] = '\0';
	if (!json_is_array(list))
		return fail(reader, key, "must be an array");
	if (json_array_size(list) > most)
		return fail(reader, key, "has more than %u entries", most);
	json_array_foreach(list, i, object)
	{
		snprintf(reader->where, sizeof reader->where, "%s[%zu]", key, i);
		rc = rc ? rc : read_one(reader, object);
		if (rc)
			return rc;
	}
	return 0;
}

int hb_pairing_read(struct hb_pairing *pairing, json_t *root, const char *origin, struct hb_error *error)
{
	static const char *const known[] = {"nodes", "jobs", NULL};
	struct reader reader = {.pairing = pairing, .origin = origin, .error = error};
	pairing->nodes = calloc(HB_PAIRING_NODES_MAX, sizeof *pairing->nodes);
	pairing->gpus = calloc(HB_PAIRING_GPUS_MAX, sizeof *pairing->gpus);
	pairing->jobs = calloc(HB_PAIRING_JOBS_MAX, sizeof *pairing->jobs);
	if (!pairing->nodes || !pairing->gpus || !pairing->jobs)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int rc = check_keys(&reader, root, known);
	rc = rc ? rc : read_list(&reader, root, "nodes", HB_PAIRING_NODES_MAX, read_node);
	return rc ? rc : read_list(&reader, root, "jobs", HB_PAIRING_JOBS_MAX, read_job);
}

void hb_pairing_fini(struct hb_pairing *pairing)
{
	free(pairing->nodes);
	free(pairing->gpus);
	free(pairing->jobs);
	pairing->nodes = NULL;
	pairing->gpus = NULL;
	pairing->jobs = NULL;
}
