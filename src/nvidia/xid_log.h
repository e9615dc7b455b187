/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds in the kernel's log which process caused an Xid, because NVML names no
 * process. Used by provider_nvidia.c. May read some MB, so never call it on an event loop.
 */
#ifndef HB_NVIDIA_XID_LOG_H
#define HB_NVIDIA_XID_LOG_H

#include <stdint.h>
#include <sys/types.h>

#define HB_XID_LOG "/dev/kmsg"

/* A line of the log: "NVRM: Xid (PCI:0000:17:00): 31, pid=123, name=python, ...". */
struct hb_xid_line {
	char bus[24];
	uint32_t xid;
	pid_t pid;     /* 0 = not known */
	char name[32]; /* printable ASCII; "" = not known */
};

/* 0, or -ENOENT: the line reports no Xid. */
int hb_xid_line_parse(const char *text, struct hb_xid_line *line);
/* Opens a log. The kernel's own needs CAP_SYSLOG. A descriptor or negative errno. */
int hb_xid_log_open(const char *path);
/*
 * Returns the process in the last line with this Xid of the GPU at this bus address ("0000:17:00.0"), and its name. 0: no
 * line names one, or the log cannot be read.
 */
pid_t hb_xid_log_find(int log, const char *bus, uint32_t xid, char name[32]);

#endif
