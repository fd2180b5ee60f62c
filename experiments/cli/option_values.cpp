#include "experiments/cli/option_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/support/did_you_mean.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

/// Returns the semantic of a value of type T. If the option has a default, it is a Usual and T is made from
/// it.
template <typename T, typename Usual = T>
const po::value_semantic* typed_semantic(const ValueKind& kind) {
  auto* semantic = po::value<T>()->value_name(kind.stands_for);
  if (const Usual* usual = std::get_if<Usual>(&kind.usual))
    semantic->default_value(T{*usual}, plain_text(kind.usual));
  if (kind.is_required) semantic->required();
  if (kind.is_repeatable) semantic->composing();
  if (kind.takes_several) semantic->multitoken();
  return semantic;
}

/// Returns the kind as a semantic of Boost.Program_options. The description that receives it owns it.
const po::value_semantic* semantic_of(const ValueKind& kind) {
  switch (kind.type) {
    case ValueKind::Type::flag:
      return po::bool_switch();
    case ValueKind::Type::text:
      return typed_semantic<std::string>(kind);
    case ValueKind::Type::whole:
      return typed_semantic<std::int64_t>(kind);
    case ValueKind::Type::number:
      return typed_semantic<double>(kind);
    case ValueKind::Type::texts:
      return typed_semantic<std::vector<std::string>, std::string>(kind);
    case ValueKind::Type::wholes:
      break;
  }
  return typed_semantic<std::vector<std::int64_t>, std::int64_t>(kind);
}

po::options_description description_of(const Options& options) {
  po::options_description description;
  for (const Option& row : options.rows()) {
    description.add_options()(row.name.c_str(), semantic_of(row.kind), row.help.c_str());
  }
  return description;
}

/// Returns the arguments with alternative option names replaced by the main ones.
std::vector<std::string> with_own_names(const Options& options, std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    const std::string given = argument.substr(0, argument.find('='));
    for (const Option& row : options.rows()) {
      if (!row.also.empty() && given == "--" + row.also) argument.replace(2, row.also.size(), row.name);
    }
  }
  return arguments;
}

constexpr double kMaxExact = 9007199254740992;  // 2^53

/// Rewrites a whole number such as 3e6 in digits. Returns other texts unchanged.
std::string whole_digits(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, value);
  const bool has_exponent = text.find_first_of("eE") != std::string::npos;
  if (problem != std::errc() || rest != end || !has_exponent) return text;
  if (value != std::floor(value) || std::abs(value) > kMaxExact) return text;
  return std::to_string(static_cast<std::int64_t>(value));
}

const Option* option_of(const Options& options, std::string_view name) {
  const auto found = std::ranges::find(options.rows(), name, &Option::name);
  return found == options.rows().end() ? nullptr : &*found;
}

/// Returns the arguments with whole numbers such as 3e6 rewritten in digits.
std::vector<std::string> with_whole_digits(const Options& options, std::vector<std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("--")) continue;
    const std::size_t sign = arguments[i].find('=');
    const Option* option = option_of(options, std::string_view(arguments[i]).substr(0, sign).substr(2));
    if (option == nullptr || option->kind.type != ValueKind::Type::whole) continue;
    if (sign != std::string::npos) {
      arguments[i].replace(sign + 1, std::string::npos, whole_digits(arguments[i].substr(sign + 1)));
    } else if (i + 1 < arguments.size()) {
      arguments[i + 1] = whole_digits(arguments[i + 1]);
    }
  }
  return arguments;
}

/// Rejects a value of the wrong kind. @throws OptionError that names the expected kind
[[noreturn]] void refuse_kind(const Options& options, const po::invalid_option_value& problem,
                              const std::vector<std::string>& arguments) {
  std::string name = problem.get_option_name();
  name.erase(0, name.find_first_not_of('-'));
  const Option* option = option_of(options, name);
  if (option == nullptr) throw Error(ErrorKind::usage, problem.what());
  const bool is_whole =
      option->kind.type == ValueKind::Type::whole || option->kind.type == ValueKind::Type::wholes;
  std::string found;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--" + name && i + 1 < arguments.size()) found = arguments[i + 1];
    if (arguments[i].starts_with("--" + name + "=")) found = arguments[i].substr(name.size() + 3);
  }
  double value = 0;
  const auto [rest, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  const bool is_number = rest == found.data() + found.size() && error == std::errc();
  if (is_whole && is_number && std::abs(value) >= kMaxExact && value == std::floor(value))
    refuse_value(name, "a whole number below 2^63, or below 2^53 if it has an exponent", found);
  refuse_value(name, is_whole ? "a whole number, such as 1000 or 3e6" : "a number, such as 2.5 or 1e-3",
               found);
}

