// Groups that share GPUs: small cases worked out by hand, and random Programs whose spans must follow from
// max-min fair shares of the bandwidth.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "sim/analysis/relaxations.hpp"
#include "sim/engine.hpp"
#include "tests/sim/random_program.hpp"
#include "tests/sim/reference.hpp"

namespace dflop::testing {
namespace shared_compute_test {

constexpr int kPrograms = 300;

/// A computation of one group: a forward, followed by a backward of no duration.
struct Computation {
  std::int32_t first_rank = 0;
  std::int32_t ranks = 1;
  std::int64_t amount = 0;
  double bandwidth = 0;
};

PricedProgram make_computations(int gpus, const std::vector<Computation>& computations) {
  std::vector<std::vector<Instruction>> lists;
  for (std::size_t g = 0; g < computations.size(); ++g) {
    const auto stage = static_cast<std::uint16_t>(g);
    lists.push_back({{Op::forward, stage, 0, 0}, {Op::backward, stage, 0, 0}});
  }
  PricedProgram priced = make_program(lists, {}, {});
  priced.program.shared_gpus = gpus;
  for (std::size_t g = 0; g < computations.size(); ++g) {
    priced.program.groups[g].first_rank = computations[g].first_rank;
    priced.program.groups[g].ranks = computations[g].ranks;
    priced.costs.instruction[2 * g] = Nanoseconds(computations[g].amount);
    priced.costs.bandwidth.push_back(computations[g].bandwidth);
    priced.costs.bandwidth.push_back(0);
  }
  return priced;
}

/// Returns how long each group is busy.
std::vector<std::int64_t> busy(const PricedProgram& priced, const Conditions& conditions = {}) {
  verify(priced.program);
  std::vector<std::int64_t> busy;
  for (const GroupUsage& group : simulate(priced.program, priced.costs, Detail::usage, conditions).groups)
    busy.push_back(group.busy.count());
  return busy;
}

using Times = std::vector<std::int64_t>;

// 0.6 + 0.4 does not exceed the bandwidth.
TEST(SharedCompute, IsNotSlowedDownIfBandwidthIsEnough) {
  EXPECT_EQ(busy(make_computations(1, {{0, 1, 100, 0.6}, {1, 1, 300, 0.4}})), (Times{100, 300}));
}

// Both get 0.5: rates 0.5 / 0.625 = 0.8 and 0.5. The first ends at 100 / 0.8 = 125, when the second has done
// 62.5. The other 37.5 take as long, until 162.5, which is rounded up.
TEST(SharedCompute, ThatRequestsTooMuchSharesEqually) {
  EXPECT_EQ(busy(make_computations(1, {{0, 1, 100, 0.625}, {1, 1, 100, 1}})), (Times{125, 163}));
}

// 0.25 is less than half, so until 100 the other gets 0.75 of the 1 that it asks for; then 25 of its 100 are
// left.
TEST(SharedCompute, ThatRequestsLittleGetsIt) {
  EXPECT_EQ(busy(make_computations(1, {{0, 1, 100, 0.25}, {1, 1, 100, 1}})), (Times{100, 125}));
}

// Ranks 2 and 3 are one group on both GPUs. On the second GPU it competes with a group that asks for 0.625,
// so both get 0.5. It then takes no more of the first GPU, where the other group gets its 0.25: rates 1, 0.8
// and 0.5. At 125 it has done 62.5 and continues by itself until 162.5.
TEST(SharedCompute, OfATensorParallelGroupGoesAtTheRateOfItsSlowestGpu) {
  const PricedProgram priced = make_computations(2, {{0, 1, 100, 0.25}, {1, 1, 100, 0.625}, {2, 2, 100, 1}});
  EXPECT_EQ(busy(priced), (Times{100, 125, 163}));
}

// The first pauses from 40 to 80. Until 40 both get half, and the second has done 20. By itself it does 40
// more; with half from 80 on it ends at 160. By then the first has done 20 + 40 of its 100, and ends at 200.
// Paused groups are not busy.
TEST(SharedCompute, ThatPausesTakesNoBandwidth) {
  Conditions conditions;
  conditions.pauses = {{0, Nanoseconds(40), Nanoseconds(40)}};
  const PricedProgram priced = make_computations(1, {{0, 1, 100, 1}, {1, 1, 100, 1}});
  EXPECT_EQ(busy(priced, conditions), (Times{160, 160}));
  EXPECT_EQ(simulate(priced.program, priced.costs, Detail::usage, conditions).makespan, Nanoseconds(200));
}

// The first fails at 40 with 20 done. The second has also done 20, and continues by itself until 120.
TEST(SharedCompute, ThatFailsTakesNone) {
  Conditions conditions;
  conditions.pauses = {{0, Nanoseconds(40), Pause::kForever}};
  const PricedProgram priced = make_computations(1, {{0, 1, 100, 1}, {1, 1, 100, 1}});
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans, conditions);
  EXPECT_EQ(timeline.groups[0].busy, Nanoseconds(40));
  EXPECT_EQ(timeline.groups[1].busy, Nanoseconds(120));
  EXPECT_EQ(timeline.makespan, Nanoseconds(120));
  ASSERT_EQ(timeline.stalls.size(), 1u);
  EXPECT_TRUE(timeline.stalls[0].failed);
  EXPECT_EQ(timeline.stalls[0].since, Nanoseconds(40));
  EXPECT_EQ(timeline.spans[0].duration, Nanoseconds(40));
}

// Two backwards of 100 share a GPU, so both take 200, and half of one is done at 100. Its reduction starts
// then, and not at 50.
TEST(SharedCompute, ReductionsComeInWhenTheirPartIsDone) {
  PricedProgram priced = make_program({{{Op::forward, 0, 0, 0},
                                        {Op::all_reduce_start, 0, -1, 0},
                                        {Op::backward, 0, 0, 0},
                                        {Op::all_reduce_wait, 0, -1, 0}},
                                       {{Op::forward, 1, 0, 0}, {Op::backward, 1, 0, 0}}},
                                      {}, {{.groups = {0}, .bytes = Bytes{8}, .ready = 0.5}});
  priced.program.shared_gpus = 1;
  priced.costs.instruction[2] = Nanoseconds(100);
  priced.costs.instruction[5] = Nanoseconds(100);
  priced.costs.collective = {Nanoseconds(10)};
  priced.costs.bandwidth = {0, 0, 1, 0, 0, 1};
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans);
  EXPECT_EQ(timeline.makespan, Nanoseconds(200));
  const auto reduction = std::ranges::find(timeline.spans, Op::all_reduce_start, &Span::op);
  EXPECT_EQ(reduction->start, Nanoseconds(100));
}

