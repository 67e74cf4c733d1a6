#include "bench/peers/mkl_fft.hpp"

#include <array>

#include <dlfcn.h>
#include <fmt/format.h>

#include "bench/fft/fft_report.hpp"
#include "bench/peers/peer_process.hpp"
#include "convolume/error.hpp"

namespace convolume::bench {

/// The functions of DFTI that are called. Status 0 is success.
struct MklFft::Functions {
  using Handle = void*;

  long (*create)(Handle*, int precision, int domain, long dimensions, ...);
  long (*set)(Handle, int parameter, ...);
  long (*commit)(Handle);
  long (*forward)(Handle, void*, ...);
  long (*backward)(Handle, void*, ...);
  long (*free)(Handle*);
  char* (*message)(long);
  int (*threading_layer)(int);
};

namespace {

// Constants of DFTI's interface (mkl_dfti.h, mkl_service.h).
constexpr int complex_domain = 32, real_domain = 33, single_precision = 35, double_precision = 36;
constexpr int conjugate_even_storage = 10, complex_complex = 39, placement = 11, not_in_place = 44;
constexpr int input_strides = 12, output_strides = 13;
constexpr int sequential = 1;

class MklCompetitor final : public Competitor {
 public:
  MklCompetitor(const MklFft::Functions& functions, DataType type, fft::Kind kind, index_t n)
      : f_(functions), kind_(kind), bytes_(cube_bytes(kind, type, n)) {
    const int precision = type == DataType::f32 ? single_precision : double_precision;
    const long edge = n;
    const std::array<long, 3> lengths{edge, edge, edge};
    check(f_.create(&handle_, precision, is_real(kind) ? real_domain : complex_domain, 3L, lengths.data()));
    check(f_.set(handle_, placement, not_in_place));
    if (is_real(kind)) {
      check(f_.set(handle_, conjugate_even_storage, complex_complex));
      const long half = edge / 2 + 1;
      const std::array<long, 4> space{0, edge * edge, edge, 1}, spectrum{0, edge * half, half, 1};
      check(f_.set(handle_, input_strides, (to_space(kind) ? spectrum : space).data()));
      check(f_.set(handle_, output_strides, (to_space(kind) ? space : spectrum).data()));
    }
    check(f_.commit(handle_));
  }
  ~MklCompetitor() override { f_.free(&handle_); }

  std::size_t in_bytes() const override { return bytes_.in; }
  std::size_t out_bytes() const override { return bytes_.out; }
  void bind(void* in, void* out) override {
    in_ = in;
    out_ = out;
  }
  void execute() override { check((to_space(kind_) ? f_.backward : f_.forward)(handle_, in_, out_)); }

 private:
  void check(long status) const {
    if (status != 0) throw Unsupported(fmt::format("MKL: {}", f_.message(status)));
  }

  const MklFft::Functions& f_;
  fft::Kind kind_;
  CubeBytes bytes_;
  void *handle_ = nullptr, *in_ = nullptr, *out_ = nullptr;
};

template <class Function>
void load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw Unsupported(fmt::format("MKL has no function {}: {}", name, dlerror()));
}

}  // namespace

MklFft::MklFft() : functions_(std::make_unique<Functions>()) {
  const PeerProcess found("mkl_library.py");
  const std::string path = found.start().at("library");
  // MKL has FFTW's names too, so its symbols stay local. It stays loaded, because its own libraries refer to it.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Unsupported(fmt::format("MKL cannot be loaded: {}", dlerror()));
  load(library, "DftiCreateDescriptor", functions_->create);
  load(library, "DftiSetValue", functions_->set);
  load(library, "DftiCommitDescriptor", functions_->commit);
  load(library, "DftiComputeForward", functions_->forward);
  load(library, "DftiComputeBackward", functions_->backward);
  load(library, "DftiFreeDescriptor", functions_->free);
  load(library, "DftiErrorMessage", functions_->message);
  load(library, "MKL_Set_Threading_Layer", functions_->threading_layer);
  functions_->threading_layer(sequential);
  version_ = found.facts().version;
}

MklFft::~MklFft() = default;

std::unique_ptr<Competitor> MklFft::competitor(DataType type, fft::Kind kind, index_t n) const {
  return std::make_unique<MklCompetitor>(*functions_, type, kind, n);
}

}  // namespace convolume::bench
