/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the history of engines in a file; see engine_file.h. */
#include "daemon/engine_file.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/out_file.h"
#include "base/paths.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 1
#define FINISH_NS (2 * HB_NS_PER_S)

/* The thread that writes. One for the process: it may still run when the daemon's other memory is freed. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	json_t *next; /* what to write next; NULL = nothing */
	char path[4096];
	bool is_running, has_failed;
} saver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const engine_names[HB_ENGINE_AUTO_ENGINES] = {"temporal", "spatial"};

static void choose_path(bool system_mode, char *path, size_t size)
{
	const char *state = getenv("STATE_DIRECTORY");
	if (state && state[0] == '/' && !strchr(state, ':'))
		snprintf(path, size, "%s/engines.json", state);
	else if (system_mode)
		snprintf(path, size, "/var/lib/hummingbird/engines.json");
	else
		hb_path_user_file("XDG_STATE_HOME", ".local/state", "engines.json", path, size);
}

/* --- reading ------------------------------------------------------------------------------------ */

static int read_key(json_t *root, const char *origin, struct hb_engine_program *program, struct hb_error *error)
{
	const char *key, *text;
	char *end;
	if (hb_json_unpack(root, origin, error, "{s:s, s:s}", "key", &key, "command", &text) < 0)
		return -EINVAL;
	program->key = strtoull(key, &end, 16);
	if (*end || !program->key)
		return hb_error_set(error, -EINVAL, "%s: key: '%.40s' is not a hexadecimal number above 0", origin,
				    key);
	snprintf(program->text, sizeof program->text, "%s", text);
	return 0;
}

static int check_range(const char *origin, const char *key, json_int_t value, json_int_t most, struct hb_error *error)
{
	if (value >= 0 && value <= most)
		return 0;
	return hb_error_set(error, -EINVAL, "%s: %s: %lld is not between 0 and %lld", origin, key, (long long)value,
			    (long long)most);
}

static int read_record(json_t *root, const char *origin, struct hb_engine_auto_record *record, struct hb_error *error)
{
	json_int_t runs, ago, attainment, low, penalty;
	if (hb_json_unpack(root, origin, error, "{s:I, s:I, s:I, s:I, s:I}", "runs", &runs, "ago", &ago,
			   "attainment_ppm", &attainment, "low_ppm", &low, "penalty", &penalty) < 0 ||
	    check_range(origin, "runs", runs, UINT32_MAX, error) < 0 ||
	    check_range(origin, "ago", ago, UINT32_MAX, error) < 0 ||
	    check_range(origin, "attainment_ppm", attainment, 1000000, error) < 0 ||
	    check_range(origin, "low_ppm", low, UINT32_MAX, error) < 0 ||
	    check_range(origin, "penalty", penalty, HB_ENGINE_AUTO_PENALTY_MOST, error) < 0)
		return -EINVAL;
	*record = (struct hb_engine_auto_record){(uint32_t)runs, (uint32_t)ago, (uint32_t)attainment, (uint32_t)low,
						 (uint32_t)penalty};
	return 0;
}

static int read_pair(json_t *root, const char *origin, struct hb_engine_pair *pair, struct hb_error *error)
{
	json_t *high, *low, *records[HB_ENGINE_AUTO_ENGINES];
	json_int_t reference, used;
	const char *current;
	if (hb_json_unpack(root, origin, error, "{s:o, s:o, s:I, s:I, s:s, s:o, s:o}", "high", &high, "low", &low,
			   "reference_mhz", &reference, "used", &used, "current", &current, "temporal", &records[0],
			   "spatial", &records[1]) < 0 ||
	    read_key(high, origin, &pair->high, error) < 0 || read_key(low, origin, &pair->low, error) < 0 ||
	    check_range(origin, "reference_mhz", reference, INT64_MAX, error) < 0 ||
	    check_range(origin, "used", used, UINT32_MAX, error) < 0)
		return -EINVAL;
	if (strcmp(current, engine_names[0]) != 0 && strcmp(current, engine_names[1]) != 0)
		return hb_error_set(error, -EINVAL, "%s: current: '%.40s' is not an engine", origin, current);
	pair->reference_mhz = (uint64_t)reference;
	pair->used = (uint32_t)used;
	pair->choose.current = strcmp(current, engine_names[0]) == 0 ? HB_ENGINE_AUTO_TEMPORAL : HB_ENGINE_AUTO_SPATIAL;
	for (int i = 0; i < HB_ENGINE_AUTO_ENGINES; i++)
		if (read_record(records[i], origin, &pair->choose.records[i], error) < 0)
			return -EINVAL;
	return 0;
}

static int read_history(json_t *root, const char *origin, struct hb_engine_history *history, struct hb_error *error)
{
	json_t *pairs, *pair;
	json_int_t version;
	size_t i;
	if (hb_json_unpack(root, origin, error, "{s:I}", "version", &version) < 0)
		return -EINVAL;
	if (version > VERSION)
		return hb_error_set(error, -ENOTSUP, "%s: version %lld is newer than this hbd, which reads version %d",
				    origin, (long long)version, VERSION);
	if (hb_json_unpack(root, origin, error, "{s:o}", "pairs", &pairs) < 0)
		return -EINVAL;
	if (json_array_size(pairs) > HB_ENGINE_PAIRS)
		return hb_error_set(error, -EINVAL, "%s: pairs: more than %d", origin, HB_ENGINE_PAIRS);
	json_array_foreach(pairs, i, pair)
	{
		if (read_pair(pair, origin, &history->pairs[i], error) < 0)
			return -EINVAL;
		if (history->pairs[i].used > history->clock)
			history->clock = history->pairs[i].used;
	}
	return 0;
}

