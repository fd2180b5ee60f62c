// This file builds graphs of cuDNN's frontend over packed ("ragged") sequences. Matrices keep their layout;
// SequenceLists say where each sequence begins.
#include "kernels/cuda/cudnn_attention.hpp"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "core/support/shared_library.hpp"
#include "kernels/cuda/attention_rule.hpp"
#include "kernels/cuda/flat_table.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/cuda/sequence_lists.hpp"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // users of the frontend must define it
}

namespace dflop::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Loads the libraries at the first call. @throws Error (no_device) that lists the places searched.
void load_cudnn() {
  // The frontend looks the runtime up by name only, which finds the library loaded here.
  static const SharedLibrary runtime({"libcudart.so.13", "libcudart.so.12"}, cuda_folders(),
                                     "attention on a GPU (the CUDA runtime that cuDNN's frontend calls)");
  static const SharedLibrary library({"libcudnn.so.9", "libcudnn.so"}, cuda_folders(),
                                     "attention on a GPU (cuDNN)");
  fe::cudnn_dlhandle = ::dlopen(library.name().c_str(), RTLD_NOW | RTLD_NOLOAD);
}

/// Checks the status of a call of the frontend or of the library.
/// @throws Error (internal) "<what>: cuDNN says ..."
void check_cudnn(fe::error_t status, const std::string& what) {
  if (status.is_bad()) throw Error(ErrorKind::internal, what + ": cuDNN says " + status.get_message());
}
void check_cudnn(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(ErrorKind::internal, what + ": cuDNN says " + fe::detail::get_error_string(status));
}

/// Returns whether the status code says that the library has no engine for a graph. This is not a failure,
/// because other kernels compute the call.
bool is_refusal(fe::error_code_t code) {
  return code == fe::error_code_t::GRAPH_NOT_SUPPORTED || code == fe::error_code_t::HEURISTIC_QUERY_FAILED ||
         code == fe::error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED;
}

/// A Uid names a graph's tensor. Tensors that only a backward has come last.
enum Uid : std::int64_t {
  kQkvStarts = 1,
  kOutStarts,
  kStatisticsStarts,
  kQueryLengths,
  kKeyLengths,
  kQueries,
  kKeys,
  kValues,
  kOut,
  kStatistics,
  kDout,
  kDqueries,
  kDkeys,
  kDvalues,
};

/// A GraphMaker makes the graph of one shape.
class GraphMaker {
 public:
  GraphMaker(const CudnnShape& shape, int compute_capability, AttentionSums sums)
      : shape_(shape), sums_(sums), graph_(std::make_shared<fe::graph::Graph>()) {
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(compute_capability);
  }

  std::shared_ptr<fe::graph::Graph> make() {
    const Tensor of_qkv = numbers(kQkvStarts, shape_.sequences + 1);
    const Tensor of_out = numbers(kOutStarts, shape_.sequences + 1);
    const Tensor of_statistics = numbers(kStatisticsStarts, shape_.sequences + 1);
    const Tensor query_lengths = numbers(kQueryLengths, shape_.sequences);
    const Tensor key_lengths = numbers(kKeyLengths, shape_.sequences);
    const AttentionShape& heads = shape_.attention;
    const Tensor q = graph_->tensor(values(kQueries, heads.heads, heads.qkv_columns(), of_qkv));
    const Tensor k = graph_->tensor(values(kKeys, heads.kv_heads, heads.qkv_columns(), of_qkv));
    const Tensor v = graph_->tensor(values(kValues, heads.kv_heads, heads.qkv_columns(), of_qkv));
    const auto out = values(kOut, heads.heads, heads.out_columns(), of_out);
    auto statistics = values(kStatistics, heads.heads, heads.heads, of_statistics);
    statistics.set_dim({shape_.sequences, heads.heads, shape_.longest, 1})
        .set_stride({shape_.longest * heads.heads, 1, heads.heads, 1})
        .set_data_type(fe::DataType_t::FLOAT);
    if (shape_.backward) {
      auto options = with_masks(fe::graph::SDPA_backward_attributes(), query_lengths, key_lengths);
      options.set_deterministic_algorithm(sums_ == AttentionSums::fixed)
          .set_max_total_seq_len_q(shape_.tokens)
          .set_max_total_seq_len_kv(shape_.tokens);
      const Tensor dout = graph_->tensor(values(kDout, heads.heads, heads.out_columns(), of_out));
      auto [dq, dk, dv] =
          graph_->sdpa_backward(q, k, v, graph_->tensor(out), dout, graph_->tensor(statistics), options);
      give(dq, values(kDqueries, heads.heads, heads.qkv_columns(), of_qkv));
      give(dk, values(kDkeys, heads.kv_heads, heads.qkv_columns(), of_qkv));
      give(dv, values(kDvalues, heads.kv_heads, heads.qkv_columns(), of_qkv));
    } else {
      auto options = with_masks(fe::graph::SDPA_attributes(), query_lengths, key_lengths);
      options.set_generate_stats(true);
      auto [o, kept] = graph_->sdpa(q, k, v, options);
      give(o, out);
      give(kept, statistics);
    }
    return graph_;
  }

