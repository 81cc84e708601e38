#ifndef PLANISH_LAB_BENCH_CASE_H_
#define PLANISH_LAB_BENCH_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>

// Case of a measurement: one direction of a norm over one shape in one type. Several contestants
// compute it on the same arrays. docs/performance.md describes the method and has the results.
namespace planish::bench {

enum class Direction : uint8_t { kForward, kBackward };
enum class Type : uint8_t { kFloat, kDouble, kBFloat16, kFloat16 };

struct Case {
  Direction direction = Direction::kForward;
  Type type = Type::kFloat;  ///< of x, y, dy, dx; parameters and sums are float for 16-bit types
  int64_t rows = 0;          ///< or samples
  int64_t cols = 0;          ///< or channels
  int64_t spatial = 1;       ///< elements of a channel in a sample
  bool gated = false;        ///< arrays include those of a gate
  int64_t elements() const { return rows * cols * spatial; }
};

/// Arrays of a case. x, dy, gate, out and dgate [rows, cols, spatial] have the case's type. gain,
/// bias, dgain and dbias [cols], scalars and dscalars [2], mean and rstd [rows * spatial] have
/// ParameterType.
struct Arrays {
  const void* x = nullptr;
  const void* dy = nullptr;  ///< backward only
  const void* gain = nullptr;
  const void* bias = nullptr;
  const void* mean = nullptr;     ///< backward only: of LayerNorm
  const void* rstd = nullptr;     ///< backward only: of LayerNorm
  void* out = nullptr;            ///< y, or dx
  void* dgain = nullptr;          ///< backward only
  void* dbias = nullptr;          ///< backward only
  const void* gate = nullptr;     ///< gated cases only
  void* dgate = nullptr;          ///< backward of gated cases only
  const void* scalars = nullptr;  ///< alpha and shift of a function in place of a norm
  void* dscalars = nullptr;       ///< backward only
};

inline constexpr double kEps = 1e-5;

size_t SizeOf(Type type);
Type ParameterType(Type type);

/// Names of types and directions ("float", "forward"), and their parsers. The parsers throw
/// std::invalid_argument.
const char* Name(Type type);
const char* Name(Direction direction);
Type ParseType(const std::string& name);
Direction ParseDirection(const std::string& name);

/// Shape as text, "4096x1024", or "64x256x2048" if spatial > 1, and its parser into rows, cols and
/// spatial. The parser throws std::invalid_argument.
std::string ShapeName(const Case& c);
void ParseShape(const std::string& shape, Case& c);

/// Returns the minimum bytes that a contestant must move: x and y, or x, dy and dx.
int64_t Bytes(const Case& c);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_CASE_H_
