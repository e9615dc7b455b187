/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only the daemon writes to GPU pages, and only an HP process to its board: tests
 * with small clients what others can map, and whose boards the daemon lists.
 */
#include "base/clock.h"
#include "one_daemon.h"
#include "protocol/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct board_tenant {
	struct hb_tenant_options wish;
	struct hb_membership member;
};

static void begin(struct board_tenant *tenant, unsigned seed, enum hb_page_priority priority)
{
	tenant->wish = wish_of(seed, priority);
	tenant->member = (struct hb_membership)HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, tenant->wish), 0);
	assert_int_equal(join(&daemon_, &tenant->wish, &tenant->member), 0);
}

static int give_fd(const struct board_tenant *tenant, int fd)
{
	struct hb_error error;
	int socket = daemon_connect(&daemon_);
	int result = hb_client_give_board(socket, tenant->wish.token, tenant->wish.uuids[0], fd, &error);
	close(socket);
	return result;
}

static int give(const struct board_tenant *tenant, void **board)
{
	int fd = hb_board_make(board, 0);
	assert_true(fd >= 0);
	int result = give_fd(tenant, fd);
	close(fd);
	return result;
}

static unsigned count_listed(const struct hb_gpu_page *page)
{
	unsigned n = 0;
	for (unsigned i = 0; i < HB_PAGE_BOARDS; i++)
		n += page->boards[i].number != 0;
	return n;
}

/* Returns the descriptor that the daemon gives a tenant as its GPU page, or as a board. */
static int receive_fd(const struct board_tenant *tenant, uint32_t number, size_t which)
{
	struct hb_wire_fds fds;
	const char *why = "";
	union hb_msg *message = calloc(1, sizeof *message);
	int socket = daemon_connect(&daemon_);
	hb_msg_init(message, number ? HB_MSG_FETCH_BOARD : HB_MSG_REGISTER);
	if (number) {
		memcpy(message->as_FETCH_BOARD.token, tenant->wish.token, HB_TOKEN_BYTES);
		memcpy(message->as_FETCH_BOARD.uuid, tenant->wish.uuids[0], HB_UUID_BYTES);
		message->as_FETCH_BOARD.number = number;
	} else {
		memcpy(message->as_REGISTER.token, tenant->wish.token, HB_TOKEN_BYTES);
		message->as_REGISTER.slot = tenant->member.slot;
	}
	assert_int_equal(hb_wire_send(socket, message, NULL, 0), 0);
	assert_int_equal(hb_wire_receive(socket, HB_SENDER_DAEMON, message, &fds, &why), 0);
	close(socket);
	free(message);
	assert_true(fds.n > which);
	int fd = fcntl(fds.fd[which], F_DUPFD_CLOEXEC, 100);
	hb_wire_close_fds(&fds);
	return fd;
}

/* Every way to write to a memory file whose descriptor one has. */
static void expect_read_only(int fd)
{
	char path[64];
	void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(mapped, MAP_FAILED);
	assert_int_equal(mprotect(mapped, 4096, PROT_READ | PROT_WRITE), -1);
	munmap(mapped, 4096);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(errno, EPERM);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(ftruncate(fd, 0), -1);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int again = open(path, O_RDWR | O_CLOEXEC); /* the owner of the file can open it again */
	if (again >= 0) {
		assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
		assert_int_equal(pwrite(again, "x", 1, 0), -1);
		close(again);
	}
	close(fd);
}

static void no_tenant_can_write_to_a_gpu_page(void **state)
{
	struct board_tenant tenant;
	begin(&tenant, 1, HB_PAGE_LOW);
	expect_read_only(receive_fd(&tenant, 0, 1));
	hb_membership_fini(&tenant.member);
}

