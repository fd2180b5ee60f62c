// Models and clusters for the cost model's tests: small ones for computing by hand, real ones for properties.
#pragma once

#include "core/cluster.hpp"
#include "core/model.hpp"

namespace dflop::fixtures {

/// Encoder layer: 4 * (2*4 + 2*4 + 2*16) = 192 parameters. LLM layer: 8 * (2*8 + 2*4 + 3*12) = 480.
/// Connector: 8*8 + 8*8 = 128. Head: 8 * 10 = 80.
inline ModelSpec small_model() {
  ModelSpec model;
  model.name = "small";
  model.encoder = {"encoder", 2, 4, 16, 2, 2, 2, false, false, 0};
  model.connector = {{8, 8, 8}, 2};
  model.llm = {"llm", 3, 8, 12, 4, 2, 2, true, true, 10};
  return model;
}

inline TransformerSpec llama3_8b() {
  return {"llama3-8b", 32, 4096, 14336, 32, 8, 128, true, true, 128256};
}

inline TransformerSpec siglip_so400m() {
  return {"siglip-so400m", 27, 1152, 4304, 16, 16, 72, false, false, 0};
}

inline ModelSpec llava_llama3_8b() {
  return {"llava", "llava-ov", 32768, siglip_so400m(), {{1152, 4096, 4096}, 1}, llama3_8b()};
}

/// Round numbers: 1000 FLOP/s, of which products reach half; 100 bytes/s, of which streams reach half.
inline SoftwareSpec small_software() {
  SoftwareSpec software;
  software.gemm_efficiency = 0.5;
  software.gemm_half_tokens = 10;
  software.gemm_half_width = 32;
  software.attention_forward_efficiency = 0.5;
  software.attention_backward_efficiency = 0.25;
  software.attention_half_tokens = 4;
  software.memory_efficiency = 0.5;
  software.kernel_overhead = Seconds(1);
  return software;
}

inline SoftwareSpec a100_software() {
  SoftwareSpec software;
  software.gemm_efficiency = 0.82;
  software.gemm_half_tokens = 128;
  software.gemm_half_width = 128;
  software.attention_forward_efficiency = 0.65;
  software.attention_backward_efficiency = 0.55;
  software.attention_half_tokens = 256;
  software.memory_efficiency = 0.85;
  software.kernel_overhead = Seconds(20e-6);
  return software;
}

/// Four GPUs per node. Inside: 1 s and 100 bytes/s; between: 10 s and 10 bytes/s.
inline ClusterSpec small_cluster() {
  ClusterSpec cluster{"small", 4, 4, {}, {Seconds(1), 100}, {Seconds(10), 10}};
  cluster.gpu.name = "small";
  cluster.gpu.peak_flop_per_s = 1000;
  cluster.gpu.memory_bandwidth_bytes_per_s = 100;
  cluster.software = small_software();
  return cluster;
}

inline ClusterSpec a100_cluster() {
  ClusterSpec cluster{"a100", 4, 8, {}, {Seconds(3e-6), 230e9}, {Seconds(15e-6), 12e9}};
  cluster.gpu.name = "a100-80g";
  cluster.gpu.peak_flop_per_s = 312e12;
  cluster.gpu.memory_bandwidth_bytes_per_s = 2.04e12;
  cluster.software = a100_software();
  return cluster;
}

}  // namespace dflop::fixtures
