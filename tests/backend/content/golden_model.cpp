#include "tests/backend/content/golden_model.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>

#include "traces/families/hugging_face.hpp"
#include "traces/media/processors.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"
#include "traces/weights/safetensors.hpp"

namespace dflop::testing {
namespace {

namespace fs = std::filesystem;

GoldenTensor read_tensor(const SafetensorsFile& file, const StoredTensor& tensor) {
  GoldenTensor golden{tensor.shape,
                      std::vector<double>(static_cast<std::size_t>(tensor.rows * tensor.columns))};
  if (is_decoded(tensor.dtype)) {
    file.read_block(tensor, whole(tensor), golden.values);
    return golden;
  }
  const std::span<const std::byte> bytes = file.bytes(tensor);  // 64-bit integers
  for (std::size_t i = 0; i < golden.values.size(); ++i) {
    std::int64_t value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    golden.values[i] = static_cast<double>(value);
  }
  return golden;
}

GoldenTensors read_tensors(const fs::path& folder, const std::string& prefix) {
  GoldenTensors tensors;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(".safetensors")) continue;
    const SafetensorsFile file(entry.path().string());
    for (const StoredTensor& tensor : file.tensors()) tensors[tensor.name] = read_tensor(file, tensor);
  }
  return tensors;
}

std::vector<std::int32_t> ints(const GoldenTensor& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}

std::vector<float> floats(const GoldenTensor& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}

/// SampleInputs gives access to one sample's tensors by name.
class SampleInputs {
 public:
  SampleInputs(const GoldenTensors& all, int sample)
      : all_(all), prefix_("s" + std::to_string(sample) + ".") {}
  const GoldenTensor* find(const std::string& name) const {
    const auto found = all_.find(prefix_ + name);
    return found == all_.end() ? nullptr : &found->second;
  }

 private:
  const GoldenTensors& all_;
  std::string prefix_;
};

/// Returns whether videos come before pictures in a sample: {true, false} or {false, true}.
std::vector<bool> media_order(const Architecture& of, const SampleInputs& inputs) {
  const std::vector<std::int32_t> ids = ints(*inputs.find("input_ids"));
  const auto first = [&](std::int64_t token) { return std::find(ids.begin(), ids.end(), token); };
  const bool video_first = first(of.video_token) < first(of.image_token);
  return {video_first, !video_first};
}

/// Returns the number of tiles of a LLaVA-NeXT picture. Pictures of a batch are padded to the most tiles.
std::int64_t tiles_of(const Architecture& of, ImageSize image) {
  LlavaProcessor processor;
  processor.tile = of.picture.tile;
  processor.pinpoints.clear();
  for (const auto& [height, width] : of.picture.pinpoints) processor.pinpoints.push_back({width, height});
  return llava_tile_count(image, processor);
}

/// Returns the sounds of a sample. All sounds of a batch are padded to one length.
std::vector<MediumContent> sounds_of(const ModelSpec& model, const SampleInputs& inputs) {
  const GoldenTensor* mel = inputs.find("input_features");
  if (mel == nullptr) return {};
  std::vector<MediumContent> sounds;
  const GoldenTensor& mask = *inputs.find("feature_attention_mask");
  const auto values = floats(*mel);
  const std::int64_t frames = mel->shape[2];
  const auto size = static_cast<std::size_t>(mel->shape[1] * frames);
  for (std::int64_t s = 0; s < mel->shape[0]; ++s) {
    double valid = 0;
    for (std::int64_t f = 0; f < frames; ++f) valid += mask.values[static_cast<std::size_t>(s * frames + f)];
    sounds.push_back(qwen_sound(model, frames, static_cast<std::int64_t>(valid),
                                std::span(values).subspan(static_cast<std::size_t>(s) * size, size)));
  }
  return sounds;
}

