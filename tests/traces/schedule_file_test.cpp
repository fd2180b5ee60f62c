#include "traces/schedule_file.hpp"

#include "core/random.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace {

Sample random_sample(Random& random) {
  Sample sample;
  sample.id =
      "s\"" + std::to_string(random.below(20));  // few ids: some samples differ in nothing else than the rest
  sample.modality = static_cast<Modality>(random.below(kModalities));
  for (std::uint64_t groups = random.below(4); groups > 0; --groups) {
    const auto tokens = static_cast<std::int64_t>(1 + random.below(2000));
    sample.encoder_sequences.push_back(
        {static_cast<std::int64_t>(1 + random.below(30)), tokens, tokens * tokens});
  }
  sample.encoder_output_tokens = static_cast<std::int64_t>(random.below(5000));
  sample.llm_tokens = sample.encoder_output_tokens + static_cast<std::int64_t>(random.below(500));
  return sample;
}

/// Iterations that share samples, with every bin filled.
ScheduleFile random_schedule(Random& random) {
  std::vector<Sample> pool;
  for (int i = 0; i < 30; ++i) pool.push_back(random_sample(random));
  ScheduleFile schedule{"lpt", "some-model", 24, random.bits(), {}};
  for (int i = 0; i < 3; ++i) {
    ScheduledIteration iteration;
    iteration.assignment = {4, 3, {}};
    for (int s = 0; s < schedule.gbs; ++s) {
      iteration.samples.push_back(pool[random.below(pool.size())]);
      iteration.assignment.bin.push_back(s < 12 ? s : static_cast<std::int32_t>(random.below(12)));
    }
    random.shuffle(std::span(iteration.assignment.bin));
    iteration.c_max = Seconds(random.uniform());
    iteration.bound = Seconds(random.uniform());
    iteration.status = static_cast<ScheduleStatus>(random.below(5));
    schedule.iterations.push_back(iteration);
  }
  return schedule;
}

void expect_same(const Sample& a, const Sample& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.modality, b.modality);
  EXPECT_EQ(a.encoder_sequences, b.encoder_sequences);
  EXPECT_EQ(a.encoder_output_tokens, b.encoder_output_tokens);
  EXPECT_EQ(a.llm_tokens, b.llm_tokens);
}

TEST(ScheduleFileFormat, RandomSchedulesReadBackAsTheyWere) {
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    const ScheduleFile written = random_schedule(random);
    const ScheduleFile read = parse_schedule(to_json(written), "s.json");
    EXPECT_EQ(read.scheduler, written.scheduler);
    EXPECT_EQ(read.model, written.model);
    EXPECT_EQ(read.gbs, written.gbs);
    EXPECT_EQ(read.seed, written.seed);
    ASSERT_EQ(read.iterations.size(), written.iterations.size());
    for (std::size_t i = 0; i < read.iterations.size(); ++i) {
      const ScheduledIteration& a = read.iterations[i];
      const ScheduledIteration& b = written.iterations[i];
      EXPECT_EQ(a.assignment, b.assignment);
      EXPECT_EQ(a.c_max, b.c_max);
      EXPECT_EQ(a.bound, b.bound);
      EXPECT_EQ(a.status, b.status);
      ASSERT_EQ(a.samples.size(), b.samples.size());
      for (std::size_t s = 0; s < a.samples.size(); ++s) expect_same(a.samples[s], b.samples[s]);
    }
  }
}

/// Two distinct samples, the first of them twice; two bins.
ScheduleFile small_schedule() {
  const Sample image{"a", Modality::image, {{5, 729, 531441}}, 3000, 3100};
  const Sample text{"b", Modality::text, {}, 0, 50};
  return {"ilp",
          "m",
          3,
          7,
          {{{image, text, image}, {2, 1, {0, 1, 1}}, Seconds(1.5), Seconds(1.2), ScheduleStatus::optimal}}};
}

TEST(ScheduleFileFormat, EverySampleIsWrittenOnce) {
  EXPECT_EQ(to_json(small_schedule()), R"({
  "schema": "dflop.schedule",
  "version": 1,
  "scheduler": "ilp",
  "model": "m",
  "gbs": 3,
  "seed": 7,
  "samples": [
    {"id":"a","modality":"image","encoder_sequences":[[5,729,531441]],"encoder_output_tokens":3000,"llm_tokens":3100},
    {"id":"b","modality":"text","encoder_sequences":[],"encoder_output_tokens":0,"llm_tokens":50}
  ],
  "iterations": [
    {
      "status": "optimal",
      "c_max_s": 1.5,
      "bound_s": 1.2,
      "microbatches": 2,
      "dp": 1,
      "samples": [0,1,0],
      "bins": [0,1,1]
    }
  ]
}
)");
  // (1.5 - 1.2) / 1.2
  EXPECT_DOUBLE_EQ(small_schedule().iterations[0].gap(), 0.25);
}

TEST(ScheduleFileFormat, ContradictionsAreRefused) {
  const std::string good = to_json(small_schedule());
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_schedule(replaced(good, from, to), "s.json"); }, "s.json: key '" + key + "'",
                   words);
  };
  refused("[0,1,1]", "[0,1,2]", "iterations[0].bins[2]", {"from 0 to 1", "found 2"});
  refused("[0,1,1]", "[0,1]", "iterations[0].bins", {"gbs = 3", "an array of 2"});
  refused("[0,1,1]", "[1,1,1]", "iterations[0].bins", {"none in bin 0"});
  refused("[0,1,0]", "[0,1,2]", "iterations[0].samples[2]", {"from 0 to 1", "found 2"});
  refused("[0,1,0]", "[0,1]", "iterations[0].samples", {"gbs = 3"});
  refused("\"gbs\": 3", "\"gbs\": 4", "iterations[0].bins", {"gbs = 4"});
  refused("\"microbatches\": 2", "\"microbatches\": 4", "iterations[0].microbatches", {"from 1 to 3"});
  refused("\"dp\": 1", "\"dp\": 2", "iterations[0].dp", {"from 1 to 1", "found 2"});  // 2 x 2 bins, 3 samples
  refused("[[5,729,531441]]", "[[5,729]]", "samples[0].encoder_sequences[0]",
          {"[count, tokens, attention pairs]"});
  refused("[[5,729,531441]]", "[[0,729,531441]]", "samples[0].encoder_sequences[0][0]", {"found 0"});
  refused("[[5,729,531441]]", "[[5,729,4000000000000000000]]", "samples[0].encoder_sequences[0]",
          {"attention pairs in a sample"});
  refused("\"image\"", "\"smell\"", "samples[0].modality", {"audio", "smell"});
  refused("\"optimal\"", "\"best\"", "iterations[0].status", {"node_limit", "best"});
  refused("\"bound_s\": 1.2", "\"bound_s\": -1", "iterations[0].bound_s", {"found -1"});
  refused("\"version\": 1", "\"version\": 3", "version", {"newer version"});
}

TEST(ScheduleFileFormat, AnIterationsSumsStayInside64Bits) {
  // Each sample is allowed, 2 x 3e18 > 4e18 is not.
  const std::string text = replaced(to_json(small_schedule()), "531441", "600000000000000000");
  expect_refused([&] { parse_schedule(text, "s.json"); }, "s.json: key 'iterations[0]'", {"in an iteration"});
}

}  // namespace
}  // namespace dflop
