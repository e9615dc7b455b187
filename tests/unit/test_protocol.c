/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: valid ones are accepted, messages that break a rule are refused before
 * they have any effect, and descriptors arrive or are closed.
 */
#include "core/core.h"
#include "protocol/container_token.h"
#include "protocol/daemon_client.h"
#include "protocol/tenant_options_env.h"
#include "protocol/wire.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static union hb_msg message;

static int check(size_t n_fds, enum hb_msg_sender sender)
{
	const char *why = NULL;
	int result = hb_msg_check(&message, message.header.size, n_fds, sender, &why);
	assert_true(result == 0 ? why == NULL : why != NULL);
	return result;
}

static void make_register(void)
{
	hb_msg_init(&message, HB_MSG_REGISTER);
	memset(message.as_REGISTER.token, 7, HB_TOKEN_BYTES);
	message.as_REGISTER.slot = HB_PAGE_PROCESSES;
}

static void every_message_has_its_own_number_and_name(void **state)
{
	static const struct {
		const char *name;
		unsigned number;
	} all[] = {
#define HB_MESSAGE(name, number, sender, type, text_max, fds_max) {#name, number},
#include "protocol/messages.def"
#undef HB_MESSAGE
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		assert_string_equal(hb_msg_name(all[i].number), all[i].name);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(all[i].number, all[j].number);
	}
	assert_string_equal(hb_msg_name(0), "?");
	assert_string_equal(hb_msg_name(65535), "?");
}

static void a_built_registration_is_accepted(void **state)
{
	size_t length;
	make_register();
	hb_msg_add_text(&message, "python train.py", 15);
	assert_int_equal(check(0, HB_SENDER_CLIENT), 0);
	assert_memory_equal(hb_msg_text(&message, &length), "python train.py", 15);
	assert_int_equal(length, 15);
}

static void each_rule_of_a_registration_is_checked(void **state)
{
#define REFUSED(change) \
	make_register(); \
	message.as_REGISTER.change; \
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO)
	REFUSED(flags = HB_REGISTER_ALL_FLAGS + 1);
	REFUSED(priority = 2);
	REFUSED(slo_ns = -2);
	REFUSED(slo_ns = HB_TIME_LIMIT_NS); /* as the core does */
	REFUSED(attainment_ppm = 1000001);
	REFUSED(pcie_weight = 1001);
	REFUSED(weight = 1001);
	REFUSED(engine = HB_ENGINE_SPATIAL + 1);
	REFUSED(n_gpus = HB_PAGE_GPUS + 1);
	REFUSED(slot = HB_PAGE_PROCESSES + 1);
	REFUSED(flags = HB_REGISTER_PAGE);
	REFUSED(token[0] = 0; memset(message.as_REGISTER.token, 0, HB_TOKEN_BYTES));
	make_register();
	assert_int_equal(check(1, HB_SENDER_CLIENT), -EPROTO);
	message.as_REGISTER.flags = HB_REGISTER_PAGE;
	assert_int_equal(check(1, HB_SENDER_CLIENT), 0);
}

static void each_rule_of_a_termination_is_checked(void **state)
{
	hb_msg_init(&message, HB_MSG_TERMINATE);
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO); /* no token */
	message.as_TERMINATE.token[0] = 1;
	message.as_TERMINATE.signal = 64;
	assert_int_equal(check(0, HB_SENDER_CLIENT), 0);
	assert_int_equal(check(0, HB_SENDER_DAEMON), -EPROTO);
	message.as_TERMINATE.signal = 65;
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO);
}

static void each_rule_of_a_placement_is_checked(void **state)
{
	hb_msg_init(&message, HB_MSG_PLACE);
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO); /* no token */
	message.as_PLACE.token[0] = 1;
	message.as_PLACE.n_gpus = HB_PAGE_GPUS;
	message.as_PLACE.n_allowed = HB_PLACE_GPUS_MAX;
	message.as_PLACE.seconds = HB_PLACE_SECONDS_MAX;
	assert_int_equal(check(0, HB_SENDER_CLIENT), 0);
	message.as_PLACE.n_gpus++;
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO);
	message.as_PLACE.n_gpus--;
	message.as_PLACE.n_allowed++;
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO);
	message.as_PLACE.n_allowed--;
	message.as_PLACE.seconds++;
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO);
	message.as_PLACE.seconds--;
	message.as_PLACE.priority = 7;
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO);
	hb_msg_init(&message, HB_MSG_PLACED);
	assert_int_equal(check(0, HB_SENDER_DAEMON), 0);
	message.as_PLACED.n_gpus = HB_PAGE_GPUS + 1;
	assert_int_equal(check(0, HB_SENDER_DAEMON), -EPROTO);
}

