#ifndef PLANISH_BENCH_BASE_ONEDNN_H_
#define PLANISH_BENCH_BASE_ONEDNN_H_

#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <string>

namespace planish::bench {

/// CPU engine of oneDNN with a stream.
struct OneDnn {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};

  /// Returns "oneDNN 3.2.0".
  static std::string Version() {
    const dnnl::version_t* v = dnnl::version();
    return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
  }
};

inline OneDnn& TheOneDnn() {
  static OneDnn onednn;
  return onednn;
}

}  // namespace planish::bench

#endif  // PLANISH_BENCH_BASE_ONEDNN_H_
