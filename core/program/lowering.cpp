#include "core/program/lowering.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/program/encoder_share.hpp"
#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kActivationBytes = kBf16Bytes;
constexpr std::int64_t kMaxBuckets = 1024;  // of a stage; more buckets change nothing and cost time

constexpr std::int64_t kMaxTokens = 100'000'000'000;  // keeps bytes of activations within 64 bits

/// A Flow has the bytes that go forward from one dp rank of a stage to one of the next for one microbatch.
/// Gradients going back, if any, have as many bytes.
struct Flow {
  int source = 0;       // dp rank
  int destination = 0;  // dp rank
  Bytes bytes;
  Bytes port_bytes;
};

/// A Boundary has all flows over one stage boundary, or between the dp ranks of one stage. The flows of
/// microbatch j are at [begin[j], begin[j + 1]).
struct Boundary {
  bool reshard = false;
  bool returns = true;      // whether gradients return, to trained stages before it
  std::vector<Flow> flows;  // of one microbatch by source, with non-decreasing destinations
  std::vector<std::size_t> begin;
  std::size_t first_message = 0;

  /// Returns the message of a flow. Each flow has one forward message, followed by one backward message if
  /// gradients return.
  std::size_t message_of(std::size_t flow, bool activations) const {
    return first_message + (returns ? 2 * flow : flow) + (activations ? 0 : 1);
  }

  std::span<const Flow> of(int microbatch) const {
    return {flows.data() + begin[microbatch], begin[microbatch + 1] - begin[microbatch]};
  }

  /// Returns the flows of one microbatch whose `end` is dp rank `d`. They are adjacent because the pieces of
  /// a reshard are contiguous.
  std::span<const Flow> of(int microbatch, int Flow::*end, int d) const {
    const std::span<const Flow> all = of(microbatch);
    const auto less = [&](const Flow& flow, int rank) { return flow.*end < rank; };
    const auto first = std::lower_bound(all.begin(), all.end(), d, less);
    return {first, std::lower_bound(first, all.end(), d + 1, less)};
  }
};

/// Sets port_bytes: the bytes that the busier end of each flow moves for this microbatch.
void set_port_bytes(std::span<Flow> flows, int sources, int destinations) {
  std::vector<Bytes> out(sources);
  std::vector<Bytes> in(destinations);
  for (const Flow& flow : flows) {
    out[flow.source] += flow.bytes;
    in[flow.destination] += flow.bytes;
  }
  for (Flow& flow : flows) flow.port_bytes = std::max(out[flow.source], in[flow.destination]);
}

/// A Lowering has all data of a plan and batch from which the instruction lists are made.
class Lowering {
 public:
  Lowering(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
           const Assignment& assignment, const PipelineOrder& order)
      : plan_(plan),
        model_(model),
        batch_(batch),
        order_(order),
        stages_of_ranks_(stages_of_ranks(order.shape)),
        bins_(samples_of_bins(plan, assignment)) {
    program_.microbatches = plan.microbatches;
    program_.stages = plan_stages(plan, model);
    boundaries_.resize(program_.stages.size() - 1);
    if (plan.layout == Layout::shared) program_.shared_gpus = plan.gpus();
    if (has_encoder_ranks(plan.layout)) {
      add_works_apart();
    } else {
      add_own_works();
    }
    for (std::size_t s = 0; s + 1 < program_.stages.size(); ++s) {
      if (!boundaries_[s].reshard) add_straight_flows(s);
      boundaries_[s].returns = gradients_return(program_.stages, s);
      if (boundaries_[s].reshard) gather_.returns = boundaries_[s].returns;
    }
    add_groups();
    add_messages();
    for (std::size_t r = 0; r < stages_of_ranks_.size(); ++r) {
      for (int d = 0; d < dp_of_rank(r); ++d) add_instructions(r, program_.groups[first_group_[r] + d]);
    }
  }

  Program take() { return std::move(program_); }

 private:
  bool is_encoder_stage(std::size_t stage) const {
    return has_encoder_ranks(plan_.layout) && stage < static_cast<std::size_t>(plan_.encoder.pp);
  }

