#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: abi_check.sh OURS REAL: both programs must print the same lines.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$1" > "$tmp/ours"
"$2" > "$tmp/real"
[ "$(wc -l < "$tmp/ours")" -gt 400 ] || { echo "abi_list.awk lost its rows"; exit 1; }
diff "$tmp/ours" "$tmp/real"
