// Ranks of the host that take turns in computing.
#include "backend/host/cores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "backend/host/world.hpp"
#include "tests/backend/count_down.hpp"
#include "tests/backend/run/live_random.hpp"

namespace dflop {
namespace cores_test {

using testing::CountDown;
using testing::LiveRun;
using testing::RandomCase;
using Ranks = HostCores::Ranks;
using Kind = ParameterStore::Kind;

constexpr Nanoseconds kNow{0};

HostCores make_cores(int cores, const std::vector<RankGroup>& groups) {
  int ranks = 0;
  for (const RankGroup& group : groups) ranks += static_cast<int>(group.ranks.size());
  HostCores made(ranks, cores);
  for (const RankGroup& group : groups) {
    for (const std::int32_t rank : group.ranks) made.join(rank, group);
  }
  return made;
}

// Two cores. Ranks 1 and 2 are a tp group. Its request counts once both have asked. It gets no core while
// rank 0 computes, and both cores afterwards. Rank 3 asks later and gets its turn later, although a core is
// free.
TEST(HostCores, GiveAllRanksOfATpGroupOneTurn) {
  HostCores cores = make_cores(2, {{{0}}, {{1, 2}}, {{3}}});
  EXPECT_EQ(cores.ask(1, kNow), Ranks{});
  EXPECT_EQ(cores.ask(0, kNow), Ranks{0});
  EXPECT_EQ(cores.ask(2, kNow), Ranks{});
  EXPECT_EQ(cores.ask(3, kNow), Ranks{});
  EXPECT_TRUE(cores.may_compute(0));
  EXPECT_FALSE(cores.may_compute(1));
  EXPECT_EQ(cores.give_back(0, kNow), (Ranks{1, 2}));
  EXPECT_FALSE(cores.can_pause(1));  // no other rank of its group could use its core
  EXPECT_EQ(cores.give_back(2, kNow), Ranks{});
  EXPECT_EQ(cores.ask(2, kNow), Ranks{});  // for the next instruction, before rank 1 has ended this one
  EXPECT_EQ(cores.give_back(1, kNow), Ranks{3});
  EXPECT_EQ(cores.ask(1, kNow), Ranks{});
  EXPECT_EQ(cores.give_back(3, kNow), (Ranks{1, 2}));
}

// Two cores for a tp group of three. The third rank continues when one waits for the others, and that one
// when a core is free again.
TEST(HostCores, AreSharedInATpGroupThatHasTooFew) {
  HostCores cores = make_cores(2, {{{0, 1, 2}}, {{3}}});
  cores.ask(0, kNow);
  cores.ask(1, kNow);
  EXPECT_EQ(cores.ask(2, kNow), (Ranks{0, 1}));
  EXPECT_EQ(cores.ask(3, kNow), Ranks{});
  EXPECT_TRUE(cores.can_pause(1));
  EXPECT_FALSE(cores.can_pause(2));  // it is not computing
  EXPECT_EQ(cores.pause(1), Ranks{2});
  EXPECT_EQ(cores.resume(1), Ranks{});
  EXPECT_EQ(cores.give_back(0, kNow), Ranks{1});
  EXPECT_EQ(cores.give_back(2, kNow), Ranks{});  // rank 3 is no rank of this group
  EXPECT_EQ(cores.give_back(1, kNow), Ranks{3});
}

/// Calls body(rank, communicator, turn) in a thread for each rank of these tp groups. Returns how each rank
/// ended.
using Body = std::function<void(int, Communicator&, ComputeTurn&)>;
std::vector<std::string> run(const std::vector<RankGroup>& groups, int cores, Seconds timeout,
                             const Body& body) {
  int ranks = 0;
  for (const RankGroup& group : groups) ranks += static_cast<int>(group.ranks.size());
  HostWorld world(ranks, {timeout, {}, cores});
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<ComputeTurn>> turns;
  for (const RankGroup& group : groups) {
    for (const std::int32_t rank : group.ranks) {
      communicators.push_back(world.make_communicator(rank));
      turns.push_back(world.make_turn(rank, group));
    }
  }
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ends.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(static_cast<int>(r), *communicators[r], *turns[r]);
      } catch (const Aborted& aborted) {
        ends[r] = "aborted: " + aborted.message();
      } catch (const Error& error) {
        ends[r] = error.message();
      }
    });
  }
  threads.clear();
  return ends;
}