// Both ask for 0.8. When twice as slow, the second moves its bytes in 200, so it asks for 0.4 and gets it.
// The first gets 0.6 of 0.8 and ends at 100 / 0.75 = 133.3.
TEST(SharedCompute, ThatIsSlowedDownRequestsLess) {
  PricedProgram priced = make_computations(1, {{0, 1, 100, 0.8}, {1, 1, 100, 0.8}});
  slow_down(priced.costs, priced.program, 1, 2);
  EXPECT_EQ(busy(priced), (Times{133, 200}));
}

TEST(SharedCompute, WithJitterMovesAsMuchAsBefore) {
  ProgramCosts costs;
  costs.instruction.assign(1000, Nanoseconds(1'000'000));
  costs.bandwidth.assign(1000, 0.3);
  Random random(3);
  add_jitter(costs, 0.2, random);
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_NEAR(costs.bandwidth[i] * static_cast<double>(costs.instruction[i].count()), 300'000, 1e-3);
  }
}

TEST(SharedCompute, IsCappedAtTheBandwidth) {
  ProgramCosts costs;
  costs.instruction = {Nanoseconds(100), Nanoseconds(100), Nanoseconds(0)};
  costs.bandwidth = {0.8, 0.8, 0};
  costs.set_duration(0, Nanoseconds(50));  // needs 1.6 of the bandwidth
  costs.set_duration(1, Nanoseconds(0));
  costs.set_duration(2, Nanoseconds(10));
  EXPECT_EQ(costs.instruction, (std::vector{Nanoseconds(50), Nanoseconds(0), Nanoseconds(10)}));
  EXPECT_EQ(costs.bandwidth, (std::vector{1.0, 0.8, 0.0}));
}

