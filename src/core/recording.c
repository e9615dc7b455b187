/* SPDX-License-Identifier: Apache-2.0 */
/* See recording.h. */
#include "core/recording.h"

#include "core/event_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The parts of a core's configuration that the daemon sets; the others are defaults. */
#define NUMBERS(X) \
	X(quantum_ns) \
	X(turn_grace_ns) X(low_slice_ns) X(high_slice_ns) X(low_minimum_ppm) X(memory_idle_ns) X(memory_room_ns)
#define FLAGS(X) X(low_shared)

/* --- writing --------------------------------------------------------------------------- */

static void begin_line(FILE *out, uint32_t gpu, int64_t now_ns, char kind)
{
	fprintf(out, "%" PRIu32 " %" PRId64 " %c", gpu, now_ns, kind);
}

void hb_recording_write_core(FILE *out, uint32_t gpu, int64_t now_ns, const struct hb_core_config *config)
{
	begin_line(out, gpu, now_ns, '=');
	fprintf(out, " policy=%s", config->policy);
#define X(field) fprintf(out, " " #field "=%" PRId64, (int64_t)config->field);
	NUMBERS(X)
#undef X
#define X(field) fprintf(out, " " #field "=%d", config->field);
	FLAGS(X)
#undef X
	putc('\n', out);
}

void hb_recording_write_event(FILE *out, uint32_t gpu, int64_t now_ns, const struct hb_event *event)
{
	begin_line(out, gpu, now_ns, '>');
	putc(' ', out);
	hb_event_print(event, NULL, out);
	putc('\n', out);
}

void hb_recording_write_step(FILE *out, uint32_t gpu, int64_t now_ns)
{
	begin_line(out, gpu, now_ns, '.');
	putc('\n', out);
}

void hb_recording_write_action(FILE *out, uint32_t gpu, int64_t now_ns, const struct hb_action *action)
{
	begin_line(out, gpu, now_ns, '-');
	putc(' ', out);
	hb_action_print(action, NULL, out);
	putc('\n', out);
}

void hb_recording_write_launch(FILE *out, uint32_t gpu, int64_t at_ns, uint32_t tenant, uint32_t name)
{
	begin_line(out, gpu, at_ns, '~');
	fprintf(out, " launch #%" PRIu32 " %" PRIu32 "\n", tenant, name);
}

void hb_recording_write_name(FILE *out, uint32_t name, const char *text)
{
	begin_line(out, 0, 0, '~');
	fprintf(out, " name %" PRIu32 " %s\n", name, text);
}

/* --- reading ------------------------------------------------------------------------------ */

static bool read_number(const char *word, int64_t most, int64_t *number)
{
	char *end = NULL;
	errno = 0;
	long long value = strtoll(word, &end, 10);
	if (end == word || *end || errno || value < 0 || value > most)
		return false;
	*number = value;
	return true;
}

uint32_t hb_recording_tenant(const char *word)
{
	int64_t id;
	return word[0] == '#' && read_number(word + 1, HB_TENANTS_DEFAULT - 1, &id) ? (uint32_t)id : HB_TENANT_NONE;
}

int hb_recording_read_line(char *text, struct hb_recording_line *line, struct hb_error *error)
{
	char *rest = text, *word;
	int64_t gpu;
	*line = (struct hb_recording_line){.gpu = 0};
	char *first = strtok_r(text, " \n", &rest), *second = strtok_r(NULL, " \n", &rest);
	char *kind = strtok_r(NULL, " \n", &rest);
	if (!first || !read_number(first, HB_RECORDING_GPUS - 1, &gpu))
		return hb_error_set(error, -EINVAL, "a GPU's number from 0 to %d is needed", HB_RECORDING_GPUS - 1);
	if (!second || !read_number(second, HB_TIME_LIMIT_NS - 1, &line->at_ns))
		return hb_error_set(error, -EINVAL, "a time in ns is needed after the GPU's number");
	if (!kind || !strchr("=>.-~", kind[0]) || kind[1])
		return hb_error_set(error, -EINVAL, "one of = > . - ~ is needed after the time");
	line->gpu = (uint32_t)gpu;
	line->kind = kind[0];
	while ((word = strtok_r(NULL, " \n", &rest))) {
		if (line->n_words == HB_RECORDING_WORDS)
			return hb_error_set(error, -EINVAL, "more than %d words", HB_RECORDING_WORDS);
		line->words[line->n_words++] = word;
	}
	return 0;
}

