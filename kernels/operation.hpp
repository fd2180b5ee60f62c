// An Operation is a mathematical operation on one device. It has a name, a check of its arguments, and the
// functions (variants) that compute it. Its arguments are matrices of values or sums in device memory, and
// lists of numbers.
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

/// A MatrixOf refers to rows * columns numbers of one kind in device memory, row after row without gaps. The
/// type of these numbers follows from the kernels' DType. A vector is a matrix with one row.
template <typename Kind, typename Data>
struct MatrixOf {
  Data* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  MatrixOf() = default;
  MatrixOf(Data* d, std::int64_t r, std::int64_t c) : data(d), rows(r), columns(c) {}
  /// A writable matrix converts to a read-only one.
  template <typename From>
  requires(std::is_const_v<Data> && !std::is_const_v<From>) MatrixOf(const MatrixOf<Kind, From>& m)
      : data(m.data), rows(m.rows), columns(m.columns) {}  // NOLINT

  std::int64_t size() const { return rows * columns; }
};

/// A Matrix holds activations, weights or gradients of activations.
using Matrix = MatrixOf<struct ValueKind, void>;
using ConstMatrix = MatrixOf<struct ValueKind, const void>;
/// Sums are statistics, gradients of weights, optimizer states and master weights.
using Sums = MatrixOf<struct SumKind, void>;
using ConstSums = MatrixOf<struct SumKind, const void>;

/// An InOutMatrix is an argument that an operation reads and changes in place. A Matrix argument is only
/// written.
struct InOutMatrix : Matrix {
  using Matrix::Matrix;
  template <std::convertible_to<Matrix> Any>
  InOutMatrix(Any&& matrix) : Matrix(std::forward<Any>(matrix)) {}  // NOLINT: any that is a matrix
};

/// Indices are integers that host and device can read: `host` for sizes and grids, `device` for kernels.
struct Indices {
  std::span<const std::int32_t> host;
  const std::int32_t* device = nullptr;  ///< the same numbers; on the host device the same memory
};

/// A KernelGuide chooses the variant for each call of an operation and is notified when the call has
/// returned. It is not notified if the call throws. Functions of operations must not call guided operations.
/// Each rank has one guide, used only by its thread. A KernelCall has the exact tokens and length; a
/// KernelKey has only their buckets. A KernelCall does not have the precision, because it is the same for all
/// operations of a Kernels object.
class KernelGuide {
 public:
  virtual ~KernelGuide() = default;
  /// Returns the variant to use for a call, less than `variants`.
  virtual std::size_t before(const KernelCall& call, std::size_t variants) = 0;
  virtual void after(const KernelCall& call, std::size_t variant) = 0;
};

/// Throws Error(internal): a device's kernels lack the operation.
[[noreturn]] void fail_without_function(std::string_view operation);
/// Throws Error(internal): the operation has more than kMaxVariants variants.
[[noreturn]] void fail_with_many_variants(std::string_view operation);

template <typename Signature>
class Operation;

/// An Operation is called like a function. It checks its arguments, in the same way on every device, and
/// passes them to a function that the device has set. A device may add further functions as variants. All
/// variants give the same result except for rounding, and each is the fastest for some arguments. Without a
/// guide, calls use the first variant.
template <typename... Args>
class Operation<void(Args...)> {
 public:
  /// A check throws Error(internal) that names the operation, the argument and the expected value.
  using Check = void (*)(std::string_view operation, Args... args);
  /// A key makes the KernelCall by which a guide chooses a variant. It is null for operations whose variants
  /// a guide cannot choose.
  using Key = KernelCall (*)(Args... args);

  static constexpr std::size_t kMaxVariants = 32;

  Operation(std::string_view name, Check check, Key key = nullptr) : name_(name), check_(check), key_(key) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Checks the arguments and computes.
  /// @throws Error(internal) if shapes do not match or an index is outside its matrix.
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

  /// Sets function(args...) as the operation's only variant.
  template <auto function>
  void set() {
    count_ = 0;
    add<function>("default");
  }
  /// Sets function(state, args...) as the operation's only variant. The state must outlive the operation.
  template <auto function, typename State>
  void set(State& state) {
    count_ = 0;
    add<function>("default", state);
  }
  /// Adds a variant after the existing ones. `variant`, a literal, names a library or algorithm and is unique
  /// within the operation.
  template <auto function>
  void add(std::string_view variant) {
    add(variant, nullptr, [](void*, Args... args) { function(args...); });
  }
  template <auto function, typename State>
  void add(std::string_view variant, State& state) {
    add(variant, const_cast<void*>(static_cast<const void*>(&state)),
        [](void* s, Args... args) { function(*static_cast<State*>(s), args...); });
  }

  /// Lets a guide choose variants from now on; null removes the guide. The guide must outlive the operation.
  void guide(KernelGuide* guide) { guide_ = key_ == nullptr ? nullptr : guide; }

  std::string_view name() const { return name_; }
  bool is_set() const { return count_ > 0; }
  /// Returns whether a guide can choose between variants of the operation.
  bool has_key() const { return key_ != nullptr; }
  std::size_t variants() const { return count_; }
  std::string_view variant_name(std::size_t variant) const { return variants_[variant].name; }
  /// Checks the arguments and computes with one variant, without asking the guide. @pre variant < variants()
  void run_variant(std::size_t variant, Args... args) const {
    check_(name_, args...);
    call(variant, args...);
  }

 private:
  // This is a plain function pointer, because the code that sets it may be compiled for AVX2: the linker
  // would share a std::function's code with code that must run on every processor.
  using Function = void (*)(void* state, Args... args);
  struct Variant {
    std::string_view name;
    void* state = nullptr;
    Function function = nullptr;
  };

  void add(std::string_view name, void* state, Function function) {
    if (count_ == kMaxVariants) fail_with_many_variants(name_);
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
  Variant variants_[kMaxVariants];
};

}  // namespace dflop
