#include "experiments/trust/overhead.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dflop {

double Overhead::sum() const {
  double sum = 0;
  for (const auto& [name, part] : parts) sum += part;
  return sum;
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