/* --- replay ----------------------------------------------------------------------------------- */

/* An action of the core that has not been compared yet. */
struct replayed_action {
	struct replayed_action *next;
	char text[];
};

struct replayed_core {
	struct hb_core *core;
	int64_t now_ns;
	struct replayed_action *first, **last;
};

struct replay_state {
	struct replayed_core worlds[HB_RECORDING_GPUS];
	const char *policy;
	FILE *out;
	struct hb_replay *replay;
};

static uint32_t look_up_tenant(void *argument, const char *word)
{
	return hb_recording_tenant(word);
}

static void forget_action(struct replayed_core *world)
{
	struct replayed_action *asked = world->first;
	world->first = asked->next;
	if (!world->first)
		world->last = &world->first;
	free(asked);
}

/* Reports actions that are not in the recording. */
static void report_unrecorded(struct replay_state *stage, struct replayed_core *world)
{
	while (world->first) {
		stage->replay->different++;
		if (stage->out)
			fprintf(stage->out, "%" PRId64 " now:  %s\n", world->now_ns, world->first->text);
		forget_action(world);
	}
}

static int collect_actions(struct replayed_core *world, struct hb_replay *replay)
{
	struct hb_action action;
	while (hb_core_next_action(world->core, &action)) {
		char text[512] = "";
		FILE *memory = fmemopen(text, sizeof text - 1, "w");
		if (!memory)
			return -ENOMEM;
		hb_action_print(&action, NULL, memory);
		fclose(memory);
		struct replayed_action *asked = malloc(sizeof *asked + strlen(text) + 1);
		if (!asked)
			return -ENOMEM;
		strcpy(asked->text, text);
		asked->next = NULL;
		*world->last = asked;
		world->last = &asked->next;
		replay->actions++;
	}
	return 0;
}

