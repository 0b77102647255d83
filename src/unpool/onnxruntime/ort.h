/* What is used of onnxruntime's C API.
 *
 * Functions are used by their place in its table. The table only grows: a place that one release has keeps its meaning.
 * Places, the layout of OrtCustomOp, and rules of its use were read in onnxruntime's public header onnxruntime_c_api.h
 * (API 17 to 30); its releases have the version 1.Y.Z, where Y is the number of the API. */
#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtShapeInfo OrtShapeInfo; /* OrtTensorTypeAndShapeInfo */

enum { MIN_API = 17, TELLS_ENTRIES = 24, CHECKS_OUTPUT_COUNT = 28 }; /* of the API: shape inference; entries of the
                                                                          session; it refuses absent outputs */

extern const void *const *api;
extern int api_number;

#define CreateStatus ((OrtStatus * (*)(int, const char *)) api[0])
#define GetErrorMessage ((const char *(*)(const OrtStatus *))api[2])
#define CreateCustomOpDomain ((OrtStatus * (*)(const char *, void **)) api[26])
#define CustomOpDomain_Add ((OrtStatus * (*)(void *, const void *)) api[27])
#define AddCustomOpDomain ((OrtStatus * (*)(void *, void *)) api[28])
#define GetTensorMutableData ((OrtStatus * (*)(OrtValue *, void **)) api[51])
#define CreateTensorTypeAndShapeInfo ((OrtStatus * (*)(OrtShapeInfo **)) api[57])
#define SetTensorElementType ((OrtStatus * (*)(OrtShapeInfo *, int)) api[58])
#define SetDimensions ((OrtStatus * (*)(OrtShapeInfo *, const int64_t *, size_t)) api[59])
#define GetTensorElementType ((OrtStatus * (*)(const OrtShapeInfo *, int *)) api[60])
#define GetDimensionsCount ((OrtStatus * (*)(const OrtShapeInfo *, size_t *)) api[61])
#define GetDimensions ((OrtStatus * (*)(const OrtShapeInfo *, int64_t *, size_t)) api[62])
#define GetSymbolicDimensions ((OrtStatus * (*)(const OrtShapeInfo *, const char **, size_t)) api[63])
#define GetTensorTypeAndShape ((OrtStatus * (*)(const OrtValue *, OrtShapeInfo **)) api[65])
#define KernelInfoGetAttribute_float ((OrtStatus * (*)(const void *, const char *, float *)) api[85])
#define KernelInfoGetAttribute_int64 ((OrtStatus * (*)(const void *, const char *, int64_t *)) api[86])
#define KernelInfoGetAttribute_string ((OrtStatus * (*)(const void *, const char *, char *, size_t *)) api[87])
#define KernelContext_GetInputCount ((OrtStatus * (*)(const void *, size_t *)) api[88])
#define KernelContext_GetInput ((OrtStatus * (*)(const void *, size_t, const OrtValue **)) api[90])
#define KernelContext_GetOutput ((OrtStatus * (*)(void *, size_t, const int64_t *, size_t, OrtValue **)) api[91])
#define ReleaseStatus ((void (*)(OrtStatus *))api[93])
#define ReleaseTensorTypeAndShapeInfo ((void (*)(OrtShapeInfo *))api[99])
#define AddSessionConfigEntry ((OrtStatus * (*)(void *, const char *, const char *)) api[130])
#define KernelInfoGetAttributeArray_float ((OrtStatus * (*)(const void *, const char *, float *, size_t *)) api[162])
#define KernelInfoGetAttributeArray_int64 ((OrtStatus * (*)(const void *, const char *, int64_t *, size_t *)) api[163])
#define KernelInfo_GetInputCount ((OrtStatus * (*)(const void *, size_t *)) api[230])
#define KernelInfo_GetOutputCount ((OrtStatus * (*)(const void *, size_t *)) api[231])
#define KernelInfo_GetOutputName ((OrtStatus * (*)(const void *, size_t, char *, size_t *)) api[233])
#define HasSessionConfigEntry ((OrtStatus * (*)(const void *, const char *, int *)) api[237])
#define GetSessionConfigEntry ((OrtStatus * (*)(const void *, const char *, char *, size_t *)) api[238])
#define KernelInfo_GetNodeName ((OrtStatus * (*)(const void *, char *, size_t *)) api[244])
#define KernelInfoGetConstantInput_tensor \
    ((OrtStatus * (*)(const void *, size_t, int *, const OrtValue **)) api[249])
#define ShapeInferContext_GetInputCount ((OrtStatus * (*)(const void *, size_t *)) api[267])
#define ShapeInferContext_GetInputTypeShape ((OrtStatus * (*)(const void *, size_t, OrtShapeInfo **)) api[268])
#define ShapeInferContext_GetAttribute ((OrtStatus * (*)(const void *, const char *, const void **)) api[269])
#define ShapeInferContext_SetOutputTypeShape ((OrtStatus * (*)(const void *, size_t, const OrtShapeInfo *)) api[270])
#define SetSymbolicDimensions ((OrtStatus * (*)(OrtShapeInfo *, const char *[], size_t)) api[271])
#define ReadOpAttr ((OrtStatus * (*)(const void *, int, void *, size_t, size_t *)) api[272])
#define KernelContext_ParallelFor \
    ((OrtStatus * (*)(const void *, void (*)(void *, size_t), size_t, size_t, void *)) api[274])
#define GetKeyValue ((const char *(*)(const void *, const char *))api[297])
#define ReleaseKeyValuePairs ((void (*)(void *))api[300])
#define KernelInfo_GetConfigEntries ((OrtStatus * (*)(const void *, void **)) api[391])

enum { OK, FAIL, INVALID_ARGUMENT, NOT_IMPLEMENTED = 9 }; /* codes of OrtStatus */
enum Type { ANY, FLOAT = 1, UINT8 = 2, INT8 = 3, INT64 = 7, FLOAT16 = 10, DOUBLE = 11, BFLOAT16 = 16 }; /* onnx.TensorProto */

static inline OrtStatus *fail(int code, const char *message) { return CreateStatus(code, message); }

static inline int release(OrtStatus *status) { /* 1 if the call failed */
    if (status == NULL) return 0;
    ReleaseStatus(status);
    return 1;
}
