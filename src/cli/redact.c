/* SPDX-License-Identifier: Apache-2.0 */
/* Removes from a text what a bug report must not tell; see redact.h. */
#include "cli/redact.h"

#include "base/paths.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* --- names ------------------------------------------------------------------------------- */

static void add_name(struct hb_redactor *redactor, const char *word, const char *replacement)
{
	if (strlen(word) < 2 || strlen(word) >= sizeof redactor->names[0].word || redactor->n == HB_REDACT_NAMES_MAX)
		return;
	for (size_t i = 0; i < redactor->n; i++)
		if (strcmp(redactor->names[i].word, word) == 0)
			return;
	strcpy(redactor->names[redactor->n].word, word);
	snprintf(redactor->names[redactor->n++].replacement, sizeof redactor->names[0].replacement, "%s", replacement);
}

void hb_redact_host(struct hb_redactor *redactor, const char *name)
{
	if (strcmp(name, "localhost") != 0)
		add_name(redactor, name, "HOST");
}

void hb_redact_user(struct hb_redactor *redactor, const char *name)
{
	char replacement[24];
	size_t before = redactor->n;
	if (strcmp(name, "root") == 0 || strcmp(name, "hummingbird") == 0)
		return;
	snprintf(replacement, sizeof replacement, "user%zu", redactor->n_users + 1);
	add_name(redactor, name, replacement);
	redactor->n_users += redactor->n > before;
}

void hb_redact_home(struct hb_redactor *redactor, const char *folder)
{
	size_t n = strlen(folder);
	if (n < 2 || n + 2 > sizeof redactor->homes[0] || redactor->n_homes == HB_REDACT_HOMES_MAX)
		return;
	snprintf(redactor->homes[redactor->n_homes++], sizeof redactor->homes[0], "%s%s", folder,
		 folder[n - 1] == '/' ? "" : "/");
}

/* --- writing ----------------------------------------------------------------------------- */

struct redaction {
	const struct hb_redactor *redactor;
	const char *start, *at; /* the line, and what is read next */
	char *out;
	size_t size, used;
};

static void put_text(struct redaction *redaction, const char *text, size_t n)
{
	size_t room = redaction->size - 1 - redaction->used;
	n = n < room ? n : room;
	memcpy(redaction->out + redaction->used, text, n);
	redaction->used += n;
}

static void leave_out(struct redaction *redaction, size_t n)
{
	put_text(redaction, HB_REDACTED, strlen(HB_REDACTED));
	redaction->at += n;
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* --- paths ------------------------------------------------------------------------------- */

static size_t path_length(const char *at)
{
	return strcspn(at, " \t\"'`,;:()<>|");
}

/* Whether a path begins with this folder, which ends with a slash; the folder itself may end the path. */
static bool is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder) - 1;
	return strncmp(path, folder, n) == 0 && !is_word(path[n]) && path[n] != '.';
}

static bool take_home(struct redaction *redaction)
{
	static const char *const homes[] = {"/home/", "/root/", "/Users/", "~/"};
	const struct hb_redactor *redactor = redaction->redactor;
	const char *at = redaction->at;
	bool found = false;
	if (*at != '/' && *at != '~')
		return false;
	for (size_t i = 0; i < sizeof homes / sizeof *homes && !found; i++)
		found = is_below(at, homes[i]);
	for (size_t i = 0; i < redactor->n_homes && !found; i++)
		found = is_below(at, redactor->homes[i]);
	if (!found)
		return false;
	put_text(redaction, "~/", 2);
	leave_out(redaction, path_length(at));
	return true;
}

/* --- secrets ----------------------------------------------------------------------------- */

/* Whether this word is the name of a secret: "token", "HB_API_KEY", "aws_secret". */
static bool names_secret(const char *word, size_t n)
{
	static const char *const parts[] = {"token",         "secret",  "passw",      "passphrase",  "apikey",
					    "api_key",       "api-key", "access_key", "private_key", "credential",
					    "authorization", "cookie",  "auth_key",   "session_key"};
	char text[128];
	n = n < sizeof text - 1 ? n : sizeof text - 1;
	memcpy(text, word, n);
	text[n] = '\0';
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (strcasestr(text, parts[i]))
			return true;
	return n > 3 && (strcasecmp(text + n - 4, "_key") == 0 || strcasecmp(text + n - 4, "-key") == 0);
}

