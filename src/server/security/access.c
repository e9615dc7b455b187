/* SPDX-License-Identifier: Apache-2.0 */
/* See access.h. */
#include "server/security/access.h"

#include "base/prom_text.h"
#include "server/security/tokens.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The parts of a caller's id; the low 32 bits are the number of the user or token. */
#define ID_OF_USER (UINT64_C(1) << 32)
#define ID_OF_TOKEN (UINT64_C(2) << 32)

/* A health call needs no body, and every client may send it. JSON that is read into a tree takes up to 60 times as much memory. */
#define HEALTH_BYTES_MAX 256
#define CONTROL_BYTES_MAX (1 << 20)

struct hb_access {
	struct hb_access_config config;
	pthread_rwlock_t lock; /* guards tokens */
	struct hb_tokens *tokens;
	_Atomic uint64_t refused[HB_REFUSALS];
};

static const struct {
	const char *label, *text;
} refusals[HB_REFUSALS] = {
	[HB_REFUSED_HOST] = {"host",
			     "this server does not answer to the name in Host (gRPC: :authority); add the name with "
			     "option --allowed-host of hb serve"},
	[HB_REFUSED_ORIGIN] = {"origin",
			       "this server does not answer to web pages of another site; add the site's name with "
			       "option --allowed-host of hb serve"},
	[HB_REFUSED_TOKEN] = {"token",
			      "this call needs the header Authorization: Bearer TOKEN, with a token of the file that "
			      "option --token-file of hb serve names"},
	[HB_REFUSED_CONTROL] = {"control", "this client may not control the server; see option --control of hb serve"},
	[HB_REFUSED_SHARED_MEMORY] = {"shared_memory",
				      "this client may not use shared memory; see option --shared-memory of hb serve"},
};

/* ---- life ---- */

int hb_access_reload(struct hb_access *access, struct hb_error *error)
{
	if (!access->config.token_file)
		return 0;
	struct hb_tokens *tokens = calloc(1, sizeof(*tokens));
	if (!tokens)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int result = hb_tokens_read(access->config.token_file, tokens, error);
	if (result < 0) {
		free(tokens);
		return result;
	}
	pthread_rwlock_wrlock(&access->lock);
	struct hb_tokens *old = access->tokens;
	access->tokens = tokens;
	pthread_rwlock_unlock(&access->lock);
	free(old);
	return 0;
}

int hb_access_new(const struct hb_access_config *config, struct hb_access **out, struct hb_error *error)
{
	struct hb_access *access = calloc(1, sizeof(*access));
	if (!access)
		return hb_error_set(error, -ENOMEM, "out of memory");
	access->config = *config;
	pthread_rwlock_init(&access->lock, NULL);
	int result = hb_access_reload(access, error);
	if (result < 0) {
		hb_access_free(access);
		return result;
	}
	*out = access;
	return 0;
}

void hb_access_free(struct hb_access *access)
{
	if (!access)
		return;
	pthread_rwlock_destroy(&access->lock);
	free(access->tokens);
	free(access);
}

/* ---- Host and Origin ---- */

static bool is_listed_host(const struct hb_access_config *config, const char *host)
{
	for (uint32_t i = 0; i < config->n_hosts; i++)
		if (strcasecmp(config->hosts[i], host) == 0)
			return true;
	return false;
}

/* A browser never sends a name of another site together with an address, so an address is not DNS rebinding. */
static bool is_host_allowed(const struct hb_access_config *config, const struct hb_access_request *request)
{
	char host[HB_HTTP_HOST_MAX];
	if (!request->host || !request->host[0])
		return true; /* no browser */
	if (!hb_http_host_read(request->host, strlen(request->host), host))
		return false;
	return hb_http_host_is_loopback(host) || is_listed_host(config, host) ||
	       (!request->loopback_listener && hb_http_host_is_address(host));
}

/* Only browsers send Origin. A page may use the server that it came from (behind a proxy), and a listed site's page may. */
static bool is_origin_allowed(const struct hb_access_config *config, const struct hb_access_request *request)
{
	char host[HB_HTTP_HOST_MAX];
	const char *colon = request->origin ? strstr(request->origin, "://") : NULL;
	if (!request->origin)
		return true;
	if (!colon || !hb_http_host_read(colon + 3, strlen(colon + 3), host))
		return false;
	return is_listed_host(config, host) || (request->host && strcasecmp(colon + 3, request->host) == 0);
}

