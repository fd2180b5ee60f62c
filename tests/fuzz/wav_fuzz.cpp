#include "tests/fuzz/fuzz_target.hpp"
#include "traces/media/sound.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::SoundShape shape = dflop::sound_shape(text, "fuzz.wav");
    const std::vector<float> samples = dflop::decode_sound(text, "fuzz.wav", shape.rate);
    dflop::require(static_cast<std::int64_t>(samples.size()) == shape.samples);
    const std::int64_t length = dflop::resampled_length(shape.samples, shape.rate);
    dflop::require(std::ssize(dflop::decode_sound(text, "fuzz.wav")) == length);
    if (samples.size() >= dflop::kMelHop) dflop::log_mel(samples, {80, false});
  });
}
