#include "solver/plan_problem/memory.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>

#include "core/program/encoder_share.hpp"
#include "core/program/lowering.hpp"
#include "solver/plan_problem/work.hpp"

namespace dflop {
namespace {

constexpr double kBalanceSlack = 1.05;  // how far a balanced schedule may exceed the mean

/// Returns the max microbatches that each stage holds on one rank.
std::vector<int> most_held(const PipelineOrder& order) {
  std::vector<int> most(order.shape.stages(), 0);
  for (const std::vector<OrderStep>& steps : order.ranks) {
    std::vector<int> held(order.shape.stages(), 0);
    for (const OrderStep& step : steps) {
      if (step.op == Op::forward) most[step.stage] = std::max(most[step.stage], ++held[step.stage]);
      if (step.op == Op::backward || step.op == Op::backward_weight) --held[step.stage];
    }
  }
  return most;
}

/// Returns the largest sequence of a batch for each encoder.
std::array<Workload, 2> largest_sequences(std::span<const Sample> samples) {
  std::array<Workload, 2> largest;
  for (const Sample& sample : samples) {
    for (const EncoderSequences& group : sample.encoder_sequences) {
      Workload& known = largest.at(group.second ? 1 : 0);
      if (group.tokens > known.all_tokens())
        known = EncoderSequences{1, group.tokens, group.attention_pairs, group.second}.work();
    }
  }
  return largest;
}

/// Returns the work of this many tokens. Activations and workspaces do not depend on attention pairs.
Workload of_tokens(double tokens) {
  const auto whole = static_cast<std::int64_t>(std::ceil(tokens));
  return {whole > 0 ? 1 : 0, whole, 0};
}

class MemoryCaps {
 public:
  MemoryCaps(const ScheduleRequest& request, std::span<const Bytes> spare, CapSet& out)
      : request_(request),
        spare_(spare),
        out_(out),
        stages_(plan_stages(request.plan, request.model)),
        shared_(has_encoder_ranks(request.plan.layout)),
        held_(most_held(plan_order(request.plan))),
        sequences_(largest_sequences(request.samples)) {}

  void add() {
    const Plan& plan = request_.plan;
    llm_tokens_ = add_tokens("LLM tokens", &Sample::llm, false);
    encoder_tokens_ = add_tokens("encoder tokens", &Sample::encoder, shared_);
    if (int parts = shared_ ? plan.encoder.dp : encoder_copies(plan); shared_ || parts > 1) {
      // A part may exceed an equal one by the largest that is not divided: a sequence or, if samples are
      // counted, all of the microbatch.
      if (plan.share_rule == ShareRule::count) parts = 1;
      std::int64_t largest = 0;
      for (const Workload& one : sequences_) largest = std::max(largest, one.all_tokens());
      encoder_tokens_ = encoder_tokens_ / parts + static_cast<double>(largest);
    }
    const std::vector<std::vector<int>> stages = stages_of_ranks(plan_shape(plan));
    for (std::size_t rank = 0; rank < stages.size(); ++rank) {
      add_rank(stages[rank], spare_.empty() ? Bytes{} : spare_[rank]);
    }
  }

 private:
  bool of_microbatch(int stage) const { return shared_ && stages_[stage].encoder_layers > 0; }

  /// Caps the tokens at 1.5 x their mean or the largest sample, and returns the cap.
  double add_tokens(const char* what, Workload (Sample::*work)() const, bool of_microbatch) {
    std::vector<double> tokens;
    for (const Sample& sample : request_.samples)
      tokens.push_back(static_cast<double>((sample.*work)().all_tokens()));
    const double sum = std::accumulate(tokens.begin(), tokens.end(), 0.0);
    const int parts = of_microbatch ? request_.plan.microbatches : request_.plan.bins();
    const double most =
        std::max(std::ceil(1.5 * sum / parts), *std::max_element(tokens.begin(), tokens.end()));
    add_cap({what, {}, most, 1, of_microbatch}, std::move(tokens));
    return most;
  }

