/* MaxPool, MaxUnpool and ConvTranspose as custom operators of onnxruntime.
 *
 * onnxruntime loads this library for a session (`SessionOptions.register_custom_ops_library`), calls
 * `RegisterCustomOps`, and gives the nodes of three domains to the operators here: "" and com.ms.internal.nhwc, where
 * they take the place of onnxruntime's own, and "unpool".
 *
 *     create     the attributes of a node are read once, and handed to the planner
 *     infer      output types and shapes, as far as input shapes determine them
 *     compute    the planner computes the outputs; its jobs run in the threads of the session (ParallelFor)
 *
 * The planner is a table of functions that the process sets, in Python by `unpool/onnxruntime/planner.py`.
 *
 * Functions of onnxruntime's C API are used by their place in its table. The table only grows: a place that one release
 * has keeps its meaning. Places, the layout of OrtCustomOp, and rules of its use were read in onnxruntime's public header
 * onnxruntime_c_api.h (API 17 to 30); its releases have the version 1.Y.Z, where Y is the number of the API. */
#define _POSIX_C_SOURCE 200112L
#include "kernels.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
__declspec(dllimport) void Sleep(unsigned long);
static void pause_thread(void) { Sleep(1); }
#else
#include <time.h>
#define EXPORT __attribute__((visibility("default")))
static void pause_thread(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }
#endif

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtShapeInfo OrtShapeInfo; /* OrtTensorTypeAndShapeInfo */

enum { MIN_API = 17, CHECKS_OUTPUT_COUNT = 28 }; /* numbers of the API: shape inference; it refuses absent outputs */

static const void *const *api;
static int api_number;

#define CreateStatus ((OrtStatus * (*)(int, const char *)) api[0])
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

/* Operators */

enum Operator { MAX_POOL, MAX_UNPOOL, CONV_TRANSPOSE, OPERATORS };
enum Type { FLOAT = 1, UINT8 = 2, INT8 = 3, INT64 = 7, FLOAT16 = 10, DOUBLE = 11, BFLOAT16 = 16 }; /* onnx.TensorProto */
enum { REQUIRED, OPTIONAL, VARIADIC };
enum { STANDARD, CHANNELS_LAST, COMPILED }; /* domains */
enum { OK, FAIL, INVALID_ARGUMENT, NOT_IMPLEMENTED = 9 }; /* codes of OrtStatus */
enum { MAX_INPUTS = 8, MAX_OUTPUTS = 2, MAX_RANK = 64 };

static const char *const names[OPERATORS] = {"MaxPool", "MaxUnpool", "ConvTranspose"};
static const size_t input_counts[OPERATORS] = {1, 3, 3}, output_counts[OPERATORS] = {2, 1, 1};
static const int types[] = {FLOAT, DOUBLE, FLOAT16, BFLOAT16, INT8, UINT8};
static const char *const domains[] = {"", "com.ms.internal.nhwc", "unpool"};
static const size_t data_counts[OPERATORS] = {1, 3, 1}; /* inputs of a compiled node that are no constants */

enum { TYPES = sizeof types / sizeof *types, DOMAINS = sizeof domains / sizeof *domains };

/* Settings of a session: entries of its configuration, read when the library is registered. Nodes do not say in which
 * opset a model is written. Without a setting ConvTranspose begins with opset 11, where its meaning changed for the last
 * time: onnxruntime runs older ones. */

enum { EXACT, COMPAT, INDEX_SPACE, OPSET, TRUST_PLANS, SETTINGS, SETTING = 16 };

static const char *const entries[SETTINGS] = {"unpool.exact", "unpool.compat", "unpool.index_space", "unpool.opset",
                                             "unpool.trust_plans"};

typedef struct Settings {
    char values[SETTINGS][SETTING]; /* "" where nothing is set */
} Settings;

enum { NEW_CONV_TRANSPOSE = 11 };

/* onnxruntime computes a MaxPool of version 1 or 8 and later, without Indices, by a kernel of its own in the blocked
 * layout between Convs. It is fast, but loses NaN, pads in its own way, and divides by zero where no window fits. */
enum { UNBLOCKED_MAX_POOL = 2 };

typedef struct Op { /* OrtCustomOp of API 17, and what is ours */
    uint32_t version;
    void *(*create_v1)(void);
    const char *(*name_of)(const struct Op *);
    const char *(*provider)(const struct Op *);
    int (*input_type)(const struct Op *, size_t);
    size_t (*input_count)(const struct Op *);
    int (*output_type)(const struct Op *, size_t);
    size_t (*output_count)(const struct Op *);
    void (*compute_v1)(void);
    void (*destroy)(void *);
    int (*input_characteristic)(const struct Op *, size_t);
    int (*output_characteristic)(const struct Op *, size_t);
    int (*memory_type)(const struct Op *, size_t);
    int (*variadic[4])(const struct Op *); /* least counts, and whether types are one, of inputs and outputs */
    OrtStatus *(*create)(const struct Op *, const void *, const void *, void **);
    OrtStatus *(*compute)(void *, void *);
    OrtStatus *(*infer)(const struct Op *, void *);
    int (*start_version)(const struct Op *);
    int (*end_version)(const struct Op *);
    int32_t operator, type, domain;
    const Settings *settings;
} Op;

/* The planner, and the structs that it reads */

typedef struct List {
    int64_t count; /* -1: the attribute is not set; -2: it has another type */
    void *values;
} List;

