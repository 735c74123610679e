#pragma once

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <iostream>

// For programs with random tests (RapidCheck): the same cases in every run, so that what passed once passes again.
// RC_PARAMS chooses others, as in RC_PARAMS="max_success=2000 seed=7", or new ones every time: RC_PARAMS="".

namespace deltanet::test {

struct FixedSeed : testing::Environment {
  void SetUp() override {
    setenv("RC_PARAMS", "seed=1", /*overwrite=*/0);
    std::cout << "Random tests: RC_PARAMS=\"" << std::getenv("RC_PARAMS") << "\"" << std::endl;
  }
};
inline const auto* const kFixedSeed = testing::AddGlobalTestEnvironment(new FixedSeed);

}  // namespace deltanet::test
