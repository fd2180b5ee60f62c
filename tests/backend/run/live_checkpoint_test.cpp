// The ranks of one plan write checkpoints, and the ranks of another plan read them.
#include <gtest/gtest.h>

#include <filesystem>

#include "backend/run/live_checkpoint.hpp"
#include "core/error.hpp"
#include "tests/backend/run/live_model.hpp"
#include "traces/checkpoints/folder.hpp"
#include "traces/checkpoints/pieces.hpp"

namespace dflop {
namespace live_checkpoint_test {

using testing::disaggregated_plan;
using testing::live_samples;
using testing::LiveRun;
using testing::uniform_plan;
using Kind = ParameterStore::Kind;
constexpr Kind kKinds[] = {Kind::weight, Kind::moment1, Kind::moment2};

class LiveCheckpoint : public ::testing::Test {
 protected:
  LiveCheckpoint() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        (std::filesystem::path(::testing::TempDir()) / (std::string("dflop_live_checkpoint_") + test->name()))
            .string();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~LiveCheckpoint() override { std::filesystem::remove_all(folder_); }

  /// Writes the state of a run and returns the folder.
  std::string save(LiveRun& run, std::int64_t step) const {
    CheckpointIndex index;
    index.step = step;
    run.executor->save(folder_, index);
    return step_folder(folder_, step);
  }

  std::string folder_;
};

std::vector<Plan> plans() {
  Plan no_zero = uniform_plan(1, 1, 2, 2);
  no_zero.zero1 = false;
  Plan sharded = disaggregated_plan({2, 1, 1, {}}, {2, 2, 1, {}}, 3);
  sharded.sequence_parallel = true;
  return {uniform_plan(1, 1, 1, 1),
          uniform_plan(1, 1, 3, 2),
          uniform_plan(2, 1, 2, 2),
          uniform_plan(1, 2, 2, 2),
          disaggregated_plan({1, 1, 2, {}}, {2, 2, 1, {}}, 3),
          disaggregated_plan({4, 1, 1, {}}, {2, 1, 2, {}}, 2),
          sharded,
          no_zero};
}

void expect_same_state(LiveRun& found, LiveRun& expected) {
  for (const Kind kind : kKinds) {
    const WholeTensors all = expected.executor->read(kind);
    const WholeTensors read = found.executor->read(kind);
    ASSERT_EQ(read.size(), all.size());
    for (const auto& [name, tensor] : all) ASSERT_EQ(read.at(name).values, tensor.values) << name;
  }
}

/// The models whose states are saved: tp divides all sizes of one, and few of the other.
std::vector<ModelSpec> models() {
  return {testing::live_model(), testing::uneven_model()};
}

TEST_F(LiveCheckpoint, AnyPlanResumesFromAnyOther) {
  const std::vector<Sample> samples = live_samples(12, 5);
  const std::vector<Plan> all = plans();
  for (const ModelSpec& model : models()) {
    for (std::size_t p = 0; p < all.size(); ++p) {
      const int row_alignment = p % 2 == 0 ? 1 : 8;  // half of the readers have the other alignment
      LiveRun writer(all[p], model, samples, DType::f32, row_alignment);
      for (int step = 1; step <= 2; ++step) writer.step(true, step);
      const std::string checkpoint = save(writer, 2);
      for (const std::size_t other : {p, (p + 1) % all.size(), (p + 3) % all.size()}) {
        LiveRun reader(all[other], model, samples, DType::f32, p == other ? 8 : 1);
        reader.executor->load(checkpoint);
        ASSERT_NO_FATAL_FAILURE(expect_same_state(reader, writer))
            << model.name << ", " << p << " read by " << other;
      }
    }
  }
}

TEST_F(LiveCheckpoint, AResumedRunEqualsAnUninterruptedOne) {
  const std::vector<Sample> samples = live_samples(12, 5);
  const Plan plan = uniform_plan(2, 1, 2, 2);
  for (const ModelSpec& model : models()) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      LiveRun whole(plan, model, samples, dtype);
      for (int step = 1; step <= 2; ++step) whole.step(true, step);
      const std::string checkpoint = save(whole, 2);
      whole.step(true, 3);
      LiveRun resumed(plan, model, samples, dtype);
      resumed.executor->load(checkpoint);
      resumed.step(true, 3);
      ASSERT_NO_FATAL_FAILURE(expect_same_state(resumed, whole)) << model.name << ", " << to_string(dtype);
    }
  }
}

std::int64_t bytes_of_tensors(const CheckpointReader& reader) {
  std::int64_t bytes = 0;
  for (const CheckpointFile& file : reader.index().files) {
    const SafetensorsFile tensors(reader.path() + "/" + file.name);
    for (const StoredTensor& tensor : tensors.tensors()) bytes += static_cast<std::int64_t>(tensor.bytes);
  }
  return bytes;
}

TEST_F(LiveCheckpoint, EachValueIsWrittenOnceByARankThatHoldsIt) {
  // Twelve bytes per parameter (24 in f64) for every plan, as copies are written only once. With ZeRO-1 all
  // ranks write, as each has its own moments.
  const std::vector<Sample> samples = live_samples(12, 5);
  for (const ModelSpec& model : models()) {
    LiveRun one(uniform_plan(1, 1, 1, 1), model, samples, DType::f32);
    std::int64_t parameters = 0;
    for (const auto& [name, tensor] : one.executor->read(Kind::weight)) {
      parameters += tensor.rows * tensor.columns;
    }
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const std::int64_t width = dtype == DType::f64 ? 8 : 4;
      for (const Plan& plan : plans()) {
        LiveRun run(plan, model, samples, dtype, dtype == DType::bf16 ? 8 : 1);
        const CheckpointReader reader(save(run, 1));
        reader.verify();
        EXPECT_EQ(reader.index().dtype, dtype_of_index(dtype));
        EXPECT_EQ(bytes_of_tensors(reader), 3 * width * parameters);
        if (!plan.zero1) continue;
        EXPECT_EQ(reader.index().files.size(), static_cast<std::size_t>(plan.ranks()));
      }
    }
  }
}

TEST_F(LiveCheckpoint, AModelOfOtherSizesIsRejected) {
  const std::vector<Sample> samples = live_samples(12, 5);
  const Plan plan = uniform_plan(1, 1, 1, 1);
  LiveRun writer(plan, samples, DType::f32);
  const std::string checkpoint = save(writer, 2);
  ModelSpec wide = testing::live_model();
  wide.llm.vocabulary = 70;
  LiveRun reader(plan, wide, samples, DType::f32);
  try {
    reader.executor->load(checkpoint);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_EQ(error.context(), checkpoint);
    EXPECT_NE(error.message().find("expected 70 x 24 values, found 64 x 24"), std::string::npos)
        << error.message();
  }
}

}  // namespace live_checkpoint_test
}  // namespace dflop
