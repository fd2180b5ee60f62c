#include "traces/files/schedule.hpp"

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "traces/data/records.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {
namespace schedule_file_test {

Sample random_sample(Random& random) {
  Sample sample;
  sample.id = "s\"" + std::to_string(random.below(20));  // few ids: some samples differ only in the rest
  sample.modality = static_cast<Modality>(random.below(kModalities));
  const std::uint64_t groups = sample.modality == Modality::text ? 0 : random.below(4);
  for (std::uint64_t g = 0; g < groups; ++g) {
    const auto tokens = static_cast<std::int64_t>(1 + random.below(2000));
    sample.encoder_sequences.push_back(
        {static_cast<std::int64_t>(1 + random.below(30)), tokens, tokens * tokens});
  }
  if (groups > 0) sample.encoder_output_tokens = static_cast<std::int64_t>(random.below(5000));
  sample.llm_tokens = sample.encoder_output_tokens + static_cast<std::int64_t>(random.below(500));
  return sample;
}

/// Iterations that share samples, with no bin empty.
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
    iteration.value = Seconds(random.uniform());
    iteration.bound = iteration.value * random.uniform();
    iteration.status = static_cast<ScheduleStatus>(random.below(5));
    iteration.objective = static_cast<Objective>(random.below(3));
    iteration.bound_kind = static_cast<BoundKind>(random.below(4));
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

TEST(ScheduleFileFormat, RandomSchedulesReadBackUnchanged) {
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
      EXPECT_EQ(a.value, b.value);
      EXPECT_EQ(a.bound, b.bound);
      EXPECT_EQ(a.status, b.status);
      EXPECT_EQ(a.objective, b.objective);
      EXPECT_EQ(a.bound_kind, b.bound_kind);
      ASSERT_EQ(a.samples.size(), b.samples.size());
      for (std::size_t s = 0; s < a.samples.size(); ++s) expect_same(a.samples[s], b.samples[s]);
    }
  }
}

/// Two distinct samples, the first used twice; two bins.
ScheduleFile small_schedule() {
  const Sample image{"a", Modality::image, {{5, 729, 531441}}, 3000, 3100};
  const Sample text{"b", Modality::text, {}, 0, 50};
  ScheduledIteration iteration;
  iteration.samples = {image, text, image};
  iteration.assignment = {2, 1, {0, 1, 1}};
  iteration.value = Seconds(1.5);
  iteration.bound = Seconds(1.2);
  iteration.bound_kind = BoundKind::integer_program;
  iteration.status = ScheduleStatus::optimal;
  iteration.objective = Objective::bins;
  return {"ilp", "m", 3, 7, {iteration}};
}

