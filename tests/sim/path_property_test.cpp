// What must hold of critical paths and relaxations of every run, on random Programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/verify.hpp"
#include "sim/critical_path.hpp"
#include "sim/engine.hpp"
#include "sim/relaxations.hpp"
#include "tests/sim/random_program.hpp"

namespace dflop::testing {
namespace {

constexpr int kPrograms = 300;

/// The same program with its collectives in the background: each group starts one where it did it before and
/// waits for it after a random number of others. Where every participant computes next, the collective
/// is ready inside that compute.
PricedProgram in_background(const PricedProgram& priced, Random& random) {
  const Program& program = priced.program;
  PricedProgram out = priced;
  out.program.instructions.clear();
  out.costs.instruction.clear();
  out.costs.activation.clear();
  out.costs.workspace.clear();
  std::vector<std::uint8_t> computes_next(program.collectives.size(), 1);
  for (const Group& group : program.groups) {
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      if (program.instructions[i].op != Op::all_reduce) continue;
      const bool next = i + 1 < group.end && is_compute(program.instructions[i + 1].op);
      if (!next) computes_next[program.instructions[i].index] = 0;
    }
  }
  for (std::size_t c = 0; c < computes_next.size(); ++c) {
    const double part = static_cast<double>(random.below(5)) / 4;
    if (computes_next[c] != 0) out.program.collectives[c].ready = part;
  }
  const auto add = [&](Instruction instruction, std::int64_t i) {
    const bool takes_time = !is_collective(instruction.op);
    out.program.instructions.push_back(instruction);
    out.costs.instruction.push_back(takes_time ? priced.costs.instruction[i] : Nanoseconds(0));
    out.costs.activation.push_back(takes_time ? priced.costs.activation[i] : Bytes{});
    out.costs.workspace.push_back(takes_time ? priced.costs.workspace[i] : Bytes{});
  };
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    out.program.groups[g].begin = static_cast<std::int64_t>(out.program.instructions.size());
    std::vector<Instruction> open;
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      Instruction instruction = program.instructions[i];
      const bool reduces = instruction.op == Op::all_reduce;
      if (reduces) instruction.op = Op::all_reduce_start;
      add(instruction, i);
      if (reduces) {
        instruction.op = Op::all_reduce_wait;
        open.push_back(instruction);
      }
      if (reduces || (i + 1 < group.end && random.below(3) > 0)) continue;
      for (const Instruction& wait : open) add(wait, i);
      open.clear();
    }
    for (const Instruction& wait : open) add(wait, group.end - 1);
    out.program.groups[g].end = static_cast<std::int64_t>(out.program.instructions.size());
  }
  return out;
}

std::vector<Pause> random_pauses(const Program& program, Random& random) {
  std::vector<Pause> pauses;
  for (int k = 0; k < 6; ++k) {
    pauses.push_back({static_cast<std::int32_t>(random.below(program.groups.size())),
                      Nanoseconds(static_cast<std::int64_t>(random.below(6000))),
                      Nanoseconds(static_cast<std::int64_t>(random.below(2000)))});
  }
  std::stable_sort(pauses.begin(), pauses.end(),
                   [](const Pause& a, const Pause& b) { return a.start < b.start; });
  return pauses;
}

/// The span that a link is drawn from: of the same place and, but for parts of compute, the same time.
const Span* span_of(const PathLink& link, const Program& program, const Timeline& timeline) {
  const std::int32_t rank = program.groups[link.group].first_rank;
  for (const Span& span : timeline.spans) {
    if (span.rank != rank || span.stage != link.stage || span.microbatch != link.microbatch) continue;
    const bool same_time = span.start == link.start && span.duration == link.duration;
    const bool inside = span.start <= link.start && link.start + link.duration <= span.start + span.duration;
    switch (link.kind) {
      case PathLinkKind::compute:
      case PathLinkKind::pause:
        if (span.stream == Stream::compute && span.op == link.op && inside) return &span;
        break;
      case PathLinkKind::message:
        if (span.stream == Stream::send && span.op == link.op && same_time) return &span;
        break;
      case PathLinkKind::collective:
        if (span.stream == Stream::collective && same_time) return &span;
        break;
    }
  }
  return nullptr;
}