std::string value_text(const boost::any& value) {
  if (const auto* whole = boost::any_cast<std::int64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = boost::any_cast<double>(&value)) return shortest(*number);
  return boost::any_cast<std::string>(value);
}

/// Quotes text for a shell.
std::string shell_quoted(const std::string& text) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + '\'';
}

/// Returns "mine.json" for "mine.json:4".
std::string without_nodes(const std::string& cluster) {
  const std::size_t colon = cluster.rfind(':');
  if (colon == std::string::npos) return cluster;
  const bool number = cluster.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return number ? cluster.substr(0, colon) : cluster;  // a colon inside a path
}

[[noreturn]] void refuse_directory(const std::string& directory, const std::string& reason) {
  throw Error(ErrorKind::output, "the directory cannot be created: " + reason, directory);
}

/// Returns whether a path exists. A dangling link exists, too: no folder can be made in its place.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

}  // namespace

ValueKind flag() {
  return {};
}

ValueKind text(const std::string& stands_for, const std::optional<std::string>& usual) {
  return {ValueKind::Type::text, stands_for, usual};
}

ValueKind whole(const std::string& stands_for, std::optional<std::int64_t> usual) {
  return {ValueKind::Type::whole, stands_for, usual};
}

ValueKind number(const std::string& stands_for, std::optional<double> usual) {
  return {ValueKind::Type::number, stands_for, usual};
}

ValueKind repeatable_text(const std::string& stands_for) {
  return ValueKind{.type = ValueKind::Type::texts, .stands_for = stands_for, .usual = {}}.repeatable();
}

ValueKind texts(const std::string& stands_for) {
  return {.type = ValueKind::Type::texts, .stands_for = stands_for, .usual = {}, .takes_several = true};
}

ValueKind wholes(const std::string& stands_for, std::int64_t usual) {
  return {.type = ValueKind::Type::wholes, .stands_for = stands_for, .usual = usual, .takes_several = true};
}

Values parse_arguments(const Options& options, const std::vector<std::string>& arguments, bool offers_help) {
  const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  po::options_description description = description_of(options);
  if (offers_help) description.add_options()("help,h", "show help")("help-all", "show help on all options");
  Values values;
  try {
    po::command_line_parser parser(with_whole_digits(options, with_own_names(options, arguments)));
    po::store(parser.options(description).positional({}).style(style).run(), values);
    if (values.count("help") + values.count("help-all") == 0) po::notify(values);
  } catch (const po::unknown_option& unknown) {
    std::vector<std::string> names;
    for (const Option& row : options.rows()) names.push_back("--" + row.name);
    const std::string found = unknown.get_option_name();
    const std::string name = found.substr(std::min(found.size(), found.find_first_not_of('-')));
    throw UnknownOption(name, fmt::format("unknown option '--{}'{}", name,
                                          did_you_mean(found, {names.begin(), names.end()})));
  } catch (const po::invalid_option_value& problem) {
    refuse_kind(options, problem, with_own_names(options, arguments));
  } catch (const po::error& problem) {
    throw Error(ErrorKind::usage, problem.what());
  }
  return values;
}

void refuse_option(const std::string& option, const std::string& why) {
  throw OptionError(option, "option '--" + option + "': " + why);
}

void refuse_given(const Values& values, const std::vector<const char*>& options, const std::string& why) {
  for (const char* option : options) {
    if (values.count(option) > 0 && !values[option].defaulted()) refuse_option(option, why);
  }
}

