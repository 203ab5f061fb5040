#pragma once
// What tests see and set of the stand-in of the CUDA driver.
#include <string>
#include <vector>

struct Driver {
  bool loads = true;                 // compiled kernels; otherwise that is an error
  std::vector<std::string> kernels;  // loaded so far
  int compilations = 0;              // by NVRTC, so far
};
Driver& driver();
