#include "solver/planners/search/cuts.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace dflop {
namespace {

/// A Filling fills pieces from the end.
class Filling {
 public:
  Filling(const std::vector<double>& items, int parts, const PieceFits& fits)
      : items_(items), parts_(parts), fits_(fits), first_(parts * (items.size() + 1), kUnknown) {}

  /// Fills pieces from the last to the first, with at most `limit` in each and only pieces that fit. Returns
  /// the number of items in each piece; nullopt if that takes more than parts_ pieces.
  std::optional<std::vector<int>> filled(double limit) {
    std::vector<int> counts(parts_, 0);
    int left = static_cast<int>(items_.size());
    for (int part = parts_ - 1; part >= 0; --part) {
      const int last = left;
      const int first = std::max(part, first_that_fits(part, last));
      for (double sum = 0; left > first && sum + items_[left - 1] <= limit;) sum += items_[--left];
      counts[part] = last - left;
      if (counts[part] == 0) return std::nullopt;
    }
    return left == 0 ? std::optional(std::move(counts)) : std::nullopt;
  }

 private:
  static constexpr int kUnknown = -1;

  /// Returns the first item of the longest piece that ends before `last` and fits; `last` if none does.
  int first_that_fits(int part, int last) {
    if (!fits_) return 0;
    int& known = first_[part * (items_.size() + 1) + last];
    if (known != kUnknown) return known;
    int low = 0;
    int high = last;  // an empty piece fits
    while (low < high) {
      const int middle = (low + high) / 2;
      fits_(part, middle, last) ? high = middle : low = middle + 1;
    }
    return known = low;
  }

  const std::vector<double>& items_;
  int parts_;
  const PieceFits& fits_;
  std::vector<int> first_;
};

/// Returns how many layers each piece of a chain has in a plan.
std::vector<int> sizes_of(const Plan& plan, const LayerChain& chain) {
  if (chain.llm_layers == 0) return plan.encoder.layers;
  std::vector<int> sizes = plan.llm.layers;
  if (chain.encoder_layers > 0) {
    for (std::size_t s = 0; s < sizes.size(); ++s) sizes[s] += plan.encoder.layers[s];
  }
  return sizes;
}

std::vector<std::vector<int>> sizes_of(const Plan& plan, const std::vector<LayerChain>& chains) {
  std::vector<std::vector<int>> sizes;
  for (const LayerChain& chain : chains) sizes.push_back(sizes_of(plan, chain));
  return sizes;
}

/// Appends every way to cut `layers` into `parts` pieces, each after the given sizes.
void add_cuts(std::vector<int>& given, int layers, int parts, std::vector<std::vector<int>>& cuts) {
  if (parts == 1) {
    cuts.push_back(given);
    cuts.back().push_back(layers);
    return;
  }
  for (int size = 1; size <= layers - (parts - 1); ++size) {
    given.push_back(size);
    add_cuts(given, layers - size, parts - 1, cuts);
    given.pop_back();
  }
}

}  // namespace

std::vector<LayerChain> layer_chains(const Plan& plan, const ModelSpec& model) {
  const int stages = plan.llm.pp * plan.chunks;
  const int encoder_layers = model.encoder.layers;
  if (plan.layout == Layout::uniform) return {{encoder_layers, model.llm.layers, stages, 0}};
  return {{encoder_layers, 0, plan.encoder.pp, 0}, {0, model.llm.layers, stages, plan.encoder.pp}};
}

bool has_one_cut(const Plan& plan, const ModelSpec& model) {
  return std::ranges::all_of(layer_chains(plan, model), &LayerChain::has_one_cut);
}

