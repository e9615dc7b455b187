/* SPDX-License-Identifier: Apache-2.0 */
/* See demand_file.h. */
#include "server/models/demand_file.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/out_file.h"
#include "base/paths.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "serve-demands.json"
/* More than HB_DEMAND_RECORDS records ever need. */
#define FILE_BYTES_MAX (1 << 20)
#define CONTENT_BYTES_MAX (4 << 20)
#define COPIED_BYTES_MAX 1e15
#define PPM 1e6

/* ---- digest ---- */

static void add_bytes(uint64_t *digest, const void *data, size_t size)
{
	const unsigned char *bytes = data;
	for (size_t i = 0; i < size; i++)
		*digest = (*digest ^ bytes[i]) * UINT64_C(1099511628211); /* FNV-1a */
}

static void add_text(uint64_t *digest, const char *text)
{
	add_bytes(digest, text, strlen(text) + 1);
}

static void add_number(uint64_t *digest, int64_t number)
{
	add_bytes(digest, &number, sizeof(number));
}

static void add_content(uint64_t *digest, int fd)
{
	char bytes[65536];
	ssize_t n;
	for (size_t all = 0; all < CONTENT_BYTES_MAX && (n = read(fd, bytes, sizeof(bytes))) > 0; all += (size_t)n)
		add_bytes(digest, bytes, (size_t)n);
}

/* Adds a file, if there is a regular one with this name; relative names are in the model's folder. */
static void add_file(uint64_t *digest, const struct hb_model_config *model, const char *name)
{
	struct stat status;
	int folder = open(model->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = name[0] && folder >= 0 ? openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
		add_text(digest, name);
		add_number(digest, status.st_size);
		if (status.st_size > CONTENT_BYTES_MAX) {
			add_number(digest, status.st_mtim.tv_sec);
			add_number(digest, status.st_mtim.tv_nsec);
		}
		add_content(digest, fd);
	}
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
}

static void add_files_of_command(uint64_t *digest, const struct hb_model_config *model)
{
	char command[sizeof(model->command)], *rest = NULL;
	snprintf(command, sizeof(command), "%s", model->command);
	for (char *word = strtok_r(command, " \t\n;&|'\"=()<>", &rest); word;
	     word = strtok_r(NULL, " \t\n;&|'\"=()<>", &rest))
		add_file(digest, model, word);
}

static void add_tensors(uint64_t *digest, const struct hb_tensor_spec *specs, uint32_t n)
{
	add_number(digest, n);
	for (uint32_t i = 0; i < n; i++) {
		add_text(digest, specs[i].name);
		add_text(digest, hb_dtype_name((enum hb_dtype)specs[i].dtype));
		add_number(digest, specs[i].n_dims);
		for (uint32_t d = 0; d < specs[i].n_dims; d++)
			add_number(digest, specs[i].dims[d]);
	}
}

uint64_t hb_demand_digest(const struct hb_model_config *model, const char *gpu)
{
	uint64_t digest = UINT64_C(14695981039346656037);
	add_text(&digest, gpu);
	add_number(&digest, model->platform);
	add_number(&digest, model->max_batch);
	add_text(&digest, model->command);
	add_text(&digest, model->file);
	add_text(&digest, model->library);
	add_tensors(&digest, model->inputs, model->n_inputs);
	add_tensors(&digest, model->outputs, model->n_outputs);
	add_files_of_command(&digest, model);
	add_file(&digest, model, model->file);
	return digest;
}

/* ---- reading ---- */

void hb_demand_file_choose(char *path, size_t size)
{
	const char *state = getenv("STATE_DIRECTORY");
	if (state && state[0] == '/' && !strchr(state, ':'))
		snprintf(path, size, "%s/" FILE_NAME, state);
	else
		hb_path_user_file("XDG_STATE_HOME", ".local/state", FILE_NAME, path, size);
}

static int read_shares(json_int_t one, json_int_t most, double out[2], const char *path, struct hb_error *error)
{
	if (one < 0 || one > (json_int_t)PPM || most < 0 || most > (json_int_t)PPM)
		return hb_error_set(error, -EINVAL, "%s: a share is not between 0 and %.0f", path, PPM);
	out[0] = (double)one / PPM;
	out[1] = (double)most / PPM;
	return 0;
}

