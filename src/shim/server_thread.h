/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread in the MPS server that applies new time slices at once.
 *
 * The server runs its clients' work without a call of its own. The shim in it sees only the server's calls of the driver,
 * and there may be none for hours. Without this thread, slices that the daemon changes would wait for the next client. The
 * thread also registers again after a restart of the daemon. It sleeps on hb_page.slice_sequence.
 */
#ifndef HB_SHIM_SERVER_THREAD_H
#define HB_SHIM_SERVER_THREAD_H

/* Starts the thread once the server is registered; cheap if it runs. Without memory for a thread the next call tries again. */
void hb_server_thread_start(void);

#endif
