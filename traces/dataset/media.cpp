#include "traces/dataset/media.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/refuse.hpp"
#include "traces/media/processors.hpp"

namespace dflop {
namespace {

/// A Tap is a part of an LLM token: a connector row of one sequence, and its weight.
struct Tap {
  std::int64_t sequence = 0;
  std::int64_t row = 0;
  double weight = 1;
};

/// Adds a token that is a sum of taps. Each sequence that has some of the taps sends one row to the token's
/// place.
void add_token(MediumContent& medium, std::span<const Tap> taps) {
  const auto place = static_cast<std::int32_t>(medium.tokens++);
  for (const Tap& tap : taps) {
    EncoderSequence& sequence = medium.sequences[static_cast<std::size_t>(tap.sequence)];
    if (sequence.places.empty() || sequence.places.back() != place) {
      sequence.sent.add_row();
      sequence.places.push_back(place);
    }
    sequence.sent.add_tap(tap.row, tap.weight);
  }
}

void add_newline(MediumContent& medium) {
  medium.newlines.push_back(static_cast<std::int32_t>(medium.tokens++));
}

/// Returns the patches of one tile, float[3, tile, tile]. place(i) gives row and column of the i-th patch.
/// Each patch's values are ordered color by color, row by row.
template <typename Place>
std::vector<float> patches_of(std::span<const float> tile, std::int64_t tile_side, std::int64_t patch,
                              std::int64_t count, const Place& place) {
  std::vector<float> patches;
  patches.reserve(static_cast<std::size_t>(count * 3 * patch * patch));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [row, column] = place(i);
    for (std::int64_t color = 0; color < 3; ++color) {
      for (std::int64_t y = 0; y < patch; ++y) {
        const auto from = tile.begin() + (color * tile_side + row * patch + y) * tile_side + column * patch;
        patches.insert(patches.end(), from, from + patch);
      }
    }
  }
  return patches;
}

std::span<const float> tile_of(std::span<const float> values, std::int64_t tile, std::int64_t side) {
  const auto size = static_cast<std::size_t>(3 * side * side);
  return values.subspan(static_cast<std::size_t>(tile) * size, size);
}

void require_values(std::span<const float> values, std::int64_t expected) {
  if (values.empty() || std::ssize(values) == expected) return;
  refuse_input("", "expected {} values of a picture or sound, found {}", expected, values.size());
}

/// Adds sequences of tiles whose patches are in raster order, after a class row if the model has one.
void add_tiles(MediumContent& medium, const Architecture& architecture, std::int64_t tiles,
               std::span<const float> values) {
  const PictureGeometry& picture = architecture.picture;
  const std::int64_t side = picture.tile / picture.patch;
  const std::int32_t first = architecture.front.class_row ? 1 : 0;  // patch
  require_values(values, tiles * 3 * picture.tile * picture.tile);
  for (std::int64_t t = 0; t < tiles; ++t) {
    EncoderSequence sequence;
    sequence.rows = first + side * side;
    for (std::int32_t row = 0; row < sequence.rows; ++row) {
      sequence.table_rows.push_back(row);
      if (first > 0) sequence.value_rows.push_back(row - first);
      if (architecture.connector.selects && row >= first) sequence.select.add_mean(row, row + 1);
    }
    if (!values.empty()) {
      sequence.values = patches_of(tile_of(values, t, picture.tile), picture.tile, picture.patch, side * side,
                                   [&](std::int64_t i) { return std::pair(i / side, i % side); });
    }
    medium.sequences.push_back(std::move(sequence));
  }
}

/// Adds a token for each row of the first tile that the connector gets.
void add_rows_of_tile(MediumContent& medium, const Architecture& architecture) {
  const EncoderSequence& tile = medium.sequences.front();
  const std::int64_t rows = architecture.connector.selects ? tile.select.rows() : tile.rows;
  for (std::int64_t row = 0; row < rows; ++row) add_token(medium, {{{0, row}}});
}

/// LineTaps are the two places of a line whose weighted sum gives one place of the shrunk line.
struct LineTaps {
  std::array<std::int64_t, 2> place{};
  std::array<double, 2> weight{};
};

/// Returns the taps of place i for bilinear interpolation of `from` places to `to` places, with half-pixel
/// centers and without antialiasing (torch.nn.functional.interpolate).
LineTaps line_taps(std::int64_t i, std::int64_t from, std::int64_t to) {
  const double center = std::max(
      (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5, 0.0);
  const std::int64_t first = std::min(static_cast<std::int64_t>(center), from - 1);
  const double second_weight = center - static_cast<double>(first);
  return {{first, std::min(first + 1, from - 1)}, {1 - second_weight, second_weight}};
}

/// A Rectangle of rows and columns.
struct Rectangle {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Adds the tokens of a rectangle that is shrunk to another one. cell(row, column) is a Tap of weight 1. With
/// `end_rows`, a newline follows each row.
void add_shrunk(MediumContent& medium, Rectangle from, Rectangle to, bool end_rows,
                const std::function<Tap(std::int64_t, std::int64_t)>& cell) {
  for (std::int64_t i = 0; i < to.rows; ++i) {
    const LineTaps down = line_taps(i, from.rows, to.rows);
    for (std::int64_t j = 0; j < to.columns; ++j) {
      const LineTaps across = line_taps(j, from.columns, to.columns);
      std::vector<Tap> taps;
      for (std::size_t a = 0; a < 2; ++a) {
        for (std::size_t b = 0; b < 2; ++b) {
          const double weight = down.weight[a] * across.weight[b];
          if (weight == 0) continue;
          Tap tap = cell(down.place[a], across.place[b]);
          tap.weight = weight;
          taps.push_back(tap);
        }
      }
      // Taps of the same sequence come together, so that it sends one row.
      std::stable_sort(taps.begin(), taps.end(),
                       [](const Tap& x, const Tap& y) { return x.sequence < y.sequence; });
      add_token(medium, taps);
    }
    if (end_rows) add_newline(medium);
  }
}

/// Returns the pinpoint (height and width) that keeps the most of a picture, with the least waste
/// (transformers image_processing_utils.py, select_best_resolution).
std::pair<int, int> best_pinpoint(const PictureGeometry& picture, ImageSize size) {
  std::pair<int, int> best;
  std::int64_t most = -1;
  std::int64_t least_waste = std::numeric_limits<std::int64_t>::max();
  for (const auto& [height, width] : picture.pinpoints) {
    const double scale =
        std::min(static_cast<double>(width) / size.width, static_cast<double>(height) / size.height);
    const std::int64_t kept = std::min(
        static_cast<std::int64_t>(size.width * scale) * static_cast<std::int64_t>(size.height * scale),
        std::int64_t{size.width} * size.height);
    const std::int64_t waste = std::int64_t{height} * width - kept;
    if (kept < most || (kept == most && waste >= least_waste)) continue;
    best = {height, width};
    most = kept;
    least_waste = waste;
  }
  return best;
}

void add_grid(MediumContent& medium, const PictureGeometry& picture, ImageSize size) {
  const std::int64_t side = picture.tile / picture.patch;
  const auto [height, width] = best_pinpoint(picture, size);
  const LlavaGrid grid = llava_shown(size, {width, height}, picture.tile, side, picture.most_tiles);
  if (grid.tile_rows * grid.tile_columns + 1 != std::ssize(medium.sequences)) {
    refuse_input("", "a picture of {} x {} has {} tiles, found {}", size.width, size.height,
                 grid.tile_rows * grid.tile_columns + 1, medium.sequences.size());
  }
  add_shrunk(
      medium, {grid.rows, grid.columns}, {grid.shown_rows, grid.shown_columns}, true,
      [&](std::int64_t row, std::int64_t column) {
        row += grid.top;
        column += grid.left;
        return Tap{1 + row / side * grid.tile_columns + column / side, row % side * side + column % side};
      });
}

}  // namespace

MediumContent llava_picture(const Architecture& architecture, std::int64_t tiles,
                            std::span<const float> values, ImageSize size, bool in_grid) {
  MediumContent medium;
  add_tiles(medium, architecture, tiles, values);
  if (medium.sequences.empty()) refuse_input("", "a picture has no tile");
  add_rows_of_tile(medium, architecture);
  if (in_grid) {
    add_grid(medium, architecture.picture, size);
  } else {
    add_newline(medium);
  }
  return medium;
}

MediumContent clip_picture(const Architecture& architecture, std::span<const float> values) {
  MediumContent medium;
  add_tiles(medium, architecture, 1, values);
  add_rows_of_tile(medium, architecture);
  return medium;
}

MediumContent llava_video(const Architecture& architecture, std::int64_t frames,
                          std::span<const float> values) {
  const std::int64_t side = architecture.picture.tile / architecture.picture.patch;
  const std::int64_t small = (side + 1) / 2;
  MediumContent medium;
  add_tiles(medium, architecture, frames, values);
  for (std::int64_t f = 0; f < frames; ++f) {
    add_shrunk(medium, {side, side}, {small, small}, false, [&](std::int64_t row, std::int64_t column) {
      return Tap{f, row * side + column};
    });
  }
  add_newline(medium);
  return medium;
}

MediumContent internvl_picture(const Architecture& architecture, std::int64_t tiles,
                               std::span<const float> values) {
  const PictureGeometry& picture = architecture.picture;
  const std::int64_t side = picture.tile / picture.patch;
  const std::int64_t merge = picture.merge;
  const std::int64_t blocks = side / merge;
  require_values(values, tiles * 3 * picture.tile * picture.tile);
  // Patches come square by square, so that patches that are merged are adjacent.
  const auto place = [&](std::int64_t i) {
    const std::int64_t block = i / (merge * merge);
    const std::int64_t inside = i % (merge * merge);
    return std::pair(block / blocks * merge + inside / merge, block % blocks * merge + inside % merge);
  };
  MediumContent medium;
  for (std::int64_t t = 0; t < tiles; ++t) {
    EncoderSequence sequence;
    sequence.rows = side * side + 1;
    sequence.value_rows.push_back(-1);
    sequence.table_rows.push_back(0);
    for (std::int64_t i = 0; i < side * side; ++i) {
      const auto [row, column] = place(i);
      sequence.value_rows.push_back(static_cast<std::int32_t>(i));
      sequence.table_rows.push_back(static_cast<std::int32_t>(1 + row * side + column));
      sequence.select.add_mean(1 + i, 2 + i);
    }
    if (!values.empty()) {
      sequence.values =
          patches_of(tile_of(values, t, picture.tile), picture.tile, picture.patch, side * side, place);
    }
    medium.sequences.push_back(std::move(sequence));
    for (std::int64_t row = 0; row < blocks * blocks; ++row) add_token(medium, {{{t, row}}});
  }
  return medium;
}

namespace {

/// Adds a patch's mixture of a square table's rows. The corners of the grid of patches are the corners of the
/// table (transformers modeling_qwen3_vl.py, fast_pos_embed_interpolate).
void add_spread(RowMix& mix, std::int64_t table, const PatchGrid& grid, std::int64_t row,
                std::int64_t column) {
  const std::int64_t side = std::llround(std::sqrt(static_cast<double>(table)));
  const auto taps = [&](std::int64_t at, std::int64_t of) {
    const double place =
        static_cast<double>(at * (side - 1)) / static_cast<double>(std::max<std::int64_t>(of - 1, 1));
    const auto first = static_cast<std::int64_t>(place);
    const double second = place - static_cast<double>(first);
    return LineTaps{{first, std::min(first + 1, side - 1)}, {1 - second, second}};
  };
  const LineTaps down = taps(row, grid.rows);
  const LineTaps across = taps(column, grid.columns);
  mix.add_row();
  for (std::size_t a = 0; a < 2; ++a) {
    for (std::size_t b = 0; b < 2; ++b) {
      const double weight = down.weight[a] * across.weight[b];
      if (weight != 0) mix.add_tap(down.place[a] * side + across.place[b], weight);
    }
  }
}

}  // namespace

namespace {

/// Returns the largest position of a medium's tokens, on any axis.
std::int32_t last_position(const MediumContent& medium) {
  std::int32_t last = 0;
  for (const auto& axes : medium.positions) last = std::max(last, std::ranges::max(axes));
  return last;
}

}  // namespace

MediumContent qwen_picture(const Architecture& architecture, const PatchGrid& grid,
                           std::span<const float> values, std::optional<double> seconds_per_slot) {
  const PictureGeometry& picture = architecture.picture;
  const std::int64_t merge = picture.merge;
  if (grid.slots < 1 || grid.rows < 1 || grid.columns < 1 || grid.rows % merge != 0 ||
      grid.columns % merge != 0) {
    refuse_input("", "a grid of {} x {} x {} patches cannot be merged by {} x {}", grid.slots, grid.rows,
                 grid.columns, merge, merge);
  }
  const Rectangle merged{grid.rows / merge, grid.columns / merge};
  const std::int64_t square = merge * merge;
  const std::int64_t per_patch = architecture.front.values;
  require_values(values, grid.slots * grid.rows * grid.columns * per_patch);
  const bool is_omni = architecture.family == ModelFamily::qwen2_5_omni;
  const auto time_of = [&](std::int64_t slot) {
    if (!seconds_per_slot || picture.positions_per_s == 0) return static_cast<std::int32_t>(slot);
    // transformers computes these in single precision, whose rounding decides whether 1.9999 is a 2.
    const auto at = static_cast<float>(slot);
    const auto seconds = static_cast<float>(*seconds_per_slot);
    const auto rate = static_cast<float>(picture.positions_per_s);
    return static_cast<std::int32_t>(is_omni ? at * seconds * rate : at * (rate * seconds));
  };
  // Without windows, all squares of a picture come in raster order, as in one window.
  const std::int64_t window = picture.window > 0 ? picture.window : std::max(merged.rows, merged.columns);
  MediumContent medium;
  for (std::int64_t slot = 0; slot < grid.slots; ++slot) {
    EncoderSequence sequence;
    sequence.rows = grid.rows * grid.columns;
    if (picture.window > 0) sequence.windows.push_back(0);
    std::vector<float> patches;
    if (!values.empty()) patches.reserve(static_cast<std::size_t>(sequence.rows * per_patch));
    std::vector<std::int64_t> place_of(static_cast<std::size_t>(merged.rows * merged.columns));
    std::int64_t place = 0;
    const auto add_square = [&](std::int64_t row, std::int64_t column) {
      const std::int64_t group = row * merged.columns + column;
      place_of[static_cast<std::size_t>(group)] = place++;
      for (std::int64_t inside = 0; inside < square; ++inside) {
        const std::int64_t patch_row = row * merge + inside / merge;
        const std::int64_t patch_column = column * merge + inside % merge;
        sequence.positions.push_back(static_cast<std::int32_t>(patch_row));
        sequence.positions.push_back(static_cast<std::int32_t>(patch_column));
        if (architecture.front.spread_table)
          add_spread(sequence.table_mix, architecture.front.table, grid, patch_row, patch_column);
      }
      if (values.empty()) return;
      const auto from = values.begin() + (slot * merged.rows * merged.columns + group) * square * per_patch;
      patches.insert(patches.end(), from, from + square * per_patch);
    };
    for (std::int64_t top = 0; top < merged.rows; top += window) {
      for (std::int64_t left = 0; left < merged.columns; left += window) {
        for (std::int64_t row = top; row < std::min(top + window, merged.rows); ++row) {
          for (std::int64_t column = left; column < std::min(left + window, merged.columns); ++column) {
            add_square(row, column);
          }
        }
        if (picture.window > 0) sequence.windows.push_back(static_cast<std::int32_t>(place * square));
      }
    }
    sequence.values = std::move(patches);
    medium.sequences.push_back(std::move(sequence));
    for (std::int64_t row = 0; row < merged.rows; ++row) {
      for (std::int64_t column = 0; column < merged.columns; ++column) {
        add_token(medium, {{{slot, place_of[static_cast<std::size_t>(row * merged.columns + column)]}}});
        medium.positions.push_back(
            {time_of(slot), static_cast<std::int32_t>(row), static_cast<std::int32_t>(column)});
      }
    }
  }
  medium.span =
      is_omni ? last_position(medium) + 1 : static_cast<std::int32_t>(std::max(merged.rows, merged.columns));
  return medium;
}

namespace {

/// A SoundPart is the rows and tokens of a sound, or of a part of one, with this many frames. The second
/// convolution takes every other frame, and the connector averages pairs of rows.
struct SoundPart {
  explicit SoundPart(std::int64_t frames) : rows(frames < 1 ? 0 : (frames - 1) / 2 + 1), tokens(rows / 2) {}

  std::int64_t rows;
  std::int64_t tokens;
};

/// Adds a sequence of `part` from a log-mel spectrum, float[bins, all_frames], of which it gets the frames
/// [begin, end).
void add_sound_part(MediumContent& medium, const SoundPart& part, bool second, std::int64_t bins,
                    std::span<const float> values, std::int64_t all_frames, std::int64_t begin,
                    std::int64_t end) {
  EncoderSequence sequence;
  sequence.second = second;
  sequence.rows = part.rows;
  for (std::int32_t row = 0; row < part.rows; ++row) sequence.table_rows.push_back(row);
  std::vector<float> by_frames;
  by_frames.reserve(values.empty() ? 0 : static_cast<std::size_t>((end - begin) * bins));
  for (std::int64_t frame = begin; !values.empty() && frame < end; ++frame) {
    for (std::int64_t bin = 0; bin < bins; ++bin)
      by_frames.push_back(values[static_cast<std::size_t>(bin * all_frames + frame)]);
  }
  sequence.values = std::move(by_frames);
  for (std::int64_t t = 0; t < part.tokens; ++t) sequence.select.add_mean(2 * t, 2 * t + 2);
  const auto place = std::ssize(medium.sequences);
  medium.sequences.push_back(std::move(sequence));
  for (std::int64_t t = 0; t < part.tokens; ++t) add_token(medium, {{{place, t}}});
}

}  // namespace

MediumContent qwen_sound(const ModelSpec& model, std::int64_t frames, std::int64_t valid,
                         std::span<const float> values) {
  const EncoderFront front = model.second ? model.second->front : model.front();
  const std::int64_t part = model.architecture->sound.part;
  const std::int64_t bins = front.values;
  require_values(values, bins * frames);
  const std::int64_t longest = part > 0 ? part : valid;
  if (SoundPart(valid).tokens < 1 || valid > frames ||
      SoundPart(std::min(valid, longest)).rows > front.table) {
    refuse_input("",
                 "found {} frames of a sound, {} with padding: expected at least 3, and at most {} with "
                 "padding",
                 valid, frames, 2 * front.table);
  }
  MediumContent medium;
  const bool second = model.second.has_value();
  if (part == 0) {
    add_sound_part(medium, SoundPart(valid), second, bins, values, frames, 0, frames);
    return medium;
  }
  for (std::int64_t begin = 0; begin < valid; begin += part) {
    const std::int64_t end = std::min(valid, begin + part);
    const SoundPart one(end - begin);
    if (one.tokens > 0) add_sound_part(medium, one, second, bins, values, frames, begin, end);
  }
  for (std::int32_t t = 0; t < medium.tokens; ++t) medium.positions.push_back({t, t, t});
  medium.span = static_cast<std::int32_t>(medium.tokens);
  return medium;
}

namespace {

/// Returns where the chunks of a medium's tokens end. As in transformers, a token beyond the end of its chunk
/// ends only one chunk, however far beyond it is.
std::vector<std::size_t> chunk_ends(const MediumContent& medium, std::int64_t chunk) {
  std::vector<std::size_t> ends;
  std::int64_t end = chunk;
  for (std::size_t t = 0; t < medium.positions.size(); ++t) {
    if (medium.positions[t][0] < end) continue;
    ends.push_back(t);
    end += chunk;
  }
  ends.push_back(medium.positions.size());
  return ends;
}

}  // namespace

MediumContent qwen_video_with_sound(const Architecture& architecture, MediumContent video,
                                    MediumContent sound) {
  MediumContent both;
  const auto place_of = [&](const MediumContent& from, std::size_t token, bool is_sound) {
    both.positions.push_back(from.positions[token]);
    both.heard.push_back(is_sound);
    return static_cast<std::int32_t>(both.tokens++);
  };
  const std::vector<std::size_t> seen = chunk_ends(video, architecture.sound.positions_per_chunk);
  const std::vector<std::size_t> heard = chunk_ends(sound, architecture.sound.positions_per_chunk);
  std::vector<std::int32_t> video_places;
  std::vector<std::int32_t> sound_places;
  for (std::size_t c = 0; c < std::max(seen.size(), heard.size()); ++c) {
    while (c < seen.size() && video_places.size() < seen[c])
      video_places.push_back(place_of(video, video_places.size(), false));
    while (c < heard.size() && sound_places.size() < heard[c])
      sound_places.push_back(place_of(sound, sound_places.size(), true));
  }
  const auto move_in = [&](MediumContent& from, const std::vector<std::int32_t>& places) {
    for (EncoderSequence& sequence : from.sequences) {
      for (std::int32_t& place : sequence.places) place = places[static_cast<std::size_t>(place)];
      both.sequences.push_back(std::move(sequence));
    }
  };
  move_in(video, video_places);
  move_in(sound, sound_places);
  both.span = both.positions.empty() ? 0 : std::ranges::max(both.positions.back()) + 1;
  return both;
}

}  // namespace dflop