typedef struct Tensor {
    void *data; /* NULL: there is none */
    int64_t type, rank;
    int64_t dims[MAX_RANK];
} Tensor;

typedef struct Node { /* a node when its kernel is created */
    int64_t id, operator, domain, outputs;
    const char *name;
    List kernel_shape, strides, pads, dilations, output_padding, output_shape, group, ceil_mode, storage_order;
    List auto_pad, activation; /* text */
    List activation_params;    /* float */
    const char *settings[SETTINGS];
    Tensor constants[MAX_INPUTS]; /* inputs that are constant; they live as long as the kernel */
} Node;

typedef struct Call { /* one run of a node */
    int64_t id, inputs;
    Tensor tensors[MAX_INPUTS];
    void *context;
    char *message; /* room for MESSAGE bytes, where a failure says what happened */
} Call;

enum { MESSAGE = 4096 };

typedef struct Answer { /* a plan for a new shape */
    int64_t id;       /* what the plan refers to lives until `unpool_forget` has it */
    const void *blob; /* for `plan_read` */
    int64_t size;     /* 0: there is no plan, so `compute` has to run */
    const int64_t *kernels;
    void *const *constants;
} Answer;

typedef struct Planner { /* functions return OK or a code of OrtStatus, and write a message */
    int32_t (*create)(const Node *, char *message);
    int32_t (*plan)(Call *, const int64_t *key, int64_t count, Answer *);
    int32_t (*compute)(Call *);
} Planner;

static const Planner *planner;
static int64_t calls; /* of the planner that are running */

static const Planner *enter(void) { /* the planner, NULL if there is none; `leave` follows */
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&planner, __ATOMIC_SEQ_CST);
}

static void leave(void) { __atomic_sub_fetch(&calls, 1, __ATOMIC_SEQ_CST); }

static OrtStatus *fail(int code, const char *message) { return CreateStatus(code, message); }

static int release(OrtStatus *status) { /* 1 if the call failed */
    if (status == NULL) return 0;
    ReleaseStatus(status);
    return 1;
}

/* Attributes */

static List read_ints(const void *info, const char *name) {
    List list = {-1, NULL};
    size_t count = 0;
    if (release(KernelInfoGetAttributeArray_int64(info, name, NULL, &count))) return list;
    list.values = malloc((count + 1) * sizeof(int64_t));
    if (list.values && !release(KernelInfoGetAttributeArray_int64(info, name, list.values, &count))) list.count = count;
    return list;
}

static List read_floats(const void *info, const char *name) {
    List list = {-1, NULL};
    size_t count = 0;
    if (release(KernelInfoGetAttributeArray_float(info, name, NULL, &count))) return list;
    list.values = malloc((count + 1) * sizeof(float));
    if (list.values && !release(KernelInfoGetAttributeArray_float(info, name, list.values, &count))) list.count = count;
    return list;
}

/* The count of an attribute that a function for its type does not find. For one of any other type, onnxruntime finds a
 * list without integers. */
static int64_t count_of_missing(const void *info, const char *name) {
    size_t count = 0;
    return release(KernelInfoGetAttributeArray_int64(info, name, NULL, &count)) ? -1 : -2;
}

static List read_int(const void *info, const char *name) {
    List list = {-1, malloc(sizeof(int64_t))};
    if (list.values == NULL) return list;
    list.count = release(KernelInfoGetAttribute_int64(info, name, list.values)) ? count_of_missing(info, name) : 1;
    return list;
}

static List read_text(const void *info, const char *name) {
    List list = {-1, NULL};
    size_t count = 0; /* with the NUL at the end */
    if (release(KernelInfoGetAttribute_string(info, name, NULL, &count)))
        return list.count = count_of_missing(info, name), list;
    list.values = calloc(count + 1, 1);
    if (list.values && !release(KernelInfoGetAttribute_string(info, name, list.values, &count)))
        list.count = count - 1;
    return list;
}

static List *lists_of(Node *node) { return &node->kernel_shape; }

enum { LISTS = 12 };

static OrtStatus *read_tensor(const OrtValue *value, Tensor *tensor) {
    OrtShapeInfo *info = NULL;
    size_t rank = 0;
    int type = 0;
    OrtStatus *status = GetTensorTypeAndShape(value, &info);
    if (status == NULL) status = GetTensorElementType(info, &type);
    if (status == NULL) status = GetDimensionsCount(info, &rank);
    if (status == NULL && rank > MAX_RANK) status = fail(NOT_IMPLEMENTED, "unpool: expected 64 axes at most.");
    if (status == NULL) status = GetDimensions(info, tensor->dims, rank);
    if (status == NULL) status = GetTensorMutableData((OrtValue *)value, &tensor->data);
    tensor->type = type, tensor->rank = rank;
    if (info != NULL) ReleaseTensorTypeAndShapeInfo(info);
    if (status == NULL && tensor->data == NULL) tensor->data = tensor; /* without elements */
    return status;
}

/* Kernels */

typedef struct Owned { /* something that the planner keeps things for, under its id */
    int64_t id;
    struct Owned *next; /* of those that were destroyed */
} Owned;

enum { MAX_KEY = MAX_INPUTS * (MAX_RANK + 2) + MAX_RANK, MAX_PLANS = 8 };

typedef struct Shaped { /* the plan of a node for some shapes */
    Owned owned;
    int64_t uses;
    Plan *plan; /* NULL: there is none, the planner computes */
    int64_t count, key[];
} Shaped;

