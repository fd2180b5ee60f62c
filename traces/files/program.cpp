#include "traces/files/program.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "core/program/encoder_share.hpp"
#include "core/program/message_rows.hpp"
#include "core/refuse.hpp"
#include "traces/text/json_writer.hpp"

namespace dflop {

template <>
inline constexpr NameTable<CollectiveSum, 3> kNames<CollectiveSum> = {
    {{CollectiveSum::gradients, "gradients"},
     {CollectiveSum::joined_ends, "joined_ends"},
     {CollectiveSum::norm, "norm"}}};

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kProgramSchema = "dflop.program";
constexpr int kProgramVersion = 1;

Json stages_json(const Program& program) {
  Json stages = Json::array();
  for (const Stage& stage : program.stages) {
    stages.push_back({{"encoder_layers", stage.encoder_layers},
                      {"llm_layers", stage.llm_layers},
                      {"connector", stage.connector},
                      {"embedding", stage.embedding},
                      {"head", stage.head}});
  }
  return stages;
}

/// Returns the index that a reader needs: of a message or collective, else -1.
std::int32_t index_in_file(const Instruction& instruction) {
  return is_compute(instruction.op) ? -1 : instruction.index;
}

Json groups_json(const Program& program) {
  Json groups = Json::array();
  for (const Group& group : program.groups) {
    Json instructions = Json::array();
    for (const Instruction& i : program.instructions_of(group))
      instructions.push_back(Json::array({to_string(i.op), i.stage, i.microbatch, index_in_file(i)}));
    groups.push_back({{"rank", group.first_rank},
                      {"ranks", group.ranks},
                      {"stage", group.stage},
                      {"dp_rank", group.dp_rank},
                      {"instructions", std::move(instructions)}});
  }
  return groups;
}

Json messages_json(const Iteration& iteration, const ModelSpec& model) {
  const Program& program = iteration.program;
  const std::vector<MessageRows> rows =
      message_rows(iteration.plan, model, iteration.samples, iteration.assignment, program);
  Json messages = Json::array();
  for (std::size_t m = 0; m < rows.size(); ++m) {
    const Message& message = program.messages[m];
    const MessageRows& row = rows[m];
    messages.push_back(
        Json::array({message.source, message.destination, message.microbatch, row.activations ? 1 : 0,
                     row.source, row.destination, row.count, row.of}));
  }
  return messages;
}

Json collectives_json(const Program& program) {
  Json collectives = Json::array();
  for (const Collective& collective : program.collectives)
    collectives.push_back({{"groups", collective.groups},
                           {"bytes", collective.bytes.count},
                           {"sum", to_string(collective.sum)}});
  return collectives;
}

/// Lists sequences as runs, because a sample may have thousands that stay together.
Json pieces_json(const Iteration& iteration, const ModelSpec& model) {
  using Run = std::array<std::int64_t, 8>;
  Json all = Json::array();
  const SamplesOfBins bins = samples_of_bins(iteration.plan, iteration.assignment);
  for (int j = 0; j < iteration.plan.microbatches; ++j) {
    std::vector<Run> runs;
    for_each_piece(iteration.plan, model, iteration.samples, bins, j, [&](const EncoderPiece& piece) {
      const std::int64_t rows = piece.output_end - piece.output_begin;
      if (!runs.empty() && runs.back()[1] == piece.encoder_dp && runs.back()[3] == piece.sample) {
        ++runs.back()[5];
        runs.back()[7] += rows;
        return;
      }
      runs.push_back(
          {j, piece.encoder_dp, piece.llm_dp, piece.sample, piece.sequence, 1, piece.output_begin, rows});
    });
    for (const Run& run : runs) all.push_back(run);
  }
  return all;
}

}  // namespace

nlohmann::ordered_json program_json(const Iteration& iteration, const ModelSpec& model) {
  if (!iteration.plan.trained.all()) {
    refuse_input(
        "",
        "key 'frozen': a program for other executors trains all parts, found a plan that trains only {}: "
        "plan without --freeze and --lora; parameters of your modules that do not require gradients stay "
        "unchanged there",
        describe(iteration.plan.trained));
  }
  if (model.second) {
    refuse_input("", "model '{}': a program for other executors has one encoder, found a second one, {}",
                 model.name, model.second->encoder.name);
  }
  if (encoder_copies(iteration.plan) > 1) {
    refuse_input(
        "",
        "key 'encoder.tp': a program for other executors has encoders on whole tp groups, found an "
        "encoder with tp {} on groups of {} ranks: plan with '--encoder-tp {}' or without colocated plans",
        iteration.plan.encoder.tp, iteration.plan.llm.tp, iteration.plan.llm.tp);
  }
  return {{"iteration", iteration.number},
          {"layout", to_string(iteration.plan.layout)},
          {"microbatches", iteration.program.microbatches},
          {"encoder_dp", iteration.plan.encoder.dp},
          {"llm_dp", iteration.plan.llm.dp},
          {"stages", stages_json(iteration.program)},
          {"groups", groups_json(iteration.program)},
          {"messages", messages_json(iteration, model)},
          {"collectives", collectives_json(iteration.program)},
          {"bins", iteration.assignment.bin},
          {"pieces", pieces_json(iteration, model)}};
}

std::string program_file(const std::vector<nlohmann::ordered_json>& iterations, const Provenance& made_by) {
  JsonWriter writer(kProgramSchema, kProgramVersion);
  writer.begin_array("iterations");
  for (const Json& iteration : iterations) writer.raw("", iteration.dump());
  writer.end_array();
  return with_provenance(writer.finish(), made_by);
}

}  // namespace dflop
