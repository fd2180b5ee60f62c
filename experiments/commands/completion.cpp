// dflop completion prints a shell script that completes commands, options and option values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "experiments/cli/command.hpp"
#include "experiments/presets/presets.hpp"

namespace dflop {

enum class Shell : std::uint8_t { bash, zsh };
template <>
inline constexpr NameTable<Shell, 2> kNames<Shell> = {{{Shell::bash, "bash"}, {Shell::zsh, "zsh"}}};

namespace {

/// Returns whether a placeholder such as "a|b|c" lists literal values.
bool is_choice(std::string_view stands_for) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyz0123456789.-_|";
  return stands_for.find('|') != std::string_view::npos &&
         stands_for.find_first_not_of(kPlain) == std::string_view::npos;
}

/// Returns the possible values of an option, separated by spaces; empty if files may follow.
std::string values_of(const Option& option) {
  if (option.name == "model") return fmt::format("{}", fmt::join(preset_names("models"), " "));
  if (option.name == "cluster") return fmt::format("{}", fmt::join(preset_names("clusters"), " "));
  if (!is_choice(option.kind.stands_for)) return "";
  std::string values = option.kind.stands_for;
  std::replace(values.begin(), values.end(), '|', ' ');
  return values;
}

/// Cases are the lines of a case statement over all commands, and over all options with known values.
struct Cases {
  std::string options;
  std::string values;
};

Cases cases_of(const std::vector<Command>& all) {
  Cases cases;
  for (const Command& command : all) {
    std::string names = "--help --help-all";
    for (const Option& option : command.options.rows()) {
      names += " --" + option.name;
      const std::string values = values_of(option);
      if (!values.empty()) {
        cases.values += fmt::format("    \"{} --{}\") words=\"{}\" ;;\n", command.name, option.name, values);
      }
    }
    cases.options += fmt::format("    \"{}\") words=\"{}\" ;;\n", command.name, names);
  }
  return cases;
}

/// Returns the script. Where no values are known, it completes file names.
std::string script() {
  const std::vector<Command> all = commands();
  std::vector<std::string> nouns;
  std::map<std::string, std::string> second;  // words after a noun
  std::string longer;                         // commands of two words
  for (const Command& command : all) {
    const std::string noun = command.noun();
    if (std::ranges::find(nouns, noun) == nouns.end()) nouns.push_back(noun);
    if (noun == command.name) continue;
    second[noun] += command.name.substr(noun.size());
    longer += (longer.empty() ? "" : "|") + fmt::format("\"{}\"", command.name);
  }
  std::string seconds;
  for (const auto& [noun, words] : second)
    seconds += fmt::format("      {}) words=\"{}\" ;;\n", noun, words.substr(1));
  const Cases cases = cases_of(all);
  return fmt::format(R"(_dflop() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="" command="${{COMP_WORDS[1]}}" words=""
  [ "$COMP_CWORD" -gt 0 ] && before="${{COMP_WORDS[COMP_CWORD-1]}}"
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{0} --help --version" -- "$current"))
    return
  fi
  case "$command ${{COMP_WORDS[2]}}" in
    {1}) [ "$COMP_CWORD" -gt 2 ] && command="$command ${{COMP_WORDS[2]}}" ;;
  esac
  case "$command $before" in
{2}  esac
  if [ -z "$words" ] && [ "${{current:0:1}}" = - ]; then
    case "$command" in
{3}    esac
  fi
  if [ -z "$words" ] && [ "$COMP_CWORD" -eq 2 ]; then
    case "$command" in
{4}    esac
  fi
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _dflop dflop
)",
                     fmt::join(nouns, " "), longer, cases.values, cases.options, seconds);
}

int run_completion(const Values& values) {
  if (read_named<Shell>(values, "shell") == Shell::zsh) {
    fmt::print("autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n");
  }
  fmt::print("{}", script());
  return 0;
}

}  // namespace

Command completion_command() {
  Command command{
      .name = "completion",
      .task = Task::tools,
      .summary = "print a shell script that completes commands and options",
      .description =
          R"(Completes commands, their options, names of models and clusters, values that are a choice, and
files. For bash, add this line to ~/.bashrc:
  source <(dflop completion --shell bash)
For zsh, add the same line with --shell zsh to ~/.zshrc.)",
      .example = "dflop completion --shell bash",
      .run = run_completion,
      .has_format = false,
  };
  command.options.add({{"shell", text("bash|zsh", "bash"), "shell for which to print the script"}});
  return command;
}

}  // namespace dflop
