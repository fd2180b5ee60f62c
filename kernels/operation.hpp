// An Operation is one of a device's kernels: its name, the check of its arguments, and the function that
// computes it. It takes matrices of values or sums in the device's memory, and lists of numbers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/kernel_choice/kernel_key.hpp"

namespace dflop {

/// A MatrixOf is rows x columns numbers of one kind in device memory, row after row without gaps. The
/// operations' DType says how wide they are. Vectors have one row.
template <typename Kind, typename Data>
struct MatrixOf {
  Data* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  MatrixOf() = default;
  MatrixOf(Data* d, std::int64_t r, std::int64_t c) : data(d), rows(r), columns(c) {}
  /// A matrix that may be written may be read.
  template <typename From>
  requires(std::is_const_v<Data> && !std::is_const_v<From>) MatrixOf(const MatrixOf<Kind, From>& m)
      : data(m.data), rows(m.rows), columns(m.columns) {}  // NOLINT

  std::int64_t size() const { return rows * columns; }
};

/// A Matrix has activations, weights and their gradients.
using Matrix = MatrixOf<struct ValueKind, void>;
using ConstMatrix = MatrixOf<struct ValueKind, const void>;
/// Sums are statistics, gradients of weights, optimizer states and master weights.
using Sums = MatrixOf<struct SumKind, void>;
using ConstSums = MatrixOf<struct SumKind, const void>;

/// An InOutMatrix is an argument that an operation reads and then changes in place; a Matrix is only written.
struct InOutMatrix : Matrix {
  using Matrix::Matrix;
  template <std::convertible_to<Matrix> Any>
  InOutMatrix(Any&& matrix) : Matrix(std::forward<Any>(matrix)) {}  // NOLINT: any that is a matrix
};

/// Indices are whole numbers that both sides can read: `host` for sizes and grids, `device` for kernels.
struct Indices {
  std::span<const std::int32_t> host;
  const std::int32_t* device = nullptr;  ///< the same numbers; on the host device the same memory
};

/// A KernelGuide says which variant of its operation a call takes, and hears when the call has returned; of a
/// call that throws it hears no more. Functions of operations call no guided operation in turn. One rank has
/// one, which its thread alone asks. Calls come with their own tokens and length, of which a KernelKey keeps
/// the buckets, and without the precision, which is one for all of some Kernels.
class KernelGuide {
 public:
  virtual ~KernelGuide() = default;
  /// Returns the variant that a call takes, less than `variants`.
  virtual std::size_t before(const KernelCall& call, std::size_t variants) = 0;
  virtual void after(const KernelCall& call, std::size_t variant) = 0;
};

/// Fails. @throws Error(internal) that a device's kernels lack the operation.
[[noreturn]] void fail_without_function(std::string_view operation);
/// Fails. @throws Error(internal) that the operation has more variants than there is room for.
[[noreturn]] void fail_with_many_variants(std::string_view operation);

template <typename Signature>
class Operation;

/// An Operation is called like a function. It checks its arguments, the same on every device, and hands them
/// to a function that a device has set. A device may add further functions, its variants: each computes the
/// same but for rounding, and is the fastest for some arguments. Without a guide calls go to the first.
template <typename... Args>
class Operation<void(Args...)> {
 public:
  /// A check throws Error(internal) that names the operation, the argument, and what was expected.
  using Check = void (*)(std::string_view operation, Args... args);
  /// What decides between variants; none for an operation that has one function.
  using Key = KernelCall (*)(Args... args);

  static constexpr std::size_t kMostVariants = 32;

  Operation(std::string_view name, Check check, Key key = nullptr) : name_(name), check_(check), key_(key) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Checks the arguments and computes.
  /// @throws Error(internal) where shapes do not fit together, or an index lies outside its matrix.
  void operator()(Args... args) const {
    check_(name_, args...);
    if (count_ == 0) fail_without_function(name_);
    if (guide_ == nullptr || count_ == 1) {
      call(0, args...);
      return;
    }
    const KernelCall asked = key_(args...);
    const std::size_t variant = guide_->before(asked, count_);
    call(variant, args...);
    guide_->after(asked, variant);
  }

  /// Lets function(args...) compute the operation, as its first and only variant.
  template <auto function>
  void set() {
    count_ = 0;
    add<function>("default");
  }
  /// Lets function(state, args...) compute the operation. The state must outlive this.
  template <auto function, typename State>
  void set(State& state) {
    count_ = 0;
    add<function>("default", state);
  }
  /// Adds a variant, after those that there are. The name, a literal, is that of one library or algorithm and
  /// its own within the operation.
  template <auto function>
  void add(std::string_view variant) {
    add(variant, nullptr, [](void*, Args... args) { function(args...); });
  }
  template <auto function, typename State>
  void add(std::string_view variant, State& state) {
    add(variant, const_cast<void*>(static_cast<const void*>(&state)),
        [](void* s, Args... args) { function(*static_cast<State*>(s), args...); });
  }

  /// Lets the guide choose from now on; null: no longer. It outlives this.
  void guide(KernelGuide* guide) { guide_ = key_ == nullptr ? nullptr : guide; }

  std::string_view name() const { return name_; }
  bool is_set() const { return count_ > 0; }
  /// Returns whether the operation may have variants to choose from.
  bool has_key() const { return key_ != nullptr; }
  std::size_t variants() const { return count_; }
  std::string_view variant_name(std::size_t variant) const { return variants_[variant].name; }
  /// Computes with one variant, whatever a guide would say. @pre variant < variants()
  void run_variant(std::size_t variant, Args... args) const {
    check_(name_, args...);
    call(variant, args...);
  }

 private:
  // This is a plain function, as what sets it may be compiled for AVX2: a std::function's code would be
  // shared with what is compiled for every processor.
  using Function = void (*)(void* state, Args... args);
  struct Variant {
    std::string_view name;
    void* state = nullptr;
    Function function = nullptr;
  };

  void add(std::string_view name, void* state, Function function) {
    if (count_ == kMostVariants) fail_with_many_variants(name_);
    variants_[count_++] = {name, state, function};
  }
  void call(std::size_t variant, Args... args) const {
    variants_[variant].function(variants_[variant].state, args...);
  }

  std::string_view name_;
  Check check_;
  Key key_;
  KernelGuide* guide_ = nullptr;
  std::size_t count_ = 0;
  Variant variants_[kMostVariants];
};

}  // namespace dflop
