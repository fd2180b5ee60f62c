#include "experiments/options/overhead_option.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "experiments/cli/value_text.hpp"

namespace dflop {
namespace {

constexpr std::string_view kAllowance = "allowance";
constexpr std::string_view kParts[] = {"data", "checkpoints", "evaluation", "restarts", "other"};
constexpr double kMaxPart = 10;
constexpr const char* kOverheadForm =
    "fractions of step time from 0 to 10, such as 0.05 or "
    "data=0.02,checkpoints=0.01,evaluation=0.01,restarts=0.02,allowance";

double allowance_of(const std::vector<NamedNotes>& notes) {
  double most = 0;
  for (const auto& [name, of] : notes) {
    if (!of.allowance)
      refuse_option("overhead", fmt::format("'{}' has no allowance: none was measured", name));
    most = std::max(most, *of.allowance);
  }
  return most;
}

}  // namespace

void add_overhead_option(Options& options) {
  options.add({
      {"overhead", text("X|PART=X,..."),
       "with --train-samples: add time for work outside training steps, as a fraction of step time, such "
       "as 0.05, or by part: data=0.02,checkpoints=0.01,evaluation=0.01,restarts=0.02,other=0.01; "
       "'allowance' adds the overhead measured for the cluster; default: none"},
  });
}

Overhead read_overhead(const Values& values, const std::vector<NamedNotes>& notes) {
  Overhead overhead;
  const std::optional<std::string> text = read_text(values, "overhead");
  if (!text) return overhead;
  for (const std::string_view part : split(*text, ',')) {
    ValueText reader("overhead", kOverheadForm, part);
    std::string name = "other";
    double value = 0;
    if (reader.take(kAllowance)) {
      name = kAllowance;
      value = allowance_of(notes);
    } else {
      if (!reader.starts_with_digit()) {
        name = reader.word_before("=");
        reader.expect("=");
        if (std::ranges::find(kParts, name) == std::end(kParts)) reader.fail();
      }
      value = reader.number(0.0, kMaxPart);
    }
    reader.expect_end();
    const auto same = [&](const auto& other) { return other.first == name; };
    if (std::ranges::any_of(overhead.parts, same)) reader.fail();
    overhead.parts.emplace_back(name, value);
  }
  return overhead;
}

}  // namespace dflop
