#include "experiments/cli/command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <new>
#include <system_error>

#include "core/error.hpp"
#include "core/out_of_memory.hpp"
#include "core/support/did_you_mean.hpp"
#include "experiments/cli/commit.hpp"
#include "experiments/cli/help.hpp"
#include "experiments/cli/recipe.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {
namespace {

bool asks_for_help(const Values& values) {
  return values.count("help") + values.count("help-all") > 0;
}

/// Returns "; it is an option of 'simulate', 'replay'", or nothing if no command has the option.
std::string commands_with(const std::string& option) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    const std::vector<Option>& rows = command.options.rows();
    if (std::ranges::find(rows, option, &Option::name) != rows.end()) names.push_back(command.name);
  }
  return names.empty() ? "" : fmt::format("; it is an option of '{}'", fmt::join(names, "', '"));
}

/// Arguments are the options of a command, with the places of those from a recipe.
struct Arguments {
  Values values;
  std::map<std::string, std::string> places = {};
};

Arguments parse(const Command& command, const std::vector<std::string>& typed) {
  const std::vector<Option>& rows = command.options.rows();
  const bool takes_recipes =
      std::any_of(rows.begin(), rows.end(), [](const Option& row) { return row.name == "recipe"; });
  Arguments parsed;
  try {
    const RecipeArguments all = takes_recipes ? with_recipe(command.options, typed) : RecipeArguments{typed};
    parsed = {parse_arguments(command.options, all.arguments, true), all.places};
  } catch (const UnknownOption& error) {
    throw Error(ErrorKind::usage, fmt::format("{}{}; see 'dflop {} --help'", error.message(),
                                              commands_with(error.option()), command.name));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    throw Error(ErrorKind::usage, fmt::format("{}; see 'dflop {} --help'", error.message(), command.name));
  }
  if (asks_for_help(parsed.values)) return parsed;
  for (const auto& [name, value] : parsed.values) {
    const auto* text = boost::any_cast<std::string>(&value.value());
    if (text != nullptr && text->empty()) refuse_option(name, "expected a value, found an empty text");
  }
  return parsed;
}

/// Returns a command by its name or, with a note, by its old name; null if there is none. `words` becomes the
/// number of arguments that make the name.
const Command* find_command(const std::vector<Command>& all, const std::vector<std::string>& arguments,
                            std::ptrdiff_t& words) {
  const auto named = [&](const std::string& name) -> const Command* {
    const auto found = std::ranges::find(all, name, &Command::name);
    return found == all.end() ? nullptr : &*found;
  };
  words = 2;
  const bool is_alone = arguments.size() == 1;
  if (!is_alone) {
    if (const Command* command = named(arguments[0] + ' ' + arguments[1])) return command;
  }
  words = 1;
  if (const Command* command = named(arguments[0])) return command;
  const auto old = std::ranges::find(all, arguments[0], &Command::old_name);
  if (old == all.end()) return nullptr;
  // 'check' was a command and now begins the names of several: only with an option is it the old one.
  const bool is_noun = std::ranges::find(all, arguments[0], &Command::noun) != all.end();
  if (is_noun && (is_alone || !arguments[1].starts_with('-'))) return nullptr;
  say("dflop: note: 'dflop {}' is now 'dflop {}'; the old name will go in the next version\n", arguments[0],
      old->name);
  return &*old;
}

[[noreturn]] void refuse_command(const std::vector<Command>& all, const std::vector<std::string>& arguments) {
  std::vector<std::string> known;
  const bool is_noun = std::ranges::find(all, arguments[0], &Command::noun) != all.end();
  if (is_noun && arguments.size() == 1) {
    throw Error(ErrorKind::usage,
                fmt::format("'{0}' needs a second word; see 'dflop {0} --help'", arguments[0]));
  }
  for (const Command& command : all) {
    if (is_noun && command.noun() == arguments[0]) known.push_back(command.name);
    if (!is_noun) known.insert(known.end(), {command.noun(), command.name});
  }
  const std::string found = arguments[0] + (is_noun ? ' ' + arguments[1] : "");
  throw Error(ErrorKind::usage, fmt::format("unknown command '{}'{}; see 'dflop {}--help'", found,
                                            did_you_mean(found, {known.begin(), known.end()}),
                                            is_noun ? arguments[0] + ' ' : ""));
}

