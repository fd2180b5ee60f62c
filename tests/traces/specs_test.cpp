#include "traces/files/specs.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/traces/file_fixtures.hpp"
#include "traces/files/cluster_notes.hpp"

namespace dflop {
namespace specs_test {

namespace fs = std::filesystem;

/// Returns the texts of all presets of one kind, by name.
std::map<std::string, std::string> presets(const std::string& kind) {
  std::map<std::string, std::string> texts;
  for (const auto& entry :
       fs::directory_iterator(fs::path(DFLOP_SOURCE_DIR) / "experiments/presets" / kind)) {
    std::ifstream in(entry.path());
    texts[entry.path().stem().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return texts;
}

ModelSpec preset_model(const std::string& name) {
  return parse_model(presets("models").at(name), name);
}

std::int64_t llm_parameters(const TransformerSpec& llm) {
  return llm.layers * llm.layer_parameters(1) + 2 * llm.embedding_parameters(1);
}

TEST(Presets, AllAreReadAndNamedLikeTheirFileAndCiteSources) {
  EXPECT_EQ(presets("models").size(), 20U);
  for (const auto& [name, text] : presets("models")) {
    EXPECT_EQ(parse_model(text, name).name, name);
    EXPECT_GT(nlohmann::json::parse(text).at("source").get<std::string>().size(), 80U) << name;
  }
  EXPECT_EQ(presets("clusters").size(), 6U);
  for (const auto& [name, text] : presets("clusters")) {
    const ClusterSpec cluster = parse_cluster(text, name);
    EXPECT_EQ(cluster.name, name);
    EXPECT_EQ(cluster.gpus(), 8) << name;
    EXPECT_GT(nlohmann::json::parse(text).at("source").get<std::string>().size(), 80U) << name;
  }
}

TEST(Presets, LlmsHaveThePublishedNumberOfParameters) {
  // Published totals. Our count omits biases and norms, which are less than 0.1 % of them.
  const std::map<std::string, double> published = {
      {"llava-ov-qwen2.5-7b", 7'615'616'512},   {"llava-ov-qwen2.5-32b", 32'763'876'352},
      {"llava-ov-qwen2.5-72b", 72'706'203'648}, {"llava-ov-llama3-8b", 8'030'261'248},
      {"llava-ov-llama3-70b", 70'553'706'496},  {"qwen2-audio-7b", 7'754'878'976},
      {"internvl2.5-72b", 72'706'203'648},      {"qwen2.5-vl-7b", 7'615'616'512},
      {"llava-1.5-7b", 6'738'939'904},          {"qwen2-vl-7b", 7'615'616'512},
      {"internvl3.5-8b", 8'190'735'360},        {"qwen3-vl-8b", 8'190'735'360},
      {"qwen2.5-omni-7b", 7'615'616'512}};
  for (const auto& [name, parameters] : published) {
    const double counted = static_cast<double>(llm_parameters(preset_model(name).llm));
    EXPECT_LE(counted, parameters) << name;
    EXPECT_GE(counted, 0.999 * parameters) << name;
  }
}

TEST(Presets, EncodersHaveThePublishedNumberOfParameters) {
  // Published totals of the blocks in millions. Biases, norms, and patch and position embeddings are below 1
  // %.
  const std::map<std::string, double> published = {
      {"llava-ov-llama3-8b", 411.5}, {"llava-ov-siglip6b-llama3-8b", 2437},
      {"internvl2.5-72b", 5531},     {"qwen2.5-vl-7b", 630.5},
      {"llava-1.5-7b", 289.7},       {"qwen2-vl-7b", 629.7},
      {"internvl3.5-8b", 302.4},     {"qwen3-vl-8b", 411.5},
      {"qwen2-audio-7b", 629.6}};
  for (const auto& [name, millions] : published) {
    const TransformerSpec encoder = preset_model(name).encoder;
    EXPECT_NEAR(static_cast<double>(encoder.layers * encoder.layer_parameters(1)) / 1e6, millions,
                0.01 * millions)
        << name;
  }
}

TEST(Presets, ConnectorsHaveThePublishedNumberOfParameters) {
  // Weights only, by hand: 1152*4096 + 4096*4096 = 21,495,808; 12800*8192 + 8192*8192 = 171,966,464;
  // 5120*5120 + 5120*3584 = 44,564,480; 1280*4096 = 5,242,880.
  EXPECT_EQ(preset_model("llava-ov-llama3-8b").connector.parameters(1), 21'495'808);
  EXPECT_EQ(preset_model("internvl2.5-72b").connector.parameters(1), 171'966'464);
  EXPECT_EQ(preset_model("qwen2.5-vl-7b").connector.parameters(1), 44'564'480);
  // 1024*4096 + 4096*4096 = 20,971,520; 4096*4096 twice = 33,554,432; 4608*4608 + 4608*4096 = 40,108,032.
  EXPECT_EQ(preset_model("llava-1.5-7b").connector.parameters(1), 20'971'520);
  EXPECT_EQ(preset_model("qwen2-vl-7b").connector.parameters(1), 44'564'480);
  EXPECT_EQ(preset_model("internvl3.5-8b").connector.parameters(1), 33'554'432);
  EXPECT_EQ(preset_model("qwen3-vl-8b").connector.parameters(1), 40'108'032);
  EXPECT_EQ(preset_model("qwen2-audio-7b").connector.parameters(1), 5'242'880);
}

TEST(Presets, ThePublishedClusterHas800GigabitsANode) {
  const ClusterSpec cluster = parse_cluster(presets("clusters").at("a100-80g"), "a100-80g");
  // 800 Gb/s = 100e9 B/s per node, 12.5e9 per GPU, of which NCCL achieves about nine tenths.
  EXPECT_LT(cluster.inter_node.bandwidth_bytes_per_s, 0.95 * 12.5e9);
  EXPECT_GT(cluster.inter_node.bandwidth_bytes_per_s, 0.85 * 12.5e9);
  EXPECT_EQ(cluster.gpu.memory.count, std::int64_t{80} << 30);
  EXPECT_EQ(cluster.gpu.usable_memory().count, std::int64_t{76} << 30);
}

TEST(Presets, TheFittedClusterIsTheSameHardwareWithAnotherStack) {
  const ClusterSpec current = parse_cluster(presets("clusters").at("a100-80g"), "a100-80g");
  const ClusterSpec fitted = parse_cluster(presets("clusters").at("a100-80g-vtrain"), "a100-80g-vtrain");
  EXPECT_EQ(current.gpu, fitted.gpu);
  EXPECT_EQ(fitted.software.name, "megatron-deepspeed-2022");
  EXPECT_EQ(fitted.software.layer_launch, Seconds(0.001174));
  EXPECT_EQ(current.software.layer_launch, Seconds(0));
  EXPECT_EQ(current.software.node_ring_bandwidth_bytes_per_s, 0);
}

TEST(ClusterFile, ChangesNumbersInPlace) {
  const std::string usual = presets("clusters").at("b200");
  ClusterSpec changed = parse_cluster(usual, "t");
  changed.software.gemm_efficiency = 0.5;
  changed.software.layer_launch = Seconds(0.001);           // absent from the file
  changed.software.node_ring_bandwidth_bytes_per_s = 2e10;  // also absent
  changed.inter_node = {Seconds(2e-6), 4e10};               // 320 Gbit/s
  changed.name = "own";
  const std::vector<std::pair<std::string, double>> numbers = {
      {"software.gemm_efficiency", 0.5},
      {"software.layer_launch_s", 0.001},
      {"software.node_ring_bandwidth_bytes_per_s", 2e10},
      {"inter_node.latency_s", 2e-6},
      {"inter_node.bandwidth_bytes_per_s", 4e10}};
  const auto change = [&](const nlohmann::json& file) {
    return nlohmann::json::parse(changed_cluster(file.dump(), numbers, {{"name", "own"}}));
  };
  nlohmann::json file = nlohmann::json::parse(usual);
  file["made_by"] = {{"version", "1"}};
  EXPECT_EQ(parse_cluster(change(file).dump(), "t"), changed);
  EXPECT_FALSE(change(file).contains("made_by"));

  // In another unit.
  file["inter_node"].erase("bandwidth_bytes_per_s");
  file["inter_node"]["bandwidth_gbit_per_s"] = 368;
  EXPECT_EQ(change(file)["inter_node"]["bandwidth_gbit_per_s"], 320);
  EXPECT_EQ(parse_cluster(change(file).dump(), "t"), changed);

  // As in older files: kernels' keys under "gpu", messages and rings at the root.
  const nlohmann::json software = file["software"];
  file.erase("software");
  for (const auto& [key, value] : software.items()) {
    if (key != "name") (key == "message_overhead_s" ? file : file["gpu"])[key] = value;
  }
  changed.software.name = "";
  EXPECT_FALSE(change(file).contains("software"));
  EXPECT_EQ(parse_cluster(change(file).dump(), "t"), changed);
}

TEST(ClusterFile, SaysHowFarItsFiguresHold) {
  const std::string usual = presets("clusters").at("a100-80g");
  const auto with = [&](const std::string& keys) {
    nlohmann::json json = nlohmann::json::parse(usual);
    json.erase("grade");
    for (const char* link : {"intra_node", "inter_node"}) json[link].erase("line_rate_bytes_per_s");
    json.update(nlohmann::json::parse(keys), true);
    return json.dump();
  };
  EXPECT_EQ(parse_cluster_notes(with("{}"), "t"), ClusterNotes{}) << "as files of before";
  EXPECT_EQ(parse_cluster(with("{}"), "t"), parse_cluster(usual, "t")) << "notes change no cost";
  const ClusterNotes notes = parse_cluster_notes(
      with(
          R"({"grade": {"kind": "fitted", "error": 0.05, "of": "runs"}, "allowance": {"fraction": 0.02, "source": "s"},
              "inter_node": {"line_rate_bytes_per_s": 5e10}})"),
      "t");
  EXPECT_EQ(notes, (ClusterNotes{Grade::fitted, 0.05, "runs", 0.02, "s", {}, 5e10}));
  EXPECT_EQ(describe(notes), "fitted, error 5.0 % (runs)");
  EXPECT_EQ(describe(ClusterNotes{}), "unknown");
  EXPECT_FALSE(parse_cluster(usual, "t").placeholder);
  EXPECT_TRUE(parse_cluster(with(R"({"placeholder": true})"), "t").placeholder);
  for (
      const auto& [keys, part] :
      {std::pair{R"({"grade": {"kind": "good"}})", "grade.kind"},
       std::pair{R"({"grade": {"kind": "fitted", "error": -1}})", "grade.error"},
       std::pair{R"({"allowance": {"fraction": 0.1}})", "allowance"},
       std::pair{R"({"placeholder": "yes"})", "placeholder"},
       std::pair{R"({"inter_node": {"line_rate_bytes_per_s": 0}})", "line_rate_bytes_per_s"},
       // 11e9 B/s in messages exceed a line rate of 1e10 B/s
       std::pair{
           R"({"inter_node": {"line_rate_bytes_per_s": 1e10}})",
           "inter_node.bandwidth_bytes_per_s': expected at most the 1e+10 B/s of 'line_rate_bytes_per_s'"}}) {
    try {
      parse_cluster(with(keys), "t");
      ADD_FAILURE() << keys;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

/// Returns a cluster file in the older form, without a separate software object.
nlohmann::json before_software(const std::string& preset) {
  nlohmann::json json = nlohmann::json::parse(presets("clusters").at(preset));
  nlohmann::json software = json["software"];
  json.erase("software");
  for (const auto& [key, value] : software.items()) {
    const bool at_top = key == "message_overhead_s" || key == "node_ring_bandwidth_bytes_per_s";
    if (key != "name") (at_top ? json : json["gpu"])[key] = value;
  }
  return json;
}

TEST(ClusterFile, OlderFilesStillLoadUnchanged) {
  for (const char* preset : {"a100-80g-vtrain", "b200", "h100", "h200"}) {
    ClusterSpec now = parse_cluster(presets("clusters").at(preset), preset);
    now.software.name.clear();
    EXPECT_EQ(parse_cluster(before_software(preset).dump(), "c.json"), now) << preset;
  }
}

TEST(ClusterFile, AKeyOfTheSoftwareHasOnePlace) {
  const auto refused = [&](const std::string& place, const std::string& key) {
    nlohmann::json json = nlohmann::json::parse(presets("clusters").at("h100"));
    (place.empty() ? json : json[place])[key] = 0.001;
    const std::string where = place.empty() ? key : place + "." + key;
    expect_refused([&] { parse_cluster(json.dump(), "c.json"); }, "c.json: key '" + where + "'",
                   {"this key only in 'software'"});
  };
  refused("gpu", "kernel_overhead_s");
  refused("gpu", "gemm_efficiency");
  refused("", "message_overhead_s");
}

TEST(ClusterFile, NoLimitOnRingsIsZero) {
  nlohmann::json json = before_software("a100-80g-vtrain");
  json["node_ring_bandwidth_bytes_per_s"] = 0;
  EXPECT_EQ(parse_cluster(json.dump(), "c.json").software.node_ring_bandwidth_bytes_per_s, 0);
  json["node_ring_bandwidth_bytes_per_s"] = -1;
  expect_refused([&] { parse_cluster(json.dump(), "c.json"); },
                 "c.json: key 'node_ring_bandwidth_bytes_per_s'", {"found -1"});
}

/// Returns a preset's file with one bandwidth in another unit.
std::string in_unit(const std::string& part, const std::string& bytes, const std::string& key, double value) {
  nlohmann::json json = nlohmann::json::parse(presets("clusters").at("a100-80g-vtrain"));
  json[part].erase(bytes);
  json[part].erase("line_rate_bytes_per_s");  // it has its own limit
  json[part][key] = value;
  return json.dump();
}

TEST(ClusterFile, BandwidthsHaveUnits) {
  const std::string link = "bandwidth_bytes_per_s";
  const std::string memory = "memory_bandwidth_bytes_per_s";
  const std::string ring = "node_ring_bandwidth_bytes_per_s";
  const auto inter = [&](const std::string& key, double value) {
    return parse_cluster(in_unit("inter_node", link, key, value), "c.json").inter_node.bandwidth_bytes_per_s;
  };
  EXPECT_EQ(inter("bandwidth_gbit_per_s", 400), 50e9);  // 8 bits per byte
  EXPECT_EQ(inter("bandwidth_gbyte_per_s", 50), 50e9);
  EXPECT_EQ(inter(link, 50e9), 50e9);
  EXPECT_EQ(parse_cluster(in_unit("gpu", memory, "memory_bandwidth_gbyte_per_s", 2039), "c.json")
                .gpu.memory_bandwidth_bytes_per_s,
            2039e9);
  EXPECT_EQ(parse_cluster(in_unit("software", ring, "node_ring_bandwidth_gbit_per_s", 100), "c.json")
                .software.node_ring_bandwidth_bytes_per_s,
            12.5e9);
  expect_refused([&] { inter("bandwidth_gbit_per_s", 0.001); },
                 "c.json: key 'inter_node.bandwidth_gbit_per_s'", {"from 0.008 to 8000000", "found 0.001"});
}

TEST(ClusterFile, ABandwidthHasOneUnit) {
  nlohmann::json json = nlohmann::json::parse(presets("clusters").at("h100"));
  json["inter_node"]["bandwidth_gbit_per_s"] = 400;
  expect_refused([&] { parse_cluster(json.dump(), "c.json"); },
                 "c.json: key 'inter_node.bandwidth_gbit_per_s'",
                 {"one unit", "'bandwidth_bytes_per_s'", "'bandwidth_gbit_per_s'"});
  json["inter_node"] = {{"latency_s", 1e-5}};
  expect_refused([&] { parse_cluster(json.dump(), "c.json"); }, "c.json: key 'inter_node'",
                 {"'bandwidth_bytes_per_s'", "'bandwidth_gbyte_per_s'", "found none"});
}

/// Returns the h100 file with rows of nodes in place of its GPU, with or without its software.
nlohmann::json with_nodes(const nlohmann::json& rows, bool software) {
  nlohmann::json json = nlohmann::json::parse(presets("clusters").at("h100"));
  json.erase("gpu");
  json["nodes"] = rows;
  if (!software) json.erase("software");
  return json;
}

ClusterSpec find_in_presets(const std::string& name) {
  return parse_cluster(presets("clusters").at(name), name);
}

TEST(ClusterFile, NodesHaveGpusOfTheirOwn) {
  const ClusterSpec a100 = find_in_presets("a100-80g");
  const nlohmann::json rows = {{{"count", 15}, {"gpu", "a100-80g"}}, {{"count", 1}, {"gpu", "h100"}}};
  const ClusterSpec mixed = parse_cluster(with_nodes(rows, false).dump(), "c.json", find_in_presets);
  ASSERT_EQ(mixed.node_groups.size(), 2u);
  EXPECT_EQ(mixed.nodes, 16);
  EXPECT_EQ(mixed.node_groups[0].gpu, a100.gpu);
  EXPECT_EQ(mixed.node_groups[0].software, a100.software);
  EXPECT_EQ(mixed.node_groups[1].gpu, find_in_presets("h100").gpu);
  EXPECT_EQ(mixed.inter_node, find_in_presets("h100").inter_node) << "the file's links";
  EXPECT_EQ(mixed.software, a100.software) << "the first row's messages";

  nlohmann::json own = nlohmann::json::parse(presets("clusters").at("a100-80g"));
  const nlohmann::json described = {{{"count", 2}, {"gpu", own["gpu"]}, {"software", own["software"]}},
                                    {{"count", 1}, {"gpu", own["gpu"]}}};
  const ClusterSpec by_hand = parse_cluster(with_nodes(described, true).dump(), "c.json");
  EXPECT_EQ(by_hand.node_groups[0].software.name, a100.software.name);
  EXPECT_EQ(by_hand.node_groups[1].software, find_in_presets("h100").software) << "the file's";
}

TEST(ClusterFile, InvalidNodesAreRejected) {
  const auto refused = [&](const nlohmann::json& rows, bool software, const std::string& place,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_cluster(with_nodes(rows, software).dump(), "c.json", find_in_presets); },
                   "c.json: key '" + place + "'", words);
  };
  const nlohmann::json gpu = nlohmann::json::parse(presets("clusters").at("h100"))["gpu"];
  refused(nlohmann::json::array(), true, "nodes", {"at least one row"});
  refused({{{"count", 0}, {"gpu", gpu}}}, true, "nodes[0].count", {"found 0"});
  refused({{{"count", 1}, {"gpu", gpu}}}, false, "nodes[0]", {"'software'", "found none"});
  refused({{{"count", 1}}}, true, "nodes[0].gpu", {"expected this key"});
  refused({{{"count", 4000}, {"gpu", gpu}}, {{"count", 97}, {"gpu", gpu}}}, true, "nodes[1]",
          {"at most 4096", "found 4097"});
  nlohmann::json both = with_nodes({{{"count", 1}, {"gpu", gpu}}}, true);
  both["gpu"] = gpu;
  expect_refused([&] { parse_cluster(both.dump(), "c.json"); }, "c.json: key 'gpu'", {"unknown key"});
}

TEST(ModelFile, EveryFieldLandsInItsMember) {
  ModelSpec expected;
  expected.name = "qwen2.5-vl-7b";
  expected.preprocess = "qwen2.5-vl";
  expected.max_tokens = 32768;
  expected.encoder = {"qwen2.5-vl-vit", 32, 1280, 3420, 16, 16, 80, true, false, 0};
  expected.connector = {{5120, 5120, 3584}, 4};
  expected.llm = {"qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, true, true, 152064};
  EXPECT_EQ(preset_model("qwen2.5-vl-7b"), expected);
}

TEST(ModelFile, ContradictionsAreRejected) {
  const std::string good = presets("models").at("qwen2.5-vl-7b");
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_model(replaced(good, from, to), "m.json"); }, "m.json: key '" + key + "'",
                   words);
  };
  refused("\"kv_heads\": 4", "\"kv_heads\": 5", "llm.kv_heads", {"a divisor of the 28 heads", "found 5"});
  refused("[5120, 5120, 3584]", "[5121, 5120, 3584]", "connector.widths[0]",
          {"1280 ", "4 times", "found 5121"});
  refused("[5120, 5120, 3584]", "[5120, 5120, 4096]", "connector.widths[2]", {"3584", "found 4096"});
  refused("[5120, 5120, 3584]", "[5120]", "connector.widths", {"at least 2"});
  refused("\"vocabulary\": 152064", "\"vocabulary\": 0", "llm.vocabulary", {"from 1 to", "found 0"});
  refused("\"layers\": 28", "\"layers\": -1", "llm.layers", {"from 1 to", "found -1"});
  refused("\"hidden\": 1280,", "", "encoder.hidden", {"found none"});
  refused("\"preprocess\": \"qwen2.5-vl\"", "\"preprocess\": \"x\"", "preprocess",
          {"expected one of ", "tiny", "found \"x\""});
  refused("\"gated_mlp\": true", "\"gated_mlp\": 1", "encoder.gated_mlp", {"true or false"});
  refused("\"max_tokens\"", "\"longest\"", "longest", {"unknown key", "max_tokens"});
  refused("\"causal\": true", "\"causal\": true, \"rope\": 1", "llm.rope", {"unknown key"});
  refused("\"version\": 1", "\"version\": 2", "version", {"newer version", "found 2"});
}

TEST(ModelFile, SourceIsOptional) {
  nlohmann::json json = nlohmann::json::parse(presets("models").at("qwen2.5-vl-7b"));
  json.erase("source");
  EXPECT_EQ(parse_model(json.dump(), "m.json"), preset_model("qwen2.5-vl-7b"));
}

TEST(ClusterFile, HasMultiprocessorsAndQuantaOfThem) {
  const std::string h100 = presets("clusters").at("h100");
  const GpuSpec gpu = parse_cluster(h100, "c.json").gpu;
  EXPECT_EQ(gpu.multiprocessors, 132);
  EXPECT_EQ(gpu.share_quantum, 8);  // if the file has none
  EXPECT_EQ(parse_cluster(presets("clusters").at("a100-80g"), "a.json").gpu.share_quantum, 4);
  const auto refused = [&](std::string_view to, const std::string& key, std::string_view found) {
    expect_refused([&] { parse_cluster(replaced(h100, "\"multiprocessors\": 132", to), "c.json"); },
                   "c.json: key 'gpu." + key + "'", {found});
  };
  refused("\"multiprocessors\": 0", "multiprocessors", "found 0");
  refused("\"multiprocessors\": 132, \"share_quantum\": 0", "share_quantum", "found 0");
  refused("\"multiprocessors\": 132, \"share_quantum\": 133", "share_quantum", "from 1 to 132, found 133");
  refused("\"share_quantum\": 4", "share_quantum", "expected 'multiprocessors' as well, found none");
  refused("\"saturating_share\": 1.5", "saturating_share", "found 1.5");
}

TEST(ClusterFile, InvalidValuesAreRejected) {
  const std::string good = presets("clusters").at("h100");
  const auto refused = [&](std::string_view from, std::string_view to, const std::string& key,
                           std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_cluster(replaced(good, from, to), "c.json"); }, "c.json: key '" + key + "'",
                   words);
  };
  refused("\"gpus_per_node\": 8", "\"gpus_per_node\": 0", "gpus_per_node", {"found 0"});
  refused("\"gemm_efficiency\": 0.723", "\"gemm_efficiency\": 72.3", "software.gemm_efficiency",
          {"from 0.001 to 1", "found 72.3"});
  refused("\"reserved_memory_bytes\": 4294967296", "\"reserved_memory_bytes\": 429496729600",
          "gpu.reserved_memory_bytes", {"to 85520809984"});
  refused("\"bandwidth_bytes_per_s\": 3.7e+11", "\"bandwidth_bytes_per_s\": 0",
          "intra_node.bandwidth_bytes_per_s", {"from 1000000 to 1000000000000000", "found 0"});
  refused("\"latency_s\": 1e-05", "\"latency_s\": -1e-05", "inter_node.latency_s", {"found -1e-05"});
}

TEST(ClusterFile, ImplausibleNumbersAreRejected) {
  nlohmann::json good = nlohmann::json::parse(presets("clusters").at("h100"));
  good["intra_node"].erase("line_rate_bytes_per_s");  // it has its own limit
  const auto parses = [&](const std::string& part, const std::string& key, double value) {
    nlohmann::json json = good;
    json[part][key] = value;
    try {
      parse_cluster(json.dump(), "c.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.context(), "c.json: key '" + part + "." + key + "'");
      return false;
    }
    return true;
  };
  const std::string gpu = "gpu";
  const std::string software = "software";
  const std::string node = "intra_node";
  for (const auto& [part, key, least, most] : {std::tuple{gpu, "peak_flop_per_s", 1e9, 1e18},
                                               {gpu, "memory_bandwidth_bytes_per_s", 1e6, 1e15},
                                               {software, "gemm_efficiency", 1e-3, 1.0},
                                               {software, "attention_forward_efficiency", 1e-3, 1.0},
                                               {software, "attention_backward_efficiency", 1e-3, 1.0},
                                               {software, "memory_efficiency", 1e-3, 1.0},
                                               {software, "gemm_half_tokens", 0.0, 1e6},
                                               {software, "gemm_half_width", 0.0, 1e6},
                                               {software, "attention_half_tokens", 0.0, 1e6},
                                               {software, "kernel_overhead_s", 0.0, 1.0},
                                               {node, "latency_s", 0.0, 1.0},
                                               {node, "bandwidth_bytes_per_s", 1e6, 1e15}}) {
    EXPECT_TRUE(parses(part, key, least)) << key;
    EXPECT_TRUE(parses(part, key, most)) << key;
    EXPECT_FALSE(parses(part, key, least > 0 ? least * 0.99 : -1e-9)) << key;
    EXPECT_FALSE(parses(part, key, most * 1.01)) << key;
  }
  const std::string text = replaced(good.dump(), "85520809984", "1000000000000001");
  expect_refused([&] { parse_cluster(text, "c.json"); }, "c.json: key 'gpu.memory_bytes'",
                 {"to 1000000000000000"});
}

}  // namespace specs_test
}  // namespace dflop