  std::size_t work_index(std::size_t stage, int dp_rank, int microbatch) const {
    const std::size_t first = is_encoder_stage(stage) || !has_encoder_ranks(plan_.layout)
                                  ? 0
                                  : static_cast<std::size_t>(plan_.encoder.dp) * plan_.microbatches;
    return first + static_cast<std::size_t>(dp_rank) * plan_.microbatches + microbatch;
  }

  /// Returns the dp of the rank's last stage. In a colocated plan this is the LLM's, because the encoder has
  /// a different dp.
  int dp_of_rank(std::size_t rank) const { return program_.stages[stages_of_ranks_[rank].back()].dp; }

  int rank_of(std::size_t stage, int microbatch) const {
    return rank_of_stage(order_.shape, static_cast<int>(stage), microbatch);
  }

  /// Adds the works of a plan in which every LLM dp rank encodes its own samples.
  void add_own_works() {
    for (int d = 0; d < plan_.llm.dp; ++d) {
      for (int j = 0; j < plan_.microbatches; ++j) {
        Work work;
        std::int64_t output_tokens = 0;
        for (const std::int32_t i : bins_[j * plan_.llm.dp + d]) {
          work.encoder += batch_[i].encoder();
          work.llm += batch_[i].llm();
          output_tokens += batch_[i].encoder_output_tokens;
        }
        program_.works.push_back(work);
        output_tokens_.push_back(output_tokens);
      }
    }
    if (encoder_copies(plan_) > 1) share_own_works();
  }

  /// Sets each count of the encoder's work to the largest of any copy.
  void share_own_works() {
    for (int j = 0; j < plan_.microbatches; ++j) {
      const std::vector<Workload> largest = largest_shares(plan_, model_, batch_, bins_, j);
      for (int d = 0; d < plan_.llm.dp; ++d) program_.works[work_index(0, d, j)].encoder = largest[d];
    }
  }

  /// Adds the works of a plan whose encoder has separate ranks.
  void add_works_apart() {
    const int microbatches = plan_.microbatches;
    program_.works.resize(static_cast<std::size_t>(plan_.encoder.dp + plan_.llm.dp) * microbatches);
    Boundary& boundary = boundaries_[plan_.encoder.pp - 1];
    boundary.reshard = true;
    boundary.begin.push_back(0);
    gather_.reshard = true;
    gather_.begin.push_back(0);
    for (int j = 0; j < microbatches; ++j) {
      const EncoderShare share = share_encoder(plan_, model_, batch_, bins_, j);
      for (int e = 0; e < plan_.encoder.dp; ++e) {
        program_.works[work_index(0, e, j)].encoder = share.work[e];
      }
      if (plan_.reshard == Reshard::hub) {
        add_hub_flows(share, boundary);
      } else {
        add_direct_flows(share, boundary);
      }
      for (int d = 0; d < plan_.llm.dp; ++d) {
        Workload& llm = program_.works[work_index(plan_.encoder.pp, d, j)].llm;
        for (const std::int32_t i : bins_[j * plan_.llm.dp + d]) llm += batch_[i].llm();
      }
      end_microbatch(boundary, plan_.encoder.dp, plan_.llm.dp);
      end_microbatch(gather_, plan_.encoder.dp, plan_.encoder.dp);
    }
  }

  static void end_microbatch(Boundary& boundary, int sources, int destinations) {
    const std::size_t begin = boundary.begin.back();
    boundary.begin.push_back(boundary.flows.size());
    set_port_bytes(std::span(boundary.flows).subspan(begin), sources, destinations);
  }

  Bytes output_bytes(const EncoderShare& share, int e, int d) const {
    const std::int64_t tokens = share.output_tokens[static_cast<std::size_t>(e) * plan_.llm.dp + d];
    return {tokens * model_.sent_width() * kActivationBytes};
  }

  void add_direct_flows(const EncoderShare& share, Boundary& boundary) const {
    for (int e = 0; e < plan_.encoder.dp; ++e) {
      for (int d = 0; d < plan_.llm.dp; ++d) {
        const Bytes bytes = output_bytes(share, e, d);
        if (bytes.count > 0) boundary.flows.push_back({e, d, bytes, {}});
      }
    }
  }