static void the_other_sides_messages_are_refused(void **state)
{
	make_register();
	assert_int_equal(check(0, HB_SENDER_DAEMON), -EPROTO);
	hb_msg_init(&message, HB_MSG_DONE);
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO);
	assert_int_equal(check(0, HB_SENDER_DAEMON), 0);
}

static void lengths_must_fit_to_the_byte(void **state)
{
	const char *why;
	make_register();
	for (size_t n = 0; n < message.header.size; n++)
		assert_int_equal(hb_msg_check(&message, n, 0, HB_SENDER_CLIENT, &why), -EPROTO);
	assert_int_equal(hb_msg_check(&message, message.header.size + 1, 0, HB_SENDER_CLIENT, &why), -EPROTO);
	message.header.size--;
	assert_int_equal(check(0, HB_SENDER_CLIENT), -EPROTO);
}

static void text_is_cut_to_what_the_kind_allows(void **state)
{
	static char long_text[HB_MSG_MAX];
	size_t length;
	memset(long_text, 'x', sizeof long_text);
	make_register();
	hb_msg_add_text(&message, long_text, sizeof long_text);
	assert_int_equal(check(0, HB_SENDER_CLIENT), 0);
	hb_msg_text(&message, &length);
	assert_int_equal(length, 1024);
}

/* --- over a socket -------------------------------------------------------------------- */

