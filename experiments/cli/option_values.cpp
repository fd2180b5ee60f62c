#include "experiments/cli/option_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.hpp"
#include "experiments/cli/table.hpp"
#include "traces/text/output_file.hpp"

namespace dflop {
namespace {

std::string value_text(const boost::any& value) {
  if (const auto* whole = boost::any_cast<std::int64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = boost::any_cast<double>(&value)) return shortest(*number);
  return boost::any_cast<std::string>(value);
}

/// As a shell reads it back.
std::string shell_quoted(const std::string& text) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + '\'';
}

/// "mine.json" of "mine.json:4".
std::string without_nodes(const std::string& cluster) {
  const std::size_t colon = cluster.rfind(':');
  if (colon == std::string::npos) return cluster;
  const bool number = cluster.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return number ? cluster.substr(0, colon) : cluster;  // a colon inside a path
}

}  // namespace

void refuse_value(const std::string& option, const std::string& expected, const std::string& found) {
  throw Error(ErrorKind::usage,
              fmt::format("option '--{}': expected {}, found '{}'", option, expected, found));
}

void require_one_of(const std::string& option, const std::vector<std::string_view>& names,
                    const std::string& found) {
  if (std::find(names.begin(), names.end(), found) != names.end()) return;
  refuse_value(option, fmt::format("one of {}", fmt::join(names, ", ")), found);
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

void refuse_files_of_others(const Values& values, const std::string& name, const std::string& path) {
  const auto refuse_same = [&](const char* other, const std::string& file) {
    std::error_code ignored;  // a file that is not there yet is only the same by its name
    if (path == file || std::filesystem::equivalent(path, file, ignored)) {
      throw Error(ErrorKind::usage,
                  fmt::format("option '--{}': '{}' is also the file of '--{}'", name, path, other));
    }
  };
  for (const char* other :
       {"data",        "plan",    "plans",       "schedule", "pipeline", "order", "trace",
        "truth",       "spec",    "out",         "rows",     "perfetto", "db",    "order-out",
        "samples-out", "profile", "profile-out", "html",     "model",    "record"}) {
    if (other == name || values.count(other) == 0) continue;
    for (const std::string& file : read_texts(values, other)) refuse_same(other, file);
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

std::string typed_options(const Values& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    if (value.defaulted() || name == "out" || name == "format") continue;
    const auto* on = boost::any_cast<bool>(&value.value());
    if (on != nullptr && !*on) continue;
    if (const auto* several = boost::any_cast<std::vector<std::string>>(&value.value())) {
      for (const std::string& one : *several) {
        text += fmt::format("{}--{} {}", text.empty() ? "" : " ", name, shell_quoted(one));
      }
      continue;
    }
    text += fmt::format("{}--{}", text.empty() ? "" : " ", name);
    if (on == nullptr) text += " " + shell_quoted(value_text(value.value()));
  }
  return text;
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
