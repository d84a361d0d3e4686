# find_package(Shardlens): the target Shardlens::runtime, for programs with their own model. LibTorch
# stays where it was when Shardlens was built.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(JPEG)
find_dependency(ZLIB)
find_dependency(fmt)
find_dependency(spdlog)
find_dependency(nlohmann_json)
find_dependency(CLI11)
find_dependency(yaml-cpp)
find_dependency(PkgConfig)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
include("${CMAKE_CURRENT_LIST_DIR}/ShardlensTargets.cmake")
