/* SPDX-License-Identifier: Apache-2.0 */
/* What `hb run` takes from a daemon for its command's environment: a test process plays the daemon. */
#include "../unit/unit.h"
#include "hummingbird/page_trace.h"
#include "protocol/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct said {
	int status; /* of hb run's end */
	char text[2048];
};

static int listen_at(char folder[], struct sockaddr_un *address)
{
	assert_non_null(mkdtemp(folder));
	snprintf(address->sun_path, sizeof address->sun_path, "%s/hbd.sock", folder);
	address->sun_family = AF_UNIX;
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)address, sizeof *address), 0);
	assert_int_equal(listen(listener, 1), 0);
	return listener;
}

static int make_page(void)
{
	struct hb_page *page;
	int fd = memfd_create("page", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, HB_TRACE_OFFSET + HB_TRACE_BYTES), 0);
	page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	page->magic = HB_PAGE_MAGIC;
	page->version = HB_PAGE_VERSION;
	page->size_bytes = sizeof *page;
	page->priority = HB_PAGE_HIGH;
	munmap(page, sizeof *page);
	return fd;
}

static void receive(int socket, union hb_msg *message, unsigned kind)
{
	struct hb_wire_fds fds;
	const char *why = "";
	assert_int_equal(hb_wire_receive(socket, HB_SENDER_CLIENT, message, &fds, &why), 0);
	assert_int_equal(message->header.kind, kind);
	hb_wire_close_fds(&fds);
}

/* One registration, answered with this environment. */
static void serve(int listener, const char *environment, size_t length)
{
	union hb_msg *message = malloc(sizeof *message);
	int socket = accept(listener, NULL, NULL), page = make_page();
	assert_non_null(message);
	assert_true(socket >= 0);
	receive(socket, message, HB_MSG_HELLO);
	hb_msg_init(message, HB_MSG_WELCOME);
	message->as_WELCOME.version = HB_PROTOCOL_VERSION;
	message->as_WELCOME.page_version = HB_PAGE_VERSION;
	assert_int_equal(hb_wire_send(socket, message, NULL, 0), 0);
	receive(socket, message, HB_MSG_REGISTER);
	hb_msg_init(message, HB_MSG_REGISTERED);
	message->as_REGISTERED.tenant = 1;
	message->as_REGISTERED.slot = HB_PAGE_PROCESSES;
	message->as_REGISTERED.n_fds = 1;
	hb_msg_add_text(message, environment, length);
	assert_int_equal(hb_wire_send(socket, message, &page, 1), 0);
	close(page);
	close(socket);
	free(message);
}

static void run(int listener, const char *socket_path, const char *environment, size_t length, struct said *said)
{
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		setenv("HB_SOCKET", socket_path, 1);
		setenv("HB_START_DAEMON", "0", 1);
		unsetenv("CUDA_MPS_PIPE_DIRECTORY");
		unsetenv("HB_MPS");
		execl(HB, "hb", "run", "--priority", "high", "--no-signs", "--", "sh", "-c",
		      "echo \"pipe $CUDA_MPS_PIPE_DIRECTORY mps $HB_MPS\"", (char *)NULL);
		_exit(126);
	}
	close(ends[1]);
	serve(listener, environment, length);
	size_t used = 0;
	ssize_t n;
	while (used < sizeof said->text - 1 && (n = read(ends[0], said->text + used, sizeof said->text - 1 - used)) > 0)
		used += (size_t)n;
	said->text[used] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(child, &said->status, 0), child);
}

static void grant(const char *environment, size_t length, struct said *said)
{
	char folder[] = "/tmp/hb-test-XXXXXX";
	struct sockaddr_un address;
	int listener = listen_at(folder, &address);
	run(listener, address.sun_path, environment, length, said);
	close(listener);
	unlink(address.sun_path);
	rmdir(folder);
}

static void where_mps_is_the_daemon_may_say(void **state)
{
	static const char environment[] = "CUDA_MPS_PIPE_DIRECTORY=/some/where\0HB_MPS=1";
	struct said said;
	(void)state;
	grant(environment, sizeof environment, &said);
	assert_true(WIFEXITED(said.status));
	assert_int_equal(WEXITSTATUS(said.status), 0);
	assert_non_null(strstr(said.text, "pipe /some/where mps 1\n"));
}

static void refused(const char *environment, size_t length, const char *name)
{
	char expected[100];
	struct said said;
	grant(environment, length, &said);
	assert_true(WIFEXITED(said.status));
	assert_int_equal(WEXITSTATUS(said.status), 125);
	snprintf(expected, sizeof expected, "hb run: the daemon wants to set '%s' for the command", name);
	assert_ptr_equal(strstr(said.text, expected), said.text);
}

static void anything_else_is_refused_before_the_command_runs(void **state)
{
	static const char preload[] = "CUDA_MPS_PIPE_DIRECTORY=/some/where\0LD_PRELOAD=/tmp/evil.so";
	static const char path[] = "PATH=/tmp", prefix[] = "HB_MPS_=1", shorter[] = "HB_MP=1", nothing[] = "HB_MPS";
	(void)state;
	refused(preload, sizeof preload, "LD_PRELOAD");
	refused(path, sizeof path, "PATH");
	refused(prefix, sizeof prefix, "HB_MPS_");
	refused(shorter, sizeof shorter, "HB_MP");
	refused(nothing, sizeof nothing, "HB_MPS");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(where_mps_is_the_daemon_may_say),
		cmocka_unit_test(anything_else_is_refused_before_the_command_runs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
