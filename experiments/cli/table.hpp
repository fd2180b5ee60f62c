// A Table has results for people as text, Markdown and LaTeX and for machines as JSON and CSV: one
// description for all of them.
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

/// Returns whether a format is read by people, who see titles and rounded values, and not by programs.
constexpr bool is_for_people(Format format) {
  return format != Format::json && format != Format::csv;
}

/// A Cell is a value; a missing one prints as "-" for people, null in JSON and nothing in CSV. A time is its
/// seconds, an amount of memory its bytes, and a truth "yes" or "no".
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
  std::string key;    ///< JSON and CSV, with the unit: "peak_memory_bytes"
  std::string title;  ///< table: "peak GiB"
  int decimals = 0;   ///< table
  double scale = 1;   ///< table shows value * scale
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

/// Returns a table of only those columns for which `is_kept` is true.
Table columns_of(const Table& table, const std::function<bool(const Column&)>& is_kept);

/// Returns aligned columns; where `width` is positive and the table is wider, one block of "title: value"
/// lines per row.
std::string to_text(const Table& table, int width = 0);

/// Returns CSV as RFC 4180 has it, header first.
std::string to_csv(const Table& table);

/// Returns a table as GitHub's Markdown has it, numbers to the right.
std::string to_markdown(const Table& table);

/// Returns a LaTeX tabular with the rules of the package booktabs, numbers to the right.
std::string to_latex(const Table& table);

/// Returns a JSON array with one object per row. Text that is not UTF-8 is made so.
std::string to_json(const Table& table, int indent);

/// Returns the array as a value, for documents that hold more than one table; json_text() makes text of them.
nlohmann::ordered_json json_of(const Table& table);

/// Returns a document as text that ends with a line end. Text that is not UTF-8 is made so.
std::string json_text(const nlohmann::ordered_json& document);

/// Returns the document of schema "dflop.infeasible", version 1, that stands in the place of a result where
/// nothing is what was asked for: the reason, under "infeasible".
std::string infeasible_json(const std::string& reason);

/// Returns the text of a table as wide as the terminal on standard output allows; where that is none, as wide
/// as it is.
std::string terminal_text(const Table& table);

/// Returns the width of the terminal on standard output in columns; 0 without one.
int terminal_width();

/// Breaks a text between words into lines of at most `width` letters; a longer word has a line of its own.
std::vector<std::string> lines_of(const std::string& text, std::size_t width);

/// Returns the text of a cell as tables for people show it: rounded to the column's decimals, "-" for a
/// missing value.
std::string shown_text(const Cell& cell, const Column& column);

/// Returns whether a column has words, which are aligned to the left, and not numbers: the first row decides.
bool has_words(const Table& table, std::size_t column);

/// Returns a blank line, the heading and a table as wide as the terminal allows; nothing without a table.
std::string section(std::string_view heading, const std::optional<Table>& table);

/// Sets the command whose results are printed, as "sweep export": JSON that says no schema of its own gets
/// "dflop.result.sweep_export", version 1.
void set_result_command(std::string_view command);

/// Returns a result, as JSON text, with schema and version: an object that says none gets them first, and an
/// array becomes their "rows".
std::string with_schema(std::string json);

/// Prints a table, for people at a terminal as wide as that allows. JSON is {"schema", "version", "rows"}.
void print_table(const Table& table, Format format);

/// Prints a result of more than one table: its text, its JSON, or the table that is its CSV, Markdown and
/// LaTeX. Of text() and json() only the one that is printed is called.
void print_result(Format format, const std::function<std::string()>& text,
                  const std::function<std::string()>& json, const Table& csv);

/// Prints, as JSON alone, an object with the reason why there is no result; nothing in other formats.
void print_infeasible(Format format, const std::string& reason);

/// Returns the text of a cell as CSV has it, without quotes; nothing for a missing one.
std::string plain_text(const Cell& cell);

/// Returns the shortest text that reads back as the same double.
std::string shortest(double value);

}  // namespace dflop
