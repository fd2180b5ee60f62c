#include "experiments/studies/headroom.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numbers>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "core/support/parallel.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

constexpr std::size_t kFewBatches = 64;  // a chance estimated from this many batches or fewer is rough

}  // namespace

double Headroom::chance_of_run(double iterations) const {
  return chance >= 1 ? 1 : -std::expm1(iterations * std::log1p(-chance));
}

double exponential_tail(std::span<const double> peaks, double limit) {
  std::vector<double> falling(peaks.begin(), peaks.end());
  std::ranges::sort(falling, std::greater());
  const std::size_t above = falling.size() / 10;
  if (above == 0) return 0;
  const auto count = static_cast<double>(above);
  const double threshold = falling[above];
  double excess = 0;
  for (std::size_t i = 0; i < above; ++i) excess += (falling[i] - threshold) / count;
  if (excess <= 0) return 0;
  const double part = count / static_cast<double>(falling.size());
  return part * std::exp(-std::max(0.0, limit - threshold) / excess);
}

double overrun_chance(std::span<const double> peaks, double limit) {
  if (peaks.empty()) return 0;
  const auto above = std::ranges::count_if(peaks, [&](double peak) { return peak > limit; });
  const auto count = static_cast<double>(peaks.size());
  const double seen = static_cast<double>(above) / count;
  if (peaks.size() < 3) return seen;
  std::vector<double> rising(peaks.begin(), peaks.end());
  std::ranges::sort(rising);
  std::array<double, 3> moments{};  // probability-weighted
  for (std::size_t i = 0; i < rising.size(); ++i) {
    const auto rank = static_cast<double>(i);
    moments[0] += rising[i] / count;
    moments[1] += rising[i] * rank / ((count - 1) * count);
    moments[2] += rising[i] * rank * (rank - 1) / ((count - 1) * (count - 2) * count);
  }
  // Computes L-moments, and the distribution from their ratio (Hosking, Wallis and Wood, 1985).
  const double spread = 2 * moments[1] - moments[0];
  if (spread <= 1e-9 * moments[0]) return seen;
  const double skewness = (6 * moments[2] - 6 * moments[1] + moments[0]) / spread;
  const double c = 2 / (3 + skewness) - std::numbers::ln2 / std::log(3.0);
  const double shape = c * (7.8590 + 2.9554 * c);
  if (std::abs(shape) < 1e-6) {  // Gumbel distribution
    const double scale = spread / std::numbers::ln2;
    const double location = moments[0] - std::numbers::egamma * scale;
    return std::max(seen, -std::expm1(-std::exp(-(limit - location) / scale)));
  }
  const double gamma = std::tgamma(1 + shape);
  const double scale = spread * shape / ((1 - std::exp2(-shape)) * gamma);
  const double location = moments[0] + scale * (gamma - 1) / shape;
  const double rest = 1 - shape * (limit - location) / scale;
  // The distribution has no probability beyond its end.
  if (rest <= 0) return shape > 0 ? seen : 1;
  return std::max(seen, -std::expm1(-std::pow(rest, 1 / shape)));
}

