#include "solver/load_pipeline.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

/// Merges the steps of all ranks into one list: takes from every rank in turn the steps that can run. Also
/// finds the step that each step waits for.
std::vector<LoadStep> list_steps(const PipelineOrder& order, std::span<const StageLoadTimes> stages) {
  const std::size_t microbatches = order.shape.microbatches;
  std::vector<std::int32_t> forwards(stages.size() * microbatches, -1);  // [stage, microbatch]: its step
  std::vector<std::int32_t> backwards = forwards;
  std::vector<LoadStep> steps;
  // Adds a step, or returns false if the step that it waits for is not in the list yet.
  const auto add = [&](int rank, const OrderStep& step) {
    const bool is_forward = step.op == Op::forward;
    const StageLoadTimes& times = stages[step.stage];
    LoadStep out{rank, step.microbatch, is_forward ? times.forward : times.backward, -1, {}};
    if (step.op == Op::backward_weight) {
      out.duration = times.backward_weight;
      steps.push_back(out);  // its input part came before it on the rank
      return true;
    }
    std::vector<std::int32_t>& ends = is_forward ? forwards : backwards;
    const int from = is_forward ? step.stage - 1 : step.stage + 1;
    const bool waits = is_forward || times.awaits_gradient;
    if (waits && from >= 0 && from < static_cast<int>(stages.size())) {
      const std::int32_t after = ends[from * microbatches + step.microbatch];
      if (after < 0) return false;
      if (steps[after].rank != rank) {  // otherwise the rank's own order implies it
        out.after = after;
        out.message = is_forward ? stages[from].message_forward : times.message_backward;
      }
    }
    ends[step.stage * microbatches + step.microbatch] = static_cast<std::int32_t>(steps.size());
    steps.push_back(out);
    return true;
  };
  std::vector<std::size_t> next(order.ranks.size(), 0);
  std::size_t total = 0;
  for (const auto& of_rank : order.ranks) total += of_rank.size();
  while (steps.size() < total) {
    const std::size_t before = steps.size();
    for (std::size_t r = 0; r < next.size(); ++r) {
      const std::vector<OrderStep>& of_rank = order.ranks[r];
      while (next[r] < of_rank.size() && add(static_cast<int>(r), of_rank[next[r]])) ++next[r];
    }
    if (steps.size() == before) throw Error(ErrorKind::internal, "an order that does not run to its end");
  }
  return steps;
}

}  // namespace

LoadPipeline make_load_pipeline(const PipelineOrder& order, int dp, std::vector<Load> loads,
                                std::span<const StageLoadTimes> stages, std::vector<double> tail_s) {
  LoadPipeline pipeline;
  pipeline.microbatches = order.shape.microbatches;
  pipeline.dp = dp;
  pipeline.loads = std::move(loads);
  for (const std::vector<int>& of_rank : stages_of_ranks(order.shape)) {
    pipeline.shared.push_back(stages[of_rank.back()].shared ? 1 : 0);
  }
  pipeline.tail_s = std::move(tail_s);
  pipeline.steps = list_steps(order, stages);
  return pipeline;
}

void add_overlapped_tail(LoadPipeline& pipeline, int rank, const OverlappedTail& tail) {
  const auto part_of = [](const LoadTime& time, double part) {
    return LoadTime{time.fixed_s * part, time.scale * part, time.load};
  };
  // Split the rank's last step in two, so that the tail can follow the first part.
  std::vector<LoadStep>& steps = pipeline.steps;
  const auto found =
      std::find_if(steps.rbegin(), steps.rend(), [&](const LoadStep& s) { return s.rank == rank; });
  const auto first = static_cast<std::int32_t>(steps.rend() - found) - 1;
  LoadStep rest = steps[first];
  const LoadTime whole = rest.duration;
  rest.duration = part_of(whole, 1 - tail.part);
  rest.message = {};
  steps[first].duration = part_of(whole, tail.part);
  for (LoadStep& step : steps) step.after += step.after >= first ? 1 : 0;
  rest.after = first;  // repeated, so that everything before the whole step also comes before this part
  steps.insert(steps.begin() + first + 1, rest);
  steps.push_back({pipeline.ranks(), rest.microbatch, {tail.seconds, 0, 0}, first, {}});
  pipeline.shared.push_back(pipeline.shared[rank]);
  pipeline.tail_s.push_back(tail.tail_s);
  ++pipeline.links;
}

