#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What happens to a service and to a training job that share one GPU? Builds
# Hummingbird into build/, answers for every way of sharing, with a table and a
# page of plots, and then runs such programs, on a simulated GPU where there is
# no other one. Needs Debian 12 and no GPU; installs what is missing (root or
# sudo). usage: ./demo.sh [--no-install]
cd "$(dirname "$0")"
HB_LOGS=build/logs
. tools/setup.sh

seconds=${HB_DEMO_SECONDS:-20}

build() {
	mkdir -p "$HB_LOGS"
	echo "building (log: $HB_LOGS/build.log)" >&2
	hb_build build >"$HB_LOGS/build.log" 2>&1 </dev/null || {
		tail -n 30 "$HB_LOGS/build.log" >&2
		die "the build failed"
	}
}

# question SERVICE TRAINING REPORT: shows the command, then its answer
question() {
	local command=(build/hb sim --high "$1" --low "$2" --sharing all --seconds "$seconds" --seed 1 --report "$3")
	printf '\n$ %s\n' "${command[*]}"
	"${command[@]}"
	printf '\nplots: %s\n' "$PWD/$3"
}

if [[ ${1:-} != --no-install ]]; then
	hb_install build
fi
build
question resnet50_b1@60/s llama8_train_b4 build/report-llama.html
question resnet50_b1@60/s resnet50_train_b128 build/report.html
printf '\n$ bench/side_by_side.py build\n'
bench/side_by_side.py build
