// This source computes the bound on a plan under every cut of its layers.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/order/pipeline_order.hpp"
#include "core/program/lowering.hpp"
#include "solver/plan_problem/work.hpp"
#include "solver/planners/search/bound.hpp"
#include "solver/planners/search/cuts.hpp"

namespace dflop {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPrecision = 1e-4;  // of a bound
constexpr int kMaxDoublings = 64;

/// Returns the largest number in [low, high] for which a condition holds. The condition must hold for `low`.
/// If it does not hold for a number, it must hold for no larger one.
template <typename Condition>
int last_that(int low, int high, const Condition& holds) {
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    holds(middle) ? low = middle : high = middle - 1;
  }
  return low;
}

/// Returns the smallest time, to within kPrecision and from `low` on, that can be kept; infinity if none can.
template <typename CanBeKept>
double least_time(double low, const CanBeKept& can_be_kept) {
  if (!can_be_kept(kInfinity)) return kInfinity;
  if (can_be_kept(low)) return low;
  double high = std::max(low, 1e-9);
  for (int k = 0; k < kMaxDoublings && !can_be_kept(high); ++k) high *= 2;
  while (high - low > kPrecision * high) {
    const double middle = (low + high) / 2;
    (can_be_kept(middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace

/// A ChainPrice prices pieces of a chain of layers in which each rank has one piece. Times are in seconds and
/// for the mean dp rank.
class SearchBounds::ChainPrice {
 public:
  ChainPrice(const SearchBounds& bounds, const Plan& plan, const LayerChain& chain)
      : bounds_(bounds),
        cost_(bounds.request_.cost),
        plan_(plan),
        chain_(chain),
        shape_(plan_shape(plan)),
        // A colocated plan's stage 0 is on all ranks.
        first_rank_(plan.layout == Layout::colocated ? 0 : chain.first_stage),
        split_(splits_backward(plan.order)),
        usable_(bounds.request_.cluster.gpu.usable_memory()),
        busy_((chain.layers() + 1) * (chain.layers() + 1), kUnknown),
        longest_back_(chain.pieces * (chain.layers() + 1), kUnknown),
        longest_on_(longest_back_) {
    if (plan.layout == Layout::colocated) {
      const LayerChain encoder = layer_chains(plan, bounds.request_.model).front();
      usable_ -=
          cost_.model_state(piece_stage(plan, bounds.request_.model, encoder, 0, encoder.layers())).total();
    }
  }

  /// Returns the largest time of at least `low`, to within kPrecision, within which no cut runs; infinity if
  /// no cut fits into memory.
  double bound(double low) {
    return least_time(low, [&](double time) { return fits_within(time); });
  }

 private:
  static constexpr double kUnknown = -1;

  Stage stage(int first, int last) const {
    return piece_stage(plan_, bounds_.request_.model, chain_, first, last);
  }

  /// Returns a lower bound on the time of all microbatches of a piece. A stage with layers of both modules
  /// takes at least the time of its layers of either module.
  double busy(int first, int last) {
    double& known = busy_[first * (chain_.layers() + 1) + last];
    if (known != kUnknown) return known;
    const auto total = [&](const Stage& piece) {
      const bool shared_encoder = piece.llm_layers == 0 && plan_.layout != Layout::uniform;
      const std::int64_t bins = std::int64_t{plan_.microbatches} * piece.dp;
      return bounds_.total_of(piece, bins, shared_encoder, split_) / piece.dp;
    };
    known = total(bounds_.with_choice(stage(first, last), plan_.layout, Recomputation::none));
    const int boundary = chain_.encoder_layers;
    if (first < boundary && boundary < last)
      known = std::max({known, busy(first, boundary), busy(boundary, last)});
    return known;
  }

  bool fits_memory(int piece, int first, int last) const {
    const Stage of = bounds_.with_choice(stage(first, last), plan_.layout, Recomputation::full);
    const int held = traits(plan_.order).surely_held(shape_, first_rank_ + piece);
    return cost_.model_state(of).total() + bounds_.surely_live(plan_, of, held) <= usable_;
  }

  /// Returns the max number of layers ending before `last` that fit into piece r.
  int longest_back(int r, int last) {
    int& known = longest_back_[r * (chain_.layers() + 1) + last];
    if (known == kUnknown)
      known = last_that(0, last, [&](int of) { return fits_memory(r, last - of, last); });
    return known;
  }

  /// Returns the max number of layers from `first` on that fit into piece r.
  int longest_on(int r, int first) {
    int& known = longest_on_[r * (chain_.layers() + 1) + first];
    if (known == kUnknown) {
      known =
          last_that(0, chain_.layers() - first, [&](int of) { return fits_memory(r, first, first + of); });
    }
    return known;
  }

  /// Returns the time of a pass of the smallest sample through the LLM's layers before `end`.
  double pass_before(Op op, int end) const {
    if (end <= chain_.encoder_layers) return 0;
    return bounds_.floor_of(op, stage(chain_.encoder_layers, end), {{}, bounds_.batch_.smallest});
  }

  /// Returns whether some cut may have no piece that ends later than `time`.
  bool fits_within(double time) {
    const int layers = chain_.layers();
    const int pieces = chain_.pieces;
    // Piece r of a cut begins at least[r] or later.
    std::vector<int> least(pieces);
    int end = layers;
    for (int r = pieces - 1; r >= 0; --r) {
      const int length = last_that(0, std::min(end - r, longest_back(r, end)),
                                   [&](int of) { return busy(end - of, end) <= time; });
      end = least[r] = end - length;
    }
    if (end > 0) return false;
    if (time == kInfinity) return true;
    int begin = 0;
    for (int r = 0; r < pieces; ++r) {
      const double before = pass_before(Op::forward, least[r]);
      // Before a frozen LLM there may be nothing that gradients go back to.
      const bool returns = !split_ && plan_.trained.in_llm();
      const double after = returns ? pass_before(Op::backward, least[r]) : 0;
      const int most = std::min(layers - (pieces - 1 - r), begin + longest_on(r, begin));
      begin = last_that(begin, std::max(begin, most), [&](int last) {
        const double step = cost_.optimizer_step(stage(begin, last)).count();
        return busy(begin, last) + before + std::max(after, step) <= time;
      });
    }
    return begin == layers;
  }

  const SearchBounds& bounds_;
  const CostModel& cost_;
  const Plan& plan_;
  const LayerChain& chain_;
  PipelineShape shape_;
  int first_rank_;
  bool split_;
  Bytes usable_;
  // These caches are filled on demand.
  std::vector<double> busy_;       // of the pieces [first, last)
  std::vector<int> longest_back_;  // of the pieces r that end before last
  std::vector<int> longest_on_;    // of the pieces r from first on
};

/// A ChunkPrice prices the ranks of a chain in which each rank has several pieces. Pieces on one rank take at
/// least the time and state of one stage with all their layers, so only a rank's number of layers matters.
class SearchBounds::ChunkPrice {
 public:
  ChunkPrice(const SearchBounds& bounds, const Plan& plan, const LayerChain& chain)
      : bounds_(bounds),
        plan_(plan),
        chain_(chain),
        split_(splits_backward(plan.order)),
        usable_(bounds.request_.cluster.gpu.usable_memory()),
        busy_(2 * (chain.encoder_layers + 1) * (chain.llm_layers + 1), kUnknown) {}

  /// Returns the same as ChainPrice::bound().
  double bound(double low) {
    return least_time(low, [&](double time) { return hold_all_within(time); });
  }

 private:
  static constexpr double kUnknown = -1;

  double busy(int encoder_layers, int llm_layers, bool head) {
    double& known = busy_[(encoder_layers * (chain_.llm_layers + 1) + llm_layers) * 2 + (head ? 1 : 0)];
    if (known != kUnknown) return known;
    // These layers end where the chain does, or before its last one, so they include no other parts.
    LayerChain chain = chain_;
    chain.encoder_layers = encoder_layers + 1;
    chain.llm_layers = llm_layers + 2;
    const int first = 1;
    Stage stage =
        piece_stage(plan_, bounds_.request_.model, chain, first, first + encoder_layers + llm_layers);
    stage.connector = stage.embedding = stage.front = false;
    stage.head = head;
    if (bounds_.request_.cost.model_state(stage).total() > usable_) return known = kInfinity;
    known = bounds_.total_of(stage, std::int64_t{plan_.microbatches} * stage.dp, false, split_) / stage.dp;
    if (encoder_layers > 0 && llm_layers > 0)
      known = std::max({known, busy(encoder_layers, 0, false), busy(0, llm_layers, head)});
    return known;
  }

  /// Returns the max number of encoder layers that a rank can have in addition to `llm_layers` LLM layers; -1
  /// if it cannot even have those.
  int most_encoder_layers(int llm_layers, bool head, double time) {
    return last_that(-1, chain_.encoder_layers, [&](int layers) {
      const double seconds = busy(layers, llm_layers, head);
      return seconds < kInfinity && seconds <= time;
    });
  }

  /// Returns whether ranks that are busy for at most `time` can hold all layers.
  bool hold_all_within(double time) {
    const int llm_layers = chain_.llm_layers;
    // The max encoder layers of ranks that together have this many LLM layers; first, the rank with the head.
    std::vector<int> most(llm_layers + 1, -1);
    for (int l = 1; l <= llm_layers; ++l) most[l] = most_encoder_layers(l, true, time);
    std::vector<int> of_one;
    for (int l = 0; l <= llm_layers; ++l) {
      of_one.push_back(most_encoder_layers(l, false, time));
      if (of_one.back() < 0) break;
    }
    for (int rank = 1; rank < plan_.llm.pp; ++rank) {
      std::vector<int> more(llm_layers + 1, -1);
      for (int l = 0; l <= llm_layers; ++l) {
        for (int own = 0; most[l] >= 0 && own < static_cast<int>(of_one.size()) && l + own <= llm_layers;
             ++own) {
          if (of_one[own] >= 0) more[l + own] = std::max(more[l + own], most[l] + of_one[own]);
        }
      }
      most = std::move(more);
    }
    return most[llm_layers] >= chain_.encoder_layers;
  }

  const SearchBounds& bounds_;
  const Plan& plan_;
  const LayerChain& chain_;
  bool split_;
  Bytes usable_;
  std::vector<double> busy_;  // a cache
};

bool SearchBounds::have_one_cuts_bound(const Plan& a, const Plan& b) {
  return splits_backward(a.order) == splits_backward(b.order) && a.chunks == b.chunks &&
         traits(a.order).surely_held == traits(b.order).surely_held;
}

double SearchBounds::cuts_bound(const Plan& plan) const {
  double bound = 0;
  for (const LayerChain& chain : layer_chains(plan, request_.model)) {
    if (chain.layers() == 0) continue;
    if (plan.layout == Layout::colocated && chain.llm_layers == 0) continue;  // it is on all ranks
    const bool chunked = plan.chunks > 1 && chain.llm_layers > 0;
    bound = std::max(bound, chunked ? ChunkPrice(*this, plan, chain).bound(bound)
                                    : ChainPrice(*this, plan, chain).bound(bound));
  }
  const double stages = plan.encoder.pp + plan.llm.pp * plan.chunks;
  return std::max(0.0, bound - kRounding * (3.0 * plan.microbatches * plan.chunks + 8 * stages + 8));
}

Bytes SearchBounds::expected_memory(const Plan& plan, int stage_index, const Stage& stage,
                                    bool further) const {
  const PipelineShape shape = plan_shape(plan);
  const Op backward = splits_backward(plan.order) ? Op::backward_input : Op::backward;
  const int rank = rank_of_stage(shape, stage_index);
  const int stages = rank < shape.leading ? 1 : plan.chunks;
  const int held = (traits(plan.order).most_held(shape, rank) + stages - 1) / stages;
  const auto work = [&](int microbatches) {
    return held_work(further ? batch_.hardest : batch_.heaviest, stage, plan.microbatches, plan.llm.dp,
                     microbatches);
  };
  const Bytes kept = request_.cost.model_state(stage).total() + request_.cost.activation(stage, work(held));
  return Bytes{stages * kept.count} + request_.cost.workspace(backward, stage, work(1));
}

}  // namespace dflop
