// Reads the numbers by which cuBLAS and cuBLASLt name types and ways to compute.
#pragma once

#include <library_types.h>

#include "profiler/recording/work.h"

namespace shardlens::profiler {

/// Returns the type that a cudaDataType names.
constexpr NumberType type_of_data(int type) {
  switch (type) {
    case CUDA_R_64F:
      return NumberType::fp64;
    case CUDA_R_32F:
      return NumberType::fp32;
    case CUDA_R_16F:
      return NumberType::fp16;
    case CUDA_R_16BF:
      return NumberType::bf16;
    case CUDA_R_8I:
      return NumberType::int8;
    case CUDA_R_8U:
      return NumberType::uint8;
    case CUDA_R_32I:
      return NumberType::int32;
    case CUDA_C_32F:
      return NumberType::complex64;
    case CUDA_C_64F:
      return NumberType::complex128;
    case 28:  // CUDA_R_8F_E4M3, which old headers lack, as the next two
      return NumberType::fp8_e4m3;
    case 29:  // CUDA_R_8F_E5M2
      return NumberType::fp8_e5m2;
    case 33:  // CUDA_R_4F_E2M1
      return NumberType::fp4;
    default:
      return NumberType::unknown;
  }
}

/// Returns the way to compute that a cublasComputeType_t names.
constexpr NumberType type_of_compute(int compute) {
  switch (compute) {
    case 64:  // CUBLAS_COMPUTE_16F
    case 65:  // CUBLAS_COMPUTE_16F_PEDANTIC
      return NumberType::fp16;
    case 68:  // CUBLAS_COMPUTE_32F
    case 69:  // CUBLAS_COMPUTE_32F_PEDANTIC
      return NumberType::fp32;
    case 74:  // CUBLAS_COMPUTE_32F_FAST_16F
      return NumberType::fp16;
    case 75:  // CUBLAS_COMPUTE_32F_FAST_16BF
      return NumberType::bf16;
    case 77:  // CUBLAS_COMPUTE_32F_FAST_TF32
      return NumberType::tf32;
    case 70:  // CUBLAS_COMPUTE_64F
    case 71:  // CUBLAS_COMPUTE_64F_PEDANTIC
      return NumberType::fp64;
    case 72:  // CUBLAS_COMPUTE_32I
    case 73:  // CUBLAS_COMPUTE_32I_PEDANTIC
      return NumberType::int32;
    default:
      return NumberType::unknown;
  }
}

}  // namespace shardlens::profiler
