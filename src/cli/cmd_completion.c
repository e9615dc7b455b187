/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb completion`: writes the completion script of a shell. The commands come from commands.def. The script reads the
 * options from `hb COMMAND --help` when they are needed, so they are always those of the installed program.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#define COMMAND "completion"

static const char usage[] = "usage: hb completion bash|zsh|fish\n"
			    "\n"
			    "Prints a script that completes hb's commands and options in that shell. The Debian\n"
			    "package installs the scripts. To install one by hand:\n"
			    "\n"
			    "  bash  hb completion bash > ~/.local/share/bash-completion/completions/hb\n"
			    "  zsh   hb completion zsh > ~/.zfunc/_hb      (with fpath+=~/.zfunc before compinit)\n"
			    "  fish  hb completion fish > ~/.config/fish/completions/hb.fish\n"
			    "\n"
			    "  -h, --help\n";

static const struct {
	const char *name, *help;
} commands[] = {
#define HB_COMMAND(name, function, help) {name, help},
#include "cli/commands.def"
#undef HB_COMMAND
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

/*
 * The part of the script for words after `--`: they are another program's command line, so commands and files are
 * completed.
 */
static const char bash_rest[] =
	"\"\n"
	"\tlocal word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} i\n"
	"\tCOMPREPLY=()\n"
	"\tif ((COMP_CWORD == 1)); then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$commands --help --version\" -- \"$word\")\n"
	"\t\treturn\n"
	"\tfi\n"
	"\tfor ((i = 2; i < COMP_CWORD; i++)); do\n"
	"\t\t[[ ${COMP_WORDS[i]} == -- ]] && { mapfile -t COMPREPLY < <(compgen -c -f -- \"$word\"); return; }\n"
	"\tdone\n"
	"\tif [[ $command == help ]]; then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$word\")\n"
	"\telif [[ $word == -* ]]; then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(\"${COMP_WORDS[0]}\" \"$command\" --help 2>/dev/null |\n"
	"\t\t\tgrep -oE '(^|[[:space:]|,[])--[a-z][a-z-]*' | grep -oE '\\--[a-z-]+' | sort -u)\" -- \"$word\")\n"
	"\telse\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
	"\tfi\n"
	"}\n"
	"complete -o filenames -F _hb hb\n";

static void write_bash(void)
{
	fputs("# bash completion of hb; written by hb completion bash\n_hb() {\n\tlocal commands=\"", stdout);
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("%s%s", i ? " " : "", commands[i].name);
	fputs(bash_rest, stdout);
}

/* Prints a word in quotes for zsh and fish. Backslashes are not escaped, because no help text has one. */
static void print_quoted(const char *text)
{
	putchar('\'');
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\'", stdout);
		putchar(*text);
	}
	putchar('\'');
}

static const char zsh_rest[] =
	"\t)\n"
	"\tif (( CURRENT == 2 )); then\n"
	"\t\t_describe command commands\n"
	"\telif [[ ${words[2]} == help ]]; then\n"
	"\t\t_describe command commands\n"
	"\telif (( ${words[(I)--]} && ${words[(I)--]} < CURRENT )); then\n"
	"\t\t_normal\n"
	"\telif [[ ${words[CURRENT]} == -* ]]; then\n"
	"\t\tlocal -a options\n"
	"\t\toptions=(${(fu)\"$(${words[1]} ${words[2]} --help 2>/dev/null | grep -oE '(^|[[:space:]|,[])--[a-z][a-z-]*' |"
	" grep -oE '\\--[a-z-]+')\"})\n"
	"\t\tcompadd -- $options\n"
	"\telse\n"
	"\t\t_files\n"
	"\tfi\n"
	"}\n"
	"_hb \"$@\"\n";

static void write_zsh(void)
{
	fputs("#compdef hb\n# zsh completion of hb; written by hb completion zsh\n_hb() {\n\tlocal -a commands=(\n",
	      stdout);
	for (size_t i = 0; i < N_COMMANDS; i++) {
		char entry[160];
		snprintf(entry, sizeof entry, "%s:%s", commands[i].name, commands[i].help);
		fputs("\t\t", stdout);
		print_quoted(entry);
		putchar('\n');
	}
	fputs(zsh_rest, stdout);
}

static void write_fish(void)
{
	puts("# fish completion of hb; written by hb completion fish");
	for (size_t i = 0; i < N_COMMANDS; i++) {
		printf("complete -c hb -n __fish_use_subcommand -f -a %s -d ", commands[i].name);
		print_quoted(commands[i].help);
		putchar('\n');
	}
	puts("complete -c hb -n 'not __fish_use_subcommand' -a '(hb (commandline -opc)[2] --help 2>/dev/null |"
	     " string match -ra -- \"--[a-z][a-z-]*\" | sort -u)'");
}

int hb_cmd_completion(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*write)(void);
	} shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};
	if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return HB_EXIT_OK;
	}
	for (size_t i = 0; argc == 2 && i < sizeof shells / sizeof *shells; i++) {
		if (strcmp(shells[i].name, argv[1]) != 0)
			continue;
		shells[i].write();
		return HB_EXIT_OK;
	}
	return hb_cli_usage_error(COMMAND, "give bash, zsh or fish");
}
