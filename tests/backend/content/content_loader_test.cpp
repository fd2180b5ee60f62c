// Contents are loaded ahead, each once, with what the encoder sees only where that is asked for.
#include "backend/content/content_loader.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "tests/backend/content/host_process.hpp"
#include "tests/backend/run/live_plans.hpp"

namespace dflop {
namespace content_loader_test {

using testing::CountedDataset;
using Ids = std::multiset<std::string>;

/// Samples "s0", "s1" and so on; every third, as "s2", is text alone.
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
  EXPECT_EQ(data->decoded(), (Ids{"s0", "s1", "s2"}));  // s1 was there
  for (std::size_t s = 0; s < 3; ++s) EXPECT_EQ(loader.tokens(sample(s)).rows, sample(s).llm_tokens);
  loader.begin({{"s1"}, {"s2"}});
  EXPECT_THROW(static_cast<void>(loader.tokens(sample(0))), Error);
  EXPECT_EQ(loader.tokens(sample(2)).rows, sample(2).llm_tokens);
}

TEST_F(ContentLoaderTest, DropsAll) {
  load({{"s0"}});
  load({{"s1"}});
  loader.drop_all();
  for (std::size_t s = 0; s < 2; ++s) EXPECT_THROW(static_cast<void>(loader.tokens(sample(s))), Error);
  load({{"s1"}});
  EXPECT_EQ(loader.tokens(sample(1)).rows, sample(1).llm_tokens);
}

TEST_F(ContentLoaderTest, DecodesWhereValuesAreAskedFor) {
  load({{"s0", false}, {"s1", true}});
  EXPECT_EQ(data->shapes(), Ids{"s0"});
  EXPECT_EQ(data->decoded(), Ids{"s1"});
  EXPECT_EQ(loader.encoder(sample(0), 0, false).rows, 6);
  EXPECT_THROW(static_cast<void>(loader.encoder(sample(0), 0, true)), Error);
  EXPECT_EQ(std::ssize(loader.encoder(sample(1), 0, true).values), 6 * model.front().values);
  // What is there without values is made again with them, but not the other way round.
  load({{"s0", true}, {"s1", false}});
  EXPECT_EQ(data->decoded(), (Ids{"s0", "s1"}));
  EXPECT_EQ(data->shapes(), Ids{"s0"});
  for (std::size_t s : {0, 1}) EXPECT_FALSE(loader.encoder(sample(s), 0, true).values.empty());
}

/// A batch counts the targets of all its samples, those of others among them.
TEST_F(ContentLoaderTest, TargetsAreCountedWithoutReading) {
  for (const Sample& one : data->samples())
    EXPECT_EQ(loader.trained_tokens(one), trained_tokens(data->read(one.id, false).tokens));
}

/// While threads work, batches follow each other in any order: what is there is what was asked for.
TEST_F(ContentLoaderTest, GivesWhatWasAskedForInAnyOrder) {
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
      EXPECT_EQ(loader.tokens(one).rows, one.llm_tokens);
      if (!request.values || one.encoder_sequences.empty()) continue;
      EXPECT_FALSE(loader.encoder(one, 0, true).values.empty());
    }
  }
}

/// A data set one of whose samples is damaged.
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