int hb_engine_file_load(const char *path, struct hb_engine_history *history, struct hb_error *error)
{
	json_t *root;
	int result = hb_json_load(path, &root, error);
	if (result < 0)
		return result == -ENOENT ? 0 : result;
	struct hb_engine_history *read = calloc(1, sizeof *read);
	result = read ? read_history(root, path, read, error) : hb_error_set(error, -ENOMEM, "out of memory");
	if (result == 0)
		*history = *read;
	free(read);
	json_decref(root);
	return result;
}

void hb_engine_file_begin(bool system_mode, char *path, size_t size, struct hb_engine_history *history)
{
	char damaged[sizeof saver.path];
	struct hb_error error;
	choose_path(system_mode, path, size);
	if (!path[0]) {
		hb_log_warning("HOME is not set: what `engine: auto` learns is forgotten when the daemon ends");
		return;
	}
	int result = hb_engine_file_load(path, history, &error);
	snprintf(damaged, sizeof damaged, "%s.damaged", path);
	if (result == -EINVAL && rename(path, damaged) == 0) {
		hb_log_warning("%s; the file is now %s, and `engine: auto` begins anew", error.text, damaged);
	} else if (result < 0) {
		hb_log_warning("%s; what `engine: auto` learns is forgotten when the daemon ends", error.text);
		path[0] = '\0';
	}
}

/* --- writing ------------------------------------------------------------------------------------ */

static json_t *program_json(const struct hb_engine_program *program)
{
	char key[20];
	snprintf(key, sizeof key, "%llx", (unsigned long long)program->key);
	return json_pack("{s:s, s:s}", "key", key, "command", program->text);
}

static json_t *record_json(const struct hb_engine_auto_record *record)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "runs", (json_int_t)record->runs, "ago", (json_int_t)record->ago,
			 "attainment_ppm", (json_int_t)record->attainment_ppm, "low_ppm", (json_int_t)record->low_ppm,
			 "penalty", (json_int_t)record->penalty);
}

static json_t *history_json(const struct hb_engine_history *history)
{
	json_t *pairs = json_array();
	for (uint32_t i = 0; pairs && i < HB_ENGINE_PAIRS; i++) {
		const struct hb_engine_pair *pair = &history->pairs[i];
		if (!pair->high.key)
			continue;
		json_array_append_new(pairs,
				      json_pack("{s:o, s:o, s:I, s:I, s:s, s:o, s:o}", "high",
						program_json(&pair->high), "low", program_json(&pair->low),
						"reference_mhz", (json_int_t)pair->reference_mhz, "used",
						(json_int_t)pair->used, "current", engine_names[pair->choose.current],
						"temporal", record_json(&pair->choose.records[0]), "spatial",
						record_json(&pair->choose.records[1])));
	}
	return json_pack("{s:i, s:o}", "version", VERSION, "pairs", pairs);
}

void hb_engine_file_give(bool system_mode, uid_t uid, gid_t gid)
{
	char path[sizeof saver.path];
	struct stat found;
	choose_path(system_mode, path, sizeof path);
	if (!path[0])
		return;
	hb_path_make_folders(path);
	char *name = strrchr(path, '/');
	*name++ = '\0';
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int file = folder < 0 ? -1 : openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	bool failed = folder < 0 || fchown(folder, uid, gid) < 0;
	/* The user could have put a link there to a file of somebody else. */
	if (file >= 0 && fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 1)
		failed |= fchownat(file, "", uid, gid, AT_EMPTY_PATH) < 0;
	if (failed)
		hb_log_warning("%s: cannot be given to the daemon's user: %s", path, strerror(errno));
	if (file >= 0)
		close(file);
	if (folder >= 0)
		close(folder);
}

static int write_file(const char *path, const json_t *root, struct hb_error *error)
{
	struct hb_out_file file;
	hb_path_make_folders(path);
	int result = hb_out_file_open(&file, path, error);
	if (result < 0)
		return result;
	result = hb_out_file_wrote(&file, hb_json_write(root, file.stream, error), error);
	if (result == 0)
		return hb_out_file_commit(&file, error);
	hb_out_file_fini(&file);
	return result;
}

static void *write_files(void *unused)
{
	struct hb_error error;
	(void)unused;
	pthread_mutex_lock(&saver.lock);
	while (saver.next) {
		json_t *root = saver.next;
		saver.next = NULL;
		pthread_mutex_unlock(&saver.lock);
		int result = write_file(saver.path, root, &error);
		json_decref(root);
		pthread_mutex_lock(&saver.lock);
		if (result < 0 && !saver.has_failed)
			hb_log_warning("%s: what `engine: auto` has learned is not kept", error.text);
		saver.has_failed = result < 0;
	}
	saver.is_running = false;
	pthread_cond_broadcast(&saver.idle);
	pthread_mutex_unlock(&saver.lock);
	return NULL;
}

void hb_engine_file_save(const char *path, const struct hb_engine_history *history)
{
	static bool has_condition;
	json_t *root = path[0] ? history_json(history) : NULL;
	if (!root)
		return;
	pthread_mutex_lock(&saver.lock);
	if (!has_condition)
		hb_condition_init(&saver.idle);
	has_condition = true;
	json_decref(saver.next);
	saver.next = root;
	if (!saver.is_running) {
		snprintf(saver.path, sizeof saver.path, "%s", path);
		saver.is_running = hb_thread_start(NULL, 0, write_files, NULL) == 0;
	}
	pthread_mutex_unlock(&saver.lock);
}

void hb_engine_file_finish(void)
{
	int64_t until_ns = hb_clock_now_ns() + FINISH_NS;
	pthread_mutex_lock(&saver.lock);
	while (saver.is_running && hb_condition_wait_until(&saver.idle, &saver.lock, until_ns))
		;
	pthread_mutex_unlock(&saver.lock);
}
