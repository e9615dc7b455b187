/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes from a text what a bug report must not tell: names of people and machines, paths in home folders, command lines,
 * passwords and tokens. Used by cmd_report.c. Pure, and careful: it rather removes too much.
 */
#ifndef HB_CLI_REDACT_H
#define HB_CLI_REDACT_H

#include <stddef.h>

#define HB_REDACT_NAMES_MAX 512
#define HB_REDACT_HOMES_MAX 256
#define HB_REDACT_LINE_MAX 4096
#define HB_REDACTED "[left out]"

/* Words and what replaces them. All zeros = none. */
struct hb_redactor {
	struct {
		char word[64], replacement[24];
	} names[HB_REDACT_NAMES_MAX];
	size_t n, n_users;
	char homes[HB_REDACT_HOMES_MAX][128]; /* with a slash at the end */
	size_t n_homes;
};

/* Adds a machine's name. Words of fewer than two characters, and "localhost", are not replaced. */
void hb_redact_host(struct hb_redactor *redactor, const char *name);
/* Adds a user, who becomes user1, user2, ... Root and the daemon's user stay, as every machine has them. */
void hb_redact_user(struct hb_redactor *redactor, const char *name);

/* Adds a home folder that is not in /home, /root or /Users. "" and "/" are not added. */
void hb_redact_home(struct hb_redactor *redactor, const char *folder);

/*
 * Copies one line without
 * - the added names, as whole words;
 * - paths in home folders (/home/..., /root/..., /Users/..., ~/..., and the added ones), from there to the end of the path;
 * - values after words such as token, password, secret, key (NAME=VALUE, NAME: VALUE, --NAME VALUE), after Bearer, Basic and
 *   Authorization, and user and password in URLs;
 * - long words of mixed letters and digits, as tokens are; UUIDs stay;
 * - command lines: what follows the first word in 'quotes', and after "tenant NUMBER: " until a bracket closes.
 * Output that does not fit is cut off. Returns `out`.
 */
char *hb_redact_line(const struct hb_redactor *redactor, const char *line, char *out, size_t size);

/* Writes the program of a command line without folder and arguments. Returns `out`. */
char *hb_redact_command(const struct hb_redactor *redactor, const char *command, char *out, size_t size);

#endif
