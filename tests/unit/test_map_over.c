/* SPDX-License-Identifier: Apache-2.0 */
/* A thread reads a page while another one replaces it. The thread sanitizer checks that this is not a race. */
#include "base/map_over.h"
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096
#define PAGES 200

static atomic_bool is_over;
static bool went_back;

static int make_file(uint32_t number)
{
	int fd = memfd_create("page", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, PAGE_BYTES), 0);
	assert_int_equal(pwrite(fd, &number, sizeof number, 0), sizeof number);
	return fd;
}

static void *read_numbers(void *page)
{
	const _Atomic uint32_t *number = page;
	for (uint32_t last = 0; !atomic_load(&is_over);) {
		uint32_t now = atomic_load_explicit(number, memory_order_relaxed);
		went_back |= now < last;
		last = now;
	}
	return NULL;
}

static void a_reader_sees_the_old_page_or_the_new_one(void **state)
{
	pthread_t reader;
	void *page = NULL;
	for (uint32_t number = 1; number <= PAGES; number++) {
		int fd = make_file(number);
		void *mapped = hb_map_over(page, PAGE_BYTES, PROT_READ, MAP_SHARED, fd);
		assert_true(mapped != MAP_FAILED && (!page || mapped == page));
		close(fd);
		if (!page)
			assert_int_equal(pthread_create(&reader, NULL, read_numbers, mapped), 0);
		page = mapped;
		usleep(100);
	}
	atomic_store(&is_over, true);
	pthread_join(reader, NULL);
	assert_false(went_back);
	assert_int_equal(*(const uint32_t *)page, PAGES);
	munmap(page, PAGE_BYTES);
}

static void a_failure_is_reported(void **state)
{
	assert_true(hb_map_over(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, -1) == MAP_FAILED);
	assert_int_equal(errno, EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reader_sees_the_old_page_or_the_new_one),
		cmocka_unit_test(a_failure_is_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