 private:
  /// Makes a tensor of integers: one for each sequence, or one more.
  Tensor numbers(Uid uid, std::int64_t count) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid)
                              .set_dim({count, 1, 1, 1})
                              .set_stride({1, 1, 1, 1})
                              .set_data_type(fe::DataType_t::INT32));
  }
  /// Returns the attributes of some heads of rows that are `columns` wide.
  fe::graph::Tensor_attributes values(Uid uid, std::int64_t heads, std::int64_t columns,
                                      const Tensor& starts) const {
    const std::int64_t width = shape_.attention.head_dim;
    return fe::graph::Tensor_attributes()
        .set_uid(uid)
        .set_dim({shape_.sequences, heads, shape_.longest, width})
        .set_stride({shape_.longest * columns, width, columns, 1})
        .set_ragged_offset(starts);
  }
  /// Gives a result the described memory layout.
  static void give(const Tensor& result, fe::graph::Tensor_attributes as) {
    result->set_output(true)
        .set_uid(as.get_uid())
        .set_dim(as.get_dim())
        .set_stride(as.get_stride())
        .set_data_type(as.get_data_type() == fe::DataType_t::FLOAT ? fe::DataType_t::FLOAT
                                                                   : fe::DataType_t::BFLOAT16)
        .set_ragged_offset(as.get_ragged_offset());
  }
  template <typename Options>
  Options with_masks(Options options, const Tensor& query_lengths, const Tensor& key_lengths) const {
    options
        .set_attn_scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.attention.head_dim))))
        .set_padding_mask(true)
        .set_seq_len_q(query_lengths)
        .set_seq_len_kv(key_lengths);
    if (shape_.attention.causal) {
      options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    }
    return options;
  }

  CudnnShape shape_;
  AttentionSums sums_;
  std::shared_ptr<fe::graph::Graph> graph_;
};

/// A CudnnPlan is a graph that is ready to run. It has no graph if cuDNN does not support the shape or needs
/// too much memory.
struct CudnnPlan {
  std::shared_ptr<fe::graph::Graph> graph;
  std::int64_t workspace_bytes = 0;
  bool is_too_large = false;                         ///< it has no graph because of its memory
  std::unordered_map<std::int64_t, void*> pointers;  ///< of the call in progress
};

/// CudnnAttention holds one stream's state: the library's handle, and plans by shape.
class CudnnAttention final : public AttentionLibrary {
 public:
  CudnnAttention(const CudaTarget& target, const AttentionOptions& options, int compute_capability)
      : target_(target), options_(options), compute_capability_(compute_capability) {}
  ~CudnnAttention() override {
    if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
  }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  std::string_view name() const override { return "cudnn"; }

  bool forward(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape,
               Indices offsets) override {
    return in_parts(shape, false, offsets, {qkv.data, out.data}, [&](CudnnPlan& plan, const Part& part) {
      run(plan, "attention", shape, part, qkv, out, statistics, nullptr, nullptr);
    });
  }

