#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the container images hummingbird-daemon and hummingbird-serve from a tarball of packaging/make_tarball.sh:
# OUTPUT/hummingbird-{daemon,serve}-VERSION-x86_64-image.tar.gz, which `docker load` reads, and
# `gzip -dc ... | podman load`.
# usage: packaging/make_images.sh TARBALL OUTPUT [BASE [BASE OF SERVE]]
# BASE is an image. Without it, the base is a minimal Debian 12 that debootstrap makes: needs root and a Debian mirror, and no
# registry. Needs buildah. Leaves nothing in the machine's storage of images.
cd "$(dirname "$0")/.."
. tools/setup.sh
. packaging/debians.sh

usage="usage: packaging/make_images.sh TARBALL OUTPUT [BASE [BASE OF SERVE]]"
tarball=$(hb_path "${1:?$usage}")
out=$(hb_path "${2:?$usage}")
base=${3:-} serve_base=${4:-${3:-}}
command -v buildah >/dev/null || die "buildah is missing: install it"
[[ -n $base ]] || hb_need_root buildah
hb_folder_or_temporary ""
# Storage of its own. Isolation: what a Containerfile runs gets no network of its own and no other rights than this script.
build() { buildah --root "$folder/storage" --runroot "$folder/run" --storage-driver vfs "$@"; }
export BUILDAH_ISOLATION=chroot

mkdir "$folder/context"
tar -C "$folder/context" -xf "$tarball"
name=$(basename "$folder"/context/hummingbird-*)
mv "$folder/context/$name" "$folder/context/hummingbird"
cp packaging/images/serve_health.py "$folder/context"
date=$(stat -c %Y "$folder/context/hummingbird")
if [[ -z $base ]]; then
	base=localhost/debian-minimal serve_base=$base
	hb_make_debian bookworm "$folder/debian"
	rm -rf "$folder"/debian/var/cache/apt/archives/*.deb "$folder"/debian/var/lib/apt/lists/* "$folder"/debian/dev/*
	empty=$(build from scratch)
	build copy --quiet "$empty" "$folder/debian" / >/dev/null
	build commit --quiet --rm --timestamp "$date" "$empty" "$base" >/dev/null
fi
build_image() { # build_image NAME BASE
	local image=localhost/$1:${name#hummingbird-}
	# Only this format has health checks.
	build build --quiet --format docker --layers=false --timestamp "$date" --build-arg "BASE=$2" --build-arg "VERSION=$(hb_version)" \
		--tag "$image" --file "packaging/images/${1#hummingbird-}.Containerfile" "$folder/context" >/dev/null
	build push --quiet "$image" "docker-archive:$folder/$1.tar:$image"
	gzip -n <"$folder/$1.tar" >"$out/$1-${name#hummingbird-}-image.tar.gz"
	rm "$folder/$1.tar"
	echo "$out/$1-${name#hummingbird-}-image.tar.gz"
}
build_image hummingbird-daemon "$base"
build_image hummingbird-serve "$serve_base"
