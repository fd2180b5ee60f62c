// An Operation is one of a device's kernels: its name, the check of its arguments, and the function that
// computes it. It takes matrices of values or sums in the device's memory, and lists of numbers.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

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

/// Fails. @throws Error(internal) that a device's kernels lack the operation.
[[noreturn]] void fail_without_function(std::string_view operation);

template <typename Signature>
class Operation;

/// An Operation is called like a function. It checks its arguments, the same on every device, and hands them
/// to the function that a device has set.
template <typename... Args>
class Operation<void(Args...)> {
 public:
  /// A check throws Error(internal) that names the operation, the argument, and what was expected.
  using Check = void (*)(std::string_view operation, Args... args);

  Operation(std::string_view name, Check check) : name_(name), check_(check) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Checks the arguments and computes.
  /// @throws Error(internal) where shapes do not fit together, or an index lies outside its matrix.
  void operator()(Args... args) const {
    check_(name_, args...);
    // Every call of every device comes through here: where there are several functions for one operation,
    // this is the place to choose one, by name and arguments.
    if (function_ == nullptr) fail_without_function(name_);
    function_(state_, args...);
  }

  /// Lets function(args...) compute the operation.
  template <auto function>
  void set() {
    function_ = [](void*, Args... args) { function(args...); };
  }
  /// Lets function(state, args...) compute the operation. The state must outlive this.
  template <auto function, typename State>
  void set(State& state) {
    state_ = const_cast<void*>(static_cast<const void*>(&state));
    function_ = [](void* s, Args... args) { function(*static_cast<State*>(s), args...); };
  }

  std::string_view name() const { return name_; }
  bool is_set() const { return function_ != nullptr; }

 private:
  std::string_view name_;
  Check check_;
  void* state_ = nullptr;
  // This is a plain function, as what sets it may be compiled for AVX2: a std::function's code would be
  // shared with what is compiled for every processor.
  void (*function_)(void* state, Args... args) = nullptr;
};

}  // namespace dflop
