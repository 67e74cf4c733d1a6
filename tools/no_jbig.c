/* The functions of JBIG-KIT that libtiff calls. Each of them fails, so TIFF files that are compressed with JBIG cannot be
 * read. A wheel has this file in the place of libjbig, which is under the GPL. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum { aborted = 1 << 4 }; /* what libtiff takes for a failure */

EXPORT void jbg_dec_init(void* state) { (void)state; }
EXPORT void jbg_dec_free(void* state) { (void)state; }
EXPORT int jbg_dec_in(void* state, unsigned char* data, size_t bytes, size_t* used) {
  (void)state, (void)data, (void)bytes;
  if (used != NULL) *used = 0;
  return aborted;
}
EXPORT unsigned char* jbg_dec_getimage(const void* state, int plane) {
  (void)state, (void)plane;
  return NULL;
}
EXPORT unsigned long jbg_dec_getsize(const void* state) {
  (void)state;
  return 0;
}
EXPORT const char* jbg_strerror(int error) {
  (void)error;
  return "this build cannot read JBIG";
}
EXPORT int jbg_newlen(unsigned char* image, size_t bytes) {
  (void)image, (void)bytes;
  return aborted;
}
EXPORT void jbg_enc_init(void* state, unsigned long x, unsigned long y, int planes, unsigned char** image, void* put,
                         void* file) {
  (void)state, (void)x, (void)y, (void)planes, (void)image, (void)put, (void)file;
}
EXPORT void jbg_enc_out(void* state) { (void)state; }
EXPORT void jbg_enc_free(void* state) { (void)state; }
