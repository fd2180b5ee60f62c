// One process makes the schedules for all processes. Each process is a thread here.
#include "experiments/training/loop.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "backend/process/process_world.hpp"
#include "core/error.hpp"
#include "tests/backend/process/free_port.hpp"

namespace dflop {
namespace shared_source_test {

constexpr int kProcesses = 3;

/// A process that only communicates.
class TalkingProcess final : public ProcessWorld {
 public:
  TalkingProcess(int rank, int port)
      : ProcessWorld({"127.0.0.1", port, rank, kProcesses, Seconds{60}, Seconds{60}}) {}
  std::string device_name() const override { return "none"; }
  std::unique_ptr<Device> make_device(int) override { return nullptr; }
  std::unique_ptr<Communicator> make_communicator(int) override { return nullptr; }
};

/// Returns the exception message of each process, or an empty string if there was none.
std::vector<std::string> run_processes(const std::function<void(TalkingProcess&)>& body) {
  const int port = testing::free_port();
  std::vector<std::string> messages(kProcesses);
  std::vector<std::jthread> threads;
  for (int r = 0; r < kProcesses; ++r) {
    threads.emplace_back([&, r] {
      try {
        TalkingProcess process(r, port);
        body(process);
      } catch (const std::exception& error) {
        messages[static_cast<std::size_t>(r)] = error.what();
      }
    });
  }
  threads.clear();
  return messages;
}

/// Returns two schedules and then none.
class TwoSchedules final : public AssignmentSource {
 public:
  explicit TwoSchedules(BatchStream batches) : batches_(std::move(batches)) {}

  std::optional<ScheduledBatch> next() override {
    if (given_ == 2) return std::nullopt;
    ScheduledBatch batch;
    batch.iteration = given_;
    batch.samples = std::make_shared<const Batch>(batches_.next());
    batch.result.status = given_ == 0 ? ScheduleStatus::heuristic : ScheduleStatus::infeasible;
    batch.result.reason = given_ == 0 ? "" : "too large";
    batch.result.assignment = {2, 1, {0, 1, static_cast<std::int32_t>(given_)}};
    ++given_;
    return batch;
  }

 private:
  BatchStream batches_;
  std::uint64_t given_ = 0;
};

std::vector<std::string> ids(const Batch& batch) {
  std::vector<std::string> all;
  for (const Sample& sample : batch) all.push_back(sample.id);
  return all;
}

/// The run resumes after its first batch, so the schedules belong to batches 1 and 2.
TEST(SharedSource, AllProcessesGetTheSchedulesOfTheFirst) {
  std::vector<Sample> samples(9);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i].id = std::to_string(i);
  BatchStream batches(std::make_shared<const std::vector<Sample>>(samples), 3, 1);
  batches.skip(1);
  BatchStream expected = batches;
  const std::vector<Batch> drawn = {expected.next(), expected.next()};
  const auto messages = run_processes([&](TalkingProcess& process) {
    TwoSchedules made(batches);
    SharedSource source(process, process.leads() ? &made : nullptr, batches);
    for (const int k : {0, 1}) {
      const auto batch = source.next();
      ASSERT_TRUE(batch.has_value());
      EXPECT_EQ(batch->iteration, static_cast<std::uint64_t>(k));
      EXPECT_EQ(ids(*batch->samples), ids(drawn[static_cast<std::size_t>(k)]));
      EXPECT_EQ(batch->result.status, k == 0 ? ScheduleStatus::heuristic : ScheduleStatus::infeasible);
      EXPECT_EQ(batch->result.reason, k == 0 ? "" : "too large");
      EXPECT_EQ(batch->result.assignment.microbatches, 2);
      EXPECT_EQ(batch->result.assignment.dp, 1);
      EXPECT_EQ(batch->result.assignment.bin, (std::vector<std::int32_t>{0, 1, k}));
    }
    EXPECT_FALSE(source.next().has_value());
  });
  EXPECT_EQ(messages, std::vector<std::string>(kProcesses));
}

Program small_program() {
  Program program;
  program.groups = {{0, 1, 0, 0, 0, 1}, {1, 1, 0, 1, 1, 2}};
  program.instructions = {{Op::forward, 0, 0, 0}, {Op::send, 0, 0, 0}};
  program.works.resize(1);
  program.messages = {{0, 1, 0, {8}, {8}}};
  program.collectives = {{{0, 1}, {8}}};
  return program;
}

TEST(SharedSource, AProcessWithAnotherProgramIsNamed) {
  using Change = std::function<void(Program&)>;
  const std::vector<Change> changes = {[](Program&) {},
                                       [](Program& p) { p.instructions[0].op = Op::backward; },
                                       [](Program& p) { p.instructions[1].stage = 1; },
                                       [](Program& p) { p.instructions[1].microbatch = 1; },
                                       [](Program& p) { p.instructions[1].index = 1; },
                                       [](Program& p) { p.works[0].llm.tokens = 1; },
                                       [](Program& p) { p.messages[0].source = 2; },
                                       [](Program& p) { p.messages[0].destination = 2; },
                                       [](Program& p) { p.messages[0].bytes = {9}; },
                                       [](Program& p) {
                                         p.collectives[0].groups = {1, 0};
                                       }};
  for (std::size_t c = 0; c < changes.size(); ++c) {
    const auto messages = run_processes([&](TalkingProcess& process) {
      Program program = small_program();
      if (process.local_ranks().front() == 2) changes[c](program);
      try {
        require_same_program(process, program);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::input);
        throw;
      }
    });
    EXPECT_EQ(messages[0], "");
    EXPECT_EQ(messages[1], "");
    EXPECT_EQ(messages[2].rfind("rank 2 and rank 0 made different programs", 0),
              c == 0 ? std::string::npos : 0u)
        << "change " << c << ": " << messages[2];
  }
}

}  // namespace shared_source_test
}  // namespace dflop
