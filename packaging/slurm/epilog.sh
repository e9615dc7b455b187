#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For sites that do not load hb_spank.so: Slurm's Epilog (root, after a job has ended on a node).
# Ends the process that stood for the job, and with it the tenant.
# shellcheck source=/dev/null
[ -r "${HB_SLURM_DEFAULTS:=/etc/default/hummingbird-slurm}" ] && . "$HB_SLURM_DEFAULTS"
folder=${HB_SLURM_FOLDER:-/run/hummingbird-slurm}
[ -r "$folder/$SLURM_JOB_ID.keeper" ] && kill "$(cat "$folder/$SLURM_JOB_ID.keeper")" 2>/dev/null
rm -f "$folder/$SLURM_JOB_ID.keeper" "$folder/$SLURM_JOB_ID.env" "$folder/$SLURM_JOB_ID.error"
exit 0
