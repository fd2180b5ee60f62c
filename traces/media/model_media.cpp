#include "traces/media/model_media.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "traces/media/video_frames.hpp"
#include "traces/preprocess/rules.hpp"

namespace dflop {
namespace {

/// A Maker computes the encoding of one record.
class Maker {
 public:
  Maker(const Architecture& architecture, std::int64_t layers, std::int64_t windowed_layers,
        const RecordShapes& shapes, Modality modality)
      : architecture_(architecture),
        layers_(layers),
        windowed_layers_(windowed_layers),
        shapes_(shapes),
        modality_(modality) {}

  Encoding operator()(std::monostate) {
    shapes_.fail("modality", "the model takes only text, found " + std::string(to_string(modality_)));
  }

  Encoding operator()(const ClipProcessor& processor) {
    if (modality_ == Modality::video) refuse("pictures");
    require_pictures();
    for (const ImageRun& run : shapes_.images()) require_clip_size(run.size, processor);
    const std::int64_t patches = patches_of_tile() * patches_of_tile();
    const std::int64_t tokens = architecture_.connector.selects ? patches : patches + 1;
    return {{tiles(shapes_.image_count(), patches + 1)}, shapes_.image_count() * tokens};
  }

  Encoding operator()(const LlavaProcessor& processor) {
    const std::int64_t side = patches_of_tile();
    if (processor.tiles_several) return llava_next(processor, side);
    if (modality_ == Modality::video) {
      const std::int64_t frames = llava_frames(shapes_.video_timing());
      const std::int64_t pooled = (side + 1) / 2;
      return {{tiles(frames, side * side)}, frames * pooled * pooled + 1};
    }
    require_pictures();
    if (shapes_.image_count() > 1) {
      return {{tiles(shapes_.image_count(), side * side)}, shapes_.image_count() * (side * side + 1)};
    }
    const ImageSize size = shapes_.images().front().size;
    const LlavaGrid grid = llava_shown(size, llava_pinpoint(size, processor), processor.tile, side,
                                       architecture_.picture.most_tiles);
    return {{tiles(1 + grid.tile_rows * grid.tile_columns, side * side)},
            side * side + grid.shown_rows * (grid.shown_columns + 1)};
  }

  Encoding operator()(const QwenProcessor& processor) {
    Encoding encoding;
    if (modality_ == Modality::video) {
      const VideoTiming timing = shapes_.video_timing();
      if (qwen_frame_count(timing, processor) < 2)
        shapes_.fail("video_frames", "expected a video of at least 2 frames, found 1");
      const FrameChoice choice =
          qwen_video_frames({timing.frames, timing.fps, shapes_.video_size()}, processor);
      add_slots(encoding, 1, choice.grid(processor));
      return encoding;
    }
    require_pictures();
    for (const ImageRun& run : shapes_.images())
      add_slots(encoding, run.count, qwen_grid(run.size, processor));
    return encoding;
  }

  Encoding operator()(const InternvlProcessor& processor) {
    const std::int64_t side = patches_of_tile();
    const std::int64_t merged = side / architecture_.picture.merge;
    std::int64_t count = 0;
    if (modality_ == Modality::video) {
      count = internvl_frames(shapes_);
    } else {
      require_pictures();
      for (const ImageRun& run : shapes_.images())
        count += run.count * internvl_tile_count(run.size, processor);
    }
    return {{tiles(count, side * side + 1)}, count * merged * merged};
  }

  Encoding operator()(const MelOptions& options) {
    if (modality_ != Modality::audio) refuse("sounds");
    const std::int64_t samples = std::llround(shapes_.audio_s() * kSoundRate);
    Encoding encoding;
    for (std::int64_t begin = 0; begin < samples; begin += options.chunk) {
      const std::int64_t length = std::min(options.chunk, samples - begin);
      if (begin > 0 && length < 3 * kMelHop) break;  // the rest is too short to give a token
      add_sound(encoding, mel_shape(length, options).valid_frames);
    }
    return encoding;
  }