Stage piece_stage(const Plan& plan, const ModelSpec& model, const LayerChain& chain, int first, int last) {
  const bool is_encoder = chain.llm_layers == 0;
  const ModulePlan& module = is_encoder ? plan.encoder : plan.llm;
  const int boundary = chain.encoder_layers;
  Stage stage;
  stage.encoder_layers = std::min(last, boundary) - std::min(first, boundary);
  stage.llm_layers = last - first - stage.encoder_layers;
  if (stage.encoder_layers > 0) {
    stage.connector = last >= boundary && model.connector.widths.size() > 1;
    stage.front = first == 0 && model.architecture.has_value();
  }
  if (stage.llm_layers > 0) {
    stage.embedding = first <= boundary;
    stage.head = last == chain.layers();
  }
  stage.tp = module.tp;
  stage.dp = module.dp;
  if (is_encoder) stage.copies = encoder_copies(plan);
  stage.recomputation = recomputation_of(plan, is_encoder);
  stage.zero1 = plan.zero1;
  stage.sequence_parallel = plan.sequence_parallel;
  stage.optimizer_states = plan.optimizer_states;
  stage.trained = plan.trained;
  if (plan.layout == Layout::shared) stage.share = is_encoder ? plan.encoder_share : 1 - plan.encoder_share;
  return stage;
}

Plan with_cuts(Plan plan, const ModelSpec& model, const std::vector<std::vector<int>>& sizes) {
  if (plan.layout != Layout::uniform) {
    plan.encoder.layers = sizes.front();
    plan.llm.layers = sizes.back();
    return plan;
  }
  plan.encoder.layers.clear();
  plan.llm.layers.clear();
  for (int left = model.encoder.layers; const int size : sizes.front()) {
    plan.encoder.layers.push_back(std::min(left, size));
    plan.llm.layers.push_back(size - plan.encoder.layers.back());
    left -= plan.encoder.layers.back();
  }
  return plan;
}

std::vector<Plan> moved_by_one_layer(const Plan& plan, const ModelSpec& model) {
  std::vector<std::vector<int>> sizes = sizes_of(plan, layer_chains(plan, model));
  std::vector<Plan> moved;
  for (std::vector<int>& chain : sizes) {
    for (std::size_t s = 0; s + 1 < chain.size(); ++s) {
      for (const int step : {-1, 1}) {
        if (chain[s] + step < 1 || chain[s + 1] - step < 1) continue;
        chain[s] += step;
        chain[s + 1] -= step;
        moved.push_back(with_cuts(plan, model, sizes));
        chain[s] -= step;
        chain[s + 1] += step;
      }
    }
  }
  return moved;
}

std::int64_t count_cuts(const Plan& plan, const ModelSpec& model, std::int64_t most) {
  std::int64_t count = 1;
  for (const LayerChain& chain : layer_chains(plan, model)) {
    // A cut of a chain chooses pieces - 1 of layers - 1 places. The number of ways is the same for the places
    // that are not chosen. The smaller of both numbers of places has nondecreasing partial products.
    std::int64_t ways = 1;
    const int chosen = std::min(chain.pieces - 1, chain.layers() - chain.pieces);
    for (int k = 1; k <= chosen && ways <= most; ++k) ways = ways * (chain.layers() - k) / k;
    count = std::min(most, count * std::min(most, ways));
  }
  return count;
}

std::vector<Plan> all_cuts(const Plan& plan, const ModelSpec& model) {
  std::vector<std::vector<std::vector<int>>> ways = {{}};
  for (const LayerChain& chain : layer_chains(plan, model)) {
    std::vector<std::vector<int>> cuts;
    std::vector<int> given;
    add_cuts(given, chain.layers(), chain.pieces, cuts);
    std::vector<std::vector<std::vector<int>>> longer;
    for (const auto& way : ways) {
      for (const std::vector<int>& cut : cuts) {
        longer.push_back(way);
        longer.back().push_back(cut);
      }
    }
    ways = std::move(longer);
  }
  std::vector<Plan> plans;
  for (const auto& way : ways) plans.push_back(with_cuts(plan, model, way));
  return plans;
}

std::optional<std::vector<int>> cut_evenly(const std::vector<double>& items, int parts,
                                           const PieceFits& fits) {
  double low = *std::max_element(items.begin(), items.end());
  double high = std::accumulate(items.begin(), items.end(), 0.0) * (1 + 1e-9);
  Filling filling(items, parts, fits);
  std::optional<std::vector<int>> counts = filling.filled(high);
  if (!counts) return counts;
  while (high - low > 1e-9 * high) {
    const double limit = (low + high) / 2;
    if (std::optional<std::vector<int>> found = filling.filled(limit)) {
      counts = std::move(found);
      high = limit;
    } else {
      low = limit;
    }
  }
  return counts;
}

}  // namespace dflop
