// How fast a rank takes its weights from a folder of transformers, against reading and copying the same
// bytes, and how fast it draws them: by processor time, so that a disk's waits are not in it.
// DFLOP_BENCH_FOLDER is where the folder is made, by default /dev/shm.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/content/folder_weights.hpp"
#include "backend/host/world.hpp"
#include "backend/model/parameter_store.hpp"
#include "core/support/random.hpp"
#include "traces/files/hugging_face.hpp"
#include "traces/text/text_file.hpp"
#include "traces/weights/writer.hpp"

namespace dflop {
namespace weights_bench {

namespace fs = std::filesystem;

/// Returns the time of all processors that this process had: others may use the machine, too.
Nanoseconds processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// A Folder holds a Llama of 0.1 billion parameters, 0.2 GB in bf16.
class Folder {
 public:
  Folder() {
    const char* where = std::getenv("DFLOP_BENCH_FOLDER");
    path_ = std::string(where != nullptr ? where : "/dev/shm") + "/dflop_weights_bench";
    fs::remove_all(path_);
    fs::create_directories(path_);
    auto config =
        nlohmann::json::parse(read_text_file(DFLOP_SOURCE_DIR "/tests/golden/models/llama3/config.json"));
    config["hidden_size"] = 1024;
    config["num_attention_heads"] = 16;
    config["num_key_value_heads"] = 16;
    config["head_dim"] = 64;
    config["intermediate_size"] = 4096;
    config["num_hidden_layers"] = 5;
    config["vocab_size"] = 8'000;
    write_file_atomically(path_ + "/config.json", config.dump());
    model_ = parse_hugging_face(config.dump(), path_ + "/config.json");
    StagePlace place;
    place.stage.embedding = place.stage.head = true;
    place.stage.llm_layers = model_.llm.layers;
    list_ = stage_parameter_list(model_, place, 0);
    write_weights();
  }
  ~Folder() { fs::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string file() const { return path_ + "/" + std::string(kWeightsFile); }
  const ModelSpec& model() const { return model_; }
  const std::vector<Parameter>& list() const { return list_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(fs::file_size(file())); }

 private:
  void write_weights() const {
    const StoredNames names(model_);
    std::vector<TensorShape> shapes;
    for (const Parameter& parameter : list_) {
      for (const StoredPart& part : names.parts(parameter.name, parameter.rows, parameter.columns)) {
        shapes.push_back({part.name, Dtype::bf16, part.shape});
      }
    }
    WeightsWriter writer(path_, shapes, {.sync = true});
    Random random(1);
    std::vector<float> values(std::size_t{1} << 16);
    for (float& value : values) value = static_cast<float>(random.uniform());
    for (const TensorShape& shape : shapes) {
      for (std::uint64_t left = stored_bytes(shape) / 2; left > 0;) {
        const std::size_t count = std::min<std::uint64_t>(left, values.size());
        writer.append(shape.name, std::span<const float>(values).first(count));
        left -= count;
      }
    }
    writer.finish();
  }

  std::string path_;
  ModelSpec model_;
  std::vector<Parameter> list_;
};

const Folder& folder() {
  static const Folder made;
  return made;
}

/// Reads a file into 1 MiB again and again, as dd does.
double read_seconds(const Folder& of) {
  std::vector<char> memory(std::size_t{1} << 20);
  const Nanoseconds begin = processor_time();
  const int file = ::open(of.file().c_str(), O_RDONLY);
  while (::read(file, memory.data(), memory.size()) > 0) benchmark::ClobberMemory();
  ::close(file);
  return Seconds(processor_time() - begin).count();
}

/// Copies as many bytes from memory to memory, of 256 MiB each, both of which are there.
double copy_seconds(const Folder& of) {
  constexpr std::size_t kMemory = std::size_t{256} << 20;
  static const std::vector<char> from(kMemory, 1);
  static std::vector<char> to(kMemory, 2);
  const Nanoseconds begin = processor_time();
  for (auto left = static_cast<std::size_t>(of.bytes()); left > 0;) {
    const std::size_t count = std::min(left, kMemory);
    std::memcpy(to.data(), from.data(), count);
    benchmark::ClobberMemory();
    left -= count;
  }
  return Seconds(processor_time() - begin).count();
}

/// Makes what a rank of ZeRO-1 over eight holds, in which weights of the source are.
double store_seconds(const Folder& of, DType dtype, const WeightSource& source) {
  HostWorld world(1);
  const LocalRank local(world, 0, dtype);
  const RankContext rank = context_of(local);
  const Nanoseconds begin = processor_time();
  const ParameterStore store(rank, of.list(), 8, 0, 1, &source);
  benchmark::DoNotOptimize(store.memory());
  return Seconds(processor_time() - begin).count();
}

/// Has a store's memory made, and puts nothing there.
class NoWeights final : public WeightSource {
 public:
  void visit(const Parameter&, Range, Range, const std::function<void(const StoredRun&)>&) const override {}
};

/// Reports the loading alone: less what a store takes without. Of reads and copies in the same run it is so
/// much.
void load_weights(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const Folder& of = folder();
  const FolderWeights weights(of.model(), of.path());
  double load = 0;
  double read = 0;
  double copy = 0;
  for (auto _ : state) {
    const double without = store_seconds(of, dtype, NoWeights());
    const double with = store_seconds(of, dtype, weights);
    read += read_seconds(of);
    copy += copy_seconds(of);
    load += with - without;
    state.SetIterationTime(with - without);
  }
  state.SetBytesProcessed(state.iterations() * of.bytes());
  state.counters["ns_a_parameter"] =
      1e9 * load / static_cast<double>(state.iterations()) / (static_cast<double>(of.bytes()) / 2);
  state.counters["of_read"] = read / load;
  state.counters["of_memcpy"] = copy / load;
}

/// Draws first values, per parameter.
void draw_weights(benchmark::State& state) {
  const Parameter table{"table", 4096, 4096, {{0, 4096}}, {0, 4096}};
  HostWorld world(1);
  const LocalRank local(world, 0, DType::f32);
  const RankContext rank = context_of(local);
  for (auto _ : state) benchmark::DoNotOptimize(ParameterStore(rank, {table}, 1, 0, 1).memory());
  state.SetItemsProcessed(state.iterations() * table.count());
}

BENCHMARK(load_weights)
    ->ArgName("dtype")
    ->Arg(static_cast<int>(DType::f32))
    ->Arg(static_cast<int>(DType::bf16))
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(draw_weights)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace weights_bench
}  // namespace dflop