typedef struct Kernel { /* a node of a session */
    Owned owned;
    int32_t operator, lock, is_compiled;
    int32_t is_constant[MAX_INPUTS];
    int64_t next, count;      /* of `plans` to replace, and their number */
    Shaped *plans[MAX_PLANS]; /* of the last shapes; of a compiled node, of all */
} Kernel;

static int64_t last_id;             /* of an Owned */
static Owned *destroyed;            /* nothing of the planner runs when a session ends: it asks for them later */
static _Thread_local void *running; /* context of the node that this thread computes */

static int64_t new_id(void) { return __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED); }

static void let_go(Owned *owned) {
    owned->next = __atomic_load_n(&destroyed, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&destroyed, &owned->next, owned, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
}

/* Call a function of the planner with the id of everything that was destroyed since the last time. */
EXPORT void unpool_forget(void (*forget)(int64_t)) {
    Owned *owned = __atomic_exchange_n(&destroyed, NULL, __ATOMIC_ACQUIRE);
    while (owned != NULL) {
        Owned *next = owned->next;
        forget(owned->id);
        free(owned);
        owned = next;
    }
}

static void acquire(int32_t *lock) { /* of something short; its holder may have lost its core */
    for (int polls = 1; __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); polls++)
        if (polls % 4096 == 0) pause_thread();
}

