/* What the library exports: what onnxruntime calls, and functions for the Python package of the same release. */
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
