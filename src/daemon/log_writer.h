/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the daemon's log on a thread of its own. Standard error may be a socket of the journal or a pipe, and a reader
 * that hangs must not make the event loop wait. Lines wait in a bounded buffer; those that find no room are counted, and
 * the count is logged as soon as there is room.
 */
#ifndef HB_DAEMON_LOG_WRITER_H
#define HB_DAEMON_LOG_WRITER_H

/* Starts the thread, which writes all further log lines. Without a thread, lines are written as before. 0 or negative errno. */
int hb_log_writer_start(void);
/*
 * Waits up to a second until the lines are written and the thread has ended. After that, lines are written by the thread that
 * logs them; if the writing thread hangs, they are lost.
 */
void hb_log_writer_stop(void);

#endif
