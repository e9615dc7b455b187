# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts that check an installation from within (checks_*.sh): prints one line for each check. The output of
# a failed check follows on its line. Sets `bad` to 1 if a check has failed.
# shellcheck disable=SC2034 # for the script that sources it
bad=0
# What a check prints is in this file until the next check.
CHECK_OUTPUT=${CHECK_OUTPUT:-/tmp/output}

# judge STATUS WHAT: prints the result of a check.
judge() {
	if [[ $1 == 0 ]]; then
		echo "ok      $2"
	else
		echo "FAILED  $2: $(tail -n 20 "$CHECK_OUTPUT")"
		bad=1
	fi
}
# skip WHAT WHY: a check that is impossible here.
skip() { echo "skipped $1: $2"; }
# at_once WHAT COMMAND...: the command must succeed now.
at_once() {
	local what=$1
	shift
	"$@" >"$CHECK_OUTPUT" 2>&1 </dev/null
	judge $? "$what"
}
# soon WHAT COMMAND...: the command must succeed within LIMIT_S seconds.
LIMIT_S=120
soon() {
	local what=$1 result=1 end=$((SECONDS + LIMIT_S))
	shift
	while ((result && SECONDS < end)); do
		if "$@" >"$CHECK_OUTPUT" 2>&1 </dev/null; then result=0; else sleep 0.2; fi
	done
	judge $result "$what"
}
fails() { ! "$@"; }
# In a mount namespace of its own: crun does not run where version 2 of control groups has controllers beside version 1, so
# only version 1 stays visible.
only_cgroup_version_1() {
	local controller
	[[ $(stat -f -c %T /sys/fs/cgroup) == tmpfs ]] || return 0
	mkdir /run/cgroup
	mount --rbind /sys/fs/cgroup /run/cgroup
	mount -t tmpfs tmpfs /sys/fs/cgroup
	for controller in /run/cgroup/*/; do
		controller=$(basename "$controller")
		[[ $controller != unified ]] || continue
		mkdir "/sys/fs/cgroup/$controller"
		mount --move "/run/cgroup/$controller" "/sys/fs/cgroup/$controller"
	done
	umount -R /run/cgroup
}