static void unlock(int32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

static void drop(Shaped *shaped) { /* one use less */
    if (shaped == NULL || __atomic_sub_fetch(&shaped->uses, 1, __ATOMIC_ACQ_REL) != 0) return;
    plan_free(shaped->plan);
    let_go(&shaped->owned);
}

static void destroy(void *own) {
    Kernel *kernel = own;
    for (int i = 0; i < MAX_PLANS; i++) drop(kernel->plans[i]);
    let_go(&kernel->owned);
}

/* A node of a compiled model has its plans in an attribute, one after the other. */
static OrtStatus *create_compiled(const Op *op, const void *info, Kernel *kernel) {
    char message[MESSAGE] = "";
    List blobs = read_text(info, "plans");
    int64_t at = 0, size;
    if (op->settings->values[TRUST_PLANS][0] != '1')
        return free(blobs.values),
               fail(NOT_IMPLEMENTED,
                    "unpool: this model has plans, which are code. If you trust the file, set the session's configuration "
                    "entry unpool.trust_plans to 1.");
    while (blobs.count > at && (size = plan_size((char *)blobs.values + at, blobs.count - at)) != 0) {
        Shaped *shaped = NULL;
        int64_t count;
        const int64_t *key;
        Plan *plan = plan_read((char *)blobs.values + at, size, message, MESSAGE);
        if (plan == NULL || !kernels_link(plan, message, MESSAGE)) return plan_free(plan), free(blobs.values), fail(FAIL, message);
        key = plan_key(plan, &count);
        if (kernel->count < MAX_PLANS) shaped = calloc(1, sizeof(Shaped) + count * sizeof *key);
        if (shaped == NULL)
            return plan_free(plan), free(blobs.values), fail(FAIL, "unpool: out of memory, or more than 8 plans of a node.");
        shaped->owned.id = new_id(), shaped->plan = plan, shaped->count = count, shaped->uses = 1;
        memcpy(shaped->key, key, count * sizeof *key);
        kernel->plans[kernel->count++] = shaped;
        at += size;
    }
    free(blobs.values);
    if (kernel->count == 0 || at != blobs.count) return fail(FAIL, "unpool: this plan is damaged. Compile the model again.");
    kernel->is_compiled = 1;
    return NULL;
}

static OrtStatus *create(const Op *op, const void *own_api, const void *info, void **result) {
    char name[512] = "", message[MESSAGE] = "", output[4] = "";
    size_t size = sizeof name, outputs = 0, length = sizeof output;
    Node *node = calloc(1, sizeof(Node));
    Kernel *kernel = calloc(1, sizeof(Kernel));
    OrtStatus *status = NULL;
    const Planner *current = enter();
    (void)own_api;
    if (node == NULL || kernel == NULL) status = fail(FAIL, "unpool: out of memory.");
    if (status == NULL && op->domain == COMPILED) {
        kernel->operator= op->operator, kernel->owned.id = new_id();
        status = create_compiled(op, info, kernel);
        leave();
        free(node);
        if (status != NULL) destroy(kernel), kernel = NULL;
        *result = kernel;
        return status;
    }
    if (status == NULL && current == NULL)
        status = fail(NOT_IMPLEMENTED, "unpool: this process has no planner. Register with unpool.onnxruntime.register.");
    if (status == NULL) {
        release(KernelInfo_GetNodeName(info, name, &size));
        status = KernelInfo_GetOutputCount(info, &outputs);
    }
    if (status == NULL) {
        if (outputs == 2) { /* an output whose name is empty is left out */
            int is_long = release(KernelInfo_GetOutputName(info, 1, output, &length));
            outputs = is_long || output[0] ? 2 : 1;
        }
        kernel->operator= op->operator;
        kernel->owned.id = node->id = new_id();
        node->operator= op->operator, node->domain = op->domain, node->outputs = outputs, node->name = name;
        node->kernel_shape = read_ints(info, "kernel_shape");
        node->strides = read_ints(info, "strides");
        node->pads = read_ints(info, "pads");
        node->dilations = read_ints(info, "dilations");
        node->output_padding = read_ints(info, "output_padding");
        node->output_shape = read_ints(info, "output_shape");
        node->group = read_int(info, "group");
        node->ceil_mode = read_int(info, "ceil_mode");
        node->storage_order = read_int(info, "storage_order");
        node->auto_pad = read_text(info, "auto_pad");
        node->activation = read_text(info, "activation");
        node->activation_params = read_floats(info, "activation_params");
        for (int i = 0; i < SETTINGS; i++) node->settings[i] = op->settings->values[i];
        for (size_t i = 1; i < input_counts[op->operator] && status == NULL; i++) {
            int is_constant = 0;
            const OrtValue *value = NULL;
            if (!release(KernelInfoGetConstantInput_tensor(info, i, &is_constant, &value)) && is_constant) {
                status = read_tensor(value, &node->constants[i]);
                kernel->is_constant[i] = 1;
            }
        }
    }
    if (status == NULL) {
        int code = current->create(node, message);
        if (code != OK) status = fail(code, message);
    }
    leave();
    for (int i = 0; node != NULL && i < LISTS; i++) free(lists_of(node)[i].values);
    free(node);
    if (status != NULL) free(kernel), kernel = NULL;
    *result = kernel;
    return status;
}

/* The shapes of the inputs that are no constants, and the values of MaxUnpool's `output_shape`; 0 words if it is wrong. */
static int64_t key_of(const Kernel *kernel, const Call *call, int64_t *key) {
    int64_t count = 0;
    for (int64_t i = 0; i < call->inputs; i++) {
        const Tensor *tensor = &call->tensors[i];
        if (kernel->is_compiled && i >= (int64_t)data_counts[kernel->operator]) break;
        key[count++] = tensor->data == NULL ? -1 : tensor->type;
        key[count++] = tensor->data == NULL ? 0 : tensor->rank;
        for (int64_t axis = 0; tensor->data != NULL && axis < tensor->rank; axis++) key[count++] = tensor->dims[axis];
        if (kernel->operator== MAX_UNPOOL && i == 2 && tensor->data != NULL) {
            if (tensor->type != INT64 || tensor->rank != 1 || tensor->dims[0] > MAX_RANK) return 0;
            for (int64_t axis = 0; axis < tensor->dims[0]; axis++) key[count++] = ((int64_t *)tensor->data)[axis];
        }
    }
    return count;
}

static Shaped *find(Kernel *kernel, const int64_t *key, int64_t count) {
    Shaped *found = NULL;
    acquire(&kernel->lock);
    for (int i = 0; i < MAX_PLANS && found == NULL; i++) {
        Shaped *shaped = kernel->plans[i];
        if (shaped != NULL && shaped->count == count && memcmp(shaped->key, key, count * sizeof *key) == 0) found = shaped;
    }
    if (found != NULL) __atomic_add_fetch(&found->uses, 1, __ATOMIC_RELAXED);
    unlock(&kernel->lock);
    return found;
}

static void keep(Kernel *kernel, Shaped *shaped) {
    Shaped *replaced;
    acquire(&kernel->lock);
    replaced = kernel->plans[kernel->next];
    kernel->plans[kernel->next] = shaped;
    kernel->next = (kernel->next + 1) % MAX_PLANS;
    __atomic_add_fetch(&shaped->uses, 1, __ATOMIC_RELAXED);
    unlock(&kernel->lock);
    drop(replaced);
}

static Shaped *ask(Kernel *kernel, Call *call, const int64_t *key, int64_t count, const Planner *current, int *code) {
    Answer answer = {0};
    Shaped *shaped = calloc(1, sizeof(Shaped) + count * sizeof *key);
    *code = FAIL;
    if (shaped == NULL) return strcpy(call->message, "unpool: out of memory."), NULL;
    shaped->owned.id = answer.id = new_id(), shaped->count = count, shaped->uses = 1;
    memcpy(shaped->key, key, count * sizeof *key);
    *code = current->plan(call, key, count, &answer);
    if (*code == OK && answer.size != 0) {
        shaped->plan = plan_read(answer.blob, answer.size, call->message, MESSAGE);
        if (shaped->plan != NULL)
            plan_link(shaped->plan, answer.kernels, answer.constants);
        else
            *code = FAIL;
    }
    if (*code != OK) return drop(shaped), NULL;
    keep(kernel, shaped);
    return shaped;
}

static int parallel_for(void *context, void (*task)(void *, size_t), size_t parts, void *data) {
    return !release(KernelContext_ParallelFor(context, task, parts, 0, data));
}

static int64_t bytes_of(const Tensor *tensor) {
    static const int64_t sizes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 0, 0, 2}; /* by number of onnx.TensorProto */
    int64_t bytes = tensor->type < (int64_t)(sizeof sizes / sizeof *sizes) ? sizes[tensor->type] : 0;
    for (int64_t axis = 0; axis < tensor->rank; axis++) bytes *= tensor->dims[axis];
    return bytes;
}

