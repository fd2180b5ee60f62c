#include "solver/makespan/search.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "solver/bins/heuristics.hpp"
#include "solver/makespan/exchange_filter.hpp"
#include "solver/makespan/state.hpp"

namespace dflop {
namespace {

/// A relative reduction from this on counts as an improvement. It is well above float rounding.
constexpr double kMin = 1e-6;
/// At most this many parcels are offered for one batch of candidates, with this many candidates per offer.
constexpr int kOffers = 32;
constexpr std::size_t kOfOneOffer = 4;
/// After this many batches without a better candidate the search tries something else.
constexpr int kPatience = 200;
/// A kick has at most this many exchanges.
constexpr int kKicks = 4;
/// The widest smoothing is kWidest times the makespan per microbatch: about a microbatch's time on a stage.
/// Smoothing takes the first kSmoothPart of the budget. It decreases with the square of the rest of this
/// part, and ends at kNarrowest of the widest.
constexpr double kWidest = 0.75;
constexpr double kSmoothPart = 0.7;
constexpr double kNarrowest = 0.003;

class MakespanSearch {
 public:
  MakespanSearch(const AssignmentProblem& problem, const MakespanKernel& kernel, Random& random,
                 const SearchControl& control, std::span<const std::int32_t> bin)
      : problem_(problem),
        kernel_(kernel),
        control_(control),
        random_(random),
        state_(problem, kernel, bin),
        lanes_(kernel.groups(), MakespanLanes(kernel)),
        mixed_(kernel),
        filter_(state_),
        moved_(kernel.loads()) {
    for (int q = 0; q < kernel.groups(); ++q) renew(q);
  }

  double run(std::vector<std::int32_t>& best) {
    best_s_ = state_.makespan_s();
    const double widest_s = kWidest * best_s_ / problem_.bins.microbatches();
    int failures = 0;
    for (std::int64_t step = 0; step < control_.steps && best_s_ > control_.enough_s; ++step) {
      if (step % 8 == 0) {
        const double used = control_.used ? control_.used() : 0.0;
        if (used >= 1) break;
        const double left =
            1 - std::max(used, static_cast<double>(step) / static_cast<double>(control_.steps));
        if (smooth(std::max(0.0, 1 - (1 - left) / kSmoothPart), widest_s, best)) failures = 0;
      }
      const bool better = random_.below(16) == 0 ? try_reorders() : try_exchanges();
      failures = better ? 0 : failures + 1;
      if (better) keep(best);
      if (failures < kPatience) continue;
      failures = 0;
      if (state_.smoothing_s() > 0) {
        most_part_ /= 2;  // nothing more is found at this smoothing
      } else {
        kick(best);
      }
    }
    return best_s_;
  }

 private:
  int pick(int count) {
    return static_cast<int>(((random_.bits() >> 32) * static_cast<std::uint64_t>(count)) >> 32);
  }
  /// Picks a bin of a group.
  int pick_bin(int group) {
    const int groups = kernel_.groups();
    return groups == 1 ? pick(problem_.bins.bins) : pick(problem_.bins.microbatches()) * groups + group;
  }

  /// Reduces the smoothing as the budget is used up. The last phase, without smoothing, starts from the best
  /// assignment.
  /// @return true if it changed
  bool smooth(double left, double widest_s, std::span<const std::int32_t> best) {
    double part = std::min(most_part_, left * left);
    if (part < kNarrowest) part = 0;
    const double next_s = widest_s * part;
    const double now_s = state_.smoothing_s();
    if (next_s == now_s || (next_s > 0 && now_s > 0 && next_s > 0.9 * now_s)) return false;
    if (next_s == 0) state_.set(best);
    state_.set_smoothing(next_s);
    for (int q = 0; q < kernel_.groups(); ++q) renew(q);
    return true;
  }

