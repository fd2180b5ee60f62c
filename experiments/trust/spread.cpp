#include "experiments/trust/spread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

#include "core/support/parallel.hpp"
#include "experiments/cli/say.hpp"

namespace dflop {
namespace {

/// Returns the speed of a system on the batches of one seed; 0 if it does not fit.
double samples_per_s_of(const System& system, const Target& target, const std::vector<Batch>& batches,
                        std::uint64_t seed) {
  const Plan& plan = *system.planned.plan;
  const ScheduledRun run = schedule_and_evaluate(plan, target, batches, system.scheduler, seed, 0);
  if (!run.evaluation || out_of_memory(run.evaluation->timelines, target.cluster)) return 0;
  return run.evaluation->samples_per_s;
}

/// Returns a / b for each seed on which both fit.
std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> all;
  for (std::size_t s = 0; s < std::min(a.size(), b.size()); ++s) {
    if (a[s] > 0 && b[s] > 0) all.push_back(a[s] / b[s]);
  }
  return all;
}

}  // namespace

Spread spread_of(std::span<const double> values) {
  Spread spread;
  spread.count = values.size();
  if (values.empty()) return spread;
  const auto [least, most] = std::ranges::minmax(values);
  const auto count = static_cast<double>(values.size());
  spread.least = least;
  spread.most = most;
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  if (values.size() < 2) return spread;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  constexpr double kUpper = 0.975;
  const double t = boost::math::quantile(boost::math::students_t(count - 1), kUpper);
  spread.half_width = t * std::sqrt(squares / (count - 1) / count);
  return spread;
}

std::string text_of(const Spread& spread, int decimals) {
  if (spread.count == 0) return "-";
  std::string text = fmt::format("{:.{}f}", spread.mean, decimals);
  if (spread.count > 1) text += fmt::format(" +- {:.{}f}", spread.half_width, decimals);
  return text;
}

std::vector<SeedRuns> run_seeds(const std::vector<System>& systems, const Target& target,
                                const ComparisonInput& input, int seeds) {
  std::vector<SeedRuns> runs;
  for (const System& system : systems)
    runs.push_back({system.name, {system.evaluation ? system.evaluation->samples_per_s : 0}});
  const std::shared_ptr<const std::vector<Sample>> samples(std::shared_ptr<const void>(), &input.samples);
  Progress progress("other seeds");
  for (int s = 1; s < seeds; ++s) {
    const std::uint64_t seed = input.seed + static_cast<std::uint64_t>(s);
    BatchStream stream(samples, input.gbs, seed, input.delay, target.model);
    std::vector<Batch> batches(input.batches.size());
    for (Batch& batch : batches) batch = stream.next();
    parallel_for(systems.size(), [&](std::size_t i) {
      const System& system = systems[i];
      runs[i].samples_per_s.push_back(system.evaluation ? samples_per_s_of(system, target, batches, seed)
                                                        : 0);
    });
    progress.update(s, seeds - 1);
  }
  return runs;
}

Table seeds_table(const std::vector<SeedRuns>& runs, const std::optional<double>& train_samples, int gpus) {
  Table table{{{"system", "system"},
               {"seeds", "seeds"},
               {"fits", "fits"},
               {"samples_per_s_mean", "samples/s", 2},
               {"samples_per_s_95", "+-", 2},
               {"samples_per_s_least", "min", 2},
               {"samples_per_s_most", "max", 2},
               {"speedup_vs_pytorch_mean", "x pytorch", 3},
               {"speedup_vs_pytorch_95", "+-", 3},
               {"speedup_vs_megatron_mean", "x megatron", 3},
               {"speedup_vs_megatron_95", "+-", 3}},
              {}};
  if (train_samples) {
    table.columns.push_back({"train_hours_mean", "hours", 2});
    table.columns.push_back({"train_hours_95", "+-", 2});
    table.columns.push_back({"train_gpu_hours_mean", "GPU-hours", 1});
    table.columns.push_back({"train_gpu_hours_95", "+-", 1});
  }
  const auto of = [&](std::string_view name) {
    const auto found = std::ranges::find(runs, name, &SeedRuns::system);
    return found == runs.end() ? std::vector<double>() : found->samples_per_s;
  };
  const std::vector<double> pytorch = of("pytorch");
  const std::vector<double> megatron = of("megatron");
  for (const SeedRuns& run : runs) {
    std::vector<double> values = run.samples_per_s;
    std::erase(values, 0.0);
    std::vector<Cell> row{run.system, run.samples_per_s.size(), values.size()};
    const auto add = [&](const Spread& spread) {
      row.push_back(spread.count > 0 ? Cell(spread.mean) : Cell());
      row.push_back(spread.count > 1 ? Cell(spread.half_width) : Cell());
    };
    const Spread spread = spread_of(values);
    add(spread);
    row.push_back(spread.count > 0 ? Cell(spread.least) : Cell());
    row.push_back(spread.count > 0 ? Cell(spread.most) : Cell());
    add(spread_of(ratios(run.samples_per_s, pytorch)));
    add(spread_of(ratios(run.samples_per_s, megatron)));
    if (train_samples) {
      for (const int each : {1, gpus}) {
        std::vector<double> hours;
        for (const double value : values) hours.push_back(*train_samples / value / 3600 * each);
        add(spread_of(hours));
      }
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace dflop
