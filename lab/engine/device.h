#ifndef PLANISH_LAB_ENGINE_DEVICE_H_
#define PLANISH_LAB_ENGINE_DEVICE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

// The device on which the engine trains a model. Data, random numbers and checkpoints are on the
// CPU: so a run draws the same numbers on every device.
namespace planish::lab {

/// Returns the device that --device names: cpu, cuda or cuda:N. "cuda" is another GPU for each
/// process that torchrun starts on a machine. Throws UsageError for another name,
/// for a libtorch without CUDA, and for a GPU that does not exist.
c10::Device ParseDevice(const std::string& name);

/// Returns `t` on the device, or `t` itself if it is there or undefined. A copy to a GPU starts
/// from pinned memory and continues in the background.
at::Tensor ToDevice(const at::Tensor& t, c10::Device device);

/// Returns the tensors on the device.
std::vector<at::Tensor> ToDevice(std::vector<at::Tensor> tensors, c10::Device device);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_DEVICE_H_
