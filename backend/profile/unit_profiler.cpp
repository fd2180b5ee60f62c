#include "backend/profile/profiler.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "backend/profile/unit_bench.hpp"
#include "core/support/clock.hpp"
#include "core/support/median.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kFewestTokens = 16;
constexpr std::int64_t kAttentionTokens = 256;  // min, so that there are several short sequences
constexpr std::int64_t kFullTokens = 8192;      // enough for attention to fill the largest GPUs
constexpr double kFirstPass = 0.2;              // of the budget
constexpr std::int64_t kBusyTokens = 512;       // size of the units that the other ranks run
constexpr std::int64_t kMemoryTokens = 512;     // enough to keep the rounding of buffers below 1 %
constexpr int kMinRounds = 3;
constexpr int kMaxRounds = 51;
constexpr double kMaxBeside = 10;  // max slowdown by neighbors; short times give any ratio

/// A NeighborSwitch makes the first rank of a neighbor's group run units or rest.
class NeighborSwitch {
 public:
  /// Waits until the neighbor rests.
  void rest() {
    std::unique_lock lock(mutex_);
    works_ = false;
    changed_.wait(lock, [&] { return rests_ || ended_; });
  }
  /// Waits until the neighbor is at work.
  void work() {
    std::unique_lock lock(mutex_);
    works_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !rests_ || ended_; });
  }
  /// Lets the neighbor work from now on; nobody waits for it any more.
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  /// Waits until the neighbor, which calls this, must work.
  void wait_for_work() {
    std::unique_lock lock(mutex_);
    rests_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return works_ || ended_; });
    rests_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool works_ = true;
  bool rests_ = false;
  bool ended_ = false;
};

/// Samples hold a point and the time of each of its rounds. Either all rounds include recomputation or none
/// does.
struct Samples {
  ProfileUnit unit;
  std::int64_t tokens = 0;
  std::int64_t length = 0;
  std::vector<ProfilePoint> rounds;
  std::vector<ProfilePoint> beside = {};  ///< rounds with busy neighbors, if there are any

  ProfilePoint point() const { return point_of(rounds); }

  /// The times may be negative, because they may be differences of two short times.
  ProfilePoint point_of(const std::vector<ProfilePoint>& runs) const {
    const auto middle = [&](auto time) {
      std::vector<double> times;
      for (const ProfilePoint& round : runs) times.push_back(time(round));
      return std::max(0.0, mean_without_outliers(times));
    };
    ProfilePoint point{tokens, length, middle(std::mem_fn(&ProfilePoint::forward_s)),
                       middle(std::mem_fn(&ProfilePoint::backward_input_s)),
                       middle(std::mem_fn(&ProfilePoint::backward_weight_s))};
    if (runs.front().recompute_s) point.recompute_s = middle([](const auto& r) { return *r.recompute_s; });
    if (runs.front().host_s)
      point.host_s = std::min(point.forward_s, middle([](const auto& r) { return *r.host_s; }));
    return point;
  }
};

/// Returns the slowdown of a unit's points by busy neighbors. It is a ratio of sums, so that large points
/// weigh as much as they do in steps.
PassFactors factors_of(ProfileUnit unit, const std::vector<Samples>& points) {
  const auto ratio = [&](double ProfilePoint::*pass) {
    double alone = 0;
    double beside = 0;
    for (const Samples& samples : points) {
      if (samples.unit != unit) continue;
      alone += samples.point().*pass;
      beside += samples.point_of(samples.beside).*pass;
    }
    return alone > 0 ? std::min(kMaxBeside, beside / alone) : 1;
  };
  return {ratio(&ProfilePoint::forward_s), ratio(&ProfilePoint::backward_input_s),
          ratio(&ProfilePoint::backward_weight_s)};
}

std::size_t units_of(const ModelSpec& model) {
  const auto units = all_of<ProfileUnit>();
  return static_cast<std::size_t>(
      std::count_if(units.begin(), units.end(), [&](ProfileUnit unit) { return has_unit(model, unit); }));
}

/// Returns numbers that double from the min tokens; the last one is `most`.
std::vector<std::int64_t> doubled_up_to(std::int64_t most) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t x = kFewestTokens; x < most; x *= 2) numbers.push_back(x);
  numbers.push_back(most);
  return numbers;
}

