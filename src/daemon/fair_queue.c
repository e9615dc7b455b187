/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of connections, users in turn; see fair_queue.h. */
#include "daemon/fair_queue.h"

/* While no request waited, a user that took more than its turns delayed no other user: its debt ends. */
static void clear_debts(struct hb_fair_queue *queue)
{
	for (size_t i = 0; i < HB_USERS_MAX; i++)
		if (queue->users[i].credit_ns < 0)
			queue->users[i].credit_ns = 0;
}

void hb_fair_queue_add(struct hb_fair_queue *queue, struct hb_fair_entry *entry, uint32_t user)
{
	struct hb_fair_user *line = &queue->users[user];
	if (entry->is_waiting)
		return;
	if (!queue->n)
		clear_debts(queue);
	*entry = (struct hb_fair_entry){.user = user, .is_waiting = true};
	if (line->last)
		line->last->next = entry;
	else
		line->first = entry;
	line->last = entry;
	queue->n++;
}

void hb_fair_queue_remove(struct hb_fair_queue *queue, struct hb_fair_entry *entry)
{
	struct hb_fair_user *line = &queue->users[entry->user];
	struct hb_fair_entry *before = NULL;
	if (!entry->is_waiting)
		return;
	for (struct hb_fair_entry *other = line->first; other != entry; other = other->next)
		before = other;
	if (before)
		before->next = entry->next;
	else
		line->first = entry->next;
	if (line->last == entry)
		line->last = before;
	entry->next = NULL;
	entry->is_waiting = false;
	queue->n--;
}

/* Ends the turn of the present user and begins that of the next one. */
static void pass_turn(struct hb_fair_queue *queue)
{
	queue->turn = (queue->turn + 1) % HB_USERS_MAX;
	struct hb_fair_user *line = &queue->users[queue->turn];
	line->credit_ns += HB_FAIR_QUANTUM_NS;
	/* Credit is not saved up, so a user that was idle gets no more than one quantum at once. */
	if (line->credit_ns > HB_FAIR_QUANTUM_NS)
		line->credit_ns = HB_FAIR_QUANTUM_NS;
}

/* Lets time pass at once for users that took too much if only such users wait, so that no loop runs for long. */
static void forgive_debts(struct hb_fair_queue *queue)
{
	int64_t rounds = INT64_MAX;
	for (size_t i = 0; i < HB_USERS_MAX; i++) {
		const struct hb_fair_user *line = &queue->users[i];
		if (!line->first)
			continue;
		int64_t needed = line->credit_ns > 0 ? 0 : -line->credit_ns / HB_FAIR_QUANTUM_NS;
		rounds = needed < rounds ? needed : rounds;
	}
	for (size_t i = 0; rounds && i < HB_USERS_MAX; i++) {
		struct hb_fair_user *line = &queue->users[i];
		line->credit_ns += rounds * HB_FAIR_QUANTUM_NS;
		if (line->credit_ns > HB_FAIR_QUANTUM_NS)
			line->credit_ns = HB_FAIR_QUANTUM_NS;
	}
}

struct hb_fair_entry *hb_fair_queue_next(struct hb_fair_queue *queue)
{
	if (!queue->n)
		return NULL;
	forgive_debts(queue);
	while (!queue->users[queue->turn].first || queue->users[queue->turn].credit_ns <= 0)
		pass_turn(queue);
	struct hb_fair_entry *entry = queue->users[queue->turn].first;
	hb_fair_queue_remove(queue, entry);
	return entry;
}

void hb_fair_queue_charge(struct hb_fair_queue *queue, uint32_t user, int64_t spent_ns)
{
	queue->users[user].credit_ns -= spent_ns;
}
