#include "traces/files/provenance.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/support/random.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMaxIteration = 1'000'000'000'000;
constexpr std::size_t kLongestLine = 2000;

using Json = nlohmann::ordered_json;

Json json_of(const Origin& origin) {
  return {{"name", origin.name}, {"hash", origin.hash}};
}

Json json_of(const Provenance& made_by) {
  Json json{{"version", made_by.version}, {"commit", made_by.commit}, {"command", made_by.command}};
  if (made_by.model) json["model"] = json_of(*made_by.model);
  if (made_by.cluster) json["cluster"] = json_of(*made_by.cluster);
  if (made_by.plan) json["plan"] = json_of(*made_by.plan);
  if (made_by.profile) json["profile"] = json_of(*made_by.profile);
  if (made_by.kernels) json["kernels"] = json_of(*made_by.kernels);
  if (made_by.data) {
    json["data"] = json_of(static_cast<const Origin&>(*made_by.data));
    json["data"]["samples"] = made_by.data->samples;
    json["data"]["assumptions"] = made_by.data->assumptions;
    if (const SampleCut& cut = made_by.data->cut; cut.longest > 0) {
      json["data"]["cut"] = {
          {"longest", cut.longest}, {"samples", cut.samples}, {"tokens", cut.tokens}, {"lost", cut.lost}};
      if (cut.drops) json["data"]["cut"]["drops"] = true;
    }
    if (!made_by.data->delay.empty()) json["data"]["delay"] = made_by.data->delay;
  }
  if (made_by.gbs) json["gbs"] = *made_by.gbs;
  if (made_by.seed) json["seed"] = *made_by.seed;
  if (made_by.first_iteration) json["first_iteration"] = *made_by.first_iteration;
  if (made_by.machine) {
    const MachineOrigin& machine = *made_by.machine;
    json["machine"] = {{"host", machine.host}, {"processor", machine.processor}, {"cores", machine.cores}};
    if (machine.others) json["machine"]["others"] = *machine.others;
  }
  return json;
}

std::string text_at(const JsonValue& json, std::string_view key) {
  return json.has(key) ? json.at(key).string() : std::string();
}

Origin read_origin(const JsonValue& json) {
  return {json.at("name").string(), text_at(json, "hash")};
}

std::optional<Origin> origin_at(const JsonValue& json, std::string_view key) {
  return json.has(key) ? std::optional(read_origin(json.at(key))) : std::nullopt;
}

std::optional<std::int64_t> count_at(const JsonValue& json, std::string_view key) {
  return json.has(key) ? std::optional(json.at(key).integer<std::int64_t>(0)) : std::nullopt;
}

DataOrigin read_data(const JsonValue& json) {
  DataOrigin data{read_origin(json)};
  data.samples = count_at(json, "samples").value_or(0);
  if (json.has("assumptions")) {
    for (const JsonValue& line : json.at("assumptions").elements()) data.assumptions.push_back(line.string());
  }
  if (json.has("cut")) {
    const JsonValue cut = json.at("cut");
    data.cut = {count_at(cut, "longest").value_or(0), count_at(cut, "samples").value_or(0),
                count_at(cut, "tokens").value_or(0), count_at(cut, "lost").value_or(0)};
    data.cut.drops = cut.has("drops") && cut.at("drops").boolean();
  }
  data.delay = text_at(json, "delay");
  return data;
}

MachineOrigin read_machine(const JsonValue& json) {
  MachineOrigin machine{text_at(json, "host"), text_at(json, "processor"),
                        count_at(json, "cores").value_or(0)};
  if (json.has("others")) machine.others = json.at("others").number_in(0, 1);
  return machine;
}

std::string text_of(const Origin& origin) {
  return origin.hash.empty() ? origin.name : fmt::format("{} ({})", origin.name, origin.hash);
}

std::string text_of(const DataOrigin& data) {
  std::string text = fmt::format("{} ({} samples, {})", data.name, data.samples, data.hash);
  for (const std::string& assumption : data.assumptions) text += "; " + assumption;
  if (!data.delay.empty()) text += "; " + data.delay;
  return text;
}

std::string text_of(const MachineOrigin& machine) {
  std::string text = fmt::format("{}: {} cores of {}", machine.host, machine.cores, machine.processor);
  if (machine.others)
    text += fmt::format("; other processes took {:.1f} % of its time", 100 * *machine.others);
  return text;
}

