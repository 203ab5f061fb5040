#pragma once
// Windows of attention (attention.window) in the config.json of decoders. Query t of a layer with
// `sliding_window` sees the keys t - sliding_window + 1 to t.
#include "huggingface/architecture.h"

namespace tfm::huggingface {

// Member `key`; null: 0, no window. `absent`: its value where it is not there.
std::int64_t window_in(const io::JsonNode& c, std::int64_t absent,
                       const char* key = "sliding_window");
// That of layers which are all alike.
void write_window(Json& j, const config::ModelConfig& m, std::int64_t absent);

// Whether a layer has a window where layer_types does not say so.
using Slides = bool (*)(std::int64_t layer, std::int64_t number);
// The layers from max_window_layers on.
bool slides_after(std::int64_t layer, std::int64_t max_window_layers);
// Some layers have one window and the others none. They are read after everything else that layers
// have.
struct Sliding {
  Slides slides;
  bool if_used = true;                       // only with use_sliding_window
  const char* number = "max_window_layers";  // the member that `slides` asks for
  std::int64_t absent = 28;                  // its value where it is not there
  std::int64_t window = 4096;                // the window where it is not there
  const char* key = "sliding_window";
  bool first_norm = true;  // false: the first layer has no norm before its attention
};
void read_windows(config::ModelConfig& m, const io::JsonNode& c, const Sliding& sliding);
void write_windows(Json& j, const config::ModelConfig& m, const Sliding& sliding);

}  // namespace tfm::huggingface
