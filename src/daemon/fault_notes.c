/* SPDX-License-Identifier: Apache-2.0 */
/* See fault_notes.h. */
#include "daemon/fault_notes.h"

#include <stddef.h>

static unsigned count_notes(const struct hb_fault_notes *notes, uid_t uid)
{
	unsigned n = 0;
	for (unsigned i = 0; i < HB_FAULT_NOTES; i++)
		n += notes->note[i].number && notes->note[i].uid == uid;
	return n;
}

/* The user with the most notes; this user, if no other has more. */
static uid_t find_largest_user(const struct hb_fault_notes *notes, uid_t uid)
{
	unsigned most = count_notes(notes, uid);
	uid_t largest = uid;
	for (unsigned i = 0; i < HB_FAULT_NOTES; i++) {
		unsigned n = count_notes(notes, notes->note[i].uid);
		if (n > most) {
			most = n;
			largest = notes->note[i].uid;
		}
	}
	return largest;
}

struct hb_fault_note *hb_fault_notes_add(struct hb_fault_notes *notes, uid_t uid)
{
	struct hb_fault_note *place = NULL;
	uid_t from = find_largest_user(notes, uid);
	for (unsigned i = 0; i < HB_FAULT_NOTES; i++) {
		struct hb_fault_note *note = &notes->note[i];
		if ((!note->number || note->uid == from) && (!place || note->number < place->number))
			place = note;
	}
	*place = (struct hb_fault_note){.number = ++notes->n, .uid = uid};
	return place;
}
