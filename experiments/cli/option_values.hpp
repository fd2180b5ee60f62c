// This file declares the options of commands, reads their values, and checks the files that they name.
#pragma once

#include <boost/program_options/variables_map.hpp>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/names.hpp"
#include "experiments/cli/table.hpp"

namespace dflop {

/// A ValueKind describes the value of an option. The functions below make ValueKinds.
struct ValueKind {
  enum class Type : std::uint8_t { flag, text, whole, number, texts, wholes };

  Type type = Type::flag;
  std::string stands_for;      ///< placeholder for the value in --help
  Cell usual;                  ///< default value; if missing, the option has no value unless it is given
  bool is_required = false;    ///< whether the command fails without it
  bool is_repeatable = false;  ///< whether it may be given several times; the values are collected
  bool takes_several = false;  ///< whether several values may follow the option
  bool is_common = false;      ///< whether a first-time user needs the option, so that --help lists it

  ValueKind required() const {
    ValueKind kind = *this;
    kind.is_required = true;
    return kind;
  }
  ValueKind repeatable() const {
    ValueKind kind = *this;
    kind.is_repeatable = true;
    return kind;
  }
  ValueKind common() const {
    ValueKind kind = *this;
    kind.is_common = true;
    return kind;
  }
};

ValueKind flag();
ValueKind text(const std::string& stands_for, const std::optional<std::string>& usual = {});
ValueKind whole(const std::string& stands_for, std::optional<std::int64_t> usual = {});
ValueKind number(const std::string& stands_for, std::optional<double> usual = {});
ValueKind repeatable_text(const std::string& stands_for);             ///< may be given several times
ValueKind texts(const std::string& stands_for);                       ///< takes one or more values
ValueKind wholes(const std::string& stands_for, std::int64_t usual);  ///< takes one or more integers

/// An OptionGroup is a set of related options, which help and manual print under one heading.
enum class OptionGroup : std::uint8_t {
  main,
  data,
  target,
  batches,
  plan,
  search,
  scheduler,
  what_if,
  times,
  device,
  optimizer,
  held_out,
  output
};

/// These are the headings of the groups, in the order of help and manual.
template <>
inline constexpr NameTable<OptionGroup, 13> kNames<OptionGroup> = {{
    {OptionGroup::main, "Options"},
    {OptionGroup::data, "Data"},
    {OptionGroup::target, "Model and cluster"},
    {OptionGroup::batches, "Batches"},
    {OptionGroup::plan, "Plan"},
    {OptionGroup::search, "Planner search"},
    {OptionGroup::scheduler, "Scheduler and memory"},
    {OptionGroup::what_if, "What if"},
    {OptionGroup::times, "Measured times"},
    {OptionGroup::device, "Device"},
    {OptionGroup::optimizer, "Optimizer"},
    {OptionGroup::held_out, "Held-out data"},
    {OptionGroup::output, "Output"},
}};

/// An Option is a row of a command's table of options. An option has the same help in all commands.
struct Option {
  std::string name;  ///< without dashes
  ValueKind kind;
  std::string help;
  std::string also = {};                  ///< an alternative name, without dashes
  OptionGroup group = OptionGroup::main;  ///< set by Options::add()
};

/// Options are the table of a command's options.
class Options {
 public:
  /// Adds options under the heading of their group.
  void add(OptionGroup group, std::initializer_list<Option> rows) {
    for (const Option& row : rows) rows_.push_back({row.name, row.kind, row.help, row.also, group});
  }
  /// Adds options to the group OptionGroup::main.
  void add(std::initializer_list<Option> rows) { add(OptionGroup::main, rows); }
  /// Adds all options of another table. They stay in their groups.
  void append(const Options& others) { rows_.insert(rows_.end(), others.rows_.begin(), others.rows_.end()); }
  const std::vector<Option>& rows() const { return rows_; }

 private:
  std::vector<Option> rows_;
};

using Values = boost::program_options::variables_map;

/// An OptionError is an Error (usage) about one option.
class OptionError : public Error {
 public:
  OptionError(const std::string& option, const std::string& message)
      : Error(ErrorKind::usage, message), option_(option) {}

  const std::string& option() const { return option_; }  ///< without dashes

