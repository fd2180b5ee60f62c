#include "traces/files/timeline.hpp"

#include "tests/traces/file_fixtures.hpp"
#include "tests/traces/timeline_fixtures.hpp"

namespace dflop {
namespace timeline_file_test {

TEST(TimelineFileFormat, ReadsBackUnchanged) {
  Random random(11);
  for (int round = 0; round < 50; ++round) {
    TimelineFile file;
    for (int i = 0; i < 3; ++i) file.iterations.push_back(random_timeline(random));
    EXPECT_EQ(parse_timelines(to_json(file), "t.json").iterations, file.iterations);
  }
  EXPECT_EQ(parse_timeline(to_json(small_timeline()), "t.json"), small_timeline());
}

TEST(TimelineFileFormat, UsageWithoutSpansReadsBack) {
  Timeline usage = small_timeline();
  usage.spans.clear();
  usage.memory.clear();
  EXPECT_EQ(parse_timeline(to_json(usage), "t.json"), usage);
}

/// A file without cores is an unchanged version 2 file.
TEST(TimelineFileFormat, CoresAreWrittenIfKnown) {
  Timeline timeline = small_timeline();
  EXPECT_EQ(to_json(timeline).find("cores"), std::string::npos);
  timeline.cores = 3;
  const std::string text = to_json(timeline);
  EXPECT_EQ(parse_timeline(text, "t.json"), timeline);
  expect_refused([&] { parse_timeline(replaced(text, "\"cores\": 3", "\"cores\": 0"), "t.json"); },
                 "t.json: key 'iterations[0].cores'", {"1", "found 0"});
  const std::string older = replaced(text, "\"version\": 2", "\"version\": 1");
  expect_refused([&] { parse_timeline(older, "t.json"); }, "t.json: key 'iterations[0].cores'", {"unknown"});
}

/// A file is unchanged if the spans describe its collectives completely.
TEST(TimelineFileFormat, CollectivesAreWrittenIfKnown) {
  Timeline timeline = small_timeline();
  EXPECT_EQ(to_json(timeline).find("collectives"), std::string::npos);
  timeline.collectives = {{"allreduce", {}}, {"all_to_all", {0}}};
  const std::string text = to_json(timeline);
  EXPECT_NE(text.find("\"after\": [[],[0]]"), std::string::npos) << text;
  EXPECT_EQ(parse_timeline(text, "t.json"), timeline);
  expect_refused([&] { parse_timeline(replaced(text, "[[],[0]]", "[[],[-1]]"), "t.json"); },
                 "t.json: key 'iterations[0].collectives.after[1][0]'", {"-1"});
}

/// A file is unchanged if its groups begin together.
TEST(TimelineFileFormat, BeginsAreWrittenIfGroupsBeginApart) {
  EXPECT_EQ(to_json(small_timeline()).find("begin_ns"), std::string::npos);
  Timeline timeline = small_timeline();
  timeline.groups[1].begin = Nanoseconds(5000);
  EXPECT_EQ(parse_timeline(to_json(timeline), "t.json"), timeline);
}

/// A file is unchanged if its stages have fp32 states.
TEST(TimelineFileFormat, StatesAreWrittenIfAStageHasOthers) {
  Timeline timeline = small_timeline();
  EXPECT_EQ(to_json(timeline).find("optimizer_states"), std::string::npos);
  timeline.stage_shapes[1].optimizer_states = OptimizerStates::bf16;
  const std::string text = to_json(timeline);
  EXPECT_NE(text.find("\"optimizer_states\": [\"fp32\",\"bf16\"]"), std::string::npos) << text;
  EXPECT_EQ(parse_timeline(text, "t.json"), timeline);
}

/// A file is unchanged if its stages are trained completely.
TEST(TimelineFileFormat, TrainedPartsAreWrittenIfSomeAreFrozen) {
  Timeline timeline = small_timeline();
  EXPECT_EQ(to_json(timeline).find("trains_"), std::string::npos);
  timeline.stage_shapes[0].trained = {false, true, false, 8};
  const std::string text = to_json(timeline);
  EXPECT_NE(text.find("\"trains_encoder\": [false,true]"), std::string::npos) << text;
  EXPECT_NE(text.find("\"lora_rank\": [8,0]"), std::string::npos) << text;
  EXPECT_EQ(parse_timeline(text, "t.json"), timeline);
}

/// A file is unchanged if every group has one copy of its stages.
TEST(TimelineFileFormat, CopiesAreWrittenIfAGroupHasSeveral) {
  Timeline timeline = small_timeline();
  EXPECT_EQ(to_json(timeline).find("\"copies\""), std::string::npos);
  timeline.stage_shapes[0].copies = 2;
  const std::string text = to_json(timeline);
  EXPECT_NE(text.find("\"copies\": [2,1]"), std::string::npos) << text;
  EXPECT_EQ(parse_timeline(text, "t.json"), timeline);
}

/// A file is unchanged if its stages have no cost before the first layer.
TEST(TimelineFileFormat, FrontsAreWrittenIfAStageHasOne) {
  Timeline timeline = small_timeline();
  EXPECT_EQ(to_json(timeline).find("\"front\""), std::string::npos);
  timeline.stage_shapes[0].front = true;
  const std::string text = to_json(timeline);
  EXPECT_NE(text.find("\"front\": [true,false]"), std::string::npos) << text;
  EXPECT_EQ(parse_timeline(text, "t.json"), timeline);
}

TEST(TimelineFileFormat, UntrainedTokensAreWrittenIfThereAreAny) {
  Timeline timeline = small_timeline();
  EXPECT_EQ(to_json(timeline).find("llm_untrained_tokens"), std::string::npos);
  timeline.works[1].llm.untrained_tokens = 12;
  EXPECT_EQ(parse_timeline(to_json(timeline), "t.json"), timeline);
}

/// Each token attends to itself: 20 tokens have 20 pairs or more.
TEST(TimelineFileFormat, WorksWithFewerPairsThanTokensAreRejected) {
  Timeline timeline = small_timeline();
  timeline.works[0].encoder.attention_pairs = 20;
  EXPECT_EQ(parse_timeline(to_json(timeline), "t.json"), timeline);
  timeline.works[0].encoder.attention_pairs = 19;
  expect_refused([&] { parse_timeline(to_json(timeline), "t.json"); },
                 "t.json: key 'iterations[0].works.encoder_attention_pairs[0]'", {"tokens, 20, found 19"});
  timeline.works[0].encoder.attention_pairs = 20;
  timeline.works[1].encoder.second = {2, 30, 29};
  expect_refused([&] { parse_timeline(to_json(timeline), "t.json"); },
                 "t.json: key 'iterations[0].works.second_encoder_attention_pairs[1]'",
                 {"tokens, 30, found 29"});
  timeline.works[1] = {{}, {1, 30, 0}};
  expect_refused([&] { parse_timeline(to_json(timeline), "t.json"); },
                 "t.json: key 'iterations[0].works.llm_attention_pairs[1]'", {"tokens, 30, found 0"});
}

/// A file is unchanged if no work is a second encoder's.
TEST(TimelineFileFormat, TheSecondEncodersWorkIsWrittenIfThereIsAny) {
  Timeline timeline = small_timeline();
  EXPECT_EQ(to_json(timeline).find("second_encoder"), std::string::npos);
  timeline.works[1].encoder.second = {2, 30, 450};
  const std::string text = to_json(timeline);
  EXPECT_EQ(parse_timeline(text, "t.json"), timeline);
  expect_refused(
      [&] {
        parse_timeline(replaced(text, "\"second_encoder_sequences\"", "\"second_sequences\""), "t.json");
      },
      "t.json: key 'iterations[0].works.second_sequences'", {"unknown"});
}

// Shares below 1 and shared GPUs occur only together, and every share is positive.
TEST(TimelineFileFormat, SharesGoWithSharedGpus) {
  Timeline timeline = small_timeline();
  timeline.shared_gpus = 1;
  timeline.stage_shapes[0].share = 0.25;
  timeline.stage_shapes[1].share = 0.75;
  const std::string good = to_json(timeline);
  EXPECT_EQ(parse_timeline(good, "t.json"), timeline);
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_timeline(replaced(good, from, to), "t.json"); },
                   "t.json: key 'iterations[0].stage_shapes" + key + "'", words);
  };
  refused("[0.25,0.75]", "[0,0.75]", ".share[0]", {"found 0"});
  refused("[0.25,0.75]", "[0.25,1]", ".share[1]", {"below 1 with 'shared_gpus'", "found 1"});
  refused("\"shared_gpus\": 1,", "", ".share[0]", {"1 without 'shared_gpus'", "found 0.25"});
  refused("\"share\": [0.25,0.75]", "\"optimizer_states\": [\"fp32\",\"fp32\"]", "", {"expected 'share'"});
  timeline.stage_shapes.clear();  // as in a recording without shapes
  EXPECT_EQ(parse_timeline(to_json(timeline), "t.json"), timeline);
}

