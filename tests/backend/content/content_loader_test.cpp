// Contents are loaded ahead, each once, and encoder inputs only on request.
#include "backend/content/content_loader.hpp"

#include <gtest/gtest.h>

#include "backend/model/microbatch.hpp"
#include "core/error.hpp"
#include "tests/backend/content/host_process.hpp"
#include "tests/backend/run/live_plans.hpp"

namespace dflop {
namespace content_loader_test {

using testing::CountedDataset;
using Ids = std::multiset<std::string>;

/// Samples "s0", "s1" and so on. Every third one, such as "s2", is only text.
struct ContentLoaderTest : ::testing::Test {
  ModelSpec model = testing::live_model();
  std::shared_ptr<CountedDataset> data =
      std::make_shared<CountedDataset>(model, testing::live_samples(6, 1), 1);
  ContentLoader loader{data, 3};

  void load(const std::vector<ContentRequest>& batch) {
    loader.begin(batch);
    loader.wait(batch);
  }
  const Sample& sample(std::size_t number) const { return data->samples()[number]; }
};

TEST_F(ContentLoaderTest, KeepsTheLatestTwoBatches) {
  load({{"s0"}, {"s1"}, {"s0"}});
  EXPECT_EQ(data->decoded(), (Ids{"s0", "s1"}));
  load({{"s1"}, {"s2"}});
  EXPECT_EQ(data->decoded(), (Ids{"s0", "s1", "s2"}));  // s1 was already loaded
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(loader.tokens(sample(s))->rows, sample(s).llm_tokens);
  loader.begin({{"s1"}, {"s2"}});
  EXPECT_THROW(static_cast<void>(loader.tokens(sample(0))), Error);
  EXPECT_EQ(loader.tokens(sample(2))->rows, sample(2).llm_tokens);
}

TEST_F(ContentLoaderTest, DropsAll) {
  load({{"s0"}});
  load({{"s1"}});
  loader.drop_all();
  for (std::size_t s = 0; s < 2; ++s) EXPECT_THROW(static_cast<void>(loader.tokens(sample(s))), Error);
  load({{"s1"}});
  EXPECT_EQ(loader.tokens(sample(1))->rows, sample(1).llm_tokens);
}

TEST_F(ContentLoaderTest, DecodesOnlyIfValuesAreRequested) {
  load({{"s0", false}, {"s1", true}});
  EXPECT_EQ(data->shapes(), Ids{"s0"});
  EXPECT_EQ(data->decoded(), Ids{"s1"});
  EXPECT_EQ(loader.encoder(sample(0), 0, false)->rows, 6);
  EXPECT_THROW(static_cast<void>(loader.encoder(sample(0), 0, true)), Error);
  EXPECT_EQ(loader.encoder(sample(1), 0, true)->values.size(), 6 * model.front().values);
  // Content loaded without values is loaded again with them, but not the other way round.
  load({{"s0", true}, {"s1", false}});
  EXPECT_EQ(data->decoded(), (Ids{"s0", "s1"}));
  EXPECT_EQ(data->shapes(), Ids{"s0"});
  for (std::size_t s : {0, 1}) EXPECT_FALSE(loader.encoder(sample(s), 0, true)->values.empty());
}

std::vector<std::byte> bytes_of_values(const EncoderSequence& sequence) {
  const std::byte* begin = sequence.values.data();
  return {begin,
          begin + sequence.values.size() * static_cast<std::int64_t>(bytes_of(sequence.values.dtype()))};
}

/// Loaded values have the run's precision and the same bits as synthetic contents.
TEST_F(ContentLoaderTest, RoundsTheEncodersInputs) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    ContentLoader rounding(data, 2, dtype);
    rounding.begin({{"s0"}});
    rounding.wait({{"s0"}});
    const auto found = rounding.encoder(sample(0), 0, true);
    EXPECT_EQ(found->values.dtype(), dtype);
    EXPECT_EQ(bytes_of_values(*found),
              bytes_of_values(*MadeUpContents(model, 1, dtype).encoder(sample(0), 0, true)));
  }
}

/// The loader may drop a batch while a step computes with it.
TEST_F(ContentLoaderTest, ContentsOutliveTheirBatch) {
  load({{"s0"}});
  const auto sequence = loader.encoder(sample(0), 0, true);
  const auto tokens = loader.tokens(sample(0));
  const Plan plan = testing::uniform_plan(1, 1, 1, 1);
  const std::vector<Sample> batch{sample(0)};
  const EncoderInput input =
      BatchContent(plan, model, batch, testing::dealt(plan, 1), loader).encoder(0, 0, {true, true});
  loader.drop_all();
  EXPECT_THROW(static_cast<void>(loader.encoder(sample(0), 0, true)), Error);
  const MadeUpContents again(model, 1);
  const auto expected = again.encoder(sample(0), 0, true);
  EXPECT_EQ(bytes_of_values(*sequence), bytes_of_values(*expected));
  EXPECT_EQ(tokens->ids, again.tokens(sample(0))->ids);
  ASSERT_FALSE(input.values.empty());
  EXPECT_EQ(input.values[0].data(), sequence->values.data());  // the values were not copied
}

/// A batch counts the targets of all its samples, also of samples that other ranks load.
TEST_F(ContentLoaderTest, TargetsAreCountedWithoutReading) {
  for (const Sample& one : data->samples())
    EXPECT_EQ(loader.trained_tokens(one), trained_tokens(data->read(one.id, false).tokens));
}

/// Batches follow each other in any order while threads load. The loader always returns the contents of the
/// requested batch.
TEST_F(ContentLoaderTest, ReturnsRequestedBatchesInAnyOrder) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<ContentRequest> batch;
    for (std::size_t i = 0; i < 4; ++i)
      batch.push_back({"s" + std::to_string(random.below(6)), random.below(2) == 0});
    loader.begin(batch);
    if (random.below(3) == 0) continue;
    loader.wait(batch);
    for (const ContentRequest& request : batch) {
      const Sample& one = sample(static_cast<std::size_t>(request.id[1] - '0'));
      EXPECT_EQ(loader.tokens(one)->rows, one.llm_tokens);
      if (!request.values || one.encoder_sequences.empty()) continue;
      EXPECT_FALSE(loader.encoder(one, 0, true)->values.empty());
    }
  }
}

/// A data set with one damaged sample.
class DamagedDataset final : public Dataset {
 public:
  std::string fingerprint() const override { return ""; }
  SampleContent read(const std::string& id, bool /*values*/) const override {
    if (id == "bad") throw Error(ErrorKind::input, "damaged", id);
    return {};
  }
  std::int64_t trained_tokens(const Sample& /*sample*/) const override { return 0; }
};

TEST(DamagedContents, ComeWithTheBatch) {
  ContentLoader loader(std::make_shared<DamagedDataset>(), 2);
  loader.begin({{"good"}, {"bad"}});
  loader.wait({{"good"}});
  EXPECT_THROW(loader.wait({{"bad"}}), Error);
  EXPECT_THROW(loader.wait({{"never begun"}}), Error);
}

}  // namespace content_loader_test
}  // namespace dflop