// The encoder's forwards of 100 with 0.9 and 300 with 0.1 have a mean of 200 each, with (90 + 30) / 400 =
// 0.3. On GPU 0 the LLM then gets 0.7 of 0.8: at 200 it has done 175, and the other 25 run at full rate.
TEST(SharedCompute, OfStragglersHasTheirMeanTraffic) {
  PricedProgram priced = make_computations(2, {{0, 1, 100, 0.9}, {1, 1, 300, 0.1}, {2, 1, 200, 0.8}});
  priced.program.groups[1].stage = 0;
  priced.program.groups[1].dp_rank = 1;
  priced.program.instructions[2].stage = priced.program.instructions[3].stage = 0;
  const Relaxation relaxation{Relaxation::Kind::no_stragglers};
  EXPECT_EQ(relaxed_makespan(priced.program, priced.costs, relaxation), Nanoseconds(225));
}

// In parallel they take 125 and 163, as above. No order of the two reduces that to 100.
TEST(SharedCompute, WithoutBubblesStillSharesTheGpu) {
  const PricedProgram priced = make_computations(1, {{0, 1, 100, 0.625}, {1, 1, 100, 1}});
  EXPECT_EQ(relaxed_makespan(priced.program, priced.costs, {Relaxation::Kind::no_bubbles}), Nanoseconds(163));
}

// On GPU 1 the encoder's rank has links of half the bandwidth, and so has the LLM's rank there: messages to
// or from GPU 1 take twice as long for both ranks, and copies take the same time as before.
TEST(SharedCompute, SlowLinksAreOfTheGpu) {
  PricedProgram priced = make_computations(2, {{0, 1, 1, 0}, {1, 1, 1, 0}, {2, 1, 1, 0}, {3, 1, 1, 0}});
  const std::array<std::array<std::int32_t, 2>, 4> ends = {{{0, 1}, {0, 3}, {1, 3}, {2, 0}}};
  for (const auto& [source, destination] : ends)
    priced.program.messages.push_back({source, destination, 0, {8}, {8}});
  priced.program.collectives = {{{0, 1}, {8}}, {{2, 3}, {8}}};
  priced.costs.message.assign(4, Nanoseconds(10));
  priced.costs.collective.assign(2, Nanoseconds(10));
  slow_links(priced.costs, priced.program, {1, 0.5, 1, 1});
  const auto counts = [](const std::vector<Nanoseconds>& durations) {
    Times times;
    for (const Nanoseconds duration : durations) times.push_back(duration.count());
    return times;
  };
  EXPECT_EQ(counts(priced.costs.message), (Times{20, 20, 10, 10}));
  EXPECT_EQ(counts(priced.costs.collective), (Times{20, 20}));
}

TEST(SharedCompute, RejectsInvalidBandwidths) {
  PricedProgram priced = make_computations(1, {{0, 1, 100, 1}, {1, 1, 100, 1.01}});
  EXPECT_THROW(simulate(priced.program, priced.costs, Detail::usage), Error);
  priced.costs.bandwidth.pop_back();
  EXPECT_THROW(simulate(priced.program, priced.costs, Detail::usage), Error);
}

std::vector<Pause> random_pauses(const Program& program, Random& random) {
  std::vector<Pause> pauses;
  for (int k = 0; k < 5; ++k) {
    pauses.push_back({static_cast<std::int32_t>(random.below(program.groups.size())),
                      Nanoseconds(static_cast<std::int64_t>(random.below(8000))),
                      Nanoseconds(static_cast<std::int64_t>(random.below(2000)))});
  }
  std::ranges::stable_sort(pauses, {}, &Pause::start);
  return pauses;
}

