// A model's folder written from the pieces of any plan has the same content as the folder that was read.
#include "backend/content/model_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "backend/content/folder_weights.hpp"
#include "backend/host/world.hpp"
#include "backend/run/live_executor.hpp"
#include "tests/backend/content/golden_model.hpp"
#include "tests/backend/run/live_plans.hpp"

namespace dflop {
namespace model_folder_test {

namespace fs = std::filesystem;

using testing::GoldenModel;

class ModelFolder : public ::testing::Test {
 protected:
  ModelFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / (std::string("dflop_model_folder_") + test->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~ModelFolder() override { fs::remove_all(root_); }

  std::string make(const std::string& name) const {
    fs::remove_all(root_ / name);
    fs::create_directories(root_ / name);
    return (root_ / name).string();
  }

  /// Writes the weights of a folder in the pieces of ranks of pp 2 and dp 2 in bf16, with masters in shards.
  std::string write_pieces(const ModelSpec& model, const std::string& folder) const {
    Plan plan;
    plan.layout = Layout::uniform;
    plan.encoder = {1, 2, 2, {model.encoder.layers, 0}};
    plan.llm = {1, 2, 2, split_layers(model.llm.layers, 2)};
    plan.microbatches = 2;
    HostWorld world(plan.ranks());
    const FolderWeights weights(model, folder);
    LiveExecutor executor(plan, model, world, LiveOptions{DType::bf16, 7, nullptr, &weights});
    const std::string pieces = make("pieces");
    executor.save_weights(pieces);
    return pieces;
  }

  fs::path root_;
};

void expect_same_tensors(const WeightsFolder& found, const WeightsFolder& expected) {
  ASSERT_EQ(found.names(), expected.names());
  for (const std::string& name : expected.names()) {
    const Weight a = found.at(name);
    const Weight b = expected.at(name);
    ASSERT_EQ(a.tensor->dtype, b.tensor->dtype) << name;
    ASSERT_EQ(a.tensor->shape, b.tensor->shape) << name;
    const auto bytes = a.file->bytes(*a.tensor);
    const auto same = b.file->bytes(*b.tensor);
    ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), same.begin(), same.end())) << name;
  }
}

/// The models include convolutions, with taps as the innermost dimension, and separate queries, keys and
/// values.
TEST_F(ModelFolder, HasTheTensorsOfItsSource) {
  for (const std::string& name : testing::golden_models()) {
    const GoldenModel model = testing::read_golden_model(name);
    const CheckpointReader pieces(write_pieces(model.spec, model.folder));
    const std::string one = make("one");
    write_model_folder(model.spec, pieces, model.folder, one);
    EXPECT_TRUE(fs::exists(fs::path(one) / kWeightsFile));
    EXPECT_TRUE(fs::exists(fs::path(one) / "config.json"));
    ASSERT_NO_FATAL_FAILURE(expect_same_tensors(WeightsFolder(one), WeightsFolder(model.folder))) << name;
    // All models have more than 300 kB.
    const std::string several = make("several");
    write_model_folder(model.spec, pieces, model.folder, several, 100'000);
    EXPECT_TRUE(fs::exists(fs::path(several) / kWeightsIndex));
    ASSERT_NO_FATAL_FAILURE(expect_same_tensors(WeightsFolder(several), WeightsFolder(model.folder))) << name;
  }
}

/// Writes a folder's weights in other dtypes, with additional tensors.
void write_mixed(const GoldenModel& model, const std::string& to, const std::vector<TensorShape>& more) {
  const WeightsFolder source(model.folder);
  std::vector<TensorShape> shapes;
  for (const std::string& name : source.names()) {
    shapes.push_back(*source.at(name).tensor);
    if (shapes.back().shape.size() > 1) {
      shapes.back().dtype = name.find("mlp") == std::string::npos ? Dtype::f16 : Dtype::bf16;
    }
  }
  shapes.insert(shapes.end(), more.begin(), more.end());
  std::stable_sort(shapes.begin(), shapes.end(), [](const TensorShape& a, const TensorShape& b) {
    return bits_of(a.dtype) > bits_of(b.dtype);
  });
  WeightsWriter writer(to, shapes);
  for (const TensorShape& shape : shapes) {
    if (const auto found = source.find(shape.name)) {
      std::vector<float> values(static_cast<std::size_t>(found->tensor->rows * found->tensor->columns));
      found->file->read_block(*found->tensor, whole(*found->tensor), std::span(values));
      writer.append(shape.name, std::span<const float>(values));
    } else {
      const std::vector<std::byte> bytes(stored_bytes(shape), std::byte{3});
      writer.append(shape.name, std::span<const std::byte>(bytes));
    }
  }
  writer.finish();
  fs::copy_file(fs::path(model.folder) / "config.json", fs::path(to) / "config.json");
}

/// Unused tensors are kept, except the head of a model with tied embeddings: it would keep the old values of
/// the embedding. Three bytes before 8-byte numbers would misalign them, which readers reject.
TEST_F(ModelFolder, KeepsDtypesAndUntrainedTensors) {
  const GoldenModel model = testing::read_golden_model("qwen2-tied");
  ASSERT_TRUE(model.spec.llm.tied_embeddings);
  const std::string with_head = make("with-head");
  const std::vector<TensorShape> more{{"bytes", Dtype::u8, {3}}, {"places", Dtype::i64, {2}}};
  std::vector<TensorShape> and_head = more;
  and_head.push_back({"lm_head.weight", Dtype::f16, {model.spec.llm.vocabulary, model.spec.llm.hidden}});
  write_mixed(model, with_head, and_head);
  const std::string expected = make("expected");
  write_mixed(model, expected, more);
  const std::string found = make("found");
  write_model_folder(model.spec, CheckpointReader(write_pieces(model.spec, with_head)), with_head, found);
  const WeightsFolder folder(found);
  ASSERT_NO_FATAL_FAILURE(expect_same_tensors(folder, WeightsFolder(expected)));
  for (const std::string& name : folder.names()) {
    const StoredTensor& tensor = *folder.at(name).tensor;
    EXPECT_EQ(tensor.begin % (static_cast<unsigned>(bits_of(tensor.dtype)) / 8), 0U) << name;
  }
}

/// A run that starts with random weights has a folder without weights. Exported weights then have the names
/// of transformers and the dtype of the run.
TEST_F(ModelFolder, OfAFolderWithoutWeightsHasTheUsualNames) {
  const GoldenModel model = testing::read_golden_model("llama3");
  const CheckpointReader pieces(write_pieces(model.spec, model.folder));
  const std::string bare = make("bare");
  fs::copy_file(fs::path(model.folder) / "config.json", fs::path(bare) / "config.json");
  const std::string found = make("found");
  write_model_folder(model.spec, pieces, bare, found);
  const WeightsFolder folder(found);
  EXPECT_EQ(folder.names(), WeightsFolder(model.folder).names());
  for (const std::string& name : folder.names()) EXPECT_EQ(folder.at(name).tensor->dtype, Dtype::bf16);
}

}  // namespace model_folder_test
}  // namespace dflop
