#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages are correct mdoc and every command has one. usage: lint_man.sh HB PAGE... Skipped (77) without mandoc.
set -euo pipefail

hb=$1
shift
command -v mandoc >/dev/null || { echo "mandoc is not installed: the manual pages were not checked"; exit 77; }
bad=0
for page in "$@"; do
	# Below a warning lies taste: the length of a source line, pages of other systems.
	mandoc -T lint -W warning "$page" || bad=1
	[[ $(mandoc -T utf8 "$page" | col -b) == *NAME* ]] || { echo "$page: empty"; bad=1; }
done
for command in $("$hb" --help | awk '/^commands:/ {on = 1; next} on && NF == 0 {exit} on {print $1}'); do
	[[ $command == help ]] || [[ " $* " == *"/hb-$command.1 "* ]] || { echo "hb $command has no manual page"; bad=1; }
done
# The check itself: a broken page is not passed over.
mandoc -T lint -W warning <<<$'.Dd x\n.Sh BROKEN\n.Bl' >/dev/null && { echo "a broken page was accepted"; bad=1; }
exit $bad