static OrtStatus *run(Shaped *shaped, Call *call, int *is_done) {
    void *inputs[MAX_OPERANDS] = {NULL}, *outputs[MAX_OPERANDS] = {NULL};
    int64_t sizes[MAX_OPERANDS] = {0};
    OrtStatus *status = NULL;
    for (int64_t i = 0; i < call->inputs; i++) {
        inputs[i] = call->tensors[i].data;
        if (inputs[i] != NULL) sizes[i] = bytes_of(&call->tensors[i]);
    }
    for (int64_t i = 0; status == NULL && i < plan_output_count(shaped->plan); i++) {
        PlanOutput output = plan_output(shaped->plan, i);
        OrtValue *value = NULL;
        status = KernelContext_GetOutput(call->context, i, output.dims, output.rank, &value);
        if (status == NULL && value != NULL) status = GetTensorMutableData(value, &outputs[i]);
        if (outputs[i] == NULL) outputs[i] = call; /* without elements */
    }
    if (status == NULL) {
        int result = plan_run(shaped->plan, inputs, sizes, outputs, parallel_for, call->context, call->message, MESSAGE);
        *is_done = result == PLAN_DONE;
        if (result == PLAN_FAILED) status = fail(INVALID_ARGUMENT, call->message);
    }
    return status;
}

static OrtStatus *compute_compiled(Kernel *kernel, Call *call) {
    int64_t key[MAX_KEY], count = key_of(kernel, call, key), done;
    Shaped *shaped = find(kernel, key, count);
    int is_done = 0;
    OrtStatus *status = NULL;
    if (shaped != NULL) {
        status = run(shaped, call, &is_done);
        drop(shaped);
        if (status != NULL || is_done) return status;
        return fail(NOT_IMPLEMENTED, "unpool: the plan cannot compute these values. Run the model that was compiled instead.");
    }
    done = snprintf(call->message, MESSAGE, "unpool: the model was compiled for other shapes than [");
    for (int64_t axis = 0; axis < call->tensors[0].rank && done < MESSAGE; axis++)
        done += snprintf(call->message + done, MESSAGE - done, axis ? ", %lld" : "%lld", (long long)call->tensors[0].dims[axis]);
    if (done < MESSAGE) snprintf(call->message + done, MESSAGE - done, "] of this node's input. Compile it for this one, too.");
    return fail(INVALID_ARGUMENT, call->message);
}

static OrtStatus *compute(void *own, void *context) {
    char message[MESSAGE] = "";
    int64_t key[MAX_KEY], count = 0;
    int is_done = 0, code = FAIL;
    size_t inputs = 0;
    Kernel *kernel = own;
    Shaped *shaped = NULL;
    Call call;
    OrtStatus *status = KernelContext_GetInputCount(context, &inputs);
    call.id = kernel->owned.id, call.inputs = inputs, call.context = context, call.message = message;
    for (size_t i = 0; status == NULL && i < inputs; i++) {
        const OrtValue *value = NULL;
        call.tensors[i].data = NULL;
        if (kernel->is_constant[i]) continue;
        status = KernelContext_GetInput(context, i, &value);
        if (status == NULL && value != NULL) status = read_tensor(value, &call.tensors[i]);
    }
    if (status != NULL) return status;
    if (kernel->is_compiled) return compute_compiled(kernel, &call);
    count = key_of(kernel, &call, key);
    if (count != 0) shaped = find(kernel, key, count);
    if (shaped != NULL && shaped->plan != NULL) status = run(shaped, &call, &is_done);
    if (status == NULL && !is_done) {
        void *before = running;
        const Planner *current = enter();
        running = context;
        if (current == NULL) {
            strcpy(message, "unpool: the planner of this process has ended.");
        } else {
            code = OK;
            if (shaped == NULL && count != 0) {
                shaped = ask(kernel, &call, key, count, current, &code);
                if (code == OK && shaped->plan != NULL) status = run(shaped, &call, &is_done);
            }
            if (code == OK && status == NULL && !is_done) code = current->compute(&call);
        }
        running = before;
        leave();
        if (code != OK) status = fail(code, message);
    }
    drop(shaped);
    return status;
}

/* An output of the running node: its memory, NULL with a message if onnxruntime refuses it. */
EXPORT void *unpool_output(Call *call, int64_t number, int64_t rank, const int64_t *dims) {
    OrtValue *value = NULL;
    void *data = NULL;
    OrtStatus *status = KernelContext_GetOutput(call->context, number, dims, rank, &value);
    if (status == NULL && value != NULL) status = GetTensorMutableData(value, &data);
    if (status != NULL) {
        const char *text = ((const char *(*)(const OrtStatus *))api[2])(status);
        snprintf(call->message, MESSAGE, "%s", text);
        ReleaseStatus(status);
        return NULL;
    }
    return data == NULL ? call : data; /* without elements */
}

/* Jobs of a kernel of unpool: the words of `unpool/kernels/cpu/machine/task.py` */

enum { RUN_PART = 1, STATUS = 3, FIRST = 6, STOP = 7, THREADS = 8, PARTS = 9 };

static void run_part(void *data, size_t part) {
    int64_t *task = data, count = task[THREADS] * task[PARTS], jobs = task[STOP] - task[FIRST];
    int64_t start = task[FIRST] + jobs * (int64_t)part / count, stop = task[FIRST] + jobs * ((int64_t)part + 1) / count;
    ((void (*)(int64_t, int64_t, int64_t, int64_t))(intptr_t)task[RUN_PART])((intptr_t)task, start, stop, part);
}

