#ifndef PLANISH_TESTS_ACCURACY_ROWS_FILE_H_
#define PLANISH_TESTS_ACCURACY_ROWS_FILE_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

// Files of float matrices without a header. With them accuracy.py passes the same rows to programs
// and to Python packages.
namespace planish::tests {

/// The inputs of a layer norm without gain and bias, and its outputs.
struct Rows {
  int64_t rows, cols;
  std::vector<float> x, dy, y, dx, dgain, dbias;

  Rows(int64_t r, int64_t c)
      : rows(r),
        cols(c),
        x(Size()),
        dy(Size()),
        y(Size()),
        dx(Size()),
        dgain(static_cast<size_t>(c)),
        dbias(static_cast<size_t>(c)) {}

  size_t Size() const { return static_cast<size_t>(rows * cols); }

  /// Reads x, then dy. Returns false if the file cannot be read or is too short.
  bool Read(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return false;
    const bool whole = Each(std::fread, {&x, &dy}, file);
    std::fclose(file);
    return whole;
  }

  /// Writes y, dx, dgain and dbias. Returns false on failure.
  bool Write(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) return false;
    const bool whole = Each(std::fwrite, {&y, &dx, &dgain, &dbias}, file);
    return std::fclose(file) == 0 && whole;
  }

 private:
  template <class F>
  static bool Each(F* transfer, std::initializer_list<std::vector<float>*> arrays,
                   std::FILE* file) {
    for (std::vector<float>* array : arrays) {
      if (transfer(array->data(), sizeof(float), array->size(), file) != array->size())
        return false;
    }
    return true;
  }
};

}  // namespace planish::tests

#endif  // PLANISH_TESTS_ACCURACY_ROWS_FILE_H_
