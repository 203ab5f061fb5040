#pragma once
// Problems with values of a configuration that was read earlier, printed at the place where the
// value was written.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/diagnostics.h"
#include "core/error.h"

namespace tfm::config {

// Where the values of a configuration were written. Not part of its value: all places are equal.
class Places {
 public:
  Places() = default;  // for a configuration that was not read from a text
  // `marks`: by the dotted key of each value, "data.train.path[1]" for items of a list.
  Places(Diagnostics texts, std::map<std::string, Mark> marks, Mark root);
  bool operator==(const Places&) const { return true; }

  struct Written {
    Diagnostics texts;
    std::map<std::string, Mark> marks;
    Mark root;
  };
  // `name` stands in for the file if there are no places.
  Written written(const std::string& name) const;

 private:
  std::shared_ptr<const Written> written_;
};

class Problems {
 public:
  explicit Problems(const Places& places, const std::string& name = "configuration");

  // `keys`: the keys involved, the likeliest culprit first.
  void add(const std::vector<std::string>& keys, const std::string& message,
           const std::string& help = {}, ExitCode code = ExitCode::usage);
  // Runs `body`. An exception becomes a problem of `key`; true if there is none.
  template <class F>
  bool collect(const std::string& key, F&& body) {
    try {
      std::forward<F>(body)();
      return true;
    } catch (const Error& e) {
      add_input(key, e.what(), e.code());
    } catch (const std::exception& e) {
      add_input(key, e.what(), ExitCode::input);
    }
    return false;
  }
  // Throws Error(usage) with all problems, or with the first one's code if none is of usage.
  void throw_if_any() const { out_.throw_if_any(); }

 private:
  void add_input(const std::string& key, const std::string& message, ExitCode code);

  Diagnostics out_;
  std::map<std::string, Mark> marks_;
  Mark root_;
};

// Rethrows an exception of `body` as an Error about the value of `key`.
template <class F>
void at_key(const Places& places, const std::string& key, F&& body) {
  Problems problems(places);
  problems.collect(key, std::forward<F>(body));
  problems.throw_if_any();
}

}  // namespace tfm::config
