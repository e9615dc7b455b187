/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and builds messages; see protocol.h. Called by daemon and clients for every packet. */
#include "protocol/protocol.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct kind {
	const char *name;
	unsigned number;
	enum hb_msg_sender sender;
	size_t fixed, text_max, fds_max;
};

static const struct kind kinds[] = {
#define HB_MESSAGE(name, number, sender, type, text_max, fds_max) \
	{#name, number, HB_SENDER_##sender, sizeof(type), text_max, fds_max},
#include "protocol/messages.def"
#undef HB_MESSAGE
};

#define HB_MESSAGE(name, number, sender, type, text_max, fds_max) \
	_Static_assert(sizeof(type) + (text_max) <= HB_MSG_MAX, #name " fits into a packet"); \
	_Static_assert(sizeof(type) % 8 == 0, #name " has no hidden padding at its end");
#include "protocol/messages.def"
#undef HB_MESSAGE

static const struct kind *kind_of(unsigned number)
{
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (kinds[i].number == number)
			return &kinds[i];
	return NULL;
}

static bool all_zero(const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

static const char *check_wishes(uint32_t priority, int64_t slo_ns, uint32_t attainment_ppm)
{
	if (priority != HB_PAGE_HIGH && priority != HB_PAGE_LOW)
		return "unknown priority";
	if (slo_ns < -1)
		return "negative SLO";
	if (slo_ns >= HB_SLO_LIMIT_NS)
		return "SLO of several years";
	if (attainment_ppm > 1000000)
		return "attainment above 100 %";
	return NULL;
}

static const char *check_register(const struct hb_msg_register *m, size_t n_fds)
{
	if (m->flags & ~(uint32_t)HB_REGISTER_ALL_FLAGS)
		return "unknown flag";
	if (m->engine > HB_ENGINE_SPATIAL)
		return "unknown engine";
	if (m->pcie_weight > HB_WEIGHT_MAX || m->weight > HB_WEIGHT_MAX)
		return "weight above 1000";
	if (m->n_gpus > HB_PAGE_GPUS)
		return "too many GPUs";
	if (all_zero(m->token, sizeof m->token))
		return "empty token";
	if (n_fds != (m->flags & HB_REGISTER_PAGE ? 1u : 0u))
		return "page and its flag do not go together";
	if (m->slot > HB_PAGE_PROCESSES)
		return "slot out of range";
	return check_wishes(m->priority, m->slo_ns, m->attainment_ppm);
}

static const char *check_place(const struct hb_msg_place *m)
{
	if (all_zero(m->token, sizeof m->token))
		return "empty token";
	if (m->n_gpus > HB_PAGE_GPUS || m->n_allowed > HB_PLACE_GPUS_MAX)
		return "too many GPUs";
	if (m->seconds > HB_PLACE_SECONDS_MAX)
		return "more than an hour";
	return check_wishes(m->priority, 0, 0);
}

static const char *check_set(const struct hb_msg_set *m)
{
	if (!m->fields || m->fields & ~(uint32_t)HB_SET_ALL_FIELDS)
		return "unknown field";
	if (m->fields & HB_SET_PCIE_WEIGHT && (m->pcie_weight < 1 || m->pcie_weight > HB_WEIGHT_MAX))
		return "PCIe weight out of range";
	if (m->fields & HB_SET_WEIGHT && (m->weight < 1 || m->weight > HB_WEIGHT_MAX))
		return "weight out of range";
	return check_wishes(m->priority, m->slo_ns, m->attainment_ppm);
}

static const char *check_fields(const union hb_msg *m, size_t n_fds)
{
	switch (m->header.kind) {
	case HB_MSG_HELLO:
		return m->as_HELLO.version_min > m->as_HELLO.version_max ? "empty range of versions" : NULL;
	case HB_MSG_REGISTER:
		return check_register(&m->as_REGISTER, n_fds);
	case HB_MSG_SET:
		return check_set(&m->as_SET);
	case HB_MSG_PLACE:
		return check_place(&m->as_PLACE);
	case HB_MSG_PLACED:
		return m->as_PLACED.n_gpus > HB_PAGE_GPUS ? "too many GPUs" : NULL;
	case HB_MSG_RECORD:
		if (m->as_RECORD.action != HB_RECORD_START && m->as_RECORD.action != HB_RECORD_STOP)
			return "unknown action";
		return m->as_RECORD.seconds > 3600 ? "more than an hour" : NULL;
	case HB_MSG_TERMINATE:
		if (all_zero(m->as_TERMINATE.token, sizeof m->as_TERMINATE.token))
			return "empty token";
		return m->as_TERMINATE.signal > 64 ? "unknown signal" : NULL;
	case HB_MSG_BOARD:
	case HB_MSG_FETCHED_BOARD:
		return n_fds == 1 ? NULL : "descriptor missing";
	case HB_MSG_ERROR:
		return m->as_ERROR.code >= 0 ? "an error without a code" : NULL;
	case HB_MSG_TEXT:
		return m->as_TEXT.more > 1 ? "unknown flag" : NULL;
	case HB_MSG_REGISTERED:
		if (m->as_REGISTERED.slot > HB_PAGE_PROCESSES)
			return "slot out of range";
		return m->as_REGISTERED.n_fds != n_fds || !n_fds ? "descriptors missing" : NULL;
	default:
		return NULL;
	}
}

static const char *check_shape(const union hb_msg *m, size_t n, size_t n_fds, enum hb_msg_sender sender)
{
	if (n < sizeof m->header || n > HB_MSG_MAX || m->header.size != n)
		return "length does not fit the packet";
	const struct kind *kind = kind_of(m->header.kind);
	if (!kind || m->header.zero)
		return "unknown message";
	if (kind->sender != sender)
		return "message of the other side";
	if (n < kind->fixed || n > kind->fixed + kind->text_max)
		return "wrong length";
	if (n_fds > kind->fds_max)
		return "too many descriptors";
	return NULL;
}

int hb_msg_check(const union hb_msg *message, size_t n, size_t n_fds, enum hb_msg_sender sender, const char **why)
{
	const char *wrong = check_shape(message, n, n_fds, sender);
	if (!wrong)
		wrong = check_fields(message, n_fds);
	if (!wrong)
		return 0;
	*why = wrong;
	return -EPROTO;
}

const char *hb_msg_text(const union hb_msg *message, size_t *length)
{
	size_t fixed = kind_of(message->header.kind)->fixed;
	*length = message->header.size - fixed;
	return (const char *)message->bytes + fixed;
}

void hb_msg_init(union hb_msg *message, enum hb_msg_kind kind)
{
	size_t fixed = kind_of(kind)->fixed;
	memset(message, 0, fixed);
	message->header.size = (uint32_t)fixed;
	message->header.kind = (uint16_t)kind;
}

void hb_msg_add_text(union hb_msg *message, const char *text, size_t length)
{
	const struct kind *kind = kind_of(message->header.kind);
	size_t room = kind->fixed + kind->text_max - message->header.size;
	if (length > room)
		length = room;
	memcpy(message->bytes + message->header.size, text, length);
	message->header.size += (uint32_t)length;
}

const char *hb_msg_name(unsigned kind)
{
	const struct kind *known = kind_of(kind);
	return known ? known->name : "?";
}
