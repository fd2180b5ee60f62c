#include "traces/files/items.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "core/error.hpp"
#include "traces/text/csv.hpp"

namespace dflop {
namespace {

constexpr std::array<std::string_view, 4> kColumns = {"id", "encoder_s", "llm_s", "tokens"};
constexpr std::size_t kRequired = 3;
constexpr std::size_t kTokens = 3;

/// Returns what was found, fit for one line.
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
      if (column == kColumns.end())
        throw Error(ErrorKind::input,
                    "expected the columns id, encoder_s, llm_s and tokens, found " + in_quotes(fields[f]),
                    place);
      std::optional<std::size_t>& field = field_[column - kColumns.begin()];
      if (field) throw Error(ErrorKind::input, "column " + in_quotes(fields[f]) + " is there twice", place);
      field = f;
    }
    for (std::size_t c = 0; c < kRequired; ++c) {
      if (!field_[c])
        throw Error(ErrorKind::input, fmt::format("column '{}' is missing", kColumns[c]), place);
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
  throw Error(ErrorKind::input,
              fmt::format("expected a {}number from 0 to {:g}, found {}", whole ? "whole " : "", most,
                          in_quotes(text)),
              place);
}

}  // namespace

ItemList parse_items(std::string_view csv, const std::string& file) {
  CsvReader reader(csv, file);
  std::vector<std::string_view> fields;
  const auto row = [&] { return fmt::format("{}:row {}", file, reader.row()); };
  if (!reader.next(fields)) throw Error(ErrorKind::input, "expected a header, found an empty file", file);
  const Header header(fields, row());
  ItemList items;
  std::unordered_map<std::string, std::int64_t> row_of;
  while (reader.next(fields)) {
    if (fields.size() != header.width())
      throw Error(ErrorKind::input,
                  fmt::format("expected {} fields, found {}", header.width(), fields.size()), row());
    const auto place = [&](std::size_t c) { return fmt::format("{}, column '{}'", row(), kColumns[c]); };
    std::string id = unquote(header.field(fields, 0));
    if (id.empty()) throw Error(ErrorKind::input, "expected an id, found an empty field", place(0));
    const auto [other, is_new] = row_of.try_emplace(id, reader.row());
    if (!is_new)
      throw Error(
          ErrorKind::input,
          fmt::format("expected ids that differ, found {}, as in row {}", in_quotes(id), other->second),
          place(0));
    items.ids.push_back(std::move(id));
    items.encoder_s.push_back(read_number(header.field(fields, 1), kLongestItem, false, place(1)));
    items.llm_s.push_back(read_number(header.field(fields, 2), kLongestItem, false, place(2)));
    if (header.has_tokens())
      items.tokens.push_back(
          read_number(header.field(fields, kTokens), kMostItemTokens, true, place(kTokens)));
  }
  if (items.ids.empty()) throw Error(ErrorKind::input, "expected at least one item after the header", file);
  return items;
}

}  // namespace dflop