static size_t value_length(const char *value)
{
	if (*value == '"' || *value == '\'') {
		const char *end = strchr(value + 1, *value);
		return end ? (size_t)(end - value) + 1 : strlen(value);
	}
	return strcspn(value, " \t,;&)");
}

/* Leaves the value out that follows the name of a secret, which was written. */
static void take_value(struct redaction *redaction, size_t name, bool option)
{
	const char *at = redaction->at;
	bool everything = name == 13 && strncasecmp(at - name, "authorization", 13) == 0;
	size_t gap = strspn(at, "\"' \t:=");
	if (!memchr(at, '=', gap) && !memchr(at, ':', gap) && !(option && *at == ' '))
		return;
	if (gap && (at[gap - 1] == '"' || at[gap - 1] == '\''))
		gap--;
	put_text(redaction, at, gap);
	redaction->at += gap;
	if (*redaction->at)
		leave_out(redaction, everything ? strlen(redaction->at) : value_length(redaction->at));
}

/* A UUID as "GPU-00112233-4455-6677-8899-aabbccddeeff", with or without the word before it. */
static bool is_uuid(const char *word, size_t n)
{
	static const int dashes[] = {8, 13, 18, 23};
	if (n >= 4 && (strncmp(word, "GPU-", 4) == 0 || strncmp(word, "MIG-", 4) == 0)) {
		word += 4;
		n -= 4;
	}
	for (size_t i = 0; n == 36 && i < n; i++) {
		bool dash = false;
		for (size_t k = 0; k < 4; k++)
			dash |= (size_t)dashes[k] == i;
		if (dash ? word[i] != '-' : !isxdigit((unsigned char)word[i]))
			return false;
	}
	return n == 36;
}

#define TOKEN_LEAST 20 /* characters; shorter words are names and numbers */

static bool is_token(const char *word, size_t n)
{
	size_t digits = 0, letters = 0;
	for (size_t i = 0; i < n; i++) {
		digits += isdigit((unsigned char)word[i]) != 0;
		letters += isalpha((unsigned char)word[i]) != 0;
	}
	return n >= TOKEN_LEAST && digits >= 3 && letters >= 3 && !is_uuid(word, n);
}

/* "//user:password@" of a URL. */
static bool take_login(struct redaction *redaction)
{
	const char *at = redaction->at;
	if (strncmp(at, "://", 3) != 0)
		return false;
	size_t n = strcspn(at + 3, "/ \t\"'");
	const char *end = memrchr(at + 3, '@', n);
	put_text(redaction, "://", 3);
	redaction->at += 3;
	if (end)
		leave_out(redaction, (size_t)(end - at) - 3);
	return true;
}

/* --- command lines ----------------------------------------------------------------------- */

static void put_command(struct redaction *redaction, size_t n)
{
	char command[HB_REDACT_LINE_MAX], program[256];
	size_t used = n < sizeof command - 1 ? n : sizeof command - 1;
	memcpy(command, redaction->at, used);
	command[used] = '\0';
	hb_redact_command(redaction->redactor, command, program, sizeof program);
	put_text(redaction, program, strlen(program));
	redaction->at += n;
}

/* 'python train.py --data X' in quotes. */
static bool take_quoted(struct redaction *redaction)
{
	const char *at = redaction->at, *end = *at == '\'' ? strchr(at + 1, '\'') : NULL;
	bool begins = at == redaction->start || !is_word(at[-1]); /* not the apostrophe of "daemon's" */
	if (!end || !begins || !memchr(at, ' ', (size_t)(end - at)))
		return false;
	put_text(redaction, "'", 1);
	redaction->at++;
	put_command(redaction, (size_t)(end - at) - 1);
	return true;
}