  /// Returns the bytes available for activations on a rank.
  double free_bytes(const std::vector<int>& of_rank) const {
    const bool is_encoder = stages_[of_rank.front()].encoder_layers > 0;
    const double other = request_.plan.layout == Layout::shared ? balanced_bytes(!is_encoder) : 0;
    return static_cast<double>(request_.limits.memory->count) - fixed_bytes(of_rank) - other;
  }

  /// Returns the max memory of a rank of one module with balanced microbatches.
  double balanced_bytes(bool of_encoder) const {
    double most = 0;
    for (const std::vector<int>& of_rank : stages_of_ranks(plan_shape(request_.plan))) {
      if ((stages_[of_rank.front()].encoder_layers > 0) != of_encoder) continue;
      double bytes = fixed_bytes(of_rank);
      const int parts = of_encoder ? request_.plan.microbatches : request_.plan.bins();
      for (const int s : of_rank) {
        const std::vector<double> all = activations(s);
        const int held = std::min(held_[s], request_.plan.microbatches);
        bytes += kBalanceSlack * held * std::accumulate(all.begin(), all.end(), 0.0) / parts;
      }
      most = std::max(most, bytes);
    }
    return most;
  }

  /// Returns the bytes that a rank needs in addition to activations.
  double fixed_bytes(const std::vector<int>& of_rank) const {
    double state = 0;
    double workspace = 0;
    Work largest{of_tokens(encoder_tokens_), of_tokens(llm_tokens_)};
    largest.encoder.second = {largest.encoder.sequences, largest.encoder.tokens, 0};  // of either encoder
    for (const int s : of_rank) {
      state += static_cast<double>(request_.cost.model_state(stages_[s]).total().count);
      for (const Op op : {Op::forward, Op::backward}) {
        const Bytes bytes = request_.cost.workspace(op, stages_[s], work_of_stage(stages_[s], largest));
        workspace = std::max(workspace, static_cast<double>(bytes.count));
      }
    }
    return state + workspace;
  }

  std::vector<double> activations(int stage) const {
    const double share = of_microbatch(stage) ? request_.plan.encoder.dp : stages_[stage].copies;
    std::vector<double> bytes;
    for (const Sample& sample : request_.samples) {
      const Work work = work_of_stage(stages_[stage], {sample.encoder(), sample.llm()});
      bytes.push_back(static_cast<double>(request_.cost.activation(stages_[stage], work).count) / share);
    }
    return bytes;
  }

