#include "traces/text/csv.hpp"

#include <algorithm>
#include <utility>

#include "core/refuse.hpp"
#include "traces/text/utf8.hpp"

namespace dflop {

CsvReader::CsvReader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // written by spreadsheets
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
}

bool CsvReader::next(std::vector<std::string_view>& fields) {
  fields.clear();
  if (text_.find_first_not_of("\r\n", position_) == std::string_view::npos && ends_in_empty_lines()) {
    position_ = text_.size();
    return false;
  }
  row_ = line_;
  do {
    fields.push_back(read_field());
  } while (take(','));
  end_row();
  return true;
}

bool CsvReader::next(std::vector<std::string_view>& fields, std::size_t width) {
  if (!next(fields)) return false;
  if (fields.size() != width) refuse_input(place(), "expected {} fields, found {}", width, fields.size());
  return true;
}

std::string CsvReader::place() const {
  return fmt::format("{}:row {}", file_, row_);
}

std::string CsvReader::place(std::string_view column) const {
  return fmt::format("{}:row {}, column '{}'", file_, row_, column);
}

bool CsvReader::ends_in_empty_lines() const {
  for (std::size_t at = position_; at < text_.size(); ++at) {
    if (text_[at] == '\r' && (at + 1 == text_.size() || text_[at + 1] != '\n')) return false;  // a lone one
  }
  return true;
}

std::string_view CsvReader::read_field() {
  if (take('"')) return read_quoted();
  const std::size_t begin = position_;
  const auto ends_field = [](char c) { return c == ',' || c == '\n' || c == '\r' || c == '"'; };
  while (position_ < text_.size() && !ends_field(text_[position_])) ++position_;
  return text_.substr(begin, position_ - begin);
}

std::string_view CsvReader::read_quoted() {
  const std::size_t begin = position_;
  do {
    position_ = text_.find('"', position_);
    if (position_ == std::string_view::npos) {
      refuse_input(place(), "expected a closing quote, found the end of the file");
    }
    ++position_;
  } while (take('"'));
  const std::string_view field = text_.substr(begin, position_ - 1 - begin);
  line_ += std::count(field.begin(), field.end(), '\n');
  return field;
}

void CsvReader::end_row() {
  if (position_ == text_.size()) return;
  const char found = text_[position_];
  take('\r');
  if (take('\n')) {
    ++line_;
    return;
  }
  const std::string_view name = found == '"' ? "a quote" : found == '\r' ? "a lone carriage return" : "text";
  refuse_input(place(), "expected a comma or the end of the line after a field, found {}", name);
}

bool CsvReader::take(char expected) {
  if (position_ == text_.size() || text_[position_] != expected) return false;
  ++position_;
  return true;
}

namespace {

/// Tells whether a text is a number with an optional sign and an optional percent sign.
bool is_plain_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  if (text.ends_with('%')) text.remove_suffix(1);
  if (text.ends_with(' ')) text.remove_suffix(1);
  double number = 0;
  return parse_number(text, number);
}

/// Tells whether a spreadsheet would run a text, ignoring any number of leading '.
bool is_formula(std::string_view text) {
  if (is_plain_number(text)) return false;
  const std::size_t begin = text.find_first_not_of('\'');
  return begin != std::string_view::npos &&
         std::string_view("=+-@\t\r\n").find(text[begin]) != std::string_view::npos;
}

}  // namespace

std::string to_csv_field(std::string_view text) {
  std::string field = is_formula(text) ? "'" : "";
  field += text;
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string text_of_csv_field(std::string_view field) {
  std::string text = unquote(field);
  if (text.starts_with('\'') && is_formula(text)) text.erase(0, 1);
  return text;
}

std::string CsvReader::id(std::string_view field, std::string_view column) const {
  if (const auto wrong = find_no_utf8(field)) {
    refuse_input(place(column),
                 "expected UTF-8, found the byte 0x{:02x}; convert the file, as with iconv -t UTF-8",
                 static_cast<unsigned char>(field[*wrong]));
  }
  return text_of_csv_field(field);
}

std::string unquote(std::string_view field) {
  std::string value;
  value.reserve(field.size());
  for (std::size_t i = 0; i < field.size(); ++i) {
    value += field[i];
    if (field[i] == '"') ++i;
  }
  return value;
}

}  // namespace dflop
