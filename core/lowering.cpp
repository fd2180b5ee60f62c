#include "core/lowering.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/schedules.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kActivationBytes = 2;  // bf16
constexpr std::int64_t kGradientBytes = 4;    // fp32, as accumulated over microbatches

constexpr std::int64_t kMostTokens = 100'000'000'000;  // bytes of activations stay inside 64 bits

/// Bytes that go forward from one dp rank of a stage to one of the next for one microbatch; the gradients
/// that come back are as many.
struct Flow {
  int source = 0;       // dp rank
  int destination = 0;  // dp rank
  Bytes bytes;
  Bytes port_bytes;
};

/// All flows over one stage boundary, those of microbatch j in [begin[j], begin[j + 1]).
struct Boundary {
  bool reshard = false;
  std::vector<Flow> flows;
  std::vector<std::size_t> begin;
  std::size_t first_message =
      0;  // flow f has messages first_message + 2 f (forward) and + 2 f + 1 (backward)

  std::span<const Flow> of(int microbatch) const {
    return {flows.data() + begin[microbatch], begin[microbatch + 1] - begin[microbatch]};
  }
};

/// Sample indices of each bin, in batch order.
std::vector<std::vector<std::int32_t>> samples_of_bins(const Plan& plan, const Assignment& assignment) {
  std::vector<std::vector<std::int32_t>> bins(plan.bins());
  for (std::size_t i = 0; i < assignment.bin.size(); ++i) {
    bins[assignment.bin[i]].push_back(static_cast<std::int32_t>(i));
  }
  return bins;
}

/// Forward FLOP of one encoder sequence and layer, the weight by which sequences are shared over dp ranks.
double sequence_weight(const TransformerSpec& encoder, const EncoderSequences& sequence) {
  return 2.0 * static_cast<double>(encoder.layer_parameters(1)) * static_cast<double>(sequence.tokens) +
         4.0 * encoder.heads * encoder.head_dim * static_cast<double>(sequence.attention_pairs);
}

/// How the encoder sequences of one microbatch are shared over the encoder's dp ranks.
struct EncoderShare {
  std::vector<Workload> work;               // per encoder dp rank
  std::vector<std::int64_t> output_tokens;  // [encoder dp rank * llm dp + llm dp rank]
};

/// Walks all sequences of microbatch `j` in order and gives each to the rank into whose equal part of the
/// total weight its middle falls.
EncoderShare share_encoder(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                           const std::vector<std::vector<std::int32_t>>& bins, int j) {
  const int encoder_dp = plan.encoder.dp;
  EncoderShare share;
  share.work.resize(encoder_dp);
  share.output_tokens.assign(static_cast<std::size_t>(encoder_dp) * plan.llm.dp, 0);
  double total = 0;
  for (int d = 0; d < plan.llm.dp; ++d) {
    for (const std::int32_t i : bins[j * plan.llm.dp + d]) {
      for (const EncoderSequences& group : batch[i].encoder_sequences) {
        total += sequence_weight(model.encoder, group) * static_cast<double>(group.count);
      }
    }
  }
  double done = 0;
  for (int d = 0; d < plan.llm.dp; ++d) {
    for (const std::int32_t i : bins[j * plan.llm.dp + d]) {
      const Sample& sample = batch[i];
      const std::int64_t sample_tokens = std::max<std::int64_t>(1, sample.encoder().tokens);
      std::int64_t tokens_before = 0;
      for (const EncoderSequences& group : sample.encoder_sequences) {
        const double weight = sequence_weight(model.encoder, group);
        for (std::int64_t q = 0; q < group.count; ++q) {
          const int rank = std::min(
              encoder_dp - 1, static_cast<int>((done + weight / 2) * encoder_dp / std::max(total, 1.0)));
          share.work[rank] += {1, group.tokens, group.attention_pairs};
          // Differences of one rising sequence of whole numbers, so that the parts add up to the whole.
          const std::int64_t tokens_after = tokens_before + group.tokens;
          share.output_tokens[static_cast<std::size_t>(rank) * plan.llm.dp + d] +=
              sample.encoder_output_tokens * tokens_after / sample_tokens -
              sample.encoder_output_tokens * tokens_before / sample_tokens;
          tokens_before = tokens_after;
          done += weight;
        }
      }
    }
  }
  return share;
}