/// Returns the media of a Qwen2.5-Omni sample, in the order of its tokens. A sample of the golden data has
/// at most one picture and one video.
std::vector<MediumContent> omni_media(const ModelSpec& model, const SampleInputs& inputs) {
  const Architecture& of = *model.architecture;
  const auto grid_of = [&](const char* name) {
    const auto grid = ints(*inputs.find(name));
    return PatchGrid{grid[0], grid[1], grid[2]};
  };
  std::vector<MediumContent> sounds = sounds_of(model, inputs);
  std::vector<MediumContent> media;
  std::size_t next_sound = 0;
  const std::vector<std::int32_t> ids = ints(*inputs.find("input_ids"));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!of.is_medium(ids[i]) || (i > 0 && of.is_medium(ids[i - 1]))) continue;
    if (ids[i] == of.audio_token) {
      media.push_back(sounds.at(next_sound++));
    } else if (ids[i] == of.image_token) {
      const auto values = floats(*inputs.find("pixel_values"));
      media.push_back(qwen_picture(of, grid_of("image_grid_thw"), values, std::nullopt));
    } else {
      const auto values = floats(*inputs.find("pixel_values_videos"));
      media.push_back(qwen_picture(of, grid_of("video_grid_thw"), values,
                                   inputs.find("video_second_per_grid")->values[0]));
      if (inputs.find("use_audio_in_video") != nullptr)
        media.back() = qwen_video_with_sound(of, std::move(media.back()), sounds.at(next_sound++));
    }
  }
  return media;
}

std::vector<MediumContent> media_of(const ModelSpec& model, const SampleInputs& inputs) {
  const Architecture& of = *model.architecture;
  std::vector<MediumContent> media;
  const GoldenTensor* pixels = inputs.find("pixel_values");
  const GoldenTensor* video = inputs.find("pixel_values_videos");
  switch (of.family) {
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
    case ModelFamily::llama:
      break;
    case ModelFamily::llava:
      for (std::int64_t i = 0; pixels != nullptr && i < pixels->shape[0]; ++i) {
        const auto values = floats(*pixels);
        const auto size = values.size() / static_cast<std::size_t>(pixels->shape[0]);
        media.push_back(
            clip_picture(of, std::span(values).subspan(static_cast<std::size_t>(i) * size, size)));
      }
      break;
    case ModelFamily::llava_next:
    case ModelFamily::llava_onevision: {
      const bool several =
          of.family == ModelFamily::llava_onevision && inputs.find("batch_num_images") != nullptr;
      for (std::int64_t i = 0; pixels != nullptr && i < pixels->shape[0]; ++i) {
        const auto values = floats(*pixels);
        const auto size = values.size() / static_cast<std::size_t>(pixels->shape[0]);
        const auto& sizes = inputs.find("image_sizes")->values;
        const ImageSize image{static_cast<std::int32_t>(sizes[2 * i + 1]),
                              static_cast<std::int32_t>(sizes[2 * i])};
        const std::int64_t tiles =
            of.family == ModelFamily::llava_next ? tiles_of(of, image) : pixels->shape[1];
        const auto used = size * static_cast<std::size_t>(tiles) / static_cast<std::size_t>(pixels->shape[1]);
        media.push_back(llava_picture(
            of, tiles, std::span(values).subspan(static_cast<std::size_t>(i) * size, used), image, !several));
      }
      if (video != nullptr) media.push_back(llava_video(of, video->shape[1], floats(*video)));
      break;
    }
    case ModelFamily::internvl:
      // Each run of image tokens is one picture. Pictures of the golden data have three tiles or one.
      if (pixels != nullptr) {
        const auto values = floats(*pixels);
        const bool one = pixels->shape[0] == 3;
        const auto many = static_cast<std::size_t>(one ? 1 : pixels->shape[0]);
        for (std::size_t i = 0; i < many; ++i) {
          media.push_back(
              internvl_picture(of, pixels->shape[0] / static_cast<std::int64_t>(many),
                               std::span(values).subspan(i * values.size() / many, values.size() / many)));
        }
      }
      break;
    case ModelFamily::qwen2_vl:
    case ModelFamily::qwen2_5_vl:
    case ModelFamily::qwen3_vl:
      for (const bool moving : media_order(of, inputs)) {
        const GoldenTensor* values = moving ? video : pixels;
        if (values == nullptr) continue;
        const auto grids = ints(*inputs.find(moving ? "video_grid_thw" : "image_grid_thw"));
        const auto all = floats(*values);
        std::size_t first = 0;
        for (std::size_t g = 0; g + 2 < grids.size(); g += 3) {
          // Each frame of a Qwen3-VL video is a picture of its own.
          const std::int32_t apart = of.family == ModelFamily::qwen3_vl ? grids[g] : 1;
          const PatchGrid grid{grids[g] / apart, grids[g + 1], grids[g + 2]};
          const auto count =
              static_cast<std::size_t>(grid.slots * grid.rows * grid.columns * values->shape[1]);
          std::optional<double> seconds;
          if (const GoldenTensor* step = inputs.find("second_per_grid_ts"); moving && step != nullptr) {
            seconds = step->values[g / 3];
          }
          for (std::int32_t frame = 0; frame < apart; ++frame, first += count)
            media.push_back(qwen_picture(of, grid, std::span(all).subspan(first, count), seconds));
        }
      }
      break;
    case ModelFamily::qwen2_audio:
      return sounds_of(model, inputs);
    case ModelFamily::qwen2_5_omni:
      return omni_media(model, inputs);
  }
  return media;
}

}  // namespace

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(DFLOP_SOURCE_DIR) / "tests/golden/models")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

