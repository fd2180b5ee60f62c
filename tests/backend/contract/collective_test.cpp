// Tests the collectives of every communicator. Sums that are compared with a value have small whole numbers,
// so they are exact in any order and for every element type.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <span>

#include "tests/backend/contract/fixtures.hpp"

namespace dflop::testing {
namespace collective_test {

constexpr DType kElements[] = {DType::f32, DType::f64, DType::bf16};

/// Draws whole numbers in [-16, 16], so that sums of eight fit the eight bits of bf16.
std::vector<double> whole_numbers(std::size_t count, Random& random) {
  std::vector<double> values(count);
  for (double& value : values) value = static_cast<double>(random.below(33)) - 16;
  return values;
}

std::vector<double> sum_of(const std::vector<std::vector<double>>& inputs) {
  std::vector<double> sums(inputs.front().size());
  for (const auto& input : inputs) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += input[i];
  }
  return sums;
}

std::vector<double> one_after_another(const std::vector<std::vector<double>>& inputs) {
  std::vector<double> all;
  for (const auto& input : inputs) all.insert(all.end(), input.begin(), input.end());
  return all;
}

/// Returns part `place` of `parts` equal parts.
std::vector<double> part_of(const std::vector<double>& whole, std::size_t place, std::size_t parts) {
  const auto size = static_cast<std::ptrdiff_t>(whole.size() / parts);
  const auto begin = whole.begin() + size * static_cast<std::ptrdiff_t>(place);
  return {begin, begin + size};
}

enum class Kind : std::uint8_t { all_reduce, all_gather, reduce_scatter };

/// A collective of one group with the inputs of its ranks, by place.
struct Meeting {
  Kind kind = Kind::all_reduce;
  DType element = DType::f32;
  RankGroup group;
  std::vector<std::vector<double>> inputs;
};

Meeting random_meeting(const RankGroup& group, std::size_t most, Random& random) {
  Meeting meeting{static_cast<Kind>(random.below(3)), kElements[random.below(3)], group, {}};
  std::size_t count = random.below(8) == 0 ? 0 : random.below(most + 1);
  if (meeting.kind == Kind::reduce_scatter) count *= group.ranks.size();
  for (std::size_t r = 0; r < group.ranks.size(); ++r) meeting.inputs.push_back(whole_numbers(count, random));
  return meeting;
}

/// Takes part if the rank is in the group, and checks the result.
void take_part(const RankSide& side, const Meeting& meeting, const std::string& what) {
  const auto& [kind, element, group, inputs] = meeting;
  const auto own = std::find(group.ranks.begin(), group.ranks.end(), side.rank);
  if (own == group.ranks.end()) return;
  const auto place = static_cast<std::size_t>(own - group.ranks.begin());
  const Data input = encode(element, inputs[place]);
  switch (kind) {
    case Kind::all_reduce:
      ASSERT_EQ(decode(element, side.all_reduce(input, element, group, what)), sum_of(inputs)) << what;
      return;
    case Kind::all_gather:
      ASSERT_EQ(decode(element, side.all_gather(input, element, group, what)), one_after_another(inputs))
          << what;
      return;
    case Kind::reduce_scatter:
      ASSERT_EQ(decode(element, side.reduce_scatter(input, element, group, what)),
                part_of(sum_of(inputs), place, inputs.size()))
          << what;
      return;
  }
}

std::vector<std::int32_t> shuffled_ranks(int ranks, Random& random) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(std::span(order));
  return order;
}

/// Divides all ranks into groups of random sizes and orders.
std::vector<RankGroup> random_groups(int ranks, Random& random) {
  std::vector<RankGroup> groups(1);
  for (const std::int32_t rank : shuffled_ranks(ranks, random)) {
    if (!groups.back().ranks.empty() && random.below(3) == 0) groups.emplace_back();
    groups.back().ranks.push_back(rank);
  }
  return groups;
}

