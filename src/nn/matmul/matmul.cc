#include "nn/matmul/matmul.h"

#include "base/parallel.h"
#include "nn/matmul/onednn.h"
#include "nn/matmul/panels.h"

namespace deltanet::nn {

void matmul(const Matmul& product, int threads) {
  if (threads <= 0) threads = default_threads();
  // oneDNN's matrix units (AMX) beat any vector instruction.
  if (panels_multiply(product) && !onednn_has_matrix_units(product.type)) {
    panels_matmul(product, threads);
  } else {
    onednn_matmul(product, threads);
  }
}

bool matmul_is_fast(WeightType type) { return onednn_multiplies(type); }

}  // namespace deltanet::nn