  bool backward(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                const AttentionShape& shape, Indices offsets) override {
    return in_parts(shape, true, offsets, {qkv.data, out.data, dout.data, dqkv.data},
                    [&](CudnnPlan& plan, const Part& part) {
                      run(plan, "attention_backward", shape, part, qkv, out, statistics, dout.data,
                          dqkv.data);
                    });
  }

 private:
  /// A Part is some of a call's sequences.
  struct Part {
    const std::int32_t* offsets;  ///< offsets of the part's sequences, on the device
    std::int64_t sequences;
  };

  /// Computes a call with run(plan, part) for each part of its sequences. The needed workspace grows with the
  /// number of sequences in a part. So there is one part with all sequences, and parts are halved until they
  /// fit into the workspace. Each sequence is computed independently, so parts do not change the bits.
  /// Returns false if other kernels must compute the call.
  template <typename Run>
  bool in_parts(const AttentionShape& shape, bool backward, Indices offsets,
                std::initializer_list<const void*> pointers, const Run& run) {
    if (!takes(shape, offsets, pointers)) return false;
    const std::int64_t all = std::ssize(offsets.host) - 1;
    std::int64_t at_once = all;
    CudnnPlan* plan = &plan_of(shape, backward, offsets, at_once);
    while (plan->is_too_large && at_once > 1) {
      at_once = (at_once + 1) / 2;
      plan = &plan_of(shape, backward, offsets, at_once);
    }
    if (!plan->graph) return false;
    for (std::int64_t first = 0; first < all; first += at_once)
      run(*plan, Part{offsets.device + first, std::min(at_once, all - first)});
    return true;
  }

  /// Returns whether a plan can support a call's sizes and memory alignment.
  static bool takes(const AttentionShape& shape, Indices offsets,
                    std::initializer_list<const void*> pointers) {
    if (offsets.host.empty() || offsets.host.back() == 0) return false;
    const std::int64_t tokens = offsets.host.back();
    constexpr std::int64_t kMaxStarts = 0x7fffffff;  // starts are 32 bits wide
    if (tokens * shape.qkv_columns() > kMaxStarts || shape.head_dim % 8 != 0 || shape.head_dim > 128) {
      return false;
    }
    return std::all_of(pointers.begin(), pointers.end(), [](const void* pointer) {
      return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
    });
  }

  /// Returns the plan for `sequences` sequences of a call, which may be anywhere in its rows.
  CudnnPlan& plan_of(const AttentionShape& shape, bool backward, Indices offsets, std::int64_t sequences) {
    const CudnnShape asked{shape, backward, cudnn_bucket(sequences),
                           cudnn_bucket(longest_sequence(offsets.host)), cudnn_bucket(offsets.host.back())};
    return plans_.get(key_of(asked), [&] { return make_plan(asked); });
  }

  static PackedKey key_of(const CudnnShape& shape) {
    const auto word = [](auto number) { return static_cast<std::uint64_t>(number); };
    const AttentionShape& heads = shape.attention;
    return {word(shape.tokens) << 32U | word(shape.longest),
            word(shape.sequences) << 32U | word(heads.heads) << 20U | word(heads.kv_heads) << 9U |
                word(heads.head_dim / 8) << 2U | word(heads.causal) << 1U | word(shape.backward)};
  }

  /// Returns the library's handle, which is created for the first plan.
  cudnnHandle_t handle() {
    if (handle_ == nullptr) {
      check_cudnn(fe::detail::create_handle(&handle_), "attention: start of cuDNN");
      check_cudnn(fe::detail::set_stream(handle_, target_.stream), "attention: stream of cuDNN");
    }
    return handle_;
  }

  std::unique_ptr<CudnnPlan> make_plan(const CudnnShape& shape) {
    auto plan = std::make_unique<CudnnPlan>();
    auto graph = GraphMaker(shape, compute_capability_, options_.sums).make();
    fe::error_t status = graph->build(handle(), {fe::HeurMode_t::A});
    if (is_refusal(status.get_code())) return plan;
    const std::string what = shape.backward ? "attention_backward: plan" : "attention: plan";
    check_cudnn(status, what);
    check_cudnn(graph->get_workspace_size(plan->workspace_bytes), what);
    plan->is_too_large = plan->workspace_bytes > options_.workspace->count;
    if (!plan->is_too_large) plan->graph = std::move(graph);
    return plan;
  }

