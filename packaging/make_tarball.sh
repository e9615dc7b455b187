#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds hummingbird-VERSION-x86_64.tar.gz for any x86-64 Linux with glibc 2.28 and Linux 5.3 or newer: unpacked in any folder it works
# from there. usage: packaging/make_tarball.sh [--no-install] [OUTPUT FOLDER] [WORK FOLDER]
# OUTPUT defaults to the current folder. WORK (default build-tarball) keeps compiler, libraries and build for the next run;
# remove it to get Debian's newest security fixes. It contains tree/, the unpacked tarball. Needs Debian 12 and PyPI.
cd "$(dirname "$0")/.."
. tools/setup.sh

if [[ ${1:-} == --no-install ]]; then shift; else hb_install build release; fi
out=$(hb_path "${1:-.}")
work=$(hb_path "${2:-$PWD/build-tarball}")
libraries=$work/libraries
packaging/static_libraries.sh "$libraries"

meson=$libraries/venv/bin/meson
# gcc's options for Debian's packages: the compiler that targets old systems has no others of its own.
[[ -f $work/build/build.ninja ]] || env -u CC -u CFLAGS "$meson" setup "$work/build" --native-file "$libraries/native.ini" \
	--prefix=/ --libdir=lib --sysconfdir=etc --buildtype=release -Db_pie=true -Dprefer_static=true -Dtls=enabled \
	-Dtests=false -Dpackage=true -Dstrip=true -Dc_args=-fstack-protector-strong
ninja -C "$work/build" -j "$HB_JOBS"

name=hummingbird-$(hb_version)-x86_64
rm -rf "$work/tree"
mkdir -p "$work/tree"
tree=$work/tree/$name
DESTDIR=$tree "$meson" install -C "$work/build" --no-rebuild --quiet
# The module is also in share/hummingbird/python, and only Debian's Python searches here.
rm -r "$tree/lib/python3"
find "$tree" -name __pycache__ -prune -exec rm -r {} +
doc=$tree/share/doc/hummingbird
install -Dm644 -t "$doc" "$libraries/libraries.txt"
install -Dm644 -t "$doc/licences" "$libraries"/licences/*
install -m755 packaging/install_service.sh "$tree/share/hummingbird/install-service"

packaging/check_portable.py "$tree"
find "$tree" -type d -exec chmod 755 {} +
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(hb_source_date)" -C "$work/tree" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