/* ---- callers ---- */

/* Copies the request's token. False: the request has no valid token. */
static bool find_token(struct hb_access *access, const struct hb_access_request *request, struct hb_token *out)
{
	static const char scheme[] = "Bearer ";
	const char *text = request->authorization;
	if (!access->config.token_file || !text || strncasecmp(text, scheme, sizeof(scheme) - 1) != 0)
		return false;
	text += sizeof(scheme) - 1;
	text += strspn(text, " ");
	pthread_rwlock_rdlock(&access->lock);
	const struct hb_token *found = hb_tokens_find(access->tokens, text, strlen(text));
	if (found)
		*out = *found;
	pthread_rwlock_unlock(&access->lock);
	return found != NULL;
}

static bool is_operator(const struct hb_access_config *config, const struct hb_client *client)
{
	if (client->uid == 0 || client->uid == geteuid())
		return true;
	for (uint32_t i = 0; i < config->n_users; i++)
		if (config->users[i] == client->uid)
			return true;
	for (uint32_t i = 0; i < config->n_groups; i++)
		if (hb_client_in_group(client, config->groups[i]))
			return true;
	return false;
}

static bool has_right(unsigned to, const struct hb_client *client, bool socket_right, bool token_right)
{
	return ((to & HB_TO_SOCKET) && socket_right) || ((to & HB_TO_TOKEN) && token_right) ||
	       ((to & HB_TO_LOOPBACK) && client->kind == HB_CLIENT_LOOPBACK);
}

struct hb_caller hb_access_identify(struct hb_access *access, const struct hb_access_request *request)
{
	const struct hb_access_config *config = &access->config;
	struct hb_caller caller = {.client = request->client};
	struct hb_token token = {.text = ""};
	bool on_socket = request->client.kind == HB_CLIENT_UNIX; /* no web page can connect to it */
	if (!on_socket && !is_host_allowed(config, request))
		caller.refusal = HB_REFUSED_HOST;
	else if (!on_socket && !is_origin_allowed(config, request))
		caller.refusal = HB_REFUSED_ORIGIN;
	if (caller.refusal)
		return caller;
	caller.rights = HB_RIGHT_HEALTH;
	bool has_token = find_token(access, request, &token);
	if (config->token_file && !has_token && !on_socket) {
		caller.refusal = HB_REFUSED_TOKEN;
		return caller;
	}
	caller.rights |= HB_RIGHT_USE;
	caller.low_only = has_token && token.low_only;
	caller.id = on_socket ? ID_OF_USER | request->client.uid : has_token ? ID_OF_TOKEN | token.id : 0;
	if (has_right(config->control, &request->client, on_socket && is_operator(config, &request->client),
		      token.control))
		caller.rights |= HB_RIGHT_CONTROL;
	if (has_right(config->shared_memory, &request->client, on_socket, token.shared_memory))
		caller.rights |= HB_RIGHT_SHARED_MEMORY;
	explicit_bzero(&token, sizeof(token));
	return caller;
}

uint64_t hb_access_size_limit(enum hb_right right, bool infers, uint64_t most)
{
	uint64_t other = right == HB_RIGHT_HEALTH ? HEALTH_BYTES_MAX : CONTROL_BYTES_MAX;
	return infers || most < other ? most : other;
}

enum hb_refusal hb_access_check(struct hb_access *access, const struct hb_caller *caller, enum hb_right right)
{
	enum hb_refusal refusal = HB_ALLOWED;
	if (caller->rights & right)
		return HB_ALLOWED;
	if (caller->refusal)
		refusal = caller->refusal;
	else
		refusal = right == HB_RIGHT_CONTROL ? HB_REFUSED_CONTROL : HB_REFUSED_SHARED_MEMORY;
	atomic_fetch_add_explicit(&access->refused[refusal], 1, memory_order_relaxed);
	return refusal;
}