/// Without memory traffic the run equals one in which ranks have their own GPUs, under any conditions.
TEST(SharedCompute, WithoutTrafficEqualsSeparateGpus) {
  Random random(7);
  for (int k = 0; k < kPrograms; ++k) {
    SCOPED_TRACE("program " + std::to_string(k));
    PricedProgram priced = make_shared_random_program(random);
    std::ranges::fill(priced.costs.bandwidth, 0.0);
    Conditions conditions;
    if (k % 2 == 1) conditions.pauses = random_pauses(priced.program, random);
    if (k % 10 == 1) conditions.pauses[random.below(5)].duration = Pause::kForever;
    const Timeline shared = simulate(priced.program, priced.costs, Detail::spans, conditions);
    priced.program.shared_gpus = 0;
    priced.costs.bandwidth.clear();
    const Timeline own = simulate(priced.program, priced.costs, Detail::spans, conditions);
    ASSERT_EQ(shared.makespan, own.makespan);
    ASSERT_EQ(shared.groups, own.groups);
    ASSERT_EQ(shared.stalls, own.stalls);
    const auto place = [](const Span& span) { return std::tuple(span.rank, span.position); };
    auto of_shared = shared.spans;
    auto of_own = own.spans;
    std::ranges::sort(of_shared, {}, place);
    std::ranges::sort(of_own, {}, place);
    ASSERT_EQ(of_shared, of_own);
  }
}

/// A computation that runs between two instants.
struct Running {
  std::int32_t group = 0;
  double wanted = 0;
  double part = -1;  // undecided
};

/// Computes max-min fair shares: bisects for the highest level to which all can be raised. Computations that
/// then have what they want, or are on a full GPU, are settled.
void share_out(const Program& program, std::vector<Running>& running) {
  const auto used = [&](double level) {
    std::vector<double> of_gpu(program.shared_gpus, 0.0);
    for (const Running& one : running) {
      const Group& group = program.groups[one.group];
      const double part = one.part >= 0 ? one.part : std::min(one.wanted, level);
      for (int r = 0; r < group.ranks; ++r) of_gpu[program.first_device(group) + r] += part;
    }
    return of_gpu;
  };
  const auto fits = [&](double level) { return std::ranges::max(used(level)) <= 1 + 1e-12; };
  while (std::ranges::any_of(running, [](const Running& one) { return one.part < 0; })) {
    double low = 0;
    double high = 1;
    for (int k = 0; k < 50 && !fits(high); ++k) (fits((low + high) / 2) ? low : high) = (low + high) / 2;
    const double level = fits(high) ? high : low;
    const std::vector<double> of_gpu = used(level);
    for (Running& one : running) {
      const Group& group = program.groups[one.group];
      const auto gpu = of_gpu.begin() + program.first_device(group);
      const bool full = *std::max_element(gpu, gpu + group.ranks) > 1 - 1e-9;
      if (one.part < 0 && (full || one.wanted <= level)) one.part = std::min(one.wanted, level);
    }
  }
}

/// Returns how much each instruction has done between its start and its end, at the rates that follow from
/// the computations that ran at the same time.
std::map<std::int64_t, double> work_done(const PricedProgram& priced, const Timeline& timeline,
                                         const Conditions& conditions) {
  const Program& program = priced.program;
  std::map<std::int32_t, std::int32_t> group_of;
  for (std::size_t g = 0; g < program.groups.size(); ++g)
    group_of[program.groups[g].first_rank] = static_cast<std::int32_t>(g);
  std::set<Nanoseconds> instants;
  std::vector<Span> spans;
  for (const Span& span : timeline.spans) {
    if (span.stream != Stream::compute) continue;
    spans.push_back(span);
    instants.insert({span.start, span.start + span.duration});
  }
  for (const Pause& pause : conditions.pauses) instants.insert({pause.start, pause.start + pause.duration});
  std::map<std::int64_t, double> done;
  for (auto now = instants.begin(); std::next(now) != instants.end(); ++now) {
    const auto length = static_cast<double>((*std::next(now) - *now).count());
    std::vector<Running> running;
    std::vector<std::int64_t> instructions;
    for (const Span& span : spans) {
      const std::int32_t group = group_of.at(span.rank);
      if (span.start > *now || span.start + span.duration <= *now) continue;
      if (paused_time(conditions, group, *now, *std::next(now)) > Nanoseconds(0)) continue;
      const std::int64_t instruction = program.groups[group].begin + span.position;
      instructions.push_back(instruction);
      running.push_back({group, priced.costs.bandwidth[instruction]});
    }
    share_out(program, running);
    for (std::size_t k = 0; k < running.size(); ++k) {
      const double rate = running[k].wanted > 0 ? running[k].part / running[k].wanted : 1;
      done[instructions[k]] += rate * length;
    }
  }
  return done;
}

