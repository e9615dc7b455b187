#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the README's commands as a newcomer would: in a chroot with a minimal
# Debian 12, git, and nothing else. It clones this checkout's HEAD, so commit
# first. Needs root, debootstrap and a Debian mirror; takes about 25 minutes on
# 2 cores (`quick`: ./test.sh --quick, five). Prints how each command ended;
# exits 1 if one of them failed. usage: tools/fresh_machine.sh [demo|test|both|quick]
cd "$(dirname "$0")/.."
. tools/setup.sh

what=${1:-both}
[[ $what == demo || $what == test || $what == both || $what == quick ]] || { echo "usage: $0 [demo|test|both|quick]" >&2; exit 2; }
((EUID == 0)) || { echo "error: a chroot needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "error: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }

root=$(mktemp -d "${TMPDIR:-/var/tmp}/hb-fresh.XXXXXX")
kernel_folders=(proc sys dev dev/shm dev/pts)

leave_chroot() {
	local i
	for ((i = ${#kernel_folders[@]} - 1; i >= 0; i--)); do
		umount -l "$root/${kernel_folders[i]}" 2>/dev/null || true
	done
	rm -rf --one-file-system "$root"
}
trap leave_chroot EXIT

make_chroot() {
	debootstrap --variant=minbase --include=git,ca-certificates bookworm "$root" "$(hb_debian_mirror)" >"$root.log" 2>&1 ||
		{ tail -n 5 "$root.log"; exit 1; }
	# Settings of this machine that package installation may need (a proxy, name servers).
	cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
	cp /etc/resolv.conf "$root/etc/"
	local folder
	for folder in "${kernel_folders[@]}"; do
		# dev/shm and dev/pts come with dev on some machines.
		mount --rbind "/$folder" "$root/$folder" 2>/dev/null || continue
		mount --make-rslave "$root/$folder"
	done
	git clone -q . "$root/root/hummingbird"
}

# run_inside SCRIPT [ARGUMENT]: runs it in the chroot with a bare environment; its output goes to a log beside the chroot.
run_inside() {
	local begin=$SECONDS status=0
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$root" \
		bash -c "cd /root/hummingbird && ./$*" </dev/null >"$root.$1.log" 2>&1 || status=$?
	echo "$1: exit status $status after $((SECONDS - begin)) s: $(tail -n 1 "$root.$1.log") (log: $root.$1.log)"
	((status == 0)) && return
	grep -E '^failed|error:|not found|No such file|cannot find' "$root.$1.log" | head -n 20 || true
	failed=1
}

failed=0
make_chroot
[[ $what == test || $what == quick ]] || run_inside demo.sh
[[ $what == demo || $what == quick ]] || run_inside test.sh
[[ $what != quick ]] || run_inside test.sh --quick
exit $failed