/// Origins with equal contents are equal, even under different names; unknown contents are compared by name.
bool contradict(const Origin& a, const Origin& b) {
  return a.hash.empty() || b.hash.empty() ? a.name != b.name : a.hash != b.hash;
}

}  // namespace

std::string content_hash(std::string_view contents) {
  return fmt::format("{:016x}", stable_hash(contents));
}

std::string with_provenance(std::string json, const Provenance& made_by) {
  const std::size_t end = json.rfind('}');
  std::size_t last = json.find_last_not_of(" \n", end - 1);
  std::string member = fmt::format(R"({}
  "{}": {})",
                                   json[last] == '{' ? "" : ",", kMadeBy,
                                   json_of(made_by).dump(-1, ' ', false, Json::error_handler_t::replace));
  json.replace(last + 1, end - last - 1, member + "\n");
  return json;
}

std::optional<Provenance> read_provenance(const JsonValue& root) {
  if (!root.has(kMadeBy)) return std::nullopt;
  const JsonValue json = root.at(kMadeBy);
  json.require_object();
  Provenance made_by{text_at(json, "version"), text_at(json, "commit"), text_at(json, "command")};
  made_by.model = origin_at(json, "model");
  made_by.cluster = origin_at(json, "cluster");
  made_by.plan = origin_at(json, "plan");
  made_by.profile = origin_at(json, "profile");
  made_by.kernels = origin_at(json, "kernels");
  if (json.has("data")) made_by.data = read_data(json.at("data"));
  made_by.gbs = count_at(json, "gbs");
  if (json.has("seed")) made_by.seed = json.at("seed").unsigned_integer();
  if (json.has("first_iteration"))
    made_by.first_iteration = json.at("first_iteration").integer<std::int64_t>(0, kMaxIteration);
  if (json.has("machine")) made_by.machine = read_machine(json.at("machine"));
  return made_by;
}

std::optional<Provenance> parse_provenance(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  root.require_object();
  return read_provenance(root);
}

std::vector<std::string> provenance_lines(const Provenance& made_by) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view what, const std::string& text) {
    if (text.empty()) return;
    const bool is_long = text.size() > kLongestLine;
    lines.push_back(fmt::format("{:<9} {}{}", what, text.substr(0, kLongestLine), is_long ? "..." : ""));
  };
  add("made by", fmt::format("dflop {}{}", made_by.version,
                             made_by.commit.empty() ? "" : fmt::format(" ({})", made_by.commit)));
  add("command", made_by.command);
  for (const auto& [what, origin] :
       {std::pair("model", &made_by.model), std::pair("cluster", &made_by.cluster),
        std::pair("plan", &made_by.plan), std::pair("profile", &made_by.profile),
        std::pair("kernels", &made_by.kernels)}) {
    if (*origin) add(what, text_of(**origin));
  }
  if (made_by.data) add("data", text_of(*made_by.data));
  std::string batches;
  if (made_by.gbs) batches = fmt::format("{} samples", *made_by.gbs);
  if (made_by.seed) batches += fmt::format("{}seed {}", batches.empty() ? "" : ", ", *made_by.seed);
  if (made_by.first_iteration.value_or(0) > 0) {
    batches += fmt::format("{}from iteration {} on", batches.empty() ? "" : ", ", *made_by.first_iteration);
  }
  add("batches", batches);
  if (made_by.machine) add("machine", text_of(*made_by.machine));
  return lines;
}

std::vector<std::string> contradictions(const Provenance& a, const Provenance& b) {
  std::vector<std::string> found;
  const auto compare = [&](std::string_view what, const auto& one, const auto& other) {
    if (!one || !other || !contradict(*one, *other)) return;
    found.push_back(fmt::format("{} {} and {}", what, text_of(static_cast<const Origin&>(*one)),
                                text_of(static_cast<const Origin&>(*other))));
  };
  compare("model", a.model, b.model);
  compare("cluster", a.cluster, b.cluster);
  compare("data", a.data, b.data);
  if (a.data && b.data && !contradict(*a.data, *b.data)) {
    if (a.data->samples > 0 && b.data->samples > 0 && a.data->samples != b.data->samples) {
      found.push_back(fmt::format("{} and {} samples of {}", a.data->samples, b.data->samples, a.data->name));
    } else if (a.data->assumptions != b.data->assumptions) {
      found.push_back(fmt::format("different assumptions for values that {} lacks", a.data->name));
    }
  }
  return found;
}

}  // namespace dflop
