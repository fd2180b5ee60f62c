#include "tests/fuzz/fuzz_target.hpp"
#include "traces/media/image.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dflop;
  return run_fuzz_target(data, size, [](std::string_view bytes) {
    constexpr std::int64_t kPixels = 1 << 20;
    const ImageSize from_header = image_size(bytes, "fuzz.webp", kPixels);
    require(decode_image(bytes, "fuzz.webp", kPixels).size == from_header);
  });
}
