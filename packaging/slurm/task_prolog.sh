#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# For sites that do not load hb_spank.so: Slurm's TaskProlog (the user, before each task).
# Gives the task the environment that prolog.sh got. Slurm reads 'export NAME=VALUE' and 'unset NAME'.
folder=${HB_SLURM_FOLDER:-/run/hummingbird-slurm}
if [ -r "$folder/$SLURM_JOB_ID.error" ]; then
	sed 's/^/print Hummingbird: /' "$folder/$SLURM_JOB_ID.error"
	exit 1
fi
[ -r "$folder/$SLURM_JOB_ID.env" ] || exit 0
while IFS= read -r line; do
	case $line in
	"export LD_LIBRARY_PATH="*) echo "$line${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
	"export LD_PRELOAD="*) echo "$line${LD_PRELOAD:+:$LD_PRELOAD}" ;;
	*) echo "$line" ;;
	esac
done <"$folder/$SLURM_JOB_ID.env"