std::vector<RankGroup> single(int ranks) {
  std::vector<RankGroup> groups;
  for (int rank = 0; rank < ranks; ++rank) groups.push_back({{rank}});
  return groups;
}

/// Counts the ranks that compute at the same time.
class Occupancy {
 public:
  void enter() {
    const int now = ++computing_;
    int most = most_.load();
    while (most < now && !most_.compare_exchange_weak(most, now)) {
    }
  }
  void leave() { --computing_; }
  int most() const { return most_.load(); }

 private:
  std::atomic<int> computing_ = 0;
  std::atomic<int> most_ = 0;
};

TEST(HostTurns, RunAsManyAtATimeAsThereAreCores) {
  for (const int cores : {1, 2, 3}) {
    Occupancy occupancy;
    int unguarded = 0;  // with one core, only turns protect it from races
    const auto ends = run(single(5), cores, Seconds{60}, [&](int, Communicator&, ComputeTurn& turn) {
      for (int k = 0; k < 200; ++k) {
        turn.begin();
        occupancy.enter();
        if (cores == 1) ++unguarded;
        std::this_thread::yield();
        occupancy.leave();
        turn.end();
      }
    });
    EXPECT_EQ(ends, std::vector<std::string>(5));
    EXPECT_LE(occupancy.most(), cores);
    EXPECT_EQ(unguarded, cores == 1 ? 1000 : 0);
  }
}

// Two tp groups of three ranks on two cores. A rank that waits in its group's all-reduce lets others of the
// group compute; otherwise they would never reach it. At most two ranks compute at the same time.
TEST(HostTurns, RotateInATpGroup) {
  const std::vector<RankGroup> groups = {{{0, 1, 2}}, {{3, 4, 5}}};
  Occupancy occupancy;
  const auto stream = make_host_device({})->make_stream();
  const auto ends = run(groups, 2, Seconds{60}, [&](int rank, Communicator& communicator, ComputeTurn& turn) {
    const RankGroup& own = groups[static_cast<std::size_t>(rank / 3)];
    for (int k = 0; k < 50; ++k) {
      turn.begin();
      for (int layer = 0; layer < 4; ++layer) {
        occupancy.enter();
        float one = 1;
        occupancy.leave();
        communicator.all_reduce(&one, 1, DType::f32, own, *stream, "ones");
        occupancy.enter();
        EXPECT_EQ(one, 3.0F);
        occupancy.leave();
      }
      turn.end();
    }
  });
  EXPECT_EQ(ends, std::vector<std::string>(6));
  EXPECT_LE(occupancy.most(), 2);
}

TEST(HostTurns, AreNotTakenIfEachRankHasACore) {
  HostWorld world(2, {Seconds{60}, {}, 2});
  EXPECT_EQ(world.make_turn(0, {{0}}), nullptr);
  EXPECT_EQ(HostWorld(2).make_turn(0, {{0}}), nullptr);
  EXPECT_THROW(HostWorld(2, {Seconds{60}, {}, -1}), Error);
}

// Rank 0 keeps the core and waits for a message that rank 1 would send after its turn, which never comes.
TEST(HostTurns, AreNamedWhenARunHangs) {
  std::latch begun(1);
  const auto stream = make_host_device({})->make_stream();
  const auto ends =
      run(single(2), 1, Seconds{0.2}, [&](int rank, Communicator& communicator, ComputeTurn& turn) {
        if (rank == 0) {
          CountDown has_begun(begun);
          turn.begin();
          has_begun.now();
          communicator.receive(nullptr, 0, 1, *stream, "a letter");
        } else {
          begun.wait();
          turn.begin();
          communicator.send(nullptr, 0, 0, *stream, "a letter");
        }
      });
  const std::string all = ends[0] + ends[1];
  EXPECT_NE(all.find("rank 0 waits for a letter from rank 1"), std::string::npos) << all;
  EXPECT_NE(all.find("rank 1 waits for a core"), std::string::npos) << all;
}

