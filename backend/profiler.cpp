#include "backend/profiler.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <span>
#include <vector>

#include "backend/link_bench.hpp"
#include "backend/live_checks.hpp"
#include "backend/unit_bench.hpp"
#include "core/random.hpp"
#include "costmodel/link_fit.hpp"
#include "costmodel/median.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kFewestTokens = 16;
constexpr std::int64_t kAttentionTokens = 256;  // at least, so that short sequences come in numbers
constexpr double kFirstPass = 0.2;              // of the budget
constexpr int kLeastRounds = 3;
constexpr int kMostRounds = 51;
constexpr std::int64_t kActivationTokens = 512;  // enough that the rounding of buffers is below a percent

/// What a rank of the measuring works with.
struct Rank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<Kernels> kernels;
};

/// A point and what its rounds took.
struct Samples {
  ProfileUnit unit;
  std::int64_t tokens = 0;
  std::int64_t length = 0;
  std::vector<double> forward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;

  void add(const ProfilePoint& point) {
    forward.push_back(point.forward_s);
    backward_input.push_back(point.backward_input_s);
    backward_weight.push_back(point.backward_weight_s);
  }
  /// A difference of two short times may come out below zero.
  ProfilePoint point() const {
    const auto middle = [](const std::vector<double>& times) { return std::max(0.0, median(times)); };
    return {tokens, length, middle(forward), middle(backward_input), middle(backward_weight)};
  }
};

class Stopwatch {
 public:
  Seconds elapsed() const { return std::chrono::steady_clock::now() - start_; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// All points, the smallest first.
std::vector<Samples> all_points(const ModelSpec& model, std::int64_t most_tokens) {
  std::vector<Samples> points;
  for (std::int64_t x = kFewestTokens; x <= most_tokens; x *= 2) {
    for (std::size_t u = 0; u < kProfileUnits; ++u) {
      const auto unit = static_cast<ProfileUnit>(u);
      std::int64_t tokens = is_attention(unit) ? std::max(x, kAttentionTokens) : x;
      if (unit == ProfileUnit::connector) tokens = round_up(tokens, model.connector.merge);
      points.push_back({unit, tokens, is_attention(unit) ? x : 0, {}, {}, {}});
    }
  }
  return points;
}

/// Runs the points once, which warms up, and keeps those for which there is time.
std::vector<Samples> points_within(UnitBench& bench, std::vector<Samples> points, Seconds budget) {
  constexpr double kGrowth = 4;  // of attention, from one point to the next
  const Stopwatch watch;
  std::array<Seconds, kProfileUnits> last{};
  std::vector<Samples> kept;
  for (Samples& point : points) {
    Seconds& time = last[static_cast<std::size_t>(point.unit)];
    const Seconds begin = watch.elapsed();
    if (kept.size() >= 2 * kProfileUnits && begin + kGrowth * time > budget) break;
    bench.run(point.unit, point.tokens, point.length);
    time = watch.elapsed() - begin;
    kept.push_back(std::move(point));
  }
  return kept;
}

/// Fills the samples in rounds.
void run_rounds(UnitBench& bench, std::vector<Samples>& points, Random& random, const Stopwatch& watch,
                Seconds budget, const ProfilerProgress& progress) {
  std::vector<std::size_t> order(points.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  Seconds round{0};
  for (int done = 0; done < kMostRounds; ++done) {
    if (done >= kLeastRounds && watch.elapsed() + round > budget) break;
    const Seconds begin = watch.elapsed();
    random.shuffle(std::span(order));
    for (const std::size_t i : order) {
      points[i].add(bench.run(points[i].unit, points[i].tokens, points[i].length));
      if (progress) {
        const double part = std::min(1.0, watch.elapsed() / budget);
        progress(static_cast<std::int64_t>(100 * part), 100);
      }
    }
    round = watch.elapsed() - begin;
  }
}

/// Seconds of one optimizer step by its parameters.
ProfileLine measure_optimizer(const RankContext& rank) {
  constexpr int kRepeats = 9;
  std::vector<LinkSample> samples;
  const auto begin = rank.device.make_event();
  const auto end = rank.device.make_event();
  for (std::int64_t parameters = 1 << 12; parameters <= 1 << 20; parameters *= 4) {
    Tensor weight(rank, 1, parameters);
    SumTensor sums[3];  // gradient, moments
    for (SumTensor& sum : sums) {
      sum = SumTensor(rank, 1, parameters);
      rank.kernels.zero(Sums(sum));
    }
    const Sums master{weight.view().data, 1, parameters};  // as in ParameterStore::step()
    rank.kernels.zero(Matrix(weight));
    std::vector<double> times;
    for (int i = 0; i <= kRepeats; ++i) {
      rank.compute.record(*begin);
      rank.kernels.adamw(weight, master, sums[1], sums[2], sums[0], {});
      rank.compute.record(*end);
      rank.compute.synchronize();
      if (i > 0) times.push_back(Seconds(end->time() - begin->time()).count());
    }
    samples.push_back({static_cast<double>(parameters), Seconds(median(times))});
  }
  const std::optional<LinkFit> fit = fit_link(samples);
  return {fit->latency.count(), fit->seconds_per_byte};
}

TpProfile measure_units(UnitBench& bench, const ModelSpec& model, const ProfilerOptions& options,
                        const ProfilerProgress& progress) {
  const Stopwatch watch;
  Random random(options.seed);
  std::vector<Samples> points =
      points_within(bench, all_points(model, options.most_tokens), kFirstPass * options.budget);
  run_rounds(bench, points, random, watch, options.budget, progress);
  TpProfile profile;
  for (const Samples& samples : points) {
    UnitPoints& unit = profile.of(samples.unit);
    const ProfilePoint point = samples.point();
    // Where the connector merges many tokens, several sizes come to the same.
    if (unit.empty() || unit.back().tokens < point.tokens || unit.back().length < point.length) {
      unit.push_back(point);
    }
  }
  return profile;
}

}  // namespace

ProfileTables measure_profile(const ModelSpec& model, World& world, const ProfilerOptions& options,
                              const ProfilerProgress& progress) {
  require_live(model);
  std::vector<Rank> ranks;
  std::vector<LinkEnd> ends;
  for (int r = 0; r < world.ranks(); ++r) {
    Rank rank{world.make_device(r), world.make_communicator(r), nullptr, nullptr};
    rank.stream = rank.device->make_stream();
    rank.kernels = rank.device->make_kernels(*rank.stream, options.dtype);
    ends.push_back({*rank.communicator, *rank.device, *rank.stream});
    ranks.push_back(std::move(rank));
  }
  const Rank& first = ranks.front();
  const RankContext context{*first.device, *first.stream, *first.kernels, *first.communicator, {{0}}, 0};
  ProfileTables profile;
  profile.device = world.device_name();
  profile.cpu = host_cpu();
  profile.dtype = to_string(options.dtype);
  profile.value_bytes = static_cast<std::int64_t>(bytes_of(options.dtype));
  profile.sum_bytes = static_cast<std::int64_t>(sum_bytes_of(options.dtype));
  profile.model = profiled_model(model);
  profile.settings = {options.seed, options.budget.count(), options.most_tokens};
  {
    UnitBench bench(model, options.seed, context);
    profile.tp.push_back(measure_units(bench, model, options, progress));
    profile.activation = bench.activation(kActivationTokens);
  }
  profile.optimizer = measure_optimizer(context);
  const LinkLines lines = measure_links(ends, sum_element_of(options.dtype));
  profile.message = lines.message;
  profile.all_reduce = lines.all_reduce;
  return profile;
}

std::string host_cpu() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace dflop