  void keep(std::vector<std::int32_t>& best) {
    const double now_s = state_.makespan_s();
    if (now_s >= best_s_) return;
    best_s_ = now_s;
    best.assign(state_.bin().begin(), state_.bin().end());
    if (control_.improved) control_.improved(best, best_s_);
  }

  Parcel pick_parcel(std::int32_t bin) {
    const std::span<const std::int32_t> items = state_.items_of(bin);
    const int count = static_cast<int>(items.size());
    if (count == 0) return kNothing;
    const int first = pick(count);
    Parcel parcel = {items[first], -1};
    if (count > 1 && pick(4) == 0) {
      const int second = pick(count - 1);
      parcel[1] = items[second < first ? second : second + 1];
    }
    return parcel;
  }

  /// Collects candidates that the critical paths do not rule out: exchanges of parcels between some bins of
  /// group `q` and other bins.
  void collect(int q) {
    found_.clear();
    for (int offer = 0; offer < kOffers && found_.size() < Lanes::kCount; ++offer) {
      const std::int32_t from = pick_bin(q);
      const Parcel out = pick_parcel(from);
      if (out == kNothing) continue;
      if (pick(16) == 0) add_swap(from);
      filter_.offer(from, out);
      const std::size_t most = std::min<std::size_t>(found_.size() + kOfOneOffer, Lanes::kCount);
      const int chunks = filter_.chunks();
      const int first = pick(chunks);
      for (int k = 0; k < chunks && found_.size() < most; ++k) {
        filter_.scan(first + k < chunks ? first + k : first + k - chunks, target_s_, most, found_);
      }
    }
  }

  /// Adds the exchange of all items of a bin for all items of another.
  void add_swap(std::int32_t from) {
    const BinExchange e{from, pick(problem_.bins.bins), kNothing, kNothing, true};
    if (e.from == e.to) return;
    state_.moved_loads(e, moved_);
    const int q = kernel_.group(e.from);
    const int r = kernel_.group(e.to);
    double fall = 0;
    double rise = 0;
    for (int l = 0; l < kernel_.loads(); ++l) {
      fall += state_.gradient(q)[kernel_.column(l, e.from)] * moved_[l];
      rise += state_.gradient(r)[kernel_.column(l, e.to)] * moved_[l];
    }
    const double other = state_.smooth_s(r) + rise - (q == r ? fall : 0.0);
    if (other < target_s_ && (q == r || fall > margin_s_) && state_.allows(e)) found_.push_back(e);
  }

  bool try_exchanges() {
    const int q = state_.slowest();
    set_limits(q);
    collect(q);
    if (found_.empty()) return false;
    for (int z = 0; z < static_cast<int>(found_.size()); ++z) {
      state_.moved_loads(found_[z], moved_);
      change_lane(lanes_[q], z, found_[z], q);
    }
    Lanes result = evaluate(q);
    slower_of_others(q, result);
    const int best = best_lane(result, found_.size());
    if (result.value[best] >= static_cast<float>(target_s_) || !state_.apply_if(found_[best], target_s_))
      return false;
    renew(found_[best]);
    return true;
  }

  /// Applies an exchange's changes within a group to one of its lanes. Loads of a microbatch that both bins
  /// share do not change.
  void change_lane(MakespanLanes& lanes, int lane, const BinExchange& e, int group) {
    const std::span<const double> values = state_.values(group);
    const bool gives = kernel_.group(e.from) == group;
    const bool gets = kernel_.group(e.to) == group;
    for (int l = 0; l < kernel_.loads(); ++l) {
      const int from = kernel_.column(l, e.from);
      const int to = kernel_.column(l, e.to);
      if (moved_[l] == 0 || (gives && gets && from == to)) continue;
      if (gives) lanes.change(lane, from, values[from] - moved_[l]);
      if (gets) lanes.change(lane, to, values[to] + moved_[l]);
    }
  }