static size_t open_fds(void)
{
	size_t n = 0;
	DIR *folder = opendir("/proc/self/fd");
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

static void descriptors_arrive_with_their_message(void **state)
{
	int ends[2], carried[2];
	struct hb_wire_fds fds;
	const char *why;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	assert_int_equal(pipe(carried), 0);
	make_register();
	message.as_REGISTER.flags = HB_REGISTER_PAGE;
	assert_int_equal(hb_wire_send(ends[0], &message, &carried[1], 1), 0);
	assert_int_equal(hb_wire_receive(ends[1], HB_SENDER_CLIENT, &message, &fds, &why), 0);
	assert_int_equal(fds.n, 1);
	assert_true(fcntl(fds.fd[0], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(write(fds.fd[0], "!", 1), 1);
	char byte = 0;
	assert_int_equal(read(carried[0], &byte, 1), 1);
	assert_int_equal(byte, '!');
	hb_wire_close_fds(&fds);
	close(carried[0]);
	close(carried[1]);
	close(ends[0]);
	close(ends[1]);
}

/* The receiver decides how they are closed: the daemon does not close a stranger's files in its loop. */
static void descriptors_of_refused_messages_are_given_to_the_caller(void **state)
{
	int ends[2];
	struct hb_wire_fds fds;
	const char *why = "";
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	size_t before = open_fds();
	make_register(); /* without the flag, so a descriptor is not allowed */
	assert_int_equal(hb_wire_send(ends[0], &message, &ends[0], 1), 0);
	assert_int_equal(hb_wire_receive(ends[1], HB_SENDER_CLIENT, &message, &fds, &why), -EPROTO);
	assert_int_equal(fds.n, 1);
	hb_wire_close_fds(&fds);
	assert_int_equal(open_fds(), before);
	close(ends[0]);
	assert_int_equal(hb_wire_receive(ends[1], HB_SENDER_CLIENT, &message, &fds, &why), -ENOTCONN);
	close(ends[1]);
}

static void too_long_packets_are_refused(void **state)
{
	static unsigned char large[HB_MSG_MAX + 100];
	int ends[2];
	struct hb_wire_fds fds;
	const char *why = "";
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	assert_int_equal(send(ends[0], large, sizeof large, 0), sizeof large);
	assert_int_equal(hb_wire_receive(ends[1], HB_SENDER_CLIENT, &message, &fds, &why), -EPROTO);
	assert_string_equal(why, "packet too long");
	close(ends[0]);
	close(ends[1]);
}

/* --- tokens and tenant options ------------------------------------------------------------------- */

static void tokens_are_32_hexadecimal_digits(void **state)
{
	unsigned char token[HB_TOKEN_BYTES];
	char text[2 * HB_TOKEN_BYTES + 1];
	assert_int_equal(hb_token_parse("00112233445566778899aabbccddeeff", token), 0);
	hb_token_format(token, text);
	assert_string_equal(text, "00112233445566778899aabbccddeeff");
	assert_int_equal(hb_token_parse(NULL, token), -EINVAL);
	assert_int_equal(hb_token_parse("", token), -EINVAL);
	assert_int_equal(hb_token_parse("00112233445566778899aabbccddeef", token), -EINVAL);
	assert_int_equal(hb_token_parse("00112233445566778899aabbccddeefg", token), -EINVAL);
	assert_int_equal(hb_token_parse("00112233445566778899AABBCCDDEEFF", token), -EINVAL);
}

static void tenant_options_pass_through_the_environment(void **state)
{
	struct hb_tenant_options wish, read;
	hb_tenant_options_init(&wish);
	memset(wish.token, 9, sizeof wish.token);
	wish.priority = HB_PAGE_HIGH;
	wish.slo_ns = -1;
	wish.attainment_ppm = 999000;
	wish.memory_bytes = UINT64_C(40) << 30;
	wish.weight = 2;
	wish.pcie_weight = 3;
	wish.engine = HB_ENGINE_TURNS;
	wish.flags = HB_REGISTER_SERVER | HB_REGISTER_SIMULATED | HB_REGISTER_MPS;
	assert_int_equal(hb_tenant_options_to_environment(&wish), 0);
	hb_tenant_options_init(&read);
	assert_int_equal(hb_tenant_options_from_environment(&read), 0);
	assert_memory_equal(&read, &wish, sizeof wish);
}

/* In a container all processes make the same token, and nothing but the container's mount namespace enters it. */
static void processes_of_a_container_have_one_token(void **state)
{
	struct hb_tenant_options one, other;
	unsigned char random[HB_TOKEN_BYTES] = "hb-con!";
	hb_tenant_options_init(&one);
	hb_tenant_options_init(&other);
	setenv("HB_TENANT", "container", 1);
	assert_int_equal(hb_tenant_options_from_environment(&one), 0);
	assert_int_equal(hb_tenant_options_from_environment(&other), 0);
	assert_memory_equal(one.token, other.token, HB_TOKEN_BYTES);
	assert_true(hb_token_is_of_container(one.token));
	assert_false(hb_token_is_of_container(random));
	if (unshare(CLONE_NEWNS) == 0) {
		assert_int_equal(hb_tenant_options_from_environment(&other), 0);
		assert_memory_not_equal(one.token, other.token, HB_TOKEN_BYTES);
	}
	setenv("HB_TENANT", "Container", 1);
	assert_int_equal(hb_tenant_options_from_environment(&other), -ENOENT);
}

static void invalid_values_are_ignored(void **state)
{
	struct hb_tenant_options wish;
	setenv("HB_PRIORITY", "urgent", 1);
	setenv("HB_SLO_NS", "-5", 1);
	setenv("HB_PCIE_WEIGHT", "0", 1);
	setenv("HB_WEIGHT", "1001", 1);
	setenv("HB_MEMORY_BYTES", "12GiB", 1);
	setenv("HB_ATTAINMENT_PPM", "99999999999999999999", 1);
	setenv("HB_ENGINE", "magic", 1);
	unsetenv("HB_TENANT");
	unsetenv("HB_ROLE");
	unsetenv("HB_GPU");
	unsetenv("HB_MPS");
	hb_tenant_options_init(&wish);
	assert_int_equal(hb_tenant_options_from_environment(&wish), -ENOENT);
	struct hb_tenant_options plain;
	hb_tenant_options_init(&plain);
	assert_memory_equal(&wish, &plain, sizeof wish);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_has_its_own_number_and_name),
		cmocka_unit_test(a_built_registration_is_accepted),
		cmocka_unit_test(each_rule_of_a_registration_is_checked),
		cmocka_unit_test(each_rule_of_a_termination_is_checked),
		cmocka_unit_test(each_rule_of_a_placement_is_checked),
		cmocka_unit_test(the_other_sides_messages_are_refused),
		cmocka_unit_test(lengths_must_fit_to_the_byte),
		cmocka_unit_test(text_is_cut_to_what_the_kind_allows),
		cmocka_unit_test(descriptors_arrive_with_their_message),
		cmocka_unit_test(descriptors_of_refused_messages_are_given_to_the_caller),
		cmocka_unit_test(too_long_packets_are_refused),
		cmocka_unit_test(tokens_are_32_hexadecimal_digits),
		cmocka_unit_test(tenant_options_pass_through_the_environment),
		cmocka_unit_test(processes_of_a_container_have_one_token),
		cmocka_unit_test(invalid_values_are_ignored),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
