#include "config/problems.h"

namespace tfm::config {
namespace {

// The position of the first of these keys that was written, else of the innermost section around
// them; null: neither was.
const Mark* find_mark(const std::map<std::string, Mark>& marks,
                      const std::vector<std::string>& keys) {
  for (const std::string& key : keys)
    if (const auto found = marks.find(key); found != marks.end()) return &found->second;
  for (const std::string& key : keys)
    for (auto end = key.find_last_of(".["); end != std::string::npos && end > 0;
         end = key.find_last_of(".[", end - 1))
      if (const auto found = marks.find(key.substr(0, end)); found != marks.end())
        return &found->second;
  return nullptr;
}

}  // namespace

Places::Places(Diagnostics texts, std::map<std::string, Mark> marks, Mark root)
    : written_(std::make_shared<Written>(std::move(texts), std::move(marks), root)) {}

Places::Written Places::written(const std::string& name) const {
  if (written_) return *written_;
  Written none;
  none.root.source = none.texts.add_file(name, "");
  return none;
}

Problems::Problems(const Places& places, const std::string& name) {
  Places::Written written = places.written(name);
  out_ = std::move(written.texts);
  marks_ = std::move(written.marks);
  root_ = written.root;
}

void Problems::add(const std::vector<std::string>& keys, const std::string& message,
                   const std::string& help, ExitCode code) {
  const Mark* at = find_mark(marks_, keys);
  out_.error(at ? *at : root_, message, help, code);
}

void Problems::add_input(const std::string& key, const std::string& message, ExitCode code) {
  const std::string name = key.substr(0, key.find('['));
  add({key}, message.starts_with(name) ? message : name + ": " + message, {}, code);
}

}  // namespace tfm::config
