// This file reads JSON strictly: anything unexpected is an Error that names the file, the key, the expected
// and the found value.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/names.hpp"

namespace dflop {

/// The root of a file of any schema may have this key, which says how the file was made
/// (traces/files/provenance.hpp).
inline constexpr std::string_view kMadeBy = "made_by";

/// A JsonValue is a view of one value of a document, together with its place for errors. The document must
/// outlive it. All getters throw Error (input) with the context "file: key 'llm.layers[3]'".
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, const std::string& file, std::string path)
      : json_(&json), file_(&file), path_(std::move(path)) {}

  /// Rejects anything but an object that has all `required` keys and, in addition, only `optional` keys. The
  /// root may also have kMadeBy.
  void require_keys(const std::vector<std::string_view>& required,
                    const std::vector<std::string_view>& optional = {}) const;

  /// Rejects anything but an object.
  void require_object() const;

  /// Returns a required member of an object.
  JsonValue at(std::string_view key) const;
  bool has(std::string_view key) const;
  bool is_array() const;
  bool is_object() const;
  bool is_string() const;

  /// Returns the value as JSON text.
  std::string text() const;

  /// Returns the keys and values of an object, in byte order of the keys.
  std::vector<std::pair<std::string, JsonValue>> members() const;
  /// Returns the elements of an array.
  std::vector<JsonValue> elements() const;
  /// Returns the elements of an array of whole numbers, each in [least, most].
  std::vector<std::int64_t> integers(std::int64_t least, std::int64_t most) const;
  std::vector<double> numbers() const;
  /// Returns the elements of an array of `size` numbers, each in [least, most].
  std::vector<double> numbers(std::size_t size, double least, double most) const;

  /// Returns a whole number in [least, most]. 1e6 and 1000000.0 count as whole numbers, up to 2^53.
  template <typename Int = int>
  Int integer(std::type_identity_t<Int> least,
              std::type_identity_t<Int> most = std::numeric_limits<Int>::max()) const {
    return static_cast<Int>(integer_in(least, most));
  }
  std::uint64_t unsigned_integer() const;
  double number() const;        ///< finite
  double non_negative() const;  ///< finite, >= 0
  double number_in(double least, double most) const;
  const std::string& string() const;
  bool boolean() const;

  /// Returns the element of `choices` whose to_string() name equals this string.
  template <typename Enum>
  Enum choice(const std::vector<Enum>& choices) const {
    return choices[choice_index(names_of(choices))];
  }
  template <typename Enum>
  Enum choice(std::initializer_list<Enum> choices) const {
    return choice(std::vector<Enum>(choices));
  }
  /// Returns the value of `Enum` whose to_string() name equals this string.
  template <Named Enum>
  Enum choice() const {
    return choice(all_of<Enum>());
  }
  /// Returns the index of this string in `names`.
  std::size_t choice_index(const std::vector<std::string_view>& names) const;

  /// Rejects the value with a message, or with fmt::format() of a message and values.
  /// @throws Error (input) with this value's place.
  [[noreturn]] void refuse(const std::string& message) const;
  template <typename First, typename... Rest>
  [[noreturn]] void refuse(fmt::format_string<First, Rest...> message, First&& first, Rest&&... rest) const {
    refuse(fmt::format(message, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  /// Rejects the value with "expected ..., found ..."; the text after "found" describes this value.
  [[noreturn]] void refuse_type(const std::string& expected) const;
  template <typename First, typename... Rest>
  [[noreturn]] void refuse_type(fmt::format_string<First, Rest...> expected, First&& first,
                                Rest&&... rest) const {
    refuse_type(fmt::format(expected, std::forward<First>(first), std::forward<Rest>(rest)...));
  }

 private:
  std::int64_t integer_in(std::int64_t least, std::int64_t most) const;
  JsonValue element(std::size_t index) const;

  const nlohmann::json* json_;
  const std::string* file_;
  std::string path_;
};

/// A JsonDocument is a parsed JSON text.
class JsonDocument {
 public:
  /// Parses a text.
  /// @throws Error (input) with "file:line:column" for a syntax error, including a truncated document; Error
  /// (input) with the key if an object repeats a key or if a number does not fit a double.
  JsonDocument(std::string_view text, std::string file);
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  /// Returns the root, an object with this "schema" and a "version" of at most `version`.
  /// @throws Error (input) if the schema differs or the version is newer.
  JsonValue root(std::string_view schema, int version) const;
  JsonValue root() const;

 private:
  std::string file_;
  std::unique_ptr<const nlohmann::json> json_;
};

}  // namespace dflop