 private:
  std::string option_;
};

/// An UnknownOption is about an option that the command does not declare.
class UnknownOption final : public OptionError {
  using OptionError::OptionError;
};

/// Parses arguments. Rejects abbreviated option names, because new options could make them ambiguous. If
/// `offers_help`, also accepts "--help", "-h" and "--help-all"; if one of them is given, required options may
/// be missing.
/// @throws UnknownOption; Error (usage) for other errors in the arguments
Values parse_arguments(const Options& options, const std::vector<std::string>& arguments, bool offers_help);

/// Rejects an option. @throws OptionError "option '--gbs': " with `why`.
[[noreturn]] void refuse_option(const std::string& option, const std::string& why);

/// Rejects each of these options if it was given. @throws what refuse_option() throws
void refuse_given(const Values& values, const std::vector<const char*>& options, const std::string& why);

/// Rejects a value. @throws Error (usage) "option '--gbs': expected ..., found '...'".
[[noreturn]] void refuse_value(const std::string& option, const std::string& expected,
                               const std::string& found);

/// Rejects the name `found`, which is not in `names`. @throws what refuse_value() throws, with the closest
/// name as a suggestion
[[noreturn]] void refuse_name(const std::string& option, const std::vector<std::string_view>& names,
                              const std::string& found);

/// Checks that a value is one of `names`. @throws what refuse_name() throws if it is not
void require_one_of(const std::string& option, const std::vector<std::string_view>& names,
                    const std::string& found);

/// Returns whether a flag was given; false if the command does not have the flag. A flag always has a value,
/// so values.count() does not say whether it was given.
bool is_set(const Values& values, const std::string& flag);

/// Reads an option whose value is an integer in [lowest, highest]. @throws Error (usage) for other values
std::int64_t read_integer(const Values& values, const std::string& name, std::int64_t lowest,
                          std::int64_t highest);

/// Reads an optional integer option; nullopt if it was not given. @throws what read_integer() throws
template <std::integral Whole = std::int64_t>
std::optional<Whole> read_optional_integer(const Values& values, const std::string& name, std::int64_t lowest,
                                           std::int64_t highest) {
  if (values.count(name) == 0) return std::nullopt;
  return static_cast<Whole>(read_integer(values, name, lowest, highest));
}

/// Reads an option whose value is a finite number in [lowest, highest]. @throws Error (usage) for other
/// values
double read_number(const Values& values, const std::string& name, double lowest, double highest);

/// Reads a text option; nullopt if it was not given.
std::optional<std::string> read_text(const Values& values, const std::string& name);

/// Reads all values of an option that takes several; empty if it was not given.
std::vector<std::string> read_texts(const Values& values, const std::string& name);

/// Reads an option whose values are the names of an enum. @throws Error (usage) for another name.
template <Named Enum>
Enum read_named(const Values& values, const std::string& option) {
  const auto name = values[option].as<std::string>();
  const std::optional<Enum> value = from_string<Enum>(name);
  if (!value) refuse_name(option, names_of(all_of<Enum>()), name);
  return *value;
}

/// Reads --format. @throws what read_named() throws
Format read_format(const Values& values);

/// Splits a text at each separator. There is one more part than separators. Parts may be empty, and refer to
/// `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Checks that option `name` does not write to a file of the model folder `folder`: `path` is the file that
/// it writes. @throws Error (usage)
void refuse_files_of_folder(const std::string& folder, const std::string& name, const std::string& path);

/// Checks that option `name` does not overwrite another file of the command: `path`, which it writes, must
/// not be the file of another option, a shard that another option names, or a file of the model's folder.
/// @throws Error (usage)
void refuse_files_of_others(const Values& values, const std::string& name, const std::string& path);

/// Reads the path of an output file; nullopt if none was requested. Checks that the file can be written, so
/// that an error occurs before the command's work.
/// @throws Error (output) if the file cannot be written; what refuse_files_of_others() throws
std::optional<std::string> read_output(const Values& values, const std::string& name);

/// Checks that `directory` can be created and written to; call it before the long part of a command. It does
/// not create the directory, because a stopped run would leave it empty. `file` is the name of a file that
/// will be written there.
/// @throws Error (output) with the directory or file and the system's reason.
void check_output_directory(const std::string& directory, const std::string& file);

/// Creates the directory and its parents if they do not exist.
/// @throws Error (output) with the directory and the system's reason.
void make_output_directory(const std::string& directory);

/// Returns the options that the user gave as a command line, without --out and --format.
std::string typed_options(const Values& values);

/// Returns the values of all options, given or not, as a JSON object, without --out and --format.
std::string options_json(const Values& values);

}  // namespace dflop
