#include "traces/files/bins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/refuse.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMostBin = std::numeric_limits<std::int32_t>::max();

BinsOfIteration bins_of(const JsonValue& json) {
  BinsOfIteration bins;
  for (const std::int64_t bin : json.integers(0, kMostBin))
    bins.bin.push_back(static_cast<std::int32_t>(bin));
  return bins;
}

std::vector<BinsOfIteration> bins_of_json(std::string_view text, const std::string& file) {
  const JsonDocument document(text, file);
  const JsonValue root = document.root();
  const std::vector<JsonValue> elements = root.elements();
  if (!elements.empty() && !elements.front().is_array()) return {bins_of(root)};
  std::vector<BinsOfIteration> iterations;
  for (const JsonValue& element : elements) iterations.push_back(bins_of(element));
  return iterations;
}

std::vector<BinsOfIteration> bins_of_csv(std::string_view text, const std::string& file) {
  CsvReader reader(text, file);
  std::vector<std::string_view> fields;
  if (!reader.next(fields))
    refuse_input(file, "expected a header with the column 'bin', found an empty file");
  const std::size_t width = fields.size();
  const auto column = [&](std::string_view name) {
    return static_cast<std::size_t>(std::find(fields.begin(), fields.end(), name) - fields.begin());
  };
  const std::size_t bin_column = column("bin");
  const std::size_t iteration_column = column("iteration");
  const std::size_t sample_column = column("sample");
  if (bin_column == width) refuse_input(reader.place(), "expected a column 'bin' in the header, found none");
  std::vector<BinsOfIteration> iterations(1);
  while (reader.next(fields, width)) {
    if (iteration_column < width) {
      std::size_t iteration = 0;
      const std::size_t current = iterations.size() - 1;
      const bool begins = !iterations.back().bin.empty();
      if (!parse_number(fields[iteration_column], iteration) || iteration < current ||
          iteration > current + (begins ? 1 : 0)) {
        refuse_input(reader.place("iteration"), "expected {}, found '{}'",
                     begins ? fmt::format("{} or {}", current, current + 1) : std::to_string(current),
                     fields[iteration_column]);
      }
      if (iteration > current) iterations.emplace_back();
    }
    std::int64_t bin = 0;
    if (!parse_number(fields[bin_column], bin) || bin < 0 || bin > kMostBin)
      refuse_input(reader.place("bin"), "expected a bin from 0 on, found '{}'", fields[bin_column]);
    iterations.back().bin.push_back(static_cast<std::int32_t>(bin));
    if (sample_column < width) iterations.back().samples.push_back(unquote(fields[sample_column]));
  }
  return iterations;
}

}  // namespace

std::vector<BinsOfIteration> parse_bins(std::string_view text, const std::string& file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '[';
  std::vector<BinsOfIteration> iterations = is_json ? bins_of_json(text, file) : bins_of_csv(text, file);
  if (iterations.empty() || iterations.front().bin.empty()) refuse_input(file, "expected bins, found none");
  return iterations;
}

}  // namespace dflop