TEST(ScheduleFileFormat, EverySampleIsWrittenOnce) {
  EXPECT_EQ(to_json(small_schedule()), R"({
  "schema": "dflop.schedule",
  "version": 2,
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
      "objective": "bins",
      "status": "optimal",
      "c_max_s": 1.5,
      "bound_s": 1.2,
      "bound_kind": "integer_program",
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

TEST(ScheduleFileFormat, VersionOneIsThePublishedFormWithASimpleBound) {
  std::string text = to_json(small_schedule());
  for (const char* line :
       {"      \"objective\": \"bins\",\n", "      \"bound_kind\": \"integer_program\",\n"})
    text = replaced(text, line, "");
  const ScheduleFile read = parse_schedule(replaced(text, "\"version\": 2", "\"version\": 1"), "s.json");
  EXPECT_EQ(read.iterations[0].objective, Objective::published);
  EXPECT_EQ(read.iterations[0].bound_kind, BoundKind::simple);
  EXPECT_EQ(read.iterations[0].assignment, small_schedule().iterations[0].assignment);
  // Hand-written bins may omit the proven bound and the author.
  const ScheduleFile again = parse_schedule(text, "s.json");
  EXPECT_EQ(again.iterations[0].objective, Objective::published);
  EXPECT_EQ(again.iterations[0].bound_kind, BoundKind::simple);
}

TEST(ScheduleFileFormat, HandWrittenBinsNeedNoProof) {
  const ScheduleFile read =
      parse_schedule(R"({"schema": "dflop.schedule", "version": 2, "model": "m", "gbs": 2,
    "samples": [{"id": "a", "modality": "text", "encoder_sequences": [], "encoder_output_tokens": 0,
                 "llm_tokens": 5}],
    "iterations": [{"microbatches": 2, "dp": 1, "samples": [0, 0], "bins": [1, 0]}]})",
                     "s.json");
  EXPECT_EQ(read.scheduler, "unknown");
  EXPECT_EQ(read.iterations[0].assignment.bin, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(read.iterations[0].status, ScheduleStatus::heuristic);
  EXPECT_EQ(read.iterations[0].value, Seconds(0));
  EXPECT_EQ(read.iterations[0].bound_kind, BoundKind::none);
}

TEST(ScheduleFileFormat, ContradictionsAreRejected) {
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
  refused("[[5,729,531441]]", "[[5,729,531442]]", "samples[0].encoder_sequences[0][2]",
          {"from 729 to 531441", "found 531442"});  // 729 * 729 + 1
  refused("[[5,729,531441]]", "[[1000,1000000,1000000],[1,1,1]]", "samples[0].encoder_sequences[1]",
          {"at most 1000000000 encoder tokens", "found 1000000001"});
  refused("\"image\"", "\"text\"", "samples[0].encoder_sequences", {"none in a text sample"});
  refused("[[5,729,531441]]", "[]", "samples[0].encoder_output_tokens", {"0 without", "found 3000"});
  refused("\"llm_tokens\":3100", "\"llm_tokens\":2999", "samples[0].encoder_output_tokens",
          {"at most the 2999 LLM tokens", "found 3000"});
  refused("\"bound_s\": 1.2", "\"bound_s\": 1.500001", "iterations[0].bound_s",
          {"at most c_max_s = 1.5", "found 1.500001"});
  refused("\"image\"", "\"smell\"", "samples[0].modality", {"audio", "smell"});
  refused("\"optimal\"", "\"best\"", "iterations[0].status", {"node_limit", "best"});
  refused("\"bound_s\": 1.2", "\"bound_s\": -1", "iterations[0].bound_s", {"found -1"});
  refused("\"version\": 2", "\"version\": 3", "version", {"newer version"});
  refused("\"objective\": \"bins\"", "\"objective\": \"time\"", "iterations[0].objective",
          {"makespan", "time"});
  refused("\"integer_program\"", "\"guess\"", "iterations[0].bound_kind", {"simple", "guess"});
}

TEST(ScheduleFileFormat, AllPreprocessedSamplesAreAccepted) {
  const std::string file = std::string(DFLOP_SOURCE_DIR) + "/traces/datasets/omni_mix.csv";
  const std::vector<Record> records = load_records(file);
  for (const std::string_view rule : preprocess_rules()) {
    PreprocessOptions options;
    options.rule = rule;
    options.modalities = rule_modalities(rule);
    ScheduledIteration iteration;
    iteration.samples = preprocess(records, options, file).samples;
    iteration.assignment = {1, 1, std::vector<std::int32_t>(iteration.samples.size(), 0)};
    const int gbs = static_cast<int>(iteration.samples.size());
    ASSERT_GT(gbs, 0) << rule;
    EXPECT_NO_THROW(parse_schedule(to_json({"lpt", "m", gbs, 0, {iteration}}), "s.json")) << rule;
  }
}

TEST(ScheduleFileFormat, AnIterationsSumsStayInside64Bits) {
  // Each sample is allowed; pairs of 2 x 2^60 + 2^61 > 4e18 are not. 2^30 = 1073741824.
  ScheduleFile schedule = small_schedule();
  for (Sample& sample : schedule.iterations[0].samples) sample.llm_tokens = std::int64_t{1} << 30;
  schedule.iterations[0].samples.push_back(schedule.iterations[0].samples[0]);
  schedule.iterations[0].assignment.bin.push_back(0);
  schedule.gbs = 4;
  const std::string text = to_json(schedule);
  expect_refused([&] { parse_schedule(text, "s.json"); }, "s.json: key 'iterations[0]'", {"in an iteration"});
}

}  // namespace schedule_file_test
}  // namespace dflop