void refuse_value(const std::string& option, const std::string& expected, const std::string& found) {
  refuse_option(option, fmt::format("expected {}, found '{}'", expected, found));
}

void refuse_name(const std::string& option, const std::vector<std::string_view>& names,
                 const std::string& found) {
  refuse_option(option,
                fmt::format("expected {}, found '{}'{}", listed(names), found, did_you_mean(found, names)));
}

void require_one_of(const std::string& option, const std::vector<std::string_view>& names,
                    const std::string& found) {
  if (std::find(names.begin(), names.end(), found) != names.end()) return;
  refuse_option(option, fmt::format("expected one of {}, found '{}'{}", fmt::join(names, ", "), found,
                                    did_you_mean(found, names)));
}

bool is_set(const Values& values, const std::string& flag) {
  return values.count(flag) > 0 && values[flag].as<bool>();
}

std::int64_t read_integer(const Values& values, const std::string& name, std::int64_t lowest,
                          std::int64_t highest) {
  const auto value = values[name].as<std::int64_t>();
  if (value < lowest || value > highest) {
    refuse_value(name, fmt::format("a whole number from {} to {}", lowest, highest), std::to_string(value));
  }
  return value;
}

double read_number(const Values& values, const std::string& name, double lowest, double highest) {
  const auto value = values[name].as<double>();
  if (!(value >= lowest && value <= highest)) {
    refuse_value(name, fmt::format("a number from {} to {}", lowest, highest), shortest(value));
  }
  return value;
}

std::optional<std::string> read_text(const Values& values, const std::string& name) {
  if (values.count(name) == 0) return std::nullopt;
  return values[name].as<std::string>();
}

std::vector<std::string> read_texts(const Values& values, const std::string& name) {
  if (values.count(name) == 0) return {};
  const auto* one = boost::any_cast<std::string>(&values[name].value());
  return one != nullptr ? std::vector<std::string>{*one} : values[name].as<std::vector<std::string>>();
}