  /// For candidates that speed up the slowest group, evaluates their other groups, all of them at once.
  void slower_of_others(int q, Lanes& result) {
    int others = 0;
    std::array<int, Lanes::kCount> candidate;
    for (int z = 0; z < static_cast<int>(found_.size()); ++z) {
      const int r = kernel_.group(found_[z].to);
      if (r == q || result.value[z] >= static_cast<float>(target_s_)) continue;
      state_.moved_loads(found_[z], moved_);
      mixed_.set_lane(others, lanes_[r]);
      change_lane(mixed_, others, found_[z], r);
      candidate[others++] = z;
    }
    if (others == 0) return;
    const Lanes other = mixed_.evaluate(state_.smoothing_s());
    for (int z = 0; z < others; ++z) {
      result.value[candidate[z]] = std::max(result.value[candidate[z]], other.value[z]);
    }
  }

  static int best_lane(const Lanes& result, std::size_t count) {
    int best = 0;
    for (int z = 1; z < static_cast<int>(count); ++z) best = result.value[z] < result.value[best] ? z : best;
    return best;
  }

  bool try_reorders() {
    const int microbatches = problem_.bins.microbatches();
    if (microbatches < 2) return false;
    const int q = state_.slowest();
    set_limits(q);
    std::array<Reorder, Lanes::kCount> reorders;
    int count = 0;
    for (int t = 0; t < 2 * Lanes::kCount && count < Lanes::kCount; ++t) {
      Reorder reorder{q, pick(microbatches), pick(microbatches), pick(2) == 0};
      if (reorder.from != reorder.to && change(count, reorder)) reorders[count++] = reorder;
    }
    if (count == 0) return false;
    const Lanes result = evaluate(q);
    const int best = best_lane(result, count);
    if (result.value[best] >= static_cast<float>(target_s_) || !state_.apply_if(reorders[best], target_s_))
      return false;
    renew(q);
    return true;
  }

  /// Sets the lane's loads to the new order, unless the path rules it out.
  bool change(int lane, const Reorder& reorder) {
    const int low = std::min(reorder.from, reorder.to);
    const int high = std::max(reorder.from, reorder.to);
    const auto source = [&](int j) {
      if (j == reorder.to) return reorder.from;
      if (!reorder.shift) return j == reorder.from ? reorder.to : j;
      return reorder.from < reorder.to ? j + 1 : j - 1;
    };
    const int dp = problem_.bins.dp;
    moves_.clear();
    double sum = 0;
    for (int d = 0; d < dp; ++d) {
      if (kernel_.group(d) != reorder.group) continue;
      for (int l = 0; l < kernel_.loads(); ++l) {
        const bool together =
            kernel_.groups() == 1 && d > 0 && kernel_.column(l, d) == kernel_.column(l, d - 1);
        if (together) continue;  // shared by the microbatch, and already done
        for (int j = low; j <= high; ++j) {
          if (source(j) == j) continue;
          const int column = kernel_.column(l, j * dp + d);
          const double value = state_.values(reorder.group)[kernel_.column(l, source(j) * dp + d)];
          sum += state_.gradient(reorder.group)[column] * (value - state_.values(reorder.group)[column]);
          moves_.emplace_back(column, value);
        }
      }
    }
    if (sum >= -margin_s_) return false;
    for (const auto& [column, value] : moves_) lanes_[reorder.group].change(lane, column, value);
    return true;
  }

  void set_limits(int slowest) {
    margin_s_ = kMin * state_.smooth_s(slowest);
    target_s_ = state_.smooth_s(slowest) - margin_s_;
  }

  void renew(const BinExchange& e) {
    for (const std::int32_t bin : {e.from, e.to}) {
      const int q = kernel_.group(bin);
      for (const std::int32_t column : kernel_.columns_of(bin))
        lanes_[q].set(column, state_.values(q)[column]);
    }
    filter_.refresh(kernel_.group(e.from));
    if (kernel_.group(e.to) != kernel_.group(e.from)) filter_.refresh(kernel_.group(e.to));
  }

