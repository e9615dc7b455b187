/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parser and printer of events and actions; see event_text.h. A message is an event
 * or an action. Its table of fields with offsets is made from events.def, actions.def
 * and fields.def; each type of field has one reader and one printer.
 */
#include "core/event_text.h"

#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum field_type {
#define HB_FIELD_TYPE(TYPE, c_type) FIELD_##TYPE,
#include "core/fields.def"
#undef HB_FIELD_TYPE
	FIELD_TYPES
};

struct field {
	const char *text; /* NULL ends a table */
	enum field_type type;
	bool must;
	size_t offset; /* in the message */
};

/* clang-format off */
/* One function for each message, because offsetof() needs the type of its struct. */
#define HB_FIELD(TYPE, name, must, text) {text, FIELD_##TYPE, must, offsetof(message, name)},
#define MESSAGE(owner, lower) \
	static const struct field *fields_of_##lower(void) \
	{ \
		typedef __typeof__(((struct owner *)0)->lower) message; \
		static const struct field fields[] = {
#define MESSAGE_END \
			{NULL, FIELD_TYPES, false, sizeof(message)}, \
		}; \
		return fields; \
	}

#define HB_EVENT(UPPER, lower) MESSAGE(hb_event, lower)
#define HB_EVENT_END(UPPER, lower) MESSAGE_END
#include "core/events.def"
#undef HB_EVENT
#undef HB_EVENT_END

#define HB_ACTION(UPPER, lower) MESSAGE(hb_action, lower)
#define HB_ACTION_END(UPPER, lower) MESSAGE_END
#include "core/actions.def"
#undef HB_ACTION
#undef HB_ACTION_END
#undef HB_FIELD
/* clang-format on */

struct message {
	const char *name;
	const struct field *(*fields)(void);
	size_t base; /* offset of the message in the event or action */
};

#define HB_FIELD(TYPE, name, must, text)
#define HB_EVENT(UPPER, lower) [HB_EVENT_##UPPER] = {#lower, fields_of_##lower, offsetof(struct hb_event, lower)},
#define HB_EVENT_END(UPPER, lower)
static const struct message events[HB_EVENT_KINDS] = {
#include "core/events.def"
};
#define HB_ACTION(UPPER, lower) [HB_ACTION_##UPPER] = {#lower, fields_of_##lower, offsetof(struct hb_action, lower)},
#define HB_ACTION_END(UPPER, lower)
static const struct message actions[HB_ACTION_KINDS] = {
#include "core/actions.def"
};
#undef HB_FIELD

/* --- enumerations --- */

static const struct word {
	enum field_type type;
	int value;
	const char *text;
} words_of_fields[] = {
#define HB_WORD(TYPE, VALUE, text) {FIELD_##TYPE, (int)VALUE, text},
#include "core/fields.def"
#undef HB_WORD
};

#define N_WORDS (sizeof words_of_fields / sizeof *words_of_fields)

static const char *word_text(enum field_type type, int value)
{
	for (size_t i = 0; i < N_WORDS; i++)
		if (words_of_fields[i].type == type && words_of_fields[i].value == value)
			return words_of_fields[i].text;
	return "?";
}

const char *hb_gate_state_name(enum hb_gate_state state)
{
	return word_text(FIELD_GATE, (int)state);
}

/* --- reading --- */

static int read_word(enum field_type type, const char *key, const char *text, int *value, struct hb_error *error)
{
	char choices[200] = "";
	for (size_t i = 0; i < N_WORDS; i++) {
		if (words_of_fields[i].type != type)
			continue;
		if (!strcmp(words_of_fields[i].text, text)) {
			*value = words_of_fields[i].value;
			return 0;
		}
		size_t used = strlen(choices);
		snprintf(choices + used, sizeof choices - used, " %s", words_of_fields[i].text);
	}
	return hb_error_set(error, -EINVAL, "%s=%s: unknown word; one of%s", key, text, choices);
}

static int read_number(const char *key, const char *text, uint64_t max, uint64_t *value, struct hb_error *error)
{
	char *end;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || number > max)
		return hb_error_set(error, -EINVAL, "%s=%s: not a whole number up to %" PRIu64, key, text, max);
	*value = number;
	return 0;
}

