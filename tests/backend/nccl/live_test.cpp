// Live runs with one process per rank, emulated by threads with a World each that share only a rendezvous and
// a fake NCCL. Loss, gradients, parameters and timelines equal one process's.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/run/messages.hpp"
#include "core/program/forwards.hpp"
#include "tests/backend/nccl/fake_process.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop::testing {
namespace live_test {

void expect_same(const WholeTensors& found, const WholeTensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(found.count(name), 1u) << name;
    EXPECT_LT(distance(found.at(name), tensor), 1e-10) << name;
  }
}

/// Runs two steps of the same plan in one process, and in one process per rank. Between the steps, all
/// weights are read, halved and written.
TEST(NcclLive, ProcessesTrainAsOne) {
  Plan shards = disaggregated_plan({2, 1, 1, {}}, {2, 2, 1, {}}, 2);
  shards.sequence_parallel = true;
  for (const Plan& plan : {uniform_plan(1, 2, 2, 3), uniform_plan(2, 2, 1, 2),
                           disaggregated_plan({1, 1, 2, {}}, {2, 1, 1, {}}, 3), shards}) {
    SCOPED_TRACE(describe(plan));
    Plan zero1 = plan;
    zero1.zero1 = true;
    const std::vector<Sample> samples = live_samples(12, 5);
    LiveRun one(zero1, samples, DType::f64);
    const auto halve = [](LiveExecutor& executor) {
      WholeTensors weights = executor.read(ParameterStore::Kind::weight);
      for (auto& [name, tensor] : weights) {
        for (double& value : tensor.values) value /= 2;
      }
      executor.write(ParameterStore::Kind::weight, weights);
    };
    one.step(true);
    halve(*one.executor);
    const LiveResult expected = one.step(true, 2);
    const auto gradients = one.executor->read(ParameterStore::Kind::gradient);
    const auto weights = one.executor->read(ParameterStore::Kind::weight);
    const auto moments = one.executor->read(ParameterStore::Kind::moment1);

    const auto messages = run_processes(one.program.ranks(), [&](FakeProcess& process) {
      LiveExecutor executor(one.plan, one.model, process, {DType::f64, 7});
      StepOptions options;
      options.optimizer.step = 1;
      executor.step(one.iteration(), options);
      halve(executor);
      options.optimizer.step = 2;
      const LiveResult result = executor.step(one.iteration(), options);
      const auto found_gradients = executor.read(ParameterStore::Kind::gradient);
      const auto found_weights = executor.read(ParameterStore::Kind::weight);
      const auto found_moments = executor.read(ParameterStore::Kind::moment1);
      if (!process.leads()) {
        EXPECT_TRUE(result.timeline.spans.empty());
        EXPECT_TRUE(found_weights.empty());
        return;
      }
      EXPECT_NEAR(result.loss, expected.loss, 1e-10);
      EXPECT_EQ(result.timeline.spans.size(), expected.timeline.spans.size());
      EXPECT_EQ(result.timeline.groups.size(), expected.timeline.groups.size());
      EXPECT_GT(result.timeline.makespan, Nanoseconds{0});
      expect_same(found_gradients, gradients);
      expect_same(found_weights, weights);
      expect_same(found_moments, moments);
    });
    for (const std::string& message : messages) EXPECT_EQ(message, "");
  }
}

/// Returns a plan of three ranks with three microbatches each, and two chunks per rank if the order supports
/// chunks.
Plan drained_plan(OrderKind order) {
  const OrderTraits& kind = traits(order);
  Plan plan = uniform_plan(1, 3, 1, 9);
  plan.order = order;
  if (kind.has_chunks()) {
    plan.llm.pp = plan.encoder.pp = 2;
    plan.microbatches = 8;
    plan.chunks = 2;
    plan.encoder.layers = {2, 1, 0, 0};
    plan.llm.layers = {0, 1, 1, 2};
  }
  if (kind.spreads_encoder) {
    plan.layout = Layout::colocated;
    plan.encoder = {1, 1, 3, {3}};
    plan.llm.layers = {1, 1, 2};
  }
  return plan;
}

LiveRun drained_run(const Plan& plan) {
  const std::vector<Sample> samples = live_samples(plan.bins(), 5);
  OrderTables tables;
  if (reads_tables(plan.order)) {  // all steps take equal times
    const PipelineShape shape = plan_shape(plan);
    const std::vector<Nanoseconds> same(static_cast<std::size_t>(shape.stages() * shape.microbatches),
                                        Nanoseconds(10));
    tables.times = {same, same, splits_backward(plan.order) ? same : std::vector<Nanoseconds>(),
                    std::vector<Nanoseconds>(same.size())};
    tables.most_held.assign(static_cast<std::size_t>(shape.all_ranks()), 5);
  }
  return {plan, live_model(), samples, dealt(plan, samples.size()), plan_order(plan, tables), DType::f64};
}

double loss_of(const LiveRun& one, FakeProcess& process) {
  LiveExecutor executor(one.plan, one.model, process, {DType::f64, 7});
  StepOptions options;
  options.optimizer.step = 1;
  return executor.step(one.iteration(), options).loss;
}

