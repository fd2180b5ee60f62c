#include "experiments/cli/table.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "experiments/cli/say.hpp"
#include "traces/text/csv.hpp"

namespace dflop {
namespace {

std::string csv_of(const Cell& cell) {
  return std::holds_alternative<std::string>(cell) ? to_csv_field(std::get<std::string>(cell))
                                                   : plain_text(cell);
}

std::string as_blocks(const Table& table, const std::vector<std::vector<std::string>>& cells) {
  std::size_t widest = 0;
  for (const Column& column : table.columns) widest = std::max(widest, column.title.size());
  std::string out;
  for (const std::vector<std::string>& row : cells) {
    if (!out.empty()) out += '\n';
    for (std::size_t c = 0; c < row.size(); ++c) {
      out += fmt::format("{:<{}}  {}\n", table.columns[c].title, widest, row[c]);
    }
  }
  return out;
}

using Escapes = std::span<const std::pair<char, std::string_view>>;

/// Replaces the characters of `text` that are in `escapes`.
std::string escaped(std::string_view text, Escapes escapes) {
  std::string out;
  for (const char c : text) {
    const auto found = std::ranges::find(escapes, c, &std::pair<char, std::string_view>::first);
    out += found == escapes.end() ? std::string_view(&c, 1) : found->second;
  }
  return out;
}

/// Characters with a special meaning in a Markdown table cell.
constexpr std::pair<char, std::string_view> kMarkdown[] = {
    {'|', "\\|"}, {'\\', "\\\\"}, {'`', "\\`"}, {'*', "\\*"},  {'_', "\\_"},  {'[', "\\["},
    {']', "\\]"}, {'~', "\\~"},   {'$', "\\$"}, {'<', "&lt;"}, {'&', "&amp;"}};

/// Characters that LaTeX takes for commands or, in its default font encoding, prints as other characters.
constexpr std::pair<char, std::string_view> kLatex[] = {{'\\', "\\textbackslash{}"},
                                                        {'{', "\\{"},
                                                        {'}', "\\}"},
                                                        {'$', "\\$"},
                                                        {'&', "\\&"},
                                                        {'#', "\\#"},
                                                        {'_', "\\_"},
                                                        {'%', "\\%"},
                                                        {'~', "\\textasciitilde{}"},
                                                        {'^', "\\textasciicircum{}"},
                                                        {'<', "\\textless{}"},
                                                        {'>', "\\textgreater{}"},
                                                        {'|', "\\textbar{}"}};

/// Returns text as a LaTeX cell. Splits "--", which LaTeX would print as a dash, so that option names stay
/// correct.
std::string latex_cell(const std::string& text) {
  return boost::replace_all_copy(escaped(text, kLatex), "--", "-{-}");
}

std::string& result_command() {
  static std::string command;
  return command;
}

/// Returns JSON as text. Replaces bytes that are not UTF-8, which names of files may contain.
std::string dump_as_utf8(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string shown_text(const Cell& cell, const Column& column) {
  if (const auto* text = std::get_if<std::string>(&cell)) return printable(*text);
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
    if (column.scale == 1) return fmt::format("{}", *whole);
    return fmt::format("{:.{}f}", static_cast<double>(*whole) * column.scale, column.decimals);
  }
  if (const auto* number = std::get_if<double>(&cell)) {
    return fmt::format("{:.{}f}", *number * column.scale, column.decimals);
  }
  return "-";
}

bool has_words(const Table& table, std::size_t column) {
  return !table.rows.empty() && std::holds_alternative<std::string>(table.rows[0][column]);
}

Table columns_of(const Table& table, const std::function<bool(const Column&)>& is_kept) {
  Table kept;
  kept.rows.resize(table.rows.size());
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (!is_kept(table.columns[c])) continue;
    kept.columns.push_back(table.columns[c]);
    for (std::size_t r = 0; r < table.rows.size(); ++r) kept.rows[r].push_back(table.rows[r][c]);
  }
  return kept;
}

std::string to_text(const Table& table, int width) {
  std::vector<std::vector<std::string>> cells;
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) widths.push_back(column.title.size());
  for (const std::vector<Cell>& row : table.rows) {
    cells.emplace_back();
    for (std::size_t c = 0; c < row.size(); ++c) {
      cells.back().push_back(shown_text(row[c], table.columns[c]));
      widths[c] = std::max(widths[c], cells.back().back().size());
    }
  }
  std::size_t total = 0;
  for (const std::size_t w : widths) total += w + 2;
  if (width > 0 && total > static_cast<std::size_t>(width) + 2) return as_blocks(table, cells);