static void no_other_process_can_write_to_a_board(void **state)
{
	struct board_tenant high, low;
	uint32_t *board = NULL;
	begin(&high, 1, HB_PAGE_HIGH);
	begin(&low, 2, HB_PAGE_LOW);
	assert_int_equal(give(&high, (void **)&board), 0);
	const struct hb_page_board *entry = &low.member.gpus[0]->boards[0];
	assert_int_not_equal(entry->number, 0);
	assert_int_equal(entry->tenant, high.member.tenant);
	assert_int_equal(entry->slot, high.member.slot);
	assert_int_equal(entry->generation, high.member.generation);
	expect_read_only(receive_fd(&low, entry->number, 0));
	*board = 42; /* the maker still can */
	int fd = receive_fd(&low, entry->number, 0);
	uint32_t seen = 0;
	assert_int_equal(pread(fd, &seen, sizeof seen, 0), sizeof seen);
	assert_int_equal(seen, 42);
	close(fd);
	hb_membership_fini(&high.member);
	hb_membership_fini(&low.member);
}

static void only_high_tenants_are_listed(void **state)
{
	struct board_tenant high, low;
	void *board = NULL, *other = NULL;
	begin(&high, 1, HB_PAGE_HIGH);
	begin(&low, 2, HB_PAGE_LOW);
	uint32_t epoch = high.member.gpus[0]->boards_epoch;
	assert_int_equal(give(&low, &other), -EPERM);
	assert_int_equal(count_listed(high.member.gpus[0]), 0);
	assert_int_equal(high.member.gpus[0]->boards_epoch, epoch);
	low.member.page->priority = HB_PAGE_HIGH; /* writing so does not make it so */
	assert_int_equal(give(&low, &other), -EPERM);
	assert_int_equal(give(&high, &board), 0);
	assert_int_equal(give(&high, &other), -EEXIST);
	assert_int_equal(count_listed(high.member.gpus[0]), 1);
	assert_int_not_equal(high.member.gpus[0]->boards_epoch, epoch);
	/* With its priority the tenant loses its place on the list. */
	struct hb_error error;
	struct hb_msg_set change = {.tenant = high.member.tenant, .fields = HB_SET_PRIORITY, .priority = HB_PAGE_LOW};
	int fd = daemon_connect(&daemon_);
	assert_int_equal(hb_client_set(fd, &change, &error), 0);
	close(fd);
	assert_int_equal(count_listed(high.member.gpus[0]), 0);
	hb_membership_fini(&high.member);
	hb_membership_fini(&low.member);
}

static void a_board_that_others_could_change_is_refused(void **state)
{
	struct board_tenant high;
	begin(&high, 1, HB_PAGE_HIGH);
	const int seals[] = {0, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, F_SEAL_FUTURE_WRITE};
	for (size_t i = 0; i < sizeof seals / sizeof seals[0]; i++) {
		int fd = memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(ftruncate(fd, HB_PAGE_BOARD_BYTES), 0);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
		assert_int_equal(give_fd(&high, fd), -EPROTO);
		close(fd);
	}
	int big = memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(big, 2 * HB_PAGE_BOARD_BYTES), 0);
	assert_int_equal(fcntl(big, F_ADD_SEALS, HB_BOARD_SEALS), 0);
	assert_int_equal(give_fd(&high, big), -EPROTO);
	close(big);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(give_fd(&high, null), -EPROTO);
	close(null);
	assert_int_equal(count_listed(high.member.gpus[0]), 0);
	hb_membership_fini(&high.member);
}

static int join_and_give(void *argument)
{
	struct board_tenant *tenant = argument;
	void *board = NULL;
	tenant->member = (struct hb_membership)HB_MEMBERSHIP_NONE;
	int result = join(&daemon_, &tenant->wish, &tenant->member);
	int fd = hb_board_make(&board, 0);
	return result == 0 && fd >= 0 ? give_fd(tenant, fd) : -1;
}

static void the_board_of_a_dead_process_leaves_the_list(void **state)
{
	struct board_tenant high, other;
	int status;
	begin(&high, 1, HB_PAGE_HIGH);
	other = high;
	pid_t child = child_start(join_and_give, &other, &status);
	assert_int_equal(status, 0);
	assert_int_equal(count_listed(high.member.gpus[0]), 1);
	child_kill(child);
	daemon_tenants(&daemon_);
	assert_int_equal(count_listed(high.member.gpus[0]), 0);
	hb_membership_fini(&high.member);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(no_tenant_can_write_to_a_gpu_page),
		TEST(no_other_process_can_write_to_a_board),
		TEST(only_high_tenants_are_listed),
		TEST(a_board_that_others_could_change_is_refused),
		TEST(the_board_of_a_dead_process_leaves_the_list),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
