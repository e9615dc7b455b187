#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Hummingbird with gcc, clang and sanitizers in build-test/ and runs its
# tests. Needs Debian 12; installs what is missing (root or sudo). The last
# line is "N passed, N failed".
# usage: ./test.sh [--quick] [--no-install]
#   --quick       gcc and its short tests only: an answer within three minutes
#   --no-install  installs nothing
cd "$(dirname "$0")"
. tools/setup.sh

quick='' install=1
for option in "$@"; do
	case $option in
	--quick) quick=1 ;;
	--no-install) install='' ;;
	*) echo "error: no option $option; usage: ./test.sh [--quick] [--no-install]" >&2; exit 2 ;;
	esac
done

top=build-test
# Sanitizers stop at the first finding and count leaks. Allocations may be large.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:strict_string_checks=1:allocator_may_return_null=1:verify_asan_link_order=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# Shortens the sleep with which every process under the thread sanitizer ends.
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:atexit_sleep_ms=50
export CMOCKA_MESSAGE_OUTPUT=STDOUT

# build NAME "SETUP ARGUMENTS"
build() {
	local folder=$top/$1 setup
	read -ra setup <<<"$2"
	hb_step "build $1" hb_build "$folder" "${setup[@]}"
}

# run_tests FOLDER [MESON TEST ARGUMENT...]: a failed test is repeated at the end, alone.
run_tests() {
	local folder=$1
	shift
	"${runner[@]}" meson test -C "$folder" --no-rebuild --print-errorlogs "$@" && return
	# Without a log, Meson itself broke.
	[[ -s $folder/meson-logs/testlog.json ]] || return
	: >"$folder/again"
	if (($#)); then printf '%s\n' "$@" >"$folder/again"; fi
}

# variant_tests NAME [MESON TEST ARGUMENT...]
variant_tests() {
	local name=$1
	shift
	hb_step "test $name" run_tests "$top/$name" "$@" || true
}

# second_try NAME: repeats the failed tests (tools/second_try.py); prints the first log again if they still fail.
second_try() {
	local options
	mapfile -t options <"$top/$1/again"
	"${runner[@]}" tools/second_try.py "$top/$1" "${options[@]}" || { cat "$HB_LOGS/test-$1.log"; return 1; }
}

# idly COMMAND...: runs it with idle priority, so that it hardly disturbs tests that run at the same time.
idly() {
	"$@" &
	echo $! >$top/idly
	[[ -f $top/hurry ]] || chrt --idle --pid 0 $! || true
	wait $!
}

# Builds, and tests that need no real time, run beside tests in real time, which mostly wait. Prints "ok" or "failed" when
# asan and tsan are built, and "over" at the end. -g1 is enough for the line numbers in sanitizer reports.
beside() {
	hb_run_under=(idly)
	export CC=gcc
	local clang=failed
	# These tests also measure the coverage of the rooms in tools/coverage_floors.txt: no other build runs so many of their tests.
	CFLAGS="-g1 -fno-sanitize-recover=all -fprofile-filter-files=/src/(daemon|server|shim)/" build asan "-Db_sanitize=address,undefined -Doptimization=1 -Db_coverage=true" >&3 && echo ok || echo failed
	hb_build_for=(threads)
	CFLAGS=-g1 build tsan "-Db_sanitize=thread -Doptimization=1" >&3 && echo ok || echo failed
	hb_build_for=()
	runner=(nice -n 10)
	[[ $gcc == failed ]] || hb_step "test gcc without live" still_tests >&3 || true
	# Tests in real time give the same result with either compiler, so clang skips them.
	CC=clang CFLAGS=-g1 build clang "--werror" >&3 && clang=ok
	[[ $clang == failed ]] || variant_tests clang --suite fast --no-suite live --no-suite once --timeout-multiplier 4 >&3
	runner=("${fixed_addresses[@]}")
	hb_step "same bytes from gcc, clang and sanitizers" same_bytes >&3 || true
	runner=(nice -n 19)
	fuzz >&3
	echo over
}

# gcc's tests that need no real time. None of them may have a second try.
still_tests() {
	"${runner[@]}" meson test -C $top/gcc --no-rebuild --print-errorlogs --no-suite live --logbase testlog-still
}

# await: waits for the next word of beside(), whose builds run at normal priority meanwhile.
await() {
	local word
	read -r -t 0 <&4 || {
		touch $top/hurry
		chrt --other --pid 0 "$(cat $top/idly)" 2>/dev/null || true
	}
	read -r word <&4
	rm -f $top/hurry
	echo "$word"
}

# Fuzzes every parser, together for about a minute (tools/fuzz.sh). Prints the executions of each target.
fuzz() {
	rm -rf "$top/fuzz/corpus"
	hb_step "test fuzz" "${runner[@]}" tools/fuzz.sh --build "$top/fuzz" --seconds 66 --no-minimize --results "$HB_RESULTS" || true
	grep '^fuzz ' "$HB_LOGS/test-fuzz.log" || true
}

# Checks that one seed gives the same bytes with every compiler; only the duration of the run may differ.
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

# Builds what the short tests need, runs them, and says what was left out.
test_quickly() {
	hb_build_for=(fast live)
	CC=gcc build gcc "--werror" || return
	export MESON_TESTTHREADS=$((HB_JOBS + 1))
	variant_tests gcc --suite fast --no-suite live
	[[ ! -f $top/gcc/again ]] || hb_step "test gcc again" second_try gcc || true
	echo "left out: $(meson test -C $top/gcc --list 2>/dev/null | grep -cE '^hummingbird:.*\b(live|slow)\b.* / ') long tests and tests in real time;" \
		"clang, the sanitizers, coverage and fuzzing. ./test.sh does all of it"
}

# count: prints the totals; the exit status is 1 if anything failed.
count() {
	echo "time: $((SECONDS / 60)) min $((SECONDS % 60)) s"
	find $top -path '*/meson-logs/testlog*.json' -print0 | sort -z | xargs -0 tools/count_tests.py $top/results.txt
}

groups=(build test)
[[ -z $quick ]] || groups=(build quick)
[[ -z $install ]] || hb_install "${groups[@]}"
hb_results_begin $top/results.txt
find $top -path "*/meson-logs/testlog*" -delete
rm -f $top/hurry $top/idly "$top"/*/again
runner=()
# gcc 12's thread sanitizer does not know the address layout of newer kernels.
fixed_addresses=()
if setarch -R true 2>/dev/null; then
	fixed_addresses=(setarch -R)
fi

if [[ $quick ]]; then
	test_quickly || true
	count
	exit
fi

exec 3>&1
CC=gcc build gcc "--werror" && gcc=ok || gcc=failed
exec 4< <(beside)
# Tests in real time wait for three quarters of their time.
[[ $gcc == failed ]] || MESON_TESTTHREADS=$((HB_JOBS * 2)) variant_tests gcc --suite live
asan=$(await)
if [[ $asan != failed ]]; then
	find $top/asan -name '*.gcda' -delete
	# With the address sanitizer they wait for half of it.
	HB_COVERAGE=1 MESON_TESTTHREADS=$((HB_JOBS + 1)) variant_tests asan --suite fast --no-suite once --timeout-multiplier 4
	hb_step "coverage" tools/coverage.py $top/asan tools/coverage_floors.txt || true
	grep '^coverage ' "$HB_LOGS/coverage.log" || true
fi
tsan=$(await)
runner=("${fixed_addresses[@]}")
[[ $tsan == failed ]] || variant_tests tsan --suite threads --timeout-multiplier 4
[[ $(await) == over ]]
for name in gcc clang asan tsan; do
	[[ ! -f $top/$name/again ]] || hb_step "test $name again" second_try "$name" || true
done

count
