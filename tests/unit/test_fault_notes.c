/* SPDX-License-Identifier: Apache-2.0 */
/* The notes about faults in the MPS server: no user can push out what is noted about another. */
#include "daemon/fault_notes.h"
#include "unit.h"

#include <stdbool.h>

enum { VICTIM = 3, ATTACKER = 9 };

static void note(struct hb_fault_notes *notes, uid_t uid, pid_t pid, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		hb_fault_notes_add(notes, uid)->pid = pid + (pid_t)i;
}

static bool has(const struct hb_fault_notes *notes, uid_t uid, pid_t pid)
{
	for (unsigned i = 0; i < HB_FAULT_NOTES; i++)
		if (notes->note[i].number && notes->note[i].uid == uid && notes->note[i].pid == pid)
			return true;
	return false;
}

static void the_last_notes_of_one_user_are_kept(void **state)
{
	(void)state;
	struct hb_fault_notes notes = {.n = 0};
	note(&notes, VICTIM, 1, HB_FAULT_NOTES + 6);
	assert_false(has(&notes, VICTIM, 6));
	for (pid_t pid = 7; pid <= HB_FAULT_NOTES + 6; pid++)
		assert_true(has(&notes, VICTIM, pid));
}

static void a_user_with_many_notes_pushes_out_its_own(void **state)
{
	(void)state;
	struct hb_fault_notes notes = {.n = 0};
	note(&notes, ATTACKER, 1, HB_FAULT_NOTES - 10);
	note(&notes, VICTIM, 1000, 20); /* half of them need a place of the other user */
	note(&notes, ATTACKER, 2000, 1000);
	for (pid_t pid = 1000; pid < 1020; pid++)
		assert_true(has(&notes, VICTIM, pid));
	assert_true(has(&notes, ATTACKER, 2999));
	assert_false(has(&notes, ATTACKER, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_notes_of_one_user_are_kept),
		cmocka_unit_test(a_user_with_many_notes_pushes_out_its_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