static int read_record(json_t *root, const char *path, struct hb_demand_record *out, struct hb_error *error)
{
	const char *digest, *name;
	char *end;
	json_int_t sm[2], memory[2], copied[2];
	if (hb_json_unpack(root, path, error, "{s:s, s:s, s:[I,I!], s:[I,I!], s:[I,I!]}", "digest", &digest, "name",
			   &name, "sm_ppm", &sm[0], &sm[1], "memory_ppm", &memory[0], &memory[1], "copied_bytes",
			   &copied[0], &copied[1]) < 0)
		return -EINVAL;
	struct hb_demand_record record = {.digest = strtoull(digest, &end, 16)};
	if (!digest[0] || *end)
		return hb_error_set(error, -EINVAL, "%s: digest: \"%.40s\" is not a hexadecimal number", path, digest);
	if (!hb_served_model_name_fits(name))
		return hb_error_set(error, -EINVAL, "%s: name: \"%.64s\" is not a model's name", path, name);
	snprintf(record.name, sizeof(record.name), "%s", name);
	for (int i = 0; i < 2; i++)
		if (copied[i] < 0 || (double)copied[i] >= COPIED_BYTES_MAX)
			return hb_error_set(error, -EINVAL, "%s: copied_bytes: %lld is out of range", path,
					    (long long)copied[i]);
	record.demand.in_bytes = (double)copied[0];
	record.demand.out_bytes = (double)copied[1];
	int result = read_shares(sm[0], sm[1], record.demand.sm, path, error);
	if (result == 0)
		result = read_shares(memory[0], memory[1], record.demand.memory, path, error);
	if (result == 0)
		*out = record;
	return result;
}

/* Reads all records. Returns their number, 0 if there is no file, or negative errno with *error. */
static int read_records(const char *path, struct hb_demand_record records[HB_DEMAND_RECORDS], struct hb_error *error)
{
	struct stat status;
	json_t *root, *models, *model;
	json_int_t version;
	size_t i;
	if (stat(path, &status) < 0)
		return errno == ENOENT ? 0 : hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(status.st_mode) || status.st_size > FILE_BYTES_MAX)
		return hb_error_set(error, -EFBIG, "%s: not a file of at most %d bytes", path, FILE_BYTES_MAX);
	int result = hb_json_load(path, &root, error);
	if (result < 0)
		return result;
	result = hb_json_unpack(root, path, error, "{s:I}", "version", &version);
	if (result == 0 && version != HB_DEMAND_FILE_VERSION)
		result = hb_error_set(error, -ENOTSUP, "%s: version %lld, not %d", path, (long long)version,
				      HB_DEMAND_FILE_VERSION);
	if (result == 0)
		result = hb_json_unpack(root, path, error, "{s:o}", "models", &models);
	if (result == 0 && (!json_is_array(models) || json_array_size(models) > HB_DEMAND_RECORDS))
		result = hb_error_set(error, -EINVAL, "%s: models: not a list of at most %d", path, HB_DEMAND_RECORDS);
	for (i = 0; result == 0 && i < json_array_size(models); i++) {
		model = json_array_get(models, i);
		result = read_record(model, path, &records[i], error);
	}
	int n = result < 0 ? result : (int)json_array_size(models);
	json_decref(root);
	return n;
}

int hb_demand_file_find(const char *path, uint64_t digest, struct hb_demand *demand, struct hb_error *error)
{
	struct hb_demand_record *records = path[0] ? calloc(HB_DEMAND_RECORDS, sizeof(*records)) : NULL;
	int n = records ? read_records(path, records, error) : 0, result = n < 0 ? n : -ENOENT;
	for (int i = 0; i < n; i++)
		if (records[i].digest == digest) {
			*demand = records[i].demand;
			result = 0;
		}
	free(records);
	return result;
}

/* ---- writing ---- */

static json_int_t count_ppm(double share)
{
	return (json_int_t)(share * PPM + 0.5);
}

void hb_demand_round(struct hb_demand *demand)
{
	for (int i = 0; i < 2; i++) {
		demand->sm[i] = (double)count_ppm(demand->sm[i]) / PPM;
		demand->memory[i] = (double)count_ppm(demand->memory[i]) / PPM;
	}
	demand->in_bytes = (double)(json_int_t)demand->in_bytes;
	demand->out_bytes = (double)(json_int_t)demand->out_bytes;
}

