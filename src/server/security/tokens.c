/* SPDX-License-Identifier: Apache-2.0 */
/* See tokens.h. */
#include "server/security/tokens.h"

#include "server/security/secret_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define OTHERS (S_IRWXG | S_IRWXO)

/* FNV-1a; it names a token and is no secret, and it protects nothing. */
static uint32_t compute_id(const char *text)
{
	uint32_t hash = 2166136261u;
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 16777619u;
	return hash;
}

/* Only characters that may follow "Bearer" in a header (RFC 6750). */
static bool is_token(const char *word)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";
	size_t n = strlen(word);
	return n >= HB_TOKEN_MIN && n <= HB_TOKEN_MAX && strspn(word, allowed) == n;
}

static bool read_right(const char *word, struct hb_token *token)
{
	if (strcmp(word, "high") == 0)
		token->low_only = false;
	else if (strcmp(word, "low") == 0)
		token->low_only = true;
	else if (strcmp(word, "control") == 0)
		token->control = true;
	else if (strcmp(word, "shared-memory") == 0)
		token->shared_memory = true;
	else
		return false;
	return true;
}

/* Reads a line without its end. A message never contains the token. */
static int read_token(const char *path, int number, char *line, struct hb_tokens *tokens, struct hb_error *error)
{
	struct hb_token token = {.text = ""};
	char *rest = NULL, *word = strtok_r(line, " \t\r", &rest);
	if (!word || word[0] == '#')
		return 0;
	if (!is_token(word))
		return hb_error_set(
			error, -EINVAL,
			"%s:%d: a token has %d to %d letters, digits and characters of -._~+/=; make one with "
			"openssl rand -hex 32",
			path, number, HB_TOKEN_MIN, HB_TOKEN_MAX);
	memcpy(token.text, word, strlen(word));
	token.id = compute_id(token.text);
	while ((word = strtok_r(NULL, " \t\r", &rest)) != NULL && word[0] != '#')
		if (!read_right(word, &token))
			return hb_error_set(
				error, -EINVAL,
				"%s:%d: '%.32s': after the token, write high, low, control or shared-memory", path,
				number, word);
	if (hb_tokens_find(tokens, token.text, strlen(token.text)))
		return hb_error_set(error, -EINVAL, "%s:%d: this token is in the file already", path, number);
	if (tokens->n == HB_TOKENS_MAX)
		return hb_error_set(error, -E2BIG, "%s:%d: a file has at most %d tokens", path, number, HB_TOKENS_MAX);
	tokens->all[tokens->n++] = token;
	return 0;
}

int hb_tokens_parse(const char *path, char *text, size_t bytes, struct hb_tokens *tokens, struct hb_error *error)
{
	char *rest = text;
	int result = 0, number = 0;
	tokens->n = 0;
	if (strlen(text) != bytes)
		return hb_error_set(error, -EINVAL, "%s: contains a zero byte", path);
	for (char *line; result == 0 && (line = strsep(&rest, "\n")) != NULL;)
		result = read_token(path, ++number, line, tokens, error);
	if (result == 0 && tokens->n == 0)
		result = hb_error_set(error, -EINVAL, "%s: contains no token; make one with openssl rand -hex 32",
				      path);
	return result;
}

int hb_tokens_read(const char *path, struct hb_tokens *tokens, struct hb_error *error)
{
	char *text = NULL;
	size_t bytes = 0;
	int result = hb_secret_file_read(path, OTHERS, &text, &bytes, error);
	if (result < 0)
		return result;
	result = hb_tokens_parse(path, text, bytes, tokens, error);
	hb_secret_free(text, bytes);
	return result;
}

const struct hb_token *hb_tokens_find(const struct hb_tokens *tokens, const char *text, size_t n)
{
	char wanted[HB_TOKEN_MAX + 1] = "";
	const struct hb_token *found = NULL;
	if (n < HB_TOKEN_MIN || n > HB_TOKEN_MAX)
		return NULL;
	memcpy(wanted, text, n);
	for (uint32_t i = 0; i < tokens->n; i++) {
		volatile unsigned char difference = 0;
		for (size_t k = 0; k < sizeof(wanted); k++)
			difference |= (unsigned char)(wanted[k] ^ tokens->all[i].text[k]);
		if (difference == 0)
			found = &tokens->all[i];
	}
	explicit_bzero(wanted, sizeof(wanted));
	return found;
}