  void renew(int group) {
    lanes_[group].set(state_.values(group));
    filter_.refresh(group);
  }

  Lanes evaluate(int group) {
    const Lanes result = lanes_[group].evaluate(state_.smoothing_s());
    lanes_[group].reset();
    return result;
  }

  /// Continues from the best assignment with some items exchanged at random.
  void kick(std::span<const std::int32_t> best) {
    state_.set(best);
    const int q = state_.slowest();
    for (int k = 1 + pick(kKicks); k > 0; --k) {
      const std::int32_t from = pick_bin(pick(2) == 0 ? q : pick(kernel_.groups()));
      const std::int32_t item = pick(static_cast<int>(problem_.bins.items()));
      const BinExchange e{from, state_.bin()[item], {pick_parcel(from)[0], -1}, {item, -1}};
      if (e.from != e.to && state_.allows(e)) state_.apply(e);
    }
    for (int group = 0; group < kernel_.groups(); ++group) renew(group);
  }

  const AssignmentProblem& problem_;
  const MakespanKernel& kernel_;
  const SearchControl& control_;
  Random& random_;
  MakespanState state_;
  std::vector<MakespanLanes> lanes_;  // per group
  MakespanLanes mixed_;               // for the other groups of candidates
  ExchangeFilter filter_;
  std::vector<double> moved_;
  std::vector<std::pair<int, double>> moves_;
  std::vector<BinExchange> found_;
  double most_part_ = 1;  ///< fraction of the widest smoothing
  double margin_s_ = 0;
  double target_s_ = 0;  // an exchange must leave its groups below this
  double best_s_ = 0;
};

}  // namespace

double makespan_search(const AssignmentProblem& problem, const MakespanKernel& kernel, Random& random,
                       const SearchControl& control, std::vector<std::int32_t>& bin) {
  return MakespanSearch(problem, kernel, random, control, bin).run(bin);
}

namespace {

/// A microbatch has about this many cells: enough to balance it, few enough to be fast.
constexpr std::size_t kCellsPerMicrobatch = 16;

/// Only this fraction of a cap is used; the rest is for differences between an item and the mean of its cell.
constexpr double kCapPart = 0.98;

using Items = std::span<std::int32_t>;

/// Divides items into cells of `size` (the last may have fewer), halving along the time in which they differ
/// most.
void cut(const BinProblem& problem, std::size_t size, Items items, std::vector<Items>& cells) {
  if (items.size() <= size) {
    cells.push_back(items);
    return;
  }
  const auto spread = [&](std::span<const double> time) {
    const auto [least, most] = std::ranges::minmax(items, {}, [&](std::int32_t i) { return time[i]; });
    return time[most] - time[least];
  };
  const auto time = spread(problem.encoder_s) > spread(problem.llm_s) ? problem.encoder_s : problem.llm_s;
  const std::size_t half = (items.size() / size + 1) / 2 * size;
  std::ranges::nth_element(items, items.begin() + static_cast<std::ptrdiff_t>(half), {},
                           [&](std::int32_t i) { return std::pair(-time[i], i); });
  cut(problem, size, items.first(half), cells);
  cut(problem, size, items.subspan(half), cells);
}

/// A MeanReplica is the problem of the mean replica, with a cell instead of an item.
struct MeanReplica {
  LoadPipeline pipeline;
  std::vector<std::vector<double>> means;
  AssignmentProblem problem;  ///< its spans and pointers refer to the other members