  /// Adds the flows from the other dp ranks of the encoder to rank 0, and from there to the LLM's dp ranks.
  void add_hub_flows(const EncoderShare& share, Boundary& boundary) {
    std::vector<Bytes> in(plan_.encoder.dp);
    std::vector<Bytes> out(plan_.llm.dp);
    for (int e = 0; e < plan_.encoder.dp; ++e) {
      for (int d = 0; d < plan_.llm.dp; ++d) {
        in[e] += output_bytes(share, e, d);
        out[d] += output_bytes(share, e, d);
      }
    }
    for (int e = 1; e < plan_.encoder.dp; ++e) {
      if (in[e].count > 0) gather_.flows.push_back({e, 0, in[e], {}});
    }
    for (int d = 0; d < plan_.llm.dp; ++d) {
      if (out[d].count > 0) boundary.flows.push_back({0, d, out[d], {}});
    }
  }

  /// Returns the bytes that go from stage s to s + 1 inside a module, or inside a uniform plan.
  Bytes straight_bytes(std::size_t s, std::size_t work) const {
    const std::int64_t row = boundary_width(program_.stages, s, model_) * kActivationBytes;
    if (program_.stages[s + 1].encoder_layers > 0) return Bytes{program_.works[work].encoder.tokens * row};
    if (program_.stages[s].llm_layers > 0) return Bytes{program_.works[work].llm.tokens * row};
    return Bytes{output_tokens_[work] * row};  // encoder ends at s, LLM starts at s + 1
  }

  void add_straight_flows(std::size_t s) {
    Boundary& boundary = boundaries_[s];
    boundary.reshard = order_.shape.spreads_encoder() && s == 0;
    boundary.begin.push_back(0);
    for (int j = 0; j < plan_.microbatches; ++j) {
      const int dp = rank_of(s, j) == rank_of(s + 1, j) ? 0 : dp_of_rank(rank_of(s, j));
      for (int d = 0; d < dp; ++d) {
        const Bytes bytes = straight_bytes(s, work_index(s, d, j));
        if (bytes.count > 0) boundary.flows.push_back({d, d, bytes, bytes});
      }
      boundary.begin.push_back(boundary.flows.size());
    }
  }

  void add_groups() {
    const std::vector<std::int32_t> first_rank = first_ranks(plan_);
    for (std::size_t r = 0; r < stages_of_ranks_.size(); ++r) {
      first_group_.push_back(static_cast<std::int32_t>(program_.groups.size()));
      // This is the first of the rank's stages, except in a colocated plan, where every group also holds the
      // encoder: there it is the LLM's stage.
      const int stage = stages_of_ranks_[r][order_.shape.spreads_encoder() ? 1 : 0];
      for (int d = 0; d < dp_of_rank(r); ++d) {
        program_.groups.push_back(
            {first_rank[program_.groups.size()], program_.stages[stage].tp, stage, d, 0, 0});
      }
    }
    for (std::size_t s = 0; s < program_.stages.size(); ++s) add_reductions(s);
    first_collective_.push_back(program_.collectives.size());
    add_joined_ends();
    if (plan_.clip_gradients) add_norm();
    if (has_encoder_ranks(plan_.layout) && plan_.reshard == Reshard::hub) {
      program_.hub = first_group_[plan_.encoder.pp - 1];
    }
  }

