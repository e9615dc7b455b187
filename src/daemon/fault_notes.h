/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps notes about processes that may have caused a fault in the MPS server (mps_faults.h): the last
 * HB_FAULT_NOTES errors and ends of processes. A user with many notes pushes out its own, never those of a user with fewer.
 */
#ifndef HB_DAEMON_FAULT_NOTES_H
#define HB_DAEMON_FAULT_NOTES_H

#include <stdint.h>
#include <sys/types.h>

#define HB_FAULT_NOTES 64

/* A process that saw an error, or (error 0) that ended with unfinished work. */
struct hb_fault_note {
	uint64_t number; /* of all notes so far; 0 = free */
	int64_t at_ns;
	uint32_t error;
	uint32_t tenant;
	pid_t pid;
	uid_t uid;
	char user[64], command[96];
};

struct hb_fault_notes {
	struct hb_fault_note note[HB_FAULT_NOTES];
	uint64_t n; /* noted so far */
};

/* The place for another note of this user, with `number` and `uid`; the rest is zero. Never NULL. */
struct hb_fault_note *hb_fault_notes_add(struct hb_fault_notes *notes, uid_t uid);

#endif