TEST_P(CommunicatorContract, CollectivesOfSeveralGroupsAtOnce) {
  Random random(6);
  for (int ranks = 2; ranks <= 8 && has_ranks(ranks); ++ranks) {
    std::vector<std::vector<Meeting>> rounds(12);
    for (auto& meetings : rounds) {
      for (const RankGroup& group : random_groups(ranks, random)) {
        meetings.push_back(random_meeting(group, 10000 / group.ranks.size(), random));
      }
    }
    run_to_end(ranks, [&](const RankSide& side) {
      for (std::size_t round = 0; round < rounds.size(); ++round) {
        for (const Meeting& meeting : rounds[round]) {
          take_part(side, meeting, "round " + std::to_string(round));
        }
      }
    });
  }
}

TEST_P(CommunicatorContract, EveryElementAndSizeIsAddedUp) {
  const int ranks = std::min(3, GetParam().most_ranks);
  Random random(7);
  const RankGroup group{shuffled_ranks(ranks, random)};
  std::vector<Meeting> meetings;
  for (const DType element : kElements) {
    for (const std::size_t count : {0, 1, 2, 3, 1023, 1024, 1025, 3073, 10000}) {
      std::vector<std::vector<double>> inputs;
      for (int r = 0; r < ranks; ++r) inputs.push_back(whole_numbers(count, random));
      meetings.push_back({Kind::all_reduce, element, group, inputs});
    }
  }
  run_to_end(ranks, [&](const RankSide& side) {
    for (const Meeting& meeting : meetings) {
      take_part(side, meeting,
                std::string(to_string(meeting.element)) + " x " + std::to_string(meeting.inputs[0].size()));
    }
  });
}

TEST_P(CommunicatorContract, SumsHaveTheSameBitsOnAllRanksAndInEveryRun) {
  constexpr int kRanks = 8;
  if (!has_ranks(kRanks)) GTEST_SKIP();
  for (const DType element : kElements) {
    std::vector<Data> inputs(kRanks);
    Random random(8);
    for (Data& input : inputs) {  // with sizes so different that each order of adding rounds differently
      std::vector<double> values(3000);
      for (double& v : values) v = std::ldexp(random.uniform() - 0.5, static_cast<int>(random.below(20)));
      input = encode(element, values);
    }
    const RankGroup group{shuffled_ranks(kRanks, random)};
    std::vector<Data> sums;  // from all ranks in all runs
    for (int repetition = 0; repetition < 5; ++repetition) {
      std::mutex mutex;
      run_to_end(kRanks, [&](const RankSide& side) {
        Data sum = side.all_reduce(inputs[static_cast<std::size_t>(side.rank)], element, group, "sum");
        const std::lock_guard lock(mutex);
        sums.push_back(std::move(sum));
      });
    }
    ASSERT_EQ(sums.size(), 5U * kRanks);
    for (const Data& sum : sums) ASSERT_EQ(sum, sums.front()) << to_string(element);
    double worst = 0;  // error against the sum in f64, relative to the largest term
    const std::vector<double> got = decode(element, sums.front());
    std::vector<std::vector<double>> terms;
    for (const Data& input : inputs) terms.push_back(decode(element, input));
    for (std::size_t i = 0; i < got.size(); ++i) {
      double exact = 0;
      double largest = 0;
      for (const std::vector<double>& term : terms) {
        exact += term[i];
        largest = std::max(largest, std::abs(term[i]));
      }
      worst = std::max(worst, std::abs(got[i] - exact) / largest);
    }
    // Each of 7 additions rounds a sum of at most 8 terms: 56 half units of the last of 8, 24 or 53 bits.
    const double half = element == DType::bf16 ? 0x1p-8 : element == DType::f32 ? 0x1p-24 : 0x1p-53;
    EXPECT_LE(worst, 56 * half) << to_string(element);
  }
}