  /// Adds the reductions of a stage's gradients over all groups that hold it, if there are several.
  void add_reductions(std::size_t s) {
    first_collective_.push_back(program_.collectives.size());
    if (program_.stages[s].dp == 1 || !program_.stages[s].is_trained()) return;
    Collective reduction;
    reduction.copies = program_.stages[s].copies;
    for (std::size_t r = 0; r < stages_of_ranks_.size(); ++r) {
      const std::vector<int>& stages = stages_of_ranks_[r];
      if (std::find(stages.begin(), stages.end(), static_cast<int>(s)) == stages.end()) continue;
      for (int d = 0; d < dp_of_rank(r); ++d) reduction.groups.push_back(first_group_[r] + d);
    }
    const std::int64_t bytes =
        trained_parameters(program_.stages[s], model_) * gradient_bytes(plan_.optimizer_states);
    const std::int64_t buckets = overlaps(s) ? gradient_buckets(Bytes{bytes}, plan_.gradient_bucket) : 1;
    for (std::int64_t k = 0; k < buckets; ++k) {
      reduction.bytes = Bytes{bytes * (k + 1) / buckets - bytes * k / buckets};
      if (overlaps(s)) reduction.ready = static_cast<double>(k + 1) / static_cast<double>(buckets);
      program_.collectives.push_back(reduction);
    }
  }

  /// Adds, for each dp rank, the sum over the ranks with the embedding and with the head, if these share one
  /// matrix (Shoeybi et al. 2019, Megatron-LM). Models without an architecture are priced without it, because
  /// clusters are fitted to runs of such models.
  void add_joined_ends() {
    if (!model_.llm.tied_embeddings || !model_.architecture || !plan_.trained.llm) return;
    std::size_t embedding = 0;
    while (!program_.stages[embedding].embedding) ++embedding;
    const std::size_t head = program_.stages.size() - 1;
    const int first = rank_of(embedding, 0);
    const int last = rank_of(head, 0);
    if (first == last) return;  // the rank adds them up locally
    joined_ends_ = {embedding, head};
    const std::int64_t bytes =
        model_.llm.embedding_parameters(program_.stages[head].tp) * gradient_bytes(plan_.optimizer_states);
    for (int d = 0; d < program_.stages[head].dp; ++d) {
      Collective sum;
      sum.groups = {first_group_[static_cast<std::size_t>(first)] + d,
                    first_group_[static_cast<std::size_t>(last)] + d};
      sum.bytes = Bytes{bytes};
      sum.sum = CollectiveSum::joined_ends;
      program_.collectives.push_back(sum);
    }
  }

  /// Adds the sum of the squares of all gradients, and of losses, over all ranks.
  void add_norm() {
    Collective norm;
    for (std::size_t g = 0; g < program_.groups.size(); ++g)
      norm.groups.push_back(static_cast<std::int32_t>(g));
    norm.bytes = kNormBytes;
    norm.sum = CollectiveSum::norm;
    norm_ = program_.collectives.size();
    program_.collectives.push_back(norm);
  }

  /// Returns whether a stage's gradients are reduced during its last backward. This does not apply to an
  /// encoder spread over ranks, because some ranks may run no backward of it.
  bool overlaps(std::size_t s) const {
    return plan_.gradient_bucket.count > 0 && !(order_.shape.spreads_encoder() && s == 0);
  }

  std::size_t end_collective(std::size_t s) const { return first_collective_[s + 1]; }

  /// Returns, per stage, the position in a rank's order of the step that completes its gradients.
  std::vector<std::size_t> last_backwards(const std::vector<OrderStep>& steps) const {
    std::vector<std::size_t> last(program_.stages.size(), steps.size());
    for (std::size_t k = 0; k < steps.size(); ++k) {
      if (steps[k].op == Op::backward || steps[k].op == Op::backward_weight) last[steps[k].stage] = k;
    }
    return last;
  }

  void add_collectives(Op op, std::size_t stage) {
    for (std::size_t c = first_collective_[stage]; c < end_collective(stage); ++c) add(op, stage, -1, c);
  }

  void add_messages() {
    for (std::size_t s = 0; s < boundaries_.size(); ++s) add_messages(boundaries_[s], s, s + 1);
    if (program_.hub >= 0) add_messages(gather_, hub_stage(), hub_stage());
  }

  std::size_t hub_stage() const { return static_cast<std::size_t>(plan_.encoder.pp) - 1; }

  void add_messages(Boundary& boundary, std::size_t from, std::size_t to) {
    boundary.first_message = program_.messages.size();
    for (int j = 0; j < plan_.microbatches; ++j) {
      for (const Flow& flow : boundary.of(j)) {
        const std::int32_t source = first_group_[rank_of(from, j)] + flow.source;
        const std::int32_t destination = first_group_[rank_of(to, j)] + flow.destination;
        add_message({source, destination, j, flow.bytes, flow.port_bytes});
        if (boundary.returns) add_message({destination, source, j, flow.bytes, flow.port_bytes});
      }
    }
  }

