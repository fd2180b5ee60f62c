// Shared by the tests of weights.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "traces/weights/header.hpp"

namespace dflop {

/// Returns the bytes of a safetensors file with this header and data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

/// Returns a UTF-8 name with all kinds of characters, including those that JSON escapes.
inline std::string random_name(Random& random, std::size_t number) {
  static const std::vector<std::string> parts = {
      "model", ".layers.",           "\"",    "\\", "\n", "\xC3\xA4", " ", "{", "}", ",", "\xF0\x9F\xA6\x86",
      "/",     std::string(1, '\0'), "weight"};
  std::string name;
  for (std::uint64_t i = random.below(6); i > 0; --i) name += parts[random.below(parts.size())];
  return name + std::to_string(number);  // makes names unique
}

/// Up to ten tensors of all dtypes, sorted as writers need them; some without dimensions, some without
/// numbers.
inline std::vector<TensorShape> random_tensors(Random& random) {
  const std::vector<Dtype> dtypes = all_of<Dtype>();
  std::vector<TensorShape> tensors(random.below(11));
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    tensors[t].name = random_name(random, t);
    tensors[t].dtype = dtypes[random.below(dtypes.size())];
    for (std::uint64_t d = random.below(4); d > 0; --d)
      tensors[t].shape.push_back(static_cast<std::int64_t>(random.below(6)));
    // Make numbers of less than 8 bits fill whole bytes.
    if (bits_of(tensors[t].dtype) < 8) tensors[t].shape.push_back(4);
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorShape& a, const TensorShape& b) {
    return bits_of(a.dtype) > bits_of(b.dtype);
  });
  return tensors;
}

inline std::string random_bytes(Random& random, std::size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.below(256));
  return bytes;
}

/// A test with its own empty folder.
class WeightsTest : public testing::Test {
 protected:
  WeightsTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("dflop_weights_") + test->test_suite_name() + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~WeightsTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  static std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::filesystem::path folder_;
};

}  // namespace dflop