/// Each rank starts all sums, then runs other collectives and work on other memory, and finishes the sums in
/// order.
TEST_P(CommunicatorContract, StartedSumsOverlapWithOtherWork) {
  const int ranks = std::min(4, GetParam().most_ranks);
  Random random(12);
  const RankGroup group{shuffled_ranks(ranks, random)};
  std::vector<std::vector<std::vector<double>>> sums;  // by sum and place
  for (const std::size_t count : {5000, 1, 0, 777, 3000, 64}) {
    auto& inputs = sums.emplace_back();
    for (int r = 0; r < ranks; ++r) inputs.push_back(whole_numbers(count, random));
  }
  const std::vector<std::vector<double>> beside(static_cast<std::size_t>(ranks), whole_numbers(900, random));
  run_to_end(ranks, [&](const RankSide& side) {
    const auto own = std::find(group.ranks.begin(), group.ranks.end(), side.rank);
    const auto place = static_cast<std::size_t>(own - group.ranks.begin());
    std::vector<std::unique_ptr<Buffer>> data;
    std::vector<std::unique_ptr<StartedCollective>> started;
    for (const auto& inputs : sums) {
      data.push_back(upload(side.device, side.stream, encode(DType::f32, inputs[place])));
      started.push_back(side.communicator.start(
          {CollectiveKind::all_reduce, inputs[place].size(), DType::f32, "a sum beside"}, data.back()->data(),
          data.back()->data(), group, side.stream));
    }
    take_part(side, {Kind::all_gather, DType::f64, group, beside}, "meanwhile");
    for (std::size_t s = 0; s < sums.size(); ++s) {
      side.communicator.finish(*started[s], side.stream);
      EXPECT_GT(side.communicator.last_arrival(), Nanoseconds{0});
      Data found(sums[s][place].size() * sizeof(float));
      side.stream.copy_to_host(found.data(), data[s]->data(), found.size());
      side.stream.synchronize();
      EXPECT_EQ(decode(DType::f32, found), sum_of(sums[s])) << "sum " << s;
    }
  });
}

/// If a rank fails after it has started a sum, no other rank keeps waiting.
TEST_P(CommunicatorContract, AStartedSumThatIsNotFinishedEnds) {
  if (!has_ranks(2)) GTEST_SKIP();
  const RankGroup group = consecutive_ranks(0, 2);
  const std::vector<RankEnd> ends = run(2, [&](const RankSide& side) {
    const auto started =
        side.communicator.start({CollectiveKind::all_reduce, 0, DType::f32, "a sum of nothing"}, nullptr,
                                nullptr, group, side.stream);
    if (side.rank == 1) throw Error(ErrorKind::internal, "no memory");
    side.communicator.finish(*started, side.stream);
    side.stream.synchronize();
  });
  EXPECT_EQ(ends[1].message, "no memory");
}

TEST_P(CommunicatorContract, GathersAndScattersInPlace) {
  const int ranks = std::min(4, GetParam().most_ranks);
  constexpr std::size_t kCount = 2000;
  constexpr std::size_t kBytes = kCount * sizeof(double);
  Random random(9);
  const RankGroup group{shuffled_ranks(ranks, random)};
  std::vector<std::vector<double>> inputs;  // by place, one for each part
  for (int r = 0; r < ranks; ++r) inputs.push_back(whole_numbers(kCount * group.ranks.size(), random));
  run_to_end(ranks, [&](const RankSide& side) {
    const auto own = std::find(group.ranks.begin(), group.ranks.end(), side.rank);
    const auto place = static_cast<std::size_t>(own - group.ranks.begin());
    const std::unique_ptr<Buffer> all = upload(side.device, side.stream, encode(DType::f64, inputs[place]));
    void* one = static_cast<std::byte*>(all->data()) + place * kBytes;

    side.communicator.reduce_scatter(one, all->data(), kCount, DType::f64, group, side.stream, "scatter");
    std::vector<double> expected = inputs[place];  // the other parts stay unchanged
    const std::vector<double> sum = part_of(sum_of(inputs), place, inputs.size());
    std::copy(sum.begin(), sum.end(), expected.begin() + static_cast<std::ptrdiff_t>(place * kCount));
    EXPECT_EQ(decode(DType::f64, download(side.stream, all->data(), all->bytes())), expected);

    // Gathering the parts of the sum completes an all-reduce.
    side.communicator.all_gather(all->data(), one, kCount, DType::f64, group, side.stream, "gather");
    EXPECT_EQ(decode(DType::f64, download(side.stream, all->data(), all->bytes())), sum_of(inputs));
  });
}

