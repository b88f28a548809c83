// TL_TOPK_HD marks functions that the CPU backend and the kernels share.
#pragma once

#ifdef __CUDACC__
#define TL_TOPK_HD __host__ __device__ __forceinline__
#else
#define TL_TOPK_HD inline
#endif
