// A CsvReader splits CSV text (RFC 4180) into rows of fields without copying.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace dflop {

/// A CsvReader returns the rows of a text one by one.
class CsvReader {
 public:
  /// Starts at the first row, after an optional byte order mark. `text` must outlive the reader and the
  /// fields that it returns; `file` is named in errors.
  CsvReader(std::string_view text, std::string file);

  /// Reads the next row into `fields`; returns false at the end of the text. Empty lines at the end are not
  /// rows. A quoted field comes without its
  /// outer quotes but with every quote inside it still doubled: see unquote(). Rows end with LF or CRLF.
  /// @throws Error (input) for a quote that is never closed or stands inside a field, and for a lone CR.
  bool next(std::vector<std::string_view>& fields);

  /// Reads the next row like the other next(), and checks that it has `width` fields.
  /// @throws Error (input) if the number of fields differs; what the other next() throws
  bool next(std::vector<std::string_view>& fields, std::size_t width);

  /// Returns the line on which the last row begins; the first line is 1.
  std::int64_t row() const { return row_; }
  /// Returns the place, for errors, of the last row or of a column in that row: "file:row 7, column 'fps'".
  std::string place() const;
  std::string place(std::string_view column) const;

  /// Returns the id in a field of the last row. @throws Error (input) for bytes that are not UTF-8, because
  /// JSON outputs would replace these bytes, and two ids could become equal.
  std::string id(std::string_view field, std::string_view column) const;

 private:
  std::string_view read_field();
  std::string_view read_quoted();
  /// Tells whether the rest of the text, which has only line ends, has no lone CR.
  bool ends_in_empty_lines() const;
  void end_row();
  bool take(char expected);

  std::string_view text_;
  std::string file_;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
  std::int64_t row_ = 0;
};

/// Returns the value of a field, with doubled quotes made single. An unquoted field stays unchanged.
std::string unquote(std::string_view field);

/// Returns a text as a CSV field, quoted if necessary. Spreadsheets run a text that begins with = + - @, a
/// tab or a line end as a formula. To prevent this, the field begins with an additional ' in front of such a
/// text. The same holds if only ' characters precede such a beginning, so that text_of_csv_field() can always
/// remove the additional '. Plain numbers and percentages, such as "-1.5" and "-82 %", are harmless and stay
/// unchanged.
std::string to_csv_field(std::string_view text);

/// Returns the text that to_csv_field() wrote as this field. Fields that other programs wrote are read, too.
std::string text_of_csv_field(std::string_view field);

/// Reads a field that contains only a number. Returns false if the field contains anything else or the number
/// does not fit its type.
template <typename Number>
bool parse_number(std::string_view field, Number& number) {
  const char* end = field.data() + field.size();
  const auto [stop, problem] = std::from_chars(field.data(), end, number);
  return problem == std::errc() && stop == end;
}

/// Reads a field that contains only a whole number, also as "726.0": pandas writes the numbers of a column
/// with empty cells so. Returns false for anything else.
template <typename Int>
bool parse_whole(std::string_view field, Int& number) {
  const std::size_t dot = field.find('.');
  const bool has_zeros = dot != std::string_view::npos && dot + 1 < field.size() &&
                         field.find_first_not_of('0', dot + 1) == std::string_view::npos;
  return parse_number(has_zeros ? field.substr(0, dot) : field, number);
}

}  // namespace dflop