/// Returns the points of a unit in ascending order.
std::vector<Samples> points_of(const ModelSpec& model, ProfileUnit unit, const ProfilerOptions& options,
                               bool launches) {
  const bool is_encoder = unit <= ProfileUnit::connector;
  const PointRange& most = is_encoder && options.encoder ? *options.encoder : options.llm;
  std::vector<Samples> points;
  if (!is_attention(unit)) {
    // Layers are measured on whole sequences of the min length, the connector on whole merged tokens.
    const int whole =
        unit == ProfileUnit::connector ? model.connector.merge : static_cast<int>(kFewestTokens);
    for (const std::int64_t x : doubled_up_to(most.tokens))
      points.push_back({unit, round_up(x, whole), 0, {}});
    return points;
  }
  for (const std::int64_t length : doubled_up_to(std::min(most.length, most.tokens))) {
    const auto add = [&](std::int64_t tokens) {
      const std::int64_t whole = std::max(tokens, length) / length * length;
      if (points.empty() || points.back().length < length || points.back().tokens < whole)
        points.push_back({unit, whole, length, {}});
    };
    add(kAttentionTokens);
    if (launches) add(std::min(kFullTokens, most.tokens));
  }
  return points;
}

/// Returns all points in the order of their first run. On a host, times grow with the tokens and each point
/// predicts the next one, so the smallest come first. On a device that launches kernels, large points matter
/// most and are fast, so each unit's largest point comes first, then the smallest, then the rest.
std::vector<Samples> all_points(const ModelSpec& model, const ProfilerOptions& options, bool launches) {
  std::vector<std::pair<std::size_t, Samples>> ranked;
  for (const auto unit : all_of<ProfileUnit>()) {
    if (!has_unit(model, unit)) continue;
    std::vector<Samples> points = points_of(model, unit, options, launches);
    if (launches && points.size() > 2) {
      std::ranges::reverse(points);
      std::rotate(points.begin() + 1, points.end() - 1, points.end());
    }
    for (std::size_t i = 0; i < points.size(); ++i) ranked.emplace_back(i, std::move(points[i]));
  }
  std::ranges::stable_sort(ranked, {}, [](const auto& point) { return point.first; });
  std::vector<Samples> points;
  for (auto& [rank, point] : ranked) points.push_back(std::move(point));
  return points;
}

/// A UnitProfiler runs units on one rank.
class UnitProfiler {
 public:
  /// `neighbors` controls the neighbors on a shared device; null: there are none.
  UnitProfiler(const ModelSpec& model, const ProfilerOptions& options, const RankContext& rank,
               BenchRole role, NeighborSwitch* neighbors)
      : model_(model),
        options_(options),
        budget_(options.budget / static_cast<double>(options.modes.size() * options.shares.size())),
        rank_(rank),
        neighbors_(neighbors),
        bench_(model, options.seed, rank, role),
        vote_(rank, 1, 1) {}

  /// Runs units until `done` is set.
  void keep_busy(const std::atomic<bool>& done) {
    ProfilerOptions small = options_;
    small.llm.tokens = std::min(kBusyTokens, small.llm.tokens);
    if (small.encoder) small.encoder->tokens = std::min(kBusyTokens, small.encoder->tokens);
    const std::vector<Samples> points = all_points(model_, small, launches());
    for (std::size_t i = 0; agree(!done); ++i) {
      if (neighbors_ != nullptr && rank_.tp_rank == 0) neighbors_->wait_for_work();
      const Samples& point = points[i % points.size()];
      bench_.run(point.unit, point.tokens, point.length);
    }
  }

  TpProfile run(const ProfilerProgress& progress) {
    TpProfile profile;
    profile.mode = {rank_.tp_size(), has_shards(rank_)};
    let_neighbors(false);
    bench_.measure_memory(kMemoryTokens, profile);
    std::vector<Samples> points = points_within(all_points(model_, options_, launches()), progress);
    run_rounds(points, progress);
    std::ranges::sort(points, {}, [](const Samples& s) { return std::tuple(s.unit, s.length, s.tokens); });
    for (const Samples& samples : points) {
      UnitPoints& unit = profile.of(samples.unit);
      const ProfilePoint point = samples.point();
      // If the connector merges many tokens, several sizes round to the same point.
      if (unit.empty() || unit.back().tokens < point.tokens || unit.back().length < point.length) {
        unit.push_back(point);
      }
    }
    if (neighbors_ != nullptr) profile.part = part_of(points);
    return profile;
  }

 private:
  bool launches() const { return !rank_.device.is_synchronous(); }

  /// Lets neighbors work, or waits until they rest.
  void let_neighbors(bool work) {
    if (neighbors_ == nullptr || rank_.tp_rank != 0) return;
    work ? neighbors_->work() : neighbors_->rest();
  }

  /// Measures the optimizer on the first rank; only its thread calls this.
  PartProfile part_of(const std::vector<Samples>& points) {
    constexpr double kParameters = 1 << 20;  // at which both lines are compared
    PartProfile part;
    for (std::size_t u = 0; u < kProfileUnits; ++u) {
      part.beside[u] = factors_of(static_cast<ProfileUnit>(u), points);
    }
    if (rank_.tp_rank != 0) return part;
    part.optimizer = measure_optimizer(rank_);
    let_neighbors(true);
    const double alone = part.optimizer.at(kParameters);
    if (alone > 0)
      part.optimizer_beside = std::min(kMaxBeside, measure_optimizer(rank_).at(kParameters) / alone);
    return part;
  }

