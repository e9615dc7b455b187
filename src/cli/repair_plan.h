/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what `hb doctor --fix` repairs, and with which commands: groups, MPS, limits and packages. Pure: doctor_fix.c
 * finds the facts and runs the commands.
 */
#ifndef HB_CLI_REPAIR_PLAN_H
#define HB_CLI_REPAIR_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_REPAIRS_MAX 8
#define HB_REPAIR_WORDS_MAX 10
#define HB_REPAIR_GROUP "hummingbird" /* its members may use the daemon of the system */
#define HB_REPAIR_LIMITS_FILE "/etc/security/limits.d/hummingbird.conf"

enum hb_packages { HB_PACKAGES_UNKNOWN, HB_PACKAGES_DEBIAN, HB_PACKAGES_UBUNTU, HB_PACKAGES_DNF };

/* How a file's group admits the user. */
enum hb_group_access {
	HB_GROUP_ENOUGH,  /* the file does not exist, or the user may use it */
	HB_GROUP_LACKS,   /* the file's group may use it, and the user is no member */
	HB_GROUP_LATER,   /* the user is a member, but logged in before that */
	HB_GROUP_USELESS, /* not even the file's group may use it, or the group is root */
};

/* The state of this machine. */
struct hb_repair_facts {
	bool root;     /* commands run with the rights of root */
	char user[64]; /* the person: under sudo who called it; "" = not known */
	enum hb_packages packages;
	unsigned driver;      /* major version of the driver; 0 = no driver is loaded */
	bool server_driver;   /* Ubuntu: the packages' names end in "-server" */
	bool lacks_library;   /* libcuda.so.1 does not load */
	bool lacks_control;   /* nvidia-cuda-mps-control is not on the PATH */
	char mps_folder[256]; /* pipe folder of an MPS control daemon that is not Hummingbird's; "" = none runs */
	char mps_servers[64]; /* pids of its servers, which have programs; "" = none */
	enum hb_group_access device, socket;
	char device_group[64], socket_group[64]; /* the groups of /dev/nvidiactl and of the system daemon's socket */
	bool lacks_group;                        /* the system's daemon runs, and there is no group HB_REPAIR_GROUP */
	uint64_t open_files,
		open_files_needed; /* the hard limit, and what the user's own daemon needs for all its places */
	bool limits_file;          /* HB_REPAIR_LIMITS_FILE exists */
	char python[256];          /* the first python3 on the PATH, if it has no numpy; "" = nothing is missing */
};

struct hb_repair {
	const char *name;  /* one word */
	char problem[320]; /* a sentence without a full stop */
	char text[256];    /* the words below, one after the other; do not read it */
	const char
		*words[HB_REPAIR_WORDS_MAX + 1]; /* the command, with sudo if needed; [0] NULL: a person must do it */
	char input[160];                         /* what the command reads; "" = nothing */
	const char *remedy;                      /* words[0] NULL: what a person must do */
	const char *after;                       /* what a person must do when the command has ended; "" = nothing */
};

/* Stores the repairs of these facts, in the order in which they must be done. Returns their number. */
size_t hb_repair_plan(const struct hb_repair_facts *facts, struct hb_repair repairs[HB_REPAIRS_MAX]);

/* Formats the command as a person would type it in a shell. Returns `text`. */
const char *hb_repair_format(const struct hb_repair *repair, char *text, size_t size);

/* How the mode and owner of a file admit a user. `database`: the user's groups in the database; `now`: of this process. */
enum hb_group_access hb_repair_group_access(unsigned mode, unsigned owner, unsigned group, unsigned uid,
					    const unsigned *database, size_t n_database, const unsigned *now,
					    size_t n_now);
/* The kind of packages of a distribution, from ID and ID_LIKE of /etc/os-release. */
enum hb_packages hb_repair_packages(const char *id, const char *like);

#endif
