// The needs of a process are exactly the contents that its rank reads in a step.
#include "backend/content/sample_needs.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/backend/content/host_process.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop::testing {
namespace sample_needs_test {

/// Contents that record requests.
class NotedContents final : public Contents {
 public:
  NotedContents(const ModelSpec& model, std::uint64_t seed) : contents_(model, seed) {}

  std::shared_ptr<const EncoderSequence> encoder(const Sample& sample, std::int64_t sequence,
                                                 bool values) const override {
    note(sample, values ? SampleNeed::values : SampleNeed::shape);
    return contents_.encoder(sample, sequence, values);
  }
  std::shared_ptr<const TokenSequence> tokens(const Sample& sample) const override {
    note(sample, SampleNeed::shape);
    return contents_.tokens(sample);
  }
  std::int64_t trained_tokens(const Sample& sample) const override {
    return contents_.trained_tokens(sample);
  }

  std::vector<SampleNeed> noted(const std::vector<Sample>& samples) const {
    std::vector<SampleNeed> all;
    for (const Sample& sample : samples) all.push_back(noted_[sample.id]);
    return all;
  }

 private:
  void note(const Sample& sample, SampleNeed need) const {
    const std::scoped_lock lock(mutex_);
    SampleNeed& known = noted_[sample.id];
    known = std::max(known, need);
  }

  MadeUpContents contents_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, SampleNeed> noted_;
};

Plan colocated_plan() {
  Plan plan = uniform_plan(1, 3, 2, 3);
  plan.layout = Layout::colocated;
  plan.order = OrderKind::encoder_in_bubbles;
  plan.encoder = {1, 1, 6, {3}};
  plan.llm.layers = {1, 1, 2};
  return plan;
}

/// Runs a step in one process per rank, and compares each process's needs with what its rank reads.
void expect_needs_as_read(const LiveRun& one) {
  SCOPED_TRACE(describe(one.plan));
  const auto messages = run_host_processes(one.program.ranks(), {}, [&](HostProcess& process) {
    const auto contents = std::make_shared<NotedContents>(one.model, 7);
    LiveExecutor executor(one.plan, one.model, process, {DType::f64, 7, contents});
    StepOptions options;
    options.optimizer.step = 1;
    executor.step(one.iteration(), options);
    const SampleNeeds needs(one.plan, one.model, process.local_ranks());
    EXPECT_EQ(needs.of(one.samples, one.assignment), contents->noted(one.samples))
        << "rank " << process.local_ranks().front();
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

TEST(SampleNeeds, EqualTheContentsThatRanksRead) {
  for (const Plan& plan : {uniform_plan(1, 2, 2, 3), uniform_plan(2, 1, 2, 2),
                           disaggregated_plan({1, 1, 2, {}}, {2, 1, 1, {}}, 3),
                           disaggregated_plan({1, 3, 1, {}}, {1, 2, 2, {}}, 2), colocated_plan()}) {
    expect_needs_as_read({plan, live_samples(17, 5), DType::f64});
  }
}

/// Pictures enter at the encoder's first stage. Sounds enter at its last one, where the connectors are, so no
/// other stage decodes them.
TEST(SampleNeeds, OfTwoEncodersAreValuesWhereTheirInputEnters) {
  const std::vector<Sample> samples = {{"picture", Modality::image, {{1, 6, 36}}, 6, 9},
                                       {"sound", Modality::audio, {{1, 6, 36, true}}, 3, 9},
                                       {"both", Modality::video, {{1, 6, 36}, {1, 6, 36, true}}, 9, 12},
                                       {"text", Modality::text, {}, 0, 9}};
  const Plan plan = disaggregated_plan({1, 3, 1, {}}, {1, 1, 1, {}}, 2);
  const LiveRun one(plan, hearing_model(), samples, DType::f64);
  const auto needs = [&](int rank) {
    return SampleNeeds(one.plan, one.model, std::vector<int>{rank}).of(samples, one.assignment);
  };
  using enum SampleNeed;
  EXPECT_EQ(needs(0), (std::vector{values, shape, values, none}));
  EXPECT_EQ(needs(1), (std::vector{shape, shape, shape, none}));
  EXPECT_EQ(needs(2), (std::vector{shape, values, values, none}));
  EXPECT_EQ(needs(3), (std::vector{shape, shape, shape, shape}));
  expect_needs_as_read(one);
}

/// Together, all ranks of a run read the whole batch, as some rank encodes each encoder sequence.
TEST(SampleNeeds, OfAllRanksCoverAllSamples) {
  const std::vector<Sample> samples = live_samples(12, 5);
  const LiveRun one(disaggregated_plan({1, 1, 2, {}}, {2, 1, 1, {}}, 3), samples, DType::f64);
  const SampleNeeds needs(one.plan, one.model, one.world->local_ranks());
  const std::vector<SampleNeed> found = needs.of(samples, one.assignment);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const bool has_sequences = !samples[i].encoder_sequences.empty();
    EXPECT_EQ(found[i], has_sequences ? SampleNeed::values : SampleNeed::shape) << i;
  }
}

}  // namespace sample_needs_test
}  // namespace dflop::testing
