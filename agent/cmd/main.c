/* agent/cmd/main.c: finds the subcommand. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		(void)printf("offwind %s\n", OFFWIND_VERSION);
		return 0;
	}
	(void)fprintf(stderr, "usage: offwind --version\n");
	return 2;
}
