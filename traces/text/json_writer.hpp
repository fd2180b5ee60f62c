// A JsonWriter builds indented JSON text and puts each long array of numbers on one line.
#pragma once

#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

namespace dflop {

/// Appends `value` in quotes. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& text, std::string_view value);

/// Appends the shortest decimal that reads back as the same double.
/// @throws Error (internal) for NaN and infinity, which JSON cannot hold.
void append_json_number(std::string& text, double value);

template <typename Range, typename Project = std::identity>
void append_json_row(std::string& text, const Range& items, Project project = {});

/// Appends a scalar (bool, integer, double or string) or a row of scalars.
template <typename Value>
void append_json(std::string& text, const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    text += value ? "true" : "false";
  } else if constexpr (std::is_floating_point_v<Value>) {
    append_json_number(text, value);
  } else if constexpr (std::is_integral_v<Value>) {
    char digits[24];
    text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    append_json_string(text, value);
  } else {
    append_json_row(text, value);
  }
}

/// Appends an array of project(item) for each item, such as [1,2,3].
template <typename Range, typename Project>
void append_json_row(std::string& text, const Range& items, Project project) {
  text += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) text += ',';
    first = false;
    append_json(text, project(item));
  }
  text += ']';
}

/// A JsonWriter builds one JSON document. Pass a key for each member of an object, and an empty key for each
/// element of an array.
class JsonWriter {
 public:
  /// Begins the root object.
  JsonWriter() { begin_object(); }
  /// Begins the root object of a file, with the keys 'schema' and 'version'.
  JsonWriter(std::string_view schema, int version) : JsonWriter() {
    field("schema", schema);
    field("version", version);
  }

  void begin_object(std::string_view key = {}) { begin(key, '{'); }
  void end_object() { end('}'); }
  void begin_array(std::string_view key) { begin(key, '['); }
  void end_array() { end(']'); }

  /// Writes one scalar member.
  template <typename Value>
  void field(std::string_view key, const Value& value) {
    begin_item(key);
    append_json(text_, value);
  }

  /// Writes one array of scalars, on one line.
  template <typename Range, typename Project = std::identity>
  void row(std::string_view key, const Range& items, Project project = {}) {
    begin_item(key);
    append_json_row(text_, items, project);
  }

  /// Writes one member or element that already is JSON text.
  void raw(std::string_view key, std::string_view json) {
    begin_item(key);
    text_ += json;
  }

  /// Ends the root object and returns the document; the writer is empty afterwards.
  std::string finish();

 private:
  void begin_item(std::string_view key);
  void begin(std::string_view key, char bracket);
  void end(char bracket);
  void new_line();

  std::string text_;
  int depth_ = 0;
  bool first_ = true;  ///< the innermost object or array has no item yet
};

}  // namespace dflop