/// Every step waits until its rank's device is idle. Receives are posted at the point that the receiving rank
/// has reached when the message is sent, so no order hangs. The losses equal one process's.
TEST(NcclLive, NoOrderHangsIfStepsWaitForTheDevice) {
  for (const OrderKind order : all_order_kinds()) {
    SCOPED_TRACE(to_string(order));
    LiveRun one = drained_run(drained_plan(order));
    const double expected = one.step(true).loss;
    double loss = 0;
    const auto messages = run_processes(one.program.ranks(),
                                        [&](FakeProcess& process) {
                                          const double own = loss_of(one, process);
                                          if (process.leads()) loss = own;
                                        },
                                        {.patience = Seconds{600}});
    for (const std::string& message : messages) EXPECT_EQ(message, "");
    EXPECT_NEAR(loss, expected, 1e-10);
  }
}

/// Gradients are summed in pieces during the backward that completes them. Nothing that waits for the device
/// hangs, neither a step nor the compute of a backward between two sums. Losses and gradients equal one
/// process's.
TEST(NcclLive, SumsDuringBackwardsEqualOneProcess) {
  std::vector<Plan> plans{disaggregated_plan({1, 1, 3, {}}, {1, 1, 2, {}}, 3),
                          disaggregated_plan({1, 2, 1, {}}, {1, 1, 3, {}}, 2)};
  for (const OrderKind order : all_order_kinds()) {
    Plan plan = drained_plan(order);
    plan.llm.dp = plan.encoder.dp = 2;
    if (plan.layout == Layout::colocated) plan.encoder.dp = 6;  // colocated with the LLM's ranks
    plans.push_back(plan);
  }
  for (Plan& plan : plans) {
    SCOPED_TRACE(describe(plan));
    plan.gradient_bucket = Bytes{2000};
    LiveRun one = drained_run(plan);
    const double expected = one.step(true).loss;
    const auto gradients = one.executor->read(ParameterStore::Kind::gradient);
    double loss = 0;
    const auto messages =
        run_processes(one.program.ranks(),
                      [&](FakeProcess& process) {
                        LiveExecutor executor(one.plan, one.model, process, {DType::f64, 7});
                        StepOptions options;
                        options.optimizer.step = 1;
                        const double own = executor.step(one.iteration(), options).loss;
                        const auto found = executor.read(ParameterStore::Kind::gradient);
                        if (!process.leads()) return;
                        loss = own;
                        expect_same(found, gradients);
                      },
                      {.patience = Seconds{600}});
    for (const std::string& message : messages) EXPECT_EQ(message, "");
    EXPECT_NEAR(loss, expected, 1e-10);
  }
}

/// Returns the sends of gradients and the sums that the last rank, with stage 1, enters in a step.
std::vector<std::string> noted_by_the_last(const LiveRun& one) {
  std::vector<std::string> noted;
  const auto messages =
      run_processes(one.program.ranks(), [&](FakeProcess& process) { loss_of(one, process); },
                    {.noted = &noted, .noting = one.program.ranks() - 1});
  for (const std::string& message : messages) EXPECT_EQ(message, "");
  return noted;
}

/// A gradient is sent for each of two microbatches, the last one after the sums have started.
TEST(NcclLive, SumsBeginDuringTheLastBackward) {
  Plan plan = uniform_plan(1, 2, 2, 2);
  plan.gradient_bucket = Bytes{2000};
  LiveRun one(plan, live_samples(8, 5), DType::f64);
  const std::vector<std::string> noted = noted_by_the_last(one);
  ASSERT_GT(noted.size(), 3U);  // the stage has more gradients than the 500 of a bucket
  EXPECT_EQ(std::count(noted.begin(), noted.end(), "send"), 2);
  EXPECT_EQ(noted.front(), "send");
  EXPECT_EQ(noted.back(), "send");
}

/// Evaluation also ends for every order, and has the same loss as a step with the same weights.
TEST(NcclLive, ProcessesEvaluateAsOne) {
  for (const OrderKind order : all_order_kinds()) {
    SCOPED_TRACE(to_string(order));
    LiveRun one = drained_run(drained_plan(order));
    const double expected = one.step(true).loss;
    one.program = forwards_of(one.program);
    double loss = 0;
    const auto messages = run_processes(one.program.ranks(),
                                        [&](FakeProcess& process) {
                                          const double own = loss_of(one, process);
                                          if (process.leads()) loss = own;
                                        },
                                        {.patience = Seconds{600}});
    for (const std::string& message : messages) EXPECT_EQ(message, "");
    EXPECT_NEAR(loss, expected, 1e-10);
  }
}

/// If receives are entered only when they are waited for, zb-v hangs, because its ranks send each other data
/// that is needed only after the next step.
TEST(NcclLive, AnOrderHangsIfNoReceiveIsPosted) {
  const LiveRun one = drained_run(drained_plan(OrderKind::zb_v));
  const auto messages =
      run_processes(one.program.ranks(), [&](FakeProcess& process) { loss_of(one, process); },
                    {.patience = Seconds{0.5}, .posts_receives = false});
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("a step waits for the device for ever"), std::string::npos) << message;
  }
}

