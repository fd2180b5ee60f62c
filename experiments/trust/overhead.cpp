#include "experiments/trust/overhead.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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

double Overhead::sum() const {
  double sum = 0;
  for (const auto& [name, part] : parts) sum += part;
  return sum;
}

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

void assume_time(AssumptionBlock& block, const std::vector<NamedNotes>& notes, const Overhead& overhead,
                 bool has_hours) {
  block.add("time",
            "iterations are pure training steps: they exclude launch gaps beyond the preset's, data loading, "
            "memory fragmentation and lower clocks under load");
  for (const auto& [name, of] : notes) {
    if (of.allowance) {
      block.add(
          "time",
          fmt::format("{}: when measured, the time from step to step was {:.1f} % longer than the step's "
                      "compute ({}); iteration times exclude this",
                      name, 100 * *of.allowance, of.allowance_source),
          {{"name", name}, {"allowance", *of.allowance}});
    } else {
      block.add("time", fmt::format("{}: no allowance for this was measured", name),
                {{"name", name}, {"allowance", Cell()}});
    }
  }
  if (!has_hours) return;
  std::vector<std::string> parts;
  for (const auto& [name, part] : overhead.parts)
    parts.push_back(fmt::format("{} {:.3g} %", name, 100 * part));
  block.add("time",
            overhead.parts.empty()
                ? "hours and figures derived from them cover only steps, without time for data, checkpoints, "
                  "evaluation and restarts (--overhead)"
                : fmt::format("hours and figures derived from them include {:.3g} % in addition to steps: {} "
                              "(--overhead)",
                              100 * overhead.sum(), fmt::join(parts, ", ")),
            {{"overhead", overhead.sum()}});
}

}  // namespace dflop
