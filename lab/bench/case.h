#ifndef PLANISH_LAB_BENCH_CASE_H_
#define PLANISH_LAB_BENCH_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>

// What is measured: one direction of a norm over one shape in one type, by several contestants that
// get the same arrays. docs/performance.md says how, and what came out.
namespace planish::bench {

enum class Direction : uint8_t { kForward, kBackward };
enum class Type : uint8_t { kFloat, kDouble, kBFloat16, kFloat16 };

struct Case {
  Direction direction = Direction::kForward;
  Type type = Type::kFloat;  ///< of x, y, dy, dx; parameters and sums are float for the half types
  int64_t rows = 0;          ///< or samples
  int64_t cols = 0;          ///< or channels
  int64_t spatial = 1;       ///< numbers of a channel in a sample
  int64_t elements() const { return rows * cols * spatial; }
};

/// The arrays of a case. Those of the case's type: x, dy, out [rows, cols, spatial]. Those of
/// ParameterType:
/// gain, bias, dgain, dbias [cols], mean, rstd [rows].
struct Arrays {
  const void* x = nullptr;
  const void* dy = nullptr;  ///< backward only
  const void* gain = nullptr;
  const void* bias = nullptr;
  const void* mean = nullptr;  ///< backward only: of LayerNorm, for contestants that take them
  const void* rstd = nullptr;  ///< backward only: likewise
  void* out = nullptr;         ///< y, or dx
  void* dgain = nullptr;       ///< backward only
  void* dbias = nullptr;       ///< backward only
};

inline constexpr double kEps = 1e-5;

size_t SizeOf(Type type);
Type ParameterType(Type type);

/// "float", "forward" and so on, and back. The latter throw std::invalid_argument, with a text of
/// the form "[ParseType] type must be ... but has ...".
const char* Name(Type type);
const char* Name(Direction direction);
Type ParseType(const std::string& name);
Direction ParseDirection(const std::string& name);

/// "4096x1024", or "64x256x2048" where there is more than one number of a channel, and back into
/// rows, cols and spatial; throws std::invalid_argument for another text.
std::string ShapeName(const Case& c);
void ParseShape(const std::string& shape, Case& c);

/// The bytes that a contestant must move at least: x and y, or x, dy and dx.
int64_t Bytes(const Case& c);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_CASE_H_
