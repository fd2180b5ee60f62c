#include "core/program/message_rows.hpp"

#include <algorithm>

#include "core/program/encoder_share.hpp"
#include "core/refuse.hpp"

namespace dflop {
namespace {

/// A RowCounter computes how many rows the matrices between stages have.
class RowCounter {
 public:
  RowCounter(const Plan& plan, const ModelSpec& model, std::span<const Sample> samples,
             const Assignment& assignment)
      : plan_(plan), bins_(samples_of_bins(plan, assignment)) {
    for (int j = 0; j < plan.microbatches; ++j)
      shares_.push_back(share_encoder(plan, model, samples, bins_, j));
    for (const std::vector<std::int32_t>& bin : bins_) {
      std::int64_t tokens = 0;
      for (const std::int32_t i : bin) tokens += samples[static_cast<std::size_t>(i)].llm_tokens;
      llm_tokens_.push_back(tokens);
    }
  }

  /// Returns the encoder outputs that dp rank e of a separate encoder makes for dp rank d of the LLM.
  std::int64_t outputs(int microbatch, std::int32_t e, std::int32_t d) const {
    const auto& tokens = shares_[static_cast<std::size_t>(microbatch)].output_tokens;
    return tokens[static_cast<std::size_t>(e * plan_.llm.dp + d)];
  }

  /// Returns the rows that a dp rank of a stage passes to the next stage.
  std::int64_t after(const Stage& stage, int microbatch, std::int32_t dp_rank) const {
    if (stage.llm_layers > 0 || stage.embedding)
      return llm_tokens_[static_cast<std::size_t>(microbatch * plan_.llm.dp + dp_rank)];
    const EncoderShare& share = shares_[static_cast<std::size_t>(microbatch)];
    std::int64_t sum = 0;
    for (std::int32_t e = dp_rank * stage.copies; e < (dp_rank + 1) * stage.copies; ++e) {
      if (!stage.connector) sum += share.work[static_cast<std::size_t>(e)].tokens;
      for (std::int32_t d = 0; stage.connector && d < plan_.llm.dp; ++d) sum += outputs(microbatch, e, d);
    }
    return sum;
  }

 private:
  const Plan& plan_;
  SamplesOfBins bins_;
  std::vector<EncoderShare> shares_;
  std::vector<std::int64_t> llm_tokens_;  // per bin
};

}  // namespace

std::vector<MessageRows> message_rows(const Plan& plan, const ModelSpec& model,
                                      std::span<const Sample> samples, const Assignment& assignment,
                                      const Program& program) {
  if (program.hub >= 0) {
    refuse_input("", "expected a plan whose encoder and LLM exchange rows directly, found reshard 'hub'");
  }
  const RowCounter counter(plan, model, samples, assignment);
  std::vector<MessageRows> rows(program.messages.size());
  for (const Group& group : program.groups) {
    for (const Instruction& i : program.instructions_of(group)) {
      if (is_send(i.op)) rows[static_cast<std::size_t>(i.index)].source_stage = i.stage;
      if (is_receive(i.op)) rows[static_cast<std::size_t>(i.index)].destination_stage = i.stage;
    }
  }
  for (std::size_t m = 0; m < rows.size(); ++m) {
    MessageRows& row = rows[m];
    const Message& message = program.messages[m];
    row.activations = row.destination_stage > row.source_stage;
    const int j = message.microbatch;
    const Stage& made_by =
        program.stages[static_cast<std::size_t>(std::min(row.source_stage, row.destination_stage))];
    const std::int32_t from = program.groups[static_cast<std::size_t>(message.source)].dp_rank;
    const std::int32_t to = program.groups[static_cast<std::size_t>(message.destination)].dp_rank;
    const std::int32_t e = row.activations ? from : to;
    const std::int32_t d = row.activations ? to : from;
    const bool reshards = has_encoder_ranks(plan.layout) && made_by.connector && made_by.llm_layers == 0;
    if (!reshards) {
      row.count = row.of = counter.after(made_by, j, from);
      continue;
    }
    std::int64_t in_encoder = 0;
    std::int64_t in_llm = 0;
    std::int64_t of_llm = 0;
    for (std::int32_t other = 0; other < d; ++other) in_encoder += counter.outputs(j, e, other);
    for (std::int32_t other = 0; other < plan.encoder.dp; ++other) {
      if (other == e) in_llm = of_llm;
      of_llm += counter.outputs(j, other, d);
    }
    row.count = counter.outputs(j, e, d);
    row.source = row.activations ? in_encoder : in_llm;
    row.destination = row.activations ? in_llm : in_encoder;
    row.of = row.activations ? of_llm : counter.after(made_by, j, e);
  }
  return rows;
}

}  // namespace dflop
