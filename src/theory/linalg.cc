#include "theory/linalg.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "deltanet/error.h"

namespace deltanet::theory {
namespace {

using Complex = std::complex<double>;

// Complex Hessenberg matrix, reduced from `a` by Gaussian similarity transformations with pivoting.
std::vector<Complex> hessenberg(Matrix a) {
  const std::size_t n = a.rows;
  for (std::size_t m = 1; m + 1 < n; ++m) {
    std::size_t pivot = m;
    for (std::size_t i = m + 1; i < n; ++i) {
      if (std::fabs(a(i, m - 1)) > std::fabs(a(pivot, m - 1))) pivot = i;
    }
    if (a(pivot, m - 1) == 0) continue;
    for (std::size_t j = 0; j < n; ++j) std::swap(a(pivot, j), a(m, j));
    for (std::size_t i = 0; i < n; ++i) std::swap(a(i, pivot), a(i, m));
    for (std::size_t i = m + 1; i < n; ++i) {
      const double factor = a(i, m - 1) / a(m, m - 1);
      if (factor == 0) continue;
      for (std::size_t j = 0; j < n; ++j) a(i, j) -= factor * a(m, j);
      for (std::size_t r = 0; r < n; ++r) a(r, m) += factor * a(r, i);
    }
  }
  return {a.data.begin(), a.data.end()};
}

// The eigenvalue of the trailing 2x2 block [a b; c d] that is nearer to d (Wilkinson's shift).
Complex wilkinson_shift(Complex a, Complex b, Complex c, Complex d) {
  const Complex half = (a + d) * 0.5, root = std::sqrt((a - d) * (a - d) * 0.25 + b * c);
  return std::abs(half + root - d) < std::abs(half - root - d) ? half + root : half - root;
}

// One step H - sI = QR, H <- RQ + sI on the leading `size` rows and columns, by Givens rotations.
void qr_step(std::vector<Complex>& h, std::size_t n, std::size_t size, Complex shift) {
  const auto at = [&](std::size_t i, std::size_t j) -> Complex& { return h[i * n + j]; };
  std::vector<Complex> cosines(size), sines(size);
  for (std::size_t i = 0; i < size; ++i) at(i, i) -= shift;
  for (std::size_t i = 0; i + 1 < size; ++i) {
    const double length = std::hypot(std::abs(at(i, i)), std::abs(at(i + 1, i)));
    cosines[i] = length == 0 ? Complex(1) : at(i, i) / length;
    sines[i] = length == 0 ? Complex(0) : at(i + 1, i) / length;
    for (std::size_t j = i; j < size; ++j) {
      const Complex top = at(i, j), low = at(i + 1, j);
      at(i, j) = std::conj(cosines[i]) * top + std::conj(sines[i]) * low;
      at(i + 1, j) = cosines[i] * low - sines[i] * top;
    }
  }
  for (std::size_t i = 0; i + 1 < size; ++i) {
    for (std::size_t r = 0; r <= i + 1; ++r) {
      const Complex left = at(r, i), right = at(r, i + 1);
      at(r, i) = left * cosines[i] + right * sines[i];
      at(r, i + 1) = right * std::conj(cosines[i]) - left * std::conj(sines[i]);
    }
  }
  for (std::size_t i = 0; i < size; ++i) at(i, i) += shift;
}

}  // namespace

Matrix least_squares(Matrix a, Matrix b) {
  for (std::size_t j = 0; j < a.columns; ++j) {
    double length = 0;
    for (std::size_t i = j; i < a.rows; ++i) length = std::hypot(length, a(i, j));
    std::vector<double> normal(a.rows);  // of the mirror that maps column j onto the axis
    for (std::size_t i = j; i < a.rows; ++i) normal[i] = a(i, j);
    normal[j] += a(j, j) < 0 ? -length : length;
    double norm2 = 0;
    for (double x : normal) norm2 += x * x;
    const auto reflect = [&](Matrix& m) {
      for (std::size_t c = 0; c < m.columns; ++c) {
        double along = 0;
        for (std::size_t i = j; i < m.rows; ++i) along += normal[i] * m(i, c);
        for (std::size_t i = j; i < m.rows; ++i) m(i, c) -= 2 * along / norm2 * normal[i];
      }
    };
    reflect(a);
    reflect(b);
  }
  Matrix x(a.columns, b.columns);
  for (std::size_t c = 0; c < b.columns; ++c) {
    for (std::size_t j = a.columns; j-- > 0;) {
      double sum = b(j, c);
      for (std::size_t i = j + 1; i < a.columns; ++i) sum -= a(j, i) * x(i, c);
      x(j, c) = sum / a(j, j);
    }
  }
  return x;
}

std::vector<Complex> eigenvalues(const Matrix& a) {
  const std::size_t n = a.rows;
  std::vector<Complex> h = hessenberg(a), values(n);
  constexpr int kMaxSteps = 1000;
  int steps = 0;
  for (std::size_t size = n; size > 0;) {
    if (size == 1) {
      values[0] = h[0];
      break;
    }
    const std::size_t last = size - 1;
    Complex& coupling = h[last * n + last - 1];
    const double neighbors = std::abs(h[last * n + last]) + std::abs(h[(last - 1) * n + last - 1]);
    if (std::abs(coupling) <= std::numeric_limits<double>::epsilon() * neighbors) {
      values[last] = h[last * n + last];
      size = last;
      continue;
    }
    if (++steps > kMaxSteps) throw Error("[eigenvalues] the QR iteration did not converge");
    // Now and then another one: a matrix that only turns, such as a cyclic permutation, would stay as it is for ever.
    const Complex shift = steps % 10 == 0 ? h[last * n + last] + std::abs(coupling)
                                          : wilkinson_shift(h[(last - 1) * n + last - 1], h[(last - 1) * n + last],
                                                            coupling, h[last * n + last]);
    qr_step(h, n, size, shift);
  }
  return values;
}

}  // namespace deltanet::theory
