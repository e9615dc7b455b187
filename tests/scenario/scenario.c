/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreter of scenarios; see scenario.h and README.md. Each command has one
 * function. Events and actions are read and printed by core/event_text.h, so a new
 * one in the tables needs no change here.
 */
#include "scenario.h"

#include "bad_policies.h"
#include "base/units.h"
#include "core/event_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 32
#define STEPS_MAX 1000000

struct scenario {
	struct hb_core_config config;
	struct hb_core *core; /* made by the first command that needs it */
	int64_t now_ns;
	FILE *out;
	bool manual; /* the text posts `drained` itself */
	bool quiet;  /* print actions but not events */
	char names[HB_TENANTS_DEFAULT][48];
	struct hb_error *error;
};

__attribute__((format(printf, 2, 3))) static int failed(struct scenario *s, const char *format, ...)
{
	char text[400];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	return hb_error_set(s->error, -EINVAL, "%s", text);
}

/* --- tenants by name; "#7" names an id --- */

static uint32_t lookup(void *argument, const char *word)
{
	struct scenario *s = argument;
	for (uint32_t id = 0; id < HB_TENANTS_DEFAULT; id++)
		if (*s->names[id] && !strcmp(s->names[id], word))
			return id;
	return *word == '#' ? (uint32_t)strtoul(word + 1, NULL, 10) : HB_TENANT_NONE;
}

static const char *name_of(const struct scenario *s, uint32_t id)
{
	return id < HB_TENANTS_DEFAULT && *s->names[id] ? s->names[id] : NULL;
}

/* --- the owner of the core --- */

static void print_now(const struct scenario *s, const char *mark)
{
	char text[HB_UNITS_TEXT_MAX];
	fprintf(s->out, "%-10s %s ", hb_duration_format(s->now_ns, text), mark);
}

static int post(struct scenario *s, const struct hb_event *event);

/* Reports that a closed tenant has nothing in flight: at once, or when it becomes idle. */
static void report_drained(struct scenario *s, uint32_t tenant)
{
	const struct hb_tenant *about = hb_core_tenant(s->core, tenant);
	struct hb_event event = {.kind = HB_EVENT_DRAINED, .tenant = tenant};
	bool quiet = s->quiet;
	if (s->manual || !about || !about->undrained || about->busy)
		return;
	s->quiet = true;
	post(s, &event);
	s->quiet = quiet;
}

static void take_actions(struct scenario *s)
{
	struct hb_action action;
	while (hb_core_next_action(s->core, &action)) {
		print_now(s, "-");
		hb_action_print(&action, name_of(s, action.tenant), s->out);
		fputc('\n', s->out);
		if (action.kind == HB_ACTION_GATE && action.gate.state == HB_GATE_CLOSED)
			report_drained(s, action.tenant);
	}
}

static int post(struct scenario *s, const struct hb_event *event)
{
	if (!s->quiet) {
		print_now(s, ">");
		hb_event_print(event, name_of(s, event->tenant), s->out);
		fputc('\n', s->out);
	}
	int code = hb_core_post(s->core, s->now_ns, event);
	if (code) {
		print_now(s, "!");
		fprintf(s->out, "%s\n", strerrorname_np(-code));
	}
	take_actions(s);
	if (!code && event->kind == HB_EVENT_IDLE)
		report_drained(s, event->tenant);
	return code;
}

/* Lets timers run up to a time, each when it is due. */
static int run_to(struct scenario *s, int64_t until_ns)
{
	for (int steps = 0; steps < STEPS_MAX; steps++) {
		int64_t wake_ns = hb_core_next_wake(s->core);
		if (wake_ns > until_ns)
			return 0;
		if (wake_ns > s->now_ns)
			s->now_ns = wake_ns;
		hb_core_step(s->core, s->now_ns);
		take_actions(s);
	}
	return failed(s, "the core wants to be woken without end");
}

static int start_core(struct scenario *s)
{
	int code;
	if (s->core)
		return 0;
	s->core = hb_core_new(&s->config, s->now_ns, &code);
	if (!s->core)
		return failed(s, "no core with this config: %s", strerrorname_np(-code));
	take_actions(s);
	return 0;
}

/* --- commands --- */

