#pragma once
#include <string>
#include <vector>

// In the order in which cuDNN loaded them through the stand-in of the CUDA driver.
std::vector<std::string>& loaded_kernels();