/* Computes all parts of a task in the threads of the session whose node this thread computes. */
EXPORT int64_t unpool_run_parts(int64_t address) {
    int64_t *task = (int64_t *)(intptr_t)address, count = task[THREADS] * task[PARTS];
    if (running == NULL || release(KernelContext_ParallelFor(running, run_part, count, 0, task)))
        for (int64_t part = 0; part < count; part++) run_part(task, part);
    return 0;
}

/* Types and shapes of outputs. An unknown size is -1, and has a name; no error is raised here, the node runs into it. */

enum { ATTRIBUTE_INT = 1, ATTRIBUTE_INTS = 2, ATTRIBUTE_STRING = 5 }; /* OrtOpAttrType */
enum { NAME = 48 };

typedef struct Window {
    int64_t size, stride, dilation, begin, end, extra; /* extra: output_padding */
} Window;

static int64_t read_list(const void *context, const char *name, int64_t *values, int64_t most) { /* -1: not set */
    const void *attribute = NULL;
    size_t bytes = 0;
    if (release(ShapeInferContext_GetAttribute(context, name, &attribute)) || attribute == NULL) return -1;
    if (release(ReadOpAttr(attribute, ATTRIBUTE_INTS, values, most * sizeof(int64_t), &bytes))) return most + 1;
    return bytes / sizeof(int64_t);
}

static int64_t read_number(const void *context, const char *name, int64_t otherwise) {
    const void *attribute = NULL;
    size_t bytes = 0;
    int64_t value = otherwise;
    if (release(ShapeInferContext_GetAttribute(context, name, &attribute)) || attribute == NULL) return otherwise;
    return release(ReadOpAttr(attribute, ATTRIBUTE_INT, &value, sizeof value, &bytes)) ? otherwise : value;
}

static void read_auto_pad(const void *context, char text[16]) {
    const void *attribute = NULL;
    size_t bytes = 0;
    memset(text, 0, 16);
    if (!release(ShapeInferContext_GetAttribute(context, "auto_pad", &attribute)) && attribute != NULL)
        if (release(ReadOpAttr(attribute, ATTRIBUTE_STRING, text, 15, &bytes))) strcpy(text, "unknown");
    if (text[0] == 0) strcpy(text, "NOTSET");
}

/* Windows along the spatial axes, 0 where the lists do not fit. */
static int read_windows(const void *context, int64_t axes, const int64_t *sizes, Window *windows) {
    int64_t strides[MAX_RANK], dilations[MAX_RANK], pads[2 * MAX_RANK], extra[MAX_RANK], kernel[MAX_RANK];
    int64_t n_strides = read_list(context, "strides", strides, MAX_RANK), n_kernel, n_pads, n_dilations, n_extra;
    n_kernel = read_list(context, "kernel_shape", kernel, MAX_RANK);
    n_pads = read_list(context, "pads", pads, 2 * MAX_RANK);
    n_dilations = read_list(context, "dilations", dilations, MAX_RANK);
    n_extra = read_list(context, "output_padding", extra, MAX_RANK);
    if ((n_kernel != axes && (n_kernel != -1 || sizes == NULL)) || (n_strides != -1 && n_strides != axes) ||
        (n_pads != -1 && n_pads != 2 * axes) || (n_dilations != -1 && n_dilations != axes) ||
        (n_extra != -1 && n_extra != axes))
        return 0;
    for (int64_t i = 0; i < axes; i++) {
        Window window = {n_kernel == -1 ? sizes[i] : kernel[i], 1, 1, 0, 0, 0};
        if (n_strides != -1) window.stride = strides[i];
        if (n_dilations != -1) window.dilation = dilations[i];
        if (n_pads != -1) window.begin = pads[i], window.end = pads[axes + i];
        if (n_extra != -1) window.extra = extra[i];
        if (window.size < 1 || window.stride < 1 || window.dilation < 1 || window.begin < 0 || window.end < 0 ||
            (window.size | window.stride | window.dilation | window.begin | window.end | window.extra) >> 31)
            return 0;
        windows[i] = window;
    }
    return 1;
}

static int64_t pooled_size(int64_t large, Window window, int is_ceil) { /* as in `unpool/geometry.py` */
    int64_t reach = (window.size - 1) * window.dilation + 1, end = window.end, room;
    if (is_ceil) end = end + window.stride > reach ? reach - 1 : end + window.stride - 1;
    room = large + window.begin + end - reach;
    return room < 0 ? -1 : room / window.stride + 1;
}

