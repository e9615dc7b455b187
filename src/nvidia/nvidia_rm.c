/* SPDX-License-Identifier: Apache-2.0 */
/* Watches libcuda create channel groups and sets their time slices; see nvidia_rm.h. */
#include "nvidia/nvidia_rm.h"

#include "nvidia/import_redirect.h"
#include "nvidia/nvidia_rm_abi.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#define GROUPS_MAX 256 /* 64 contexts of 4 groups; groups beyond the page's room are set, too */
#define DEVICES_MAX 64
#define RECORD_NONE UINT32_MAX

struct watched_group {
	int fd; /* the open file that created the group; -1 = free entry */
	uint32_t client, object, device;
	enum hb_group_class group_class;
	enum hb_group_state state;
	uint32_t gpu;    /* index on the page, HB_PAGE_GPUS = unknown */
	uint32_t record; /* index on the page, RECORD_NONE = no room */
	uint32_t asked_us, got_us, rm_status;
};

/* A device object and a subdevice below it, which can be asked for the GPU's UUID. */
struct watched_device {
	int fd;
	uint32_t client, object, subdevice; /* subdevice 0 = none seen yet */
	bool known;
	unsigned char uuid[16];
};

static struct {
	pthread_mutex_t lock; /* guards all fields below except forward */
	hb_rm_ioctl *forward;
	struct hb_page *_Atomic page; /* atomic, because hb_rm_watch_apply() reads it without the lock */
	struct hb_page_process *_Atomic slot;
	struct watched_group groups[GROUPS_MAX];
	size_t n_groups; /* entries used so far; free ones have fd -1 */
	struct watched_device devices[DEVICES_MAX];
	size_t n_devices;
	_Atomic bool unsettled; /* a group was seen since the last apply_all() */
	void (*_Atomic notify)(void);
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void store_word(hb_page_u32 *word, uint32_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint32_t load_word(hb_page_u32 *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static void raise_counter(enum hb_page_counter counter)
{
	if (watch.slot)
		atomic_fetch_add_explicit(&watch.slot->counters[counter], 1, memory_order_relaxed);
}

/* --- the controls ---------------------------------------------------------------- */

/* Returns 0 (NV_OK), the resource manager's status, or a negative errno if the call itself failed. */
static int64_t call_control(int fd, uint32_t client, uint32_t object, uint32_t command, void *params, uint32_t size)
{
	struct hb_rm_control call = {.client = client,
				     .object = object,
				     .command = command,
				     .params = (uint64_t)(uintptr_t)params,
				     .params_size = size};
	if (watch.forward(fd, HB_RM_REQUEST(HB_RM_NR_CONTROL, call), &call) < 0)
		return -errno;
	return call.status;
}

static enum hb_group_state set_slice(struct watched_group *group)
{
	uint64_t asked = group->asked_us, got = 0;
	int64_t status = call_control(group->fd, group->client, group->object, HB_RM_GROUP_SET_TIMESLICE, &asked,
				      sizeof asked);
	if (status != 0) {
		group->rm_status = status > 0 ? (uint32_t)status : 0;
		return status == -EBADF ? HB_GROUP_UNREACHABLE : HB_GROUP_REFUSED;
	}
	status = call_control(group->fd, group->client, group->object, HB_RM_GROUP_GET_TIMESLICE, &got, sizeof got);
	if (status != 0) {
		group->rm_status = status > 0 ? (uint32_t)status : 0;
		return HB_GROUP_UNREADABLE;
	}
	group->rm_status = 0;
	group->got_us = got > UINT32_MAX ? UINT32_MAX : (uint32_t)got;
	return group->got_us == group->asked_us ? HB_GROUP_SET : HB_GROUP_DIFFERS;
}

/* --- which GPU --------------------------------------------------------------------- */

static struct watched_device *find_device(uint32_t client, uint32_t object)
{
	for (size_t i = 0; i < watch.n_devices; i++)
		if (watch.devices[i].client == client && watch.devices[i].object == object)
			return &watch.devices[i];
	return NULL;
}

static bool ask_uuid(struct watched_device *device)
{
	struct hb_rm_gid_params gid = {.flags = HB_RM_GID_BINARY};
	if (device->known || !device->subdevice)
		return device->known;
	if (call_control(device->fd, device->client, device->subdevice, HB_RM_SUBDEVICE_GET_GID, &gid, sizeof gid) !=
		    0 ||
	    gid.length != sizeof device->uuid)
		return false;
	memcpy(device->uuid, gid.data, sizeof device->uuid);
	device->known = true;
	return true;
}

static uint32_t find_gpu(const struct watched_group *group)
{
	struct watched_device *device = find_device(group->client, group->device);
	struct hb_page *page = watch.page;
	uint32_t n = atomic_load_explicit(&page->n_gpus, memory_order_acquire);
	if (device && ask_uuid(device))
		for (uint32_t i = 0; i < n && i < HB_PAGE_GPUS; i++)
			if (memcmp(page->gpus[i].uuid, device->uuid, sizeof device->uuid) == 0)
				return i;
	/* The MPS server adds GPUs to its page as it sees them, so this one is not on the page yet. */
	if (watch.notify && device && device->known)
		return HB_PAGE_GPUS;
	/* The driver does not return the UUID, or it is that of a MIG instance: with one GPU on the page it must be that one. */
	return n == 1 ? 0 : HB_PAGE_GPUS;
}

/* --- the page ---------------------------------------------------------------------- */

static bool is_record_free(uint32_t index)
{
	for (size_t i = 0; i < watch.n_groups; i++)
		if (watch.groups[i].fd >= 0 && watch.groups[i].record == index)
			return false;
	return true;
}

static void take_record(struct watched_group *group)
{
	for (uint32_t i = 0; i < HB_PAGE_GROUPS; i++)
		if (is_record_free(i)) {
			group->record = i;
			return;
		}
	raise_counter(HB_COUNT_groups_untracked);
}

static void publish_group(const struct watched_group *group)
{
	if (!watch.slot || group->record == RECORD_NONE)
		return;
	struct hb_page_group *record = &watch.slot->groups[group->record];
	store_word(&record->group_class, group->group_class);
	store_word(&record->client, group->client);
	store_word(&record->object, group->object);
	store_word(&record->gpu, group->gpu);
	store_word(&record->rm_status, group->rm_status);
	store_word(&record->asked_us, group->asked_us);
	store_word(&record->got_us, group->got_us);
	atomic_store_explicit(&record->state, group->state, memory_order_release);
}

static void withdraw_group(struct watched_group *group)
{
	if (watch.slot && group->record != RECORD_NONE)
		atomic_store_explicit(&watch.slot->groups[group->record].state, HB_GROUP_EMPTY, memory_order_release);
	group->fd = -1;
}

/* Sets the time slice that the page asks for, unless the group has it. `again`: libcuda may have changed it. */
static void apply_group(struct watched_group *group, bool again)
{
	if (!watch.page)
		return;
	if (group->gpu >= HB_PAGE_GPUS)
		group->gpu = find_gpu(group);
	uint32_t wanted = group->gpu < HB_PAGE_GPUS
				  ? load_word(&watch.page->gpus[group->gpu].slice_us[group->group_class])
				  : 0;
	bool done = group->state == HB_GROUP_SET && group->asked_us == wanted;
	if (wanted && (again || !done)) {
		group->asked_us = wanted;
		group->state = set_slice(group);
		if (group->state != HB_GROUP_SET)
			raise_counter(HB_COUNT_groups_not_set);
	}
	publish_group(group);
}

static void apply_all(void)
{
	if (!watch.page)
		return;
	atomic_store(&watch.unsettled, false);
	/* Read before the time slices, so that a change in between is seen as new the next time. */
	uint32_t sequence = atomic_load_explicit(&watch.page->slice_sequence, memory_order_acquire);
	for (size_t i = 0; i < watch.n_groups; i++)
		if (watch.groups[i].fd >= 0)
			apply_group(&watch.groups[i], false);
	store_word(&watch.slot->applied, sequence);
}

/* --- recording what libcuda does --------------------------------------------------------- */

static struct watched_group *find_group(uint32_t client, uint32_t object)
{
	for (size_t i = 0; i < watch.n_groups; i++)
		if (watch.groups[i].fd >= 0 && watch.groups[i].client == client && watch.groups[i].object == object)
			return &watch.groups[i];
	return NULL;
}

static struct watched_group *new_group(void)
{
	for (size_t i = 0; i < watch.n_groups; i++)
		if (watch.groups[i].fd < 0)
			return &watch.groups[i];
	return watch.n_groups < GROUPS_MAX ? &watch.groups[watch.n_groups++] : NULL;
}

/* Without an engine type libcuda's order decides: the first group below a device is compute. */
static enum hb_group_class find_class(uint32_t client, uint32_t device, const struct hb_rm_group_params *params)
{
	uint32_t engine = params ? params->engine_type : 0;
	if (engine >= HB_RM_ENGINE_GRAPHICS_FIRST && engine <= HB_RM_ENGINE_GRAPHICS_LAST)
		return HB_GROUP_COMPUTE;
	if (engine)
		return HB_GROUP_COPY;
	for (size_t i = 0; i < watch.n_groups; i++) {
		const struct watched_group *group = &watch.groups[i];
		if (group->fd >= 0 && group->client == client && group->device == device)
			return HB_GROUP_COPY;
	}
	return HB_GROUP_COMPUTE;
}

static void note_group(int fd, const struct hb_rm_alloc *call, const struct hb_rm_group_params *params)
{
	enum hb_group_class group_class = find_class(call->client, call->parent, params);
	struct watched_group *group = new_group();
	raise_counter(HB_COUNT_groups);
	if (!group) {
		raise_counter(HB_COUNT_groups_untracked);
		return;
	}
	*group = (struct watched_group){.fd = fd,
					.client = call->client,
					.object = call->object,
					.device = call->parent,
					.group_class = group_class,
					.state = HB_GROUP_SEEN,
					.gpu = HB_PAGE_GPUS,
					.record = RECORD_NONE};
	take_record(group);
	publish_group(group);
	atomic_store(&watch.unsettled, true);
}

static void note_device(int fd, uint32_t client, uint32_t object)
{
	struct watched_device *device = find_device(client, object);
	if (!device && watch.n_devices < DEVICES_MAX)
		device = &watch.devices[watch.n_devices++];
	if (device)
		*device = (struct watched_device){.fd = fd, .client = client, .object = object};
}

/* Both forms of the call begin with the same fields; only the place of the status differs. */
static void note_alloc(int fd, const struct hb_rm_alloc *call, size_t size)
{
	uint32_t status;
	if (size >= sizeof(struct hb_rm_alloc_rights)) {
		const struct hb_rm_alloc_rights *rights = (const void *)call;
		status = rights->status;
	} else if (size >= sizeof *call) {
		status = call->status;
	} else {
		return;
	}
	if (status != 0)
		return;
	if (call->class_id == HB_RM_CLASS_GROUP) {
		note_group(fd, call, (const struct hb_rm_group_params *)(uintptr_t)call->params);
	} else if (call->class_id == HB_RM_CLASS_DEVICE) {
		note_device(fd, call->client, call->object);
	} else if (call->class_id == HB_RM_CLASS_SUBDEVICE) {
		struct watched_device *device = find_device(call->client, call->parent);
		if (device && !device->subdevice)
			device->subdevice = call->object;
	}
}

/* Freeing an object frees the objects below it: a device its groups, a client everything. */
static void note_free(const struct hb_rm_free *call, size_t size)
{
	if (size < sizeof *call || call->status != 0)
		return;
	for (size_t i = 0; i < watch.n_groups; i++) {
		struct watched_group *group = &watch.groups[i];
		if (group->fd >= 0 && group->client == call->client &&
		    (call->object == group->object || call->object == group->device || call->object == group->client))
			withdraw_group(group);
	}
	for (size_t i = 0; i < watch.n_devices;) {
		struct watched_device *device = &watch.devices[i];
		bool gone = device->client == call->client &&
			    (call->object == device->object || call->object == device->client);
		if (gone)
			*device = watch.devices[--watch.n_devices];
		else
			i++;
	}
}

/* Once libcuda schedules a group, the group exists on the GPU. */
static void note_control(const struct hb_rm_control *call)
{
	if (call->status != 0)
		return;
	struct watched_group *group = find_group(call->client, call->object);
	if (group)
		apply_group(group, call->command == HB_RM_GROUP_SET_TIMESLICE);
}

static bool is_relevant(unsigned number)
{
	return number == HB_RM_NR_ALLOC || number == HB_RM_NR_FREE || number == HB_RM_NR_CONTROL;
}

/* Checked before the lock is taken, because libcuda sends many other controls. */
static bool is_relevant_control(unsigned number, size_t size, const void *argument)
{
	if (number != HB_RM_NR_CONTROL)
		return true;
	const struct hb_rm_control *call = argument;
	if (size < sizeof *call)
		return false;
	return call->command == HB_RM_GROUP_SCHEDULE || call->command == HB_RM_GROUP_SET_TIMESLICE;
}

static void note_call(int fd, unsigned number, size_t size, const void *argument)
{
	if (!argument || !is_relevant(number) || !is_relevant_control(number, size, argument))
		return;
	pthread_mutex_lock(&watch.lock);
	if (number == HB_RM_NR_ALLOC)
		note_alloc(fd, argument, size);
	else if (number == HB_RM_NR_FREE)
		note_free(argument, size);
	else
		note_control(argument);
	pthread_mutex_unlock(&watch.lock);
}

/* In the MPS server this is the only place where it can register with the daemon and apply its time slices. */
static void notify_server(void)
{
	void (*seen)(void) = watch.notify;
	if (seen && (watch.page || atomic_load_explicit(&watch.unsettled, memory_order_relaxed)))
		seen();
}

/* The function that libcuda calls instead of ioctl. */
static int watched_ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	int result = watch.forward(fd, request, argument);
	if (result < 0 || _IOC_TYPE(request) != HB_RM_MAGIC || !argument)
		return result;
	int kept = errno;
	if (_IOC_NR(request) == HB_RM_NR_TRANSFER && _IOC_SIZE(request) >= sizeof(struct hb_rm_transfer)) {
		const struct hb_rm_transfer *transfer = argument;
		note_call(fd, transfer->number, transfer->size, (const void *)(uintptr_t)transfer->pointer);
	} else {
		note_call(fd, _IOC_NR(request), _IOC_SIZE(request), argument);
	}
	if (_IOC_NR(request) == HB_RM_NR_CONTROL)
		notify_server();
	errno = kept;
	return result;
}

/* --- for the shim ------------------------------------------------------------------- */

static void before_fork(void)
{
	pthread_mutex_lock(&watch.lock);
}

static void after_fork_parent(void)
{
	pthread_mutex_unlock(&watch.lock);
}

/* The groups and the slot on the page belong to the parent. */
static void after_fork_child(void)
{
	watch.page = NULL;
	watch.slot = NULL;
	watch.n_groups = 0;
	watch.n_devices = 0;
	pthread_mutex_unlock(&watch.lock);
}

int hb_rm_watch_install(void *library, hb_rm_ioctl *forward)
{
	static bool prepared;
	if (!prepared && pthread_atfork(before_fork, after_fork_parent, after_fork_child) != 0)
		return -ENOMEM;
	prepared = true;
	watch.forward = forward ? forward : ioctl;
	return hb_import_redirect(library, "ioctl", (void *)(uintptr_t)watched_ioctl);
}

void hb_rm_watch_attach(struct hb_page *page, uint32_t slot)
{
	pthread_mutex_lock(&watch.lock);
	bool usable = page && slot < HB_PAGE_PROCESSES;
	watch.page = usable ? page : NULL;
	watch.slot = usable ? &page->processes[slot] : NULL;
	for (size_t i = 0; i < watch.n_groups; i++)
		watch.groups[i].gpu = HB_PAGE_GPUS; /* indices belong to the page */
	apply_all();
	pthread_mutex_unlock(&watch.lock);
}

void hb_rm_watch_apply(void)
{
	struct hb_page *page = watch.page;
	struct hb_page_process *slot = watch.slot;
	if (!page || !slot)
		return;
	if (load_word(&page->slice_sequence) == load_word(&slot->applied) &&
	    !atomic_load_explicit(&watch.unsettled, memory_order_relaxed))
		return;
	pthread_mutex_lock(&watch.lock);
	apply_all();
	pthread_mutex_unlock(&watch.lock);
}

void hb_rm_watch_notify(void (*seen)(void))
{
	atomic_store(&watch.notify, seen);
}

static bool is_listed(const unsigned char (*uuids)[16], size_t n, const unsigned char *uuid)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(uuids[i], uuid, sizeof uuids[i]) == 0)
			return true;
	return false;
}

size_t hb_rm_watch_uuids(unsigned char (*uuids)[16], size_t max)
{
	size_t n = 0;
	pthread_mutex_lock(&watch.lock);
	for (size_t i = 0; i < watch.n_groups && n < max; i++) {
		const struct watched_group *group = &watch.groups[i];
		struct watched_device *device = group->fd >= 0 ? find_device(group->client, group->device) : NULL;
		if (device && ask_uuid(device) && !is_listed((const unsigned char(*)[16])uuids, n, device->uuid))
			memcpy(uuids[n++], device->uuid, sizeof device->uuid);
	}
	pthread_mutex_unlock(&watch.lock);
	return n;
}

void hb_rm_watch_count(size_t *groups, size_t *set)
{
	size_t n = 0, n_set = 0;
	pthread_mutex_lock(&watch.lock);
	for (size_t i = 0; i < watch.n_groups; i++) {
		n += watch.groups[i].fd >= 0;
		n_set += watch.groups[i].fd >= 0 && watch.groups[i].state == HB_GROUP_SET;
	}
	pthread_mutex_unlock(&watch.lock);
	*groups = n;
	*set = n_set;
}
