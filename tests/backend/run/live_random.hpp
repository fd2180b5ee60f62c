// Random plans, orders and assignments for a model that is small enough to run live.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "tests/backend/run/live_model.hpp"
#include "tests/core/random_plan.hpp"

namespace dflop::testing {

/// A live model with as many layers as the plans of random_plan().
inline ModelSpec deep_live_model(bool hears = false) {
  ModelSpec model = hears ? hearing_model() : live_model();
  model.encoder.layers = 4;
  model.llm.layers = 6;
  return model;
}

/// A Family is an order of pipeline steps with a layout that supports it.
struct Family {
  OrderKind order;
  Layout layout;
};

inline std::vector<Family> families() {
  std::vector<Family> all;
  for (const OrderKind order : all_order_kinds()) {
    for (const Layout layout : {Layout::uniform, Layout::disaggregated, Layout::colocated, Layout::shared}) {
      if (fits(traits(order), layout)) all.push_back({order, layout});
    }
  }
  return all;
}

inline std::string name_of(const ::testing::TestParamInfo<Family>& info) {
  std::string name =
      std::string(to_string(info.param.order)) + "_" + std::string(to_string(info.param.layout));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// A plan with everything else needed to make the Program of a batch.
struct RandomCase {
  Plan plan;
  std::vector<Sample> samples;
  Assignment assignment;
  PipelineOrder order;
};

/// Samples with images of several sizes, with encoder sequences that give few or no LLM tokens, cut samples,
/// and text.
inline std::vector<Sample> random_live_samples(Random& random, int count) {
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    Sample sample;
    sample.id = "r" + std::to_string(i);
    const int groups = static_cast<int>(random.below(3));
    for (int g = 0; g < groups; ++g) {
      const auto tokens = static_cast<std::int64_t>(1 + random.below(7));
      sample.encoder_sequences.push_back({pick(random, 3), tokens, tokens * tokens});
    }
    if (groups > 0) sample.encoder_output_tokens = static_cast<std::int64_t>(random.below(12));
    const auto cut = random.below(6) == 0 ? std::min<std::int64_t>(sample.encoder_output_tokens, 2) : 0;
    sample.llm_tokens = sample.encoder_output_tokens - cut + pick(random, 9);
    samples.push_back(sample);
  }
  return samples;
}

/// Samples of a model with two encoders: some sequences are the second encoder's, of even length, because
/// pairs of their rows are merged.
inline std::vector<Sample> random_heard_samples(Random& random, int count) {
  std::vector<Sample> samples = random_live_samples(random, count);
  for (Sample& sample : samples) {
    for (EncoderSequences& group : sample.encoder_sequences) {
      if (random.below(2) == 0) continue;
      const std::int64_t tokens = 2 * group.tokens;
      group = {group.count, tokens, tokens * tokens, true};
    }
  }
  return samples;
}

/// Every bin gets one sample; the others go to random bins.
inline Assignment random_assignment(Random& random, const Plan& plan, std::size_t samples) {
  Assignment assignment = dealt(plan, samples);
  const auto bins = static_cast<std::size_t>(plan.bins());
  for (std::size_t i = bins; i < samples; ++i) {
    assignment.bin[i] = static_cast<std::int32_t>(random.below(bins));
  }
  random.shuffle(std::span(assignment.bin));
  return assignment;
}

/// Random times and limits. They decide the order, and every order must finish.
inline OrderTables random_tables(Random& random, const PipelineShape& shape) {
  OrderTables tables;
  const auto times = [&] {
    std::vector<Nanoseconds> column(static_cast<std::size_t>(shape.stages() * shape.microbatches));
    for (Nanoseconds& time : column) time = Nanoseconds(pick(random, 1000));
    return column;
  };
  tables.times = {times(), times(), {}, times()};
  if (splits_backward(shape.kind)) tables.times.backward_weight = times();
  for (int r = 0; r < shape.all_ranks(); ++r) tables.most_held.push_back(pick(random, 6));
  return tables;
}

inline RandomCase random_case(Random& random, OrderKind order, Layout layout) {
  RandomCase c;
  c.plan = random_plan(random, order, layout);
  c.plan.recomputation = static_cast<Recomputation>(random.below(3));
  c.plan.reshard = Reshard::direct;  // live ranks do not support a hub
  c.plan.zero1 = random.below(2) == 0;
  c.plan.sequence_parallel = random.below(2) == 0;
  if (c.plan.gradient_bucket.count > 0) c.plan.gradient_bucket = Bytes{pick(random, 40'000)};
  c.samples = random_live_samples(random, c.plan.gbs);
  c.assignment = random_assignment(random, c.plan, c.samples.size());
  const PipelineShape shape = plan_shape(c.plan);
  c.order = plan_order(c.plan, reads_tables(order) ? random_tables(random, shape) : OrderTables{});
  return c;
}

/// Returns a run of a case with the deep model.
inline LiveRun live_run(const RandomCase& c) {
  return {c.plan, deep_live_model(), c.samples, c.assignment, c.order, DType::f64};
}

}  // namespace dflop::testing