/* "tenant 3: python train.py --data X)" */
static bool take_tenant(struct redaction *redaction)
{
	static const char word[] = "tenant ";
	const char *at = redaction->at;
	size_t n = sizeof word - 1;
	if (strncmp(at, word, n) != 0)
		return false;
	size_t digits = strspn(at + n, "0123456789");
	if (!digits || strncmp(at + n + digits, ": ", 2) != 0)
		return false;
	n += digits + 2;
	/* The command may have brackets of its own: the last one that can end it does. */
	const char *end = strrchr(at + n, ')');
	put_text(redaction, at, n);
	redaction->at += n;
	put_command(redaction, end ? (size_t)(end - redaction->at) : strlen(redaction->at));
	return true;
}

/* --- a line ------------------------------------------------------------------------------ */

static const char *find_name(const struct hb_redactor *redactor, const char *word, size_t n)
{
	for (size_t i = 0; i < redactor->n; i++)
		if (strlen(redactor->names[i].word) == n && strncmp(redactor->names[i].word, word, n) == 0)
			return redactor->names[i].replacement;
	return NULL;
}

/* A name that has a character which ends a word: "ann.lee", "node7.example.org". */
static bool take_dotted_name(struct redaction *redaction)
{
	const struct hb_redactor *redactor = redaction->redactor;
	for (size_t i = 0; i < redactor->n; i++) {
		size_t n = strlen(redactor->names[i].word);
		if (!strpbrk(redactor->names[i].word, ".@+$") ||
		    strncmp(redaction->at, redactor->names[i].word, n) != 0 || is_word(redaction->at[n]))
			continue;
		put_text(redaction, redactor->names[i].replacement, strlen(redactor->names[i].replacement));
		redaction->at += n;
		return true;
	}
	return false;
}

static void take_word(struct redaction *redaction)
{
	const char *at = redaction->at;
	size_t n = 0, long_n = 0;
	while (is_word(at[n]))
		n++;
	while (is_word(at[long_n]) || (at[long_n] && strchr("+=", at[long_n])))
		long_n++;
	const char *name = find_name(redaction->redactor, at, n);
	bool option = n > 2 && at[0] == '-' && at[1] == '-';
	if (name) {
		put_text(redaction, name, strlen(name));
		redaction->at += n;
	} else if (names_secret(at, n)) {
		put_text(redaction, at, n);
		redaction->at += n;
		take_value(redaction, n, option);
	} else if (is_token(at, n)) {
		leave_out(redaction, long_n);
	} else {
		put_text(redaction, at, n);
		redaction->at += n;
		if ((n == 6 && strncasecmp(at, "bearer", n) == 0) || (n == 5 && strncmp(at, "Basic", n) == 0)) {
			put_text(redaction, " ", 1);
			redaction->at += strspn(redaction->at, " ");
			leave_out(redaction, value_length(redaction->at));
		}
	}
}

char *hb_redact_line(const struct hb_redactor *redactor, const char *line, char *out, size_t size)
{
	struct redaction redaction = {redactor, line, line, out, size, 0};
	while (*redaction.at && redaction.used + 1 < size) {
		bool begins = redaction.at == line || !is_word(redaction.at[-1]);
		if (take_home(&redaction) || take_login(&redaction) || take_quoted(&redaction) ||
		    (begins && (take_tenant(&redaction) || take_dotted_name(&redaction))))
			continue;
		if (is_word(*redaction.at))
			take_word(&redaction);
		else
			put_text(&redaction, redaction.at++, 1);
	}
	out[redaction.used] = '\0';
	return out;
}

char *hb_redact_command(const struct hb_redactor *redactor, const char *command, char *out, size_t size)
{
	char program[HB_REDACT_LINE_MAX], clean[256];
	const char *start = hb_path_command(command);
	snprintf(program, sizeof program, "%.*s", (int)strcspn(start, " "), start);
	hb_redact_line(redactor, program, clean, sizeof clean);
	snprintf(out, size, "%s%s", clean, strchr(start, ' ') ? " " HB_REDACTED : "");
	return out;
}
