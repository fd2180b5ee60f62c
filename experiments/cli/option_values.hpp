// Single options: their values within limits, and as text.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

using Values = boost::program_options::variables_map;

/// @throws Error (usage) "option '--gbs': expected ..., found '...'".
[[noreturn]] void refuse_value(const std::string& option, const std::string& expected,
                               const std::string& found);

/// @throws Error (usage) unless `found` is one of `names`.
void require_one_of(const std::string& option, const std::vector<std::string_view>& names,
                    const std::string& found);

/// An integer option in [lowest, highest]. @throws Error (usage) otherwise.
std::int64_t read_integer(const Values& values, const std::string& name, std::int64_t lowest,
                          std::int64_t highest);

/// A finite number option in [lowest, highest]. @throws Error (usage) otherwise.
double read_number(const Values& values, const std::string& name, double lowest, double highest);

/// A text option, or nothing where it was not given.
std::optional<std::string> read_text(const Values& values, const std::string& name);

/// All texts of an option that takes one or several; none where it was not given.
std::vector<std::string> read_texts(const Values& values, const std::string& name);

/// @throws Error (usage) where `path`, which option `name` writes, is also the file of another option.
void refuse_files_of_others(const Values& values, const std::string& name, const std::string& path);

/// The path of an output file, or nothing where none was asked for.
/// @throws Error (output) if it could not be written, before the work whose result it is to hold; Error
/// (usage) as refuse_files_of_others()
std::optional<std::string> read_output(const Values& values, const std::string& name);

/// The options that were given, as they would be typed again, without --out and --format.
std::string typed_options(const Values& values);

/// The values of all options, given or not, as a JSON object, without --out and --format.
std::string options_json(const Values& values);

}  // namespace dflop
