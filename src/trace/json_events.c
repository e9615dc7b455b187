/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads Chrome trace events one at a time; see json_events.h. This file only finds
 * where values begin and end (strings, nesting); jansson parses each value.
 */
#include "trace/json_events.h"

#include "trace/text_input.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum json_place {
	AT_START,
	IN_OBJECT, /* inside the file's outermost object, before a key */
	IN_EVENTS,
	AT_END,
};

struct hb_json_events {
	struct hb_input input;
	uint64_t lines;
	size_t at, filled; /* position in input.chunk, and number of bytes there */
	enum json_place place;
	bool in_object; /* the events are inside an object */
	bool keep;      /* the bytes of values are copied to `value` */
	size_t length;
	char value[HB_JSON_EVENT_BYTES_MAX];
};

int hb_json_events_open(const char *path, struct hb_json_events **out, struct hb_error *error)
{
	struct hb_json_events *events = malloc(sizeof *events);
	if (!events)
		return hb_error_set(error, -ENOMEM, "%s: out of memory", path);
	memset(events, 0, offsetof(struct hb_json_events, value));
	events->lines = 1;
	int code = hb_input_open(&events->input, path, error);
	if (code) {
		free(events);
		return code;
	}
	*out = events;
	return 0;
}

void hb_json_events_close(struct hb_json_events *events)
{
	if (!events)
		return;
	hb_input_close(&events->input);
	free(events);
}

int hb_json_events_error(const struct hb_json_events *events, struct hb_error *error, int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	hb_input_error(&events->input, error, code, format, arguments);
	va_end(arguments);
	return code;
}

static int fail_unexpected(struct hb_json_events *events, const char *expected, struct hb_error *error)
{
	events->input.line = events->lines;
	return hb_json_events_error(events, error, -EINVAL, "not a Chrome trace: expected %s", expected);
}

/* Returns the next byte without taking it; 0 at the end of the file, or an error. */
static int peek_byte(struct hb_json_events *events, struct hb_error *error)
{
	if (events->at == events->filled) {
		events->input.line = events->lines;
		int got = hb_input_read(&events->input, error);
		if (got <= 0)
			return got;
		events->at = 0;
		events->filled = (size_t)got;
	}
	return events->input.chunk[events->at];
}

static void take_byte(struct hb_json_events *events)
{
	if (events->input.chunk[events->at++] == '\n')
		events->lines++;
}

/* Skips white space and returns the next byte without taking it, like peek_byte(). */
static int peek_token(struct hb_json_events *events, struct hb_error *error)
{
	int byte = peek_byte(events, error);
	while (byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t') {
		take_byte(events);
		byte = peek_byte(events, error);
	}
	return byte;
}

/* Takes the byte that peek_byte() returned, as a part of a value. */
static int take_part(struct hb_json_events *events, int byte, struct hb_error *error)
{
	take_byte(events);
	if (!events->keep)
		return 0;
	if (events->length == HB_JSON_EVENT_BYTES_MAX)
		return hb_json_events_error(events, error, -E2BIG, "an event is longer than %u bytes",
					    HB_JSON_EVENT_BYTES_MAX);
	events->value[events->length++] = (char)byte;
	return 0;
}

/* Takes a string with both its quotes. */
static int take_string(struct hb_json_events *events, struct hb_error *error)
{
	bool escaped = false;
	for (bool first = true;; first = false) {
		int byte = peek_byte(events, error);
		if (byte <= 0)
			return byte < 0 ? byte : fail_unexpected(events, "the end of a string", error);
		int code = take_part(events, byte, error);
		if (code || (byte == '"' && !escaped && !first))
			return code;
		escaped = byte == '\\' && !escaped;
	}
}

/* Takes an array or an object with all that it contains. */
static int take_nested(struct hb_json_events *events, struct hb_error *error)
{
	uint64_t depth = 0;
	do {
		int byte = peek_byte(events, error);
		if (byte <= 0)
			return byte < 0
				       ? byte
				       : fail_unexpected(events, "the end of an object or array: the file is cut short",
							 error);
		depth += byte == '{' || byte == '[';
		depth -= byte == '}' || byte == ']';
		int code = byte == '"' ? take_string(events, error) : take_part(events, byte, error);
		if (code)
			return code;
	} while (depth);
	return 0;
}

/* Takes a number, true, false or null. */
static int take_scalar(struct hb_json_events *events, struct hb_error *error)
{
	bool any = false;
	for (;;) {
		int byte = peek_byte(events, error);
		if (byte < 0)
			return byte;
		if (!byte || strchr(",]}: \n\r\t", byte))
			return any ? 0 : fail_unexpected(events, "a value", error);
		any = true;
		int code = take_part(events, byte, error);
		if (code)
			return code;
	}
}

