// A Table has results for people as text and for machines as JSON and CSV: one description, three renderings.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dflop {

enum class Format : std::uint8_t { table, json, csv };
std::optional<Format> format_from_string(std::string_view name);

/// A Cell is a value; a missing one prints as "-" in a table, null in JSON and nothing in CSV.
using Cell = std::variant<std::monostate, std::string, std::int64_t, double>;

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

/// Returns aligned columns; where `width` is positive and the table is wider, one block of "title: value"
/// lines per row.
std::string to_text(const Table& table, int width = 0);

/// Returns CSV as RFC 4180 has it, header first.
std::string to_csv(const Table& table);

/// Returns a JSON array with one object per row.
std::string to_json(const Table& table, int indent);

/// Returns the array as a value, for documents that hold more than one table. Text that is not UTF-8 is made
/// so.
nlohmann::ordered_json json_of(const Table& table);

/// Prints in one of the three renderings, the table as wide as the terminal allows.
void print_table(const Table& table, Format format);

/// Returns the text of a cell as CSV has it, without quotes; nothing for a missing one.
std::string plain_text(const Cell& cell);

/// Returns the shortest text that reads back as the same double.
std::string shortest(double value);

/// Returns the columns of the terminal on standard output; 0 where it is not a terminal.
int terminal_width();

}  // namespace dflop
