#pragma once

#include <complex>
#include <cstddef>
#include <vector>

// Small dense float64 linear algebra for `deltanet verify`: textbook algorithms that share nothing with the library, so
// that they can judge it.

namespace deltanet::theory {

struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> data;  // row-major

  Matrix() = default;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), data(r * c) {}
  Matrix(std::size_t r, std::size_t c, std::vector<double> values) : rows(r), columns(c), data(std::move(values)) {}

  double& operator()(std::size_t i, std::size_t j) { return data[i * columns + j]; }
  double operator()(std::size_t i, std::size_t j) const { return data[i * columns + j]; }
};

// The X [columns of A, columns of B] that minimizes ||A X - B||, by Householder reflections. A has full column rank.
Matrix least_squares(Matrix a, Matrix b);

// All eigenvalues of a square matrix, without assuming symmetry: Hessenberg form, then shifted QR steps with deflation.
std::vector<std::complex<double>> eigenvalues(const Matrix& a);

}  // namespace deltanet::theory
