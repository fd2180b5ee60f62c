// What the tests of checkpoints share.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "traces/files/checkpoint.hpp"

namespace dflop {

inline Checkpoint example_checkpoint() {
  Checkpoint checkpoint;
  checkpoint.model = "tiny-vlm";
  checkpoint.model_spec = "{\"layers\": 2}";
  checkpoint.step = 50;
  checkpoint.seed = 18446744073709551615U;  // the largest
  checkpoint.dtype = ElementType::f32;
  checkpoint.gbs = 8;
  checkpoint.scheduler = "dflop";
  checkpoint.data_file = "omni_mix.csv";
  checkpoint.data_fingerprint = "crc32 0badcafe";
  checkpoint.samples_drawn = 400;
  checkpoint.plan = "llm 1x2x1";
  checkpoint.tensors = {{"llm.0.wq", TensorKind::weight, ElementType::f32, 1, 2, {1, -2.5}},
                        {"llm.0.wq", TensorKind::moment2, ElementType::f64, 1, 1, {1.0 / 3}}};
  return checkpoint;
}

/// Values by their bits, as NaN is not equal to itself.
inline std::vector<std::uint64_t> bits_of(const std::vector<double>& values) {
  std::vector<std::uint64_t> bits;
  for (const double value : values) bits.push_back(std::bit_cast<std::uint64_t>(value));
  return bits;
}

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A test with an empty folder of its own.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = (std::filesystem::path(testing::TempDir()) / (std::string("dflop_checkpoint_") + test->name()))
                  .string();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

}  // namespace dflop