static int set_key(struct scenario *s, const char *key, const char *value)
{
	struct hb_error why;
	char *end;
#define SET_NS(member) \
	if (hb_duration_parse(value, &s->config.member, &why)) \
		return failed(s, "config %s: %s", key, why.text);
#define SET_U32(member) \
	s->config.member = (uint32_t)strtoul(value, &end, 10); \
	if (!*value || *end) \
		return failed(s, "config %s=%s: not a number", key, value);
#define SET_FLAG(member) s->config.member = true;
#define HB_KEY(KIND, member, text) \
	if (!strcmp(key, text)) { \
		SET_##KIND(member) return 0; \
	}
#include "config_keys.def"
	return failed(s, "config has no key '%s'", key);
}

static int set_policy(struct scenario *s, const char *name)
{
	s->config.ops = hb_policy_find(name);
	if (!s->config.ops)
		s->config.ops = hb_bad_policy_find(name);
	return s->config.ops ? 0 : failed(s, "no policy '%s'", name);
}

static int command_config(struct scenario *s, char **words, size_t n)
{
	if (s->core)
		return failed(s, "config comes before everything else");
	for (size_t i = 1; i < n; i++) {
		char *equals = strchr(words[i], '=');
		if (equals)
			*equals = 0;
		const char *value = equals ? equals + 1 : "";
		int code = strcmp(words[i], "policy") ? set_key(s, words[i], value) : set_policy(s, value);
		if (code)
			return code;
	}
	return 0;
}

/* "tenant NAME high|low [id=N] [field=value...]" is tenant_add with the first free id and the name known from here on. */
static int command_tenant(struct scenario *s, char **words, size_t n)
{
	char verb[] = "tenant_add", name[64], priority[32], *event_words[WORDS_MAX + 2];
	uint32_t id = 0;
	size_t n_event = 4;
	struct hb_event event;
	if (n < 3 || strlen(words[1]) >= sizeof s->names[0])
		return failed(s, "tenant NAME high|low [id=N] [slo=...]");
	while (id < HB_TENANTS_DEFAULT - 1 && *s->names[id])
		id++;
	for (size_t i = 3; i < n; i++)
		if (!strncmp(words[i], "id=", 3))
			id = (uint32_t)strtoul(words[i] + 3, NULL, 10) % HB_TENANTS_DEFAULT;
		else
			event_words[n_event++] = words[i];
	strcpy(s->names[id], words[1]);
	snprintf(name, sizeof name, "name=%s", words[1]);
	snprintf(priority, sizeof priority, "priority=%s", words[2]);
	event_words[0] = verb;
	event_words[1] = words[1];
	event_words[2] = name;
	event_words[3] = priority;
	int code = hb_event_parse(event_words, n_event, lookup, s, &event, s->error);
	if (!code)
		post(s, &event);
	return code;
}

static int command_advance(struct scenario *s, char **words, size_t n)
{
	struct hb_error why;
	int64_t time_ns;
	bool to = n == 3 && !strcmp(words[1], "to");
	if (!to && n != 2)
		return failed(s, "advance to TIME, or advance DURATION");
	if (hb_duration_parse(words[n - 1], &time_ns, &why))
		return failed(s, "%s", why.text);
	if (!to)
		time_ns += s->now_ns;
	int code = run_to(s, time_ns);
	if (time_ns > s->now_ns)
		s->now_ns = time_ns;
	hb_core_step(s->core, s->now_ns);
	return code;
}

/* "serve TENANT count=N every=TIME latency=TIME [grow=TIME]": requests served one after the other; their events are not printed. */
static int command_serve(struct scenario *s, char **words, size_t n)
{
	int64_t every_ns = 0, latency_ns = 0, grow_ns = 0;
	unsigned long count = 0;
	struct hb_error why;
	for (size_t i = 2; i < n; i++) {
		const char *value = strchr(words[i], '=') ? strchr(words[i], '=') + 1 : "";
		int code = 0;
		if (!strncmp(words[i], "count=", 6))
			count = strtoul(value, NULL, 10);
		else if (!strncmp(words[i], "every=", 6))
			code = hb_duration_parse(value, &every_ns, &why);
		else if (!strncmp(words[i], "latency=", 8))
			code = hb_duration_parse(value, &latency_ns, &why);
		else if (!strncmp(words[i], "grow=", 5))
			code = hb_duration_parse(value, &grow_ns, &why);
		else
			return failed(s, "serve TENANT count=N every=TIME latency=TIME [grow=TIME]");
		if (code)
			return failed(s, "%s", why.text);
	}
	uint32_t tenant = n > 1 ? lookup(s, words[1]) : HB_TENANT_NONE;
	s->quiet = true;
	for (uint64_t i = 0; i < count; i++, latency_ns += grow_ns) {
		struct hb_event end = {.kind = HB_EVENT_REQUEST_PAST, .tenant = tenant};
		struct hb_event busy = {.kind = HB_EVENT_BUSY, .tenant = tenant};
		struct hb_event idle = {.kind = HB_EVENT_IDLE, .tenant = tenant};
		int64_t next_ns = s->now_ns + every_ns;
		end.request_past.begin_ns = s->now_ns;
		post(s, &busy);
		s->now_ns += latency_ns;
		end.request_past.end_ns = s->now_ns;
		run_to(s, s->now_ns);
		post(s, &idle);
		post(s, &end);
		s->now_ns = next_ns > s->now_ns ? next_ns : s->now_ns;
		run_to(s, s->now_ns);
	}
	s->quiet = false;
	return 0;
}

