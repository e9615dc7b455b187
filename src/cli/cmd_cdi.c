/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb cdi generate`: writes a specification of the Container Device Interface, from which podman, Docker, containerd and
 * CRI-O know what `--device hummingbird.dev/tenant=low` adds to a container: the shim, the signs library and the folder of
 * the daemon's socket as mounts, and environment variables. In the container each process then finds the shim, which makes
 * the container a tenant (protocol/container_token.h). Talks to no daemon. The format:
 * https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
 */
#include "base/install_path.h"
#include "base/json.h"
#include "base/out_file.h"
#include "cli/cli.h"
#include "cli/tenant_options_cli.h"
#include "gpu/provider.h"
#include "protocol/container_token.h"
#include "protocol/socket_path.h"
#include "protocol/tenant_options_env.h"
#include "simcuda/sim_folder.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND "cdi"
#define KIND "hummingbird.dev/tenant"
#define DEFAULT_OUTPUT "/etc/cdi/hummingbird.json"
/* The oldest version that has what we use, so that podman 4.3 and newer programs read the file. */
#define CDI_VERSION "0.3.0"
#define DEVICES_MAX 64
/* Folders of the container. */
/* The loader of another C library (musl) names this folder when it refuses the shim, so the name says why. */
#define LIBRARIES "/opt/hummingbird/managed-only-with-glibc"
#define SIMULATED "/opt/hummingbird/sim"
#define SIMULATED_GPU "/run/hummingbird-sim"

static const char usage[] =
	"usage: hb cdi generate [OPTION...]\n"
	"\n"
	"Writes a specification of the Container Device Interface (CDI). Then podman, Docker,\n"
	"containerd and CRI-O make a container a tenant of Hummingbird:\n"
	"\n"
	"  podman run --device nvidia.com/gpu=all --device hummingbird.dev/tenant=low IMAGE ...\n"
	"\n"
	"  --device NAME=PRIORITY[,OPTION=VALUE...]\n"
	"                   adds a device, or replaces high or low, which always exist. PRIORITY is\n"
	"                   high or low; the options are memory, slo, weight and pcie-weight, as of\n"
	"                   `hb run`, and signs=no. Example: low-40g=low,memory=40GiB\n"
	"  --library-path FOLDER[:FOLDER...]\n"
	"                   folders of the images that LD_LIBRARY_PATH has in the container after\n"
	"                   the shim's folder; an image's own LD_LIBRARY_PATH does not apply\n"
	"  --output FILE    default /etc/cdi/hummingbird.json; - is standard output\n"
	"  --gpu sim        for simulated GPUs\n"
	"  -h, --help\n"
	"\n"
	"exit status: 0 written, 1 a file or folder prevented it, 2 bad command line\n";

struct cdi_device {
	char name[64];
	struct hb_tenant_options options;
	bool no_signs;
};

struct cdi_request {
	struct cdi_device devices[DEVICES_MAX];
	size_t n_devices;
	const char *library_path; /* NULL = none */
	const char *output;
	bool simulated;
};

/* --- the command line --------------------------------------------------------------------------- */

/* The rule of the specification for names; of the versions before 0.5.0, which allow no digit at the beginning. */
static bool is_device_name(const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("_-.:", name[i]))
			return false;
	return n && n < sizeof((struct cdi_device *)0)->name && isalpha((unsigned char)name[0]) &&
	       isalnum((unsigned char)name[n - 1]);
}

/* The device of this name, or a new one; NULL = there are too many. */
static struct cdi_device *find_device(struct cdi_request *request, const char *name)
{
	struct cdi_device *device = request->devices;
	while (device < request->devices + request->n_devices && strcmp(device->name, name) != 0)
		device++;
	if (device == request->devices + request->n_devices && request->n_devices++ == DEVICES_MAX)
		return NULL;
	*device = (struct cdi_device){.name = ""};
	snprintf(device->name, sizeof device->name, "%s", name);
	hb_tenant_options_init(&device->options);
	return device;
}

static int take_device_option(struct cdi_device *device, char *text)
{
	static const struct {
		const char *name;
		int code;
	} options[] = {{"memory", HB_TENANT_OPTION_MEMORY},
		       {"slo", HB_TENANT_OPTION_SLO},
		       {"weight", HB_TENANT_OPTION_WEIGHT},
		       {"pcie-weight", HB_TENANT_OPTION_PCIE_WEIGHT}};
	if (strcmp(text, "signs=no") == 0) {
		device->no_signs = true;
		return -1;
	}
	char *value = strchr(text, '=');
	for (size_t i = 0; value && i < sizeof options / sizeof options[0]; i++)
		if (strlen(options[i].name) == (size_t)(value - text) &&
		    strncmp(options[i].name, text, (size_t)(value - text)) == 0)
			return hb_tenant_options_take(COMMAND, &device->options, options[i].code, value + 1);
	return hb_cli_usage_error(COMMAND, "--device: %s: '%s' is not memory=, slo=, weight=, pcie-weight= or signs=no",
				  device->name, text);
}

/* NAME=PRIORITY[,OPTION=VALUE...]. Returns -1, or an exit status after a message. */
static int take_device(struct cdi_request *request, const char *given)
{
	char text[512], *rest = text;
	if (snprintf(text, sizeof text, "%s", given) >= (int)sizeof text)
		return hb_cli_usage_error(COMMAND, "--device: '%.40s...' is too long", given);
	char *name = strsep(&rest, "=");
	if (!rest || !is_device_name(name))
		return hb_cli_usage_error(
			COMMAND,
			"--device: '%s' is not NAME=high or NAME=low; a name begins with a letter, and "
			"letters, digits and the characters _-.: follow",
			given);
	struct cdi_device *device = find_device(request, name);
	if (!device)
		return hb_cli_usage_error(COMMAND, "--device: there are more than %d devices", DEVICES_MAX);
	int status = hb_tenant_options_take(COMMAND, &device->options, HB_TENANT_OPTION_PRIORITY, strsep(&rest, ","));
	while (status < 0 && rest)
		status = take_device_option(device, strsep(&rest, ","));
	return status;
}

static int take_library_path(struct cdi_request *request, const char *value)
{
	request->library_path = value;
	for (const char *folder = value; folder; folder = strchr(folder, ':')) {
		folder += *folder == ':';
		if (*folder != '/')
			return hb_cli_usage_error(COMMAND, "--library-path: '%s': each folder begins with /", value);
	}
	return -1;
}

static int take_option(void *argument, int code, const char *value)
{
	struct cdi_request *request = argument;
	switch (code) {
	case 'd':
		return take_device(request, value);
	case 'l':
		return take_library_path(request, value);
	case 'g':
		return hb_cli_take_gpu(COMMAND, value, &request->simulated);
	default:
		request->output = value;
		return -1;
	}
}

static int read_command_line(int argc, char **argv, struct cdi_request *request)
{
	static const struct option options[] = {
		{"device", required_argument, NULL, 'd'}, {"library-path", required_argument, NULL, 'l'},
		{"output", required_argument, NULL, 'o'}, {"gpu", required_argument, NULL, 'g'},
		{"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, true};
	take_device(request, "high=high");
	take_device(request, "low=low");
	int status = hb_cli_read_options(&syntax, argc, argv, request);
	if (status >= 0)
		return status;
	const char *verb = optind < argc ? argv[optind++] : "";
	if (strcmp(verb, "generate") != 0)
		return hb_cli_usage_error(COMMAND, *verb ? "'%s' is not generate" : "generate is missing", verb);
	return optind < argc ? hb_cli_usage_error(COMMAND, "generate: too many arguments") : -1;
}

/* --- what the container gets --------------------------------------------------------------------- */

static int add_variable(void *list, const char *name, const char *value)
{
	/* All containers have the same specification, so the token is made in the container. */
	if (strcmp(name, "HB_TENANT") == 0)
		value = HB_CONTAINER_TENANT;
	if (!value)
		return 0;
	return json_array_append_new(list, json_sprintf("%s=%s", name, value)) < 0 ? -ENOMEM : 0;
}

/* A folder or file that exists. Options that /run has must stay, because users may not remove them. */
static int add_mount(json_t *list, const char *from, const char *to, bool writable, struct hb_error *error)
{
	if (access(from, F_OK) < 0)
		return hb_error_set(error, -ENOENT, "%s: %s", from, strerror(errno));
	json_t *mount = json_pack("{s:s, s:s, s:[s, s, s, s]}", "hostPath", from, "containerPath", to, "options",
				  writable ? "rw" : "ro", "nosuid", "nodev", "bind");
	return json_array_append_new(list, mount) < 0 ? hb_error_set(error, -ENOMEM, "out of memory") : 0;
}

/* Files are mounted one by one: an upgrade of the package does not change the libraries of a running container. */
static int add_libraries(json_t *mounts, struct hb_error *error)
{
	char folder[PATH_MAX], path[PATH_MAX + 32];
	if (hb_install_shim_dir(folder, sizeof folder) < 0)
		return hb_error_set(error, -ENOENT,
				    "the shim (libcuda.so.1) is not found beside hb; set HB_SHIM_DIR to its folder");
	snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
	int result = add_mount(mounts, path, LIBRARIES "/libcuda.so.1", false, error);
	if (result == 0 && hb_install_signs(folder, sizeof folder) < 0)
		return hb_error_set(error, -ENOENT, "libhb-signs.so is not found beside the shim");
	return result < 0 ? result : add_mount(mounts, folder, LIBRARIES "/libhb-signs.so", false, error);
}

static int add_simulated_driver(json_t *mounts, json_t *variables, struct hb_error *error)
{
	char path[PATH_MAX];
	int result = hb_provider_of(true)->driver_library(path, sizeof path);
	if (result < 0)
		return hb_error_set(error, result,
				    "the simulated driver (libcuda.so.1) is not found beside hb; set "
				    "HB_SIMCUDA_DIR to its folder");
	result = add_mount(mounts, path, SIMULATED "/libcuda.so.1", false, error);
	if (result == 0 && sim_folder_path(path, sizeof path) < 0)
		result = hb_error_set(error, -ENAMETOOLONG, "HB_SIM_GPU is too long");
	if (result == 0)
		result = add_mount(mounts, path, SIMULATED_GPU, true, error);
	add_variable(variables, "HB_REAL_LIBCUDA", SIMULATED "/libcuda.so.1");
	add_variable(variables, "HB_SIM_GPU", SIMULATED_GPU);
	return result;
}

/* The folder, not the socket itself: a daemon that starts again makes a new socket. */
static int find_socket(bool simulated, char folder[HB_PATH_MAX], const char **name, struct hb_error *error)
{
	const char *given = getenv("HB_SOCKET"), *slash = given ? strrchr(given, '/') : NULL;
	*name = simulated ? HB_SOCKET_NAME_SIMULATED : HB_SOCKET_NAME;
	if (given && *given) {
		if (*given != '/' || slash == given || strlen(given) >= HB_PATH_MAX)
			return hb_error_set(error, -EINVAL, "HB_SOCKET: '%s' is not an absolute path of a socket",
					    given);
		snprintf(folder, HB_PATH_MAX, "%.*s", (int)(slash - given), given);
		*name = slash + 1;
		return 0;
	}
	/* Root writes the specification for all users of the machine, also before the daemon has started. */
	char path[HB_PATH_MAX];
	snprintf(path, sizeof path, HB_SYSTEM_DIR "/%s", *name);
	if (geteuid() != 0 && access(path, W_OK) < 0)
		return hb_runtime_dir(folder, error);
	strcpy(folder, HB_SYSTEM_DIR);
	if (access(folder, F_OK) == 0)
		return 0;
	return hb_error_set(error, -ENOENT,
			    HB_SYSTEM_DIR ": does not exist; start the daemon first: systemctl start hummingbird");
}

static json_t *make_device(const struct cdi_device *device)
{
	json_t *variables = json_array();
	int result = hb_tenant_options_each(&device->options, add_variable, variables);
	if (device->options.priority == HB_PAGE_HIGH && !device->no_signs)
		result |= add_variable(variables, "LD_PRELOAD", LIBRARIES "/libhb-signs.so");
	if (result < 0) {
		json_decref(variables);
		return NULL;
	}
	return json_pack("{s:s, s:{s:o}}", "name", device->name, "containerEdits", "env", variables);
}

/* Makes the mounts and variables that every device adds. */
static int make_common(const struct cdi_request *request, json_t *mounts, json_t *variables, struct hb_error *error)
{
	char folder[HB_PATH_MAX], text[2 * HB_PATH_MAX];
	const char *name;
	int result = find_socket(request->simulated, folder, &name, error);
	if (result == 0)
		result = add_libraries(mounts, error);
	if (result == 0)
		result = add_mount(mounts, folder, HB_SYSTEM_DIR, false, error);
	if (result == 0 && request->simulated)
		result = add_simulated_driver(mounts, variables, error);
	if (result < 0)
		return result;
	snprintf(text, sizeof text, HB_SYSTEM_DIR "/%s", name);
	add_variable(variables, "HB_SOCKET", text);
	/* Programs outside our MPS server must not find another one. */
	add_variable(variables, "CUDA_MPS_PIPE_DIRECTORY", HB_SYSTEM_DIR "/mps-none");
	json_t *path = json_sprintf("LD_LIBRARY_PATH=" LIBRARIES "%s%s", request->library_path ? ":" : "",
				    request->library_path ? request->library_path : "");
	return json_array_append_new(variables, path) < 0 ? hb_error_set(error, -ENOMEM, "out of memory") : 0;
}

static json_t *make_specification(const struct cdi_request *request, struct hb_error *error)
{
	json_t *devices = json_array(), *mounts = json_array(), *variables = json_array();
	int result = make_common(request, mounts, variables, error);
	for (size_t i = 0; i < request->n_devices; i++) {
		struct cdi_device device = request->devices[i];
		device.options.flags = request->simulated ? HB_REGISTER_SIMULATED : 0;
		json_array_append_new(devices, make_device(&device));
	}
	if (result == 0 && json_array_size(devices) == request->n_devices)
		return hb_json_pack(error, "{s:s, s:s, s:o, s:{s:o, s:o}}", "cdiVersion", CDI_VERSION, "kind", KIND,
				    "devices", devices, "containerEdits", "env", variables, "mounts", mounts);
	json_decref(devices);
	json_decref(mounts);
	json_decref(variables);
	return NULL;
}

/* --- the file ---------------------------------------------------------------------------------- */

/* Whether the shim of this installation needs libraries that a small image may lack, and the C library of this machine. */
static bool needs_more_than_libc(void)
{
	char path[PATH_MAX];
	struct link_map *library = NULL;
	bool needs = false;
	if (hb_install_shim_dir(path, sizeof path - sizeof "/libcuda.so.1") < 0)
		return false;
	strcat(path, "/libcuda.so.1");
	void *shim = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (shim && dlinfo(shim, RTLD_DI_LINKMAP, &library) == 0)
		for (; library; library = library->l_next)
			needs |= strstr(library->l_name, "/libzstd.so") || strstr(library->l_name, "/liblz4.so");
	return needs;
}

static int write_specification(const struct cdi_request *request, const json_t *root, struct hb_error *error)
{
	struct hb_out_file file;
	if (strcmp(request->output, "-") == 0)
		return hb_json_write(root, stdout, error);
	if (strcmp(request->output, DEFAULT_OUTPUT) == 0)
		mkdir("/etc/cdi", 0755);
	int result = hb_out_file_open(&file, request->output, error);
	if (result < 0)
		return result;
	/* Container programs of all users read it, whatever root's umask is. */
	fchmod(fileno(file.stream), 0644);
	result = hb_out_file_wrote(&file, hb_json_write(root, file.stream, error), error);
	if (result == 0)
		result = hb_out_file_commit(&file, error);
	hb_out_file_fini(&file);
	return result;
}

static void print_result(const struct cdi_request *request)
{
	if (strcmp(request->output, "-") != 0) {
		printf("wrote %s; devices:", request->output);
		for (size_t i = 0; i < request->n_devices; i++)
			printf(" " KIND "=%s", request->devices[i].name);
		puts("");
	}
	if (needs_more_than_libc())
		fputs("hb cdi: this build's shim needs liblz4, libzstd and this machine's glibc or a newer one in the image; "
		      "for older images generate it with hb of the tarball, which needs glibc 2.28 only\n",
		      stderr);
}

int hb_cmd_cdi(int argc, char **argv)
{
	struct cdi_request request = {.output = DEFAULT_OUTPUT};
	struct hb_error error = {""};
	int status = read_command_line(argc, argv, &request);
	if (status >= 0)
		return status;
	json_t *root = make_specification(&request, &error);
	int result = root ? write_specification(&request, root, &error) : -EIO;
	json_decref(root);
	if (result < 0)
		return hb_cli_error(COMMAND, -EIO, error.text);
	print_result(&request);
	return HB_EXIT_OK;
}
