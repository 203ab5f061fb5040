#pragma once
// Point-to-point messages between the stages of a pipeline, whatever their transport.
#include <compare>

#include "core/tensor.h"

namespace tfm::comm {

// The messages of one tag from one stage to another.
struct Channel {
  int from = 0, to = 0, tag = 0;
  friend auto operator<=>(const Channel&, const Channel&) = default;
};

class Messages {
 public:
  virtual ~Messages() = default;

  // Messages of equal tags arrive in order. send() copies `t` to `buffer`, which has the same size
  // and belongs to the transport until the message is sent; `t` may be overwritten when send()
  // returns. A send first waits until the previous message of the same tag is sent.
  virtual void send(Tensor t, Tensor buffer, int to, int tag) = 0;
  virtual void receive(Tensor t, int from, int tag) = 0;
  // From here on the buffers of all messages sent so far may be overwritten: on host memory when
  // this returns, on a device by subsequent work on its stream. All ranks call it at the same
  // point; a message sent before it must not be received after it.
  virtual void complete_sends() = 0;
  // Whether messages are enqueued on the device's stream and need no action by the host.
  virtual bool on_stream() const { return false; }
};

}  // namespace tfm::comm
