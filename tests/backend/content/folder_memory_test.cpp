// A rank that loads its part of a folder needs little more memory than the size of the part.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/content/folder_weights.hpp"
#include "backend/host/world.hpp"
#include "backend/run/live_rank.hpp"
#include "core/program/lowering.hpp"
#include "core/support/process_memory.hpp"
#include "tests/backend/content/golden_model.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"
#include "traces/weights/writer.hpp"

namespace dflop {
namespace folder_memory_test {

namespace fs = std::filesystem;

/// Resets the peak memory of the process to the current value. Returns whether the system supports this.
bool forget_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
  return process_memory("VmHWM") < process_memory("VmRSS") + 0x1p20;
}

/// Writes a folder like the golden Llama's, but wider. Its weights are holes in a sparse file.
ModelSpec write_wide_folder(const std::string& folder) {
  const testing::GoldenModel golden = testing::read_golden_model("llama3");
  nlohmann::json config = nlohmann::json::parse(read_text_file(golden.folder + "/config.json"));
  const int heads = config["num_attention_heads"];
  const int width = config["hidden_size"];
  config["hidden_size"] = 1024;
  config["head_dim"] = 1024 / heads;
  config["intermediate_size"] = 4096;
  config["vocab_size"] = 8192;
  write_file_atomically(folder + "/config.json", config.dump());
  const ModelSpec model = parse_hugging_face(config.dump(), folder + "/config.json");
  const StoredNames names(model);
  StagePlace place;
  place.stage.embedding = place.stage.head = true;
  place.stage.llm_layers = model.llm.layers;
  std::vector<TensorShape> shapes;
  for (const Parameter& parameter : stage_parameter_list(model, place, 0)) {
    for (const StoredPart& part : names.parts(parameter.name, parameter.rows, parameter.columns)) {
      shapes.push_back({part.name, Dtype::bf16, part.shape});
    }
  }
  const SafetensorsHeader header = lay_out(shapes, {{"format", "pt"}});
  const std::string file = folder + "/" + std::string(kWeightsFile);
  std::ofstream(file, std::ios::binary) << header_bytes(header);
  fs::resize_file(file, header.file_bytes);
  EXPECT_NE(width, 1024);
  return model;
}

/// A rank of tp 2 and pp 2 holds weights, gradients, masters and moments. Its peak is at most a tenth more.
TEST(FolderMemory, OfARankCountsOnlyItsPart) {
  if (std::string(DFLOP_SANITIZE) != "") GTEST_SKIP() << "sanitizers keep memory of their own";
  const std::string folder = ::testing::TempDir() + "dflop_folder_memory";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const ModelSpec model = write_wide_folder(folder);
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {2, 2, 1, {0, 0}};
  plan.llm = {2, 2, 1, split_layers(model.llm.layers, 2)};
  plan.microbatches = 2;
  const Program layout = lower_without_work(plan, model);
  HostWorld world(layout.ranks());
  const LocalRank parts(world, 0, DType::bf16);
  const RankContext context = context_of(parts, consecutive_ranks(0, 2), 0, false);
  const FolderWeights weights(model, folder);
  if (!forget_peak()) GTEST_SKIP() << "the system does not tell the most memory since now";
  const double before = process_memory("VmRSS");
  const LiveRank live(plan, model, layout, 0, 1, &weights, context);
  const auto kept = static_cast<double>(live.model_state().total().count);
  EXPECT_GT(kept, 100e6);
  EXPECT_GT(process_memory("VmRSS") - before, 0.9 * kept);  // the state really is in memory
  EXPECT_LT(process_memory("VmHWM") - before, 1.1 * kept);
  fs::remove_all(folder);
}

}  // namespace folder_memory_test
}  // namespace dflop
