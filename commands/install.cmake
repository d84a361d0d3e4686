# Installs the programs, what they load, and what a program with its own model links.
# The top includes this after all folders. The same LibTorch serves both trees.
include(CMakePackageConfigHelpers)
set(home lib/shardlens)

# Components: `tools` and `recorders` are in every installation, and in the wheel for other machines
# (make wheel), where `portable` replaces `linked`: programs that find LibTorch when they start
# (installation.h).
set(tools shardlens shardlens-plan shardlens-profile shardlens-gate shardlens-view
          shardlens-calibrate shardlens-checkpoint shardlens-doctor)
install(TARGETS ${tools} RUNTIME DESTINATION bin COMPONENT tools)
install(FILES planner/pytorch/train.py planner/pytorch/calibrate.py
        DESTINATION ${home}/plan COMPONENT tools)
add_custom_target(programs DEPENDS ${tools})
if(NOT SHARDLENS_LIBTORCH)
  return()
endif()
set(recording shardlens-record shardlens-advise shardlens-check-gpu shardlens-matrix shardlens-solve
    shardlens-sweep)
install(TARGETS ${recording} RUNTIME DESTINATION bin COMPONENT tools)
set(linked shardlens-train shardlens-infer)
install(TARGETS ${linked} RUNTIME DESTINATION bin COMPONENT linked)
install(TARGETS ${linked} RUNTIME DESTINATION ${home}/bin COMPONENT portable EXCLUDE_FROM_ALL)
foreach(name IN LISTS linked)
  install(PROGRAMS "$<TARGET_FILE:shardlens-with-libtorch>" DESTINATION bin RENAME ${name}
          COMPONENT portable EXCLUDE_FROM_ALL)
endforeach()
add_dependencies(programs ${linked} ${recording} shardlens-with-libtorch shardlens_null_stubs)
# The programs that .setup/demo runs: a new user should wait for no others.
add_custom_target(demo DEPENDS shardlens shardlens-train shardlens-plan shardlens-profile shardlens-view
                               shardlens_null_stubs)
install(TARGETS ${SHARDLENS_NULL_LIBRARIES} LIBRARY DESTINATION ${home}/null_device
        COMPONENT recorders NAMELINK_SKIP)
install(TARGETS shardlens_python shardlens_event_times LIBRARY DESTINATION ${home}/record
        COMPONENT recorders)
install(DIRECTORY profiler/record/python DESTINATION ${home}/record COMPONENT recorders
        PATTERN "__pycache__" EXCLUDE)
install(FILES profiler/null_device/make_stubs.py "${CMAKE_BINARY_DIR}/record/sources.sha256"
        DESTINATION ${home}/record COMPONENT recorders)
# Recorders for other PyTorchs that have been built; a name with a dot is still being built.
install(DIRECTORY "${CMAKE_BINARY_DIR}/record/pytorch" DESTINATION ${home}/record
        COMPONENT recorders OPTIONAL
        PATTERN ".*" EXCLUDE
        PATTERN "*.log" EXCLUDE)

# The headers that tests/examples/own_model.cpp includes, with all that those include.
foreach(
  header IN
  ITEMS base/check.h
        base/choice.h
        base/device.h
        base/dtype.h
        models/model.h
        models/own_data.h
        models/spec.h
        planner/config/choices.h
        planner/config/config.h
        runtime/runtime.h
        runtime/train/forecast.h
        runtime/train/own_training.h)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION include/shardlens/${folder})
endforeach()
# Old paths of headers. Each forwards to the new path, for one release.
foreach(moved IN ITEMS config/strategy.h=planner/config/config.h train/runtime.h=runtime/runtime.h
                       config/choice.h=base/choice.h models/input_use.h=models/spec.h)
  string(REPLACE "=" ";" moved "${moved}")
  list(GET moved 0 old)
  list(GET moved 1 new)
  cmake_path(GET old PARENT_PATH folder)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/forwarding/${old}"
       CONTENT [[
// Moved: include "@new@".
#pragma once

#include "@new@"
]] @ONLY)
  install(FILES "${CMAKE_BINARY_DIR}/forwarding/${old}" DESTINATION include/shardlens/${folder})
endforeach()
install(FILES commands/home.cpp DESTINATION ${home})
target_sources(shardlens_runtime
               INTERFACE "$<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${home}/home.cpp>")
target_compile_definitions(
  shardlens_runtime INTERFACE "$<INSTALL_INTERFACE:SHARDLENS_HOME=\"$<INSTALL_PREFIX>/${home}\">")
target_include_directories(shardlens_runtime INTERFACE $<INSTALL_INTERFACE:include/shardlens>)
target_compile_features(shardlens_runtime INTERFACE cxx_std_20)

set_target_properties(shardlens_runtime PROPERTIES EXPORT_NAME runtime)
install(TARGETS shardlens_base shardlens_models shardlens_models_torch shardlens_profiler
                shardlens_driver_watch shardlens_recorder shardlens_null_device shardlens_step_time
                shardlens_planner shardlens_runtime_core shardlens_runtime shardlens_flags
                shardlens_libtorch shardlens_libc10_cuda
        EXPORT ShardlensTargets
        ARCHIVE DESTINATION ${home})
install(EXPORT ShardlensTargets NAMESPACE Shardlens:: DESTINATION lib/cmake/Shardlens)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/ShardlensConfigVersion.cmake"
                                 COMPATIBILITY ExactVersion)
install(FILES commands/ShardlensConfig.cmake "${CMAKE_BINARY_DIR}/ShardlensConfigVersion.cmake"
        DESTINATION lib/cmake/Shardlens)
