// Options of commands are declared here, and their values and the files that they name are read.
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

/// A ValueKind says what an option takes. The functions below make them.
struct ValueKind {
  enum class Type : std::uint8_t { flag, text, whole, number, texts, wholes };

  Type type = Type::flag;
  std::string stands_for;      ///< what --help writes in place of the value
  Cell usual;                  ///< taken where the option is not given; nothing: it is then missing
  bool is_required = false;    ///< whether a command refuses to run without it
  bool is_repeatable = false;  ///< whether it may be given several times, each adding to the values
  bool takes_several = false;  ///< whether several values may follow it at once

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
};

ValueKind flag();
ValueKind text(const std::string& stands_for, const std::optional<std::string>& usual = {});
ValueKind whole(const std::string& stands_for, std::optional<std::int64_t> usual = {});
ValueKind number(const std::string& stands_for, std::optional<double> usual = {});
ValueKind repeatable_text(const std::string& stands_for);  ///< given several times, it has several values
ValueKind texts(const std::string& stands_for);            ///< one or several may follow it
ValueKind wholes(const std::string& stands_for, std::int64_t usual);  ///< likewise

/// An Option is a row of a command's table of options.
struct Option {
  std::string name;  ///< without dashes
  ValueKind kind;
  std::string help;
  std::string also = {};  ///< another name, without dashes, that stands for this one
};

/// Options are the table of a command's options, in the order of its --help.
class Options {
 public:
  void add(std::initializer_list<Option> rows) { rows_.insert(rows_.end(), rows); }
  const std::vector<Option>& rows() const { return rows_; }

 private:
  std::vector<Option> rows_;
};

/// Returns the table as --help prints it, and nothing for an empty one.
std::string options_text(const Options& options);

using Values = boost::program_options::variables_map;

/// Reads arguments. Names may not be abbreviated, as what is clear today would break with tomorrow's option.
/// With `offers_help`, "--help" and "-h" are options, too, and beside them required ones may be missing.
/// @throws Error (usage) that says what is wrong
Values parse_arguments(const Options& options, const std::vector<std::string>& arguments, bool offers_help);

/// An OptionError is an Error (usage) of one option.
class OptionError final : public Error {
 public:
  OptionError(const std::string& option, const std::string& why)
      : Error(ErrorKind::usage, "option '--" + option + "': " + why), option_(option) {}

  const std::string& option() const { return option_; }  ///< without dashes

 private:
  std::string option_;
};

/// Refuses an option. @throws OptionError "option '--gbs': " with `why`.
[[noreturn]] void refuse_option(const std::string& option, const std::string& why);

/// Refuses those of the options that were given. @throws Error (usage) as refuse_option()
void refuse_given(const Values& values, const std::vector<const char*>& options, const std::string& why);

/// Refuses a value. @throws Error (usage) "option '--gbs': expected ..., found '...'".
[[noreturn]] void refuse_value(const std::string& option, const std::string& expected,
                               const std::string& found);

/// Refuses a name that is none of these. @throws Error (usage) as refuse_value(), with the name that was
/// probably meant
[[noreturn]] void refuse_name(const std::string& option, const std::vector<std::string_view>& names,
                              const std::string& found);

/// Checks a value. @throws Error (usage) unless `found` is one of `names`.
void require_one_of(const std::string& option, const std::vector<std::string_view>& names,
                    const std::string& found);

/// Returns whether a flag is set; a command that does not offer the flag does not set it. Unlike the value of
/// other options a flag's is always there, so that its count says nothing.
bool is_set(const Values& values, const std::string& flag);

/// Reads an integer option in [lowest, highest]. @throws Error (usage) otherwise.
std::int64_t read_integer(const Values& values, const std::string& name, std::int64_t lowest,
                          std::int64_t highest);

/// Reads such an option; nothing where it was not given. @throws Error (usage) as read_integer()
template <std::integral Whole = std::int64_t>
std::optional<Whole> read_optional_integer(const Values& values, const std::string& name, std::int64_t lowest,
                                           std::int64_t highest) {
  if (values.count(name) == 0) return std::nullopt;
  return static_cast<Whole>(read_integer(values, name, lowest, highest));
}

/// Reads a finite number option in [lowest, highest]. @throws Error (usage) otherwise.
double read_number(const Values& values, const std::string& name, double lowest, double highest);

/// Reads a text option; nothing where it was not given.
std::optional<std::string> read_text(const Values& values, const std::string& name);

/// Reads all texts of an option that takes one or several; none where it was not given.
std::vector<std::string> read_texts(const Values& values, const std::string& name);

/// Reads an option whose values are all of an enum. @throws Error (usage) for another one.
template <Named Enum>
Enum read_named(const Values& values, const std::string& option) {
  const auto name = values[option].as<std::string>();
  const std::optional<Enum> value = from_string<Enum>(name);
  if (!value) refuse_name(option, names_of(all_of<Enum>()), name);
  return *value;
}

/// Reads --format. @throws Error (usage) as read_named()
Format read_format(const Values& values);

/// Returns the parts of a value between separators: one more than there are separators, some perhaps empty.
/// They refer to the text.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Refuses a `path` that option `name` writes where it is a file of a model's folder. @throws Error (usage)
void refuse_files_of_folder(const std::string& folder, const std::string& name, const std::string& path);

/// Refuses a `path` that option `name` writes where it is also the file of another option, one of the shards
/// that such an option names, or a file of the model's folder. @throws Error (usage)
void refuse_files_of_others(const Values& values, const std::string& name, const std::string& path);

/// Reads the path of an output file; nothing where none was asked for.
/// @throws Error (output) if it could not be written, before the work whose result it is to hold; Error
/// (usage) as refuse_files_of_others()
std::optional<std::string> read_output(const Values& values, const std::string& name);

/// Looks before the long part of a command whether `directory` can be made and written to, and makes none, as
/// a run that is stopped has nothing to put there. `file` is one that will stand in it.
/// @throws Error (output) with the folder or file and the system's reason.
void check_output_directory(const std::string& directory, const std::string& file);

/// Makes the folder where it is not there yet, with those that it is in.
/// @throws Error (output) with the folder and the system's reason.
void make_output_directory(const std::string& directory);

/// Returns the options that were given, as they would be typed again, without --out and --format.
std::string typed_options(const Values& values);

/// Returns the values of all options, given or not, as a JSON object, without --out and --format.
std::string options_json(const Values& values);

}  // namespace dflop
