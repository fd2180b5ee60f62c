// Tests the messages of every communicator. All ranks go through the same list of messages and each does its
// own part, so that communicators whose sends wait for their receivers also finish.
#include "tests/backend/contract/fixtures.hpp"

namespace dflop::testing {
namespace message_test {

struct Letter {
  int source = 0;
  int destination = 0;
  Data data;
};

std::vector<Letter> random_letters(int ranks, int count, Random& random) {
  std::vector<Letter> letters;
  const auto n = static_cast<std::uint64_t>(ranks);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t source = random.below(n);
    const std::uint64_t destination = (source + 1 + random.below(n - 1)) % n;
    const std::size_t bytes = random.below(4) == 0 ? 0 : random.below(5000);
    letters.push_back({static_cast<int>(source), static_cast<int>(destination), random_data(bytes, random)});
  }
  return letters;
}

TEST_P(CommunicatorContract, KnowsItsRankAndTheNumberOfRanks) {
  if (!has_ranks(3)) GTEST_SKIP();
  run_to_end(3, [](const RankSide& side) {
    EXPECT_EQ(side.communicator.rank(), side.rank);
    EXPECT_EQ(side.communicator.ranks(), 3);
  });
}

TEST_P(CommunicatorContract, MessagesArriveInOrderWithTheirBytes) {
  Random random(5);
  for (int ranks = 2; ranks <= 5 && has_ranks(ranks); ++ranks) {
    const std::vector<Letter> letters = random_letters(ranks, 200, random);
    run_to_end(ranks, [&](const RankSide& side) {
      for (std::size_t i = 0; i < letters.size(); ++i) {
        const auto& [source, destination, data] = letters[i];
        const std::string what = "letter " + std::to_string(i);
        if (side.rank == source) side.send(data, destination, what);
        if (side.rank == destination) {
          ASSERT_EQ(side.receive(data.size(), source, what), data) << what;
        }
      }
    });
  }
}

/// Receives may be posted early whether the communicator requires it or not. Rank 1 still works on the memory
/// until it posts the receive.
TEST_P(CommunicatorContract, ReceivesMayBePostedAhead) {
  if (!has_ranks(2)) GTEST_SKIP();
  const std::vector<Data> letters = {Data(3000, std::byte{1}), Data(0), Data(70000, std::byte{2})};
  run_to_end(2, [&](const RankSide& side) {
    side.communicator.connect({{0, 1}});
    if (side.rank == 0) {
      for (const Data& letter : letters) side.send(letter, 1, "letter");
      return;
    }
    const Data other(70000, std::byte{9});
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (const Data& letter : letters) {
      buffers.push_back(side.device.allocate(letter.size()));
      side.stream.copy_to_device(buffers.back()->data(), other.data(), letter.size());
      side.communicator.post_receive(buffers.back()->data(), letter.size(), 0, side.stream, "letter");
    }
    for (std::size_t i = 0; i < letters.size(); ++i) {
      side.communicator.receive(buffers[i]->data(), letters[i].size(), 0, side.stream, "letter");
      EXPECT_EQ(download(side.stream, buffers[i]->data(), letters[i].size()), letters[i]) << i;
    }
  });
}

TEST_P(CommunicatorContract, AMessageHasTheDataAtItsPlaceInTheStream) {
  if (!has_ranks(2)) GTEST_SKIP();
  const Data first(70000, std::byte{1});
  const Data second(70000, std::byte{2});
  run_to_end(2, [&](const RankSide& side) {
    if (side.rank == 1) {
      EXPECT_EQ(side.receive(first.size(), 0, "first"), first);
      EXPECT_EQ(side.receive(second.size(), 0, "second"), second);
      return;
    }
    const std::unique_ptr<Buffer> buffer = side.device.allocate(first.size());
    for (const Data& data : {std::cref(first), std::cref(second)}) {
      side.stream.copy_to_device(buffer->data(), data.data(), data.size());
      side.communicator.send(buffer->data(), data.size(), 1, side.stream, "memory that is used again");
    }
    side.stream.synchronize();
  });
}

TEST_P(CommunicatorContract, MessagesGoThroughTwoStreams) {
  if (!has_ranks(2)) GTEST_SKIP();
  const Data data(30000, std::byte{7});
  run_to_end(2, [&](const RankSide& side) {
    // Written in one stream and sent in another; received in one and read in another.
    const std::unique_ptr<DeviceStream> other = side.device.make_stream();
    const std::unique_ptr<DeviceEvent> ready = side.device.make_event();
    const std::unique_ptr<Buffer> buffer = side.device.allocate(data.size());
    if (side.rank == 0) {
      side.stream.copy_to_device(buffer->data(), data.data(), data.size());
      side.stream.record(*ready);
      other->wait(*ready);
      side.communicator.send(buffer->data(), data.size(), 1, *other, "data");
      other->synchronize();
    } else {
      side.communicator.receive(buffer->data(), data.size(), 0, side.stream, "data");
      side.stream.record(*ready);
      other->wait(*ready);
      EXPECT_EQ(download(*other, buffer->data(), data.size()), data);
    }
  });
}

TEST_P(CommunicatorContract, APeerIsAnotherRankOfTheRun) {
  if (!has_ranks(2)) GTEST_SKIP();
  for (const int peer : {0, -1, 2}) {
    const auto ends = run(2, [&](const RankSide& side) {
      if (side.rank == 0) side.send(Data(4), peer, "a letter");
    });
    EXPECT_EQ(ends[0].how, How::error) << "peer " << peer;
    EXPECT_NE(ends[0].message.find("a letter"), std::string::npos) << ends[0].message;
    const auto receives = run(2, [&](const RankSide& side) {
      if (side.rank == 0) side.receive(4, peer, "a letter");
    });
    EXPECT_EQ(receives[0].how, How::error) << "peer " << peer;
  }
}

TEST_P(CommunicatorContract, TellsWhenTheLastMessageArrived) {
  if (!has_ranks(2)) GTEST_SKIP();
  run_to_end(2, [](const RankSide& side) {
    EXPECT_EQ(side.communicator.last_arrival(), Nanoseconds(0));
    Nanoseconds last{0};
    for (int i = 0; i < 20; ++i) {
      if (side.rank == 0) {
        side.send(Data(8), 1, "tick");
        EXPECT_EQ(side.communicator.last_arrival(), Nanoseconds(0));  // a send does not change it
        continue;
      }
      side.receive(8, 0, "tick");
      const std::unique_ptr<DeviceEvent> after = side.device.make_event();
      side.stream.record(*after);
      EXPECT_GE(side.communicator.last_arrival(), last);
      EXPECT_LE(side.communicator.last_arrival(), after->time());
      last = side.communicator.last_arrival();
    }
  });
}

}  // namespace message_test
}  // namespace dflop::testing
