#include "traces/files/items.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "core/refuse.hpp"
#include "traces/text/csv.hpp"

namespace dflop {
namespace {

constexpr std::array<std::string_view, 4> kColumns = {"id", "encoder_s", "llm_s", "tokens"};
constexpr std::size_t kRequired = 3;
constexpr std::size_t kTokens = 3;

/// Returns the found text, shortened to one line.
std::string in_quotes(std::string_view found) {
  if (found.empty()) return "an empty field";
  std::string text(found.substr(0, 60));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return "'" + text + "'";
}

/// A Header says where each column is in a row.
class Header {
 public:
  Header(const std::vector<std::string_view>& fields, const std::string& place) : width_(fields.size()) {
    for (std::size_t f = 0; f < fields.size(); ++f) {
      const auto column = std::find(kColumns.begin(), kColumns.end(), fields[f]);
      if (column == kColumns.end()) {
        refuse_input(place, "expected the columns id, encoder_s, llm_s and tokens, found {}",
                     in_quotes(fields[f]));
      }
      std::optional<std::size_t>& field = field_[column - kColumns.begin()];
      if (field) refuse_input(place, "column {} occurs twice", in_quotes(fields[f]));
      field = f;
    }
    for (std::size_t c = 0; c < kRequired; ++c) {
      if (!field_[c]) refuse_input(place, "column '{}' is missing", kColumns[c]);
    }
  }

  std::size_t width() const { return width_; }
  bool has_tokens() const { return field_[kTokens].has_value(); }
  std::string_view field(const std::vector<std::string_view>& fields, std::size_t column) const {
    return fields[*field_[column]];
  }

 private:
  std::size_t width_;
  std::array<std::optional<std::size_t>, kColumns.size()> field_;
};

double read_number(std::string_view text, double most, bool whole, const std::string& place) {
  double value = 0;
  // The comparison is written so that NaN fails it.
  if (parse_number(text, value) && value >= 0 && value <= most && !(whole && value != std::floor(value)))
    return value;
  refuse_input(place, "expected a {}number from 0 to {:g}{}, found {}", whole ? "whole " : "", most,
               whole ? "" : ", a cost in the same unit for all items, such as seconds", in_quotes(text));
}

}  // namespace

ItemList parse_items(std::string_view csv, const std::string& file) {
  CsvReader reader(csv, file);
  std::vector<std::string_view> fields;
  if (!reader.next(fields)) refuse_input(file, "expected a header, found an empty file");
  const Header header(fields, reader.place());
  ItemList items;
  std::unordered_map<std::string, std::int64_t> row_of;
  while (reader.next(fields, header.width())) {
    const auto number = [&](std::size_t c, double most, bool whole) {
      return read_number(header.field(fields, c), most, whole, reader.place(kColumns[c]));
    };
    std::string id = reader.id(header.field(fields, 0), kColumns[0]);
    if (id.empty()) refuse_input(reader.place(kColumns[0]), "expected an id, found an empty field");
    const auto [other, is_new] = row_of.try_emplace(id, reader.row());
    if (!is_new) {
      refuse_input(reader.place(kColumns[0]), "expected ids that differ, found {}, as in row {}",
                   in_quotes(id), other->second);
    }
    items.ids.push_back(std::move(id));
    items.encoder_s.push_back(number(1, kLongestItem, false));
    items.llm_s.push_back(number(2, kLongestItem, false));
    if (header.has_tokens()) items.tokens.push_back(number(kTokens, kMaxItemTokens, true));
  }
  if (items.ids.empty()) refuse_input(file, "expected at least one item after the header");
  return items;
}

}  // namespace dflop