Format read_format(const Values& values) {
  return read_named<Format>(values, "format");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

namespace {

/// Returns the shard files that a value names; none if it names something else.
std::vector<std::string> shard_files(const std::string& value) {
  std::vector<std::string> files;
  try {
    const std::optional<ShardKind> kind = kind_of_shards(value);
    if (kind == ShardKind::tar || kind == ShardKind::list) files = expand_shards(value);
    if (kind != ShardKind::megatron) return files;
    for (const std::string& prefix : expand_prefixes(value)) {
      files.push_back(prefix + ".idx");
      files.push_back(prefix + ".bin");
    }
  } catch (const Error&) {  // the command reports this when it reads the data
  }
  return files;
}

}  // namespace

void refuse_files_of_folder(const std::string& folder, const std::string& name, const std::string& path) {
  constexpr std::string_view kNames[] = {"config.json",
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "preprocessor_config.json",
                                         "video_preprocessor_config.json",
                                         "processor_config.json",
                                         "chat_template.json",
                                         "chat_template.jinja",
                                         "model.safetensors.index.json"};
  const fs::path file(path);
  const bool is_named =
      std::find(std::begin(kNames), std::end(kNames), file.filename().native()) != std::end(kNames);
  if (!is_named && file.extension() != ".safetensors" && file.extension() != ".bin") return;
  std::error_code ignored;
  if (fs::equivalent(fs::absolute(file, ignored).parent_path(), folder, ignored))
    refuse_option(name, fmt::format("'{}' is a file of the model folder '{}'", path, folder));
}

void refuse_files_of_others(const Values& values, const std::string& name, const std::string& path) {
  const auto refuse_same = [&](const char* other, const std::string& file) {
    std::error_code ignored;  // a file that does not exist yet can be the same only by name
    const auto full = [&](const std::string& p) { return fs::absolute(p, ignored).lexically_normal(); };
    if (full(path) == full(file) || fs::equivalent(path, file, ignored))
      refuse_option(name, fmt::format("'{}' is also the file of '--{}'", path, other));
  };
  for (const char* other :
       {"data",         "plan",       "plans",       "schedule",       "pipeline",    "order",  "trace",
        "truth",        "spec",       "out",         "rows",           "perfetto",    "db",     "order-out",
        "samples-out",  "profile",    "profile-out", "html",           "model",       "record", "checkpoint",
        "kernels-file", "recordings", "kineto",      "costs",          "program-out", "log",    "export",
        "tensorboard",  "recipe",     "eval-data",   "bad-samples-out"}) {
    if (other == name || values.count(other) == 0) continue;
    for (const std::string& file : read_texts(values, other)) refuse_same(other, file);
  }
  // There may be a million shards. Compare file names first, also the name that a link leads to.
  std::error_code ignored;
  const fs::path led_to = fs::weakly_canonical(path, ignored).filename();
  for (const char* data : {"data", "eval-data"}) {
    if (values.count(data) == 0) continue;
    for (const std::string& value : read_texts(values, data)) {
      for (const std::string& file : shard_files(value)) {
        const std::string_view shard = std::string_view(file).substr(file.rfind('/') + 1);
        if (shard == fs::path(path).filename().native() || shard == led_to.native()) refuse_same(data, file);
      }
    }
  }
  if (values.count("model") > 0) {
    for (const std::string& model : read_texts(values, "model")) refuse_files_of_folder(model, name, path);
  }
  if (values.count("cluster") > 0) refuse_same("cluster", without_nodes(values["cluster"].as<std::string>()));
  if (values.count("stage-gpu") > 0) {
    for (const std::string& text : values["stage-gpu"].as<std::vector<std::string>>()) {
      refuse_same("stage-gpu", without_nodes(text.substr(text.find('=') + 1)));
    }
  }
}

std::optional<std::string> read_output(const Values& values, const std::string& name) {
  std::optional<std::string> path = read_text(values, name);
  if (!path) return path;
  refuse_files_of_others(values, name, *path);
  check_output(*path);
  return path;
}

void check_output_directory(const std::string& directory, const std::string& file) {
  const fs::path wanted = fs::absolute(directory).lexically_normal();
  fs::path there = wanted;
  fs::path missing;
  while (!is_there(there) && there.has_relative_path()) {
    missing = there;
    there = there.parent_path();
  }
  std::error_code ignored;
  if (!fs::is_directory(there, ignored))
    refuse_directory(directory, "'" + there.string() + "' is not a directory");
  if (missing.empty()) return check_output((fs::path(directory) / file).string());
  try {
    check_output(missing.string());
  } catch (const Error& error) {
    refuse_directory(directory, error.message());
  }
}

void make_output_directory(const std::string& directory) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (problem || !fs::is_directory(directory)) refuse_directory(directory, problem.message());
}

namespace {

std::string& kept_command_line() {
  static std::string line = "dflop";
  return line;
}

}  // namespace

void keep_command_line(const std::vector<std::string>& arguments) {
  std::string& line = kept_command_line();
  line = "dflop";
  for (const std::string& argument : arguments) line += ' ' + shell_quoted(argument);
}

const std::string& command_line() {
  return kept_command_line();
}

std::string typed_options(const Values& values) {
  std::vector<std::string> typed;
  for (const auto& [name, value] : values) {
    if (value.defaulted() || name == "out" || name == "format") continue;
    const boost::any& any = value.value();
    if (const auto* on = boost::any_cast<bool>(&any)) {
      if (*on) typed.push_back("--" + name);
    } else if (const auto* several = boost::any_cast<std::vector<std::string>>(&any)) {
      for (const std::string& one : *several) typed.push_back("--" + name + ' ' + shell_quoted(one));
    } else {
      typed.push_back("--" + name + ' ' + shell_quoted(value_text(any)));
    }
  }
  return fmt::format("{}", fmt::join(typed, " "));
}

std::string options_json(const Values& values) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : values) {
    if (name == "out" || name == "format") continue;
    const boost::any& any = value.value();
    if (const auto* on = boost::any_cast<bool>(&any)) {
      json[name] = *on;
    } else if (const auto* whole = boost::any_cast<std::int64_t>(&any)) {
      json[name] = *whole;
    } else if (const auto* number = boost::any_cast<double>(&any)) {
      json[name] = *number;
    } else {
      json[name] = value_text(any);
    }
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace dflop