static json_t *record_json(const struct hb_demand_record *record, struct hb_error *error)
{
	char digest[20];
	json_int_t ppm[4];
	for (int i = 0; i < 2; i++) {
		ppm[i] = count_ppm(record->demand.sm[i]);
		ppm[2 + i] = count_ppm(record->demand.memory[i]);
	}
	snprintf(digest, sizeof(digest), "%016" PRIx64, record->digest);
	return hb_json_pack(error, "{s:s, s:s, s:[I,I], s:[I,I], s:[I,I]}", "digest", digest, "name", record->name,
			    "sm_ppm", ppm[0], ppm[1], "memory_ppm", ppm[2], ppm[3], "copied_bytes",
			    (json_int_t)record->demand.in_bytes, (json_int_t)record->demand.out_bytes);
}

static json_t *records_json(const struct hb_demand_record *records, int n, struct hb_error *error)
{
	json_t *models = json_array();
	for (int i = 0; i < n && models; i++)
		json_array_append_new(models, record_json(&records[i], error));
	return hb_json_pack(error, "{s:i, s:o}", "version", HB_DEMAND_FILE_VERSION, "models", models);
}

static int write_records(const char *path, const struct hb_demand_record *records, int n, struct hb_error *error)
{
	struct hb_out_file file;
	hb_path_make_folders(path);
	int result = hb_out_file_open(&file, path, error);
	if (result < 0)
		return result;
	json_t *root = records_json(records, n, error);
	result = hb_out_file_wrote(&file, hb_json_write(root, file.stream, error), error);
	json_decref(root);
	if (result == 0)
		return hb_out_file_commit(&file, error);
	hb_out_file_fini(&file);
	return result;
}

int hb_demand_file_store(const char *path, const struct hb_demand_record *record, struct hb_error *error)
{
	struct hb_error ignored;
	struct hb_demand_record *records = calloc(HB_DEMAND_RECORDS + 1, sizeof(*records));
	if (!records)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int read = read_records(path, records, &ignored), n = 0;
	for (int i = 0; i < read; i++)
		if (records[i].digest != record->digest)
			records[n++] = records[i];
	records[n++] = *record;
	int oldest = n > HB_DEMAND_RECORDS;
	int result = write_records(path, records + oldest, n - oldest, error);
	free(records);
	return result;
}

/* ---- on a thread ---- */

static struct {
	pthread_mutex_t lock; /* one record is saved at a time */
	pthread_mutex_t count_lock;
	pthread_cond_t saved;
	uint32_t n; /* records that are not saved yet */
} saver = {.lock = PTHREAD_MUTEX_INITIALIZER, .count_lock = PTHREAD_MUTEX_INITIALIZER};

struct save_request {
	char path[4096];
	struct hb_demand_record record;
};

static void make_condition(void)
{
	hb_condition_init(&saver.saved);
}

static void count_saves(int change)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_condition);
	pthread_mutex_lock(&saver.count_lock);
	saver.n += (uint32_t)change;
	pthread_cond_broadcast(&saver.saved);
	pthread_mutex_unlock(&saver.count_lock);
}

static void *save_record(void *argument)
{
	struct save_request *request = argument;
	struct hb_error error = {.text = ""};
	pthread_mutex_lock(&saver.lock);
	if (hb_demand_file_store(request->path, &request->record, &error) < 0)
		hb_log_warning("model %s: its measured demand is not kept: %s", request->record.name, error.text);
	pthread_mutex_unlock(&saver.lock);
	free(request);
	count_saves(-1);
	return NULL;
}

void hb_demand_file_save(const char *path, const struct hb_demand_record *record)
{
	struct save_request *request = path[0] ? calloc(1, sizeof(*request)) : NULL;
	if (!request)
		return;
	snprintf(request->path, sizeof(request->path), "%s", path);
	request->record = *record;
	count_saves(1);
	if (hb_thread_start(NULL, 0, save_record, request) == 0)
		return;
	count_saves(-1);
	free(request);
}

void hb_demand_file_finish(int64_t for_ns)
{
	int64_t until_ns = hb_clock_now_ns() + for_ns;
	count_saves(0);
	pthread_mutex_lock(&saver.count_lock);
	while (saver.n && hb_condition_wait_until(&saver.saved, &saver.count_lock, until_ns))
		;
	pthread_mutex_unlock(&saver.count_lock);
}
