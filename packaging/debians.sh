# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced after tools/setup.sh by the scripts that make minimal Debians: try_release.sh, try_systemd.sh,
# try_containers.sh, make_images.sh.

# hb_need_root TOOL...: ends with an error if a tool is missing or this is not root.
hb_need_root() {
	local tool
	((EUID == 0)) || die "only root can make a Debian: sudo $0"
	for tool in debootstrap "$@"; do
		command -v "$tool" >/dev/null || die "$tool is missing: install the package that contains it"
	done
}

# hb_folder_or_temporary [FOLDER]: sets `folder` to it, or to a temporary folder that is removed at the end.
hb_folder_or_temporary() {
	if [[ -n ${1:-} ]]; then
		folder=$(hb_path "$1")
		mkdir -p "$folder"
	else
		folder=$(mktemp -d)
		trap 'rm -rf --one-file-system "$folder"' EXIT
	fi
}

# hb_make_debian RELEASE TREE [PACKAGE,...]: makes a minimal Debian in TREE, unless that is done; log: TREE.log. Returns 1 with
# a message if it fails.
hb_make_debian() {
	local tree=$2 script=/usr/share/debootstrap/scripts/$1
	[[ ! -f $tree-is-complete ]] || return 0
	# A run that was ended may have left /proc mounted there; this one mounts it for itself only.
	rm -rf --one-file-system "$tree"
	# Newer releases than this debootstrap knows are made like sid.
	[[ -e $script ]] || script=/usr/share/debootstrap/scripts/sid
	unshare --mount debootstrap --variant=minbase ${3:+"--include=$3"} "$1" "$tree" "$(hb_debian_mirror)" "$script" >"$tree.log" 2>&1 ||
		{ echo "debootstrap of $1 failed: $(tail -n 5 "$tree.log")"; return 1; }
	touch "$tree-is-complete"
}
