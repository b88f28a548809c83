// Just enough of the CUDA driver to hold arrays on a GPU. The driver is opened at run time, so that
// this builds without a CUDA toolkit and runs wherever a GPU does.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <vector>

class Driver {
 public:
  // Makes the primary context of `device` current; it is the one that the CUDA runtime uses.
  explicit Driver(int device) : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    void* context = nullptr;
    int handle = 0;
    call<unsigned>("cuInit", 0u);
    call<int*, int>("cuDeviceGet", &handle, device);
    call<void**, int>("cuDevicePrimaryCtxRetain", &context, handle);
    call<void*>("cuCtxSetCurrent", context);
  }

  template <typename T>
  T* upload(const std::vector<T>& host) {
    uint64_t memory = 0;
    call<uint64_t*, size_t>("cuMemAlloc_v2", &memory, host.size() * sizeof(T));
    call<uint64_t, const void*, size_t>("cuMemcpyHtoD_v2", memory, host.data(),
                                        host.size() * sizeof(T));
    return reinterpret_cast<T*>(memory);
  }

  template <typename T>
  void download(std::vector<T>& host, const T* memory) {
    call<void*, uint64_t, size_t>("cuMemcpyDtoH_v2", host.data(),
                                  reinterpret_cast<uint64_t>(memory), host.size() * sizeof(T));
  }

 private:
  template <typename... Args>
  void call(const char* name, Args... args) {
    auto function = reinterpret_cast<int (*)(Args...)>(library_ ? dlsym(library_, name) : nullptr);
    const int status = function != nullptr ? function(args...) : -1;
    if (status == 0) return;
    std::cerr << name << " failed: " << status << '\n';
    std::exit(1);
  }

  void* library_;
};
