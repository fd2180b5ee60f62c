// A Table describes results once and prints them for people as text, Markdown or LaTeX, and for programs as
// JSON or CSV.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/names.hpp"
#include "core/units.hpp"

namespace dflop {

enum class Format : std::uint8_t { table, json, csv, markdown, latex };

template <>
inline constexpr NameTable<Format, 5> kNames<Format> = {{{Format::table, "table"},
                                                         {Format::json, "json"},
                                                         {Format::csv, "csv"},
                                                         {Format::markdown, "markdown"},
                                                         {Format::latex, "latex"}}};

/// Returns whether a format is for people, with titles and rounded values, and not for programs.
constexpr bool is_for_people(Format format) {
  return format != Format::json && format != Format::csv;
}

/// A Cell is a value of a table. A missing value prints as "-" for people, null in JSON and an empty field in
/// CSV. Times are stored in seconds, memory in bytes, and booleans as "yes" or "no".
class Cell : public std::variant<std::monostate, std::string, std::int64_t, double> {
 public:
  Cell() = default;
  Cell(std::string text) : variant(std::move(text)) {}
  Cell(std::string_view text) : variant(std::string(text)) {}
  Cell(const char* text) : variant(std::string(text)) {}
  Cell(std::same_as<bool> auto truth) : Cell(truth ? "yes" : "no") {}
  template <std::integral Whole>
  requires(!std::same_as<Whole, bool>) Cell(Whole whole) : variant(static_cast<std::int64_t>(whole)) {}
  Cell(double number) : variant(number) {}
  Cell(Bytes bytes) : Cell(bytes.count) {}
  template <typename Count, typename Period>
  Cell(std::chrono::duration<Count, Period> time) : Cell(Seconds(time).count()) {}
  template <typename Value>
  Cell(const std::optional<Value>& value) : Cell(value ? Cell(*value) : Cell()) {}
};

struct Column {
  std::string key;    ///< name in JSON and CSV, with the unit: "peak_memory_bytes"
  std::string title;  ///< heading for people: "peak GiB"
  int decimals = 0;   ///< table
  double scale = 1;   ///< people see value * scale
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

/// Returns a table of only those columns for which `is_kept` is true.
Table columns_of(const Table& table, const std::function<bool(const Column&)>& is_kept);

/// Returns a table as text with aligned columns. If `width` is positive and the table is wider, returns a
/// block of "title: value" lines for each row instead.
std::string to_text(const Table& table, int width = 0);

/// Returns a table as CSV (RFC 4180) with a header.
std::string to_csv(const Table& table);

/// Returns a table in GitHub's Markdown, with numbers aligned to the right.
std::string to_markdown(const Table& table);

/// Returns a LaTeX tabular with the rules of the package booktabs and numbers aligned to the right.
std::string to_latex(const Table& table);

/// Returns a table as a JSON array with one object per row. Invalid UTF-8 is replaced.
std::string to_json(const Table& table, int indent);

/// Returns the array of to_json() as a JSON value, for documents with several tables. json_text() returns
/// their text.
nlohmann::ordered_json json_of(const Table& table);

/// Returns a JSON document as text that ends with a newline. Invalid UTF-8 is replaced.
std::string json_text(const nlohmann::ordered_json& document);

/// Returns the JSON document that replaces a result if a request is infeasible (schema "dflop.infeasible",
/// version 1). Its key "infeasible" has the reason.
std::string infeasible_json(const std::string& reason);

/// Returns a table as text, limited to the terminal's width if standard output is a terminal.
std::string terminal_text(const Table& table);

/// Returns the width in columns of the terminal on standard output; 0 if it is not a terminal.
int terminal_width();

/// Breaks a text between words into lines of at most `width` characters. A longer word gets its own line.
std::vector<std::string> lines_of(const std::string& text, std::size_t width);

/// Returns the text of a cell for people: rounded to the column's decimals, "-" for a missing value.
std::string shown_text(const Cell& cell, const Column& column);

/// Returns whether a column has words, which are aligned to the left, instead of numbers. The first row
/// decides.
bool has_words(const Table& table, std::size_t column);

/// Returns a blank line, the heading and the table, limited to the terminal's width; empty if there is no
/// table.
std::string section(std::string_view heading, const std::optional<Table>& table);

/// Sets the command whose results are printed, such as "sweep export". JSON results without a schema then get
/// the schema "dflop.result.sweep_export", version 1.
void set_result_command(std::string_view command);

/// Adds the schema and version to a result in JSON text. An object without a schema gets both as its first
/// keys. An array becomes the value of "rows" in an object with both.
std::string with_schema(std::string json);

/// Prints a table. Text is limited to the terminal's width. JSON is {"schema", "version", "rows"}.
void print_table(const Table& table, Format format);

/// Prints a result with several tables: text() as text, json() as JSON, and the table `csv` as CSV, Markdown
/// or LaTeX. Calls only the function whose result is printed.
void print_result(Format format, const std::function<std::string()>& text,
                  const std::function<std::string()>& json, const Table& csv);

/// If `format` is JSON, prints infeasible_json(reason). Prints nothing in other formats.
void print_infeasible(Format format, const std::string& reason);

/// Returns the text of a cell for CSV, before quoting; empty for a missing value.
std::string plain_text(const Cell& cell);

/// Returns the shortest text that parses to the same double.
std::string shortest(double value);

}  // namespace dflop
