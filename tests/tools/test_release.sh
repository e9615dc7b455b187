#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packaging/make_release.sh refuses what is not a release, before it builds anything. usage: test_release.sh SOURCE
set -euo pipefail

source=$1
command -v git >/dev/null || { echo "git is not installed: a release cannot be made here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree/packaging" "$tree/tools"
cp "$source/packaging/make_release.sh" "$tree/packaging"
cp "$source/tools/setup.sh" "$source/tools/packages.txt" "$tree/tools"
cd "$tree"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@localhost

# refused TEXT: the script ends with an error that contains TEXT.
refused() {
	! timeout 60 packaging/make_release.sh "$work/out" >"$work/log" 2>&1 || { echo "not refused, for which '$1' was expected"; exit 1; }
	[[ $(cat "$work/log") == "error: "*"$1"* ]] || { echo "expected '$1', got:"; cat "$work/log"; exit 1; }
}
write() {
	printf "project('hummingbird', 'c',\n  version: '%s',\n" "$1" >meson.build
	printf '# Changes\n\n## %s\n\n- a\n\n## 0.9.0\n' "$2" >CHANGELOG.md
}

git init --quiet .
write 1.2 1.2
refused "'1.2' is not a version like 1.2.3"
write 1.2.3 Unreleased
refused "the first section is 'Unreleased', and meson.build says 1.2.3"
write 1.2.3 1.2.3
refused "commit everything first: ??"
git add .
git commit --quiet -m all
refused "HEAD has no tag v1.2.3"
git tag v1.2.33
refused "HEAD has no tag v1.2.3"
git tag v1.2.3
mkdir "$work/out"
touch "$work/out/file"
refused "$work/out is not empty"
