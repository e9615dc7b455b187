/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb top` on a terminal: reads the status once in each interval, paints the lines of top_view.c, and handles keys.
 * ncurses reports a resized terminal as a key. top_model.c computes all numbers. Keys can change a tenant's priority and
 * SLO.
 */
#include "cli/top_screen.h"

#include "base/clock.h"
#include "base/slo.h"
#include "cli/cli.h"
#include "cli/status_source.h"
#include "cli/top_view.h"

#include <ctype.h>
#include <curses.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEY_ESCAPE 27
#define PAGE 10 /* tenants by which page up and page down move */

enum top_prompt { PROMPT_NONE, PROMPT_FILTER, PROMPT_SLO };

struct top_screen {
	struct hb_top_options options;
	json_t *status; /* the last status; NULL = none yet */
	json_t *before; /* the status before the last one; NULL = none yet */
	struct hb_top_model model;
	bool modelled, detail, paused, leave;
	enum { HELP_OFF, HELP_KEYS, HELP_COLUMNS, HELP_PAGES } help;
	uint32_t selected; /* id of the selected tenant; 0 = none yet */
	enum top_prompt prompt;
	char input[64], message[160];
	/*
	 * State of painting: the next row of the list, rows scrolled out at the top, and the screen's row behind the
	 * list.
	 */
	int row, skip, end_row;
	int selected_row; /* row in the complete list, without scrolling; -1 = not found */
};

static const char *const help_lines[] = {
	"up, down, j, k   choose a tenant; page up, page down: move by ten",
	"Enter            show its details and latency histogram; Enter or Esc: back",
	"s, r             sort by the next column; reverse the order",
	"/                show only tenants with this word in program, user or priority",
	"p                change its priority: high to low, low to high",
	"o                change its SLO: 10ms, p99<10ms, auto, none",
	"space            pause the display",
	"h                explain the columns; again or Esc: back",
	"q                quit",
};

/* --- painting ------------------------------------------------------------------------ */

static attr_t find_attribute(enum hb_top_style style)
{
	switch (style) {
	case HB_TOP_HEAD:
		return A_BOLD;
	case HB_TOP_SELECTED:
		return A_REVERSE;
	case HB_TOP_BAD:
		return has_colors() ? (attr_t)COLOR_PAIR(1) | A_BOLD : A_BOLD;
	case HB_TOP_SOFT:
		return A_DIM;
	default:
		return A_NORMAL;
	}
}

static void paint_line(void *argument, enum hb_top_style style, const char *text)
{
	struct top_screen *screen = argument;
	int row = screen->row++ - screen->skip;
	if (style == HB_TOP_SELECTED)
		screen->selected_row = screen->row - 1;
	if (row < 0 || row >= screen->end_row)
		return;
	attrset(find_attribute(style));
	mvaddstr(row, 0, text);
	clrtoeol();
	attrset(A_NORMAL);
}

static void format_keys(const struct top_screen *screen, char text[HB_TOP_LINE_MAX])
{
	static const char more[] = "Enter details  / filter  s sort  p priority  o SLO  ";
	char state[HB_TOP_LINE_MAX / 2];
	int n = snprintf(state, sizeof state, "sort: %s%s%s%s%s", hb_top_sort_words[screen->options.sort],
			 screen->options.reverse ? " (reversed)" : "", screen->options.filter[0] ? "  shown: " : "",
			 screen->options.filter, screen->paused ? "  paused" : "");
	bool room = (int)sizeof "q quit  h help  " + (int)sizeof more + n <= COLS + 2;
	snprintf(text, HB_TOP_LINE_MAX, "q quit  h help  %s%s", room ? more : "", state);
}

static void paint_footer(const struct top_screen *screen)
{
	char text[HB_TOP_LINE_MAX];
	if (screen->prompt != PROMPT_NONE)
		snprintf(text, sizeof text, "%s: %s", screen->prompt == PROMPT_FILTER ? "show" : "SLO", screen->input);
	else if (screen->message[0])
		snprintf(text, sizeof text, "%s", screen->message);
	else
		format_keys(screen, text);
	text[COLS < HB_TOP_LINE_MAX ? COLS : HB_TOP_LINE_MAX - 1] = '\0';
	attrset(A_DIM);
	mvaddstr(LINES - 1, 0, text);
	clrtoeol();
	attrset(A_NORMAL);
}

static void paint_body(struct top_screen *screen)
{
	const struct hb_top_tenant *chosen = hb_top_model_find(&screen->model, screen->selected);
	screen->row = 0;
	screen->selected_row = -1;
	if (screen->help == HELP_COLUMNS)
		hb_top_view_columns(COLS, paint_line, screen);
	else if (screen->help)
		for (size_t i = 0; i < sizeof help_lines / sizeof *help_lines; i++)
			hb_top_view_text(help_lines[i], COLS, paint_line, screen);
	else if (screen->detail && chosen)
		hb_top_view_tenant(chosen, COLS, screen->end_row, paint_line, screen);
	else
		hb_top_view_list(&screen->model, screen->selected, COLS, paint_line, screen);
}

static void draw_screen(struct top_screen *screen)
{
	screen->end_row = LINES - 1;
	screen->skip = 0;
	erase();
	if (screen->modelled)
		paint_body(screen);
	/* The selected line must be on the screen. */
	if (screen->selected_row >= screen->end_row) {
		screen->skip = screen->selected_row - screen->end_row + 1;
		erase();
		paint_body(screen);
	}
	paint_footer(screen);
	refresh();
}

/* --- reading ---------------------------------------------------------------------------- */

/* Computes the model anew from the last status. Selects the first tenant when the selected one has ended. */
static void rebuild_model(struct top_screen *screen)
{
	struct hb_top_model model;
	if (!screen->status || hb_top_model_make(&model, json_incref(screen->status), screen->before) < 0)
		return;
	if (screen->modelled)
		hb_top_model_fini(&screen->model);
	screen->model = model;
	screen->modelled = true;
	hb_top_model_arrange(&screen->model, screen->options.filter, screen->options.sort, screen->options.reverse);
	if (!hb_top_model_find(&screen->model, screen->selected)) {
		screen->selected = screen->model.n_tenants ? screen->model.tenants[0].id : 0;
		screen->detail = false;
	}
}

static int read_status(struct top_screen *screen, struct hb_error *error)
{
	json_t *status;
	int result = hb_status_ask(screen->options.simulated, &status, error);
	if (result < 0)
		return result;
	json_decref(screen->before);
	screen->before = screen->status;
	screen->status = status;
	rebuild_model(screen);
	return 0;
}

/* --- keys ----------------------------------------------------------------------------------- */

static void send_change(struct top_screen *screen, struct hb_msg_set *what)
{
	struct hb_error error = {""};
	what->tenant = screen->selected;
	if (!screen->selected)
		snprintf(screen->message, sizeof screen->message, "no tenant is selected");
	else if (hb_status_change(screen->options.simulated, what, &error) < 0)
		snprintf(screen->message, sizeof screen->message, "%.150s", error.text);
	else
		snprintf(screen->message, sizeof screen->message, "tenant %u was changed", (unsigned)screen->selected);
	if (read_status(screen, &error) < 0)
		snprintf(screen->message, sizeof screen->message, "%.150s", error.text);
}

static void change_priority(struct top_screen *screen)
{
	const struct hb_top_tenant *tenant = hb_top_model_find(&screen->model, screen->selected);
	struct hb_msg_set what = {.fields = HB_SET_PRIORITY};
	what.priority = tenant && tenant->high ? HB_PAGE_LOW : HB_PAGE_HIGH;
	send_change(screen, &what);
}

static void change_slo(struct top_screen *screen)
{
	struct hb_msg_set what = {.fields = HB_SET_SLO};
	struct hb_error error;
	struct hb_slo slo;
	if (hb_slo_parse(screen->input, &slo, &error) < 0) {
		snprintf(screen->message, sizeof screen->message, "%.150s", error.text);
		return;
	}
	what.slo_ns = slo.latency_ns;
	what.attainment_ppm = slo.share_ppm;
	send_change(screen, &what);
}

static void move_selection(struct top_screen *screen, int by)
{
	size_t n = screen->model.n_tenants, at = 0;
	while (at < n && screen->model.tenants[at].id != screen->selected)
		at++;
	if (n == 0)
		return;
	if (by < 0)
		at = at < (size_t)-by ? 0 : at - (size_t)-by;
	else
		at = at + (size_t)by < n ? at + (size_t)by : n - 1;
	screen->selected = screen->model.tenants[at].id;
}

static void end_prompt(struct top_screen *screen)
{
	enum top_prompt prompt = screen->prompt;
	screen->prompt = PROMPT_NONE;
	if (prompt == PROMPT_SLO)
		change_slo(screen);
	else
		strcpy(screen->options.filter, screen->input);
	rebuild_model(screen);
}

static void begin_prompt(struct top_screen *screen, enum top_prompt prompt, const char *text)
{
	screen->prompt = prompt;
	strcpy(screen->input, text);
}

static void edit_prompt(struct top_screen *screen, int key)
{
	size_t n = strlen(screen->input);
	if (key == '\n' || key == '\r' || key == KEY_ENTER)
		end_prompt(screen);
	else if (key == KEY_ESCAPE)
		screen->prompt = PROMPT_NONE;
	else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && n > 0)
		screen->input[n - 1] = '\0';
	else if (key >= 0x20 && key < 0x7f && n + 1 < sizeof screen->input) {
		screen->input[n] = (char)key;
		screen->input[n + 1] = '\0';
	}
}

static void handle_other_key(struct top_screen *screen, int key)
{
	switch (key) {
	case '\n':
	case '\r':
	case KEY_ENTER:
		screen->detail = !screen->detail;
		break;
	case KEY_ESCAPE:
		screen->detail = false;
		screen->help = HELP_OFF;
		break;
	case 'h':
	case '?':
		screen->help = (screen->help + 1) % HELP_PAGES;
		break;
	case ' ':
		screen->paused = !screen->paused;
		break;
	case 'p':
		change_priority(screen);
		break;
	case 'o':
		begin_prompt(screen, PROMPT_SLO, "");
		break;
	case '/':
		begin_prompt(screen, PROMPT_FILTER, screen->options.filter);
		break;
	default:
		break;
	}
}

static void handle_key(struct top_screen *screen, int key)
{
	if (screen->prompt != PROMPT_NONE) {
		edit_prompt(screen, key);
		return;
	}
	if (key != KEY_RESIZE)
		screen->message[0] = '\0';
	if (key == 'q' || key == 3)
		screen->leave = true;
	else if (key == KEY_UP || key == 'k')
		move_selection(screen, -1);
	else if (key == KEY_DOWN || key == 'j')
		move_selection(screen, 1);
	else if (key == KEY_PPAGE || key == KEY_NPAGE)
		move_selection(screen, key == KEY_PPAGE ? -PAGE : PAGE);
	else if (key == 's' || key == 'r') {
		if (key == 's')
			screen->options.sort = (screen->options.sort + 1) % HB_TOP_SORT_KEYS;
		else
			screen->options.reverse = !screen->options.reverse;
		rebuild_model(screen);
	} else
		handle_other_key(screen, key);
}

/* --- the loop ----------------------------------------------------------------------------------- */

static int begin_terminal(struct hb_error *error)
{
	set_escdelay(50);
	if (!newterm(NULL, stdout, stdin))
		return hb_error_set(error, -ENOTTY,
				    "the terminal is not known (TERM=%s); hb top --once prints one view",
				    getenv("TERM") ? getenv("TERM") : "");
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	if (hb_cli_colors(stdout) && has_colors() && start_color() == OK) {
		use_default_colors();
		init_pair(1, COLOR_RED, -1);
	}
	return 0;
}

static void refresh_status(struct top_screen *screen)
{
	struct hb_error error = {""};
	if (!screen->paused && read_status(screen, &error) < 0)
		snprintf(screen->message, sizeof screen->message, "%.150s", error.text);
}

static void run_screen(struct top_screen *screen)
{
	int64_t next_ns = hb_clock_now_ns() + screen->options.interval_ns;
	while (!screen->leave) {
		draw_screen(screen);
		int64_t left_ns = next_ns - hb_clock_now_ns();
		timeout(left_ns > 0 ? (int)(left_ns / HB_NS_PER_MS) + 1 : 0);
		int key = getch();
		if (key != ERR) {
			handle_key(screen, key);
		} else if (hb_clock_now_ns() >= next_ns) {
			refresh_status(screen);
			next_ns = hb_clock_now_ns() + screen->options.interval_ns;
		} else if (feof(stdin) || ferror(stdin)) {
			screen->leave = true;
		}
	}
}

int hb_top_screen_run(const struct hb_top_options *options, struct hb_error *error)
{
	struct top_screen screen = {.options = *options};
	int result = read_status(&screen, error);
	if (result == 0)
		result = begin_terminal(error);
	if (result == 0) {
		run_screen(&screen);
		endwin();
	}
	if (screen.modelled)
		hb_top_model_fini(&screen.model);
	json_decref(screen.status);
	json_decref(screen.before);
	return result;
}