/* Reads "99%" or "99.95%" as parts per million. At most four decimals, so nothing is rounded. */
static int read_percent(const char *key, const char *text, uint32_t *ppm, struct hb_error *error)
{
	uint32_t value = 0;
	int decimals = -1;
	const char *c = text;
	for (; (isdigit((unsigned char)*c) && value <= 1000000) || (*c == '.' && decimals < 0); c++) {
		if (*c != '.')
			value = value * 10 + (uint32_t)(*c - '0');
		decimals += *c == '.' || decimals >= 0;
	}
	bool valid = isdigit((unsigned char)*text) && !strcmp(c, "%") && decimals <= 4;
	for (decimals = decimals < 0 ? 0 : decimals; valid && decimals < 4; decimals++)
		value = value > 100000 ? UINT32_MAX / 10 : value * 10;
	if (!valid || value > 1000000)
		return hb_error_set(error, -EINVAL, "%s=%s: not a share; write 99%% or 99.95%%", key, text);
	*ppm = value;
	return 0;
}

static int read_name(const char *key, const char *text, struct hb_name *name, struct hb_error *error)
{
	if (!*text || strlen(text) >= sizeof name->text)
		return hb_error_set(error, -EINVAL, "%s=%s: a name has 1 to %zu characters", key, text,
				    sizeof name->text - 1);
	memset(name, 0, sizeof *name);
	strcpy(name->text, text);
	return 0;
}

static int read_duration(const char *key, const char *text, int64_t *value_ns, struct hb_error *error)
{
	struct hb_error why;
	int code = hb_duration_parse(text, value_ns, &why);
	return code ? hb_error_set(error, code, "%s: %s", key, why.text) : 0;
}

static int read_bytes(const char *key, const char *text, uint64_t *bytes, struct hb_error *error)
{
	struct hb_error why;
	int code = hb_bytes_parse(text, bytes, &why);
	return code ? hb_error_set(error, code, "%s: %s", key, why.text) : 0;
}

static int read_value(const struct field *field, const char *text, char *at, struct hb_error *error)
{
	uint64_t number = 0;
	int word = 0, code = 0;
	switch (field->type) {
	case FIELD_NAME:
		return read_name(field->text, text, (struct hb_name *)at, error);
	case FIELD_NS:
		return read_duration(field->text, text, (int64_t *)at, error);
	case FIELD_BYTES:
		return read_bytes(field->text, text, (uint64_t *)at, error);
	case FIELD_PPM:
		return read_percent(field->text, text, (uint32_t *)at, error);
	case FIELD_U32:
		code = read_number(field->text, text, UINT32_MAX, &number, error);
		if (!code)
			*(uint32_t *)at = (uint32_t)number;
		return code;
	case FIELD_FLAG:
		return hb_error_set(error, -EINVAL, "%s takes no value", field->text);
	default:
		code = read_word(field->type, field->text, text, &word, error);
		if (!code)
			*(int *)at = word;
		return code;
	}
}

/* Reads "key=value" or a flag, and sets the bit of that field in *seen. */
static int read_field(const struct message *message, const char *word, char *base, uint32_t *seen,
		      struct hb_error *error)
{
	const char *equals = strchr(word, '=');
	size_t len = equals ? (size_t)(equals - word) : strlen(word);
	const struct field *fields = message->fields();
	for (unsigned i = 0; fields[i].text; i++) {
		if (strlen(fields[i].text) != len || strncmp(fields[i].text, word, len) != 0)
			continue;
		if (*seen & 1u << i)
			return hb_error_set(error, -EINVAL, "%s is given twice", fields[i].text);
		*seen |= 1u << i;
		if (equals)
			return read_value(&fields[i], equals + 1, base + fields[i].offset, error);
		if (fields[i].type != FIELD_FLAG)
			return hb_error_set(error, -EINVAL, "%s needs a value: %s=...", word, word);
		*(bool *)(base + fields[i].offset) = true;
		return 0;
	}
	return hb_error_set(error, -EINVAL, "%s has no field '%.*s'", message->name, (int)len, word);
}