void expect_chain(const PricedProgram& priced, const Conditions& conditions) {
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans, conditions);
  const std::vector<PathLink> path = critical_path(priced.program, priced.costs, timeline, conditions);
  Nanoseconds reached{0};
  for (std::size_t k = 0; k < path.size(); ++k) {
    const PathLink& link = path[k];
    ASSERT_EQ(link.start, reached) << "link " << k;
    ASSERT_GE(link.duration, Nanoseconds(0));
    reached += link.duration;
    ASSERT_EQ(link.group, k > 0 ? path[k - 1].to_group : link.group) << "link " << k;
    const bool moves = link.kind == PathLinkKind::message || link.kind == PathLinkKind::collective;
    ASSERT_TRUE(moves || link.group == link.to_group) << "link " << k;
    ASSERT_NE(span_of(link, priced.program, timeline), nullptr) << "link " << k;
  }
  ASSERT_EQ(reached, timeline.makespan);
  Nanoseconds shared{0};
  for (const PathShare& share : path_shares(path)) shared += share.duration;
  ASSERT_EQ(shared, timeline.makespan);
}

class RandomPaths : public ::testing::Test {
 protected:
  /// Calls check(priced) for every random program, and for the same with collectives in the background.
  void for_each(const std::function<void(const PricedProgram&)>& check) {
    for (int k = 0; k < kPrograms; ++k) {
      SCOPED_TRACE("program " + std::to_string(k));
      const PricedProgram priced = make_random_program(random_);
      check(priced);
      const PricedProgram background = in_background(priced, random_);
      ASSERT_NO_THROW(verify(background.program));
      check(background);
      if (HasFatalFailure()) return;
    }
  }

  Random random_{31};
};

TEST_F(RandomPaths, LeadFromZeroToTheMakespan) {
  for_each([](const PricedProgram& priced) { expect_chain(priced, {}); });
}

TEST_F(RandomPaths, DoSoWithPauses) {
  for_each([&](const PricedProgram& priced) {
    Conditions conditions;
    conditions.pauses = random_pauses(priced.program, random_);
    expect_chain(priced, conditions);
  });
}

TEST_F(RandomPaths, DoSoOnASharedNetwork) {
  for_each([&](const PricedProgram& priced) {
    Conditions conditions;
    const Network network =
        shared_link(priced.program, Nanoseconds(static_cast<std::int64_t>(random_.below(50))), 2e9);
    conditions.network = &network;
    conditions.pauses = random_pauses(priced.program, random_);
    expect_chain(priced, conditions);
  });
}

// The makespan is a maximum over chains of costs. One more nanosecond in a link of the longest makes it
// longer by as much, and no chain has a cost twice.
TEST_F(RandomPaths, AreAsLongAsTheirLinks) {
  constexpr Nanoseconds kMore{500};
  int tried = 0;
  for (int k = 0; k < kPrograms; ++k) {
    const PricedProgram priced = make_random_program(random_);
    const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans);
    const std::vector<PathLink> path = critical_path(priced.program, priced.costs, timeline);
    const PathLink& link = path[random_.below(path.size())];
    if (link.duration == Nanoseconds(0)) continue;  // not alone at its time
    ++tried;
    const Span& span = *span_of(link, priced.program, timeline);
    ProgramCosts slower = priced.costs;
    if (link.kind == PathLinkKind::compute) {
      slower.instruction[priced.program.groups[link.group].begin + span.position] += kMore;
    } else {
      (link.kind == PathLinkKind::message ? slower.message : slower.collective)[span.message] += kMore;
    }
    ASSERT_EQ(simulate(priced.program, slower, Detail::usage).makespan, timeline.makespan + kMore)
        << "program " << k << ", " << to_string(link.kind) << " at " << link.start.count();
  }
  EXPECT_GT(tried, kPrograms / 2);
}

TEST_F(RandomPaths, OfWhatIsFreeAreNeverLonger) {
  using Kind = Relaxation::Kind;
  for_each([](const PricedProgram& priced) {
    const Nanoseconds makespan = simulate(priced.program, priced.costs, Detail::usage).makespan;
    for (const Relaxation& relaxation : relaxations(priced.program)) {
      if (relaxation.kind == Kind::no_stragglers || relaxation.kind == Kind::balanced) continue;
      ASSERT_LE(relaxed_makespan(priced.program, priced.costs, relaxation), makespan);
    }
    const auto of = [&](Kind kind) { return relaxed_makespan(priced.program, priced.costs, {kind}); };
    ASSERT_LE(of(Kind::free_communication), std::min(of(Kind::free_messages), of(Kind::free_collectives)));
    ASSERT_LE(of(Kind::no_bubbles), of(Kind::free_communication));
  });
}

}  // namespace
}  // namespace dflop::testing