LoadPipeline simple_load_pipeline(const PipelineShape& shape, int encoder_stages, int dp, int encoder_dp,
                                  double backward_ratio) {
  if (reads_tables(shape.kind)) {
    throw Error(ErrorKind::usage, "expected a schedule with one order for all durations, found " +
                                      std::string(to_string(shape.kind)));
  }
  const bool shared = encoder_dp > 0;
  std::vector<Load> loads = {{{1, 0}, shared}, {{0, 1}, false}};
  const double backward_part = splits_backward(shape.kind) ? backward_ratio / 2 : backward_ratio;
  std::vector<StageLoadTimes> stages(shape.stages());
  for (int s = 0; s < shape.stages(); ++s) {
    const bool encodes = s < encoder_stages;
    const double scale = encodes && shared ? 1.0 / encoder_dp : 1.0;
    const int load = encodes ? 0 : 1;
    stages[s].forward = {0, scale, load};
    stages[s].backward = {0, backward_part * scale, load};
    stages[s].backward_weight = stages[s].backward;
    stages[s].shared = encodes && shared;
  }
  return make_load_pipeline({shape, pipeline_steps(shape)}, dp, std::move(loads), stages,
                            std::vector<double>(shape.all_ranks(), 0.0));
}

LoadTable load_table(const LoadPipeline& pipeline, const Features& features,
                     std::span<const std::int32_t> bin) {
  LoadTable table;
  for (const Load& load : pipeline.loads) {
    const int per = load.of_microbatch ? pipeline.dp : 1;
    std::vector<double>& sums = table.emplace_back(pipeline.bins() / per, 0.0);
    for (std::size_t f = 0; f < load.mix.size(); ++f) {
      if (load.mix[f] == 0) continue;
      for (std::size_t i = 0; i < bin.size(); ++i) sums[bin[i] / per] += load.mix[f] * features[f][i];
    }
  }
  return table;
}

double makespan(const LoadPipeline& pipeline, const LoadTable& loads) {
  const int dp = pipeline.dp;
  std::vector<double> end(pipeline.steps.size() * dp, 0.0);  // [step, dp rank]; all equal for a shared step
  std::vector<double> last(static_cast<std::size_t>(pipeline.ranks()) * dp, 0.0);
  const auto time = [&](const LoadTime& t, int microbatch, int d) {
    if (t.scale == 0) return t.fixed_s;
    const std::vector<double>& values = loads[t.load];
    return t.at(pipeline.loads[t.load].of_microbatch ? values[microbatch] : values[microbatch * dp + d]);
  };
  for (std::size_t i = 0; i < pipeline.steps.size(); ++i) {
    const LoadStep& step = pipeline.steps[i];
    double* ends = &end[i * dp];
    double* lasts = &last[static_cast<std::size_t>(step.rank) * dp];
    for (int d = 0; d < dp; ++d) {
      ends[d] = lasts[d];
      if (step.after >= 0) {
        const double arrival =
            end[static_cast<std::size_t>(step.after) * dp + d] + time(step.message, step.microbatch, d);
        ends[d] = std::max(ends[d], arrival);
      }
    }
    if (pipeline.shared[step.rank] != 0) std::fill_n(ends, dp, *std::max_element(ends, ends + dp));
    for (int d = 0; d < dp; ++d) lasts[d] = ends[d] += time(step.duration, step.microbatch, d);
  }
  double makespan = 0;
  for (int r = 0; r < pipeline.ranks(); ++r) {
    const double* lasts = &last[static_cast<std::size_t>(r) * dp];
    makespan = std::max(makespan, *std::max_element(lasts, lasts + dp) + pipeline.tail_s[r]);
  }
  return makespan;
}

}  // namespace dflop