static int command_dump(struct scenario *s, char **words, size_t n)
{
	hb_core_step(s->core, s->now_ns);
	take_actions(s);
	hb_core_dump(s->core, s->out);
	return 0;
}

static int command_wake(struct scenario *s, char **words, size_t n)
{
	char text[HB_UNITS_TEXT_MAX];
	int64_t wake_ns = hb_core_next_wake(s->core);
	print_now(s, "=");
	fprintf(s->out, "wake %s\n", wake_ns == HB_TIME_NEVER ? "never" : hb_duration_format(wake_ns, text));
	return 0;
}

static int command_owner(struct scenario *s, char **words, size_t n)
{
	if (n != 2 || (strcmp(words[1], "manual") && strcmp(words[1], "drains")))
		return failed(s, "owner manual|drains");
	s->manual = !strcmp(words[1], "manual");
	return 0;
}

static int command_event(struct scenario *s, char **words, size_t n)
{
	struct hb_event event;
	int code = hb_event_parse(words, n, lookup, s, &event, s->error);
	if (code)
		return code;
	post(s, &event);
	if (event.kind == HB_EVENT_TENANT_REMOVE && event.tenant < HB_TENANTS_DEFAULT)
		*s->names[event.tenant] = 0;
	return 0;
}

static int run_words(struct scenario *s, char **words, size_t n)
{
	static const struct {
		const char *name;
		int (*run)(struct scenario *s, char **words, size_t n);
	} commands[] = {
		{"tenant", command_tenant}, {"advance", command_advance}, {"serve", command_serve},
		{"dump", command_dump},     {"wake", command_wake},       {"owner", command_owner},
	};
	if (!strcmp(words[0], "config"))
		return command_config(s, words, n);
	int code = start_core(s);
	if (code)
		return code;
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(commands[i].name, words[0]))
			return commands[i].run(s, words, n);
	return command_event(s, words, n);
}

/* "at TIME COMMAND": timers due before that time run before the command, timers due at that time after it. */
static int run_at(struct scenario *s, char **words, size_t n)
{
	struct hb_error why;
	int64_t time_ns;
	if (n < 3)
		return failed(s, "at TIME COMMAND");
	if (hb_duration_parse(words[1], &time_ns, &why))
		return failed(s, "%s", why.text);
	int code = start_core(s);
	if (!code)
		code = run_to(s, time_ns - 1);
	s->now_ns = time_ns;
	return code ? code : run_words(s, words + 2, n - 2);
}

static int run_line(struct scenario *s, char *line)
{
	char *words[WORDS_MAX], *rest = line;
	size_t n = 0;
	char *comment = strchr(line, '#');
	/* "#7" in the middle of a line names a tenant. */
	if (comment && (comment == line || comment[1] == ' '))
		*comment = 0;
	for (char *word; (word = strsep(&rest, " \t\n"));)
		if (*word && n == WORDS_MAX)
			return failed(s, "more than %d words", WORDS_MAX);
		else if (*word)
			words[n++] = word;
	if (!n)
		return 0;
	return strcmp(words[0], "at") ? run_words(s, words, n) : run_at(s, words, n);
}

int hb_scenario_run(const char *path, FILE *in, FILE *out, struct hb_error *error)
{
	struct hb_error why = {""};
	struct scenario *s = calloc(1, sizeof *s);
	char line[1024];
	int code = s ? 0 : -ENOMEM;
	hb_error_set(error, code, "%s: out of memory", path);
	if (!s)
		return code;
	s->out = out;
	s->error = &why;
	hb_core_config_init(&s->config);
	for (int number = 1; !code && fgets(line, sizeof line, in); number++) {
		code = strchr(line, '\n') ? run_line(s, line) : failed(s, "line too long or without an end");
		if (code)
			hb_error_set(error, code, "%s:%d: %s", path, number, why.text);
	}
	hb_core_free(s->core);
	free(s);
	return code;
}
