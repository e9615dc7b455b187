# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by ./demo.sh, ./test.sh and .ci/run, from the top folder: installing
# Debian packages, building, and running a step with its log, time and result.

set -euo pipefail

HB_LOGS=${HB_LOGS:-build-test/logs}
HB_JOBS=${HB_JOBS:-$(nproc)}

die() {
	echo "error: $*" >&2
	exit 1
}

# hb_install GROUP...: installs the missing packages of these groups (tools/packages.txt).
hb_install() {
	local package group missing=() sudo=()
	while read -r package group; do
		[[ " $* " == *" $group "* ]] || continue
		[[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == *"ok installed" ]] || missing+=("$package")
	done < <(grep -v '^#' tools/packages.txt)
	((${#missing[@]})) || return 0
	if ((EUID)); then
		command -v sudo >/dev/null || die "please run as root: apt-get install ${missing[*]}"
		sudo=(sudo)
	fi
	echo "installing ${missing[*]}" >&2
	mkdir -p "$HB_LOGS"
	local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120)
	{
		"${apt[@]}" install --no-install-recommends "${missing[@]}" ||
			{ "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; }
	} >"$HB_LOGS/install.log" 2>&1 </dev/null || {
		tail -n 20 "$HB_LOGS/install.log" >&2
		die "could not install ${missing[*]} (log: $HB_LOGS/install.log)"
	}
}

# The mirror that this machine installs from.
hb_debian_mirror() {
	{
		grep -hs '^URIs:' /etc/apt/sources.list.d/* | awk '{print $2}'
		grep -hs '^deb ' /etc/apt/sources.list | awk '{print $2}'
		echo http://deb.debian.org/debian
	} | sed -n 1p
}

# hb_path PATH: the same file for a script that has changed to the top folder before it sourced this file.
hb_path() { (cd "$OLDPWD" && realpath -m "$1"); }

# The version in meson.build.
hb_version() { sed -n "s/^  version: '\(.*\)',/\1/p" meson.build; }

# The date of the commit in seconds, or now: two packages of one commit have the same bytes.
hb_source_date() { git log -1 --format=%ct 2>/dev/null || date +%s; }

# Who answers for a package, as NAME <ADDRESS>: DEBFULLNAME and DEBEMAIL, which Debian's tools read too, else the author of the
# commit, else who builds it.
hb_maintainer() {
	local name address
	name=${DEBFULLNAME:-$(git log -1 --format=%an 2>/dev/null || id -un)}
	address=${DEBEMAIL:-$(git log -1 --format=%ae 2>/dev/null || echo "$(id -un)@$(uname -n)")}
	echo "$name <$address>"
}

# hb_debian_changelog PACKAGE VERSION: Debian's list of changes. It gives version and date; CHANGELOG.md is for readers.
hb_debian_changelog() {
	echo "$1 ($2) unstable; urgency=medium"
	printf '\n  * CHANGELOG.md of Hummingbird describes this release.\n\n'
	echo " -- $(hb_maintainer)  $(LC_ALL=C date --utc --date="@$(hb_source_date)" '+%a, %d %b %Y %T +0000')"
}

# hb_build FOLDER [MESON ARGUMENT...]: configures the folder if necessary and builds everything in it, or only what the tests
# in hb_build_for need (arguments of tools/test_targets.py), through the command in hb_run_under.
hb_run_under=()
hb_build_for=()
hb_build() {
	local folder=$1 targets=()
	shift
	[[ -f $folder/build.ninja ]] || meson setup "$folder" "$@"
	((!${#hb_build_for[@]})) || mapfile -t targets < <(tools/test_targets.py "$folder" "${hb_build_for[@]}")
	"${hb_run_under[@]}" ninja -C "$folder" -j "$HB_JOBS" "${targets[@]}"
}

# Starts a file of step results: lines "ok NAME" or "failed NAME", which tools/count_tests.py adds to the results of the tests.
hb_results_begin() {
	HB_RESULTS=$1
	mkdir -p "$(dirname "$HB_RESULTS")"
	: >"$HB_RESULTS"
}

# hb_step NAME COMMAND...: runs the command with a log of its own, prints how long it took, and on failure the log's end.
# The command's exit status decides: `set -e` has no effect inside a function that runs this way.
hb_step() {
	local name=$1 log="$HB_LOGS/${1//[^a-zA-Z0-9]/-}.log" begin=$SECONDS result=ok
	shift
	mkdir -p "$HB_LOGS"
	("$@") >"$log" 2>&1 </dev/null || result=failed
	printf '%-8s %4ds  %s\n' "$result" $((SECONDS - begin)) "$name"
	echo "$result $name" >>"$HB_RESULTS"
	[[ $result == ok ]] || {
		grep -E '[eE]rror|warning|FAIL|TIMEOUT|Sanitizer|not within|^[-+][^-+]' "$log" | head -n 60 || true
		echo "(the end of $log:)"
		tail -n 30 "$log"
		return 1
	}
}