namespace {

/// Returns whether a plan with one microbatch per sample fits any batch. The worst case is a batch of only
/// the sample with the most LLM tokens, with the max encoder tokens of any sample.
bool surely_fits(const Plan& plan, const Target& target, const std::vector<Sample>& samples) {
  if (plan.bins() < plan.gbs) return false;
  const auto encoder_tokens = [](const Sample& sample) { return sample.encoder().all_tokens(); };
  Sample most = *std::ranges::max_element(samples, {}, &Sample::llm_tokens);
  most.encoder_sequences = std::ranges::max_element(samples, {}, encoder_tokens)->encoder_sequences;
  const Batch batch(static_cast<std::size_t>(plan.gbs), most);
  const auto peak = filled_peak(target.problem(), plan, batch, *make_scheduler("random"), 0, 0, {});
  return peak && *peak <= target.cluster.gpu.usable_memory();
}

// Random microbatches need the most memory if several long samples come together, which a few batches rarely
// show. If the batches come close to the memory limit, many more are drawn.
constexpr double kNear = 0.75;
constexpr int kMaxBatches = 4096;
constexpr int kSamplesOfMore = 1 << 19;
constexpr std::uint64_t kMoreSeeds = 0x6d6f7265;

std::vector<Batch> more_batches(const std::vector<Sample>& samples, int gbs, std::uint64_t seed) {
  const int count = std::clamp(kSamplesOfMore / gbs, 1, kMaxBatches);
  return make_batches(samples, gbs, count, seed ^ kMoreSeeds);
}

/// Returns the peaks of the drawn batches without any of the longest samples. These few samples would make
/// the tail look longer than it is, because no sample is longer. Returns the peaks of all batches if almost
/// none remain.
std::vector<double> peaks_without(const FurtherBatches& further,
                                  const std::vector<std::optional<Bytes>>& found) {
  constexpr std::size_t kEnough = 16;
  std::set<std::string_view> longest;
  for (const Batch& batch : further.longest) longest.insert(batch.front().id);
  std::vector<double> all;
  std::vector<double> without;
  for (std::size_t k = 0; k < found.size(); ++k) {
    if (!found[k]) continue;
    all.push_back(static_cast<double>(found[k]->count));
    const auto is_long = [&](const Sample& sample) { return longest.contains(sample.id); };
    if (std::ranges::none_of(further.drawn[k], is_long)) without.push_back(all.back());
  }
  return without.size() < kEnough ? all : without;
}

}  // namespace

Headroom estimate_headroom(const Plan& plan, const Target& target, const std::vector<Sample>& samples,
                           const std::string& scheduler, bool respects_memory, std::uint64_t seed) {
  FurtherBatches further = headroom_batches(samples, plan.gbs, seed);
  const std::size_t count = further.drawn.size();
  const std::unique_ptr<Scheduler> filler = make_scheduler(scheduler, {.prove = false});
  Headroom headroom{.scheduler = scheduler, .respects_memory = respects_memory, .batches = count};
  headroom.usable = target.cluster.gpu.usable_memory();
  const bool is_random = scheduler == "random" && !respects_memory;  // does not need the costs of samples
  const auto peak_of = [&](const Batch& batch, std::size_t k, bool within) -> std::optional<Bytes> {
    if (is_random) {
      return assigned_peak(target.problem(), plan, batch, random_assignment(batch.size(), plan, seed, k));
    }
    return filled_peak(target.problem(), plan, batch, *filler, seed, k,
                       within ? std::optional(headroom.usable) : std::nullopt);
  };
  const auto is_over = [&](const std::optional<Bytes>& peak) { return !peak || *peak > headroom.usable; };
  std::vector<std::optional<Bytes>> of_longest(further.longest.size());
  parallel_for(of_longest.size(), [&](std::size_t k) {
    of_longest[k] = peak_of(further.longest[k], count + k, respects_memory);
  });
  for (std::size_t k = 0; k < of_longest.size(); ++k) {
    const std::optional<Bytes> peak =
        of_longest[k] ? of_longest[k] : peak_of(further.longest[k], count + k, false);
    headroom.longest = std::max(headroom.longest, peak.value_or(Bytes{}));
  }
  const auto long_overruns = static_cast<double>(std::ranges::count_if(of_longest, is_over));
  headroom.longest_fits = long_overruns == 0;

  std::vector<std::optional<Bytes>> found(count);
  parallel_for(count, [&](std::size_t k) { found[k] = peak_of(further.drawn[k], k, respects_memory); });
  const bool has_tail = !respects_memory && !surely_fits(plan, target, samples);
  const bool levels = find_method(scheduler).minimizes;
  const auto is_near = [&](const std::optional<Bytes>& peak) {
    return static_cast<double>(peak.value_or(Bytes{}).count) >
           kNear * static_cast<double>(headroom.usable.count);
  };
  if (has_tail && !levels && (is_near(headroom.longest) || std::ranges::any_of(found, is_near))) {
    std::vector<Batch> more = more_batches(samples, plan.gbs, seed);
    const std::size_t before = further.drawn.size() + further.longest.size();  // seeds already used
    found.resize(count + more.size());
    parallel_for(more.size(), [&](std::size_t k) { found[count + k] = peak_of(more[k], before + k, false); });
    std::ranges::move(more, std::back_inserter(further.drawn));
    headroom.batches = found.size();
  }
  headroom.overruns = static_cast<std::size_t>(std::ranges::count_if(found, is_over));
  std::vector<double> peaks;
  for (const std::optional<Bytes>& peak : found) {
    if (peak) peaks.push_back(static_cast<double>(peak->count));
  }
  if (!peaks.empty()) {
    const double sum = std::accumulate(peaks.begin(), peaks.end(), 0.0);
    headroom.mean = {static_cast<std::int64_t>(sum / static_cast<double>(peaks.size()))};
    headroom.most = {static_cast<std::int64_t>(*std::ranges::max_element(peaks))};
  }
  const double seen = static_cast<double>(headroom.overruns) / static_cast<double>(headroom.batches);
  const double with_long = std::min(1.0, long_overruns * plan.gbs / static_cast<double>(samples.size()));
  headroom.chance = std::max(seen, with_long);
  if (!has_tail) return headroom;
  // If bins are level, the longest samples determine the memory needed, and they were among these batches.
  const bool has_spare = std::max(headroom.most, headroom.longest) <= with_memory_to_spare(headroom.usable);
  if (has_spare && levels) return headroom;
  const std::vector<double> usual = peaks_without(further, found);
  const auto limit = static_cast<double>(headroom.usable.count);
  double tail = overrun_chance(usual, limit);
  if (!levels) tail = std::max(tail, exponential_tail(usual, limit));
  headroom.chance = std::max(headroom.chance, with_long + (1 - with_long) * tail);
  return headroom;
}

