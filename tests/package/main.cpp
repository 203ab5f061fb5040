// A program outside the project: counts the parameters of GPT-2 with the installed package.
#include <cstdio>

#include "models/registry.h"

int main() {
  tfm::config::Config config = tfm::config::parse_config(
      "model: {family: decoder, preset: gpt2-124m}\ndata: {train: {type: tokens, path: "
      "none.bin}}\n",
      "example", {});
  tfm::config::resolve_for_ranks(config, 1);
  const long long n =
      tfm::models::make_model(config, tfm::comm::single_mesh())->parameters().total_elements();
  std::printf("%lld\n", n);
  return n == 124439808 ? 0 : 1;
}
