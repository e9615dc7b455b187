/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: Nsight Systems recordings. Changing bytes of a database rarely
 * gives another valid database. So an input that does not begin like a database
 * is SQL, which is run on a database with the tables of an export.
 */
#include "fuzz_import.h"

#include <sqlite3.h>

static const char schema[] =
	"CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, correlationId, globalPid, demangledName, shortName,"
	" registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, correlationId, globalPid, bytes, copyKind);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start, end, deviceId, correlationId, globalPid, bytes);"
	"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId);"
	"CREATE TABLE NVTX_EVENTS (start, end, text, textId);"
	"INSERT INTO StringIds VALUES (1, 'kernel'), (2, 'r');";

/* Allows only rows of numbers and strings to be inserted: other SQL could run forever or write files. */
static int only_inserts(void *context, int action, const char *a, const char *b, const char *c, const char *d)
{
	return action == SQLITE_INSERT ? SQLITE_OK : SQLITE_DENY;
}

static sqlite3 *make_database(const uint8_t *data, size_t size)
{
	sqlite3 *db = NULL;
	char *sql = malloc(size + 1);
	FUZZ_REQUIRE(sql);
	memcpy(sql, data, size);
	sql[size] = '\0';
	FUZZ_REQUIRE(sqlite3_open(":memory:", &db) == SQLITE_OK);
	FUZZ_REQUIRE(sqlite3_exec(db, schema, NULL, NULL, NULL) == SQLITE_OK);
	sqlite3_limit(db, SQLITE_LIMIT_VDBE_OP, 10000);
	sqlite3_set_authorizer(db, only_inserts, NULL);
	sqlite3_exec(db, sql, NULL, NULL, NULL);
	sqlite3_set_authorizer(db, NULL, NULL);
	free(sql);
	return db;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size >= 6 && memcmp(data, "SQLite", 6) == 0) {
		fuzz_import(data, size, HB_IMPORT_NSYS);
		return 0;
	}
	sqlite3_int64 bytes = 0;
	sqlite3 *db = make_database(data, size);
	unsigned char *file = sqlite3_serialize(db, "main", &bytes, 0);
	FUZZ_REQUIRE(file);
	fuzz_import(file, (size_t)bytes, HB_IMPORT_NSYS);
	sqlite3_free(file);
	sqlite3_close(db);
	return 0;
}
