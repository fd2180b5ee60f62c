#include "solver/bins/local_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "core/support/clock.hpp"
#include "solver/bins/heuristics.hpp"

namespace dflop {
namespace {

constexpr int kEncoder = 0;
constexpr int kLlm = 1;
constexpr int kCaps = 2;        // first dimension of caps
constexpr int kKickTries = 64;  // approximate cost of a kick
constexpr int kMaxPairs = 64;   // max items of a bin for which pairs are tried

int padded(int slots) {
  return (slots + kLanes - 1) / kLanes * kLanes;
}

}  // namespace

BinSearch::BinSearch(const BinProblem& problem, double unit_s, std::span<const std::int32_t> bin,
                     const Random& random)
    : problem_(problem),
      share_(problem.share()),
      caps_(problem),
      random_(random),
      ring_(numbered(problem.bins)) {
  item_.assign(kCaps + caps_.caps(), std::vector<float>(problem.items()));
  for (std::size_t i = 0; i < problem.items(); ++i) {
    item_[kEncoder][i] = static_cast<float>(problem.encoder_s[i] / (share_ * unit_s));
    item_[kLlm][i] = static_cast<float>(problem.llm_s[i] / unit_s);
    for (int c = 0; c < caps_.caps(); ++c)
      item_[kCaps + c][i] = static_cast<float>(caps_.weight(c, static_cast<std::int32_t>(i)));
  }
  rows_.resize(item_.size());
  random_.shuffle(std::span(ring_));
  set(bin);
}

void BinSearch::set(std::span<const std::int32_t> bin) {
  count_.assign(problem_.bins, 0);
  for (const std::int32_t b : bin) ++count_[b];
  // A row has one slot more for the empty slot, and space to grow.
  capacity_ = std::max(capacity_, padded(*std::max_element(count_.begin(), count_.end()) + 1 + kLanes / 2));
  const std::size_t slots = static_cast<std::size_t>(problem_.bins) * capacity_;
  for (int d = 0; d < dimensions(); ++d) rows_[d].assign(slots, d < kCaps ? kFar : 0.0F);
  zeros_.assign(capacity_, 0.0F);
  items_.assign(slots, -1);
  std::fill(count_.begin(), count_.end(), 0);
  caps_ = CapTable(problem_);
  for (std::size_t i = 0; i < bin.size(); ++i) {
    const std::int32_t b = bin[i];
    const int slot = count_[b]++;
    item(b, slot) = static_cast<std::int32_t>(i);
    for (int d = 0; d < dimensions(); ++d) row(d, b)[slot] = item_[d][i];
    caps_.add(static_cast<std::int32_t>(i), b);
  }
  encoder_.assign(problem_.bins / share_, 0.0F);
  llm_.assign(problem_.bins, 0.0F);
  bin_encoder_.assign(problem_.bins, 0.0F);
  for (std::int32_t b = 0; b < problem_.bins; ++b) {
    row(kEncoder, b)[count_[b]] = row(kLlm, b)[count_[b]] = 0;
    sum_up(b);
  }
}

std::vector<std::int32_t> BinSearch::assignment() const {
  std::vector<std::int32_t> bin(problem_.items());
  for (std::int32_t b = 0; b < problem_.bins; ++b) {
    for (int s = 0; s < count_[b]; ++s) bin[items_[static_cast<std::size_t>(b) * capacity_ + s]] = b;
  }
  return bin;
}

std::int32_t BinSearch::fullest() const {
  std::int32_t x = 0;
  for (std::int32_t b = 1; b < problem_.bins; ++b) {
    if (load(b) > load(x)) x = b;
  }
  return x;
}

/// Returns the bins of which one must lose an item to lower the largest load: the fullest bin or, if its
/// shared encoder load is its larger load, all bins of its microbatch.
std::vector<std::int32_t> BinSearch::sources() const {
  const std::int32_t x = fullest();
  if (share_ == 1 || llm_[x] >= encoder_[x / share_]) return {x};
  std::vector<std::int32_t> bins(share_);
  std::iota(bins.begin(), bins.end(), x / share_ * share_);
  return bins;
}

Offers BinSearch::items_of(std::int32_t bin, int first, int count) const {
  Offers offers;
  offers.encoder = row(kEncoder, bin) + first;
  offers.llm = row(kLlm, bin) + first;
  for (int c = 0; c < caps_.caps(); ++c) offers.weight[c] = row(kCaps + c, bin) + first;
  offers.count = count;
  return offers;
}

ExchangeQuery BinSearch::query(std::int32_t x, std::int32_t y) const {
  ExchangeQuery q;
  q.encoder_x = encoder_[x / share_];
  q.encoder_y = encoder_[y / share_];
  q.llm_x = llm_[x];
  q.llm_y = llm_[y];
  q.caps = caps_.caps();
  for (int c = 0; c < q.caps; ++c) {
    q.most[c] = static_cast<float>(caps_.room(c, x, y));
    q.least[c] = -static_cast<float>(caps_.room(c, y, x));
  }
  return q;
}

void BinSearch::try_items(std::int32_t x, int block, std::int32_t y, Found& best) {
  ExchangeQuery q = query(x, y);
  const int first = block * kBlock;
  q.x = items_of(x, first, std::min(kBlock, count_[x] - first));
  q.y = items_of(y, 0, count_[y]);
  // The empty slot is offered, but a bin may not give away its last item.
  if (count_[x] > 1 || problem_.allow_empty) ++q.y.count;
  if (x / share_ == y / share_) q.x.encoder = q.y.encoder = zeros_.data();
  tries_ += static_cast<std::int64_t>(q.x.count) * padded(q.y.count) / kLanes;
  if (!best_exchange(q, best.exchange)) return;
  best.exchange.x += first;
  best.x = x;
  best.y = y;
}

void BinSearch::apply(const Found& found) {
  if (found.x < 0) return;
  if (found.exchange.y < count_[found.y]) {
    swap_slots(found.x, found.exchange.x, found.y, found.exchange.y);
  } else {
    move_slot(found.x, found.exchange.x, found.y);
  }
}

void BinSearch::pair_offers(std::int32_t bin, PairOffers& out) const {
  const int count = count_[bin];
  out.rows.assign(dimensions(), {});
  out.slots.clear();
  const auto add = [&](int s, int t) {  // the slot after the items: nothing
    for (int d = 0; d < dimensions(); ++d) {
      const float* values = row(d, bin);
      const auto value = [&](int slot) { return slot == count ? 0.0F : values[slot]; };
      out.rows[d].push_back(value(s) + value(t));
    }
    out.slots.push_back({s, t});
  };
  const bool pairs = count <= kMaxPairs;
  for (int s = 0; s < count; ++s) {
    add(s, count);
    for (int t = s + 1; pairs && t < count; ++t) add(s, t);
  }
  add(count, count);
  for (int d = 0; d < dimensions(); ++d)
    out.rows[d].resize(padded(static_cast<int>(out.slots.size())), d < kCaps ? kFar : 0.0F);
  out.offers.encoder = out.rows[kEncoder].data();
  out.offers.llm = out.rows[kLlm].data();
  for (int c = 0; c < caps_.caps(); ++c) out.offers.weight[c] = out.rows[kCaps + c].data();
  out.offers.count = static_cast<int>(out.slots.size());
}

bool BinSearch::try_pairs(std::int32_t x, std::int32_t y, float below) {
  if (count_[x] > kMaxPairs && count_[y] > kMaxPairs) return false;  // single items were tried
  pair_offers(y, pairs_y_);
  ExchangeQuery q = query(x, y);
  q.x = pairs_x_.offers;
  q.y = pairs_y_.offers;
  std::vector<float> none;
  if (x / share_ == y / share_) {
    none.assign(std::max(pairs_x_.rows[0].size(), pairs_y_.rows[0].size()), 0.0F);
    q.x.encoder = q.y.encoder = none.data();
  }
  tries_ += static_cast<std::int64_t>(q.x.count) * padded(q.y.count) / kLanes;
  Exchange best{below};
  if (!best_exchange(q, best)) return false;
  const auto given = [](const Pair& p, int count) {
    return (p.first < count ? 1 : 0) + (p.second < count ? 1 : 0);
  };
  const Pair from_x = pairs_x_.slots[best.x];
  const Pair from_y = pairs_y_.slots[best.y];
  const int gives_x = given(from_x, count_[x]);
  const int gives_y = given(from_y, count_[y]);
  if (!problem_.allow_empty && (count_[x] - gives_x + gives_y < 1 || count_[y] - gives_y + gives_x < 1))
    return false;
  // Move higher slots first, because a move fills its slot with the row's last item.
  if (gives_x == 2 && gives_y == 2) swap_slots(x, from_x.second, y, from_y.second);
  if (gives_x == 2 && gives_y < 2) move_slot(x, from_x.second, y);
  if (gives_y == 2 && gives_x < 2) move_slot(y, from_y.second, x);
  if (gives_x > 0 && gives_y > 0) swap_slots(x, from_x.first, y, from_y.first);
  if (gives_x > 0 && gives_y == 0) move_slot(x, from_x.first, y);
  if (gives_y > 0 && gives_x == 0) move_slot(y, from_y.first, x);
  return true;
}

bool BinSearch::fits_exchange(std::int32_t x, int s, std::int32_t y, int t) const {
  for (int c = 0; c < caps_.caps(); ++c) {
    const double change = static_cast<double>(row(kCaps + c, y)[t]) - row(kCaps + c, x)[s];
    if (change > caps_.room(c, x, y) || -change > caps_.room(c, y, x)) return false;
  }
  return true;
}

bool BinSearch::exchange_items(const Stop& stop) {
  Found best{{largest() * (1 - 1e-6F)}};
  std::int64_t ask_at = tries_ + kAskAfter;
  for (const std::int32_t x : sources()) {
    const int blocks = (count_[x] + kBlock - 1) / kBlock;
    for (int b = 0; b < blocks && best.x < 0; ++b) {
      const int block = next_block_ = (next_block_ + 1) % blocks;
      for (int looked = 0; looked < problem_.bins; ++looked) {
        if (looked % kChunk == 0 && best.x >= 0) break;
        const std::int32_t y = ring_[next_];
        next_ = next_ + 1 == ring_.size() ? 0 : next_ + 1;
        if (y != x) try_items(x, block, y, best);
        if (tries_ < ask_at) continue;
        if (stop()) {
          apply(best);
          return best.x >= 0;
        }
        ask_at = tries_ + kAskAfter;
      }
    }
    if (best.x >= 0) break;
  }
  apply(best);
  return best.x >= 0;
}

bool BinSearch::exchange_pairs(const Stop& stop) {
  const float below = largest() * (1 - 1e-6F);
  const std::vector<std::int32_t> from = sources();
  const std::size_t start = random_.below(ring_.size());
  for (const std::int32_t x : from) {
    pair_offers(x, pairs_x_);
    for (std::size_t k = 0; k < ring_.size(); ++k) {
      const std::int32_t y = ring_[(start + k) % ring_.size()];
      if (stop()) return false;
      if (y != x && try_pairs(x, y, below)) return true;
    }
  }
  return false;
}

void BinSearch::kick() {
  tries_ += kKickTries;
  const std::uint64_t swaps = 2 + random_.below(3);
  const std::int32_t first = fullest();
  for (std::uint64_t k = 0; k < swaps; ++k) {
    const auto any = [&] { return static_cast<std::int32_t>(random_.below(ring_.size())); };
    const std::int32_t x = k == 0 ? first : any();
    const std::int32_t y = any();
    if (x == y || count_[x] == 0 || count_[y] == 0) continue;
    const auto s = static_cast<int>(random_.below(count_[x]));
    const auto t = static_cast<int>(random_.below(count_[y]));
    if (fits_exchange(x, s, y, t)) swap_slots(x, s, y, t);
  }
}

void BinSearch::swap_slots(std::int32_t x, int s, std::int32_t y, int t) {
  caps_.remove(item(x, s), x);
  caps_.remove(item(y, t), y);
  for (int d = 0; d < dimensions(); ++d) std::swap(row(d, x)[s], row(d, y)[t]);
  std::swap(item(x, s), item(y, t));
  caps_.add(item(x, s), x);
  caps_.add(item(y, t), y);
  sum_up(x);
  sum_up(y);
}

void BinSearch::move_slot(std::int32_t x, int s, std::int32_t y) {
  if (count_[y] + 2 > capacity_) grow();  // a slot must remain after the items
  caps_.remove(item(x, s), x);
  caps_.add(item(x, s), y);
  const int to = count_[y]++;
  const int last = --count_[x];
  item(y, to) = item(x, s);
  item(x, s) = item(x, last);
  item(x, last) = -1;
  for (int d = 0; d < dimensions(); ++d) {
    row(d, y)[to] = row(d, x)[s];
    row(d, x)[s] = row(d, x)[last];
    row(d, x)[last] = 0;
    row(d, y)[to + 1] = 0;
    if (d < kCaps) row(d, x)[last + 1] = kFar;
  }
  sum_up(x);
  sum_up(y);
}

/// Gives every row more slots.
void BinSearch::grow() {
  const int before = capacity_;
  capacity_ += kLanes;
  const auto widen = [&](auto& rows, auto padding) {
    auto wide =
        std::remove_reference_t<decltype(rows)>(static_cast<std::size_t>(problem_.bins) * capacity_, padding);
    for (std::size_t b = 0; b < count_.size(); ++b)
      std::copy_n(&rows[b * before], before, &wide[b * capacity_]);
    rows = std::move(wide);
  };
  for (int d = 0; d < dimensions(); ++d) widen(rows_[d], d < kCaps ? kFar : 0.0F);
  widen(items_, std::int32_t{-1});
  zeros_.assign(capacity_, 0.0F);
}

void BinSearch::sum_up(std::int32_t bin) {
  float encoder = 0;
  float llm = 0;
  for (int s = 0; s < count_[bin]; ++s) {
    encoder += row(kEncoder, bin)[s];
    llm += row(kLlm, bin)[s];
  }
  bin_encoder_[bin] = encoder;
  llm_[bin] = llm;
  const std::int32_t group = bin / share_;
  float sum = 0;
  for (int k = 0; k < share_; ++k) sum += bin_encoder_[static_cast<std::size_t>(group) * share_ + k];
  encoder_[group] = sum;
}

namespace {

/// A search without limits takes this many steps. If items times bins is at most kSmallCells, it takes fewer,
/// because it has tried everything by then.
constexpr std::int64_t kDefaultSteps = 2'000'000;
constexpr std::int64_t kDefaultStepsOfSmall = 100'000;
/// A slow machine, with other programs on its cores, takes up to this long for a step.
constexpr double kStepSeconds = 0.2e-6;
/// A load in float up to this multiple of the bound equals the bound within rounding.
constexpr float kMet = 1 + 2e-7F;

/// A SearchBudget says when a search must end.
class SearchBudget {
 public:
  SearchBudget(const BinProblem& problem, const SolveLimits& limits) : limits_(limits) {
    const bool small = problem.items() * static_cast<std::size_t>(problem.bins) <= kSmallCells;
    const double worth_s = limits.worth_s(iteration_s(problem), std::numeric_limits<double>::infinity());
    steps_ = limits.steps_or(small ? kDefaultStepsOfSmall : kDefaultSteps, worth_s, kStepSeconds);
  }

