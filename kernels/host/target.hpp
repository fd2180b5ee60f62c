// The host's operations are compiled twice from the same files, for every x86-64 and for AVX2 with fused
// multiply-add, which is three times as fast; make_host_kernels() chooses. Eigen is renamed in the second,
// and all functions are in another namespace, for a linker keeps one of the functions that have one name.
#pragma once

#ifdef DFLOP_HOST_AVX2
#define DFLOP_HOST_TARGET avx2
#define Eigen EigenAvx2
#else
#define DFLOP_HOST_TARGET portable
#endif

namespace dflop {
class Kernels;
}

namespace dflop::DFLOP_HOST_TARGET {

// Each sets the functions of one theme, in the file of its name, for the kernels' precision: f32 or f64.
void set_linear(Kernels& kernels);
void set_norms(Kernels& kernels);
void set_activations(Kernels& kernels);
void set_attention(Kernels& kernels);
void set_rows(Kernels& kernels);
void set_loss(Kernels& kernels);
void set_elementwise(Kernels& kernels);

}  // namespace dflop::DFLOP_HOST_TARGET
