/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal of a supervised command; see run_terminal.h. SIGTTOU must be blocked. */
#include "cli/run_terminal.h"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

bool hb_run_terminal_give(struct hb_run_terminal *terminal)
{
	if (terminal->fd < 0)
		terminal->fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (terminal->fd < 0)
		return false;
	pid_t foreground = tcgetpgrp(terminal->fd);
	if (foreground != terminal->command &&
	    (foreground != getpgrp() || tcsetpgrp(terminal->fd, terminal->command) < 0))
		return false;
	terminal->given = true;
	return true;
}

static bool is_in_usual_mode(int fd)
{
	struct termios mode;
	return tcgetattr(fd, &mode) == 0 && mode.c_lflag & ICANON && mode.c_lflag & ISIG;
}

void hb_run_terminal_take(struct hb_run_terminal *terminal, bool if_idle)
{
	if (!terminal->given)
		return;
	bool command_reads = tcgetpgrp(terminal->fd) == terminal->command;
	/* Another group: the shell has taken the terminal, or the command is a shell and has given it to one of its jobs. */
	if (!command_reads)
		terminal->given = if_idle;
	else if (!if_idle || is_in_usual_mode(terminal->fd))
		terminal->given = tcsetpgrp(terminal->fd, getpgrp()) < 0;
}