/// Kernels and product libraries are loaded before any message is in transit: the first NCCL call is a sum of
/// a tp group.
TEST(NcclLive, KernelsAreLoadedBeforeTheFirstMessage) {
  LiveRun one(uniform_plan(2, 2, 1, 2), live_samples(4, 5), DType::f64);
  const auto messages = run_processes(4, [&](FakeProcess& process) { loss_of(one, process); });
  for (const std::string& message : messages) EXPECT_EQ(message, "");
  ASSERT_FALSE(fake_nccl_calls().empty());
  EXPECT_EQ(fake_nccl_calls().front().rfind("all_reduce", 0), 0u) << fake_nccl_calls().front();
}

/// Moves the instruction that ends a collective of a group before the group's first instruction that matches
/// `before`.
void take_sum_first(Program& program, std::size_t group, bool (*before)(Op)) {
  const auto begin = program.instructions.begin() + program.groups[group].begin;
  const auto end = program.instructions.begin() + program.groups[group].end;
  const auto place = std::find_if(begin, end, [&](const Instruction& i) { return before(i.op); });
  const auto sum = std::find_if(begin, end, [](const Instruction& i) { return ends_collective(i.op); });
  ASSERT_LT(place, sum);
  std::rotate(place, sum, sum + 1);
}

/// Stage 0 is on groups 0 and 1, stage 1 on 2 and 3. Group 0 takes its sum before it sends anything to group
/// 2, and group 3 before it sends anything to group 1. So group 0 waits for group 1, 1 for 3, 3 for 2, and 2
/// for 0.
TEST(NcclLive, AProgramThatWouldHangIsRejectedBeforeItsFirstStep) {
  LiveRun one(uniform_plan(1, 2, 2, 2), live_samples(8, 5), DType::f64);
  take_sum_first(one.program, 0, is_send);
  take_sum_first(one.program, 3, is_send);
  const auto messages = run_processes(4, [&](FakeProcess& process) { loss_of(one, process); });
  for (const std::string& message : messages) {
    for (const char* part :
         {"order 1f1b: ranks of several processes cannot run the program: program: group 0, instruction 1 "
          "(all_reduce): this would wait forever for others in collective 0",
          "; the orders gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, eager-1f1b can always run"}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in " << message;
    }
  }
  EXPECT_TRUE(fake_nccl_calls().empty());
}

TEST(NcclLive, AllProcessesLearnOfOnesFailure) {
  const std::vector<Sample> samples = live_samples(12, 5);
  const LiveRun one(uniform_plan(1, 2, 1, 3), samples, DType::f64);
  const auto messages = run_processes(2, [&](FakeProcess& process) {
    LiveExecutor executor(one.plan, one.model, process, {DType::f64, 7});
    if (process.leads()) {
      process.abort("the disk is full");
      return;
    }
    executor.read(ParameterStore::Kind::weight);
    executor.write(ParameterStore::Kind::weight, {});
  });
  EXPECT_EQ(messages[1], "rank 0 ended the run: the disk is full");
}

TEST(ProcessWorld, ProcessesAgreeOrNameTheDifference) {
  for (const bool same : {true, false}) {
    const auto messages = run_processes(3, [&](FakeProcess& process) {
      const bool other = !same && process.local_ranks().front() == 2;
      require_agreement(process, {{"model", "tiny"}, {"plan", other ? "pp 2" : "pp 4"}});
    });
    for (const std::string& message : messages) {
      EXPECT_EQ(message,
                same ? "" : "the ranks of a run need the same plan: rank 0 has 'pp 4', rank 2 has 'pp 2'");
    }
  }
}

/// Every receive of a rank has one route. If a group of 2 sends to a group of 3, ranks 0 and 2 receive from
/// the first sender and rank 1 from the second. In the other direction, each receives from the rank at its
/// own place.
TEST(Routes, EachReceiverHasOneSender) {
  EXPECT_EQ(receivers_of(0, 2, 3), (std::vector<int>{0, 2}));
  EXPECT_EQ(receivers_of(1, 2, 3), (std::vector<int>{1}));
  EXPECT_EQ(receivers_of(0, 3, 2), (std::vector<int>{0}));
  EXPECT_EQ(receivers_of(2, 3, 2), (std::vector<int>{}));
  Program program;
  program.groups.resize(2);
  program.groups[0].ranks = 2;
  program.groups[1].first_rank = 2;
  program.groups[1].ranks = 3;
  program.messages.resize(3);
  program.messages[0].source = program.messages[1].source = 0;
  program.messages[0].destination = program.messages[1].destination = 1;
  program.messages[2].source = 1;
  program.messages[2].destination = 0;
  EXPECT_EQ(routes_of(program), (std::vector<RankRoute>{{0, 2}, {0, 4}, {1, 3}, {2, 0}, {3, 1}}));
}

}  // namespace live_test
}  // namespace dflop::testing
