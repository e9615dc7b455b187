/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of cuGetProcAddress, the driver's own lookup of entry points, by which the
 * CUDA runtime finds every function. The driver answers first. If its answer is the
 * address of an exported function with a hook, the hook is returned instead. A
 * version of a function that the shim does not know has another address; it is
 * returned unchanged and counted. So a caller never gets a function with another
 * signature than it requested, and per-thread-stream forms keep their meaning.
 */
#include "shim/own_handles.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"

#include <stdlib.h>
#include <string.h>

struct known_address {
	void *address; /* of the driver's function */
	unsigned fn;
};

struct address_table {
	size_t n;
	struct known_address entries[];
};

static int compare_addresses(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct known_address *)a)->address;
	uintptr_t y = (uintptr_t)((const struct known_address *)b)->address;
	return x < y ? -1 : x > y;
}

/* NULL: out of memory; then hb_resolve_address() returns the driver's address. */
static struct address_table *build_table(void)
{
	struct address_table *table = malloc(sizeof(*table) + HB_N_FNS * sizeof(table->entries[0]));
	if (!table)
		return NULL;
	table->n = 0;
	for (unsigned fn = 0; fn < HB_N_FNS; fn++) {
		void *address = hb_hooks[fn].target ? hb_bind_lookup(fn) : NULL;
		if (address)
			table->entries[table->n++] = (struct known_address){address, fn};
	}
	qsort(table->entries, table->n, sizeof(table->entries[0]), compare_addresses);
	return table;
}

/* Returns the table, which the first caller builds; it exists until the process ends. */
static const struct address_table *get_table(void)
{
	static _Atomic(struct address_table *) kept;
	struct address_table *table = atomic_load_explicit(&kept, memory_order_acquire);
	if (table)
		return table;
	table = build_table();
	struct address_table *first = NULL;
	if (table && !atomic_compare_exchange_strong(&kept, &first, table)) {
		free(table);
		table = first;
	}
	return table;
}

static bool is_form_of(unsigned fn, const char *symbol, size_t length)
{
	const char *name = hb_fn_name(fn);
	return strncmp(name, symbol, length) == 0 && (name[length] == '\0' || name[length] == '_');
}

/* Whether the shim exports some version or stream form of this name. */
static bool is_exported_name(const char *symbol)
{
	size_t length = strlen(symbol);
	for (unsigned fn = 0; fn < HB_N_FNS; fn++)
		if (is_form_of(fn, symbol, length))
			return true;
	return false;
}

/* The same for names with a hook. */
static bool is_hooked_name(const char *symbol)
{
	size_t length = strlen(symbol);
	for (unsigned fn = 0; fn < HB_N_FNS; fn++)
		if (hb_hooks[fn].target && is_form_of(fn, symbol, length))
			return true;
	return false;
}

void *hb_resolve_address(const char *symbol, void *address)
{
	const struct address_table *table = get_table();
	struct known_address wanted = {address, 0};
	const struct known_address *known = table ? bsearch(&wanted, table->entries, table->n, sizeof(wanted),
							    compare_addresses)
						  : NULL;
	if (known)
		return hb_hooks[known->fn].target;
	bool hooked = is_hooked_name(symbol);
	if (hooked || !is_exported_name(symbol))
		hb_own_note_unknown(symbol, hooked);
	hb_shim_count(hooked ? HB_COUNT_unknown_versions : HB_COUNT_pass_through, 1);
	return address;
}

CUresult hb_hook_cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
	CUresult result = HB_REAL(cuGetProcAddress)(symbol, function, version, flags);
	if (result == CUDA_SUCCESS && symbol && function && *function)
		*function = hb_resolve_address(symbol, *function);
	return result;
}

/* Drivers before CUDA 12 have the first form only; translates its answer to the second form. */
static CUresult ask_old_driver(const char *symbol, void **function, int version, uint64_t flags,
			       CUdriverProcAddressQueryResult *status)
{
	CUresult result = HB_REAL(cuGetProcAddress)(symbol, function, version, flags);
	if (status)
		*status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return result;
}

CUresult hb_hook_cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
				     CUdriverProcAddressQueryResult *status)
{
	CUresult result;
	if (hb_real_library() && !hb_bind_lookup(HB_FN_cuGetProcAddress_v2))
		result = ask_old_driver(symbol, function, version, flags, status);
	else
		result = HB_REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
	if (result == CUDA_SUCCESS && symbol && function && *function)
		*function = hb_resolve_address(symbol, *function);
	return result;
}