TEST_P(CommunicatorContract, AGroupHasThisRankAndEachRankOnce) {
  if (!has_ranks(3)) GTEST_SKIP();
  for (const RankGroup& group :
       {RankGroup{{}}, RankGroup{{1, 2}}, RankGroup{{0, 1, 0}}, RankGroup{{0, 3}}, RankGroup{{-1, 0}}}) {
    const auto ends = run(3, [&](const RankSide& side) {
      if (side.rank == 0) side.all_reduce(Data(4), DType::f32, group, "gradients");
    });
    EXPECT_EQ(ends[0].how, How::error);
    EXPECT_NE(ends[0].message.find("gradients"), std::string::npos) << ends[0].message;
  }
}

TEST_P(CommunicatorContract, TellsWhenTheLastRankArrived) {
  if (!has_ranks(3)) GTEST_SKIP();
  run_to_end(3, [](const RankSide& side) {
    Nanoseconds last{0};
    for (int i = 0; i < 20; ++i) {
      side.all_reduce(Data(8), DType::f64, {{2, 0, 1}}, "tick");
      const std::unique_ptr<DeviceEvent> after = side.device.make_event();
      side.stream.record(*after);
      EXPECT_GE(side.communicator.last_arrival(), last);
      EXPECT_LE(side.communicator.last_arrival(), after->time());
      last = side.communicator.last_arrival();
    }
    EXPECT_GT(last, Nanoseconds(0));
  });
}

/// A message, or a collective.
struct Operation {
  int source = -1;
  int destination = -1;
  Data letter;
  Meeting meeting;
};

std::vector<Operation> random_operations(int ranks, int count, Random& random) {
  std::vector<Operation> operations(static_cast<std::size_t>(count));
  for (Operation& operation : operations) {
    const std::vector<std::int32_t> order = shuffled_ranks(ranks, random);
    if (random.below(2) == 0) {
      operation.source = order[0];
      operation.destination = order[1];
      operation.letter = random_data(random.below(400), random);
    } else {
      const auto size = static_cast<std::ptrdiff_t>(2 + random.below(static_cast<std::uint64_t>(ranks) - 1));
      operation.meeting = random_meeting({{order.begin(), order.begin() + size}}, 100, random);
    }
  }
  return operations;
}

/// Each rank takes part in about 1,100 of 2,500 operations: half are messages between 2 of 8 ranks, half are
/// collectives of 2 to 8 ranks, 5 on average.
TEST_P(CommunicatorContract, AThousandMixedOperationsOfEachOfEightRanksAreNotLost) {
  constexpr int kRanks = 8;
  if (!has_ranks(kRanks)) GTEST_SKIP();
  Random random(10);
  const std::vector<Operation> operations = random_operations(kRanks, 2500, random);
  std::vector<int> taken(kRanks);
  run_to_end(kRanks, [&](const RankSide& side) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const auto& [source, destination, letter, meeting] = operations[i];
      const std::string what = "operation " + std::to_string(i);
      const auto& ranks = meeting.group.ranks;
      if (side.rank == source) side.send(letter, destination, what);
      if (side.rank == destination) {
        ASSERT_EQ(side.receive(letter.size(), source, what), letter) << what;
      }
      take_part(side, meeting, what);
      const bool met = std::find(ranks.begin(), ranks.end(), side.rank) != ranks.end();
      taken[static_cast<std::size_t>(side.rank)] += met || side.rank == source || side.rank == destination;
    }
  });
  for (const int count : taken) EXPECT_GT(count, 900);
}

}  // namespace collective_test
}  // namespace dflop::testing
