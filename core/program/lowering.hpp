// Lowering finds the stages and the order of a Plan, and the Program that it becomes with an Assignment;
// verify() checks what must be true of every Program, whoever made it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/order/pipeline_order.hpp"
#include "core/program.hpp"

namespace dflop {

/// Returns the stages of a plan in model order, encoder first. The plan must be valid; a uniform one may be
/// of a model without encoder layers.
std::vector<Stage> plan_stages(const Plan& plan, const ModelSpec& model);

/// Returns the parameters of a stage on one of its ranks, those of LoRA among them.
std::int64_t stage_parameters(const Stage& stage, const ModelSpec& model);

/// Returns those of them that are trained: that have gradients, which are reduced, and optimizer states.
std::int64_t trained_parameters(const Stage& stage, const ModelSpec& model);

/// Returns in how many buckets of about so many bytes, at least one, a stage's gradients are reduced: 1,024
/// at most.
std::int64_t gradient_buckets(Bytes gradients, Bytes bucket);

/// Returns the pipeline of a plan, whose stages are those of plan_stages().
PipelineShape plan_shape(const Plan& plan);

/// Returns the order of a plan's pipeline steps. The plan must be valid.
PipelineOrder plan_order(const Plan& plan, const OrderTables& tables = {});

/// Lowers a valid plan and assignment of one batch to a Program.
///
/// Microbatch j of a disaggregated or shared plan: the samples that all LLM dp ranks have in j are cut into
/// encoder sequences and shared over the encoder's dp ranks in sample order, each rank getting a contiguous
/// piece of equal FLOP to within one sequence. Encoder outputs go from the rank that made them to the LLM dp
/// rank whose sample needs them, and gradients go back the same way. With Reshard::hub they go by way of dp
/// rank 0 of the encoder's last stage: after its forward of a microbatch it waits for the outputs of the
/// others and sends each LLM dp rank what that needs; before its backward it waits for all gradients and
/// sends the others theirs. A uniform plan encodes a sample where its LLM dp rank is. A colocated plan
/// encodes microbatch j of an LLM dp rank on pipeline rank j mod pp of that dp rank. Messages without bytes
/// and those of a group to itself are left out. After its last backward a group takes its stages from the
/// last to the first, reduces the gradients of each over dp (gradient_bytes() a parameter) and takes its
/// optimizer step. With Plan::gradient_bucket a stage's gradients are reduced in buckets of equal bytes while
/// its last backward runs, bucket k of n being ready after k / n of it; a colocated encoder's are not.
/// Nothing is reduced of a stage without trained parameters, and no gradients go back to stages before all
/// that are trained (Plan::trained); these keep the steps of their order, of which the backwards are empty.
/// Groups
/// are in the order of first_ranks(), that is by rank of the pipeline and dp rank, whatever the placement.
///
/// `order` is for the plan's shape, but for its placement, and runs to its end.
/// @throws Error (input) if the assignment does not fit the plan and batch, or the batch has over 10^11
/// tokens.
Program lower(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
              const Assignment& assignment, const PipelineOrder& order);

/// Lowers in the order of plan_order() without tables.
Program lower(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
              const Assignment& assignment);

/// Lowers a batch without work: the Program has the groups, stages and collectives that all Programs of the
/// plan have.
Program lower_without_work(const Plan& plan, const ModelSpec& model);

/// Checks a Program: indices in range, every instruction in the list of one group, every message sent once
/// and received once by the groups it names and in the same order on each channel (from one stage of a group
/// to one stage of another), what a group begins it completes, forward and then backward (so that what a
/// forward keeps is freed), each microbatch once on every stage that the groups of one dp rank run, every
/// collective entered once by each participant, who waits for it once, compute after each all_reduce_start
/// that comes into force during it (Collective::ready rising from start to start and in [0, 1]), no reshard
/// past the hub where there is one, ranks
/// of shared GPUs numbered as Program::shared_gpus says, and no deadlock with asynchronous sends.
/// @throws Error (input) naming the group and instruction.
void verify(const Program& program);

}  // namespace dflop
