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
#include "experiments/cli/recipe.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {
namespace {

constexpr std::string_view kTitle =
    "dflop: finds, explains and runs the fastest way to train multimodal LLMs";
constexpr std::string_view kExitCodes =
    "0 success, 1 failure, 2 bad usage or input, or output that cannot be written, 3 infeasible (no plan "
    "fits, a run does not end, or a finding of --fail-on), 4 no device";

std::string overview() {
  std::string text = fmt::format("{}\n\nusage: dflop <command> [options]\n\n", kTitle);
  for (const Command& command : commands())
    text += fmt::format("  {:<12} {}\n", command.name, command.summary);
  text +=
      fmt::format("\n'dflop <command> --help' shows options and an example.\nExit codes: {}.\n", kExitCodes);
  return text;
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
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    throw Error(ErrorKind::usage, fmt::format("{}; see 'dflop {} --help'", error.message(), command.name));
  }
  if (parsed.values.count("help") > 0) return parsed;
  for (const auto& [name, value] : parsed.values) {
    const auto* text = boost::any_cast<std::string>(&value.value());
    if (text != nullptr && text->empty()) refuse_option(name, "expected a value, found an empty text");
  }
  return parsed;
}

int run_command(const std::vector<std::string>& arguments) {
  const bool help =
      arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help";
  if (help) {
    fmt::print(arguments.empty() ? stderr : stdout, "{}", overview());
    return arguments.empty() ? 2 : 0;
  }
  if (arguments[0] == "--version") {
    fmt::print("dflop {}\n", DFLOP_VERSION);
    return 0;
  }
  const std::vector<Command> all = commands();
  const auto named = [&](const std::string& name) {
    return std::find_if(all.begin(), all.end(), [&](const Command& c) { return c.name == name; });
  };
  // A command name of two words takes precedence over its first word.
  const auto longer = arguments.size() > 1 ? named(arguments[0] + ' ' + arguments[1]) : all.end();
  const auto command = longer != all.end() ? longer : named(arguments[0]);
  if (command == all.end()) {
    std::vector<std::string_view> names;
    for (const Command& known : all) names.push_back(known.name);
    throw Error(ErrorKind::usage, fmt::format("unknown command '{}'{}; see 'dflop --help'", arguments[0],
                                              did_you_mean(arguments[0], names)));
  }
  const std::ptrdiff_t words = longer != all.end() ? 2 : 1;
  const Arguments parsed = parse(*command, {arguments.begin() + words, arguments.end()});
  if (parsed.values.count("help") > 0) {
    fmt::print("{}", help_text(*command));
    return 0;
  }
  set_result_command(command->name);
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
  std::vector<Command> all = {
      compare_command(),         data_command(),         import_command(),        plan_command(),
      export_command(),          schedule_command(),     check_command(),         partition_command(),
      serve_command(),           simulate_command(),     replay_command(),        profile_command(),
      kernels_tune_command(),    kernels_command(),      kernels_check_command(), kernels_explain_command(),
      kernels_compare_command(), train_command(),        train_plot_command(),    generate_command(),
      fidelity_command(),        verify_command(),       sweep_command(),         sweep_export_command(),
      sweep_plot_command(),      sweep_report_command(), study_command(),         correction_command(),
      validate_command(),        calibrate_command(),    models_command(),        clusters_command(),
      devices_command(),         manual_command(),       completion_command()};
  const std::string formats = fmt::format("{}", fmt::join(names_of(all_of<Format>()), "|"));
  for (Command& command : all) {
    if (!command.has_format) continue;
    command.options.add({{"format", text(formats, "table"), "format of the result on standard output"}});
  }
  return all;
}

std::string help_text(const Command& command) {
  return fmt::format("dflop {}: {}\n\n{}\n\n{}example:\n  {}\n", command.name, command.summary,
                     command.description, options_text(command.options), command.example);
}

std::string manual_text() {
  std::string text = fmt::format(
      "# dflop manual\n\n{}.\n\n`dflop <command> [options]` prints results on standard output and progress, "
      "warnings and measured seconds on standard error.\nExit codes: {}.\nThe same input, seed and version "
      "give the same bytes.\n\nThis page is the output of `dflop manual`.\n",
      kTitle, kExitCodes);
  for (const Command& command : commands()) {
    text += fmt::format("\n## dflop {}\n\n```text\n{}```\n", command.name, help_text(command));
  }
  return text;
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
