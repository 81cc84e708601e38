#include "lab/engine/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "lab/error.h"

namespace planish::lab {

namespace {

// Returns N of "cuda:N", and -1 for another name. "cuda" means the GPU LOCAL_RANK, which torchrun
// sets for each process of a machine, else 0.
int GpuNumber(std::string_view name) {
  std::string text(name);
  if (name == "cuda") {
    const char* rank = std::getenv("LOCAL_RANK");
    text = fmt::format("cuda:{}", rank != nullptr && *rank != '\0' ? rank : "0");
    name = text;
  }
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : -1;
}

}  // namespace

c10::Device ParseDevice(const std::string& name) {
  if (name == "cpu") return c10::kCPU;
  const int number = GpuNumber(name);
  if (number < 0) {
    throw UsageError(fmt::format("[train] --device must be cpu, cuda or cuda:N, got \"{}\"", name));
  }
  if (!at::globalContext().hasCUDA()) {
    throw UsageError(fmt::format(
        "[train] --device {} needs a libtorch with CUDA and a GPU; this one computes on the CPU",
        name));
  }
  const int count = c10::impl::getDeviceGuardImpl(c10::kCUDA)->deviceCount();
  if (number >= count) {
    throw UsageError(
        fmt::format("[train] --device cuda:{} does not exist: GPUs are cuda:0 to "
                    "cuda:{}",
                    number, count - 1));
  }
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(number)};
}

at::Tensor ToDevice(const at::Tensor& t, c10::Device device) {
  if (!t.defined() || t.device() == device) return t;
  if (device.is_cpu() || !t.is_cpu()) return t.to(device);
  return t.pin_memory().to(device, /*non_blocking=*/true);
}

std::vector<at::Tensor> ToDevice(std::vector<at::Tensor> tensors, c10::Device device) {
  for (at::Tensor& t : tensors) t = ToDevice(std::as_const(t), device);
  return tensors;
}

}  // namespace planish::lab
