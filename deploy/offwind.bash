# Completes offwind's command line in bash: its commands, and the options in a command's --help.

_offwind() {
	local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} i
	COMPREPLY=()
	if [ "$COMP_CWORD" = 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "$(offwind --help | sed -n 's/^  \([a-z]*\) .*/\1/p') help --version" -- "$word")
		return
	fi
	if [ "$command" = help ]; then
		mapfile -t COMPREPLY < <(compgen -W "$(offwind --help | sed -n 's/^  \([a-z]*\) .*/\1/p')" -- "$word")
		return
	fi
	if [ "$command" = query ] && [ "$COMP_CWORD" = 2 ] && [[ $word != -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(offwind query --help | sed -n 's/^  \([a-z]*\) .*/\1/p')" -- "$word")
		return
	fi
	if [ "$command" = fleet ] && [ "$COMP_CWORD" = 2 ] && [[ $word != -* ]]; then
		COMPREPLY=(init)
		return
	fi
	if [ "$command" = archive ] && [ "$COMP_CWORD" = 2 ] && [[ $word != -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "put get" -- "$word")
		return
	fi
	for ((i = 2; i < COMP_CWORD; i++)); do
		[ "${COMP_WORDS[i]}" = -- ] && break
	done
	if [ $i = "$COMP_CWORD" ] && [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(offwind "$command" --help | grep -oE -- '(^|[ ,])--[a-z-]+' | tr -d ' ,' | sort -u)" -- "$word")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	fi
}
complete -o filenames -F _offwind offwind
