#include "experiments/checks/paper/store.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/presets/presets.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCellVersion = 1;

std::string preset_text(std::string_view kind, std::string_view name) {
  for (const Preset& preset : presets()) {
    if (preset.kind == kind && preset.name == name) return std::string(preset.json);
  }
  return "";
}

std::string print_of(std::string_view text) {
  return fmt::format("{:016x}", stable_hash(text));
}

Json json_of(const FigureRow& row) {
  Json json;
  json["name"] = row.name;
  json["detail"] = row.detail;
  json["figures"] = row.figures;
  return json;
}

FigureRow row_of(const Json& json) {
  FigureRow row{json.at("name"), json.at("detail")};
  for (const auto& [key, value] : json.at("figures").items()) row.figures[key] = value.get<double>();
  return row;
}

}  // namespace

CellStore::CellStore(const std::string& folder, std::string data)
    : folder_(folder + "/cells"), data_(std::move(data)) {
  make_output_directory(folder_);
}

std::string CellStore::key_of(const StudyCell& cell, const Setting& setting) const {
  std::vector<std::string_view> modalities;
  for (const Modality modality : cell.modalities) modalities.push_back(to_string(modality));
  Json key;
  key["version"] = fmt::format("{} {}", DFLOP_VERSION, kCellVersion);
  key["kind"] = to_string(cell.kind);
  key["model"] = cell.model;
  key["model_print"] = print_of(preset_text("models", cell.model));
  key["cluster"] = fmt::format("{}:{}", kStudyCluster, cell.nodes);
  key["cluster_print"] = print_of(preset_text("clusters", kStudyCluster));
  key["data"] = cell.data;
  key["data_print"] = print_of(read_text_file(data_ + "/" + cell.data));
  key["modalities"] = fmt::format("{}", fmt::join(modalities, ","));
  key["gbs"] = cell.gbs;
  key["iterations"] = cell.iterations;
  key["setting"] = setting.name;
  return key.dump();
}

std::string CellStore::file_of(const std::string& key) const {
  return fmt::format("{}/{}.json", folder_, print_of(key));
}

std::optional<std::vector<FigureRow>> CellStore::find(const StudyCell& cell, const Setting& setting) const {
  const std::string key = key_of(cell, setting);
  const std::string file = file_of(key);
  std::error_code ignored;
  const auto kind = std::filesystem::symlink_status(file, ignored).type();
  if (kind == std::filesystem::file_type::not_found) return std::nullopt;
  if (kind != std::filesystem::file_type::regular)
    throw Error(ErrorKind::output, "expected a regular file with a cell of a study, found something else",
                file);
  try {
    const Json json = Json::parse(read_text_file(file));
    if (json.at("key").dump() != key) return std::nullopt;
    std::vector<FigureRow> rows;
    for (const Json& row : json.at("rows")) rows.push_back(row_of(row));
    return rows;
  } catch (const Json::exception&) {
    say("'{}' is damaged and is run again: ", file);
    return std::nullopt;
  }
}

void CellStore::keep(const StudyCell& cell, const Setting& setting,
                     const std::vector<FigureRow>& rows) const {
  const std::string key = key_of(cell, setting);
  Json json;
  json["schema"] = "dflop.study_cell";
  json["version"] = kCellVersion;
  json["key"] = Json::parse(key);
  json["rows"] = Json::array();
  for (const FigureRow& row : rows) json["rows"].push_back(json_of(row));
  write_file_atomically(file_of(key), json.dump(1) + "\n");
}

}  // namespace dflop
