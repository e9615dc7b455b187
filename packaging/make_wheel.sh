#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hummingbird_gpu-VERSION-py3-none-manylinux_2_28_x86_64.whl from the programs of the tarball, which it builds, too, and
# lets auditwheel confirm the tag. usage: packaging/make_wheel.sh [--no-install] [OUTPUT FOLDER] [WORK FOLDER]
# The folders are those of packaging/make_tarball.sh.
cd "$(dirname "$0")/.."
. tools/setup.sh

AUDITWHEEL=auditwheel==6.8.2
options=()
if [[ ${1:-} == --no-install ]]; then
	options=("$1")
	shift
fi
out=$(hb_path "${1:-.}")
work=$(hb_path "${2:-$PWD/build-tarball}")
packaging/make_tarball.sh "${options[@]}" "$out" "$work"

prefix=$(echo "$work"/tree/*)
version=${prefix#*/tree/hummingbird-}
wheel=$(packaging/make_wheel.py "$prefix" "$out" --version "${version%-*}")
"$work/libraries/venv/bin/pip" install --quiet --disable-pip-version-check "$AUDITWHEEL"
"$work/libraries/venv/bin/auditwheel" show "$wheel" >"$work/auditwheel.txt"
[[ $(tr -s ' \n' ' ' <"$work/auditwheel.txt") == *'consistent with the following platform tag: "manylinux_2_28_x86_64"'* ]] ||
	{ cat "$work/auditwheel.txt"; die "$wheel is not what its name says"; }
echo "$wheel"
