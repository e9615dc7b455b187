/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what a bug report tells, and what it leaves out. */
#include "cli/redact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct hb_redactor redactor;

static void check_line(const char *line, const char *wanted)
{
	char out[HB_REDACT_LINE_MAX];
	assert_string_equal(hb_redact_line(&redactor, line, out, sizeof out), wanted);
}

static int add_names(void **state)
{
	memset(&redactor, 0, sizeof redactor);
	hb_redact_user(&redactor, "root");
	hb_redact_user(&redactor, "ann");
	hb_redact_user(&redactor, "bob.lee");
	hb_redact_user(&redactor, "ann");
	hb_redact_host(&redactor, "node7");
	hb_redact_home(&redactor, "/data/users/ann");
	hb_redact_home(&redactor, "/");
	hb_redact_host(&redactor, "localhost");
	return 0;
}

static void test_names(void **state)
{
	check_line("user ann (root) on node7: bob.lee, annual, ann-x",
		   "user user1 (root) on HOST: user2, annual, ann-x");
	check_line("http://localhost:9400/ ann", "http://localhost:9400/ user1");
}

static void test_paths(void **state)
{
	check_line("/home/ann/secret project/x", "~/[left out] project/x");
	check_line("PATH=/usr/bin:/home/carol/bin:/root/x", "PATH=/usr/bin:~/[left out]:~/[left out]");
	check_line("/data/users/ann/x /data/users/anna/x /data/users/ann",
		   "~/[left out] /data/users/anna/x ~/[left out]");
	check_line("cd /root; ls /rootless", "cd ~/[left out]; ls /rootless");
	check_line("/usr/lib/hummingbird/libcuda.so.1", "/usr/lib/hummingbird/libcuda.so.1");
	check_line("'~/.config/x' /run/user/1000/hummingbird", "'~/[left out]' /run/user/1000/hummingbird");
}

static void test_secrets(void **state)
{
	check_line("token: abc", "token: [left out]");
	check_line("HB_API_TOKEN=abc,x=1", "HB_API_TOKEN=[left out],x=1");
	check_line("run --password hunter2 --port 80", "run --password [left out] --port 80");
	check_line("{\"api_key\": \"a b c\", \"port\": 1}", "{\"api_key\": [left out], \"port\": 1}");
	check_line("Authorization: Bearer abc def", "Authorization: [left out]");
	check_line("sent bearer abc.def.ghi here", "sent bearer [left out] here");
	check_line("https://ann:pw@git.example/x", "https://[left out]@git.example/x");
	check_line("ssh_key = x y", "ssh_key = [left out] y");
	check_line("hf_AbCdEf1234567890AbCdEf12 ok", "[left out] ok");
	check_line("0123456789abcdef0123456789abcdef", "[left out]");
	check_line("each token was served", "each token was served");
}

static void test_what_stays(void **state)
{
	check_line("GPU-00112233-4455-6677-8899-aabbccddeeff: Xid 31",
		   "GPU-00112233-4455-6677-8899-aabbccddeeff: Xid 31");
	check_line("requests_with_takeover 100000", "requests_with_takeover 100000");
	check_line("NVRM version: 580.159.04 libnvidia-ml.so.580.159.04",
		   "NVRM version: 580.159.04 libnvidia-ml.so.580.159.04");
	check_line("the daemon's socket, tenant's page", "the daemon's socket, tenant's page");
	check_line("123456789012345678901234", "123456789012345678901234");
	check_line("GPU-00112233x4455-6677-8899-aabbccddeeff", "[left out]");
}

static void test_command_lines(void **state)
{
	char out[256];
	check_line("process 77 (user ann, tenant 3: /opt/x/train.py --data s3://x (y)) was the first",
		   "process 77 (user user1, tenant 3: train.py [left out]) was the first");
	check_line("engine auto: 'python serve.py --x' beside 'train'",
		   "engine auto: 'python [left out]' beside 'train'");
	assert_string_equal(hb_redact_command(&redactor, "/home/ann/run ann --token x", out, sizeof out),
			    "run [left out]");
	assert_string_equal(hb_redact_command(&redactor, "train", out, sizeof out), "train");
}

/* Whatever does not fit is cut off, at each length, without a write behind the end. */
static void test_short_output(void **state)
{
	static const char line[] = "user ann 'python x' tenant 3: a b) token=1 /home/ann https://a:b@c Bearer x";
	for (size_t size = 1; size < 160; size++) {
		char *out = malloc(size), complete[256];
		hb_redact_line(&redactor, line, out, size);
		hb_redact_line(&redactor, line, complete, sizeof complete);
		assert_true(strlen(out) < size);
		assert_memory_equal(out, complete, strlen(out));
		free(out);
	}
	check_line("", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_names, add_names),
		cmocka_unit_test_setup(test_paths, add_names),
		cmocka_unit_test_setup(test_secrets, add_names),
		cmocka_unit_test_setup(test_what_stays, add_names),
		cmocka_unit_test_setup(test_command_lines, add_names),
		cmocka_unit_test_setup(test_short_output, add_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