TEST(TimelineFileFormat, StreamsAndOperationsGoByName) {
  // A file whose list is ordered differently: the former 0 (compute) and 1 (send) are swapped.
  const std::string text =
      replaced(replaced(to_json(small_timeline()), R"(["compute","send",)", R"(["send","compute",)"),
               "\"stream\": [0,1,2,0]", "\"stream\": [1,0,2,1]");
  EXPECT_EQ(parse_timeline(text, "t.json"), small_timeline());
}

TEST(TimelineFileFormat, ContradictionsAreRejected) {
  const std::string good = to_json(small_timeline());
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_timeline(replaced(good, from, to), "t.json"); }, "t.json: key '" + key + "'",
                   words);
  };
  const std::string it = "iterations[0].";
  refused("\"start_ns\": [0,1000,0,1500]", "\"start_ns\": [0,1000,0]", it + "spans.start_ns",
          {"4 entries", "an array of 3"});
  refused("\"start_ns\": [0,1000", "\"start_ns\": [0,-1000", it + "spans.start_ns[1]", {"found -1000"});
  refused("\"rank\": [0,0,1,1]", "\"rank\": [0,0,2,1]", it + "spans.rank[2]",
          {"first rank of a group", "found 2"});
  refused("\"rank\": [0,1]", "\"rank\": [0,7]", it + "memory.rank[1]", {"first rank of a group", "found 7"});
  refused("\"first_rank\": [0,1]", "\"first_rank\": [0,0]", it + "groups.first_rank[1]",
          {"in no earlier group", "found 0"});
  refused("\"stage\": [0,0,1,1]", "\"stage\": [0,0,1,2]", it + "spans.stage[3]", {"from 0 to 1", "found 2"});
  refused("\"stream\": [0,1,2,0]", "\"stream\": [0,1,2,4]", it + "spans.stream[3]",
          {"from 0 to 3", "found 4"});
  for (const std::string time : {"busy", "bubble", "wait", "transfer"}) {
    const std::size_t begin = good.find("[", good.find(time + "_ns")) + 1;
    std::string text = good;
    text.replace(begin, text.find(',', begin) - begin, "4501");
    expect_refused([&] { parse_timeline(text, "t.json"); },
                   "t.json: key '" + it + "groups." + time + "_ns[0]'", {"from 0 to 4500", "found 4501"});
  }
  refused("\"makespan_ns\": 4500", "\"makespan_ns\": 4500.5", it + "makespan_ns", {"a whole number"});
  refused("\"optimizer_step\"", "\"lunch\"", "ops[11]", {"forward", "lunch"});
  refused("\"source\"", "\"origin\"", it + "origin", {"unknown key", "source"});
  refused("\"version\": 2", "\"version\": 3", "version", {"newer version"});
}

TEST(TimelineFileFormat, FindingsOfTheRecordAreKept) {
  const TimelineFile file{
      .iterations = {small_timeline()},
      .findings = {{"missing_rank", "found traces of 3"}, {"unaligned_clocks", "is ahead"}}};
  const std::string text = to_json(file);
  EXPECT_EQ(parse_timelines(text, "t.json").findings, file.findings);
  expect_refused([&] { parse_timelines(replaced(text, "\"text\"", "\"txt\""), "t.json"); },
                 "t.json: key 'findings[0].txt'", {"unknown key"});
}

TEST(TimelineFileFormat, SeveralIterationsAreRejectedIfOneIsRequested) {
  const TimelineFile two{{small_timeline(), small_timeline()}};
  expect_refused([&] { parse_timeline(to_json(two), "t.json"); }, "t.json: key 'iterations'",
                 {"one", "found 2"});
  expect_refused([&] { parse_timelines(to_json(TimelineFile{}), "t.json"); }, "t.json: key 'iterations'",
                 {"1 to 4096", "an array of 0"});
}

}  // namespace timeline_file_test
}  // namespace dflop