static void infer_sizes(const Op *op, const void *context, int64_t rank, const int64_t *x, int64_t rank_w,
                        const int64_t *w, int has_shape, int64_t *y) {
    int64_t axes = rank - 2, fixed[MAX_RANK], first = op->domain ? 1 : 2, channels = op->domain ? rank - 1 : 1;
    Window windows[MAX_RANK];
    char auto_pad[16];
    const int64_t *sizes = NULL;
    y[0] = x[0];
    y[channels] = x[channels];
    if (op->operator== CONV_TRANSPOSE) {
        int64_t group = read_number(context, "group", 1);
        y[channels] = rank_w == rank && w[1] >= 0 && w[1] < 1 << 30 && group > 0 && group < 1 << 30 ? w[1] * group : -1;
        sizes = rank_w == rank ? w + 2 : NULL;
    }
    if (has_shape || strcmp(op->settings->values[COMPAT], "ort") == 0 || !read_windows(context, axes, sizes, windows)) return;
    read_auto_pad(context, auto_pad);
    if (op->operator== CONV_TRANSPOSE) {
        int64_t count = read_list(context, "output_shape", fixed, MAX_RANK);
        if (count != -1) { /* spatial sizes, or a whole shape */
            for (int64_t i = 0; i < axes; i++)
                if (count == axes) y[first + i] = fixed[i];
            return;
        }
    }
    for (int64_t i = 0; i < axes; i++) {
        int64_t size = x[first + i];
        Window window = windows[i];
        int is_same = strncmp(auto_pad, "SAME_", 5) == 0, is_valid = strcmp(auto_pad, "VALID") == 0;
        if (size < 0 || size >> 40 || (!is_same && !is_valid && strcmp(auto_pad, "NOTSET") != 0)) continue;
        if (is_valid) window.begin = window.end = 0;
        if (op->operator== MAX_POOL)
            y[first + i] = is_same ? (size + window.stride - 1) / window.stride
                                   : pooled_size(size, window, !is_valid && read_number(context, "ceil_mode", 0) == 1);
        else if (op->operator== MAX_UNPOOL)
            y[first + i] = (size - 1) * window.stride + window.size - window.begin - window.end;
        else if (is_same)
            y[first + i] = size * window.stride;
        else
            y[first + i] = (size - 1) * window.stride + (window.size - 1) * window.dilation + 1 - window.begin -
                           window.end + window.extra;
        if (y[first + i] < 0) y[first + i] = -1;
    }
}

static int64_t read_shape(const void *context, size_t input, int *type, int64_t *dims, const char **symbols) {
    OrtShapeInfo *info = NULL; /* the context's */
    size_t rank = 0;           /* the result; 0 if it is unknown */
    if (release(ShapeInferContext_GetInputTypeShape(context, input, &info)) || info == NULL) return 0;
    if (release(GetTensorElementType(info, type))) return 0;
    if (release(GetDimensionsCount(info, &rank)) || rank > MAX_RANK || release(GetDimensions(info, dims, rank))) return 0;
    if (symbols != NULL && release(GetSymbolicDimensions(info, symbols, rank))) return 0;
    return rank;
}

static OrtStatus *infer(const Op *op, void *context) {
    static int64_t names_given;
    int64_t x[MAX_RANK], w[MAX_RANK], y[MAX_RANK], rank, rank_w = 0;
    int type, type_w; /* of the node: onnxruntime asks the first operator of this name for all types */
    const char *symbols[MAX_RANK] = {NULL}, *y_symbols[MAX_RANK];
    char *room;
    size_t inputs = 0, outputs = output_counts[op->operator];
    if (release(ShapeInferContext_GetInputCount(context, &inputs)) || inputs == 0) return NULL;
    rank = read_shape(context, 0, &type, x, symbols);
    if (rank < 3 || (room = malloc(MAX_RANK * NAME)) == NULL) return NULL;
    if (op->operator== CONV_TRANSPOSE && inputs > 1) rank_w = read_shape(context, 1, &type_w, w, NULL);
    for (int64_t i = 0; i < rank; i++) y[i] = -1;
    if (op->domain != COMPILED) /* whose model has the sizes */
        infer_sizes(op, context, rank, x, rank_w, w, op->operator== MAX_UNPOOL && inputs == 3, y);
    for (int output = 0; output < (api_number >= CHECKS_OUTPUT_COUNT ? (int)outputs : 1); output++) {
        OrtShapeInfo *info = NULL;
        int64_t dims[MAX_RANK];
        for (int64_t i = 0; i < rank; i++) { /* indices are (N, C, D1..Dk) in either layout */
            int64_t from = output == 1 && op->domain == CHANNELS_LAST && i > 0 ? (i == 1 ? rank - 1 : i - 1) : i;
            int is_x = op->domain != COMPILED &&
                       (from == 0 || (from == (op->domain ? rank - 1 : 1) && op->operator!= CONV_TRANSPOSE));
            dims[i] = y[from];
            y_symbols[i] = "";
            if (dims[i] >= 0) continue;
            y_symbols[i] = room + i * NAME;
            if (is_x && symbols[from] != NULL && symbols[from][0] != 0)
                y_symbols[i] = symbols[from];
            else
                snprintf(room + i * NAME, NAME, "unpool_size_%lld",
                         (long long)__atomic_add_fetch(&names_given, 1, __ATOMIC_RELAXED));
        }
        if (release(CreateTensorTypeAndShapeInfo(&info))) break;
        if (!release(SetTensorElementType(info, output == 1 ? INT64 : type)) &&
            !release(SetDimensions(info, dims, rank)) && !release(SetSymbolicDimensions(info, y_symbols, rank)))
            release(ShapeInferContext_SetOutputTypeShape(context, output, info));
        ReleaseTensorTypeAndShapeInfo(info);
    }
    free(room);
    return NULL; /* onnxruntime ignores a status here */
}

/* Registration */

