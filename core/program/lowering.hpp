// Lowering turns a Plan and an Assignment into stages, a pipeline order and a Program. verify() checks the
// rules that every Program must obey, whatever its source.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/order/pipeline_order.hpp"
#include "core/program.hpp"

namespace dflop {

/// Returns the stages of a plan in model order, encoder first. The plan must be valid; the model of a uniform
/// plan may have no encoder layers.
std::vector<Stage> plan_stages(const Plan& plan, const ModelSpec& model);

/// Returns the number of values in a row of the message from stage `boundary` to the next one. Rows are
/// encoder tokens between encoder stages, LLM tokens between LLM stages, and else LLM tokens from the
/// encoder. Deep features (Architecture::deepstack) travel next to the activations.
std::int64_t boundary_width(std::span<const Stage> stages, std::size_t boundary, const ModelSpec& model);

/// Returns the parameters of a stage on one of its ranks, including LoRA's.
std::int64_t stage_parameters(const Stage& stage, const ModelSpec& model);

/// Returns how many of stage_parameters() are trained. Only these have optimizer states, and gradients that
/// are reduced.
std::int64_t trained_parameters(const Stage& stage, const ModelSpec& model);

/// Returns the number of buckets, each of about `bucket` bytes, in which a stage's gradients are reduced: at
/// least 1 and at most 1,024.
std::int64_t gradient_buckets(Bytes gradients, Bytes bucket);

/// Returns the shape of a plan's pipeline, whose stages are plan_stages().
PipelineShape plan_shape(const Plan& plan);

/// Returns the order of a plan's pipeline steps. The plan must be valid.
PipelineOrder plan_order(const Plan& plan, const OrderTables& tables = {});

/// Lowers a valid plan and assignment of one batch to a Program.
///
/// Encoder work. In a disaggregated or shared plan, microbatch j takes the samples that all LLM dp ranks have
/// in j, cuts them into encoder sequences and distributes these over the encoder's dp ranks in sample order.
/// Each rank gets a contiguous piece of equal FLOP, to within one sequence. A uniform plan encodes a sample
/// on its LLM dp rank. A colocated plan encodes microbatch j of an LLM dp rank on pipeline rank j mod pp of
/// that dp rank. Its copies of the encoder share the sequences like the dp ranks of a disaggregated encoder.
///
/// Messages. Encoder outputs go from the rank that made them to the LLM dp rank whose sample needs them, and
/// gradients return the same way. With Reshard::hub they pass through dp rank 0 of the encoder's last stage.
/// After its forward of a microbatch, this hub waits for the outputs of the other ranks and sends each LLM dp
/// rank its part; before its backward it waits for all gradients and sends the others theirs. Messages
/// without bytes, and from a group to itself, are omitted.
///
/// Gradients. After its last backward a group goes through its stages from last to first and reduces the
/// gradients of each over dp (gradient_bytes() per parameter), then takes its optimizer step. With
/// Plan::gradient_bucket, a stage's gradients are reduced in n equal buckets during its last backward: bucket
/// k is ready after k / n of it. A colocated encoder's gradients are not divided into buckets. Stages without
/// trained parameters reduce nothing. Gradients do not return to stages before all trained ones
/// (Plan::trained); these stages keep the steps of their order, but their backwards are empty.
///
/// Groups are in the order of first_ranks(), by pipeline rank and dp rank, whatever the placement.
///
/// `order` must be for the plan's shape, except for its placement, and must not deadlock.
/// @throws Error (input) if the assignment does not fit the plan and batch, or the batch has over 10^11
/// tokens.
Program lower(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
              const Assignment& assignment, const PipelineOrder& order);

/// Lowers a plan and assignment in the order that plan_order() returns without tables.
Program lower(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
              const Assignment& assignment);

/// Lowers a batch without work. The Program has the groups, stages and collectives common to all Programs of
/// the plan.
Program lower_without_work(const Plan& plan, const ModelSpec& model);

/// Checks a Program:
///  - indices are in range, and every instruction is in the list of one group;
///  - every message is sent once and received once by the groups it names, in the same order on each channel
///    (from one stage of a group to one stage of another);
///  - a group runs a backward for each forward that it runs, so that the activations of each forward are
///    freed;
///  - the groups of one dp rank run each microbatch once on each of their stages;
///  - each participant enters a collective once and waits for it once, and its copies divide its ranks;
///  - Collective::ready is in [0, 1]; an all_reduce_start for which it is above 0 is followed by compute,
///    during which it becomes ready; of the starts before the same compute, later ones become ready later or
///    at the same time;
///  - if there is a hub, no reshard bypasses it;
///  - ranks of shared GPUs are numbered as Program::shared_gpus says;
///  - asynchronous sends cause no deadlock.
/// @throws Error (input) naming the group and instruction.
void verify(const Program& program);

}  // namespace dflop