/// Fills port_bytes: what the busier end of each flow moves for this microbatch.
void set_port_bytes(std::span<Flow> flows, int sources, int destinations) {
  std::vector<Bytes> out(sources);
  std::vector<Bytes> in(destinations);
  for (const Flow& flow : flows) {
    out[flow.source] += flow.bytes;
    in[flow.destination] += flow.bytes;
  }
  for (Flow& flow : flows) flow.port_bytes = std::max(out[flow.source], in[flow.destination]);
}

/// Everything of a plan and batch that the instruction lists are made of.
class Lowering {
 public:
  Lowering(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
           const Assignment& assignment)
      : plan_(plan), model_(model), batch_(batch), bins_(samples_of_bins(plan, assignment)) {
    program_.microbatches = plan.microbatches;
    program_.stages = plan_stages(plan, model);
    boundaries_.resize(program_.stages.size() - 1);
    if (plan.layout == Layout::uniform) {
      add_uniform_works();
    } else {
      add_disaggregated_works();
    }
    for (std::size_t s = 0; s + 1 < program_.stages.size(); ++s) {
      if (!boundaries_[s].reshard) add_straight_flows(s);
    }
    add_groups();
    add_messages();
    for (Group& group : program_.groups) add_instructions(group);
  }

  Program take() { return std::move(program_); }

 private:
  bool is_encoder_stage(std::size_t stage) const {
    return plan_.layout == Layout::disaggregated && stage < static_cast<std::size_t>(plan_.encoder.pp);
  }

  std::size_t work_index(std::size_t stage, int dp_rank, int microbatch) const {
    const std::size_t first = is_encoder_stage(stage) || plan_.layout == Layout::uniform
                                  ? 0
                                  : static_cast<std::size_t>(plan_.encoder.dp) * plan_.microbatches;
    return first + static_cast<std::size_t>(dp_rank) * plan_.microbatches + microbatch;
  }

  void add_uniform_works() {
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
  }

  void add_disaggregated_works() {
    const int microbatches = plan_.microbatches;
    program_.works.resize(static_cast<std::size_t>(plan_.encoder.dp + plan_.llm.dp) * microbatches);
    Boundary& boundary = boundaries_[plan_.encoder.pp - 1];
    boundary.reshard = true;
    boundary.begin.push_back(0);
    for (int j = 0; j < microbatches; ++j) {
      const EncoderShare share = share_encoder(plan_, model_, batch_, bins_, j);
      for (int e = 0; e < plan_.encoder.dp; ++e) {
        program_.works[work_index(0, e, j)].encoder = share.work[e];
        for (int d = 0; d < plan_.llm.dp; ++d) {
          const std::int64_t tokens = share.output_tokens[static_cast<std::size_t>(e) * plan_.llm.dp + d];
          if (tokens > 0)
            boundary.flows.push_back({e, d, Bytes{tokens * model_.llm.hidden * kActivationBytes}, {}});
        }
      }
      for (int d = 0; d < plan_.llm.dp; ++d) {
        Workload& llm = program_.works[work_index(plan_.encoder.pp, d, j)].llm;
        for (const std::int32_t i : bins_[j * plan_.llm.dp + d]) llm += batch_[i].llm();
      }
      const std::size_t begin = boundary.begin.back();
      boundary.begin.push_back(boundary.flows.size());
      set_port_bytes(std::span(boundary.flows).subspan(begin), plan_.encoder.dp, plan_.llm.dp);
    }
  }