  void add_message(Message message) {
    message.port_bytes.count *= std::max(1, hub_copies(message, program_));
    program_.messages.push_back(message);
  }

  void add(Op op, std::size_t stage, int microbatch, std::size_t index) {
    program_.instructions.push_back(
        {op, static_cast<std::uint16_t>(stage), microbatch, static_cast<std::int32_t>(index)});
  }

  /// Adds the messages of a step of dp rank `d` over boundary `s`, forward (activations) or backward
  /// (gradients).
  void add_exchange(const OrderStep& step, int d, int s, bool activations) {
    if (s < 0 || s >= static_cast<int>(boundaries_.size())) return;  // before the first or after the last
    const bool upstream = step.stage == s;
    const bool at_hub = program_.hub >= 0 && upstream && static_cast<std::size_t>(s) == hub_stage();
    if (at_hub && activations) add_gathering(step, d, true);
    add_flows(step, boundaries_[s], d, upstream, activations);
    if (at_hub && !activations) add_gathering(step, d, false);
  }

  /// Adds the messages between dp rank `d` of the encoder's last stage and the hub; gradients go back.
  void add_gathering(const OrderStep& step, int d, bool activations) {
    add_flows(step, gather_, d, d > 0, activations);
  }

  /// Adds the messages of a step for the flows of a boundary that have dp rank `d` upstream, or downstream.
  void add_flows(const OrderStep& step, const Boundary& boundary, int d, bool upstream, bool activations) {
    if (!activations && !boundary.returns) return;
    const bool sends = upstream == activations;
    const Op op = boundary.reshard ? (sends ? Op::reshard_send : Op::reshard_receive)
                                   : (sends ? Op::send : Op::receive);
    for (const Flow& flow : boundary.of(step.microbatch, upstream ? &Flow::source : &Flow::destination, d)) {
      const auto f = static_cast<std::size_t>(&flow - boundary.flows.data());
      add(op, step.stage, step.microbatch, boundary.message_of(f, activations));
    }
  }

  /// Adds the reductions that turn a stage's gradients into the whole batch's.
  void add_reduction(std::size_t stage, int dp_rank) {
    add_collectives(overlaps(stage) ? Op::all_reduce_wait : Op::all_reduce, stage);
    if (joined_ends_ && (stage == joined_ends_->first || stage == joined_ends_->second)) {
      add(Op::all_reduce, stage, -1, first_collective_.back() + static_cast<std::size_t>(dp_rank));
    }
  }

  void add_step(std::size_t stage) {
    program_.instructions.push_back({Op::optimizer_step, static_cast<std::uint16_t>(stage), -1, -1});
  }

  void add_instructions(std::size_t rank, Group& group) {
    group.begin = static_cast<std::int64_t>(program_.instructions.size());
    const std::vector<OrderStep>& steps = order_.ranks[rank];
    const std::vector<std::size_t> last = last_backwards(steps);
    for (std::size_t k = 0; k < steps.size(); ++k) {
      const OrderStep& step = steps[k];
      const bool forward = step.op == Op::forward;
      const bool exchanges = step.op != Op::backward_weight;
      if (exchanges) add_exchange(step, group.dp_rank, forward ? step.stage - 1 : step.stage, forward);
      if (k == last[step.stage] && overlaps(step.stage)) add_collectives(Op::all_reduce_start, step.stage);
      add(step.op, step.stage, step.microbatch, work_index(step.stage, group.dp_rank, step.microbatch));
      if (exchanges) add_exchange(step, group.dp_rank, forward ? step.stage : step.stage - 1, forward);
    }
    // The last stage ends its backwards first. Without a norm each stage takes its optimizer step as soon as
    // it can.
    const std::vector<int> stages(stages_of_ranks_[rank].rbegin(), stages_of_ranks_[rank].rend());
    for (const int s : stages) {
      add_reduction(static_cast<std::size_t>(s), group.dp_rank);
      if (!norm_) add_step(static_cast<std::size_t>(s));
    }
    if (norm_) {
      add(Op::all_reduce, static_cast<std::size_t>(stages.front()), -1, *norm_);
      for (const int s : stages) add_step(static_cast<std::size_t>(s));
    }
    group.end = static_cast<std::int64_t>(program_.instructions.size());
  }

