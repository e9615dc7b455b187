#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What bash completes after `hb ...`, and that the scripts of the shells that are installed are correct.
# usage: test_completion.sh HB
set -euo pipefail

hb=$1
PATH=$(dirname "$hb"):$PATH
# shellcheck source=/dev/null
source <("$hb" completion bash)
bad=0

# complete EXPECTED WORD...: the last word is being completed
complete_is() {
	local expected=$1
	shift
	# shellcheck disable=SC2034 # the script reads them
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	COMPREPLY=()
	_hb
	[[ ${COMPREPLY[*]} == "$expected" ]] || { echo "$*: '${COMPREPLY[*]}' instead of '$expected'"; bad=1; }
}

complete_is "sim sim-serve sim-cluster" hb si
complete_is "status" hb statu
complete_is "--help --version" hb --
complete_is "trace top" hb help t
complete_is "--pcie-weight --priority" hb run --p
complete_is "--system" hb config check --s
complete_is "" hb run --nothing
[[ $("$hb" completion zsh | head -1) == "#compdef hb" ]] || { echo "zsh: first line"; bad=1; }
for shell in zsh fish; do
	command -v $shell >/dev/null || { echo "$shell is not installed: its script was not parsed"; continue; }
	"$hb" completion $shell | $shell -n /dev/stdin || bad=1
done
exit $bad
