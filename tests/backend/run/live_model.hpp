// Live runs of the plans of live_plans.hpp.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/host/world.hpp"
#include "backend/run/live_executor.hpp"
#include "core/program/lowering.hpp"
#include "tests/backend/run/live_plans.hpp"

namespace dflop::testing {

/// An executor that owns its world.
class OwnWorldExecutor final : public Executor {
 public:
  OwnWorldExecutor(const Plan& plan, const ModelSpec& model, std::unique_ptr<World> world)
      : world_(std::move(world)), executor_(plan, model, *world_, {}) {}
  Timeline run(const Iteration& iteration, Detail detail) const override {
    return executor_.run(iteration, detail);
  }

 private:
  std::unique_ptr<World> world_;
  LiveExecutor executor_;
};

/// Returns options of a world for a plan. Shared plans get devices of four cores.
inline WorldOptions world_options(const Plan& plan, std::optional<Bytes> memory = {}, int cores = 0,
                                  int row_alignment = 1) {
  WorldOptions options{Seconds(30), memory, cores};
  options.row_alignment = row_alignment;
  if (plan.layout != Layout::shared) return options;
  options.device_cores = 4;
  options.shared_devices = plan.gpus();
  options.first_share = plan.encoder_share;
  return options;
}

/// A run of a plan.
struct LiveRun {
  Plan plan;
  ModelSpec model;
  std::vector<Sample> samples;
  Assignment assignment;
  Program program;
  std::unique_ptr<World> world;
  std::unique_ptr<LiveExecutor> executor;

  LiveRun(const Plan& p, const std::vector<Sample>& batch, DType dtype)
      : LiveRun(p, live_model(), batch, dealt(p, batch.size()), plan_order(p), dtype) {}
  LiveRun(const Plan& p, const ModelSpec& m, const std::vector<Sample>& batch, DType dtype,
          int row_alignment = 1)
      : LiveRun(p, m, batch, dealt(p, batch.size()), plan_order(p), dtype, {}, 0, row_alignment) {}
  LiveRun(const Plan& p, const ModelSpec& m, const std::vector<Sample>& batch, const Assignment& to_bins,
          const PipelineOrder& order, DType dtype, std::optional<Bytes> memory = {}, int cores = 0,
          int row_alignment = 1)
      : plan(p), model(m), samples(batch), assignment(to_bins) {
    plan.gbs = static_cast<int>(batch.size());
    program = lower(plan, model, samples, assignment, order);
    world = std::make_unique<HostWorld>(program.ranks(), world_options(plan, memory, cores, row_alignment));
    executor = std::make_unique<LiveExecutor>(plan, model, *world, LiveOptions{dtype, 7});
  }
  /// Runs in a world that `make` makes for the plan's number of ranks.
  LiveRun(const Plan& p, const std::vector<Sample>& batch, DType dtype,
          const std::function<std::unique_ptr<World>(int ranks)>& make)
      : plan(p), model(live_model()), samples(batch), assignment(dealt(p, batch.size())) {
    plan.gbs = static_cast<int>(batch.size());
    program = lower(plan, model, samples, assignment, plan_order(plan));
    world = make(program.ranks());
    executor = std::make_unique<LiveExecutor>(plan, model, *world, LiveOptions{dtype, 7});
  }
  LiveRun(const LiveRun&) = delete;

  LiveResult step(bool update, std::int64_t number = 1) {
    StepOptions options;
    options.optimizer.step = number;
    options.update = update;
    return executor->step(iteration(), options);
  }

  Iteration iteration() const {
    Iteration made;
    made.program = program;
    made.plan = plan;
    made.samples = samples;
    made.assignment = assignment;
    return made;
  }
};

/// Returns the L2 norm of the difference divided by the norm of the expected values.
inline double distance(const WholeTensor& found, const WholeTensor& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    difference += std::pow(found.values[i] - expected.values[i], 2);
    norm += std::pow(expected.values[i], 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace dflop::testing
