#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Debian package installs into a fresh tree, works from there, and leaves nothing when it is removed.
# Where lintian is installed, it has nothing to say. usage: test_package.sh SOURCE. Skipped (77) without debhelper.
set -euo pipefail

source=$1
command -v dh >/dev/null || { echo "debhelper is not installed: no package was built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
	echo "$*"
	exit 1
}

"$source/packaging/make_deb.sh" "$work" "$work/build" >"$work/log" 2>&1 || { tail -n 30 "$work/log"; fail "no package was built"; }
package=$(echo "$work"/hummingbird_*.deb)
if command -v lintian >/dev/null; then
	lintian --allow-root --fail-on error,warning "$package" || fail "lintian refuses it"
fi
[[ $(dpkg-deb --field "$package" Depends) == *libc6* ]] || fail "its dependencies are not named"
# asked_for LIBRARY: one of the packages that have it is among the dependencies
asked_for() {
	dpkg -S "*/$1" | sed 's/:.*//' | grep -qxF -f <(dpkg-deb --field "$package" Depends | tr ',|' '\n' | awk '{print $1}')
}
dpkg-deb --contents "$package" | awk '$2 != "root/root" {print; bad = 1} END {exit bad}' || fail "files that are not root's"

tree=$work/tree
mkdir -p "$tree/var/lib/dpkg/info" "$tree/var/lib/dpkg/updates"
touch "$tree/var/lib/dpkg/status"
dpkg=(dpkg --force-not-root --force-depends --force-script-chrootless --root="$tree")
"${dpkg[@]}" --install "$package" >"$work/log" 2>&1 || { cat "$work/log"; fail "it does not install"; }

# The libraries of every program, those of programs that only other programs start included.
while read -r program; do
	while read -r library; do
		asked_for "$library" || fail "$program needs $library, for which the package does not ask"
	done < <(readelf --dynamic "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
done < <(find "$tree/usr/bin" "$tree/usr/sbin" "$tree/usr/libexec" -type f -perm -100)
asked_for libmicrohttpd.so.12 || fail "hb serve's libraries are not asked for"
! asked_for libnobody.so.1 2>/dev/null || fail "any library passes for asked for"

# It works from where it lies: commands, the daemon it starts, the library it puts in front.
export PATH="$tree/usr/bin:$tree/usr/sbin:$PATH" XDG_RUNTIME_DIR=$work HB_SIM_GPU=$work/gpu HOME=$work
unset LD_LIBRARY_PATH
cd "$work"
hb --version
hb config check "$tree/etc/hummingbird/hummingbird.yaml"
hbd --foreground --gpu sim --socket "$work/hbd.sock" 2>"$work/hbd.log" &
daemon=$!
for ((i = 0; i < 600; i++)); do
	HB_SOCKET=$work/hbd.sock hb status --gpu sim >"$work/status" 2>&1 && break
	sleep 0.1
done
grep -q 'no tenants' "$work/status" || { cat "$work/status" "$work/hbd.log"; fail "the daemon does not answer"; }
# shellcheck disable=SC2016 # for the program's shell
path=$(HB_SOCKET=$work/hbd.sock hb run --gpu sim --priority high -- sh -c 'echo "$LD_LIBRARY_PATH"' 2>/dev/null)
[[ $path == "$tree/usr/lib/"*/hummingbird* ]] || fail "programs do not get the library of the package"
kill "$daemon"
wait "$daemon"
for page in hb.1 hb-run.1 hummingbird.yaml.5 hbd.8; do
	[[ -s $tree/usr/share/man/man${page##*.}/$page.gz ]] || fail "no manual page $page"
done
[[ -s $(readlink -f "$tree/usr/share/bash-completion/completions/hb") ]] || fail "no completion"

"${dpkg[@]}" --purge hummingbird >"$work/log" 2>&1 || { cat "$work/log"; fail "it does not go"; }
left=$(find "$tree" -not -type d -not -path '*/var/lib/dpkg/*' -not -path '*/var/log/*')
[[ -z $left ]] || fail "left behind: $left"
[[ ! -e $tree/usr && ! -e $tree/etc/hummingbird ]] || fail "folders are left behind"