bool is_help(const std::string& argument) {
  return argument == "--help" || argument == "-h" || argument == "--help-all" || argument == "help";
}

int run_command(const std::vector<std::string>& arguments) {
  if (arguments.empty() || is_help(arguments[0])) {
    fmt::print(arguments.empty() ? stderr : stdout, "{}", overview_text(help_width()));
    return arguments.empty() ? 2 : 0;
  }
  if (arguments[0] == "--version") {
    fmt::print("dflop {}\n", DFLOP_VERSION);
    return 0;
  }
  const std::vector<Command> all = commands();
  if (arguments.size() == 2 && is_help(arguments[1]) && is_bare_noun(all, arguments[0])) {
    fmt::print("{}", noun_text(arguments[0], help_width()));
    return 0;
  }
  std::ptrdiff_t words = 0;
  const Command* command = find_command(all, arguments, words);
  if (command == nullptr) refuse_command(all, arguments);
  const Arguments parsed = parse(*command, {arguments.begin() + words, arguments.end()});
  if (asks_for_help(parsed.values)) {
    fmt::print("{}", help_text(*command, parsed.values.count("help-all") > 0, help_width()));
    return 0;
  }
  set_result_command(command->old_name.empty() ? command->name : command->old_name);
  try {
    return command->run(parsed.values);
  } catch (const OptionError& error) {
    const auto place = parsed.places.find(error.option());
    if (place == parsed.places.end()) throw;
    throw Error(error.kind(), error.message(), place->second);
  }
}

/// Applies printable() to each line of a text that the program itself broke into lines, such as a report of
/// all ranks.
std::string printable_lines(const std::string& text) {
  std::string lines;
  for (const std::string_view line : split(text, '\n'))
    lines += (lines.empty() ? "" : "\n") + printable(std::string(line));
  return lines;
}

void complain(const std::string& what) noexcept {
  say("dflop: error: {}\n", what);
}

}  // namespace

std::vector<Command> commands() {
  std::vector<Command> all = {compare_command(),
                              plan_command(),
                              schedule_command(),
                              export_command(),
                              simulate_command(),
                              replay_command(),
                              import_command(),
                              sweep_command(),
                              sweep_export_command(),
                              sweep_plot_command(),
                              sweep_report_command(),
                              profile_command(),
                              kernels_tune_command(),
                              train_command(),
                              train_plot_command(),
                              generate_command(),
                              check_published_command(),
                              check_runs_command(),
                              check_difference_command(),
                              check_schedule_command(),
                              calibrate_command(),
                              correction_command(),
                              study_command(),
                              data_command(),
                              models_command(),
                              clusters_command(),
                              devices_command(),
                              partition_command(),
                              serve_command(),
                              completion_command(),
                              manual_command()};
  const std::string formats = fmt::format("{}", fmt::join(names_of(all_of<Format>()), "|"));
  for (Command& command : all) {
    if (!command.has_format) continue;
    command.options.add(OptionGroup::output, {{"format", text(formats, "table").common(),
                                               "format of the result on standard output"}});
  }
  return all;
}

int run_dflop(const std::vector<std::string>& arguments) {
  keep_command_line(arguments);
  try {
    const int code = run_command(arguments);
    if (std::fflush(stdout) != 0) throw Error(ErrorKind::output, "standard output could not be written");
    return code;
  } catch (const Error& error) {
    const std::string place = error.context().empty() ? "" : error.context() + ": ";
    complain(error.kind() == ErrorKind::internal ? printable_lines(place + error.message())
                                                 : printable(place + error.message()));
    return error.exit_code();
  } catch (const OutOfMemory& error) {
    say("dflop: out of memory: {}\n", error.what());
    return 3;
  } catch (const std::system_error& error) {
    const std::string what = error.what();
    const bool output = what.starts_with("cannot write to file");  // fmt's error for standard output
    complain(output ? "standard output: " + error.code().message() : what);
    if (output) return Error(ErrorKind::output, "").exit_code();
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return 1;
}

}  // namespace dflop