GoldenModel read_golden_model(const std::string& name, const std::function<void(ModelSpec&)>& change) {
  const fs::path folder = fs::path(DFLOP_SOURCE_DIR) / "tests/golden/models" / name;
  GoldenModel model;
  model.name = name;
  model.folder = folder.string();
  model.spec = parse_hugging_face(read_text_file((folder / "config.json").string()), name);
  if (change) change(model.spec);
  model.weights = read_tensors(folder, "model");
  model.gradients = read_tensors(folder, "gradients");
  const GoldenTensors inputs = read_tensors(folder, "inputs");
  model.contents = std::make_shared<StoredContents>();
  for (int s = 0; inputs.count("s" + std::to_string(s) + ".input_ids") > 0; ++s) {
    const SampleInputs of(inputs, s);
    const std::string id = name + " " + std::to_string(s);
    SampleContent content = make_content(model.spec, id, ints(*of.find("input_ids")),
                                         ints(*of.find("labels")), media_of(model.spec, of));
    model.samples.push_back(shape_of(model.spec, id, content));
    model.contents->keep(id, std::move(content));
  }
  const std::string text = read_text_file((folder / "golden.json").string());
  const JsonDocument golden(text, name);
  const JsonValue root = golden.root();
  model.loss = root.at("loss").number();
  model.gradient_norm = root.at("gradient_norm").number();
  for (const JsonValue& zero : root.at("gradients_that_are_zero").elements())
    model.zero.push_back(zero.string());
  for (const JsonValue& step : root.at("adamw").at("steps").elements()) {
    model.losses.push_back(step.at("loss").number());
    model.rates.push_back(step.at("lr").number());
    model.gradient_norms.push_back(step.at("grad_norm").number());
  }
  model.losses.push_back(root.at("adamw").at("loss_after").number());
  return model;
}

SampleContent content_of(const GoldenModel& model, const Sample& sample) {
  SampleContent content{{}, *model.contents->tokens(sample)};
  for (std::int64_t s = 0; s < sample.encoder().sequences; ++s)
    content.sequences.push_back(*model.contents->encoder(sample, s, true));
  return content;
}

WholeTensors from_stored(const GoldenModel& model, const GoldenTensors& stored, const WholeTensors& like) {
  const StoredNames names(model.spec, [&](const std::string& name) { return model.weights.count(name) > 0; });
  WholeTensors tensors;
  for (const auto& [name, tensor] : like) {
    WholeTensor whole{tensor.rows, tensor.columns, {}};
    for (const StoredPart& part : names.parts(name, tensor.rows, tensor.columns)) {
      const auto count = static_cast<std::size_t>(part.rows * tensor.columns);
      const auto found = stored.find(part.name);
      if (part.absent || found == stored.end()) {
        whole.values.insert(whole.values.end(), count, 0.0);
        continue;
      }
      const std::vector<double>& from = found->second.values;
      const auto taps = static_cast<std::size_t>(part.taps);
      const auto columns = static_cast<std::size_t>(tensor.columns);
      for (std::size_t i = 0; i < from.size(); ++i) {
        const std::size_t column = i % columns;
        const std::size_t stored_column = column % (columns / taps) * taps + column / (columns / taps);
        whole.values.push_back(from[i - column + stored_column]);
      }
    }
    tensors[name] = std::move(whole);
  }
  return tensors;
}

}  // namespace dflop::testing
