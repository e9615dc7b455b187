#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that manual pages are correct mdoc, that every command has one, and that pages of configuration files have every key.
# usage: lint_man.sh SOURCE HB PAGE... Skipped (77) without mandoc.
set -euo pipefail

source=$1 hb=$2
shift 2
command -v mandoc >/dev/null || { echo "mandoc is not installed: the manual pages were not checked"; exit 77; }
bad=0
for page in "$@"; do
	# Messages below a warning are ignored: they concern the length of lines and pages of other systems.
	mandoc -T lint -W warning "$page" || bad=1
	[[ $(mandoc -T utf8 "$page" | col -b) == *NAME* ]] || { echo "$page: empty"; bad=1; }
done
for command in $("$hb" --help | awk '/^commands:/ {on = 1; next} on && NF == 0 {exit} on {print $1}'); do
	[[ $command == help ]] || [[ " $* " == *"/hb-$command.1 "* ]] || { echo "hb $command has no manual page"; bad=1; }
done
# keys READER PAGE: checks that every key of the reader's tables is in the page.
keys() {
	local key page=$2 found=0
	while read -r key; do
		((found += 1))
		grep -qE "^\.(It )?Cm (.* )?$key( |$)" "$page" || { echo "$page: key '$key' is not explained"; bad=1; }
	done < <(grep -oE 'HB_CONFIG_[A-Z]+\(.*"' "$1" | sed -E 's/^[^"]*"([^"]+)".*/\1/' | sort -u)
	((found > 5)) || { echo "$1: no keys were found"; bad=1; }
}
keys "$source/src/daemon/daemon_config.c" "$source/man/hummingbird.yaml.5"
keys "$source/src/server/models/model_config.c" "$source/man/hb-model.yaml.5"
# Checks this script: it must find the error in a broken page.
mandoc -T lint -W warning <<<$'.Dd x\n.Sh BROKEN\n.Bl' >/dev/null && { echo "a broken page was accepted"; bad=1; }
exit $bad