static int set_option(struct hb_core_config *config, char *word, struct hb_error *error)
{
	char *value = strchr(word, '=');
	int64_t number = 0;
	if (!value)
		return hb_error_set(error, -EINVAL, "'%s' is no KEY=VALUE", word);
	*value++ = '\0';
	if (strcmp(word, "policy") == 0) {
		config->policy = value;
		return 0;
	}
	if (strcmp(word, "foresight_off") == 0) /* in recordings of older versions */
		return 0;
	if (!read_number(value, HB_TIME_LIMIT_NS - 1, &number))
		return hb_error_set(error, -EINVAL, "%s: '%s' is no number", word, value);
#define X(field) \
	if (strcmp(word, #field) == 0) { \
		config->field = (__typeof__(config->field))number; \
		return 0; \
	}
	NUMBERS(X)
	FLAGS(X)
#undef X
	return hb_error_set(error, -EINVAL, "a core has no '%s'", word);
}

static int begin_core(struct replay_state *stage, struct replayed_core *world, struct hb_recording_line *line,
		      struct hb_error *error)
{
	struct hb_core_config config;
	int code = 0;
	hb_core_config_init(&config);
	config.max_tenants = HB_TENANTS_DEFAULT;
	for (size_t i = 0; i < line->n_words && code == 0; i++)
		code = set_option(&config, line->words[i], error);
	if (code)
		return code;
	if (stage->policy)
		config.policy = stage->policy;
	hb_core_free(world->core);
	world->core = hb_core_new(&config, line->at_ns, &code);
	return world->core ? 0 : hb_error_set(error, code, "no core with policy %s can be made", config.policy);
}

/* Compares the recorded action with the oldest action of the core. */
static void compare_action(struct replay_state *stage, struct replayed_core *world,
			   const struct hb_recording_line *line)
{
	char then[512] = "";
	for (size_t i = 0, used = 0; i < line->n_words && used < sizeof then; i++)
		used += (size_t)snprintf(then + used, sizeof then - used, "%s%s", i ? " " : "", line->words[i]);
	const char *now = world->first ? world->first->text : NULL;
	if (now && strcmp(now, then) == 0) {
		if (stage->out)
			fprintf(stage->out, "%" PRId64 "       %s\n", line->at_ns, then);
		forget_action(world);
		return;
	}
	stage->replay->different++;
	if (stage->out)
		fprintf(stage->out, "%" PRId64 " then: %s\n", line->at_ns, then);
}

static int play_line(struct replay_state *stage, struct hb_recording_line *line, struct hb_error *error)
{
	struct replayed_core *world = &stage->worlds[line->gpu];
	struct hb_event event;
	int code = 0;
	if (line->kind == '~') /* launches do not concern the core */
		return 0;
	if (line->kind == '-') {
		compare_action(stage, world, line);
		return 0;
	}
	report_unrecorded(stage, world);
	if (line->kind == '=')
		return begin_core(stage, world, line, error);
	if (!world->core)
		return hb_error_set(error, -EINVAL, "GPU %" PRIu32 " has no core yet", line->gpu);
	if (line->at_ns < world->now_ns)
		return hb_error_set(error, -EINVAL, "time goes back");
	world->now_ns = line->at_ns;
	if (line->kind == '.')
		hb_core_step(world->core, line->at_ns);
	else
		code = hb_event_parse(line->words, line->n_words, look_up_tenant, NULL, &event, error);
	if (code)
		return code;
	stage->replay->events += line->kind == '>';
	/* An event that the core refused when it was recorded is refused again. */
	if (line->kind == '>')
		hb_core_post(world->core, line->at_ns, &event);
	return collect_actions(world, stage->replay) < 0 ? hb_error_set(error, -ENOMEM, "out of memory") : 0;
}

static int play_text(struct replay_state *stage, char *text, const char *origin, struct hb_error *error)
{
	unsigned number = 0;
	char *rest = text, *at;
	while ((at = strsep(&rest, "\n"))) {
		struct hb_recording_line line;
		struct hb_error why;
		number++;
		if (!*at || *at == '#')
			continue;
		int code = hb_recording_read_line(at, &line, &why);
		if (!code)
			code = play_line(stage, &line, &why);
		if (code)
			return hb_error_set(error, code, "%s:%u: %s", origin, number, why.text);
	}
	return 0;
}

int hb_recording_replay(const char *text, const char *origin, const char *policy, FILE *out, struct hb_replay *replay,
			struct hb_error *error)
{
	struct replay_state *stage = calloc(1, sizeof *stage);
	char *copy = strdup(text);
	*replay = (struct hb_replay){.events = 0};
	int code = stage && copy ? 0 : hb_error_set(error, -ENOMEM, "out of memory");
	for (size_t i = 0; !code && i < HB_RECORDING_GPUS; i++)
		stage->worlds[i].last = &stage->worlds[i].first;
	if (!code) {
		stage->policy = policy;
		stage->out = out;
		stage->replay = replay;
		code = play_text(stage, copy, origin, error);
	}
	for (size_t i = 0; stage && i < HB_RECORDING_GPUS; i++) {
		if (!code)
			report_unrecorded(stage, &stage->worlds[i]);
		while (stage->worlds[i].first)
			forget_action(&stage->worlds[i]);
		hb_core_free(stage->worlds[i].core);
	}
	free(stage);
	free(copy);
	return code;
}
