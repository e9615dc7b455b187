# SPDX-License-Identifier: Apache-2.0
# Lists the enumerators, structures and first-level fields of cuda_enums.h and cuda_abi.h as ABI_* rows.
/^\tCU[A-Za-z0-9_]* = / || /^\tCIG[A-Z0-9_]* = / { print "ABI_ENUM(" $1 ")" }
/^typedef (struct|union) .*\{$/ { n = 0; inside = 1; next }
inside && /^\t[^\t].*;$/ && !/\(\*/ {
	field = $NF
	gsub(/[*;]|\[.*/, "", field)
	if ($0 ~ /\[/ && $0 !~ /^\t\}/) { line = $0; sub(/\[.*/, "", line); k = split(line, word, /[ *]+/); field = word[k] }
	if (field != "" && field != "}") fields[n++] = field
}
inside && /^\} / {
	type = $2
	sub(/;/, "", type)
	print "ABI_SIZE(" type ")"
	for (i = 0; i < n; i++) print "ABI_FIELD(" type ", " fields[i] ")"
	inside = 0
}
