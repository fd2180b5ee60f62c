#include "experiments/cli/recipe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/support/did_you_mean.hpp"
#include "traces/files/recipe.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Parses some of the arguments. Adds --help, so that required options may be missing.
Values parse_part(const Options& options, std::vector<std::string> arguments) {
  const auto asks = [](const std::string& a) { return a == "--help" || a == "-h"; };
  if (std::none_of(arguments.begin(), arguments.end(), asks)) arguments.emplace_back("--help");
  return parse_arguments(options, arguments, true);
}

bool is_about_recipes(const std::string& option) {
  return option == "recipe" || option == "print-recipe";
}

const Option& option_of(const Options& options, const RecipeEntry& entry, const std::string& place) {
  std::vector<std::string_view> names;
  for (const Option& row : options.rows()) {
    if (is_about_recipes(row.name)) continue;
    if (entry.key == row.name || (!row.also.empty() && entry.key == row.also)) return row;
    names.push_back(row.name);
  }
  throw Error(ErrorKind::input,
              fmt::format("unknown key '{}'; expected the name of an option, without dashes{}", entry.key,
                          did_you_mean(entry.key, names)),
              place);
}

/// Returns an entry as command-line arguments. A false flag becomes the flag that negates it, or nothing if
/// there is none.
std::vector<std::string> typed_entry(const Options& options, const Option& option, const RecipeEntry& entry,
                                     const std::string& place) {
  const std::string where = fmt::format("{}: key '{}'", place, entry.key);
  const bool several = option.kind.takes_several || option.kind.is_repeatable;
  if (!several && entry.values.size() != 1) {
    throw Error(ErrorKind::input, fmt::format("expected one value, found {}", entry.values.size()), where);
  }
  if (option.kind.type == ValueKind::Type::flag) {
    const std::string& value = entry.values.front();
    if (value == "true") return {"--" + option.name};
    if (value == "false") {
      const std::string off = "no-" + option.name;
      const bool has_off =
          std::ranges::any_of(options.rows(), [&](const Option& row) { return row.name == off; });
      return has_off ? std::vector<std::string>{"--" + off} : std::vector<std::string>{};
    }
    throw Error(ErrorKind::input, fmt::format("expected true or false, found '{}'", value), where);
  }
  std::vector<std::string> typed;
  for (const std::string& value : entry.values) {
    typed.push_back(fmt::format("--{}={}", option.name, value));
    try {
      if (value.empty()) throw Error(ErrorKind::usage, "");
      parse_part(options, {typed.back()});
    } catch (const Error&) {
      throw Error(ErrorKind::input, fmt::format("expected {}, found '{}'", option.kind.stands_for, value),
                  where);
    }
  }
  return typed;
}

}  // namespace

void add_recipe_options(Options& options) {
  options.add({
      {"recipe", text("FILE").common(),
       "read options from a YAML or JSON file whose keys are option names, such as 'steps: 10'; --recipe "
       "may be omitted if the file comes first. Options on the command line override the file; paths are "
       "relative to the current folder"},
      {"print-recipe", flag(), "print all given options as a recipe and exit"},
  });
}

RecipeArguments with_recipe(const Options& options, std::vector<std::string> arguments) {
  if (!arguments.empty() && !arguments.front().starts_with('-')) arguments.front().insert(0, "--recipe=");
  const Values typed = parse_part(options, arguments);
  const std::optional<std::string> file = read_text(typed, "recipe");
  RecipeArguments all{std::move(arguments)};
  if (!file) return all;
  for (const RecipeEntry& entry : parse_recipe(read_text_file(*file), *file)) {
    const std::string place = fmt::format("{}:{}", *file, entry.line);
    const Option& option = option_of(options, entry, place);
    const std::vector<std::string> own = typed_entry(options, option, entry, place);
    const auto is_typed = [&](const std::string& name) {
      return typed.count(name) > 0 && !typed[name].defaulted();
    };
    if (is_typed(option.name) || is_typed("no-" + option.name)) continue;
    all.arguments.insert(all.arguments.end(), own.begin(), own.end());
    all.places.emplace(option.name, place);
  }
  return all;
}

std::string to_recipe(const Values& values) {
  nlohmann::ordered_json recipe = nlohmann::ordered_json::object();
  for (const auto& [name, value] : values) {
    if (value.defaulted() || is_about_recipes(name)) continue;
    const boost::any& any = value.value();
    if (const auto* on = boost::any_cast<bool>(&any)) recipe[name] = *on;
    if (const auto* whole = boost::any_cast<std::int64_t>(&any)) recipe[name] = *whole;
    if (const auto* number = boost::any_cast<double>(&any)) recipe[name] = *number;
    if (const auto* text = boost::any_cast<std::string>(&any)) recipe[name] = *text;
    if (const auto* texts = boost::any_cast<std::vector<std::string>>(&any)) recipe[name] = *texts;
    if (const auto* wholes = boost::any_cast<std::vector<std::int64_t>>(&any)) recipe[name] = *wholes;
  }
  return recipe.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace dflop
