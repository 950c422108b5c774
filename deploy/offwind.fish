# Completes offwind's command line in fish: its commands, and the options in a command's --help.

function __offwind_commands
	offwind --help | string replace -rf '^  ([a-z]+) +(.*)' '$1\t$2'
end

function __offwind_questions
	offwind query --help | string replace -rf '^  ([a-z]+)[ A-Z]*  +(.*)' '$1\t$2'
end

function __offwind_begins
	set -l words (commandline -opc)
	test (count $words) = 2; and test $words[2] = $argv[1]; and not __offwind_wants_option
end

function __offwind_options
	set -l words (commandline -opc)
	offwind $words[2] --help | string match -ra -- '(?<=^| |,)--[a-z][a-z-]+' | sort -u
end

function __offwind_wants_option
	set -l words (commandline -opc)
	test (count $words) -ge 2; and not contains -- -- $words; and string match -q -- '-*' (commandline -ct)
end

complete -c offwind -n 'test (count (commandline -opc)) = 1' -f -a '(__offwind_commands)'
complete -c offwind -n 'test (commandline -opc)[-1] = help' -f -a '(__offwind_commands)'
complete -c offwind -n '__offwind_begins query' -f -a '(__offwind_questions)'
complete -c offwind -n '__offwind_begins fleet' -f -a init
complete -c offwind -n '__offwind_begins archive' -f -a 'put get'
complete -c offwind -n __offwind_wants_option -f -a '(__offwind_options)'