  /// What crosses from stage s to s + 1 inside a module, or inside a uniform plan.
  Bytes straight_bytes(std::size_t s, std::size_t work) const {
    const std::int64_t per_element = kActivationBytes;
    if (program_.stages[s + 1].encoder_layers > 0) {
      return Bytes{program_.works[work].encoder.tokens * model_.encoder.hidden * per_element};
    }
    if (program_.stages[s].llm_layers > 0) {
      return Bytes{program_.works[work].llm.tokens * model_.llm.hidden * per_element};
    }
    return Bytes{output_tokens_[work] * model_.llm.hidden *
                 per_element};  // encoder ends at s, LLM starts at s + 1
  }

  void add_straight_flows(std::size_t s) {
    Boundary& boundary = boundaries_[s];
    boundary.begin.push_back(0);
    for (int j = 0; j < plan_.microbatches; ++j) {
      for (int d = 0; d < program_.stages[s].dp; ++d) {
        const Bytes bytes = straight_bytes(s, work_index(s, d, j));
        if (bytes.count > 0) boundary.flows.push_back({d, d, bytes, bytes});
      }
      boundary.begin.push_back(boundary.flows.size());
    }
  }

  void add_groups() {
    int rank = 0;
    for (std::size_t s = 0; s < program_.stages.size(); ++s) {
      first_group_.push_back(static_cast<std::int32_t>(program_.groups.size()));
      const Stage& stage = program_.stages[s];
      for (int d = 0; d < stage.dp; ++d) {
        program_.groups.push_back({rank, stage.tp, static_cast<std::int32_t>(s), d, 0, 0});
        rank += stage.tp;
      }
    }
    for (std::size_t s = 0; s < program_.stages.size(); ++s) {
      collective_of_stage_.push_back(-1);
      const Stage& stage = program_.stages[s];
      if (stage.dp == 1) continue;
      collective_of_stage_.back() = static_cast<std::int32_t>(program_.collectives.size());
      Collective reduction{{}, Bytes{stage_parameters(stage, model_) * kGradientBytes}};
      for (int d = 0; d < stage.dp; ++d) reduction.groups.push_back(first_group_[s] + d);
      program_.collectives.push_back(std::move(reduction));
    }
  }

  void add_messages() {
    for (std::size_t s = 0; s < boundaries_.size(); ++s) {
      Boundary& boundary = boundaries_[s];
      boundary.first_message = program_.messages.size();
      for (int j = 0; j < plan_.microbatches; ++j) {
        for (const Flow& flow : boundary.of(j)) {
          const std::int32_t source = first_group_[s] + flow.source;
          const std::int32_t destination = first_group_[s + 1] + flow.destination;
          program_.messages.push_back({source, destination, j, flow.bytes, flow.port_bytes});
          program_.messages.push_back({destination, source, j, flow.bytes, flow.port_bytes});
        }
      }
    }
  }

  void add(Op op, const Group& group, int microbatch, std::size_t index) {
    program_.instructions.push_back(
        {op, static_cast<std::uint16_t>(group.stage), microbatch, static_cast<std::int32_t>(index)});
  }

  /// Adds `group`'s messages of one microbatch over boundary `s`, forward (activations) or backward
  /// (gradients).
  void add_exchange(const Group& group, std::size_t s, int microbatch, bool activations) {
    if (s >= boundaries_.size()) return;  // before the first or after the last stage
    const Boundary& boundary = boundaries_[s];
    const bool upstream = static_cast<std::size_t>(group.stage) == s;
    const bool sends = upstream == activations;
    const Op op = boundary.reshard ? (sends ? Op::reshard_send : Op::reshard_receive)
                                   : (sends ? Op::send : Op::receive);
    for (std::size_t f = boundary.begin[microbatch]; f < boundary.begin[microbatch + 1]; ++f) {
      const Flow& flow = boundary.flows[f];
      if ((upstream ? flow.source : flow.destination) != group.dp_rank) continue;
      add(op, group, microbatch, boundary.first_message + 2 * f + (activations ? 0 : 1));
    }
  }