  /// Returns whether a stop was requested or the time is over.
  bool late() const {
    return limits_.stop.stop_requested() || (limits_.time && watch_.elapsed() >= *limits_.time);
  }

  bool over(const BinSearch& search) const { return late() || (!limits_.time && search.tries() >= steps_); }

 private:
  const SolveLimits& limits_;
  std::int64_t steps_ = 0;
  Stopwatch watch_;
};

/// Exchanges until no exchange helps, `goal` is reached or the budget is spent.
void descend(BinSearch& search, float goal, const SearchBudget& budget) {
  const BinSearch::Stop over = [&] { return budget.over(search); };
  while (search.largest() > goal && !over()) {
    if (!search.exchange_items(over) && !search.exchange_pairs(over)) return;
  }
}

/// Repeatedly kicks the best assignment and descends from there. Calls `found` with each better assignment;
/// if `found` returns true, the search ends.
template <typename Found>
void search_on(BinSearch& search, float goal, const SearchBudget& budget, const Found& found) {
  std::vector<std::int32_t> best = search.assignment();
  float least = search.largest();
  while (true) {
    descend(search, goal, budget);
    const float load = search.largest();
    if (load <= least) best = search.assignment();
    if (load < least && found(best)) return;
    least = std::min(least, load);
    if (least <= goal || budget.over(search)) return;
    if (load > least) search.set(best);
    search.kick();
  }
}

/// Tries all assignments of a small problem until one obeys the caps and leaves no bin empty unless allowed:
/// each item in turn goes into every bin where it fits.
/// @return the bin of each item; empty if there is no such assignment or the time is over.
std::vector<std::int32_t> enumerate(const BinProblem& problem, const SearchBudget& budget) {
  constexpr int kAskAfter = 4096;  // items placed
  CapTable caps(problem);
  std::vector<std::int32_t> bin(problem.items());
  std::vector<int> count(problem.bins, 0);                     // items of a bin
  std::size_t empty = problem.allow_empty ? 0 : problem.bins;  // bins that still need an item
  int placed = 0;
  bool late = false;
  // Places the items from `next` on.
  const auto place = [&](const auto& self, std::size_t next) -> bool {
    if (++placed % kAskAfter == 0) late = budget.late();
    if (late || bin.size() - next < empty) return false;
    if (next == bin.size()) return !broken_cap(problem, bin);
    const auto item = static_cast<std::int32_t>(next);
    for (std::int32_t b = 0; b < problem.bins; ++b) {
      if (!caps.fits(item, b)) continue;
      bin[next] = b;
      caps.add(item, b);
      if (count[b]++ == 0 && !problem.allow_empty) --empty;
      if (self(self, next + 1)) return true;
      caps.remove(item, b);
      if (--count[b] == 0 && !problem.allow_empty) ++empty;
    }
    return false;
  };
  return place(place, 0) ? bin : std::vector<std::int32_t>();
}

/// Returns each item's use of the caps, as a fraction of a bin's part of an evenly filled window.
std::vector<double> shares(const BinProblem& problem, bool of_microbatch) {
  std::vector<double> share(problem.items(), 0.0);
  for (const Cap& cap : problem.caps) {
    if (cap.of_microbatch != of_microbatch || cap.most <= 0) continue;
    const int window = problem.window(cap);
    const double bins = of_microbatch ? problem.dp : 1;
    for (std::size_t i = 0; i < share.size(); ++i)
      share[i] = std::max(share[i], cap.weight[i] * window * bins / cap.most);
  }
  return share;
}

}  // namespace

AssignmentSolution local_search(const BinProblem& problem, const SolveLimits& limits) {
  const SearchBudget budget(problem, limits);
  const double bound_s = lower_bound(problem);
  AssignmentSolution solution{{.bound = Seconds(bound_s)}, obey_caps(problem, limits)};
  if (solution.bin.empty() && problem.items() > 0) {
    solution.status = ScheduleStatus::infeasible;
    solution.reason = "no assignment that obeys all caps was found";
  }
  if (solution.bin.empty()) return solution;
  double least = largest_load(problem, solution.bin);
  if (limits.improved) limits.improved(solution.bin, least);
  const double enough_s = bound_s * (1 + limits.enough_gap());
  if (problem.bins == 1 || meets_bound(least, enough_s)) return solution;
  if (static_cast<int>(problem.caps.size()) > kMaxCaps) {
    solution.status = ScheduleStatus::fallback;
    solution.reason =
        fmt::format("found {} caps, but exchanges support at most {}", problem.caps.size(), kMaxCaps);
    return solution;
  }

  BinSearch search(problem, bound_s, solution.bin, Random(limits.seed, limits.stream));
  const float goal = std::max(kMet, static_cast<float>(1 + limits.enough_gap()));
  search_on(search, goal, budget, [&](const std::vector<std::int32_t>& bin) {
    const double load = largest_load(problem, bin);
    if (load < least) {
      least = load;
      solution.bin = bin;
      if (limits.improved) limits.improved(bin, load);
    }
    return meets_bound(least, enough_s);
  });
  if (meets_bound(least, enough_s) && limits.enough_gap() > 0) return solution;
  solution.status = limits.time ? ScheduleStatus::time_limit : ScheduleStatus::node_limit;
  return solution;
}

std::vector<std::int32_t> obey_caps(const BinProblem& problem, const SolveLimits& limits) {
  SolveLimits whole = limits;
  whole.worth.reset();  // without an assignment there is no schedule
  const SearchBudget budget(problem, whole);
  std::vector<std::int32_t> bin = lpt(problem);
  if (!bin.empty()) return bin;
  const std::vector<double> of_microbatch = shares(problem, true);
  const std::vector<double> of_bin = shares(problem, false);
  BinProblem fill{of_microbatch, of_bin, problem.bins, problem.dp, true, problem.allow_empty};
  bin = lpt(fill);
  if (!broken_cap(problem, bin)) return bin;
  if (problem.bins == 1) return {};
  bool obeyed = false;
  BinSearch search(fill, 1.0, bin, Random(limits.seed, limits.stream));
  search_on(search, 0, budget, [&](const std::vector<std::int32_t>& found) {
    obeyed = !broken_cap(problem, found);
    bin = found;
    return obeyed;
  });
  if (obeyed) return bin;
  constexpr double kMaxAssignments = 1 << 20;  // few enough to try all quickly
  if (std::pow(problem.bins, static_cast<double>(problem.items())) > kMaxAssignments) return {};
  return enumerate(problem, budget);
}

}  // namespace dflop
