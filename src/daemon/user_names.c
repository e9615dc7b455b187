/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up the names of users on threads; see user_names.h. */
#include "daemon/user_names.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 64
#define LOOKUPS_MAX 8 /* threads, each with one user */
#define KEPT_NS (60 * HB_NS_PER_S)

struct name_entry {
	bool is_used, is_known, is_asked, is_new;
	uid_t uid;
	int64_t known_ns; /* when its name was found */
	char name[HB_USER_NAME_SIZE];
};

struct hb_user_names {
	pthread_mutex_t lock; /* never held during a lookup */
	struct name_entry entries[NAMES_MAX];
	uint32_t n_threads;
	bool closed; /* the last thread frees this record */
	bool loop_has_closed;
	uv_async_t wake;
	hb_user_name_found *found;
	void *argument;
};

struct name_lookup {
	struct hb_user_names *names;
	struct name_entry *entry;
	uid_t uid;
};

static void write_digits(uid_t uid, char name[HB_USER_NAME_SIZE])
{
	snprintf(name, HB_USER_NAME_SIZE, "%u", (unsigned)uid);
}

static void ask_system(uid_t uid, char name[HB_USER_NAME_SIZE])
{
	char buffer[4096];
	struct passwd entry, *found = NULL;
	if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found)
		snprintf(name, HB_USER_NAME_SIZE, "%s", found->pw_name);
	else
		write_digits(uid, name);
}

/* Call it with the lock, which it releases. */
static void free_if_unused(struct hb_user_names *names)
{
	bool is_unused = names->closed && names->loop_has_closed && names->n_threads == 0;
	pthread_mutex_unlock(&names->lock);
	if (!is_unused)
		return;
	pthread_mutex_destroy(&names->lock);
	free(names);
}

static void *run_lookup(void *argument)
{
	struct name_lookup lookup = *(struct name_lookup *)argument;
	char name[HB_USER_NAME_SIZE];
	free(argument);
	ask_system(lookup.uid, name);
	pthread_mutex_lock(&lookup.names->lock);
	memcpy(lookup.entry->name, name, sizeof name);
	lookup.entry->known_ns = hb_clock_now_ns();
	lookup.entry->is_known = lookup.entry->is_new = true;
	lookup.entry->is_asked = false;
	lookup.names->n_threads--;
	if (!lookup.names->closed)
		uv_async_send(&lookup.names->wake);
	free_if_unused(lookup.names);
	return NULL;
}

/* Call it with the lock. Without a thread or memory the name stays unknown until somebody asks again. */
static void start_lookup(struct hb_user_names *names, struct name_entry *entry)
{
	struct name_lookup *lookup = names->n_threads < LOOKUPS_MAX ? malloc(sizeof *lookup) : NULL;
	if (!lookup)
		return;
	*lookup = (struct name_lookup){names, entry, entry->uid};
	entry->is_asked = hb_thread_start(NULL, 0, run_lookup, lookup) == 0;
	names->n_threads += entry->is_asked;
	if (!entry->is_asked)
		free(lookup);
}

/* The entry of this user, else a free one, else the one that was found first; NULL = threads use all. */
static struct name_entry *find_entry(struct hb_user_names *names, uid_t uid)
{
	struct name_entry *best = NULL;
	for (size_t i = 0; i < NAMES_MAX; i++) {
		struct name_entry *entry = &names->entries[i];
		if (entry->is_used && entry->uid == uid)
			return entry;
		if (entry->is_asked || (best && !best->is_used))
			continue;
		if (!best || !entry->is_used || entry->known_ns < best->known_ns)
			best = entry;
	}
	if (best)
		*best = (struct name_entry){.is_used = true, .uid = uid};
	return best;
}

bool hb_user_names_find(struct hb_user_names *names, uid_t uid, char name[HB_USER_NAME_SIZE])
{
	write_digits(uid, name);
	pthread_mutex_lock(&names->lock);
	struct name_entry *entry = find_entry(names, uid);
	bool is_known = entry && entry->is_known;
	if (is_known)
		memcpy(name, entry->name, sizeof entry->name);
	/* An old name is used until the new one is known. */
	if (entry && !entry->is_asked && (!is_known || hb_clock_now_ns() - entry->known_ns > KEPT_NS))
		start_lookup(names, entry);
	pthread_mutex_unlock(&names->lock);
	return is_known;
}

static void report_found(uv_async_t *wake)
{
	struct hb_user_names *names = wake->data;
	for (size_t i = 0; i < NAMES_MAX; i++) {
		pthread_mutex_lock(&names->lock);
		bool is_new = names->entries[i].is_new;
		uid_t uid = names->entries[i].uid;
		names->entries[i].is_new = false;
		pthread_mutex_unlock(&names->lock);
		if (is_new)
			names->found(names->argument, uid);
	}
}

int hb_user_names_new(uv_loop_t *loop, hb_user_name_found *found, void *argument, struct hb_user_names **names)
{
	struct hb_user_names *made = calloc(1, sizeof *made);
	int result = made ? uv_async_init(loop, &made->wake, report_found) : -ENOMEM;
	if (result < 0) {
		free(made);
		return result;
	}
	pthread_mutex_init(&made->lock, NULL);
	made->found = found;
	made->argument = argument;
	made->wake.data = made;
	*names = made;
	return 0;
}

static void handle_closed(uv_handle_t *handle)
{
	struct hb_user_names *names = handle->data;
	pthread_mutex_lock(&names->lock);
	names->loop_has_closed = true;
	free_if_unused(names);
}

void hb_user_names_free(struct hb_user_names *names)
{
	if (!names)
		return;
	pthread_mutex_lock(&names->lock);
	names->closed = true;
	pthread_mutex_unlock(&names->lock);
	uv_close((uv_handle_t *)&names->wake, handle_closed);
}