  void add_instructions(Group& group) {
    const std::size_t s = group.stage;
    group.begin = static_cast<std::int64_t>(program_.instructions.size());
    const int stages = static_cast<int>(program_.stages.size());
    for (const ScheduleStep& step : stage_schedule(plan_.schedule, group.stage, stages, plan_.microbatches)) {
      const int j = step.microbatch;
      const bool forward = step.op == Op::forward;
      // Boundary s - 1 wraps to a huge index on the first stage, which has nothing before it.
      add_exchange(group, forward ? s - 1 : s, j, forward);
      add(step.op, group, j, work_index(s, group.dp_rank, j));
      add_exchange(group, forward ? s : s - 1, j, forward);
    }
    if (collective_of_stage_[s] >= 0) add(Op::all_reduce, group, -1, collective_of_stage_[s]);
    program_.instructions.push_back({Op::optimizer_step, static_cast<std::uint16_t>(s), -1, -1});
    group.end = static_cast<std::int64_t>(program_.instructions.size());
  }

  const Plan& plan_;
  const ModelSpec& model_;
  std::span<const Sample> batch_;
  std::vector<std::vector<std::int32_t>> bins_;
  std::vector<std::int64_t> output_tokens_;  // per work of a uniform plan
  std::vector<Boundary> boundaries_;
  std::vector<std::int32_t> first_group_;          // per stage
  std::vector<std::int32_t> collective_of_stage_;  // -1: dp is 1
  Program program_;
};

}  // namespace

std::vector<Stage> plan_stages(const Plan& plan, const ModelSpec& model) {
  Stage common;
  common.recomputation = plan.recomputation;
  common.zero1 = plan.zero1;
  common.sequence_parallel = plan.sequence_parallel;
  std::vector<Stage> stages;
  const auto add_stage = [&](const ModulePlan& module, int encoder_layers, int llm_layers) {
    Stage stage = common;
    stage.tp = module.tp;
    stage.dp = module.dp;
    stage.encoder_layers = encoder_layers;
    stage.llm_layers = llm_layers;
    stages.push_back(stage);
  };
  if (plan.layout == Layout::uniform) {
    for (int s = 0; s < plan.llm.pp; ++s) add_stage(plan.llm, plan.encoder.layers[s], plan.llm.layers[s]);
  } else {
    for (const int layers : plan.encoder.layers) add_stage(plan.encoder, layers, 0);
    for (const int layers : plan.llm.layers) add_stage(plan.llm, 0, layers);
  }
  const auto holds_encoder = [](const Stage& stage) { return stage.encoder_layers > 0; };
  const auto holds_llm = [](const Stage& stage) { return stage.llm_layers > 0; };
  std::find_if(stages.rbegin(), stages.rend(), holds_encoder)->connector = model.connector.widths.size() > 1;
  std::find_if(stages.begin(), stages.end(), holds_llm)->embedding = true;
  std::find_if(stages.rbegin(), stages.rend(), holds_llm)->head = true;
  return stages;
}

std::int64_t stage_parameters(const Stage& stage, const ModelSpec& model) {
  std::int64_t sum = stage.encoder_layers * model.encoder.layer_parameters(stage.tp) +
                     stage.llm_layers * model.llm.layer_parameters(stage.tp);
  if (stage.connector) sum += model.connector.parameters(stage.tp);
  if (stage.embedding) sum += model.llm.embedding_parameters(stage.tp);
  if (stage.head) sum += model.llm.embedding_parameters(stage.tp);
  return sum;
}

Program lower(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
              const Assignment& assignment) {
  validate(assignment, plan, batch.size());
  std::int64_t tokens = 0;
  for (const Sample& sample : batch) {
    tokens += sample.encoder().tokens + sample.llm_tokens;
    if (tokens > kMostTokens)
      throw Error(ErrorKind::input, "a global batch of more than 10^11 tokens is not supported");
  }
  return Lowering(plan, model, batch, assignment).take();
}

}  // namespace dflop
