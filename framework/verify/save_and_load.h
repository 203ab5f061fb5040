#pragma once
// Verifies that a checkpoint gives back what was saved.
#include <functional>

#include "train/engine.h"
#include "verify/finding.h"

namespace tfm::verify {

// Collective over the mesh; in the configuration's precision. `on_loaded` is called with the engine
// that has loaded the checkpoint, before the comparison.
Finding save_and_load(
    const config::Config& config, const comm::Mesh& mesh, const device::Device& device,
    const std::function<void(train::Engine&)>& on_loaded = [](train::Engine&) {});

}  // namespace tfm::verify