static int take_value(struct hb_json_events *events, bool keep, struct hb_error *error)
{
	int byte = peek_token(events, error);
	if (byte < 0)
		return byte;
	events->keep = keep;
	events->length = 0;
	events->input.line = events->lines;
	if (byte == '"')
		return take_string(events, error);
	return byte == '{' || byte == '[' ? take_nested(events, error) : take_scalar(events, error);
}

/* Takes a comma, or sees `end` (*ended is then true); anything else is an error. */
static int take_comma(struct hb_json_events *events, int end, bool *ended, struct hb_error *error)
{
	int byte = peek_token(events, error);
	if (byte < 0)
		return byte;
	if (byte != ',' && byte != end)
		return fail_unexpected(
			events, byte ? "',' or the end of an object or array" : "more: the file is cut short", error);
	take_byte(events);
	*ended = byte == end;
	return 0;
}

/* Takes one key of the file's object and its value, but not the value of the key "traceEvents". */
static int take_member(struct hb_json_events *events, struct hb_error *error)
{
	int byte = peek_token(events, error);
	if (byte != '"')
		return byte < 0 ? byte : fail_unexpected(events, "a key", error);
	int code = take_value(events, true, error);
	if (code)
		return code;
	bool is_events = events->length == 13 && memcmp(events->value, "\"traceEvents\"", 13) == 0;
	byte = peek_token(events, error);
	if (byte != ':')
		return byte < 0 ? byte : fail_unexpected(events, "':'", error);
	take_byte(events);
	if (!is_events) {
		bool ended = false;
		code = take_value(events, false, error);
		if (!code)
			code = take_comma(events, '}', &ended, error);
		if (ended)
			events->place = AT_END;
		return code;
	}
	byte = peek_token(events, error);
	if (byte != '[')
		return byte < 0 ? byte : fail_unexpected(events, "an array of events", error);
	take_byte(events);
	events->place = IN_EVENTS;
	return 0;
}

static int start_events(struct hb_json_events *events, struct hb_error *error)
{
	int byte = peek_token(events, error);
	if (byte < 0)
		return byte;
	if (byte != '{' && byte != '[')
		return fail_unexpected(events, "'{' or '['", error);
	take_byte(events);
	events->in_object = byte == '{';
	events->place = events->in_object ? IN_OBJECT : IN_EVENTS;
	if (events->in_object && peek_token(events, error) == '}') {
		take_byte(events);
		events->place = AT_END;
	}
	return 0;
}

/* Returns to the object around the events, if there is one, after the last event. */
static int leave_events(struct hb_json_events *events, struct hb_error *error)
{
	bool ended = true;
	events->place = AT_END;
	if (!events->in_object)
		return 0;
	int code = take_comma(events, '}', &ended, error);
	if (!ended)
		events->place = IN_OBJECT;
	return code;
}

/* Takes one event and the comma or the end that follows it. */
static int take_event(struct hb_json_events *events, json_t **event, struct hb_error *error)
{
	bool ended = false;
	int code = take_value(events, true, error);
	if (code)
		return code;
	json_error_t reason;
	json_t *parsed = json_loadb(events->value, events->length, JSON_DECODE_ANY, &reason);
	if (!parsed)
		return hb_json_events_error(events, error, -EINVAL, "bad JSON in the event that begins here: %s",
					    reason.text);
	uint64_t line = events->input.line;
	code = take_comma(events, ']', &ended, error);
	if (!code && ended)
		code = leave_events(events, error);
	if (code) {
		json_decref(parsed);
		return code;
	}
	events->input.line = line;
	*event = parsed;
	return 1;
}

static int check_end(struct hb_json_events *events, struct hb_error *error)
{
	int byte = peek_token(events, error);
	return byte <= 0 ? byte : fail_unexpected(events, "the end of the file", error);
}

int hb_json_events_next(struct hb_json_events *events, json_t **event, struct hb_error *error)
{
	int code = events->place == AT_START ? start_events(events, error) : 0;
	while (!code && events->place != AT_END) {
		if (events->place == IN_OBJECT) {
			code = take_member(events, error);
			continue;
		}
		int byte = peek_token(events, error);
		if (byte < 0)
			return byte;
		if (byte != ']')
			return take_event(events, event, error);
		/* This is the end of an empty array; the end that follows an event has been taken with the event. */
		take_byte(events);
		code = leave_events(events, error);
	}
	return code ? code : check_end(events, error);
}