static void *create_v1(void) { return NULL; }
static void compute_v1(void) {}
static const char *name_of(const Op *op) { return names[op->operator]; }
static const char *provider(const Op *op) { return (void)op, "CPUExecutionProvider"; }
static size_t input_count(const Op *op) {
    if (op->domain == COMPILED) return data_counts[op->operator] + (op->operator== CONV_TRANSPOSE);
    return input_counts[op->operator];
}
static size_t output_count(const Op *op) { return output_counts[op->operator]; }
static int input_type(const Op *op, size_t input) {
    if (op->domain == COMPILED && op->operator== CONV_TRANSPOSE && input == 1) return 0; /* constants of any type */
    return op->operator== MAX_UNPOOL && input > 0 ? INT64 : op->type;
}
static int output_type(const Op *op, size_t output) { return output == 1 ? INT64 : op->type; }
static int input_characteristic(const Op *op, size_t input) {
    if (op->domain == COMPILED && op->operator== CONV_TRANSPOSE) return input == 1 ? VARIADIC : REQUIRED;
    return input == 2 ? OPTIONAL : REQUIRED;
}
static int output_characteristic(const Op *op, size_t output) { return (void)op, output == 1 ? OPTIONAL : REQUIRED; }
static int memory_type(const Op *op, size_t input) { return (void)op, (void)input, 0; }
static int one(const Op *op) { return (void)op, 1; }
static int is_homogeneous(const Op *op) { return op->domain != COMPILED; }
static int last_version(const Op *op) { return (void)op, INT32_MAX; }

static int start_version(const Op *op) {
    if (op->domain == COMPILED) return 1;
    if (op->operator== MAX_POOL && op->settings->values[EXACT][0] == '1') return UNBLOCKED_MAX_POOL;
    return op->operator== CONV_TRANSPOSE && op->settings->values[OPSET][0] == 0 ? NEW_CONV_TRANSPOSE : 1;
}

/* Operators and domains stay until the process ends, for the sessions that use them. */

typedef struct Registered {
    struct Registered *next;
    Settings settings;
    void *domains[DOMAINS];
    Op ops[DOMAINS][OPERATORS * TYPES];
} Registered;

static Registered *all_registered;

static OrtStatus *make(const Settings *settings, Registered **result) {
    const Op common = {.version = MIN_API, .create_v1 = create_v1, .name_of = name_of, .provider = provider,
        .input_type = input_type, .input_count = input_count, .output_type = output_type, .output_count = output_count,
        .compute_v1 = compute_v1, .destroy = destroy, .input_characteristic = input_characteristic,
        .output_characteristic = output_characteristic, .memory_type = memory_type, .variadic = {one, is_homogeneous, one, one},
        .create = create, .compute = compute, .infer = infer, .start_version = start_version, .end_version = last_version};
    Registered *made;
    for (made = all_registered; made != NULL; made = made->next)
        if (memcmp(&made->settings, settings, sizeof *settings) == 0) return *result = made, NULL;
    if ((made = calloc(1, sizeof *made)) == NULL) return fail(FAIL, "unpool: out of memory.");
    made->settings = *settings, made->next = all_registered;
    for (int d = 0; d < DOMAINS; d++) {
        OrtStatus *status = CreateCustomOpDomain(domains[d], &made->domains[d]);
        for (int i = 0; status == NULL && i < OPERATORS * TYPES; i++) {
            Op *op = &made->ops[d][i];
            *op = common;
            op->operator= i % OPERATORS, op->type = types[i / OPERATORS], op->domain = d, op->settings = &made->settings;
            if (op->operator== MAX_POOL || (op->type != INT8 && op->type != UINT8))
                status = CustomOpDomain_Add(made->domains[d], op);
        }
        if (status != NULL) return status;
    }
    *result = all_registered = made;
    return NULL;
}

static OrtStatus *read_settings(const void *options, Settings *settings) {
    memset(settings, 0, sizeof *settings);
    for (int i = 0; i < SETTINGS; i++) {
        size_t size = SETTING;
        int is_set = 0;
        OrtStatus *status = HasSessionConfigEntry(options, entries[i], &is_set);
        if (status == NULL && is_set) status = GetSessionConfigEntry(options, entries[i], settings->values[i], &size);
        if (status != NULL) return status;
    }
    return NULL;
}

typedef struct ApiBase {
    const void *const *(*get)(uint32_t);
    const char *(*version)(void);
} ApiBase;

EXPORT OrtStatus *RegisterCustomOps(void *options, const ApiBase *base) {
    static int lock;
    Settings settings;
    Registered *made = NULL;
    int is_set = 0;
    OrtStatus *status;
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
    api_number = atoi(strchr(base->version(), '.') + 1);
    api = base->get(api_number);
    if (api_number < MIN_API)
        status = fail(NOT_IMPLEMENTED, "unpool: onnxruntime 1.17 or later is needed. Install a newer one.");
    else
        status = HasSessionConfigEntry(options, "unpool.registered", &is_set);
    if (status == NULL && !is_set) { /* a domain may be registered only once for a session */
        status = read_settings(options, &settings);
        if (status == NULL) status = make(&settings, &made);
        for (int d = settings.values[TRUST_PLANS][0] == '1' ? COMPILED : 0; status == NULL && d < DOMAINS; d++)
            status = AddCustomOpDomain(options, made->domains[d]);
        if (status == NULL) status = AddSessionConfigEntry(options, "unpool.registered", "1");
    }
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    return status;
}

/* The digest of the sources that the library was built from, by `unpool/onnxruntime/library.py`. */
EXPORT const char *unpool_sources(void) { return UNPOOL_SOURCES; }

/* Set the planner of this process; with NULL no function of the earlier one runs any more when this returns. */
EXPORT void unpool_set_planner(const Planner *functions) {
    __atomic_store_n(&planner, functions, __ATOMIC_SEQ_CST);
    while (functions == NULL && __atomic_load_n(&calls, __ATOMIC_SEQ_CST) != 0) pause_thread();
}
