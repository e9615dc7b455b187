#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For sites that do not load hb_spank.so: Slurm's Prolog (root, before a job starts on a node).
# Registers the job as a tenant and leaves its environment for task_prolog.sh. A keeper process
# stands for the job until epilog.sh ends it. It is no parent of the job's tasks, so the tenant is
# open to all processes of the user that know its environment. See docs/slurm.md.
#
# HB_SLURM_HIGH and HB_SLURM_LOW: partitions, separated by blanks; set them here or in /etc/default/hummingbird-slurm.
# shellcheck source=/dev/null
[ -r "${HB_SLURM_DEFAULTS:=/etc/default/hummingbird-slurm}" ] && . "$HB_SLURM_DEFAULTS"
hb=${HB_SLURM_HB:-/usr/bin/hb}
folder=${HB_SLURM_FOLDER:-/run/hummingbird-slurm}
priority=
for name in ${HB_SLURM_LOW:-}; do [ "$name" = "$SLURM_JOB_PARTITION" ] && priority=low; done
for name in ${HB_SLURM_HIGH:-}; do [ "$name" = "$SLURM_JOB_PARTITION" ] && priority=high; done
[ -n "$priority" ] || exit 0
mkdir -p "$folder" && chmod 755 "$folder" || exit 0
# The keeper holds no descriptor of slurmd, which would wait for it.
setsid sleep infinity </dev/null >/dev/null 2>&1 &
keeper=$!
echo "$keeper" >"$folder/$SLURM_JOB_ID.keeper"
umask 077
# shellcheck disable=SC2086 # HB_SLURM_OPTIONS holds several words
if "$hb" register --require --open --user "$SLURM_JOB_UID" --process "$keeper" --priority "$priority" ${HB_SLURM_OPTIONS:-} \
	"slurm $SLURM_JOB_ID" >"$folder/$SLURM_JOB_ID.new" 2>"$folder/$SLURM_JOB_ID.error"; then
	chown "$SLURM_JOB_UID" "$folder/$SLURM_JOB_ID.new" && mv "$folder/$SLURM_JOB_ID.new" "$folder/$SLURM_JOB_ID.env"
else
	# The prolog must not fail: Slurm would drain the node. task_prolog.sh ends the task with this message.
	kill "$keeper"
	chown "$SLURM_JOB_UID" "$folder/$SLURM_JOB_ID.error"
	rm -f "$folder/$SLURM_JOB_ID.new" "$folder/$SLURM_JOB_ID.keeper"
fi
[ -s "$folder/$SLURM_JOB_ID.error" ] || rm -f "$folder/$SLURM_JOB_ID.error"
exit 0
