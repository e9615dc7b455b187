#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes FOLDER/cc, a C compiler for glibc 2.28, FOLDER/static with the static libraries that Hummingbird needs, and
# FOLDER/native.ini, which tells Meson to use them (docs/decisions/0026-binaries-for-old-systems.md). usage:
# packaging/static_libraries.sh FOLDER. Needs the packages of the group `release` (tools/packages.txt), PyPI, and a Debian
# mirror with source packages. Does nothing if FOLDER is complete. Runs nothing as root and installs nothing.
cd "$(dirname "$0")/.."
. tools/setup.sh

COMPILER=ziglang==0.17.1
MESON=meson==1.12.1
# Debian's static libraries of these packages are used as they are.
DEBIAN=(libjansson-dev libyaml-dev libsqlite3-dev liblz4-dev libzstd-dev libncurses-dev libnghttp2-dev libprotobuf-c-dev
	libmicrohttpd-dev nettle-dev libgmp-dev)
# Debian's static libraries of these do not fit, so they are built from Debian's source packages:
# GnuTLS needs p11-kit, which exists only as a shared library; zlib's code cannot be part of a module; libuv reads `environ`
# in a way that the linker of this compiler does not support (packaging/check_portable.py).
SOURCES=(gnutls28 zlib libuv1)

folder=$(realpath -m "${1:?usage: packaging/static_libraries.sh FOLDER}")
[[ $(uname -m) == x86_64 ]] || die "this script knows x86-64 only, and this machine is $(uname -m)"
triplet=x86_64-linux-gnu
static=$folder/static
made_by=packaging/static_libraries.sh
! cmp -s $made_by "$folder/made-by" || exit 0
for package in "${DEBIAN[@]}" automake libtool dpkg-dev; do
	dpkg -s "$package" >/dev/null 2>&1 || die "$package is missing: packaging/make_tarball.sh without --no-install installs it"
done
rm -rf "$folder"
mkdir -p "$static/lib/pkgconfig" "$static/include" "$folder/sources"

make_compiler() {
	python3 -m venv "$folder/venv"
	"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$COMPILER" "$MESON"
	local zig
	zig=$(echo "$folder"/venv/lib/python3*/site-packages/ziglang/zig)
	# Without the option the compiler adds traps of its own where code has undefined behaviour.
	cat >"$folder/cc" <<-END
		#!/bin/sh
		exec "$zig" cc -target $triplet.2.28 -fno-sanitize=undefined "\$@"
	END
	# Meson must not find the libraries of this machine.
	printf '#!/bin/sh\nPKG_CONFIG_LIBDIR=%s exec pkg-config "$@"\n' "$static/lib/pkgconfig" >"$folder/pkg-config"
	chmod +x "$folder/cc" "$folder/pkg-config"
	printf "[binaries]\nc = '%s'\npkg-config = '%s'\n" "$folder/cc" "$folder/pkg-config" >"$folder/native.ini"
}

# Copies headers, libraries and pkg-config files out of Debian's folders: the compiler must not find Debian's C library there.
copy_package() {
	local file
	while read -r file; do
		case $file in
		/usr/include/"$triplet"/*) target=$static/include/${file#/usr/include/"$triplet"/} ;;
		/usr/include/*) target=$static/include/${file#/usr/include/} ;;
		*.a | *.pc) target=$static/lib/${file#/usr/lib/"$triplet"/} ;;
		*) continue ;;
		esac
		[[ -d $file ]] || install -D -m644 "$file" "$target"
	done < <(dpkg -L "$1")
}

# The source packages, with Debian's security fixes; apt checks their signatures.
unpack_sources() {
	local mirror apt
	mirror=$(hb_debian_mirror)
	cd "$folder/sources"
	mkdir -p lists/partial cache/archives/partial
	printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s main\n' "$mirror bookworm" \
		"$mirror bookworm-updates" "${mirror%/debian}/debian-security bookworm-security" >sources.list
	apt=(apt-get -q -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$PWD/lists"
		-o Dir::Cache="$PWD/cache" -o APT::Sandbox::User="$(id -un)")
	"${apt[@]}" update
	"${apt[@]}" source --download-only "${SOURCES[@]}"
	for source in "${SOURCES[@]}"; do
		# apt has checked the signature.
		dpkg-source --no-check -x "$source"_*.dsc "$source"
	done
}

# build_source FOLDER "PART..." [CONFIGURE OPTION...]: configures a source package, makes these folders of it, installs the last.
build_source() {
	cd "$folder/sources/$1"
	if [[ -f autogen.sh ]]; then
		sh autogen.sh
	elif [[ -f configure.ac ]]; then
		# The packages ship no translations and no manuals here.
		AUTOPOINT=true GTKDOCIZE=true autoreconf -fi
	fi
	CC=$folder/cc CFLAGS="-O2 -fPIC -I$static/include" LDFLAGS="-L$static/lib" PKG_CONFIG_LIBDIR=$static/lib/pkgconfig \
		./configure --prefix="$static" "${@:3}"
	for part in $2; do
		make -j "$HB_JOBS" -C "$part"
	done
	make -C "$part" install
}

build_sources() {
	local off=(--disable-{doc,tools,cxx,tests,libdane,nls,gtk-doc,guile,shared}
		--without-{p11-kit,idn,zlib,zstd,brotli,tpm,tpm2})
	(build_source zlib . --static)
	(build_source libuv1 . --disable-shared --host=$triplet)
	(build_source gnutls28 "gl lib" "${off[@]}" --enable-static --with-included-libtasn1 --with-included-unistring \
		--host=$triplet)
	# The build asks for the name that Debian gives to the static library.
	cp "$static/lib/pkgconfig/libuv.pc" "$static/lib/pkgconfig/libuv-static.pc"
}

# Lists the libraries that are linked statically, for the folder of licences.
list_versions() {
	local package
	for package in "${DEBIAN[@]}"; do
		dpkg-query -W -f '${source:Package} ${source:Version}\n' "$package"
		install -D -m644 "/usr/share/doc/$package/copyright" \
			"$folder/licences/$(dpkg-query -W -f '${source:Package}' "$package")"
	done
	for package in "${SOURCES[@]}"; do
		echo "$package $(dpkg-parsechangelog -l "$folder/sources/$package/debian/changelog" -S Version)"
		install -m644 "$folder/sources/$package/debian/copyright" "$folder/licences/$package"
	done
}

make_compiler
for package in "${DEBIAN[@]}"; do
	copy_package "$package"
done
sed -i -e "s|^prefix=.*|prefix=$static|" -e "s|/$triplet||" -e "s|/usr/|$static/|g" "$static"/lib/pkgconfig/*.pc
(unpack_sources)
build_sources
list_versions | sort -u >"$folder/libraries.txt"
rm -rf "$folder/sources"
cp $made_by "$folder/made-by"