static int read_fields(const struct message *message, char *const words[], size_t n, char *base, struct hb_error *error)
{
	uint32_t seen = 0;
	for (size_t i = 0; i < n; i++) {
		int code = read_field(message, words[i], base, &seen, error);
		if (code)
			return code;
	}
	const struct field *fields = message->fields();
	for (unsigned i = 0; fields[i].text; i++)
		if (fields[i].must && !(seen & 1u << i))
			return hb_error_set(error, -EINVAL, "%s needs %s=...", message->name, fields[i].text);
	return 0;
}

int hb_event_parse(char *const words[], size_t n, hb_tenant_lookup_fn *lookup, void *argument, struct hb_event *event,
		   struct hb_error *error)
{
	unsigned kind = 0;
	while (n && kind < HB_EVENT_KINDS && strcmp(events[kind].name, words[0]) != 0)
		kind++;
	if (!n || kind == HB_EVENT_KINDS)
		return hb_error_set(error, -EINVAL, "unknown event '%s'", n ? words[0] : "");
	if (n < 2)
		return hb_error_set(error, -EINVAL, "%s needs a tenant", words[0]);
	struct hb_event parsed;
	memset(&parsed, 0, sizeof parsed);
	parsed.kind = (enum hb_event_kind)kind;
	parsed.tenant = lookup(argument, words[1]);
	if (parsed.tenant == HB_TENANT_NONE)
		return hb_error_set(error, -EINVAL, "unknown tenant '%s'", words[1]);
	int code = read_fields(&events[kind], words + 2, n - 2, (char *)&parsed + events[kind].base, error);
	if (!code)
		*event = parsed;
	return code;
}

/* --- printing --- */

static void print_percent(uint32_t ppm, FILE *out)
{
	fprintf(out, "%u", ppm / 10000);
	if (ppm % 10000) {
		char decimals[8];
		int len = snprintf(decimals, sizeof decimals, "%04u", ppm % 10000);
		while (decimals[len - 1] == '0')
			len--;
		fprintf(out, ".%.*s", len, decimals);
	}
	fputc('%', out);
}

static void print_value(const struct field *field, const char *at, FILE *out)
{
	char text[HB_UNITS_TEXT_MAX];
	switch (field->type) {
	case FIELD_NAME:
		fputs(((const struct hb_name *)at)->text, out);
		break;
	case FIELD_NS:
		fputs(hb_duration_format(*(const int64_t *)at, text), out);
		break;
	case FIELD_BYTES:
		fputs(hb_bytes_format(*(const uint64_t *)at, text), out);
		break;
	case FIELD_PPM:
		print_percent(*(const uint32_t *)at, out);
		break;
	case FIELD_U32:
		fprintf(out, "%" PRIu32, *(const uint32_t *)at);
		break;
	default:
		fputs(word_text(field->type, *(const int *)at), out);
	}
}

static size_t value_bytes(enum field_type type)
{
	static const size_t bytes[] = {
#define HB_FIELD_TYPE(TYPE, c_type) [FIELD_##TYPE] = sizeof(c_type),
#include "core/fields.def"
#undef HB_FIELD_TYPE
	};
	return bytes[type];
}

static bool is_zero(const char *at, size_t bytes)
{
	while (bytes--)
		if (*at++)
			return false;
	return true;
}

static void print_message(const struct message *message, uint32_t id, const char *tenant, const char *object, FILE *out)
{
	fputs(message->name, out);
	if (tenant)
		fprintf(out, " %s", tenant);
	else if (id != HB_TENANT_NONE)
		fprintf(out, " #%u", id);
	for (const struct field *field = message->fields(); field->text; field++) {
		const char *at = object + message->base + field->offset;
		if (!field->must && is_zero(at, value_bytes(field->type)))
			continue;
		fprintf(out, " %s", field->text);
		if (field->type == FIELD_FLAG)
			continue;
		fputc('=', out);
		print_value(field, at, out);
	}
}

void hb_event_print(const struct hb_event *event, const char *tenant, FILE *out)
{
	if ((unsigned)event->kind < HB_EVENT_KINDS)
		print_message(&events[event->kind], event->tenant, tenant, (const char *)event, out);
}

void hb_action_print(const struct hb_action *action, const char *tenant, FILE *out)
{
	if ((unsigned)action->kind < HB_ACTION_KINDS)
		print_message(&actions[action->kind], action->tenant, tenant, (const char *)action, out);
}
