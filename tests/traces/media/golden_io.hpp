// Shared by the tests of images and sounds: the files of tests/golden/io.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "traces/media/image.hpp"
#include "traces/text/text_file.hpp"
#include "traces/weights/safetensors.hpp"

namespace dflop {

inline std::string golden_io(std::string_view file) {
  return std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/" + std::string(file);
}

inline RgbImage golden_image(std::string_view file) {
  return decode_image(read_text_file(golden_io(file)), std::string(file));
}

/// Returns the values of a golden tensor, which have type T.
template <typename T>
std::vector<T> golden_tensor(std::string_view file, std::string_view name) {
  const SafetensorsFile tensors(golden_io(file));
  const auto bytes = tensors.bytes(tensors.at(name));
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace dflop