std::string describe(const Headroom& headroom, double iterations) {
  const bool all_fit = headroom.overruns == 0;
  const bool leaves_some_out = headroom.respects_memory && !all_fit;
  std::string text = fmt::format(
      "{:.1f} GiB on average, at most {:.1f}{} and {:.1f} with the longest samples, of {:.1f} "
      "usable; ",
      in_gib(headroom.mean), in_gib(headroom.most), leaves_some_out ? " in those that fit" : "",
      in_gib(headroom.longest), in_gib(headroom.usable));
  if (all_fit) {
    text += fmt::format("all {} batches fit{}", headroom.batches,
                        headroom.longest_fits ? "" : ", but the longest samples do not");
  } else {
    text += fmt::format("{} of {} batches {}", headroom.overruns, headroom.batches,
                        headroom.respects_memory ? "cannot be kept within memory" : "do not fit");
    if (!headroom.longest_fits)
      text += headroom.respects_memory ? ", nor can the longest samples" : ", nor do the longest samples";
  }
  if (headroom.respects_memory && all_fit && headroom.longest_fits) return text;
  const double chance = 100 * headroom.chance_of_run(iterations);
  const std::string percent = chance > 99 ? "> 99" : chance < 0.1 ? "< 0.1" : fmt::format("{:.2g}", chance);
  const bool is_rough = all_fit && headroom.longest_fits && chance >= 0.1 && headroom.batches <= kFewBatches;
  return text + fmt::format("; {} % of runs of {:.0f} iterations run out of memory{}", percent, iterations,
                            is_rough
                                ? " (a rough estimate from few batches: the chance may be ten times smaller)"
                                : "");
}

std::vector<std::pair<std::string, Cell>> figures_of(const Headroom& headroom, double iterations) {
  return {{"scheduler", headroom.scheduler},
          {"respect_memory", headroom.respects_memory},
          {"batches", headroom.batches},
          {"overruns", headroom.overruns},
          {"most_bytes", headroom.most},
          {"longest_samples_bytes", headroom.longest},
          {"longest_samples_fit", headroom.longest_fits},
          {"usable_bytes", headroom.usable},
          {"iterations", iterations},
          {"out_of_memory_chance", headroom.chance_of_run(iterations)}};
}

}  // namespace dflop