 private:
  Encoding llava_next(const LlavaProcessor& processor, std::int64_t side) {
    if (modality_ == Modality::video) refuse("pictures");
    require_pictures();
    std::int64_t count = 0;
    std::int64_t tokens = 0;
    for (const ImageRun& run : shapes_.images()) {
      const LlavaGrid grid =
          llava_shown(run.size, llava_pinpoint(run.size, processor), processor.tile, side, 0);
      count += run.count * (1 + grid.tile_rows * grid.tile_columns);
      tokens += run.count * (side * side + grid.shown_rows * (grid.shown_columns + 1));
    }
    return {{tiles(count, side * side + 1)}, tokens};
  }

  std::int64_t patches_of_tile() const { return architecture_.picture.tile / architecture_.picture.patch; }

  static EncoderSequences tiles(std::int64_t count, std::int64_t rows) { return {count, rows, rows * rows}; }

  [[noreturn]] void refuse(const char* what) const {
    shapes_.fail("modality",
                 std::string("the model takes ") + what + ", found " + std::string(to_string(modality_)));
  }

  void require_pictures() const {
    if (modality_ == Modality::audio) refuse("pictures and videos");
  }

  /// Adds `times` pictures, or a video, with a grid.
  void add_slots(Encoding& encoding, std::int64_t times, const QwenGrid& grid) const {
    const std::int64_t merge = architecture_.picture.merge;
    const std::int64_t patches = grid.rows * grid.columns;
    const std::int64_t whole = patches * patches;
    std::int64_t pairs = whole;
    if (windowed_layers_ > 0) {
      const std::int64_t square = merge * merge;
      const std::int64_t windows =
          square * square * window_squares(grid.rows / merge) * window_squares(grid.columns / merge);
      pairs = (windowed_layers_ * windows + (layers_ - windowed_layers_) * whole + layers_ / 2) / layers_;
    }
    encoding.sequences.push_back({times * grid.frames, patches, pairs});
    encoding.output_tokens += times * grid.frames * (patches / (merge * merge));
  }

  /// Returns the sum of the squared sides of the windows that `merged` merged patches are cut into. A window
  /// of w x h contributes the square of its area, so the sum for a picture is the product of the sums for its
  /// sides.
  std::int64_t window_squares(std::int64_t merged) const {
    const std::int64_t side = architecture_.picture.window;
    const std::int64_t rest = merged % side;
    return merged / side * side * side + rest * rest;
  }

  /// Adds a sound of `frames` frames: the second convolution takes every other one, and the connector
  /// averages pairs of the results.
  void add_sound(Encoding& encoding, std::int64_t frames) const {
    if (architecture_.sound.part > 0 && frames >= 3)
      return add_sound_parts(encoding, frames, architecture_.sound.part);
    const std::int64_t rows = frames < 1 ? 0 : (frames - 1) / 2 + 1;
    const std::int64_t tokens = rows / 2;
    if (tokens < 1 || rows > architecture_.front.table) {
      shapes_.fail("audio_s", "expected a sound of 3 to " + std::to_string(2 * architecture_.front.table) +
                                  " frames in each 30 s, found " + std::to_string(frames));
    }
    encoding.sequences.push_back({1, rows, rows * rows});
    encoding.output_tokens += tokens;
  }

  const Architecture& architecture_;
  std::int64_t layers_;
  std::int64_t windowed_layers_;
  const RecordShapes& shapes_;
  Modality modality_;
};

}  // namespace

ModelMedia::ModelMedia(const ModelSpec& model, ModelProcessor processor, std::optional<MelOptions> second)
    : architecture_(model.architecture.value_or(Architecture{})),
      layers_(model.encoder.layers),
      processor_(std::move(processor)),
      second_(second) {
  const std::vector<bool> windowed = model.encoder.layer_form().windowed;
  windowed_layers_ = std::count(windowed.begin(), windowed.end(), true);
}

Encoding ModelMedia::encode(const RecordShapes& shapes, Modality modality) const {
  Maker maker(architecture_, layers_, windowed_layers_, shapes, modality);
  try {
    if (second_ && modality == Modality::audio) return maker(*second_);
    return std::visit(maker, processor_);
  } catch (const Error& error) {
    if (!error.context().empty()) throw;
    const char* column = modality == Modality::video   ? "video_wh"
                         : modality == Modality::audio ? "audio_s"
                                                       : "images";
    shapes.fail(column, error.message());
  }
}

}  // namespace dflop