  MeanReplica(const AssignmentProblem& whole, std::span<const Items> cells) : pipeline(*whole.pipeline) {
    const int dp = whole.bins.dp;
    pipeline.dp = 1;
    std::fill(pipeline.shared.begin(), pipeline.shared.end(), 0);
    for (Load& load : pipeline.loads) {
      for (double& part : load.mix) part *= load.of_microbatch ? dp : 1;
      load.of_microbatch = false;
    }
    const auto mean = [&](std::span<const double> values) -> std::span<const double> {
      std::vector<double>& values_of_cells = means.emplace_back();
      for (const Items cell : cells) {
        double sum = 0;
        for (const std::int32_t item : cell) sum += values[item];
        values_of_cells.push_back(sum / dp);
      }
      return values_of_cells;
    };
    means.reserve(2 + whole.features.size() + whole.bins.caps.size());  // spans point into it
    problem.bins = {.encoder_s = mean(whole.bins.encoder_s),
                    .llm_s = mean(whole.bins.llm_s),
                    .bins = whole.bins.microbatches(),
                    .allow_empty = whole.bins.allow_empty};
    for (const Cap& cap : whole.bins.caps) {
      const double most = kCapPart * cap.most / (cap.of_microbatch ? dp : 1);
      problem.bins.caps.push_back({cap.what, mean(cap.weight), most, cap.window, false});
    }
    for (const std::span<const double> feature : whole.features) problem.features.push_back(mean(feature));
    problem.pipeline = &pipeline;
  }
  MeanReplica(const MeanReplica&) = delete;
};

/// Deals the items of a cell to the replicas of its microbatch. In decreasing order of size, each item goes
/// to the replica with the smallest load so far. The replicas get equal numbers of items, as far as possible.
/// `load` has the load of each bin, `bin` the bin of each item.
void deal(const BinProblem& problem, Items cell, int microbatch, std::vector<double>& load,
          std::vector<std::int32_t>& bin) {
  const auto work = [&](std::int32_t item) { return problem.encoder_s[item] + problem.llm_s[item]; };
  std::ranges::sort(cell, {}, [&](std::int32_t item) { return std::pair(-work(item), item); });
  const auto dp = static_cast<std::size_t>(problem.dp);
  double* loads = &load[microbatch * dp];
  std::vector<std::size_t> count(dp, 0);
  for (std::size_t i = 0; i < cell.size(); ++i) {
    std::size_t least = dp;
    for (std::size_t d = 0; d < dp; ++d) {
      if (count[d] <= i / dp && (least == dp || loads[d] < loads[least])) least = d;
    }
    ++count[least];
    loads[least] += work(cell[i]);
    bin[cell[i]] = static_cast<std::int32_t>(microbatch * dp + least);
  }
}

}  // namespace

std::vector<std::int32_t> mean_replica_start(const AssignmentProblem& problem, Random& random,
                                             const SearchControl& control) {
  const BinProblem& bins = problem.bins;
  const auto dp = static_cast<std::size_t>(bins.dp);
  const std::size_t rounds = bins.items() / (dp * bins.microbatches() * kCellsPerMicrobatch);
  std::vector<std::int32_t> items = numbered(bins.items());
  std::vector<Items> cells;
  cut(bins, dp * std::max<std::size_t>(1, rounds), items, cells);
  if (cells.size() < static_cast<std::size_t>(bins.microbatches())) return {};

  const MeanReplica replica(problem, cells);
  const AssignmentProblem& mean = replica.problem;
  std::vector<std::int32_t> microbatch = lpt(mean.bins);
  if (microbatch.empty() || broken_cap(mean.bins, microbatch)) return {};
  arrange_bins(mean.bins, microbatch);
  makespan_search(mean, MakespanKernel(*mean.pipeline), random, control, microbatch);

  std::vector<std::int32_t> order = numbered(cells.size());
  std::ranges::stable_sort(order, std::greater(), [&](std::int32_t c) { return mean.bins.llm_s[c]; });
  std::vector<double> load(bins.bins, 0.0);
  std::vector<std::int32_t> bin(bins.items());
  for (const std::int32_t c : order) deal(bins, cells[c], microbatch[c], load, bin);
  return fills_bins(bins, bin) && !broken_cap(bins, bin) ? bin : std::vector<std::int32_t>();
}

}  // namespace dflop