  std::string out;
  const auto add_line = [&](const auto& text_at) {
    std::string line;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      line += has_words(table, c) ? fmt::format("{:<{}}  ", text_at(c), widths[c])
                                  : fmt::format("{:>{}}  ", text_at(c), widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  add_line([&](std::size_t c) { return table.columns[c].title; });
  add_line([&](std::size_t c) { return std::string(widths[c], '-'); });
  for (const std::vector<std::string>& row : cells) {
    add_line([&](std::size_t c) { return row[c]; });
  }
  return out;
}

std::string to_csv(const Table& table) {
  std::string out;
  for (std::size_t c = 0; c < table.columns.size(); ++c) out += (c > 0 ? "," : "") + table.columns[c].key;
  out += '\n';
  for (const std::vector<Cell>& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) out += (c > 0 ? "," : "") + csv_of(row[c]);
    out += '\n';
  }
  return out;
}

std::string to_markdown(const Table& table) {
  std::string out = "|";
  for (const Column& column : table.columns) out += fmt::format(" {} |", escaped(column.title, kMarkdown));
  out += "\n|";
  for (std::size_t c = 0; c < table.columns.size(); ++c) out += has_words(table, c) ? " --- |" : " ---: |";
  out += '\n';
  for (const std::vector<Cell>& row : table.rows) {
    out += '|';
    for (std::size_t c = 0; c < row.size(); ++c)
      out += fmt::format(" {} |", escaped(shown_text(row[c], table.columns[c]), kMarkdown));
    out += '\n';
  }
  return out;
}

std::string to_latex(const Table& table) {
  std::string out = "% needs \\usepackage{booktabs}\n\\begin{tabular}{";
  for (std::size_t c = 0; c < table.columns.size(); ++c) out += has_words(table, c) ? 'l' : 'r';
  out += "}\n\\toprule\n";
  const auto add_line = [&](const auto& text_at) {
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      out += (c > 0 ? " & " : "") + latex_cell(text_at(c));
    out += " \\\\\n";
  };
  add_line([&](std::size_t c) { return table.columns[c].title; });
  out += "\\midrule\n";
  for (const std::vector<Cell>& row : table.rows)
    add_line([&](std::size_t c) { return shown_text(row[c], table.columns[c]); });
  return out + "\\bottomrule\n\\end{tabular}\n";
}

std::string to_json(const Table& table, int indent) {
  return dump_as_utf8(json_of(table), indent);
}

nlohmann::ordered_json json_of(const Table& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const std::vector<Cell>& row : table.rows) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (std::size_t c = 0; c < row.size(); ++c) {
      nlohmann::ordered_json& value = object[table.columns[c].key];
      if (const auto* text = std::get_if<std::string>(&row[c])) value = *text;
      if (const auto* whole = std::get_if<std::int64_t>(&row[c])) value = *whole;
      if (const auto* number = std::get_if<double>(&row[c])) value = *number;
    }
    rows.push_back(std::move(object));
  }
  return rows;
}

std::string json_text(const nlohmann::ordered_json& document) {
  return dump_as_utf8(document, 2) + '\n';
}

std::string infeasible_json(const std::string& reason) {
  nlohmann::ordered_json document;
  document["schema"] = "dflop.infeasible";
  document["version"] = 1;
  document["infeasible"] = reason;
  return json_text(document);
}

int terminal_width() {
  winsize size{};
  const bool known = isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return known ? size.ws_col : 0;
}

std::vector<std::string> lines_of(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::string terminal_text(const Table& table) {
  return to_text(table, terminal_width());
}

std::string section(std::string_view heading, const std::optional<Table>& table) {
  return table ? fmt::format("\n{}:\n\n{}", heading, terminal_text(*table)) : "";
}

void set_result_command(std::string_view command) {
  std::string& name = result_command() = command;
  std::replace(name.begin(), name.end(), ' ', '_');
}

std::string with_schema(std::string json) {
  nlohmann::ordered_json result = nlohmann::ordered_json::parse(json);
  if (result.is_object() && result.contains("schema")) return json;
  nlohmann::ordered_json named = {{"schema", "dflop.result." + result_command()}, {"version", 1}};
  if (result.is_object()) {
    named.update(result);
  } else {
    named["rows"] = std::move(result);
  }
  return json_text(named);
}

void print_table(const Table& table, Format format) {
  switch (format) {
    case Format::table:
      fmt::print("{}", terminal_text(table));
      break;
    case Format::json:
      fmt::print("{}", with_schema(to_json(table, 2)));
      break;
    case Format::csv:
      fmt::print("{}", to_csv(table));
      break;
    case Format::markdown:
      fmt::print("{}", to_markdown(table));
      break;
    case Format::latex:
      fmt::print("{}", to_latex(table));
  }
}

void print_result(Format format, const std::function<std::string()>& text,
                  const std::function<std::string()>& json, const Table& csv) {
  switch (format) {
    case Format::table:
      fmt::print("{}", text());
      break;
    case Format::json:
      fmt::print("{}", with_schema(json()));
      break;
    case Format::csv:
    case Format::markdown:
    case Format::latex:
      print_table(csv, format);
  }
}

void print_infeasible(Format format, const std::string& reason) {
  if (format == Format::json) fmt::print("{}", infeasible_json(reason));
}

std::string plain_text(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&cell)) return shortest(*number);
  return "";
}

std::string shortest(double value) {
  return fmt::format("{}", value);
}

}  // namespace dflop