  /// Adds one cap for all stages of a rank, minus `spare`. It covers as many microbatches as the fullest
  /// stage holds. A sample's weight on a stage is multiplied by the fraction of these microbatches that the
  /// stage holds. With several stages this is approximate. So the cap is at least what the largest sample or
  /// a balanced assignment needs: a lower one would reject assignments that may fit.
  void add_rank(const std::vector<int>& of_rank, Bytes spare) {
    double free = free_bytes(of_rank);
    std::vector<int> stages;
    for (const int s : of_rank) {
      if (request_.plan.layout == Layout::colocated && s == 0) {
        // The encoder of every rank holds some microbatches, which are not consecutive.
        const std::vector<double> bytes = activations(s);
        free -= held_[s] * (std::accumulate(bytes.begin(), bytes.end(), 0.0) / request_.plan.bins());
      } else {
        stages.push_back(s);
      }
      if (of_microbatch(s)) {
        Bytes largest;
        for (const Workload& one : sequences_)
          largest = std::max(largest, request_.cost.activation(stages_[s], {one, {}}));
        free -= held_[s] * static_cast<double>(largest.count);
      }
    }
    int window = 1;
    for (const int s : stages) window = std::max(window, held_[s]);
    std::vector<double> weights(request_.samples.size(), 0.0);
    for (const int s : stages) {
      const std::vector<double> bytes = activations(s);
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += bytes[i] * held_[s] / window;
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (stages.empty() || sum <= 0) return;
    const bool shared = of_microbatch(stages.front());
    const int parts = shared ? request_.plan.microbatches : request_.plan.bins();
    const double balanced = kBalanceSlack * std::min(window, request_.plan.microbatches) * sum / parts;
    double most = std::max(free, 0.0);
    if (of_rank.size() > 1)
      most = std::max({most, balanced, *std::max_element(weights.begin(), weights.end())});
    most = std::max(most - static_cast<double>(spare.count), 0.0);
    add_cap({"bytes of activations on stage " + std::to_string(stages.front()), {}, most, window, shared},
            std::move(weights));
  }

  /// Adds a cap unless a cap that was added before implies it. A cap implies this one if its window is at
  /// least as long and every sample uses at least as large a fraction of it.
  void add_cap(Cap cap, std::vector<double> weight) {
    for (std::size_t c = 0; c < out_.caps.size(); ++c) {
      const Cap& other = out_.caps[c];
      if (other.of_microbatch != cap.of_microbatch || other.window < cap.window) continue;
      const auto covers = [&](double others, double own) { return others * cap.most >= own * other.most; };
      if (std::ranges::equal(out_.weights[c], weight, covers)) return;
    }
    out_.weights.push_back(std::move(weight));
    out_.caps.push_back(std::move(cap));
  }

  const ScheduleRequest& request_;
  std::span<const Bytes> spare_;
  CapSet& out_;
  std::vector<Stage> stages_;
  bool shared_;
  std::vector<int> held_;
  std::array<Workload, 2> sequences_;
  double llm_tokens_ = 0;      // largest of a bin
  double encoder_tokens_ = 0;  // largest of an encoder rank's part of a microbatch
};

}  // namespace

CapSet token_caps(const ScheduleRequest& request) {
  CapSet set;
  if (request.limits.token_cap) {
    std::vector<double>& tokens = set.weights.emplace_back();
    for (const Sample& sample : request.samples) tokens.push_back(static_cast<double>(sample.llm_tokens));
    set.caps.push_back({"LLM tokens", tokens, static_cast<double>(*request.limits.token_cap)});
  }
  return set;
}

CapSet plan_caps(const ScheduleRequest& request, std::span<const Bytes> spare) {
  CapSet set = token_caps(request);
  if (request.limits.memory) MemoryCaps(request, spare, set).add();
  // Adding weights may have moved earlier ones.
  for (std::size_t c = 0; c < set.caps.size(); ++c) set.caps[c].weight = set.weights[c];
  return set;
}

namespace {

/// Returns the peak memory of one group without its model state. If the group is the hub between encoder and
/// LLM, `passed_on` has the bytes that it holds of each microbatch for that (CostModel::price_sums());
/// otherwise it is empty.
Bytes peak_of_steps(const CostModel& cost, const std::vector<Stage>& stages,
                    const std::vector<OrderStep>& steps, const std::vector<Work>& works,
                    std::span<const Bytes> passed_on) {
  Bytes held;
  Bytes peak;
  for (const OrderStep& step : steps) {
    const Stage& stage = stages[step.stage];
    const Work& work = works[step.microbatch];
    const Bytes kept = cost.activation_of(step.op, stage, work);
    if (step.op == Op::forward) held += kept;
    const bool exchanges = !passed_on.empty() && step.op != Op::backward_weight;
    const Bytes buffers = exchanges ? passed_on[step.microbatch] : Bytes{};
    peak = std::max(peak, held + cost.workspace(step.op, stage, work) + buffers);
    if (step.op == Op::backward_input) held += kept;  // the peak is during its backward_weight
    if (step.op == Op::backward || step.op == Op::backward_weight) held -= kept;
  }
  return peak;
}

/// Works of a module are indexed by dp rank and microbatch.
using Works = std::vector<std::vector<Work>>;

/// Returns the work of each LLM dp rank in each microbatch; with `encodes`, including the encoder's, as in a
/// Program.
Works works_of_llm_ranks(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                         const SamplesOfBins& bins, bool encodes) {
  Works works(plan.llm.dp, std::vector<Work>(plan.microbatches));
  for (int j = 0; j < plan.microbatches; ++j) {
    for (int d = 0; d < plan.llm.dp; ++d) {
      for (const std::int32_t i : bins[j * plan.llm.dp + d]) {
        works[d][j].llm += batch[i].llm();
        if (encodes) works[d][j].encoder += batch[i].encoder();
      }
    }
    if (!encodes || encoder_copies(plan) == 1) continue;
    const std::vector<Workload> largest = largest_shares(plan, model, batch, bins, j);
    for (int d = 0; d < plan.llm.dp; ++d) works[d][j].encoder = largest[d];
  }
  return works;
}

/// An EncoderApart describes an encoder with separate ranks. It has, for each microbatch, the work of each of
/// the encoder's dp ranks and the bytes of all outputs.
struct EncoderApart {
  Works works;
  std::vector<Bytes> outputs;
};

EncoderApart encoder_apart(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                           const SamplesOfBins& bins) {
  EncoderApart encoder{Works(plan.encoder.dp, std::vector<Work>(plan.microbatches)), {}};
  for (int j = 0; j < plan.microbatches; ++j) {
    const EncoderShare share = share_encoder(plan, model, batch, bins, j);
    for (int e = 0; e < plan.encoder.dp; ++e) encoder.works[e][j].encoder = share.work[e];
    const std::int64_t tokens =
        std::accumulate(share.output_tokens.begin(), share.output_tokens.end(), std::int64_t{0});
    encoder.outputs.push_back({tokens * model.sent_width() * kBf16Bytes});
  }
  return encoder;
}

/// Adds the bytes of each rank of a group to its GPU's total, and returns the largest of these totals.
Bytes add_to_gpus(std::vector<Bytes>& of_gpu, Bytes bytes, int first_rank, int ranks) {
  Bytes most;
  for (int r = first_rank; r < first_rank + ranks; ++r) {
    Bytes& gpu = of_gpu[device_of(r, static_cast<int>(of_gpu.size()))];
    gpu += bytes;
    most = std::max(most, gpu);
  }
  return most;
}

}  // namespace

bool memory_needs_no_run(const Plan& plan) {
  return !reads_tables(plan.order);
}

MemoryPeak memory_peak(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                       std::span<const Sample> batch, const Assignment& assignment,
                       const PipelineOrder& order) {
  const SamplesOfBins bins = samples_of_bins(plan, assignment);
  const bool apart = has_encoder_ranks(plan.layout);
  const EncoderApart encoder = apart ? encoder_apart(plan, model, batch, bins) : EncoderApart();
  const Works llm = works_of_llm_ranks(plan, model, batch, bins, !apart);
  const std::vector<Stage> stages = plan_stages(plan, model);
  const std::vector<std::vector<int>> stages_of_rank = stages_of_ranks(order.shape);
  const std::vector<std::int32_t> ranks = first_ranks(plan);
  const int shared_gpus = plan.layout == Layout::shared ? plan.gpus() : 0;
  std::vector<Bytes> of_gpu(shared_gpus);
  MemoryPeak peak;
  std::size_t group = 0;
  for (std::size_t rank = 0; rank < order.ranks.size(); ++rank) {
    ModelState state;
    for (const int s : stages_of_rank[rank]) state += cost.model_state(stages[s]);
    const bool is_encoder = apart && static_cast<int>(rank) < plan.encoder.pp;
    // The first dp rank of the encoder's last stage is the hub.
    std::span<const Bytes> passed_on;
    if (plan.reshard == Reshard::hub && is_encoder && static_cast<int>(rank) == plan.encoder.pp - 1)
      passed_on = encoder.outputs;
    for (const std::vector<Work>& works : is_encoder ? encoder.works : llm) {
      Bytes bytes = state.total() + peak_of_steps(cost, stages, order.ranks[rank], works, passed_on);
      passed_on = {};
      if (shared_gpus > 0)
        bytes = add_to_gpus(of_gpu, bytes, ranks[group], is_encoder ? plan.encoder.tp : plan.llm.tp);
      if (peak.bytes < bytes) peak = {bytes, static_cast<int>(rank), ranks[group]};
      ++group;
    }
  }
  return peak;
}

Bytes peak_memory(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                  std::span<const Sample> batch, const Assignment& assignment) {
  return memory_peak(plan, model, cost, batch, assignment, plan_order(plan)).bytes;
}

}  // namespace dflop
