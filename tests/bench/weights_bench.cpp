// How fast a rank loads its weights from a folder of transformers, compared with reading and copying the same
// bytes, and how fast it draws random weights. DFLOP_BENCH_FOLDER is the place for the folder, by default the
// system's place for temporary files. On a disk, cold reads come from the disk.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/content/folder_weights.hpp"
#include "backend/host/world.hpp"
#include "backend/model/parameter_store.hpp"
#include "core/support/random.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"
#include "traces/weights/writer.hpp"

namespace dflop {
namespace weights_bench {

namespace fs = std::filesystem;

Nanoseconds now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

/// A Folder holds a Llama with two layers of the 7B model: 0.54 billion parameters, 1.07 GB in bf16.
class Folder {
 public:
  Folder() {
    const char* where = std::getenv("DFLOP_BENCH_FOLDER");
    path_ = (where != nullptr ? fs::path(where) : fs::temp_directory_path()) / "dflop_weights_bench";
    fs::remove_all(path_);
    fs::create_directories(path_);
    auto config =
        nlohmann::json::parse(read_text_file(DFLOP_SOURCE_DIR "/tests/golden/models/llama3/config.json"));
    config["hidden_size"] = 4096;
    config["num_attention_heads"] = 32;
    config["num_key_value_heads"] = 32;
    config["head_dim"] = 128;
    config["intermediate_size"] = 11'008;
    config["num_hidden_layers"] = 2;
    config["vocab_size"] = 16'000;
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

/// Drops a file from the system's cache if the cache has a disk behind it.
void make_cold(const Folder& of) {
  const int file = ::open(of.file().c_str(), O_RDONLY);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

/// Reads a file into 1 MiB repeatedly, like dd.
double read_seconds(const Folder& of) {
  std::vector<char> memory(std::size_t{1} << 20);
  const Nanoseconds begin = now();
  const int file = ::open(of.file().c_str(), O_RDONLY);
  while (::read(file, memory.data(), memory.size()) > 0) benchmark::ClobberMemory();
  ::close(file);
  return Seconds(now() - begin).count();
}

/// Copies as many bytes as the weights take in memory, 256 MiB at a time, between two existing buffers.
double copy_seconds(std::int64_t bytes) {
  constexpr std::size_t kMemory = std::size_t{256} << 20;
  static const std::vector<char> from(kMemory, 1);
  static std::vector<char> to(kMemory, 2);
  const Nanoseconds begin = now();
  for (auto left = static_cast<std::size_t>(bytes); left > 0;) {
    const std::size_t count = std::min(left, kMemory);
    std::memcpy(to.data(), from.data(), count);
    benchmark::ClobberMemory();
    left -= count;
  }
  return Seconds(now() - begin).count();
}

/// TimedWeights records when the first weights were requested: memory for them is allocated by then.
class TimedWeights final : public WeightSource {
 public:
  explicit TimedWeights(const WeightSource& source) : source_(source) {}
  void visit(const Parameter& tensor, Range rows, Range columns,
             const std::function<void(const StoredRun&)>& visit) const override {
    if (begin_ == Nanoseconds{}) begin_ = now();
    source_.visit(tensor, rows, columns, visit);
  }
  Nanoseconds begin() const { return begin_; }

 private:
  const WeightSource& source_;
  mutable Nanoseconds begin_{};
};

/// Loads the part of one rank of ZeRO-1 over eight.
double load_seconds(const Folder& of, DType dtype, const WeightSource& source) {
  HostWorld world(1);
  const LocalRank local(world, 0, dtype);
  const RankContext rank = context_of(local);
  const TimedWeights timed(source);
  const ParameterStore store(rank, of.list(), 8, 0, 1, &timed);
  benchmark::DoNotOptimize(store.memory());
  return Seconds(now() - timed.begin()).count();
}

/// Loads, reads and copies in turn, and reports the speed of loading relative to the others.
void load_weights(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const bool is_cold = state.range(1) == 1;
  const Folder& of = folder();
  const FolderWeights weights(of.model(), of.path());
  double load = 0;
  double read = 0;
  double copy = 0;
  for (auto _ : state) {
    // Read before and after, since the second read may come from a cache behind the disk.
    if (is_cold) make_cold(of);
    read += read_seconds(of) / 2;
    if (is_cold) make_cold(of);
    const double seconds = load_seconds(of, dtype, weights);
    if (is_cold) make_cold(of);
    read += read_seconds(of) / 2;
    copy += copy_seconds(of.bytes() / 2 * static_cast<std::int64_t>(bytes_of(dtype)));
    load += seconds;
    state.SetIterationTime(seconds);
  }
  state.SetBytesProcessed(state.iterations() * of.bytes());
  state.counters["of_read"] = read / load;
  state.counters["of_memcpy"] = copy / load;
}

/// Draws initial values, per parameter.
void draw_weights(benchmark::State& state) {
  const Parameter table{"table", 4096, 4096, {{0, 4096}}, {0, 4096}};
  HostWorld world(1);
  const LocalRank local(world, 0, DType::f32);
  const RankContext rank = context_of(local);
  for (auto _ : state) benchmark::DoNotOptimize(ParameterStore(rank, {table}, 1, 0, 1).memory());
  state.SetItemsProcessed(state.iterations() * table.count());
}

BENCHMARK(load_weights)
    ->ArgNames({"dtype", "cold"})
    ->ArgsProduct({{static_cast<int>(DType::f32), static_cast<int>(DType::bf16)}, {0, 1}})
    ->UseManualTime()
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(draw_weights)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace weights_bench
}  // namespace dflop