  const Plan& plan_;
  const ModelSpec& model_;
  std::span<const Sample> batch_;
  const PipelineOrder& order_;
  std::vector<std::vector<int>> stages_of_ranks_;
  SamplesOfBins bins_;
  std::vector<std::int64_t> output_tokens_;  // per work, if LLM dp ranks encode their own samples
  std::vector<Boundary> boundaries_;
  Boundary gather_;  // between the dp ranks of the encoder's last stage, if one of them is a hub
  std::vector<std::int32_t> first_group_;      // per pipeline rank
  std::vector<std::size_t> first_collective_;  // per stage, plus one at the end; empty range if dp is 1
  std::optional<std::pair<std::size_t, std::size_t>> joined_ends_;  // stages on two ranks that share a matrix
  std::optional<std::size_t> norm_;                                 // the collective of all gradients' norm
  Program program_;
};

}  // namespace

std::vector<Stage> plan_stages(const Plan& plan, const ModelSpec& model) {
  Stage common;
  common.zero1 = plan.zero1;
  common.sequence_parallel = plan.sequence_parallel;
  common.optimizer_states = plan.optimizer_states;
  common.trained = plan.trained;
  std::vector<Stage> stages;
  const auto add_stage = [&](const ModulePlan& module, int encoder_layers, int llm_layers) {
    Stage stage = common;
    stage.tp = module.tp;
    stage.dp = module.dp;
    stage.encoder_layers = encoder_layers;
    stage.llm_layers = llm_layers;
    stage.recomputation = recomputation_of(plan, llm_layers == 0);
    stages.push_back(stage);
  };
  if (plan.layout == Layout::uniform) {
    for (std::size_t s = 0; s < plan.llm.layers.size(); ++s) {
      add_stage(plan.llm, plan.encoder.layers[s], plan.llm.layers[s]);
    }
  } else {
    for (const int layers : plan.encoder.layers) {
      add_stage(plan.encoder, layers, 0);
      stages.back().copies = encoder_copies(plan);
    }
    for (const int layers : plan.llm.layers) add_stage(plan.llm, 0, layers);
  }
  const auto holds_encoder = [](const Stage& stage) { return stage.encoder_layers > 0; };
  const auto holds_llm = [](const Stage& stage) { return stage.llm_layers > 0; };
  const auto last_encoder = std::find_if(stages.rbegin(), stages.rend(), holds_encoder);
  if (plan.layout == Layout::shared) {
    for (Stage& stage : stages)
      stage.share = holds_encoder(stage) ? plan.encoder_share : 1 - plan.encoder_share;
  }
  if (last_encoder != stages.rend()) {
    last_encoder->connector = model.connector.widths.size() > 1;
    std::find_if(stages.begin(), stages.end(), holds_encoder)->front = model.architecture.has_value();
  }
  std::find_if(stages.begin(), stages.end(), holds_llm)->embedding = true;
  std::find_if(stages.rbegin(), stages.rend(), holds_llm)->head = true;
  return stages;
}

std::int64_t boundary_width(std::span<const Stage> stages, std::size_t boundary, const ModelSpec& model) {
  int encoder_layers = 0;  // of the stages up to the boundary
  int llm_layers = 0;
  for (std::size_t s = 0; s <= boundary; ++s) {
    encoder_layers += stages[s].encoder_layers;
    llm_layers += stages[s].llm_layers;
  }
  if (stages[boundary + 1].encoder_layers > 0)
    return std::int64_t{model.encoder.hidden} * (1 + model.deep_before(encoder_layers));
  if (stages[boundary].llm_layers > 0)
    return std::int64_t{model.llm.hidden} * (1 + model.deep_from(llm_layers));
  return model.sent_width();
}

