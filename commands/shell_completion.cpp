#include "commands/shell_completion.h"

namespace shardlens {

namespace {

/// Offers words after a flag whose help lists them, as in --offload none|params|all; after any
/// other flag, and after "--", it offers files. COMMANDS is replaced.
constexpr std::string_view kBash = R"(# shardlens completion bash
_shardlens() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} help words i
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    words="COMMANDS help completion --help --version"
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    return
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    [ "${COMP_WORDS[i]}" != -- ] || return 0
  done
  case ${COMP_WORDS[1]} in
    help) words="COMMANDS" ;;
    completion) words="bash zsh fish" ;;
    *)
      help=$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" --help 2>/dev/null)
      words=$(sed -n "s/^ *$before  *\([a-z0-9-]*|[a-z0-9|-]*\) .*/\1/p" <<<"$help" | tr '|' '\n')
      if [ -z "$words" ] && [ "$COMP_CWORD" = 2 ]; then
        words=$(sed -n 's/^  \([a-z][a-z-]*\) [A-Z].*/\1/p' <<<"$help")
      fi
      case $word in -*) words=$(grep -oE -- '--[a-z][a-z0-9-]*' <<<"$help" | sort -u) ;; esac
      ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _shardlens shardlens
)";

constexpr std::string_view kZsh = R"(# shardlens completion zsh
autoload -U +X bashcompinit && bashcompinit
)";

constexpr std::string_view kFish = R"(# shardlens completion fish
function __shardlens_flags
  set -l words (commandline -opc)
  contains -- -- $words; and return
  shardlens $words[2] --help 2>/dev/null | string match -r -a -- '--[a-z][a-z0-9-]*' | sort -u
end
complete -c shardlens -n __fish_use_subcommand -f -a 'COMMANDS help completion'
complete -c shardlens -n 'not __fish_use_subcommand' -a '(__shardlens_flags)'
)";

std::string with_commands(std::string_view script, std::string_view commands) {
  constexpr std::string_view kPlace = "COMMANDS";
  std::string text(script);
  for (size_t at = text.find(kPlace); at != std::string::npos; at = text.find(kPlace, at)) {
    text.replace(at, kPlace.size(), commands);
    at += commands.size();
  }
  return text;
}

}  // namespace

std::optional<std::string> completion_script(std::string_view shell, std::string_view commands) {
  if (shell == "bash") return with_commands(kBash, commands);
  if (shell == "zsh") return std::string(kZsh) + with_commands(kBash, commands);
  if (shell == "fish") return with_commands(kFish, commands);
  return std::nullopt;
}

}  // namespace shardlens
