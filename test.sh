#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Hummingbird with gcc, clang and sanitizers in build-test/ and runs its
# tests. Needs Debian 12; installs what is missing (root or sudo). The last
# line is "N passed, N failed". usage: ./test.sh [--no-install]
cd "$(dirname "$0")"
. tools/setup.sh

top=build-test
# Sanitizers stop at the first finding; leaks count. Memory for traces may be large, never returned as NULL by the tool.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:strict_string_checks=1:allocator_may_return_null=1:verify_asan_link_order=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0
export CMOCKA_MESSAGE_OUTPUT=STDOUT

# tests FOLDER [MESON TEST ARGUMENT...]: a failed test has a second try, alone (tools/second_try.py)
tests() {
	local folder=$1
	shift
	rm -f "$folder"/meson-logs/testlog*
	"${runner[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs "$@" ||
		"${runner[@]}" tools/second_try.py "$folder" "$@"
}

# variant NAME "SETUP ARGUMENTS" [MESON TEST ARGUMENT...]: a build, and its tests if that worked
variant() {
	local name=$1 folder=$top/$1
	read -ra setup <<<"$2"
	shift 2
	hb_step "build $name" hb_build "$folder" "${setup[@]}" || return 0
	hb_step "test $name" tests "$folder" "$@" || true
}

# One seed, the same bytes from every compiler; only the time the run took may differ.
same_bytes() {
	local name tenants=(--high "resnet50_b1@60/s,slo=auto" --high "resnet50_b8:graph@40/s:burst" --low llama8_train_b4)
	for name in gcc clang asan tsan; do
		"${runner[@]}" "$top/$name/hb" sim "${tenants[@]}" --sharing all --seconds 0.5 --seed 7 --json |
			grep -v '"wall_s"' >"$top/sim-$name.json" &&
			"${runner[@]}" "$top/$name/hb" sim "${tenants[@]}" --sharing temporal --seconds 0.5 --timeline "$top/timeline-$name.json" &&
			cmp "$top/sim-gcc.json" "$top/sim-$name.json" &&
			cmp "$top/timeline-gcc.json" "$top/timeline-$name.json" || return 1
	done
}

if [[ ${1:-} != --no-install ]]; then
	hb_install build test
fi
hb_results_begin $top/results.txt
find $top -path "*/meson-logs/testlog*" -delete
runner=()

CC=gcc variant gcc "--werror"
# What runs in real time says the same from either compiler.
CC=clang variant clang "--werror" --suite fast --no-suite live
CC=gcc variant asan "-Db_sanitize=address,undefined -Doptimization=1 -Dc_args=-fno-sanitize-recover=all" \
	--suite fast --timeout-multiplier 4
# gcc 12's thread sanitizer does not know the address layout of newer kernels.
if setarch -R true 2>/dev/null; then
	runner=(setarch -R)
fi
CC=gcc variant tsan "-Db_sanitize=thread -Doptimization=1" --suite threads --timeout-multiplier 4
hb_step "same bytes from gcc, clang and sanitizers" same_bytes || true

echo "time: $((SECONDS / 60)) min $((SECONDS % 60)) s"
find $top -path '*/meson-logs/testlog.json' -print0 | sort -z | xargs -0 tools/count_tests.py $top/results.txt
