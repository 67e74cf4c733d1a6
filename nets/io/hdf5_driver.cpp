#include "nets/io/hdf5_driver.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <unistd.h>

namespace convolume::nets::io::detail {
namespace {

/// A file as HDF5 sees it. HDF5 wants its own fields first.
struct Driver {
  H5FD_t common{};
  Hdf5Target* target = nullptr;
  haddr_t allocated = 0, end = 0;  // end of the address space, and of what was written
};

Driver& driver_of(H5FD_t* file) { return *reinterpret_cast<Driver*>(file); }
const Driver& driver_of(const H5FD_t* file) { return *reinterpret_cast<const Driver*>(file); }

H5FD_t* open_driver(const char*, unsigned, hid_t access, haddr_t) {
  const auto* const target = static_cast<Hdf5Target* const*>(H5Pget_driver_info(access));
  if (target == nullptr) return nullptr;
  auto driver = std::make_unique<Driver>();
  driver->target = *target;
  return &driver.release()->common;
}

herr_t close_driver(H5FD_t* file) {
  delete &driver_of(file);
  return 0;
}

int compare_drivers(const H5FD_t* a, const H5FD_t* b) {
  const auto *left = driver_of(a).target, *right = driver_of(b).target;
  return std::less<>()(left, right) ? -1 : left != right;
}

herr_t query_driver(const H5FD_t*, unsigned long* flags) {
  if (flags != nullptr) {
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
  }
  return 0;
}

haddr_t allocated(const H5FD_t* file, H5FD_mem_t) { return driver_of(file).allocated; }
herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  driver_of(file).allocated = end;
  return 0;
}
haddr_t end_of_file(const H5FD_t* file, H5FD_mem_t) { return driver_of(file).end; }

herr_t read_driver(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t size, void* buffer) {
  driver_of(file).target->read(offset, size, buffer);
  return 0;
}
herr_t write_driver(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, std::size_t size, const void* buffer) {
  driver_of(file).target->write(offset, size, buffer);
  driver_of(file).end = std::max(driver_of(file).end, offset + size);
  return 0;
}
herr_t truncate_driver(H5FD_t* file, hid_t, hbool_t) {
  Driver& driver = driver_of(file);
  if (driver.end != driver.allocated) driver.target->truncate(driver.allocated);
  driver.end = driver.allocated;
  return 0;
}

H5FD_class_t make_class() {
  constexpr H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
  H5FD_class_t made{};
  made.name = "convolume";
  made.maxaddr = HADDR_MAX / 2;
  made.fc_degree = H5F_CLOSE_WEAK;
  made.fapl_size = sizeof(Hdf5Target*);
  made.open = open_driver;
  made.close = close_driver;
  made.cmp = compare_drivers;
  made.query = query_driver;
  made.get_eoa = allocated;
  made.set_eoa = set_allocated;
  made.get_eof = end_of_file;
  made.read = read_driver;
  made.write = write_driver;
  made.truncate = truncate_driver;
  std::copy(std::begin(map), std::end(map), made.fl_map);
  return made;
}

}  // namespace

herr_t Hdf5Target::use_for(hid_t access) {
  static const H5FD_class_t driver = make_class();
  static hid_t number = -1;  // guarded by the lock of the session
  if (number < 0 || H5Iget_type(number) != H5I_VFL) number = H5FDregister(&driver);
  Hdf5Target* const self = this;
  return number < 0 ? -1 : H5Pset_driver(access, number, &self);
}

void Hdf5Target::read(std::uint64_t offset, std::size_t size, void* buffer) {
  auto* const bytes = static_cast<char*>(buffer);
  std::size_t filled = 0;
  while (filled < size) {
    const auto got = ::pread(descriptor_, bytes + filled, size - filled, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && error_ == 0) error_ = errno;
    if (got <= 0) break;
    filled += static_cast<std::size_t>(got);
  }
  std::memset(bytes + filled, 0, size - filled);  // HDF5 reads beyond the end and expects zeros
  for (const auto& [at, lost] : lost_) {
    const std::uint64_t begin = std::max(at, offset), end = std::min(at + lost.size(), offset + size);
    if (begin < end) std::memcpy(bytes + (begin - offset), lost.data() + (begin - at), end - begin);
  }
}

void Hdf5Target::write(std::uint64_t offset, std::size_t size, const void* buffer) {
  const auto* const bytes = static_cast<const char*>(buffer);
  std::size_t written = 0;
  while (error_ == 0 && written < size) {
    const auto now = ::pwrite(descriptor_, bytes + written, size - written, static_cast<off_t>(offset + written));
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) {
      error_ = errno;
    } else {
      written += static_cast<std::size_t>(now);
    }
  }
  if (written == size) return;
  try {
    lost_[offset].assign(bytes, bytes + size);
  } catch (const std::bad_alloc&) {  // HDF5 reads old bytes then; the file is abandoned anyway
  }
}

void Hdf5Target::truncate(std::uint64_t size) {
  if (error_ == 0 && ::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) error_ = errno;
}

}  // namespace convolume::nets::io::detail