namespace {

/// Returns the parameters of LoRA on one rank of a stage.
std::int64_t adapter_parameters(const Stage& stage, const ModelSpec& model) {
  return stage.llm_layers * model.llm.adapter_parameters(stage.trained.lora_rank, stage.tp);
}

/// Returns the parameters on one rank of a stage, apart from the second encoder, its connector and LoRA.
std::int64_t first_parameters(const Stage& stage, const ModelSpec& model) {
  const auto layer = [&](const TransformerSpec& spec) {
    return spec.layer_parameters(stage.tp) + spec.layer_vectors(stage.tp);
  };
  std::int64_t sum = stage.encoder_layers * layer(model.encoder) + stage.llm_layers * layer(model.llm);
  if (stage.front) sum += model.front_parameters();
  if (stage.connector) sum += model.connector_parameters(stage.tp);
  if (stage.embedding) sum += model.input_parameters(stage.tp);
  if (stage.head) sum += model.output_parameters(stage.tp, stage.embedding);
  return sum;
}

/// Returns the parameters of the second encoder and of its connector on one rank of a stage, each only if
/// asked for.
std::int64_t second_parameters(const Stage& stage, const ModelSpec& model, bool encoder, bool connector) {
  if (!stage.connector) return 0;
  return (encoder ? model.second_encoder_parameters(stage.tp) : 0) +
         (connector ? model.second_connector_parameters(stage.tp) : 0);
}

}  // namespace

std::int64_t stage_parameters(const Stage& stage, const ModelSpec& model) {
  return first_parameters(stage, model) + second_parameters(stage, model, true, true) +
         adapter_parameters(stage, model);
}

std::int64_t trained_parameters(const Stage& stage, const ModelSpec& model) {
  Stage of_module = stage;
  if (!stage.trained.encoder) {
    of_module.encoder_layers = 0;
    of_module.front = false;
  }
  if (!stage.trained.connector) of_module.connector = false;
  if (!stage.trained.llm) {
    of_module.llm_layers = 0;
    of_module.embedding = of_module.head = false;
  }
  return first_parameters(of_module, model) +
         second_parameters(stage, model, stage.trained.encoder, stage.trained.connector) +
         adapter_parameters(stage, model);
}

std::int64_t gradient_buckets(Bytes gradients, Bytes bucket) {
  const std::int64_t whole = gradients.count / bucket.count;
  return std::clamp<std::int64_t>(whole + (gradients.count % bucket.count > 0 ? 1 : 0), 1, kMaxBuckets);
}

PipelineShape plan_shape(const Plan& plan) {
  PipelineShape shape{plan.order, plan.llm.pp, plan.chunks, plan.microbatches};
  if (!has_encoder_ranks(plan.layout)) return shape;
  if (has_chunks(plan.order)) {
    shape.leading = plan.encoder.pp;
  } else {
    shape.ranks += plan.encoder.pp;
  }
  return shape;
}

PipelineOrder plan_order(const Plan& plan, const OrderTables& tables) {
  const PipelineShape shape = plan_shape(plan);
  return {shape, pipeline_steps(shape, tables)};
}

Program lower(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
              const Assignment& assignment, const PipelineOrder& order) {
  validate(assignment, plan, batch.size());
  std::int64_t tokens = 0;
  for (const Sample& sample : batch) {
    tokens += sample.encoder().all_tokens() + sample.llm_tokens;
    if (tokens > kMaxTokens) refuse_input("", "a global batch of more than 10^11 tokens is not supported");
  }
  return Lowering(plan, model, batch, assignment, order).take();
}

Program lower(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
              const Assignment& assignment) {
  return lower(plan, model, batch, assignment, plan_order(plan));
}

Program lower_without_work(const Plan& plan, const ModelSpec& model) {
  Assignment assignment{plan.microbatches, plan.llm.dp, std::vector<std::int32_t>(plan.bins())};
  std::iota(assignment.bin.begin(), assignment.bin.end(), 0);
  return lower(plan, model, std::vector<Sample>(plan.bins()), assignment);
}

}  // namespace dflop