  /// Runs a point once and, if there are neighbors, once more while they are busy.
  void run_round(Samples& point) {
    agree(true);  // makes all ranks begin together
    point.rounds.push_back(bench_.run(point.unit, point.tokens, point.length));
    if (neighbors_ == nullptr) return;
    let_neighbors(true);
    agree(true);
    point.beside.push_back(bench_.run(point.unit, point.tokens, point.length));
    let_neighbors(false);
  }

  /// Waits for all ranks of the tp group and returns the first rank's value.
  bool agree(bool own) {
    if (rank_.tp_size() == 1) return own;
    const std::array<float, 1> said{rank_.tp_rank == 0 && own ? 1.0F : 0.0F};
    const DType element = sum_type_of(rank_.kernels.dtype());
    upload(rank_, vote_.view().data, element, std::span<const float>(said));
    rank_.communicator.all_reduce(vote_.view().data, 1, element, rank_.tp, rank_.compute,
                                  "whether to measure on");
    return download(rank_, vote_.view().data, element, 1).front() > 0;
  }

  void tell(const ProfilerProgress& progress) const {
    if (!progress) return;
    const double part = std::min(1.0, watch_.elapsed() / budget_);
    progress(static_cast<std::int64_t>(100 * part), 100);
  }

  /// Runs the points once as a warm-up, and keeps the points for which there is time, at least two of each
  /// unit. A point's time is predicted from the unit's previous point.
  std::vector<Samples> points_within(std::vector<Samples> points, const ProfilerProgress& progress) {
    const double growth = launches() ? 1 : 4;  // of attention, from one point to the next
    const Seconds budget = kFirstPass * budget_;
    const std::size_t two_of_each = 2 * units_of(model_);
    std::array<Seconds, kProfileUnits> last{};
    std::vector<Samples> kept;
    for (Samples& point : points) {
      Seconds& time = last[static_cast<std::size_t>(point.unit)];
      const Seconds begin = watch_.elapsed();
      if (!agree(kept.size() < two_of_each || begin + growth * time <= budget)) continue;
      bench_.run(point.unit, point.tokens, point.length);
      time = std::max(launches() ? time : Seconds(0), watch_.elapsed() - begin);  // smaller ones follow
      kept.push_back(std::move(point));
      tell(progress);
    }
    return kept;
  }

  /// Fills the samples in rounds.
  void run_rounds(std::vector<Samples>& points, const ProfilerProgress& progress) {
    Random random(options_.seed);
    std::vector<std::size_t> order(points.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    Seconds round{0};
    for (int done = 0; done < kMaxRounds; ++done) {
      if (!agree(done < kMinRounds || watch_.elapsed() + round <= budget_)) break;
      const Seconds begin = watch_.elapsed();
      random.shuffle(std::span(order));
      for (const std::size_t i : order) {
        run_round(points[i]);
        tell(progress);
      }
      round = watch_.elapsed() - begin;
    }
  }

  const ModelSpec& model_;
  const ProfilerOptions& options_;
  Seconds budget_;  // for these tables
  const RankContext& rank_;
  NeighborSwitch* neighbors_;
  UnitBench bench_;
  SumTensor vote_;
  Stopwatch watch_;
};

TpProfile measure(const ModelSpec& model, const std::vector<RankContext>& ranks,
                  const ProfilerOptions& options, const ProfilerProgress& progress,
                  NeighborSwitch* neighbors) {
  TpProfile first;
  std::atomic<bool> done = false;
  const auto end = [&] {
    done = true;
    if (neighbors != nullptr) neighbors->end();
  };
  const auto run = [&](std::size_t r) {
    const bool measures = r < ranks.front().tp.ranks.size();
    UnitProfiler profiler(model, options, ranks[r], measures ? BenchRole::measures : BenchRole::keeps_busy,
                          neighbors);
    if (!measures) return profiler.keep_busy(done);
    TpProfile profile = profiler.run(r == 0 ? progress : ProfilerProgress{});
    if (r != 0) return;  // rank 0 continues to measure
    first = std::move(profile);
    end();
  };
  const auto end_all = [&](std::size_t r, const std::string& message) {
    end();
    ranks[r].communicator.abort(message);
  };
  run_in_threads(ranks.size(), {[&](std::size_t r) { ranks[r].device.enter_thread(); }, run, end_all});
  return first;
}

}  // namespace

TpProfile measure_units(const ModelSpec& model, const std::vector<RankContext>& ranks,
                        const ProfilerOptions& options, const ProfilerProgress& progress) {
  return measure(model, ranks, options, progress, nullptr);
}

TpProfile measure_part(const ModelSpec& model, const std::vector<RankContext>& ranks,
                       const ProfilerOptions& options, const ProfilerProgress& progress) {
  NeighborSwitch neighbors;
  return measure(model, ranks, options, progress, &neighbors);
}

}  // namespace dflop
