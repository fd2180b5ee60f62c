// From decoded pictures to the ranks' inputs: the host's time for the contents of a step.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/host/world.hpp"
#include "backend/model/microbatch.hpp"
#include "backend/model/tensor.hpp"
#include "tests/backend/run/live_plans.hpp"
#include "traces/dataset/sample_content.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace content_bench {

constexpr int kSamples = 16;
constexpr int kMicrobatches = 4;
constexpr int kValues = 1176;  // per patch: 2 frames, 3 colors, 14 x 14 pixels
constexpr std::int64_t kText = 30;

/// Returns a small Qwen2.5-VL with patches as large as in a released model.
ModelSpec picture_model() {
  const std::string config = DFLOP_SOURCE_DIR "/tests/golden/models/qwen2.5-vl/config.json";
  ModelSpec model = parse_hugging_face(read_text_file(config), "qwen2.5-vl");
  model.architecture->front.values = kValues;
  return model;
}

/// Returns a sample of one picture and words, of which the last word is trained.
SampleContent picture_sample(const ModelSpec& model, const PatchGrid& grid) {
  const auto values = static_cast<std::size_t>(grid.slots * grid.rows * grid.columns * kValues);
  std::vector<float> pixels(values);
  for (std::size_t i = 0; i < values; ++i) pixels[i] = static_cast<float>(i % 255) / 127.0F - 1.0F;
  const MediumContent picture = qwen_picture(*model.architecture, grid, pixels, {});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(picture.tokens), model.architecture->image_token);
  ids.insert(ids.end(), kText, 1);
  std::vector<std::int32_t> labels(ids.size(), -1);
  labels.back() = 1;
  return make_content(model, "", ids, labels, {&picture, 1});
}

/// PictureBatch has a batch of 16 pictures with 33,176 patches in total.
struct PictureBatch {
  ModelSpec model = picture_model();
  Plan plan = testing::uniform_plan(1, 1, 1, kMicrobatches);
  std::vector<Sample> samples;
  Assignment assignment = testing::dealt(plan, kSamples);
  StoredContents contents;

  PictureBatch() {
    for (int i = 0; i < kSamples; ++i) {
      SampleContent content = picture_sample(model, i == 0 ? PatchGrid{1, 8, 262} : PatchGrid{1, 28, 74});
      samples.push_back(shape_of(model, "s" + std::to_string(i), content));
      contents.keep(samples.back().id, in_precision(std::move(content), DType::bf16));
    }
  }
};

/// Makes one rank's inputs of each microbatch, and uploads the encoder's input to host memory.
void content_of_pictures(benchmark::State& state) {
  const PictureBatch batch;
  HostWorld world(1);
  LocalRank parts(world, 0, DType::bf16);
  const RankContext rank = context_of(parts);
  Tensor uploaded(rank, 10'000, kValues);
  std::int64_t patches = 0;
  for (auto _ : state) {
    const BatchContent content(batch.plan, batch.model, batch.samples, batch.assignment, batch.contents);
    patches = 0;
    for (int m = 0; m < kMicrobatches; ++m) {
      const EncoderInput encoder = content.encoder(m, 0, {true, true});
      const LlmInput llm = content.llm(m, 0);
      for (std::size_t s = 0; s < encoder.values.size(); ++s) {
        const Matrix rows = rows_of(rank, uploaded.view(), encoder.value_offsets[s], 1);
        upload(rank, rows.data, encoder.values[s], 0, encoder.values[s].size());
      }
      patches += encoder.rows();
      benchmark::DoNotOptimize(llm.targets.data());
    }
  }
  state.counters["patches"] = static_cast<double>(patches);
}

/// Rounds the encoder's input for a batch of pictures, as loader threads do.
void round_pictures(benchmark::State& state) {
  const ModelSpec model = picture_model();
  const SampleContent content = picture_sample(model, {1, 28, 74});
  for (auto _ : state) {
    for (int i = 0; i < kSamples; ++i) benchmark::DoNotOptimize(in_precision(content, DType::bf16));
  }
}

BENCHMARK(content_of_pictures)->Unit(benchmark::kMillisecond);
BENCHMARK(round_pictures)->Unit(benchmark::kMillisecond);

}  // namespace content_bench
}  // namespace dflop
