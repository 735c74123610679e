# Third-party parts: the installed package first, else a pinned and hashed source archive.
#
# The archives are only used where find_package() finds nothing; -DFETCHCONTENT_FULLY_DISCONNECTED=ON forbids downloads,
# -DFETCHCONTENT_TRY_FIND_PACKAGE_MODE=NEVER forces them.

include(FetchContent)
set(FETCHCONTENT_QUIET ON)
if(POLICY CMP0135)
  cmake_policy(SET CMP0135 NEW)  # extracted files get the time of extraction
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(DELTANET_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(STATUS "OpenMP not found: threads are run by std::thread")
    set(DELTANET_OPENMP OFF)
  endif()
endif()

# Highway: SIMD with dispatch at run time. Installed along with a static deltanet when it was fetched.
set(HWY_ENABLE_TESTS OFF CACHE INTERNAL "")
set(HWY_ENABLE_EXAMPLES OFF CACHE INTERNAL "")
set(HWY_ENABLE_CONTRIB OFF CACHE INTERNAL "")
FetchContent_Declare(hwy
  URL https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz
  URL_HASH SHA256=7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343
  SYSTEM
  FIND_PACKAGE_ARGS 1.0.3 CONFIG)
FetchContent_MakeAvailable(hwy)
if(NOT TARGET hwy::hwy)
  add_library(hwy::hwy ALIAS hwy)
endif()

# Compile for the baseline, SSE4, AVX2 and AVX-512 only. Which targets there are in between depends on Highway's version.
find_file(DELTANET_HWY_TARGETS_HEADER hwy/detect_targets.h PATHS "${hwy_SOURCE_DIR}" NO_CACHE)
if(hwy_SOURCE_DIR)
  set(DELTANET_HWY_TARGETS_HEADER "${hwy_SOURCE_DIR}/hwy/detect_targets.h")
endif()
set(DELTANET_HWY_DISABLED 0)
set(unwanted HWY_SSSE3 HWY_AVX3_DL HWY_AVX3_ZEN4 HWY_AVX3_SPR)
if(DELTANET_SANITIZE)
  list(APPEND unwanted HWY_SSE4)  # the same code as the others, and a quarter of the time to compile the kernels
endif()
foreach(target IN LISTS unwanted)
  if(DELTANET_HWY_TARGETS_HEADER)
    file(STRINGS "${DELTANET_HWY_TARGETS_HEADER}" defined REGEX "^#define ${target} ")
    if(defined)
      string(APPEND DELTANET_HWY_DISABLED "|${target}")
    endif()
  endif()
endforeach()

if(DELTANET_MODELS)
  set(JSON_BuildTests OFF CACHE INTERNAL "")
  set(JSON_Install OFF CACHE INTERNAL "")
  FetchContent_Declare(nlohmann_json
    URL https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.tar.gz
    URL_HASH SHA256=0d8ef5af7f9794e3263480193c491549b2ba6cc74bb018906202ada498a79406
    SYSTEM
    FIND_PACKAGE_ARGS 3.10 CONFIG)
  FetchContent_MakeAvailable(nlohmann_json)
  include("${CMAKE_CURRENT_LIST_DIR}/ModelLibraries.cmake")
endif()

if(DELTANET_BUILD_CLI OR DELTANET_BUILD_TESTS)
  FetchContent_Declare(fmt
    URL https://github.com/fmtlib/fmt/archive/refs/tags/10.2.1.tar.gz
    URL_HASH SHA256=1250e4cc58bf06ee631567523f48848dc4596133e163f02615c97f78bab6c811
    SYSTEM
    FIND_PACKAGE_ARGS 9 CONFIG)
  FetchContent_Declare(CLI11
    URL https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    URL_HASH SHA256=f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a
    SYSTEM
    FIND_PACKAGE_ARGS 2.1 CONFIG)
  FetchContent_MakeAvailable(fmt CLI11)
endif()

if(DELTANET_BUILD_TESTS)
  set(INSTALL_GTEST OFF CACHE INTERNAL "")
  set(BUILD_GMOCK OFF CACHE INTERNAL "")
  FetchContent_Declare(googletest
    URL https://github.com/google/googletest/archive/refs/tags/v1.14.0.tar.gz
    URL_HASH SHA256=8ad598c73ad796e0d8280b082cebd82a630d73e73cd3c70057938a6501bba5d7
    SYSTEM
    FIND_PACKAGE_ARGS NAMES GTest)
  FetchContent_MakeAvailable(googletest)
  set(RC_ENABLE_GTEST ON CACHE INTERNAL "")
  FetchContent_Declare(rapidcheck
    URL https://github.com/emil-e/rapidcheck/archive/ff6af6fc683159deb51c543b065eba14dfcf329b.zip
    URL_HASH SHA256=60951dbc4de162622f51a4a34117c269a9921833a51dddce36f4cc80a5f7cf9f
    SYSTEM
    FIND_PACKAGE_ARGS CONFIG)
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)  # it asks for less, which CMake 4 refuses
  FetchContent_MakeAvailable(rapidcheck)
  unset(CMAKE_POLICY_VERSION_MINIMUM)
endif()
