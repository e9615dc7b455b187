#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks of the source text. usage: tools/lint.sh [CHECK...]; no CHECK = all.
# `tools/lint.sh format --fix [FILE...]` formats instead of checking. Writes "ok CHECK"
# or "failed CHECK" lines to $HB_RESULTS (default build-test/lint.txt). Exits 1 if one failed.
cd "$(dirname "$0")/.."
. tools/setup.sh

tidy_build=build-test/gcc

# Lists committed and new files, without ignored ones.
files() {
	git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
		[[ -f $file ]] && echo "$file"
	done
}

check_format() {
	if [[ ${1:-} == --fix ]]; then
		shift
		if (($#)); then printf '%s\n' "$@"; else files '*.c' '*.h'; fi | xargs -r clang-format -i
	else
		files '*.c' '*.h' | xargs -r clang-format --dry-run --Werror
	fi
}

check_tidy() {
	[[ -f $tidy_build/compile_commands.json ]] || CC=gcc meson setup "$tidy_build" --werror
	# Headers made by the build must exist before a file that includes them is read.
	ninja -C "$tidy_build" -j "$HB_JOBS"
	# One file each: clang-tidy 14 carries the state of va_list from one file to the next, and then reports false errors.
	python3 - "$tidy_build" <<-'END' | xargs -r -P "$HB_JOBS" -n 1 clang-tidy -p "$tidy_build" --quiet --warnings-as-errors='*'
		import json, os, sys
		build = sys.argv[1]
		root = os.getcwd() + os.sep
		entries = json.load(open(os.path.join(build, "compile_commands.json")))
		paths = {os.path.normpath(os.path.join(e["directory"], e["file"])) for e in entries}
		for path in sorted(paths):
		    if path.endswith(".c") and path.startswith(root) and not path.startswith(os.path.abspath(build) + os.sep):
		        print(os.path.relpath(path))
	END
}

check_shell() {
	{
		files '*.sh' .ci/run
		files | xargs grep -lE '^#!.*\b(ba)?sh\b' || true
	} | sort -u | xargs shellcheck -x
}

# Every source file names its licence in the first three lines; data and golden files do not.
check_spdx() {
	local file bad=0
	while read -r file; do
		head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || {
			echo "$file: no SPDX-License-Identifier: Apache-2.0 in the first three lines"
			bad=1
		}
	done < <(files '*.c' '*.h' '*.def' '*.py' '*.sh' '*.S' '*.awk' '*.h.in' '*meson.build' '*meson_options.txt' .ci/run)
	return "$bad"
}

# Every C file begins with a comment that says what the file does.
check_header_comment() {
	local file bad=0
	while read -r file; do
		sed -n 2p "$file" | grep -q '^/\*' || {
			echo "$file:2: no comment saying what the file does"
			bad=1
		}
	done < <(files '*.c' '*.h')
	return "$bad"
}

# File names are unique in the tree, except README, meson.build and the like.
check_unique_names() {
	local repeated
	repeated=$(files '*.c' '*.h' '*.py' '*.sh' '*.def' | sed 's|.*/||' | sort | uniq -d)
	[[ -z $repeated ]] || { echo "more than one file is called: $repeated"; return 1; }
}

# A file of more than 600 lines has a second subject.
check_length() {
	files '*.c' '*.h' '*.py' '*.sh' | xargs wc -l | awk '$2 != "total" && $1 > 600 {print $2 ": " $1 " lines, at most 600"; bad = 1} END {exit bad}'
}

# A function of more than 100 lines does more than one thing. (Functions begin and end with a brace in the first column.)
check_function_length() {
	files '*.c' '*.h' | xargs awk 'FNR == 1 {start = 0}
		/^\{/ {start = FNR}
		/^\}/ && start {if (FNR - start > 100) {print FILENAME ":" start ": function of " FNR - start " lines, at most 100"; bad = 1}; start = 0}
		END {exit bad}'
}

# Words that mark unfinished work.
check_words() {
	! files '*.c' '*.h' '*.def' '*.py' '*.md' '*meson.build' |
		xargs grep -nwE 'TODO|FIXME|XXX|HACK|WIP' /dev/null
}

# Links in Markdown files lead to existing files.
check_links() {
	local file target bad=0
	while IFS=: read -r file target; do
		target=${target#](}
		target=${target%%[)#]*}
		[[ -z $target || $target == *://* || $target == mailto:* ]] && continue
		[[ -e $(dirname "$file")/$target ]] || {
			echo "$file: link to $target, which does not exist"
			bad=1
		}
	done < <(files '*.md' | xargs grep -oHE '\]\([^) ]+\)' || true)
	return "$bad"
}

# Files that comments and documents mention exist; capitals are a placeholder (policy_NAME.c).
check_mentions() {
	local file mention bad=0
	while IFS=: read -r file mention; do
		[[ $mention =~ [A-Z]{3} && $mention != *README* || -e $mention || -e src/$mention ]] || {
			echo "$file: mentions $mention, which does not exist"
			bad=1
		}
	done < <(files '*.c' '*.h' '*.def' '*.py' '*.sh' '*.md' '*meson.build' | grep -v '^tests/' |
		xargs grep -oHE '\b(docs|src|tests|tools|bench|packaging)/[A-Za-z0-9_./-]+\.(md|c|h|def|py|sh|gpu|svg)\b' | sort -u)
	return "$bad"
}

# docs/architecture.md mentions every folder of src/, the decisions' README lists every decision, and drawn pictures are current.
check_docs() {
	local name bad=0
	for name in src/*/; do
		grep -q "${name%/}" docs/architecture.md || { echo "docs/architecture.md does not mention ${name%/}"; bad=1; }
	done
	for name in docs/decisions/[0-9]*.md; do
		grep -q "$(basename "$name")" docs/decisions/README.md || { echo "docs/decisions/README.md does not list $name"; bad=1; }
	done
	docs/plot_colocation.py --check || bad=1
	docs/plot_evaluation.py --check || bad=1
	return "$bad"
}

# The shape of the tree: see tools/check_structure.py.
check_tags() { tools/check_structure.py tags; }
check_sources() { tools/check_structure.py sources; }
check_statics() { tools/check_structure.py statics; }
check_house() { tools/check_structure.py house; }
check_titles() { tools/check_structure.py titles; }
check_layers() { tools/check_structure.py layers; }

all=(format shell spdx header_comment unique_names length function_length words links mentions docs tags sources statics house titles layers tidy)

if [[ ${1:-} == format && ${2:-} == --fix ]]; then
	shift
	check_format "$@"
	exit
fi
hb_results_begin "${HB_RESULTS:-build-test/lint.txt}"
status=0
for check in "${@:-${all[@]}}"; do
	hb_step "lint $check" "check_$check" || status=1
done
exit $status
