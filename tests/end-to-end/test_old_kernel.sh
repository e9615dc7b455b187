#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs compute the same on Linux 5.3 (simulated by as-old-kernel), and on an older kernel hb run says which one it needs.
# usage: test_old_kernel.sh BUILD AS_OLD_KERNEL
set -euo pipefail

build=$1 old_kernel=$2
work=$(mktemp -d)
export HB_SIM_GPU=$work/gpu
daemon=''
# shellcheck disable=SC2086 # an empty one is none
trap 'kill $daemon 2>/dev/null || true; rm -rf "$work"' EXIT
fail() {
	echo "$*"
	cat "$work"/*.log
	exit 1
}

# compute NAME COMMAND...: starts a daemon under COMMAND, and a program of each priority.
compute() {
	local name=$1
	shift
	export HB_SOCKET=$work/$name.sock
	"$@" "$build/src/daemon/hbd" --foreground --gpu sim --socket "$HB_SOCKET" 2>"$work/$name-daemon.log" &
	daemon=$!
	for ((i = 0; i < 600; i++)); do
		"$build/hb" status --gpu sim >"$work/$name-status.log" 2>&1 && break
		sleep 0.1
	done
	for priority in high low; do
		"$@" "$build/hb" run --gpu sim --priority $priority -- "$build/bench/tenant/cuda-tenant" work 2 \
			>"$work/$name-$priority" 2>"$work/$name-$priority.log" || fail "$name: a program of $priority priority failed"
	done
	kill "$daemon"
	wait "$daemon" || fail "$name: the daemon ended with status $?"
}

compute new
compute old "$old_kernel"
for priority in high low; do
	cmp "$work/new-$priority" "$work/old-$priority" || fail "a program of $priority priority computes something else on an old kernel"
done
! "$old_kernel" --too-old "$build/src/daemon/hbd" --foreground --gpu sim --socket "$work/too-old.sock" 2>"$work/too-old.log" ||
	fail "the daemon runs without pidfd_open()"
grep -q "Hummingbird needs Linux 5.3 or newer" "$work/too-old.log" || fail "the daemon does not say which kernel it needs"