  /// Enqueues the call. A forward has no gradients and writes `out` and `statistics`.
  void run(CudnnPlan& plan, const char* operation, const AttentionShape& shape, const Part& part,
           ConstMatrix qkv, ConstMatrix out, ConstSums statistics, const void* dout, void* dqkv) {
    const std::int64_t count = cudnn_bucket(part.sequences);
    const StreamBuffer numbers(target_, operation, SequenceLists::numbers(count));
    const SequenceLists lists{reinterpret_cast<std::int32_t*>(numbers.data()), count};
    fill_sequence_lists(target_, operation, lists, part.offsets, part.sequences,
                        {shape.qkv_columns(), shape.out_columns(), shape.heads});
    const std::shared_ptr<void> workspace =
        counted_memory(target_, operation, static_cast<std::size_t>(plan.workspace_bytes));
    const auto bytes_to = [&](std::int64_t heads) {
      return heads * shape.head_dim * static_cast<std::int64_t>(kBf16Bytes);
    };
    const auto at = [](const void* matrix, std::int64_t bytes) -> void* {
      return const_cast<char*>(static_cast<const char*>(matrix)) + bytes;
    };
    auto& pointers = plan.pointers;
    pointers[kQkvStarts] = lists.starts(0);
    pointers[kOutStarts] = lists.starts(1);
    pointers[kStatisticsStarts] = lists.starts(2);
    pointers[kQueryLengths] = lists.lengths();
    pointers[kKeyLengths] = lists.lengths();
    pointers[kQueries] = at(qkv.data, 0);
    pointers[kKeys] = at(qkv.data, bytes_to(shape.heads));
    pointers[kValues] = at(qkv.data, bytes_to(shape.heads + shape.kv_heads));
    pointers[kOut] = at(out.data, 0);
    pointers[kStatistics] = at(statistics.data, 0);
    if (dqkv != nullptr) {
      pointers[kDout] = at(dout, 0);
      pointers[kDqueries] = at(dqkv, 0);
      pointers[kDkeys] = at(dqkv, bytes_to(shape.heads));
      pointers[kDvalues] = at(dqkv, bytes_to(shape.heads + shape.kv_heads));
    }
    check_cudnn(plan.graph->execute(handle(), pointers, workspace.get()), operation);
  }

  const CudaTarget& target_;
  AttentionOptions options_;  ///< the workspace is set
  int compute_capability_;
  cudnnHandle_t handle_ = nullptr;
  FlatTable<CudnnPlan> plans_;
};

/// Returns whether the library can be loaded.
bool has_cudnn() {
  try {
    load_cudnn();
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::no_device) return false;
    throw;
  }
}

/// Returns the default max workspace of a call.
Bytes usual_workspace() {
  constexpr std::int64_t kPercent = 3;  // of the device's memory
  std::size_t free_bytes = 0;
  std::size_t all_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &all_bytes), "memory of the device");
  return {static_cast<std::int64_t>(all_bytes) / 100 * kPercent};
}

}  // namespace

std::string cudnn_refusal(const CudnnShape& shape, int compute_capability, AttentionSums sums) {
  load_cudnn();
  fe::error_t status = GraphMaker(shape, compute_capability, sums).make()->validate();
  return status.is_good() ? "" : status.get_message();
}

std::string cudnn_version() {
  if (!has_cudnn()) return {};
  const auto version = static_cast<std::int64_t>(fe::detail::get_backend_version());
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::unique_ptr<AttentionLibrary> make_cudnn_attention(const CudaTarget& target,
                                                       const AttentionOptions& options) {
  int device = 0;
  int major = 0;
  int minor = 0;
  check_cuda(cudaGetDevice(&device), "device of attention");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "compute capability");
  constexpr int kOldest = 9;
  if (target.dtype != DType::bf16 || major < kOldest || !has_cudnn()) return nullptr;
  AttentionOptions bounded = options;
  if (!bounded.workspace) bounded.workspace = usual_workspace();
  return std::make_unique<CudnnAttention>(target, bounded, 10 * major + minor);
}

}  // namespace dflop::cuda