const char *hb_access_text(const struct hb_access *access, enum hb_refusal refusal)
{
	if (refusal == HB_REFUSED_CONTROL && !access->config.control)
		return "loading, unloading and changing the policy are switched off; see option --control of hb serve";
	if (refusal == HB_REFUSED_SHARED_MEMORY && !access->config.shared_memory)
		return "shared memory is switched off; see option --shared-memory of hb serve";
	return refusals[refusal].text;
}

int hb_access_check_object(const struct hb_access *access, const struct hb_caller *caller, const char *name,
			   const struct stat *object, struct hb_error *error)
{
	const char *prefix = access->config.prefix;
	const char *bare = name[0] == '/' ? name + 1 : name;
	if (prefix[0] && strncmp(bare, prefix, strlen(prefix)) != 0)
		return hb_error_set(error, -EACCES,
				    "key \"%s\" does not begin with \"%s\" (option --shared-memory-prefix of "
				    "hb serve)",
				    name, prefix);
	if (!S_ISREG(object->st_mode) || object->st_nlink != 1)
		return hb_error_set(error, -EACCES,
				    "key \"%s\" is not an object of shared memory with exactly one name", name);
	if (caller->client.kind == HB_CLIENT_UNIX)
		return hb_client_may_write(&caller->client, object)
			       ? 0
			       : hb_error_set(error, -EACCES,
					      "key \"%s\": its owner and mode do not let user %u read and write it",
					      name, (unsigned)caller->client.uid);
	if (!prefix[0])
		return hb_error_set(error, -EACCES,
				    "key \"%s\": over TCP the server does not check who owns shared memory; use a "
				    "Unix socket, or option --shared-memory-prefix of hb serve",
				    name);
	return 0;
}

/* ---- options ---- */

int hb_access_parse_to(const char *text, unsigned *out)
{
	static const struct {
		const char *name;
		unsigned flag;
	} names[] = {{"socket", HB_TO_SOCKET}, {"token", HB_TO_TOKEN}, {"loopback", HB_TO_LOOPBACK}};
	char copy[64], *rest = NULL;
	unsigned to = 0;
	if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy) || !text[0])
		return -EINVAL;
	for (char *word = strtok_r(copy, ",", &rest); strcmp(text, "none") != 0 && word;
	     word = strtok_r(NULL, ",", &rest)) {
		size_t i = 0;
		while (i < sizeof(names) / sizeof(*names) && strcmp(names[i].name, word) != 0)
			i++;
		if (i == sizeof(names) / sizeof(*names))
			return -EINVAL;
		to |= names[i].flag;
	}
	*out = to;
	return 0;
}

static bool parse_number(const char *text, unsigned *out)
{
	char *end = NULL;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	*out = (unsigned)value;
	return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && value < UINT32_MAX;
}

static bool add_operator(const char *word, struct hb_access_config *config)
{
	unsigned number = 0;
	if (config->n_users == HB_ACCESS_LIST_MAX || config->n_groups == HB_ACCESS_LIST_MAX)
		return false;
	if (word[0] == '@') {
		const struct group *group = getgrnam(word + 1);
		if (!group && !parse_number(word + 1, &number))
			return false;
		config->groups[config->n_groups++] = group ? group->gr_gid : number;
		return true;
	}
	const struct passwd *user = getpwnam(word);
	if (!user && !parse_number(word, &number))
		return false;
	config->users[config->n_users++] = user ? user->pw_uid : number;
	return true;
}

int hb_access_parse_operators(const char *text, struct hb_access_config *config, struct hb_error *error)
{
	char copy[1024], *rest = NULL;
	if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
		return hb_error_set(error, -EINVAL, "the list of operators is too long");
	for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
		if (!add_operator(word, config))
			return hb_error_set(error, -EINVAL, "'%.64s' is no user, and no group written as @GROUP", word);
	return 0;
}

/* ---- metrics ---- */

void hb_access_write_metrics(const struct hb_access *access, FILE *out)
{
	char label[64];
	hb_prom_family(out, "hb_serve_refused_calls_total", HB_PROM_COUNTER,
		       "Calls refused because the client may not make them, by reason");
	for (int i = HB_ALLOWED + 1; i < HB_REFUSALS; i++) {
		hb_prom_label(label, sizeof(label), "reason", refusals[i].label);
		hb_prom_count(out, "hb_serve_refused_calls_total", label, atomic_load(&access->refused[i]));
	}
}
