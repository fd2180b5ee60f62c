// The provenance of a file is written at its end, read back, and compared with the provenance of other files.
#include "traces/files/provenance.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace dflop {
namespace provenance_test {

Provenance whole() {
  Provenance made_by{"1.2.3", "41b5465-dirty", "dflop plan --data 'my data.csv'"};
  made_by.model = {"tiny-vlm", "0123456789abcdef"};
  made_by.cluster = {"a100-80g:4", "fedcba9876543210"};
  made_by.plan = {"plan.json", "1111111111111111"};
  made_by.profile = {"profile.json", "2222222222222222"};
  made_by.data = DataOrigin{{"my data.csv", "3333333333333333"}, 16'000, {"3 records lack a frame rate"}};
  made_by.data->cut = {.longest = 32'768, .samples = 3, .tokens = 1'000'000, .lost = 70'000};
  made_by.gbs = 512;
  made_by.seed = ~std::uint64_t{0};
  made_by.first_iteration = 18;
  made_by.machine = MachineOrigin{"node-7", "Some \"CPU\"", 64, 0.25};
  return made_by;
}

TEST(ProvenanceTest, ReadsBackUnchanged) {
  for (const char* json : {"{}", "{\n  \"schema\": \"s\"\n}\n", "{\"a\": {\"b\": 1}}"}) {
    EXPECT_EQ(parse_provenance(with_provenance(json, whole()), "f"), whole()) << json;
    const Provenance least{"1", "", ""};
    EXPECT_EQ(parse_provenance(with_provenance(json, least), "f"), least) << json;
    EXPECT_EQ(parse_provenance(json, "f"), std::nullopt);
  }
}

/// Readers of a plan need the length at which samples would have been cut, even if no sample was that long.
TEST(ProvenanceTest, KeepsALengthThatCutsNone) {
  Provenance made_by = whole();
  made_by.data->cut = {.longest = 32'768, .samples = 0, .tokens = 1'000'000, .lost = 0};
  EXPECT_EQ(parse_provenance(with_provenance("{}", made_by), "f"), made_by);
}

TEST(ProvenanceTest, ARecordingSaysItsFirstIterationWithoutABatch) {
  Provenance made_by{"1", "", "c"};
  made_by.first_iteration = 18;
  EXPECT_EQ(provenance_lines(made_by).back(), "batches   from iteration 18 on");
}

TEST(ProvenanceTest, StandsAfterAllOtherKeys) {
  EXPECT_EQ(with_provenance("{\n  \"a\": 1\n}\n", {"1", "", "c"}),
            "{\n  \"a\": 1,\n  \"made_by\": {\"version\":\"1\",\"commit\":\"\",\"command\":\"c\"}\n}\n");
}

TEST(ProvenanceTest, KeysOfNewerVersionsAreIgnored) {
  const auto made_by = parse_provenance(R"({"made_by": {"version": "9", "weather": "fine"}})", "f");
  ASSERT_TRUE(made_by);
  EXPECT_EQ(made_by->version, "9");
}

TEST(ProvenanceTest, NamesTheKeyThatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"made_by": 3})", "made_by"},
      {R"({"made_by": {"version": 3}})", "made_by.version"},
      {R"({"made_by": {"model": {"hash": "a"}}})", "made_by.model"},
      {R"({"made_by": {"gbs": -1}})", "made_by.gbs"},
      {R"({"made_by": {"machine": {"others": 2}}})", "made_by.machine.others"},
      {R"({"made_by": {"data": {"name": "d", "assumptions": "none"}}})", "made_by.data.assumptions"}};
  for (const auto& [json, key] : cases) {
    try {
      parse_provenance(json, "file.json");
      ADD_FAILURE() << json;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_NE(error.context().find(key), std::string::npos) << error.context();
      EXPECT_NE(error.context().find("file.json"), std::string::npos) << error.context();
    }
  }
}

TEST(ProvenanceTest, LinesSayAllThatIsKnown) {
  const std::vector<std::string> lines = provenance_lines(whole());
  EXPECT_EQ(lines.front(), "made by   dflop 1.2.3 (41b5465-dirty)");
  EXPECT_EQ(lines.back(),
            "machine   node-7: 64 cores of Some \"CPU\"; other processes took 25.0 % of its "
            "time");
  EXPECT_EQ(lines[lines.size() - 2],
            "batches   512 samples, seed 18446744073709551615, from iteration 18 on");
}

TEST(ProvenanceTest, ContentsContradictAndNamesDoNot) {
  Provenance other = whole();
  EXPECT_TRUE(contradictions(whole(), other).empty());
  other.model->name = "my/tiny.json";  // another name for the same model
  EXPECT_TRUE(contradictions(whole(), other).empty());
  other.model->hash = "9999999999999999";
  other.data.reset();  // unknown
  EXPECT_EQ(
      contradictions(whole(), other),
      (std::vector<std::string>{"model tiny-vlm (0123456789abcdef) and my/tiny.json (9999999999999999)"}));
  other.model->hash = "";  // then compared by name
  EXPECT_EQ(contradictions(whole(), other).size(), 1u);
  other.model->name = "tiny-vlm";
  EXPECT_TRUE(contradictions(whole(), other).empty());
}

}  // namespace provenance_test
}  // namespace dflop
