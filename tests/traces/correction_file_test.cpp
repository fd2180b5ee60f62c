#include "traces/files/correction.hpp"

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace correction_file_test {

CorrectionFile example() {
  CorrectionFit fit;
  fit.kind = StageKind::llm;
  fit.op = Op::backward;
  fit.reference = {{}, {4, 3000, 2500000}};
  fit.iterations = 7;
  fit.variance = 0.125;
  fit.buckets = {{false, 159, 19}, {true, 205, 19}};
  fit.information = {9, 2, 1, 3, 0.5, 4};
  fit.moment = {0.25, -0.5, 1};
  fit.rise = {0, 1.5, 0};
  fit.fall = {0, 0, 2};
  return {"llava-ov-llama3-8b", "a100-80g-vtrain:4", {fit}};
}

TEST(CorrectionFile, HasADocumentedForm) {
  EXPECT_EQ(to_json(example()), R"({
  "schema": "dflop.correction",
  "version": 1,
  "model": "llava-ov-llama3-8b",
  "cluster": "a100-80g-vtrain:4",
  "fits": [
    {
      "kind": "llm",
      "op": "backward",
      "reference_encoder": [0,0,0],
      "reference_llm": [4,3000,2500000],
      "iterations": 7,
      "variance": 0.125,
      "bucket_modules": ["llm","encoder"],
      "bucket_tokens": [159,205],
      "bucket_lengths": [19,19],
      "information": [
        [9],
        [2,1],
        [3,0.5,4]
      ],
      "moment": [0.25,-0.5,1],
      "rise": [0,1.5,0],
      "fall": [0,0,2]
    }
  ]
}
)");
}

TEST(CorrectionFile, ReadsBackBitIdentically) {
  Random random(4);
  CorrectionFile file = example();
  for (auto* numbers : {&file.fits[0].moment, &file.fits[0].rise, &file.fits[0].fall}) {
    for (double& number : *numbers) number = random.uniform() / 3;
  }
  file.fits.push_back(file.fits[0]);
  file.fits[1].op = Op::forward;
  file.fits[1].information[5] = 10.0 / 3;
  EXPECT_EQ(parse_correction(to_json(file), "c.json"), file);
  EXPECT_EQ(parse_correction(to_json(CorrectionFile{}), "c.json"), CorrectionFile{});
}

/// The work of a second encoder follows the first one's in the same row, also if the first has none.
TEST(CorrectionFile, HasSixCountsWithTwoEncoders) {
  CorrectionFile file = example();
  CorrectionFit& fit = file.fits[0];
  fit.kind = StageKind::encoder;
  fit.reference = {{0, 0, 0, 0, {2, 200, 20'000}}, {}};
  const std::string text = to_json(file);
  EXPECT_NE(text.find("\"reference_encoder\": [0,0,0,2,200,20000]"), std::string::npos) << text;
  EXPECT_EQ(parse_correction(text, "c.json"), file);
  expect_refused([&] { parse_correction(replaced(text, "[0,0,0,2,200,", "[0,0,0,200,"), "c.json"); },
                 "c.json: key 'fits[0].reference_encoder'", {"of one encoder or two"});
}

/// The time of the reference depends on how many of its tokens have logits.
TEST(CorrectionFile, HasUntrainedTokensOfTheReference) {
  CorrectionFile file = example();
  EXPECT_EQ(to_json(file).find("untrained"), std::string::npos);
  file.fits[0].reference.llm.untrained_tokens = 1200;
  const std::string text = to_json(file);
  EXPECT_EQ(parse_correction(text, "c.json"), file);
  EXPECT_EQ(parse_correction(text, "c.json").fits[0].reference.llm.untrained_tokens, 1200);
  expect_refused([&] { parse_correction(replaced(text, "tokens\": 1200", "tokens\": 3001"), "c.json"); },
                 "c.json: key 'fits[0].reference_untrained_tokens'", {"3000", "found 3001"});
}

TEST(CorrectionFile, BadFilesAreRejected) {
  const std::string good = to_json(example());
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_correction(replaced(good, from, to), "c.json"); }, "c.json: key '" + key + "'",
                   words);
  };
  refused("\"version\": 1", "\"version\": 2", "version", {"found 2"});
  refused("\"kind\": \"llm\"", "\"kind\": \"audio\"", "fits[0].kind", {"encoder, llm, both", "audio"});
  refused("\"op\": \"backward\"", "\"op\": \"send\"", "fits[0].op", {"found \"send\""});
  refused("\"iterations\": 7", "\"iterations\": -1", "fits[0].iterations", {"found -1"});
  refused("\"variance\": 0.125", "\"variance\": -1", "fits[0].variance", {"found -1"});
  refused("[4,3000,2500000]", "[4,3000]", "fits[0].reference_llm", {"attention pairs"});
  refused("[159,205]", "[159]", "fits[0]", {"bucket tokens and lengths of 2 modules", "found 1 and 2"});
  refused("[\"llm\",\"encoder\"]", "[\"llm\",\"both\"]", "fits[0].bucket_modules[1]", {"both"});
  refused("[2,1],\n", "[2],\n", "fits[0].information[1]", {"expected 2 numbers"});
  refused("[2,1],\n", "[4,1],\n", "fits[0].information", {"positive semidefinite"});
  refused("[3,0.5,4]", "[3,0.5,-4]", "fits[0].information[2][2]", {"found -4"});
  refused("[9],\n", "", "fits[0].information", {"expected 3 rows"});
  refused("[0.25,-0.5,1]", "[0.25,-0.5,1,1]", "fits[0].moment", {"expected 3 numbers"});
  refused("[0,1.5,0]", "[0,-1.5,0]", "fits[0].rise[1]", {"found -1.5"});
  refused("[\"llm\",\"encoder\"],\n      \"bucket_tokens\": [159,205]",
          "[\"llm\",\"llm\"],\n      \"bucket_tokens\": [159,159]", "fits[0].bucket_tokens", {"twice"});
}

TEST(CorrectionFile, SumsThatNoObservationsHaveAreRejected) {
  // Each pair of columns is possible, as 0.81 <= 1 x 1, but not all three: the eigenvalues of [[1, x, 0], [x,
  // 1, x], [0, x, 1]] are 1 and 1 -+ sqrt(2) x; the smallest is 0 at x = 0.7071 and -0.27 at 0.9.
  CorrectionFile file = example();
  file.fits[0].information = {1, 0.9, 1, 0, 0.9, 1};
  expect_refused([&] { parse_correction(to_json(file), "c.json"); }, "c.json: key 'fits[0].information'",
                 {"positive semidefinite", "negative eigenvalue"});
  file.fits[0].information = {1, 0.7071, 1, 0, 0.7071, 1};
  EXPECT_EQ(parse_correction(to_json(file), "c.json"), file);
  file.fits[0].information = {1, 1, 1, 0, 0, 0};  // two equal columns and one with no information
  EXPECT_EQ(parse_correction(to_json(file), "c.json"), file);
}

TEST(CorrectionFile, OneFitOfAKindAndOp) {
  CorrectionFile file = example();
  file.fits.push_back(file.fits[0]);
  expect_refused([&] { parse_correction(to_json(file), "c.json"); }, "c.json: key 'fits[1]'",
                 {"llm backward", "twice"});
}

}  // namespace correction_file_test
}  // namespace dflop
