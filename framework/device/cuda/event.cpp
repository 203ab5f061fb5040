#include "device/cuda/event.h"

#include "device/event.h"

namespace tfm::device {

void Event::record(cuda::Stream& stream) {
  if (!event_) event_ = std::make_shared<cuda::Event>();
  event_->record(stream.get());
}
void Event::wait(cuda::Stream&) const {
  if (event_) event_->wait();
}

}  // namespace tfm::device