/// Checks that each computation ends when its work is done, up to rounding to whole nanoseconds: each end is
/// off by at most half a nanosecond, and so is each end of another computation while it runs.
void expect_work_done(const PricedProgram& priced, const Conditions& conditions) {
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans, conditions);
  for (const auto& [instruction, done] : work_done(priced, timeline, conditions)) {
    const auto cost = static_cast<double>(priced.costs.instruction[instruction].count());
    ASSERT_NEAR(done, cost, 0.5 + 1e-6) << "instruction " << instruction;
  }
}

TEST(SharedCompute, EndsWhenItsWorkIsDone) {
  Random random(11);
  for (int k = 0; k < kPrograms; ++k) {
    SCOPED_TRACE("program " + std::to_string(k));
    const PricedProgram priced = make_shared_random_program(random);
    ASSERT_NO_THROW(verify(priced.program));
    Conditions conditions;
    expect_work_done(priced, conditions);
    conditions.cores = static_cast<int>(1 + random.below(6));
    expect_work_done(priced, conditions);
    conditions.pauses = random_pauses(priced.program, random);
    expect_work_done(priced, conditions);
    conditions.cores = 0;
    expect_work_done(priced, conditions);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// With the durations that it took on shared GPUs, a program runs the same on unshared GPUs.
TEST(SharedCompute, ChangesNothingElse) {
  Random random(12);
  for (int k = 0; k < kPrograms; ++k) {
    SCOPED_TRACE("program " + std::to_string(k));
    PricedProgram priced = make_shared_random_program(random);
    for (Collective& collective : priced.program.collectives) collective.ready = 0;
    const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans);
    std::map<std::int32_t, std::int64_t> begin_of;
    for (const Group& group : priced.program.groups) begin_of[group.first_rank] = group.begin;
    for (const Span& span : timeline.spans) {
      if (span.stream == Stream::compute)
        priced.costs.instruction[begin_of.at(span.rank) + span.position] = span.duration;
    }
    const Reference reference = make_reference(priced);
    ASSERT_EQ(timeline.makespan, reference.makespan);
    ASSERT_EQ(timeline.groups, reference.groups);
  }
}

// While anything runs on a GPU, it never gives more than its whole bandwidth.
TEST(SharedCompute, UsesAtMostTheBandwidth) {
  Random random(13);
  for (int k = 0; k < kPrograms; ++k) {
    const PricedProgram priced = make_shared_random_program(random);
    const Program& program = priced.program;
    const Timeline timeline = simulate(program, priced.costs, Detail::usage);
    std::vector<double> moved(program.shared_gpus, 0.0);  // in nanoseconds of full bandwidth
    std::vector<Nanoseconds> busy(program.shared_gpus);   // of both groups
    for (std::size_t g = 0; g < program.groups.size(); ++g) {
      const Group& group = program.groups[g];
      for (int d = program.first_device(group); d < program.first_device(group) + group.ranks; ++d) {
        busy[d] += timeline.groups[g].busy;
        for (std::int64_t i = group.begin; i < group.end; ++i)
          moved[d] += priced.costs.bandwidth[i] * static_cast<double>(priced.costs.instruction[i].count());
      }
    }
    for (int d = 0; d < program.shared_gpus; ++d) {
      const auto most = static_cast<double>(std::min(busy[d], timeline.makespan).count());
      ASSERT_LE(moved[d], most + static_cast<double>(program.instructions.size())) << "GPU " << d;
    }
  }
}

// No computation is shorter than on its own GPU, and without a neighbor it takes the same time.
TEST(SharedCompute, IsNeverFasterThanAlone) {
  Random random(14);
  int longer = 0;
  for (int k = 0; k < kPrograms; ++k) {
    const PricedProgram priced = make_shared_random_program(random);
    const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans);
    std::map<std::int32_t, std::int64_t> begin_of;
    for (const Group& group : priced.program.groups) begin_of[group.first_rank] = group.begin;
    for (const Span& span : timeline.spans) {
      if (span.stream != Stream::compute) continue;
      const Nanoseconds alone = priced.costs.instruction[begin_of.at(span.rank) + span.position];
      ASSERT_GE(span.duration, alone);
      longer += span.duration > alone ? 1 : 0;
    }
  }
  EXPECT_GT(longer, kPrograms);
}

}  // namespace shared_compute_test
}  // namespace dflop::testing