TEST(HostTurns, EndWithTheRun) {
  std::latch begun(1);
  const auto ends =
      run(single(3), 1, Seconds{60}, [&](int rank, Communicator& communicator, ComputeTurn& turn) {
        if (rank == 0) {
          CountDown has_begun(begun);
          turn.begin();
          has_begun.now();
          std::this_thread::sleep_for(std::chrono::milliseconds(50));  // usually the others wait by then
          communicator.abort("the loss is NaN");
          return;
        }
        begun.wait();
        turn.begin();
        ADD_FAILURE() << "rank " << rank << " has the core of rank 0";
      });
  EXPECT_EQ(ends[0], "");
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ends[static_cast<std::size_t>(rank)], "aborted: rank 0 ended the run: the loss is NaN");
  }
}

/// Calls check(case, its number of ranks) for random plans of several layouts.
void for_each_case(const std::function<void(const RandomCase&, int ranks)>& check) {
  Random random(93);
  const std::pair<OrderKind, Layout> families[] = {{OrderKind::one_f_one_b, Layout::uniform},
                                                   {OrderKind::one_f_one_b, Layout::disaggregated},
                                                   {OrderKind::zb_v, Layout::disaggregated},
                                                   {OrderKind::encoder_in_bubbles, Layout::colocated}};
  for (const auto& [schedule, layout] : families) {
    for (int i = 0; i < 5; ++i) {
      const RandomCase c = testing::random_case(random, schedule, layout);
      SCOPED_TRACE(describe(c.plan));
      check(c, lower(c.plan, testing::deep_live_model(), c.samples, c.assignment, c.order).ranks());
      if (::testing::Test::HasFailure()) return;
    }
  }
}

LiveRun live_run(const RandomCase& c, int cores) {
  return {c.plan, testing::deep_live_model(), c.samples, c.assignment, c.order, DType::f32, {}, cores};
}

TEST(LiveTurns, DoNotChangeBits) {
  Random random(5);
  for_each_case([&](const RandomCase& c, int ranks) {
    LiveRun free = live_run(c, 0);
    LiveRun turns = live_run(c, static_cast<int>(1 + random.below(static_cast<std::uint64_t>(ranks))));
    for (int step = 1; step <= 2; ++step) EXPECT_EQ(turns.step(true, step).loss, free.step(true, step).loss);
    const WholeTensors expected = free.executor->read(Kind::weight);
    for (const auto& [name, tensor] : turns.executor->read(Kind::weight)) {
      EXPECT_EQ(tensor.values, expected.at(name).values) << name;
    }
  });
}

/// Checks with the spans how many cores are in use at the same time.
TEST(LiveTurns, AppearInTheTimeline) {
  for_each_case([](const RandomCase& c, int ranks) {
    for (const int cores : {1, std::max(1, ranks / 2)}) {
      LiveRun run = live_run(c, cores);
      const Timeline timeline = run.step(true).timeline;
      EXPECT_EQ(timeline.cores, cores);
      std::map<std::int32_t, int> need;
      for (const Group& group : run.program.groups) need[group.first_rank] = std::min(group.ranks, cores);
      std::map<Nanoseconds, int> change;
      for (const Span& span : timeline.spans) {
        // A step that gathers parameters gives its cores back before it ends.
        if (span.stream != Stream::compute || span.op == Op::optimizer_step) continue;
        change[span.start] += need[span.rank];
        change[span.start + span.duration] -= need[span.rank];
      }
      int in_use = 0;
      for (const auto& [time, by] : change) EXPECT_LE(in_use += by, cores);
      for (const GroupUsage& usage : timeline.groups) {
        EXPECT_EQ(usage.busy + usage.bubble + usage.wait, timeline.makespan);
        EXPECT_GE(usage.bubble.count(), 0);
      }
    }
  });
}

}  // namespace cores_test
}  // namespace dflop
