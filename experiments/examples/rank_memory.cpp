// This example loads one rank's part of a model from a Hugging Face folder, as 'dflop train --dtype bf16'
// does, and prints how much memory that takes in addition to what the rank keeps. Given a folder, the rank
// then writes its part of a checkpoint there, and the example prints the speed. To run it, in the project's
// folder, for rank 0 of tp 2, pp 2 and dp 1:
//
//   build/release/examples/rank_memory tests/golden/models/internvl-300m-style 2 2 1 0
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "backend/content/folder_weights.hpp"
#include "backend/host/world.hpp"
#include "backend/run/live_checkpoint.hpp"
#include "backend/run/live_rank.hpp"
#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "core/support/process_memory.hpp"
#include "experiments/presets/presets.hpp"

namespace dflop {
namespace {

constexpr double kMiB = 0x1p20;

std::size_t group_of_rank(const Program& layout, int rank) {
  std::size_t group = 0;
  while (rank >= layout.groups.at(group).first_rank + layout.groups.at(group).ranks) ++group;
  return group;
}

void say_memory(const ModelState& state) {
  const double kept = static_cast<double>(state.total().count);
  const double peak = process_memory("VmHWM");
  fmt::print("keeps {:.1f} MiB\n", kept / kMiB);
  fmt::print("peak  {:.1f} MiB, {:.3f} of what it keeps\n", peak / kMiB, peak / kept);
  fmt::print("now   {:.1f} MiB, of which {:.1f} MiB are pages of files\n", process_memory("VmRSS") / kMiB,
             process_memory("RssFile") / kMiB);
}

/// Writes the tensors that the rank holds. They are parts of whole tensors, which no other rank completes
/// here.
void write_part(const RankContext& context, LiveRank& live, int rank, const std::string& folder) {
  CheckpointIndex index;
  index.files.push_back({rank_file_name(rank), 0, 0});
  for (const HeldPart& part : held_parts(live.stages(), rank, false)) {
    if (part.values.size() == 0) continue;
    const std::string name = fmt::format("{}:{}", to_string(part.kind), part.tensor);
    index.tensors.push_back(
        {part.tensor, part.kind, part.rows, part.columns, {{0, name, part.block, part.values}}});
  }
  std::filesystem::create_directories(folder);
  const auto start = std::chrono::steady_clock::now();
  const CheckpointFile file = write_pieces(context, live.stages(), folder, index, 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print("wrote {:.1f} MiB to the disk in {:.2f} s, {:.0f} MB/s; peak {:.1f} MiB\n",
             static_cast<double>(file.bytes) / kMiB, took.count(),
             static_cast<double>(file.bytes) / took.count() / 1e6, process_memory("VmHWM") / kMiB);
}

void run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 5) throw Error(ErrorKind::usage, "expected FOLDER TP PP DP RANK [CHECKPOINT]");
  const auto number = [&](std::size_t i) { return std::stoi(arguments.at(i)); };
  const ModelSpec model = find_model(arguments[0]);
  Plan plan;
  plan.layout = Layout::uniform;
  plan.llm = {number(1), number(2), number(3), split_layers(model.llm.layers, number(2))};
  plan.encoder = plan.llm;
  plan.encoder.layers.assign(plan.llm.layers.size(), 0);
  plan.encoder.layers.front() = model.encoder.layers;
  plan.microbatches = plan.llm.pp;
  const Program layout = lower_without_work(plan, model);
  const int rank = number(4);
  const std::size_t group = group_of_rank(layout, rank);
  const Group& own = layout.groups[group];
  HostWorld world(layout.ranks());
  const LocalRank parts(world, rank, DType::bf16);
  const RankContext context =
      context_of(parts, consecutive_ranks(own.first_rank, own.ranks), rank - own.first_rank, false);
  const FolderWeights weights(model, arguments[0]);
  const auto start = std::chrono::steady_clock::now();
  LiveRank live(plan, model, layout, group, 1, &weights, context);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print("rank {} of {} loaded its part in {:.2f} s\n", rank, layout.ranks(), took.count());
  say_memory(live.model_state());
  if (arguments.size() > 5) write_part(context, live, rank, arguments[5]);
}

}  // namespace
}  // namespace dflop

int main(int argc, char** argv) {
  try {
    dflop::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
